//! The state after the calls so far: files with their names and sizes, opens, descriptors, processes.
//!
//! A file is identified by its name at a time: renaming keeps it, removing its name ends it, and the next file of that
//! name is another one. Threads share a descriptor table, a fork copies it; an open (an open file description) is
//! shared by all its descriptors and ends with the last.

use std::collections::{HashMap, VecDeque};

use crate::trace::{Kind, Names, Operation};

/// Time, process and duration of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub pid: u32,
    pub time_ns: u64,
    pub duration_ns: Option<u64>,
}

/// Target of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescriptorTarget {
    /// An open of a file, by its number.
    Opening(u32),
    /// A pipe, a socket, a file of the kernel …
    NotFile,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    target: DescriptorTarget,
    closes_on_exec: bool,
}

#[derive(Debug, Clone, Default)]
struct Table {
    users: u32,
    slots: HashMap<i64, Slot>,
}

/// An open file description.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    pub file: u32,
    /// Offset of the next read or write, if it is known.
    pub offset_bytes: Option<u64>,
    pub appends: bool,
    references: u32,
}

#[derive(Debug, Clone)]
struct Process {
    /// Its number, once it has done something.
    number: Option<u32>,
    program: Vec<u8>,
    table: u32,
    directory: u32,
}

/// What a new process shares with its parent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shares {
    pub descriptors: bool,
    pub directory: bool,
}

/// The whole state.
#[derive(Debug, Default)]
pub(super) struct World {
    pub files: Names,
    pub process_names: Names,
    /// Operations that were not returned yet.
    pub done: VecDeque<Operation>,
    numbers: HashMap<Vec<u8>, u32>,
    sizes: Vec<Option<u64>>,
    openings: HashMap<u32, Opening>,
    next_opening: u32,
    tables: HashMap<u32, Table>,
    directories: HashMap<u32, Vec<u8>>,
    next_shared: u32,
    processes: HashMap<u32, Process>,
}

/// Whether a path occupies space on a file system, unlike what the kernel generates.
pub(super) fn is_stored(path: &[u8]) -> bool {
    let below = |parent: &[u8]| path.starts_with(parent) && matches!(path.get(parent.len()), None | Some(b'/'));
    below(b"/dev/shm") || ![&b"/dev"[..], b"/proc", b"/sys"].into_iter().any(below)
}

impl World {
    fn process(&mut self, pid: u32) -> &mut Process {
        let next = &mut self.next_shared;
        let (tables, processes) = (&mut self.tables, &mut self.processes);
        processes.entry(pid).or_insert_with(|| {
            let table = *next;
            *next += 1;
            tables.insert(table, Table { users: 1, slots: HashMap::new() });
            Process { number: None, program: Vec::new(), table, directory: table }
        })
    }

    pub(super) fn knows_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Moves what is known of one process to another number: the first process has none before the second appears.
    pub(super) fn renumber(&mut self, from: u32, to: u32) {
        if let Some(process) = self.processes.remove(&from) {
            self.processes.insert(to, process);
        }
    }

    /// The number of a process; it changes when the process runs another program.
    fn process_number(&mut self, pid: u32) -> u32 {
        if let Some(number) = self.process(pid).number {
            return number;
        }
        let program = &self.processes[&pid].program;
        let base = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // The process whose number strace does not print.
        let pid_text = if pid == 0 { "first".to_owned() } else { pid.to_string() };
        let name = [pid_text.as_bytes(), if base.is_empty() { b"" } else { b" " }, base].concat();
        let number = self.process_names.push(&name).unwrap_or(0);
        self.process(pid).number = Some(number);
        number
    }

    /// A process created another.
    pub(super) fn fork(&mut self, parent: u32, child: u32, shares: Shares) {
        let Process { program, table, directory, .. } = self.process(parent).clone();
        let own = self.next_shared;
        self.next_shared += 1;
        let child_table = if shares.descriptors {
            self.tables.entry(table).or_default().users += 1;
            table
        } else {
            let copy =
                Table { users: 1, slots: self.tables.get(&table).map(|table| table.slots.clone()).unwrap_or_default() };
            for slot in copy.slots.values() {
                if let DescriptorTarget::Opening(opening) = slot.target
                    && let Some(opening) = self.openings.get_mut(&opening)
                {
                    opening.references += 1;
                }
            }
            self.tables.insert(own, copy);
            own
        };
        let child_directory = if shares.directory {
            directory
        } else {
            if let Some(path) = self.directories.get(&directory).cloned() {
                self.directories.insert(own, path);
            }
            own
        };
        let process = Process { number: None, program, table: child_table, directory: child_directory };
        self.processes.insert(child, process);
    }

    /// A process runs a program: close-on-exec descriptors are closed.
    pub(super) fn execute(&mut self, context: &Context, program: Vec<u8>) {
        let process = self.process(context.pid);
        process.program = program;
        process.number = None;
        let table = process.table;
        // A shared table is copied first.
        if self.tables.get(&table).is_some_and(|table| table.users > 1) {
            let shares = Shares { descriptors: false, directory: true };
            let program = self.process(context.pid).program.clone();
            self.fork(context.pid, context.pid, shares);
            self.process(context.pid).program = program;
            if let Some(table) = self.tables.get_mut(&table) {
                table.users -= 1;
            }
        }
        let table = self.process(context.pid).table;
        let slots = self.tables.get(&table).map(|table| &table.slots);
        let mut closing: Vec<i64> = slots
            .map(|slots| slots.iter().filter(|(_, slot)| slot.closes_on_exec).map(|(fd, _)| *fd).collect())
            .unwrap_or_default();
        closing.sort_unstable();
        closing.into_iter().for_each(|fd| self.close_implied(context, fd));
    }

    /// A process has ended.
    pub(super) fn exit(&mut self, context: &Context) {
        let Some(process) = self.processes.get(&context.pid) else { return };
        let table = process.table;
        if let Some(shared) = self.tables.get_mut(&table) {
            shared.users = shared.users.saturating_sub(1);
            if shared.users == 0 {
                let mut left: Vec<i64> = shared.slots.keys().copied().collect();
                left.sort_unstable();
                left.into_iter().for_each(|fd| self.close_implied(context, fd));
                self.tables.remove(&table);
            }
        }
        self.processes.remove(&context.pid);
    }

    /// The working directory of a process, if it is known.
    pub(super) fn directory(&mut self, pid: u32) -> Option<&[u8]> {
        let directory = self.process(pid).directory;
        self.directories.get(&directory).map(Vec::as_slice)
    }

    pub(super) fn set_directory(&mut self, pid: u32, path: Vec<u8>) {
        let directory = self.process(pid).directory;
        self.directories.insert(directory, path);
    }

    /// The file at a path now.
    pub(super) fn file_at(&mut self, path: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(path) {
            return number;
        }
        let number = self.files.push(path).unwrap_or(0);
        self.numbers.insert(path.to_vec(), number);
        self.sizes.push(None);
        number
    }

    /// Another path of the same file.
    pub(super) fn also_at(&mut self, path: &[u8], file: u32) {
        if self.numbers.get(path) != Some(&file) {
            self.numbers.insert(path.to_vec(), file);
        }
    }

    pub(super) fn remove_name(&mut self, path: &[u8]) {
        self.numbers.remove(path);
    }

    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) {
        if let Some(file) = self.numbers.remove(from) {
            self.numbers.insert(to.to_vec(), file);
        }
    }

    pub(super) fn exchange(&mut self, one: &[u8], other: &[u8]) {
        let (first, second) = (self.file_at(one), self.file_at(other));
        self.numbers.insert(one.to_vec(), second);
        self.numbers.insert(other.to_vec(), first);
    }

    pub(super) fn size(&self, file: u32) -> Option<u64> {
        self.sizes.get(file as usize).copied().flatten()
    }

    pub(super) fn set_size(&mut self, file: u32, size_bytes: u64) {
        if let Some(size) = self.sizes.get_mut(file as usize) {
            *size = Some(size_bytes);
        }
    }

    /// Extends the file to `end_bytes` after a write.
    pub(super) fn grow(&mut self, file: u32, end_bytes: u64) {
        if let Some(Some(size)) = self.sizes.get_mut(file as usize) {
            *size = (*size).max(end_bytes);
        }
    }

    /// Creates an open; the caller then lets a descriptor refer to it.
    pub(super) fn new_opening(&mut self, file: u32, offset_bytes: Option<u64>, appends: bool) -> u32 {
        let number = self.next_opening;
        self.next_opening = self.next_opening.wrapping_add(1);
        self.openings.insert(number, Opening { file, offset_bytes, appends, references: 0 });
        number
    }

    pub(super) fn opening(&mut self, number: u32) -> Option<&mut Opening> {
        self.openings.get_mut(&number)
    }

    pub(super) fn target(&mut self, pid: u32, fd: i64) -> Option<DescriptorTarget> {
        let table = self.process(pid).table;
        self.tables.get(&table)?.slots.get(&fd).map(|slot| slot.target)
    }

    /// Sets the target of a descriptor; its previous target is closed.
    pub(super) fn put(&mut self, context: &Context, fd: i64, target: DescriptorTarget, closes_on_exec: bool) {
        if let DescriptorTarget::Opening(opening) = target
            && let Some(opening) = self.openings.get_mut(&opening)
        {
            opening.references += 1;
        }
        self.close_implied(context, fd);
        let table = self.process(context.pid).table;
        self.tables.entry(table).or_default().slots.insert(fd, Slot { target, closes_on_exec });
    }

    pub(super) fn set_closes_on_exec(&mut self, pid: u32, fd: i64, closes: bool) {
        let table = self.process(pid).table;
        if let Some(slot) = self.tables.get_mut(&table).and_then(|table| table.slots.get_mut(&fd)) {
            slot.closes_on_exec = closes;
        }
    }

    /// Descriptors of a process in a range.
    pub(super) fn descriptors(&mut self, pid: u32, first: i64, last: i64) -> Vec<i64> {
        let table = self.process(pid).table;
        let slots = self.tables.get(&table).map(|table| &table.slots);
        let mut found: Vec<i64> = slots
            .map(|slots| slots.keys().copied().filter(|fd| (first..=last).contains(fd)).collect())
            .unwrap_or_default();
        found.sort_unstable();
        found
    }

    /// Closes a descriptor as part of another call, without a time of its own.
    pub(super) fn close_implied(&mut self, context: &Context, fd: i64) {
        self.close(&Context { duration_ns: None, ..*context }, fd);
    }

    /// Closes a descriptor; the last one of an open ends that open.
    pub(super) fn close(&mut self, context: &Context, fd: i64) {
        let table = self.process(context.pid).table;
        let slot = self.tables.get_mut(&table).and_then(|table| table.slots.remove(&fd));
        let Some(Slot { target: DescriptorTarget::Opening(number), .. }) = slot else { return };
        let Some(opening) = self.openings.get_mut(&number) else { return };
        opening.references = opening.references.saturating_sub(1);
        if opening.references == 0 {
            let file = opening.file;
            self.openings.remove(&number);
            let mut operation = self.operation(context, Kind::Close, Some(file));
            operation.opening = Some(number);
            self.done.push_back(operation);
        }
    }

    /// An operation on a file, with everything known of both.
    pub(super) fn operation(&mut self, context: &Context, kind: Kind, file: Option<u32>) -> Operation {
        let process = self.process_number(context.pid);
        let mut operation = Operation::new(context.time_ns, process, kind);
        operation.duration_ns = context.duration_ns;
        operation.file = file;
        operation.file_size_bytes = file.and_then(|file| self.size(file));
        operation
    }
}

/// A path relative to a directory, without `.`, `..` and repeated slashes. Symbolic links are not resolved.
pub(super) fn resolve(directory: Option<&[u8]>, path: &[u8]) -> Vec<u8> {
    let mut resolved: Vec<u8> = Vec::with_capacity(path.len() + 16);
    let is_absolute = path.starts_with(b"/") || directory.is_some_and(|directory| directory.starts_with(b"/"));
    let parents = if path.starts_with(b"/") { b"" } else { directory.unwrap_or_default() };
    for part in parents.split(|&byte| byte == b'/').chain(path.split(|&byte| byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." if is_absolute || !(resolved.is_empty() || resolved.ends_with(b"..")) => {
                let end = resolved.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                resolved.truncate(end);
            }
            part => {
                if is_absolute || !resolved.is_empty() {
                    resolved.push(b'/');
                }
                resolved.extend_from_slice(part);
            }
        }
    }
    if resolved.is_empty() {
        resolved.push(if is_absolute { b'/' } else { b'.' });
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved() {
        for (directory, path, expected) in [
            (Some("/a/b"), "c", "/a/b/c"),
            (Some("/a/b"), "../c//d/./e", "/a/c/d/e"),
            (Some("/a"), "/x/../../y", "/y"),
            (Some("/"), ".", "/"),
            (None, "c/../d", "d"),
            (None, "../../d", "../../d"),
            (None, ".", "."),
            (Some("r"), "s", "r/s"),
        ] {
            let resolved = resolve(directory.map(str::as_bytes), path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&resolved), expected, "{directory:?} {path}");
        }
    }

    #[test]
    fn what_the_kernel_makes_up_is_not_stored() {
        for path in ["/proc/self/maps", "/sys", "/dev/null"] {
            assert!(!is_stored(path.as_bytes()), "{path}");
        }
        for path in ["/dev/shm/x", "/process", "/system/a", "proc", "/a/dev"] {
            assert!(is_stored(path.as_bytes()), "{path}");
        }
    }
}
