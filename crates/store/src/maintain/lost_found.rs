//! Unreachable directories and their content are attached to `lost+found` (docs/FORMAT.md, section 11).
//!
//! A directory whose record is lost has entries, but no entry of its own: it gets one, `lost+found/#NUMBER`, by an
//! ordinary record. So does one of several directories that contain each other because crossed renames were partly
//! lost: the one with the oldest entry, which is removed. If a device returns with the lost record, the directory has
//! two entries and keeps that one. A writer looks for both cases after it has read a log that may be incomplete, before
//! anybody else sees the store; a note in the catalog says that this is due until it is done, so that a crash in
//! between changes nothing.

use std::ops::Bound;

use crate::engine::Engine;
use crate::engine::missing::DETACHED;
use crate::error::Result;
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT, entry_key};
use crate::format::key::Key;
use crate::index::Snapshot;
use crate::index::paths::{EntryPlace, Ways};
use crate::{Durability, Store};

/// Name of the directory.
const LOST_FOUND: &str = "lost+found";
/// Behind it and all names that it gets if that one is a file's.
const BEHIND_LOST_FOUND: &str = "lost+found/";
/// For its owner alone: the permissions of its content are unknown.
const MODE: u16 = 0o040_700;

impl Store {
    /// Makes every directory with entries reachable, if that is due; returns how many were not.
    ///
    /// # Errors
    /// Errors of reading the index, of writing and of syncing.
    pub(crate) fn attach_detached(&self) -> Result<u64> {
        let engine = self.engine();
        if !engine.is_writer() {
            self.hide_doubled()?;
            return Ok(0);
        }
        if engine.noted(DETACHED).is_none() {
            return Ok(0);
        }
        let mut attached = 0;
        engine.or_later(self.attach_all(&mut attached))?;
        Ok(attached)
    }

    /// Attaches what is detached, and counts it. If that lacks space, the note stays, and the next writer does it.
    fn attach_all(&self, attached: &mut u64) -> Result<()> {
        let engine = self.engine();
        let snapshot = engine.snapshot();
        let mut ways = Ways::of(&snapshot)?;
        let mut detached = ways.detached();
        detached.extend(ways.circles());
        if !detached.is_empty() {
            let top = free_name(&snapshot, &Key::root(), LOST_FOUND, |entry| entry.kind == Kind::Directory)?;
            let mut batch = self.batch(Durability::None);
            // One that a user made keeps its attributes.
            if snapshot.look_up_path(top.stored())?.is_none() {
                batch.directory(&top, &attributes(engine))?;
            }
            for &number in &detached {
                let key = free_name(&snapshot, &top, &name_of(number), |entry| entry.number == number)?;
                batch.adopt(&key, &attributes(engine), number)?;
            }
            batch.commit()?;
            *attached = detached.len() as u64;
            // One at a time: each needs 40 bytes for every directory.
            drop(ways);
            ways = Ways::of(&engine.snapshot())?;
        }
        let dropped = self.drop_doubled(&ways)?;
        // Without a write, nothing is acknowledged: the next open reports again what a crash left.
        if !detached.is_empty() || dropped > 0 {
            self.sync()?;
        }
        engine.note(&[(DETACHED, Vec::new())])
    }

    /// Removes all but one of several entries of a directory; returns how many.
    fn drop_doubled(&self, ways: &Ways) -> Result<u64> {
        let surplus = surplus(ways);
        let mut batch = self.batch(Durability::None);
        for (above, name) in &surplus {
            batch.drop_entry(*above, name)?;
        }
        batch.commit()?;
        Ok(surplus.len() as u64)
    }

    /// The same in the private index of a reader, if a device returned with the record of a directory that is in
    /// `lost+found`: the next writer removes it there.
    fn hide_doubled(&self) -> Result<()> {
        let engine = self.engine();
        if !engine.owns_index() {
            return Ok(());
        }
        let snapshot = engine.snapshot();
        let (from, to) = (entry_key(ROOT, LOST_FOUND.as_bytes()), entry_key(ROOT, BEHIND_LOST_FOUND.as_bytes()));
        if snapshot.scan(Bound::Included(&from), Bound::Excluded(&to))?.next_entry()?.is_none() {
            return Ok(());
        }
        let surplus = surplus(&Ways::of(&snapshot)?);
        let keys: Vec<Vec<u8>> = surplus.iter().map(|(above, name)| entry_key(*above, name)).collect();
        engine.hide_entries(&keys)
    }
}

/// All entries of directories with several but one of each: the newest that was not attached here and is not in the
/// directory itself.
fn surplus(ways: &Ways) -> Vec<EntryPlace> {
    let mut surplus = Vec::new();
    for (number, mut entries) in ways.doubled() {
        let was_put_here = |name: &[u8]| name.starts_with(name_of(number).as_bytes());
        let is_one = |(above, name): &EntryPlace| !was_put_here(name) && !ways.is_within(*above, number);
        let can_be_reached = |(above, _): &EntryPlace| !ways.is_within(*above, number);
        let kept = entries.iter().position(is_one).or_else(|| entries.iter().position(can_be_reached)).unwrap_or(0);
        entries.remove(kept);
        surplus.append(&mut entries);
    }
    surplus
}

fn name_of(number: ObjectNumber) -> String {
    format!("#{number}")
}

fn attributes(engine: &Engine) -> Attributes {
    Attributes { mode: MODE, ..Attributes::of_directory(engine.now()) }
}

/// `name` in a directory if it is free; else with a number appended.
fn free_name(snapshot: &Snapshot, directory: &Key, name: &str, is_it: impl Fn(&Entry) -> bool) -> Result<Key> {
    let mut key = directory.child(name)?;
    let mut number = 0;
    while !snapshot.look_up_path(key.stored())?.is_none_or(|entry| is_it(&entry)) {
        number += 1;
        key = directory.child(format!("{name}.{number}"))?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::ops::Range;
    use std::path::Path;

    use super::*;
    use crate::format::geometry::Plan;
    use crate::format::names::segment_path;
    use crate::maintain::check::CheckOptions;
    use crate::maintain::repair::rebuild_index;
    use crate::{Buffer, Existing, OpenOptions, Progress, Time};

    fn key(path: &str) -> Key {
        Key::parse(path).unwrap()
    }

    fn put(store: &Store, path: &str) {
        store.put(&key(path), &Attributes::of_file(Time::default()), path.as_bytes()).unwrap();
    }

    /// All files, with their content, and directories.
    fn all(store: &Store) -> BTreeMap<String, String> {
        let mut buffer = Buffer::default();
        let listed = store.walk(&Key::root()).unwrap().map(Result::unwrap);
        let content = |key: &Key, buffer: &mut Buffer| {
            String::from_utf8(store.read(key, buffer).unwrap().unwrap().content.to_vec()).unwrap()
        };
        listed
            .filter(|one| !one.key.is_root())
            .map(|one| (one.key.to_string(), content(&one.key, &mut buffer)))
            .collect()
    }

    /// The place of an object's record, and of the next one.
    fn place(store: &Store, path: &str) -> (String, u64, u64) {
        let engine = store.engine();
        let location = engine.snapshot().look_up_path(key(path).stored()).unwrap().unwrap().location;
        let Range { start, end } = location.range();
        (segment_path(engine.segment_id(location.segment)), start.0, end.0)
    }

    /// A record of a closed store: its segment's file, and its offset there.
    type Place = (String, u64);

    /// Flips a bit in the records of these objects, and removes the index.
    fn damage(store: Store, home: &Path, paths: &[&str]) -> Vec<Place> {
        let places: Vec<_> = paths.iter().map(|path| place(&store, path)).map(|(path, at, _)| (path, at)).collect();
        damage_at(store, home, &places);
        places
    }

    fn damage_at(store: Store, home: &Path, places: &[Place]) {
        drop(store);
        flip(home, places);
        fs::remove_dir_all(home.join("index")).unwrap();
    }

    /// Flips a bit of these records: done twice, they are intact.
    fn flip(home: &Path, places: &[Place]) {
        for (path, offset) in places {
            let path = home.join(path);
            let mut bytes = fs::read(&path).unwrap();
            bytes[*offset as usize + 25] ^= 4;
            fs::write(&path, bytes).unwrap();
        }
    }

    fn problems(store: &Store) -> Vec<String> {
        let mut problems = Vec::new();
        let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
        store.check(options, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
        problems
    }

    #[test]
    fn what_a_lost_directory_had_is_in_lost_found_until_its_record_is_back() {
        let sandbox = tempfile::tempdir().unwrap();
        let home = sandbox.path().join("s");
        let store = Store::create(&home, &Plan::default()).unwrap();
        // Records of directories follow those of what is written first: each in a batch of its own.
        for path in ["a/b/c/1", "a/b/2", "x/y", "z"] {
            put(&store, path);
        }
        // The name is already taken by another directory.
        put(&store, "lost+found/#99999/mine");
        let before = all(&store);
        let number = |path: &str| store.entry(&key(path)).unwrap().unwrap().entry.number;
        let (of_b, of_x) = (number("a/b"), number("x"));
        let places = damage(store, &home, &["a/b", "x"]);

        let reader = Store::open_read_only(&home).unwrap();
        assert!(!reader.completeness().is_complete() && reader.recovered().detached == 0);
        drop(reader);
        let store = Store::open(&home).unwrap();
        assert_eq!((store.recovered().detached, store.completeness().is_complete()), (2, false));
        let content = |path: &str| (path.to_owned(), before.get(path).unwrap().clone());
        let mut expected: BTreeMap<String, String> =
            ["a", "z", "lost+found", "lost+found/#99999", "lost+found/#99999/mine"].map(content).into();
        expected.insert(format!("lost+found/#{of_b}"), String::new());
        expected.insert(format!("lost+found/#{of_x}"), String::new());
        expected.insert(format!("lost+found/#{of_b}/c"), String::new());
        expected.insert(format!("lost+found/#{of_b}/c/1"), "a/b/c/1".to_owned());
        expected.insert(format!("lost+found/#{of_b}/2"), "a/b/2".to_owned());
        expected.insert(format!("lost+found/#{of_x}/y"), "x/y".to_owned());
        assert_eq!(all(&store), expected);
        assert_eq!(store.entry(&key("lost+found/#99999")).unwrap().unwrap().entry.mode, 0o040_755);
        assert_eq!(store.entry(&key("lost+found")).unwrap().unwrap().entry.mode, 0o040_755, "as it was");
        // Each place is reported as lost, and as damage.
        assert_eq!(problems(&store).len(), 4, "{:?}", problems(&store));
        // A new directory does not change that, and nothing is attached again.
        put(&store, "x/new");
        drop(store);
        let store = Store::open(&home).unwrap();
        expected.insert("x".to_owned(), String::new());
        expected.insert("x/new".to_owned(), "x/new".to_owned());
        assert_eq!((store.recovered().detached, all(&store)), (0, expected.clone()));

        // As if the device returned: a bit that is flipped twice is intact.
        drop(store);
        flip(&home, &places);
        let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
        assert!(store.completeness().is_complete(), "{:?}", store.completeness().lines());
        let back = all(&store);
        assert_eq!(back.get("a/b/c/1").map(String::as_str), Some("a/b/c/1"));
        assert_eq!(back.get("a/b/2").map(String::as_str), Some("a/b/2"));
        // The other name has a newer directory now: the old one stays where it was attached.
        assert_eq!(back.get("x/new").map(String::as_str), Some("x/new"));
        assert_eq!(back.get(&format!("lost+found/#{of_x}/y")).map(String::as_str), Some("x/y"));
        assert!(!back.contains_key(&format!("lost+found/#{of_b}")), "{back:?}");
        assert_eq!(problems(&store), Vec::<String>::new());
    }

    #[test]
    fn of_renames_that_cross_nothing_is_lost_but_the_record_that_rots() {
        for (has_lost_entry, has_lost_tombstone) in [(true, false), (false, true), (true, true)] {
            let sandbox = tempfile::tempdir().unwrap();
            let home = sandbox.path().join("s");
            let store = Store::create(&home, &Plan::default()).unwrap();
            put(&store, "outer/1");
            put(&store, "outer/inner/2");
            let number = store.entry(&key("outer/inner")).unwrap().unwrap().entry.number;
            store.rename(&key("outer/inner"), &key("inner"), Existing::Refuse).unwrap();
            // The tombstone of the old name follows the record with the new one.
            let (segment, entry, tombstone) = place(&store, "inner");
            store.rename(&key("outer"), &key("inner/outer"), Existing::Refuse).unwrap();
            let places = [(has_lost_entry, entry), (has_lost_tombstone, tombstone)];
            let places: Vec<Place> =
                places.iter().filter(|(is_lost, _)| *is_lost).map(|(_, at)| (segment.clone(), *at)).collect();
            damage_at(store, &home, &places);

            let reader = Store::open_read_only(&home).unwrap();
            assert!(!reader.completeness().is_complete());
            drop(reader);
            let store = Store::open(&home).unwrap();
            assert_eq!(store.recovered().detached, u64::from(has_lost_entry));
            let inner = if has_lost_entry { format!("lost+found/#{number}") } else { "inner".to_owned() };
            let mut expected = BTreeMap::from([
                (inner.clone(), String::new()),
                (format!("{inner}/2"), "outer/inner/2".to_owned()),
                (format!("{inner}/outer"), String::new()),
                (format!("{inner}/outer/1"), "outer/1".to_owned()),
            ]);
            if has_lost_entry {
                expected.insert(LOST_FOUND.to_owned(), String::new());
            }
            assert_eq!(all(&store), expected, "{has_lost_entry} {has_lost_tombstone}");
            drop(store);
            let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
            assert_eq!((all(&store), store.recovered().detached), (expected, 0));
            assert!(store.remove_tree(&key(&inner)).unwrap());
        }
    }
}
