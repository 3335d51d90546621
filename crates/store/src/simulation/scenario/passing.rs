//! Scenarios with faults that pass: reads that fail in one pass and not in the next, a device that has less room than
//! it says, and one that is gone for a part of the maintenance.

use super::super::mishap::FileKind;
use super::super::workload::Durability;
use super::named::{keeps_with, large, rot, small};
use super::{Shape, Step, Work};

/// Seeds for each scenario and each variant of it.
const SEEDS: u64 = 3;

const MAINTENANCE: [Step; 5] = [Step::Scrub, Step::Repair, Step::DropLost, Step::Accept, Step::Compact];

/// A store with removals in another segment than what they remove.
fn removed(seed: u64) -> Vec<Step> {
    let removal = |seed| Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
    vec![small(seed), large(seed + 1), small(seed + 2), Step::Kill, removal(seed), small(seed + 3), removal(seed + 1)]
}

#[test]
fn what_cannot_be_read_for_a_while_is_not_given_up() {
    for shape in Shape::ALL {
        for kind in [FileKind::Segment, FileKind::Extent] {
            for step in MAINTENANCE {
                keeps_with(SEEDS, shape, |seed| {
                    let device = seed as usize % shape.geometry().devices.len();
                    let unread = Step::Unread(device, kind, seed, (2 * seed, 1 + seed % 3));
                    let mut steps = removed(seed);
                    steps.extend([Step::Close, rot(device, FileKind::Segment, seed + 1), unread, step.clone()]);
                    steps.extend([Step::Close, Step::RebuildIndex, Step::Close, Step::Repair, Step::Look]);
                    steps
                });
            }
        }
    }
}

#[test]
fn a_device_with_less_room_than_it_says_loses_nothing() {
    for shape in Shape::ALL {
        for blocks in 0..6 {
            keeps_with(SEEDS, shape, |seed| {
                let device = seed as usize % shape.geometry().devices.len();
                let mut steps = removed(seed);
                steps.extend([Step::Quota(device, blocks), large(seed + 4), small(seed + 5), Step::Compact]);
                steps.extend([Step::Kill, small(seed + 6), Step::Room(device), small(seed + 7), Step::Close]);
                steps.extend([Step::RebuildIndex, Step::Repair, Step::Check]);
                steps
            });
        }
    }
}

#[test]
fn a_device_that_is_gone_for_a_part_of_the_maintenance_loses_nothing() {
    for shape in Shape::ALL {
        for step in MAINTENANCE {
            for after in (0..60).step_by(12) {
                keeps_with(SEEDS, shape, |seed| {
                    let device = seed as usize % shape.geometry().devices.len();
                    let outage = Step::Outage(device, (after + seed, 4 * seed), Box::new(step.clone()));
                    let mut steps = removed(seed);
                    steps.extend([outage, Step::Look, small(seed + 4), Step::Repair, Step::Close, Step::RebuildIndex]);
                    steps
                });
            }
        }
    }
}
