//! An image as bytes, and the frames in which a source and the maker of a copy talk through a pipe.
//!
//! | frame | |
//! | ---: | --- |
//! | 4 | length of the content |
//! | 1 | kind |
//! | 8 | XXH3 of kind and content |
//! | | the content |
//!
//! Numbers are little-endian. The maker of the copy asks, one question at a time but for a read that it expects to
//! need; the source answers each. What arrives is not trusted: no stated length makes memory be allocated, an image
//! names only files that a store has, on devices that it has.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::image::{Image, LastBatch};
use crate::devices::extents::file_number;
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode::Decoder;
use crate::format::geometry::DeviceState;
use crate::format::ids::{DeviceNumber, Epoch};
use crate::format::record::checksum;
use crate::format::superblock::Superblock;
use crate::index::catalog::manifest;

/// Version of the protocol.
pub(super) const VERSION: u16 = 1;
/// Longest content of a frame: an index has its changes in it, and a row for each segment.
const LONGEST_BYTES: u64 = 1 << 30;
/// Bytes that are received at once.
const PIECE_BYTES: u64 = 1 << 20;
/// What is wrong, in messages.
const TALK: &str = "talk to the other granulo";
/// What to do when the connection has failed.
const AGAIN: &str = "run the same command again: what has arrived is not sent again; why it ended may be said above";

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// The first one of whoever began, with the version of the protocol.
    Hello(Role),
    /// Asks for the image.
    GetImage,
    /// Asks for bytes of a file of the image: device, path, offset, length.
    GetBytes(DeviceNumber, String, u64, u32),
    /// The image, encoded.
    Image(Vec<u8>),
    /// Bytes of a file.
    Bytes(Vec<u8>),
    /// What was asked for cannot be answered.
    Failed(Failure),
    /// The copy was made: what [`super::Copied`] says.
    Done(Vec<u8>),
}

/// What the one that was started is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its store is the source.
    Source,
    /// Its directory becomes a copy.
    Clone(Wish),
    /// Its copy is brought up to date.
    Update(Wish),
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) is_verified: bool,
}

/// An error of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    kind: u8,
    text: String,
}

/// Kinds of errors that mean something to the other side.
const KINDS: [ErrorKind; 8] = [
    ErrorKind::Io,
    ErrorKind::NotFound,
    ErrorKind::Exists,
    ErrorKind::Busy,
    ErrorKind::Lost,
    ErrorKind::Corrupt,
    ErrorKind::Usage,
    ErrorKind::Interrupted,
];

impl Failure {
    pub(super) fn of(error: &Error) -> Failure {
        let kind = KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or(0);
        Failure { kind: kind as u8, text: error.to_string() }
    }

    pub(super) fn into_error(self) -> Error {
        let kind = KINDS.get(usize::from(self.kind)).copied().unwrap_or(ErrorKind::Io);
        Error::new(kind, "copy the store through", format!("there: {}", self.text))
    }

    /// Whether it only says what the other side was told here.
    pub(super) fn quotes(&self, told: &Error) -> bool {
        self.text.contains(&told.to_string())
    }
}

const HELLO: u8 = 1;
const GET_IMAGE: u8 = 2;
const GET_BYTES: u8 = 3;
const IMAGE: u8 = 4;
const BYTES: u8 = 5;
const FAILED: u8 = 6;
const DONE: u8 = 7;

const AS_SOURCE: u8 = 1;
const AS_CLONE: u8 = 2;
const AS_UPDATE: u8 = 3;

impl Frame {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Frame::Hello(role) => (HELLO, encode_role(*role)),
            Frame::GetImage => (GET_IMAGE, Vec::new()),
            Frame::GetBytes(device, path, offset, length) => {
                let mut content = device.0.to_le_bytes().to_vec();
                content.extend_from_slice(&offset.to_le_bytes());
                content.extend_from_slice(&length.to_le_bytes());
                content.extend_from_slice(path.as_bytes());
                (GET_BYTES, content)
            }
            Frame::Image(content) => (IMAGE, content.clone()),
            Frame::Bytes(content) => (BYTES, content.clone()),
            Frame::Failed(Failure { kind, text }) => (FAILED, [&[*kind][..], text.as_bytes()].concat()),
            Frame::Done(content) => (DONE, content.clone()),
        }
    }

    /// `None` if there is no such frame.
    fn decode(kind: u8, content: Vec<u8>) -> Option<Frame> {
        Some(match kind {
            HELLO => Frame::Hello(decode_role(&content)?),
            GET_IMAGE if content.is_empty() => Frame::GetImage,
            GET_BYTES => {
                let mut at = Decoder::new(&content);
                let (device, offset, length) = (DeviceNumber(at.u16()?), at.u64()?, at.u32()?);
                Frame::GetBytes(device, std::str::from_utf8(at.rest()).ok()?.to_owned(), offset, length)
            }
            IMAGE => Frame::Image(content),
            BYTES => Frame::Bytes(content),
            FAILED => {
                let (&kind, text) = content.split_first()?;
                Frame::Failed(Failure { kind, text: String::from_utf8_lossy(text).into_owned() })
            }
            DONE => Frame::Done(content),
            _ => return None,
        })
    }

    /// Sends the frame.
    ///
    /// # Errors
    /// The other side is gone.
    pub(super) fn send(&self, to: &mut dyn Write) -> Result<()> {
        let (kind, content) = self.encode();
        let length = u32::try_from(content.len()).ok().filter(|&length| u64::from(length) <= LONGEST_BYTES);
        let Some(length) = length else {
            return Err(Error::new(ErrorKind::NoSpace, TALK, "the index is longer than can be sent"));
        };
        let sum = checksum(&[&[kind][..], &content].concat());
        let mut head = length.to_le_bytes().to_vec();
        head.push(kind);
        head.extend_from_slice(&sum.to_le_bytes());
        let sent = to.write_all(&head).and_then(|()| to.write_all(&content)).and_then(|()| to.flush());
        sent.map_err(ended)
    }

    /// Receives a frame; `None` if the other side has ended before it.
    ///
    /// # Errors
    /// The other side is gone, or sends something else.
    pub(super) fn receive(from: &mut dyn Read) -> Result<Option<Frame>> {
        let mut head = [0; 13];
        let mut got = 0;
        while got < head.len() {
            match from.read(head.get_mut(got..).unwrap_or_default()) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(ended(io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ended(error)),
            }
        }
        let mut at = Decoder::new(&head);
        let (Some(length), Some(kind), Some(sum)) = (at.u32(), at.u8(), at.u64()) else { return Err(strange()) };
        let length = u64::from(length);
        // Text is no frame, whatever length it seems to state.
        if length > LONGEST_BYTES || !(HELLO..=DONE).contains(&kind) {
            return Err(strange());
        }
        let mut content = vec![kind];
        while content.len() as u64 <= length {
            let before = content.len();
            let wanted = PIECE_BYTES.min(length + 1 - before as u64);
            io::Read::take(&mut *from, wanted).read_to_end(&mut content).map_err(ended)?;
            if content.len() == before {
                return Err(ended(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        if checksum(&content) != sum {
            // It reached no file: what has arrived before is what was sent.
            return Err(Error::new(ErrorKind::Io, TALK, "something was changed on the way").advise(AGAIN));
        }
        content.remove(0);
        Frame::decode(kind, content).map(Some).ok_or_else(strange)
    }
}

fn ended(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => gone(),
        _ => Error::new(ErrorKind::Io, TALK, crate::error::os_message(&error)).advise(AGAIN),
    }
}

/// The error of a conversation that was cut short.
pub(super) fn gone() -> Error {
    Error::new(ErrorKind::Io, TALK, "the connection ended before the copy was complete").advise(AGAIN)
}

/// Whether an error is that of a connection that has ended, and not one of either side.
pub(super) fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.operation() == TALK
}

/// The error of what no granulo of this version says.
pub(super) fn strange() -> Error {
    let error = Error::new(ErrorKind::NotRecognised, TALK, "it says something else than a granulo of this version");
    error.advise("use the same version on both sides; a shell there must print nothing by itself")
}

fn encode_role(role: Role) -> Vec<u8> {
    let (role, wish) = match role {
        Role::Source => (AS_SOURCE, Wish::default()),
        Role::Clone(wish) => (AS_CLONE, wish),
        Role::Update(wish) => (AS_UPDATE, wish),
    };
    [&VERSION.to_le_bytes()[..], &[role, u8::from(wish.is_verified)]].concat()
}

fn decode_role(content: &[u8]) -> Option<Role> {
    let mut at = Decoder::new(content);
    let (version, role, is_verified) = (at.u16()?, at.u8()?, at.u8()?);
    let wish = Wish { is_verified: is_verified == 1 };
    if version != VERSION || is_verified > 1 || !at.rest().is_empty() {
        return None;
    }
    match role {
        AS_SOURCE => Some(Role::Source),
        AS_CLONE => Some(Role::Clone(wish)),
        AS_UPDATE => Some(Role::Update(wish)),
        _ => None,
    }
}

/// An image as bytes: superblock, manifest, last batch, names of extent files; each with its length.
///
/// # Errors
/// A list is longer than the format can state.
pub(crate) fn encode_image(image: &Image) -> Result<Vec<u8>> {
    let superblock = Superblock::of_store(image.geometry.clone(), image.history.clone(), None).encode()?;
    let (store, epoch) = (&image.geometry.store, image.history.newest().epoch);
    let (_, document) = manifest::encode(store, epoch, 1, 0, &image.state)
        .ok_or_else(|| Error::new(ErrorKind::NoSpace, TALK, "a list in the index would be longer than 4 GiB"))?;
    let mut bytes = image.ids_reserved.to_le_bytes().to_vec();
    let mut put = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    put(&superblock);
    put(&document);
    let mut last = Vec::new();
    if let Some(LastBatch { epoch, is_close, record }) = &image.last {
        last.extend_from_slice(&epoch.0.to_le_bytes());
        last.push(u8::from(*is_close));
        last.extend_from_slice(record);
    }
    put(&last);
    for (&(device, file), name) in &image.extents {
        put(&[&device.0.to_le_bytes()[..], &file.to_le_bytes(), name.as_bytes()].concat());
    }
    Ok(bytes)
}

/// Inverse of [`encode_image`]; `None` if it is none, or of what no store has.
pub(crate) fn decode_image(bytes: &[u8]) -> Option<Image> {
    let mut at = Decoder::new(bytes);
    let ids_reserved = at.u64()?;
    let superblock = Superblock::decode(part(&mut at)?).ok()??;
    let document = manifest::decode(part(&mut at)?, &superblock.geometry.store).ok()?;
    let last = decode_last(part(&mut at)?)?;
    let mut extents = BTreeMap::new();
    while !at.rest().is_empty() {
        let mut of_file = Decoder::new(part(&mut at)?);
        let (device, file) = (DeviceNumber(of_file.u16()?), of_file.u32()?);
        let name = std::str::from_utf8(of_file.rest()).ok()?;
        (file_number(name) == Some(file)).then_some(())?;
        extents.insert((device, file), name.to_owned());
    }
    let (geometry, history, state) = (superblock.geometry, superblock.history, document.state);
    let image = Image { geometry, history, state, last, ids_reserved, extents };
    is_possible(&image).then_some(image)
}

fn part<'b>(at: &mut Decoder<'b>) -> Option<&'b [u8]> {
    let length = usize::try_from(at.u64()?).ok()?;
    at.take(length)
}

fn decode_last(bytes: &[u8]) -> Option<Option<LastBatch>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let mut at = Decoder::new(bytes);
    let (epoch, is_close) = (Epoch(at.u64()?), at.u8().filter(|&close| close < 2)? == 1);
    Some(Some(LastBatch { epoch, is_close, record: at.rest().to_vec() }))
}

/// Whether its files are on devices that it has, and it ends where its last batch does.
fn is_possible(image: &Image) -> bool {
    let is_there = |device: DeviceNumber| {
        let entry = image.geometry.devices.get(usize::from(device.0));
        entry.is_some_and(|entry| entry.number == device && entry.state != DeviceState::Gone)
    };
    let position = image.position();
    let end = image.last.as_ref().map_or(0, |last| last.record.len() as u64);
    image.files().iter().all(|file| is_there(file.device))
        && image.state.segments.values().all(|row| !row.devices.is_empty())
        && image.last.is_some() == (position.sequence > 0)
        && (image.last.is_none() || position.commit.0.checked_add(end) == Some(position.offset.0))
}

/// Reads frames until something is no frame; for fuzzing.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read_all(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(frame)) = Frame::receive(&mut bytes) {
        count += 1;
        let mut sent = Vec::new();
        frame.send(&mut sent).expect("it is not longer than what was received");
        assert_eq!(Frame::receive(&mut &sent[..]).ok().flatten(), Some(frame));
    }
    count
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::maintain::replicate::source::{Source, StoreSource};
    use crate::tests::{bytes, file, key};
    use crate::{Plan, Store};

    /// An image of a store with small and large files, encoded.
    pub(crate) fn an_image() -> Vec<u8> {
        let sandbox = tempfile::tempdir().unwrap();
        let store = Store::create(&sandbox.path().join("home"), &Plan::default()).unwrap();
        store.put(&key("small"), &file(), b"content").unwrap();
        store.put(&key("large"), &file(), &bytes(1, 100_000)).unwrap();
        encode_image(&StoreSource::new(&store).image().unwrap()).unwrap()
    }

    fn all() -> Vec<Frame> {
        let wish = Wish { is_verified: true };
        vec![
            Frame::Hello(Role::Source),
            Frame::Hello(Role::Clone(wish)),
            Frame::Hello(Role::Update(Wish::default())),
            Frame::GetImage,
            Frame::GetBytes(DeviceNumber(3), "segments/0000000000000003-55667788".into(), 5, 7),
            Frame::Image(vec![1, 2, 3]),
            Frame::Bytes(bytes(1, 3_000_000)),
            Frame::Failed(Failure { kind: 2, text: "cannot".into() }),
            Frame::Done(vec![4]),
        ]
    }

    /// Every frame but the long one, encoded.
    pub(crate) fn frames() -> Vec<u8> {
        let mut sent = Vec::new();
        let short = all().into_iter().filter(|frame| !matches!(frame, Frame::Bytes(_)));
        short.for_each(|frame| frame.send(&mut sent).unwrap());
        sent
    }

    #[test]
    fn what_is_sent_is_received_and_what_was_changed_is_not() {
        let mut sent = Vec::new();
        all().iter().for_each(|frame| frame.send(&mut sent).unwrap());
        let mut rest = &sent[..];
        for frame in all() {
            assert_eq!(Frame::receive(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::receive(&mut rest).unwrap(), None);
        let mut short = frames();
        assert_eq!(read_all(&short), all().len() - 1);
        assert!(Frame::receive(&mut &short[..10]).is_err(), "the other side has ended in between");
        short[20] ^= 1;
        assert!(read_all(&short) < all().len() - 1);
        assert!(Frame::receive(&mut &[255; 100][..]).is_err());
    }

    #[test]
    fn an_image_is_the_same_on_the_other_side_and_names_only_files_of_a_store() {
        let encoded = an_image();
        let image = decode_image(&encoded).unwrap();
        assert!(image.files().len() > 1 && image.last.is_some());
        assert_eq!(encode_image(&image).unwrap(), encoded);
        let mut odd = image.clone();
        odd.extents.values_mut().for_each(|name| *name = "../../../etc/passwd".into());
        assert!(decode_image(&encode_image(&odd).unwrap()).is_none());
        let mut odd = image.clone();
        odd.last = None;
        assert!(decode_image(&encode_image(&odd).unwrap()).is_none());
        assert!(decode_image(&encoded[..encoded.len() - 1]).is_none());
    }
}
