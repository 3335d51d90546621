//! A source or a copy on another machine, through a granulo there: `granulo store serve`, on its standard input and
//! output.
//!
//! Whoever makes the copy asks, and the other side answers, so both directions are one conversation: to pull, the
//! granulo there is the source; to push, it makes the copy, and the one here answers its questions, until it says how
//! it ended.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::image::{FileKind, Image, ImageFile};
use super::source::{COPY, Source, StoreSource};
use super::wire::{Failure, Frame, Role, Wish, decode_image, encode_image, gone, is_gone, strange};
use super::{Copied, CopyOptions, directory};
use crate::Store;
use crate::devices::survey::OpenOptions;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode::Decoder;
use crate::format::ids::DeviceNumber;
use crate::progress::Progress;

/// Most bytes that are asked for at once.
const LONGEST_READ_BYTES: u32 = 16 << 20;

/// How long it may take until what a peer said before it ended is there.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Answers that may come before: to what was asked ahead.
const MOST_BEFORE: usize = 2;

/// What a peer says: bytes without a buffer before them.
pub trait Incoming: Read {
    /// Waits for more, or for the end, at most so long; returns whether there is any.
    ///
    /// # Errors
    /// It cannot be waited for.
    fn arrives(&self, within: Duration) -> io::Result<bool>;
}

impl<T: Read + AsFd> Incoming for T {
    fn arrives(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        let mut one = [PollFd::new(self, PollFlags::IN)];
        Ok(retry_on_intr(|| poll(&mut one, Some(&within)))? > 0)
    }
}

/// What has arrived; a peer that lives on is not waited for.
struct Arrived<'a> {
    from: &'a mut dyn Incoming,
    until: Instant,
}

impl Read for Arrived<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_there = self.from.arrives(self.until.saturating_duration_since(Instant::now()))?;
        if is_there { self.from.read(buffer) } else { Ok(0) }
    }
}

/// Another granulo that is talked to: `granulo store serve`, or who has started that.
pub struct Peer<'p> {
    /// What it says.
    pub from: &'p mut dyn Incoming,
    /// What it is told.
    pub to: &'p mut dyn Write,
    /// Where it is, for messages.
    pub place: PathBuf,
}

impl Peer<'_> {
    fn send(&mut self, frame: &Frame) -> Result<()> {
        match frame.send(self.to) {
            // Not that the frame is too long.
            Err(error) if error.kind() == ErrorKind::Io => Err(self.last_words().unwrap_or_else(|| self.at(error))),
            sent => sent.map_err(|error| self.at(error)),
        }
    }

    /// Why the other side has ended, if it said so.
    fn last_words(&mut self) -> Option<Error> {
        let mut from = Arrived { from: &mut *self.from, until: Instant::now() + LAST_WORDS };
        for _ in 0..=MOST_BEFORE {
            match Frame::receive(&mut from) {
                Ok(Some(Frame::Failed(failure))) => return Some(failure.into_error().at(&self.place)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
        None
    }

    fn receive(&mut self) -> Result<Option<Frame>> {
        Frame::receive(self.from).map_err(|error| self.at(error))
    }

    fn at(&self, error: Error) -> Error {
        error.at(&self.place)
    }

    /// What is answered.
    fn answer(&mut self) -> Result<Frame> {
        match self.receive()? {
            Some(Frame::Failed(failure)) => Err(self.at(failure.into_error())),
            Some(frame) => Ok(frame),
            None => Err(self.at(gone())),
        }
    }
}

/// Bytes that were asked for ahead of time: their file and where they begin, and how many.
type Ahead = (DeviceNumber, String, u64, usize);

/// A source at the other side.
pub(super) struct RemoteSource<'s> {
    peer: Peer<'s>,
    ahead: Option<Ahead>,
    /// Some file of the last image.
    any: Option<ImageFile>,
    /// Of the work here.
    progress: Progress,
}

impl<'s> RemoteSource<'s> {
    pub(super) fn new(peer: Peer<'s>, progress: &Progress) -> RemoteSource<'s> {
        RemoteSource { peer, ahead: None, any: None, progress: progress.clone() }
    }

    fn send(&mut self, frame: &Frame) -> Result<()> {
        self.peer.send(frame).map_err(|error| self.or_stop(error))
    }

    fn answer(&mut self) -> Result<Frame> {
        self.peer.answer().map_err(|error| self.or_stop(error))
    }

    /// Who interrupts this process from a terminal interrupts the other one, too: then it has ended because of that.
    fn or_stop(&self, error: Error) -> Error {
        match self.progress.should_stop() && is_gone(&error) {
            true => Error::new(ErrorKind::Interrupted, COPY, "it was asked to stop").at(&self.peer.place),
            false => error,
        }
    }

    fn ask(&mut self, file: &ImageFile, offset: u64, length: usize) -> Result<()> {
        self.send(&Frame::GetBytes(file.device, file.path.clone(), offset, length as u32))
    }

    /// Takes the answer to what was asked for and is not needed.
    fn drop_ahead(&mut self) -> Result<()> {
        match self.ahead.take() {
            Some(_) => self.peer.receive().map(drop).map_err(|error| self.or_stop(error)),
            None => Ok(()),
        }
    }

    /// Asks for the piece behind this one, so that it is on its way meanwhile.
    fn ask_ahead(&mut self, file: &ImageFile, offset: u64, length: usize) -> Result<()> {
        let next = offset + length as u64;
        let left = file.size_bytes.saturating_sub(next).min(length as u64) as usize;
        if left == 0 {
            return Ok(());
        }
        self.ask(file, next, left)?;
        self.ahead = Some((file.device, file.path.clone(), next, left));
        Ok(())
    }
}

impl Source for RemoteSource<'_> {
    fn image(&mut self) -> Result<Image> {
        self.drop_ahead()?;
        self.send(&Frame::GetImage)?;
        let Frame::Image(bytes) = self.answer()? else { return Err(self.peer.at(strange())) };
        let image = decode_image(&bytes).ok_or_else(|| self.peer.at(strange()))?;
        self.any = image.files().into_iter().next();
        Ok(image)
    }

    fn is_there(&mut self) -> Result<()> {
        self.drop_ahead()?;
        let Some(file) = self.any.clone() else { return Ok(()) };
        self.ask(&file, 0, 0)?;
        self.answer().map(drop)
    }

    fn read(&mut self, file: &ImageFile, offset: u64, length: usize, onto: &mut Vec<u8>) -> Result<()> {
        let wanted = (file.device, file.path.clone(), offset, length);
        if self.ahead.as_ref() == Some(&wanted) {
            self.ahead = None;
        } else {
            self.drop_ahead()?;
            self.ask(file, offset, length)?;
        }
        let Frame::Bytes(bytes) = self.answer()? else { return Err(self.peer.at(strange())) };
        if bytes.len() != length {
            return Err(self.peer.at(strange()));
        }
        onto.extend_from_slice(&bytes);
        self.ask_ahead(file, offset, length)
    }
}

/// Answers questions about a source until the other side has ended; returns what it says at the end, if it does.
///
/// # Errors
/// The other side is gone, or says something else; the request to stop.
fn serve_source(
    source: &mut dyn Source,
    peer: &mut Peer<'_>,
    pace: &mut Pace<'_>,
    may_be_done: &mut bool,
) -> Result<Option<Vec<u8>>> {
    // Only files of the image are read, whatever the other side asks for.
    let mut files: BTreeSet<(DeviceNumber, String)> = BTreeSet::new();
    // What the other side was last told that it cannot have.
    let mut told: Option<Error> = None;
    loop {
        let answer = match peer.receive()? {
            None => return Ok(None),
            Some(Frame::Done(said)) => return Ok(Some(said)),
            Some(Frame::Failed(failure)) => {
                // An error of this side is not one of the other side.
                let own = told.filter(|told| failure.quotes(told));
                return Err(own.unwrap_or_else(|| peer.at(failure.into_error())));
            }
            Some(Frame::GetImage) => source.image().and_then(|image| {
                files = image.files().into_iter().map(|file| (file.device, file.path)).collect();
                pace.stage("copying", image.files().iter().map(|file| file.size_bytes).sum());
                encode_image(&image).map(Frame::Image)
            }),
            Some(Frame::GetBytes(device, path, offset, length)) => {
                let is_named = files.contains(&(device, path.clone())) && length <= LONGEST_READ_BYTES;
                let file = ImageFile { device, path, size_bytes: offset, kind: FileKind::Segment };
                let mut bytes = Vec::new();
                let read = match length {
                    _ if !is_named => Err(strange()),
                    // That needs no file, which may have been freed by now.
                    0 => Ok(()),
                    _ => source.read(&file, offset, length as usize, &mut bytes),
                };
                pace.spend(bytes.len() as u64)?;
                // Whoever makes the copy asks whether this side is still there, and then has it take its place.
                *may_be_done = length == 0;
                read.map(|()| Frame::Bytes(bytes))
            }
            Some(Frame::Hello(_) | Frame::Image(_) | Frame::Bytes(_)) => return Err(peer.at(strange())),
        };
        let answer = answer.unwrap_or_else(|error| {
            let failed = Frame::Failed(Failure::of(&error));
            told = Some(error);
            failed
        });
        peer.send(&answer)?;
    }
}

/// Makes or updates a copy at the other side.
///
/// # Errors
/// Those of the other side; it is gone, or says something else.
pub(super) fn copy_to(
    source: &mut dyn Source,
    mut peer: Peer<'_>,
    is_new: bool,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Copied> {
    let wish = Wish { is_verified: options.is_verified };
    let hello = Frame::Hello(if is_new { Role::Clone(wish) } else { Role::Update(wish) });
    let mut pace = Pace::new(options.bytes_per_second, progress);
    let mut may_be_done = false;
    let served = peer.send(&hello).and_then(|()| serve_source(source, &mut peer, &mut pace, &mut may_be_done));
    match served {
        Ok(Some(said)) => decode_copied(&said).ok_or_else(|| peer.at(strange())),
        served if may_be_done && is_end(&served) => Err(peer.at(unknown_end(is_new, progress))),
        // Who interrupts this process from a terminal interrupts the other one, too.
        served if progress.should_stop() && is_end(&served) => Ok(Copied { is_interrupted: true, ..Copied::default() }),
        Ok(None) => Err(peer.at(gone())),
        Err(error) => Err(error),
    }
}

/// The error of a conversation that ended when the other side may have put the copy in its place.
fn unknown_end(is_new: bool, progress: &Progress) -> Error {
    let (kind, what) = match progress.should_stop() {
        true => (ErrorKind::Interrupted, "it was interrupted"),
        false => (ErrorKind::Io, "the connection ended"),
    };
    let error = Error::new(kind, COPY, format!("{what} when the copy was about to take its place"));
    error.advise(match is_new {
        true => "it is complete if granulo store push finds it; otherwise the same command goes on",
        false => "it has the old state or the new one: the same command finds out, and goes on",
    })
}

/// Makes or updates a copy here of a source at the other side.
///
/// # Errors
/// As [`directory::make`] and [`directory::update`]; the other side is gone, or says something else.
pub(super) fn copy_from(
    peer: Peer<'_>,
    to: &Path,
    is_new: bool,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Copied> {
    let mut source = RemoteSource::new(peer, progress);
    let copied = source.send(&Frame::Hello(Role::Source)).and_then(|()| match is_new {
        true => directory::make(&mut source, to, options, progress),
        false => directory::update(&mut source, to, options, progress),
    });
    match copied {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            Ok(Copied { is_interrupted: true, ..Copied::default() })
        }
        copied => copied,
    }
}

/// Whether a conversation ended without a result: this side stops, or the other one has ended.
fn is_end(served: &Result<Option<Vec<u8>>>) -> bool {
    match served {
        Ok(said) => said.is_none(),
        Err(error) => error.kind() == ErrorKind::Interrupted || is_gone(error),
    }
}

/// Does what the side that began wishes, with the store or the copy at `home`. That side is told of errors.
///
/// # Errors
/// The other side is gone, or says something else.
pub(super) fn serve(home: &Path, mut peer: Peer<'_>, progress: &Progress) -> Result<()> {
    let role = match peer.receive()? {
        Some(Frame::Hello(role)) => role,
        Some(_) => return Err(peer.at(strange())),
        None => return Ok(()),
    };
    let (is_new, wish) = match role {
        Role::Source => return serve_store(home, &mut peer, progress),
        Role::Clone(wish) => (true, wish),
        Role::Update(wish) => (false, wish),
    };
    let options = CopyOptions { is_verified: wish.is_verified, ..CopyOptions::default() };
    let mut source = RemoteSource::new(peer, progress);
    let copied = match is_new {
        true => directory::make(&mut source, home, &options, progress),
        false => directory::update(&mut source, home, &options, progress),
    };
    source.drop_ahead()?;
    let said = match &copied {
        Ok(copied) => Frame::Done(encode_copied(copied)),
        Err(error) => Frame::Failed(Failure::of(error)),
    };
    source.peer.send(&said)
}

fn serve_store(home: &Path, peer: &mut Peer<'_>, progress: &Progress) -> Result<()> {
    let opened = Store::open_read_only_with(home, &OpenOptions::default());
    let store = match opened {
        Ok(store) => store,
        Err(error) => return peer.send(&Frame::Failed(Failure::of(&error))),
    };
    serve_source(&mut StoreSource::new(&store), peer, &mut Pace::new(None, progress), &mut false).map(drop)
}

fn encode_copied(copied: &Copied) -> Vec<u8> {
    let flags = [copied.is_new, copied.is_unchanged, copied.is_interrupted];
    let Copied { files, bytes, kept_files, kept_bytes, segments, snapshots, batch, .. } = *copied;
    let numbers = [files, bytes, kept_files, kept_bytes, segments, snapshots, batch];
    flags.into_iter().map(u8::from).chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
}

fn decode_copied(bytes: &[u8]) -> Option<Copied> {
    let mut at = Decoder::new(bytes);
    let mut flag = || at.u8().filter(|&flag| flag < 2).map(|flag| flag == 1);
    let (is_new, is_unchanged, is_interrupted) = (flag()?, flag()?, flag()?);
    let (files, bytes, kept_files, kept_bytes) = (at.u64()?, at.u64()?, at.u64()?, at.u64()?);
    let (segments, snapshots, batch) = (at.u64()?, at.u64()?, at.u64()?);
    at.rest().is_empty().then_some(())?;
    Some(Copied {
        is_new,
        is_unchanged,
        is_interrupted,
        files,
        bytes,
        kept_files,
        kept_bytes,
        segments,
        snapshots,
        batch,
    })
}
