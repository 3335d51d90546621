//! Segments of the log that end before the position at which the log continues: what was acknowledged there is gone,
//! and the writer that continued the log knew of it. The log itself shows that, so an index rebuilt from it says so
//! again, until these segments are emptied and released.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::recovered::RELEASED;
use crate::format::ids::{BatchSequence, LogOffset, SegmentNumber};
use crate::format::release::Released;
use crate::format::segment::{Continued, FIRST_BATCH_AT};
use crate::index::catalog::SegmentRow;
use crate::log::scan::{ScanStep, SegmentScan};

impl Engine {
    /// The segments that end before the position at which another one continues the log.
    pub(super) fn cut_short(&self) -> Vec<SegmentRow> {
        let rows = std::sync::Arc::clone(&self.view().state.segments);
        let store = self.geometry().store;
        let slots = self.devices.slots();
        let header = |row: &SegmentRow| {
            let on = row.devices.iter().filter_map(|device| slots.get(device.index()));
            on.filter(|slot| slot.is_readable()).find_map(|slot| slot.segment_header(row.id().into(), &store))
        };
        let continued = rows.values().filter_map(header).map(|header| header.continues);
        let ends: BTreeMap<SegmentNumber, Continued> = continued.map(|from| (from.segment, from)).collect();
        let notes = &self.view().state.notes;
        let released = notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
        let is_cut = |row: &&SegmentRow| match ends.get(&row.number) {
            Some(end) => !self.reaches(row, end.offset, Some(end.sequence)),
            // Its continuation may have been released since.
            None => released.end_of(row.number).is_some_and(|end| !self.reaches(row, end, None)),
        };
        rows.values().filter(is_cut).cloned().collect()
    }

    /// Whether a segment has the batch after which another one continues, with this number where it is known.
    fn reaches(&self, row: &SegmentRow, end: LogOffset, sequence: Option<BatchSequence>) -> bool {
        let copies = self.open_copies(row.id(), &row.devices);
        let mut scan = SegmentScan::new(copies, self.seed(row.id()), LogOffset::START);
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Commit(met, ..) if met.end == end => {
                    return sequence.is_none_or(|sequence| met.commit.sequence == sequence);
                }
                ScanStep::Commit(met, ..) if met.end > end => return false,
                _ => {}
            }
        }
        // It may have been begun, and then continued before its first batch.
        end == FIRST_BATCH_AT
    }
}
