//! The members of a tar archive, one after the other, from any stream.
//!
//! Understood: V7, ustar, pax (with sub-second times, attributes, names and sizes of any length) and GNU (long names,
//! both kinds of sparse files and the three of pax). Data come as they are stored: of a sparse file the runs of data,
//! with a map.
//! Memory is bounded: extended headers and names by [`MOST_EXTENDED_BYTES`], maps by [`MOST_RUNS`].
//!
//! Survives: archives that are cut off or damaged (an error that says where), and members that are understood and not
//! wanted (they are [`MemberKind::Refused`], and the next one follows).

use std::io::{self, Read};

use super::header::{
    BLOCK_BYTES, Decoded, Header, OldSparse, decimal, decode, decode_continuation, extended, sparse_map, time,
    xattr_name,
};
use super::posix::MOST_RUNS;
use crate::format::attributes::{Attributes, Holes, Xattrs};

/// The longest extended header or name, in bytes.
const MOST_EXTENDED_BYTES: u64 = 4 << 20;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// Another name of the member that [`Member::link`] names.
    Link,
    Symlink,
    Directory,
    /// With major and minor number of a device.
    Special(u32, u32),
    /// Nothing that a store could keep, and why.
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
    /// Attributes in a form that is not known.
    pub xattrs_unreadable: u64,
}

/// An archive that cannot be read on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The stream failed.
    Stream(io::Error),
    /// It is damaged or no archive: at which byte, and why.
    Content(u64, &'static str),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Stream(error)
    }
}

type Result<T> = std::result::Result<T, Broken>;

/// Records of an extended header.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// An archive that is being read.
pub(crate) struct Archive<R> {
    stream: R,
    position: u64,
    /// Bytes of data of the member in hand that were not read.
    data_left: u64,
    padding: u64,
    global: Records,
    /// Whether it ended as it should: with a block of zeroes.
    pub is_complete: bool,
}

impl<R: Read> Archive<R> {
    pub fn new(stream: R) -> Archive<R> {
        Archive { stream, position: 0, data_left: 0, padding: 0, global: Vec::new(), is_complete: false }
    }

    /// The next member; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Member>> {
        let (mut long_name, mut long_link, mut local) = (None, None, None);
        loop {
            self.skip()?;
            let at = self.position;
            let Some(block) = self.block()? else {
                return if at == 0 { Err(Broken::Content(0, "it is empty")) } else { Ok(None) };
            };
            let Some(mut header) = decode(&block).map_err(|why| Broken::Content(at, why))? else {
                self.is_complete = true;
                return Ok(None);
            };
            match header.kind {
                b'x' => local = Some(self.records(header.data_bytes)?),
                b'g' => {
                    let records = self.records(header.data_bytes)?;
                    self.global.retain(|(known, _)| records.iter().all(|(keyword, _)| keyword != known));
                    self.global.extend(records);
                    if self.global.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() as u64 > MOST_EXTENDED_BYTES {
                        return Err(Broken::Content(at, "the global headers are longer than 4 MiB"));
                    }
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
                    return self.member(at, header, &local.unwrap_or_default()).map(Some);
                }
            }
        }
    }

    /// What is left of the data of the member in hand.
    pub fn data(&mut self) -> Data<'_, R> {
        Data { archive: self }
    }

    fn member(&mut self, at: u64, mut header: Header, local: &Records) -> Result<Member> {
        let wrong = |why| Broken::Content(at, why);
        let find = |keyword: &[u8]| local.iter().rev().find(|(known, _)| known == keyword).map(|(_, value)| &value[..]);
        let find_any = |keyword: &[u8]| {
            let global = || self.global.iter().rev().find(|(known, _)| known == keyword).map(|(_, value)| &value[..]);
            // An empty value takes back a global one.
            find(keyword).or_else(global).filter(|value| !value.is_empty())
        };
        if let Some(name) = find(b"GNU.sparse.name").or_else(|| find(b"path")) {
            header.name = name.to_vec();
        }
        if let Some(link) = find(b"linkpath") {
            header.link = link.to_vec();
        }
        if let Some(size) = find(b"size") {
            header.data_bytes = decimal(size).map_err(wrong)?;
        }
        for (keyword, field) in [(&b"uid"[..], &mut header.uid), (b"gid", &mut header.gid)] {
            if let Some(value) = find_any(keyword) {
                let value = decimal(value).map_err(wrong)?;
                *field = u32::try_from(value).map_err(|_| wrong("an owner's number is out of range"))?;
            }
        }
        if let Some(value) = find_any(b"mtime") {
            header.mtime = time(value).map_err(wrong)?;
        }
        let atime = find_any(b"atime").map(time).transpose().map_err(wrong)?;
        let (xattrs, xattrs_unreadable) = xattrs(local, &self.global);
        let paxed = PaxSparse::of(local).map_err(wrong)?;

        // Links have no data, whatever their size is said to be.
        self.begin_data(if header.kind == b'1' { 0 } else { header.data_bytes });
        let holes = match (header.sparse.take(), paxed) {
            (Some(old), _) => self.old_map(at, old)?,
            (None, Some(paxed)) => self.pax_map(at, paxed)?,
            (None, None) => None,
        };
        let kind = match header.kind {
            // Before ustar, a directory was a file whose name ends in a slash.
            b'\0' | b'0' | b'7' if header.name.ends_with(b"/") && header.data_bytes == 0 => MemberKind::Directory,
            b'\0' | b'0' | b'7' | b'S' => MemberKind::File,
            b'1' => MemberKind::Link,
            b'2' => MemberKind::Symlink,
            b'3' | b'4' => MemberKind::Special(header.device.0, header.device.1),
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Special(0, 0),
            b'M' => MemberKind::Refused("it is the rest of a file from another volume"),
            b'V' => MemberKind::Refused("it is the label of a volume"),
            _ => MemberKind::Refused("it is of a kind that is not known"),
        };
        let type_bits = match (kind, header.kind) {
            (MemberKind::Symlink, _) => 0o120_000,
            (MemberKind::Directory, _) => 0o040_000,
            (_, b'3') => 0o020_000,
            (_, b'4') => 0o060_000,
            (_, b'6') => 0o010_000,
            _ => 0o100_000,
        };
        let attributes = Attributes {
            mode: type_bits | header.mode,
            uid: header.uid,
            gid: header.gid,
            mtime: header.mtime,
            atime,
            xattrs,
            holes,
        };
        let Header { name, link, .. } = header;
        Ok(Member { name, link, kind, attributes, data_bytes: self.data_left, xattrs_unreadable })
    }

    /// The map of a sparse file in GNU's old format, the rest of which lies between header and data.
    fn old_map(&mut self, at: u64, old: OldSparse) -> Result<Option<Holes>> {
        let OldSparse { mut runs, mut is_continued, size_bytes } = old;
        while is_continued {
            let block = self.block()?.ok_or(Broken::Content(self.position, "it is cut off"))?;
            let (more, again) = decode_continuation(&block).map_err(|why| Broken::Content(at, why))?;
            runs.extend(more);
            is_continued = again;
            if runs.len() > 2 * MOST_RUNS {
                return Err(Broken::Content(at, "the map of a sparse file is too long"));
            }
        }
        sparse_map(&runs, size_bytes, self.data_left).map_err(|why| Broken::Content(at, why))
    }

    /// The map of a sparse file in one of the pax formats; in 1.0 it is the first part of the data.
    fn pax_map(&mut self, at: u64, paxed: PaxSparse) -> Result<Option<Holes>> {
        let wrong = |why| Broken::Content(at, why);
        let PaxSparse { mut runs, size_bytes, is_in_data } = paxed;
        if is_in_data {
            let mut map = MapReader { archive: self, block: [0; BLOCK_BYTES], at: BLOCK_BYTES };
            let count = map.number(at)?;
            if count > 2 * MOST_RUNS as u64 {
                return Err(wrong("the map of a sparse file is too long"));
            }
            for _ in 0..count {
                runs.push((map.number(at)?, map.number(at)?));
            }
        }
        sparse_map(&runs, size_bytes, self.data_left).map_err(wrong)
    }

    fn records(&mut self, length: u64) -> Result<Records> {
        let at = self.position;
        let bytes = self.long_bytes(length)?;
        let records = extended(&bytes).map_err(|why| Broken::Content(at, why))?;
        Ok(records.into_iter().map(|(keyword, value)| (keyword.to_vec(), value.to_vec())).collect())
    }

    /// A long name of GNU's, up to its zero byte.
    fn long(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut name = self.long_bytes(length)?;
        if let Some(end) = name.iter().position(|&byte| byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn long_bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        if length > MOST_EXTENDED_BYTES {
            return Err(Broken::Content(self.position, "an extended header is longer than 4 MiB"));
        }
        self.begin_data(length);
        let mut bytes = Vec::new();
        self.data().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn begin_data(&mut self, length: u64) {
        self.data_left = length;
        self.padding = length.wrapping_neg() % BLOCK_BYTES as u64;
    }

    /// Goes to the next header.
    fn skip(&mut self) -> Result<()> {
        let rest = io::copy(&mut self.data(), &mut io::sink());
        rest?;
        let padding = self.padding;
        let skipped = io::copy(&mut (&mut self.stream).take(padding), &mut io::sink())?;
        self.position += skipped;
        self.padding = 0;
        if skipped == padding { Ok(()) } else { Err(Broken::Content(self.position, "it is cut off")) }
    }

    /// The next block; `None` at the end of the stream.
    fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.stream.read(&mut block[filled..]) {
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
            _ => Err(Broken::Content(self.position, "it is cut off")),
        }
    }
}

/// Data of a member.
pub(crate) struct Data<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for Data<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.archive.data_left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let got = self.archive.stream.read(&mut buffer[..wanted])?;
        if got == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive is cut off"));
        }
        self.archive.position += got as u64;
        self.archive.data_left -= got as u64;
        Ok(got)
    }
}

/// What the extended header of a sparse file says: formats 0.0, 0.1 and 1.0.
struct PaxSparse {
    runs: Vec<(u64, u64)>,
    size_bytes: u64,
    is_in_data: bool,
}

impl PaxSparse {
    fn of(records: &Records) -> Decoded<Option<PaxSparse>> {
        let mut sparse = PaxSparse { runs: Vec::new(), size_bytes: 0, is_in_data: false };
        let (mut size, mut offset, mut has_map) = (None, None, false);
        for (keyword, value) in records {
            let Some(keyword) = keyword.strip_prefix(b"GNU.sparse.") else { continue };
            match keyword {
                b"size" | b"realsize" => size = Some(decimal(value)?),
                b"major" => sparse.is_in_data = decimal(value)? == 1,
                b"offset" => offset = Some(decimal(value)?),
                b"numbytes" => {
                    let offset = offset.take().ok_or("the map of a sparse file is malformed")?;
                    sparse.runs.push((offset, decimal(value)?));
                    has_map = true;
                }
                b"map" => {
                    let numbers: Vec<u64> = match &value[..] {
                        b"" => Vec::new(),
                        value => value.split(|&byte| byte == b',').map(decimal).collect::<Decoded<_>>()?,
                    };
                    if !numbers.len().is_multiple_of(2) {
                        return Err("the map of a sparse file is malformed");
                    }
                    sparse.runs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                    has_map = true;
                }
                _ => {}
            }
        }
        match size {
            Some(size_bytes) if has_map || sparse.is_in_data => Ok(Some(PaxSparse { size_bytes, ..sparse })),
            _ => Ok(None),
        }
    }
}

/// Decimal numbers, one a line, in whole blocks at the beginning of the data.
struct MapReader<'a, R> {
    archive: &'a mut Archive<R>,
    block: [u8; BLOCK_BYTES],
    at: usize,
}

impl<R: Read> MapReader<'_, R> {
    fn number(&mut self, header_at: u64) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK_BYTES {
                self.archive.data().read_exact(&mut self.block)?;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            if byte == b'\n' {
                return decimal(&digits).map_err(|why| Broken::Content(header_at, why));
            }
            digits.push(byte);
            if digits.len() > 20 {
                return Err(Broken::Content(header_at, "the map of a sparse file is malformed"));
            }
        }
    }
}

/// Extended attributes by name, and how many there are in a form that is not known.
fn xattrs(local: &Records, global: &Records) -> (Xattrs, u64) {
    let mut xattrs: Xattrs = Vec::new();
    let mut others = 0;
    for (keyword, value) in global.iter().chain(local) {
        if let Some(name) = keyword.strip_prefix(b"SCHILY.xattr.") {
            xattrs.push((xattr_name(name), value.clone()));
        } else if keyword.starts_with(b"LIBARCHIVE.xattr.") || keyword.starts_with(b"SCHILY.acl.") {
            others += 1;
        }
    }
    // Of the same name, the last one counts; the sort keeps their order.
    xattrs.reverse();
    xattrs.sort_by(|one, other| one.0.cmp(&other.0));
    xattrs.dedup_by(|later, earlier| later.0 == earlier.0);
    // bsdtar writes each attribute in both forms.
    (xattrs, if local.iter().any(|(keyword, _)| keyword.starts_with(b"SCHILY.xattr.")) { 0 } else { others })
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
