//! Batches of several threads, committed in order, so that records are in key order.
//!
//! Each piece of the work has a number. Threads hand in their batches as they finish and continue with the next piece;
//! they wait only if [`MOST_PARKED_BYTES`] are ready. A thread with a long piece therefore blocks others only after
//! that much. One thread commits the pieces in order and syncs the store from time to time, to bound what is not yet
//! durable. It is always the same thread, so that one thread allocates the memory of the index: allocators keep freed
//! memory for the thread that allocated it.
//!
//! No deadlock: pieces are handed out in order of their numbers, and the one whose turn it is never waits to be handed
//! in.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

use super::Ledger;
use super::task::ImportSummary;
use crate::error::Result;
use crate::locks::{lock, unpoisoned};
use crate::{Batch, Store};

/// Most bytes in memory that are ready before their turn.
const MOST_PARKED_BYTES: u64 = 3 << 20;
/// Largest memory of a batch that is reused.
const MOST_SPARE_BYTES: usize = 4 << 20;
/// Bytes of content after which the store is synced. (By the number of objects it syncs itself.)
const SYNC_BYTES: u64 = 256 << 20;

/// A batch that is ready, and its content.
pub(super) struct ReadyBatch<'s> {
    pub batch: Batch<'s>,
    /// Bytes of content in total.
    pub content_bytes: u64,
    /// Those that the batch has in memory: for large files it has only descriptors.
    pub held_bytes: u64,
    /// What will have been imported once it is committed.
    pub done: ImportSummary,
}

/// Which piece is next.
pub(super) struct Turns<'s, 'l, 'w> {
    store: &'s Store,
    ledger: &'l Ledger<'w>,
    state: Mutex<TurnState<'s>>,
    /// Something in `state` changed that others wait for.
    changed: Condvar,
}

#[derive(Default)]
struct TurnState<'s> {
    next: u64,
    parked: BTreeMap<u64, Option<ReadyBatch<'s>>>,
    parked_bytes: u64,
    is_closed: bool,
    /// Memory of committed batches.
    spare: Vec<Vec<u8>>,
    /// What they imported.
    done: ImportSummary,
}

/// What is committed but not synced.
#[derive(Default)]
pub(super) struct UnsyncedBytes {
    content_bytes: u64,
}

impl UnsyncedBytes {
    /// Commits a batch, and syncs the store if much was committed since the last sync; returns the memory of the batch,
    /// and what was imported with it.
    ///
    /// # Errors
    /// Errors of committing and syncing.
    pub(super) fn commit(&mut self, store: &Store, piece: ReadyBatch<'_>) -> Result<(Vec<u8>, ImportSummary)> {
        let memory = piece.batch.commit_for_memory()?;
        self.content_bytes += piece.content_bytes;
        if self.content_bytes >= SYNC_BYTES {
            store.sync()?;
            *self = UnsyncedBytes::default();
        }
        Ok((memory, piece.done))
    }
}

/// A piece that is worked on. It is handed in when this is dropped, also by a thread that panics: nobody waits for one
/// that never comes.
pub(super) struct Turn<'t, 's, 'l, 'w> {
    turns: &'t Turns<'s, 'l, 'w>,
    number: u64,
    /// `None` if there is nothing to commit.
    pub(super) batch: Option<ReadyBatch<'s>>,
}

impl Drop for Turn<'_, '_, '_, '_> {
    fn drop(&mut self) {
        self.turns.hand_in(self.number, self.batch.take());
    }
}

/// Pieces are handed in until this is dropped.
pub(super) struct OpenTurns<'t, 's, 'l, 'w> {
    turns: &'t Turns<'s, 'l, 'w>,
}

impl Drop for OpenTurns<'_, '_, '_, '_> {
    fn drop(&mut self) {
        lock(&self.turns.state).is_closed = true;
        self.turns.changed.notify_all();
    }
}

impl<'s, 'l, 'w> Turns<'s, 'l, 'w> {
    pub(super) fn new(store: &'s Store, ledger: &'l Ledger<'w>) -> Turns<'s, 'l, 'w> {
        Turns { store, ledger, state: Mutex::default(), changed: Condvar::new() }
    }

    /// What was imported with the pieces that were committed.
    pub(super) fn into_done(self) -> ImportSummary {
        unpoisoned(self.state.into_inner()).done
    }

    /// Memory for the next batch, empty.
    pub(super) fn memory(&self) -> Vec<u8> {
        lock(&self.state).spare.pop().unwrap_or_default()
    }

    /// Begins with piece `number`.
    pub(super) fn turn<'t>(&'t self, number: u64) -> Turn<'t, 's, 'l, 'w> {
        Turn { turns: self, number, batch: None }
    }

    /// Hands in piece `number`, to be committed after those before it; `None` if it is empty.
    fn hand_in(&self, number: u64, piece: Option<ReadyBatch<'s>>) {
        let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
        let mut state = lock(&self.state);
        while state.next != number && state.parked_bytes + bytes > MOST_PARKED_BYTES {
            state = unpoisoned(self.changed.wait(state));
        }
        state.parked.insert(number, piece);
        state.parked_bytes += bytes;
        self.changed.notify_all();
    }

    /// Pieces are handed in until the result is dropped, for whatever reason.
    pub(super) fn open<'t>(&'t self) -> OpenTurns<'t, 's, 'l, 'w> {
        OpenTurns { turns: self }
    }

    /// Commits the pieces in the order of their numbers, until the result of [`open`](Self::open) is dropped and the
    /// next one is not there. For one thread, once. Errors go to the ledger. After a failure, here or of any other
    /// thread, pieces are taken and dropped, so that nobody waits to hand one in.
    pub(super) fn commit_all(&self) {
        let mut unsynced = UnsyncedBytes::default();
        let mut state = lock(&self.state);
        loop {
            let next = state.next;
            let Some(piece) = state.parked.remove(&next) else {
                if state.is_closed {
                    return;
                }
                state = unpoisoned(self.changed.wait(state));
                continue;
            };
            drop(state);
            let bytes = piece.as_ref().map_or(0, |piece| piece.held_bytes);
            let committed = piece
                .filter(|_| !self.ledger.has_failed())
                .map(|piece| unsynced.commit(self.store, piece).map_err(|error| self.ledger.fail(error)));
            state = lock(&self.state);
            if let Some(Ok((memory, done))) = committed {
                state.done.add(&done);
                state.spare.extend(Some(memory).filter(|memory| memory.capacity() <= MOST_SPARE_BYTES));
            }
            state.parked_bytes -= bytes;
            state.next += 1;
            self.changed.notify_all();
        }
    }
}
