//! Random operations on a mounted store and on the file system of the tests beside it: the same answers, and the same
//! tree after each hundred.
//!
//! Several threads work at once, each in a directory of its own with a seed of its own, so that what each sees follows
//! from its seed. `GRANULO_MOUNT_OPERATIONS` is the number of operations of each (12,000), `GRANULO_MOUNT_SEED` the seed
//! of the first (1); a failure prints the seed and the last operations.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use granulo_core::random::Random;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags,
    copy_file_range, fallocate, mknodat, renameat_with, utimensat,
};

use crate::mounted::Place;
use crate::nasty::xattrs;

/// Threads.
const WORKERS: u64 = 3;
/// Files that each keeps open.
const OPEN: usize = 4;
/// Names in each directory.
const NAMES: u64 = 7;
/// Operations between two comparisons.
const COMPARED: u64 = 100;
/// Operations after which the kernel forgets what it knows.
const FORGOTTEN: u64 = 37;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Something to do: everything in it is chosen before.
#[derive(Debug, Clone)]
enum Op {
    Create(PathBuf, bool, u32),
    Write(PathBuf, u64, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Truncate(PathBuf, u64),
    Read(PathBuf, u64, usize),
    MakeDirectory(PathBuf, u32),
    RemoveDirectory(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, u32),
    Link(PathBuf, PathBuf),
    Symlink(String, PathBuf),
    Fifo(PathBuf),
    SetMode(PathBuf, u32),
    SetOwner(PathBuf, Option<u32>, Option<u32>),
    SetTimes(PathBuf, Option<i64>, Option<i64>),
    SetXattr(PathBuf, u64, Vec<u8>, u32),
    RemoveXattr(PathBuf, u64),
    List(PathBuf),
    Stat(PathBuf),
    Open(usize, PathBuf, bool),
    Close(usize),
    WriteOpen(usize, u64, Vec<u8>),
    ReadOpen(usize, u64, usize),
    TruncateOpen(usize, u64),
    Allocate(usize, u32, u64, u64),
    Copy(usize, usize, u64, u64, usize),
    SyncOpen(usize),
}

fn path(random: &mut Random) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..random.below(3) {
        path.push(format!("d{}", random.below(3)));
    }
    let kind = if random.happens(1, 5) { 'd' } else { 'f' };
    path.join(format!("{kind}{}", random.below(NAMES)))
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let most = [10, 500, 5000, 70_000, 200_000][random.index(5)];
    let length = 1 + random.index(most);
    random.bytes(length)
}

fn offset(random: &mut Random) -> u64 {
    let most = [1, 100, 5000, 80_000, 400_000][random.index(5)];
    random.below(most)
}

fn op(random: &mut Random) -> Op {
    let some = |random: &mut Random, most: u64| random.happens(2, 3).then(|| random.below(most));
    match random.below(40) {
        0..3 => Op::Create(path(random), random.happens(1, 2), 0o600 + random.below(0o200) as u32),
        3..6 => Op::Write(path(random), offset(random), bytes(random)),
        6 => Op::Append(path(random), bytes(random)),
        7 => Op::Truncate(path(random), offset(random)),
        8..10 => Op::Read(path(random), offset(random), 100_000),
        10..13 => Op::MakeDirectory(path(random), 0o700 + random.below(0o100) as u32),
        13 => Op::RemoveDirectory(path(random)),
        14..16 => Op::Unlink(path(random)),
        16..20 => Op::Rename(path(random), path(random), [0, 0, 1, 2][random.index(4)]),
        20 => Op::Link(path(random), path(random)),
        21 => Op::Symlink(format!("f{}", random.below(NAMES)), path(random)),
        22 => Op::Fifo(path(random)),
        23 => Op::SetMode(path(random), random.below(0o10000) as u32),
        24 => Op::SetOwner(path(random), some(random, 3).map(|id| id as u32), some(random, 3).map(|id| id as u32)),
        25 => Op::SetTimes(
            path(random),
            some(random, 1_000_000_000).map(|at| at as i64),
            some(random, 1_000_000_000).map(|at| at as i64),
        ),
        26 => Op::SetXattr(path(random), random.below(4), random.bytes(100), random.below(3) as u32),
        27 => Op::RemoveXattr(path(random), random.below(4)),
        28 => Op::List(path(random).parent().unwrap().to_owned()),
        29..31 => Op::Stat(path(random)),
        31..33 => Op::Open(random.index(OPEN), path(random), random.happens(1, 4)),
        33 => Op::Close(random.index(OPEN)),
        34..36 => Op::WriteOpen(random.index(OPEN), offset(random), bytes(random)),
        36 => Op::ReadOpen(random.index(OPEN), offset(random), 100_000),
        37 => Op::TruncateOpen(random.index(OPEN), offset(random)),
        38 => {
            Op::Allocate(random.index(OPEN), [0, 1, 3, 0x10, 0x11][random.index(5)], offset(random), 1 + offset(random))
        }
        _ => match random.below(3) {
            0 => Op::SyncOpen(random.index(OPEN)),
            _ => Op::Copy(
                random.index(OPEN),
                random.index(OPEN),
                offset(random),
                offset(random),
                1 + random.index(90_000),
            ),
        },
    }
}

/// A tree, and the files that are open in it.
struct Side {
    root: PathBuf,
    open: Vec<Option<File>>,
}

/// A fifo without another end is an error, and does not wait for one.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

fn read(file: &File, offset: u64, length: usize) -> Result<String> {
    let (mut buffer, mut at) = (vec![0; length], 0);
    while at < length {
        match file.read_at(&mut buffer[at..], offset + at as u64)? {
            0 => break,
            read => at += read,
        }
    }
    buffer.truncate(at);
    Ok(format!("{at} {:x}", twox(&buffer)))
}

/// A checksum, so that a difference is not a page of bytes.
fn twox(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// What a program sees of a path, as far as it does not depend on the clock or the file system.
fn seen(path: &Path) -> Result<String> {
    let found = path.symlink_metadata()?;
    let size = if found.is_dir() { 0 } else { found.size() };
    let old = |seconds: i64, nanoseconds: i64| if seconds < 1_000_000_000 { (seconds, nanoseconds) } else { (0, 0) };
    let mtime = old(found.mtime(), found.mtime_nsec());
    let content = match found.file_type() {
        kind if kind.is_file() => format!("{:x}", twox(&fs::read(path)?)),
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path)?),
        _ => String::new(),
    };
    Ok(format!(
        "{:o} {} {}:{} {size} {mtime:?} {content} {:x}",
        found.mode(),
        found.nlink(),
        found.uid(),
        found.gid(),
        twox(format!("{:?}", xattrs(path)).as_bytes())
    ))
}

impl Side {
    fn apply(&mut self, op: &Op) -> Result<String> {
        let at = |path: &PathBuf| self.root.join(path);
        let done = |()| String::new();
        let file = |slot: usize| self.open[slot].as_ref().ok_or_else(|| std::io::Error::from_raw_os_error(9));
        match op {
            Op::Create(path, is_new, mode) => {
                let file = options().write(true).create(true).create_new(*is_new).open(at(path))?;
                file.set_permissions(Permissions::from_mode(*mode)).map(done)
            }
            Op::Write(path, offset, bytes) => {
                let file = options().write(true).open(at(path))?;
                file.write_all_at(bytes, *offset).map(done)
            }
            Op::Append(path, bytes) => options().append(true).open(at(path))?.write_all(bytes).map(done),
            Op::Truncate(path, size) => options().write(true).open(at(path))?.set_len(*size).map(done),
            Op::Read(path, offset, length) => read(&options().read(true).open(at(path))?, *offset, *length),
            Op::MakeDirectory(path, mode) => {
                fs::create_dir(at(path))?;
                fs::set_permissions(at(path), Permissions::from_mode(*mode)).map(done)
            }
            Op::RemoveDirectory(path) => fs::remove_dir(at(path)).map(done),
            Op::Unlink(path) => fs::remove_file(at(path)).map(done),
            Op::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(*flags);
                Ok(renameat_with(CWD, at(from), CWD, at(to), flags).map(done)?)
            }
            Op::Link(from, to) => fs::hard_link(at(from), at(to)).map(done),
            Op::Symlink(target, path) => symlink(target, at(path)).map(done),
            Op::Fifo(path) => Ok(mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(0o640), 0).map(done)?),
            Op::SetMode(path, mode) => {
                let is_link = at(path).symlink_metadata()?.is_symlink();
                if is_link {
                    Ok(String::new())
                } else {
                    fs::set_permissions(at(path), Permissions::from_mode(*mode)).map(done)
                }
            }
            Op::SetOwner(path, uid, gid) => lchown(at(path), *uid, *gid).map(done),
            Op::SetTimes(path, atime, mtime) => {
                let time = |time: &Option<i64>| match time {
                    Some(seconds) => Timespec { tv_sec: *seconds, tv_nsec: *seconds % 999_999_999 },
                    None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                };
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
                match atime {
                    Some(_) => {
                        at(path).symlink_metadata().map(|found| format!("{} {}", found.atime(), found.atime_nsec()))
                    }
                    None => Ok(String::new()),
                }
            }
            Op::SetXattr(path, number, value, flags) => {
                let flags = XattrFlags::from_bits_retain(*flags);
                Ok(rustix::fs::lsetxattr(at(path), format!("trusted.{number}"), value, flags).map(done)?)
            }
            Op::RemoveXattr(path, number) => {
                Ok(rustix::fs::lremovexattr(at(path), format!("trusted.{number}")).map(done)?)
            }
            Op::List(path) => {
                let mut names: Vec<_> = fs::read_dir(at(path))?
                    .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?))))
                    .collect::<Result<_>>()?;
                names.sort_by(|one, other| one.0.cmp(&other.0));
                Ok(format!("{names:?}"))
            }
            Op::Stat(path) => match at(path).symlink_metadata()?.file_type() {
                kind if kind.is_symlink() || kind.is_file() || kind.is_dir() => seen(&at(path)),
                _ => Ok(String::new()),
            },
            Op::Open(slot, path, truncates) => {
                if !at(path).symlink_metadata()?.is_file() {
                    return Ok(String::new());
                }
                let file = options().read(true).write(true).truncate(*truncates).open(at(path))?;
                self.open[*slot] = Some(file);
                Ok(String::new())
            }
            Op::Close(slot) => {
                self.open[*slot] = None;
                Ok(String::new())
            }
            Op::WriteOpen(slot, offset, bytes) => file(*slot)?.write_all_at(bytes, *offset).map(done),
            Op::ReadOpen(slot, offset, length) => read(file(*slot)?, *offset, *length),
            Op::TruncateOpen(slot, size) => file(*slot)?.set_len(*size).map(done),
            Op::Allocate(slot, mode, offset, length) => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                Ok(fallocate(file(*slot)?, mode, *offset, *length).map(done)?)
            }
            Op::Copy(from, to, from_offset, to_offset, length) => {
                let (mut from_offset, mut to_offset, mut left) = (*from_offset, *to_offset, *length);
                let mut copied = 0;
                while left > 0 {
                    let (from, to) = (file(*from)?, file(*to)?);
                    match copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), left)? {
                        0 => break,
                        some => (copied, left) = (copied + some, left - some),
                    }
                }
                Ok(copied.to_string())
            }
            Op::SyncOpen(slot) => file(*slot)?.sync_all().map(done),
        }
    }

    /// Everything below the root, and the sizes of open files.
    fn state(&self) -> Vec<String> {
        let (mut all, mut left) = (Vec::new(), vec![PathBuf::new()]);
        while let Some(directory) = left.pop() {
            let mut names: Vec<_> = fs::read_dir(self.root.join(&directory)).unwrap().map(Result::unwrap).collect();
            names.sort_by_key(std::fs::DirEntry::file_name);
            for entry in names {
                let relative = directory.join(entry.file_name());
                all.push(format!("{relative:?} {}", seen(&self.root.join(&relative)).unwrap()));
                if entry.file_type().unwrap().is_dir() {
                    left.push(relative);
                }
            }
        }
        for file in self.open.iter().flatten() {
            let found = file.metadata().unwrap();
            all.push(format!("open {} {} {}", found.len(), found.nlink(), read(file, 0, 1 << 20).unwrap()));
        }
        all
    }
}

fn work(one: PathBuf, other: PathBuf, seed: u64, operations: u64) {
    let mut random = Random::new(seed);
    let mut sides = [one, other].map(|root| {
        fs::create_dir(&root).unwrap();
        Side { root, open: (0..OPEN).map(|_| None).collect() }
    });
    let mut last: VecDeque<String> = VecDeque::new();
    for number in 0..operations {
        let op = op(&mut random);
        let mut shown = format!("{op:?}");
        shown.truncate(80);
        last.push_back(shown);
        if last.len() > 60 {
            last.pop_front();
        }
        let answers = sides.each_mut().map(|side| side.apply(&op).map_err(|error| error.raw_os_error()));
        assert_eq!(answers[0], answers[1], "operation {number} of seed {seed}: {last:#?}");
        if number % FORGOTTEN == FORGOTTEN - 1 {
            // The kernel forgets names and attributes, and asks again.
            let _ = fs::write("/proc/sys/vm/drop_caches", "2");
        }
        if number % COMPARED == COMPARED - 1 {
            let [one, other] = sides.each_ref().map(Side::state);
            let differing = one.iter().zip(&other).find(|(one, other)| one != other);
            assert!(one == other, "after operation {number} of seed {seed}: {differing:#?}, {last:#?}");
        }
    }
}

#[test]
fn random_operations_have_the_same_outcome_as_on_another_file_system() {
    let (operations, seed) = (setting("GRANULO_MOUNT_OPERATIONS", 12_000), setting("GRANULO_MOUNT_SEED", 1));
    let Some(place) = Place::with(&["--cutoff", "16KiB"]) else { return };
    let beside = place.sandbox.path().join("beside");
    fs::create_dir(&beside).unwrap();
    let mounted = place.mount_with(&["--commit-every", "50ms"]);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let name = format!("worker {worker}");
            let (one, other) = (mounted.root.join(&name), beside.join(&name));
            scope.spawn(move || work(one, other, seed + worker, operations));
        }
    });
    let state = |root: &Path| Side { root: root.to_owned(), open: Vec::new() }.state();
    assert_eq!(state(&mounted.root), state(&beside));
    mounted.unmount();
    place.check();
    let mounted = place.mount();
    assert_eq!(state(&mounted.root), state(&beside));
    mounted.unmount();
}
