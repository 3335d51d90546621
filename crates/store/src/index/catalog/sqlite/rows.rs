//! The tables of the SQLite catalog, row by row: what a change writes, and what a reader that has seen a version fetches.
//!
//! `segments`, `extents` and `shared` have in each row the version in which it was written. `ranges`, `tables`, `freed` and `notes` are small and are
//! fetched whole when they changed. `recent` has a value for each transaction; it is written anew as one value when it has grown well
//! beyond the entries that it leaves.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};

use super::{Failure, Header, SPARE_CHANGES};
use crate::format::entry::Entry;
use crate::format::geometry::Class;
use crate::index::catalog::{Change, ExtentRow, Freed, RangeRow, SegmentRow, State, TableRow, recent, sorted_ranges};

pub(super) const SCHEMA: &str = "
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, created INTEGER NOT NULL,
    segment INTEGER NOT NULL, offset INTEGER NOT NULL, sequence INTEGER NOT NULL, chain INTEGER NOT NULL,
    epoch INTEGER NOT NULL, highest_id INTEGER NOT NULL, next_table INTEGER NOT NULL,
    recent_base INTEGER NOT NULL, recent_changes INTEGER NOT NULL,
    ranges_replaced INTEGER NOT NULL, tables_replaced INTEGER NOT NULL, segments_replaced INTEGER NOT NULL,
    extents_replaced INTEGER NOT NULL, shared_replaced INTEGER NOT NULL, freed_replaced INTEGER NOT NULL,
    notes_replaced INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE recent (version INTEGER PRIMARY KEY, changes BLOB NOT NULL);
CREATE TABLE ranges (key BLOB PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, entries INTEGER NOT NULL, size_bytes INTEGER NOT NULL,
    lowest_id INTEGER NOT NULL, highest_id INTEGER NOT NULL);
CREATE TABLE segments (number INTEGER PRIMARY KEY, version INTEGER NOT NULL, class INTEGER NOT NULL, devices BLOB NOT NULL,
    size_bytes INTEGER NOT NULL, live_bytes INTEGER NOT NULL, live_records INTEGER NOT NULL, dead_records INTEGER NOT NULL,
    lowest_id INTEGER NOT NULL);
CREATE INDEX segments_version ON segments (version);
CREATE TABLE extents (device INTEGER NOT NULL, file INTEGER NOT NULL, version INTEGER NOT NULL, end_bytes INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, PRIMARY KEY (device, file)) WITHOUT ROWID;
CREATE INDEX extents_version ON extents (version);
CREATE TABLE shared (number INTEGER PRIMARY KEY, version INTEGER NOT NULL, names INTEGER NOT NULL);
CREATE INDEX shared_version ON shared (version);
CREATE TABLE freed (place INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, segment INTEGER, table_number INTEGER, device INTEGER,
    file INTEGER);
CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// A number of 64 bits, by its bits.
pub(super) fn number(row: &Row, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| number as u64)
}

/// Writes what `change` does to `state`, which is what the tables have, except for the header; notes in that what was replaced.
pub(super) fn write(
    connection: &Connection,
    header: &mut Header,
    state: &State,
    change: &Change,
) -> rusqlite::Result<()> {
    let version = header.version as i64;
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| connection.prepare_cached(sql)?.execute(values);
    write_recent(connection, header, state, change)?;
    if let Some(ranges) = &change.ranges {
        run("DELETE FROM ranges", params![])?;
        for RangeRow { key, id } in sorted_ranges(ranges.clone()) {
            run("INSERT INTO ranges VALUES (?1, ?2)", params![key, id as i64])?;
        }
        header.replaced.ranges = header.version;
    }
    if let Some(tables) = &change.tables {
        run("DELETE FROM tables", params![])?;
        for (place, row) in tables.iter().enumerate() {
            let numbers =
                [row.number, row.entries, row.size_bytes, row.lowest_id, row.highest_id].map(|number| number as i64);
            let [number, entries, size, lowest, highest] = numbers;
            let sql = "INSERT INTO tables VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            run(sql, params![place as i64, number, entries, size, lowest, highest])?;
        }
        header.replaced.tables = header.version;
    }
    for number in &change.removed_segments {
        run("DELETE FROM segments WHERE number = ?1", params![*number as i64])?;
        header.replaced.segments = header.version;
    }
    for row in &change.segments {
        let devices: Vec<u8> = row.devices.iter().flat_map(|device| device.to_le_bytes()).collect();
        let numbers = [row.number, row.size_bytes, row.live_bytes, row.live_records, row.dead_records, row.lowest_id];
        let [number, size, live, live_records, dead_records, lowest] = numbers.map(|number| number as i64);
        run(
            "REPLACE INTO segments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![number, version, row.class as u8, devices, size, live, live_records, dead_records, lowest],
        )?;
    }
    for (device, file) in &change.removed_extents {
        run("DELETE FROM extents WHERE device = ?1 AND file = ?2", params![device, file])?;
        header.replaced.extents = header.version;
    }
    for ExtentRow { device, file, end_bytes, live_bytes } in &change.extents {
        let sql = "REPLACE INTO extents VALUES (?1, ?2, ?3, ?4, ?5)";
        run(sql, params![device, file, version, *end_bytes as i64, *live_bytes as i64])?;
    }
    // As in `State::apply`: removals first.
    for (number, _) in change.shared.iter().filter(|(_, names)| *names == 0) {
        run("DELETE FROM shared WHERE number = ?1", params![*number as i64])?;
        header.replaced.shared = header.version;
    }
    for (number, names) in change.shared.iter().filter(|(_, names)| *names != 0) {
        run("REPLACE INTO shared VALUES (?1, ?2, ?3)", params![*number as i64, version, *names as i64])?;
    }
    if let Some(freed) = &change.freed {
        run("DELETE FROM freed", params![])?;
        for (place, (epoch, freed)) in freed.iter().enumerate() {
            let (segment, table, extent) = match freed {
                Freed::Segment(number) => (Some(*number as i64), None, None),
                Freed::Table(number) => (None, Some(*number as i64), None),
                Freed::Extent { device, file } => (None, None, Some((*device, *file))),
            };
            let (device, file) = (extent.map(|extent| extent.0), extent.map(|extent| extent.1));
            run(
                "INSERT INTO freed VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![place as i64, *epoch as i64, segment, table, device, file],
            )?;
        }
        header.replaced.freed = header.version;
    }
    for (name, _) in change.notes.iter().filter(|(_, note)| note.is_empty()) {
        run("DELETE FROM notes WHERE name = ?1", params![name])?;
        header.replaced.notes = header.version;
    }
    for (name, note) in change.notes.iter().filter(|(_, note)| !note.is_empty()) {
        run("REPLACE INTO notes VALUES (?1, ?2)", params![name, note])?;
        header.replaced.notes = header.version;
    }
    Ok(())
}

fn write_recent(connection: &Connection, header: &mut Header, state: &State, change: &Change) -> rusqlite::Result<()> {
    let forgotten = change.forget.iter().map(|key| (key.as_slice(), None));
    let changed = change.recent.iter().map(|(key, entry)| (key.as_slice(), Some(entry)));
    let changes = forgotten.chain(changed);
    let count = (change.forget.len() + change.recent.len()) as u64;
    let kept = if change.clear_recent { 0 } else { state.recent.len() as u64 };
    let grown =
        !change.clear_recent && count > 0 && header.recent_changes + count > 2 * kept.max(count) + SPARE_CHANGES;
    if change.clear_recent || grown {
        connection.prepare_cached("DELETE FROM recent")?.execute([])?;
        header.recent_base = header.version;
        header.recent_changes = 0;
    }
    let (value, count) = if grown {
        let mut all: BTreeMap<&[u8], Option<&Entry>> =
            state.recent.iter().map(|(key, entry)| (key.as_slice(), Some(entry))).collect();
        all.extend(changes);
        let left = all.into_iter().filter(|(_, entry)| entry.is_some());
        let left: Vec<_> = left.collect();
        (recent::encode(left.iter().copied()), left.len() as u64)
    } else if count > 0 {
        (recent::encode(changes), count)
    } else {
        return Ok(());
    };
    header.recent_changes += count;
    connection.prepare_cached("INSERT INTO recent VALUES (?1, ?2)")?.execute(params![header.version as i64, value])?;
    Ok(())
}

/// What is new since a version: a change, and what of the old state is void before it.
#[derive(Debug, Default)]
pub(super) struct News {
    change: Change,
    void_segments: bool,
    void_extents: bool,
    void_shared: bool,
    void_notes: bool,
}

impl News {
    /// Brings a state of the version that was seen up to date.
    pub(super) fn apply(self, state: &mut State) {
        if self.void_segments {
            state.segments = Default::default();
        }
        if self.void_extents {
            state.extents = Default::default();
        }
        if self.void_shared {
            state.shared = Default::default();
        }
        if self.void_notes {
            state.notes = Default::default();
        }
        state.apply(self.change);
    }
}

/// Reads what is new since version `seen`.
pub(super) fn read(connection: &Connection, header: &Header, seen: u64) -> Result<News, Failure> {
    let replaced = &header.replaced;
    let since = |void: bool| if void { 0 } else { seen as i64 };
    let mut news = News {
        void_segments: replaced.segments > seen,
        void_extents: replaced.extents > seen,
        void_shared: replaced.shared > seen,
        void_notes: replaced.notes > seen,
        ..News::default()
    };
    let change = &mut news.change;
    change.position = Some(header.position);
    change.epoch = Some(header.epoch);
    change.highest_id = Some(header.highest_id);
    change.next_table = Some(header.next_table);
    read_recent(connection, header, seen, change)?;
    if replaced.ranges > seen {
        let range = |row: &Row| Ok(RangeRow { key: row.get(0)?, id: number(row, 1)? });
        change.ranges = Some(all(connection, "SELECT key, id FROM ranges ORDER BY key", None, range)?);
    }
    if replaced.tables > seen {
        let sql = "SELECT number, entries, size_bytes, lowest_id, highest_id FROM tables ORDER BY place";
        change.tables = Some(all(connection, sql, None, read_table)?);
    }
    if replaced.freed > seen {
        let sql = "SELECT epoch, segment, table_number, device, file FROM freed ORDER BY place";
        let freed = all(connection, sql, None, read_freed)?.into_iter().collect::<Option<_>>();
        change.freed = Some(freed.ok_or(Failure::Damaged("what is to be given back"))?);
    }
    if replaced.notes > seen {
        let note = |row: &Row| Ok((row.get(0)?, row.get(1)?));
        change.notes = all(connection, "SELECT name, value FROM notes", None, note)?;
    }
    let sql =
        "SELECT number, class, devices, size_bytes, live_bytes, live_records, dead_records, lowest_id FROM segments
         WHERE version > ?1";
    let segments = all(connection, sql, Some(since(news.void_segments)), read_segment)?;
    news.change.segments = segments.into_iter().collect::<Option<_>>().ok_or(Failure::Damaged("a row of a segment"))?;
    let sql = "SELECT device, file, end_bytes, live_bytes FROM extents WHERE version > ?1";
    let extent = |row: &Row| {
        let (device, file) = (row.get(0)?, row.get(1)?);
        Ok(ExtentRow { device, file, end_bytes: number(row, 2)?, live_bytes: number(row, 3)? })
    };
    news.change.extents = all(connection, sql, Some(since(news.void_extents)), extent)?;
    let sql = "SELECT number, names FROM shared WHERE version > ?1";
    let names = |row: &Row| Ok((number(row, 0)?, number(row, 1)?));
    news.change.shared = all(connection, sql, Some(since(news.void_shared)), names)?;
    Ok(news)
}

fn read_recent(connection: &Connection, header: &Header, seen: u64, change: &mut Change) -> Result<(), Failure> {
    change.clear_recent = header.recent_base > seen;
    let since = if change.clear_recent { 0 } else { seen as i64 };
    let mut statement = connection.prepare_cached("SELECT changes FROM recent WHERE version > ?1 ORDER BY version")?;
    let mut rows = statement.query([since])?;
    let mut latest: BTreeMap<Vec<u8>, Option<Entry>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let value = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        latest.extend(recent::decode(value).ok_or(Failure::Damaged("a recent change"))?);
    }
    for (key, entry) in latest {
        match entry {
            Some(entry) => change.recent.push((key, entry)),
            None => change.forget.push(key),
        }
    }
    Ok(())
}

/// All rows of a query that may have one parameter.
fn all<T>(
    connection: &Connection,
    sql: &str,
    parameter: Option<i64>,
    read: impl FnMut(&Row) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(parameter), read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read_table(row: &Row) -> rusqlite::Result<TableRow> {
    Ok(TableRow {
        number: number(row, 0)?,
        entries: number(row, 1)?,
        size_bytes: number(row, 2)?,
        lowest_id: number(row, 3)?,
        highest_id: number(row, 4)?,
    })
}

/// A segment; `None` if its class or its devices are none.
fn read_segment(row: &Row) -> rusqlite::Result<Option<SegmentRow>> {
    let class = match row.get(1)? {
        1u8 => Class::Fast,
        2 => Class::Slow,
        _ => return Ok(None),
    };
    let devices: Vec<u8> = row.get(2)?;
    let (devices, rest) = devices.as_chunks::<2>();
    let sound = rest.is_empty();
    let row = SegmentRow {
        number: number(row, 0)?,
        class,
        devices: devices.iter().map(|device| u16::from_le_bytes(*device)).collect(),
        size_bytes: number(row, 3)?,
        live_bytes: number(row, 4)?,
        live_records: number(row, 5)?,
        dead_records: number(row, 6)?,
        lowest_id: number(row, 7)?,
    };
    Ok(sound.then_some(row))
}

/// What is to be given back, with its epoch; `None` if the row says nothing of that kind.
fn read_freed(row: &Row) -> rusqlite::Result<Option<(u64, Freed)>> {
    let optional = |column| row.get::<_, Option<i64>>(column).map(|number| number.map(|number| number as u64));
    let freed = match (optional(1)?, optional(2)?, row.get(3)?, row.get(4)?) {
        (Some(segment), None, None, None) => Freed::Segment(segment),
        (None, Some(table), None, None) => Freed::Table(table),
        (None, None, Some(device), Some(file)) => Freed::Extent { device, file },
        _ => return Ok(None),
    };
    Ok(Some((number(row, 0)?, freed)))
}
