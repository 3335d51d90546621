//! What a killed writer never acknowledged: it is shown, warned of once, and what is torn stays in quarantine until it
//! is accepted (docs/FORMAT.md, law 4).

use std::fs;
use std::io::Write;

use granulo::store::{Attributes, Durability, Key, Store};

use crate::store_place::{Place, copy_all};

/// A store as a killed writer leaves it: an acknowledged object, one that is not, and part of a batch.
fn killed() -> Place {
    let mut place = Place::new(0, 0, &[]);
    place.put("acknowledged", b"before").ended(0);
    let store = Store::open(&place.home).unwrap();
    let mut batch = store.batch(Durability::None);
    batch.put(&Key::parse("unacknowledged").unwrap(), &Attributes::default(), b"after").unwrap();
    batch.commit().unwrap();
    let copies = place.path("copies");
    fs::create_dir(&copies).unwrap();
    copy_all(&place.home, &copies);
    drop(store);
    fs::remove_dir_all(&place.home).unwrap();
    fs::rename(copies.join(place.home.file_name().unwrap()), &place.home).unwrap();
    let segments = place.segments(0);
    let last = segments.iter().max().unwrap();
    fs::OpenOptions::new().append(true).open(last).unwrap().write_all(&[7; 300]).unwrap();
    place
}

fn completeness(place: &Place) -> serde_json::Value {
    place.run_on("ls", ["--json"]).ended(0).json()["completeness"].clone()
}

#[test]
fn repair_ends_the_warning_and_accept_the_quarantine() {
    let place = killed();
    let said = place.run_on("ls", [""; 0]).ended(0).said().to_owned();
    assert!(said.contains("granulo store repair does, and with --accept frees the quarantine"), "{said}");
    let planned = place.run_on("repair", ["--dry-run"]).ended(0);
    assert!(planned.text().contains("continue the log where it ends"), "{}", planned.text());
    place.run_on("repair", [""; 0]).ended(0);
    assert_eq!(place.run_on("ls", [""; 0]).ended(0).said(), "");
    assert!(place.run_on("status", [""; 0]).ended(0).text().contains("see granulo store repair --accept"));
    let planned = place.run_on("repair", [""; 0]).ended(0);
    assert!(planned.text().contains("Use --accept to free 300 B of quarantine"), "{}", planned.text());
    place.run_on("repair", ["--accept"]).ended(0);
    assert!(!place.run_on("status", [""; 0]).ended(0).text().contains("quarantine"));
}

#[test]
fn what_a_killed_writer_never_acknowledged_is_warned_of_once_and_listed_until_it_is_accepted() {
    let mut place = killed();
    assert_eq!(completeness(&place)["state"], "unacknowledged_tail");
    let listed = place.run_on("ls", [""; 0]).ended(0);
    let first = listed.said().lines().next().unwrap_or_default().to_owned();
    assert!(first.contains("a writer did not end cleanly"), "{}", listed.said());
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), ["acknowledged", "unacknowledged"]);
    assert_eq!(place.run_on("get", ["unacknowledged"]).ended(0).text(), "after");
    // The next writer says so too, and what it found is acknowledged from then on.
    let put = place.put("next", b"1").ended(0);
    assert!(put.said().contains("a writer did not end cleanly"), "{}", put.said());
    assert!(completeness(&place)["tail"].is_null());
    assert_eq!(place.run_on("ls", [""; 0]).ended(0).said(), "");
    assert!(place.run_on("status", [""; 0]).ended(0).text().contains("300 B outside the log"));
    let quarantine = |place: &Place| place.run_on("status", ["--json"]).ended(0).json()["quarantined_bytes"].clone();
    assert_eq!(quarantine(&place), 300);
    place.run_on("repair", ["--accept"]).ended(0);
    assert_eq!(quarantine(&place), 0);
    assert_eq!(place.list().0, ["acknowledged", "next", "unacknowledged"]);
    place.run_on("check", ["--deep"]).ended(0);
}
