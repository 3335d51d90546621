//! `docs/read_store.py` reads stores by docs/FORMAT.md alone: it lists and extracts the same as the command, even
//! without the index.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use granulo::progress::Progress;

use crate::args;
use crate::harness::{Ran, finish, skip, source_tree};
use crate::store_place::{Place, bytes, find, flip, snapshot};

/// A Python with xxhash; reports why there is none.
fn python() -> Option<&'static str> {
    let has_xxhash = |python: &&str| {
        Command::new(python).args(["-c", "import xxhash"]).output().is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| has_xxhash(python));
    if found.is_none() {
        skip("docs/read_store.py needs python3 with xxhash (Debian: python3-xxhash)");
    }
    found
}

fn script(python: &str, devices: &[PathBuf], get: Option<&str>) -> Ran {
    let get = get.map(|key| format!("--get={key}"));
    script_with(python, devices, &get.iter().map(String::as_str).collect::<Vec<_>>())
}

fn script_with(python: &str, devices: &[PathBuf], arguments: &[&str]) -> Ran {
    let mut command = Command::new(python);
    finish(command.arg(source_tree().join("docs/read_store.py")).args(devices).args(arguments))
}

/// Files that the script lists: sizes by path.
fn listed(ran: &Ran) -> BTreeMap<String, u64> {
    let text = ran.text();
    let sizes = text.lines().filter_map(|line| {
        let (size, path) = line.trim_start().split_once(' ')?;
        Some((path.to_owned(), size.parse().ok()?))
    });
    sizes.collect()
}

#[test]
fn a_page_of_python_reads_what_the_command_reads() {
    let Some(python) = python() else { return };
    for (fast, slow, align) in [(0, 0, "none"), (0, 0, "4096"), (2, 3, "none"), (2, 3, "512")] {
        let mut place = Place::new(fast, slow, &["--stripe-unit", "16KiB", "--align", align]);
        place.import(60, 3);
        place.put("later", &bytes(3, 5000)).ended(0);
        place.put("empty", b"").ended(0);
        place.put("replaced", b"first").ended(0);
        place.put("replaced", b"second").ended(0);
        for (key, rest) in [("i1/d1", ["-r", "i1/d1"].as_slice()), ("i1/d2/0002", &["i1/d2/0002"])] {
            place.run_on("rm", rest).ended(0);
            place.objects.retain(|name, _| name != key && !name.starts_with(&format!("{key}/")));
        }
        // With holes and with a second name.
        let tree = place.path("tree");
        fs::create_dir(&tree).unwrap();
        let sparse = fs::File::create(tree.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"behind a hole", 400_000).unwrap();
        sparse.set_len(900_000).unwrap();
        fs::write(tree.join("one"), bytes(8, 700)).unwrap();
        fs::hard_link(tree.join("one"), tree.join("two")).unwrap();
        place.run_on("import", [&tree]).ended(0);
        for name in ["sparse", "one", "two"] {
            place.objects.insert(name.to_owned(), fs::read(tree.join(name)).unwrap());
        }
        // Compaction moves records; removed objects stay removed.
        place.run_on("compact", ["--all"]).ended(0);
        place.put("after", b"the compaction").ended(0);
        place.is_whole();
        place.lose_index();

        let ran = script(python, &place.devices, None).ended(0);
        let sizes: BTreeMap<String, u64> =
            place.objects.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect();
        assert_eq!(listed(&ran), sizes, "{}", ran.said());
        for name in ["i1/d0/0000", "i1/z-large/0001", "later", "empty", "replaced", "sparse", "one", "two", "after"] {
            let ran = script(python, &place.devices, Some(name)).ended(0);
            assert!(ran.stdout == place.objects[name], "{name} has other bytes: {}", ran.said());
        }
        script(python, &place.devices, Some("i1/d1/0001")).ended(1);
    }
}

#[test]
fn the_script_reads_snapshots() {
    use granulo::store::{Choice, CompactOptions, Key, Store};
    let Some(python) = python() else { return };
    let mut place = Place::new(2, 3, &["--stripe-unit", "16KiB"]);
    place.import(30, 2);
    let then = place.objects.clone();
    let store = Store::open(&place.home).unwrap();
    let attributes = store.stat(&Key::parse("i1/d0/0000").unwrap()).unwrap().unwrap().attributes;
    store.create_snapshot("then").unwrap();
    store.put(&Key::parse("i1/d0/0000").unwrap(), &attributes, b"new").unwrap();
    store
        .rename(&Key::parse("i1/z-large").unwrap(), &Key::parse("y").unwrap(), granulo::store::Existing::Refuse)
        .unwrap();
    store.create_snapshot("between").unwrap();
    store.remove_tree(&Key::parse("i1/d1").unwrap()).unwrap();
    store.remove_snapshot("between").unwrap();
    let options = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&options, &Progress::default()).unwrap();
    store.put(&Key::parse("i1/d2/0002").unwrap(), &attributes, b"later").unwrap();
    drop(store);
    let at = |arguments: &[&str]| script_with(python, &place.devices, arguments);
    let ran = at(&["--at", "then"]).ended(0);
    let sizes: BTreeMap<String, u64> =
        then.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect();
    assert_eq!(listed(&ran), sizes, "{}", ran.said());
    for name in ["i1/d0/0000", "i1/d1/0001", "i1/d2/0002", "i1/z-large/0001"] {
        assert!(at(&["--at", "then", "--get", name]).ended(0).stdout == then[name], "{name} has other bytes");
    }
    let now = listed(&at(&[]).ended(0));
    assert_eq!((now.get("i1/d0/0000"), now.get("i1/d2/0002"), now.get("i1/d1/0001")), (Some(&3), Some(&5), None));
    assert!(now.contains_key("y/0001") && !now.contains_key("i1/z-large/0001"));
    assert!(at(&["--at", "between"]).ended(1).said().contains("there is no snapshot"));
}

#[test]
fn the_script_verifies_what_it_reads_and_goes_on_behind_damage() {
    let Some(python) = python() else { return };
    let mut place = Place::new(0, 0, &[]);
    place.import(20, 1);
    place.put("behind", b"the damage").ended(0);
    let (path, at) = find(&place.home.join("segments"), &place.objects["i1/d3/0003"]).unwrap();
    flip(&path, at + 5);
    let ran = script(python, &place.devices, Some("i1/d3/0003")).ended(1);
    assert!(ran.stdout.is_empty() && !ran.said().is_empty());
    // In the head of a record: only that record is lost.
    let (path, at) = find(&place.home.join("segments"), &place.objects["i1/d4/0004"]).unwrap();
    flip(&path, at - 10);
    let ran = script(python, &place.devices, None).ended(1);
    assert!(ran.said().contains("damage from byte"), "{}", ran.said());
    let listed = listed(&ran);
    let missing: Vec<_> = place.objects.keys().filter(|key| !listed.contains_key(*key)).collect();
    assert_eq!(missing, ["i1/d4/0004"]);
    assert_eq!(script(python, &place.devices, Some("behind")).ended(1).text(), "the damage");
}

#[test]
fn the_script_shows_directories_that_lie_in_each_other() {
    let Some(python) = python() else { return };
    let mut place = Place::new(0, 0, &[]);
    place.put("outer/1", b"one").ended(0);
    place.put("outer/inner/2", b"two").ended(0);
    let number = place.run_on("stat", ["outer/inner", "--json"]).ended(0).json()["number"].as_u64().unwrap();
    place.run_on("mv", ["outer/inner", "inner"]).ended(0);
    place.run_on("mv", ["outer", "inner"]).ended(0);
    // Both records of the first rename: the name occurs in that of the previous directory.
    let segments: Vec<_> =
        fs::read_dir(place.home.join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [segment] = &segments[..] else { panic!("{segments:?}") };
    let log = fs::read(segment).unwrap();
    let names: Vec<usize> = (0..log.len()).filter(|&at| log[at..].starts_with(b"inner")).collect();
    assert_eq!(names.len(), 3);
    names[1..].iter().for_each(|&at| flip(segment, at as u64));
    let ran = script(python, &place.devices, None).ended(1);
    let listed: Vec<String> = listed(&ran).into_keys().collect();
    assert_eq!(listed, [format!("lost+found/#{number}/2"), format!("lost+found/#{number}/outer/1")]);
    place.lose_index();
    let told = place.run_on("repair", [""; 0]).ended(1).text();
    assert!(told.contains("1 directory without a parent moved to lost+found"), "{told}");
    place.objects = [("2", b"two"), ("outer/1", b"one")]
        .map(|(below, content)| (format!("lost+found/#{number}/{below}"), content.to_vec()))
        .into();
    for (name, content) in &place.objects {
        assert_eq!(place.run_on("get", [name]).ended(0).stdout, *content);
    }
}

#[test]
fn the_script_verifies_units_of_large_files() {
    let Some(python) = python() else { return };
    let mut place = Place::new(0, 0, &[]);
    place.import(3, 1);
    script(python, &place.devices, Some("i1/z-large/0000")).ended(0);
    let (_, path, at) = place.a_unit("i1/z-large/0000");
    flip(&path, at);
    let ran = script(python, &place.devices, Some("i1/z-large/0000")).ended(1);
    assert!(ran.said().contains("damaged"), "{}", ran.said());
}

/// Two mirrors of which each went on without the other, and a third object that both have.
fn parted() -> Place {
    let mut place = Place::new(2, 0, &[]);
    place.put("both", b"before").ended(0);
    let file = place.path("file");
    fs::write(&file, "after").unwrap();
    for (away, name) in [(1, "first"), (0, "second")] {
        place.take_away(away, false);
        place.run_on("put", ["--degraded".as_ref(), name.as_ref(), file.as_os_str()]);
        place.bring_back(away);
    }
    place
}

#[test]
fn the_script_reads_one_side_of_two() {
    let Some(python) = python() else { return };
    let place = parted();
    let names = |devices: &[PathBuf]| listed(&script(python, devices, None)).into_keys().collect::<Vec<_>>();
    let ran = script(python, &place.devices, None).ended(1);
    assert!(ran.said().contains("two histories") && ran.stdout.is_empty(), "{}", ran.said());
    for (device, name) in [(0, "first"), (1, "second")] {
        let alone = [place.devices[device].clone()];
        assert_eq!(names(&alone), ["both", name]);
        assert_eq!(script(python, &alone, Some(name)).ended(0).text(), "after");
        assert_eq!(salvaged(&place, &device.to_string()), ["both", name]);
    }
    let ran = place.run_on("salvage", args!["--side", "7", "-o", place.path("nothing")]).ended(2);
    assert!(ran.said().contains("device 7 is on no side") && !place.path("nothing").exists(), "{}", ran.said());
    // The side that is not taken stays where it is, and comes back into nothing.
    place.run_on("repair", ["--take", "0"]);
    place.run_on("repair", [""; 0]);
    assert_eq!(place.list().0, ["both", "first"]);
    assert_eq!(names(&place.devices), ["both", "first"]);
    let ran = script(python, &place.devices, None).ended(0);
    let told = ran.said();
    let segment = told.split_whitespace().last().unwrap();
    let side = script_with(python, &place.devices, &["--side", segment]).ended(0);
    assert_eq!(listed(&side).into_keys().collect::<Vec<_>>(), ["both", "second"], "{told}");
    let sides = place.run_on("salvage", ["--json"]).ended(0).json()["sides"].clone();
    assert_eq!((&sides[0]["current"], &sides[1]["current"], &sides[2]), (&true.into(), &false.into(), &().into()));
    assert_eq!((&sides[1]["devices"][0], &sides[1]["objects_only_here"]), (&1.into(), &1.into()), "{sides}");
    let epoch = sides[1]["epochs"][0]["epoch"].as_str().unwrap();
    assert!(place.run_on("salvage", [""; 0]).ended(0).text().contains(epoch));
    for name in ["1", epoch] {
        assert_eq!(salvaged(&place, name), ["both", "second"]);
    }
    let of_script = script_with(python, &place.devices, &["--side", segment, "--get=second"]).ended(0);
    assert_eq!(fs::read(place.path("salvaged").join("second")).unwrap(), of_script.stdout);
    // Nothing of it is in the store.
    assert_eq!(place.list().0, ["both", "first"]);
}

/// Its epochs are forgotten, and it has released a segment whose number the store uses, too.
#[test]
fn the_script_lists_what_the_store_lists_beside_a_side_that_is_older_than_the_history() {
    /// More than the store knows.
    const SESSIONS: u64 = 260;
    let Some(python) = python() else { return };
    let place = parted();
    let names = |ran: &Ran| listed(ran).into_keys().collect::<Vec<_>>();
    let before = place.segments(1);
    place.take_away(0, false);
    place.run_on("compact", ["--all", "--degraded"]);
    place.bring_back(0);
    let of_side: Vec<PathBuf> = place.segments(1).into_iter().filter(|path| !before.contains(path)).collect();
    let is_released = before.iter().any(|path| !path.exists());
    assert!(is_released && !of_side.is_empty(), "{before:?}, {of_side:?}");
    place.run_on("repair", ["--take", "0"]);
    place.run_on("repair", [""; 0]);
    let key = |name: &str| granulo::store::Key::parse(name).unwrap();
    for session in 0..SESSIONS {
        let store = granulo::store::Store::open(&place.home).unwrap();
        let attributes = store.stat(&key("both")).unwrap().unwrap().attributes;
        store.put(&key("later"), &attributes, &session.to_le_bytes()).unwrap();
    }
    assert_eq!(place.list().0, ["both", "first", "later"]);
    let ran = script(python, &place.devices, None).ended(0);
    assert_eq!(names(&ran), place.list().0, "{}", ran.said());
    let segment = of_side.last().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(ran.said().contains(segment), "{segment}: {}", ran.said());
    let side = script_with(python, &place.devices, &["--side", segment]).ended(0);
    assert_eq!(names(&side), ["both", "second"], "{}", side.said());
    assert_eq!(salvaged(&place, "1"), ["both", "second"]);
}

/// Exports a side; the names in it.
fn salvaged(place: &Place, side: &str) -> Vec<String> {
    let target = place.path("salvaged");
    let _ = fs::remove_dir_all(&target);
    place.run_on("salvage", args!["--side", side, "-q", "-o", target.clone()]).ended(0);
    let mut names: Vec<String> =
        fs::read_dir(&target).unwrap().map(|found| found.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_script_misses_segments_and_leaves_released_ones_alone() {
    let Some(python) = python() else { return };
    let mut place = Place::new(2, 0, &[]);
    let segment = |place: &Place| {
        let segments = place.segments(0);
        let last = segments.iter().max().unwrap();
        (last.clone(), place.devices[1].join("segments").join(last.file_name().unwrap()), fs::read(last).unwrap())
    };
    place.put("stays", b"1").ended(0);
    place.put("goes", b"2").ended(0);
    let (released, ..) = segment(&place);
    let old = fs::read(&released).unwrap();
    place.run_on("rm", ["goes"]).ended(0);
    place.run_on("compact", ["--all"]).ended(0);
    place.put("later", b"3").ended(0);
    assert!(!released.exists());
    let expected = BTreeMap::from([("later".to_owned(), 1), ("stays".to_owned(), 1)]);
    assert_eq!(listed(&script(python, &place.devices, None).ended(0)), expected);
    // From an old copy.
    fs::write(&released, old).unwrap();
    assert_eq!(listed(&script(python, &place.devices, None).ended(0)), expected);
    fs::remove_file(&released).unwrap();
    let (here, there, content) = segment(&place);
    for path in [&here, &there] {
        fs::remove_file(path).unwrap();
    }
    let said = script(python, &place.devices, None).ended(1).said();
    assert!(said.contains("were acknowledged") || said.contains("is missing"), "{said}");
    fs::write(here, content).unwrap();
    assert_eq!(listed(&script(python, &place.devices, None).ended(0)), expected);
}

#[test]
fn the_script_reads_segments_without_a_superblock_and_the_command_refuses_that_of_another_store() {
    let Some(python) = python() else { return };
    let (mut place, other) = (Place::new(0, 0, &[]), Place::new(0, 0, &[]));
    place.import(12, 1);
    let superblock = place.home.join("superblock");
    let own = fs::read(&superblock).unwrap();
    fs::remove_file(&superblock).unwrap();
    let ran = script(python, &place.devices, None).ended(1);
    assert!(ran.said().contains("superblock") && listed(&ran).len() == place.objects.len(), "{}", ran.said());
    for name in ["i1/d0/0000", "i1/z-large/0000"] {
        assert!(script(python, &place.devices, Some(name)).ended(1).stdout == place.objects[name], "{name}");
    }
    // Nothing is shown as an empty store, and nothing is written.
    fs::copy(other.home.join("superblock"), &superblock).unwrap();
    let content = |place: &Place| {
        let mut files = snapshot(&place.home);
        files.remove(&place.home.join("lock"));
        files
    };
    let before = content(&place);
    for command in ["ls", "put", "check", "repair"] {
        let ran = match command {
            "put" => place.put("another", b"1").ended(2),
            _ => place.run_on(command, [""; 0]).ended(2),
        };
        assert!(ran.said().contains("its segments belong to another store"), "{command}: {}", ran.said());
    }
    place.run_on("repair", ["--accept"]).ended(2);
    assert!(content(&place) == before);
    fs::write(&superblock, own).unwrap();
    place.is_whole();
}
