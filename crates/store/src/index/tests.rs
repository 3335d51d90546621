//! The index compared with a model: random puts, removals, removed trees, flushes and merges; after each, both return
//! the same answers, for the current and for preserved states.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::devices::directory::Directory;
use crate::format::entry::{Location, Time};
use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::{ROOT, ROOT_KEY, directory_of, entry_key, first_superseded, object_key, superseded_key};
use crate::index::catalog::Change;
use crate::index::table::tests::device;

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>),
    Remove(Vec<u8>),
    /// A record was moved: the same id at another location.
    Move(Vec<u8>),
    /// All entries of a directory.
    RemoveTree(ObjectNumber),
    /// The state is preserved.
    Snapshot,
    /// Recent changes become a table.
    Flush,
    /// Tables from this fraction of all to the newest become one, with recent changes or without.
    Merge(u8, bool),
    /// Some tables in the middle become one.
    MergeMiddle(u8, u8),
}

/// Entries of a few names in a few directories, the root, and a few shared objects.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![&b"a"[..], b"b", b"ab", b"\x01", b"\xff"]);
    let entry = (any_directory(), name).prop_map(|(directory, name)| entry_key(directory, name));
    let shared = (0u64..300).prop_map(|number| object_key(ObjectNumber(number)).to_vec());
    prop_oneof![20 => entry, 1 => Just(ROOT_KEY.to_vec()), 3 => shared]
}

fn any_directory() -> impl Strategy<Value = ObjectNumber> {
    prop::sample::select([ROOT.0, 2, 3, 255, 256, 1 << 40].map(ObjectNumber).to_vec())
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any_key().prop_map(Step::Put),
        3 => any_key().prop_map(Step::Remove),
        2 => any_key().prop_map(Step::Move),
        1 => any_directory().prop_map(Step::RemoveTree),
        1 => Just(Step::Snapshot),
        2 => Just(Step::Flush),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(first, recent)| Step::Merge(first, recent)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(first, end)| Step::MergeMiddle(first, end)),
    ]
}

/// An index driven as by a writer.
pub(super) struct Driver {
    _guard: tempfile::TempDir,
    pub(super) device: Directory,
    cache: Arc<BlockCache>,
    pub(super) state: State,
    pub(super) tables: Tables,
    pub(super) written_bytes: u64,
}

impl Driver {
    pub(super) fn new(cache_bytes: usize) -> Driver {
        let (guard, device) = device();
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let (state, tables) = (State::default(), Tables::from([]));
        Driver { _guard: guard, device, cache, state, tables, written_bytes: 0 }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.state, self.tables.clone())
    }

    pub(super) fn commit(&mut self, change: Change) {
        self.state.apply(&change);
        self.tables = open_tables(&self.device, &self.cache, &self.state.tables, &self.tables).unwrap();
    }

    /// Merges some tables into one; returns the replaced ones, whose files remain.
    pub(super) fn merge(&mut self, range: std::ops::Range<usize>, with_recent: bool) -> Vec<TableRow> {
        let number = self.state.next_table;
        let merged = merge_tables(&self.device, number, &self.snapshot(), range.clone(), with_recent).unwrap();
        self.written_bytes += merged.row.as_ref().map_or(0, |row| row.size_bytes);
        let mut tables = (*self.state.tables).clone();
        let replaced = tables.splice(range, merged.row).collect();
        self.commit(Change {
            clear_recent: with_recent,
            tables: Some(tables),
            ranges: Some(merged.ranges),
            next_table: Some(number + 1),
            ..Change::default()
        });
        replaced
    }
}

/// The index under test, and the model.
struct Pair {
    index: Driver,
    model: BTreeMap<Vec<u8>, Entry>,
    /// The model at some sequence numbers, and the versions preserved for these.
    kept: Vec<(u64, BTreeMap<Vec<u8>, Entry>)>,
    versions: usize,
    next_id: u64,
}

fn entry(id: u64, place: u64) -> Entry {
    let location = Location { segment: SegmentNumber(place / 100), offset: LogOffset(place * 64), record_bytes: 64 };
    let mtime = Time { seconds: id as i64, nanoseconds: 5 };
    Entry {
        kind: Kind::File,
        id,
        number: ObjectNumber(id),
        attributes_id: 0,
        is_plain: id.is_multiple_of(2),
        location,
        size_bytes: 10,
        mode: 0o100_600,
        uid: 1,
        gid: (id % 3) as u32,
        mtime,
        ctime: Time { seconds: 7, nanoseconds: place as u32 },
    }
}

impl Pair {
    fn new() -> Pair {
        Pair { index: Driver::new(1 << 16), model: BTreeMap::new(), kept: Vec::new(), versions: 0, next_id: 1 }
    }

    /// Record `until` supersedes the current entry of a key.
    fn supersede(&mut self, key: &[u8], until: u64, change: &mut Change) {
        let Some(old) = self.model.remove(key) else { return };
        if self.kept.last().is_some_and(|(sequence, _)| old.id <= *sequence) {
            self.versions += 1;
            change.recent.push((superseded_key(key, until)[..].into(), old));
        }
    }

    fn step(&mut self, step: &Step) {
        let id = self.next_id;
        self.next_id += 1;
        let mut change = Change::default();
        match step {
            Step::Put(key) => {
                self.supersede(key, id, &mut change);
                self.model.insert(key.clone(), entry(id, id));
                change.recent.push((key[..].into(), entry(id, id)));
            }
            Step::Remove(key) => {
                self.supersede(key, id, &mut change);
                change.recent.push((key[..].into(), Entry::removal(id, entry(id, id).location)));
            }
            Step::Move(key) => {
                let Some(old) = self.model.get_mut(key) else { return };
                *old = entry(old.id, 1000 + id);
                change.recent.push((key[..].into(), *old));
                let places = self.kept.iter_mut().filter_map(|(_, model)| model.get_mut(key));
                places.filter(|kept| kept.id == old.id).for_each(|kept| *kept = *old);
            }
            &Step::RemoveTree(directory) => {
                let keys: Vec<_> =
                    self.model.keys().filter(|key| directory_of(key) == Some(directory)).cloned().collect();
                keys.iter().for_each(|key| self.supersede(key, id, &mut change));
                let mut ranges = (*self.index.state.ranges).clone();
                ranges.retain(|row| row.directory != directory);
                ranges.push(RangeRow { directory, id });
                ranges.sort_by_key(|row| row.directory);
                change.ranges = Some(ranges);
            }
            Step::Snapshot => self.kept.push((id, self.model.clone())),
            Step::Flush => {
                self.index.merge(self.index.tables.len()..self.index.tables.len(), true);
                return;
            }
            Step::Merge(first, recent) => {
                let first = usize::from(*first) * (self.index.tables.len() + 1) / 256;
                self.index.merge(first..self.index.tables.len(), *recent);
                return;
            }
            Step::MergeMiddle(first, end) => {
                let end = usize::from(*end) * (self.index.tables.len() + 1) / 256;
                self.index.merge(usize::from(*first) * (end + 1) / 256..end, false);
                return;
            }
        }
        self.index.commit(change);
    }

    fn agree(&self, probes: &[Vec<u8>]) -> std::result::Result<(), TestCaseError> {
        let versions = self.index.snapshot().scan_versions_from(&first_superseded()).unwrap().count();
        prop_assert_eq!(versions, self.versions);
        for (sequence, model) in &self.kept {
            agree(&self.index.snapshot().at(*sequence), model, probes)?;
        }
        agree(&self.index.snapshot(), &self.model, probes)
    }
}

/// Whether a snapshot equals a model.
fn agree(
    snapshot: &Snapshot,
    model: &BTreeMap<Vec<u8>, Entry>,
    probes: &[Vec<u8>],
) -> std::result::Result<(), TestCaseError> {
    let all: Vec<_> = snapshot.scan_from(&[]).unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> = model.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
    prop_assert_eq!(all, expected);
    for pair in probes.windows(2) {
        let (low, high) = (pair[0].as_slice().min(&pair[1]), pair[0].as_slice().max(&pair[1]));
        prop_assert_eq!(snapshot.look_up(low).unwrap(), model.get(low).copied());
        for (from, to) in [(Bound::Included(low), Bound::Excluded(high)), (Bound::Excluded(low), Bound::Included(high))]
        {
            let mut range = model.range::<[u8], _>((from, Bound::Unbounded));
            let mut scan = snapshot.scan(from, to).unwrap();
            prop_assert_eq!(scan.next_entry().unwrap().map(|(key, entry)| (key.to_vec(), *entry)), {
                let within = |key: &[u8]| if to == Bound::Included(high) { key <= high } else { key < high };
                range.next().filter(|(key, _)| within(key)).map(|(key, entry)| (key.clone(), *entry))
            });
        }
        let mut scan = snapshot.scan_from(low).unwrap();
        let first = scan.next_entry().unwrap().map(|(key, _)| key.to_vec());
        scan.seek(high).unwrap();
        let next = first.and_then(|first| {
            let from = if first.as_slice() < high { Bound::Included(high) } else { Bound::Excluded(first.as_slice()) };
            model.range::<[u8], _>((from, Bound::Unbounded)).next()
        });
        let found = scan.next_entry().unwrap().map(|(key, entry)| (key.to_vec(), *entry));
        prop_assert_eq!(found, next.map(|(key, entry)| (key.clone(), *entry)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_index_is_the_model(
        steps in prop::collection::vec(any_step(), 1..120),
        probes in prop::collection::vec(any_key(), 12),
    ) {
        let mut pair = Pair::new();
        for (number, step) in steps.iter().enumerate() {
            pair.step(step);
            if number % 10 == 9 {
                pair.agree(&probes)?;
            }
        }
        pair.agree(&probes)?;
        // One table has everything, and nothing else remains.
        pair.index.merge(0..pair.index.tables.len(), true);
        pair.agree(&probes)?;
        let entries = (pair.model.len() + pair.versions) as u64;
        prop_assert_eq!(pair.index.tables.iter().map(|table| table.row().entries).sum::<u64>(), entries);
        prop_assert!(pair.index.state.ranges.is_empty());
    }
}

#[test]
fn a_snapshot_stays_what_it_is() {
    let mut pair = Pair::new();
    pair.step(&Step::Put(entry_key(ROOT, b"a")));
    pair.step(&Step::Flush);
    pair.step(&Step::Put(entry_key(ROOT, b"b")));
    let old = pair.index.snapshot();
    pair.step(&Step::RemoveTree(ROOT));
    pair.step(&Step::Merge(0, true));
    assert_eq!(pair.index.snapshot().scan(Bound::Unbounded, Bound::Unbounded).unwrap().count(), 0);
    assert!(pair.index.tables.is_empty(), "nothing is left of them");
    pair.index.device.remove(&crate::index::table::table_path(0)).unwrap();
    assert_eq!(old.scan(Bound::Unbounded, Bound::Unbounded).unwrap().count(), 2);
    assert_eq!(old.look_up(&entry_key(ROOT, b"a")).unwrap().map(|entry| entry.id), Some(1));
    fn is_shared_by_threads<T: Send + Sync + 'static>(_: &T) {}
    is_shared_by_threads(&old);
}

#[test]
fn a_removed_tree_of_a_large_table_is_jumped_over() {
    let mut pair = Pair::new();
    let change =
        |number: u64| (entry_key(ObjectNumber(5), format!("{number:06}").as_bytes()).into(), entry(number + 1, number));
    pair.index.commit(Change { recent: (0..30_000).map(change).collect(), ..Change::default() });
    pair.next_id = 40_000;
    pair.step(&Step::Put(entry_key(ObjectNumber(6), b"c")));
    pair.step(&Step::Flush);
    pair.step(&Step::RemoveTree(ObjectNumber(5)));
    pair.step(&Step::Put(entry_key(ObjectNumber(5), b"000007")));
    let found: Vec<_> =
        pair.index.snapshot().scan(Bound::Unbounded, Bound::Unbounded).unwrap().map(|next| next.unwrap().0).collect();
    assert_eq!(found, [entry_key(ObjectNumber(5), b"000007"), entry_key(ObjectNumber(6), b"c")]);
    // The ranges remain as long as the table whose records they hide.
    pair.step(&Step::Flush);
    assert_eq!(pair.index.state.ranges.len(), 1);
    pair.step(&Step::Merge(0, false));
    assert!(pair.index.state.ranges.is_empty());
    assert_eq!(pair.index.tables[0].row().entries, 2);
}
