//! Scenarios in which somebody decides what counts: a side is taken, a device is given up, what is lost is dropped, the
//! quarantine is accepted; and maintenance that is stopped.

use super::super::mishap::{Absence, FileKind};
use super::super::workload::Durability;
use super::named::{cut, gone, keeps_with, large, rot, small};
use super::play::play;
use super::{End, Scenario, Shape, Step, Work};

/// Seeds for each scenario and each variant of it.
const SEEDS: u64 = 3;

/// Some devices go on without the others, and then the others without them.
fn parted(shape: Shape, seed: u64, is_killed: bool) -> Vec<Step> {
    let sides: [Vec<usize>; 2] = match shape.geometry().devices.len() {
        2 => [vec![1], vec![0]],
        4 => [vec![1], vec![0, 2, 3]],
        _ => [vec![1, 4], vec![0, 2, 3]],
    };
    let mut steps = vec![small(seed), large(seed + 1), Step::Close];
    let end = if is_killed { Step::Kill } else { Step::Close };
    for (side, away) in (0..).zip(sides) {
        steps.extend(away.iter().copied().map(gone));
        steps.push(Step::OpenDegraded);
        steps.extend((0..1 + seed / (side + 1) % 3).map(|batch| small(seed + 10 * side + batch)));
        steps.push(Step::Batch(Work::Removal, Durability::Batch, seed + side));
        steps.push(large(seed + 5 + side));
        steps.push(end.clone());
        steps.extend(away.into_iter().map(Step::Back));
    }
    steps
}

const PARTED: [Shape; 4] = [Shape::Mirror, Shape::Aligned, Shape::FourAlike, Shape::Raid5];

#[test]
fn the_side_that_is_taken_is_the_store() {
    for shape in PARTED {
        for device in [0, 1] {
            for is_killed in [false, true] {
                keeps_with(SEEDS, shape, |seed| {
                    let rest = [Step::Open, Step::Repair, Step::Take(device), Step::Look, small(seed + 30)];
                    let more = [Step::Compact, Step::Close, Step::RebuildIndex, Step::Close, Step::Repair, Step::Check];
                    let last = [Step::Accept, Step::Check, large(seed + 31), Step::Close, Step::RebuildIndex];
                    [parted(shape, seed, is_killed), rest.to_vec(), more.to_vec(), last.to_vec()].concat()
                });
            }
        }
    }
}

#[test]
fn a_choice_is_interrupted_and_repeated() {
    for shape in PARTED {
        for operations in 0..8 {
            keeps_with(SEEDS, shape, |seed| {
                let end = if seed % 2 == 0 { End::Kill } else { End::Power(seed) };
                let take = cut(operations, end, Step::Take(seed as usize % 2));
                [parted(shape, seed, false), vec![take, small(seed), Step::Close, Step::Repair, Step::Check]].concat()
            });
        }
    }
}

#[test]
fn a_side_that_was_away_when_the_other_was_taken_returns() {
    for shape in [Shape::Mirror, Shape::Aligned] {
        for device in [0, 1] {
            keeps_with(SEEDS, shape, |seed| {
                let other = 1 - device;
                let mut steps = parted(shape, seed, false);
                steps.extend([gone(other), Step::Take(device), Step::OpenDegraded, small(seed + 3), Step::Close]);
                steps.extend([Step::Back(other), Step::Open, Step::Take(device), Step::Repair, Step::Check]);
                steps
            });
        }
    }
}

#[test]
fn only_what_the_lost_device_had_alone_is_given_up_and_dropped() {
    for shape in [Shape::Mirror, Shape::Raid5, Shape::FourAlike, Shape::Aligned] {
        for kind in [FileKind::Segment, FileKind::Extent] {
            for device in 0..shape.geometry().devices.len() {
                keeps_with(SEEDS, shape, |seed| {
                    let devices = shape.geometry().devices.len();
                    let damaged = (device + 1 + seed as usize % (devices - 1)) % devices;
                    let mut steps = vec![small(seed), large(seed + 1), small(seed + 2), large(seed + 3), Step::Close];
                    steps.extend([gone(device), rot(damaged, kind, seed), Step::Rebuild(device)]);
                    steps.extend([Step::GiveUp(device), Step::Close, Step::DropLost, Step::Look]);
                    steps.extend([Step::Accept, Step::Check, small(seed + 4), Step::Close, Step::RebuildIndex]);
                    steps
                });
            }
        }
    }
}

#[test]
fn nothing_is_dropped_while_a_device_is_away() {
    for shape in [Shape::Mirror, Shape::Raid5] {
        keeps_with(SEEDS, shape, |seed| {
            let mut steps = vec![small(seed), large(seed + 1), Step::Close, gone(0), rot(1, FileKind::Segment, seed)];
            steps.extend([Step::DropLost, Step::Accept, Step::Back(0), Step::Repair, Step::Check]);
            steps
        });
    }
}

#[test]
fn what_was_acknowledged_stays_when_the_quarantine_is_accepted() {
    for shape in Shape::ALL {
        for operations in (0..10).step_by(2) {
            keeps_with(SEEDS, shape, |seed| {
                let unacknowledged = Step::Batch(Work::Any, Durability::None, seed + 1);
                let torn = cut(3 * operations, End::Power(seed), large(seed + 2));
                let mut steps = vec![small(seed), unacknowledged, torn, small(seed + 3), Step::Kill, small(seed + 4)];
                steps.extend([Step::Accept, Step::Check, Step::RebuildIndex, Step::Close]);
                steps.extend([cut(10 * operations, End::Kill, Step::Accept), Step::Look, Step::Accept]);
                steps
            });
        }
    }
}

#[test]
fn maintenance_that_is_stopped_changes_nothing() {
    let all = [Step::Compact, Step::Rebalance, Step::Scrub, Step::Repair, Step::DropLost, Step::Accept];
    for shape in Shape::ALL {
        for step in &all {
            keeps_with(SEEDS, shape, |seed| {
                let removal = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
                let stopped = Step::Stopped(seed * seed * 600, Box::new(step.clone()));
                let mut steps = vec![small(seed), large(seed + 1), small(seed + 2), removal, stopped.clone()];
                steps.extend([small(seed + 3), Step::Kill, stopped, Step::RebuildIndex, step.clone(), Step::Check]);
                steps
            });
        }
    }
}

#[test]
fn maintenance_that_fails_changes_nothing() {
    let all = [Step::Compact, Step::Rebalance, Step::Scrub, Step::Repair, Step::Accept];
    for shape in Shape::ALL {
        for step in &all {
            keeps_with(SEEDS, shape, |seed| {
                let device = seed as usize % shape.geometry().devices.len();
                let removal = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
                let fails = Step::Fails(device, seed * 5);
                let mut steps = vec![small(seed), large(seed + 1), small(seed + 2), removal, fails, step.clone()];
                steps.extend([Step::Look, step.clone(), Step::Kill, small(seed + 3), Step::Close, Step::RebuildIndex]);
                steps
            });
        }
    }
}

/// A power failure leaves a segment with a torn header and nothing else, of which nothing can be lost.
#[test]
fn a_rebuild_ends_though_a_segment_has_nothing_but_a_torn_header() {
    let batch = |work, durability, seed| Step::Batch(work, durability, seed);
    let steps = vec![
        batch(Work::Removal, Durability::Each, 15_703_949_603_665_927_684),
        Step::Full(0, 2),
        batch(Work::Write, Durability::Each, 8_822_750_291_073_044_827),
        batch(Work::Large, Durability::Batch, 1_134_798_202_153_791_773),
        Step::Full(0, 35),
        cut(6, End::Power(859_398_495_364_163_142), Step::Rebalance),
        batch(Work::Small, Durability::Each, 5_882_719_365_013_131_286),
        Step::Away(0, Absence::Failing),
        Step::Stopped(7791, Box::new(Step::Rebuild(0))),
        Step::Rebuild(0),
    ];
    assert_eq!(play(&Scenario { shape: Shape::Triple, seed: 3536, steps }).map(|_| ()), Ok(()));
}

/// A killed rebuild leaves files whose names are in memory only; the next one finds them, and they must be durable when
/// the device is in service.
#[test]
fn a_rebuild_after_a_killed_one_makes_the_names_of_its_files_durable() {
    let steps = vec![
        large(5115699420391483367),
        Step::Close,
        gone(0),
        cut(56, End::Kill, Step::GiveUp(0)),
        Step::GiveUp(0),
        cut(12, End::Power(15010801964900436296), Step::Close),
        gone(1),
    ];
    play(&Scenario { shape: Shape::Mirror, seed: 701682, steps }).unwrap();
}
