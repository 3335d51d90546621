//! Tests that each fault does what it says.

use super::*;
use crate::devices::device::{Device, DeviceFile, Mode};

fn written(world: &World, device: usize, path: &str, synced: &[u8], more: &[u8]) -> Arc<dyn DeviceFile> {
    let device = world.device(device);
    device.create_directory("segments").unwrap();
    let file = device.open(path, Mode::Create).unwrap();
    device.sync_directory("segments").unwrap();
    file.write_at(synced, 0).unwrap();
    file.sync().unwrap();
    if !more.is_empty() {
        file.write_at(more, synced.len() as u64).unwrap();
    }
    file
}

#[test]
fn a_device_that_goes_loses_what_is_not_durable_and_its_files_fail_for_ever() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(1, seed);
        let file = written(&world, 0, "segments/a", b"durable", b" or not");
        let away = world.detach(0, Absence::Unmounted, seed);
        assert!(world.device(0).files().is_empty() && file.size().is_err());
        world.attach(0, &away);
        let content = world.device(0).content("segments/a");
        assert!(content.starts_with(b"durable"), "{content:?}");
        lengths.insert(content.len());
        assert!(file.write_at(b"x", 0).is_err() && file.sync().is_err());
        assert!(world.device(0).open("segments/a", Mode::Write).unwrap().write_at(b"x", 0).is_ok());
    }
    assert!(lengths.contains(&7) && lengths.contains(&14), "{lengths:?}");
}

#[test]
fn an_absent_directory_is_there_and_empty_or_not_there_or_fails() {
    let is_there = |absence| {
        let world = World::new(1, 0);
        written(&world, 0, "segments/a", b"x", b"");
        let before = world.node_at("/here/0").unwrap();
        let away = world.detach(0, absence, 0);
        let between = world.node_at("/here/0");
        let listed = world.device(0).list("segments").map(|files| files.len()).ok();
        world.attach(0, &away);
        assert_eq!(world.node_at("/here/0"), Some(before));
        assert_ne!(between, Some(before));
        (between.is_some(), listed)
    };
    assert_eq!(is_there(Absence::Unmounted), (true, Some(0)));
    assert_eq!(is_there(Absence::Missing), (false, Some(0)));
    assert_eq!(is_there(Absence::Failing), (false, None));
}

#[test]
fn what_a_failed_sync_left_in_memory_is_dropped_or_kept() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(1, seed);
        let file = written(&world, 0, "segments/a", b"durable", b" doubtful");
        let operation = world.operations();
        let errno = rustix::io::Errno::IO;
        world.fail(super::super::world::Fault { operation, errno, is_lasting: false, device: None });
        assert!(file.sync().is_err() && file.sync().is_ok());
        assert_eq!(world.device(0).content("segments/a"), b"durable doubtful");
        world.drop_pages(seed);
        let content = world.device(0).content("segments/a");
        assert!(content.starts_with(b"durable"));
        // It is as on the device: a power failure loses no more.
        assert_eq!(world.after_crash(seed).device(0).content("segments/a"), content);
        seen.insert(content.len());
    }
    assert!(seen.contains(&7) && seen.contains(&16), "{seen:?}");
}

#[test]
fn a_betrayed_write_is_done_nowhere_or_elsewhere_and_once() {
    for goes_elsewhere in [false, true] {
        let world = World::new(1, 3);
        let file = written(&world, 0, "segments/a", &[7; 8192], b"");
        world.betray(Betrayal { device: 0, kind: FileKind::Segment, goes_elsewhere });
        assert_eq!(world.betrayals(), 1);
        file.write_at(&[9; 100], 8192).unwrap();
        assert_eq!(world.betrayals(), 0);
        let content = world.device(0).content("segments/a");
        assert_eq!(content.len(), 8192);
        assert_eq!(content.contains(&9), goes_elsewhere);
        file.write_at(&[9; 100], 8192).unwrap();
        assert_eq!(world.device(0).content("segments/a").len(), 8292);
    }
}

#[test]
fn rot_is_in_files_of_its_kind_alone() {
    let world = World::new(1, 0);
    written(&world, 0, "segments/a", &[7; 3000], b"");
    world.device(0).open("superblock", Mode::Create).unwrap().write_at(&[7; 3000], 0).unwrap();
    let mut places = std::collections::BTreeSet::new();
    for place in 0..50 {
        let (path, at) = world.rot(0, FileKind::Segment, Rot::Bit, place).unwrap();
        assert_eq!(path, "segments/a");
        places.insert(at / 1000);
    }
    assert_eq!(places.len(), 3);
    assert_eq!(world.device(0).content("superblock"), [7; 3000]);
    assert_ne!(world.device(0).content("segments/a"), [7; 3000]);
    assert_eq!(world.rot(0, FileKind::Extent, Rot::Bit, 1), None);
    let (_, at) = world.rot(0, FileKind::Superblock, Rot::Unreadable, 1).unwrap();
    let file = world.device(0).open("superblock", Mode::Read).unwrap();
    assert!(file.read_at(&mut [0; 1], at).is_err());
}

#[test]
fn a_moved_directory_is_the_same_and_a_copy_is_another() {
    let world = World::new(2, 0);
    written(&world, 0, "segments/a", b"one", b"");
    written(&world, 1, "segments/a", b"two", b"");
    let nodes = [world.node_at("/here/0"), world.node_at("/here/1")];
    world.move_below("/here", "/moved");
    assert_eq!((world.node_at("/here/0"), [world.node_at("/moved/0"), world.node_at("/moved/1")]), (None, nodes));
    world.copy_below("/moved", "/copy");
    assert!(world.node_at("/copy/1").is_some() && world.node_at("/copy/1") != nodes[1]);
    assert_eq!(world.device_at("/copy/1").content("segments/a"), b"two");
    let copy = world.device_at("/copy/1");
    copy.open("segments/a", Mode::Write).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(world.device_at("/moved/1").content("segments/a"), b"two");
}

#[test]
fn an_old_index_comes_back_and_nothing_else() {
    let world = World::new(1, 0);
    let device = world.device(0);
    written(&world, 0, "segments/a", b"one", b"");
    device.create_directory("index").unwrap();
    device.open("index/manifest", Mode::Create).unwrap().write_at(b"old", 0).unwrap();
    let snapshot = device.snapshot();
    device.open("index/manifest", Mode::Write).unwrap().write_at(b"new", 0).unwrap();
    device.open("index/journal-0", Mode::Create).unwrap();
    device.open("segments/a", Mode::Write).unwrap().write_at(b"ONE", 0).unwrap();
    world.restore_index(0, &snapshot);
    let paths: Vec<String> = device.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["index/manifest", "segments/a"]);
    assert_eq!((&*device.content("index/manifest"), &*device.content("segments/a")), (&b"old"[..], &b"ONE"[..]));
    world.lose_index(0);
    assert_eq!(device.files().len(), 1);
}

#[test]
fn a_place_cannot_be_read_for_as_many_reads_as_it_is_told() {
    let world = World::new(1, 0);
    let file = written(&world, 0, "segments/a", &[7; 1000], b"");
    let read = |offset| file.read_at(&mut [0; 1000], offset).is_ok();
    assert!(!world.unread(0, FileKind::Extent, 1, (0, 1)), "there is no such file");
    assert!(world.unread(0, FileKind::Segment, 1, (2, 3)));
    let seen: Vec<bool> = (0..7).map(|_| read(0)).collect();
    assert_eq!(seen, [true, true, false, false, false, true, true]);
    assert!(read(1000) && world.passed() == 3);
    assert!(world.unread(0, FileKind::Segment, 1, (0, 9)) && !read(0));
    world.end_passing();
    assert!(read(0));
}

#[test]
fn a_device_with_a_quota_says_that_it_has_room_and_has_none() {
    let world = World::new(1, 0);
    let file = written(&world, 0, "segments/a", &[7; 4096], b"");
    world.set_quota(0, 1);
    assert!(world.is_troubled() && world.device(0).room().unwrap().available_bytes > 1 << 20);
    assert_eq!(file.write_at(&[7; 8192], 4096).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.size().unwrap(), 8192);
    world.device(0).set_endless();
    file.write_at(&[7; 8192], 4096).unwrap();
    assert!(!world.is_troubled());
}

#[test]
fn a_device_is_gone_for_some_operations_and_has_what_was_durable() {
    let world = World::new(2, 0);
    let file = written(&world, 0, "segments/a", b"durable", b"");
    let other = written(&world, 1, "segments/a", b"durable", b"");
    world.lose_for(0, 1, 2);
    let write = || other.write_at(b"x", 0).unwrap();
    assert!(file.size().is_ok() && world.is_troubled());
    for is_gone in [false, true, true, false] {
        assert_eq!(file.size().is_err(), is_gone);
        assert_eq!(world.device(0).list("segments").is_err(), is_gone);
        write();
    }
    assert!(world.failed().contains(&0) && world.device(0).content("segments/a") == b"durable");
    world.end_outages();
    assert!(!world.is_troubled());
}
