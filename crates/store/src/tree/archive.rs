//! The members of a tar archive, one after another, from any stream.
//!
//! Supported: V7, ustar, pax (with sub-second times, attributes, names and sizes of any length) and GNU (long names,
//! sparse files of both kinds and of the three pax formats). Data are returned as they are stored: for a sparse file,
//! the runs of data with a map.
//!
//! Hostile archives: the work is proportional to the bytes read, and memory is bounded. The limits:
//!
//! | what | at most | beyond | elsewhere |
//! | --- | --- | --- | --- |
//! | an extended header | 4 MiB | the archive is not read on | Go 1 MiB; bsdtar 1 MiB a name, 16 MiB an attribute |
//! | name of a member, and of what it links to | 65,535 bytes, a key's | the member is refused | bsdtar 1 MiB |
//! | target of a symlink | 4,095 bytes | the member is refused | Linux (`PATH_MAX`) |
//! | extended attributes | those of Linux (see `pax`) | they are left out and counted | |
//! | map of a sparse file | [`MOST_RUNS`] runs | the archive is not read on | |
//!
//! Survives: archives that are truncated or damaged (an error that says where, and in which member), and members that
//! are understood but not wanted (they are [`MemberKind::Refused`], and reading continues with the next one).

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::io::{self, Read};

use rustix::fs::FileType;

use super::header::{BLOCK_BYTES, Header, OldSparse, decimal, decode, decode_continuation, sparse_map};
use super::pax::{Common, Extended, PaxSparse};
use super::posix::MOST_RUNS;
use crate::format::attributes::{Attributes, Holes};
use crate::format::key::LONGEST_KEY_BYTES;

/// Longest extended header, in bytes.
const MOST_EXTENDED_BYTES: u64 = 4 << 20;
/// Longest target of a symlink, in bytes: with a zero byte it is Linux's `PATH_MAX`.
const LONGEST_TARGET_BYTES: usize = 4095;
/// Bytes of a too long name that are kept for messages.
const NAME_SHOWN_BYTES: usize = 100;
/// Digits of the largest number in the map of a sparse file.
const MOST_DIGITS: usize = 20;

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// Another name of the member that [`Member::link`] names.
    Link,
    Symlink,
    Directory,
    /// With major and minor number of a device.
    Special(u32, u32),
    /// Not storable, with the reason.
    Refused(&'static str),
}

/// A member; its data are read from the archive.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: Vec<u8>,
    /// Target of a symlink or a link.
    pub link: Vec<u8>,
    pub kind: MemberKind,
    pub attributes: Attributes,
    /// Bytes of data in the archive.
    pub data_bytes: u64,
    /// Attributes in an unknown form, or beyond the limits of Linux: omitted.
    pub xattrs_unreadable: u64,
    /// Offset of its header in the archive, in bytes.
    pub at: u64,
}

/// Why reading an archive cannot continue.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The stream failed.
    Stream(io::Error),
    /// It is damaged or not an archive.
    Content {
        /// At this byte.
        at: u64,
        /// Name of the member, if it could be read.
        member: Vec<u8>,
        why: &'static str,
    },
}

impl Broken {
    fn content(at: u64, why: &'static str) -> Broken {
        Broken::Content { at, member: Vec::new(), why }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Stream(error)
    }
}

type Result<T> = std::result::Result<T, Broken>;

/// An archive during reading.
pub(crate) struct Archive<R> {
    stream: R,
    position: u64,
    /// Unread bytes of data of the current member.
    data_left: u64,
    padding: u64,
    global: Common,
    /// Attributes of global headers, which the next member reports.
    global_xattrs: u64,
    /// An extended header, while it is read.
    header: Vec<u8>,
    /// Records of extended headers that were examined.
    records: u64,
    /// Whether it ended correctly: with a block of zeroes.
    pub is_complete: bool,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(stream: R) -> Archive<R> {
        Archive {
            stream,
            position: 0,
            data_left: 0,
            padding: 0,
            global: Common::default(),
            global_xattrs: 0,
            header: Vec::new(),
            records: 0,
            is_complete: false,
        }
    }

    /// The next member; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let (mut long_name, mut long_link, mut local) = (None, None, Extended::default());
        loop {
            self.skip()?;
            let at = self.position;
            let Some(block) = self.block()? else {
                return if at == 0 { Err(Broken::content(0, "it is empty")) } else { Ok(None) };
            };
            let Some(mut header) = decode(&block).map_err(|why| Broken::content(at, why))? else {
                self.is_complete = true;
                return Ok(None);
            };
            match header.kind {
                b'x' => {
                    self.read_header(at, header.data_bytes)?;
                    let read = Extended::read(&self.header, &mut self.records);
                    local = read.map_err(|why| Broken::content(at, why))?;
                }
                b'g' => {
                    self.read_header(at, header.data_bytes)?;
                    let taken = self.global.take_global(&self.header, &mut self.records);
                    self.global_xattrs += taken.map_err(|why| Broken::content(at, why))?;
                }
                b'L' => long_name = Some(self.long(header.data_bytes)?),
                b'K' => long_link = Some(self.long(header.data_bytes)?),
                _ => {
                    if let Some(name) = long_name.take() {
                        header.name = name;
                    }
                    if let Some(link) = long_link.take() {
                        header.link = link;
                    }
                    return self.member(at, header, local).map(Some);
                }
            }
        }
    }

    /// The unread data of the current member.
    pub(crate) fn data(&mut self) -> Data<'_, R> {
        Data { archive: self }
    }

    fn member(&mut self, at: u64, mut header: Header, local: Extended) -> Result<Member> {
        let Extended { name, link, size_bytes, common, sparse: paxed, xattrs, xattrs_left_out } = local;
        header.name = name.unwrap_or(header.name);
        header.link = link.unwrap_or(header.link);
        header.data_bytes = size_bytes.unwrap_or(header.data_bytes);
        // These have no data, whatever size their header states: for a directory it may be a limit (POSIX, ustar).
        self.begin_data(if matches!(header.kind, b'1'..=b'6') { 0 } else { header.data_bytes });
        let holes = match (header.sparse.take(), paxed) {
            (Some(old), _) => self.old_map(at, old),
            (None, Some(paxed)) => self.pax_map(at, paxed),
            (None, None) => Ok(None),
        };
        let holes = holes.map_err(|broken| match broken {
            Broken::Content { at, why, .. } => Broken::Content { at, member: shown(&header.name), why },
            broken @ Broken::Stream(_) => broken,
        })?;
        let kind = match header.kind {
            _ if header.name.len() > LONGEST_KEY_BYTES => MemberKind::Refused("its name is longer than 65,535 bytes"),
            b'1' if header.link.len() > LONGEST_KEY_BYTES => {
                MemberKind::Refused("the name it links to is longer than 65,535 bytes")
            }
            b'2' if header.link.len() > LONGEST_TARGET_BYTES => {
                MemberKind::Refused("it is a symbolic link to a path longer than 4,095 bytes")
            }
            // Before ustar, a directory was a file whose name ends in a slash.
            b'\0' | b'0' | b'7' if header.name.ends_with(b"/") && header.data_bytes == 0 => MemberKind::Directory,
            b'\0' | b'0' | b'7' | b'S' => MemberKind::File,
            b'1' => MemberKind::Link,
            b'2' => MemberKind::Symlink,
            b'3' | b'4' => MemberKind::Special(header.device.0, header.device.1),
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Special(0, 0),
            b'M' => MemberKind::Refused("it continues a file from another volume"),
            b'V' => MemberKind::Refused("it is a volume label"),
            _ => MemberKind::Refused("its kind is unknown"),
        };
        let file_type = match (kind, header.kind) {
            (MemberKind::Symlink, _) => FileType::Symlink,
            (MemberKind::Directory, _) => FileType::Directory,
            (_, b'3') => FileType::CharacterDevice,
            (_, b'4') => FileType::BlockDevice,
            (_, b'6') => FileType::Fifo,
            _ => FileType::RegularFile,
        };
        let attributes = Attributes {
            mode: file_type.as_raw_mode() as u16 | header.mode,
            uid: common.uid.or(self.global.uid).unwrap_or(header.uid),
            gid: common.gid.or(self.global.gid).unwrap_or(header.gid),
            mtime: common.mtime.or(self.global.mtime).unwrap_or(header.mtime),
            ctime: None,
            btime: None,
            atime: common.atime.or(self.global.atime),
            xattrs,
            holes,
        };
        let Header { mut name, mut link, .. } = header;
        if let MemberKind::Refused(_) = kind {
            (name, link) = (shown(&name), Vec::new());
        }
        let xattrs_unreadable = xattrs_left_out + std::mem::take(&mut self.global_xattrs);
        Ok(Member { name, link, kind, attributes, data_bytes: self.data_left, xattrs_unreadable, at })
    }

    /// The map of a sparse file in GNU's old format; the rest of the map is between header and data.
    fn old_map(&mut self, at: u64, old: OldSparse) -> Result<Option<Holes>> {
        let OldSparse { mut runs, mut is_continued, size_bytes } = old;
        while is_continued {
            let block = self.block()?.ok_or(Broken::content(self.position, "it is truncated"))?;
            let (more, again) = decode_continuation(&block).map_err(|why| Broken::content(at, why))?;
            runs.extend(more);
            is_continued = again;
            if runs.len() > 2 * MOST_RUNS {
                return Err(Broken::content(at, "the map of a sparse file is too long"));
            }
        }
        sparse_map(&runs, size_bytes, self.data_left).map_err(|why| Broken::content(at, why))
    }

    /// The map of a sparse file in one of the pax formats; in 1.0 it is at the beginning of the data.
    fn pax_map(&mut self, at: u64, paxed: PaxSparse) -> Result<Option<Holes>> {
        let wrong = |why| Broken::content(at, why);
        let PaxSparse { mut runs, size_bytes, is_in_data } = paxed;
        if is_in_data {
            let mut map = MapReader { archive: self, block: [0; BLOCK_BYTES], at: BLOCK_BYTES };
            let count = map.next_number(at)?;
            if count > 2 * MOST_RUNS as u64 {
                return Err(wrong("the map of a sparse file is too long"));
            }
            for _ in 0..count {
                runs.push((map.next_number(at)?, map.next_number(at)?));
            }
        }
        sparse_map(&runs, size_bytes, self.data_left).map_err(wrong)
    }

    /// Reads an extended header.
    fn read_header(&mut self, at: u64, length: u64) -> Result<()> {
        if length > MOST_EXTENDED_BYTES {
            return Err(Broken::content(at, "an extended header is longer than 4 MiB"));
        }
        let mut header = std::mem::take(&mut self.header);
        header.clear();
        self.begin_data(length);
        let read = self.data().read_to_end(&mut header);
        self.header = header;
        read?;
        Ok(())
    }

    /// A GNU long name, up to its zero byte; of a name that is too long, enough to detect that.
    fn long(&mut self, length: u64) -> Result<Vec<u8>> {
        self.begin_data(length);
        let mut name = Vec::new();
        self.data().take(LONGEST_KEY_BYTES as u64 + 1).read_to_end(&mut name)?;
        if let Some(end) = name.iter().position(|&byte| byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn begin_data(&mut self, length: u64) {
        self.data_left = length;
        self.padding = length.wrapping_neg() % BLOCK_BYTES as u64;
    }

    /// Skips to the next header.
    fn skip(&mut self) -> Result<()> {
        io::copy(&mut self.data(), &mut io::sink())?;
        let padding = self.padding;
        let skipped = io::copy(&mut (&mut self.stream).take(padding), &mut io::sink())?;
        self.position += skipped;
        self.padding = 0;
        if skipped == padding { Ok(()) } else { Err(Broken::content(self.position, "it is truncated")) }
    }

    /// The next block; `None` at the end of the stream.
    fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>> {
        let begin = self.position;
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position += filled as u64;
        match filled {
            0 => Ok(None),
            BLOCK_BYTES => Ok(Some(block)),
            // Less than a block is no archive.
            _ if begin == 0 => Err(Broken::content(0, "it is shorter than a header")),
            _ => Err(Broken::content(self.position, "it is truncated")),
        }
    }
}

/// Data of a member.
pub(crate) struct Data<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for Data<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.archive.data_left == 0 {
            return Ok(0);
        }
        let got = (&mut self.archive.stream).take(self.archive.data_left).read(buffer)?;
        if got == 0 {
            let cause = format!("it is truncated at byte {}", self.archive.position);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cause));
        }
        self.archive.position += got as u64;
        self.archive.data_left -= got as u64;
        Ok(got)
    }
}

/// Decimal numbers, one per line, in whole blocks at the beginning of the data.
struct MapReader<'a, R> {
    archive: &'a mut Archive<R>,
    block: [u8; BLOCK_BYTES],
    at: usize,
}

impl<R: Read> MapReader<'_, R> {
    /// The next number of the map that belongs to the header at `header_at`.
    fn next_number(&mut self, header_at: u64) -> Result<u64> {
        let malformed = || Broken::content(header_at, "the map of a sparse file is malformed");
        let mut digits = Vec::new();
        loop {
            let Some(&byte) = self.block.get(self.at) else {
                if self.archive.data_left < BLOCK_BYTES as u64 {
                    return Err(malformed());
                }
                self.archive.data().read_exact(&mut self.block)?;
                self.at = 0;
                continue;
            };
            self.at += 1;
            if byte == b'\n' {
                return decimal(&digits).map_err(|why| Broken::content(header_at, why));
            }
            if digits.len() == MOST_DIGITS {
                return Err(malformed());
            }
            digits.push(byte);
        }
    }
}

/// The beginning of a name, for messages.
fn shown(name: &[u8]) -> Vec<u8> {
    match name.get(..NAME_SHOWN_BYTES) {
        Some(start) if name.len() > LONGEST_KEY_BYTES => [start, "…".as_bytes()].concat(),
        _ => name.to_vec(),
    }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
