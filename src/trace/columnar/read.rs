//! Reading: block by block; each is verified before it is used.

use twox_hash::XxHash3_64;

use super::write::nothing_before;
use super::{BLOCK, COLUMNS, FOOT, FRAME_BYTES, Footer, Frame, HEAD, MAGIC, MAGIC_ANY_VERSION, MOST_RAW_BYTES, has};
use crate::document::check_printable_strings;
use crate::error::{Error, ErrorKind, Result};
use crate::io::varint::{take, take_bytes, unzigzag};
use crate::trace::input::OPERATION;
use crate::trace::{Findings, Input, Kind, Names, Operation, Origin, Problems, Source, Trouble};

/// Name of a file or process whose own name was in a damaged block.
const LOST_NAME: &[u8] = b"(name lost)";

/// Offset and length of a column in a block, and how far it has been read.
#[derive(Debug, Clone, Copy, Default)]
struct Column {
    at: usize,
    end: usize,
}

/// Reads a trace as a stream.
pub struct Reader {
    input: Input,
    origin: Origin,
    problems: Problems,
    files: Names,
    processes: Names,
    unpacker: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    raw: Vec<u8>,
    columns: [Column; COLUMNS],
    before: Operation,
    /// Operations of the block that remain, and the number of all that were returned or skipped.
    left: u32,
    passed: u64,
    /// Bytes of skipped blocks, which bound the number of missing names.
    lost_bytes: usize,
    ended: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("input", &self.input).finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads the head of a trace.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`], [`ErrorKind::NotRecognised`], [`ErrorKind::Corrupt`] if not even the head is
    /// intact, and errors from reading.
    pub fn new(mut input: Input) -> Result<Reader> {
        let fail = |kind, cause: &str| Error::new(kind, OPERATION, cause);
        let path = input.path().to_owned();
        let mut magic = [0; MAGIC.len()];
        let filled = input.fill(&mut magic)?;
        if filled < magic.len() || magic != *MAGIC {
            let version = magic.strip_prefix(MAGIC_ANY_VERSION).and_then(|rest| rest.strip_suffix(b"\n"));
            let newer = version.and_then(|version| std::str::from_utf8(version).ok()?.trim().parse::<u32>().ok());
            return Err(match newer {
                Some(version) if version > 1 => Error::newer_version(OPERATION, version, 1),
                _ => fail(ErrorKind::NotRecognised, "it is not a granulo trace"),
            }
            .at(&path));
        }
        let unpacker = zstd::bulk::Decompressor::new().map_err(|error| Error::io(OPERATION, &path, error))?;
        let mut reader = Reader {
            input,
            origin: Origin::new(""),
            problems: Problems::default(),
            files: Names::default(),
            processes: Names::default(),
            unpacker,
            packed: Vec::new(),
            raw: Vec::new(),
            columns: Default::default(),
            before: nothing_before(),
            left: 0,
            passed: 0,
            lost_bytes: 0,
            ended: false,
        };
        let head = reader.read_block()?.is_some_and(|frame| frame.kind == HEAD);
        match check_printable_strings(&reader.raw).and_then(|()| serde_json::from_slice(&reader.raw)) {
            Ok(origin) if head => reader.origin = origin,
            _ => return Err(fail(ErrorKind::Corrupt, "its header is truncated or damaged").at(&path)),
        }
        Ok(reader)
    }

    /// Reads the next intact block into `raw` and returns its frame; skips and counts damaged ones. `None`, which is
    /// counted, too: the file ends without a footer, or a frame is damaged. The regular end is a block of kind
    /// [`FOOT`].
    fn read_block(&mut self) -> Result<Option<Frame>> {
        loop {
            let mut bytes = [0; FRAME_BYTES];
            let filled = self.input.fill(&mut bytes)?;
            if filled < FRAME_BYTES {
                let passed = self.passed;
                self.problems.count(Trouble::Truncated, || match filled {
                    0 => format!("after operation {passed}: the end is missing"),
                    _ => format!("after operation {passed}, in the header of a block"),
                });
                return Ok(None);
            }
            let Some(frame) = Frame::decode(&bytes) else {
                let passed = self.passed;
                self.problems.count(Trouble::Damaged, || {
                    format!("after operation {passed}: the header of a block; nothing after it was read")
                });
                return Ok(None);
            };
            self.packed.resize(frame.packed_bytes as usize, 0);
            if self.input.fill(&mut self.packed)? < self.packed.len() {
                let lost = frame.operations;
                self.problems.count(Trouble::Truncated, || {
                    format!("in a block of {lost} operations, after operation {}", frame.operations_before)
                });
                return Ok(None);
            }
            if XxHash3_64::oneshot(&self.packed) == frame.hash && self.unpack(&frame) {
                return Ok(Some(frame));
            }
            if frame.kind == FOOT {
                self.problems.count(Trouble::Damaged, || "its footer".to_owned());
                return Ok(None);
            }
            self.skip(&frame);
        }
    }

    fn unpack(&mut self, frame: &Frame) -> bool {
        self.raw.clear();
        self.raw.reserve((frame.raw_bytes as usize).min(MOST_RAW_BYTES));
        let unpacked = self.unpacker.decompress_to_buffer(&self.packed, &mut self.raw);
        unpacked.is_ok_and(|length| length == frame.raw_bytes as usize)
    }

    /// Skips a damaged block.
    fn skip(&mut self, frame: &Frame) {
        self.passed += u64::from(frame.operations);
        self.lost_bytes += frame.packed_bytes as usize;
        self.problems.count(Trouble::Damaged, || {
            format!("a block of {} operations, after operation {}", frame.operations, frame.operations_before)
        });
    }

    /// Prepares to read a block of operations; `None` if it is damaged.
    fn begin(&mut self, frame: &Frame) -> Option<()> {
        // Limit on names lost with a damaged block, relative to its bytes.
        const MOST_NAMES_A_BYTE: usize = 64;
        let most = self.lost_bytes.saturating_mul(MOST_NAMES_A_BYTE);
        for (names, before) in [(&mut self.files, frame.files_before), (&mut self.processes, frame.processes_before)] {
            let missing = (before as usize).checked_sub(names.len()).filter(|missing| *missing <= most)?;
            for _ in 0..missing {
                names.push(LOST_NAME)?;
            }
        }
        let mut at = 0;
        for names in [&mut self.files, &mut self.processes] {
            for _ in 0..take(&self.raw, &mut at)? {
                let length = take(&self.raw, &mut at)?;
                names.push(take_bytes(&self.raw, &mut at, length)?)?;
            }
        }
        for column in &mut self.columns {
            let length = take(&self.raw, &mut at)?;
            let start = at;
            take_bytes(&self.raw, &mut at, length)?;
            *column = Column { at: start, end: at };
        }
        self.before = nothing_before();
        self.left = frame.operations;
        Some(())
    }

    #[inline]
    fn number(&mut self, column: usize) -> Option<u64> {
        let Column { at, end } = &mut self.columns[column];
        let value = take(self.raw.get(..*end)?, at)?;
        Some(value)
    }

    #[inline]
    fn byte(&mut self, column: usize) -> Option<u8> {
        let Column { at, end } = &mut self.columns[column];
        let byte = *self.raw.get(..*end)?.get(*at)?;
        *at += 1;
        Some(byte)
    }

    #[inline]
    fn small(&mut self, column: usize, before: u32) -> Option<u32> {
        u32::try_from(i64::from(before).checked_add(unzigzag(self.number(column)?))?).ok()
    }

    /// Returns the next operation of the block.
    fn take(&mut self) -> Option<Operation> {
        let before = self.before;
        let time_ns = before.time_ns.wrapping_add(unzigzag(self.number(0)?) as u64);
        let present = self.byte(1)?;
        let kind = Kind::of(self.byte(2)?)?;
        let process = self.small(3, before.process)?;
        let mut operation = Operation::new(time_ns, process, kind);
        operation.failed = present & has::FAILED != 0;
        if present & has::FILE != 0 {
            operation.file = Some(self.small(4, before.file.unwrap_or(0))?);
        }
        if present & has::OPENING != 0 {
            operation.opening = Some(self.small(5, before.opening.unwrap_or(0))?);
        }
        if present & has::OFFSET != 0 {
            let offset = before.offset_bytes.unwrap_or(0).wrapping_add(unzigzag(self.number(6)?) as u64);
            operation.offset_bytes = Some(offset);
        }
        operation.length_bytes = self.number(7)?;
        if present & has::FILE_SIZE != 0 {
            let size = before.file_size_bytes.unwrap_or(0).wrapping_add(unzigzag(self.number(8)?) as u64);
            operation.file_size_bytes = Some(size);
        }
        if present & has::DURATION != 0 {
            operation.duration_ns = Some(self.number(8)?);
        }
        let known = |number: Option<u32>| number.is_none_or(|number| (number as usize) < self.files.len());
        if present > has::ALL || !known(operation.file) || process as usize >= self.processes.len() {
            return None;
        }
        self.before = Operation {
            file: operation.file.or(before.file),
            opening: operation.opening.or(before.opening),
            offset_bytes: operation
                .offset_bytes
                .map(|offset| offset.wrapping_add(operation.length_bytes))
                .or(before.offset_bytes),
            file_size_bytes: operation.file_size_bytes.or(before.file_size_bytes),
            ..operation
        };
        Some(operation)
    }

    /// Compares the totals with what was read, and detects trailing bytes.
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        match check_printable_strings(&self.raw).and_then(|()| serde_json::from_slice::<Footer>(&self.raw)) {
            Ok(footer) => {
                self.origin = footer.origin;
                self.problems.add(&footer.problems);
                let passed = self.passed;
                if footer.operations != passed {
                    self.problems.count(Trouble::Damaged, || {
                        format!("it has {passed} operations, but its footer states {}", footer.operations)
                    });
                }
            }
            Err(_) => self.problems.count(Trouble::Damaged, || "its footer".to_owned()),
        }
        if self.input.fill(&mut [0])? > 0 {
            self.problems.count(Trouble::Unreadable, || "bytes after its end".to_owned());
        }
        Ok(())
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Operation>> {
        while !self.ended {
            if self.left > 0 {
                if let Some(operation) = self.take() {
                    self.left -= 1;
                    self.passed += 1;
                    return Ok(Some(operation));
                }
                // The checksum is valid but the content is not: another program wrote it.
                let left = std::mem::take(&mut self.left);
                let passed = self.passed;
                self.passed += u64::from(left);
                self.problems.count(Trouble::Absurd, || format!("{left} operations after operation {passed}"));
                continue;
            }
            match self.read_block()? {
                Some(frame) if frame.kind == BLOCK => {
                    if self.begin(&frame).is_none() {
                        self.skip(&frame);
                    }
                }
                Some(frame) if frame.kind == FOOT => self.end()?,
                Some(_) => self.problems.count(Trouble::Absurd, || "a second header".to_owned()),
                None => self.ended = true,
            }
        }
        Ok(None)
    }

    fn findings(&self) -> Findings<'_> {
        Findings { files: &self.files, processes: &self.processes, origin: &self.origin, problems: &self.problems }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }
}
