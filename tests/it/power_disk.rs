//! What a disk may hold after a power failure: system calls that strace recorded are applied to a model of files and
//! names, which knows what is durable and gives images of the rest.
//!
//! The rules are those of POSIX, no kinder: the bytes and the length of a file are durable when a sync of it that began
//! after the write has returned; a name when a sync of its directory that began after the change has returned. Of later
//! writes each block of 4 KiB may be there up to any of them, whatever the length of the file; of later changes of
//! names any prefix, of all directories together (a journal) or of each. A call that was still running counts or not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use granulo_core::random::Random;

/// What a disk writes as a whole.
const BLOCK: usize = 4096;
/// The calls that a recording needs. With `?`, strace accepts that a machine does not have one.
pub const RECORDED: &str = "trace=?open,?creat,openat,close,?dup,?dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,\
    pwritev2,fsync,fdatasync,syncfs,ftruncate,truncate,fallocate,?rename,?renameat,renameat2,?unlink,unlinkat,?rmdir,\
    ?mkdir,mkdirat,?link,linkat,?symlink,symlinkat,copy_file_range,sendfile,splice,sync_file_range";

/// A recorded call, from the line where it begins to the line where it has returned.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: Vec<String>,
    /// `None` if it failed or did not return.
    result: Option<i64>,
    began: usize,
    ended: usize,
}

/// Splits arguments at the commas that are in no string, list or structure. Strings are in hexadecimal.
fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut depth, mut is_quoted) = (vec![String::new()], 0, false);
    for c in arguments.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '[' | '{' | '(' if !is_quoted => depth += 1,
            ']' | '}' | ')' if !is_quoted => depth -= 1,
            ',' if !is_quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// The bytes of a string as `strace -xx` prints it.
fn decode(quoted: &str) -> Vec<u8> {
    let digits = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let digits = digits.unwrap_or_else(|| panic!("not a whole string: {quoted:.60}"));
    digits.split("\\x").skip(1).map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

fn calls(trace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut running: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let mut last = 0;
    for (number, line) in trace.lines().enumerate() {
        last = number;
        let Some((thread, said)) = line.split_once(' ') else { continue };
        let said = said.trim_start();
        if let Some(begun) = said.strip_suffix(" <unfinished ...>") {
            running.insert(thread, (number, begun));
            continue;
        }
        let (began, begun, rest) = match said.strip_prefix("<... ") {
            Some(resumed) => {
                let (began, begun) = running.remove(thread).expect("a call that ends has begun");
                (began, begun, resumed.split_once(" resumed>").unwrap().1)
            }
            None => (number, said, ""),
        };
        // Signals and ends of threads.
        let whole = format!("{begun}{rest}");
        let (Some((name, rest)), Some(equals)) = (whole.split_once('('), whole.rfind(" = ")) else { continue };
        let Some((arguments, _)) = rest[..equals - name.len() - 1].rsplit_once(')') else { continue };
        let result = whole[equals + 3..].split(' ').next().unwrap();
        let result = result.parse().ok().or_else(|| i64::from_str_radix(result.strip_prefix("0x")?, 16).ok());
        let result = result.filter(|&result| result >= 0);
        calls.push(Call { name: name.to_owned(), arguments: split(arguments), result, began, ended: number });
    }
    for (began, begun) in running.into_values() {
        if let Some((name, arguments)) = begun.split_once('(') {
            calls.push(Call {
                name: name.to_owned(),
                arguments: split(arguments),
                result: None,
                began,
                ended: last + 1,
            });
        }
    }
    calls
}

/// A file by its number, a directory by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory(PathBuf),
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, data: Vec<u8> },
    Resize(usize),
}

/// A file: what is durable, and the changes since, with the times when they happened.
#[derive(Debug, Clone, Default)]
struct File {
    durable: Vec<u8>,
    later: Vec<(usize, Change)>,
}

/// A change of names.
#[derive(Debug, Clone)]
enum Naming {
    Name(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Naming {
    fn paths(&self) -> Vec<&Path> {
        match self {
            Naming::Name(path, _) | Naming::Remove(path) => vec![path],
            Naming::Rename(from, to) => vec![from, to],
        }
    }

    fn is_in(&self, directory: &Path) -> bool {
        self.paths().iter().any(|path| path.parent() == Some(directory))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Naming::Name(path, node) => {
                names.insert(path.clone(), node.clone());
            }
            Naming::Remove(path) => {
                names.remove(path);
            }
            Naming::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}

/// The effect of a call.
#[derive(Debug, Clone)]
enum Effect {
    Change(usize, Change),
    Naming(Naming),
    Sync(Node),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { at, data } => {
                if content.len() < at + data.len() {
                    content.resize(at + data.len(), 0);
                }
                content[*at..at + data.len()].copy_from_slice(data);
            }
            Change::Resize(length) => content.resize(*length, 0),
        }
    }

    /// Whether it changes a byte of the block that begins at this offset.
    fn touches(&self, block: usize) -> bool {
        match self {
            Change::Write { at, data } => *at < block + BLOCK && block < at + data.len(),
            Change::Resize(length) => *length < block + BLOCK,
        }
    }
}

/// An open file.
#[derive(Debug, Clone)]
struct Handle {
    node: Node,
    offset: usize,
}

/// Files by path, and the directories.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub directories: BTreeSet<PathBuf>,
}

impl Image {
    /// Everything below these directories.
    pub fn of(roots: &[PathBuf]) -> Image {
        let mut image = Image::default();
        let mut left = roots.to_vec();
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    image.files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
            image.directories.insert(directory);
        }
        image
    }

    /// Puts it where it was, instead of what is there.
    pub fn write(&self, roots: &[PathBuf]) {
        for root in roots.iter().filter(|root| root.exists()) {
            fs::remove_dir_all(root).unwrap();
        }
        for directory in &self.directories {
            fs::DirBuilder::new().mode(0o700).recursive(true).create(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        for (path, content) in &self.files {
            let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).unwrap();
            std::io::Write::write_all(&mut file, content).unwrap();
        }
    }
}

/// Everything below some directories, on a disk.
#[derive(Debug, Clone)]
pub struct Disk {
    roots: Vec<PathBuf>,
    files: Vec<File>,
    /// Names as processes see them.
    names: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    later: Vec<(usize, Naming)>,
    clock: usize,
}

/// A recorded command, as effects in order: the time when each began, and whether it has happened or only begins.
pub struct Recording {
    steps: Vec<(Effect, usize, usize)>,
    /// Lines of the recording.
    pub length: usize,
}

impl Disk {
    /// What is there now is durable.
    pub fn of(roots: &[PathBuf]) -> Disk {
        let image = Image::of(roots);
        let mut disk = Disk {
            roots: roots.to_vec(),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            later: Vec::new(),
            clock: 0,
        };
        for directory in image.directories {
            disk.names.insert(directory.clone(), Node::Directory(directory));
        }
        for (path, durable) in image.files {
            disk.names.insert(path, Node::File(disk.files.len()));
            disk.files.push(File { durable, later: Vec::new() });
        }
        disk.durable = disk.names.clone();
        disk
    }

    /// Whether a path belongs to it, and how it is written in the model.
    fn own(&self, path: PathBuf) -> Option<PathBuf> {
        let resolved = |root: &PathBuf| fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        let own = |root: &PathBuf| {
            let below = path.strip_prefix(root).or_else(|_| path.strip_prefix(resolved(root))).ok()?;
            Some(if below.as_os_str().is_empty() { root.clone() } else { root.join(below) })
        };
        self.roots.iter().find_map(own)
    }

    /// What a command did that strace recorded: its effects, once it is clear which file each call meant.
    pub fn read(&self, trace: &str) -> Recording {
        let calls = calls(trace);
        let mut moments: Vec<(usize, bool, usize)> = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            moments.push((call.began, false, number));
            moments.push((call.ended, true, number));
        }
        moments.sort_unstable();
        let mut disk = self.clone();
        let mut open: BTreeMap<i64, Handle> = BTreeMap::new();
        let mut meant: BTreeMap<usize, (i64, Handle)> = BTreeMap::new();
        let mut steps = Vec::new();
        for (_, has_ended, number) in moments {
            let call = &calls[number];
            let descriptor = call.arguments.first().and_then(|first| first.parse::<i64>().ok());
            if !has_ended {
                // Another call may get the number as soon as this one begins.
                let handle = if call.name == "close" {
                    descriptor.and_then(|it| open.remove(&it))
                } else {
                    descriptor.and_then(|it| open.get(&it).cloned())
                };
                if let (Some(descriptor), Some(handle)) = (descriptor, handle) {
                    meant.insert(number, (descriptor, handle));
                }
                continue;
            }
            for effect in disk.effects(call, &mut open, meant.remove(&number)) {
                disk.perform(&effect, call.began);
                steps.push((effect, call.began, call.ended));
            }
        }
        Recording { steps, length: trace.lines().count() }
    }

    /// Applies a part of a recording: what has happened before a line, and of what has begun there what the choice
    /// says.
    pub fn advance(&mut self, recording: &Recording, line: usize, counts: &mut dyn FnMut() -> bool) {
        let start = self.clock;
        for (effect, began, ended) in &recording.steps {
            let is_running = *began < line && *ended >= line;
            if *ended < line || (is_running && !matches!(effect, Effect::Sync(_)) && counts()) {
                self.clock = start + ended;
                self.perform(effect, start + began);
            }
        }
        self.clock = start + line;
    }

    /// Applies one effect at the present time; a sync covers what happened before it began.
    fn perform(&mut self, effect: &Effect, began: usize) {
        match effect {
            Effect::Change(file, change) => {
                while self.files.len() <= *file {
                    self.files.push(File::default());
                }
                self.files[*file].later.push((self.clock, change.clone()));
            }
            Effect::Naming(naming) => {
                if let Naming::Name(_, Node::File(file)) = naming {
                    while self.files.len() <= *file {
                        self.files.push(File::default());
                    }
                }
                naming.apply(&mut self.names);
                self.later.push((self.clock, naming.clone()));
            }
            Effect::Sync(Node::File(file)) => {
                let file = &mut self.files[*file];
                let (before, after) = std::mem::take(&mut file.later).into_iter().partition(|(at, _)| *at < began);
                file.later = after;
                let before: Vec<(usize, Change)> = before;
                before.iter().for_each(|(_, change)| change.apply(&mut file.durable));
            }
            Effect::Sync(Node::Directory(path)) => {
                let later = std::mem::take(&mut self.later);
                let is_durable = |(at, naming): &(usize, Naming)| *at < began && naming.is_in(path);
                let (before, after): (Vec<_>, Vec<_>) = later.into_iter().partition(is_durable);
                before.iter().for_each(|(_, naming)| naming.apply(&mut self.durable));
                self.later = after;
            }
        }
    }

    /// The effects of a call that has returned. `open` are the descriptors of the process, `meant` what the first
    /// argument was when the call began.
    fn effects(&mut self, call: &Call, open: &mut BTreeMap<i64, Handle>, meant: Option<(i64, Handle)>) -> Vec<Effect> {
        let Some(result) = call.result else {
            let writes = call.name.contains("write") && meant.is_some();
            assert!(!writes, "a write that failed or did not return is not in the model: {}", call.name);
            return Vec::new();
        };
        let text = |at: usize| call.arguments[at].as_str();
        let number = |at: usize| text(at).parse::<usize>().unwrap();
        let path = |at: usize| PathBuf::from(OsString::from_vec(decode(text(at))));
        let paths =
            |disk: &Disk, at: &[usize]| -> Vec<Option<PathBuf>> { at.iter().map(|&at| disk.own(path(at))).collect() };
        match (call.name.as_str(), meant) {
            ("openat", _) => self.open(call, path(1), text(2), open),
            ("close", _) => Vec::new(),
            ("dup" | "dup2" | "dup3", Some((_, handle))) => {
                open.insert(result, handle);
                Vec::new()
            }
            ("fcntl", Some((_, handle))) => {
                if text(1).starts_with("F_DUPFD") {
                    open.insert(result, handle);
                }
                Vec::new()
            }
            ("lseek", Some((descriptor, _))) => {
                if let Some(handle) = open.get_mut(&descriptor) {
                    handle.offset = result as usize;
                }
                Vec::new()
            }
            ("write" | "pwrite64", Some((descriptor, Handle { node: Node::File(file), offset }))) => {
                let mut data = decode(text(1));
                data.truncate(result as usize);
                let at = if call.name == "write" { offset } else { number(3) };
                if let (true, Some(handle)) = (call.name == "write", open.get_mut(&descriptor)) {
                    handle.offset += data.len();
                }
                vec![Effect::Change(file, Change::Write { at, data })]
            }
            ("ftruncate", Some((_, Handle { node: Node::File(file), .. }))) => {
                vec![Effect::Change(file, Change::Resize(number(1)))]
            }
            ("fsync" | "fdatasync", Some((_, handle))) => vec![Effect::Sync(handle.node)],
            (name @ ("rename" | "renameat" | "renameat2"), _) => {
                let at = if name == "rename" { [0, 1] } else { [1, 3] };
                let is_simple = name != "renameat2" || matches!(text(4), "0" | "RENAME_NOREPLACE");
                match paths(self, &at).as_slice() {
                    [Some(from), Some(to)] if is_simple => {
                        assert!(matches!(self.names.get(from), Some(Node::File(_))), "{from:?} is no file");
                        vec![Effect::Naming(Naming::Rename(from.clone(), to.clone()))]
                    }
                    [None, None] => Vec::new(),
                    _ => panic!("not in the model: {} {:?}", call.name, call.arguments),
                }
            }
            (name @ ("unlink" | "rmdir" | "unlinkat"), _) => {
                let removed = self.own(path(usize::from(name == "unlinkat")));
                removed.map(|path| Effect::Naming(Naming::Remove(path))).into_iter().collect()
            }
            (name @ ("mkdir" | "mkdirat"), _) => {
                let made = self.own(path(usize::from(name == "mkdirat")));
                let naming = |path: PathBuf| Effect::Naming(Naming::Name(path.clone(), Node::Directory(path)));
                made.map(naming).into_iter().collect()
            }
            (_, None) if !call.arguments.iter().any(|argument| self.is_own_text(argument)) => Vec::new(),
            _ => panic!("not in the model: {} {:.200?}", call.name, call.arguments),
        }
    }

    /// Whether an argument is a path of this disk.
    fn is_own_text(&self, argument: &str) -> bool {
        argument.ends_with('"')
            && argument.starts_with('"')
            && self.own(PathBuf::from(OsString::from_vec(decode(argument)))).is_some()
    }

    fn open(&mut self, call: &Call, path: PathBuf, flags: &str, open: &mut BTreeMap<i64, Handle>) -> Vec<Effect> {
        let result = call.result.unwrap();
        open.remove(&result);
        let mut effects = Vec::new();
        let node = if let Ok(descriptor) = path.strip_prefix("/proc/self/fd") {
            let descriptor = descriptor.to_str().unwrap().parse::<i64>().unwrap();
            open.get(&descriptor).map(|handle| handle.node.clone())
        } else {
            // Relative to a directory: sources of an import, which are not on this disk.
            let own = self.own(path);
            own.map(|path| {
                self.names.get(&path).cloned().unwrap_or_else(|| {
                    assert!(flags.contains("O_CREAT"), "{path:?} is opened, and is not in the model");
                    let node = Node::File(self.files.len());
                    effects.push(Effect::Naming(Naming::Name(path, node.clone())));
                    node
                })
            })
        };
        let Some(node) = node else { return effects };
        assert!(!flags.contains("O_APPEND"), "not in the model: {flags}");
        if let (true, Node::File(file)) = (flags.contains("O_TRUNC"), &node) {
            effects.push(Effect::Change(*file, Change::Resize(0)));
        }
        open.insert(result, Handle { node, offset: 0 });
        effects
    }

    /// What processes see: nothing is lost.
    pub fn now(&self) -> Image {
        self.image_of(&self.names, &mut |file| {
            let mut content = file.durable.clone();
            file.later.iter().for_each(|(_, change)| change.apply(&mut content));
            content
        })
    }

    /// What may be on the disk after a power failure now.
    pub fn image(&self, random: &mut Random) -> Image {
        let mut names = self.durable.clone();
        let mut until = BTreeMap::new();
        let (way, most) = (random.below(4), self.later.len() as u64);
        let whole = match way {
            0 => 0,
            1 => most,
            _ => random.below(most + 1),
        };
        for (number, (_, naming)) in self.later.iter().enumerate() {
            let directory = naming.paths().last().unwrap().parent().unwrap().to_owned();
            let until =
                if way == 3 { *until.entry(directory).or_insert_with(|| random.below(most + 1)) } else { whole };
            if (number as u64) < until {
                naming.apply(&mut names);
            }
        }
        // A removal of a directory that came before what is in it is no longer a state of any file system.
        let mut unreachable: Vec<PathBuf> = Vec::new();
        for path in names.keys() {
            let above = path.parent().filter(|_| !self.roots.contains(path));
            if above.is_some_and(|above| !names.contains_key(above) || unreachable.iter().any(|it| it == above)) {
                unreachable.push(path.clone());
            }
        }
        names.retain(|path, _| !unreachable.contains(path));
        let way = random.below(4);
        let moment = self.moments().get(random.below(1 + self.moments().len() as u64) as usize).copied();
        self.image_of(&names, &mut |file| match way {
            0 => file.durable.clone(),
            // In the order of the calls, up to a moment.
            1 => {
                let mut content = file.durable.clone();
                let before = file.later.iter().filter(|(at, _)| moment.is_none_or(|moment| *at <= moment));
                before.for_each(|(_, change)| change.apply(&mut content));
                content
            }
            _ => torn(file, random, way == 3),
        })
    }

    /// When something happened that is not durable.
    fn moments(&self) -> Vec<usize> {
        let mut moments: Vec<usize> = self.files.iter().flat_map(|file| file.later.iter().map(|(at, _)| *at)).collect();
        moments.sort_unstable();
        moments
    }

    fn image_of(&self, names: &BTreeMap<PathBuf, Node>, content: &mut dyn FnMut(&File) -> Vec<u8>) -> Image {
        let mut image = Image::default();
        for (path, node) in names {
            match node {
                Node::File(file) => {
                    image.files.insert(path.clone(), content(&self.files[*file]));
                }
                Node::Directory(_) => {
                    image.directories.insert(path.clone());
                }
            }
        }
        image
    }
}

/// A file of which each block is there up to some change. The length is that after some change, or with `is_long` that
/// after the last: what was not written is then zero.
fn torn(file: &File, random: &mut Random, is_long: bool) -> Vec<u8> {
    let changes: Vec<&Change> = file.later.iter().map(|(_, change)| change).collect();
    let chosen = if is_long { changes.len() } else { random.below(changes.len() as u64 + 1) as usize };
    let mut length = file.durable.len();
    for change in &changes[..chosen] {
        length = match change {
            Change::Write { at, data } => length.max(at + data.len()),
            Change::Resize(length) => *length,
        };
    }
    let mut content = file.durable.clone();
    content.resize(length, 0);
    for block in (0..length).step_by(BLOCK) {
        let touching: Vec<&&Change> = changes.iter().filter(|change| change.touches(block)).collect();
        if touching.is_empty() {
            continue;
        }
        let count = random.below(touching.len() as u64 + 1) as usize;
        let mut bytes: Vec<u8> = file.durable.iter().skip(block).take(BLOCK).copied().collect();
        bytes.resize(BLOCK, 0);
        for change in &touching[..count] {
            match change {
                Change::Write { at, data } => {
                    let (from, to) = ((*at).max(block), (at + data.len()).min(block + BLOCK));
                    bytes[from - block..to - block].copy_from_slice(&data[from - at..to - at]);
                }
                Change::Resize(length) => bytes[length.saturating_sub(block)..].fill(0),
            }
        }
        let end = length.min(block + BLOCK);
        content[block..end].copy_from_slice(&bytes[..end - block]);
    }
    content
}
