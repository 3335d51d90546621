//! A mounted store without a kernel: what requests do, in an order that a test chooses.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::errno::{Log, Outcome};
use super::file_system::{Appearance, FileSystem, ROOT};
use super::make_root;
use super::wire::reply::Reply;
use super::wire::request::{Creation, Header, NewAttributes};
use crate::error::{Error, ErrorKind};
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Key, Plan, Store, Xattrs};
use rustix::io::Errno;

const HEADER: Header = Header { opcode: 0, unique: 1, node: 1, uid: 0, gid: 0 };
/// Modes of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
/// The largest size of a file.
const LARGEST_BYTES: u64 = 1 << 62;
/// How long a test waits for what would never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An empty store, as it is mounted.
fn mounted() -> (TempDir, FileSystem) {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    make_root(&store).unwrap();
    (sandbox, FileSystem::new(store, Appearance::default(), Log::new(Box::new(|_| ()))))
}

fn number(system: &FileSystem, directory: ObjectNumber, name: &str) -> ObjectNumber {
    let key = Key::within(directory, name.as_bytes()).unwrap();
    system.store.entry(&key).unwrap().unwrap().entry.number
}

/// A new file in the root, with this content.
fn file(system: &FileSystem, name: &str, content: &[u8]) -> ObjectNumber {
    let creation = Creation { mode: 0o644, umask: 0 };
    system.create(ROOT, name.as_bytes(), &HEADER, creation).unwrap();
    let number = number(system, ROOT, name);
    system.write(number, 0, content, false).unwrap();
    number
}

/// The body of an answer.
fn body(reply: Outcome<Reply>) -> Vec<u8> {
    reply.unwrap().finish(0).split_off(16)
}

/// What the store has at a path: what was committed.
fn committed(system: &FileSystem, path: &str) -> Vec<u8> {
    system.store.get(&Key::parse(path).unwrap()).unwrap().unwrap()
}

/// Gives an object extended attributes in an order in which the store takes none: it cannot be committed.
fn spoil(system: &FileSystem, number: ObjectNumber, is_spoilt: bool) {
    let wrong: Xattrs = ["user.c", "user.b", "user.a"].map(|name| (name.into(), Vec::new())).to_vec();
    let live = system.nodes.hold(number);
    let mut state = lock(&live.state);
    system.info(&live, &mut state).unwrap().attributes.xattrs = if is_spoilt { wrong } else { Xattrs::new() };
}

#[test]
fn what_a_program_was_told_has_failed_is_not_committed_later() {
    let (_sandbox, system) = mounted();
    let (one, other) = (file(&system, "one", b"before"), file(&system, "other", b"other content"));
    // What is known of it is kept, also while it is not open.
    let _held = system.nodes.hold(one);
    system.commit_all().unwrap();
    spoil(&system, one, true);
    system.waiting.set_tight(true);
    let sized = |size| NewAttributes { size: Some(size), ..NewAttributes::default() };
    let before = system.shown_of(one).unwrap();
    for refused in [
        &|| system.write(one, 3, b"written", false),
        &|| system.write(one, 70_000, b"written", true),
        &|| system.set_attributes(one, &sized(2)),
        &|| system.set_attributes(one, &sized(70_000)),
        &|| system.set_attributes(one, &NewAttributes { mode: Some(0o600), ..NewAttributes::default() }),
        &|| system.allocate(one, &HEADER, (0, 3), PUNCH_HOLE | KEEP_SIZE),
        &|| system.allocate(one, &HEADER, (3, 30), ZERO_RANGE),
        &|| system.allocate(one, &HEADER, (3, 30), 0),
        &|| system.copy_range((other, 0), (one, 1), &HEADER, 100),
    ] as [&dyn Fn() -> Outcome<Reply>; 9]
    {
        assert_eq!(refused().unwrap_err(), Errno::INVAL);
        assert_eq!(body(system.read(one, 0, 100)), b"before");
        assert_eq!(system.shown_of(one).unwrap(), before);
    }
    // What was written before, and could not be committed, still waits.
    system.waiting.set_tight(false);
    system.write(one, 6, b" and after", false).unwrap();
    system.waiting.set_tight(true);
    assert_eq!(system.write(one, 0, b"refused", false).unwrap_err(), Errno::INVAL);
    assert_eq!(committed(&system, "one"), b"before");
    spoil(&system, one, false);
    system.commit_all().unwrap();
    assert_eq!(committed(&system, "one"), b"before and after");
}

#[test]
fn a_range_that_no_file_can_have_is_refused_whole() {
    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"before");
    let refused = system.allocate(one, &HEADER, (0, LARGEST_BYTES + 1), ZERO_RANGE);
    assert_eq!(refused.unwrap_err(), Errno::INVAL);
    system.commit_all().unwrap();
    assert_eq!(committed(&system, "one"), b"before");
}

#[test]
fn a_copy_that_fails_after_a_part_says_how_much_it_copied() {
    const PIECE_BYTES: usize = 1 << 20;
    let (_sandbox, system) = mounted();
    let content: Vec<u8> = (0..2 * PIECE_BYTES).map(|at| (at % 251) as u8).collect();
    let (from, to) = (file(&system, "from", &content[..PIECE_BYTES]), file(&system, "to", b""));
    system.write(from, PIECE_BYTES as u64, &content[PIECE_BYTES..], false).unwrap();
    // The second piece would be where no file has anything.
    let at = LARGEST_BYTES - PIECE_BYTES as u64;
    let copied = body(system.copy_range((from, 0), (to, at), &HEADER, content.len() as u64));
    assert_eq!(copied[..4], (PIECE_BYTES as u32).to_ne_bytes());
    assert!(body(system.read(to, at, 2 * PIECE_BYTES as u32)) == content[..PIECE_BYTES]);
    let refused = system.copy_range((from, 0), (to, LARGEST_BYTES), &HEADER, content.len() as u64);
    assert_eq!(refused.unwrap_err(), Errno::INVAL);
}

#[test]
fn a_request_copies_a_part_of_much_so_that_a_program_can_be_interrupted() {
    const PART_BYTES: u32 = 32 << 20;
    let (_sandbox, system) = mounted();
    let (from, to) = (file(&system, "from", b"content"), file(&system, "to", b""));
    let sized = NewAttributes { size: Some(1 << 40), ..NewAttributes::default() };
    system.set_attributes(from, &sized).unwrap();
    let copied = body(system.copy_range((from, 0), (to, 0), &HEADER, 1 << 40));
    assert_eq!(copied[..4], PART_BYTES.to_ne_bytes());
    assert_eq!(system.shown_of(to).unwrap().size_bytes, u64::from(PART_BYTES));
    assert_eq!(body(system.read(to, 0, 9)), b"content\0\0");
}

#[test]
fn attributes_that_wait_survive_others_that_are_refused() {
    // More than a record has room for.
    let value = vec![7; 1 << 24];
    for is_open in [true, false] {
        let (_sandbox, system) = mounted();
        let one = file(&system, "one", b"content");
        system.set_xattr(one, (b"user.small", b"small"), 0, false).unwrap();
        let held = system.nodes.hold(one);
        if !is_open {
            system.commit_all().unwrap();
            assert!(lock(&held.state).handle.is_none());
        }
        let changed = NewAttributes { mode: Some(0o600), uid: Some(7), ..NewAttributes::default() };
        system.set_attributes(one, &changed).unwrap();
        let before = system.shown_of(one).unwrap();
        assert_eq!(system.set_xattr(one, (b"user.large", &value), 0, false).unwrap_err(), Errno::NOSPC);
        assert_eq!(system.set_xattr(one, (b"user.small", &value), 0, false).unwrap_err(), Errno::NOSPC);
        assert_eq!(system.shown_of(one).unwrap(), before);
        assert_eq!(body(system.xattr(one, b"user.small", 100)), b"small");
        // One that cannot be committed is not removed either.
        spoil(&system, one, true);
        assert_eq!(system.remove_xattr(one, b"user.b").unwrap_err(), Errno::INVAL);
        assert_eq!(system.shown_of(one).unwrap(), before);
        spoil(&system, one, false);
        system.commit_all().unwrap();
        let stored = system.store.stat(&Key::parse("one").unwrap()).unwrap().unwrap().attributes;
        assert_eq!((stored.mode & 0o777, stored.uid, committed(&system, "one")), (0o600, 7, b"content".to_vec()));
    }
}

#[test]
fn fsync_makes_durable_what_was_written_to_others_before() {
    let (sandbox, system) = mounted();
    let (one, other) = (file(&system, "one", b"first"), file(&system, "other", b"content"));
    let creation = Creation { mode: 0o755, umask: 0 };
    system.make_directory(ROOT, b"directory", &HEADER, creation).unwrap();
    let directory = number(&system, ROOT, "directory");
    let key = |path: &str| Key::parse(path).unwrap();
    // Each time, also within a second of the one before.
    for content in [b"second", b"third!"] {
        system.write(one, 0, content, false).unwrap();
        // Something newer is known of the directory already: that an entry was made.
        system.create(directory, content, &HEADER, creation).unwrap();
        let mode = u32::from(content[0]);
        system.set_attributes(directory, &NewAttributes { mode: Some(mode), ..NewAttributes::default() }).unwrap();
        system.write(other, 0, content, false).unwrap();
        system.sync_file(other).unwrap();
        // Another process sees what is durable.
        let reader = Store::open_read_only(&sandbox.path().join("s")).unwrap();
        assert_eq!(reader.get(&key("one")).unwrap().unwrap(), content);
        assert_eq!(reader.get(&key("other")).unwrap().unwrap(), [&content[..], b"t"].concat());
        let found = reader.stat(&key("directory")).unwrap().unwrap();
        assert_eq!(u32::from(found.attributes.mode & 0o777), mode);
    }
}

#[test]
fn what_cannot_be_committed_is_told_to_who_syncs_that() {
    let (_sandbox, system) = mounted();
    let (one, other) = (file(&system, "one", b"content"), file(&system, "other", b"content"));
    // The other file was created since: what was written before that is committed.
    system.write(one, 0, b"changed", false).unwrap();
    spoil(&system, one, true);
    system.sync_file(other).unwrap();
    assert_eq!(committed(&system, "other"), b"content");
    assert_eq!(system.sync_file(one).unwrap_err(), Errno::INVAL);
    spoil(&system, one, false);
    // It still waits.
    system.sync_file(other).unwrap();
    assert_eq!(committed(&system, "one"), b"changed");
}

#[test]
fn much_that_is_written_to_one_file_does_not_overtake_what_was_written_before() {
    const PIECE_BYTES: usize = 1 << 20;
    let (_sandbox, system) = mounted();
    let (one, large) = (file(&system, "one", b"before"), file(&system, "large", b""));
    system.write(one, 0, b"after!", false).unwrap();
    let key = Key::parse("large").unwrap();
    let committed_bytes = || system.store.entry(&key).unwrap().unwrap().entry.size_bytes;
    for at in 0..20 {
        system.write(large, at * PIECE_BYTES as u64, &vec![7; PIECE_BYTES], false).unwrap();
        assert!(committed_bytes() == 0 || committed(&system, "one") == b"after!", "after {at} pieces");
    }
    assert!(committed_bytes() > 8 * PIECE_BYTES as u64);
}

/// Names from a position on, each with the position behind it, as many as there is room for.
fn listed(system: &FileSystem, handle: u64, position: u64, with_attributes: bool) -> Vec<(String, u64)> {
    let entry_bytes = if with_attributes { 152 } else { 24 };
    let answer = body(system.read_directory(ROOT, handle, position, 10 * entry_bytes as u32, with_attributes));
    let (mut rest, mut names) = (&answer[..], Vec::new());
    while let Some((entry, behind)) = rest.split_at_checked(entry_bytes) {
        let fixed = &entry[entry_bytes - 24..];
        let next = u64::from_ne_bytes(*fixed[8..].first_chunk().unwrap());
        let length = u32::from_ne_bytes(*fixed[16..].first_chunk().unwrap()) as usize;
        names.push((String::from_utf8(behind[..length].to_vec()).unwrap(), next));
        rest = &rest[(entry_bytes + length).next_multiple_of(8)..];
    }
    names
}

fn open_root(system: &FileSystem) -> u64 {
    let opened = body(system.open_directory(ROOT));
    u64::from_ne_bytes(*opened.first_chunk().unwrap())
}

/// All names from a position on.
fn listed_to_the_end(system: &FileSystem, handle: u64, mut position: u64, with_attributes: bool) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let more = listed(system, handle, position, with_attributes);
        let Some((_, next)) = more.last() else { return names };
        position = *next;
        names.extend(more.into_iter().map(|(name, _)| name));
    }
}

#[test]
fn a_position_in_a_directory_stays_that_of_its_entry() {
    for with_attributes in [false, true] {
        let (_sandbox, system) = mounted();
        let mut names: Vec<String> = (0..300).map(|at| format!("{at:03}")).collect();
        for name in &names {
            system.make_node(ROOT, name.as_bytes(), &HEADER, Creation { mode: 0o100_644, umask: 0 }, 0).unwrap();
        }
        let handle = open_root(&system);
        let (mut positions, mut position) = (Vec::new(), 0);
        while positions.len() < 150 {
            let more = listed(&system, handle, position, with_attributes);
            position = more.last().unwrap().1;
            positions.extend(more);
        }
        // Before and at what was listed, and behind it.
        for gone in [3, 4, 60, 61, 62, 100, 250] {
            system.unlink(ROOT, names[gone].as_bytes()).unwrap();
        }
        for (made, is_new) in [("00", true), ("0005", true), ("1005", true), ("2605", false)] {
            system.make_node(ROOT, made.as_bytes(), &HEADER, Creation { mode: 0o100_644, umask: 0 }, 0).unwrap();
            assert!(is_new || made > positions.last().unwrap().0.as_str());
        }
        let is_gone = |name: &String| ["003", "004", "060", "061", "062", "100", "250"].contains(&name.as_str());
        names.push("2605".to_owned());
        names.sort();
        names.retain(|name| !is_gone(name));
        for (name, position) in positions.iter().rev().step_by(7).chain(&positions[2..8]).chain(&positions[60..70]) {
            let rest: Vec<String> = names.iter().filter(|other| *other > name).cloned().collect();
            assert_eq!(listed_to_the_end(&system, handle, *position, with_attributes), rest, "behind {name}");
        }
        // From the beginning, with what was made since; and in another open directory, where positions are counted.
        names.extend(["00", "0005", "1005"].map(str::to_owned));
        names.sort();
        let all = [vec![".".to_owned(), "..".to_owned()], names].concat();
        assert_eq!(listed_to_the_end(&system, handle, 0, with_attributes), all);
        assert_eq!(listed_to_the_end(&system, open_root(&system), 57, with_attributes), all[57..]);
    }
}

#[test]
fn an_object_is_found_while_it_is_renamed() {
    let (_sandbox, system) = mounted();
    let (moved, gone) = (file(&system, "moved", b"moved"), file(&system, "gone", b"gone"));
    system.link(gone, ROOT, b"other name").unwrap();
    system.commit_all().unwrap();
    assert!(system.nodes.held(moved).is_none());
    let key = Key::parse("moved").unwrap();
    let replaced = system.nodes.hold(gone);
    let locked = lock(&replaced.state);
    let seen = thread::scope(|scope| {
        let renaming = scope.spawn(|| system.rename((ROOT, b"moved"), (ROOT, b"gone"), 0));
        // It cannot end: what it replaces is locked. Either it has no effect yet, and is about to lock what it moves;
        // or it has one in the store, and then the object must be found.
        let seen = loop {
            if system.store.entry(&key).unwrap().is_none() {
                break Some(system.attributes(moved));
            }
            if system.nodes.held(moved).is_some() {
                break None;
            }
            thread::yield_now();
        };
        drop(locked);
        renaming.join().unwrap().unwrap();
        seen
    });
    assert!(seen.is_none_or(|seen| seen.is_ok()));
    assert_eq!(body(system.read(moved, 0, 100)), b"moved");
    assert_eq!((committed(&system, "gone"), committed(&system, "other name")), (b"moved".to_vec(), b"gone".to_vec()));
}

#[test]
fn attributes_follow_their_objects_when_names_are_exchanged() {
    let (_sandbox, system) = mounted();
    let creation = Creation { mode: 0o700, umask: 0 };
    system.make_directory(ROOT, b"directory", &HEADER, creation).unwrap();
    let (directory, one) = (number(&system, ROOT, "directory"), file(&system, "one", b"content"));
    system.commit_all().unwrap();
    let set_mode = |number, mode| {
        let changed = NewAttributes { mode: Some(mode), ..NewAttributes::default() };
        system.set_attributes(number, &changed).unwrap();
    };
    let modes = || ["directory", "one"].map(|path| system.store.stat(&Key::parse(path).unwrap()).unwrap().unwrap());
    let modes = || modes().map(|found| found.attributes.mode & 0o777);
    set_mode(directory, 0o750);
    set_mode(one, 0o640);
    system.rename((ROOT, b"one"), (ROOT, b"directory"), 2).unwrap();
    assert_eq!(modes(), [0o640, 0o750]);
    set_mode(directory, 0o755);
    set_mode(one, 0o644);
    system.commit_all().unwrap();
    assert_eq!(modes(), [0o644, 0o755]);
    assert_eq!(system.shown_of(ROOT).unwrap().link_count, 3);
}

#[test]
fn a_file_that_is_not_replaced_after_all_still_waits() {
    let (_sandbox, system) = mounted();
    let creation = Creation { mode: 0o700, umask: 0 };
    system.make_directory(ROOT, b"directory", &HEADER, creation).unwrap();
    let (one, other) = (file(&system, "one", b"content"), file(&system, "other", b""));
    // The kernel does not ask for that.
    assert_eq!(system.rename((ROOT, b"directory"), (ROOT, b"one"), 0).unwrap_err(), Errno::EXIST);
    assert_eq!(system.shown_of(one).unwrap().link_count, 1);
    system.sync_file(other).unwrap();
    assert_eq!(committed(&system, "one"), b"content");
}

#[test]
fn a_name_for_a_file_without_one_comes_after_what_was_written_before() {
    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"content");
    let created = body(system.create_nameless(ROOT, &HEADER, Creation { mode: 0o600, umask: 0 }));
    let nameless = ObjectNumber(u64::from_ne_bytes(*created.first_chunk().unwrap()));
    system.write(nameless, 0, b"named later", false).unwrap();
    let before = system.shown_of(nameless).unwrap();
    assert_eq!(system.link(nameless, ROOT, b"one").unwrap_err(), Errno::EXIST);
    assert_eq!(system.shown_of(nameless).unwrap(), before);
    system.commit_all().unwrap();
    // So it is none that is written again and again.
    assert!(system.nodes.held(one).is_none());
    system.write(one, 0, b"content again", false).unwrap();
    system.link(nameless, ROOT, b"named").unwrap();
    assert_eq!(committed(&system, "named"), b"named later");
    assert_eq!(committed(&system, "one"), b"content again");
    assert_eq!(system.shown_of(nameless).unwrap().link_count, 1);
}

#[test]
fn a_file_that_gets_its_first_name_keeps_the_change_time_that_was_shown() {
    let (_sandbox, system) = mounted();
    let created = body(system.create_nameless(ROOT, &HEADER, Creation { mode: 0o600, umask: 0 }));
    let nameless = ObjectNumber(u64::from_ne_bytes(*created.first_chunk().unwrap()));
    system.write(nameless, 0, b"content", false).unwrap();
    system.link(nameless, ROOT, b"named").unwrap();
    let shown = system.shown_of(nameless).unwrap().ctime;
    system.commit_all().unwrap();
    // Now it is read from the store.
    assert!(system.nodes.held(nameless).is_none());
    assert_eq!(system.shown_of(nameless).unwrap().ctime, shown);
}

/// A write that finds no room at first, of which it tells `full`, and then as much as it needs. As in `write`, its file
/// is locked meanwhile.
fn write_once_freed(system: &FileSystem, number: ObjectNumber, full: &Sender<()>) -> Outcome<()> {
    let live = system.nodes.hold(number);
    let mut state = lock(&live.state);
    let handle = system.open_handle(number, &mut state)?;
    let is_full = Cell::new(true);
    system.change_object(&live, &mut state, 5, |_| {
        system.retry_after_freeing(number, || {
            if is_full.replace(false) {
                full.send(()).unwrap();
                return Err(Error::new(ErrorKind::NoSpace, "write", "the device is full"));
            }
            handle.write_at(b"after", 0)
        })
    })
}

#[test]
fn a_write_that_waits_for_space_does_not_stop_listings() {
    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"before");
    file(&system, "other", b"content");
    let (full, is_full) = channel();
    let (listed, are_listed) = channel();
    // Space is not freed before the test says so.
    let (system, freeing) = (&system, lock(&system.freeing));
    thread::scope(|scope| {
        let writing = scope.spawn(|| write_once_freed(system, one, &full));
        is_full.recv().unwrap();
        scope.spawn(move || {
            let list = |with_attributes| listed_to_the_end(system, open_root(system), 0, with_attributes);
            listed.send([false, true].map(list))
        });
        let names = are_listed.recv_timeout(PATIENCE);
        let is_writing = !writing.is_finished();
        drop(freeing);
        writing.join().unwrap().unwrap();
        assert_eq!(names.unwrap(), [[".", "..", "one", "other"]; 2]);
        assert!(is_writing);
    });
    // Then it is listed with attributes again.
    assert_eq!(listed_to_the_end(system, open_root(system), 0, true), [".", "..", "one", "other"]);
    assert_eq!(body(system.read(one, 0, 100)), b"aftere");
}

/// Whether another thread looks for requests while the only one that does is in `ask`: that tells `begun` when it is
/// about to wait for what `release` has.
fn does_another_look(
    system: &FileSystem,
    ask: impl FnOnce() + Send,
    begun: &Receiver<()>,
    release: impl FnOnce(),
) -> bool {
    let (looked, is_looked) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _attendant = system.attention.attendant();
            ask();
        });
        begun.recv().unwrap();
        // It looks at once, or waits until it is called.
        scope.spawn(move || looked.send(system.attention.attendant().found_none()));
        let is_looked = is_looked.recv_timeout(PATIENCE).is_ok();
        release();
        system.attention.end();
        is_looked
    })
}

/// None of these is said to take long before it begins.
#[test]
fn another_thread_looks_for_requests_while_one_waits() {
    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"before");
    let (full, is_full) = channel();
    let freeing = lock(&system.freeing);
    let write = || write_once_freed(&system, one, &full).unwrap();
    assert!(does_another_look(&system, write, &is_full, || drop(freeing)), "for space");

    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"before");
    let (begun, has_begun) = channel();
    let live = system.nodes.hold(one);
    let in_use = lock(&live.state);
    let ask = || {
        begun.send(()).unwrap();
        system.attributes(one).unwrap();
    };
    assert!(does_another_look(&system, ask, &has_begun, || drop(in_use)), "for a file in use");

    let (_sandbox, system) = mounted();
    let (begun, has_begun) = channel();
    let settling = lock(&system.settling);
    let settle = || {
        begun.send(()).unwrap();
        system.settle(None);
    };
    assert!(does_another_look(&system, settle, &has_begun, || drop(settling)), "for what is committed");
}

#[test]
fn a_handle_stays_as_long_as_somebody_reads_through_it() {
    let (_sandbox, system) = mounted();
    let one = file(&system, "one", b"before");
    let reading = lock(&system.nodes.hold(one).state).handle.clone().unwrap();
    system.commit_all().unwrap();
    system.write(one, 0, b"after!", false).unwrap();
    // This commits nothing of what others wrote.
    drop(reading);
    assert_eq!(committed(&system, "one"), b"before");
    system.commit_all().unwrap();
    assert_eq!(committed(&system, "one"), b"after!");
    assert!(system.nodes.held(one).is_none());
}
