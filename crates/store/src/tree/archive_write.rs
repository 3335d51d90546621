//! Objects of a store as a tar archive: pax format, which GNU tar, bsdtar and [`import_tar`](super::import_tar()) read.
//!
//! Members are in key order, each directory before its content. What the old header has no room for is in a pax header:
//! long names and targets, times to the nanosecond, large sizes and owners, extended attributes. Sparse files are in
//! GNU's format 1.0; second and later names of anything are links to its first name in the archive. Sockets, which an
//! archive cannot hold, are left out and counted.
//!
//! Memory: one piece of content, and the first name of each object with several. Survives: objects that are damaged;
//! what cannot be read before its header is left out, what turns out damaged later is zeros from there on. Both are
//! reported.

use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FileType;

use super::header::xattr_keyword;
use super::{Ledger, Reports};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::{Attributes, Holes};
use crate::format::entry::{Kind, Time};
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::progress::Progress;
use crate::units::MIB;
use crate::{Buffer, Content, Listed, Store};

const BLOCK_BYTES: usize = 512;
/// Longest name in the old header.
const NAME_BYTES: usize = 100;
/// Largest size in the old header: 11 octal digits.
const LARGEST_SIZE: u64 = (1 << 33) - 1;
/// Largest owner in the old header: 7 octal digits.
const LARGEST_OWNER: u32 = (1 << 21) - 1;

/// What an archive got.
#[derive(Debug, Default)]
pub struct ArchiveSummary {
    /// Members, without those that were left out.
    pub members: u64,
    /// Bytes of content, without holes.
    pub content_bytes: u64,
    /// Sockets, which a tar archive cannot hold.
    pub left_out: u64,
    /// Objects that are missing, or only partly there.
    pub reports: Reports,
    /// Whether a stop was requested: the archive is truncated.
    pub interrupted: bool,
}

/// Writes the objects at and below each of `tops` to `stream` as a tar archive. Their names are their keys.
///
/// # Errors
/// Errors of writing, and of the store's index.
pub fn write_tar(store: &Store, tops: &[Key], stream: &mut dyn Write, progress: &Progress) -> Result<ArchiveSummary> {
    let ledger = Ledger::new(progress);
    let (names, summary) = (hashbrown::HashMap::new(), ArchiveSummary::default());
    let mut writer = Writer { store, ledger: &ledger, stream, names, summary, buffer: Buffer::default() };
    for top in tops {
        for listed in store.walk(top)? {
            if !ledger.advance(1, 0) {
                break;
            }
            writer.add(&listed?)?;
        }
    }
    if !ledger.is_over() {
        writer.stream.write_all(&[0; 2 * BLOCK_BYTES]).and_then(|()| writer.stream.flush()).map_err(unwritten)?;
    }
    let mut summary = writer.summary;
    summary.interrupted = ledger.is_interrupted();
    summary.reports = ledger.end().1;
    Ok(summary)
}

fn unwritten(error: io::Error) -> Error {
    Error::io("write", Path::new("the archive"), error)
}

struct Writer<'a, 'p> {
    store: &'a Store,
    ledger: &'a Ledger<'p>,
    stream: &'a mut dyn Write,
    names: hashbrown::HashMap<ObjectNumber, Key>,
    summary: ArchiveSummary,
    buffer: Buffer,
}

/// What a header says besides the attributes.
struct Member<'m> {
    kind: u8,
    data_bytes: u64,
    link: &'m [u8],
    device: (u32, u32),
}

impl Writer<'_, '_> {
    fn add(&mut self, listed: &Listed) -> Result<()> {
        if listed.key.is_root() {
            return Ok(());
        }
        let shared = listed.shared.filter(|&number| self.store.names_of(number) > 1);
        if let Some(first) = shared.and_then(|number| self.names.get(&number)).cloned() {
            return self.link(listed, &first);
        }
        let is_there = match listed.entry.kind {
            Kind::Directory | Kind::Symlink | Kind::Special => self.other(listed)?,
            _ => self.file(listed)?,
        };
        if let Some(number) = shared.filter(|_| is_there) {
            self.names.insert(number, listed.key.clone());
        }
        Ok(())
    }

    fn link(&mut self, listed: &Listed, first: &Key) -> Result<()> {
        let entry = &listed.entry;
        let attributes = Attributes {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            ..Attributes::default()
        };
        let target = path_bytes(first);
        self.header(
            &path_bytes(&listed.key),
            &attributes,
            &Member { kind: b'1', data_bytes: 0, link: &target, device: (0, 0) },
        )
    }

    /// A directory, symlink, fifo or device; returns whether it is in the archive.
    fn other(&mut self, listed: &Listed) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let added = match self.store.read(&listed.key, &mut buffer) {
            // Removed meanwhile.
            Ok(None) => Ok(false),
            Ok(Some(object)) => {
                let file_type = FileType::from_raw_mode(u32::from(object.attributes.mode));
                let (mut link, mut device) = (&[][..], (0, 0));
                let kind = match file_type {
                    FileType::Directory => Some(b'5'),
                    FileType::Symlink => {
                        link = object.content;
                        Some(b'2')
                    }
                    FileType::Fifo => Some(b'6'),
                    FileType::CharacterDevice | FileType::BlockDevice => {
                        device = device_numbers(object.content);
                        Some(if file_type == FileType::BlockDevice { b'4' } else { b'3' })
                    }
                    _ => None,
                };
                let mut name = path_bytes(&listed.key);
                if kind == Some(b'5') {
                    name.push(b'/');
                }
                match kind {
                    Some(kind) => {
                        let member = Member { kind, data_bytes: 0, link, device };
                        self.header(&name, &object.attributes, &member).map(|()| true)
                    }
                    None => {
                        self.summary.left_out += 1;
                        Ok(false)
                    }
                }
            }
            Err(error) => self.report(error, &listed.key).map(|()| false),
        };
        self.buffer = buffer;
        added
    }

    /// A file; returns whether it is in the archive.
    fn file(&mut self, listed: &Listed) -> Result<bool> {
        let store = self.store;
        let content = match store.content(&listed.key) {
            Ok(Some(content)) => content.in_pieces_of(4 * MIB),
            Ok(None) => return Ok(false),
            Err(error) => return self.report(error, &listed.key).map(|()| false),
        };
        let attributes = content.attributes().clone();
        let name = path_bytes(&listed.key);
        let (mut map, mut data_bytes) = (Vec::new(), content.entry().size_bytes);
        if let Some(holes) = &attributes.holes {
            map = sparse_map(holes);
            data_bytes = holes.data_bytes();
        }
        let whole_bytes = map.len() as u64 + data_bytes;
        self.header(&name, &attributes, &Member { kind: b'0', data_bytes: whole_bytes, link: &[], device: (0, 0) })?;
        self.stream.write_all(&map).map_err(unwritten)?;
        self.content(content, data_bytes)?;
        self.pad(whole_bytes)?;
        Ok(true)
    }

    fn content(&mut self, mut content: Content<'_>, data_bytes: u64) -> Result<()> {
        let mut left_bytes = data_bytes;
        loop {
            match content.next_piece() {
                Ok(Some((_, piece))) => {
                    let piece = &piece[..piece.len().min(left_bytes as usize)];
                    self.stream.write_all(piece).map_err(unwritten)?;
                    left_bytes -= piece.len() as u64;
                    self.summary.content_bytes += piece.len() as u64;
                    if !self.ledger.advance(0, piece.len() as u64) {
                        return Ok(());
                    }
                }
                Ok(None) => return self.zeros(left_bytes),
                Err(error) => {
                    self.ledger.report(error.advise("in the archive, the rest of the file is zeros"));
                    return self.zeros(left_bytes);
                }
            }
        }
    }

    /// Reports damage; any other error ends the archive.
    fn report(&mut self, error: Error, key: &Key) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost | ErrorKind::Busy) {
            return Err(error);
        }
        self.ledger.report(error.affecting(key));
        Ok(())
    }

    fn header(&mut self, name: &[u8], attributes: &Attributes, member: &Member<'_>) -> Result<()> {
        let mut records = Vec::new();
        let is_sparse = attributes.holes.is_some();
        if let Some(holes) = &attributes.holes {
            record(b"GNU.sparse.major", b"1", &mut records);
            record(b"GNU.sparse.minor", b"0", &mut records);
            record(b"GNU.sparse.name", name, &mut records);
            record(b"GNU.sparse.realsize", holes.size_bytes.to_string().as_bytes(), &mut records);
        }
        if !is_sparse && name.len() > NAME_BYTES {
            record(b"path", name, &mut records);
        }
        if member.link.len() > NAME_BYTES {
            record(b"linkpath", member.link, &mut records);
        }
        if member.data_bytes > LARGEST_SIZE {
            record(b"size", member.data_bytes.to_string().as_bytes(), &mut records);
        }
        for (keyword, owner) in [(&b"uid"[..], attributes.uid), (&b"gid"[..], attributes.gid)] {
            if owner > LARGEST_OWNER {
                record(keyword, owner.to_string().as_bytes(), &mut records);
            }
        }
        let Time { seconds, nanoseconds } = attributes.mtime;
        let is_plain = nanoseconds == 0 && (0..=LARGEST_SIZE as i64).contains(&seconds);
        if !is_plain {
            record(b"mtime", decimal_time(attributes.mtime).as_bytes(), &mut records);
        }
        if let Some(atime) = attributes.atime {
            record(b"atime", decimal_time(atime).as_bytes(), &mut records);
        }
        for (name, value) in &attributes.xattrs {
            record(&xattr_keyword(name), value, &mut records);
        }
        if !records.is_empty() {
            let size_bytes = records.len() as u64;
            let block = old_header(b"PaxHeaders/0", 0o644, (0, 0), 0, size_bytes, b'x', &[], (0, 0));
            self.stream.write_all(&block).and_then(|()| self.stream.write_all(&records)).map_err(unwritten)?;
            self.pad(size_bytes)?;
        }
        let stand_in = if is_sparse { [b"GNUSparseFile.0/", name].concat() } else { name.to_vec() };
        let block = old_header(
            &stand_in,
            u32::from(attributes.mode & 0o7777),
            (attributes.uid.min(LARGEST_OWNER), attributes.gid.min(LARGEST_OWNER)),
            seconds.clamp(0, LARGEST_SIZE as i64) as u64,
            member.data_bytes.min(LARGEST_SIZE),
            member.kind,
            member.link,
            member.device,
        );
        self.summary.members += 1;
        self.stream.write_all(&block).map_err(unwritten)
    }

    /// Fills the last block.
    fn pad(&mut self, size_bytes: u64) -> Result<()> {
        self.zeros(size_bytes.next_multiple_of(BLOCK_BYTES as u64) - size_bytes)
    }

    fn zeros(&mut self, mut bytes: u64) -> Result<()> {
        let zeros = [0; 8192];
        while bytes > 0 {
            let now = bytes.min(zeros.len() as u64);
            self.stream.write_all(&zeros[..now as usize]).map_err(unwritten)?;
            bytes -= now;
        }
        Ok(())
    }
}

/// A header as POSIX has it since 1988; names that are too long are cut, and whole in a pax header.
#[expect(clippy::too_many_arguments, reason = "the fields of the header, in their order")]
fn old_header(
    name: &[u8],
    mode: u32,
    (uid, gid): (u32, u32),
    mtime: u64,
    size_bytes: u64,
    kind: u8,
    link: &[u8],
    (major, minor): (u32, u32),
) -> [u8; BLOCK_BYTES] {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_mtime(mtime);
    header.set_size(size_bytes);
    header.set_entry_type(tar::EntryType::new(kind));
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.set_device_major(major);
        ustar.set_device_minor(minor);
        let copy = |from: &[u8], to: &mut [u8; NAME_BYTES]| {
            let length = from.len().min(NAME_BYTES);
            to[..length].copy_from_slice(&from[..length]);
        };
        copy(name, &mut ustar.name);
        copy(link, &mut ustar.linkname);
    }
    header.set_cksum();
    *header.as_bytes()
}

/// A record of a pax header: its own length, keyword and value.
fn record(keyword: &[u8], value: &[u8], onto: &mut Vec<u8>) {
    // Blank, equals sign and line feed.
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    onto.extend(length.to_string().as_bytes());
    onto.push(b' ');
    onto.extend(keyword);
    onto.push(b'=');
    onto.extend(value);
    onto.push(b'\n');
}

/// Seconds with a fraction, which is negative with them.
fn decimal_time(time: Time) -> String {
    match (time.seconds, time.nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds @ 0.., nanoseconds) => format!("{seconds}.{nanoseconds:09}"),
        (seconds, nanoseconds) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

/// The map of GNU's sparse format 1.0: numbers on lines, in whole blocks.
fn sparse_map(holes: &Holes) -> Vec<u8> {
    // GNU tar ends the file with the last run: an empty one says where a hole at the end ends.
    let has_hole_at_end = holes.data.last().is_none_or(|&(offset, length)| offset + length < holes.size_bytes);
    let end = has_hole_at_end.then_some((holes.size_bytes, 0));
    let mut map = format!("{}\n", holes.data.len() + usize::from(has_hole_at_end)).into_bytes();
    for (offset, length) in holes.data.iter().chain(&end) {
        map.extend(format!("{offset}\n{length}\n").as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}

fn path_bytes(key: &Key) -> Vec<u8> {
    key.stored().iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect()
}

fn device_numbers(content: &[u8]) -> (u32, u32) {
    let number =
        |at: usize| content.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    (number(0), number(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_with_its_own_length() {
        for value_bytes in [0, 1, 86, 87, 88, 89, 986, 987, 988, 5000] {
            let mut records = Vec::new();
            record(b"path", &vec![b'x'; value_bytes], &mut records);
            let text = String::from_utf8(records).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let time = |seconds, nanoseconds| decimal_time(Time { seconds, nanoseconds });
        assert_eq!(time(5, 0), "5");
        assert_eq!(time(5, 7), "5.000000007");
        assert_eq!(time(-2, 500_000_000), "-1.500000000");
        assert_eq!(time(-1, 999_999_999), "-0.000000001");
    }

    #[test]
    fn the_map_of_a_sparse_file_is_in_whole_blocks() {
        let map = sparse_map(&Holes { size_bytes: 1 << 20, data: vec![(0, 5), (4096, 7)] });
        assert_eq!(map.len(), BLOCK_BYTES);
        assert!(map.starts_with(b"3\n0\n5\n4096\n7\n1048576\n0\n\0"));
        let map = sparse_map(&Holes { size_bytes: 10, data: vec![(4, 6)] });
        assert!(map.starts_with(b"1\n4\n6\n\0"));
    }
}
