//! Marks and releases: what the log says about itself, besides records.
//!
//! A mark is a commit that says how far everything was durable. It comes with the next batch; a close, a `sync` and one
//! idle second write a separate commit, and the mark goes to the superblocks. A release says what was superseded:
//! nothing is unlinked before the commit with its release is durable and marked.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::devices::names;
use crate::devices::placement::Purpose;
use crate::engine::effects::{Effects, Nameless};
use crate::engine::recovered::RELEASED;
use crate::engine::{Engine, EngineAccounts};
use crate::error::{ErrorKind, Result};
use crate::format::ids::{LogOffset, SegmentNumber};
use crate::format::names::{SEGMENTS, SegmentName};
use crate::format::release::Released;
use crate::format::rows::Change;
use crate::format::superblock::{LogMark, last_marked};
use crate::locks::{lock, unpoisoned};
use crate::log::writer::{Batched, Writer, release_record};

impl Engine {
    /// The highest sequence number that was durable according to a superblock: by its mark, or as the last batch before
    /// the newest epoch, which recovery had made durable.
    pub(super) fn known_mark(&self) -> u64 {
        let marked = last_marked(self.devices.marks());
        marked.max(self.devices.history().newest().last_batch)
    }

    /// Number of segments begun according to superblocks.
    pub(super) fn known_segments_begun(&self) -> u64 {
        let marked = self.devices.marks().iter().map(|mark| mark.segments_begun).max().unwrap_or(0);
        marked.max(self.devices.history().newest().segments_begun)
    }

    /// Makes everything durable, and records that in the log with a separate commit, unless the log already says so.
    /// The index may wait for space.
    ///
    /// # Errors
    /// Any error of writing or syncing; the store is then read-only, unless the log has no space.
    pub(crate) fn mark(&self, is_close: bool) -> Result<()> {
        let _sync = lock(&self.sync);
        let mut writer = self.writer()?;
        if writer.durable_sequence < writer.position.sequence {
            self.settle_log(&mut writer)?;
        }
        let is_said = match is_close {
            true => writer.position.sequence == 0 || writer.closed_sequence == Some(writer.position.sequence),
            false => writer.record_sequence <= writer.marked_sequence,
        };
        if is_said {
            if is_close {
                // Ids that were reserved and not assigned: if this write fails, the next writer skips them.
                let _ = self.devices.reserve_ids(self.highest_id.load(Ordering::Relaxed));
            }
            return Ok(());
        }
        self.append_and_settle_mark(&mut writer, is_close)
    }

    /// Marks all batches with records, if that was not done. Called with `sync` held and nothing pending.
    ///
    /// # Errors
    /// As [`mark`](Self::mark).
    pub(crate) fn mark_records(&self, writer: &mut Writer) -> Result<()> {
        if writer.record_sequence <= writer.marked_sequence {
            return Ok(());
        }
        self.append_and_settle_mark(writer, false)
    }

    /// Appends a batch to an epoch that has just begun on another set of devices. So each of them can tell on its own
    /// that it began on all of them, whichever is lost next; a full store does without. Called with `sync` held.
    ///
    /// # Errors
    /// As [`mark`](Self::mark).
    pub(super) fn mark_epoch(&self, writer: &mut Writer) -> Result<()> {
        match self.append_and_settle_mark(writer, false) {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            other => other,
        }
    }

    /// Appends a batch that changes no entry of the index: a commit without records, or a release; returns its change,
    /// which is not applied.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn append_without_entries(&self, writer: &mut Writer, batch: Batched<'_>) -> Result<Change> {
        let written = self.append_somewhere(writer, &self.geometry(), Purpose::Put, batch)?;
        let accounts = EngineAccounts::new(self);
        let mut effects = Effects::new(&accounts, Nameless::Go);
        effects.appended(writer.active_row(), written.position);
        Ok(effects.finish(Some(written.position)))
    }

    fn append_and_settle_mark(&self, writer: &mut Writer, is_close: bool) -> Result<()> {
        let hold = self.platform.hold();
        let marked = self.append_held_mark(writer, is_close);
        let published = self.publish(hold);
        marked.and(published)
    }

    fn append_held_mark(&self, writer: &mut Writer, is_close: bool) -> Result<()> {
        let mut batch = self.batch_of(&mut []);
        batch.is_close = is_close;
        let change = self.append_without_entries(writer, batch)?;
        self.apply_pending(writer, change)?;
        self.settle_log(writer)?;
        if is_close {
            writer.closed_sequence = Some(writer.position.sequence);
        }
        self.tell_superblocks(writer, is_close);
        Ok(())
    }

    /// Writes the end of the log to the superblocks. One that cannot be written keeps an older mark, which is also
    /// true.
    fn tell_superblocks(&self, writer: &Writer, is_closed: bool) {
        let position = writer.position;
        self.devices.write_mark(LogMark {
            is_closed,
            segment: position.segment,
            offset: position.offset,
            sequence: position.sequence,
            chain: position.chain,
            segments_begun: writer.newest_segment.0,
            ids_reserved: if is_closed { &self.highest_id } else { &self.reserved_ids }.load(Ordering::Relaxed),
        });
    }

    /// Records in the log, durable and marked, that segments and extent files were superseded: from here on they may be
    /// unlinked. Called with `sync` held and nothing pending.
    ///
    /// # Errors
    /// Any error of writing or syncing: nothing may then be unlinked.
    pub(crate) fn release(&self, writer: &mut Writer, released: &Released) -> Result<()> {
        // The writer's own changes with the record: what is in no record is not released.
        let mut all = writer.released.clone();
        all.merge(released);
        // What a crash left after the end of a segment is excluded from the log by the header of its continuation,
        // which is removed now. Only another writer begins a segment after an unclean end; nothing continues one
        // without a batch.
        let rows = Arc::clone(&self.view().state.segments);
        let filled = || rows.values().filter(|row| !row.is_without_batches());
        for (row, next) in filled().zip(filled().skip(1)) {
            let (number, next_number) = (row.number, next.number);
            if released.has_segment(next_number) && !all.has_segment(number) && row.epoch != next.epoch {
                all.add_end(number, LogOffset(row.size_bytes));
            }
        }
        // So are the segments that it skipped: they were begun, and a crash left them without anything that counts.
        if self.completeness_of(&self.view().state.notes).is_empty() {
            let is_known = |number: SegmentNumber, all: &Released| {
                rows.get(&number).is_some_and(|row| !row.is_without_batches()) || all.has_segment(number)
            };
            for &number in rows.keys().filter(|&&number| released.has_segment(number)) {
                let before = (1..number.0).rev().map(SegmentNumber);
                let skipped: Vec<SegmentNumber> = before.take_while(|&before| !is_known(before, &all)).collect();
                self.remove_skipped(&skipped);
                skipped.into_iter().for_each(|before| all.add_segment(before));
            }
        }
        let mut record = release_record(&all)?;
        let batch = self.batch_of(&mut record);
        let mut change = self.append_without_entries(writer, batch)?;
        writer.released = all;
        change.notes.push((RELEASED.to_owned(), writer.released.encode()));
        self.apply_pending(writer, change)?;
        self.settle(writer)?;
        self.append_and_settle_mark(writer, false)
    }

    /// Removes the files of segments that the log skipped, durably. The catalog has no rows of them, which would have
    /// the files removed after their release, so they go before it; the header of the segment that follows says until
    /// then that nothing of the log was in them. What cannot be removed now is found by `check`.
    fn remove_skipped(&self, skipped: &[SegmentNumber]) {
        if skipped.is_empty() {
            return;
        }
        let state = self.view().state.clone();
        let history = self.devices.history();
        let is_skipped = |name: &SegmentName| {
            skipped.contains(&name.number) && history.has_begun(*name) && !state.segments.contains_key(&name.number)
        };
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            let listed = names::list_names(&*slot.device, SEGMENTS).unwrap_or_default();
            for name in listed.iter().filter(|name| SegmentName::parse(name).is_some_and(|name| is_skipped(&name))) {
                let _ = names::remove_segment_file(&*slot.device, &format!("{SEGMENTS}/{name}"));
            }
        }
    }
}

/// State of the thread that marks the log of an idle store.
#[derive(Debug, Default)]
struct Pulse {
    /// Counts durable batches.
    batches: u64,
    /// The batches that were marked.
    marked: u64,
    is_over: bool,
}

/// Marks the log of a store when it has been idle for some time. Sleeps until a batch is durable, then until none has
/// come for that long.
#[derive(Debug)]
pub(crate) struct Idle {
    shared: Arc<(Mutex<Pulse>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Idle {
    /// Starts the thread, which calls `mark`. If no thread can be created, the log is marked by the next batch and on
    /// close.
    pub(crate) fn begin(interval: Duration, mark: impl Fn() + Send + 'static) -> Idle {
        let shared: Arc<(Mutex<Pulse>, Condvar)> = Arc::default();
        let own = Arc::clone(&shared);
        let run = move || {
            let (pulse, changed) = &*own;
            let mut seen = lock(pulse);
            loop {
                while !seen.is_over && seen.batches == seen.marked {
                    seen = unpoisoned(changed.wait(seen));
                }
                if seen.is_over {
                    return;
                }
                let before = seen.batches;
                let waited = changed.wait_timeout_while(seen, interval, |pulse| !pulse.is_over);
                seen = unpoisoned(waited).0;
                if seen.is_over || seen.batches != before {
                    continue;
                }
                seen.marked = before;
                drop(seen);
                mark();
                seen = lock(pulse);
            }
        };
        let thread = std::thread::Builder::new().name("granulo-mark".to_owned()).spawn(run).ok();
        Idle { shared, thread }
    }

    /// A batch is durable.
    pub(crate) fn beat(&self) {
        let (pulse, changed) = &*self.shared;
        let mut pulse = lock(pulse);
        let was_idle = pulse.batches == pulse.marked;
        pulse.batches += 1;
        if was_idle {
            changed.notify_one();
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        lock(&self.shared.0).is_over = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_idle_is_marked_once_and_the_thread_ends_with_the_store() {
        let (send, marks) = mpsc::channel();
        let idle = Idle::begin(Duration::from_millis(1), move || send.send(()).unwrap());
        assert!(marks.try_recv().is_err());
        for _ in 0..3 {
            idle.beat();
            // Blocks until the log is marked, however long that takes.
            marks.recv().unwrap();
        }
        drop(idle);
        // The thread is gone, and its sender with it.
        assert!(marks.recv().is_err());
    }

    #[test]
    fn a_store_that_is_closed_at_once_does_not_wait_for_the_interval() {
        let idle = Idle::begin(Duration::from_secs(3600), || panic!("nobody was idle for so long"));
        idle.beat();
        drop(idle);
    }
}
