//! Extent files: unreferenced bytes, removal, and compaction that frees whole files.

use super::*;
use crate::format::ids::SegmentNumber;

fn extent_files(home: &Path) -> BTreeMap<std::path::PathBuf, u64> {
    let listed = std::fs::read_dir(home.join("extents")).unwrap().map(|entry| entry.unwrap());
    listed.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
}

fn check(store: &Store) -> CheckReport {
    let mut found = Vec::new();
    let options = CheckOptions { is_deep: true, bytes_per_second: None };
    let report = store.check(options, &mut |problem| found.push(problem), &Progress::default()).unwrap();
    assert!(found.is_empty(), "{found:?}");
    report
}

#[test]
fn what_nothing_names_stays_in_quarantine_until_compaction_gives_back_the_file() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &small_segments()).unwrap();
    store.put(&key("kept"), &file(), &bytes(1, 100_000)).unwrap();
    let mut batch = store.batch(Durability::Batch);
    batch.shared(&file(), &mut &b"no name"[..], None).unwrap();
    batch.commit().unwrap();
    drop(store);
    // Units of a writer that died before it could refer to them: in a file in use, and in one of their own.
    let (last, _) = extent_files(&home).pop_last().unwrap();
    let mut left = std::fs::OpenOptions::new().append(true).open(&last).unwrap();
    std::io::Write::write_all(&mut left, &bytes(2, 500_000)).unwrap();
    drop(left);
    std::fs::write(home.join("extents/00000077-12345678"), bytes(3, 5_000_000)).unwrap();
    let before = extent_files(&home);
    let quarantined =
        Store::open_read_only(&home).unwrap().check(CheckOptions::default(), &mut |_| (), &Progress::default());
    assert_eq!(quarantined.unwrap().quarantined_bytes, 5_500_000);
    for _ in 0..2 {
        let store = Store::open(&home).unwrap();
        store.put(&key("more"), &file(), &bytes(4, 100_000)).unwrap();
        let now = extent_files(&home);
        assert!(
            before.iter().all(|(path, size)| now[path] >= *size),
            "neither recovery nor a writer cuts anything off"
        );
        assert!(std::fs::read(&last).unwrap().ends_with(&bytes(2, 500_000)), "nor overwrites it");
    }
    let store = Store::open(&home).unwrap();
    let options = CompactOptions { is_alone: true, ..CompactOptions::default() };
    let plan = store.plan_compaction(&options).unwrap();
    // And one with the replaced object.
    assert_eq!((plan.extents.len(), plan.live_unit_bytes() > 90_000), (3, true), "{plan:?}");
    assert!(plan.quarantined_bytes() >= 5_500_000 && plan.gained_bytes() >= 5_500_000);
    let done = compact(&store, &options);
    assert_eq!((done.extent_files, done.moved_unit_bytes), (3, plan.live_unit_bytes()));
    assert!(done.gained_bytes >= 5_400_000, "{done:?}");
    assert_eq!(store.plan_compaction(&options).unwrap().extents, []);
    assert!(extent_files(&home).values().sum::<u64>() < 300_000, "{:?}", extent_files(&home));
    assert!(store.get(&key("kept")).unwrap().unwrap() == bytes(1, 100_000));
    assert!(store.get(&key("more")).unwrap().unwrap() == bytes(4, 100_000));
    assert_eq!(store.status(true).unwrap().census.unwrap().files, 2, "the file without a name is gone");
    drop(store);
    assert_eq!(check(&Store::open_read_only(&home).unwrap()).quarantined_bytes, 0);
    // The moved maps are in the log.
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    let store = Store::open(&home).unwrap();
    assert!(store.get(&key("kept")).unwrap().unwrap() == bytes(1, 100_000));
    assert!(store.get(&key("more")).unwrap().unwrap() == bytes(4, 100_000));
    check(&store);
}

/// A store with 12 large objects in extent files of 256 KiB, of which 9 are removed.
fn with_dead_extents(home: &Path) -> (Store, Model) {
    let store = Store::create(home, &small_segments()).unwrap();
    let mut model = Model::new();
    for at in 0..12u64 {
        let path = format!("d/f{at:02}");
        store.put(&key(&path), &file(), &bytes(at, 100_000)).unwrap();
        model.insert(path, bytes(at, 100_000));
    }
    for at in (0..12).filter(|at| at % 4 > 0) {
        let path = format!("d/f{at:02}");
        assert!(store.remove(&key(&path)).unwrap());
        model.remove(&path);
    }
    (store, model)
}

#[test]
fn removing_gives_nothing_back_and_compaction_whole_files() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, model) = with_dead_extents(&home);
    let before = extent_files(&home);
    assert!(before.values().sum::<u64>() > 1_100_000 && before.len() > 4, "{before:?}");
    let versions = |store: &Store| -> Vec<(Vec<u8>, u64)> {
        index_of(store).0.into_iter().map(|(key, entry)| (key, entry.id)).collect()
    };
    let ids = versions(&store);
    let done = compact(&store, &CompactOptions { is_alone: true, ..CompactOptions::default() });
    assert!(done.extent_files >= 5 && done.moved_unit_bytes >= 190_000, "{done:?}");
    let after = extent_files(&home);
    assert!(after.values().sum::<u64>() < 500_000, "{after:?}");
    // Each file is unchanged or new; nothing was punched or truncated.
    assert!(after.iter().all(|(path, size)| before.get(path).is_none_or(|before| size >= before)));
    assert!(walked(&store) == model && versions(&store) == ids);
    check(&store);
    drop(store);
    drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
    let store = Store::open(&home).unwrap();
    assert!(walked(&store) == model);
    check(&store);
}

#[test]
fn an_extent_file_that_a_reader_needs_goes_after_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, _) = with_dead_extents(&home);
    let reader = Store::open_read_only(&home).unwrap();
    // One thread, which waits for room. Several may have read all of it by now: then nothing needs the files any more.
    let mut load = reader.load_by(&Key::root(), 1).unwrap();
    let first = load.next().unwrap().unwrap();
    let before = extent_files(&home);
    let done = compact(&store, &ALL);
    assert!(done.waiting_bytes > 500_000 && done.extent_files > 4, "{done:?}");
    let during = extent_files(&home);
    assert!(before.keys().all(|path| during.contains_key(path)), "a reader has them open");
    drop(first);
    assert!(load.all(|piece| piece.is_ok()), "everything of the old state is still there");
    drop((load, reader));
    // A writer that closes frees what readers have released.
    drop(store);
    let after = extent_files(&home);
    assert!(!before.keys().any(|path| after.contains_key(path)) && !after.is_empty(), "{after:?}");
}

#[test]
fn a_batch_that_is_open_keeps_its_files() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, mut model) = with_dead_extents(&home);
    let mut batch = store.batch(Durability::Batch);
    batch.put(&key("late"), &file(), &bytes(9, 90_000)).unwrap();
    model.insert("late".to_owned(), bytes(9, 90_000));
    let done = compact(&store, &CompactOptions { is_alone: false, ..ALL });
    assert!(done.extent_files > 0, "{done:?}");
    batch.commit().unwrap();
    assert!(walked(&store) == model);
    check(&store);
}

#[test]
fn an_index_that_shows_nothing_gives_nothing_back() {
    // Disaster 5: entries of the index are lost, and its accounts reveal that.
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, _) = with_dead_extents(&home);
    let before = extent_files(&home);
    let state = store.engine().view().state.clone();
    let empty = crate::index::catalog::State { recent: Default::default(), tables: Default::default(), ..state };
    store.engine().set_state(empty).unwrap();
    assert_eq!(walked(&store), Model::new());
    let error = store.compact(&ALL, &Progress::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("nothing is freed"), "{error}");
    assert_eq!(extent_files(&home), before);
}

#[test]
fn an_account_of_units_that_is_too_low_gives_nothing_back() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, _) = with_dead_extents(&home);
    let before = extent_files(&home);
    let mut state = store.engine().view().state.clone();
    let rows = std::sync::Arc::make_mut(&mut state.extents);
    rows.values_mut().for_each(|row| row.live_bytes = 0);
    store.engine().set_state(state).unwrap();
    let error = store.compact(&ALL, &Progress::default()).unwrap_err();
    assert!(error.to_string().contains("large objects have more in extent file"), "{error}");
    assert_eq!(extent_files(&home), before);
    // Nor can they be subtracted again.
    let error = store.remove(&key("d/f00")).unwrap_err();
    assert!(error.to_string().contains("has less in use than is to be subtracted"), "{error}");
    assert!(store.get(&key("d/f00")).unwrap().is_some(), "it is as it was");
}

#[test]
fn a_removal_that_cannot_read_what_it_removes_leaves_it() {
    // Disaster 6: a media error on a descriptor is an error, and nothing is removed. (A directory in place of the file
    // can be opened, and not read.)
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, model) = with_dead_extents(&home);
    let segments = segments(&home);
    drop(store);
    let store = Store::open(&home).unwrap();
    let away: Vec<_> = segments.iter().map(|path| (path, path.with_extension("away"))).collect();
    away.iter().for_each(|(path, away)| {
        std::fs::rename(path, away).unwrap();
        std::fs::create_dir(path).unwrap();
    });
    let forget_files = || {
        for number in 1..=segments.len() as u64 {
            store.engine().devices.forget_segment(store.engine().segment_id(SegmentNumber(number)));
        }
    };
    forget_files();
    assert!(store.remove(&key("d/f00")).is_err());
    assert!(store.remove_tree(&key("d")).is_err());
    away.iter().for_each(|(path, away)| {
        std::fs::remove_dir(path).unwrap();
        std::fs::rename(away, path).unwrap();
    });
    forget_files();
    assert!(walked(&store) == model, "what is listed is there");
    drop(store);
    let store = Store::open(&home).unwrap();
    assert!(walked(&store) == model, "and the log knows of no removal");
    assert!(store.remove_tree(&key("d")).unwrap());
    assert_eq!(walked(&store), Model::new());
}

/// The file with its descriptor was deleted, or emptied by a power failure.
#[test]
fn an_object_whose_segment_is_gone_can_be_replaced_and_removed() {
    for is_emptied in [false, true] {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let (store, model) = with_dead_extents(&home);
        drop(store);
        for path in segments(&home) {
            match is_emptied {
                true => std::fs::write(path, b"").unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
        let store = Store::open(&home).unwrap();
        let mut names: Vec<&str> = model.keys().map(String::as_str).collect();
        let replaced = names.remove(0);
        store.put(&key(replaced), &file(), &bytes(7, 100_000)).unwrap();
        assert!(store.remove(&key(names.remove(0))).unwrap());
        drop(store);
        let plan = plan_repair(&home, &OpenOptions::default(), None, &mut |_| {}, &Progress::default()).unwrap();
        let options = RepairOptions { drop_lost: true, accept: true, ..RepairOptions::default() };
        let how = OpenOptions::default();
        let report = repair(&home, &how, &plan, options, &mut |_, _| {}, &Progress::default()).unwrap();
        assert_eq!((report.dropped, report.check.problems()), (names.len() as u64, 0), "{report:?}");
        let store = Store::open(&home).unwrap();
        assert_eq!(walked(&store).into_keys().collect::<Vec<_>>(), [replaced]);
        assert_eq!(store.get(&key(replaced)).unwrap().unwrap(), bytes(7, 100_000));
    }
}

#[test]
fn a_descriptor_that_is_damaged_can_be_removed_and_its_units_are_counted_by_compaction() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let (store, mut model) = with_dead_extents(&home);
    let entry = store.entry(&key("d/f00")).unwrap().unwrap().entry;
    let path = segments(&home).swap_remove(entry.location.segment.0 as usize - 1);
    let mut content = std::fs::read(&path).unwrap();
    content[entry.location.offset.0 as usize + 2000] ^= 1;
    std::fs::write(&path, content).unwrap();
    // Its references are unknown: the files whose accounts exceed the sum of the others stay.
    let error = store.get(&key("d/f00")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    compact(&store, &CompactOptions { is_alone: true, ..CompactOptions::default() });
    let with_it = extent_files(&home).values().sum::<u64>();
    assert!(store.remove(&key("d/f00")).unwrap());
    model.remove("d/f00");
    compact(&store, &ALL);
    assert!(extent_files(&home).values().sum::<u64>() + 90_000 < with_it);
    assert!(walked(&store) == model);
}

#[test]
fn a_removal_without_a_thread_is_durable_and_does_not_panic() {
    // Disaster 6: units on several devices, and no thread to sync them.
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("home");
    let slow = (0..4).map(|at| sandbox.path().join(format!("slow{at}"))).collect();
    let plan =
        Plan { fast: vec![sandbox.path().join("fast0"), sandbox.path().join("fast1")], slow, ..small_segments() };
    let store = Store::create(&home, &plan).unwrap();
    crate::devices::threads::without_threads(|| {
        for at in 0..4 {
            store.put(&key(&format!("d/f{at}")), &file(), &bytes(at, 100_000)).unwrap();
        }
        assert_eq!(loaded_here(&store), 5);
        assert!(store.remove_tree(&key("d")).unwrap());
        compact(&store, &ALL);
    });
    assert!(store.load(&Key::root()).is_ok());
    drop(store);
    let store = Store::open(&home).unwrap();
    assert_eq!(walked(&store), Model::new());
    check(&store);
}

/// Number of objects that are loaded by this thread alone.
fn loaded_here(store: &Store) -> usize {
    let keys: Vec<Key> = store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key).collect();
    let count = AtomicU64::new(0);
    store.get_many(&keys, 8, |_, object| {
        object.unwrap().unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    });
    count.into_inner() as usize
}
