//! Scenarios: steps over a store and a varying world, as plain data; the laws of docs/FORMAT.md, section 3, are checked
//! after each step.
//!
//! | module | subject |
//! | --- | --- |
//! | [`draw`] | a random scenario from a seed |
//! | [`promise`] | the current faults, and whether redundancy covers them |
//! | [`look`] | what a store shows, and what it announces about it |
//! | [`laws`] | laws of the files after each step |
//! | [`play`] | playing the steps in order |
//! | [`shrink`] | shrinking a failing scenario to the fewest steps |
//!
//! A step without a meaning in its place (a device returns that was not missing) does nothing, so that steps can be
//! removed one by one. The content of a batch is determined by the seed of its step and the store's state. The same
//! scenario always has the same course.

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

mod choices;
mod disasters;
mod named;
mod passing;
mod random;
mod returning;

/// The devices of a store, and its redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One directory.
    One,
    /// Two fast devices, with records and units on both.
    Mirror,
    /// Two fast devices with copies of records, three slow ones with one parity unit.
    Raid5,
    /// Three fast devices with copies of records, five slow ones with two parity units.
    Triple,
    /// Four devices of one class, two copies, one parity unit.
    FourAlike,
    /// As `Mirror`, with content at multiples of 512 bytes, or of 4,096 after each second compaction, and with 12 KiB
    /// in descriptors.
    Aligned,
}

impl Shape {
    /// All shapes.
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
            Shape::Aligned => {
                Geometry { alignment: Alignment::Sector, packed_bytes: 12 << 10, ..Shape::Mirror.geometry() }
            }
        }
    }
}

/// The content of a batch.
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
    /// Another name for an object, or for two.
    Rename,
    /// The next of these: two directories, one in the other; the inner one is moved out; the outer one is moved into
    /// it; and again.
    Crossing,
    /// An existing file is written to or gets another length.
    Write,
    /// A snapshot is taken or removed.
    Snapshot,
    /// An object whose content is a copy of the log so far.
    Planted,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It is killed.
    Kill,
    /// The power fails; a seed determines the remains.
    Power(u64),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A writer opens the store.
    Open,
    /// As `Open`, with fewer devices than the proof requires: if they have missed what the others have, another history
    /// begins here.
    OpenDegraded,
    /// A batch by the writer; opens one if there is none.
    Batch(Work, Durability, u64),
    /// Everything is made durable.
    Sync,
    /// The writer closes.
    Close,
    /// The writer is killed.
    Kill,
    /// The power fails.
    PowerFailure(u64),
    /// A step that is interrupted at an operation of its devices.
    Cut(u64, End, Box<Step>),
    /// A device disappears.
    Away(usize, Absence),
    /// It returns unchanged.
    Back(usize),
    /// Keeps the state of a device for later.
    Keep(usize),
    /// Restores the kept state of a device.
    Restore(usize),
    /// Two devices exchange their places; a second time, they exchange them back.
    Swap(usize, usize),
    /// The home and all devices move to another directory.
    Move,
    /// They are copied to another directory, and the copy is written to.
    Copy,
    /// A place in files of a kind is damaged on a device.
    Rot(usize, FileKind, Rot, u64),
    /// A place in files of a kind on a device cannot be read for a while: so many reads succeed, and then so many fail.
    Unread(usize, FileKind, u64, (u64, u64)),
    /// The index of a device is lost.
    IndexLost(usize),
    /// The index of a device is restored to the kept state.
    IndexOld(usize),
    /// A device is full except for this many blocks.
    Full(usize, u64),
    /// The same, and it says that it has room.
    Quota(usize, u64),
    /// It has room again.
    Room(usize),
    /// After this many operations, something fails on a device once: a sync, if that is what it is.
    Fails(usize, u64),
    /// A step during which, after so many operations, a device is gone for so many.
    Outage(usize, (u64, u64), Box<Step>),
    /// What failed syncs left only in memory is dropped.
    DropPages(u64),
    /// The next write to a file of a kind on a device is acknowledged but not done, or done elsewhere.
    Betray(usize, FileKind, bool),
    /// A scrub by the writer.
    Scrub,
    /// A repair.
    Repair,
    /// A repair that removes what redundancy cannot repair.
    DropLost,
    /// A repair that forgets what may be missing, and frees the quarantine.
    Accept,
    /// Of two histories, that of a device becomes the store's.
    Take(usize),
    /// A device is rebuilt onto another directory.
    Rebuild(usize),
    /// The same, without what only that device has.
    GiveUp(usize),
    /// Space is freed.
    Compact,
    /// Records that overflowed return to fast devices.
    Rebalance,
    /// Maintenance that is asked to stop after this many bytes of a stage.
    Stopped(u64, Box<Step>),
    /// The current state is pinned by name, or the pin released.
    Pin(bool),
    /// Everything is verified, and must be correct if nothing was damaged.
    Check,
    /// The index is rebuilt from the log.
    RebuildIndex,
    /// A reader looks.
    Look,
}

/// A store and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// Its devices.
    pub(crate) shape: Shape,
    /// The seed of all chance.
    pub(crate) seed: u64,
    /// In order.
    pub(crate) steps: Vec<Step>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} with seed {}:", self.shape, self.seed)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}
