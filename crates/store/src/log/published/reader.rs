//! The reader: the manifest, and the objects that it names, verified.

use std::sync::Arc;

use super::MANIFEST;
use super::manifest::{Manifest, PublishedObject};
use super::settle::{Bucket, Current};
use super::surroundings::Surroundings;
use super::writer::absent;
use crate::devices::objects::{ObjectError, Objects, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::checksum;

/// Bytes that are asked for at a time.
const PIECE_BYTES: u64 = 8 << 20;

const READ: &str = "read the object";
const REFRESH: &str = "refresh";

/// Reads what was published, beside a writer or without one. It sees one version of the manifest until it [refreshes](Self::refresh).
#[derive(Debug)]
pub struct Reader {
    bucket: Bucket,
    manifest: Manifest,
    tag: Tag,
}

impl Reader {
    /// Reads the manifest: what was acknowledged before is in it.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound) if there is no store, [`Corrupt`](crate::error::ErrorKind::Corrupt) if its manifest is damaged.
    pub fn open(objects: Arc<dyn Objects>, surroundings: Arc<dyn Surroundings>) -> Result<Reader> {
        let bucket = Bucket { objects, surroundings };
        let Current { manifest, tag } = bucket.manifest()?.ok_or_else(|| absent(&bucket))?;
        Ok(Reader { bucket, manifest, tag })
    }

    /// The manifest as it was last read.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Looks for another manifest, by its tag; gives whether there was one.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Lost`](crate::error::ErrorKind::Lost) if it is older than the one before, or another store's.
    pub fn refresh(&mut self) -> Result<bool> {
        let head = self.bucket.until_answered(|objects| objects.head(MANIFEST));
        if head.is_ok_and(|head| head.tag == self.tag) {
            return Ok(false);
        }
        let Current { manifest, tag } = self.bucket.manifest()?.ok_or_else(|| absent(&self.bucket))?;
        let lost = |cause: &str| Error::new(ErrorKind::Lost, REFRESH, cause).at(&self.bucket.place_of(MANIFEST));
        if manifest.store != self.manifest.store {
            return Err(lost("it is another store's"));
        }
        if manifest.version < self.manifest.version {
            return Err(lost("it is older than what was read before").advise("see whether the bucket was set back"));
        }
        let has_changed = manifest.version > self.manifest.version;
        (self.manifest, self.tag) = (manifest, tag);
        Ok(has_changed)
    }

    /// All of an object that the manifest names, verified.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::ErrorKind::Corrupt) if it is not what was published, [`Lost`](crate::error::ErrorKind::Lost) if it is gone although the newest manifest names it,
    /// [`NotFound`](crate::error::ErrorKind::NotFound) if that one does not any more.
    pub fn read(&self, object: &PublishedObject) -> Result<Vec<u8>> {
        let path = object.path();
        let corrupt = |cause: String| Error::new(ErrorKind::Corrupt, READ, cause).at(&self.bucket.place_of(&path));
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let to = object.length_bytes.min(from + PIECE_BYTES);
            let piece = match self.bucket.until_answered(|objects| objects.read(&path, from..to)) {
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
            return Err(corrupt("its checksum does not hold".to_owned()));
        }
        Ok(bytes)
    }

    /// What is to be said of an object that is not there.
    fn missing(&self, object: &PublishedObject) -> Result<Error> {
        let now = self.bucket.manifest()?;
        let is_named = now.is_some_and(|now| now.manifest.names(object.name));
        let (kind, cause) = match is_named {
            true => (ErrorKind::Lost, "it is gone, and the manifest names it"),
            false => (ErrorKind::NotFound, "it was removed meanwhile"),
        };
        let error = Error::new(kind, READ, cause).at(&self.bucket.place_of(&object.path()));
        Ok(if is_named { error } else { error.advise("refresh, and read again") })
    }
}
