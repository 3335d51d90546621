//! Pieces of a long batch are committed by a separate thread: while one is written, the next is encoded and hashed.
//!
//! One piece at a time: the next is handed over when the one before is committed, and every operation that reads the
//! store, or ends the batch, waits for it first. So the log is the same as without the thread. The error of a piece is
//! returned by the next call that waits for it.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::Batch;
use crate::devices::extents::Touched;
use crate::devices::threads;
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Time};
use crate::format::ids::ObjectNumber;
use crate::layout::granulo::Alignment;

/// The subject of a waiting record.
#[derive(Debug)]
pub(super) enum RecordSubject {
    /// A key with its future index entry; and the descriptor of a large object.
    Put(Box<Entry>, Option<Arc<Descriptor>>),
    /// An existing object that gets another name.
    Name(Box<Named>),
    /// New attributes of an existing object, with the future index entry of their record.
    Attributes(Box<Named>),
    /// The index entry for the key.
    Removal(Box<SeenEntry>),
    /// The directories in it, once the piece is admitted; empty if it is not a directory.
    TreeRemoval(Vec<ObjectNumber>),
}

/// An index entry when it was looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenEntry {
    /// The version of the index.
    pub(super) version: u64,
    /// The directory of its name.
    pub(super) directory: ObjectNumber,
    pub(super) entry: Option<Entry>,
    /// Whether its object will have another name: a directory that moves need not be empty.
    pub(super) has_other: bool,
}

/// An object, and one of its names.
#[derive(Debug)]
pub(super) struct Named {
    /// Its future index entry.
    pub(super) entry: Entry,
    /// The descriptor of a large object.
    pub(super) descriptor: Option<Descriptor>,
    /// Its name, which must still be the same when this is committed.
    pub(super) name: Vec<u8>,
    pub(super) seen: SeenEntry,
    /// The index entry of the file to which the name leads, if that is what changes.
    pub(super) followed: Option<Entry>,
    pub(super) onto: Onto,
}

/// What the new name of an object may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// Anything, in whatever directory its path then leads to.
    Any(Existing),
    /// The name of an object that was seen in this directory, and that gets another one or is the object itself. The
    /// path must still lead there: a directory on the path may have been renamed.
    Seen(ObjectNumber),
}

/// What happens to an object that already has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced. A directory must be empty, and only directories replace directories.
    Replace,
    /// It stays, and the call fails.
    Refuse,
}

/// A record waiting to be committed.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Its path, or the placeholder for that of a shared object.
    pub(super) key: Arc<[u8]>,
    /// Where it begins among the encoded records.
    pub(super) start: usize,
    pub(super) record_bytes: usize,
    pub(super) subject: RecordSubject,
}

/// Records that are committed as one.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) records: Vec<u8>,
    pub(super) waiting: Vec<Waiting>,
    /// Extent files with units of these records.
    pub(super) touched: Touched,
    /// The alignment for which its records are encoded.
    pub(super) alignment: Alignment,
    /// When it is written.
    pub(super) time: Time,
}

impl Piece {
    /// Commits it: it gets ids, is appended to the log, and changes the index.
    ///
    /// # Errors
    /// As [`Batch::commit`]; none of it is then applied.
    pub(super) fn commit(&mut self, engine: &Engine) -> Result<()> {
        let given = self.records.len();
        let mut committed = self.commit_once(engine);
        for _ in 0..engine.devices.slots().len() {
            let Err(error) = &committed else { break };
            match engine.goes_on_without(error) {
                // The superblock of a slow device could not be written; the log is as before.
                Ok(true) => {
                    self.forget_admission(given);
                    committed = self.commit_once(engine);
                }
                Ok(false) => break,
                Err(latched) => committed = Err(latched),
            }
        }
        self.touched = Touched::default();
        // After other failures it is unknown what is in the log, so units that it may reference stay.
        if committed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            abandon(engine, &self.waiting);
        }
        self.records.clear();
        self.waiting.clear();
        committed
    }

    fn commit_once(&mut self, engine: &Engine) -> Result<()> {
        let Piece { records, waiting, touched, alignment, time } = self;
        engine.commit(records, waiting, touched, *alignment, *time)
    }

    /// Takes out what admission has added: directories above its objects, and the record of a removed tree. It finds
    /// them again, and a record that no one refers to would be signed with the others.
    fn forget_admission(&mut self, given_bytes: usize) {
        let is_tree = |one: &Waiting| matches!(one.subject, RecordSubject::TreeRemoval(_));
        self.records.truncate(given_bytes);
        self.waiting.retain(|one| is_tree(one) || one.start < given_bytes);
    }

    /// The same as [`commit`](Self::commit) for a piece that others follow.
    fn commit_within(&mut self, engine: &Engine) -> Result<()> {
        self.commit(engine)?;
        // Durability before the batch ends does no harm: pieces are applied one by one. And memory stays bounded.
        engine.flush_if_full()
    }
}

/// Abandons the units of large objects that will not be committed.
pub(super) fn abandon(engine: &Engine, waiting: &[Waiting]) {
    for waiting in waiting {
        if let RecordSubject::Put(_, Some(descriptor)) = &waiting.subject {
            engine.abandon(descriptor);
        }
    }
}

/// The thread of a batch.
#[derive(Debug)]
pub(super) struct Committer {
    give: SyncSender<Piece>,
    done: Receiver<(Piece, Result<()>)>,
    thread: JoinHandle<()>,
    is_busy: bool,
}

impl Committer {
    /// # Errors
    /// The system refuses a thread.
    fn begin(engine: Arc<Engine>) -> Result<Committer> {
        let (give, pieces) = sync_channel::<Piece>(1);
        let (tell, done) = sync_channel(1);
        let commit = move || {
            for mut piece in pieces {
                let committed = piece.commit_within(&engine);
                if tell.send((piece, committed)).is_err() {
                    return;
                }
            }
        };
        Ok(Committer { give, done, thread: threads::spawn(commit)?, is_busy: false })
    }

    /// Ends the thread; a panic in it propagates.
    fn end(self) {
        drop((self.give, self.done));
        if let Err(panic) = self.thread.join()
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Batch<'_> {
    /// Commits waiting records while the batch continues; if no thread is available, before it does.
    ///
    /// # Errors
    /// The error of the previous piece; without a thread, of this one.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        self.settle()?;
        let mut piece = self.take_piece();
        if self.committer.is_none() {
            self.committer = Committer::begin(Arc::clone(&self.store.engine.engine)).ok();
        }
        let Some(committer) = &mut self.committer else {
            let committed = piece.commit_within(self.store.engine());
            self.take_back(piece);
            return self.remember(committed);
        };
        (self.records, self.waiting) = std::mem::take(&mut self.spare);
        match committer.give.send(piece) {
            Ok(()) => committer.is_busy = true,
            // It has panicked.
            Err(_) => self.end_committer(),
        }
        Ok(())
    }

    /// Waits until the piece that was handed over is committed.
    ///
    /// # Errors
    /// The error of that piece.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(committer) = self.committer.as_mut().filter(|committer| committer.is_busy) else { return Ok(()) };
        committer.is_busy = false;
        match committer.done.recv() {
            Ok((piece, committed)) => {
                self.spare = (piece.records, piece.waiting);
                self.remember(committed)
            }
            Err(_) => {
                self.end_committer();
                Ok(())
            }
        }
    }

    /// Ends the thread after its current piece.
    pub(super) fn end_committer(&mut self) {
        self.committer.take().into_iter().for_each(Committer::end);
    }
}
