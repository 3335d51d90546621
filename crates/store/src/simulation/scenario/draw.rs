//! A random scenario from a seed.
//!
//! Workloads end at any operation: nothing is made durable or closed before a device disappears or the power fails,
//! unless by chance. Faults within redundancy are drawn often, most often one loss together with one damaged place.

use super::super::mishap::{Absence, FileKind, Rot};
use super::super::workload::Durability;
use super::{End, Scenario, Shape, Step, Work};
use crate::format::geometry::Class;
use crate::random::Random;

/// Most steps of a scenario.
const MOST_STEPS: u64 = 12;

/// The scenario of a seed.
pub(crate) fn draw(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let shape = *random.pick(&Shape::ALL);
    let devices = shape.geometry().devices;
    let fast = devices.iter().filter(|device| device.class == Class::Fast).count();
    let mut draw = Draw { devices: devices.len(), fast, random };
    let mut steps = vec![draw.batch()];
    for _ in 0..2 + draw.random.below(MOST_STEPS - 2) {
        draw.next(&mut steps);
    }
    Scenario { shape, seed, steps }
}

struct Draw {
    random: Random,
    devices: usize,
    /// The first of them, which are fast.
    fast: usize,
}

impl Draw {
    fn next(&mut self, steps: &mut Vec<Step>) {
        let step = match self.random.below(33) {
            0..9 => self.batch(),
            9 => Step::Sync,
            10 => Step::Close,
            11..13 => Step::Kill,
            13..15 => Step::PowerFailure(self.random.any()),
            15..18 => {
                let step = self.cuttable();
                let end = if self.random.happens(1, 3) { End::Kill } else { End::Power(self.random.any()) };
                Step::Cut(self.random.below(60), end, Box::new(step))
            }
            18..21 => {
                let device = self.device();
                steps.push(Step::Away(device, self.absence()));
                if self.random.happens(1, 2) {
                    steps.push(self.rot());
                }
                self.maintenance_or_work(device)
            }
            21..23 => Step::Back(self.device()),
            23 => self.rot(),
            24 => {
                let device = self.device();
                steps.extend([Step::Keep(device), self.batch(), self.batch()]);
                if self.random.happens(1, 2) { Step::Restore(device) } else { Step::IndexOld(device) }
            }
            25 => Step::IndexLost(self.device()),
            26 => {
                let device = self.device();
                steps.extend([Step::Full(device, self.random.below(12)), self.batch(), self.cuttable()]);
                Step::Room(device)
            }
            27 => {
                steps.extend([Step::Fails(self.device(), self.random.below(40)), self.batch(), self.batch()]);
                Step::DropPages(self.random.any())
            }
            28 if self.random.happens(1, 3) => {
                Step::Betray(self.device(), FileKind::Segment, self.random.happens(1, 2))
            }
            28 => match self.random.below(4) {
                0 => Step::Move,
                1 => Step::Copy,
                _ => Step::Swap(self.device(), self.device()),
            },
            29 => {
                self.overflow(steps);
                return;
            }
            30 => Step::Pin(self.random.happens(2, 3)),
            _ => self.cuttable(),
        };
        steps.push(step);
    }

    /// Records overflow to slow devices, and return as far as fast ones get room.
    fn overflow(&mut self, steps: &mut Vec<Step>) {
        let full = self.random.below(4);
        steps.extend((0..self.fast).map(|device| Step::Full(device, full)));
        for _ in 0..1 + self.random.below(3) {
            steps.push(self.batch());
        }
        let room = self.random.below(60);
        steps.extend((0..self.fast).map(|device| Step::Full(device, room)));
        steps.push(match self.random.below(4) {
            0 => Step::Cut(self.random.below(60), End::Power(self.random.any()), Box::new(Step::Rebalance)),
            _ => Step::Rebalance,
        });
        steps.extend((0..self.fast).map(Step::Room));
        steps.push(self.random.pick(&[Step::Rebalance, Step::RebuildIndex, Step::Check]).clone());
    }

    fn device(&mut self) -> usize {
        self.random.index(self.devices)
    }

    fn absence(&mut self) -> Absence {
        *self.random.pick(&[Absence::Unmounted, Absence::Unmounted, Absence::Missing, Absence::Failing])
    }

    fn batch(&mut self) -> Step {
        let work = *self.random.pick(&[
            Work::Any,
            Work::Any,
            Work::Small,
            Work::Small,
            Work::Large,
            Work::Large,
            Work::Removal,
            Work::TreeRemoval,
            Work::Rename,
            Work::Write,
            Work::Write,
            Work::Snapshot,
            Work::Planted,
        ]);
        let durability = *self.random.pick(&[Durability::Batch, Durability::Batch, Durability::Each, Durability::None]);
        Step::Batch(work, durability, self.random.any())
    }

    fn rot(&mut self) -> Step {
        let kind = *self.random.pick(&[
            FileKind::Segment,
            FileKind::Segment,
            FileKind::Extent,
            FileKind::Extent,
            FileKind::Superblock,
            FileKind::Manifest,
            FileKind::Journal,
            FileKind::Table,
        ]);
        let rot = if self.random.happens(2, 3) { Rot::Bit } else { Rot::Unreadable };
        Step::Rot(self.device(), kind, rot, self.random.any())
    }

    fn cuttable(&mut self) -> Step {
        match self.random.below(14) {
            0..4 => self.batch(),
            4 => Step::Sync,
            5 => Step::Close,
            6 => Step::Open,
            7 => Step::Scrub,
            8 => Step::Repair,
            9 => Step::Compact,
            10 => Step::RebuildIndex,
            11 => Step::Pin(self.random.happens(1, 2)),
            12 => Step::Rebalance,
            _ => Step::Check,
        }
    }

    fn maintenance_or_work(&mut self, device: usize) -> Step {
        match self.random.below(6) {
            0 if self.random.happens(1, 2) => {
                Step::RebuildInTwo(device, self.random.below(100_000), Box::new(self.batch()))
            }
            0 => Step::Rebuild(device),
            1 => Step::Repair,
            2 => Step::Back(device),
            3 => Step::RebuildIndex,
            _ => self.batch(),
        }
    }
}
