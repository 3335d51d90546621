//! The cost of a record that rots without another copy: that record, and nothing else (docs/FORMAT.md, section 3, law
//! 1).
//!
//! After a random workload that ended well, one bit of the log is flipped, and the index is rebuilt from the log. At
//! most one of all objects is then lost or shows an earlier state; every other is unchanged, under its path or under
//! the part of it in `lost+found`. Whatever else shows existed somewhere before: a damaged removal brings back what it
//! removed. And every difference is announced.

use std::collections::BTreeSet;

use super::ever::{Ever, below_lost_found, ends_with};
use super::mishap::{FileKind, Rot};
use super::scenario::Shape;
use super::scenario::look::{Announced, Look};
use super::state::{Object, State};
use super::subject::{Simulated, home};
use super::trial::Subject;
use super::workload::{Generator, Operation};
use super::world::World;
use crate::Key;
use crate::engine::locking::Access;

/// Workloads, and places that rot after each.
const SEEDS: u64 = 300;
const PLACES: u64 = 12;
const OPERATIONS: u64 = 12;

/// A closed store, its state, and everything that it ever had.
fn worked(shape: Shape, seed: u64) -> (World, State, Ever) {
    let geometry = shape.geometry();
    let world = World::new(Simulated::devices(&geometry), seed);
    let (cutoff_bytes, largest_bytes) = Simulated::sizes(&geometry);
    let mut generator = Generator::new(seed, cutoff_bytes, largest_bytes);
    let mut ever = Ever::default();
    let mut store = Simulated::create(&geometry, &world).unwrap();
    for _ in 0..OPERATIONS {
        match generator.operation() {
            Operation::Batch(durability, changes) => {
                ever.note(&changes);
                store.batch(durability, &changes, &mut || {}).unwrap();
            }
            Operation::Sync => store.sync().unwrap(),
            Operation::Compact => store.compact().unwrap(),
            Operation::Reopen => {
                drop(store);
                store = Simulated::open(&geometry, &world).unwrap();
            }
        }
    }
    let state = store.state().unwrap();
    drop(store);
    (world, state, ever)
}

fn is_same(one: &Object, other: &Object) -> bool {
    one.body == other.body && one.attributes == other.attributes
}

/// The cost, if it exceeds what is allowed.
fn excess(before: &State, found: &Look, ever: &Ever) -> Option<String> {
    if let Some(cause) = &found.ended {
        return Some(format!("a listing ends with: {cause}"));
    }
    let mut attached: Vec<(Vec<&[u8]>, &Object)> = Vec::new();
    for (key, object) in found.state.objects() {
        if !ever.had(key, object) {
            return Some(format!("{key} never was what it is shown as: {object:.200?}"));
        }
        attached.extend(below_lost_found(key).filter(|below| !below.is_empty()).map(|below| (below, object)));
    }
    // A file with several names is one object.
    let (mut lost, mut names) = (BTreeSet::new(), Vec::new());
    for (key, object) in before.objects() {
        let is_here = found.state.get(key).is_some_and(|there| is_same(object, there));
        if !is_here && !attached.iter().any(|(below, there)| ends_with(key, below) && is_same(object, there)) {
            lost.insert(object.shared.map_or_else(|| key.to_string(), |number| format!("file {number}")));
            names.extend(Some(key.to_string()).filter(|_| !found.unreadable.contains_key(key)));
        }
    }
    if lost.len() > 1 {
        return Some(format!("it costs {} objects: {lost:?}", lost.len()));
    }
    // What is listed and cannot be read is said when it is read; some only a snapshot has.
    let is_now = |key: &&Key| before.get(key).is_some() && found.state.get(key).is_none();
    let unreadable = found.unreadable.keys().filter(is_now).count();
    let shown = found.state.objects().count() + unreadable;
    let is_other = before.objects().count() != shown || !names.is_empty();
    (is_other && found.announced == Announced::Complete).then(|| format!("nothing is said of it: {names:?}"))
}

#[test]
fn a_record_that_rots_costs_that_record() {
    for shape in [Shape::One, Shape::Mirror] {
        let geometry = shape.geometry();
        let mut costs = 0;
        for seed in 0..SEEDS {
            let (world, before, ever) = worked(shape, seed);
            for place in 0..PLACES {
                let world = world.after_shutdown();
                let place = seed * PLACES + place;
                // The same place of every copy.
                let rotten: Vec<_> = (0..geometry.devices.len())
                    .filter_map(|device| world.rot(device, FileKind::Segment, Rot::Bit, place))
                    .collect();
                let store = Simulated::open_as(&home(&geometry), &world, Access::RebuildIndex).unwrap();
                let look = store.look();
                costs += u64::from(look.announced != Announced::Complete || !look.unreadable.is_empty());
                if let Some(cause) = excess(&before, &look, &ever) {
                    panic!("{shape:?}, workload {seed}, place {place}, {rotten:?}: {cause}\n{:#?}", look.words);
                }
            }
        }
        assert!(costs > SEEDS * PLACES / 10, "hardly anything rots: {costs}");
    }
}
