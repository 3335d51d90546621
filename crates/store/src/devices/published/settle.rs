//! Reads and replaces the manifest, and finds out what became of a replacement whose answer was lost.
//!
//! Why sending the same document again is safe: the request expects the tag of the previous manifest, and that tag
//! never returns. So at most one of the requests takes effect, however late some arrive; and none does once another
//! manifest exists.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::MANIFEST;
use super::error::WriteError;
use super::manifest::{DecodeError, FORMAT_VERSION, Fate, Manifest, ObjectName};
use super::surroundings::Surroundings;
use crate::devices::objects::{Expected, Head, ObjectError, Objects, Piece, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::units::format_size;

/// A longer manifest is neither read nor written: it is put whole with each batch. Shorter in tests.
pub(super) const LONGEST_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 1 << 30 };

const READ: &str = "read the manifest";
const REPLACE: &str = "replace the manifest";

/// The bucket and its surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) surroundings: Arc<dyn Surroundings>,
}

/// A manifest as read.
#[derive(Debug, Clone)]
pub(super) struct CurrentManifest {
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
}

/// What became of a document that was sent.
#[derive(Debug)]
pub(super) enum Settled {
    /// It is the manifest.
    Newest(Tag),
    /// It was the manifest; others continued from it.
    Followed,
    /// It never took effect and never will.
    Overtaken,
}

/// Counts the attempts of a request.
#[derive(Debug)]
pub(super) struct Attempts<'b> {
    surroundings: &'b dyn Surroundings,
    made: u32,
}

impl Attempts<'_> {
    /// An attempt has failed: waits, and returns whether to retry.
    pub(super) fn again_after(&mut self, error: &ObjectError) -> bool {
        !error.is_final() && self.again()
    }

    /// Another attempt has failed: waits, and returns whether to retry.
    pub(super) fn again(&mut self) -> bool {
        self.made = self.made.saturating_add(1);
        self.surroundings.wait(self.made)
    }
}

impl Bucket {
    pub(super) fn attempts(&self) -> Attempts<'_> {
        Attempts { surroundings: self.surroundings.as_ref(), made: 0 }
    }

    pub(crate) fn place_of(&self, name: &str) -> PathBuf {
        self.objects.place().join(name)
    }

    pub(super) fn failed(&self, operation: &'static str, name: &str, error: ObjectError) -> Error {
        let is_allowed =
            !matches!(&error, ObjectError::Failed(error) if error.kind() == io::ErrorKind::PermissionDenied);
        let error = Error::io(operation, &self.place_of(name), error.into_io());
        if is_allowed { error } else { error.advise("check the credentials, and what they may do in the bucket") }
    }

    /// Sends a request until it is answered or patience ends. "No such object" and "another object" are answers.
    pub(super) fn until_answered<T>(
        &self,
        request: impl Fn(&dyn Objects) -> std::result::Result<T, ObjectError>,
    ) -> std::result::Result<T, ObjectError> {
        let mut attempts = self.attempts();
        loop {
            match request(self.objects.as_ref()) {
                Err(error @ (ObjectError::Failed(_) | ObjectError::Unknown(_))) if attempts.again_after(&error) => {}
                answered => return answered,
            }
        }
    }

    /// Whether anything is there but what a probe of the bucket may leave.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub(crate) fn has_objects(&self) -> std::result::Result<bool, ObjectError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.until_answered(|objects| objects.list("", after.as_deref()))?;
            if page.objects.iter().any(|object| !object.name.starts_with("probe/")) {
                return Ok(true);
            }
            after = page.objects.into_iter().next_back().map(|object| object.name);
            if page.is_last || after.is_none() {
                return Ok(false);
            }
        }
    }

    /// The current manifest, if one exists.
    pub(super) fn manifest(&self) -> Result<Option<CurrentManifest>> {
        self.decoded(self.until_answered(|objects| objects.read(MANIFEST, 0..LONGEST_BYTES)))
    }

    /// The current manifest, unless it is still the one with a tag.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is none.
    pub(super) fn changed_manifest(&self, tag: &Tag) -> Result<Option<CurrentManifest>> {
        let read = self.until_answered(|objects| objects.read_if_changed(MANIFEST, 0..LONGEST_BYTES, tag));
        match read.transpose().map(|read| self.decoded(read)) {
            None => Ok(None),
            Some(decoded) => decoded?.ok_or_else(|| self.absent()).map(Some),
        }
    }

    /// The error for a bucket without a manifest.
    pub(super) fn absent(&self) -> Error {
        Error::new(ErrorKind::NotFound, "open a store in", "there is no manifest").at(&self.objects.place())
    }

    fn decoded(&self, read: std::result::Result<Piece, ObjectError>) -> Result<Option<CurrentManifest>> {
        let piece = match read {
            Ok(piece) => piece,
            Err(ObjectError::NotFound) => return Ok(None),
            Err(error) => return Err(self.failed(READ, MANIFEST, error)),
        };
        match Manifest::decode(&piece.bytes) {
            Ok(manifest) => Ok(Some(CurrentManifest { manifest, tag: piece.head.tag })),
            Err(DecodeError::Damaged(cause)) => {
                Err(Error::new(ErrorKind::Corrupt, READ, cause).at(&self.place_of(MANIFEST)))
            }
            Err(DecodeError::Newer(version)) => {
                Err(Error::newer_version(READ, version, FORMAT_VERSION).at(&self.place_of(MANIFEST)))
            }
        }
    }

    /// Replaces the manifest, and finds out whether the replacement took effect.
    pub(super) fn settle(
        &self,
        next: &Manifest,
        expected: &Expected,
        attempts: &mut Attempts<'_>,
    ) -> std::result::Result<Settled, WriteError> {
        let bytes = next.encode();
        self.refuse_longer(bytes.len() as u64, LONGEST_BYTES)?;
        // Whether it may have taken effect, or still may.
        let mut may_have = false;
        loop {
            let mut is_final = false;
            let cause = match self.objects.replace(MANIFEST, &bytes, expected) {
                Ok(tag) => return Ok(Settled::Newest(tag)),
                Err(failed @ ObjectError::Failed(_)) => {
                    is_final = failed.is_final();
                    self.failed(REPLACE, MANIFEST, failed)
                }
                // Even a refused request may have been sent twice on the way, and taken effect the first time.
                Err(error) => {
                    may_have = true;
                    let cause = self.failed(REPLACE, MANIFEST, error);
                    match self.decoded(self.objects.read(MANIFEST, 0..LONGEST_BYTES)) {
                        Ok(Some(found)) => match found.manifest.fate_of(next) {
                            Fate::Newest => return Ok(Settled::Newest(found.tag)),
                            Fate::Followed => return Ok(Settled::Followed),
                            Fate::Overtaken => return Ok(Settled::Overtaken),
                            Fate::Unknown => return Err(WriteError::Unsettled(cause)),
                            Fate::Before => cause,
                        },
                        Ok(None) => cause,
                        Err(error) => error,
                    }
                }
            };
            if is_final || !attempts.again() {
                return Err(if may_have { WriteError::Unsettled(cause) } else { WriteError::Failed(cause) });
            }
        }
    }

    /// Refuses a manifest that would be longer than allowed.
    pub(super) fn refuse_longer(&self, length_bytes: u64, most_bytes: u64) -> Result<()> {
        if length_bytes <= most_bytes {
            return Ok(());
        }
        let cause = format!("it would be longer than {}", format_size(most_bytes.into()));
        let error = Error::new(ErrorKind::NoSpace, REPLACE, cause).at(&self.place_of(MANIFEST));
        Err(error.advise("publish larger objects, or release pins"))
    }

    /// Whether an object exists with exactly these bytes.
    pub(super) fn has(&self, name: &str, bytes: &[u8]) -> std::result::Result<bool, ObjectError> {
        let read = self.objects.read(name, 0..bytes.len() as u64 + 1);
        read.map(|piece| piece.bytes == bytes)
    }

    /// Reads as many bytes of a range of an object as exist.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound) if it is gone.
    pub(crate) fn read(&self, name: &str, range: Range<u64>) -> std::result::Result<Piece, ObjectError> {
        self.until_answered(|objects| objects.read(name, range.clone()))
    }

    /// Size and tag of an object.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound) if there is none.
    pub(crate) fn head(&self, name: &str) -> std::result::Result<Head, ObjectError> {
        self.until_answered(|objects| objects.head(name))
    }

    /// Names of objects that begin with a prefix, as they are listed.
    ///
    /// # Errors
    /// Those of the bucket.
    pub(crate) fn names(&self, prefix: &str) -> std::result::Result<Vec<String>, ObjectError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().map(String::as_str);
            let page = self.until_answered(|objects| objects.list(prefix, after))?;
            let is_last = page.is_last || page.objects.is_empty();
            names.extend(page.objects.into_iter().map(|object| object.name));
            if is_last {
                return Ok(names);
            }
        }
    }

    /// Draws the random number of an object's name.
    pub(super) fn name(&self, like: ObjectName) -> Result<ObjectName> {
        Ok(ObjectName { nonce: self.surroundings.random()? as u32, ..like })
    }
}
