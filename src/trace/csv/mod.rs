//! Tables of operations as text: published block traces, and any other table with one line per operation.
//!
//! Fields are separated by commas, tabs, semicolons, bars or blanks; `#` begins a comment. Only a size is required:
//! without a kind, an operation is a read; without a time, times count operations; without a file, everything is one
//! device.
//!
//! Lines are split by own code, not by the crate `csv`: for it, a quote that is not closed swallows the lines after it,
//! without a bound and with their numbers, and a quote after a blank is none. Its core, line by line, is not faster.

mod columns;
mod line;

use std::borrow::Cow;
use std::path::Path;

pub use columns::{Column, ColumnRef, Columns, Field, PRESETS, Unit};

use super::input::{Input, Line, OPERATION};
use super::problems::excerpt;
use super::{Clock, Findings, Index, Kind, Names, Operation, Origin, Problems, Source, Trouble};
use crate::error::{Error, ErrorKind, Result};

/// A longer line is not a line of a table.
const LONGEST_LINE_BYTES: usize = 64 << 10;
/// A time may precede the previous ones by this much: operations are recorded when they end.
const OVERLAP_NS: u64 = 1_000_000_000;
/// September 2001, in nanoseconds since 1970: smaller times have another origin.
const WALL_NS: u64 = 1_000_000_000_000_000_000;
/// 1970 in 100 ns since 1601.
const FILE_TIME_OF_1970: u64 = 116_444_736_000_000_000;

/// A column whose number is known.
#[derive(Debug)]
struct LocatedColumn {
    numbers: Vec<usize>,
    unit: Unit,
}

/// A reader of a table.
#[derive(Debug)]
pub struct Reader {
    input: Input,
    separator: u8,
    columns: [Option<LocatedColumn>; Field::ALL.len()],
    files: Names,
    file_index: Index,
    processes: Names,
    process_index: Index,
    origin: Origin,
    problems: Problems,
    line: Vec<u8>,
    line_number: u64,
    /// The latest time so far.
    latest_ns: u64,
    given: u64,
}

/// How an invalid row is counted.
type Bad = (Trouble, &'static str);

impl Reader {
    /// Reads `input`; without `columns`, they are detected from its head.
    ///
    /// # Errors
    /// Columns that the header lacks, a table whose columns are not detected, and errors from reading.
    pub fn new(mut input: Input, columns: Option<Columns>) -> Result<Reader> {
        let path = input.path().to_owned();
        let Some(columns) = columns.or_else(|| Columns::guess(input.head())) else {
            return Err(unknown(&path));
        };
        let mut line = Vec::new();
        let mut line_number = 0;
        let separator = columns::first_line(input.head()).map_or(b',', columns::separator);
        let by_name =
            columns.list.iter().flat_map(|column| &column.places).any(|place| matches!(place, ColumnRef::Header(_)));
        let mut header = Vec::new();
        if by_name {
            while header.is_empty() {
                line_number += 1;
                if !matches!(input.line(&mut line, LONGEST_LINE_BYTES)?, Line::Whole | Line::Last) {
                    break;
                }
                let names = columns::names(&line);
                if !names.trim_ascii().is_empty() {
                    header = line::fields(names, separator).into_iter().map(Cow::into_owned).collect();
                }
            }
        }
        let mut found = [const { None }; Field::ALL.len()];
        for column in columns.list {
            let numbers = column.places.iter().map(|place| number(place, &header, &path)).collect::<Result<_>>()?;
            found[column.field as usize] = Some(LocatedColumn { numbers, unit: column.unit });
        }
        if found[Field::Size as usize].is_none() {
            return Err(Error::new(ErrorKind::Usage, OPERATION, "no column has the size of an operation")
                .at(&path)
                .advise("name it: --columns time=1,op=2,size=3"));
        }
        let mut reader = Reader {
            input,
            separator,
            columns: found,
            files: Names::default(),
            file_index: Index::default(),
            processes: Names::default(),
            process_index: Index::default(),
            origin: Origin::new("csv"),
            problems: Problems::default(),
            line,
            line_number,
            latest_ns: 0,
            given: 0,
        };
        reader.describe();
        Ok(reader)
    }

    /// Notes what the table does not show, and the origin of its times.
    fn describe(&mut self) {
        let has = |field: Field| self.columns[field as usize].is_some();
        let mut notes = Vec::new();
        if !has(Field::Operation) {
            notes.push("The table has no operations: every row counts as a read.".to_owned());
        }
        if !has(Field::File) {
            notes.push("The table has no file names: all operations count as on one device.".to_owned());
        }
        if !has(Field::Offset) {
            notes.push("The table has no offsets: sequential and repeated requests are not known.".to_owned());
        }
        self.origin.clock = match self.columns[Field::Time as usize] {
            None => Clock::None,
            Some(LocatedColumn { unit: Unit::FileTime, .. }) => Clock::Wall,
            Some(_) => {
                let head = self.input.head();
                let mut fields = Vec::new();
                let times = head.split(|&b| b == b'\n').filter(|line| !line.starts_with(b"#")).filter_map(|line| {
                    line::split(line, self.separator, &mut fields);
                    self.time_ns(&fields).ok().flatten()
                });
                if times.take(16).next().is_some_and(|time| time >= WALL_NS) { Clock::Wall } else { Clock::Start }
            }
        };
        self.origin.notes = notes;
    }

    fn field<'a>(&self, fields: &'a [Cow<'_, [u8]>], field: Field) -> Option<&'a [u8]> {
        let found = self.columns[field as usize].as_ref()?;
        fields.get(*found.numbers.first()?).map(|field| &**field)
    }

    /// A number, converted from its unit; `None` if the table has no such column or the field is empty.
    fn value(&self, fields: &[Cow<'_, [u8]>], field: Field) -> std::result::Result<Option<u64>, Bad> {
        let (Some(text), Some(found)) = (self.field(fields, field), &self.columns[field as usize]) else {
            return Ok(None);
        };
        if text.is_empty() {
            return Ok(None);
        }
        let unit = match found.unit {
            Unit::Of(unit) => unit,
            Unit::FileTime => 1,
        };
        match line::scaled(text, unit) {
            Some(value) => Ok(Some(value)),
            None if text.iter().all(|b| b.is_ascii_digit() || b"-+.".contains(b)) => {
                Err((Trouble::Absurd, "a number that is negative or too large"))
            }
            None => Err((Trouble::Unreadable, "a number is missing")),
        }
    }

    fn time_ns(&self, fields: &[Cow<'_, [u8]>]) -> std::result::Result<Option<u64>, Bad> {
        let time = self.value(fields, Field::Time)?;
        match &self.columns[Field::Time as usize] {
            Some(LocatedColumn { unit: Unit::FileTime, .. }) => time
                .map(|ticks| ticks.checked_sub(FILE_TIME_OF_1970).and_then(|ticks| ticks.checked_mul(100)))
                .map(|time| time.ok_or((Trouble::Absurd, "a time before 1970")))
                .transpose(),
            _ => Ok(time),
        }
    }

    /// The number of a name, which may be joined from several fields.
    fn name(&mut self, fields: &[Cow<'_, [u8]>], field: Field) -> std::result::Result<Option<u32>, Bad> {
        let Some(found) = &self.columns[field as usize] else { return Ok(None) };
        let joined: Cow<'_, [u8]> = match found.numbers[..] {
            [number] => fields.get(number).map(|field| Cow::Borrowed(&**field)).unwrap_or_default(),
            _ => {
                let parts = found.numbers.iter().filter_map(|&number| fields.get(number));
                Cow::Owned(parts.map(|part| &**part).collect::<Vec<_>>().join(&b'.'))
            }
        };
        let (index, names) = match field {
            Field::Process => (&mut self.process_index, &mut self.processes),
            _ => (&mut self.file_index, &mut self.files),
        };
        index.number(names, &joined).map(Some).ok_or((Trouble::TooMany, "names"))
    }

    fn row(&mut self, fields: &[Cow<'_, [u8]>]) -> std::result::Result<Operation, Bad> {
        let kind = match self.field(fields, Field::Operation) {
            None if self.columns[Field::Operation as usize].is_none() => Kind::Read,
            None | Some([]) => return Err((Trouble::Incomplete, "the operation is missing")),
            Some(word) => line::kind(word).ok_or((Trouble::UnknownCall, "unknown operation"))?,
        };
        let time_ns = match self.time_ns(fields)? {
            Some(time) => time,
            None if self.columns[Field::Time as usize].is_none() => self.given,
            None => return Err((Trouble::Incomplete, "the time is missing")),
        };
        let size = self.value(fields, Field::Size)?;
        let offset_bytes = self.value(fields, Field::Offset)?;
        let duration_ns = self.value(fields, Field::Duration)?;
        let file_size_bytes = self.value(fields, Field::FileSize)?;
        let length_bytes = match size {
            Some(size) => size,
            None if !kind.moves_bytes() => 0,
            None => return Err((Trouble::Incomplete, "the size is missing")),
        };
        if offset_bytes.is_some_and(|offset| offset.checked_add(length_bytes).is_none()) {
            return Err((Trouble::Absurd, "an end beyond 2^64"));
        }
        let file = match self.name(fields, Field::File)? {
            Some(file) => file,
            None => self.file_index.number(&mut self.files, b"device").unwrap_or(0),
        };
        let process = match self.name(fields, Field::Process)? {
            Some(process) => process,
            None => self.process_index.number(&mut self.processes, b"all").unwrap_or(0),
        };
        Ok(Operation {
            duration_ns,
            file: Some(file),
            offset_bytes,
            length_bytes,
            file_size_bytes,
            ..Operation::new(time_ns, process, kind)
        })
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Operation>> {
        let mut line = std::mem::take(&mut self.line);
        let operation = loop {
            let state = self.input.line(&mut line, LONGEST_LINE_BYTES)?;
            self.line_number += 1;
            match state {
                Line::End => {
                    if self.input.is_cut() {
                        self.problems.count(Trouble::Truncated, || "the compressed file".to_owned());
                    }
                    break None;
                }
                Line::TooLong => {
                    let number = self.line_number;
                    self.problems.count(Trouble::Unreadable, || format!("line {number}: too long"));
                    continue;
                }
                Line::Whole | Line::Last => {}
            }
            let text = line.trim_ascii();
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            let mut fields = Vec::with_capacity(16);
            line::split(text, self.separator, &mut fields);
            match self.row(&fields) {
                Ok(operation) => break Some(operation),
                // If the first line has no numbers, it is a header, even if none was requested.
                Err((Trouble::Unreadable | Trouble::UnknownCall, _)) if self.line_number == 1 => {}
                // The text after the last newline may be an incomplete line.
                Err(_) if state == Line::Last => {
                    self.problems.count(Trouble::Truncated, || format!("the last line: {}", excerpt(text)));
                }
                Err((trouble, what)) => {
                    let number = self.line_number;
                    self.problems.count(trouble, || format!("line {number}, {what}: {}", excerpt(text)));
                }
            }
        };
        self.line = line;
        if let Some(operation) = &operation {
            self.given += 1;
            if operation.time_ns.saturating_add(OVERLAP_NS) < self.latest_ns {
                let (number, back) = (self.line_number, (self.latest_ns - operation.time_ns) as f64 / 1e9);
                self.problems.count(Trouble::ClockBackwards, || format!("line {number}, by {back:.3} s"));
            }
            self.latest_ns = self.latest_ns.max(operation.time_ns);
        }
        Ok(operation)
    }

    fn findings(&self) -> Findings<'_> {
        Findings { files: &self.files, processes: &self.processes, origin: &self.origin, problems: &self.problems }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }
}

fn number(place: &ColumnRef, header: &[Vec<u8>], path: &Path) -> Result<usize> {
    match place {
        ColumnRef::Number(number) => Ok(*number),
        ColumnRef::Header(name) => header.iter().position(|known| known == name.as_bytes()).ok_or_else(|| {
            let there = header.iter().map(|name| excerpt(name)).collect::<Vec<_>>().join(", ");
            Error::new(ErrorKind::NotFound, OPERATION, format!("its first line has no column '{name}'"))
                .at(path)
                .advise(format!("it has {there}; columns can also be numbers"))
        }),
    }
}

fn unknown(path: &Path) -> Error {
    let presets = PRESETS.map(|(name, ..)| name).join(", ");
    Error::new(ErrorKind::Usage, OPERATION, "the meaning of its columns is unknown")
        .at(path)
        .advise(format!("name them with --columns time=1,op=4,offset=5,size=6, or use one of {presets}"))
}

#[cfg(test)]
mod tests;
