//! The writer: it begins an epoch, publishes batches and pins, and stops once it is fenced.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::WriteError;
use super::manifest::{MOST_EPOCHS, Manifest, OBJECT_BYTES, ObjectName, PublishedObject, WriterEpoch};
use super::settle::{Bucket, CurrentManifest, LONGEST_BYTES, Settled};
use super::surroundings::Surroundings;
use crate::devices::objects::{Expected, ObjectError, Objects, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Epoch;
use crate::format::record::checksum;

const BEGIN: &str = "begin an epoch in";
const PUBLISH: &str = "publish to";
const PUT: &str = "put";

/// No batch makes the manifest longer, so that there is room for another epoch, and for removals with their pins.
const LONGEST_WITH_BATCH_BYTES: u64 = LONGEST_BYTES / 16 * 15;

/// Why a writer has ended.
#[derive(Debug, Clone, Copy)]
enum WriterEnd {
    Fenced,
    Unsettled,
}

/// The writer: its epoch is the newest, as far as it knows.
#[derive(Debug)]
pub struct Writer {
    pub(super) bucket: Bucket,
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
    /// Names that this writer drew or dropped, and that no manifest has or will have.
    pub(super) given_up: BTreeSet<ObjectName>,
    end: Option<WriterEnd>,
}

impl Writer {
    /// Creates a store in a bucket without one.
    ///
    /// # Errors
    /// [`Exists`](crate::error::ErrorKind::Exists) if there is one; else as [`open`](Self::open).
    pub fn create(
        objects: Arc<dyn Objects>,
        surroundings: Arc<dyn Surroundings>,
    ) -> std::result::Result<Writer, WriteError> {
        let bucket = Bucket { objects, surroundings };
        let exists = || {
            let error = Error::new(ErrorKind::Exists, "create a store in", "one already exists");
            WriteError::Failed(error.at(&bucket.objects.place()))
        };
        if bucket.manifest()?.is_some() {
            return Err(exists());
        }
        let first = Manifest {
            store: bucket.identity()?,
            version: 1,
            nonce: bucket.surroundings.random()?,
            next_number: 1,
            epochs: vec![bucket.epoch_after(0, 0)?],
            pins: Default::default(),
            objects: Vec::new(),
        };
        match bucket.settle(&first, &Expected::Absent, &mut bucket.attempts())? {
            Settled::Newest(tag) => Ok(Writer::of(bucket, first, tag)),
            Settled::Followed => Err(WriteError::Fenced(fenced(&bucket, BEGIN))),
            Settled::Overtaken => Err(exists()),
        }
    }

    /// Begins an epoch: the previous writer is fenced. Everything acknowledged is present, and everything unsettled is
    /// settled.
    ///
    /// # Errors
    /// [`WriteError`]; [`NotFound`](crate::error::ErrorKind::NotFound) if there is no store,
    /// [`Corrupt`](crate::error::ErrorKind::Corrupt) if its manifest is damaged.
    pub fn open(
        objects: Arc<dyn Objects>,
        surroundings: Arc<dyn Surroundings>,
    ) -> std::result::Result<Writer, WriteError> {
        let bucket = Bucket { objects, surroundings };
        let mut attempts = bucket.attempts();
        loop {
            let CurrentManifest { manifest, tag } = bucket.manifest()?.ok_or_else(|| absent(&bucket))?;
            let mut next = manifest.succeeded_by(bucket.surroundings.random()?);
            next.epochs.drain(..next.epochs.len().saturating_sub(MOST_EPOCHS - 1));
            next.epochs.push(bucket.epoch_after(manifest.version, manifest.nonce)?);
            match bucket.settle(&next, &Expected::Tagged(tag), &mut attempts)? {
                Settled::Newest(tag) => return Ok(Writer::of(bucket, next, tag)),
                Settled::Followed => return Err(WriteError::Fenced(fenced(&bucket, BEGIN))),
                // Another writer came in between: retry on the current manifest.
                Settled::Overtaken if attempts.again() => {}
                Settled::Overtaken => {
                    let error = Error::new(ErrorKind::Busy, BEGIN, "others keep writing to it");
                    return Err(WriteError::Failed(error.at(&bucket.objects.place())));
                }
            }
        }
    }

    fn of(bucket: Bucket, manifest: Manifest, tag: Tag) -> Writer {
        Writer { bucket, manifest, tag, given_up: BTreeSet::new(), end: None }
    }

    /// A duplicate of this writer, as if the machine had been copied while it ran.
    #[cfg(test)]
    pub(crate) fn twin(&self, objects: Arc<dyn Objects>, surroundings: Arc<dyn Surroundings>) -> Writer {
        let Writer { manifest, tag, given_up, end, .. } = self;
        let bucket = Bucket { objects, surroundings };
        Writer { bucket, manifest: manifest.clone(), tag: tag.clone(), given_up: given_up.clone(), end: *end }
    }

    /// The manifest as this writer left it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Publishes a batch: the objects `added` replace those in `removed` (by number), atomically. Returns the version
    /// with the batch, which is then acknowledged.
    ///
    /// # Errors
    /// [`WriteError`]; [`Usage`](crate::error::ErrorKind::Usage) if an object in `removed` does not exist,
    /// [`NoSpace`](crate::error::ErrorKind::NoSpace) if the manifest would be too long with these objects.
    pub fn publish(&mut self, added: &[&[u8]], removed: &[u64]) -> std::result::Result<u64, WriteError> {
        self.may_write()?;
        let mut next = self.succeeding()?;
        for number in removed {
            let found = next.objects.binary_search_by_key(number, PublishedObject::number);
            let found = found.ok().and_then(|at| next.objects.get_mut(at)).filter(|object| object.removed == 0);
            let Some(object) = found else {
                let error = Error::new(ErrorKind::Usage, PUBLISH, format!("there is no object {number} to remove"));
                return Err(WriteError::Failed(error.at(&self.bucket.objects.place())));
            };
            object.removed = next.version;
        }
        if !added.is_empty() {
            next.forget();
            let length_bytes = next.length_bytes() + (OBJECT_BYTES * added.len()) as u64;
            self.bucket.refuse_longer(length_bytes, LONGEST_WITH_BATCH_BYTES)?;
        }
        for bytes in added {
            let name = self.put(next.next_number, bytes)?;
            let (length_bytes, checksum) = (bytes.len() as u64, checksum(bytes));
            next.objects.push(PublishedObject { name, length_bytes, checksum, added: next.version, removed: 0 });
            next.next_number += 1;
        }
        self.replace(next)
    }

    /// Preserves the current state of the log until [`unpin`](Self::unpin), whatever is removed meanwhile and whoever
    /// writes. An existing pin of the name moves to the current state. Returns the version preserved.
    ///
    /// # Errors
    /// [`WriteError`]; [`Usage`](crate::error::ErrorKind::Usage) for a name that is empty or longer than 65,535 bytes.
    pub fn pin(&mut self, name: &str) -> std::result::Result<u64, WriteError> {
        self.may_write()?;
        if name.is_empty() || name.len() > usize::from(u16::MAX) {
            let error = Error::new(ErrorKind::Usage, "pin", "the name must have 1 to 65,535 bytes");
            return Err(WriteError::Failed(error.at(&self.bucket.objects.place())));
        }
        let mut next = self.succeeding()?;
        next.pins.insert(name.to_owned(), next.version);
        self.replace(next)
    }

    /// Removes a pin; returns whether one of that name existed.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn unpin(&mut self, name: &str) -> std::result::Result<bool, WriteError> {
        self.may_write()?;
        let mut next = self.succeeding()?;
        if next.pins.remove(name).is_none() {
            return Ok(false);
        }
        self.replace(next)?;
        Ok(true)
    }

    fn succeeding(&self) -> Result<Manifest> {
        Ok(self.manifest.succeeded_by(self.bucket.surroundings.random()?))
    }

    /// Fails once the writer has ended.
    pub(super) fn may_write(&self) -> std::result::Result<(), WriteError> {
        match self.end {
            None => Ok(()),
            Some(WriterEnd::Fenced) => Err(WriteError::Fenced(fenced(&self.bucket, PUBLISH))),
            Some(WriterEnd::Unsettled) => {
                let cause = "the outcome of the last write is unknown";
                let error = Error::new(ErrorKind::ReadOnly, PUBLISH, cause).at(&self.bucket.objects.place());
                Err(WriteError::Failed(error.advise("open it again")))
            }
        }
    }

    /// Notes that another writer has begun an epoch.
    pub(super) fn fence(&mut self) -> WriteError {
        self.end = Some(WriterEnd::Fenced);
        WriteError::Fenced(fenced(&self.bucket, PUBLISH))
    }

    /// Puts an object under a unique name; returns the name.
    fn put(&mut self, number: u64, bytes: &[u8]) -> std::result::Result<ObjectName, WriteError> {
        let mut attempts = self.bucket.attempts();
        let like = ObjectName { number, epoch: self.manifest.epoch(), nonce: 0 };
        let mut name = self.bucket.name(like)?;
        loop {
            // Abandoned unless a manifest names it.
            self.given_up.insert(name);
            let path = name.path();
            let cause = match self.bucket.objects.put(&path, bytes) {
                Ok(_) => return Ok(name),
                // Either it is ours, sent twice on the way, or it is not, and keeps its name.
                Err(ObjectError::Refused) => match self.bucket.has(&path, bytes) {
                    Ok(true) => return Ok(name),
                    Ok(false) => {
                        self.given_up.remove(&name);
                        name = self.bucket.name(like)?;
                        ObjectError::Refused
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !attempts.again() {
                return Err(WriteError::Failed(self.bucket.failed(PUT, &path, cause)));
            }
        }
    }

    /// Replaces the manifest with `next`; returns its version.
    fn replace(&mut self, mut next: Manifest) -> std::result::Result<u64, WriteError> {
        next.forget();
        let settled = self.bucket.settle(&next, &Expected::Tagged(self.tag.clone()), &mut self.bucket.attempts());
        match settled {
            Ok(Settled::Newest(tag)) => {
                let before = std::mem::replace(&mut self.manifest, next);
                self.tag = tag;
                let Writer { manifest, given_up, .. } = self;
                given_up.retain(|name| !manifest.names(*name));
                given_up.extend(before.objects.iter().map(|object| object.name).filter(|name| !manifest.names(*name)));
                Ok(self.manifest.version)
            }
            // Acknowledged: whoever continued has it.
            Ok(Settled::Followed) => {
                self.end = Some(WriterEnd::Fenced);
                self.manifest = next;
                Ok(self.manifest.version)
            }
            Ok(Settled::Overtaken) => Err(self.fence()),
            Err(error) => {
                if let WriteError::Unsettled(_) = error {
                    self.end = Some(WriterEnd::Unsettled);
                }
                Err(error)
            }
        }
    }
}

/// The error for a bucket without a manifest.
pub(super) fn absent(bucket: &Bucket) -> Error {
    Error::new(ErrorKind::NotFound, "open a store in", "there is no manifest").at(&bucket.objects.place())
}

fn fenced(bucket: &Bucket, operation: &'static str) -> Error {
    let error = Error::new(ErrorKind::Busy, operation, "another writer has begun an epoch");
    error.at(&bucket.objects.place()).advise("end the other one, and reopen it")
}

impl Bucket {
    /// Draws the identity of a store.
    fn identity(&self) -> Result<[u8; 16]> {
        let (low, high) = (self.surroundings.random()?, self.surroundings.random()?);
        Ok((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }

    /// A new epoch that continues a manifest.
    fn epoch_after(&self, follows_version: u64, follows_nonce: u64) -> Result<WriterEpoch> {
        let epoch = Epoch(self.surroundings.random()?);
        Ok(WriterEpoch {
            epoch,
            began_nanoseconds: self.surroundings.now_nanoseconds(),
            follows_version,
            follows_nonce,
        })
    }
}
