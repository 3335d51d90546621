//! Rows by key, in bounded memory: an external merge sort.
//!
//! Rows fill a buffer; a full one is sorted and becomes a *run* in an unnamed file. As soon as there are [`FAN_IN`]
//! runs of a level they are merged into one of the next, and their space in the file is given back, so that the final
//! merge has few. Few rows never reach a file. In a run a key is stored as its difference from the one before.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::row::{Block, Row};
use crate::io::varint;
use crate::sys::spill::unnamed_file;

/// Rows in memory, in bytes.
const BUFFER_BYTES: usize = 32 << 20;
/// Runs of a level that become one.
const FAN_IN: usize = 32;
/// What is read of a run at once.
const READ_BYTES: usize = 64 << 10;

/// Rows that are being collected.
pub(super) struct Sorter {
    directory: PathBuf,
    buffer_bytes: usize,
    buffer: Block,
    file: Option<Arc<File>>,
    end: u64,
    /// Runs by level.
    runs: Vec<Vec<Run>>,
}

/// A sorted part of the file.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

impl Sorter {
    /// With a file in `directory`, if one is needed.
    pub(super) fn new(directory: PathBuf) -> Sorter {
        Sorter::with_buffer(directory, BUFFER_BYTES)
    }

    fn with_buffer(directory: PathBuf, buffer_bytes: usize) -> Sorter {
        Sorter { directory, buffer_bytes, buffer: Block::default(), file: None, end: 0, runs: Vec::new() }
    }

    /// Adds rows in any order.
    pub(super) fn add(&mut self, rows: &Block) -> io::Result<()> {
        self.buffer.append(rows);
        if self.buffer.size_bytes() >= self.buffer_bytes { self.write_run() } else { Ok(()) }
    }

    fn file(&mut self) -> io::Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(unnamed_file(&self.directory)?);
        self.file = Some(file.clone());
        Ok(file)
    }

    /// Turns the buffer into a run.
    fn write_run(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = self.file()?;
        self.buffer.sort();
        let mut run = RunWriter::new(&file, self.end)?;
        for number in 0.. {
            let Some((key, row)) = self.buffer.get(number) else { break };
            run.push(key, row)?;
        }
        self.buffer.clear();
        let run = run.finish()?;
        self.keep(run, 0)
    }

    /// Adds a run to a level, and merges the level if it is full.
    fn keep(&mut self, run: Run, level: usize) -> io::Result<()> {
        self.end = run.end;
        if self.runs.len() == level {
            self.runs.push(Vec::new());
        }
        self.runs[level].push(run);
        if self.runs[level].len() < FAN_IN {
            return Ok(());
        }
        let merged = std::mem::take(&mut self.runs[level]);
        let file = self.file()?;
        let mut sources = Sorted::default();
        for run in &merged {
            sources.open(Source::Run(RunReader::new(&file, *run)))?;
        }
        let mut out = RunWriter::new(&file, self.end)?;
        let mut encoded = Vec::new();
        while let Some(row) = sources.next()? {
            encoded.clear();
            row.encode(&mut encoded);
            out.push(sources.key(), &encoded)?;
        }
        let whole = out.finish()?;
        for run in merged {
            // A file system without holes keeps the space until the end.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&file, flags, run.start, run.end - run.start);
        }
        self.keep(whole, level + 1)
    }

    /// All rows, sorted.
    pub(super) fn finish(mut self) -> io::Result<Sorted> {
        self.buffer.sort();
        let mut sorted = Sorted::default();
        sorted.open(Source::Memory { rows: self.buffer, next: 0 })?;
        if let Some(file) = &self.file {
            for run in self.runs.iter().flatten() {
                sorted.open(Source::Run(RunReader::new(file, *run)))?;
            }
        }
        Ok(sorted)
    }
}

struct RunWriter<'f> {
    out: BufWriter<&'f File>,
    start: u64,
    written: u64,
    last: Vec<u8>,
    head: Vec<u8>,
}

impl<'f> RunWriter<'f> {
    fn new(mut file: &'f File, start: u64) -> io::Result<RunWriter<'f>> {
        file.seek(SeekFrom::Start(start))?;
        let out = BufWriter::with_capacity(1 << 18, file);
        Ok(RunWriter { out, start, written: 0, last: Vec::new(), head: Vec::new() })
    }

    fn push(&mut self, key: &[u8], row: &[u8]) -> io::Result<()> {
        let shared = self.last.iter().zip(key).take_while(|(one, other)| one == other).count();
        let rest = &key[shared..];
        self.head.clear();
        [shared, rest.len(), row.len()].into_iter().for_each(|length| varint::put(&mut self.head, length as u64));
        for part in [&self.head[..], rest, row] {
            self.out.write_all(part)?;
            self.written += part.len() as u64;
        }
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Run> {
        self.out.flush()?;
        Ok(Run { start: self.start, end: self.start + self.written })
    }
}

/// A part of the file as a stream that leaves the position of the file alone.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        Ok(count)
    }
}

struct RunReader {
    bytes: BufReader<Section>,
}

impl RunReader {
    fn new(file: &Arc<File>, run: Run) -> RunReader {
        let section = Section { file: file.clone(), at: run.start, end: run.end };
        RunReader { bytes: BufReader::with_capacity(READ_BYTES, section) }
    }

    /// Replaces `key` by that of the next row, and returns this; `None` at the end.
    fn next(&mut self, key: &mut Vec<u8>) -> io::Result<Option<Row>> {
        let Some(shared) = self.length()? else { return Ok(None) };
        let (Some(rest), Some(row)) = (self.length()?, self.length()?) else { return Err(damaged()) };
        key.truncate(shared);
        let start = key.len();
        key.resize(start + rest, 0);
        self.bytes.read_exact(&mut key[start..])?;
        let mut encoded = vec![0; row];
        self.bytes.read_exact(&mut encoded)?;
        Row::decode(&encoded).map(Some).ok_or_else(damaged)
    }

    fn length(&mut self) -> io::Result<Option<usize>> {
        let mut value = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let mut byte = [0];
            if self.bytes.read(&mut byte)? == 0 {
                return if shift == 0 { Ok(None) } else { Err(damaged()) };
            }
            value |= usize::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(damaged())
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the scratch file was changed by another program")
}

enum Source {
    Memory { rows: Block, next: usize },
    Run(RunReader),
}

/// The row of a source that is next.
struct Cursor {
    key: Vec<u8>,
    row: Row,
    source: Source,
}

impl Cursor {
    /// Goes to the next row of the source; false at its end.
    fn advance(&mut self) -> io::Result<bool> {
        let row = match &mut self.source {
            Source::Run(run) => run.next(&mut self.key)?,
            Source::Memory { rows, next } => match rows.get(*next) {
                None => None,
                Some((key, row)) => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    *next += 1;
                    Some(Row::decode(row).ok_or_else(damaged)?)
                }
            },
        };
        row.into_iter().for_each(|row| self.row = row);
        Ok(row.is_some())
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Cursor) -> bool {
        self.key == other.key
    }
}

impl Eq for Cursor {}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Cursor) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cursor {
    /// The smallest key is the greatest cursor: on top of the heap.
    fn cmp(&self, other: &Cursor) -> std::cmp::Ordering {
        other.key.cmp(&self.key)
    }
}

/// Rows in the order of their keys, each key once.
#[derive(Default)]
pub(super) struct Sorted {
    cursors: BinaryHeap<Cursor>,
    key: Vec<u8>,
}

impl Sorted {
    fn open(&mut self, source: Source) -> io::Result<()> {
        let mut cursor = Cursor { key: Vec::new(), row: Row::unlisted(), source };
        if cursor.advance()? {
            self.cursors.push(cursor);
        }
        Ok(())
    }

    /// The next row; [`key`](Self::key) is then its key.
    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        let mut whole: Option<Row> = None;
        while let Some(mut top) = self.cursors.peek_mut() {
            match whole {
                None => {
                    self.key.clear();
                    self.key.extend_from_slice(&top.key);
                    whole = Some(top.row);
                }
                Some(_) if top.key != self.key => break,
                Some(row) => whole = Some(row.join(top.row)),
            }
            if !top.advance()? {
                PeekMut::pop(top);
            }
        }
        Ok(whole)
    }

    /// The key of the row that [`next`](Self::next) returned last.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Buffers of any size give the same order, and two rows of one key become one.
    #[test]
    fn rows_come_back_by_key_whatever_the_buffer() {
        let scratch = tempfile::tempdir().unwrap();
        let mut random = Random::new(7);
        let mut keys: Vec<Vec<u8>> = (0..4000)
            .map(|_| (0..random.below(6)).flat_map(|_| [0, b'a' + random.below(9) as u8, b'/' - 1]).collect())
            .collect();
        let mut results = Vec::new();
        for buffer_bytes in [1, 300, 5000, 1 << 20] {
            let mut sorter = Sorter::with_buffer(scratch.path().to_owned(), buffer_bytes);
            for (number, key) in keys.iter().enumerate() {
                let mut block = Block::default();
                let known = if number % 2 == 0 {
                    super::super::row::Known::Excluded
                } else {
                    super::super::row::Known::Unreadable
                };
                block.push(key, None, &Row::of(known));
                sorter.add(&block).unwrap();
            }
            let mut sorted = sorter.finish().unwrap();
            let mut rows = Vec::new();
            while let Some(row) = sorted.next().unwrap() {
                rows.push((sorted.key().to_vec(), row));
            }
            results.push(rows);
        }
        keys.sort();
        keys.dedup();
        for rows in &results {
            assert!(rows.iter().map(|(key, _)| key).eq(&keys));
            assert_eq!(rows, &results[0]);
        }
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
