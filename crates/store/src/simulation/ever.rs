//! Everything that objects ever were: what damage beyond redundancy may leave of them.

use std::collections::BTreeMap;

use super::state::{Body, Object, State};
use super::workload::Change;
use crate::{Attributes, Key};

/// Everything that objects ever were: what damage beyond redundancy may leave of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ever {
    objects: BTreeMap<Key, Vec<Object>>,
    /// Names before and after renames.
    renames: Vec<(Key, Key)>,
}

/// Most names of an object that are tried.
const MOST_NAMES: usize = 64;

impl Ever {
    /// Records the effect of changes on objects.
    pub(crate) fn note(&mut self, changes: &[Change]) {
        for change in changes {
            let was_elsewhere = |from: &Key, to: &Key, ever: &mut Ever| {
                let below = |(key, known): (&Key, &Vec<Object>)| Some((key.below(from)?, known.clone()));
                let known: Vec<(Key, Vec<Object>)> = ever.objects.iter().filter_map(below).collect();
                for (below, known) in known {
                    ever.objects.entry(to.join(&below).expect("keys are short here")).or_default().extend(known);
                }
            };
            match change {
                Change::Link(from, to) | Change::HardLink(from, to) | Change::Rename(from, to) => {
                    if matches!(change, Change::Rename(..)) {
                        self.renames.push((from.clone(), to.clone()));
                    }
                    was_elsewhere(from, to, self);
                    self.has_directories_above(to);
                    continue;
                }
                Change::Exchange(one, other) => {
                    self.renames.extend([(one.clone(), other.clone()), (other.clone(), one.clone())]);
                    was_elsewhere(one, other, self);
                    was_elsewhere(other, one, self);
                    continue;
                }
                Change::Attributes(key, attributes) => {
                    self.had_attributes(key, attributes);
                    continue;
                }
                Change::Write(key, ..) | Change::Resize(key, _) => {
                    self.was_written(key, change);
                    continue;
                }
                _ => {}
            }
            let mut one = State::default();
            one.apply(change, 0);
            for (key, object) in one.objects() {
                self.objects.entry(key.clone()).or_default().push(object.clone());
            }
        }
    }

    /// Missing parent directories are created.
    fn has_directories_above(&mut self, key: &Key) {
        let mut made = State::default();
        made.apply(&Change::Directory(key.clone(), Attributes::default()), 0);
        for (above, object) in made.objects().filter(|(above, _)| *above != key) {
            self.objects.entry(above.clone()).or_default().push(object.clone());
        }
    }

    /// What the key ever was; a name in `lost+found` also what it was elsewhere.
    fn known_as(&self, key: &Key) -> Vec<Object> {
        let below = below_lost_found(key);
        let is_it = |known: &Key| known == key || below.as_ref().is_some_and(|below| ends_with(known, below));
        self.objects.iter().filter(|(known, _)| is_it(known)).flat_map(|(_, objects)| objects.clone()).collect()
    }

    /// Any object that the key had may have been written to, also under its other names, which share the content.
    fn was_written(&mut self, key: &Key, change: &Change) {
        let known = self.known_as(key);
        for object in known {
            let mut one = State::default();
            one.insert(key.clone(), object.clone());
            one.apply(change, 0);
            let Some(changed) = one.get(key).cloned() else { continue };
            for (other, objects) in &mut self.objects {
                if other == key || objects.iter().any(|one| one.body == object.body) {
                    objects.push(changed.clone());
                }
            }
        }
    }

    /// Any object that the key had may have had these, also a file under its other names, which share the content.
    fn had_attributes(&mut self, key: &Key, attributes: &Attributes) {
        let known = self.known_as(key);
        for object in known {
            let changed = object.with_attributes(attributes, 0);
            for (other, objects) in &mut self.objects {
                if other == key || changed.body != Body::Directory && objects.iter().any(|one| one.body == changed.body)
                {
                    objects.push(changed.clone());
                }
            }
        }
    }

    /// Whether an object was ever this, also if `lost+found` or something in it was renamed to become it.
    pub(crate) fn had(&self, key: &Key, object: &Object) -> bool {
        let of_lost = self.renames.iter().filter(|(from, _)| from.components().next() == Some(b"lost+found"));
        let former = of_lost.filter_map(|(from, to)| from.join(&key.below(to)?).ok());
        std::iter::once(key.clone()).chain(former).any(|key| self.had_here(&key, object))
    }

    /// What is in `lost+found` was somewhere else: the names from `lost+found/#NUMBER` on are the end of a path.
    fn had_here(&self, key: &Key, object: &Object) -> bool {
        if let Some(below) = below_lost_found(key) {
            let mut known = self.objects.keys().filter(|known| ends_with(known, &below));
            return below.is_empty() && object.body == Body::Directory || known.any(|known| self.was(known, object));
        }
        self.was(key, object) || key.components().eq([b"lost+found"]) && object.body == Body::Directory
    }

    /// A key, and those that it would be but for the loss of renames of directories above it: what was put there then
    /// is in the directory with the former name.
    fn later_names(&self, key: &Key) -> Vec<Key> {
        let mut names = vec![key.clone()];
        let mut at = 0;
        while at < names.len() && names.len() < MOST_NAMES {
            for (from, to) in &self.renames {
                let later = names[at].below(from).and_then(|below| to.join(&below).ok());
                names.extend(later.filter(|later| !names.contains(later)));
            }
            at += 1;
        }
        names
    }

    fn was(&self, key: &Key, object: &Object) -> bool {
        let is_it = |known: &Object| known.body == object.body && known.has_attributes(object.attributes.as_ref());
        let names = self.later_names(key);
        let is_known = names.iter().filter_map(|name| self.objects.get(name)).flatten().any(is_it);
        // A directory whose record is lost is recreated for its content, and may be renamed then.
        let is_above = |key: &Key| self.objects.keys().any(|one| one.below(key).is_some());
        let was_above = || self.renames.iter().any(|(from, to)| to == key && is_above(from));
        key.is_root() || is_known || object.body == Body::Directory && (is_above(key) || was_above())
    }
}

/// The names below a directory in `lost+found`.
pub(super) fn below_lost_found(key: &Key) -> Option<Vec<&[u8]>> {
    let names: Vec<&[u8]> = key.components().collect();
    match &names[..] {
        [b"lost+found", attached, below @ ..] if attached.starts_with(b"#") => Some(below.to_vec()),
        _ => None,
    }
}

/// Whether a path ends with these names, after others.
pub(super) fn ends_with(key: &Key, names: &[&[u8]]) -> bool {
    key.depth() > names.len() && key.components().skip(key.depth() - names.len()).eq(names.iter().copied())
}
