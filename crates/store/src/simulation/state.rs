//! A state of a store in the model: all objects by key, and the effect of a change on them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::sync::Arc;

use super::moments::{Moments, Times};
use super::numbers::{Incarnation, Numbers};
use super::workload::{Change, spread};
use crate::format::ids::ObjectNumber;
use crate::{Attributes, Key};

/// The type bits of a mode.
const TYPE: u16 = 0o170_000;

/// The kind and content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// A file, with its bytes for a reader: holes are zeroes.
    File(Arc<[u8]>),
    /// A directory.
    Directory,
    /// A symlink, with its target.
    Symlink(Vec<u8>),
    /// A fifo or device, with its numbers.
    Special(u32, u32),
}

/// An object.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    /// Its attributes, without change and birth time; `None` for a directory that was created because of its content: a
    /// store chooses them.
    pub(crate) attributes: Option<Attributes>,
    /// Its kind and content.
    pub(crate) body: Body,
    /// A number that all names of a shared file have, and no others.
    pub(crate) shared: Option<u64>,
    /// The identity of the object, if known.
    pub(crate) incarnation: Option<Incarnation>,
    /// The number that the store assigned to it.
    pub(crate) number: Option<ObjectNumber>,
    /// A store may have any of its zeroes as holes, as it was written to while open.
    pub(crate) has_any_holes: bool,
    /// When it was changed and created.
    pub(crate) moments: Moments,
}

/// Choices that a store was seen to make.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenChoices {
    numbers: Numbers,
    times: Times,
}

impl Object {
    /// The same with other attributes, by this change; its type and its holes stay.
    pub(super) fn with_attributes(&self, attributes: &Attributes, number: u64) -> Object {
        let (of_type, holes) = match &self.attributes {
            Some(before) => (before.mode & TYPE, before.holes.clone()),
            None => (0o040_000, None),
        };
        let mode = of_type | attributes.mode & !TYPE;
        let moments = self.moments.with(attributes, number);
        let attributes = without_moments(Attributes { mode, holes, ..attributes.clone() });
        Object { attributes: Some(attributes), moments, ..self.clone() }
    }

    /// The same with other bytes, by this change.
    fn with_bytes(&self, bytes: Vec<u8>, number: u64) -> Object {
        let moments = self.moments.again(number);
        Object { body: Body::File(bytes.into()), has_any_holes: true, moments, ..self.clone() }
    }

    /// Whether a store's object may have these attributes.
    pub(super) fn has_attributes(&self, found: Option<&Attributes>) -> bool {
        let without = |attributes: &Attributes| Attributes { holes: None, ..attributes.clone() };
        match (&self.attributes, found) {
            (Some(own), Some(found)) if self.has_any_holes => without(own) == without(found),
            (Some(own), found) => Some(own) == found,
            (None, _) => true,
        }
    }
}

/// Attributes without change and birth time.
pub(super) fn without_moments(attributes: Attributes) -> Attributes {
    Attributes { ctime: None, btime: None, ..attributes }
}

/// All objects, by key; and the states in snapshots, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    objects: BTreeMap<Key, Object>,
    snapshots: BTreeMap<Key, State>,
}

impl State {
    /// Adds an object of a store.
    pub(crate) fn insert(&mut self, key: Key, object: Object) {
        self.objects.insert(key, object);
    }

    /// The object of a key.
    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    pub(super) fn without(&self, keys: &BTreeSet<Key>) -> State {
        let mut state = self.clone();
        state.objects.retain(|key, _| !keys.contains(key));
        state.snapshots.values_mut().for_each(|snapshot| *snapshot = snapshot.without(keys));
        state
    }

    /// Adds a snapshot of a store.
    pub(crate) fn insert_snapshot(&mut self, name: Key, snapshot: State) {
        self.snapshots.insert(name, snapshot);
    }

    /// The states in snapshots.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = (&Key, &State)> {
        self.snapshots.iter()
    }

    /// The objects, in key order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.objects.iter()
    }

    /// Names of shared files.
    pub(crate) fn shared_names(&self) -> impl Iterator<Item = &Key> {
        self.objects.iter().filter(|(_, object)| object.shared.is_some()).map(|(key, _)| key)
    }

    /// A number above those of all shared files.
    pub(crate) fn next_shared(&self) -> u64 {
        self.objects.values().filter_map(|object| object.shared).max().map_or(0, |last| last + 1)
    }

    fn is_directory(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(|object| object.body == Body::Directory)
    }

    fn has_below(&self, key: &Key) -> bool {
        self.objects.range(key.clone()..).nth(1).is_some_and(|(next, _)| next.below(key).is_some())
    }

    fn has_parent(&self, key: &Key) -> bool {
        key.parent().is_some_and(|parent| parent.is_root() || self.is_directory(&parent))
    }

    /// Removes an object with everything below it, and returns that by relative keys.
    fn take_out(&mut self, top: &Key) -> Vec<(Key, Object)> {
        let keys: Vec<(Key, Key)> =
            self.objects.keys().filter_map(|key| Some((key.clone(), key.below(top)?))).collect();
        keys.into_iter().filter_map(|(key, below)| Some((below, self.objects.remove(&key)?))).collect()
    }

    /// Inserts what was removed elsewhere, by this change.
    fn put_in(&mut self, top: &Key, mut objects: Vec<(Key, Object)>, number: u64) {
        // A name of a file that has several says nothing about the file.
        if let Some((_, object)) = objects.iter_mut().find(|(below, object)| below.is_root() && object.shared.is_none())
        {
            object.moments = object.moments.again(number);
        }
        let at = |below: &Key| top.join(below).expect("keys are short here");
        self.objects.extend(objects.into_iter().map(|(below, object)| (at(&below), object)));
    }

    /// Whether a store must accept a change.
    pub(crate) fn takes(&self, change: &Change) -> bool {
        let key = change.key();
        let there = self.objects.get(key);
        match change {
            Change::Remove(_) => there.is_some() && !self.is_directory(key),
            Change::RemoveDirectory(_) => self.is_directory(key) && !self.has_below(key),
            Change::RemoveTree(_) | Change::Attributes(..) => there.is_some(),
            Change::Write(..) | Change::Resize(..) => there.is_some_and(|there| matches!(there.body, Body::File(_))),
            Change::Snapshot(name) => !self.snapshots.contains_key(name),
            Change::RemoveSnapshot(name) => self.snapshots.contains_key(name),
            Change::Exchange(one, other) => {
                let is_apart = one != other && one.below(other).is_none() && other.below(one).is_none();
                is_apart && there.is_some() && self.objects.contains_key(one)
            }
            Change::Rename(from, to) => {
                let Some(object) = self.objects.get(from) else { return false };
                let gives_way = there.is_none_or(|there| {
                    let is_same_file = there.shared.is_some() && there.shared == object.shared;
                    let are_alike = self.is_directory(from) == self.is_directory(to);
                    !is_same_file && are_alike && (!self.is_directory(to) || !self.has_below(to))
                });
                gives_way && to.below(from).is_none() && self.has_parent(to)
            }
            Change::HardLink(existing, key) => {
                let is_file = self.objects.get(existing).is_some_and(|object| matches!(object.body, Body::File(_)));
                is_file && there.is_none() && self.has_parent(key)
            }
            _ => {
                let mut above = key.parent();
                while let Some(directory) = above {
                    if self.objects.contains_key(&directory) && !self.is_directory(&directory) {
                        return false;
                    }
                    above = directory.parent();
                }
                match change {
                    Change::Directory(..) => there.is_none() || self.is_directory(key),
                    Change::Link(existing, _) => {
                        self.objects.get(existing).is_some_and(|object| object.shared.is_some())
                            && !self.is_directory(key)
                    }
                    _ => !self.is_directory(key),
                }
            }
        }
    }

    /// Applies a change with this number; a file that becomes shared gets the number too.
    pub(crate) fn apply(&mut self, change: &Change, number: u64) {
        let (attributes, body, shared) = match change {
            Change::Remove(key) | Change::RemoveDirectory(key) => {
                self.objects.remove(key);
                return;
            }
            Change::Snapshot(name) => {
                let snapshot = State { objects: self.objects.clone(), snapshots: BTreeMap::new() };
                self.snapshots.insert(name.clone(), snapshot);
                return;
            }
            Change::RemoveSnapshot(name) => {
                self.snapshots.remove(name);
                return;
            }
            Change::RemoveTree(top) => {
                self.objects.retain(|key, _| key.below(top).is_none());
                return;
            }
            Change::Rename(from, to) => {
                let moved = self.take_out(from);
                // It does not exist if the batch that should have created it failed.
                if !moved.is_empty() {
                    self.take_out(to);
                    self.put_in(to, moved, number);
                }
                return;
            }
            Change::Exchange(one, other) => {
                let (first, second) = (self.take_out(one), self.take_out(other));
                self.put_in(one, second, number);
                self.put_in(other, first, number);
                return;
            }
            Change::Attributes(key, attributes) => return self.set_attributes(key, attributes, number),
            Change::Write(key, at, recipe) => {
                let (at, new) = (*at as usize, recipe.bytes());
                return self.set_bytes(key, number, |bytes| {
                    bytes.resize(bytes.len().max(at + new.len()), 0);
                    bytes[at..at + new.len()].copy_from_slice(&new);
                });
            }
            // Setting the current length changes nothing.
            Change::Resize(key, length) if self.length(key) == *length => return,
            Change::Resize(key, length) => {
                return self.set_bytes(key, number, |bytes| bytes.resize(*length as usize, 0));
            }
            Change::HardLink(existing, key) => {
                if let Some(object) = self.objects.get_mut(existing) {
                    // Its record is written again without a name.
                    if object.shared.is_none() {
                        (object.shared, object.moments) = (Some(number), object.moments.again(number));
                    }
                    let object = object.clone();
                    self.objects.insert(key.clone(), object);
                }
                return;
            }
            Change::Link(existing, key) => {
                // It does not exist if the batch that should have created it failed.
                if let Some(object) = self.objects.get(existing).cloned() {
                    self.put(key, object, number);
                }
                return;
            }
            Change::Put(_, attributes, recipe) => {
                (attributes, Body::File(spread(attributes.holes.as_ref(), recipe.bytes())), None)
            }
            Change::Planted(_, attributes, content) => (attributes, Body::File(Arc::clone(content)), None),
            Change::Shared(_, attributes, recipe) => {
                (attributes, Body::File(spread(attributes.holes.as_ref(), recipe.bytes())), Some(number))
            }
            Change::Directory(_, attributes) => (attributes, Body::Directory, None),
            Change::Symlink(_, attributes, target) => (attributes, Body::Symlink(target.clone()), None),
            Change::Special(_, attributes, major, minor) => (attributes, Body::Special(*major, *minor), None),
        };
        // What replaces an object of the same type is that object, with other content.
        let is_same = |there: &&Object| {
            shared.is_none() && there.shared.is_none() && discriminant(&there.body) == discriminant(&body)
        };
        let there = self.objects.get(change.key()).filter(is_same);
        let incarnation = there.map_or(Some((number, 0)), |there| there.incarnation);
        let moments = Moments::put(attributes, number);
        let attributes = Some(without_moments(attributes.clone()));
        let object = Object { attributes, body, shared, incarnation, number: None, has_any_holes: false, moments };
        self.put(change.key(), object, number);
    }

    /// The length of a file; 0 for anything else.
    pub(super) fn length(&self, key: &Key) -> u64 {
        match self.objects.get(key).map(|object| &object.body) {
            Some(Body::File(bytes)) => bytes.len() as u64,
            _ => 0,
        }
    }

    /// The bytes of a file, under all names that it has.
    fn set_bytes(&mut self, key: &Key, number: u64, change: impl Fn(&mut Vec<u8>)) {
        // It does not exist if the batch that should have created it failed.
        let Some(Object { body: Body::File(bytes), shared, .. }) = self.objects.get(key) else { return };
        let (mut bytes, shared) = (bytes.to_vec(), *shared);
        change(&mut bytes);
        let is_it = |(name, object): &(&Key, &mut Object)| *name == key || shared.is_some() && object.shared == shared;
        for (_, object) in self.objects.iter_mut().filter(is_it) {
            *object = object.with_bytes(bytes.clone(), number);
        }
    }

    /// The attributes of an object, under all names that it has.
    fn set_attributes(&mut self, key: &Key, attributes: &Attributes, number: u64) {
        let Some(changed) = self.objects.get(key) else { return };
        let shared = changed.shared;
        let is_it = |(name, object): &(&Key, &mut Object)| *name == key || shared.is_some() && object.shared == shared;
        for (_, object) in self.objects.iter_mut().filter(is_it) {
            *object = object.with_attributes(attributes, number);
        }
    }

    fn put(&mut self, key: &Key, object: Object, number: u64) {
        self.objects.insert(key.clone(), object);
        let mut above = key.parent();
        while let Some(directory) = above.filter(|directory| !directory.is_root()) {
            above = directory.parent();
            let incarnation = Some((number, directory.depth()));
            let made = || Object {
                attributes: None,
                body: Body::Directory,
                shared: None,
                incarnation,
                number: None,
                has_any_holes: false,
                moments: Moments::of(number),
            };
            self.objects.entry(directory).or_insert_with(made);
        }
    }

    /// For each name of a file with several, the first of its names.
    fn first_names(&self) -> BTreeMap<&Key, &Key> {
        let mut names: BTreeMap<u64, Vec<&Key>> = BTreeMap::new();
        for (key, object) in &self.objects {
            if let Some(shared) = object.shared {
                names.entry(shared).or_default().push(key);
            }
        }
        let several = names.values().filter(|names| names.len() > 1);
        several.flat_map(|names| names.iter().map(|name| (*name, names[0]))).collect()
    }

    /// Contradictions in the numbers and times of objects in a store's state that otherwise equals this one.
    pub(super) fn contradictions(&self, found: &State, blind: &BTreeSet<Key>, seen: &mut SeenChoices) -> Vec<String> {
        let mut contradictions = self.misnumbered(found, blind, &mut seen.numbers);
        contradictions.extend(self.mistimed(found, blind, &mut seen.times));
        for (name, snapshot) in &self.snapshots {
            let Some(found) = found.snapshots.get(name) else { continue };
            let within = snapshot.mistimed(found, blind, &mut seen.times);
            contradictions.extend(within.into_iter().map(|cause| format!("in snapshot {name} {cause}")));
        }
        contradictions
    }

    fn mistimed(&self, found: &State, blind: &BTreeSet<Key>, times: &mut Times) -> Vec<String> {
        let both = self
            .objects
            .iter()
            .filter(|(key, _)| !blind.contains(key) && !key.is_root())
            .filter_map(|(key, object)| Some((key, object.moments, found.objects.get(key)?.moments)));
        both.filter_map(|(key, expected, found)| times.see(expected, found).map(|cause| format!("{key} {cause}")))
            .collect()
    }

    fn misnumbered(&self, found: &State, blind: &BTreeSet<Key>, numbers: &mut Numbers) -> Vec<String> {
        let both = self
            .objects
            .iter()
            .filter(|(key, _)| !blind.contains(key) && !key.is_root())
            .filter_map(|(key, object)| Some((key, object.incarnation?, found.objects.get(key)?.number?)));
        both.filter_map(|(key, incarnation, number)| {
            numbers.see(incarnation, number).map(|cause| format!("{key} {cause}"))
        })
        .collect()
    }

    /// Whether this is the directory of what was unreachable, and nothing is in it any more.
    fn is_emptied(&self, key: &Key) -> bool {
        let is_below = |other: &Key| other != key && other.components().next() == Some(b"lost+found");
        key.components().eq([b"lost+found"]) && !self.objects.keys().any(is_below)
    }

    /// Keys in which a store's state differs from this, and how. The root is omitted, unless this has it.
    pub(super) fn differences(&self, found: &State, blind: &BTreeSet<Key>) -> Vec<String> {
        if !blind.is_empty() {
            return self.without(blind).differences(&found.without(blind), &BTreeSet::new());
        }
        let (names, found_names) = (self.first_names(), found.first_names());
        let mut differences = Vec::new();
        for (key, object) in &self.objects {
            let Some(other) = found.objects.get(key) else {
                differences.push(format!("{key} is missing"));
                continue;
            };
            if object.body != other.body {
                differences.push(format!("{key} is {}, not {}", describe(&other.body), describe(&object.body)));
            }
            if !object.has_attributes(other.attributes.as_ref()) {
                differences.push(format!("{key} has {:?}, not {:?}", other.attributes, object.attributes));
            }
            if names.get(key) != found_names.get(key) {
                differences.push(format!("{key} is the file {:?}, not {:?}", found_names.get(key), names.get(key)));
            }
        }
        let is_more = |key: &&Key| !key.is_root() && !self.objects.contains_key(key) && !found.is_emptied(key);
        let more = found.objects.keys().filter(is_more);
        differences.extend(more.map(|key| format!("{key} is there")));
        for (name, snapshot) in &self.snapshots {
            let Some(other) = found.snapshots.get(name) else {
                differences.push(format!("snapshot {name} is missing"));
                continue;
            };
            let within = snapshot.differences(other, blind);
            differences.extend(within.into_iter().map(|difference| format!("in snapshot {name} {difference}")));
        }
        let more = found.snapshots.keys().filter(|name| !self.snapshots.contains_key(name));
        differences.extend(more.map(|name| format!("snapshot {name} is there")));
        differences
    }
}

fn describe(body: &Body) -> String {
    match body {
        Body::File(bytes) => {
            format!("a file of {} bytes that begins {:02x?}", bytes.len(), &bytes[..bytes.len().min(8)])
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::workload::Recipe;
    use super::*;

    pub(crate) fn key(path: &str) -> Key {
        Key::parse(path).unwrap()
    }

    pub(crate) fn put(path: &str, seed: u64) -> Change {
        Change::Put(key(path), Attributes::default(), Recipe { seed, length: 5 })
    }

    pub(crate) fn state(changes: &[Change]) -> State {
        let mut state = State::default();
        for (at, change) in changes.iter().enumerate() {
            assert!(state.takes(change), "{change:?}");
            state.apply(change, 1000 + at as u64);
        }
        state
    }

    #[test]
    fn links_are_compared_by_the_names_that_belong_together() {
        let shared = |path, seed| Change::Shared(key(path), Attributes::default(), Recipe { seed, length: 5 });
        let link = |from, to| Change::Link(key(from), key(to));
        let together = state(&[shared("a", 1), link("a", "b"), link("a", "c")]);
        let mut numbered = together.clone();
        numbered.objects.values_mut().for_each(|object| object.shared = Some(77));
        assert_eq!(together.differences(&numbered, &BTreeSet::new()), Vec::<String>::new());
        let apart = state(&[shared("a", 1), link("a", "b"), shared("c", 1)]);
        assert_eq!(together.differences(&apart, &BTreeSet::new()).len(), 1);
        // A single remaining name is a file like any other.
        let mut one = together;
        one.apply(&Change::Remove(key("a")), 0);
        one.apply(&Change::Remove(key("b")), 0);
        assert_eq!(one.differences(&state(&[put("c", 1)]), &BTreeSet::new()), Vec::<String>::new());
        assert!(!one.takes(&link("b", "d")));
    }

    #[test]
    fn directories_above_are_made_and_have_any_attributes() {
        let made = state(&[put("a/b/c", 1)]);
        let own = Attributes { mode: 7, ..Attributes::default() };
        let mut found = state(&[Change::Directory(key("a"), own.clone()), put("a/b/c", 1)]);
        let (attributes, incarnation, number) = (None, None, None);
        let (body, shared, has_any_holes, moments) = (Body::Directory, None, false, Moments::of(0));
        found.insert(Key::root(), Object { attributes, body, shared, incarnation, number, has_any_holes, moments });
        assert_eq!(made.differences(&found, &BTreeSet::new()), Vec::<String>::new());
        assert_eq!(
            state(&[put("a/b/c", 1), Change::Directory(key("a"), own)]).differences(&made, &BTreeSet::new()).len(),
            1
        );
        assert!(!made.takes(&put("a/b", 1)) && !made.takes(&put("a/b/c/d", 1)));
        assert!(!made.takes(&Change::RemoveDirectory(key("a/b"))) && made.takes(&Change::RemoveTree(key("a"))));
        let mut empty = made;
        empty.apply(&Change::Remove(key("a/b/c")), 0);
        assert!(empty.takes(&Change::RemoveDirectory(key("a/b"))) && !empty.takes(&Change::Remove(key("a/b"))));
    }
}
