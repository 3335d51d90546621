//! Encoding of the changes of a transaction, and of a whole state: the content of the journal's frames and of the
//! manifest (docs/FORMAT.md, section 10).
//!
//! A list of sections, each a tag (u8), the length of its content (u32) and the content. A tag occurs at most once; the
//! version comes first. Numbers are little-endian; `list` is as many rows as fit, `bytes` a u32 length and that many
//! bytes.
//!
//! | tag | section | content |
//! | ---: | --- | --- |
//! | 1 | version | u64: of the state after this |
//! | 2 | position | u64 segment, u64 offset of the commit, u64 offset after it, u64 sequence, u64 chain |
//! | 3 | epoch | u64 |
//! | 4 | highest id | u64 |
//! | 5 | next table | u64 |
//! | 6 | clear recent | nothing |
//! | 7 | recent | list of changes as in [`recent`] |
//! | 8 | directories of removed trees, all | list of u64 directory, u64 id |
//! | 9 | tables, all | list of u64 number, entries, size, lowest id, highest id |
//! | 10 | segments | list of u64 number, u64 epoch, u8 class, u64 size, live bytes, live records, dead records, lowest id, u16 count, u16 devices |
//! | 11 | segments removed | list of u64 |
//! | 12 | extent files | list of u16 device, u32 file, u64 end, u64 live bytes |
//! | 13 | extent files removed | list of u16 device, u32 file |
//! | 14 | shared | list of u64 number, u64 number of names; 0 names: removed |
//! | 15 | superseded | list of u64 epoch, then u8 1 and u64 segment, or 2 and u16 device, u32 file, or 3 and u64 table |
//! | 16 | freed | as 15 |
//! | 17 | notes | list of bytes name, bytes note; an empty one: removed |
//! | 18 | index devices, all | list of u16 |
//! | 19 | pins | list of bytes name, u64 epoch |
//! | 20 | unpinned | list of bytes name |
//! | 21 | snapshots, all | list of u64 sequence number, u64 creation, bytes name |
//!
//! A damaged encoding is refused as a whole. No stated count makes memory be allocated: rows are counted by their
//! bytes.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::{Change, ExtentRow, Position, RangeRow, SegmentRow, SnapshotRow, State, Superseded, TableRow, recent};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, Epoch, LogOffset, ObjectNumber, SegmentNumber};

/// Length of a section before its content, in bytes.
const SECTION_HEAD_BYTES: usize = 5;

const VERSION: u8 = 1;
const POSITION: u8 = 2;
const EPOCH: u8 = 3;
const HIGHEST_ID: u8 = 4;
const NEXT_TABLE: u8 = 5;
const CLEAR_RECENT: u8 = 6;
const RECENT: u8 = 7;
const RANGES: u8 = 8;
const TABLES: u8 = 9;
const SEGMENTS: u8 = 10;
const REMOVED_SEGMENTS: u8 = 11;
const EXTENTS: u8 = 12;
const REMOVED_EXTENTS: u8 = 13;
const SHARED: u8 = 14;
const SUPERSEDED: u8 = 15;
const FREED: u8 = 16;
const NOTES: u8 = 17;
const DEVICES: u8 = 18;
const PINS: u8 = 19;
const UNPINNED: u8 = 20;
const SNAPSHOTS: u8 = 21;

const SUPERSEDED_SEGMENT: u8 = 1;
const SUPERSEDED_EXTENT: u8 = 2;
const SUPERSEDED_TABLE: u8 = 3;

/// Longest content of a section: its length has 32 bits. Shorter in tests.
const LONGEST_SECTION_BYTES: usize = if cfg!(test) { 16 << 20 } else { u32::MAX as usize };

/// Why bytes are not a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// They are inconsistent.
    Damaged,
    /// They have a section of a later version.
    Unknown(u8),
}

/// Encodes a transaction whose resulting state has `version`.
pub(crate) fn encode_change(version: u64, change: &Change) -> Vec<u8> {
    let mut out = Sections::new(version);
    if let Some(position) = change.position {
        out.position(position);
    }
    for (tag, number) in [(EPOCH, change.epoch), (HIGHEST_ID, change.highest_id), (NEXT_TABLE, change.next_table)] {
        if let Some(number) = number {
            out.section(tag, |out| put_u64(out, number));
        }
    }
    if change.clear_recent {
        out.section(CLEAR_RECENT, |_| {});
    }
    if !change.forget.is_empty() || !change.recent.is_empty() {
        let gone = change.forget.iter().map(|key| (&**key, None));
        let there = change.recent.iter().map(|(key, entry)| (&**key, Some(entry)));
        out.section(RECENT, |out| recent::encode(out, gone.chain(there)));
    }
    if let Some(ranges) = &change.ranges {
        out.section(RANGES, |out| ranges.iter().for_each(|row| put_range(out, row)));
    }
    if let Some(tables) = &change.tables {
        out.section(TABLES, |out| tables.iter().for_each(|row| put_table(out, row)));
    }
    out.rows(SEGMENTS, change.segments.iter(), put_segment);
    out.rows(REMOVED_SEGMENTS, change.removed_segments.iter(), |out, number| put_u64(out, number.0));
    out.rows(EXTENTS, change.extents.iter(), put_extent);
    out.rows(REMOVED_EXTENTS, change.removed_extents.iter(), |out, &(device, file)| put_file(out, device, file));
    out.rows(SHARED, change.shared.iter(), |out, &(number, names)| put_pair(out, number.0, names));
    out.rows(SUPERSEDED, change.superseded.iter(), put_superseded);
    out.rows(FREED, change.freed.iter(), put_superseded);
    out.rows(NOTES, change.notes.iter(), |out, (name, note)| put_note(out, name, note));
    if let Some(devices) = &change.devices {
        out.section(DEVICES, |out| devices.iter().for_each(|device| out.extend_from_slice(&device.0.to_le_bytes())));
    }
    out.rows(PINS, change.pins.iter(), |out, (name, epoch)| put_pin(out, name, *epoch));
    out.rows(UNPINNED, change.unpinned.iter(), |out, name| put_bytes(out, name.as_bytes()));
    if let Some(snapshots) = &change.snapshots {
        out.section(SNAPSHOTS, |out| snapshots.iter().for_each(|row| put_snapshot(out, row)));
    }
    out.bytes
}

/// Encodes a state as the change that creates it from an empty one; `None` if a section would be longer than its length
/// can state.
pub(crate) fn encode_state(state: &State) -> Option<Vec<u8>> {
    let mut out = Sections::new(state.version);
    out.position(state.position);
    for (tag, number) in [(EPOCH, state.epoch), (HIGHEST_ID, state.highest_id), (NEXT_TABLE, state.next_table)] {
        out.section(tag, |out| put_u64(out, number));
    }
    if !state.recent.is_empty() {
        let recent = state.recent.iter().map(|(key, entry)| (key, Some(entry)));
        out.section(RECENT, |out| recent::encode(out, recent));
    }
    out.rows(RANGES, state.ranges.iter(), put_range);
    out.rows(TABLES, state.tables.iter(), put_table);
    out.rows(SEGMENTS, state.segments.values(), put_segment);
    out.rows(EXTENTS, state.extents.values(), put_extent);
    out.rows(SHARED, state.shared.iter(), |out, (number, names)| put_pair(out, number.0, *names));
    out.rows(SUPERSEDED, state.superseded.iter(), put_superseded);
    out.rows(NOTES, state.notes.iter(), |out, (name, note)| put_note(out, name, note));
    out.rows(DEVICES, state.devices.iter(), |out, device| out.extend_from_slice(&device.0.to_le_bytes()));
    out.rows(PINS, state.pins.iter(), |out, (name, epoch)| put_pin(out, name, *epoch));
    out.rows(SNAPSHOTS, state.snapshots.iter(), put_snapshot);
    (!out.has_too_long).then_some(out.bytes)
}

/// Inverse of [`encode_change`] and [`encode_state`]: the version and the changes.
pub(crate) fn decode(bytes: &[u8]) -> Result<(u64, Change), DecodeError> {
    let mut rest = SectionReader(bytes);
    let (mut version, mut change) = (None, Change::default());
    let mut last_seen = 0u32;
    while !rest.0.is_empty() {
        let (tag, section) = rest.section().ok_or(DecodeError::Damaged)?;
        if (version.is_none()) != (tag == VERSION) {
            return Err(DecodeError::Damaged);
        }
        if !(VERSION..=SNAPSHOTS).contains(&tag) {
            return Err(DecodeError::Unknown(tag));
        }
        let bit = 1 << tag;
        if last_seen & bit != 0 {
            return Err(DecodeError::Damaged);
        }
        last_seen |= bit;
        if tag == VERSION {
            // Others follow it, one by one.
            let number = section.whole(SectionReader::u64).filter(|&version| version < u64::MAX / 2);
            version = Some(number.ok_or(DecodeError::Damaged)?);
        } else {
            take_section(&mut change, tag, section).ok_or(DecodeError::Damaged)?;
        }
    }
    version.map(|version| (version, change)).ok_or(DecodeError::Damaged)
}

/// Adds a section to a change; `None` if it is damaged.
fn take_section(change: &mut Change, tag: u8, section: SectionReader<'_>) -> Option<()> {
    match tag {
        POSITION => change.position = Some(section.whole(SectionReader::position)?),
        EPOCH => change.epoch = Some(section.whole(SectionReader::u64)?),
        HIGHEST_ID => change.highest_id = Some(section.whole(SectionReader::u64)?),
        NEXT_TABLE => change.next_table = Some(section.whole(SectionReader::u64)?),
        CLEAR_RECENT => change.clear_recent = section.0.is_empty().then_some(true)?,
        RECENT => (change.forget, change.recent) = recent::decode(section.0)?,
        RANGES => change.ranges = Some(section.list(SectionReader::range)?),
        TABLES => change.tables = Some(section.list(SectionReader::table)?),
        SEGMENTS => change.segments = section.list(SectionReader::segment)?,
        REMOVED_SEGMENTS => change.removed_segments = section.list(|section| section.u64().map(SegmentNumber))?,
        EXTENTS => change.extents = section.list(SectionReader::extent)?,
        REMOVED_EXTENTS => change.removed_extents = section.list(|bytes| Some((bytes.device()?, bytes.u32()?)))?,
        SHARED => change.shared = section.list(|bytes| Some((bytes.object()?, bytes.u64()?)))?,
        SUPERSEDED => change.superseded = section.list(SectionReader::superseded)?,
        FREED => change.freed = section.list(SectionReader::superseded)?,
        NOTES => change.notes = section.list(|bytes| Some((bytes.text()?, bytes.bytes()?.to_vec())))?,
        DEVICES => change.devices = Some(section.list(SectionReader::device)?),
        PINS => change.pins = section.list(|bytes| Some((bytes.text()?, bytes.u64()?)))?,
        UNPINNED => change.unpinned = section.list(SectionReader::text)?,
        SNAPSHOTS => change.snapshots = Some(section.list(SectionReader::snapshot)?),
        _ => return None,
    }
    Some(())
}

/// Sections being encoded.
struct Sections {
    bytes: Vec<u8>,
    has_too_long: bool,
}

impl Sections {
    fn new(version: u64) -> Sections {
        let mut sections = Sections { bytes: Vec::new(), has_too_long: false };
        sections.section(VERSION, |out| put_u64(out, version));
        sections
    }

    fn section(&mut self, tag: u8, put: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; SECTION_HEAD_BYTES]);
        put(&mut self.bytes);
        let (head, content) = self.bytes.split_at_mut(begin).1.split_at_mut(SECTION_HEAD_BYTES);
        self.has_too_long |= content.len() > LONGEST_SECTION_BYTES;
        let [a, b, c, d] = (content.len() as u32).to_le_bytes();
        head.copy_from_slice(&[tag, a, b, c, d]);
    }

    /// Adds a list, unless it has no rows.
    fn rows<T>(&mut self, tag: u8, rows: impl Iterator<Item = T>, mut put: impl FnMut(&mut Vec<u8>, T)) {
        let mut rows = rows.peekable();
        if rows.peek().is_some() {
            self.section(tag, |out| rows.for_each(|row| put(out, row)));
        }
    }

    fn position(&mut self, position: Position) {
        let Position { segment, commit, offset, sequence, chain } = position;
        self.section(POSITION, |out| {
            [segment.0, commit.0, offset.0, sequence, chain].into_iter().for_each(|n| put_u64(out, n))
        });
    }
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_pair(out: &mut Vec<u8>, one: u64, other: u64) {
    put_u64(out, one);
    put_u64(out, other);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_range(out: &mut Vec<u8>, row: &RangeRow) {
    put_pair(out, row.directory.0, row.id);
}

fn put_table(out: &mut Vec<u8>, row: &TableRow) {
    let TableRow { number, entries, size_bytes, lowest_id, highest_id } = *row;
    [number, entries, size_bytes, lowest_id, highest_id].into_iter().for_each(|n| put_u64(out, n));
}

fn put_segment(out: &mut Vec<u8>, row: &SegmentRow) {
    put_pair(out, row.number.0, row.epoch.0);
    out.push(match row.class {
        Class::Fast => 1,
        Class::Slow => 2,
    });
    [row.size_bytes, row.live_bytes, row.live_records, row.dead_records, row.lowest_id]
        .into_iter()
        .for_each(|n| put_u64(out, n));
    out.extend_from_slice(&(row.devices.len() as u16).to_le_bytes());
    row.devices.iter().for_each(|device| out.extend_from_slice(&device.0.to_le_bytes()));
}

fn put_file(out: &mut Vec<u8>, device: DeviceNumber, file: u32) {
    out.extend_from_slice(&device.0.to_le_bytes());
    out.extend_from_slice(&file.to_le_bytes());
}

fn put_extent(out: &mut Vec<u8>, row: &ExtentRow) {
    put_file(out, row.device, row.file);
    put_pair(out, row.end_bytes, row.live_bytes);
}

fn put_superseded(out: &mut Vec<u8>, (epoch, superseded): &(u64, Superseded)) {
    put_u64(out, *epoch);
    match *superseded {
        Superseded::Segment(number) => {
            out.push(SUPERSEDED_SEGMENT);
            put_u64(out, number.0);
        }
        Superseded::Extent { device, file } => {
            out.push(SUPERSEDED_EXTENT);
            put_file(out, device, file);
        }
        Superseded::Table(number) => {
            out.push(SUPERSEDED_TABLE);
            put_u64(out, number);
        }
    }
}

fn put_note(out: &mut Vec<u8>, name: &str, note: &[u8]) {
    put_bytes(out, name.as_bytes());
    put_bytes(out, note);
}

fn put_pin(out: &mut Vec<u8>, name: &str, epoch: u64) {
    put_bytes(out, name.as_bytes());
    put_u64(out, epoch);
}

fn put_snapshot(out: &mut Vec<u8>, row: &SnapshotRow) {
    put_pair(out, row.sequence, row.created_nanoseconds as u64);
    put_bytes(out, &row.name);
}

/// The bytes still to be read. Every read returns `None` if too few remain.
struct SectionReader<'b>(&'b [u8]);

impl<'b> SectionReader<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn device(&mut self) -> Option<DeviceNumber> {
        self.u16().map(DeviceNumber)
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn snapshot(&mut self) -> Option<SnapshotRow> {
        let (sequence, created_nanoseconds) = (self.u64()?, self.u64()? as i64);
        Some(SnapshotRow { sequence, created_nanoseconds, name: self.bytes()?.to_vec() })
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    fn section(&mut self) -> Option<(u8, SectionReader<'b>)> {
        let [tag] = self.chunk()?;
        Some((tag, SectionReader(self.bytes()?)))
    }

    /// Reads one row with nothing after it.
    fn whole<T>(mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        read(&mut self).filter(|_| self.0.is_empty())
    }

    /// Reads rows to the end.
    fn list<T>(mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut rows = Vec::new();
        while !self.0.is_empty() {
            rows.push(read(&mut self)?);
        }
        Some(rows)
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position {
            segment: SegmentNumber(self.u64()?),
            commit: LogOffset(self.u64()?),
            offset: LogOffset(self.u64()?),
            sequence: self.u64()?,
            chain: self.u64()?,
        })
    }

    fn object(&mut self) -> Option<ObjectNumber> {
        ObjectNumber::stored(self.u64()?)
    }

    fn range(&mut self) -> Option<RangeRow> {
        Some(RangeRow { directory: self.object()?, id: self.u64()? })
    }

    fn table(&mut self) -> Option<TableRow> {
        Some(TableRow {
            number: self.u64()?,
            entries: self.u64()?,
            size_bytes: self.u64()?,
            lowest_id: self.u64()?,
            highest_id: self.u64()?,
        })
    }

    fn segment(&mut self) -> Option<SegmentRow> {
        let (number, epoch) = (SegmentNumber(self.u64()?), Epoch(self.u64()?));
        let class = match self.chunk()? {
            [1] => Class::Fast,
            [2] => Class::Slow,
            _ => return None,
        };
        let mut row = SegmentRow {
            number,
            epoch,
            class,
            devices: Vec::new(),
            size_bytes: self.u64()?,
            live_bytes: self.u64()?,
            live_records: self.u64()?,
            dead_records: self.u64()?,
            lowest_id: self.u64()?,
        };
        let count = self.u16()?;
        row.devices = SectionReader(self.take(usize::from(count) * 2)?).list(SectionReader::device)?;
        Some(row)
    }

    fn extent(&mut self) -> Option<ExtentRow> {
        Some(ExtentRow { device: self.device()?, file: self.u32()?, end_bytes: self.u64()?, live_bytes: self.u64()? })
    }

    fn superseded(&mut self) -> Option<(u64, Superseded)> {
        let epoch = self.u64()?;
        let superseded = match self.chunk()? {
            [SUPERSEDED_SEGMENT] => Superseded::Segment(SegmentNumber(self.u64()?)),
            [SUPERSEDED_EXTENT] => Superseded::Extent { device: self.device()?, file: self.u32()? },
            [SUPERSEDED_TABLE] => Superseded::Table(self.u64()?),
            _ => return None,
        };
        Some((epoch, superseded))
    }
}
