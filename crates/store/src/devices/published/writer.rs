//! The writer: it begins an epoch, sets pins, and stops once it is fenced. What it publishes is in `stage`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::WriteError;
use super::manifest::{MOST_EPOCHS, Manifest, ObjectName, WriterEpoch};
use super::reader::Reader;
use super::settle::{Attempts, Bucket, CurrentManifest, Settled};
use super::surroundings::Surroundings;
use crate::devices::objects::{Expected, Objects, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Epoch;

const BEGIN: &str = "begin an epoch in";
pub(super) const PUBLISH: &str = "publish to";

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
    /// Number of the next object that is put; not below that of the manifest.
    pub(super) next_number: u64,
    /// Objects that were put, and may yet be published.
    pub(super) staged: BTreeSet<ObjectName>,
    /// Names that a replacement by this writer dropped from the manifest, or that it could not delete: garbage.
    pub(super) dropped: BTreeSet<ObjectName>,
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
        Writer::create_with(objects, surroundings, Vec::new())
    }

    /// As [`create`](Self::create), with a [body](Manifest::body) in the first manifest.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(
        objects: Arc<dyn Objects>,
        surroundings: Arc<dyn Surroundings>,
        body: Vec<u8>,
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
            body: Arc::new(body),
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
            let current = bucket.manifest()?.ok_or_else(|| bucket.absent())?;
            let body = Arc::clone(&current.manifest.body);
            match Writer::begin(&bucket, current, body, &mut attempts)? {
                Some(writer) => return Ok(writer),
                // Another writer came in between: retry on the current manifest.
                None if attempts.again() => {}
                None => {
                    let error = Error::new(ErrorKind::Busy, BEGIN, "others keep writing to it");
                    return Err(WriteError::Failed(error.at(&bucket.objects.place())));
                }
            }
        }
    }

    /// Begins an epoch on the manifest that a reader has, with another body; `None` if that is no longer the newest
    /// one, and nothing has changed then. So whoever decides by what the manifest says decides by what is replaced.
    ///
    /// # Errors
    /// [`WriteError`]; [`Fenced`](WriteError::Fenced) if the epoch began, and another one has since.
    pub fn open_if(reader: &Reader, body: Vec<u8>) -> std::result::Result<Option<Writer>, WriteError> {
        let Reader { bucket, manifest, tag } = reader;
        let current = CurrentManifest { manifest: manifest.clone(), tag: tag.clone() };
        Writer::begin(bucket, current, Arc::new(body), &mut bucket.attempts())
    }

    fn begin(
        bucket: &Bucket,
        current: CurrentManifest,
        body: Arc<Vec<u8>>,
        attempts: &mut Attempts<'_>,
    ) -> std::result::Result<Option<Writer>, WriteError> {
        let CurrentManifest { manifest, tag } = current;
        let mut next = manifest.succeeded_by(bucket.surroundings.random()?);
        next.epochs.drain(..next.epochs.len().saturating_sub(MOST_EPOCHS - 1));
        next.epochs.push(bucket.epoch_after(manifest.version, manifest.nonce)?);
        next.body = body;
        match bucket.settle(&next, &Expected::Tagged(tag), attempts)? {
            Settled::Newest(tag) => Ok(Some(Writer::of(bucket.clone(), next, tag))),
            Settled::Followed => Err(WriteError::Fenced(fenced(bucket, BEGIN))),
            Settled::Overtaken => Ok(None),
        }
    }

    fn of(bucket: Bucket, manifest: Manifest, tag: Tag) -> Writer {
        let next_number = manifest.next_number;
        Writer { bucket, manifest, tag, next_number, staged: BTreeSet::new(), dropped: BTreeSet::new(), end: None }
    }

    /// A duplicate of this writer, as if the machine had been copied while it ran.
    #[cfg(test)]
    pub(crate) fn twin(&self, objects: Arc<dyn Objects>, surroundings: Arc<dyn Surroundings>) -> Writer {
        let Writer { bucket: _, manifest, tag, next_number, staged, dropped, end } = self;
        Writer {
            bucket: Bucket { objects, surroundings },
            manifest: manifest.clone(),
            tag: tag.clone(),
            next_number: *next_number,
            staged: staged.clone(),
            dropped: dropped.clone(),
            end: *end,
        }
    }

    /// The writer ends, and reads on from its manifest.
    pub fn into_reader(self) -> Reader {
        let Writer { bucket, manifest, tag, .. } = self;
        Reader { bucket, manifest, tag }
    }

    /// The manifest as this writer left it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
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

    pub(super) fn succeeding(&self) -> Result<Manifest> {
        let next = self.manifest.succeeded_by(self.bucket.surroundings.random()?);
        Ok(Manifest { next_number: self.next_number, ..next })
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

    /// Replaces the manifest with `next`; returns its version.
    pub(super) fn replace(&mut self, mut next: Manifest) -> std::result::Result<u64, WriteError> {
        next.forget();
        let settled = self.bucket.settle(&next, &Expected::Tagged(self.tag.clone()), &mut self.bucket.attempts());
        match settled {
            Ok(Settled::Newest(tag)) => {
                let before = std::mem::replace(&mut self.manifest, next);
                self.tag = tag;
                let Writer { manifest, staged, dropped, .. } = self;
                staged.retain(|name| !manifest.names(*name));
                dropped.extend(before.objects.iter().map(|object| object.name).filter(|name| !manifest.names(*name)));
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
