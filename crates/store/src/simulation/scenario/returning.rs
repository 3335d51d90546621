//! others are lost.

use super::super::mishap::{FileKind, Rot};
use super::super::workload::Durability;
use super::named::{cut, gone, keeps_with, large, rot, small};
use super::{End, Shape, Step, Work};

/// Seeds for each scenario and each variant of it.
const SEEDS: u64 = 5;

/// As many losses as a shape bears, of other devices with what `device` has.
fn most_losses_beside(shape: Shape, device: usize) -> Vec<Step> {
    match (shape, device) {
        (Shape::Triple, 6) => vec![gone(3), gone(5)],
        (Shape::Triple, _) => vec![gone(1), gone(2)],
        (Shape::Raid5, _) => vec![gone(4)],
        _ => vec![gone(0)],
    }
}

/// A sync fails on a device; the others go on; a repair takes it back, whose content reads well, from memory.
#[test]
fn what_a_failed_sync_left_in_memory_is_on_a_device_that_returned() {
    for (shape, device) in [(Shape::Triple, 6), (Shape::Triple, 0), (Shape::Raid5, 3), (Shape::Mirror, 1)] {
        for (operations, repair) in
            (0..14).flat_map(|operations| [(operations, Step::Repair), (operations, Step::DropLost)])
        {
            keeps_with(SEEDS, shape, |seed| {
                let unacknowledged = |work, seed| Step::Batch(work, Durability::None, seed);
                let (one, other) = (unacknowledged(Work::Large, seed), unacknowledged(Work::Small, seed + 1));
                let steps = vec![large(seed + 2), one, other, Step::Fails(device, operations), repair.clone()];
                [steps, vec![Step::Close, Step::DropPages(seed)], most_losses_beside(shape, device), vec![Step::Look]]
                    .concat()
            });
        }
    }
}

/// The same with a superblock that was damaged meanwhile, so that the device does not say up to where it is durable.
#[test]
fn what_a_failed_sync_left_in_memory_is_on_a_device_that_returned_without_a_superblock() {
    for (shape, device) in [(Shape::Triple, 6), (Shape::Triple, 0), (Shape::Raid5, 3), (Shape::Mirror, 1)] {
        for operations in 0..14 {
            keeps_with(SEEDS, shape, |seed| {
                let unacknowledged = |work, seed| Step::Batch(work, Durability::None, seed);
                let (one, other) = (unacknowledged(Work::Large, seed), unacknowledged(Work::Small, seed + 1));
                let steps = vec![large(seed + 2), one, other, Step::Fails(device, operations), Step::Close];
                let damaged = Step::Rot(device, FileKind::Superblock, Rot::Emptied, seed);
                let steps = [steps, vec![damaged, Step::Repair, Step::Close, Step::DropPages(seed)]].concat();
                [steps, most_losses_beside(shape, device), vec![Step::Look]].concat()
            });
        }
    }
}

/// The same with a repair that is interrupted, and one that is done.
#[test]
fn a_return_that_is_interrupted_begins_again() {
    for (shape, device) in [(Shape::Triple, 6), (Shape::Mirror, 1)] {
        for operations in 0..40 {
            keeps_with(3, shape, |seed| {
                let one = Step::Batch(Work::Large, Durability::None, seed);
                let other = Step::Batch(Work::Small, Durability::None, seed + 1);
                let end = if seed % 2 == 0 { End::Kill } else { End::Power(seed) };
                let steps = vec![one, other, Step::Fails(device, seed % 10), Step::Close];
                let steps = [steps, vec![cut(operations, end, Step::Repair), Step::Repair, Step::Close]].concat();
                [steps, vec![Step::DropPages(seed)], most_losses_beside(shape, device), vec![Step::Look]].concat()
            });
        }
    }
}

/// Damage is made good, and the sync of that fails.
#[test]
fn what_a_failed_repair_left_in_memory_is_made_good_by_the_next() {
    for (shape, device, kind) in [
        (Shape::Triple, 6, FileKind::Extent),
        (Shape::Raid5, 3, FileKind::Extent),
        (Shape::Mirror, 1, FileKind::Segment),
        (Shape::Triple, 0, FileKind::Segment),
    ] {
        for operations in 0..14 {
            keeps_with(SEEDS, shape, |seed| {
                let steps = vec![large(seed), small(seed), Step::Close, rot(device, kind, seed), Step::Open];
                let steps = [steps, vec![Step::Fails(device, operations), Step::Scrub, Step::Close]].concat();
                [
                    steps,
                    vec![Step::Repair, Step::Close, Step::DropPages(seed)],
                    most_losses_beside(shape, device),
                    vec![Step::Look],
                ]
                .concat()
            });
        }
    }
}
