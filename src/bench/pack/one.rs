//! One file instead of many: the composite file of the article, and a flat file of only the bytes.
//!
//! A record of the composite file is the id (8 bytes), a flag that it is in use (1), the time of writing in
//! milliseconds (8), the length (8), and the content; numbers are big-endian, as the article's program writes them.
//! Like there, reads and writes go through a buffer of 64 KiB. The flat file is written and read in pieces of 1 MiB,
//! without examining what is read, like a copy: a way that is nearly as fast loads as fast as this file system can read
//! files. Both continue in another file every 2 GiB, because FAT does not support files of 4 GiB.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::population::Population;
use super::{Going, Tally, wrong};
use crate::bench::content::{Content, PIECE_BYTES};
use crate::error::{Error, ErrorKind, Result};

/// Buffer of the article's reader, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes before the content of a record.
pub(super) const HEADER_BYTES: usize = 25;
/// Another file begins after this many bytes.
const PART_BYTES: u64 = 2 << 30;
/// The number that determines the content of the flat file.
const FLAT: u64 = u64::MAX;

/// Files that are written or read one after another.
#[derive(Debug)]
struct Parts {
    directory: PathBuf,
    name: &'static str,
    part_bytes: u64,
    next: u32,
    file: Option<File>,
    left_bytes: u64,
}

impl Parts {
    fn new(directory: &Path, name: &'static str) -> Parts {
        Parts { directory: directory.to_owned(), name, part_bytes: PART_BYTES, next: 1, file: None, left_bytes: 0 }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{}-{number}", self.name))
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left_bytes == 0 {
            self.file = None;
            let path = self.path(self.next);
            self.file = Some(OpenOptions::new().write(true).create_new(true).open(path)?);
            (self.next, self.left_bytes) = (self.next + 1, self.part_bytes);
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        let written = file.write(&bytes[..bytes.len().min(self.left_bytes as usize)])?;
        self.left_bytes -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.file {
                Some(file) => file.read(buffer)?,
                None => 0,
            };
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match File::open(self.path(self.next)) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.next > 1 => return Ok(0),
                Err(error) => return Err(error),
            }
            self.next += 1;
        }
    }
}

/// Appends all records; returns whether it finished.
pub(super) fn write_records(
    directory: &Path,
    population: &Population,
    content: &Content,
    go_on: &mut Going<'_>,
) -> Result<bool> {
    let fail = |error| Error::io("write a composite file in", directory, error);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Parts::new(directory, "composite"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    for number in 0..population.files {
        if !go_on(number) {
            return Ok(false);
        }
        let size_bytes = population.size(number);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&number.to_be_bytes());
        header[8] = 1;
        header[9..17].copy_from_slice(&now.to_be_bytes());
        header[17..].copy_from_slice(&size_bytes.to_be_bytes());
        out.write_all(&header).map_err(fail)?;
        let mut at = 0;
        while at < size_bytes {
            let piece = content.piece(number, at, size_bytes - at);
            out.write_all(piece).map_err(fail)?;
            at += piece.len() as u64;
        }
    }
    out.flush().map_err(fail)?;
    Ok(true)
}

/// Reads all records and compares their content; returns whether it finished.
pub(super) fn read_records(
    directory: &Path,
    population: &Population,
    content: &Content,
    go_on: &mut Going<'_>,
) -> Result<bool> {
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong(directory),
        _ => Error::io("read the composite file in", directory, error),
    };
    let mut from = BufReader::with_capacity(BUFFER_BYTES, Parts::new(directory, "composite"));
    let mut tally = Tally::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut header = [0; HEADER_BYTES];
    loop {
        if !go_on(tally.files) {
            return Ok(false);
        }
        match from.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(fail(error)),
        }
        let number = u64::from_be_bytes(*header.first_chunk().unwrap_or(&[0; 8]));
        let size_bytes = u64::from_be_bytes(*header.last_chunk().unwrap_or(&[0; 8]));
        if header[8] != 1 || number >= population.files || size_bytes != population.size(number) {
            return Err(wrong(&directory.join(format!("record {}", tally.files))));
        }
        let mut at = 0;
        while at < size_bytes {
            let length = (size_bytes - at).min(PIECE_BYTES as u64) as usize;
            from.read_exact(&mut piece[..length]).map_err(fail)?;
            if !content.is(number, at, &piece[..length]) {
                return Err(wrong(&directory.join(format!("record {number}"))));
            }
            at += length as u64;
        }
        tally.add(number, size_bytes);
    }
    tally.check(population, directory)?;
    Ok(true)
}

/// Writes a flat file of `size_bytes`; returns whether it finished.
pub(super) fn write_flat(directory: &Path, size_bytes: u64, content: &Content, go_on: &mut Going<'_>) -> Result<bool> {
    let fail = |error| Error::io("write a flat file in", directory, error);
    let mut out = Parts::new(directory, "flat");
    let mut at = 0;
    while at < size_bytes {
        if !go_on(at) {
            return Ok(false);
        }
        let piece = content.piece(FLAT, at, size_bytes - at);
        out.write_all(piece).map_err(fail)?;
        at += piece.len() as u64;
    }
    Ok(true)
}

/// Reads the flat file; with `content`, compares the bytes. Returns whether it finished.
pub(super) fn read_flat(
    directory: &Path,
    size_bytes: u64,
    content: Option<&Content>,
    go_on: &mut Going<'_>,
) -> Result<bool> {
    let fail = |error| Error::io("read the flat file in", directory, error);
    let mut from = Parts::new(directory, "flat");
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    // Empty content has no file.
    if size_bytes == 0 {
        return Ok(true);
    }
    loop {
        if !go_on(at) {
            return Ok(false);
        }
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                if content.is_some_and(|content| !content.is(FLAT, at, &piece[..read])) {
                    return Err(wrong(&directory.join(format!("byte {at}"))));
                }
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error)),
        }
    }
    if at == size_bytes {
        return Ok(true);
    }
    let cause = format!("{at} bytes were read, but {size_bytes} were written");
    Err(Error::new(ErrorKind::Corrupt, "read the flat file in", cause).at(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_laid_out_as_the_source_says() {
        let directory = tempfile::tempdir().unwrap();
        let population = Population::same(300, 1000).unwrap();
        let content = Content::random(5);
        assert!(write_records(directory.path(), &population, &content, &mut |_| true).unwrap());
        let path = directory.path().join("composite-1");
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 300 * (HEADER_BYTES + 1000));
        let second = &bytes[HEADER_BYTES + 1000..];
        assert_eq!(
            (&second[..9], &second[17..HEADER_BYTES]),
            (&[0, 0, 0, 0, 0, 0, 0, 1, 1][..], &1000u64.to_be_bytes()[..])
        );
        let read = || read_records(directory.path(), &population, &content, &mut |_| true);
        assert!(read().unwrap());
        for (at, to) in [(8, 0), (HEADER_BYTES + 5, 0), (7, 1)] {
            let before = std::mem::replace(&mut bytes[at], to);
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read().unwrap_err().kind(), ErrorKind::Corrupt, "{at}");
            bytes[at] = before;
        }
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Corrupt);
        std::fs::write(&path, &bytes[..bytes.len() - HEADER_BYTES - 1000]).unwrap();
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_flat_file_is_whole_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::random(5);
        let bytes = 2_500_000;
        assert!(write_flat(directory.path(), bytes, &content, &mut |_| true).unwrap());
        let read = |content| read_flat(directory.path(), bytes, content, &mut |_| true);
        assert!(read(None).unwrap() && read(Some(&content)).unwrap());
        let other = Content::random(6);
        assert!(read(Some(&other)).is_err());
        let path = directory.path().join("flat-1");
        OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes - 1).unwrap();
        assert_eq!(read(None).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(read_flat(&directory.path().join("none"), bytes, None, &mut |_| true).is_err());
        assert!(read_flat(directory.path(), 0, None, &mut |_| true).unwrap());
    }

    #[test]
    fn what_is_long_goes_on_in_a_further_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut out = Parts { part_bytes: 1000, ..Parts::new(directory.path(), "part") };
        let written: Vec<u8> = (0..3500u32).map(|at| at as u8).collect();
        out.write_all(&written).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
        let mut read = Vec::new();
        Parts::new(directory.path(), "part").read_to_end(&mut read).unwrap();
        assert_eq!(read, written);
    }
}
