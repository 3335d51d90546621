//! Events of a whole file system: a fanotify group that reports inodes by their handles, never by descriptors.
//!
//! Events are merged, and are read after later changes: an event says where to look. Events on names (created, removed,
//! renamed) mark the handle of the directory with the name; events on content and attributes mark the handle of the
//! inode. Marks of the same place coalesce. What happened to a name is certain only if one event on it was read and
//! that says one thing ([`Told`]): the kernel reports changes of a name in their order, and whatever it merges with an
//! earlier event adds to what that says.
//!
//! Layout of the records: fanotify(7), `include/uapi/linux/fanotify.h`. The reader accepts any bytes: what it cannot
//! interpret counts as a loss of events, like an overflow of the queue.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use hashbrown::HashMap;
use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use smallvec::SmallVec;

use super::OPERATION;
use crate::error::{Error, ErrorKind, Result};

const REPORT_FID: u32 = 0x200;
const REPORT_DIR_FID: u32 = 0x400;
const REPORT_NAME: u32 = 0x800;
/// Also the child of an event on a name (Linux 5.17).
const REPORT_TARGET_FID: u32 = 0x1000;
const MARK_FILESYSTEM: u32 = 0x100;

const ACCESS: u64 = 0x1;
const MODIFY: u64 = 0x2;
const ATTRIBUTES: u64 = 0x4;
const CLOSE_WRITE: u64 = 0x8;
const MOVED_FROM: u64 = 0x40;
const MOVED_TO: u64 = 0x80;
const CREATE: u64 = 0x100;
const DELETE: u64 = 0x200;
const OVERFLOW: u64 = 0x4000;
/// Both names of a rename in one event (Linux 5.17).
const RENAME: u64 = 0x1000_0000;
const ON_DIRECTORY: u64 = 0x4000_0000;
const TO_HERE: u64 = CREATE | MOVED_TO;
const OF_NAMES: u64 = MOVED_FROM | MOVED_TO | CREATE | DELETE | RENAME;
const OF_INODES: u64 = ACCESS | MODIFY | ATTRIBUTES | CLOSE_WRITE;

/// Types of the records behind an event.
const INFO_FID: u8 = 1;
const INFO_NAMES: [u8; 4] = [2, 3, INFO_OLD_NAME, INFO_NEW_NAME];
const INFO_OLD_NAME: u8 = 10;
const INFO_NEW_NAME: u8 = 12;

const EVENT_BYTES: usize = 24;
const VERSION: u8 = 3;
const BUFFER_BYTES: usize = 256 << 10;

/// A file handle as a key: its type and its bytes. Those of ext4, XFS and btrfs need no memory of their own.
pub(super) type HandleBytes = SmallVec<[u8; 24]>;
/// The key of a name: the length of its directory's handle, that handle, and the name.
type NameKey = SmallVec<[u8; 40]>;

/// What happened to an inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Happened {
    /// Its content was written.
    pub(super) is_written: bool,
    /// Something else about it has changed.
    pub(super) is_changed: bool,
}

/// What the only event on a name says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Its child is there.
    Here,
    /// Nothing is there any more.
    Gone,
}

/// A marked name.
#[derive(Debug)]
struct NameMark {
    /// The handle that the last event in the queue reported for the child. The kernel merges events, so that another
    /// child may have come after it.
    child: Option<HandleBytes>,
    /// `None` if there were several events, or one says more than one thing.
    told: Option<Told>,
}

/// Where the watcher has to look, since the last time.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// Names in directories. Sorted keys of one directory are neighbours.
    names: HashMap<NameKey, NameMark>,
    /// Inodes, and what happened to them.
    pub(super) inodes: HashMap<HandleBytes, Happened>,
    /// Whether events were lost.
    pub(super) lost: bool,
    /// Number of events read.
    pub(super) events: u64,
    /// The key in progress, to allocate it once.
    key: Vec<u8>,
}

impl Marked {
    /// Number of places.
    pub(super) fn len(&self) -> usize {
        self.names.len() + self.inodes.len()
    }

    /// Forgets all places.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.inodes.clear();
        self.lost = false;
    }

    fn mark_name(&mut self, directory: &[u8], name: &[u8], child: Option<&[u8]>, told: Option<Told>) {
        self.key.clear();
        // `split_record` refuses handles of more than 255 bytes; those of Linux have at most 132.
        self.key.push(directory.len() as u8);
        self.key.extend_from_slice(directory);
        self.key.extend_from_slice(name);
        let Some(mark) = self.names.get_mut(self.key.as_slice()) else {
            let mark = NameMark { child: child.map(HandleBytes::from_slice), told };
            self.names.insert(NameKey::from_slice(&self.key), mark);
            return;
        };
        mark.told = None;
        if let Some(child) = child.filter(|child| mark.child.as_deref() != Some(child)) {
            mark.child = Some(HandleBytes::from_slice(child));
        }
    }

    fn mark_inode(&mut self, handle: &[u8], mask: u64) {
        let happened =
            Happened { is_written: mask & (MODIFY | CLOSE_WRITE) != 0, is_changed: mask & (ATTRIBUTES | ACCESS) != 0 };
        match self.inodes.get_mut(handle) {
            Some(before) => {
                before.is_written |= happened.is_written;
                before.is_changed |= happened.is_changed;
            }
            None => {
                self.inodes.insert(HandleBytes::from_slice(handle), happened);
            }
        }
    }

    /// Takes the names out, those of a directory one after the other.
    pub(super) fn take_names(&mut self) -> MarkedNames {
        let mut names: Vec<_> = std::mem::take(&mut self.names).into_iter().collect();
        // Directories with close numbers often have paths in common, which are in the caches then.
        let number = |key: &[u8]| key.get(1..).and_then(probable_number);
        names.sort_unstable_by(|(a, _), (b, _)| number(a).cmp(&number(b)).then_with(|| a.cmp(b)));
        MarkedNames(names)
    }

    /// Reads the events in `bytes`.
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((event, rest)) = split_event(bytes) else {
                self.lost = true;
                return;
            };
            self.events += 1;
            self.event(event);
            bytes = rest;
        }
    }

    fn event(&mut self, event: &[u8]) {
        let mask = u64_at(event, 8);
        if mask & OVERFLOW != 0 {
            self.lost = true;
            return;
        }
        let header_bytes = usize::from(u16_at(event, 6));
        let mut records = event.get(header_bytes..).unwrap_or_default();
        // The records of one event: the child, and up to two names.
        let (mut child, mut places) = (None, [None; 2]);
        while let Some((Record { kind, handle, name }, rest)) = split_record(records) {
            match kind {
                INFO_FID => child = Some(handle),
                kind if INFO_NAMES.contains(&kind) => {
                    places[usize::from(places[0].is_some())] = Some((handle, name, kind));
                }
                _ => {}
            }
            records = rest;
        }
        // The kernel leaves out the record of an inode whose handle it cannot make.
        self.lost |= !records.is_empty();
        if mask & OF_NAMES != 0 {
            self.lost |= places[0].is_none();
            for (directory, name, kind) in places.into_iter().flatten() {
                self.mark_name(directory, name, child, told(mask, kind));
            }
        }
        if mask & OF_INODES != 0 {
            // An event on a directory itself reports it with the name `.`, or without a name.
            let itself = places[0].filter(|(_, name, _)| matches!(*name, b"." | b"")).map(|(directory, ..)| directory);
            match child.or(itself) {
                Some(handle) => self.mark_inode(handle, mask),
                None => self.lost = true,
            }
        }
    }
}

/// What an event says of a name in a record of this kind; `None` if it does not say one thing.
fn told(mask: u64, kind: u8) -> Option<Told> {
    let to_here = mask & TO_HERE != 0 || mask & RENAME != 0 && kind == INFO_NEW_NAME;
    let from_here = mask & MOVED_FROM != 0 || mask & RENAME != 0 && kind == INFO_OLD_NAME;
    match (to_here, from_here, mask & DELETE != 0) {
        (true, false, false) => Some(Told::Here),
        (false, false, true) => Some(Told::Gone),
        // A rename may leave a whiteout behind, as overlayfs does, and no event reports that.
        _ => None,
    }
}

/// A name where the watcher has to look.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkedName<'m> {
    /// Handle of the directory.
    pub(super) directory: &'m [u8],
    /// The name.
    pub(super) name: &'m [u8],
    /// The handle that the last event on the name reported for the child.
    pub(super) child: Option<&'m [u8]>,
    /// What happened to the name, if that is certain.
    pub(super) told: Option<Told>,
}

/// Names of directories, grouped by directory.
pub(super) struct MarkedNames(Vec<(NameKey, NameMark)>);

impl MarkedNames {
    /// The names.
    pub(super) fn iter(&self) -> impl Iterator<Item = MarkedName<'_>> {
        self.0.iter().filter_map(|(key, mark)| {
            let (length, rest) = key.split_first()?;
            let (directory, name) = rest.split_at_checked(usize::from(*length))?;
            Some(MarkedName { directory, name, child: mark.child.as_deref(), told: mark.told })
        })
    }
}

/// The number of the inode that a handle refers to, if the file system encodes it as most do: in 32 bits (`fileid_type`
/// 1 and 2 in Linux `include/linux/exportfs.h`: ext4), or in 64 bits (XFS: these with 0x80; btrfs: 0x4d to 0x4f). A
/// guess, which has to be checked.
pub(super) fn probable_number(handle: &[u8]) -> Option<u64> {
    let long = || handle.get(4..12).map(|_| u64_at(handle, 4));
    match u32_at(handle, 0) {
        1 | 2 => handle.get(4..8).map(|_| u32_at(handle, 4).into()),
        0x81 | 0x82 | 0x4d..=0x4f => long(),
        _ => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let halves = [u32_at(bytes, at), u32_at(bytes, at + 4)].map(u64::from);
    if cfg!(target_endian = "little") { halves[0] | halves[1] << 32 } else { halves[0] << 32 | halves[1] }
}

/// `event_len`, `vers`, `reserved`, `metadata_len`, `mask`, `fd`, `pid`; then the records.
fn split_event(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32_at(bytes, 0) as usize;
    let is_sound = length >= EVENT_BYTES && bytes.get(4) == Some(&VERSION);
    is_sound.then(|| bytes.split_at_checked(length)).flatten()
}

/// A record behind an event.
struct Record<'b> {
    kind: u8,
    handle: &'b [u8],
    name: &'b [u8],
}

/// `info_type`, `pad`, `len`, `fsid`, then `handle_bytes`, `handle_type`, the handle, and a name that ends with NUL.
/// Returns the record and those behind it.
fn split_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    const BEFORE_HANDLE: usize = 16;
    let length = usize::from(u16_at(bytes, 2));
    let kind = *bytes.first()?;
    if length < 4 {
        return None;
    }
    let (record, rest) = bytes.split_at_checked(length)?;
    let handle_bytes = u32_at(record, 12) as usize;
    // The type and the bytes of the handle are neighbours.
    let end = handle_bytes.checked_add(BEFORE_HANDLE + 4)?;
    let handle = record.get(BEFORE_HANDLE..end).filter(|handle| handle.len() <= usize::from(u8::MAX))?;
    let name = record.get(end..).unwrap_or_default();
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Some((Record { kind, handle, name }, rest))
}

/// The group, with its mark on a file system.
#[derive(Debug)]
pub(super) struct Group {
    fanotify: Fanotify,
    buffer: Vec<u8>,
}

impl Group {
    /// Marks the file system that contains `mount`, which is at `path`. With `access_times`, reading a file is a
    /// change, too.
    pub(super) fn start(mount: BorrowedFd<'_>, path: &Path, access_times: bool) -> Result<Group> {
        let attempts = [(REPORT_TARGET_FID, RENAME), (0, MOVED_FROM | MOVED_TO)];
        let mut outcome = Err(Errno::EINVAL);
        for (reported, renames) in attempts {
            let mask = MODIFY | ATTRIBUTES | CLOSE_WRITE | CREATE | DELETE | ON_DIRECTORY | renames;
            outcome = attempt(mount, FLAGS, reported, mask | if access_times { ACCESS } else { 0 });
            if !matches!(outcome, Err(Errno::EINVAL)) {
                break;
            }
        }
        let fanotify = outcome.map_err(|errno| {
            let fail = |kind, cause| Error::new(kind, OPERATION, cause).at(path);
            match errno {
                Errno::EPERM => fail(ErrorKind::PermissionDenied, "fanotify needs CAP_SYS_ADMIN").advise("run as root"),
                Errno::ENOSYS | Errno::EINVAL => fail(ErrorKind::Io, "the kernel cannot report changes by file handle")
                    .advise("use Linux 5.9 or later"),
                Errno::ENODEV | Errno::EOPNOTSUPP => {
                    fail(ErrorKind::Io, "its file system has no file handles or no identity of its own")
                        .advise("take surveys at intervals instead")
                }
                Errno::EXDEV => fail(ErrorKind::Io, "it is a btrfs subvolume without an identity of its own")
                    .advise("watch the mount point of the whole file system"),
                errno => Error::io(OPERATION, path, errno.into()),
            }
        })?;
        Ok(Group { fanotify, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Moves what is in the queue to `marked`.
    pub(super) fn drain(&mut self, marked: &mut Marked) {
        loop {
            match rustix::io::read(self.fanotify.as_fd(), &mut self.buffer[..]) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return,
                Ok(length) => marked.read(&self.buffer[..length]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    marked.lost = true;
                    return;
                }
            }
        }
    }
}

/// Flags of the group, besides what it reports.
const FLAGS: InitFlags = InitFlags::FAN_CLASS_NOTIF
    .union(InitFlags::FAN_CLOEXEC)
    .union(InitFlags::FAN_NONBLOCK)
    .union(InitFlags::FAN_UNLIMITED_QUEUE)
    .union(InitFlags::FAN_UNLIMITED_MARKS);

fn attempt(mount: BorrowedFd<'_>, flags: InitFlags, reported: u32, mask: u64) -> std::result::Result<Fanotify, Errno> {
    let flags = flags | InitFlags::from_bits_retain(REPORT_FID | REPORT_DIR_FID | REPORT_NAME | reported);
    let fanotify = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
    let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::from_bits_retain(MARK_FILESYSTEM);
    fanotify.mark(mark, MaskFlags::from_bits_retain(mask), mount, Some("."))?;
    Ok(fanotify)
}

/// Any bytes are read: no more places are marked than events can name, what is marked comes back, and events that are
/// read one at a time mark the same as together.
///
/// # Panics
/// If that does not hold.
#[cfg(feature = "testing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let (mut together, mut apart) = (Marked::default(), Marked::default());
    together.read(bytes);
    let mut rest = bytes;
    while let Some((event, behind)) = split_event(rest) {
        apart.read(event);
        rest = behind;
    }
    assert_eq!((apart.events, apart.lost || !rest.is_empty()), (together.events, together.lost));
    assert_eq!(apart.inodes, together.inodes);
    assert!(together.len() as u64 <= 3 * together.events, "{} places", together.len());
    for handle in together.inodes.keys() {
        let _ = probable_number(handle);
    }
    let count = together.names.len();
    let (together, apart) = (together.take_names(), apart.take_names());
    let rows = |names: &MarkedNames| {
        let row = |at: MarkedName<'_>| (at.directory.to_vec(), at.name.to_vec(), at.child.map(<[u8]>::to_vec), at.told);
        names.iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows(&together).len(), count);
    assert_eq!(rows(&together), rows(&apart));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record about an inode with handle `number`, and maybe a name.
    fn record(kind: u8, number: u8, name: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend([7; 8]);
        bytes.extend(8u32.to_ne_bytes());
        bytes.extend(1i32.to_ne_bytes());
        bytes.extend([number; 8]);
        bytes.extend(name.map(|name| format!("{name}\0")).unwrap_or_default().into_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let mut bytes = ((EVENT_BYTES + records.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([VERSION, 0]);
        bytes.extend((EVENT_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend([0xff; 8]);
        bytes.extend(records);
        bytes
    }

    fn names(marked: &mut Marked) -> Vec<(u8, String, Option<u8>)> {
        let names = marked.take_names();
        let row = |MarkedName { directory, name, child, .. }: MarkedName<'_>| {
            (directory[4], String::from_utf8(name.to_vec()).unwrap(), child.map(|child| child[4]))
        };
        names.iter().map(row).collect()
    }

    #[test]
    fn names_and_inodes_are_marked_once() {
        let mut marked = Marked::default();
        let created = event(CREATE, &[record(2, 1, Some("a")), record(1, 9, None)]);
        let removed = event(DELETE, &[record(2, 1, Some("a"))]);
        let renamed =
            event(RENAME | ON_DIRECTORY, &[record(10, 1, Some("b")), record(12, 2, Some("c")), record(1, 5, None)]);
        let written = event(MODIFY, &[record(2, 1, Some("a")), record(1, 9, None)]);
        let changed = event(ATTRIBUTES, &[record(1, 9, None)]);
        let directory = event(ATTRIBUTES | ON_DIRECTORY, &[record(2, 3, Some("."))]);
        marked.read(&[created, removed, renamed, written.clone(), changed, written, directory].concat());
        assert_eq!((marked.events, marked.lost, marked.len()), (7, false, 5));
        let row = |directory, name: &str, child| (directory, name.to_owned(), child);
        assert_eq!(names(&mut marked), [row(1, "a", Some(9)), row(1, "b", Some(5)), row(2, "c", Some(5))]);
        let row = |(handle, happened): (&HandleBytes, &Happened)| (handle[4], happened.is_written, happened.is_changed);
        let mut inodes: Vec<_> = marked.inodes.iter().map(row).collect();
        inodes.sort_unstable();
        assert_eq!(inodes, [(3, false, true), (9, true, true)]);
    }

    #[test]
    fn one_event_that_says_one_thing_is_certain() {
        let told = |events: &[Vec<u8>]| {
            let mut marked = Marked::default();
            marked.read(&events.concat());
            marked.take_names().iter().map(|at| at.told).collect::<Vec<_>>()
        };
        let one = |mask| event(mask, &[record(2, 1, Some("a")), record(1, 9, None)]);
        let renamed = event(RENAME, &[record(10, 1, Some("a")), record(12, 1, Some("b")), record(1, 9, None)]);
        for mask in [CREATE, CREATE | ON_DIRECTORY, MOVED_TO, CREATE | MODIFY | ATTRIBUTES] {
            assert_eq!(told(&[one(mask)]), [Some(Told::Here)]);
        }
        assert_eq!(told(&[one(DELETE), one(MODIFY)]), [Some(Told::Gone)]);
        // What was moved away may have left a whiteout.
        assert_eq!(told(&[one(MOVED_FROM)]), [None]);
        assert_eq!(told(std::slice::from_ref(&renamed)), [None, Some(Told::Here)]);
        // Merged by the kernel, or several: the order is not known.
        assert_eq!(told(&[one(CREATE | DELETE)]), [None]);
        assert_eq!(told(&[one(MOVED_TO | MOVED_FROM)]), [None]);
        assert_eq!(told(&[one(DELETE), one(CREATE)]), [None]);
        assert_eq!(told(&[one(CREATE), one(CREATE)]), [None]);
        assert_eq!(told(&[one(CREATE), renamed]), [None, Some(Told::Here)]);
    }

    #[test]
    fn an_overflow_and_what_cannot_be_interpreted_count_as_lost() {
        let nameless = event(CREATE, &[record(INFO_FID, 1, None)]);
        let torn = event(CREATE, &[vec![2, 0, 3, 0]]);
        let of_nothing = [event(MODIFY, &[]), event(CREATE, &[])];
        for bytes in [event(OVERFLOW, &[]), event(MODIFY, &[])[..20].to_vec(), vec![0; 24], nameless, torn]
            .into_iter()
            .chain(of_nothing)
        {
            let mut marked = Marked::default();
            marked.read(&bytes);
            assert!(marked.lost && marked.len() == 0);
        }
    }

    /// More events than the kernel keeps for a group with a limit, which nobody reads meanwhile.
    #[test]
    fn a_queue_that_overflows_loses_events_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let mount = std::fs::File::open(directory.path()).unwrap();
        let limited = FLAGS.difference(InitFlags::FAN_UNLIMITED_QUEUE);
        let fanotify = match attempt(mount.as_fd(), limited, 0, CREATE) {
            Err(errno) => {
                return crate::skipped::skip(&format!("cannot watch {}: {errno}", directory.path().display()));
            }
            Ok(fanotify) => fanotify,
        };
        let mut group = Group { fanotify, buffer: vec![0; BUFFER_BYTES] };
        let most: usize =
            std::fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap().trim().parse().unwrap();
        if most > 1 << 20 {
            return crate::skipped::skip(&format!("the kernel keeps {most} events, more than can be made here"));
        }
        let mut marked = Marked::default();
        let create = |number: usize| std::fs::File::create(directory.path().join(number.to_string())).unwrap();
        create(0);
        group.drain(&mut marked);
        assert!(!marked.lost && marked.len() > 0);
        (1..most + 2).for_each(|number| drop(create(number)));
        group.drain(&mut marked);
        assert!(marked.lost && marked.len() > 0);
        // It goes on afterwards.
        marked.clear();
        create(most + 2);
        group.drain(&mut marked);
        assert!(!marked.lost && marked.len() > 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), mask: u64) {
            fuzz(&bytes);
            fuzz(&event(mask, &[bytes]));
        }
    }
}
