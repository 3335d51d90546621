//! What was acknowledged stays, whatever fails beside it: a segment that cannot be begun, a device that is lost while
//! batches are not yet durable, a copy of the index that a failed write left behind. And readers hear of it.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use tempfile::TempDir;

use super::{bytes, file, key};
use crate::engine::locking::Access;
use crate::engine::sync::RECENT_LIMIT;
use crate::error::ErrorKind;
use crate::format::ids::DeviceNumber;
use crate::format::names::segment_path;
use crate::format::release::Released;
use crate::locks::lock;
use crate::simulation::mishap::Absence;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::{Fault, World};
use crate::{Durability, Existing, Plan, Store};

/// Whether everything in extent files is claimed, or in an account.
fn is_claimed(store: &Store) -> bool {
    let engine = store.engine();
    let files = engine.extents.list(DeviceNumber(0)).unwrap();
    let has_account = |file: u32| engine.view().state.extents.contains_key(&(DeviceNumber(0), file));
    files.keys().all(|&file| has_account(file) || engine.allocator().is_claimed(DeviceNumber(0), file))
}

/// Compaction frees extent files that nothing in the index refers to and nobody claims.
#[test]
fn units_are_claimed_until_the_piece_with_their_record_is_synced() {
    let sandbox = TempDir::new().unwrap();
    let plan = Plan { cutoff_bytes: 16 << 20, segment_bytes: 1 << 30, ..Plan::default() };
    for round in 0..12 {
        let store = Store::create(&sandbox.path().join(format!("{round}")), &plan).unwrap();
        let mut batch = store.batch(Durability::None);
        // Sizes around the one with which the record of the large object belongs to the next piece.
        batch.put(&key("filler"), &file(), &vec![7; (8 << 20) - 700 + 50 * round]).unwrap();
        batch.put(&key("large"), &file(), &vec![8; 17 << 20]).unwrap();
        // If it is committed by now, all of its piece is.
        while round >= 10 && store.entry(&key("filler")).unwrap().is_none() {
            std::thread::yield_now();
        }
        store.sync().unwrap();
        assert!(is_claimed(&store), "{round}");
        batch.commit().unwrap();
        store.sync().unwrap();
        assert!(is_claimed(&store) && store.get(&key("large")).unwrap().is_some());
    }
}

/// The header of the new segment says where the log continues. It must be gone before the log goes on elsewhere.
#[test]
fn the_log_goes_on_after_a_segment_that_could_not_be_begun() {
    let settings = geometry(2, 0, 2, (2, 0));
    for seed in 0..60 {
        let world = World::new(Simulated::devices(&settings), seed);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("before"), &file(), b"before").unwrap();
        let row = store.engine().view().state.segments.values().next_back().cloned().unwrap();
        let mut batch = store.batch(Durability::Batch);
        for number in 0..settings.segment_bytes / 1000 {
            batch.put(&key(&format!("too much/{number}")), &file(), &[1; 1000]).unwrap();
        }
        let device = Some(row.devices[1].index());
        world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting: true, device });
        assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NoSpace);
        world.clear_faults();
        // Half of the time, what was removed may be there again after the power failure.
        store.put(&key("acknowledged"), &file(), b"content").unwrap();
        let after = Simulated::open(&settings, &world.after_power_failure(seed)).unwrap();
        assert!(after.store().completeness().is_complete(), "{:?}", after.store().completeness().lines());
        for (name, content) in [("before", &b"before"[..]), ("acknowledged", b"content")] {
            assert_eq!(after.store().get(&key(name)).unwrap().as_deref(), Some(content), "{seed}: {name}");
        }
    }
}

/// The superblocks say that the last batch before an epoch is durable, so it must be.
#[test]
fn an_epoch_in_mid_run_says_of_no_batch_that_it_is_durable_when_it_is_not() {
    let settings = geometry(2, 3, 2, (2, 1));
    let content = bytes(1, 7000);
    for seed in 0..12 {
        for crash in 0.. {
            let world = World::new(Simulated::devices(&settings), seed);
            let subject = Simulated::create(&settings, &world).unwrap();
            let store = subject.store();
            store.put(&key("x"), &file(), &content).unwrap();
            let mut batch = store.batch(Durability::None);
            batch.rename(&key("x"), &key("y"), Existing::Refuse).unwrap();
            batch.commit().unwrap();
            let _away = world.detach(2, Absence::Unmounted, seed);
            world.crash_at(world.operations() + crash);
            let put = store.put(&key("large"), &file(), &bytes(2, 120_000));
            let has_crashed = world.has_crashed();
            let left = world.after_power_failure(seed);
            drop(subject);
            let after = Simulated::open(&settings, &left).unwrap();
            let after = after.store();
            assert!(after.completeness().is_complete(), "{seed}, {crash}: {:?}", after.completeness().lines());
            let there = ["x", "y"].map(|name| after.get(&key(name)).unwrap());
            assert!(there.iter().flatten().eq([&content]), "{seed}, {crash}: x or y has the content");
            if !has_crashed {
                put.unwrap();
                break;
            }
        }
    }
}

/// With a writer that runs, a reader does not read the log: the index is up to date.
#[test]
fn a_reader_takes_no_copy_of_the_index_that_was_left_behind() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let fast = ["a", "b"].map(|name| sandbox.path().join(name));
    let store = Store::create(&home, &Plan { fast: fast.to_vec(), ..Plan::default() }).unwrap();
    for number in 0..RECENT_LIMIT {
        store.put(&key(&format!("first/{number}")), &file(), b"content").unwrap();
    }
    // As after a failed write to the copy on the second device.
    let places = store.engine().catalog.copies().places().to_vec();
    assert_eq!(places.len(), 2);
    store.engine().catalog.write_to(places[..1].to_vec());
    store.put(&key("second"), &file(), b"content").unwrap();
    let early = Store::open_read_only(&home).unwrap();
    assert!(early.get(&key("second")).unwrap().is_some());
    assert_eq!(places[0].device.place(), fast[0]);
    let manifest = fast[0].join("index/manifest");
    let mut damaged = fs::read(&manifest).unwrap();
    damaged[100] ^= 1;
    fs::write(&manifest, &damaged).unwrap();

    let late = Store::open_read_only(&home).unwrap();
    assert!(late.get(&key("second")).unwrap().is_some(), "acknowledged, and not shown");
    assert!(late.get(&key("first/0")).unwrap().is_some());
    // One that was open does not go back: it keeps its state, or fails when it looks again.
    damaged[20] ^= 1;
    fs::write(&manifest, damaged).unwrap();
    assert!(early.refresh().is_err());
    assert!(!matches!(early.get(&key("second")), Ok(None)));
}

/// File systems that allocate late, and quotas of network file systems, tell of a lack of space when a file is synced.
/// The log may then lack batches, so no epoch begins behind it.
#[test]
fn no_epoch_begins_after_a_sync_of_the_log_that_found_no_space() {
    let settings = geometry(2, 0, 2, (2, 0));
    for (seed, is_lasting) in (0..20).zip([false, true].into_iter().cycle()) {
        let world = World::new(Simulated::devices(&settings), seed);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("acknowledged"), &file(), b"content").unwrap();
        let mut batch = store.batch(Durability::None);
        batch.put(&key("not yet"), &file(), b"content").unwrap();
        batch.commit().unwrap();
        world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting, device: None });
        let engine = store.engine();
        let geometry = engine.geometry();
        assert_eq!(engine.write_geometry(&geometry).unwrap_err().kind(), ErrorKind::NoSpace, "{seed}");
        assert!(engine.latched().is_some());
        world.clear_faults();
        assert_eq!(store.put(&key("later"), &file(), b"content").unwrap_err().kind(), ErrorKind::ReadOnly);
        let after = Simulated::open(&settings, &world.after_power_failure(seed)).unwrap();
        assert!(after.store().completeness().is_complete(), "{:?}", after.store().completeness().lines());
        assert_eq!(after.store().get(&key("acknowledged")).unwrap().as_deref(), Some(&b"content"[..]));
    }
}

/// A batch of many objects is committed in pieces. The failure of one is told by a call for another object.
#[test]
fn a_batch_that_lost_a_piece_does_not_end_well() {
    const MOST: usize = 40_000;
    let settings = geometry(2, 0, 2, (2, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let mut batch = store.batch(Durability::Batch);
    world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting: true, device: None });
    let failed = (0..MOST).find(|number| batch.put(&key(&format!("k{number}")), &file(), &[1; 1000]).is_err());
    assert!(failed.is_some(), "no piece was committed");
    world.clear_faults();
    batch.put(&key("later"), &file(), b"content").unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(store.get(&key("k0")).unwrap().is_none() && store.get(&key("later")).unwrap().is_some());
}

/// The number is released in the log, and no mark says that it was given: only the release does.
#[test]
fn the_number_of_a_segment_that_could_not_be_begun_is_not_given_again() {
    let settings = geometry(2, 0, 2, (2, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    store.put(&key("before"), &file(), b"before").unwrap();
    let first = store.engine().writer().unwrap().newest_segment;
    let mut batch = store.batch(Durability::Batch);
    for number in 0..settings.segment_bytes / 1000 {
        batch.put(&key(&format!("too much/{number}")), &file(), &[1; 1000]).unwrap();
    }
    world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting: true, device: Some(1) });
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NoSpace);
    world.clear_faults();
    let burned = store.engine().writer().unwrap().newest_segment;
    assert_eq!(burned, first.next());
    // Its record repeats all that was released, in the segment that goes on.
    store.pin("mount").unwrap();
    assert_eq!(store.engine().writer().unwrap().position.segment, first);

    let world = world.after_kill(1);
    let after = Simulated::open(&settings, &world).unwrap();
    after.store().put(&key("acknowledged"), &file(), b"content").unwrap();
    assert_eq!(after.store().engine().writer().unwrap().position.segment, burned.next());
    drop(after);
    let rebuilt = Simulated::open_as(&home(&settings), &world, Access::RebuildIndex).unwrap();
    assert!(rebuilt.store().completeness().is_complete(), "{:?}", rebuilt.store().completeness().lines());
    assert_eq!(rebuilt.store().get(&key("acknowledged")).unwrap().as_deref(), Some(&b"content"[..]));
}

/// What was released is unlinked without another record.
#[test]
fn a_release_that_could_not_be_written_is_not_remembered() {
    let settings = geometry(1, 0, 1, (1, 0));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let engine = subject.store().engine();
    subject.store().put(&key("a"), &file(), b"content").unwrap();
    let mut released = Released::default();
    released.add_extent(DeviceNumber(0), 7);
    let _sync = lock(&engine.sync);
    let mut writer = engine.writer().unwrap();
    world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting: false, device: None });
    assert_eq!(engine.release(&mut writer, &released).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(!writer.released.has_extent(DeviceNumber(0), 7));
    engine.release(&mut writer, &released).unwrap();
    assert!(writer.released.has_extent(DeviceNumber(0), 7));
}

/// Too many open files are no fault of a device.
#[test]
fn a_process_without_descriptors_takes_no_device_out_of_service() {
    let settings = geometry(2, 3, 2, (2, 1));
    let world = World::new(Simulated::devices(&settings), 1);
    let subject = Simulated::create(&settings, &world).unwrap();
    let store = subject.store();
    let put = || store.put(&key("large"), &file(), &bytes(1, 60_000));
    world.fail(Fault { operation: 0, errno: Errno::MFILE, is_lasting: true, device: Some(2) });
    put().unwrap_err();
    world.clear_faults();
    assert_eq!((subject.out_of_service(), store.engine().latched()), (vec![], None));
    put().unwrap();
}

/// Whoever waits for changes hears of each, also if a look-up took it in before.
#[test]
fn a_change_that_was_read_first_is_told_all_the_same() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("store");
    let writer = Store::create(&home, &Plan::default()).unwrap();
    let reader = Store::open_read_only(&home).unwrap();
    let soon = Duration::from_millis(1);
    reader.wait_for_change(soon).unwrap();
    assert!(!reader.wait_for_change(soon).unwrap());
    for round in 0..3 {
        writer.put(&key("file"), &file(), &bytes(round, 100)).unwrap();
        assert!(reader.refresh().unwrap());
        assert_eq!(reader.get(&key("file")).unwrap(), Some(bytes(round, 100)));
        assert!(reader.wait_for_change(soon).unwrap());
        assert!(!reader.wait_for_change(soon).unwrap());
    }
}

/// The end of the log, as a killed process left it, is in memory only, and its segment cannot be opened for writing.
#[test]
fn nothing_builds_on_a_log_that_cannot_be_made_durable() {
    let settings = geometry(1, 0, 1, (1, 0));
    for seed in 0..10 {
        let world = World::new(Simulated::devices(&settings), seed);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        store.put(&key("synced"), &file(), b"content").unwrap();
        let mut batch = store.batch(Durability::None);
        batch.put(&key("written"), &file(), b"content").unwrap();
        batch.commit().unwrap();
        let segment = store.engine().writer().unwrap().position.segment;
        let path = segment_path(store.engine().segment_id(segment));
        let left = world.after_kill(seed);
        drop(subject);
        left.device(0).set_writable(&path, false);
        let error = Simulated::open(&settings, &left).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        left.device(0).set_writable(&path, true);
        let subject = Simulated::open(&settings, &left).unwrap();
        subject.store().put(&key("later"), &file(), b"content").unwrap();
        let after = Simulated::open(&settings, &left.after_power_failure(seed)).unwrap();
        assert!(after.store().completeness().is_complete(), "{:?}", after.store().completeness().lines());
        for name in ["synced", "written", "later"] {
            assert_eq!(after.store().get(&key(name)).unwrap().as_deref(), Some(&b"content"[..]), "{seed}: {name}");
        }
    }
}
