//! Reading the manifest, replacing it, and what became of a replacement whose answer was lost.
//!
//! Why sending the same document again is safe: it expects the tag of the manifest before it, and that tag never comes back. So of all the times that it is sent, at most one takes effect,
//! also of those that arrive late; and none does any more once another manifest is there.

use std::path::PathBuf;
use std::sync::Arc;

use super::MANIFEST;
use super::manifest::{Fate, Flaw, Manifest, ObjectName};
use super::surroundings::Surroundings;
use super::writer::WriteError;
use crate::devices::objects::{Expected, ObjectError, Objects, Piece, Tag};
use crate::error::{Error, ErrorKind, Result};

/// A longer manifest is none of ours.
const LONGEST_BYTES: u64 = 1 << 30;

const READ: &str = "read the manifest";
const REPLACE: &str = "replace the manifest";

/// The bucket, and what else is needed to talk to it.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) surroundings: Arc<dyn Surroundings>,
}

/// A manifest that was read.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
}

/// What became of a document that was sent.
#[derive(Debug)]
pub(super) enum Settled {
    /// It is the manifest.
    Newest(Tag),
    /// It was; others went on from it.
    Followed,
    /// It never was and never will be.
    Overtaken,
}

/// How often a request was sent.
#[derive(Debug)]
pub(super) struct Attempts<'b> {
    surroundings: &'b dyn Surroundings,
    made: u32,
}

impl Attempts<'_> {
    /// One more has failed: waits, and gives whether there should be another.
    pub(super) fn again(&mut self) -> bool {
        self.made = self.made.saturating_add(1);
        self.surroundings.wait(self.made)
    }
}

impl Bucket {
    pub(super) fn attempts(&self) -> Attempts<'_> {
        Attempts { surroundings: self.surroundings.as_ref(), made: 0 }
    }

    pub(super) fn place_of(&self, name: &str) -> PathBuf {
        self.objects.place().join(name)
    }

    pub(super) fn failed(&self, operation: &'static str, name: &str, error: ObjectError) -> Error {
        Error::io(operation, &self.place_of(name), error.into_io())
    }

    /// Sends a request until it is answered, or patience ends. That there is no object, or another one, is an answer.
    pub(super) fn until_answered<T>(
        &self,
        request: impl Fn(&dyn Objects) -> std::result::Result<T, ObjectError>,
    ) -> std::result::Result<T, ObjectError> {
        let mut attempts = self.attempts();
        loop {
            match request(self.objects.as_ref()) {
                Err(ObjectError::Failed(_) | ObjectError::Unknown(_)) if attempts.again() => {}
                answered => return answered,
            }
        }
    }

    /// The manifest that there is now, if there is one.
    pub(super) fn manifest(&self) -> Result<Option<Current>> {
        self.decoded(self.until_answered(|objects| objects.read(MANIFEST, 0..LONGEST_BYTES)))
    }

    fn decoded(&self, read: std::result::Result<Piece, ObjectError>) -> Result<Option<Current>> {
        let piece = match read {
            Ok(piece) => piece,
            Err(ObjectError::NotFound) => return Ok(None),
            Err(error) => return Err(self.failed(READ, MANIFEST, error)),
        };
        match Manifest::decode(&piece.bytes) {
            Ok(manifest) => Ok(Some(Current { manifest, tag: piece.head.tag })),
            Err(Flaw::Damaged(cause)) => Err(Error::new(ErrorKind::Corrupt, READ, cause).at(&self.place_of(MANIFEST))),
            Err(Flaw::Newer(version)) => {
                let cause = format!("it has version {version} of the format, which this granulo does not know");
                let error = Error::new(ErrorKind::NewerVersion, READ, cause).at(&self.place_of(MANIFEST));
                Err(error.advise("use a newer granulo"))
            }
        }
    }

    /// Replaces the manifest, and finds out whether it did.
    pub(super) fn settle(
        &self,
        next: &Manifest,
        expected: &Expected,
        attempts: &mut Attempts<'_>,
    ) -> std::result::Result<Settled, WriteError> {
        let bytes = next.encode();
        // Whether it may have taken effect, or still may.
        let mut may_have = false;
        loop {
            let cause = match self.objects.replace(MANIFEST, &bytes, expected) {
                Ok(tag) => return Ok(Settled::Newest(tag)),
                Err(failed @ ObjectError::Failed(_)) => self.failed(REPLACE, MANIFEST, failed),
                // Also one that was refused may have been sent twice on the way, and taken effect at the first time.
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
            if !attempts.again() {
                return Err(if may_have { WriteError::Unsettled(cause) } else { WriteError::Failed(cause) });
            }
        }
    }

    /// Whether an object is there with just these bytes.
    pub(super) fn has(&self, name: &str, bytes: &[u8]) -> std::result::Result<bool, ObjectError> {
        let read = self.objects.read(name, 0..bytes.len() as u64 + 1);
        read.map(|piece| piece.bytes == bytes)
    }

    /// Draws the number of an object's name.
    pub(super) fn name(&self, like: ObjectName) -> Result<ObjectName> {
        Ok(ObjectName { nonce: self.surroundings.random()? as u32, ..like })
    }
}
