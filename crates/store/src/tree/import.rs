//! Importing a tree into a store: new or changed files are stored, the rest does not change.
//!
//! One thread walks the tree and the listings of the store in parallel, both in key order, and decides what to do;
//! others read and store. The work is cut into pieces of about 1 MiB that are committed in order (`turns`), so that a
//! group is adjacent on disk. What the store has already is left as it is (`unchanged`): an interrupted import can be
//! repeated, and an import brings a store up to date. What is no longer in the source stays in the store, unless its
//! removal was requested: then it goes last, and only if the whole source was examined.
//!
//! Files with several names: the walk knows which name is the first in key order. That one stores the shared object;
//! the pieces of later names follow it. Numbers of shared objects that are already in the store are reused, each for
//! one inode only: names that were one file and are now two are separated.
//!
//! Memory: two pieces per thread, those that wait for their turn, and 60 bytes for each file with several names until
//! all were seen. Survives: files that change, vanish or cannot be read (retried, counted, reported), and the store
//! itself in the tree.

use std::collections::HashSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;

use super::beside::{Beside, count, keeps_any, remove};
use super::names::{Handover, SharedNames};
use super::posix::{Identity, XattrReader};
use super::put::Putter;
use super::task::{Action, ImportOptions, ImportSummary, Task};
use super::turns::Turns;
use super::unchanged::{Comparison, compare, is_same};
use super::walk::{SourceEntry, SourceTree, WalkFilter, WalkStep, path_of};
use super::{Ledger, Reports, begin_threads, default_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::locks::{lock, unpoisoned};
use crate::progress::Progress;
use crate::units::MIB;
use crate::{Listed, Store};

/// A piece ends at this much content; with more than two threads at less, so that their total does not exceed it,
const PIECE_BYTES: u64 = MIB;
/// or this many objects,
const PIECE_OBJECTS: usize = 256;
/// or its share of this many directories, which stay open until it is done.
const MOST_OPEN: usize = 384;

/// What an import of a tree would find.
#[derive(Debug, Default)]
pub struct Measure {
    /// Directories, including the root.
    pub directories: u64,
    /// Files; one with several names counts once.
    pub files: u64,
    /// Second and later names.
    pub links: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Fifos, sockets and devices.
    pub specials: u64,
    /// Sizes of the files in bytes, including holes.
    pub size_bytes: u128,
    /// Objects that only the store has, if they are to be removed and the whole source was examined.
    pub removals: u64,
    /// Entries that could not be examined.
    pub reports: Reports,
    /// Whether a stop was requested.
    pub interrupted: bool,
}

/// Imports the tree `source`, durable on return.
///
/// # Errors
/// If the source cannot be walked at all, if its place in the store is not a directory, or if the store cannot be
/// written; what was committed until then stays, and the import may be repeated. Unreadable files are not an error: see
/// [`ImportSummary::reports`].
pub fn import(store: &Store, source: &Path, options: &ImportOptions, progress: &Progress) -> Result<ImportSummary> {
    let mut summary = ImportSummary::default();
    import_into(store, source, options, progress, &mut summary)?;
    Ok(summary)
}

/// As [`import`]; `summary` has what was done until an error, too.
///
/// # Errors
/// As [`import`].
pub fn import_into(
    store: &Store,
    source: &Path,
    options: &ImportOptions,
    progress: &Progress,
    summary: &mut ImportSummary,
) -> Result<()> {
    let ledger = Ledger::new(progress);
    let tree = SourceTree::open(source, options.prefix.clone(), filter(store, options), &ledger)?;
    check_prefix(store, &options.prefix)?;
    let threads = options.threads.unwrap_or_else(default_threads).max(1);
    let turns = Turns::new(store, &ledger);
    let totals = Mutex::new(ImportSummary::default());
    let giant = Mutex::new(());
    let (sender, receiver) = sync_channel::<TaskBatch>(threads);
    let receiver = Mutex::new(receiver);
    let bounds = PieceBounds {
        bytes: store.engine().batch_bytes((2 * PIECE_BYTES / threads as u64).min(PIECE_BYTES)),
        directories: MOST_OPEN / (2 * threads + 1),
    };
    let (planned, gone) = std::thread::scope(|scope| {
        begin_threads(scope, 1, || turns.commit_all())?;
        let _open = turns.open();
        std::thread::scope(|scope| {
            begin_threads(scope, threads, || {
                let path_of = |key: &Key| path_of(source, &options.prefix, key);
                let mut putter = Putter::new(store, &ledger, options, &path_of, &giant);
                work(&receiver, &turns, &ledger, &mut putter);
                lock(&totals).add(&putter.done);
            })?;
            Ok::<_, Error>(Planner::new(store, &ledger, options, tree, sender, bounds).run())
        })
    })?;
    *summary = unpoisoned(totals.into_inner());
    summary.add(&turns.into_done());
    summary.add(&planned);
    summary.own_directories = planned.own_directories;
    finish(store, &ledger, summary)?;
    match gone {
        Gone::Unwanted => {}
        Gone::Unknown => summary.removal_refused = true,
        Gone::Known(_) if summary.interrupted => {}
        Gone::Known(gone) => summary.removed = remove(store, gone, options)?,
    }
    Ok(())
}

fn filter(store: &Store, options: &ImportOptions) -> WalkFilter {
    let ImportOptions { one_file_system, ref selection, .. } = *options;
    WalkFilter { one_file_system, own: own_directories(store), selection: selection.clone() }
}

/// What only the store has.
enum Gone {
    /// Nobody asked.
    Unwanted,
    /// A part of the source could not be examined.
    Unknown,
    /// These, each with everything below it.
    Known(Vec<Listed>),
}

/// Makes durable what was committed, and adds to the summary whether the work was interrupted, and the reports.
pub(super) fn finish(store: &Store, ledger: &Ledger<'_>, summary: &mut ImportSummary) -> Result<()> {
    summary.interrupted = ledger.is_interrupted();
    let (failed, reports) = ledger.end();
    summary.reports = reports;
    let synced = store.sync();
    // The first failure is the one to report; saving earlier work shortens a repetition.
    failed.map_or(synced, Err)
}

/// Counts what an import of `source` would read, without reading content.
///
/// # Errors
/// If the source cannot be walked at all.
pub fn measure(store: &Store, source: &Path, options: &ImportOptions, progress: &Progress) -> Result<Measure> {
    check_prefix(store, &options.prefix)?;
    let ledger = Ledger::new(progress);
    let mut tree = SourceTree::open(source, options.prefix.clone(), filter(store, options), &ledger)?;
    let mut beside = options.delete.then(|| Beside::new(store, true));
    let mut measured = Measure::default();
    let mut names = SharedNames::default();
    while let Some(step) = tree.next() {
        if let Some(beside) = &mut beside {
            beside.follow(&step, &tree)?;
        }
        match step {
            WalkStep::Leave => continue,
            WalkStep::Enter(_) => measured.directories += 1,
            WalkStep::Entry(SourceEntry { status, .. }) => match status.file_type() {
                FileType::RegularFile if names.later(status.file()).is_some() => measured.links += 1,
                FileType::RegularFile => {
                    names.first(status.file(), status.link_count.into(), ());
                    measured.files += 1;
                    measured.size_bytes += u128::from(status.size_bytes);
                }
                FileType::Symlink => measured.symlinks += 1,
                _ => measured.specials += 1,
            },
        }
        if !ledger.advance(1, 0) {
            break;
        }
    }
    if let Some(beside) = beside.filter(|_| tree.unread == 0 && !ledger.is_over()) {
        measured.removals = count(store, beside.into_gone(), options)?;
    }
    drop(tree);
    measured.interrupted = ledger.is_interrupted();
    measured.reports = ledger.end().1;
    Ok(measured)
}

/// Fails if `prefix` or a directory on its path exists as something else than a directory.
pub(super) fn check_prefix(store: &Store, prefix: &Key) -> Result<()> {
    let mut above = Some(prefix.clone());
    while let Some(key) = above {
        if let Some(listed) = store.entry(&key)?
            && listed.entry.kind != Kind::Directory
        {
            return Err(Error::new(ErrorKind::Usage, "import below", "it is not a directory of the store")
                .at(&key.to_path())
                .advise("choose another key"));
        }
        above = key.parent();
    }
    Ok(())
}

/// Identities of the store's own directories.
fn own_directories(store: &Store) -> HashSet<Identity> {
    let engine = store.engine();
    let geometry = store.geometry();
    let devices = geometry.devices.iter().map(|device| device.directory(&engine.home));
    let directories = devices.chain([engine.home.clone(), engine.index_directory.clone()]);
    // A missing device cannot be in the source.
    let opened = directories.filter_map(|path| std::fs::File::open(path).ok());
    opened.filter_map(|file| super::posix::status(&file).ok()).map(|status| status.identity).collect()
}

struct TaskBatch {
    number: u64,
    tasks: Vec<Task>,
}

fn work<'s>(
    receiver: &Mutex<Receiver<TaskBatch>>,
    turns: &Turns<'s, '_, '_>,
    ledger: &Ledger<'_>,
    putter: &mut Putter<'s, '_, '_>,
) {
    // All pieces are taken, and each is handed in at the end of its turn.
    loop {
        let piece = lock(receiver).recv();
        let Ok(TaskBatch { number, tasks }) = piece else { return };
        let mut turn = turns.turn(number);
        match putter.put_all(tasks, turns.memory()) {
            Ok(batch) => turn.batch = batch,
            Err(error) => ledger.fail(error),
        }
    }
}

/// Where a piece ends.
#[derive(Debug, Clone, Copy)]
struct PieceBounds {
    bytes: u64,
    directories: usize,
}

/// Decides what to do with each file of the source.
struct Planner<'s, 'l, 'w> {
    store: &'s Store,
    ledger: &'l Ledger<'w>,
    options: &'l ImportOptions,
    tree: SourceTree<'l, 'w>,
    sender: SyncSender<TaskBatch>,
    beside: Beside<'s>,
    names: SharedNames<(Identity, i64), Arc<Handover<ObjectNumber>>>,
    /// Shared objects of the store that are assigned to an inode of the source.
    claimed: hashbrown::HashSet<ObjectNumber>,
    xattrs: XattrReader,
    piece: TaskBatch,
    piece_bytes: u64,
    piece_directories: usize,
    /// Directories per piece: with one piece in the making, one waiting and one in work per thread, the limit of open
    /// directories holds.
    bounds: PieceBounds,
    unchanged: u64,
    replaced: u64,
}

impl<'s, 'l, 'w> Planner<'s, 'l, 'w> {
    fn new(
        store: &'s Store,
        ledger: &'l Ledger<'w>,
        options: &'l ImportOptions,
        tree: SourceTree<'l, 'w>,
        sender: SyncSender<TaskBatch>,
        bounds: PieceBounds,
    ) -> Self {
        Planner {
            store,
            ledger,
            options,
            tree,
            sender,
            beside: Beside::new(store, options.delete),
            names: SharedNames::default(),
            claimed: hashbrown::HashSet::new(),
            xattrs: XattrReader::default(),
            piece: TaskBatch { number: 0, tasks: Vec::new() },
            piece_bytes: 0,
            piece_directories: 0,
            bounds,
            unchanged: 0,
            replaced: 0,
        }
    }

    /// Plans the whole tree; returns how many objects are unchanged and how many damaged ones are replaced, as far as
    /// it decided that, and how many directories were skipped; and what only the store has.
    fn run(mut self) -> (ImportSummary, Gone) {
        while !self.ledger.is_over() {
            let Some(step) = self.tree.next() else { break };
            if let Err(error) = self.plan(step) {
                self.ledger.fail(error);
            }
        }
        self.send();
        let (unchanged, replaced) = (self.unchanged, self.replaced);
        let (own_directories, xattrs_unreadable) = (self.tree.own_directories, self.xattrs.unreadable);
        let gone = match (self.options.delete, self.tree.unread) {
            (false, _) => Gone::Unwanted,
            (true, 0) => Gone::Known(self.beside.into_gone()),
            (true, _) => Gone::Unknown,
        };
        (ImportSummary { unchanged, replaced, own_directories, xattrs_unreadable, ..ImportSummary::default() }, gone)
    }

    fn plan(&mut self, step: WalkStep) -> Result<()> {
        let listed = self.beside.follow(&step, &self.tree)?;
        let (found, is_directory) = match step {
            WalkStep::Leave => return Ok(()),
            WalkStep::Enter(found) => (found, true),
            WalkStep::Entry(found) => (found, false),
        };
        let stored_directory = listed.as_ref().map(|listed| listed.entry.kind == Kind::Directory);
        let replaces_directory = !is_directory && stored_directory == Some(true);
        // An import never removes the content of a directory on its own.
        if replaces_directory && (!self.options.delete || keeps_any(self.store, &found.key, self.options)?) {
            let cause = match self.options.delete {
                true => "the store has a directory with this name, and excluded objects in it",
                false => "the store has a directory with this name",
            };
            let error = Error::new(ErrorKind::Exists, "import", cause).at(&self.tree.path_of(&found.key));
            self.ledger.report(error.advise("to replace it, remove it first: granulo store rm -r"));
            return Ok(());
        }
        let replace = stored_directory.is_some_and(|stored| stored != is_directory);
        match self.action(&found, listed.as_ref())? {
            // Alone in its piece, which is dropped with the removal of the directory if the file cannot be read.
            Some(action) if replaces_directory => {
                self.send();
                self.push(Task { found, action, replace }, is_directory);
                self.send();
            }
            Some(action) => self.push(Task { found, action, replace }, is_directory),
            None => {
                self.ledger.advance(1, 0);
                self.ledger.skip(if is_directory { 0 } else { found.status.size_bytes });
                self.unchanged += 1;
            }
        }
        Ok(())
    }

    /// What to do; `None` if it is unchanged.
    fn action(&mut self, found: &SourceEntry, listed: Option<&Listed>) -> Result<Option<Action>> {
        let status = &found.status;
        let same = listed.filter(|listed| is_same(status, listed));
        if status.file_type() != FileType::RegularFile || status.link_count < 2 {
            return Ok(Some(same.map_or(Action::Put, |same| Action::PutIfOther(Box::new(same.clone())))));
        }
        let there = same.and_then(|listed| listed.shared);
        if let Some(slot) = self.names.later(status.file()) {
            // The number of an object that is being stored now was never listed before.
            let is_there = there.is_some() && slot.known() == there;
            return Ok(if is_there { None } else { Some(Action::Link(slot)) });
        }
        let slot = Arc::<Handover<ObjectNumber>>::default();
        self.names.first(status.file(), status.link_count.into(), slot.clone());
        let Some((number, same)) = there.filter(|&number| self.claimed.insert(number)).zip(same) else {
            return Ok(Some(Action::PutShared(slot)));
        };
        let compared = compare(self.store, found, same, &mut self.xattrs, self.options.verify)?;
        if compared == Comparison::Same {
            slot.set(Some(number));
            return Ok(None);
        }
        self.replaced += u64::from(compared == Comparison::Damaged);
        Ok(Some(Action::PutShared(slot)))
    }

    fn push(&mut self, task: Task, is_directory: bool) {
        self.piece_bytes += if is_directory { 0 } else { task.found.status.size_bytes };
        let directory = Arc::as_ptr(&task.found.directory);
        let last = self.piece.tasks.last();
        self.piece_directories += usize::from(last.is_none_or(|last| Arc::as_ptr(&last.found.directory) != directory));
        self.piece.tasks.push(task);
        if self.piece_bytes >= self.bounds.bytes
            || self.piece.tasks.len() >= PIECE_OBJECTS
            || self.piece_directories >= self.bounds.directories
        {
            self.send();
        }
    }

    fn send(&mut self) {
        let number = self.piece.number;
        let piece = std::mem::replace(&mut self.piece, TaskBatch { number: number + 1, tasks: Vec::new() });
        (self.piece_bytes, self.piece_directories) = (0, 0);
        // The threads take pieces until this end of the channel is dropped.
        let _ = self.sender.send(piece);
    }
}
