//! `granulo store log`, and `get --id`: versions on the command line.

use std::fs;

use crate::harness::complains;
use crate::store_cli::{noise, on, put, store};

#[test]
fn every_version_is_listed_and_can_be_got_until_compaction() {
    let (_sandbox, home) = store();
    for content in ["one", "two"] {
        put(&home, "d/f", content.as_bytes());
    }
    on("mv", &home, ["d/f", "d/g"]).ended(0);
    put(&home, "d/f", b"three");
    on("rm", &home, ["d/f"]).ended(0);
    let document = on("log", &home, ["d/f", "--json"]).ended(0).json();
    assert_eq!((&document["schema"], &document["key"]), (&"granulo/store-log/1".into(), &"d/f".into()));
    let versions = document["versions"].as_array().unwrap();
    let kinds: Vec<&str> = versions.iter().map(|version| version["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["removal", "file", "rename", "file", "file"]);
    assert_eq!(versions[2]["renamed_to"]["name"], "g");
    assert_eq!((&versions[0]["current"], &versions[1]["current"]), (&true.into(), &false.into()));
    let id = |at: usize| versions[at]["id"].to_string();
    for (at, content) in [(1, "three"), (3, "two"), (4, "one")] {
        assert_eq!(versions[at]["content"], "present");
        assert_eq!(on("get", &home, ["d/f", "--id", &id(at)]).ended(0).text(), content);
    }
    assert_eq!(on("get", &home, ["d/f", "--id", &id(1), "--range", "1-2"]).ended(0).text(), "hr");
    complains(&on("get", &home, ["d/f", "--id", &id(0)]).ended(2), &["is its removal"]);
    complains(&on("get", &home, ["d/f", "--id", "999999"]).ended(2), &["no version 999999"]);
    let of_directory = on("log", &home, ["d", "--json"]).ended(0).json()["versions"][0]["id"].to_string();
    complains(&on("get", &home, ["d", "--id", &of_directory]).ended(2), &["is a directory"]);
    complains(&on("log", &home, ["no/such/key"]).ended(2), &["no such key"]);
    complains(&on("log", &home, ["never"]).ended(2), &["the segments have none"]);
    let text = on("log", &home, ["d/f"]).ended(0).text();
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.lines().nth(1).unwrap().starts_with("* ") && text.contains("to g\n"), "{text}");

    on("compact", &home, ["--all"]).ended(0);
    let left = on("log", &home, ["d/g", "--json"]).ended(0).json();
    assert_eq!(left["versions"].as_array().unwrap().len(), 1);
    complains(&on("get", &home, ["d/f", "--id", &id(4)]).ended(2), &["no version"]);
}

#[test]
fn damage_in_the_log_is_reported_and_the_rest_is_listed() {
    let (_sandbox, home) = store();
    let contents: Vec<Vec<u8>> = (0..3).map(|at| [&noise(500)[..], &[at]].concat()).collect();
    contents.iter().for_each(|content| put(&home, "f", content));
    let before = on("log", &home, ["f", "--json"]).ended(0).json();
    let (segment, offset) = (&before["versions"][1]["segment"], before["versions"][1]["offset"].as_u64().unwrap());
    assert_eq!(segment, 1);
    let path = fs::read_dir(home.join("segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset as usize + 200] ^= 4;
    fs::write(&path, bytes).unwrap();

    let ran = on("log", &home, ["f", "--json"]).ended(1);
    assert!(ran.said().contains("is damaged from"), "{}", ran.said());
    let after = ran.json();
    assert_eq!(after["damage"][0]["offset"], offset);
    assert_eq!(after["versions"].as_array().unwrap().len(), 2);
    let oldest = after["versions"][1]["id"].to_string();
    assert_eq!(on("get", &home, ["f", "--id", &oldest]).ended(0).stdout, contents[0]);
    let lost = before["versions"][1]["id"].to_string();
    assert!(on("get", &home, ["f", "--id", &lost]).ended(1).said().contains("is damaged from"));
}
