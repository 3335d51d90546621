//! The manifest: which objects the log has, in one document that is replaced as a whole (docs/FORMAT.md, section 12,
//! defines the bytes).

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::format::decode::Decoder;
use crate::format::geometry::Class;
use crate::format::ids::Epoch;
use crate::format::record::checksum;

const CHECKSUM_BYTES: usize = 8;
const MAGIC: &[u8; 8] = b"granpub\0";
/// The version of the document's format.
pub(super) const FORMAT_VERSION: u16 = 2;
const LENGTH_AT: usize = CHECKSUM_BYTES + 8 + 2 + 6;
/// Length up to the epochs, in bytes.
const HEAD_BYTES: usize = LENGTH_AT + 8 + 16 + 8 + 8 + 8 + 4 + 4 + 8;
const EPOCH_BYTES: usize = 8 + 8 + 8 + 8;
/// Length of a pin without its name, in bytes.
const PIN_BYTES: usize = 8 + 2;
pub(super) const OBJECT_BYTES: usize = 8 + 8 + 4 + 1 + 8 + 8 + 8 + 8;
/// Length of the length of the body, in bytes.
const BODY_LENGTH_BYTES: usize = 8;

/// Upper bound of versions and numbers, so that none overflows.
const LARGEST: u64 = u64::MAX >> 1;
/// Maximum number of epochs; older ones are dropped.
pub(super) const MOST_EPOCHS: usize = 256;
/// The classes of published objects.
pub(super) const CLASSES: [Class; 2] = [Class::Fast, Class::Slow];

/// Prefix of the names of published objects of a class.
pub(super) fn prefix(class: Class) -> &'static str {
    match class {
        Class::Fast => "fast/",
        Class::Slow => "slow/",
    }
}

/// The name of an object: its number, the epoch of the writer that put it, a number drawn for this put, and its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: u32,
    pub(crate) class: Class,
}

impl ObjectName {
    pub(crate) fn path(self) -> String {
        format!("{}{:016x}-{:016x}-{:08x}", prefix(self.class), self.number, self.epoch.0, self.nonce)
    }

    /// Parses a path; `None` if it is not such a name.
    pub(crate) fn of(path: &str) -> Option<ObjectName> {
        let (class, rest) = CLASSES.iter().find_map(|class| Some((*class, path.strip_prefix(prefix(*class))?)))?;
        let mut parts = rest.split('-');
        let mut part = || u64::from_str_radix(parts.next()?, 16).ok();
        let name = ObjectName { number: part()?, epoch: Epoch(part()?), nonce: u32::try_from(part()?).ok()?, class };
        // Canonical form only: no capitals, no signs, no suffix.
        (name.path() == path).then_some(name)
    }
}

/// An object that the manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedObject {
    pub(super) name: ObjectName,
    pub(super) length_bytes: u64,
    /// XXH3 of the whole object.
    pub(super) checksum: u64,
    /// The version of the manifest that first named it; all objects of one batch share it.
    pub(super) added: u64,
    /// The version that removed it; 0 while it is current. A removed object stays named as long as a pin needs it.
    pub(super) removed: u64,
}

impl PublishedObject {
    /// Its number; numbers ascend in the order in which objects were put.
    pub fn number(&self) -> u64 {
        self.name.number
    }

    /// The storage class that it was put into.
    pub fn class(&self) -> Class {
        self.name.class
    }

    /// Its name, which no other object ever has.
    pub(crate) fn name(&self) -> ObjectName {
        self.name
    }

    /// Its path in the bucket.
    pub fn path(&self) -> String {
        self.name.path()
    }

    /// Its length in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Whether these bytes are its content.
    pub(crate) fn is_intact(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.length_bytes && checksum(bytes) == self.checksum
    }

    /// The version created by its batch.
    pub fn version(&self) -> u64 {
        self.added
    }

    fn counts_at(&self, version: u64) -> bool {
        self.added <= version && (self.removed == 0 || version < self.removed)
    }
}

/// The epoch of one writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriterEpoch {
    pub(super) epoch: Epoch,
    pub(super) began_nanoseconds: i64,
    /// The version that it continued; 0 for the first.
    pub(super) follows_version: u64,
    /// The nonce of that manifest.
    pub(super) follows_nonce: u64,
}

/// The objects of the log, its writer, and the pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub(super) store: [u8; 16],
    /// Incremented by each replacement.
    pub(super) version: u64,
    /// Drawn for this one document: its author recognizes it by this.
    pub(super) nonce: u64,
    pub(super) next_number: u64,
    /// Newest last; never empty.
    pub(super) epochs: Vec<WriterEpoch>,
    /// The version that each pin preserves.
    pub(super) pins: BTreeMap<String, u64>,
    /// By number.
    pub(super) objects: Vec<PublishedObject>,
    /// What the objects mean, in bytes that only the user of the log understands.
    pub(super) body: Arc<Vec<u8>>,
}

/// Whether a document took effect, according to a manifest read after it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is the manifest that was read.
    Newest,
    /// The manifest that was read is older: the document has not taken effect yet.
    Before,
    /// It took effect, and another epoch continued from it.
    Followed,
    /// It did not take effect and never will.
    Overtaken,
    /// Dropped from the history.
    Unknown,
}

impl Manifest {
    /// Identity of the store.
    pub fn store(&self) -> &[u8; 16] {
        &self.store
    }

    /// Incremented whenever the manifest changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The epoch of the writer that may write.
    pub fn epoch(&self) -> Epoch {
        self.epochs.last().map(|entry| entry.epoch).unwrap_or_default()
    }

    /// The previous epoch, if any.
    pub fn parent(&self) -> Option<Epoch> {
        self.epochs.iter().nth_back(1).map(|entry| entry.epoch)
    }

    /// When the epoch began, in nanoseconds since 1970 by its writer's clock.
    pub fn began_nanoseconds(&self) -> i64 {
        self.epochs.last().map_or(0, |entry| entry.began_nanoseconds)
    }

    /// The objects of the log, in order.
    pub fn objects(&self) -> impl DoubleEndedIterator<Item = &PublishedObject> + Clone {
        self.at(self.version)
    }

    /// The objects of the log at a pinned version (or the newest), in order.
    pub fn at(&self, version: u64) -> impl DoubleEndedIterator<Item = &PublishedObject> + Clone {
        self.objects.iter().filter(move |object| object.counts_at(version))
    }

    /// Names of the pins, each with the version that it preserves.
    pub fn pins(&self) -> impl Iterator<Item = (&str, u64)> {
        self.pins.iter().map(|(name, version)| (name.as_str(), *version))
    }

    /// What the user of the log published with the newest batch.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether it names an object, as current or for a pin.
    pub(crate) fn names(&self, name: ObjectName) -> bool {
        let found = self.objects.binary_search_by_key(&name.number, |object| object.name.number);
        found.ok().and_then(|at| self.objects.get(at)).is_some_and(|object| object.name == name)
    }

    /// The next manifest, with nothing else changed.
    pub(super) fn succeeded_by(&self, nonce: u64) -> Manifest {
        Manifest { version: self.version + 1, nonce, ..self.clone() }
    }

    /// Drops objects that neither the newest version nor a pinned one needs.
    pub(super) fn forget(&mut self) {
        let Manifest { objects, pins, .. } = self;
        objects.retain(|object| object.removed == 0 || pins.values().any(|&version| object.counts_at(version)));
    }

    /// The fate of `sent`, according to this manifest, which was read after `sent` was sent.
    pub(super) fn fate_of(&self, sent: &Manifest) -> Fate {
        if self.store != sent.store {
            // Two writers created a store concurrently, or somebody has put another one here.
            return if sent.version == 1 { Fate::Overtaken } else { Fate::Unknown };
        }
        if self.version <= sent.version {
            return match (self.version == sent.version, self.nonce == sent.nonce) {
                (false, _) => Fate::Before,
                (true, true) => Fate::Newest,
                (true, false) => Fate::Overtaken,
            };
        }
        // Who made the version that it would have been? Each epoch records which version it continued.
        if let Some(next) = self.epochs.iter().find(|entry| entry.follows_version == sent.version) {
            return if next.follows_nonce == sent.nonce { Fate::Followed } else { Fate::Overtaken };
        }
        match self.epochs.iter().rfind(|entry| entry.follows_version < sent.version) {
            Some(held) if held.epoch != sent.epoch() => Fate::Overtaken,
            // A copy of this very process continued, or the history does not reach back that far.
            _ => Fate::Unknown,
        }
    }

    /// Length of the document, in bytes.
    pub(crate) fn length_bytes(&self) -> u64 {
        let pins: usize = self.pins.keys().map(|name| PIN_BYTES + name.len()).sum();
        let rows = EPOCH_BYTES * self.epochs.len() + OBJECT_BYTES * self.objects.len();
        (HEAD_BYTES + pins + rows + BODY_LENGTH_BYTES + self.body.len()) as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length_bytes() as usize);
        bytes.resize(CHECKSUM_BYTES, 0);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.resize(LENGTH_AT + 8, 0);
        bytes.extend_from_slice(&self.store);
        for word in [self.version, self.nonce, self.next_number] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for count in [self.epochs.len(), self.pins.len()] {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for entry in &self.epochs {
            bytes.extend_from_slice(&entry.epoch.0.to_le_bytes());
            bytes.extend_from_slice(&entry.began_nanoseconds.to_le_bytes());
            bytes.extend_from_slice(&entry.follows_version.to_le_bytes());
            bytes.extend_from_slice(&entry.follows_nonce.to_le_bytes());
        }
        for (name, version) in &self.pins {
            bytes.extend_from_slice(&version.to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        for object in &self.objects {
            bytes.extend_from_slice(&object.name.number.to_le_bytes());
            bytes.extend_from_slice(&object.name.epoch.0.to_le_bytes());
            bytes.extend_from_slice(&object.name.nonce.to_le_bytes());
            bytes.push(object.name.class as u8);
            for word in [object.length_bytes, object.checksum, object.added, object.removed] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&(self.body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.body);
        seal(&mut bytes);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let (stored_checksum, magic) = (decoder.u64(), decoder.take(MAGIC.len()));
        if magic != Some(MAGIC) {
            return Err(DecodeError::Damaged("it is not a manifest"));
        }
        // First: a newer format may differ in everything behind its version, even in its checksum.
        match decoder.u16() {
            Some(FORMAT_VERSION) => {}
            Some(version) if version > FORMAT_VERSION => return Err(DecodeError::Newer(version)),
            Some(_) => return Err(DecodeError::Damaged("its version does not exist")),
            None => return Err(DecodeError::Damaged("it is truncated")),
        }
        if decoder.take(6) != Some(&[0; 6]) {
            return Err(DecodeError::Damaged("its reserved bytes are not zero"));
        }
        if decoder.u64() != Some(bytes.len() as u64) {
            return Err(DecodeError::Damaged("its length is wrong"));
        }
        if stored_checksum != bytes.get(CHECKSUM_BYTES..).map(checksum) {
            return Err(DecodeError::Damaged("its checksum is wrong"));
        }
        fields(decoder).filter(Manifest::is_sound).ok_or(DecodeError::Damaged("it is inconsistent"))
    }

    /// Whether all parts are consistent, so that later code need not check again.
    fn is_sound(&self) -> bool {
        let rise = |one: &WriterEpoch, next: &WriterEpoch| one.follows_version < next.follows_version;
        let follow = |one: &PublishedObject, next: &PublishedObject| one.name.number < next.name.number;
        let is_needed = |object: &PublishedObject| {
            object.removed == 0 || self.pins.values().any(|&version| object.counts_at(version))
        };
        let is_object_sound = |object: &PublishedObject| {
            (1..=self.version).contains(&object.added)
                && object.name.number < self.next_number
                && (object.removed == 0 || (object.added + 1..=self.version).contains(&object.removed))
                && is_needed(object)
        };
        (1..=LARGEST).contains(&self.version)
            && self.next_number <= LARGEST
            && (1..=MOST_EPOCHS).contains(&self.epochs.len())
            && self.epochs.is_sorted_by(rise)
            && self.epochs.last().is_some_and(|entry| entry.follows_version < self.version)
            && self.pins.iter().all(|(name, version)| !name.is_empty() && (1..=self.version).contains(version))
            && self.objects.is_sorted_by(follow)
            && self.objects.iter().all(is_object_sound)
    }
}

/// Everything after the length.
fn fields(mut at: Decoder<'_>) -> Option<Manifest> {
    let store = at.identity()?;
    let (version, nonce, next_number) = (at.u64()?, at.u64()?, at.u64()?);
    let (epoch_count, pin_count, object_count) = (at.u32()? as usize, at.u32()?, usize::try_from(at.u64()?).ok()?);
    // Allocates nothing for rows that are not present.
    let mut rows = Decoder::new(at.take(epoch_count.checked_mul(EPOCH_BYTES)?)?);
    let mut epochs = Vec::with_capacity(epoch_count);
    for _ in 0..epoch_count {
        let (epoch, began) = (Epoch(rows.u64()?), rows.u64()?);
        let (follows_version, follows_nonce) = (rows.u64()?, rows.u64()?);
        epochs.push(WriterEpoch { epoch, began_nanoseconds: began as i64, follows_version, follows_nonce });
    }
    let mut pins = BTreeMap::new();
    for _ in 0..pin_count {
        let (version, length) = (at.u64()?, at.u16()?);
        let name = std::str::from_utf8(at.take(length.into())?).ok()?;
        if pins.last_key_value().is_some_and(|(last, _): (&String, _)| last.as_str() >= name) {
            return None;
        }
        pins.insert(name.to_owned(), version);
    }
    let mut rows = Decoder::new(at.take(object_count.checked_mul(OBJECT_BYTES)?)?);
    let mut objects = Vec::with_capacity(object_count);
    for _ in 0..object_count {
        let (number, epoch, nonce) = (rows.u64()?, Epoch(rows.u64()?), rows.u32()?);
        let name = ObjectName { number, epoch, nonce, class: class_of(rows.u8()?)? };
        let (length_bytes, checksum, added, removed) = (rows.u64()?, rows.u64()?, rows.u64()?, rows.u64()?);
        objects.push(PublishedObject { name, length_bytes, checksum, added, removed });
    }
    let body_length = usize::try_from(at.u64()?).ok()?;
    let body = Arc::new(at.take(body_length)?.to_vec());
    at.rest().is_empty().then_some(Manifest { store, version, nonce, next_number, epochs, pins, objects, body })
}

fn class_of(byte: u8) -> Option<Class> {
    CLASSES.into_iter().find(|class| *class as u8 == byte)
}

/// Writes length and checksum into a document that is otherwise complete.
pub(crate) fn seal(bytes: &mut [u8]) {
    let length = bytes.len() as u64;
    if let Some(place) = bytes.get_mut(LENGTH_AT..LENGTH_AT + 8) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    if let Some((place, rest)) = bytes.split_first_chunk_mut::<CHECKSUM_BYTES>() {
        *place = checksum(rest).to_le_bytes();
    }
}

/// Why bytes are not a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// What is wrong with the bytes.
    Damaged(&'static str),
    /// They are of a later format version.
    Newer(u16),
}

#[cfg(test)]
pub(crate) mod tests;
