//! The manifest: one document with the whole catalog, replaced as a whole (docs/FORMAT.md, section 10).
//!
//! It is written under a random name, synced and renamed, and the directory is synced: a crash leaves either the old or
//! the new one. It names the journal that continues it, and has a random seed that only frames of that journal use.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::hash::Hasher;
use std::io;
use std::path::PathBuf;

use twox_hash::XxHash3_64;

use super::encoding::{self, DecodeError};
use super::{State, journal};
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind};
use crate::format::geometry::random_identity;
use crate::format::ids::Epoch;
use crate::format::names::TEMPORARY;
use crate::format::record::{checksum, put_checksum};
use crate::index::table::{INDEX_DIRECTORY, REBUILD_ADVICE};

const CHECKSUM_AT: usize = 0;
const MAGIC_AT: usize = CHECKSUM_AT + 8;
const VERSION_AT: usize = MAGIC_AT + 8;
const ZERO_AT: usize = VERSION_AT + 2;
const LENGTH_AT: usize = ZERO_AT + 6;
const STORE_AT: usize = LENGTH_AT + 8;
const EPOCH_AT: usize = STORE_AT + 16;
const JOURNAL_AT: usize = EPOCH_AT + 8;
const SEED_AT: usize = JOURNAL_AT + 8;
/// Length before the content, in bytes.
pub(crate) const HEAD_BYTES: usize = SEED_AT + 8;

const MAGIC: &[u8; 8] = b"granman\0";
/// The version of the document.
const VERSION: u16 = 2;
/// A longer document is verified in pieces before memory for it is allocated: a damaged one may have any length.
/// Shorter in tests.
const MOST_UNVERIFIED_BYTES: u64 = if cfg!(test) { 4096 } else { 1 << 30 };
/// Length of a piece, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Name in the index directory.
pub(crate) const NAME: &str = "manifest";

const READ: &str = "read the manifest of the index";

/// The path on its device.
pub(crate) fn path() -> String {
    format!("{INDEX_DIRECTORY}/{NAME}")
}

/// What a manifest says before its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestHead {
    /// Checksum of everything that follows.
    checksum: u64,
    /// Length of the whole document, in bytes.
    pub(crate) length: u64,
    store: [u8; 16],
    /// Epoch in which it was written.
    pub(crate) epoch: Epoch,
    /// Number of the journal that continues it.
    pub(crate) journal: u64,
    /// Seed of the journal's frames.
    pub(crate) seed: u64,
}

impl ManifestHead {
    fn decode(bytes: &[u8]) -> std::result::Result<ManifestHead, ReadError> {
        let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let damaged = ReadError::Damaged("it is truncated");
        if bytes.get(MAGIC_AT..VERSION_AT) != Some(MAGIC) {
            return Err(ReadError::Damaged("it is none"));
        }
        let version = bytes.get(VERSION_AT..ZERO_AT).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes);
        match version {
            Some(VERSION) => {}
            Some(version) if version > VERSION => return Err(ReadError::Newer(version)),
            _ => return Err(damaged),
        }
        if bytes.get(ZERO_AT..LENGTH_AT) != Some(&[0; 6]) {
            return Err(damaged);
        }
        let store = bytes.get(STORE_AT..EPOCH_AT).and_then(|store| store.try_into().ok());
        match (word(CHECKSUM_AT), word(LENGTH_AT), store, word(EPOCH_AT), word(JOURNAL_AT), word(SEED_AT)) {
            (Some(checksum), Some(length), Some(store), Some(epoch), Some(journal), Some(seed)) => {
                Ok(ManifestHead { checksum, length, store, epoch: Epoch(epoch), journal, seed })
            }
            _ => Err(damaged),
        }
    }
}

/// A manifest.
#[derive(Debug)]
pub(crate) struct Document {
    /// Its head.
    pub(crate) head: ManifestHead,
    /// Its content.
    pub(crate) state: State,
}

/// Why there is no document.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// There is no file.
    Missing,
    /// The file cannot be read.
    Unreadable(io::Error),
    /// What is wrong with the document.
    Damaged(&'static str),
    /// It is of a later version.
    Newer(u16),
}

impl ReadError {
    /// Converts to an error about the document on a device.
    pub(crate) fn into_error(self, device: &dyn Device) -> Error {
        let place = place(device);
        match self {
            ReadError::Missing => Error::io(READ, &place, io::ErrorKind::NotFound.into()).advise(REBUILD_ADVICE),
            ReadError::Unreadable(error) => Error::io(READ, &place, error),
            ReadError::Damaged(cause) => Error::new(ErrorKind::Corrupt, READ, cause).at(&place).advise(REBUILD_ADVICE),
            ReadError::Newer(version) => Error::newer_version(READ, version, VERSION).at(&place),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        if error.kind() == io::ErrorKind::NotFound { ReadError::Missing } else { ReadError::Unreadable(error) }
    }
}

impl From<DecodeError> for ReadError {
    fn from(refusal: DecodeError) -> ReadError {
        match refusal {
            DecodeError::Damaged => ReadError::Damaged("it is inconsistent"),
            DecodeError::Unknown(_) => ReadError::Newer(VERSION + 1),
        }
    }
}

/// Its location, for messages.
pub(crate) fn place(device: &dyn Device) -> PathBuf {
    device.place().join(path())
}

/// Reads the head of the document unverified: enough to see whether it was replaced.
pub(crate) fn read_head(device: &dyn Device) -> std::result::Result<ManifestHead, ReadError> {
    let file = device.open(&path(), Mode::Read)?;
    let mut bytes = [0; HEAD_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    match ManifestHead::decode(bytes.get(..read).unwrap_or_default()) {
        Err(ReadError::Newer(_)) if !is_sound(&read_bytes(device)?) => Err(ReadError::Damaged("its checksum is wrong")),
        other => other,
    }
}

/// Whether the checksum matches everything that follows it.
fn is_sound(bytes: &[u8]) -> bool {
    bytes.get(CHECKSUM_AT..MAGIC_AT).and_then(|sum| sum.try_into().ok()).map(u64::from_le_bytes)
        == bytes.get(MAGIC_AT..).map(checksum)
}

/// The same of a file, in bounded memory.
fn is_sound_in_pieces(file: &dyn DeviceFile, size: u64) -> io::Result<bool> {
    let mut stated = [0; MAGIC_AT];
    file.read_at(&mut stated, CHECKSUM_AT as u64)?;
    let (mut checksum, mut piece, mut at) = (XxHash3_64::new(), Vec::new(), MAGIC_AT as u64);
    while at < size {
        piece.clear();
        let read = file.read_onto(&mut piece, (size - at).min(PIECE_BYTES as u64) as usize, at)?;
        if read == 0 {
            return Ok(false);
        }
        checksum.write(&piece);
        at += read as u64;
    }
    Ok(checksum.finish() == u64::from_le_bytes(stated))
}

/// Reads the bytes of the document, for [`decode`] to verify. The checksum of a long one is verified here already,
/// before memory is allocated for it.
pub(crate) fn read_bytes(device: &dyn Device) -> std::result::Result<Vec<u8>, ReadError> {
    let file = device.open(&path(), Mode::Read)?;
    let size = file.size()?;
    // The stated length is trusted only if the file is that long, before that much memory is allocated.
    let mut stated = [0; 8];
    file.read_at(&mut stated, LENGTH_AT as u64)?;
    if u64::from_le_bytes(stated) != size {
        return Err(ReadError::Damaged("it does not have the length it states"));
    }
    if size > MOST_UNVERIFIED_BYTES && !is_sound_in_pieces(&*file, size)? {
        return Err(ReadError::Damaged("its checksum is wrong"));
    }
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, size as usize, 0)?;
    Ok(bytes)
}

/// Reads and verifies the document of a store.
pub(crate) fn read(device: &dyn Device, store: &[u8; 16]) -> std::result::Result<Document, ReadError> {
    decode(&read_bytes(device)?, store)
}

/// Inverse of [`encode`].
pub(crate) fn decode(bytes: &[u8], store: &[u8; 16]) -> std::result::Result<Document, ReadError> {
    // A version is trusted only if the whole document is valid: a damaged one is read from another copy.
    let head = ManifestHead::decode(bytes).map_err(|cause| match cause {
        ReadError::Newer(_) if !is_sound(bytes) => ReadError::Damaged("its checksum is wrong"),
        other => other,
    })?;
    let (Some(content), Some(checked)) = (bytes.get(HEAD_BYTES..), bytes.get(MAGIC_AT..)) else {
        return Err(ReadError::Damaged("it is truncated"));
    };
    if head.length != bytes.len() as u64 || checksum(checked) != head.checksum {
        return Err(ReadError::Damaged("its checksum is wrong"));
    }
    if head.store != *store {
        return Err(ReadError::Damaged("it belongs to another store"));
    }
    let (version, change) = encoding::decode(content)?;
    let mut state = State::default();
    state.apply(&change);
    state.version = version;
    Ok(Document { head, state })
}

/// Encodes a document with `state`; returns its head and its bytes, or `None` if a section would be too long.
pub(crate) fn encode(
    store: &[u8; 16],
    epoch: Epoch,
    journal: u64,
    seed: u64,
    state: &State,
) -> Option<(ManifestHead, Vec<u8>)> {
    encoding::encode_state(state).map(|content| document(store, epoch, journal, seed, &content))
}

fn document(store: &[u8; 16], epoch: Epoch, journal: u64, seed: u64, content: &[u8]) -> (ManifestHead, Vec<u8>) {
    let length = (HEAD_BYTES + content.len()) as u64;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
    bytes.extend_from_slice(&[0; MAGIC_AT]);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; LENGTH_AT - ZERO_AT]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(store);
    for number in [epoch.0, journal, seed] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(content);
    let checksum = put_checksum(&mut bytes);
    (ManifestHead { checksum, length, store: *store, epoch, journal, seed }, bytes)
}

/// A document with arbitrary content; for fuzzing.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn sealed(content: &[u8]) -> Vec<u8> {
    document(&[7; 16], Epoch(1), 2, 3, content).1
}

/// Replaces the document on a device, durably, and creates the empty journal that continues it; returns the journal.
/// The journal of the old document stays, for the caller to remove.
///
/// # Errors
/// Which of the two documents exists is then unknown.
pub(crate) fn replace(
    device: &dyn Device,
    journal: u64,
    document: &[u8],
) -> io::Result<std::sync::Arc<dyn DeviceFile>> {
    let random = random_identity().map_err(|error| io::Error::other(error.to_string()))?;
    let temporary = format!("{INDEX_DIRECTORY}/{NAME}-{:032x}{TEMPORARY}", u128::from_le_bytes(random));
    let frames = match device.open(&journal::path(journal), Mode::Create) {
        // Left by a writer that died before it renamed its manifest, or by a try that failed on another device.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            device.remove(&journal::path(journal))?;
            device.open(&journal::path(journal), Mode::Create)?
        }
        opened => opened?,
    };
    let written = device.open(&temporary, Mode::Create).and_then(|file| {
        file.write_at(document, 0)?;
        file.sync()?;
        device.rename(&temporary, &path())
    });
    if let Err(error) = written {
        let _ = device.remove(&temporary);
        return Err(error);
    }
    device.sync_directory(INDEX_DIRECTORY)?;
    Ok(frames)
}
