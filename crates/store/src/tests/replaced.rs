//! A copy that has valid records which were never committed: forged ones stand for what a device may bring back from
//! another history, with ids of its own. What the list of the commit has there, on the other copy, is what every reader
//! takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::versions::{shown, versions};
use super::{file, key};
use crate::engine::pace::Pace;
use crate::format::entry::{Kind, Location};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::segment_path;
use crate::format::record::{Head, NewRecord, Record, seal};
use crate::format::segment::Commit;
use crate::layout::granulo::Alignment;
use crate::log::scan::{ScanStep, SegmentScan};
use crate::maintain::moving::MoveTarget;
use crate::{
    CheckOptions, Durability, OpenOptions, Plan, ProblemKind, Progress, Remedy, ScrubOptions, Store, rebuild_index,
};

/// A store with two copies of everything, its home and its devices.
fn mirrored(sandbox: &TempDir) -> (Store, PathBuf, [PathBuf; 2]) {
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &Plan { fast: fast.to_vec(), ..Plan::default() }).unwrap();
    (store, home, fast)
}

/// Locations of the records of a segment, without commits.
fn locations(store: &Store, segment: SegmentNumber) -> Vec<Location> {
    let row = store.engine().view().state.segments[&segment].clone();
    let copies = store.engine().open_copies(row.id(), &row.devices);
    let mut scan = SegmentScan::new(copies, store.engine().seed(row.id()), LogOffset::START);
    let mut found = Vec::new();
    while let Some(step) = scan.next(false) {
        if let ScanStep::Record(offset, record, _) = step {
            found.push(Location { segment, offset, record_bytes: record.record_bytes() });
        }
    }
    found
}

/// Replaces a record on one device by another valid one of the same length.
fn forge(store: &Store, device: &Path, at: Location, change: &dyn Fn(Head<'_>, &[u8]) -> Vec<u8>) {
    let engine = store.engine();
    let id = engine.segment_id(at.segment);
    let mut bytes = Vec::new();
    engine.read_copy(DeviceNumber(0), id, at.offset, at.record_bytes as usize, &mut bytes).unwrap();
    let record = Record::parse(&bytes).unwrap();
    let mut forged = change(record.head, record.content);
    assert_eq!(forged.len(), bytes.len());
    seal(&mut forged, engine.seed(id), at.offset);
    let path = device.join(segment_path(id));
    let mut segment = fs::read(&path).unwrap();
    let range = at.offset.0 as usize..(at.offset.0 + at.record_bytes) as usize;
    segment[range].copy_from_slice(&forged);
    fs::write(path, segment).unwrap();
}

fn encoded(record: &NewRecord<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(Alignment::default(), &mut bytes).unwrap();
    bytes
}

fn unmoved<'h>(head: Head<'h>, content: &'h [u8]) -> NewRecord<'h> {
    NewRecord { moved: None, ..NewRecord::moved(head, 0, content) }
}

#[test]
fn versions_are_those_of_the_list_in_the_order_of_the_log() {
    for forged_records in [[true, false, false], [false, true, false], [false, false, true], [true, true, false]] {
        let sandbox = TempDir::new().unwrap();
        let (store, home, fast) = mirrored(&sandbox);
        let mut batch = store.batch(Durability::Batch);
        for content in ["one", "two", "six"] {
            batch.put(&key("f"), &file(), content.as_bytes()).unwrap();
        }
        batch.commit().unwrap();
        let segment = store.entry(&key("f")).unwrap().unwrap().entry.location.segment;
        let records = locations(&store, segment);
        let of_file = &records[records.len() - 3..];
        for (&at, _) in of_file.iter().zip(forged_records).filter(|(_, is_forged)| *is_forged) {
            forge(&store, &fast[0], at, &|head, content| {
                let forged: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
                encoded(&NewRecord { id: head.id + 1000, ..unmoved(head, &forged) })
            });
        }
        let expected = ["six*", "two", "one"];
        assert_eq!(shown(&store, "f"), expected, "{forged_records:?}");
        drop(store);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert!(store.completeness().is_complete());
        assert_eq!(shown(&store, "f"), expected, "{forged_records:?}, from the log");
        assert_eq!(store.get(&key("f")).unwrap().as_deref(), Some(&b"six"[..]));
    }
}

#[test]
fn a_version_of_another_name_and_a_forged_key_are_none() {
    let sandbox = TempDir::new().unwrap();
    let (store, home, fast) = mirrored(&sandbox);
    let mut batch = store.batch(Durability::Batch);
    batch.put(&key("f"), &file(), b"first").unwrap();
    batch.put(&key("g"), &file(), b"other").unwrap();
    batch.commit().unwrap();
    let at = ["f", "g"].map(|path| store.entry(&key(path)).unwrap().unwrap().entry.location);
    // One name on each side of the list: a record of it that was replaced, and one that replaces another.
    forge(&store, &fast[0], at[0], &|head, content| {
        encoded(&unmoved(Head { id: head.id + 1000, name: Some(b"g"), ..head }, content))
    });
    forge(&store, &fast[0], at[1], &|head, content| {
        encoded(&unmoved(Head { id: head.id + 1000, name: Some(b"f"), ..head }, content))
    });
    drop(store);
    for from_the_log in [false, true] {
        let store = if from_the_log {
            rebuild_index(&home, &OpenOptions::default()).unwrap()
        } else {
            Store::open_read_only(&home).unwrap()
        };
        assert_eq!(shown(&store, "f"), ["first*"]);
        assert_eq!(shown(&store, "g"), ["other*"]);
        assert_eq!(versions(&store, "f").versions.len(), 1);
        drop(store);
    }
}

#[test]
fn the_removal_of_the_list_is_moved() {
    let sandbox = TempDir::new().unwrap();
    let (store, home, fast) = mirrored(&sandbox);
    store.put(&key("stays"), &file(), b"content").unwrap();
    store.put(&key("removed"), &file(), b"content").unwrap();
    store.engine().close_active_segment().unwrap();
    store.remove(&key("removed")).unwrap();
    let segment = store.engine().view().state.position.segment;
    store.engine().close_active_segment().unwrap();
    store.put(&key("last"), &file(), b"content").unwrap();
    let [at] = locations(&store, segment)[..] else { panic!("one record") };
    forge(&store, &fast[0], at, &|head, content| {
        assert_eq!(head.kind, Kind::Removal);
        encoded(&unmoved(Head { id: head.id + 1000, name: Some(b"another"), ..head }, content))
    });
    let progress = Progress::default();
    let mut pace = Pace::new(None, &progress);
    let chosen = BTreeSet::from([segment]);
    let done = store.engine().move_segments(&chosen, MoveTarget::SameClass(Class::Fast), &mut pace).unwrap();
    assert_eq!((done.removals, done.freed_segments), (1, vec![segment]));
    drop(store);
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    let names: Vec<String> = store.list(&key("")).unwrap().map(|found| found.unwrap().key.to_string()).collect();
    assert_eq!(names, ["last", "stays"]);
}

/// In the middle of its batch and at its end, on either copy.
#[test]
fn a_record_that_its_list_refutes_is_damage_and_repaired() {
    for (device, forged) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        let sandbox = TempDir::new().unwrap();
        let (store, home, fast) = mirrored(&sandbox);
        let mut batch = store.batch(Durability::Batch);
        for path in ["e", "f", "g"] {
            batch.put(&key(path), &file(), path.as_bytes()).unwrap();
        }
        batch.commit().unwrap();
        let at = ["e", "f", "g"].map(|path| store.entry(&key(path)).unwrap().unwrap().entry.location);
        let id = store.engine().segment_id(at[0].segment);
        drop(store);
        let copies = || fast.each_ref().map(|path| fs::read(path.join(segment_path(id))).unwrap());
        let before = copies();
        assert!(before[0] == before[1]);
        let store = Store::open_read_only(&home).unwrap();
        forge(&store, &fast[device], at[forged], &|head, content| {
            encoded(&NewRecord { id: head.id + 1000, ..unmoved(head, &[content[0] ^ 1]) })
        });
        let check = || {
            let (mut found, options) = (Vec::new(), CheckOptions { is_deep: true, ..CheckOptions::default() });
            let store = Store::open_read_only(&home).unwrap();
            store.check(options, &mut |problem| found.push(problem.clone()), &Progress::default()).unwrap();
            found
        };
        let found: Vec<_> = check().into_iter().map(|problem| (problem.kind, problem.remedy, problem.device)).collect();
        let expected = (ProblemKind::Record, Remedy::Repair, Some(DeviceNumber(device as u16)));
        assert_eq!(found, [expected], "record {forged} on device {device}");
        drop(store);
        let store = Store::open(&home).unwrap();
        let mut repaired = Vec::new();
        store
            .scrub(ScrubOptions::default(), &mut |_, is_repaired| repaired.push(is_repaired), &Progress::default())
            .unwrap();
        assert_eq!(repaired, [true], "record {forged} on device {device}");
        drop(store);
        let length = before[0].len();
        assert!(copies().iter().all(|copy| copy[..length] == before[0]), "record {forged} on device {device}");
        assert_eq!(check(), []);
    }
}

/// Both copies of the log went on by themselves: each has a batch of its own there.
#[test]
fn records_that_the_lists_of_their_own_copies_have_are_a_divergence() {
    let sandbox = TempDir::new().unwrap();
    let (store, home, fast) = mirrored(&sandbox);
    store.put(&key("f"), &file(), b"content").unwrap();
    let Location { segment, offset, record_bytes } = store.entry(&key("f")).unwrap().unwrap().entry.location;
    let engine = store.engine();
    let (id, seed) = (engine.segment_id(segment), engine.seed(engine.segment_id(segment)));
    forge(&store, &fast[0], Location { segment, offset, record_bytes }, &|head, content| {
        let other: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
        encoded(&NewRecord { id: head.id + 1000, ..unmoved(head, &other) })
    });
    let path = fast[0].join(segment_path(id));
    let mut forged = fs::read(&path).unwrap();
    let record = offset.0 as usize..(offset.0 + record_bytes) as usize;
    let mut scan = SegmentScan::new(engine.open_copies(id, &[DeviceNumber(1)]), seed, offset);
    let committed = loop {
        if let Some(ScanStep::Commit(committed, ..)) = scan.next(false) {
            break committed;
        }
    };
    let list = seal(&mut forged[record], seed, offset);
    let content = Commit { list, ..committed.commit }.encode();
    let mut end = Vec::new();
    let commit = NewRecord { content: &content, ..NewRecord::of(Kind::Commit) };
    commit.encode(Alignment::None, &mut end).unwrap();
    seal(&mut end, seed, committed.at);
    forged[committed.at.0 as usize..committed.end.0 as usize].copy_from_slice(&end);
    fs::write(&path, &forged).unwrap();
    drop(store);
    let copies = || fast.each_ref().map(|path| fs::read(path.join(segment_path(id))).unwrap());
    let before = copies();
    let store = Store::open(&home).unwrap();
    let (mut found, options) = (Vec::new(), CheckOptions { is_deep: true, ..CheckOptions::default() });
    store.check(options, &mut |problem| found.push((problem.kind, problem.remedy)), &Progress::default()).unwrap();
    assert!(found.contains(&(ProblemKind::Divergence, Remedy::Lost)), "{found:?}");
    assert!(!found.contains(&(ProblemKind::Record, Remedy::Repair)), "{found:?}");
    let options = ScrubOptions::default();
    store.scrub(options, &mut |_, is_repaired| assert!(!is_repaired), &Progress::default()).unwrap();
    let length = committed.end.0 as usize;
    assert!(copies().iter().zip(&before).all(|(now, before)| now[..length] == before[..length]));
}
