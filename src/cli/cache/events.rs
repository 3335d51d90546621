//! From the operations of a trace to the requests that a cache receives.

use std::collections::HashMap;

use crate::error::Result;
use crate::mrc::request::{Event, Request};
use crate::trace::{Detail, Kind, Operation, Source};
use crate::units::{format_count, format_size};

/// How operations other than plain reads and writes were treated.
#[derive(Debug, Default)]
struct Counts {
    operations: u64,
    maps: u64,
    mapped_bytes: u128,
    without_offset: u64,
    without_file: u64,
}

/// The events of a source.
#[derive(Debug)]
pub(super) struct Events {
    /// Whether mapping a file, or running it as a program, counts as reading it.
    with_maps: bool,
    counts: Counts,
    /// Where the last request of an open (`true`, its number) or, without opens, of a file (`false`) ended: for
    /// requests without an offset.
    positions: HashMap<(bool, u32), u64>,
    /// An event that follows from the previous operation.
    next: Option<Event>,
}

impl Events {
    pub(super) fn new(with_maps: bool) -> Events {
        Events { with_maps, counts: Counts::default(), positions: HashMap::new(), next: None }
    }

    /// The next event; `None` at the end of the trace.
    pub(super) fn next(&mut self, source: &mut dyn Source) -> Result<Option<Event>> {
        if let Some(event) = self.next.take() {
            return Ok(Some(event));
        }
        while let Some(operation) = source.next()? {
            if let Some(event) = self.take(&operation) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn take(&mut self, operation: &Operation) -> Option<Event> {
        self.counts.operations += 1;
        if operation.failed {
            return None;
        }
        let moves_bytes = matches!(operation.kind, Kind::Read | Kind::Write | Kind::Map | Kind::Execute);
        let Some(number) = operation.file else {
            self.counts.without_file += u64::from(moves_bytes && operation.length_bytes > 0);
            return None;
        };
        let file = u64::from(number);
        let size = operation.file_size_bytes.map(|size_bytes| Event::Size { file, size_bytes });
        match operation.kind {
            Kind::Read | Kind::Write => {
                let event = self.request(operation, number);
                // A read leaves the size unchanged; the size after a write is known only then.
                match (operation.kind, size) {
                    (Kind::Read, Some(size)) => {
                        self.next = Some(event);
                        Some(size)
                    }
                    (_, size) => {
                        self.next = size;
                        Some(event)
                    }
                }
            }
            Kind::Map | Kind::Execute if self.with_maps => self.map(operation, file).or(size),
            Kind::Create | Kind::Unlink => Some(Event::Cut { file, size_bytes: 0 }),
            Kind::Truncate => {
                self.next = Some(Event::Size { file, size_bytes: operation.length_bytes });
                Some(Event::Cut { file, size_bytes: operation.length_bytes })
            }
            _ => size,
        }
    }

    /// The request of a read or write; of no bytes, too: those are counted and left out later, and the size that they
    /// report counts.
    fn request(&mut self, operation: &Operation, number: u32) -> Event {
        let position = match operation.opening {
            Some(opening) => (true, opening),
            None => (false, number),
        };
        let offset_bytes = operation.offset_bytes.unwrap_or_else(|| {
            self.counts.without_offset += u64::from(operation.length_bytes > 0);
            self.positions.get(&position).copied().unwrap_or(0)
        });
        self.positions.insert(position, offset_bytes.saturating_add(operation.length_bytes));
        Event::Request(Request {
            file: number.into(),
            offset_bytes,
            length_bytes: operation.length_bytes,
            is_write: operation.kind == Kind::Write,
        })
    }

    /// Mapped data counts as read, up to the end of the file; a program that is run counts as a whole.
    fn map(&mut self, operation: &Operation, file: u64) -> Option<Event> {
        let offset_bytes = operation.offset_bytes.unwrap_or(0);
        let to_end = operation.file_size_bytes.map(|size| size.saturating_sub(offset_bytes));
        let length_bytes = match operation.kind {
            Kind::Execute => to_end?,
            _ => operation.length_bytes.min(to_end.unwrap_or(u64::MAX)),
        };
        self.counts.maps += 1;
        self.counts.mapped_bytes += u128::from(length_bytes);
        (length_bytes > 0).then_some(Event::Request(Request { file, offset_bytes, length_bytes, is_write: false }))
    }

    /// Operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.counts.operations
    }

    /// Remarks on how the requests were derived.
    pub(super) fn notes(&self, source: &dyn Source) -> Vec<String> {
        let counts = &self.counts;
        let number = |count: u64| format_count(count.into());
        let mut notes = Vec::new();
        if counts.maps > 0 {
            notes.push(format!(
                "{} mappings and program starts count as reads of the {} that they cover, though not all of it may have been \
                 touched; --mapped ignore leaves them out.",
                number(counts.maps),
                format_size(counts.mapped_bytes),
            ));
        }
        if counts.without_offset > 0 {
            notes.push(format!(
                "{} requests do not say where they begin; they are taken to go on where the one before them ended.",
                number(counts.without_offset)
            ));
        }
        if counts.without_file > 0 {
            notes.push(format!(
                "{} requests on what the trace does not name (pipes, sockets, files opened unseen) were left out.",
                number(counts.without_file)
            ));
        }
        let origin = source.origin();
        if origin.detail == Detail::WholeFiles {
            notes.push("The trace has whole files only: each counts as one request from its beginning.".to_owned());
        }
        notes.extend(origin.notes.iter().cloned());
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Listed;

    fn events(operations: Vec<Operation>, with_maps: bool) -> (Vec<Event>, Vec<String>) {
        let mut source = Listed::new("test");
        source.operations = operations;
        let mut events = Events::new(with_maps);
        let mut all = Vec::new();
        while let Some(event) = events.next(&mut source).unwrap() {
            all.push(event);
        }
        (all, events.notes(&source))
    }

    fn operation(kind: Kind, offset_bytes: Option<u64>, length_bytes: u64) -> Operation {
        Operation { file: Some(3), opening: Some(1), offset_bytes, length_bytes, ..Operation::new(0, 0, kind) }
    }

    fn request(offset_bytes: u64, length_bytes: u64, is_write: bool) -> Event {
        Event::Request(Request { file: 3, offset_bytes, length_bytes, is_write })
    }

    #[test]
    fn requests_without_a_place_go_on_where_the_last_ended() {
        let (all, notes) = events(
            vec![
                operation(Kind::Read, Some(100), 50),
                operation(Kind::Read, None, 20),
                operation(Kind::Read, None, 0),
                Operation { failed: true, ..operation(Kind::Read, Some(0), 10) },
                Operation { file: None, ..operation(Kind::Read, Some(0), 10) },
                operation(Kind::Write, None, 5),
            ],
            true,
        );
        assert_eq!(
            all,
            [request(100, 50, false), request(150, 20, false), request(170, 0, false), request(170, 5, true)]
        );
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("2 requests do not say") && notes[1].starts_with("1 requests on what"));
    }

    #[test]
    fn sizes_come_before_reads_and_after_writes() {
        let sized = |kind| Operation { file_size_bytes: Some(500), ..operation(kind, Some(0), 50) };
        let size = Event::Size { file: 3, size_bytes: 500 };
        let (all, _) = events(vec![sized(Kind::Read), sized(Kind::Write), sized(Kind::Open)], true);
        assert_eq!(all, [size, request(0, 50, false), request(0, 50, true), size, size]);
    }

    #[test]
    fn what_is_mapped_counts_up_to_the_end_of_the_file() {
        let sized = |kind, length| Operation { file_size_bytes: Some(5000), ..operation(kind, Some(4096), length) };
        let maps = || vec![sized(Kind::Map, 8192), sized(Kind::Execute, 0), operation(Kind::Map, None, 100)];
        let (all, notes) = events(maps(), true);
        assert_eq!(all, [request(4096, 904, false), request(4096, 904, false), request(0, 100, false)]);
        assert!(notes[0].contains("3 mappings"), "{notes:?}");
        let (all, notes) = events(maps(), false);
        assert_eq!(all.iter().filter(|event| matches!(event, Event::Request(_))).count(), 0);
        assert!(notes.is_empty());
    }

    #[test]
    fn what_is_removed_or_truncated_leaves() {
        let (all, _) = events(vec![operation(Kind::Unlink, None, 0), operation(Kind::Truncate, None, 70)], true);
        let cut = |size_bytes| Event::Cut { file: 3, size_bytes };
        assert_eq!(all, [cut(0), cut(70), Event::Size { file: 3, size_bytes: 70 }]);
    }
}
