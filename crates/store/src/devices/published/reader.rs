//! The reader: the manifest, and the objects that it names, verified.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::sync::Arc;

use super::MANIFEST;
use super::manifest::{Fate, Manifest, PublishedObject};
use super::settle::{Bucket, CurrentManifest};
use super::surroundings::Surroundings;
use crate::devices::objects::{ObjectError, Objects, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::checksum;

/// Bytes per request.
const PIECE_BYTES: u64 = 8 << 20;

const READ: &str = "read the object";
const REFRESH: &str = "refresh";

/// Reads published objects, with or without a concurrent writer. It sees one version of the manifest until it
/// [refreshes](Self::refresh).
#[derive(Debug)]
pub struct Reader {
    pub(super) bucket: Bucket,
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
}

impl Reader {
    /// Reads the manifest, which contains everything acknowledged before.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound) if there is no store,
    /// [`Corrupt`](crate::error::ErrorKind::Corrupt) if its manifest is damaged.
    pub fn open(objects: Arc<dyn Objects>, surroundings: Arc<dyn Surroundings>) -> Result<Reader> {
        let bucket = Bucket { objects, surroundings };
        let CurrentManifest { manifest, tag } = bucket.manifest()?.ok_or_else(|| bucket.absent())?;
        Ok(Reader { bucket, manifest, tag })
    }

    /// The manifest as last read.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its tag.
    pub(crate) fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Checks by tag whether the manifest has changed; returns whether it has.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Lost`](crate::error::ErrorKind::Lost) if the new manifest is older than the previous
    /// one, or that of another store.
    pub fn refresh(&mut self) -> Result<bool> {
        self.refresh_to(|_| Ok(())).map(|taken| taken.is_some())
    }

    /// The same with what is in the new manifest; one that `take` refuses is not taken, and is looked at again.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh); those of `take`.
    pub(crate) fn refresh_to<T>(&mut self, take: impl FnOnce(&Manifest) -> Result<T>) -> Result<Option<T>> {
        let changed = self.bucket.changed_manifest(&self.tag)?;
        let Some(CurrentManifest { manifest, tag }) = changed else { return Ok(None) };
        let lost = |cause: &str| Error::new(ErrorKind::Lost, REFRESH, cause).at(&self.bucket.place_of(MANIFEST));
        if manifest.store != self.manifest.store {
            return Err(lost("it belongs to another store"));
        }
        if manifest.version < self.manifest.version {
            return Err(
                lost("it is older than what was read before").advise("check whether the bucket was rolled back")
            );
        }
        // What was read before is in no history that this one continues.
        if manifest.fate_of(&self.manifest) == Fate::Overtaken {
            let error = lost("it continues another history than what was read before");
            return Err(error.advise("check whether the bucket was rolled back, and open the store again"));
        }
        let has_changed = manifest.version > self.manifest.version;
        let taken = has_changed.then(|| take(&manifest)).transpose()?;
        (self.manifest, self.tag) = (manifest, tag);
        Ok(taken)
    }

    /// Reads and verifies the whole of an object that the manifest names.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::ErrorKind::Corrupt) if it differs from what was published,
    /// [`Lost`](crate::error::ErrorKind::Lost) if it is gone although the newest manifest names it,
    /// [`NotFound`](crate::error::ErrorKind::NotFound) if that one no longer does.
    pub fn read(&self, object: &PublishedObject) -> Result<Vec<u8>> {
        let path = object.path();
        let corrupt = |cause: String| Error::new(ErrorKind::Corrupt, READ, cause).at(&self.bucket.place_of(&path));
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let to = object.length_bytes.min(from + PIECE_BYTES);
            let piece = match self.bucket.read(&path, from..to) {
                Ok(piece) => piece,
                Err(ObjectError::NotFound) => return Err(self.missing(object)?),
                Err(error) => return Err(self.bucket.failed(READ, &path, error)),
            };
            if piece.head.size_bytes != object.length_bytes || piece.bytes.len() as u64 != to - from {
                let found = piece.head.size_bytes;
                return Err(corrupt(format!("it has {found} bytes instead of {}", object.length_bytes)));
            }
            bytes.extend_from_slice(&piece.bytes);
            if to == object.length_bytes {
                break;
            }
        }
        if checksum(&bytes) != object.checksum {
            return Err(corrupt("its checksum is wrong".to_owned()));
        }
        Ok(bytes)
    }

    /// The error for an object that does not exist.
    fn missing(&self, object: &PublishedObject) -> Result<Error> {
        let now = self.bucket.manifest()?;
        let is_named = now.is_some_and(|now| now.manifest.names(object.name));
        let (kind, cause) = match is_named {
            true => (ErrorKind::Lost, "it is gone, but the manifest names it"),
            false => (ErrorKind::NotFound, "it was removed meanwhile"),
        };
        let error = Error::new(kind, READ, cause).at(&self.bucket.place_of(&object.path()));
        Ok(if is_named { error } else { error.advise("refresh, and read again") })
    }
}
