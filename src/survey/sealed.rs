//! Files of a survey's own state: 24 bytes of text that name the format and its version, the length of the body (u64,
//! little endian), its XXH3-64 (u64, little endian), and the body.

use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, Read};
use std::path::Path;

use twox_hash::XxHash3_64;

use crate::error::{Error, ErrorKind, Result};

const NAME_BYTES: usize = 24;
const HEADER_BYTES: usize = NAME_BYTES + 16;

/// A kind of these files.
pub(super) struct Kind {
    /// Name and version.
    pub(super) name: &'static [u8; NAME_BYTES],
    /// How names of all versions begin.
    pub(super) of_any_version: &'static [u8],
    /// What one is called.
    pub(super) noun: &'static str,
    /// What is done with one: the operation that fails.
    pub(super) operation: &'static str,
    /// What to do if it cannot be used.
    pub(super) advice: &'static str,
}

impl Kind {
    /// A body with the header that makes it a file of this kind.
    pub(super) fn seal(&self, body: &[u8]) -> Vec<u8> {
        let words = [body.len() as u64, XxHash3_64::oneshot(body)].map(u64::to_le_bytes);
        [self.name, &words[0][..], &words[1][..], body].concat()
    }

    /// Reads a file whole, however long it is, if it is of this kind, and else no more than shows that it is not.
    pub(super) fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let (mut file, mut bytes) = (File::open(path)?, Vec::new());
        (&mut file).take(self.of_any_version.len() as u64).read_to_end(&mut bytes)?;
        if self.looks_like(&bytes) {
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// The body of a file.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`], [`ErrorKind::NewerVersion`] or [`ErrorKind::Corrupt`].
    pub(super) fn open<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let fail = |kind, cause: String| Error::new(kind, self.operation, cause);
        if !bytes.starts_with(self.name) {
            return Err(if bytes.starts_with(self.of_any_version) && bytes.len() >= NAME_BYTES {
                fail(ErrorKind::NewerVersion, "it was written by another version of granulo".to_owned())
                    .advise("use that version, or start again")
            } else {
                fail(ErrorKind::NotRecognised, format!("it is not a granulo {}", self.noun))
            });
        }
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(self.damaged("it is truncated"));
        };
        let number = |at: usize| {
            let word: [u8; 8] = header[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        };
        if number(NAME_BYTES) != body.len() as u64 {
            return Err(self.damaged("it is truncated"));
        }
        if number(NAME_BYTES + 8) != XxHash3_64::oneshot(body) {
            return Err(self.damaged("its checksum is wrong"));
        }
        Ok(body)
    }

    /// The error of a damaged one.
    pub(super) fn damaged(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Corrupt, self.operation, cause).advise(self.advice)
    }

    /// Whether bytes begin like one, of whatever version.
    pub(super) fn looks_like(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.of_any_version)
    }

    /// Whether the file at `path` begins like one.
    pub(super) fn is_at(&self, path: &Path) -> std::io::Result<bool> {
        let mut start = Vec::new();
        File::open(path)?.take(self.of_any_version.len() as u64).read_to_end(&mut start)?;
        Ok(self.looks_like(&start))
    }

    /// Whether `path` may be overwritten with one: it is one, or does not exist.
    pub(super) fn may_be_written(&self, path: &Path) -> bool {
        self.is_at(path).unwrap_or_else(|error| error.kind() == IoErrorKind::NotFound)
    }
}
