//! Space of a store on real file systems and across processes: overflow and rebalance with full devices, compaction
//! beside readers, and the output of commands.

use std::path::Path;
use std::process::{Command, Stdio};

use granulo::error::ErrorKind;
use granulo::progress::Progress;
use granulo::store::{Attributes, Durability, Key, Plan, Store, Time};
use granulo_core::random::Random;
use serde_json::Value;

use crate::args;
use crate::harness::{binary, run, sandbox};
use crate::images::{Image, Mount};

const MIB: u64 = 1 << 20;

fn file() -> Attributes {
    Attributes::of_file(Time { seconds: 5, nanoseconds: 6 })
}

fn key(number: u64) -> Key {
    Key::parse(format!("d{}/f{number:06}", number % 4)).unwrap()
}

fn content(number: u64, size_bytes: usize) -> Vec<u8> {
    Random::new(number).bytes(size_bytes)
}

#[track_caller]
fn json(command: &str, home: &Path, more: &[&str]) -> Value {
    let mut all = args!["store", command, home, "--json"];
    all.extend(more.iter().map(Into::into));
    run(all).ended(0).json()
}

fn ext4(size_mib: u64) -> Option<Image> {
    Image::make(size_mib * MIB, &["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal"], Mount::Kernel(""))
}

fn put_all(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut batch = store.batch(Durability::None);
        batch.put(&key(number), &file(), &content(number, 60_000)).unwrap();
        batch.commit().unwrap();
    }
    store.sync().unwrap();
}

fn check_all(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert!(store.get(&key(number)).unwrap() == Some(content(number, 60_000)), "{number}");
    }
}

#[test]
fn records_overflow_to_slow_devices_and_are_moved_back() {
    let (Some(fast), Some(slow)) = (ext4(64), ext4(128)) else { return };
    let sandbox = sandbox();
    let home = sandbox.path().join("home");
    let plan = Plan {
        fast: vec![fast.root().join("device")],
        slow: vec![slow.root().join("device")],
        segment_bytes: 4 * MIB,
        watermarks_percent: (70, 60),
        ..Plan::default()
    };
    let store = Store::create(&home, &plan).unwrap();
    // 48 MB: more than the fast device accepts up to its high watermark.
    put_all(&store, 0..800);
    let overflowed = store.status(false).unwrap();
    assert!(overflowed.overflowed_bytes > 2 * MIB, "{overflowed:?}");
    let fill = |number: usize| store.status(false).unwrap().devices[number].fill_fraction().unwrap();
    assert!((0.65..0.85).contains(&fill(0)), "{}", fill(0));
    check_all(&store, 0..800);
    // Nothing moves back while the fast device is above the low watermark.
    assert_eq!(store.plan_rebalance().unwrap().segments, []);
    put_all(&store, 800..820);
    assert!(store.status(false).unwrap().overflowed_bytes > overflowed.overflowed_bytes, "it still overflows");
    for number in 0..400 {
        let mut batch = store.batch(Durability::None);
        batch.remove(&key(number)).unwrap();
        batch.commit().unwrap();
    }
    drop(store);
    let compacted = json("compact", &home, &[]);
    assert!(compacted["done"]["gained_bytes"].as_i64().unwrap() > 20_000_000, "{compacted}");
    let dry = json("rebalance", &home, &["--dry-run"]);
    assert!(dry["planned"]["moved_bytes"].as_u64().unwrap() > MIB && dry["done"].is_null(), "{dry}");
    let moved = json("rebalance", &home, &[]);
    // A record that is moved for the first time stores what replaced it, in 6 bytes plus padding to a multiple of 4.
    let bytes = |of: &Value| of["moved_bytes"].as_u64().unwrap();
    let grown = bytes(&moved["done"]) - bytes(&dry["planned"]);
    assert!(grown <= 8 * moved["done"]["moved_records"].as_u64().unwrap(), "{moved} {dry}");
    let status = json("status", &home, &["--count"]);
    assert_eq!(status["overflowed_bytes"], moved["planned"]["left_bytes"]);
    assert_eq!(status["counts"]["files"], 420);
    assert!(status["devices"][0]["fill_fraction"].as_f64().unwrap() < 0.66, "{status}");
    let store = Store::open(&home).unwrap();
    check_all(&store, 400..820);
    put_all(&store, 900..910);
    assert_eq!(store.status(false).unwrap().overflowed_bytes, status["overflowed_bytes"], "it is fast again");
}

/// Fills a store, removes one part in `parts` objects except one, and moves the rest together: the free space then
/// holds the next objects.
fn fill_and_empty(plan: Plan, size_bytes: usize, parts: u64) {
    let Some(image) = ext4(64) else { return };
    let home = image.root().join("store");
    let store = Store::create(&home, &plan).unwrap();
    let mut count = 0;
    let full = loop {
        let mut batch = store.batch(Durability::Batch);
        match batch.put(&key(count), &file(), &content(count, size_bytes)).and_then(|()| batch.commit()) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 2000);
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    assert!(count > 42_000_000 / size_bytes as u64, "{count}");
    let is_there = |store: &Store, number: u64| {
        assert!(store.get(&key(number)).unwrap() == Some(content(number, size_bytes)), "{number}");
    };
    (0..count).for_each(|number| is_there(&store, number));
    for number in (0..count).filter(|number| number % parts != 0) {
        assert!(store.remove(&key(number)).unwrap(), "removing needs what putting leaves");
    }
    drop(store);
    run(args!["store", "compact", &home]).ended(0);
    let store = Store::open(&home).unwrap();
    (0..count).step_by(parts as usize).for_each(|number| is_there(&store, number));
    for number in 10_000..10_000 + count * 3 / 4 * (parts - 1) / parts {
        store.put(&key(number), &file(), &content(number, size_bytes)).unwrap();
    }
    drop(store);
    assert_eq!(json("load", &home, &[])["damaged"], 0);
}

#[test]
fn a_full_store_can_be_emptied() {
    fill_and_empty(Plan { segment_bytes: 4 * MIB, ..Plan::default() }, 60_000, 5);
}

#[test]
fn a_full_store_of_large_segments_that_are_half_in_use_can_be_emptied() {
    fill_and_empty(Plan::default(), 60_000, 2);
}

#[test]
fn a_full_store_of_large_files_can_be_emptied() {
    fill_and_empty(Plan::default(), 400_000, 2);
}

#[test]
fn compaction_goes_on_beside_processes_that_read() {
    let sandbox = sandbox();
    let home = sandbox.path().join("store");
    let store = Store::create(&home, &Plan { segment_bytes: 2 * MIB, ..Plan::default() }).unwrap();
    put_all(&store, 0..300);
    let commands = ["store ls \"$2\" -R", "store load \"$2\""];
    let read = |command: &&str| {
        let script = format!("for n in 1 2 3 4 5 6; do \"$1\" {command} > /dev/null || exit 1; done");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg("sh").arg(binary()).arg(&home).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut reading: Vec<_> = commands.iter().chain(&commands).map(read).collect();
    let options = granulo::store::CompactOptions { choice: granulo::store::Choice::All, ..Default::default() };
    let mut times = 0;
    while reading.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        store.compact(&options, &Progress::default()).unwrap();
        times += 1;
    }
    for child in reading {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(times > 0);
    check_all(&store, 0..300);
    store.compact(&options, &Progress::default()).unwrap();
    assert_eq!(store.status(false).unwrap().waiting_bytes, 0);
}

#[test]
fn the_commands_say_what_they_did() {
    let sandbox = sandbox();
    let home = sandbox.path().join("store");
    let store = Store::create(&home, &Plan::default()).unwrap();
    put_all(&store, 0..100);
    store.put(&Key::parse("large").unwrap(), &file(), &content(1, 400_000)).unwrap();
    store.remove_tree(&Key::parse("d1").unwrap()).unwrap();
    drop(store);
    let text = run(args!["store", "status", &home]).ended(0).text();
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains('/')), "{text}");
    assert!(text.contains("last scrub   never") && text.contains("dead"), "{text}");
    let text = run(args!["store", "compact", &home, "--dead", "10%", "--dry-run"]).ended(0).text();
    assert!(text.starts_with("Would rewrite 1 segment: ") && text.lines().count() == 1, "{text}");
    let text = run(args!["store", "compact", &home, "--dead", "10%"]).ended(0).text();
    assert!(text.lines().nth(1).unwrap().contains(" freed"), "{text}");
    let text = run(args!["store", "compact", &home]).ended(0).text();
    assert!(text.starts_with("Rewriting 0 segments: 0 records"), "{text}");
    let loaded = json("load", &home, &[]);
    assert_eq!(
        (loaded["objects"].as_u64(), loaded["content_bytes"].as_u64()),
        (Some(75 + 1 + 3), Some(75 * 60_000 + 400_000))
    );
    let text = run(args!["store", "load", &home, "--group", "d2"]).ended(0).text();
    assert!(text.starts_with("26 objects, 1.43 MiB in ") && text.ends_with("all verified\n"), "{text}");
    run(args!["store", "load", &home, "--group", "nothing"]).ended(2);
    let text = run(args!["store", "rebalance", &home]).ended(0).text();
    assert!(text.starts_with("No records have overflowed"), "{text}");
}

#[test]
fn a_damaged_object_is_named_and_the_rest_is_loaded() {
    let sandbox = sandbox();
    let home = sandbox.path().join("store");
    let store = Store::create(&home, &Plan::default()).unwrap();
    put_all(&store, 0..50);
    drop(store);
    let segment = std::fs::read_dir(home.join("segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&segment).unwrap();
    let damaged = content(25, 60_000);
    let at = bytes.windows(64).position(|window| window == &damaged[30_000..30_064]).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let ran = run(args!["store", "load", &home, "--json"]).ended(1);
    let loaded = ran.json();
    assert_eq!((loaded["damaged"].as_u64(), loaded["objects"].as_u64()), (Some(1), Some(50 - 1 + 4)));
    assert!(ran.said().contains("cannot be verified"), "{}", ran.said());
    // Damaged records are not moved, and their segment stays.
    let ran = run(args!["store", "compact", &home, "--all"]).ended(1);
    assert!(ran.said().contains("is kept: it contains damage"), "{}", ran.said());
    assert!(segment.exists());
    assert_eq!(run(args!["store", "load", &home]).ended(1).text().lines().count(), 1);
}
