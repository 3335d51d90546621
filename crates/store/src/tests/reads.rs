//! Number of device reads of the store: counted, so that no clock and no load decides.

use super::*;
use crate::simulation::mishap::FileKind;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Existing, Geometry};

const DIRECTORIES: u64 = 40;
const OBJECTS: u64 = 300;
/// Bytes of one read in a walk over everything, and in opening a table.
const AHEAD_BYTES: u64 = 256 << 10;
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes that are read around a leaf.
const AROUND_BYTES: u64 = 32 << 10;

fn one() -> Geometry {
    geometry(1, 0, 1, (1, 0))
}

fn path(directory: u64, object: u64) -> String {
    format!("tree/{directory:02}/{object:03}")
}

/// A closed store with several tables and no recent changes: many small directories, one after another.
fn imported() -> World {
    let world = World::new(Simulated::devices(&one()), 1);
    let subject = Simulated::create(&one(), &world).unwrap();
    for directory in 0..DIRECTORIES {
        let mut batch = subject.store().batch(Durability::Batch);
        for object in 0..OBJECTS {
            batch.put(&key(&path(directory, object)), &file(), &bytes(object, 100)).unwrap();
        }
        batch.commit().unwrap();
    }
    drop(subject);
    world
}

fn reader(world: &World) -> Simulated {
    Simulated::open_as(&home(&one()), world, Access::Read).unwrap()
}

/// The entries of a walk, and the reads of tables that it needed.
fn walked(world: &World, store: &Store) -> (Vec<String>, u64) {
    let before = world.reads(FileKind::Table);
    let listed: Vec<String> = store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).collect();
    (listed, world.reads(FileKind::Table) - before)
}

#[test]
fn a_listing_of_everything_reads_the_index_in_few_pieces() {
    let world = imported();
    let before = world.reads(FileKind::Table);
    let subject = reader(&world);
    let tables = subject.store().engine().view().state.tables.clone();
    let opened = world.reads(FileKind::Table) - before;
    let largest = tables.iter().map(|row| row.size_bytes).max().unwrap();
    assert!(tables.len() > 1 && largest > 2 * TAIL_BYTES, "{tables:?}");
    assert_eq!(opened, tables.len() as u64, "footer, classes and blocks above the leaves come at once");
    let (listed, reads) = walked(&world, subject.store());
    assert!(listed.is_sorted() && listed.len() as u64 >= DIRECTORIES * OBJECTS);
    let pieces: u64 = tables.iter().map(|row| row.size_bytes.div_ceil(AHEAD_BYTES)).sum();
    assert!(reads <= pieces, "{reads} reads of {tables:?}");
}

#[test]
fn directories_in_any_order_are_walked_in_that_of_their_paths() {
    let world = imported();
    let writer = Simulated::open_as(&home(&one()), &world, Access::Write).unwrap();
    let mut expected: Vec<String> = walked(&world, writer.store()).0;
    // Their numbers stay: order of names is then not order of numbers. Some are then in others, deeper than scans are
    // kept.
    let mut deep = "deep".to_owned();
    let to_be = |directory: u64| format!("tree/{:02}", DIRECTORIES + directory * 7 % DIRECTORIES);
    for directory in 0..DIRECTORIES {
        let from = format!("tree/{directory:02}");
        let to = match directory % 2 {
            0 => to_be(directory),
            _ => deep.clone(),
        };
        if directory % 2 == 1 {
            deep = format!("{deep}/150x");
        }
        writer.store().rename(&key(&from), &key(&to), Existing::Refuse).unwrap();
        for path in &mut expected {
            if *path == from || path.starts_with(&format!("{from}/")) {
                *path = format!("{to}{}", &path[from.len()..]);
            }
        }
    }
    expected.sort_by_key(|path| key(path));
    assert_eq!(walked(&world, writer.store()).0, expected);
    drop(writer);
    let (listed, reads) = walked(&world, reader(&world).store());
    assert_eq!(listed, expected);
    assert!(reads < 4 * DIRECTORIES, "{reads}");
}

#[test]
fn who_takes_the_pieces_of_a_load_reads_what_no_other_thread_does() {
    let world = imported();
    let subject = reader(&world);
    let before = world.reads(FileKind::Segment);
    let pieces = subject.store().load_by(&Key::root(), 0).unwrap();
    let count = |piece: crate::Loaded| piece.objects().filter(|object| object.kind() == Kind::File).count() as u64;
    let objects: u64 = pieces.map(|piece| count(piece.unwrap())).sum();
    let reads = world.reads(FileKind::Segment) - before;
    assert_eq!(objects, DIRECTORIES * OBJECTS);
    assert!(reads < objects / 20, "{reads} reads of {objects} objects");
}

#[test]
fn an_object_is_one_read_and_the_leaves_that_lead_to_all_come_with_their_neighbours() {
    let world = imported();
    let subject = reader(&world);
    let tables = subject.store().engine().view().state.tables.clone();
    let (of_log, of_tables) = (world.reads(FileKind::Segment), world.reads(FileKind::Table));
    let mut buffer = crate::Buffer::default();
    let objects = DIRECTORIES * OBJECTS;
    for number in 0..objects {
        let number = number * 7919 % objects;
        let path = key(&path(number / OBJECTS, number % OBJECTS));
        assert!(subject.store().read(&path, &mut buffer).unwrap().is_some());
    }
    assert_eq!(world.reads(FileKind::Segment) - of_log, objects);
    let pieces: u64 = tables.iter().map(|row| row.size_bytes.div_ceil(AROUND_BYTES)).sum();
    let reads = world.reads(FileKind::Table) - of_tables;
    assert!(reads <= pieces, "{reads} reads of {tables:?}");
}
