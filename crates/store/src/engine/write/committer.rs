//! Pieces of a long batch are committed by a thread beside it: while one is written, the next is encoded and hashed.
//!
//! One piece at a time: the next is handed over when the one before is committed, and everything that looks at the store, or ends the batch, waits for it
//! first. So the log is the same as without the thread. What a piece fails with is said by the next call that waits for it.

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
use crate::layout::granulo::Alignment;

/// What a record in hand is about.
#[derive(Debug)]
pub(super) enum Subject {
    /// A key, with what the index will have of it; and the descriptor of a large object.
    Put(Box<Entry>, Option<Arc<Descriptor>>),
    /// An object that is there and gets another name.
    Name(Box<Named>),
    /// What the index had for the key.
    Removal(Box<Seen>),
    /// The directories in it, once the piece is admitted; none of what is no directory.
    TreeRemoval(Vec<u64>),
}

/// What the index had for a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// In which version.
    pub(super) version: u64,
    /// The directory that its name is in.
    pub(super) directory: u64,
    pub(super) entry: Option<Entry>,
    /// Whether its object has another name by then: a directory that moves need not be empty.
    pub(super) has_other: bool,
}

/// An object, and a name that it has.
#[derive(Debug)]
pub(super) struct Named {
    /// What the index will have of it.
    pub(super) entry: Entry,
    /// Of a large object.
    pub(super) descriptor: Option<Descriptor>,
    /// The name that it has, which must still be its when this is committed.
    pub(super) name: Vec<u8>,
    pub(super) seen: Seen,
    /// What the index had of the file that the name leads to, if it is that which changes.
    pub(super) followed: Option<Entry>,
    pub(super) onto: Onto,
}

/// What the new name of an object may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// Any, in whatever directory its path leads to by then.
    Any(Existing),
    /// That of an object which was seen in this directory, and which gets another one or is the object itself. The path must still lead there: somebody may have renamed a
    /// directory on the way.
    Seen(u64),
}

/// What becomes of an object that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It goes. A directory must be empty, and gives way to directories only, as they do to it.
    Replace,
    /// It stays, and the call fails.
    Refuse,
}

/// A record that waits to be committed.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Its path, or what stands for that of a shared object.
    pub(super) key: Arc<[u8]>,
    /// Where it begins among the encoded records.
    pub(super) start: usize,
    pub(super) record_bytes: usize,
    pub(super) subject: Subject,
}

/// Records that are committed as one.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) records: Vec<u8>,
    pub(super) waiting: Vec<Waiting>,
    /// Extent files with units of what waits.
    pub(super) touched: Touched,
    /// What its records are encoded for.
    pub(super) alignment: Alignment,
    /// When it is written.
    pub(super) time: Time,
}

impl Piece {
    /// Commits it: it gets ids, is appended to the log, and changes the index.
    ///
    /// # Errors
    /// As [`Batch::commit`]; then nothing of it is there.
    pub(super) fn commit(&mut self, engine: &Engine) -> Result<()> {
        let touched = std::mem::take(&mut self.touched);
        let committed = engine.commit(&mut self.records, &mut self.waiting, touched, self.alignment, self.time);
        // After another failure what is in the log is not known, and units that it may name stay.
        if committed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            abandon(engine, &self.waiting);
        }
        self.records.clear();
        self.waiting.clear();
        committed
    }

    /// The same of one that is followed by others.
    fn commit_within(&mut self, engine: &Engine) -> Result<()> {
        self.commit(engine)?;
        // What is durable before the batch ends is no less whole: pieces are there one by one. And memory stays bounded.
        engine.flush_if_full()
    }
}

/// Gives up the units of large objects that will not be committed.
pub(super) fn abandon(engine: &Engine, waiting: &[Waiting]) {
    for waiting in waiting {
        if let Subject::Put(_, Some(descriptor)) = &waiting.subject {
            engine.abandon(descriptor);
        }
    }
}

/// The thread beside a batch.
#[derive(Debug)]
pub(super) struct Committer {
    give: SyncSender<Piece>,
    done: Receiver<(Piece, Result<()>)>,
    thread: JoinHandle<()>,
    is_busy: bool,
}

impl Committer {
    /// # Errors
    /// The system has no thread to give.
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

    /// Ends the thread; a panic in it goes on here.
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
    /// Commits what waits, while the batch goes on; where no thread is to be had, before it does.
    ///
    /// # Errors
    /// What the piece before failed with; without a thread, this one.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        self.settle()?;
        let mut piece = self.take_piece();
        if self.committer.is_none() {
            self.committer = Committer::begin(Arc::clone(&self.store.engine.engine)).ok();
        }
        let Some(committer) = &mut self.committer else {
            let committed = piece.commit_within(self.store.engine());
            self.take_back(piece);
            return committed;
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
    /// What it failed with.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(committer) = self.committer.as_mut().filter(|committer| committer.is_busy) else { return Ok(()) };
        committer.is_busy = false;
        match committer.done.recv() {
            Ok((piece, committed)) => {
                self.spare = (piece.records, piece.waiting);
                committed
            }
            Err(_) => {
                self.end_committer();
                Ok(())
            }
        }
    }

    /// Ends the thread, when what it has in hand is committed.
    pub(super) fn end_committer(&mut self) {
        self.committer.take().into_iter().for_each(Committer::end);
    }
}
