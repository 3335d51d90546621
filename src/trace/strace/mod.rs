//! The output of strace as a source of operations: best with `-f -ttt -T -y`; missing options are tolerated.
//!
//! Calls that others interrupted in the output are joined by process; descriptors are followed through open,
//! duplication, inheritance and close (`world`), so that reads and writes have offsets although strace prints none.

mod call;
mod calls;
mod line;
mod opens;
#[cfg(test)]
mod tests;
mod world;

use std::collections::HashMap;

use super::input::Line;
use super::problems::excerpt;
use super::{Clock, Findings, Input, Operation, Origin, Problems, Source, Trouble};
use crate::error::Result;
use calls::{Doing, shares};
use line::{Prefixed, Stamp};
use world::{Context, World};

/// Longer lines are skipped.
const LONGEST_LINE: usize = 1 << 20;
/// Limits on the number and text of unfinished calls.
const MOST_PENDING: usize = 1 << 16;
const LONGEST_PENDING: usize = 1 << 20;
const DAY_NS: u64 = 86_400_000_000_000;

/// An unfinished call.
#[derive(Debug)]
struct Pending {
    text: Vec<u8>,
    time_ns: u64,
    line: u64,
}

/// Reads the output of strace.
#[derive(Debug)]
pub(crate) struct Reader {
    input: Input,
    origin: Origin,
    problems: Problems,
    world: World,
    pending: HashMap<u32, Pending>,
    /// The process of lines without a process number.
    unnamed: u32,
    buffer: Vec<u8>,
    line: u64,
    clock: Watch,
    ended: bool,
}

/// The current time, derived from the lines so far.
#[derive(Debug, Default)]
struct Watch {
    stamped: bool,
    now_ns: u64,
    last_of_day_ns: u64,
    days_ns: u64,
    went_back: bool,
}

impl Watch {
    /// The time of a line; a line without one advances a counter.
    fn at(&mut self, stamp: Option<Stamp>) -> u64 {
        let before = self.now_ns;
        match stamp {
            Some(Stamp::Wall(ns)) => self.now_ns = ns,
            Some(Stamp::OfDay(ns)) => {
                if self.last_of_day_ns > ns.saturating_add(DAY_NS / 2) {
                    self.days_ns = self.days_ns.saturating_add(DAY_NS);
                }
                self.last_of_day_ns = ns;
                self.now_ns = self.days_ns.saturating_add(ns);
            }
            Some(Stamp::Since(ns)) => self.now_ns = self.now_ns.saturating_add(ns),
            None if self.stamped => {}
            None => self.now_ns += 1,
        }
        self.went_back = self.now_ns < before && self.stamped;
        self.stamped |= stamp.is_some();
        self.now_ns
    }
}

/// Detects strace output: enough of the first lines are complete calls.
pub(crate) fn is_strace(head: &[u8]) -> bool {
    const LINES: usize = 200;
    // The last line may be truncated.
    let whole = head.iter().rposition(|&byte| byte == b'\n').map_or(head, |end| &head[..end]);
    let lines = || whole.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(LINES);
    let calls = lines().filter(|line| {
        let rest = line::prefixed(line).rest;
        rest.starts_with(b"+++ ")
            || (call::name(rest).is_some() && (unfinished(rest).is_some() || call::parse(rest).is_some()))
    });
    calls.count() * 4 > lines().count()
}

/// The text before the mark of an unfinished call.
fn unfinished(text: &[u8]) -> Option<&[u8]> {
    text.trim_ascii_end().strip_suffix(b"<unfinished ...>")
}

/// The name and the rest of a resumed call.
fn resumed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = text.strip_prefix(b"<... ")?;
    let end = rest.windows(8).position(|window| window == b"resumed>")?;
    Some((rest[..end].trim_ascii(), &rest[end + 8..]))
}

impl Reader {
    /// Creates a reader of an input.
    pub(crate) fn new(input: Input) -> Reader {
        let mut origin = Origin::new("strace");
        let stamp = |line: &[u8]| line::prefixed(line).stamp;
        origin.clock = match input.head().split(|&byte| byte == b'\n').find_map(stamp) {
            Some(Stamp::Wall(_)) => Clock::Wall,
            Some(_) => Clock::Start,
            None => Clock::None,
        };
        Reader {
            input,
            origin,
            problems: Problems::default(),
            world: World::default(),
            pending: HashMap::new(),
            unnamed: 0,
            buffer: Vec::new(),
            line: 0,
            clock: Watch::default(),
            ended: false,
        }
    }

    /// Sets the traced command.
    #[must_use]
    pub(crate) fn with_command(mut self, command: String) -> Reader {
        self.origin.command = Some(command);
        self
    }

    /// The same with the name of the machine, escaped.
    pub(crate) fn on_host(mut self, host: String) -> Reader {
        self.origin.host = Some(host);
        self
    }

    /// Processes the next line; returns whether there was one.
    fn advance(&mut self) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.input.line(&mut buffer, LONGEST_LINE)?;
        self.line += 1;
        let number = self.line;
        match read {
            Line::End => return Ok(false),
            Line::TooLong => self.problems.count(Trouble::Unreadable, || format!("line {number}: longer than 1 MiB")),
            Line::Whole | Line::Last => self.take_line(&buffer, read == Line::Last),
        }
        self.buffer = buffer;
        Ok(true)
    }

    fn take_line(&mut self, line: &[u8], is_last: bool) {
        let number = self.line;
        let Prefixed { pid, stamp, rest } = line::prefixed(line);
        // Messages of strace itself, and signals.
        let is_message = |rest: &[u8]| {
            rest.is_empty()
                || rest.starts_with(b"--- ")
                || rest.starts_with(b"strace: ")
                || rest.starts_with(b"[ Process ")
        };
        if is_message(rest) {
            // Such a time counts from the line before, whatever that is.
            if let Some(Stamp::Since(_)) = stamp {
                self.clock.at(stamp);
            }
            return;
        }
        let begins_call = call::name(rest).is_some();
        if !begins_call && !rest.starts_with(b"<... ") && !rest.starts_with(b"+++ ") {
            return self.unreadable(line, is_last);
        }
        let time_ns = self.clock.at(stamp);
        if self.clock.went_back {
            self.problems.count(Trouble::ClockBackwards, || format!("line {number}: {}", excerpt(line)));
        }
        let pid = self.process(pid);
        let context = Context { pid, time_ns, duration_ns: None };
        if rest.starts_with(b"+++ ") {
            self.forget(pid);
            return self.world.exit(&context);
        }
        if let Some((name, rest)) = resumed(rest) {
            return self.resume(pid, name, rest, line);
        }
        if let Some(text) = unfinished(rest) {
            return self.suspend(pid, text, time_ns);
        }
        self.call(context, rest, number, line, is_last);
    }

    fn call(&mut self, context: Context, text: &[u8], number: u64, line: &[u8], is_last: bool) {
        let Some(call) = call::parse(text) else { return self.unreadable(line, is_last) };
        let context = Context { duration_ns: call.duration_ns, ..context };
        Doing { world: &mut self.world, problems: &mut self.problems, context, call: &call, line: number }.run();
    }

    fn unreadable(&mut self, line: &[u8], is_last: bool) {
        let number = self.line;
        let kind = if is_last { Trouble::Truncated } else { Trouble::Unreadable };
        self.problems.count(kind, || format!("line {number}: {}", excerpt(line)));
    }

    /// The process of a line. A new process without a known parent is the child of one that is just creating a process.
    fn process(&mut self, pid: Option<u32>) -> u32 {
        let Some(pid) = pid else { return self.unnamed };
        if self.world.knows_process(pid) || self.pending.contains_key(&pid) {
            return pid;
        }
        let makes = |pending: &Pending| {
            let name = call::name(&pending.text).unwrap_or_default();
            [&b"fork"[..], b"vfork", b"clone", b"clone2", b"clone3"].contains(&name)
        };
        let parents = self.pending.iter().filter(|(_, pending)| makes(pending));
        if let Some((&parent, pending)) = parents.min_by_key(|(_, pending)| pending.line) {
            let shares = shares(&[&pending.text]);
            self.world.fork(parent, pid, shares);
        } else if self.unnamed == 0 && self.world.knows_process(0) {
            // On a terminal, strace prints the number of the first process only once there is a second.
            self.world.renumber(0, pid);
            if let Some(pending) = self.pending.remove(&0) {
                self.pending.insert(pid, pending);
            }
            self.unnamed = pid;
        }
        pid
    }

    fn suspend(&mut self, pid: u32, text: &[u8], time_ns: u64) {
        self.forget(pid);
        let line = self.line;
        if self.pending.len() >= MOST_PENDING || text.len() > LONGEST_PENDING {
            return self.problems.count(Trouble::TooMany, || format!("line {line}: unfinished calls"));
        }
        self.pending.insert(pid, Pending { text: text.to_vec(), time_ns, line });
    }

    /// Unfinished calls of a process will not be resumed.
    fn forget(&mut self, pid: u32) {
        if let Some(pending) = self.pending.remove(&pid) {
            let never = [&b"exit"[..], b"exit_group", b"execve"];
            if !call::name(&pending.text).is_some_and(|name| never.contains(&name)) {
                self.problems
                    .count(Trouble::Unfinished, || format!("line {}: {}", pending.line, excerpt(&pending.text)));
            }
        }
    }

    fn resume(&mut self, pid: u32, name: &[u8], rest: &[u8], line: &[u8]) {
        let number = self.line;
        let Some(mut pending) = self.pending.remove(&pid).filter(|pending| call::name(&pending.text) == Some(name))
        else {
            return self.problems.count(Trouble::Unmatched, || format!("line {number}: {}", excerpt(line)));
        };
        pending.text.extend_from_slice(rest);
        let context = Context { pid, time_ns: pending.time_ns, duration_ns: None };
        self.call(context, &pending.text, pending.line, line, false);
    }

    fn end(&mut self) {
        self.ended = true;
        let mut left: Vec<u32> = self.pending.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|pid| self.forget(pid));
        if self.input.is_cut() {
            let line = self.line;
            self.problems.count(Trouble::Truncated, || format!("line {line}: the compressed data is truncated"));
        }
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Operation>> {
        loop {
            if let Some(operation) = self.world.done.pop_front() {
                return Ok(Some(operation));
            }
            if self.ended {
                return Ok(None);
            }
            if !self.advance()? {
                self.end();
            }
        }
    }

    fn findings(&self) -> Findings<'_> {
        Findings {
            files: &self.world.files,
            processes: &self.world.process_names,
            origin: &self.origin,
            problems: &self.problems,
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }
}
