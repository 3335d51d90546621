//! The point in a recovery at which a writer decides to open: all of the log was read, and nothing is written yet, so
//! that an opening that is refused changes nothing (docs/FORMAT.md, law 3). Until then what is applied waits in memory,
//! as far as that suffices; what exceeds it goes to the index, which every recovery would bring to the same state.
//!
//! Devices that lack only epochs without batches count as up to date when superblocks are read (`devices::late`). Here
//! the end of the log is known: one that should have more is an old copy, has forgotten with whom it went on, and does
//! not count.

use super::Engine;
use super::replay::{LogTail, Replay};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::DeviceNumber;
use crate::format::rows::Change;
use crate::log::writer::Writer;

impl Engine {
    /// Applies a change from the log: to the catalog, if this process may change it, and to the view. The change waits
    /// while the log may still refuse to be opened and memory suffices, and while the device of the catalog is full.
    pub(super) fn take_in(&self, change: Change) -> Result<()> {
        if self.is_writer() {
            let mut writer = self.writer()?;
            writer.pend(change.clone());
            if !writer.is_undecided || self.is_recent_full() {
                self.commit_waiting(&mut writer)?;
            }
        } else if self.owns_index() {
            self.catalog.commit(&change)?;
        }
        self.apply(&change)
    }

    fn commit_waiting(&self, writer: &mut Writer) -> Result<()> {
        let waiting = writer.take_pending();
        match self.catalog.commit(&waiting) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                writer.pend(waiting);
                Ok(())
            }
            committed => committed,
        }
    }

    /// Whether it is still certain that no other device has anything newer, now that the end of the log is known. A
    /// writer may write from here on.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it is not, for a writer that was not told to continue; errors of the index.
    pub(super) fn decide(&self, replay: &Replay<'_>, tail: &LogTail) -> Result<bool> {
        let last_batch = replay.last_batch(tail);
        let old = self.devices.old_among_late(last_batch, |device| self.has_log(device, replay.position));
        let is_proven = old.is_empty() || self.devices.has_proof_without(&old, self.lost);
        if !self.is_writer() {
            return Ok(is_proven);
        }
        if !is_proven && !self.is_degraded {
            return Err(self.unproven(&old));
        }
        let mut writer = self.writer()?;
        writer.is_undecided = false;
        if writer.is_waiting {
            self.commit_waiting(&mut writer)?;
        }
        Ok(is_proven)
    }

    fn unproven(&self, old: &[DeviceNumber]) -> Error {
        let words: Vec<String> = old.iter().map(|device| format!("device {device}")).collect();
        let cause = format!(
            "{} lacks the last batches, as an old copy does, and without it too few devices are present to be sure that \
             the others have nothing newer",
            words.join(", ")
        );
        Error::new(ErrorKind::Lost, "open the store for writing", cause)
            .at(&self.home)
            .advise("bring the missing devices back; --degraded writes without them")
    }
}
