//! Batches of several threads, committed in order: so that records lie in order of keys.
//!
//! Each piece of the work has a number. Threads hand their batches in as they finish; the one whose turn it is
//! commits its own and those after it that are ready, others leave theirs and go on with the next piece, and wait
//! only where [`MOST_PARKED_BYTES`] are ready. A thread with a long piece therefore holds up others only after that
//! much. Now and then the store is synced by the thread that commits, so that what is not durable yet stays little.
//!
//! No two threads wait for each other: pieces are handed out in order of their numbers, and the one whose turn it is
//! never waits.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use super::{Ledger, locked};
use crate::error::Result;
use crate::store::{Batch, Store};

/// What may be ready before its turn, in bytes in memory.
const MOST_PARKED_BYTES: u64 = 12 << 20;
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
    unsynced: Unsynced,
}

/// What was committed and not synced.
#[derive(Default)]
pub(super) struct Unsynced {
    content_bytes: u64,
}

impl Unsynced {
    /// Commits a batch, and syncs the store if much was committed since the last time.
    ///
    /// # Errors
    /// What committing and syncing fail with.
    pub fn commit(&mut self, store: &Store, piece: Piece<'_>) -> Result<()> {
        piece.batch.commit()?;
        self.content_bytes += piece.content_bytes;
        if self.content_bytes >= SYNC_BYTES {
            store.sync()?;
            *self = Unsynced::default();
        }
        Ok(())
    }
}

impl<'s, 'l, 'w> Turns<'s, 'l, 'w> {
    pub fn new(store: &'s Store, ledger: &'l Ledger<'w>) -> Turns<'s, 'l, 'w> {
        Turns { store, ledger, state: Mutex::default(), moved: Condvar::new() }
    }

    /// Commits piece `number` when those before it are committed; `None` if nothing came of it. After a failure
    /// nothing is committed any more.
    pub fn hand_in(&self, number: u64, piece: Option<Piece<'s>>) {
        let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
        let mut state = locked(&self.state);
        while state.next != number && state.parked_bytes + bytes > MOST_PARKED_BYTES {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.parked.insert(number, piece);
        state.parked_bytes += bytes;
        if state.next != number {
            return;
        }
        // `next` stays while its batch is committed: nobody else takes the turn.
        while let Some(piece) = {
            let next = state.next;
            state.parked.remove(&next)
        } {
            let mut unsynced = std::mem::take(&mut state.unsynced);
            drop(state);
            let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
            if let Some(piece) = piece.filter(|_| !self.ledger.has_failed()) {
                unsynced.commit(self.store, piece).unwrap_or_else(|error| self.ledger.fail(error));
            }
            state = locked(&self.state);
            state.unsynced = unsynced;
            state.parked_bytes -= bytes;
            state.next += 1;
            self.moved.notify_all();
        }
    }
}
