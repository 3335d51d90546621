//! Interprets fanotify events: the open of a file that they belong to, and how much was read and written until its
//! close.
//!
//! An event has the process and the file, but not the open, the offset or the length. So an open with reads counts as a
//! read of the whole file when it is closed, as Tanenbaum, Herder and Bos counted; one with writes counts as the growth
//! of the file, or as the whole file if it did not grow or was truncated first.

use std::collections::{HashMap, VecDeque};

use crate::trace::problems::excerpt;
use crate::trace::{Index, Kind, Names, Operation, Problems, Trouble};

/// What happened to a file, according to one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// It was opened.
    pub opened: bool,
    /// It was opened for execution.
    pub executed: bool,
    /// It was read.
    pub read: bool,
    /// It was written or resized.
    pub modified: bool,
    /// It was closed.
    pub closed: bool,
}

/// Identifies a file, whatever its name: device, inode, and creation time.
pub(crate) type Identity = (u64, u64, i128);

/// An event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    /// When the event was read.
    pub time_ns: u64,
    /// What happened.
    pub happened: Happened,
    /// The process.
    pub pid: i32,
    /// The file.
    pub identity: Identity,
    /// Its size when the event was read.
    pub size_bytes: u64,
    /// Its path.
    pub path: &'a [u8],
}

/// A file and its known opens.
#[derive(Debug)]
struct File {
    number: u32,
    /// The last known size.
    size_bytes: u64,
    openings: Vec<Opening>,
    /// The process that truncated it, until the event of its open arrives.
    emptied_by: Option<i32>,
}

#[derive(Debug)]
struct Opening {
    number: u32,
    pid: i32,
    process: u32,
    /// The size of the file then, as far as it was known.
    size_bytes: u64,
    /// Times of the first read and the first write.
    read_ns: Option<u64>,
    written_ns: Option<u64>,
}

/// The state between events.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    files: HashMap<Identity, File>,
    /// Names of files, by their numbers.
    pub names: Names,
    /// Names of processes, by their numbers.
    pub processes: Names,
    process_index: Index,
    by_pid: HashMap<i32, u32>,
    next_opening: u32,
    /// Reported closes: the file, the process, and a template of the operation.
    closing: Vec<(Identity, i32, Operation)>,
    /// Problems found.
    pub problems: Problems,
    /// Operations derived from events.
    pub ready: VecDeque<Operation>,
}

impl Openings {
    /// Processes an event. `command` returns the name of a process; it is called at each open, because the name
    /// changes.
    pub(crate) fn take(&mut self, event: &Event<'_>, command: impl FnOnce(i32) -> Option<Vec<u8>>) {
        let happened = event.happened;
        let Some(process) = self.process(event, command) else {
            return self.problems.count(Trouble::TooMany, || "processes".to_owned());
        };
        let file = match self.files.entry(event.identity) {
            std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let Some(number) = self.names.push(event.path) else {
                    return self
                        .problems
                        .count(Trouble::TooMany, || format!("files, starting with {}", excerpt(event.path)));
                };
                place.insert(File { number, size_bytes: event.size_bytes, openings: Vec::new(), emptied_by: None })
            }
        };
        let operation = Operation {
            file: Some(file.number),
            file_size_bytes: Some(event.size_bytes),
            ..Operation::new(event.time_ns, process, Kind::Open)
        };
        if happened.opened {
            let emptied = file.emptied_by.take_if(|pid| *pid == event.pid).is_some();
            // Its current content may have been written since.
            let size_bytes = if emptied { 0 } else { file.size_bytes.min(event.size_bytes) };
            let opening = Opening {
                written_ns: emptied.then_some(event.time_ns),
                ..Opening::new(&mut self.next_opening, event.pid, process, size_bytes)
            };
            let kind = if happened.executed { Kind::Execute } else { Kind::Open };
            self.ready.push_back(Operation { kind, opening: Some(opening.number), ..operation });
            file.openings.push(opening);
        }
        // An open with truncation reports the truncation before the open.
        if happened.modified
            && !happened.read
            && !happened.closed
            && file.openings.is_empty()
            && file.emptied_by.is_none()
        {
            file.emptied_by = Some(event.pid);
        } else if happened.read || happened.modified {
            let at = find(&file.openings, event.pid).unwrap_or_else(|| {
                self.problems.count(Trouble::UnknownFile, || excerpt(event.path));
                let size_bytes = file.size_bytes.min(event.size_bytes);
                file.openings.push(Opening::new(&mut self.next_opening, event.pid, process, size_bytes));
                file.openings.len() - 1
            });
            let opening = &mut file.openings[at];
            if happened.read {
                opening.read_ns.get_or_insert(event.time_ns);
            }
            if happened.modified {
                opening.written_ns.get_or_insert(event.time_ns);
            }
        }
        file.size_bytes = event.size_bytes;
        if happened.closed {
            self.closing.push((event.identity, event.pid, operation));
        }
    }

    /// The number of the process of an event; `None` if there are too many.
    fn process(&mut self, event: &Event<'_>, command: impl FnOnce(i32) -> Option<Vec<u8>>) -> Option<u32> {
        if let Some(&process) = self.by_pid.get(&event.pid).filter(|_| !event.happened.opened) {
            return Some(process);
        }
        let mut name = command(event.pid).unwrap_or_default();
        if !name.is_empty() {
            name.push(b' ');
        }
        name.extend_from_slice(format!("[{}]", event.pid).as_bytes());
        let process = self.process_index.number(&mut self.processes, &name)?;
        self.by_pid.insert(event.pid, process);
        Some(process)
    }

    /// Processes the reported closes, once no other event is pending. The kernel merges events of a process with its
    /// earlier ones, so a close may be reported before what another process did through the same open.
    pub(crate) fn settle(&mut self) {
        for (identity, pid, operation) in self.closing.drain(..) {
            let Some(file) = self.files.get_mut(&identity) else { continue };
            if let Some(at) = find(&file.openings, pid) {
                let opening = file.openings.remove(at);
                opening.moved(&operation, &mut self.ready);
                self.ready.push_back(Operation { kind: Kind::Close, opening: Some(opening.number), ..operation });
            }
        }
    }

    /// Ends the recording at `time_ns`: settles closes, then adds what was read and written through opens that still
    /// exist, without a close. Counts those as unfinished, but not idle ones. Forgets all files.
    pub(crate) fn finish(&mut self, time_ns: u64) {
        self.settle();
        let mut files: Vec<File> = self.files.drain().map(|(_, file)| file).collect();
        files.sort_unstable_by_key(|file| file.number);
        for mut file in files {
            // It was no truncation by an open: somebody wrote who had it open before.
            if file.emptied_by.is_some() && file.size_bytes > 0 {
                let name = || excerpt(self.names.get(file.number).unwrap_or_default());
                self.problems.count(Trouble::UnknownFile, name);
            }
            for opening in file.openings.drain(..) {
                let operation = Operation {
                    file: Some(file.number),
                    file_size_bytes: Some(file.size_bytes),
                    ..Operation::new(time_ns, opening.process, Kind::Read)
                };
                if opening.moved(&operation, &mut self.ready) {
                    self.problems.count(Trouble::Unfinished, || {
                        format!("{} is still open", excerpt(self.names.get(file.number).unwrap_or_default()))
                    });
                }
            }
        }
    }
}

impl Opening {
    /// One that the process has neither read nor written yet, with the `next` number.
    fn new(next: &mut u32, pid: i32, process: u32, size_bytes: u64) -> Opening {
        let number = *next;
        *next = number.saturating_add(1);
        Opening { number, pid, process, size_bytes, read_ns: None, written_ns: None }
    }

    /// Adds the read and the write of an open; returns whether there was one. `end` has the file and the time of the
    /// close.
    fn moved(&self, end: &Operation, ready: &mut VecDeque<Operation>) -> bool {
        let size = end.file_size_bytes.unwrap_or(0);
        let mut add = |kind, start_ns: Option<u64>, offset: u64| {
            let Some(time_ns) = start_ns else { return };
            ready.push_back(Operation {
                time_ns,
                duration_ns: Some(end.time_ns.saturating_sub(time_ns)),
                process: self.process,
                opening: Some(self.number),
                kind,
                offset_bytes: Some(offset),
                length_bytes: size - offset,
                ..*end
            });
        };
        add(Kind::Read, self.read_ns, 0);
        let grown = size > self.size_bytes;
        add(Kind::Write, self.written_ns, if grown { self.size_bytes } else { 0 });
        self.read_ns.is_some() || self.written_ns.is_some()
    }
}

/// The open that an event of `pid` refers to: its own last one, otherwise the last one, which it may have inherited.
fn find(openings: &[Opening], pid: i32) -> Option<usize> {
    openings.iter().rposition(|opening| opening.pid == pid).or_else(|| openings.len().checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: Happened = Happened { opened: true, executed: false, read: false, modified: false, closed: false };
    const READ: Happened = Happened { opened: false, read: true, ..OPENED };
    const MODIFIED: Happened = Happened { opened: false, modified: true, ..OPENED };
    const CLOSED: Happened = Happened { opened: false, closed: true, ..OPENED };

    /// Kind, open, process, offset and length of an operation.
    type Row = (Kind, Option<u32>, u32, Option<u64>, u64);

    /// Operations from the events of one file: what happened, the process, and the size then.
    fn of(events: &[(Happened, i32, u64)]) -> (Vec<Row>, Openings) {
        settled(events, true)
    }

    /// Same; the events arrive one by one, or all together.
    fn settled(events: &[(Happened, i32, u64)], settle: bool) -> (Vec<Row>, Openings) {
        let mut openings = Openings::default();
        for (time_ns, &(happened, pid, size_bytes)) in (10..).zip(events) {
            let event = Event { time_ns, happened, pid, identity: (1, 2, 3), size_bytes, path: b"/d/f" };
            openings.take(&event, |pid| (pid == 7).then(|| b"cat".to_vec()));
            if settle {
                openings.settle();
            }
        }
        openings.finish(99);
        let list =
            openings.ready.iter().map(|o| (o.kind, o.opening, o.process, o.offset_bytes, o.length_bytes)).collect();
        (list, openings)
    }

    #[test]
    fn a_file_that_was_read_counts_whole_when_it_closes() {
        let (list, openings) = of(&[(OPENED, 7, 500), (READ, 7, 500), (READ, 7, 500), (CLOSED, 7, 500)]);
        assert_eq!(
            list,
            [
                (Kind::Open, Some(0), 0, None, 0),
                (Kind::Read, Some(0), 0, Some(0), 500),
                (Kind::Close, Some(0), 0, None, 0)
            ]
        );
        assert_eq!((openings.ready[1].time_ns, openings.ready[1].duration_ns), (11, Some(2)));
        assert_eq!(openings.processes.get(0), Some(&b"cat [7]"[..]));
        assert!(openings.problems.is_empty());
    }

    #[test]
    fn what_was_written_is_what_it_grew_by_or_all_of_it() {
        let write = |events: &[(Happened, i32, u64)]| -> Vec<(Option<u64>, u64)> {
            let (list, _) = of(events);
            list.iter().filter(|o| o.0 == Kind::Write).map(|o| (o.3, o.4)).collect()
        };
        // New, appended to, changed in place, truncated and written.
        assert_eq!(write(&[(OPENED, 7, 0), (MODIFIED, 7, 300), (CLOSED, 7, 900)]), [(Some(0), 900)]);
        assert_eq!(write(&[(OPENED, 7, 500), (MODIFIED, 7, 600), (CLOSED, 7, 600)]), [(Some(500), 100)]);
        assert_eq!(write(&[(OPENED, 7, 500), (MODIFIED, 7, 500), (CLOSED, 7, 500)]), [(Some(0), 500)]);
        assert_eq!(write(&[(MODIFIED, 7, 0), (OPENED, 7, 0), (MODIFIED, 7, 40), (CLOSED, 7, 40)]), [(Some(0), 40)]);
        let all = Happened { opened: true, executed: false, read: true, modified: true, closed: true };
        assert_eq!(write(&[(all, 7, 40)]), [(Some(0), 40)]);
    }

    #[test]
    fn a_closing_may_be_told_before_what_another_process_did() {
        let both = Happened { closed: true, ..OPENED };
        let (list, openings) = settled(&[(both, 7, 90), (MODIFIED, 8, 90)], false);
        assert_eq!(
            list.iter().map(|o| (o.0, o.1, o.4)).collect::<Vec<_>>(),
            [(Kind::Open, Some(0), 0), (Kind::Write, Some(0), 90), (Kind::Close, Some(0), 0)]
        );
        assert!(openings.problems.is_empty());
    }

    #[test]
    fn an_opening_can_be_inherited_and_others_were_there_before() {
        let (list, openings) =
            of(&[(OPENED, 7, 5), (READ, 8, 5), (OPENED, 9, 5), (CLOSED, 9, 5), (CLOSED, 8, 5), (CLOSED, 7, 5)]);
        assert_eq!(
            list.iter().map(|o| (o.0, o.1, o.2)).collect::<Vec<_>>(),
            [
                (Kind::Open, Some(0), 0),
                (Kind::Open, Some(1), 2),
                (Kind::Close, Some(1), 2),
                (Kind::Read, Some(0), 0),
                (Kind::Close, Some(0), 1)
            ]
        );
        assert!(openings.problems.is_empty());
        let (list, openings) = of(&[(MODIFIED, 7, 5), (CLOSED, 7, 5)]);
        assert_eq!((list.len(), openings.problems.of(Trouble::UnknownFile)), (0, 1));
        let (list, openings) = of(&[(READ, 8, 5), (OPENED, 7, 5), (MODIFIED, 7, 6)]);
        assert_eq!(
            list.iter().map(|o| (o.0, o.1)).collect::<Vec<_>>(),
            [(Kind::Open, Some(1)), (Kind::Read, Some(0)), (Kind::Write, Some(1))]
        );
        assert_eq!((openings.problems.of(Trouble::UnknownFile), openings.problems.of(Trouble::Unfinished)), (1, 2));
    }
}
