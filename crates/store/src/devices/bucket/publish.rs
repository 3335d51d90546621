//! Publications: a cut through all files becomes the next version of the log.
//!
//! - **What is in a cut**: every file that has a name, as it is at that moment. Files named `*.tmp` are left out:
//!   nobody
//!   reads one before it has another name.
//! - **Where its bytes go**: a few stay in the body; otherwise those of the files that have most of them are put
//!   together into objects, one for each directory: what lives equally long. What is small and often written stays in
//!   the body. A long run of bytes in one file is put as soon as it is there, before any cut, while more is written
//!   (`uploads`); a cut waits for it.
//! - **When**: a sync of what the engine acknowledges by (segments, extents, superblocks) publishes, unless somebody
//!   *holds* publications back, and publishes then. Nothing else does: a cut has everything written before it, so order
//!   needs no sync, and an index is not acknowledged by.
//! - **Once for many**: threads that publish wait for each other; who finds that a cut since has all of it is done.
//!
//! An object that no file refers to, one without a name included as long as it is open, leaves the log with the next
//! cut, which notes when; nothing here deletes it. Each publication renews the lease, and the last one releases it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;

use super::body::{self, Body};
use super::collect::seconds;
use super::dropped::Dropped;
use super::lease::{Heart, Lease};
use super::pieces::{Moves, Piece, Pieces, Source};
use super::remembered::Remembered;
use super::table::{FileNumber, FileTable};
use super::volume::{Author, Log, Volume};
use crate::devices::platform::Hold;
use crate::devices::published::{PublishedObject, Staged, WriteError, Writer};
use crate::error::Error;
use crate::format::geometry::Class;
use crate::format::names::{EXTENTS, TEMPORARY};
use crate::locks::lock;

/// Most bytes in the body, and most that a cut adds to them. Smaller in tests, which then put objects.
const LONGEST_INLINE_BYTES: u64 = if cfg!(test) { 24 << 10 } else { 256 << 10 };
const LONGEST_NEW_INLINE_BYTES: u64 = if cfg!(test) { 6 << 10 } else { 64 << 10 };
/// Version of a staged object, which has none.
const UNPUBLISHED: u64 = 0;

type Written<T> = Result<T, WriteError>;

fn told(error: &WriteError) -> io::Error {
    io::Error::other(error.error().to_string())
}

/// The class for the bytes of files in a directory.
fn class_of(directory: &str) -> Class {
    if directory == EXTENTS { Class::Slow } else { Class::Fast }
}

/// The outermost directory that a file is in.
fn directory_of(path: &str) -> &str {
    path.split_once('/').map_or("", |(directory, _)| directory)
}

/// The class for the bytes of a file.
pub(super) fn class_of_file(path: &str) -> Class {
    class_of(directory_of(path))
}

/// Whether a file is published by nobody who reads it.
fn is_temporary(path: &str) -> bool {
    path.ends_with(TEMPORARY)
}

/// Objects that files refer to, by number.
type Referred = BTreeMap<u64, Arc<PublishedObject>>;

fn referred<'t>(files: impl Iterator<Item = &'t Arc<Pieces>>) -> Referred {
    let mut objects = BTreeMap::new();
    for piece in files.flat_map(|pieces| pieces.iter()) {
        if let Source::Object { object, .. } = &piece.source {
            objects.entry(object.number()).or_insert_with(|| Arc::clone(object));
        }
    }
    objects
}

/// The files of a cut whose bytes in memory go into objects, by directory, each with its class: those that have most,
/// until the body may have the rest. It had `inline_bytes` before.
fn chosen(cut: &FileTable, inline_bytes: u64) -> Vec<(Class, Vec<Arc<Pieces>>)> {
    let mut files: Vec<(u64, &str, &Arc<Pieces>)> =
        cut.named().map(|(path, _, pieces)| (pieces.in_memory_bytes(), path, pieces)).collect();
    files.sort_by_key(|(bytes, path, _)| (Reverse(*bytes), *path));
    let mut left: u64 = files.iter().map(|(bytes, _, _)| bytes).sum();
    let mut chosen: BTreeMap<&str, Vec<(&str, Arc<Pieces>)>> = BTreeMap::new();
    for (bytes, path, pieces) in files {
        if left <= LONGEST_INLINE_BYTES && left.saturating_sub(inline_bytes) <= LONGEST_NEW_INLINE_BYTES {
            break;
        }
        left -= bytes;
        chosen.entry(directory_of(path)).or_default().push((path, Arc::clone(pieces)));
    }
    let in_order = |(directory, mut files): (&str, Vec<(&str, Arc<Pieces>)>)| {
        files.sort_by_key(|(path, _)| *path);
        (class_of(directory), files.into_iter().map(|(_, pieces)| pieces).collect())
    };
    chosen.into_iter().map(in_order).collect()
}

/// Pieces in memory, put together into one object.
#[derive(Debug, Default)]
struct Pack {
    bytes: Vec<u8>,
    pieces: Vec<(Piece, u64)>,
}

impl Pack {
    fn add(&mut self, piece: &Piece) {
        if let Some(bytes) = piece.bytes() {
            self.pieces.push((piece.clone(), self.bytes.len() as u64));
            self.bytes.extend_from_slice(bytes);
        }
    }
}

impl Author {
    /// Names an object for a pack; where its pieces are then.
    fn name(&mut self, class: Class, pack: &Pack) -> Written<(Arc<PublishedObject>, Staged, Moves)> {
        let staged = self.writer.name_for(class, &pack.bytes)?;
        let (object, mut moves) = (Arc::new(staged.published(UNPUBLISHED)), Moves::default());
        self.staged.insert(staged.number(), staged.clone());
        pack.pieces.iter().for_each(|(piece, offset)| moves.add(piece, &object, *offset));
        Ok((object, staged, moves))
    }

    /// Puts an object, which is not published yet.
    pub(super) fn put(&mut self, class: Class, bytes: &[u8]) -> Written<Arc<PublishedObject>> {
        let staged = self.writer.stage(class, bytes)?;
        let object = Arc::new(staged.published(UNPUBLISHED));
        self.staged.insert(staged.number(), staged);
        Ok(object)
    }

    /// Puts a pack, and notes where its pieces are.
    fn stage(&mut self, class: Class, pack: Pack, moves: &mut Moves) -> Written<()> {
        if pack.bytes.is_empty() {
            return Ok(());
        }
        let object = self.put(class, &pack.bytes)?;
        pack.pieces.iter().for_each(|(piece, offset)| moves.add(piece, &object, *offset));
        Ok(())
    }

    /// Puts what a cut has in memory, until the rest is little enough for the body.
    fn pack(&mut self, cut: &FileTable, object_bytes: u64) -> Written<Moves> {
        let (mut moves, object_bytes) = (Moves::default(), object_bytes.max(1));
        for (class, files) in chosen(cut, self.inline_bytes) {
            let mut pack = Pack::default();
            for piece in files.iter().flat_map(|pieces| pieces.iter()).filter(|piece| piece.bytes().is_some()) {
                let mut at = piece.at;
                while at < piece.end() {
                    let end = piece.end().min(at + object_bytes - pack.bytes.len() as u64);
                    pack.add(&piece.within(&(at..end)));
                    at = end;
                    if pack.bytes.len() as u64 == object_bytes {
                        self.stage(class, std::mem::take(&mut pack), &mut moves)?;
                    }
                }
            }
            self.stage(class, pack, &mut moves)?;
        }
        Ok(moves)
    }

    /// Publishes a cut; objects that other files refer to, which are in no cut now, are kept, and all others are
    /// dropped at this time. Returns what has moved into objects.
    fn publish(&mut self, mut cut: Body, kept: &Referred, object_bytes: u64, now_seconds: u64) -> Written<Moves> {
        let moves = self.pack(&cut.table, object_bytes)?;
        relocate(&mut cut.table, &moves);
        let objects = referred(cut.table.all());
        let added: Vec<Staged> = objects.keys().filter_map(|number| self.staged.get(number)).cloned().collect();
        let is_kept =
            |object: &&PublishedObject| objects.contains_key(&object.number()) || kept.contains_key(&object.number());
        let (left, removed): (Vec<&PublishedObject>, Vec<&PublishedObject>) =
            self.writer.manifest().objects().partition(is_kept);
        cut.dropped = self.dropped.clone();
        for object in &removed {
            cut.dropped.add(now_seconds, object.name());
        }
        let removed: Vec<u64> = removed.into_iter().map(PublishedObject::number).collect();
        let left = left.into_iter().map(PublishedObject::number);
        let mut now: Vec<u64> = left.chain(added.iter().map(Staged::number)).collect();
        now.sort_unstable();
        let indexes: BTreeMap<u64, u64> = now.into_iter().zip(0..).collect();
        debug_assert!(objects.keys().all(|number| indexes.contains_key(number)), "a file refers to what was put");
        let spending = self.spending.next();
        cut.spent = spending.spent;
        self.writer.publish_staged(&added, &removed, body::encode(&cut, &indexes))?;
        (self.dropped, self.spending) = (cut.dropped, spending);
        for staged in &added {
            self.staged.remove(&staged.number());
        }
        self.inline_bytes = cut.table.all().map(|pieces| pieces.in_memory_bytes()).sum();
        Ok(moves)
    }

    /// Gives up staged objects that no file refers to any more.
    fn abandon_unreferred(&mut self, table: &FileTable) {
        if self.staged.is_empty() {
            return;
        }
        let objects = referred(table.all());
        let Author { writer, staged, .. } = self;
        staged.retain(|number, staged| {
            let is_referred = objects.contains_key(number);
            if !is_referred {
                writer.abandon(staged);
            }
            is_referred
        });
    }
}

fn relocate(table: &mut FileTable, moves: &Moves) {
    if !moves.is_empty() {
        table.for_each_mut(|pieces| {
            if pieces.in_memory_bytes() > 0 {
                *pieces = Arc::new(pieces.relocated(moves));
            }
        });
    }
}

impl Volume {
    /// Publishes everything written before; returns when that is in the bucket.
    ///
    /// # Errors
    /// It may not be, and nothing is published any more.
    pub(super) fn publish(&self) -> io::Result<()> {
        // While others publish, this waits; then a cut may have been taken since.
        self.publish_next(&mut lock(&self.log), false)
    }

    /// Publishes what was written since the last publication, or, if this is the last one, at least that.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(super) fn publish_next(&self, log: &mut Log, is_last: bool) -> io::Result<()> {
        let lease = Lease { is_released: is_last, ..Lease::own(&*self.bucket.surroundings) };
        {
            let files = lock(&self.files);
            files.may_write()?;
            let has_log = !matches!(log, Log::Absent);
            if files.changes == files.published_changes && !(is_last && has_log) {
                return Ok(());
            }
            if has_log && !files.lease.holder.is(&lease.holder) {
                return Err(io::Error::other("it was opened by the process that this one is a copy of"));
            }
        }
        if let Log::Writing(author) = log {
            self.consolidate(author);
        }
        let (mut table, remembered, changes) = {
            let files = lock(&self.files);
            (files.table.clone(), files.remembered.clone(), files.changes)
        };
        let kept = referred(table.all());
        table.retain(|path| !is_temporary(path));
        let cut = Body { lease: lease.clone(), table, remembered, ..Body::default() };
        let published = self.publish_cut(log, cut, &kept);
        let mut files = lock(&self.files);
        match published {
            Ok(moves) => {
                relocate(&mut files.table, &moves);
                files.published_changes = changes;
                files.lease = lease;
                if let Log::Writing(author) = log {
                    author.heart.renew();
                    author.abandon_unreferred(&files.table);
                }
                Ok(())
            }
            Err(error) => {
                let error = told(&error);
                files.failure = Some(error.to_string());
                if let Log::Writing(author) = log {
                    author.heart.stop();
                }
                Err(error)
            }
        }
    }

    fn publish_cut(&self, log: &mut Log, cut: Body, kept: &Referred) -> Written<Moves> {
        if let Log::Absent = log {
            let refused = |error| WriteError::Failed(Error::io("create", &self.bucket.objects.place(), error));
            self.try_classes(&Remembered::default()).map_err(refused)?;
            let inline_bytes: u64 = cut.table.all().map(|pieces| pieces.in_memory_bytes()).sum();
            let is_small = inline_bytes <= LONGEST_INLINE_BYTES && referred(cut.table.all()).is_empty();
            // A log that begins with objects begins empty: objects are put by a writer whose epoch has begun.
            let begun = Body { lease: Lease::own(&*self.bucket.surroundings), ..Body::default() };
            let (first, inline_bytes) = if is_small { (&cut, inline_bytes) } else { (&begun, 0) };
            let author = self.create(first, inline_bytes)?;
            self.keep(author.writer.manifest());
            *log = Log::Writing(Box::new(author));
            if is_small {
                return Ok(Moves::default());
            }
        }
        // Versions name what is there.
        self.uploads.finish()?;
        match log {
            Log::Writing(author) => {
                let now_seconds = seconds(&*self.bucket.surroundings);
                author.publish(cut, kept, self.options.object_bytes, now_seconds)
            }
            Log::Absent | Log::Reading(_) => unreachable!("only a writer changes files"),
        }
    }

    fn create(&self, first: &Body, inline_bytes: u64) -> Written<Author> {
        let (objects, surroundings) = (Arc::clone(&self.bucket.objects), Arc::clone(&self.bucket.surroundings));
        let writer = Writer::create_with(objects, surroundings, body::encode(first, &BTreeMap::new()))?;
        let heart = Heart::begin(&self.bucket, writer.manifest().epoch());
        let (staged, dropped, spending) = (BTreeMap::new(), Dropped::default(), self.spending(&lock(&self.files)));
        Ok(Author { writer, staged, inline_bytes, dropped, spending, heart })
    }

    /// Puts the bytes in memory around a position of a file, if there are enough for an object.
    ///
    /// # Errors
    /// They cannot be put, and stay in memory.
    pub(super) fn stage_long_run(&self, number: FileNumber, at: u64) -> io::Result<()> {
        let object_bytes = self.options.object_bytes;
        let run = || -> Option<Range<u64>> {
            let files = lock(&self.files);
            let run = files.table.pieces(number)?.run_around(at);
            (run.end - run.start >= object_bytes).then_some(run)
        };
        if run().is_none() {
            return Ok(());
        }
        let mut log = lock(&self.log);
        // Another thread may have put it meanwhile, and a store without a manifest has no objects yet.
        let (Some(run), Log::Writing(author)) = (run(), &mut *log) else { return Ok(()) };
        let (class, pieces): (Class, Vec<Piece>) = {
            let files = lock(&self.files);
            let name = files.table.named().find(|(_, named, _)| *named == number).map(|(path, _, _)| path);
            let Some(pieces) = files.table.pieces(number) else { return Ok(()) };
            (class_of(name.map_or("", directory_of)), pieces.within(run.clone()).collect())
        };
        let whole = (run.end - run.start) / object_bytes * object_bytes;
        chunks(&pieces, run.start..run.start + whole, object_bytes)
            .into_iter()
            .try_for_each(|chunk| self.upload(author, class, chunk))
    }

    /// Has a pack be put while more is written: its bytes are in an object from here on.
    ///
    /// # Errors
    /// It cannot be named, and stays in memory; or one before it cannot be put.
    fn upload(&self, author: &mut Author, class: Class, pack: Pack) -> io::Result<()> {
        let (object, staged, moves) = author.name(class, &pack).map_err(|error| self.refused(&error))?;
        self.uploads.keep(&object, &staged, pack.bytes);
        relocate(&mut lock(&self.files).table, &moves);
        self.uploads.begin().map_err(|error| io::Error::other(error.to_string()))
    }

    /// The error of a request that was not a publication; one that says that the writer has ended ends the volume.
    pub(super) fn refused(&self, error: &WriteError) -> io::Error {
        let told = told(error);
        if !matches!(error, WriteError::Failed(_)) {
            lock(&self.files).failure = Some(told.to_string());
        }
        told
    }

    /// What a sync of a file does: publishes, if the engine acknowledges by such a file and nobody holds it back.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(super) fn sync(&self, is_acknowledged_by: bool) -> io::Result<()> {
        let is_held = !lock(&self.holders).is_empty();
        if is_acknowledged_by && !is_held && lock(&self.files).is_writable() { self.publish() } else { self.is_sound() }
    }

    /// # Errors
    /// The failure of a publication.
    pub(super) fn is_sound(&self) -> io::Result<()> {
        lock(&self.files).failure.clone().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }

    /// Holds publications back until it is published or dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Box<dyn Hold> {
        *lock(&self.holders).entry(std::thread::current().id()).or_default() += 1;
        Box::new(VolumeHold { volume: Arc::clone(self), of_one_thread: PhantomData })
    }

    fn let_go(&self, thread: ThreadId) {
        let mut holders = lock(&self.holders);
        if let Some(depth) = holders.get_mut(&thread) {
            *depth -= 1;
            if *depth == 0 {
                holders.remove(&thread);
            }
        }
    }
}

/// The parts of pieces in a range, as packs of `object_bytes`.
fn chunks(pieces: &[Piece], range: Range<u64>, object_bytes: u64) -> Vec<Pack> {
    let mut run = Pieces::default();
    run.append(range.start, Source::Hole);
    pieces.iter().for_each(|piece| run.push(piece.clone()));
    let begins = range.clone().step_by(object_bytes.max(1) as usize);
    let pack = |begin: u64| {
        let mut pack = Pack::default();
        run.within(begin..begin + object_bytes).for_each(|piece| pack.add(&piece));
        pack
    };
    begins.map(pack).collect()
}

/// A thread holds publications back. What others sync meanwhile is published with its own.
#[derive(Debug)]
struct VolumeHold {
    volume: Arc<Volume>,
    of_one_thread: PhantomData<*const ()>,
}

impl Hold for VolumeHold {
    fn publish(self: Box<Self>) -> io::Result<()> {
        let volume = Arc::clone(&self.volume);
        drop(self);
        let is_held = lock(&volume.holders).contains_key(&std::thread::current().id());
        // The outermost hold of a thread publishes; what it acknowledges, it acknowledges then.
        if is_held { volume.is_sound() } else { volume.publish() }
    }

    fn abandon(self: Box<Self>) {
        lock(&self.volume.files).failure.get_or_insert_with(|| "what was written was given up".to_owned());
    }
}

impl Drop for VolumeHold {
    fn drop(&mut self) {
        self.volume.let_go(std::thread::current().id());
    }
}
