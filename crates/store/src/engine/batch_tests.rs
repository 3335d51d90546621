//! What a batch looks up once and remembers: it is as if it looked each time.

use tempfile::TempDir;

use crate::engine::sync::RECENT_LIMIT;
use crate::error::ErrorKind;
use crate::{Attributes, Durability, Key, Plan, Store, Time};

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

fn file() -> Attributes {
    Attributes::of_file(Time { seconds: 5, nanoseconds: 6 })
}

fn new(sandbox: &TempDir) -> Store {
    Store::create(&sandbox.path().join("store"), &Plan::default()).unwrap()
}

fn names(store: &Store) -> Vec<String> {
    let mut walk = store.walk(&Key::root()).unwrap();
    let mut names = Vec::new();
    while let Some(lent) = walk.lend().unwrap() {
        names.push(lent.key.to_string());
    }
    let kept: Vec<String> = store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).collect();
    assert_eq!(names, kept, "lent and to keep");
    names
}

#[test]
fn a_directory_that_was_known_and_is_gone_is_made_again() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["d/e/1", "d/e/2"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    for name in ["d/e/1", "d/e/2", "d/e"] {
        assert!(store.remove(&key(name)).unwrap());
    }
    assert_eq!(names(&store), ["d"]);
    store.put(&key("d/e/3"), &file(), b"x").unwrap();
    assert_eq!(names(&store), ["d", "d/e", "d/e/3"]);
    store.remove_tree(&key("d")).unwrap();
    store.put(&key("d/e/4"), &file(), b"x").unwrap();
    assert_eq!(names(&store), ["d", "d/e", "d/e/4"]);
}

#[test]
fn what_a_batch_removes_is_no_directory_for_what_follows_in_it() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["d/1", "d/2"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    let mut batch = store.batch(Durability::None);
    batch.put(&key("d/3"), &file(), b"x").unwrap();
    assert!(batch.remove_tree(&key("d")).unwrap());
    batch.put(&key("d/4"), &file(), b"x").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), ["d", "d/4"]);
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove(&key("d/4")).unwrap());
    assert!(!batch.remove(&key("d/4")).unwrap(), "removed by this batch");
    assert!(batch.remove(&key("d")).unwrap(), "empty by now");
    batch.put(&key("d"), &file(), b"x").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), ["d"]);
    let error = store.put(&key("d/5"), &file(), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
}

/// What a removal found when it was asked for is not what is removed, if another batch was there first.
#[test]
fn what_another_batch_changes_meanwhile_is_seen() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    store.put(&key("a"), &file(), b"old").unwrap();
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove(&key("a")).unwrap());
    store.put(&key("a"), &file(), b"newer and longer").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
    let live: u64 = store.engine().view().state.segments.values().map(|row| row.live_bytes).sum();
    assert_eq!(live, 0, "the record that was there last is the one that is not any more");
    let mut batch = store.batch(Durability::None);
    store.put(&key("b"), &file(), b"x").unwrap();
    assert!(batch.remove(&key("b")).unwrap());
    assert!(store.remove(&key("b")).unwrap());
    batch.commit().unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
}

#[test]
fn removals_in_any_order_see_what_waits() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["a/1", "b/1", "c/1"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    let mut batch = store.batch(Durability::None);
    for (name, was_there) in
        [("c/1", true), ("a/1", true), ("b/1", true), ("a/1", false), ("b", true), ("c", true), ("b", false)]
    {
        assert_eq!(batch.remove(&key(name)).unwrap(), was_there, "{name}");
    }
    batch.put(&key("a/2"), &file(), b"x").unwrap();
    assert!(batch.remove(&key("a/2")).unwrap(), "put by this batch");
    batch.commit().unwrap();
    assert_eq!(names(&store), ["a"]);
}

#[test]
fn a_batch_of_any_length_leaves_little_in_memory_and_what_it_wrote_is_whole() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    let content = vec![7; 60 << 10];
    let mut batch = store.batch(Durability::None);
    for number in 0..600 {
        batch.put(&key(&format!("d/{number:03}")), &file(), &content).unwrap();
    }
    {
        let view = store.engine().view();
        assert!(!view.tables.is_empty(), "tables are written while it goes on");
        assert!(view.state.recent.len() < 4 * RECENT_LIMIT, "{} entries wait", view.state.recent.len());
    }
    drop(batch);
    let found = names(&store);
    assert!(found.len() > 400, "pieces that are committed stay: {}", found.len());
    for name in &found[1..] {
        assert_eq!(store.get(&key(name)).unwrap().as_deref(), Some(&content[..]));
    }
    drop(store);
    assert_eq!(names(&Store::open(&sandbox.path().join("store")).unwrap()), found);
}
