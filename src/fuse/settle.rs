//! What programs have written and the store does not have yet, and when it gets it.
//!
//! A mount for writing is not told when a file is opened or closed: that would cost each program two or three messages
//! for each file, more than reading a small file from the cache. So nobody here knows when a file is complete. It is
//! committed before the next change of a name by anybody, so that a crash of this process leaves what was written
//! before that change: what was unpacked before the next file, or saved under another name before it is renamed. A file
//! that is written again and again between such changes is committed once a second. And everything is committed when it
//! takes much memory, when a program asks for any of it (fsync), and every few seconds.
//!
//! What waits is committed in the order in which it began to wait, by one thread at a time. Others that are to commit
//! it wait for that, also if nothing is left for them, because what they do next comes after it.
//!
//! The handles of the files that were used last stay open, as long as they are few.

use std::collections::HashMap;
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::FileSystem;
use super::live::{Info, Live, LiveState};
use super::waiting::MOST_BYTES;
use crate::store::ids::ObjectNumber;

/// A file that is written again and again is committed for the sake of others so often.
const AGAIN: Duration = Duration::from_secs(1);
/// Memory of a write in a handle, besides its bytes, at most.
const WRITE_BYTES: u64 = 256;
/// If less room is left, what is written is committed at once: the write fails if it does not fit.
const TIGHT_BYTES: u64 = 4 * MOST_BYTES;

impl FileSystem {
    /// Changes an object as a program asks. The change waits, or is committed at once if there is little room. If that
    /// or `act` fails, the object is what it was, and what waited before still waits. Besides what is known of the
    /// object, `act` may change its content, in one step after which it does not fail. Called with its state locked,
    /// and with its handle open if `act` uses that.
    pub(super) fn change_object(
        &self,
        live: &Live,
        state: &mut MutexGuard<'_, LiveState>,
        bytes: usize,
        act: impl FnOnce(&mut Info) -> Outcome<()>,
    ) -> Outcome<()> {
        self.change_or_restore(live, state, bytes, self.waiting.is_tight() || self.appearance.is_sync, act)
    }

    /// The same of what is committed at once in any case, because the store may refuse it.
    pub(super) fn change_object_at_once(
        &self,
        live: &Live,
        state: &mut MutexGuard<'_, LiveState>,
        act: impl FnOnce(&mut Info) -> Outcome<()>,
    ) -> Outcome<()> {
        self.change_or_restore(live, state, 0, true, act)
    }

    fn change_or_restore(
        &self,
        live: &Live,
        state: &mut MutexGuard<'_, LiveState>,
        bytes: usize,
        is_at_once: bool,
        act: impl FnOnce(&mut Info) -> Outcome<()>,
    ) -> Outcome<()> {
        if self.appearance.is_read_only {
            // The kernel lets root mount it again for writing.
            return Err(Errno::ROFS);
        }
        self.info(live, state)?;
        let before = state.save(is_at_once);
        let changed = self.info(live, state).and_then(act).and_then(|()| {
            self.mark_written(live, state, bytes);
            if is_at_once { self.commit(live, state) } else { Ok(()) }
        });
        changed.inspect_err(|_| state.restore(before))
    }

    /// An object has content or attributes that the store lacks. Called with its state locked.
    pub(super) fn mark_written(&self, live: &Live, state: &mut MutexGuard<'_, LiveState>, bytes: usize) {
        self.wait(live, state);
        state.waiting_bytes += bytes as u64 + WRITE_BYTES;
        // What has no name is not committed, whatever waits.
        let of_object = if state.is_nameless { 0 } else { state.waiting_bytes };
        self.waiting.count(bytes, of_object);
        self.mark_dirty(state);
    }

    /// An object waits to be committed, if it does not already.
    pub(super) fn wait(&self, live: &Live, state: &mut LiveState) {
        if !state.is_waiting {
            state.is_waiting = true;
            self.waiting.add(live.number);
        }
    }

    /// Commits what waits, if that is much. Called with no state locked.
    pub(super) fn settle_much(&self) {
        if self.waiting.is_much() {
            let failed = self.settle_all(None);
            self.look_at_room(failed.values().any(is_refusal));
        }
    }

    /// Commits what was written before something that is committed at once: a change of a name, or of `but`, which is
    /// then committed with it. Called with no state locked.
    ///
    /// A failure is not that of the change: it is in the log, and what could not be committed still waits.
    pub(super) fn settle(&self, but: Option<ObjectNumber>) {
        self.settle_since(AGAIN, but);
    }

    /// Commits all that waits but one object; times of directories do not. Called with no state locked. Returns what
    /// could not be committed and still waits.
    pub(super) fn settle_all(&self, but: Option<ObjectNumber>) -> HashMap<ObjectNumber, Errno> {
        self.settle_since(Duration::ZERO, but)
    }

    /// Commits what waits, the longest waiting first, but for one object and for what was committed here within that
    /// time. Returns what could not be. One thread at a time: what it has taken comes before what is done by those who
    /// wait for it.
    fn settle_since(&self, again: Duration, but: Option<ObjectNumber>) -> HashMap<ObjectNumber, Errno> {
        let _settling = self.attention.lock(&self.settling);
        let mut failed = HashMap::new();
        for number in self.waiting.take() {
            if but == Some(number) {
                self.waiting.add(number);
                continue;
            }
            let Some(live) = self.nodes.held(number) else { continue };
            let mut state = self.attention.lock(&live.state);
            state.is_waiting = false;
            if !state.is_dirty {
                continue;
            }
            if state.settled.is_some_and(|at| at.elapsed() < again) {
                self.wait(&live, &mut state);
                self.waiting.count(state.waiting_bytes as usize, 0);
                continue;
            }
            match self.commit(&live, &mut state) {
                Ok(()) => state.settled = Some(Instant::now()),
                Err(errno) => {
                    failed.insert(number, errno);
                    self.wait(&live, &mut state);
                }
            }
        }
        failed
    }

    /// Whether somebody commits what waits: who changes a name now waits for that.
    pub(super) fn is_settling(&self) -> bool {
        matches!(self.settling.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Looks whether what is written next fits: not, if something was just refused.
    pub(super) fn look_at_room(&self, is_refused: bool) {
        // What cannot be asked for is found out by a commit.
        let is_small = || self.least_available_bytes().is_ok_and(|available| available < TIGHT_BYTES);
        self.waiting.set_tight(is_refused || is_small());
    }

    /// A handle was opened: others that nothing needs are closed. Called with the state of its object locked.
    pub(super) fn opened_handle(&self, number: ObjectNumber) {
        for other in self.waiting.opened(number).into_iter().filter(|other| *other != number) {
            let Some(live) = self.nodes.held(other) else { continue };
            match live.state.try_lock() {
                Ok(mut state) if state.is_idle() => self.let_go(&live, &mut state),
                Ok(state) if state.is_nameless => {}
                _ => self.waiting.stays_open(other),
            }
        }
    }

    /// Commits one object, whoever it waits for.
    pub(super) fn settle_one(&self, number: ObjectNumber) -> Outcome<()> {
        let Some(live) = self.nodes.held(number) else { return Ok(()) };
        let mut state = self.attention.lock(&live.state);
        self.commit(&live, &mut state)
    }
}

/// Whether the store takes nothing else either: then each change is committed at once, and fails itself.
pub(super) fn is_refusal(errno: &Errno) -> bool {
    matches!(*errno, Errno::NOSPC | Errno::ROFS)
}
