//! The passes of a scan: tables, then directories in device order, then the tree bottom-up.

use std::collections::HashMap;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use allocator_api2::vec::Vec as SpilledVec;

use super::ahead::{Ahead, CHUNK};
use super::directories::{Directories, Entry, Runs, merge};
use super::records::{Known, PartRecords, Records};
use super::tree::{At, Links, Tree, filled, look};
use super::{Damage, Found, InodeSource, InodeVisitor, Listed, Named, Scope, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::place::{Parent, Place};
use crate::scan::{Batch, Directory, Kind, SNAPSHOT_DIRECTORIES, Skipped, Stat, Tally, join};
use crate::sys::spill::Spill;

/// Inodes per batch.
const BATCH_INODES: usize = 128;
/// Names per batch.
const BATCH_NAMES: usize = 256;

/// Outcome of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// It was stopped.
    pub stopped: bool,
    /// Whether to repeat the scan, counted by name, with a fresh visitor: there are directories to leave out, or some
    /// that are unreachable from the root, or names are missing because something is damaged.
    pub again: bool,
    /// Names that lead to no inode.
    pub dangling: u64,
    /// Inodes whose number of names differs from their link count.
    pub miscounted: u64,
    /// Directories that are unreachable from the root.
    pub unreachable: u64,
    /// Directories with several names.
    pub doubled: u64,
    /// Inodes and parts of directories that could not be read, each time that they were needed.
    pub damaged: u64,
}

/// A scan of a source that reports to a visitor.
pub struct Scan<'s, S: InodeSource, V: InodeVisitor> {
    source: &'s S,
    visitor: &'s V,
    scope: &'s Scope,
    stop: AtomicBool,
    damaged: AtomicU64,
}

/// What a directory itself contains.
#[derive(Default)]
struct Own<K> {
    tally: K,
    entries: u64,
    /// Whether it was read to the end.
    listed: bool,
}

/// The sums of all directories, in the chunks that threads produce.
type Owns<K> = Vec<OnceLock<SpilledVec<Own<K>, Spill>>>;

/// What is left out, determined from the tree.
struct Filter<'t> {
    tree: &'t Tree,
    /// Whether each directory is below the root and not left out.
    inside: SpilledVec<bool, Spill>,
    /// Directories that are left out but whose names count.
    cut: HashMap<u32, Skipped>,
}

impl Filter<'_> {
    fn is_inside(&self, directory: u32) -> bool {
        self.inside.get(directory as usize) == Some(&true)
    }
}

/// Purpose of a pass over directories.
struct Pass<'t> {
    links: bool,
    names: bool,
    filter: Option<&'t Filter<'t>>,
}

impl<'s, S: InodeSource, V: InodeVisitor> Scan<'s, S, V> {
    /// Creates a scan; [`run`](Self::run) performs it.
    pub fn new(source: &'s S, visitor: &'s V, scope: &'s Scope) -> Scan<'s, S, V> {
        Scan { source, visitor, scope, stop: AtomicBool::new(false), damaged: AtomicU64::new(0) }
    }

    /// Ends the scan soon.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Scans to the end (or until [`stop`](Self::stop)), calling `on_tick` on this thread about every `tick`.
    ///
    /// # Errors
    /// If there is nothing to begin at: no root, or one that is not a directory.
    pub fn run(&self, tick: Duration, mut on_tick: impl FnMut()) -> Result<Ended> {
        let by_name = self.scope.counted_by_name
            || self.scope.root.is_some_and(|root| root != self.source.root())
            || !self.scope.mount_points.is_empty()
            || !self.scope.exclude.is_empty();
        if self.scope.without_names && !by_name {
            return self.count_inodes_alone(tick, &mut on_tick);
        }
        let records = Records::new(self.source.parts());
        let directories = self.read_tables(Some(&records), !by_name, tick, &mut on_tick);
        let root = self.find_root(&records)?;
        if directories.is_empty() {
            return Ok(Ended { stopped: true, ..Ended::default() });
        }
        let (ended, dangling) = if by_name {
            self.count_by_name(&records, directories, root, tick, &mut on_tick)
        } else {
            self.count_all(&records, directories, root, tick, &mut on_tick)
        };
        Ok(Ended { stopped: self.stopped(), dangling, damaged: self.damaged.load(Relaxed), ..ended })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn find_root(&self, records: &Records) -> Result<u32> {
        let root = self.scope.root.unwrap_or(self.source.root());
        match self.source.slot(root).map(|slot| records.get(slot)) {
            Some(Known::Directory(position)) => Ok(position),
            // A stopped scan may not have reached the root.
            _ if self.stopped() => Ok(0),
            _ => Err(no_root(self.source.slot(root).and_then(|slot| records.damage(slot)))),
        }
    }

    /// Everything counts, and names are ignored: nothing needs to be kept.
    fn count_inodes_alone(&self, tick: Duration, on_tick: &mut dyn FnMut()) -> Result<Ended> {
        let directories = self.read_tables(None, true, tick, on_tick);
        match self.stopped() || directories.iter().any(|entry| entry.inode == self.source.root()) {
            true => {
                let damaged = self.damaged.load(Relaxed);
                Ok(Ended { stopped: self.stopped(), damaged, ..Ended::default() })
            }
            false => Err(no_root(None)),
        }
    }

    /// Everything below the root of the file system counts: inodes were counted in table order.
    fn count_all(
        &self,
        records: &Records,
        directories: Directories<S::Listing>,
        root: u32,
        tick: Duration,
        on_tick: &mut dyn FnMut(),
    ) -> (Ended, u64) {
        let count = directories.len();
        let (dangling, snapshots) = (AtomicU64::new(0), AtomicU64::new(0));
        let owns = owns(count);
        let pass = Pass { links: true, names: true, filter: None };
        let found = self.read_directories(records, &directories, &pass, &owns, [&dangling, &snapshots], tick, on_tick);
        drop(directories);
        let tree = Tree::new(self.scope.path.clone(), root, true, count, found, &self.scope.spill);
        let unreachable = count as u64 - reachable(&tree);
        let is_other = unreachable > 0 || tree.doubled > 0 || snapshots.load(Relaxed) > 0;
        let again = !self.stopped() && (is_other || self.damaged.load(Relaxed) > 0);
        if !again {
            self.finish(&tree, &owns, None);
        }
        let (doubled, miscounted) = (tree.doubled, records.miscounted());
        (Ended { again, unreachable, doubled, miscounted, ..Ended::default() }, dangling.into_inner())
    }

    /// Counts only what names lead to, without what is left out.
    fn count_by_name(
        &self,
        records: &Records,
        directories: Directories<S::Listing>,
        root: u32,
        tick: Duration,
        on_tick: &mut dyn FnMut(),
    ) -> (Ended, u64) {
        let count = directories.len();
        let (dangling, ignored) = (AtomicU64::new(0), AtomicU64::new(0));
        let pass = Pass { links: true, names: false, filter: None };
        let found = self.read_directories(records, &directories, &pass, &Vec::new(), [&ignored; 2], tick, on_tick);
        let whole = self.scope.root.is_none_or(|root| root == self.source.root());
        let tree = Tree::new(self.scope.path.clone(), root, whole, count, found, &self.scope.spill);
        let unreachable = if whole && !self.stopped() { count as u64 - reachable(&tree) } else { 0 };
        let filter = self.filter(&tree, count);
        let owns = owns(count);
        let pass = Pass { links: false, names: true, filter: Some(&filter) };
        self.read_directories(records, &directories, &pass, &owns, [&dangling, &ignored], tick, on_tick);
        drop(directories);
        self.count_met(records, &filter, root, tick, on_tick);
        self.finish(&tree, &owns, Some(&filter));
        let ended = Ended { unreachable, doubled: tree.doubled, ..Ended::default() };
        (ended, dangling.into_inner())
    }

    /// The first pass: reads all tables, records what names will need, and counts inodes if all of them count. Without
    /// `records` nothing is kept, and only the root among the directories.
    fn read_tables(
        &self,
        records: Option<&Records>,
        count: bool,
        tick: Duration,
        on_tick: &mut dyn FnMut(),
    ) -> Directories<S::Listing> {
        let (next, spill) = (AtomicUsize::new(0), &self.scope.spill);
        let key = |entry: &Entry<S::Listing>| (self.source.position(&entry.listing), entry.inode);
        let found = self.in_parallel(tick, on_tick, |worker| {
            let (mut buffers, mut batch) = (S::Buffers::default(), Vec::new());
            let mut runs = Runs::new(spill);
            while let Some(part) = self.next_part(&next) {
                let slots = self.source.slots(part);
                if slots == 0 {
                    continue;
                }
                let mut records_of_part = records.map(|_| PartRecords::new(slots, spill));
                let mut damages = Vec::new();
                self.source.read_part(part, &mut buffers, &mut |found| match found {
                    Found::Inode { offset, stat, listing } => {
                        if let Some(records) = &mut records_of_part {
                            records.put(offset, &stat);
                        }
                        if let Some(listing) = listing
                            && (records.is_some() || stat.inode == self.source.root())
                        {
                            runs.push(Entry { inode: stat.inode, listing }, key);
                        }
                        if count {
                            self.push(worker, &mut batch, stat, stat.link_count);
                        }
                    }
                    Found::Damaged(damage) => damages.push(damage),
                });
                for damage in damages {
                    // Whether it matters depends on the names. A part may have no slots before it was read.
                    let slot = damage.inode.and_then(|inode| self.source.slot(inode));
                    match (&mut records_of_part, slot.filter(|slot| slot.part == part)) {
                        (Some(records), Some(slot)) => records.put_damaged(slot.offset, damage),
                        _ => self.report(damage),
                    }
                }
                if let (Some(records), Some(of_part)) = (records, records_of_part) {
                    records.set(part, of_part);
                }
                spill.relieve();
            }
            self.visitor.inodes(worker, &batch);
            runs.sorted(key)
        });
        let directories = merge(found.into_iter().flatten().collect(), key, spill);
        for (position, entry) in (0u32..).zip(&directories) {
            look(spill, position as usize);
            if let (Some(records), Some(slot)) = (records, self.source.slot(entry.inode)) {
                records.set_position(slot, position);
            }
        }
        directories
    }

    /// The last pass if something is left out: counts the inodes whose names were found.
    fn count_met(&self, records: &Records, filter: &Filter<'_>, root: u32, tick: Duration, on_tick: &mut dyn FnMut()) {
        let next = AtomicUsize::new(0);
        self.in_parallel(tick, on_tick, |worker| {
            let (mut buffers, mut batch) = (S::Buffers::default(), Vec::new());
            while let Some(part) = self.next_part(&next) {
                if self.source.slots(part) == 0 {
                    continue;
                }
                self.source.read_part(part, &mut buffers, &mut |found| {
                    // Damage was reported in the first pass.
                    let Found::Inode { stat, .. } = found else { return };
                    let Some(slot) = self.source.slot(stat.inode) else { return };
                    let names = match records.get(slot) {
                        Known::Directory(position) if stat.kind == Kind::Directory => {
                            u32::from(position == root || filter.is_inside(position))
                        }
                        _ if stat.kind == Kind::Directory => 0,
                        _ => records.names(slot),
                    };
                    if names > 0 {
                        self.push(worker, &mut batch, stat, names);
                    }
                });
            }
            self.visitor.inodes(worker, &batch);
        });
    }

    #[inline]
    fn push(&self, worker: usize, batch: &mut Vec<(Stat, u32)>, stat: Stat, names: u32) {
        batch.push((stat, if stat.kind == Kind::Directory { 1 } else { names }));
        if batch.len() >= BATCH_INODES {
            self.visitor.inodes(worker, batch);
            batch.clear();
        }
    }

    fn next_part(&self, next: &AtomicUsize) -> Option<usize> {
        let part = next.fetch_add(1, Relaxed);
        (part < self.source.parts() && !self.stopped()).then_some(part)
    }

    /// A pass over the directories; returns the links between them, if requested. `dangling` counts names that lead
    /// nowhere, `snapshots` directories that would be left out.
    #[expect(clippy::too_many_arguments, reason = "a pass, what it reads, what it makes, and progress")]
    fn read_directories(
        &self,
        records: &Records,
        directories: &[Entry<S::Listing>],
        pass: &Pass<'_>,
        owns: &Owns<V::Kept>,
        [dangling, snapshots]: [&AtomicU64; 2],
        tick: Duration,
        on_tick: &mut dyn FnMut(),
    ) -> Vec<Links> {
        let (next, ahead) = (AtomicUsize::new(0), Ahead::default());
        self.source.begin_listing();
        self.in_parallel(tick, on_tick, |worker| {
            let mut reader = Reader {
                scan: self,
                records,
                pass,
                worker,
                links: Links::new(&self.scope.spill),
                parent: Parent::of_root(),
                batch: Batch::default(),
                dangling: 0,
                snapshots: 0,
            };
            let mut buffers = S::Buffers::default();
            loop {
                let chunk = next.fetch_add(1, Relaxed);
                let entries = directories.chunks(CHUNK).nth(chunk).filter(|_| !self.stopped());
                let Some(entries) = entries else { break };
                let started = Instant::now();
                let read = entries.iter().zip((chunk * CHUNK) as u32..);
                let mut own = SpilledVec::with_capacity_in(entries.len(), self.scope.spill.clone());
                own.extend(read.map(|(entry, position)| reader.read(position, entry, &mut buffers)));
                if let Some(place) = owns.get(chunk) {
                    let _ = place.set(own);
                }
                self.scope.spill.relieve();
                let listing = |position: usize| directories.get(position).map(|entry| &entry.listing);
                ahead.ask(self.source, directories.len(), listing, chunk, started.elapsed());
            }
            dangling.fetch_add(reader.dangling, Relaxed);
            snapshots.fetch_add(reader.snapshots, Relaxed);
            reader.links
        })
    }

    /// Determines what is left out, top-down.
    fn filter<'t>(&self, tree: &'t Tree, count: usize) -> Filter<'t> {
        let mut cut = HashMap::new();
        for path in &self.scope.mount_points {
            if let Some(directory) = tree.find(path).filter(|&directory| directory != tree.root()) {
                cut.insert(directory, Skipped::MountPoint);
            }
        }
        let mut inside = filled(false, count, &self.scope.spill);
        let mut paths: Vec<(u32, Vec<u8>)> = vec![(tree.root(), Vec::new())];
        while let Some((directory, path)) = paths.pop() {
            if let Some(inside) = inside.get_mut(directory as usize) {
                *inside = true;
            }
            for &child in tree.children(directory) {
                let name = tree.name(child);
                if self.scope.exclude.matches(&path, name) {
                    continue;
                }
                if self.is_snapshot(name) {
                    cut.insert(child, Skipped::SnapshotDirectory);
                }
                if !cut.contains_key(&child) {
                    let below = if self.scope.exclude.needs_path() { join(path.clone(), name) } else { Vec::new() };
                    paths.push((child, below));
                }
            }
        }
        Filter { tree, inside, cut }
    }

    fn is_snapshot(&self, name: &[u8]) -> bool {
        !self.scope.include_snapshots && SNAPSHOT_DIRECTORIES.contains(&name)
    }

    /// Adds sums up from the leaves to the root.
    fn finish(&self, tree: &Tree, owns: &Owns<V::Kept>, filter: Option<&Filter<'_>>) {
        self.visitor.named();
        let none = Own::default();
        let enter = |directory: u32| filter.is_none_or(|filter| filter.is_inside(directory));
        let leave = |directory: u32, depth: u32, below: &V::Tally| {
            let at = At { tree, directory, depth };
            let place = Directory { place: &at };
            let own = owns.get(directory as usize / CHUNK).and_then(OnceLock::get);
            let own = own.and_then(|chunk| chunk.get(directory as usize % CHUNK)).unwrap_or(&none);
            if own.listed {
                self.visitor.listed(0, place, own.entries);
            }
            let mut sums = V::restored(&own.tally);
            sums.add(&self.visitor.late(directory));
            self.visitor.located(directory, place);
            self.visitor.finished(0, place, &sums, below)
        };
        tree.visit(enter, |below: &mut V::Tally, left| below.add(&left), leave);
    }

    fn report(&self, Damage { operation, inode, error }: Damage) {
        self.failed(operation, error, &|| self.path_of_inode(inode));
    }

    /// Something is unreadable.
    fn failed(&self, operation: &'static str, error: io::Error, path: &dyn Fn() -> Vec<u8>) {
        self.damaged.fetch_add(1, Relaxed);
        self.visitor.failed(operation, error, path);
    }

    /// Identifies an inode whose path is not known.
    fn path_of_inode(&self, inode: Option<u64>) -> Vec<u8> {
        match inode {
            Some(inode) => [&self.scope.path[..], format!(" (inode {inode})").as_bytes()].concat(),
            None => self.scope.path.clone(),
        }
    }

    /// Runs `work` on as many new threads as the scope has, each with its number, and returns the results by number.
    /// Meanwhile this thread calls `on_tick` after each `tick`. A panic continues here once all have ended.
    fn in_parallel<R: Send>(
        &self,
        tick: Duration,
        on_tick: &mut dyn FnMut(),
        work: impl Fn(usize) -> R + Sync,
    ) -> Vec<R> {
        let work = &work;
        std::thread::scope(|scope| {
            // Nothing is sent: it disconnects when the last thread drops its sender, also in a panic.
            let (running, all_ended) = mpsc::channel::<()>();
            let workers: Vec<_> = (0..self.scope.threads.max(1))
                .map(|worker| {
                    let running = running.clone();
                    scope.spawn(move || {
                        let result = work(worker);
                        drop(running);
                        result
                    })
                })
                .collect();
            drop(running);
            while all_ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                on_tick();
            }
            let finished = workers.into_iter().map(|worker| worker.join());
            finished.map(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }
}

fn no_root(damage: Option<&Damage>) -> Error {
    let cause = damage.map_or("its inode is not a directory".to_owned(), |damage| damage.error.to_string());
    let error = Error::new(ErrorKind::Corrupt, "find the directory to start at", cause);
    error.advise("check the file system, or use --method walk")
}

fn owns<K>(directories: usize) -> Owns<K> {
    (0..directories.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect()
}

/// Number of directories reachable from the root, including itself.
fn reachable(tree: &Tree) -> u64 {
    let mut count = 0;
    tree.visit(|_| true, |_: &mut (), ()| {}, |_, _, ()| count += 1);
    count
}

/// Reads directories on one thread.
struct Reader<'r, S: InodeSource, V: InodeVisitor> {
    scan: &'r Scan<'r, S, V>,
    records: &'r Records,
    pass: &'r Pass<'r>,
    worker: usize,
    links: Links,
    /// The directory whose names are in the batch.
    parent: Parent<V::Tally>,
    batch: Batch<Named>,
    dangling: u64,
    snapshots: u64,
}

impl<S: InodeSource, V: InodeVisitor> Reader<'_, S, V> {
    fn read(&mut self, position: u32, entry: &Entry<S::Listing>, buffers: &mut S::Buffers) -> Own<V::Kept> {
        self.parent = Parent { place: Place::Position(position), inode: entry.inode };
        let mut own = Own { listed: true, entries: 0, tally: V::Tally::default() };
        let below = match self.pass.filter {
            Some(filter) if !filter.is_inside(position) => return Own::default(),
            Some(filter) if self.scan.scope.exclude.needs_path() => filter.tree.below_root(position),
            _ => Vec::new(),
        };
        let scan = self.scan;
        scan.source.list(entry.inode, &entry.listing, buffers, &mut |listed| match listed {
            Listed::Name(name, inode) => {
                if name != b"." && name != b".." {
                    self.name(position, &below, name, inode, &mut own);
                }
            }
            Listed::Elsewhere(name) => {
                if self.pass.names {
                    self.elsewhere(&below, name, &mut own);
                }
            }
            // Directories are read once or twice; damage is reported in the pass where names count.
            Listed::Damaged(Damage { operation, inode, error }) => {
                if self.pass.names {
                    self.failed(operation, error, position, None, inode);
                }
            }
            Listed::Unreadable(name, error) => {
                if self.pass.names && name != b"." && name != b".." {
                    self.unreadable(position, &below, name, error, &mut own);
                }
            }
            Listed::Gone => {
                if self.pass.names {
                    self.dangling += 1;
                    scan.visitor.skipped(self.worker, Skipped::Vanished, 1);
                }
            }
        });
        if !self.batch.is_empty() {
            scan.visitor.names(self.worker, &self.parent, &self.batch, &mut own.tally);
            self.batch.clear();
        }
        Own { tally: V::kept(own.tally), entries: own.entries, listed: own.listed }
    }

    /// Takes a name in. `below_root` is the path of its directory if a pattern that excludes needs it, else empty. A
    /// pass without names only looks for links.
    fn name(&mut self, parent: u32, below_root: &[u8], name: &[u8], inode: u64, own: &mut Own<V::Tally>) {
        let (scan, worker) = (self.scan, self.worker);
        let slot = scan.source.slot(inode);
        if !self.pass.names {
            if let Known::Directory(child) = slot.map_or(Known::Free, |slot| self.records.get(slot)) {
                self.links.push(parent, child, name);
            }
            return;
        }
        if scan.scope.exclude.matches(below_root, name) {
            return scan.visitor.skipped(worker, Skipped::Excluded, 1);
        }
        let named = match slot.map_or(Known::Free, |slot| self.records.meet(slot)) {
            Known::Free => {
                self.dangling += 1;
                return scan.visitor.skipped(worker, Skipped::Vanished, 1);
            }
            Known::Damaged => {
                let error = slot.and_then(|slot| self.records.damage(slot)).map(|damage| &damage.error);
                let error = error
                    .map_or_else(|| damaged("it is damaged"), |error| io::Error::new(error.kind(), error.to_string()));
                return self.unreadable(parent, below_root, name, error, own);
            }
            Known::Directory(child) => {
                if self.pass.links {
                    self.links.push(parent, child, name);
                }
                let left_out = match self.pass.filter {
                    Some(filter) => self.left_out(filter, parent, child),
                    None => None,
                };
                self.snapshots += u64::from(scan.is_snapshot(name));
                if let Some(what) = left_out {
                    if what != Skipped::SnapshotDirectory {
                        own.entries += 1;
                        scan.visitor.name_alone(worker, name);
                    }
                    return scan.visitor.skipped(worker, what, 1);
                }
                Named::Other
            }
            Known::File { size_bytes, allocated_bytes, link_count, uid, day } => {
                Named::File { device: scan.scope.device, inode, size_bytes, allocated_bytes, link_count, uid, day }
            }
            Known::Other => Named::Other,
        };
        own.entries += 1;
        self.batch.push(name, named);
        if self.batch.len() >= BATCH_NAMES {
            scan.visitor.names(worker, &self.parent, &self.batch, &mut own.tally);
            self.batch.clear();
        }
    }

    /// What a name leads to is unreadable, but the name counts.
    fn unreadable(&self, parent: u32, below_root: &[u8], name: &[u8], error: io::Error, own: &mut Own<V::Tally>) {
        let (scan, worker) = (self.scan, self.worker);
        if scan.scope.exclude.matches(below_root, name) {
            return scan.visitor.skipped(worker, Skipped::Excluded, 1);
        }
        own.entries += 1;
        scan.visitor.name_alone(worker, name);
        self.failed("read the inode of", error, parent, Some(name), None);
    }

    /// Reports, and counts, that a directory is unreadable, or the `name` in it. In a pass without a filter the tree is
    /// not known yet: there are no paths, and the report has `inode` alone. If the scan is then repeated by name, that
    /// reports the paths.
    fn failed(
        &self,
        operation: &'static str,
        error: io::Error,
        directory: u32,
        name: Option<&[u8]>,
        inode: Option<u64>,
    ) {
        let path = || match (self.pass.filter, name) {
            (Some(filter), Some(name)) => join(filter.tree.path(directory), name),
            (Some(filter), None) => filter.tree.path(directory),
            (None, _) => self.scan.path_of_inode(inode),
        };
        self.scan.failed(operation, error, &path);
    }

    /// The target of the name is left out, but the name counts.
    fn elsewhere(&mut self, below_root: &[u8], name: &[u8], own: &mut Own<V::Tally>) {
        let (scan, worker) = (self.scan, self.worker);
        if scan.scope.exclude.matches(below_root, name) {
            return scan.visitor.skipped(worker, Skipped::Excluded, 1);
        }
        if scan.is_snapshot(name) {
            return scan.visitor.skipped(worker, Skipped::SnapshotDirectory, 1);
        }
        own.entries += 1;
        scan.visitor.name_alone(worker, name);
        scan.visitor.skipped(worker, Skipped::MountPoint, 1);
    }

    /// Why a directory is left out, if it is. A directory with several names counts at one of them.
    fn left_out(&self, filter: &Filter<'_>, parent: u32, child: u32) -> Option<Skipped> {
        if !filter.tree.is_child(parent, child) {
            let path = || self.scan.scope.path.clone();
            self.scan.visitor.failed("read the directory", damaged("it has several names"), &path);
            return Some(Skipped::Root);
        }
        filter.cut.get(&child).copied()
    }
}
