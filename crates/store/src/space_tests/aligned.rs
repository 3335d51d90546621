//! Content alignment: wherever a store writes a file, its content begins at a multiple, and nothing else changes.

use super::*;
use crate::format::geometry::Alignment;
use crate::format::record::Record;
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::layout::granulo::{ALIGNED_HEAD_BYTES, DESCRIPTOR_HEADER_BYTES};
use crate::log::scan::{ScanStep, SegmentScan};

const ALIGNED: [Alignment; 2] = [Alignment::Sector, Alignment::Page];

fn realign(alignment: Alignment) -> CompactOptions {
    CompactOptions { is_alone: true, alignment: Some(alignment), ..CompactOptions::default() }
}

/// Walks over all segments: in those with an alignment, records and content begin where they should. Returns the number
/// of segments with records of files for each alignment.
fn look_at_segments(store: &Store) -> [usize; 3] {
    let engine = store.engine();
    let rows: Vec<_> = engine.view().state.segments.values().cloned().collect();
    let mut count = [0; 3];
    for row in rows {
        let mut scan =
            SegmentScan::new(engine.open_copies(row.id(), &row.devices), engine.seed(row.id()), LogOffset::START);
        let header: SegmentHeader = scan.header(row.id().into()).0.unwrap();
        let alignment = header.alignment;
        let content_of = |at: LogOffset, record: &Record<'_>, ahead: u64| {
            let begin = at.0 + record.head.lengths.head_bytes() as u64 + ahead;
            assert_eq!(begin % alignment.bytes().unwrap_or(1), 0, "content of {:?}", record.head.name);
        };
        let mut has_files = false;
        while let Some(step) = scan.next(false) {
            match step {
                ScanStep::Damage(range, _) => panic!("damage in segment {} at {range:?}", row.number),
                ScanStep::Commit(committed, ..) => assert_eq!(alignment.padding_to_batch(committed.end.0), 0),
                ScanStep::Record(at, record, _) => {
                    if let Some(unit) = alignment.bytes().filter(|_| record.head.kind != Kind::Release) {
                        assert_eq!((at.0 + ALIGNED_HEAD_BYTES) % unit, 0);
                        assert_eq!(record.record_bytes() % unit, 0);
                    }
                    match record.head.kind {
                        Kind::File if !record.content.is_empty() => content_of(at, &record, 0),
                        Kind::Large => content_of(at, &record, DESCRIPTOR_HEADER_BYTES),
                        _ => {}
                    }
                    has_files |= matches!(record.head.kind, Kind::File | Kind::Large);
                }
            }
        }
        assert!(row.size_bytes >= SEGMENT_HEADER_BYTES);
        count[Alignment::ALL.iter().position(|&one| one == alignment).unwrap()] += usize::from(has_files);
    }
    count
}

/// Files of every kind and many sizes, some with long names, in batches of every durability.
fn fill(store: &Store, seed: u64, model: &mut Model) {
    for (turn, durability) in [Durability::None, Durability::Batch, Durability::Each].into_iter().enumerate() {
        let mut batch = store.batch(durability);
        for at in 0..40u64 {
            let path = format!("d{}/{seed}-{turn}-{at}{}", at % 3, "n".repeat((at as usize % 4) * 80));
            let size = [0, 1, 100, 255, 256, 257, 3839, 3841, 5000, 65_536, 200_000][at as usize % 11];
            let content = if at % 2 == 0 { bytes(at, size) } else { vec![at as u8; size] };
            batch.put(&key(&path), &file(), &content).unwrap();
            model.insert(path, content);
        }
        let shared = batch.shared(&file(), &mut &b"one file"[..], None).unwrap();
        for name in ["one", "two"] {
            let path = format!("{name}-{seed}-{turn}");
            batch.link(&key(&path), shared).unwrap();
            model.insert(path, b"one file".to_vec());
        }
        batch.commit().unwrap();
    }
}

#[test]
fn content_is_aligned_whatever_writes_it() {
    for (alignment, compression) in [
        (Alignment::Sector, Compression::None),
        (Alignment::Page, Compression::None),
        (Alignment::Page, Compression::Zstd(1)),
    ] {
        let sandbox = TempDir::new().unwrap();
        let (home, copy) = (sandbox.path().join("home"), sandbox.path().join("copy"));
        let store = Store::create(&home, &Plan { alignment, compression, ..small_segments() }).unwrap();
        let mut model = Model::new();
        fill(&store, 1, &mut model);
        drop(store);
        // After a clean close the log continues in the same segment.
        let store = Store::open(&home).unwrap();
        fill(&store, 2, &mut model);
        for number in 0..3 {
            store.remove(&key(&format!("one-1-{number}"))).unwrap();
            model.remove(&format!("one-1-{number}"));
        }
        store.remove_tree(&key("d1")).unwrap();
        model.retain(|path, _| !path.starts_with("d1/"));
        let count = look_at_segments(&store);
        assert!(count[0] == 0 && count.iter().sum::<usize>() > 1);
        assert!(walked(&store) == model && loaded(&store, &Key::root()) == model);
        // As a killed writer leaves it: another segment continues the log.
        log::without_index(&home, &copy);
        std::fs::create_dir_all(copy.join("extents")).unwrap();
        for extent in std::fs::read_dir(home.join("extents")).unwrap() {
            let extent = extent.unwrap();
            std::fs::copy(extent.path(), copy.join("extents").join(extent.file_name())).unwrap();
        }
        let recovered = Store::open(&copy).unwrap();
        assert!(walked(&recovered) == model);
        recovered.put(&key("later"), &file(), &bytes(1, 3000)).unwrap();
        look_at_segments(&recovered);
        is_sound(&recovered);
        drop(recovered);

        compact(&store, &ALL);
        look_at_segments(&store);
        is_sound(&store);
        assert!(walked(&store) == model && loaded(&store, &Key::root()) == model);
        let before = index_of(&store);
        drop(store);
        drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
        let store = Store::open(&home).unwrap();
        assert_eq!(index_of(&store).1, before.1);
        assert!(walked(&store) == model);
    }
}

#[test]
fn compaction_changes_the_choice_and_rewrites_what_differs() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("home");
    let mut store = Store::create(&home, &small_segments()).unwrap();
    let mut model = Model::new();
    fill(&store, 1, &mut model);
    for (turn, alignment) in [Alignment::Page, Alignment::Sector, Alignment::None].into_iter().enumerate() {
        // What was encoded before is written unchanged, in a segment of its own.
        let mut waiting = store.batch(Durability::Batch);
        let path = format!("waiting-{turn}");
        waiting.put(&key(&path), &file(), b"encoded for what was").unwrap();
        model.insert(path, b"encoded for what was".to_vec());
        let plan = store.plan_compaction(&realign(alignment)).unwrap();
        assert!(plan.segments.iter().any(|segment| segment.is_realigned));
        let done = compact(&store, &CompactOptions { is_alone: false, ..realign(alignment) });
        assert!(done.moved_records > 0);
        assert_eq!(store.status(false).unwrap().alignment, alignment);
        waiting.commit().unwrap();
        let of = Alignment::ALL.iter().position(|&one| one == alignment).unwrap();
        let count = look_at_segments(&store);
        assert_eq!((count[of] > 0, count.iter().sum::<usize>() - count[of]), (true, 1));
        compact(&store, &realign(alignment));
        let count = look_at_segments(&store);
        assert_eq!((count[of] > 0, count.iter().sum::<usize>() - count[of]), (true, 0));
        let plan = store.plan_compaction(&realign(alignment)).unwrap();
        assert!(plan.segments.iter().all(|segment| !segment.is_realigned), "{plan:?}");
        fill(&store, turn as u64 + 2, &mut model);
        drop(store);
        store = Store::open(&home).unwrap();
        assert_eq!(store.geometry().alignment, alignment);
        assert!(walked(&store) == model && loaded(&store, &Key::root()) == model);
        is_sound(&store);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_batches_are_aligned(
        sizes in proptest::collection::vec(proptest::collection::vec((0usize..3, 0usize..9000, 0usize..250), 0..20), 1..12),
        turn in 0usize..2,
    ) {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("home");
        let plan = Plan { alignment: ALIGNED[turn], cutoff_bytes: 0, ..small_segments() };
        let mut store = Store::create(&home, &plan).unwrap();
        let mut model = Model::new();
        for (number, objects) in sizes.into_iter().enumerate() {
            let mut batch = store.batch(Durability::None);
            for (kind, size, name) in objects {
                let path = format!("{number}/{kind}-{size}-{}", "x".repeat(name));
                match kind {
                    0 => batch.symlink(&key(&path), &file(), &vec![b't'; size % 4000 + 1]).unwrap(),
                    1 => { batch.remove(&key(&path)).unwrap(); }
                    _ => {
                        let content = bytes(size as u64, size);
                        batch.put(&key(&path), &file(), &content).unwrap();
                        model.insert(path, content);
                    }
                }
            }
            batch.commit().unwrap();
            match number % 4 {
                1 => store.sync().unwrap(),
                2 => {
                    drop(store);
                    store = Store::open(&home).unwrap();
                }
                _ => {}
            }
        }
        look_at_segments(&store);
        let mut found = walked(&store);
        found.retain(|path, _| !path.contains("/0-"));
        prop_assert!(found == model);
    }
}
