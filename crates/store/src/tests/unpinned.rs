//! Readers who may not pin, beside a writer that compacts: what is moved is found again, at the same snapshot; what is
//! freed is said to be gone. None of it is called damaged.

use super::snapshots::compact_all;
use super::*;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Geometry, Lent};

const FILES: u64 = 60;

fn name(number: u64) -> Key {
    key(&format!("d/{number}"))
}

/// Every tenth is large.
fn content(number: u64) -> Vec<u8> {
    bytes(number, if number.is_multiple_of(10) { 60_000 } else { 2000 })
}

/// A store in which nobody can pin.
struct Beside {
    of: Geometry,
    world: World,
    writer: Simulated,
}

impl Beside {
    /// With the snapshot `monday`, and half of its files overwritten since.
    fn new() -> Beside {
        let of = geometry(2, 3, 2, (2, 1));
        let world = World::new(Simulated::devices(&of), 1);
        world.refuse_pins();
        let writer = Simulated::create(&of, &world).unwrap();
        let beside = Beside { of, world, writer };
        let store = beside.store();
        // Dead units, so that compaction moves the others.
        (0..FILES).step_by(10).for_each(|number| store.put(&name(number), &file(), &bytes(7, 60_000)).unwrap());
        (0..FILES).for_each(|number| store.put(&name(number), &file(), &content(number)).unwrap());
        store.create_snapshot("monday").unwrap();
        beside.overwrite();
        beside
    }

    fn store(&self) -> &Store {
        self.writer.store()
    }

    fn overwrite(&self) {
        (0..FILES / 2).for_each(|number| self.store().put(&name(number), &file(), b"other").unwrap());
    }

    /// A reader that has read no record yet.
    fn reader(&self) -> Simulated {
        Simulated::open_as(&home(&self.of), &self.world, Access::Read).unwrap()
    }

    fn reader_at_monday(&self) -> Simulated {
        let reader = self.reader();
        assert!(reader.store().engine().rest_at(b"monday").unwrap());
        reader
    }
}

/// Whether an error says that this was freed, and no more.
fn is_freed(error: &Error) -> bool {
    let said = error.to_string();
    let is_damage =
        ["cannot be verified", "damaged", "--drop-lost", "check --deep"].iter().any(|one| said.contains(one));
    error.kind() == ErrorKind::Busy && said.contains("this user may not write there") && !is_damage
}

#[test]
fn a_snapshot_is_read_wherever_its_files_are_moved() {
    let beside = Beside::new();
    let (by_key, by_handle, listed, in_pieces) =
        (beside.reader_at_monday(), beside.reader_at_monday(), beside.reader_at_monday(), beside.reader_at_monday());
    let all: Vec<Listed> = listed.store().list(&key("d")).unwrap().map(Result::unwrap).collect();
    let mut pieces = in_pieces.store().content(&name(10)).unwrap().unwrap().in_pieces_of(1);
    let (mut read, mut buffer) = (pieces.next_piece().unwrap().unwrap().1.to_vec(), Buffer::default());
    for number in 0..FILES {
        if number % 20 == 0 {
            compact_all(beside.store());
        }
        let read = by_key.store().get(&name(number)).unwrap();
        assert!(read == Some(content(number)), "{number}");
        let handle = by_handle.store().open_object(&name(number), &HandleOptions::read()).unwrap();
        let mut part = vec![0; 100];
        assert_eq!(handle.read_at(&mut part, 1000).unwrap(), 100);
        assert!(part == content(number)[1000..1100], "{number}");
    }
    for listed_one in &all {
        let read = listed.store().read_listed(listed_one, &mut buffer).unwrap().unwrap();
        let number = listed_one.key.to_string().split('/').nth(1).unwrap().parse().unwrap();
        assert!(read.content == content(number), "{number}");
    }
    assert_eq!(all.len() as u64, FILES);
    while let Some((_, piece)) = pieces.next_piece().unwrap() {
        read.extend_from_slice(piece);
    }
    assert!(read == content(10));
}

#[test]
fn a_snapshot_that_was_removed_is_gone_and_not_damaged() {
    let beside = Beside::new();
    let reader = beside.reader_at_monday();
    assert!(beside.store().remove_snapshot("monday").unwrap());
    compact_all(beside.store());
    let mut freed = 0;
    for number in 0..FILES {
        match reader.store().get(&name(number)) {
            Ok(read) => assert!(read == Some(content(number)), "{number}"),
            Err(error) => {
                assert!(is_freed(&error) && error.to_string().contains("snapshot monday was removed"), "{error}");
                freed += 1;
            }
        }
    }
    assert!(freed > 0);
}

#[test]
fn a_state_in_hand_is_read_as_long_as_it_exists() {
    let beside = Beside::new();
    let (named, now) = (beside.reader(), beside.reader());
    let monday = named.store().snapshot_named("monday").unwrap().unwrap();
    let today = now.store().snapshot().unwrap();
    compact_all(beside.store());
    let mut buffer = Buffer::default();
    for number in 0..FILES {
        let read = monday.read(&name(number), &mut buffer).unwrap().unwrap();
        assert!(read.content == content(number), "{number}");
        let Listed { key, entry, shared } = monday.entry(&name(number)).unwrap().unwrap();
        let mut whole = Vec::new();
        let mut pieces = monday.content(&Lent { key: &key, entry, shared }).unwrap();
        while let Some((_, piece)) = pieces.next_piece().unwrap() {
            whole.extend_from_slice(piece);
        }
        assert!(whole == content(number), "{number}");
        let expected = if number < FILES / 2 { b"other".to_vec() } else { content(number) };
        assert!(today.read(&name(number), &mut buffer).unwrap().unwrap().content == expected, "{number}");
    }
    // What was overwritten now is in no other state.
    let late = beside.reader();
    let today = late.store().snapshot().unwrap();
    (0..FILES).for_each(|number| beside.store().put(&name(number), &file(), b"newest").unwrap());
    compact_all(beside.store());
    let outcomes = (0..FILES / 2).map(|number| match today.read(&name(number), &mut buffer) {
        Ok(read) => {
            assert_eq!(read.unwrap().content, b"other");
            0
        }
        Err(error) => {
            assert!(is_freed(&error), "{error}");
            1
        }
    });
    assert!(outcomes.sum::<u64>() > 0);
}

#[test]
fn what_reads_everything_says_that_it_was_overtaken() {
    let beside = Beside::new();
    let [loading, listing] = [(); 2].map(|()| beside.reader_at_monday());
    compact_all(beside.store());
    let freed = std::sync::atomic::AtomicU64::new(0);
    loading
        .store()
        .load_with(&Key::root(), 1, |object| {
            if let Err(error) = object {
                assert!(is_freed(&error), "{error}");
                freed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            true
        })
        .unwrap();
    assert!(freed.into_inner() > 0);
    for is_deep in [false, true] {
        let (mut problems, options) = (Vec::new(), CheckOptions { is_deep, ..CheckOptions::default() });
        let reader = beside.reader();
        let (pin, view) = reader.store().engine().pinned().unwrap();
        compact_all(beside.store());
        let mut found = |problem: Problem| problems.push(problem.to_string());
        let checked = reader.store().check_view(view, pin.loose(), options, &mut found, &Progress::default());
        assert!(is_freed(&checked.unwrap_err()) && problems.is_empty(), "{problems:?}");
    }
    let versions = listing.store().versions(&name(1), &Progress::default());
    assert!(is_freed(&versions.unwrap_err()));
    let reader = beside.reader();
    assert_eq!(reader.store().versions(&name(1), &Progress::default()).unwrap().versions.len(), 2);
}
