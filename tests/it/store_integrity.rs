//! Integrity of a store: damaged, missing, swapped or old data is detected, explained, never returned, and repaired
//! where there is redundancy. The damage is done to the files of real stores with four geometries.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use granulo::store::ids::DeviceNumber;
use granulo::store::{Cause, Key, OpenOptions, Problem, Progress, RepairOptions, ScrubOptions, Store, rebuild_index};

use crate::harness::{Ran, files_below, granulo, run, sandbox};
use crate::store_sample::{
    GEOMETRIES, Sample, bytes, check, file, files, flip, in_log, key, planned, repaired, repaired_with,
};

#[test]
fn a_whole_store_of_any_geometry_is_clean() {
    for geometry in GEOMETRIES {
        let sample = Sample::new(geometry);
        sample.is_whole();
        sample.is_clean();
        let store = Store::open(&sample.home()).unwrap();
        assert!(check(&store, true).1.is_empty());
        drop(store);
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(rebuilt.recovered().damage, []);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
        drop(rebuilt);
        sample.is_whole();
    }
}

/// `GRANULO_FLIPS`: the number of flips in each file.
#[test]
fn every_flipped_bit_is_found_or_harmless_and_never_read() {
    for geometry in GEOMETRIES {
        let sample = Sample::new(geometry);
        let has_redundancy = geometry.2 > 1;
        let flips: usize = std::env::var("GRANULO_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(16);
        let mut all: Vec<(PathBuf, usize)> = Vec::new();
        for directory in sample.devices().into_iter().chain([sample.home()]) {
            all.extend(
                files(&directory)
                    .into_iter()
                    .map(|path| (fs::metadata(&path).unwrap().len() as usize, path))
                    .filter(|f| f.0 > 0)
                    .map(|(s, p)| (p, s)),
            );
        }
        all.sort();
        all.dedup();
        for (path, size) in all {
            // Every byte of small files in turn, with another bit each time; a prime stride avoids any period.
            let stride = (size / flips).max(1) | 1;
            for (round, at) in (0..size).step_by(stride).enumerate() {
                let bit = (round % 8) as u8;
                flip(&path, at, bit);
                let what = format!("{geometry:?}: bit {bit} of byte {at} in {}", path.display());
                match Store::open_read_only(&sample.home()) {
                    Err(_) => assert!(!has_redundancy || path.ends_with("superblock"), "{what}: cannot be opened"),
                    Ok(store) => {
                        let unreadable = sample.unreadable(&store);
                        let (_, problems) = check(&store, true);
                        assert!(!problems.is_empty() || !sample.is_always_found(&path, at), "{what}: not found");
                        assert!(unreadable == 0 || !has_redundancy, "{what}: {unreadable} unreadable");
                        assert!(unreadable == 0 || !problems.is_empty(), "{what}: unreadable, and not found");
                    }
                }
                flip(&path, at, bit);
            }
        }
        sample.is_clean();
    }
}

#[test]
fn what_is_damaged_is_repaired_from_redundancy() {
    for geometry in &GEOMETRIES[1..] {
        let sample = Sample::new(*geometry);
        for (round, path) in sample.devices().iter().flat_map(|directory| files(directory)).enumerate() {
            let size = fs::metadata(&path).unwrap().len() as usize;
            if size == 0
                || !(path.to_string_lossy().contains("segments/") || path.to_string_lossy().contains("extents/"))
            {
                continue;
            }
            for at in [0, size / 3, size - 1] {
                flip(&path, at, (round % 8) as u8);
            }
            if round % 2 == 0 {
                let store = Store::open(&sample.home()).unwrap();
                let mut repaired = Vec::new();
                let report = store
                    .scrub(
                        ScrubOptions::default(),
                        &mut |problem, is_repaired| repaired.push((problem.to_string(), is_repaired)),
                        &Progress::default(),
                    )
                    .unwrap();
                assert!(
                    report.is_complete && report.found > 0 && report.found == report.repaired,
                    "{path:?}: {repaired:?}"
                );
                let status = store.last_scrub().unwrap();
                assert_eq!((status.report.found, status.finished_nanoseconds.is_some()), (report.found, true));
            } else {
                let plan = planned(&sample.home());
                assert!(!plan.is_empty() && plan.lost.is_empty(), "{plan:?}");
                let report = repaired_with(&sample.home(), &plan, RepairOptions::default());
                assert!(report.is_complete && report.check.problems() == 0, "{path:?}: {report:?}");
            }
            sample.is_clean();
        }
        sample.is_whole();
    }
}

#[test]
fn missing_and_truncated_files_are_explained_and_recreated() {
    let sample = Sample::new(GEOMETRIES[2]);
    let segment = files(&sample.devices()[0].join("segments")).remove(0);
    let whole = fs::read(&segment).unwrap();
    let extent = files(&sample.devices()[2].join("extents")).remove(0);
    fs::write(&segment, &whole[..whole.len() / 2]).unwrap();
    fs::remove_file(&extent).unwrap();
    let store = Store::open_read_only(&sample.home()).unwrap();
    assert_eq!(sample.unreadable(&store), 0);
    let (_, problems) = check(&store, false);
    let said = problems.join("\n");
    assert!(said.contains("the segment is truncated: it has") && said.contains("run granulo store repair"), "{said}");
    assert!(said.contains("the extent file is missing"), "{said}");
    drop(store);
    fs::remove_file(&segment).unwrap();
    let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
    assert!(problems.join("\n").contains("the segment is missing"), "{problems:?}");
    repaired(&sample.home());
    assert_eq!(fs::read(&segment).unwrap(), whole);
    sample.is_clean();
}

#[test]
fn without_redundancy_what_is_lost_is_named_and_given_up_only_on_demand() {
    let mut sample = Sample::new(GEOMETRIES[0]);
    let (segment, at) = in_log(&sample, &sample.content["d0/e/3"][100..164]);
    flip(&segment, at, 3);
    // The map of a large object, and the record of a directory.
    let (_, at) = in_log(&sample, &sample.content["d0/e/6"][..64]);
    flip(&segment, at, 7);
    let (_, at) = in_log(&sample, &sample.content["d1/first"][..64]);
    flip(&segment, at, 0);
    let plan = planned(&sample.home());
    let said: Vec<String> = plan.lost.iter().map(Problem::to_string).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    for object in ["it affects d0/e/3", "it affects d0/e/6", "it affects shared file"] {
        assert!(said.iter().any(|said| said.contains(object) && said.contains("backup")), "{said:?}");
    }
    let kept = repaired_with(&sample.home(), &plan, RepairOptions::default());
    assert_eq!((kept.dropped, kept.lost.len(), kept.given_back), (0, 3, 0));
    assert_eq!(sample.unreadable(&Store::open_read_only(&sample.home()).unwrap()), 4);
    let options = RepairOptions { drop_lost: true, ..RepairOptions::default() };
    let dropped = repaired_with(&sample.home(), &plan, options);
    assert_eq!((dropped.dropped, dropped.given_back, dropped.check.problems()), (4, 1, 0), "{dropped:?}");
    for name in ["d0/e/3", "d0/e/6", "d1/first", "d2/second"] {
        let store = Store::open_read_only(&sample.home()).unwrap();
        assert_eq!(store.get(&key(name)).unwrap(), None);
        sample.content.remove(name);
    }
    sample.is_whole();
    assert_eq!(check(&Store::open_read_only(&sample.home()).unwrap(), true).1, Vec::<String>::new());
    let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
    assert_eq!(sample.unreadable(&rebuilt), 0);
    assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
}

#[test]
fn damage_where_no_object_is_in_use_costs_nothing() {
    // The record of a removed object, and the header of the segment.
    for damage in [0, 1] {
        let sample = Sample::new(GEOMETRIES[0]);
        let (segment, at) = in_log(&sample, &bytes(1007, 2000)[..64]);
        flip(&segment, if damage == 0 { at } else { 60 }, 1);
        let store = Store::open_read_only(&sample.home()).unwrap();
        let (report, problems) = check(&store, true);
        assert!(report.harmless > 0 && report.problems() == report.harmless, "{problems:?}");
        drop(store);
        let report = repaired(&sample.home());
        assert_eq!((report.given_back, report.check.problems()), (1, 0), "{report:?}");
        assert!(!segment.exists());
        sample.is_whole();
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(sample.unreadable(&rebuilt), 0);
        assert_eq!(rebuilt.get(&key("gone")).unwrap(), None);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
    }
}

#[test]
fn a_superblock_is_recreated_from_the_others() {
    for number in [0, 1, 3] {
        let sample = Sample::new(GEOMETRIES[2]);
        let superblock = sample.devices()[number].join("superblock");
        let length = fs::metadata(&superblock).unwrap().len() as usize;
        fs::write(&superblock, vec![0x55; length]).unwrap();
        let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
        assert!(problems.join("\n").contains(&format!("device {number} has a damaged superblock")), "{problems:?}");
        let report = repaired(&sample.home());
        assert_eq!(report.admitted, [DeviceNumber(number as u16)]);
        sample.is_clean();
    }
}

#[test]
fn an_old_copy_of_the_log_is_explained() {
    let mut sample = Sample::new(GEOMETRIES[1]);
    let old: Vec<Vec<(PathBuf, Vec<u8>)>> = sample
        .devices()
        .iter()
        .map(|device| {
            files(&device.join("segments")).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
        })
        .collect();
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "newest", bytes(5, 500));
    drop(store);
    for (path, content) in old.into_iter().flatten() {
        fs::write(path, content).unwrap();
    }
    let is_told = |store: &Store, batches: (u64, u64)| {
        let missing = &store.completeness().missing;
        assert!(!missing.is_empty() && missing.iter().all(|one| one.cause == Cause::EndsBeforeMark), "{missing:?}");
        assert!(missing.iter().any(|one| one.batches == Some(batches)), "{missing:?}");
        assert_eq!(store.get(&key("newest")).unwrap(), None);
    };
    let acknowledged = sample.content.remove("newest");
    // A reader reports it, and so do the next writer and everyone after it.
    let reader = Store::open_read_only(&sample.home()).unwrap();
    let batches = reader.completeness().missing.iter().find_map(|one| one.batches).unwrap();
    for store in [reader, Store::open(&sample.home()).unwrap(), Store::open_read_only(&sample.home()).unwrap()] {
        is_told(&store, batches);
        assert_eq!(sample.unreadable(&store), 0);
    }
    let listed = Ran::from(granulo().args(["store", "ls"]).arg(sample.home()).output().unwrap());
    assert!(listed.ended(1).said().contains("the log ends before batch"));
    // New writes are accepted as they are, and the store continues to report what it lacks.
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "newest", acknowledged.unwrap());
    drop(store);
    let store = Store::open_read_only(&sample.home()).unwrap();
    assert_eq!((sample.unreadable(&store), store.completeness().is_complete()), (0, false));
}

#[test]
fn a_check_beside_a_writer_gives_no_false_alarm() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let store = Store::open(&home).unwrap();
            for round in 0..150u64 {
                let name = format!("w{}/{}", round % 5, round % 37);
                store.put(&key(&name), &file(), &bytes(round, (round as usize * 911) % 40_000)).unwrap();
                if round % 7 == 0 {
                    store.remove(&key(&format!("w{}/{}", (round + 3) % 5, (round + 11) % 37))).unwrap();
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut checks = 0;
        while !ended.load(std::sync::atomic::Ordering::Relaxed) || checks == 0 {
            let store = Store::open_read_only(&home).unwrap();
            let (_, problems) = check(&store, checks % 2 == 0);
            assert_eq!(problems, Vec::<String>::new());
            checks += 1;
        }
    });
    sample.is_clean();
}

#[test]
fn a_scrub_goes_on_where_it_was_and_keeps_to_its_rate() {
    let sample = Sample::new(GEOMETRIES[1]);
    let store = Store::open(&sample.home()).unwrap();
    for number in 0..40u64 {
        store.put(&key(&format!("more/{number}")), &file(), &bytes(number, 8000)).unwrap();
    }
    let stored: u64 = sample
        .devices()
        .iter()
        .flat_map(|device| files(&device.join("segments")))
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    let started = std::time::Instant::now();
    let rated = ScrubOptions { bytes_per_second: Some(stored), resume: false };
    let report = store.scrub(rated, &mut |_, _| {}, &Progress::default()).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert!(report.is_complete && (0.9..1.6).contains(&seconds), "{seconds} s for what a second should take");
    // Interrupted in the second half.
    let options = ScrubOptions::default();
    let half = Progress::observed(move |progress| {
        if progress.snapshot().bytes >= u128::from(stored / 2) {
            progress.stop();
        }
    });
    let report = store.scrub(options, &mut |_, _| {}, &half).unwrap();
    assert!(!report.is_complete);
    drop(store);
    let store = Store::open(&sample.home()).unwrap();
    let report = store.scrub(options, &mut |_, _| {}, &Progress::default()).unwrap();
    assert!(report.is_complete && report.found == 0);
    assert!(store.last_scrub().unwrap().finished_nanoseconds.is_some());
}

#[test]
fn commands_say_what_they_found_and_end_so() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let store = |arguments: &[&str]| {
        let mut all = vec!["store", arguments[0], home.to_str().unwrap()];
        all.extend(&arguments[1..]);
        Ran::from(granulo().args(all).output().unwrap())
    };
    assert!(store(&["check"]).ended(0).text().contains("metadata: no problems"));
    assert!(store(&["check", "--deep"]).ended(0).text().contains("every byte of"));
    assert_eq!(store(&["scrub", "--json"]).ended(0).json()["found"], 0);
    assert!(store(&["repair"]).ended(0).text().contains("There is nothing to repair."));
    let segment = files(&sample.devices()[1].join("segments")).remove(0);
    flip(&segment, 500, 2);
    let found = store(&["check", "--deep", "--json"]).ended(1).json();
    assert_eq!(
        (&found["schema"], &found["repairable"], &found["lost"]),
        (&"granulo/store-check/1".into(), &1.into(), &0.into())
    );
    assert_eq!((&found["problems"][0]["kind"], &found["problems"][0]["device"]), (&"record".into(), &1.into()));
    let plan = store(&["repair", "--dry-run"]).ended(1).text();
    assert!(plan.contains("Would do:") && plan.contains("repairable"), "{plan}");
    let done = store(&["repair", "--json"]).ended(0).json();
    assert_eq!((&done["repaired"], &done["problems_left"], &done["done"]), (&1.into(), &0.into(), &true.into()));
    fs::remove_dir_all(&sample.devices()[3]).unwrap();
    assert!(store(&["check"]).ended(1).text().contains("device 3 is missing"));
    let onto = sample.sandbox.path().join("new");
    let said = store(&["rebuild", "--onto", onto.to_str().unwrap(), "--dry-run"]).ended(0).text();
    assert!(said.contains("Would rebuild what was on device 3: 0 segments"), "{said}");
    assert!(!onto.exists());
    assert_eq!(
        store(&["rebuild", "--device", "3", "--onto", onto.to_str().unwrap(), "--json"]).ended(0).json()["complete"],
        true
    );
    let refused = store(&["rebuild"]).ended(2).said();
    assert!(refused.contains("no device is lost (see granulo store status)"), "{refused}");
    assert!(store(&["check", "--rebuild-index"]).ended(0).said().contains("rebuilt the index from"));
    sample.is_clean();
    sample.is_whole();
}

/// Runs a command on a store.
fn on(home: &Path, command: &str, rest: &[&OsStr]) -> Ran {
    run([OsStr::new("store"), OsStr::new(command), home.as_os_str()].iter().chain(rest))
}

#[test]
fn a_damaged_table_of_the_only_index_is_rebuilt_by_a_repair() {
    let sandbox = sandbox();
    let [source, home] = ["source", "store"].map(|name| sandbox.path().join(name));
    fs::create_dir(&source).unwrap();
    (0..3_000).for_each(|number| fs::write(source.join(format!("{number:05}")), bytes(number, 100)).unwrap());
    let (all, deep) = ([OsStr::new("--all")], [OsStr::new("--deep")]);
    for (command, rest) in [("init", &[][..]), ("import", &[source.as_os_str()]), ("compact", &all)] {
        on(&home, command, rest).ended(0);
    }
    let tables = files_below(&home.join("index"), "table");
    flip(tables.first().expect("a compaction leaves one"), 100, 0);
    let checked = on(&home, "check", &deep).ended(1).text();
    assert!(checked.contains("cannot be read to its end"), "{checked}");
    on(&home, "repair", &[]).ended(0);
    on(&home, "check", &deep).ended(0);
    let store = Store::open_read_only(&home).unwrap();
    assert_eq!(store.walk(&Key::root()).unwrap().count(), 3_001);
}

#[test]
fn a_file_with_two_names_is_removed_although_its_content_is_lost() {
    let sandbox = sandbox();
    let [source, home] = ["source", "store"].map(|name| sandbox.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "content that is nowhere else").unwrap();
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    on(&home, "init", &[]).ended(0);
    on(&home, "import", &[source.as_os_str()]).ended(0);
    let segment = files(&home.join("segments")).remove(0);
    let log = fs::read(&segment).unwrap();
    flip(&segment, log.windows(7).position(|window| window == b"nowhere").unwrap(), 0);
    for name in ["a", "b"].map(OsStr::new) {
        on(&home, "get", &[name]).ended(1);
        on(&home, "rm", &[name]).ended(0);
    }
    on(&home, "get", &[OsStr::new("a")]).ended(2);
    on(&home, "check", &[]).ended(0);
}
