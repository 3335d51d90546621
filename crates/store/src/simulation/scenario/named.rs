//! Scenarios with a name: each lost something once, in this store or in another.

use super::super::mishap::{Absence, FileKind, Rot};
use super::super::workload::Durability;
use super::play::play;
use super::shrink::shrink;
use super::{End, Scenario, Shape, Step, Work};
use crate::random::Random;

/// Seeds for each scenario.
const SEEDS: u64 = 12;

/// Plays steps that a seed determines, on a shape.
pub(super) fn keeps(shape: Shape, steps: impl Fn(u64) -> Vec<Step>) {
    keeps_with(SEEDS, shape, steps);
}

/// As [`keeps`], with so many seeds.
pub(super) fn keeps_with(seeds: u64, shape: Shape, steps: impl Fn(u64) -> Vec<Step>) {
    for seed in 1..=seeds {
        let scenario = Scenario { shape, seed, steps: steps(seed) };
        if let Err(failure) = play(&scenario) {
            let (least, of_least) = shrink(&scenario, failure, play);
            panic!("{of_least}\n{least}");
        }
    }
}

pub(super) fn small(seed: u64) -> Step {
    Step::Batch(Work::Small, Durability::Batch, seed)
}

pub(super) fn large(seed: u64) -> Step {
    Step::Batch(Work::Large, Durability::Batch, seed)
}

pub(super) fn rot(device: usize, kind: FileKind, place: u64) -> Step {
    Step::Rot(device, kind, Rot::Bit, place)
}

pub(super) fn gone(device: usize) -> Step {
    Step::Away(device, Absence::Unmounted)
}

pub(super) fn cut(operations: u64, end: End, step: Step) -> Step {
    Step::Cut(operations, end, Box::new(step))
}

#[test]
fn content_like_log_beside_rot_stays_content() {
    for shape in [Shape::One, Shape::Mirror] {
        keeps(shape, |seed| {
            let planted = |seed| Step::Batch(Work::Planted, Durability::Batch, seed);
            let removal = Step::Batch(Work::Removal, Durability::Batch, seed);
            vec![
                small(seed),
                removal,
                planted(seed + 1),
                planted(seed + 2),
                small(seed + 3),
                rot(0, FileKind::Segment, seed),
                Step::IndexLost(0),
                Step::RebuildIndex,
            ]
        });
    }
}

#[test]
fn what_is_adopted_from_one_copy_bears_as_many_losses_as_the_rest() {
    for shape in [Shape::Mirror, Shape::Raid5, Shape::Triple, Shape::FourAlike] {
        for device in 0..shape.geometry().record_devices().count() {
            keeps(shape, |seed| {
                let unacknowledged = Step::Batch(Work::Small, Durability::None, seed);
                let rename = Step::Batch(Work::Rename, Durability::Each, seed);
                let power = Step::PowerFailure(Random::new(seed).any());
                vec![unacknowledged, power, rename, Step::Check, Step::Close, gone(device), Step::Look]
            });
        }
    }
}

#[test]
fn the_number_of_an_extent_file_that_was_given_back_is_not_given_again() {
    for shape in [Shape::One, Shape::FourAlike] {
        for operations in 0..16 {
            keeps(shape, |seed| {
                let left = cut(operations, End::Kill, large(seed));
                vec![left, Step::Compact, large(seed + 1), Step::PowerFailure(seed), Step::Compact, large(seed + 2)]
            });
        }
    }
}

#[test]
fn a_segment_that_a_crash_left_without_anything_is_not_missed_when_the_next_is_gone() {
    for shape in [Shape::One, Shape::Mirror, Shape::Raid5] {
        keeps(shape, |seed| {
            let unacknowledged = Step::Batch(Work::Small, Durability::None, seed);
            let power = Step::PowerFailure(Random::new(seed).any());
            let removal = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
            let steps = vec![unacknowledged, power, small(seed), removal, Step::Kill, small(seed + 1), Step::Compact];
            [steps, vec![Step::Close, Step::IndexLost(0), Step::IndexLost(1), Step::RebuildIndex]].concat()
        });
    }
}

#[test]
fn a_segment_without_a_batch_hides_nothing_that_was_released() {
    for shape in [Shape::One, Shape::Mirror, Shape::Aligned] {
        // The writer is killed before each operation of the batch that begins a segment.
        for operations in 0..8 {
            keeps(shape, |seed| {
                let removal = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
                let mut steps = vec![small(seed), removal, Step::Kill, small(seed + 1), Step::Compact];
                steps.extend([Step::Kill, Step::Open, cut(operations, End::Kill, small(seed + 2))]);
                steps.extend([Step::RebuildIndex, Step::Compact, Step::Check]);
                steps
            });
        }
    }
}

#[test]
fn an_empty_segment_of_a_killed_writer_goes_before_the_one_that_skips_it() {
    for shape in [Shape::One, Shape::Mirror] {
        // The writer is killed before each operation that begins a segment, and its follower while it gives space back.
        for operations in 0..16 {
            keeps(shape, |seed| {
                let begun = cut(operations, End::Kill, small(seed));
                let removal = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
                let compaction = cut(seed * 3, End::Kill, Step::Compact);
                vec![
                    small(seed),
                    Step::Kill,
                    Step::Open,
                    begun,
                    small(seed),
                    Step::Kill,
                    removal,
                    compaction,
                    Step::Check,
                ]
            });
        }
    }
}

#[test]
fn a_scrub_writes_a_place_again_that_cannot_be_read() {
    for shape in [Shape::Mirror, Shape::Aligned, Shape::FourAlike] {
        keeps(shape, |seed| {
            let unreadable = Step::Rot(0, FileKind::Segment, Rot::Unreadable, seed);
            vec![small(seed), large(seed + 1), small(seed + 2), unreadable, Step::Scrub, Step::Check]
        });
    }
}

#[test]
fn all_away_and_a_failed_opening_and_all_back() {
    for shape in [Shape::Mirror, Shape::Raid5, Shape::FourAlike] {
        keeps(shape, |seed| {
            let fast = 0..shape.geometry().devices.len();
            let mut steps = vec![small(seed), large(seed), Step::Close];
            steps.extend(fast.clone().map(gone));
            steps.extend([Step::Open, Step::Repair, Step::RebuildIndex]);
            steps.extend(fast.map(Step::Back));
            steps.extend([Step::Open, small(seed + 1), Step::Close, Step::Repair]);
            steps
        });
    }
}

#[test]
fn the_first_devices_are_away_for_a_minute() {
    keeps(Shape::Raid5, |seed| {
        let mut steps = vec![small(seed), large(seed), Step::Close, gone(0), gone(1), small(seed + 1), Step::Close];
        steps.extend([Step::Back(0), Step::Back(1), Step::Repair, small(seed + 2)]);
        steps
    });
}

#[test]
fn recovery_crashes_again_and_again_each_time_with_another_device_away() {
    for shape in [Shape::Raid5, Shape::Triple, Shape::FourAlike] {
        keeps(shape, |seed| {
            let devices = shape.geometry().devices.len();
            let mut steps = vec![small(seed), large(seed), cut(seed * 3, End::Power(seed), small(seed + 1))];
            for device in 0..devices {
                steps.push(gone(device));
                steps.push(cut(1 + seed * device as u64, End::Power(seed + 7), Step::Open));
                steps.push(Step::Back(device));
            }
            steps.extend([Step::Open, small(seed + 2)]);
            steps
        });
    }
}

#[test]
fn a_reader_shows_the_tail_of_a_killed_writer_and_the_power_fails() {
    for shape in Shape::ALL {
        keeps(shape, |seed| {
            let tail = Step::Batch(Work::Any, Durability::None, seed + 1);
            vec![
                small(seed),
                tail.clone(),
                Step::Kill,
                Step::Look,
                Step::PowerFailure(seed),
                Step::Open,
                tail,
                cut(2 * seed, End::Kill, large(seed)),
                Step::Look,
                Step::PowerFailure(seed + 1),
                small(seed + 3),
            ]
        });
    }
}

#[test]
fn a_sync_fails_once_and_its_pages_are_dropped() {
    for shape in Shape::ALL {
        for round in 0..3 {
            keeps(shape, |seed| {
                // Each of the first twelve operations, with each shape.
                let operations = (4 * round + seed) % 12;
                vec![
                    small(seed),
                    Step::Fails(seed as usize % shape.geometry().devices.len(), operations),
                    large(seed + 1),
                    small(seed + 2),
                    Step::DropPages(seed),
                    small(seed + 3),
                    Step::Kill,
                    Step::Open,
                    small(seed + 4),
                    Step::PowerFailure(seed),
                ]
            });
        }
    }
}

#[test]
fn a_tail_that_is_whole_on_one_copy_returns_after_the_writer_went_on() {
    for shape in [Shape::Mirror, Shape::Raid5, Shape::FourAlike, Shape::Triple] {
        keeps(shape, |seed| {
            vec![
                small(seed),
                cut(seed, End::Power(seed), large(seed + 1)),
                gone(seed as usize % 2),
                small(seed + 2),
                Step::Close,
                Step::Back(seed as usize % 2),
                small(seed + 3),
                Step::Close,
                Step::Repair,
                Step::Check,
            ]
        });
    }
}

#[test]
fn the_disk_is_full_when_the_log_is_recovered_and_closed() {
    for shape in Shape::ALL {
        keeps(shape, |seed| {
            let full = Step::Full(seed as usize % shape.geometry().devices.len(), seed % 5);
            vec![
                small(seed),
                large(seed + 1),
                cut(seed, End::Power(seed), small(seed + 2)),
                full.clone(),
                Step::Open,
                small(seed + 3),
                Step::Batch(Work::TreeRemoval, Durability::Batch, seed),
                Step::Close,
                Step::Open,
                Step::Room(seed as usize % shape.geometry().devices.len()),
                Step::Kill,
                small(seed + 4),
            ]
        });
    }
}

#[test]
fn a_tombstone_outlives_the_copies_of_what_it_removes() {
    for shape in [Shape::Mirror, Shape::Raid5, Shape::Triple, Shape::FourAlike] {
        keeps(shape, |seed| {
            let removal = Step::Batch(Work::Removal, Durability::Batch, seed);
            let device = seed as usize % shape.geometry().devices.len();
            let mut steps = vec![small(seed), small(seed + 1), Step::Close, gone(device)];
            steps.extend([removal.clone(), small(seed + 2), Step::Compact, removal, Step::Compact, Step::Close]);
            steps.extend([Step::Back(device), Step::Look, Step::RebuildIndex, Step::Close, Step::Repair]);
            steps.extend([Step::IndexLost(device), small(seed + 3)]);
            steps
        });
    }
}

#[test]
fn a_rebuild_is_interrupted_and_names_change_before_it_goes_on() {
    for written_bytes in (0..240_000).step_by(20_000) {
        keeps(Shape::Raid5, |seed| {
            let device = 2 + seed as usize % 3;
            let name = Step::Batch(Work::Rename, Durability::Batch, seed);
            let mut steps: Vec<Step> = (0..4).flat_map(|at| [small(seed + at), large(10 * seed + at)]).collect();
            let stopped = Step::Stopped(written_bytes, Box::new(Step::Rebuild(device)));
            steps.extend([Step::Close, gone(device), stopped, name, Step::Rebuild(device)]);
            steps.extend([Step::Check, Step::Close, gone(2 + (seed as usize + 1) % 3), Step::Look]);
            steps
        });
    }
}

#[test]
fn renames_cross_and_one_of_them_rots() {
    let crossing = |seed| Step::Batch(Work::Crossing, Durability::Batch, seed);
    for shape in [Shape::One, Shape::Mirror, Shape::Aligned] {
        for kind in [Rot::Bit, Rot::Unreadable] {
            for place in 0..8 {
                keeps(shape, |seed| {
                    let rot = |device| Step::Rot(device, FileKind::Segment, kind, 8 * seed + place);
                    let mut steps = vec![crossing(seed), crossing(seed), crossing(seed)];
                    steps.extend([Step::Close, rot(0), rot(1), Step::RebuildIndex, Step::Check, Step::Close]);
                    steps.extend([crossing(seed), crossing(seed), Step::Compact, Step::RebuildIndex, Step::Check]);
                    steps
                });
            }
        }
    }
}

#[test]
fn names_change_and_rot_takes_one_of_the_old() {
    let name = |seed| Step::Batch(Work::Rename, Durability::Batch, seed);
    for kind in [Rot::Bit, Rot::Unreadable] {
        keeps(Shape::One, |seed| {
            let mut steps = vec![small(seed), large(seed), large(seed + 1)];
            steps.extend((0..6).map(|at| name(10 * seed + at)));
            steps.extend([Step::Rot(0, FileKind::Segment, kind, seed), Step::RebuildIndex, Step::Check]);
            for at in 0..8 {
                steps.extend([Step::Batch(Work::Removal, Durability::Batch, seed + at), Step::Compact]);
            }
            steps.push(Step::Check);
            steps
        });
    }
}

#[test]
fn writes_that_were_lost_or_went_elsewhere_are_seen() {
    for shape in Shape::ALL {
        for kind in [FileKind::Segment, FileKind::Extent, FileKind::Superblock] {
            for goes_elsewhere in [false, true] {
                keeps(shape, |seed| {
                    let device = seed as usize % shape.geometry().devices.len();
                    vec![
                        small(seed),
                        Step::Betray(device, kind, goes_elsewhere),
                        large(seed + 1),
                        small(seed + 2),
                        Step::Kill,
                        Step::Open,
                        Step::Scrub,
                        Step::PowerFailure(seed),
                    ]
                });
            }
        }
    }
}

#[test]
fn an_old_index_beside_new_segments_is_brought_up_to_date() {
    for shape in Shape::ALL {
        keeps(shape, |seed| {
            let devices = 0..shape.geometry().devices.len();
            let mut steps = vec![small(seed)];
            steps.extend(devices.clone().map(Step::Keep));
            steps.extend([large(seed + 1), Step::Batch(Work::Removal, Durability::Batch, seed), Step::Compact]);
            steps.extend([small(seed + 2), Step::Close]);
            steps.extend(devices.map(Step::IndexOld));
            steps.extend([Step::Look, small(seed + 3), Step::Kill]);
            steps
        });
    }
}

#[test]
fn damaged_tables_are_read_past_at_opening() {
    for shape in [Shape::One, Shape::Mirror] {
        for kind in [Rot::Bit, Rot::Unreadable] {
            keeps(shape, |seed| {
                // More than an index has in memory when it is closed.
                let mut steps: Vec<_> = (0..24).map(|at| small(100 * seed + at)).collect();
                steps.push(Step::Close);
                let devices = 0..shape.geometry().devices.len();
                steps.extend(devices.map(|one| Step::Rot(one, FileKind::Table, kind, seed)));
                steps.extend([Step::Open, Step::Check, small(seed), Step::Close, Step::Look]);
                steps
            });
        }
    }
}

#[test]
fn an_opening_that_fails_leaves_a_renaming_as_it_is() {
    for operations in 0..24 {
        keeps(Shape::Mirror, |seed| {
            let unacknowledged = |at| Step::Batch(Work::Any, Durability::None, seed + at);
            // A recovery that renames files is interrupted.
            let mut steps = vec![unacknowledged(1), unacknowledged(2), Step::PowerFailure(seed)];
            steps.push(cut(operations, End::Kill, Step::Open));
            let unreadable = |device| Step::Rot(device, FileKind::Segment, Rot::Unreadable, seed);
            steps.extend([unreadable(0), unreadable(1), Step::Open, small(seed + 3), Step::Close, Step::Check]);
            steps
        });
    }
}

#[test]
fn one_device_alone_writes_then_the_other_alone_and_both_return() {
    for shape in [Shape::Mirror, Shape::Raid5] {
        keeps(shape, |seed| {
            let devices = shape.geometry().devices.len();
            // With as many batches on both sides, and with more on one.
            let counts = [1 + seed % 3, 1 + seed / 4 % 3];
            let mut steps = vec![small(seed), Step::Close];
            for (one, count) in counts.into_iter().enumerate() {
                let away: Vec<usize> = if devices == 2 { vec![1 - one] } else { vec![1 - one, 2 + one, 4] };
                steps.extend(away.iter().copied().map(gone));
                steps.push(Step::OpenDegraded);
                steps.extend((0..count).map(|batch| small(seed + 10 * one as u64 + batch)));
                steps.push(Step::Close);
                steps.extend(away.into_iter().map(Step::Back));
            }
            steps.extend([Step::Open, Step::Repair, Step::RebuildIndex, Step::Look]);
            steps
        });
    }
}

#[test]
fn most_devices_do_not_go_on_alone_after_the_side_of_the_others_was_taken() {
    keeps(Shape::Triple, |seed| {
        let others: Vec<usize> = (0..Shape::Triple.geometry().devices.len()).filter(|&device| device != 2).collect();
        let mut steps = vec![small(seed), Step::Close, gone(2), Step::OpenDegraded, small(seed + 1), Step::Close];
        steps.push(Step::Back(2));
        steps.extend(others.iter().copied().map(gone));
        steps.extend([Step::OpenDegraded, small(seed + 2), Step::Close]);
        steps.extend(others.into_iter().map(Step::Back));
        steps.extend([Step::Take(2), gone(2), Step::Open, Step::Back(2), Step::Open, Step::Repair, Step::RebuildIndex]);
        steps
    });
}

#[test]
fn a_choice_that_is_interrupted_leaves_no_place_in_the_other_log() {
    keeps(Shape::Triple, |seed| {
        let devices = Shape::Triple.geometry().devices.len();
        let (one, other): (Vec<usize>, Vec<usize>) = (0..devices).partition(|device| [1, 5, 6].contains(device));
        let mut steps = vec![small(seed), Step::Kill];
        for (away, end) in [(one, Step::PowerFailure(seed)), (other, Step::Close)] {
            steps.extend(away.iter().copied().map(gone));
            steps.extend([Step::OpenDegraded, end]);
            steps.extend(away.into_iter().map(Step::Back));
        }
        steps.extend([cut(1 + seed % 6, End::Power(seed), Step::Take(2)), Step::Accept, Step::RebuildIndex]);
        steps
    });
}

#[test]
fn a_choice_that_was_interrupted_is_made_again_and_stays() {
    keeps_with(24, Shape::Mirror, |seed| {
        let mut steps = vec![small(seed), Step::Close];
        for away in [1, 0] {
            steps.extend([gone(away), Step::OpenDegraded, Step::Close, Step::Back(away)]);
        }
        let taken = (seed % 2) as usize;
        steps.push(cut(1 + seed / 2 % 4, End::Kill, Step::Take(taken)));
        steps.extend([gone(1 - taken), Step::Back(1 - taken), Step::Open, Step::PowerFailure(seed), Step::Open]);
        steps
    });
    // Of three that were rejected, some know it.
    keeps_with(24, Shape::Triple, |seed| {
        let others = [1, 2, 3, 4, 6];
        let mut steps = vec![small(seed), Step::Close, gone(0), gone(5), gone(7), Step::OpenDegraded, Step::Close];
        steps.extend([0, 5, 7].map(Step::Back));
        steps.extend(others.map(gone));
        steps.extend([Step::OpenDegraded, small(seed + 1), Step::Close]);
        steps.extend(others.map(Step::Back));
        let rejected = [0, 5, 7][(seed % 3) as usize];
        steps.extend([cut(1 + seed / 3 % 8, End::Kill, Step::Take(6)), gone(rejected), Step::Look]);
        steps
    });
}

#[test]
fn what_a_rejected_side_wrote_need_not_be_readable() {
    keeps_with(48, Shape::Aligned, |seed| {
        let place = 13029506561499781680u64.wrapping_add((seed / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut steps = vec![Step::Batch(Work::Any, Durability::None, seed), Step::Close, gone(1), Step::OpenDegraded];
        steps.extend([Step::Batch(Work::Snapshot, Durability::None, seed + 1), Step::Close]);
        steps.extend([Step::Back(1), gone(0), Step::OpenDegraded, Step::Back(0)]);
        steps.extend([cut(8, End::Power(seed), Step::Take(1))]);
        steps.extend([Step::Rot(0, FileKind::Segment, Rot::Unreadable, place), Step::Open, Step::Repair]);
        steps
    });
}

#[test]
fn a_rebuild_reads_copies_that_the_index_does_not_know_of() {
    // The index was built while device 0 was away, and what a repair noted of its copies is rotten.
    keeps_with(24, Shape::Mirror, |seed| {
        let written = Step::Batch(Work::Write, Durability::Batch, seed);
        let mut steps = vec![written, cut(20 + seed / 4, End::Power(seed), Step::Open), gone(0), Step::OpenDegraded];
        steps.extend([Step::Back(0), Step::Accept, rot(0, FileKind::Journal, seed << 60), gone(1), Step::GiveUp(1)]);
        steps
    });
}

#[test]
fn what_only_a_device_that_is_away_has_intact_is_not_given_up() {
    // Its record has an intact head on the other, so it is known what is lost; the index is behind the log.
    keeps_with(48, Shape::FourAlike, |seed| {
        let last = Step::Batch(Work::Write, Durability::Batch, seed + 1);
        let lost = 2 + (seed / 3 % 2) as usize;
        let (away, rotten) = (gone(lost), rot(5 - lost, FileKind::Segment, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let next = [Step::Open, Step::Rebuild(lost), Step::GiveUp(lost)][(seed % 3) as usize].clone();
        vec![
            small(seed),
            last,
            Step::PowerFailure(seed),
            away,
            rotten,
            next,
            Step::Close,
            Step::Back(lost),
            Step::Repair,
        ]
    });
}

#[test]
fn a_rebuild_that_was_killed_goes_on_and_the_power_fails() {
    keeps_with(120, Shape::Mirror, |seed| {
        let given_up = cut(1 + seed, End::Kill, Step::GiveUp(0));
        vec![small(seed), Step::Close, gone(0), given_up, Step::GiveUp(0), Step::PowerFailure(seed), Step::Look]
    });
}

#[test]
fn what_was_only_on_two_lost_devices_is_missed_after_one_was_rebuilt() {
    keeps(Shape::FourAlike, |seed| {
        let (one, other) = ((seed % 4) as usize, (seed / 4 % 3 + seed + 1) as usize % 4);
        let other = if one == other { (one + 1) % 4 } else { other };
        vec![
            small(seed),
            gone(one),
            Step::PowerFailure(seed),
            gone(other),
            Step::GiveUp(other),
            Step::Close,
            Step::Look,
        ]
    });
}

#[test]
fn a_copy_that_is_replaced_keeps_what_follows_the_log() {
    keeps_with(60, Shape::Raid5, |seed| {
        let torn = Step::Batch(Work::Write, Durability::None, seed);
        vec![small(seed), torn, Step::PowerFailure(seed), gone(1), Step::OpenDegraded, Step::Back(1), Step::Repair]
    });
}

#[test]
fn a_snapshot_has_a_tree_that_was_removed_and_a_sweep_is_interrupted() {
    let tree = |seed| Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
    let snapshot = |seed| Step::Batch(Work::Snapshot, Durability::Batch, seed);
    for shape in [Shape::One, Shape::Mirror, Shape::Raid5] {
        keeps(shape, |seed| {
            let mut steps = vec![small(seed), large(seed + 1), small(seed + 2), snapshot(seed)];
            steps.extend([tree(seed), tree(seed + 1), small(seed + 3), Step::Compact, Step::IndexLost(0)]);
            // One of three names is drawn: the first one again, or another.
            steps.extend([Step::Close, Step::RebuildIndex, Step::Check, snapshot(seed + 1), tree(seed + 2)]);
            let ends = [End::Kill, End::Power(seed)];
            for (at, end) in (0..).zip(ends.into_iter().cycle().take(6)) {
                steps.extend([cut(seed + 4 * at, end, snapshot(seed)), Step::Open]);
            }
            steps.extend([Step::IndexLost(0), Step::RebuildIndex, Step::Check, Step::Compact, Step::Check]);
            steps
        });
    }
}

#[test]
fn snapshots_outlive_compaction_and_the_index() {
    for shape in [Shape::Mirror, Shape::FourAlike, Shape::Aligned] {
        keeps(shape, |seed| {
            let mut steps = Vec::new();
            for turn in 0..4 {
                let seed = seed + 10 * turn;
                steps.extend([small(seed), large(seed), Step::Batch(Work::Snapshot, Durability::Batch, seed)]);
                let works = [Work::Rename, Work::Write, Work::Removal, Work::Write, Work::Any];
                steps.extend(works.map(|work| Step::Batch(work, Durability::Batch, seed)));
                steps.extend([Step::Compact, Step::Close, Step::RebuildIndex, Step::Check, Step::Close]);
            }
            steps
        });
    }
}
