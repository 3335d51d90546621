//! The disasters of the first format, as far as steps can express them. Integration tests cover the others: tests/it.

use super::super::mishap::FileKind;
use super::super::workload::Durability;
use super::named::{gone, keeps, large, rot, small};
use super::{End, Shape, Step, Work};

/// A device is rebuilt while another has one damaged place that redundancy can repair.
#[test]
fn disaster_1_a_rebuild_beside_one_rotten_unit() {
    keeps(Shape::Raid5, |seed| {
        let slow = 2 + seed as usize % 3;
        let mut steps = vec![small(seed), large(seed + 1), large(seed + 2), Step::Close];
        steps.extend([gone(0), rot(slow, FileKind::Extent, seed), Step::Rebuild(0), Step::Close, Step::Repair]);
        steps
    });
}

/// The last batches are large files, and a device is missing.
#[test]
fn disaster_2_an_import_that_ends_with_large_files() {
    for shape in [Shape::FourAlike, Shape::Raid5, Shape::Triple] {
        keeps(shape, |seed| {
            let device = seed as usize % shape.geometry().devices.len();
            let steps = vec![small(seed), large(seed + 1), large(seed + 2), Step::Kill];
            let rest =
                [gone(device), Step::RebuildIndex, small(seed + 3), Step::Close, Step::Back(device), Step::Repair];
            [steps, rest.to_vec()].concat()
        });
    }
}

/// All fast devices are empty mount points for a minute.
#[test]
fn disaster_3_no_fast_device_is_mounted() {
    keeps(Shape::Raid5, |seed| {
        let steps = vec![small(seed), large(seed + 1), Step::Close, gone(0), gone(1), Step::Look, small(seed + 2)];
        let rest = [Step::Close, Step::Back(0), Step::Back(1), Step::Repair, Step::Look, small(seed + 3)];
        [steps, rest.to_vec()].concat()
    });
}

/// One flipped bit, and the index is rebuilt.
#[test]
fn disaster_4_one_flipped_bit_and_the_index_made_again() {
    for shape in Shape::ALL {
        for kind in [FileKind::Segment, FileKind::Extent] {
            keeps(shape, |seed| {
                let steps = vec![small(seed), small(seed + 1), large(seed + 2), small(seed + 3), large(seed + 4)];
                let last = shape.geometry().devices.len() - 1;
                let devices = 0..=last;
                let lost = devices.map(Step::IndexLost).collect();
                let device = if kind == FileKind::Segment { 0 } else { last };
                [steps, vec![Step::Kill, rot(device, kind, seed)], lost, vec![small(seed + 5), Step::RebuildIndex]]
                    .concat()
            });
        }
    }
}

/// The index is stale, and a device is missing at the first open.
#[test]
fn disaster_4_an_old_index_and_a_device_that_is_not_mounted() {
    keeps(Shape::Raid5, |seed| {
        let steps = vec![small(seed), Step::Close, Step::Keep(0), Step::Keep(1), large(seed + 1), large(seed + 2)];
        let rest =
            [Step::Kill, gone(3), Step::IndexOld(0), Step::IndexOld(1), small(seed + 3), Step::Back(3), Step::Close];
        [steps, rest.to_vec()].concat()
    });
}

/// One flipped bit in the index, and space is freed.
#[test]
fn disaster_5_one_flipped_bit_in_the_index() {
    for shape in Shape::ALL {
        for kind in [FileKind::Manifest, FileKind::Journal, FileKind::Table] {
            keeps(shape, |seed| {
                let steps = vec![small(seed), large(seed + 1), Step::Close, rot(0, kind, seed), Step::Look];
                [steps, vec![Step::Compact, Step::Check, Step::Close, Step::Repair, small(seed + 2)]].concat()
            });
        }
    }
}

/// A store is copied and the copy written to; another is moved.
#[test]
fn disaster_7_a_copy_that_writes_to_the_original_and_a_move_that_is_not_found() {
    for shape in Shape::ALL {
        keeps(shape, |seed| {
            let mut steps = vec![small(seed), large(seed + 1), Step::Close, Step::Copy, Step::Move, small(seed + 2)];
            steps.extend([Step::Close, Step::Copy, gone(0), Step::Move, Step::Back(0), Step::Open, large(seed + 3)]);
            steps
        });
    }
}

/// A failure while the index is rebuilt.
#[test]
fn disaster_9_a_failure_while_the_index_is_made() {
    for shape in [Shape::One, Shape::Mirror] {
        for operations in 0..24 {
            keeps(shape, |seed| {
                let end = if seed % 2 == 0 { End::Kill } else { End::Power(seed) };
                let steps = vec![small(seed), large(seed + 1), Step::Close, Step::IndexLost(0), Step::IndexLost(1)];
                let cut = Step::Cut(operations, end, Box::new(Step::RebuildIndex));
                [steps, vec![cut, Step::Look, small(seed + 2)]].concat()
            });
        }
    }
}

/// Content that is a valid record, and one rotten bit before it.
#[test]
fn disaster_12_content_becomes_log() {
    keeps(Shape::One, |seed| {
        let tree = Step::Batch(Work::TreeRemoval, Durability::Batch, seed);
        let planted = Step::Batch(Work::Planted, Durability::Batch, seed);
        let steps = vec![small(seed), tree, small(seed + 1), small(seed + 2), planted, small(seed + 3), Step::Close];
        [steps, vec![rot(0, FileKind::Segment, seed), Step::IndexLost(0), Step::RebuildIndex]].concat()
    });
}

/// The home is separate, all devices are missing, and a writer opens.
#[test]
fn disaster_13_a_failed_opening_writes() {
    keeps(Shape::Mirror, |seed| {
        let steps = vec![small(seed), Step::Close, gone(0), gone(1), Step::Open, small(seed + 1), Step::Open];
        [steps, vec![Step::Back(0), Step::Back(1), small(seed + 2), Step::Close, Step::Repair]].concat()
    });
}
