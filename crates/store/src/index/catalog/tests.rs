//! Tests of catalogs: all do the same to a state, readers catch up whatever they missed, and damage is reported.

use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;

use super::memory::Memory;
use super::sqlite::Sqlite;
use super::*;
use crate::error::ErrorKind;
use crate::index::table::tests::any_entry;

fn any_change() -> impl Strategy<Value = Change> {
    let key = || prop::collection::vec(0u8..3, 0..4);
    let number = || prop_oneof![0u64..5, Just(u64::MAX)];
    let recent = (
        prop::bool::weighted(0.1),
        prop::collection::vec(key(), 0..3),
        prop::collection::vec((key(), any_entry()), 0..6),
        prop::option::weighted(
            0.2,
            prop::collection::vec((key(), number()).prop_map(|(key, id)| RangeRow { key, id }), 0..5),
        ),
        prop::option::weighted(0.2, prop::collection::vec(number(), 0..4)),
    );
    let segments = (
        prop::collection::vec((number(), prop::collection::vec(any::<u16>(), 0..3)), 0..4),
        prop::collection::vec(number(), 0..2),
    );
    let extents =
        (prop::collection::vec((0u16..3, 0u32..3, number()), 0..3), prop::collection::vec((0u16..3, 0u32..3), 0..2));
    let others = (
        prop::collection::vec((number(), 0u64..3), 0..3),
        prop::option::weighted(0.2, prop::collection::vec((number(), number(), 0u8..3), 0..4)),
        prop::collection::vec(("[a-c]", prop::collection::vec(any::<u8>(), 0..3)), 0..3),
        any::<bool>(),
    );
    let numbers = (
        prop::option::of(any::<[u64; 4]>()),
        prop::option::of(number()),
        prop::option::of(number()),
        prop::option::of(number()),
    );
    (recent, segments, extents, others, numbers).prop_map(|(recent, segments, extents, others, numbers)| {
        let segment = |(number, devices): (u64, Vec<u16>)| SegmentRow {
            number,
            class: if number % 2 == 0 { Class::Fast } else { Class::Slow },
            devices,
            size_bytes: 7,
            live_bytes: number,
            live_records: 8,
            dead_records: 9,
            lowest_id: u64::MAX,
        };
        let table = |number| TableRow { number, entries: 1, size_bytes: 4096, lowest_id: u64::MAX, highest_id: 0 };
        let freed = |(epoch, number, kind): (u64, u64, u8)| match kind {
            0 => (epoch, Freed::Segment(number)),
            1 => (epoch, Freed::Table(number)),
            _ => (epoch, Freed::Extent { device: 3, file: u32::MAX - number as u32 }),
        };
        let position = |[segment, offset, sequence, chain]: [u64; 4]| Position { segment, offset, sequence, chain };
        Change {
            position: numbers.0.map(position),
            epoch: numbers.1,
            highest_id: numbers.2,
            next_table: numbers.3,
            clear_recent: recent.0,
            forget: recent.1,
            recent: recent.2,
            ranges: recent.3,
            tables: recent.4.map(|numbers| numbers.into_iter().map(table).collect()),
            segments: segments.0.into_iter().map(segment).collect(),
            removed_segments: segments.1,
            extents: extents
                .0
                .into_iter()
                .map(|(device, file, end_bytes)| ExtentRow { device, file, end_bytes, live_bytes: 5 })
                .collect(),
            removed_extents: extents.1,
            shared: others.0,
            freed: others.1.map(|all| all.into_iter().map(freed).collect()),
            notes: others.2,
            durable: others.3,
        }
    })
}

/// Versions are each catalog's own.
fn content(state: &State) -> State {
    State { version: 0, ..state.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn catalogs_agree_and_readers_catch_up(changes in prop::collection::vec((any_change(), any::<bool>()), 1..25)) {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::create(directory.path()).unwrap();
        let reader = Sqlite::open(directory.path(), true).unwrap();
        let memory = Memory::new();
        let (mut in_sqlite, mut in_memory, mut seen) = (State::default(), State::default(), State::default());
        prop_assert!(sqlite.refresh(&mut in_sqlite).unwrap());
        for (change, read) in changes {
            sqlite.commit(&mut in_sqlite, change.clone()).unwrap();
            memory.commit(&mut in_memory, change).unwrap();
            prop_assert_eq!(&content(&in_sqlite), &content(&in_memory));
            if read {
                prop_assert!(reader.refresh(&mut seen).unwrap());
                prop_assert_eq!(&seen, &in_sqlite);
                prop_assert!(!reader.refresh(&mut seen).unwrap());
                let mut whole = State::default();
                reader.refresh(&mut whole).unwrap();
                prop_assert_eq!(&whole, &in_sqlite);
            }
        }
        sqlite.verify().unwrap();
        drop((sqlite, reader));
        let mut again = State::default();
        Sqlite::open(directory.path(), false).unwrap().refresh(&mut again).unwrap();
        prop_assert_eq!(again, in_sqlite);
    }
}

fn put(number: u64) -> Change {
    let entry = Entry::removal(number, crate::format::entry::Location { segment: 1, offset: 80, record_bytes: 40 });
    Change { recent: vec![(format!("key {}", number % 100).into_bytes(), entry)], ..Change::default() }
}

#[test]
fn what_replaces_itself_all_the_time_does_not_grow() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = Sqlite::create(directory.path()).unwrap();
    let (mut state, mut seen) = (State::default(), State::default());
    sqlite.refresh(&mut state).unwrap();
    for number in 0..12_000 {
        sqlite.commit(&mut state, put(number)).unwrap();
        if number % 1000 == 0 {
            sqlite.refresh(&mut seen).unwrap();
            assert_eq!(seen, state);
        }
    }
    let connection = rusqlite::Connection::open(directory.path().join("catalog.sqlite")).unwrap();
    let rows: i64 = connection.query_row("SELECT count(*) FROM recent", [], |row| row.get(0)).unwrap();
    assert!(rows < 4400, "{rows} rows for 100 keys");
    assert!(sqlite.refresh(&mut seen).unwrap());
    assert_eq!(seen, state);
}

#[test]
fn a_catalog_made_anew_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = State::default();
    let old = Sqlite::create(directory.path()).unwrap();
    old.refresh(&mut state).unwrap();
    old.commit(&mut state, put(1)).unwrap();
    let reader = Sqlite::open(directory.path(), true).unwrap();
    let mut seen = State::default();
    reader.refresh(&mut seen).unwrap();
    assert_eq!(seen.recent.len(), 1);
    let new = Sqlite::create(directory.path()).unwrap();
    assert!(reader.refresh(&mut seen).unwrap());
    assert_eq!(seen.recent.len(), 0);
    // A writer with a state of another catalog changes nothing.
    let before = state.clone();
    assert_eq!(new.commit(&mut state, put(2)).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(state, before);
}

#[test]
fn a_reader_cannot_write_and_an_unwritable_medium_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a %?#\u{e4} directory");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(Sqlite::open(&path, true).unwrap_err().kind(), ErrorKind::NotFound);
    let writer = Sqlite::create(&path).unwrap();
    let mut state = State::default();
    writer.refresh(&mut state).unwrap();
    writer.commit(&mut state, put(1)).unwrap();
    let reader = Sqlite::open(&path, true).unwrap();
    assert_eq!(reader.commit(&mut state, put(2)).unwrap_err().kind(), ErrorKind::ReadOnly);
    drop((reader, writer));
    let mut seen = State::default();
    super::sqlite::open_immutable(&path).refresh(&mut seen).unwrap();
    assert_eq!(seen, state);
}

#[test]
fn damage_is_reported_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.sqlite");
    let mut state = State::default();
    let writer = Sqlite::create(directory.path()).unwrap();
    writer.refresh(&mut state).unwrap();
    let entries = (0..3000).flat_map(|number| put(number).recent).enumerate();
    let recent = entries.map(|(number, (_, entry))| (format!("key {number}").into_bytes(), entry)).collect();
    writer.commit(&mut state, Change { recent, ..Change::default() }).unwrap();
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    let corrupt = |directory: &Path| {
        let error = Sqlite::open(directory, true).and_then(|catalog| catalog.verify()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("--rebuild-index"), "{error}");
    };
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let middle = whole.windows(8).position(|window| window == b"key 1500").unwrap();
    file.write_all_at(b"KEY", middle as u64).unwrap();
    corrupt(directory.path());
    file.write_all_at(&whole, 0).unwrap();
    Sqlite::open(directory.path(), true).unwrap().verify().unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE state SET highest_id = highest_id + 1", []).unwrap();
    drop(connection);
    corrupt(directory.path());
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    corrupt(directory.path());
    std::fs::write(&path, b"no database, but long enough to be looked at as one, whatever it is made of").unwrap();
    corrupt(directory.path());
    std::fs::write(&path, b"").unwrap();
    corrupt(directory.path());
    std::fs::write(&path, &whole).unwrap();
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
    assert_eq!(Sqlite::open(directory.path(), true).unwrap_err().kind(), ErrorKind::NewerVersion);
}

#[test]
fn what_became_a_table_takes_no_space_in_the_catalog() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Sqlite::create(directory.path()).unwrap();
    let mut state = State::default();
    catalog.refresh(&mut state).unwrap();
    let pages = || {
        let connection = rusqlite::Connection::open(directory.path().join("catalog.sqlite")).unwrap();
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        (number("page_count"), number("freelist_count"))
    };
    let empty = pages().0;
    let location = crate::format::entry::Location { segment: 1, offset: 80, record_bytes: 20_068 };
    let recent = |number: u32| (number.to_be_bytes().to_vec(), Entry::removal(u64::from(number), location));
    catalog.commit(&mut state, Change { recent: (0..20_000).map(recent).collect(), ..Change::default() }).unwrap();
    assert!(pages().0 > empty + 50, "{:?} after {empty}", pages());
    catalog.commit(&mut state, Change { clear_recent: true, ..Change::default() }).unwrap();
    assert_eq!(pages().1, 0);
    assert!(pages().0 <= empty + 2, "{:?} after {empty}", pages());
}
