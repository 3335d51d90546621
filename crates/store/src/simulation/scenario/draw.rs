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
    let mut steps = Vec::new();
    if draw.random.happens(7, 8) {
        steps.push(draw.batch());
    }
    for _ in 0..2 + draw.random.below(MOST_STEPS - 2) {
        draw.next(&mut steps);
    }
    // Of a chance of its own: the rest is what it was before there were such steps.
    draw.random = Random::new(!seed);
    if draw.random.happens(1, 3) {
        let (at, passing) = (draw.random.index(steps.len() + 1), draw.passing());
        steps.splice(at..at, passing);
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
        let step = match self.random.below(39) {
            0..9 => self.batch(),
            9 => Step::Sync,
            10 => Step::Close,
            11..13 => Step::Kill,
            13..15 => Step::PowerFailure(self.random.any()),
            15..18 => {
                let (step, end) = (self.cuttable(), self.process_end());
                Step::Cut(self.random.below(60), end, Box::new(step))
            }
            18..21 => {
                let device = self.device();
                steps.push(Step::Away(device, self.absence()));
                if self.random.happens(1, 2) {
                    steps.push(self.rot());
                }
                self.maintenance_or_work(device, steps)
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
                let (first, second) = if self.random.happens(1, 2) {
                    (self.batch(), self.batch())
                } else {
                    (self.maintenance(), self.maintenance())
                };
                steps.extend([Step::Fails(self.device(), self.random.below(40)), first, second]);
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
            31..33 => {
                self.parted(steps);
                return;
            }
            33..35 => {
                self.given_up(steps);
                return;
            }
            35..37 => {
                let step = self.maintenance();
                steps.push(Step::Stopped(self.random.below(100_000), Box::new(step.clone())));
                if self.random.happens(1, 2) { step } else { self.batch() }
            }
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

    /// Some devices go on without the others, then the others without them, and one side is taken.
    fn parted(&mut self, steps: &mut Vec<Step>) {
        let all = 0..self.devices;
        let is_one =
            if self.devices == 2 { vec![true, false] } else { all.map(|_| self.random.happens(2, 3)).collect() };
        for side in [true, false] {
            let away: Vec<usize> =
                (0..).zip(&is_one).filter(|(_, is_one)| **is_one != side).map(|(at, _)| at).collect();
            steps.push(self.end());
            steps.extend(away.iter().map(|at| Step::Away(*at, Absence::Unmounted)));
            steps.push(Step::OpenDegraded);
            for _ in 0..1 + self.random.below(3) {
                steps.push(if self.random.happens(2, 3) { self.batch() } else { self.cuttable() });
            }
            steps.push(self.end());
            steps.extend(away.into_iter().map(Step::Back));
        }
        if self.random.happens(1, 4) {
            steps.push(self.cuttable());
        }
        let take = Step::Take(self.device());
        steps.push(match self.random.below(3) {
            0 => Step::Cut(self.random.below(12), self.process_end(), Box::new(take)),
            _ => take,
        });
        steps.push(match self.random.below(3) {
            0 => Step::Accept,
            1 => Step::Repair,
            _ => self.cuttable(),
        });
    }

    /// A device is gone, another is damaged, and what only the first has is given up.
    fn given_up(&mut self, steps: &mut Vec<Step>) {
        let device = self.device();
        if self.random.happens(1, 2) {
            steps.push(self.end());
        }
        steps.push(Step::Away(device, self.absence()));
        for _ in 0..self.random.below(3) {
            steps.push(self.rot());
        }
        let give_up = Step::GiveUp(device);
        steps.push(match self.random.below(4) {
            0 => Step::Stopped(self.random.below(60_000), Box::new(give_up.clone())),
            1 => Step::Cut(self.random.below(60), self.process_end(), Box::new(give_up.clone())),
            2 => self.batch(),
            _ => give_up.clone(),
        });
        steps.push(give_up);
        if self.random.happens(1, 3) {
            steps.push(self.cuttable());
        }
        steps.push(Step::DropLost);
        if self.random.happens(2, 3) {
            steps.push(Step::Accept);
        }
    }

    /// Something that passes.
    fn passing(&mut self) -> Vec<Step> {
        let device = self.device();
        match self.random.below(3) {
            0 => {
                let kinds = [FileKind::Segment, FileKind::Segment, FileKind::Extent, FileKind::Table];
                let (kind, reads) = (*self.random.pick(&kinds), (self.random.below(8), 1 + self.random.below(4)));
                vec![Step::Unread(device, kind, self.random.any(), reads), self.maintenance()]
            }
            1 => {
                let blocks = self.random.below(12);
                vec![Step::Quota(device, blocks), self.batch(), self.cuttable(), Step::Room(device)]
            }
            _ => {
                let operations = (self.random.below(80), 1 + self.random.below(30));
                vec![Step::Outage(device, operations, Box::new(self.maintenance()))]
            }
        }
    }

    fn end(&mut self) -> Step {
        match self.random.below(4) {
            0 => Step::Kill,
            1 => Step::PowerFailure(self.random.any()),
            _ => Step::Close,
        }
    }

    fn process_end(&mut self) -> End {
        if self.random.happens(1, 3) { End::Kill } else { End::Power(self.random.any()) }
    }

    /// What can be stopped, and meets errors.
    fn maintenance(&mut self) -> Step {
        let device = self.device();
        let all = [
            Step::Compact,
            Step::Compact,
            Step::Rebalance,
            Step::Scrub,
            Step::Repair,
            Step::DropLost,
            Step::Accept,
            Step::Rebuild(device),
            Step::GiveUp(device),
        ];
        self.random.pick(&all).clone()
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
        let of_bytes = if self.random.happens(2, 3) { Rot::Bit } else { Rot::Unreadable };
        let (device, place) = (self.device(), self.random.any());
        let rot = match place % 12 {
            0 => Rot::Cut,
            1 => Rot::Emptied,
            2 => Rot::Gone,
            _ => of_bytes,
        };
        Step::Rot(device, kind, rot, place)
    }

    fn cuttable(&mut self) -> Step {
        match self.random.below(16) {
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
            13 => Step::DropLost,
            14 => Step::Accept,
            _ => Step::Check,
        }
    }

    fn maintenance_or_work(&mut self, device: usize, steps: &mut Vec<Step>) -> Step {
        match self.random.below(6) {
            0 if self.random.happens(1, 4) => {
                steps.push(Step::Stopped(self.random.below(100_000), Box::new(Step::Rebuild(device))));
                steps.push(self.batch());
                Step::Rebuild(device)
            }
            0 => Step::Rebuild(device),
            1 => Step::Repair,
            2 => Step::Back(device),
            3 => Step::RebuildIndex,
            _ => self.batch(),
        }
    }
}
