//! What really happened in the bucket, independent of what the log believes: each manifest that took effect, and which
//! batch it was.
//!
//! The laws, each checked whenever it could be violated:
//!
//! - Manifests that take effect are consecutive: versions rise by one, and epochs continue from the preceding one.
//! - Each is exactly one thing: the begin of an epoch, with the body that it asked for, a batch as intended (all of it,
//!   in order, without what it removes, and its body), a pin, or the end of a pin.
//! - What was refused to a writer is never among them; what was acknowledged is.
//! - What a manifest refers to, for itself or a pin, is in the bucket with the bytes that were written, and a pin shows
//!   the state at the time when it was set.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::devices::objects::{Memory, ObjectError, Objects};
use crate::devices::published::{MANIFEST, Manifest, PublishedObject};

/// A change that a writer requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// The body with which an epoch begins.
    Begin(Vec<u8>),
    Batch(Batch),
    Pin(String),
    Unpin(String),
}

/// What a batch is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    /// Contents of objects, in the order of their numbers.
    pub(super) added: Vec<Vec<u8>>,
    /// Paths of the objects that they replace, sorted.
    pub(super) removed: Vec<String>,
    pub(super) body: Vec<u8>,
}

/// The answer to the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// No answer yet, or an unknown outcome.
    Nothing,
    Done,
    /// It was not done and will not be.
    Refused,
}

#[derive(Debug)]
struct Asked {
    /// Number of the requesting client.
    client: usize,
    wish: Wish,
    told: Told,
    /// The version that took effect.
    landed: Option<u64>,
}

/// A manifest that took effect.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) manifest: Manifest,
    /// Paths of the live objects, in order.
    pub(super) paths: Vec<String>,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) landed: Vec<Landed>,
    asked: Vec<Asked>,
    /// Contents of the objects to which a manifest has referred, by path.
    pub(super) contents: BTreeMap<String, Vec<u8>>,
    /// Paths of objects that were damaged.
    pub(super) damaged: BTreeSet<String>,
    /// The highest version that was acknowledged to a client.
    pub(super) acknowledged: u64,
}

/// The violation, if there is one.
pub(super) type Verdict = Result<(), String>;

fn paths<'m>(objects: impl Iterator<Item = &'m PublishedObject>) -> Vec<String> {
    objects.map(PublishedObject::path).collect()
}

fn law(holds: bool, words: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(words()) }
}

impl Truth {
    /// The newest manifest.
    pub(super) fn newest(&self) -> Option<&Landed> {
        self.landed.last()
    }

    /// The manifest of a version.
    pub(super) fn version(&self, version: u64) -> Option<&Landed> {
        self.landed.get(usize::try_from(version).ok()?.checked_sub(1)?)
    }

    /// Whether the newest manifest refers to an object, for itself or for a pin.
    pub(super) fn names(&self, path: &str) -> bool {
        self.named().any(|one| one == path)
    }

    /// Paths to which the newest manifest refers, for itself and for each pin.
    fn named(&self) -> impl Iterator<Item = &String> {
        let newest = self.newest().map(|newest| &newest.manifest);
        let pinned = newest.into_iter().flat_map(|manifest| manifest.pins().map(|(_, version)| version));
        let versions = pinned.chain(newest.map(Manifest::version));
        versions.filter_map(|version| self.version(version)).flat_map(|landed| &landed.paths)
    }

    /// Records a request before it is sent; returns its number.
    pub(super) fn ask(&mut self, client: usize, wish: Wish) -> usize {
        self.asked.push(Asked { client, wish, told: Told::Nothing, landed: None });
        self.asked.len() - 1
    }

    /// Records that the writer learned of success at a version.
    pub(super) fn tell_done(&mut self, asked: usize, version: u64) -> Verdict {
        let one = &mut self.asked[asked];
        one.told = Told::Done;
        self.acknowledged = self.acknowledged.max(version);
        law(one.landed == Some(version), || {
            format!("version {version} was acknowledged, and the bucket had {:?}", one.landed)
        })
    }

    /// Records that the writer learned of a refusal.
    pub(super) fn tell_refused(&mut self, asked: usize) -> Verdict {
        let one = &mut self.asked[asked];
        one.told = Told::Refused;
        law(one.landed.is_none(), || format!("{:?} was refused, and is there", one.wish))
    }

    /// Examines the bucket after a request of a client that may have changed it.
    pub(super) fn observe(&mut self, bucket: &Memory, client: usize) -> Verdict {
        let read = match bucket.read(MANIFEST, 0..u64::MAX) {
            Ok(read) => read,
            Err(ObjectError::NotFound) => return law(self.landed.is_empty(), || "the manifest is gone".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let manifest = Manifest::decode(&read.bytes).map_err(|flaw| format!("the manifest is damaged: {flaw:?}"))?;
        if self.newest().is_some_and(|newest| newest.manifest == manifest) {
            return Ok(());
        }
        let landed = Landed { paths: paths(manifest.objects()), manifest };
        self.land(landed, bucket, client)
    }

    fn land(&mut self, landed: Landed, bucket: &Memory, client: usize) -> Verdict {
        let manifest = &landed.manifest;
        let version = manifest.version();
        let due = self.landed.len() as u64 + 1;
        law(version == due, || format!("version {version} took effect after {}", due - 1))?;
        for object in manifest.objects() {
            if let Entry::Vacant(vacant) = self.contents.entry(object.path()) {
                let found = bucket.read(vacant.key(), 0..u64::MAX);
                let found = found.map_err(|error| format!("{}: {error}", vacant.key()))?;
                vacant.insert(found.bytes);
            }
        }
        let Some(before) = self.newest() else {
            law(landed.paths.is_empty() && manifest.parent().is_none(), || "a new store is not empty".to_owned())?;
            self.landed.push(landed);
            return Ok(());
        };
        law(manifest.store() == before.manifest.store(), || "it is another store".to_owned())?;
        let pins = |manifest: &Manifest| -> BTreeMap<String, u64> {
            manifest.pins().map(|(name, version)| (name.to_owned(), version)).collect()
        };
        let (pins_before, pins_now) = (pins(&before.manifest), pins(manifest));
        if manifest.epoch() != before.manifest.epoch() {
            law(manifest.parent() == Some(before.manifest.epoch()), || {
                format!("the epoch of version {version} does not go on from the one before")
            })?;
            law(landed.paths == before.paths && pins_now == pins_before, || {
                format!("an epoch began with version {version} and changed something")
            })?;
            if manifest.body() != before.manifest.body() {
                self.find(client, Wish::Begin(manifest.body().to_vec()), version)?;
            }
        } else {
            law(manifest.parent() == before.manifest.parent(), || "history was changed".to_owned())?;
            let wish = if pins_now == pins_before {
                let added = landed.paths.iter().filter(|path| !before.paths.contains(path));
                let added = added.map(|path| self.contents[path].clone()).collect();
                let gone = before.paths.iter().filter(|path| !landed.paths.contains(path));
                let removed = gone.cloned().collect::<BTreeSet<String>>().into_iter().collect();
                let kept = |paths: &Vec<String>, others: &Vec<String>| -> Vec<String> {
                    paths.iter().filter(|path| others.contains(path)).cloned().collect()
                };
                law(kept(&before.paths, &landed.paths) == kept(&landed.paths, &before.paths), || {
                    format!("version {version} has another order")
                })?;
                Wish::Batch(Batch { added, removed, body: manifest.body().to_vec() })
            } else {
                let is_same = landed.paths == before.paths && manifest.body() == before.manifest.body();
                law(is_same, || "a pin changed what there is".to_owned())?;
                match pins_now.iter().find(|(name, _)| !pins_before.contains_key(*name)) {
                    Some((name, pinned)) => {
                        law(*pinned == version, || "a pin keeps another version".to_owned())?;
                        Wish::Pin(name.clone())
                    }
                    None => {
                        let gone = pins_before.keys().find(|name| !pins_now.contains_key(*name));
                        Wish::Unpin(gone.cloned().ok_or("a pin moved")?)
                    }
                }
            };
            self.find(client, wish, version)?;
        }
        for (name, version) in &pins_now {
            let pinned = paths(manifest.at(*version));
            let then =
                if *version == manifest.version() { &landed.paths } else { &self.landed[*version as usize - 1].paths };
            law(pinned == *then, || format!("the pin {name} shows {pinned:?} instead of {then:?}"))?;
        }
        self.landed.push(landed);
        self.whole(bucket)
    }

    /// Finds the request that took effect.
    fn find(&mut self, client: usize, wish: Wish, version: u64) -> Verdict {
        let is_it = |one: &&mut Asked| {
            one.client == client && one.landed.is_none() && one.told == Told::Nothing && one.wish == wish
        };
        let Some(one) = self.asked.iter_mut().find(is_it) else {
            return Err(format!("version {version} was not asked for, or was refused, or comes again: {wish:?}"));
        };
        one.landed = Some(version);
        Ok(())
    }

    /// Everything that is referred to exists with its bytes.
    pub(super) fn whole(&self, bucket: &Memory) -> Verdict {
        for path in self.named().collect::<BTreeSet<_>>() {
            if self.damaged.contains(path) {
                continue;
            }
            let found = bucket.read(path, 0..u64::MAX);
            law(found.is_ok_and(|found| found.bytes == self.contents[path]), || {
                format!("{path} is named, and gone or overwritten")
            })?;
        }
        Ok(())
    }

    /// Everything that the bucket may contain after garbage collection.
    pub(super) fn wanted(&self) -> BTreeSet<String> {
        self.named().cloned().chain([MANIFEST.to_owned()]).collect()
    }
}
