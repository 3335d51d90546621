//! Segments that end before the position from which the log continues: acknowledged batches there are lost, which was
//! reported when the log was continued. Every index that is rebuilt from the log reports it again, until the segment is
//! emptied and released.
//!
//! A segment with a copy that cannot be read is not among them: an error says nothing about its content, and to release
//! it would forget the removals in it.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::recovered::RELEASED;
use crate::format::ids::{BatchSequence, LogOffset, SegmentNumber};
use crate::format::release::Released;
use crate::format::segment::{Continued, FIRST_BATCH_AT};
use crate::index::catalog::SegmentRow;
use crate::log::scan::ScanStep;

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
            Some(end) => self.lacks_end(row, end.offset, Some(end.sequence)),
            // Its continuation may have been released since.
            None => released.end_of(row.number).is_some_and(|end| self.lacks_end(row, end, None)),
        };
        rows.values().filter(is_cut).cloned().collect()
    }

    /// Whether a segment has no commit that ends at `end`, with this sequence number if it is known, though all of its
    /// copies can be read.
    fn lacks_end(&self, row: &SegmentRow, end: LogOffset, sequence: Option<BatchSequence>) -> bool {
        // It may have been begun, and then continued before its first batch.
        if end <= FIRST_BATCH_AT {
            return false;
        }
        let mut scan = self.scan(row.id(), &row.devices, LogOffset::START);
        let mut is_there = false;
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Commit(met, ..) if met.end >= end => {
                    is_there = met.end == end && sequence.is_none_or(|sequence| met.commit.sequence == sequence);
                    break;
                }
                _ => {}
            }
        }
        !is_there && scan.take_error().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use crate::format::names::segment_path;
    use crate::{Attributes, Key, Plan, Store, Time};

    #[test]
    fn what_cannot_be_read_is_not_taken_for_cut_short() {
        let sandbox = tempfile::tempdir().unwrap();
        let home = sandbox.path().join("s");
        let put = |store: &Store, name: &str| {
            let attributes = Attributes::of_file(Time { seconds: 5, nanoseconds: 6 });
            store.put(&Key::parse(name).unwrap(), &attributes, b"content").unwrap();
        };
        let store = Store::create(&home, &Plan::default()).unwrap();
        put(&store, "kept");
        let end = store.engine().writer().unwrap().position;
        put(&store, "lost");
        let path = home.join(segment_path(store.engine().segment_id(end.segment)));
        drop(store);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(end.offset.0).unwrap();
        put(&Store::open(&home).unwrap(), "later");
        let cut = || {
            let store = Store::open_read_only(&home).unwrap();
            store.engine().cut_short().iter().map(|row| row.number).collect::<Vec<_>>()
        };
        assert_eq!(cut(), [end.segment]);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(cut(), []);
    }
}
