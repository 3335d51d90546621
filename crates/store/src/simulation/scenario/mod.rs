//! Scenarios: steps over a store and a world that varies, as plain data; and the laws of docs/FORMAT.md, section 3, checked after each step.
//!
//! | module | subject |
//! | --- | --- |
//! | [`draw`] | a random scenario from a seed |
//! | [`promise`] | which faults there are, and whether the geometry bears them |
//! | [`look`] | what a store shows, and what it says of it |
//! | [`laws`] | what must be so after each step |
//! | [`play`] | the steps one after the other |
//! | [`shrink`] | of a scenario that fails, the fewest steps that still do |
//!
//! A step that makes no sense where it stands (a device comes back that was not away) does nothing, so that steps can be left out one by one. What a batch
//! has follows from the seed of its step and from what the store has then. The same scenario always goes the same way.

use std::fmt;

use super::mishap::{Absence, FileKind, Rot};
use super::subject::geometry;
use super::workload::Durability;
use crate::Geometry;
use crate::format::geometry::Alignment;

pub(crate) mod draw;
pub(crate) mod laws;
pub(crate) mod look;
pub(crate) mod play;
pub(crate) mod promise;
pub(crate) mod shrink;

mod disasters;
mod named;
mod random;

/// The devices of a store, and its redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One directory.
    One,
    /// Two fast devices, records and units on both.
    Mirror,
    /// Two fast devices with copies of records, three slow ones with one parity unit.
    Raid5,
    /// Three fast devices with copies of records, five slow ones with two parity units.
    Triple,
    /// Four devices of one class, two copies, one parity unit.
    FourAlike,
    /// As `Mirror`, with content at multiples of 512 bytes, or after each second compaction of 4,096.
    Aligned,
}

impl Shape {
    /// All there are.
    pub(crate) const ALL: [Shape; 6] =
        [Shape::One, Shape::Mirror, Shape::Raid5, Shape::Triple, Shape::FourAlike, Shape::Aligned];

    /// The geometry of a store.
    pub(crate) fn geometry(self) -> Geometry {
        match self {
            Shape::One => geometry(1, 0, 1, (1, 0)),
            Shape::Mirror => geometry(2, 0, 2, (1, 1)),
            Shape::Raid5 => geometry(2, 3, 2, (2, 1)),
            Shape::Triple => geometry(3, 5, 3, (3, 2)),
            Shape::FourAlike => geometry(4, 0, 2, (3, 1)),
            Shape::Aligned => Geometry { alignment: Alignment::Sector, ..Shape::Mirror.geometry() },
        }
    }
}

/// What a batch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Anything.
    Any,
    /// Small objects.
    Small,
    /// Large objects.
    Large,
    /// One removal.
    Removal,
    /// The removal of a tree.
    TreeRemoval,
    /// Another name for something, or for two things.
    Rename,
    /// Of these the next: two directories, one in the other; the inner one comes out; the outer one goes into it; and again.
    Crossing,
    /// A file that is there is written to or gets another length.
    Write,
    /// A snapshot is taken, or one is removed.
    Snapshot,
    /// An object whose content is a copy of the log so far.
    Planted,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It is killed.
    Kill,
    /// The power fails; what is left follows from a seed.
    Power(u64),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A writer opens the store.
    Open,
    /// As `Open`, with fewer devices than the proof wants.
    OpenDegraded,
    /// A batch by the writer, which is opened if there is none.
    Batch(Work, Durability, u64),
    /// All is made durable.
    Sync,
    /// The writer closes.
    Close,
    /// The writer is killed.
    Kill,
    /// The power fails.
    PowerFailure(u64),
    /// A step that is interrupted at an operation of its devices.
    Cut(u64, End, Box<Step>),
    /// A device goes.
    Away(usize, Absence),
    /// It comes back as it went.
    Back(usize),
    /// The device is kept as it is, for later.
    Keep(usize),
    /// The device becomes what was kept.
    Restore(usize),
    /// Two devices are put in each other's place; a second time, back.
    Swap(usize, usize),
    /// The home and all devices move to another directory.
    Move,
    /// They are copied to another directory, and somebody writes to the copy.
    Copy,
    /// A place in files of a kind goes bad on a device.
    Rot(usize, FileKind, Rot, u64),
    /// The index of a device is lost.
    IndexLost(usize),
    /// The index of a device becomes what was kept.
    IndexOld(usize),
    /// A device is full but for so many blocks.
    Full(usize, u64),
    /// It has room again.
    Room(usize),
    /// So many operations from now, something fails on a device once: a sync, if it is one.
    Fails(usize, u64),
    /// What failed syncs left in memory alone is dropped.
    DropPages(u64),
    /// The next write to a file of a kind on a device is acknowledged and not done, or done elsewhere.
    Betray(usize, FileKind, bool),
    /// A scrub by the writer.
    Scrub,
    /// A repair.
    Repair,
    /// A device is rebuilt onto another directory.
    Rebuild(usize),
    /// Space is given back.
    Compact,
    /// What there is is pinned by name, or the pin released.
    Pin(bool),
    /// Everything is verified, and nothing may be wrong if nothing was done to it.
    Check,
    /// The index is made again from the log.
    RebuildIndex,
    /// Somebody looks.
    Look,
}

/// A store and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// Its devices.
    pub(crate) shape: Shape,
    /// What chance follows from.
    pub(crate) seed: u64,
    /// One after the other.
    pub(crate) steps: Vec<Step>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} with seed {}:", self.shape, self.seed)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}
