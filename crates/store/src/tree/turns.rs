//! Batches of several threads, committed in order: so that records lie in order of keys.
//!
//! Each piece of the work has a number. Threads hand their batches in as they finish and go on with the next piece;
//! they wait only where [`MOST_PARKED_BYTES`] are ready. A thread with a long piece therefore holds up others only
//! after that much. One thread commits the pieces in order and syncs the store now and then, so that what is not
//! durable yet stays little. It is always the same one, as what the index has in memory is then allocated by one
//! thread: allocators keep what was freed for the thread that took it.
//!
//! No two threads wait for each other: pieces are handed out in order of their numbers, and the one whose turn it is
//! never waits to hand its piece in.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use super::{Ledger, locked};
use crate::error::Result;
use crate::{Batch, Store};

/// What may be ready before its turn, in bytes in memory.
const MOST_PARKED_BYTES: u64 = 3 << 20;
/// Memory of a batch is used again up to this size.
const MOST_SPARE_BYTES: usize = 4 << 20;
/// Bytes of content after which the store is synced. (By the number of objects it does so itself.)
const SYNC_BYTES: u64 = 256 << 20;

/// A batch that is ready, and what is in it.
pub(super) struct Piece<'s> {
    pub batch: Batch<'s>,
    /// Bytes of content in all.
    pub content_bytes: u64,
    /// Those of them that the batch has in memory: of large files it has only descriptors.
    pub held_bytes: u64,
}

/// Whose turn it is.
pub(super) struct Turns<'s, 'l, 'w> {
    store: &'s Store,
    ledger: &'l Ledger<'w>,
    state: Mutex<State<'s>>,
    moved: Condvar,
}

#[derive(Default)]
struct State<'s> {
    next: u64,
    parked: BTreeMap<u64, Option<Piece<'s>>>,
    parked_bytes: u64,
    is_closed: bool,
    /// Memory of batches that were committed.
    spare: Vec<Vec<u8>>,
}

/// What was committed and not synced.
#[derive(Default)]
pub(super) struct Unsynced {
    content_bytes: u64,
}

impl Unsynced {
    /// Commits a batch, and syncs the store if much was committed since the last time; gives the memory of the batch back.
    ///
    /// # Errors
    /// What committing and syncing fail with.
    pub fn commit(&mut self, store: &Store, piece: Piece<'_>) -> Result<Vec<u8>> {
        let memory = piece.batch.commit_for_memory()?;
        self.content_bytes += piece.content_bytes;
        if self.content_bytes >= SYNC_BYTES {
            store.sync()?;
            *self = Unsynced::default();
        }
        Ok(memory)
    }
}

/// Pieces are handed in as long as this is there.
pub(super) struct Open<'t, 's, 'l, 'w> {
    turns: &'t Turns<'s, 'l, 'w>,
}

impl Drop for Open<'_, '_, '_, '_> {
    fn drop(&mut self) {
        locked(&self.turns.state).is_closed = true;
        self.turns.moved.notify_all();
    }
}

impl<'s, 'l, 'w> Turns<'s, 'l, 'w> {
    pub fn new(store: &'s Store, ledger: &'l Ledger<'w>) -> Turns<'s, 'l, 'w> {
        Turns { store, ledger, state: Mutex::default(), moved: Condvar::new() }
    }

    /// Memory for the next batch, empty.
    pub fn memory(&self) -> Vec<u8> {
        locked(&self.state).spare.pop().unwrap_or_default()
    }

    /// Leaves piece `number` to be committed when those before it are; `None` if nothing came of it.
    pub fn hand_in(&self, number: u64, piece: Option<Piece<'s>>) {
        let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
        let mut state = locked(&self.state);
        while state.next != number && state.parked_bytes + bytes > MOST_PARKED_BYTES {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.parked.insert(number, piece);
        state.parked_bytes += bytes;
        self.moved.notify_all();
    }

    /// Pieces are handed in until what this gives is dropped, however that comes.
    pub fn open<'t>(&'t self) -> Open<'t, 's, 'l, 'w> {
        Open { turns: self }
    }

    /// Commits pieces in their order until all are. After a failure nothing is committed any more.
    pub fn commit_all(&self) {
        let mut unsynced = Unsynced::default();
        let mut state = locked(&self.state);
        loop {
            let next = state.next;
            let Some(piece) = state.parked.remove(&next) else {
                if state.is_closed {
                    return;
                }
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
            let committed = piece
                .filter(|_| !self.ledger.has_failed())
                .map(|piece| unsynced.commit(self.store, piece).map_err(|error| self.ledger.fail(error)));
            state = locked(&self.state);
            let memory = committed.and_then(std::result::Result::ok);
            state.spare.extend(memory.filter(|memory| memory.capacity() <= MOST_SPARE_BYTES));
            state.parked_bytes -= bytes;
            state.next += 1;
            self.moved.notify_all();
        }
    }
}
