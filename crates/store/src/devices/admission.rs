//! What a survey of the superblocks permits: whether a reader may read, whether a writer may open, and how sure either
//! may be that everything acknowledged is in sight (docs/FORMAT.md, laws 4, 5 and 6). Nothing is written here, but
//! files are read again: whether another home answers in the recorded place.

use std::path::Path;

use super::epochs::{Side, WriterView, departures, may_be_of_copy};
use super::platform::Platform;
use super::slot::{Slot, Trouble};
use super::survey::{OpenOptions, Survey, is_of_process, superblock_if_any};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::{Class, DeviceState, Geometry};
use crate::format::history::History;
use crate::format::ids::DeviceNumber;
use crate::format::superblock::{HOME_APART, Superblock, last_marked};
use crate::units::{escape_path, format_time};

const WRITING: &str = "write to";

impl Survey {
    /// The devices that cannot be read, without those that left the store and a lost one.
    fn absent(&self, lost: Option<DeviceNumber>) -> Vec<&Slot> {
        let is_absent = |slot: &&Slot| {
            !slot.is_readable() && slot.entry.state != DeviceState::Gone && Some(slot.entry.number) != lost
        };
        self.slots.iter().filter(is_absent).collect()
    }

    /// Whether redundancy covers these devices.
    fn bears_losses(&self, absent: &[&Slot]) -> bool {
        let of = |class: Class| absent.iter().filter(|slot| slot.entry.class == class).count();
        let survived = self.geometry.survives();
        of(Class::Fast) <= survived.fast.into() && of(Class::Slow) <= survived.slow.into()
    }

    /// Devices that are missing beside a lost one that is not waited for, if these are more than redundancy covers:
    /// they may have had all copies of what nobody in sight knows of.
    pub(crate) fn away_beside(&self, lost: Option<DeviceNumber>) -> Vec<DeviceNumber> {
        if lost.is_none() || self.bears_losses(&self.absent(None)) {
            return Vec::new();
        }
        self.absent(lost).iter().map(|slot| slot.entry.number).collect()
    }

    /// A device that continues the newest history of the others.
    fn newer(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.trouble == Some(Trouble::Newer))
    }

    /// Why it is uncertain that everything acknowledged is visible; `None` if it is certain.
    pub(crate) fn doubt(&self, lost: Option<DeviceNumber>) -> Option<String> {
        let absent = self.absent(lost);
        let named = |slots: &[&Slot]| {
            let words = slots.iter().map(|slot| {
                let what = slot.trouble.as_ref().map_or_else(String::new, Trouble::explain);
                format!("device {} ({}) {what}", slot.entry.number, escape_path(&slot.path))
            });
            words.collect::<Vec<_>>().join("; ")
        };
        if let Some(slot) = self.newer() {
            let trouble = Trouble::Newer.explain();
            return Some(format!("device {} ({}) {trouble}", slot.entry.number, escape_path(&slot.path)));
        }
        // A device that lacks the newest epoch lacks its batches, if the others continued without it or if it was
        // restored from an old copy. A crash between superblocks leaves the same state, but no batch of such an epoch:
        // any up-to-date device with records shows which it was. Without one, it cannot vouch for those missing.
        let has_records = |slot: &Slot| self.geometry.record_devices().any(|entry| entry.number == slot.entry.number);
        let is_current = |slot: &Slot| slot.trouble.is_none() && !slot.is_late;
        let is_unsure = self.absent(None).iter().any(|slot| has_records(slot))
            && !self.slots.iter().any(|slot| is_current(slot) && has_records(slot));
        let is_old = |slot: &&Slot| {
            let lacks = slot.trouble.is_some() || slot.is_late;
            let is_lost = !slot.is_readable() && Some(slot.entry.number) == lost;
            is_unsure && has_records(slot) && (is_lost || slot.is_readable() && lacks)
        };
        let absent: Vec<&Slot> = absent.iter().copied().chain(self.slots.iter().filter(is_old)).collect();
        if !self.bears_losses(&absent) {
            return Some(format!("more devices are missing or stale than redundancy covers: {}", named(&absent)));
        }
        let seen = self.seen();
        let marked = last_marked(&self.marks());
        let sight = WriterView { in_sync: &self.in_sync(), seen: &seen, marked, lost };
        if sight.has_proof(&self.history) {
            return None;
        }
        let newest = self.history.newest();
        let (absent, present): (Vec<&Slot>, Vec<&Slot>) =
            self.slots.iter().filter(|slot| newest.has(slot.entry.number)).partition(|slot| slot.trouble.is_some());
        let others: Vec<&Slot> = absent.into_iter().filter(|slot| Some(slot.entry.number) != lost).collect();
        let cause = match &others[..] {
            [] => "no device has the newest known epoch".to_owned(),
            others => format!(
                "the store was last written to on {} devices, of which {} present: {}; they may have what the others lack",
                newest.in_sync.len(),
                match present.len() {
                    0 => "none is".to_owned(),
                    1 => "only one is".to_owned(),
                    present => format!("only {present} are"),
                },
                named(others)
            ),
        };
        Some(cause)
    }

    /// Superblocks of the devices, and their histories.
    fn seen(&self) -> Vec<(DeviceNumber, &History)> {
        let found = self.slots.iter().zip(&self.on_devices);
        found.filter_map(|(slot, found)| Some((slot.entry.number, &found.as_ref()?.superblock.history))).collect()
    }

    /// Devices that may be of a copy of the store, as seen from a side: see [`may_be_of_copy`].
    pub(crate) fn twins_of(&self, side: &Side) -> Vec<DeviceNumber> {
        let seen = self.seen();
        let twins = self.sides.iter().filter(|other| may_be_of_copy(&other.history, &side.history, &seen));
        twins.flat_map(|other| other.devices.iter().copied()).collect()
    }

    /// How the sides diverged, in words; `None` if there is only one.
    pub(crate) fn divergence(&self) -> Option<String> {
        if self.sides.len() < 2 {
            return None;
        }
        let sides = departures(&self.sides).into_iter().map(|(side, entry)| {
            let devices: Vec<String> = side.devices.iter().map(DeviceNumber::to_string).collect();
            let who = match devices.len() {
                0 => "the home".to_owned(),
                1 => format!("device {}", devices[0]),
                _ => format!("devices {}", devices.join(", ")),
            };
            let when = format_time(entry.began_nanoseconds.div_euclid(1_000_000_000));
            format!("{who} since {when} (epoch {:016x})", entry.epoch.0)
        });
        let sides = sides.collect::<Vec<_>>().join("; ");
        let absent = self.absent(None);
        let absent = absent.iter().filter(|slot| slot.trouble != Some(Trouble::Diverged));
        let absent: Vec<String> = absent.map(|slot| format!("device {}", slot.entry.number)).collect();
        let hint = if absent.is_empty() {
            String::new()
        } else {
            format!("; {} may show which side counts", absent.join(", "))
        };
        Some(format!("its devices were written to separately and have diverged: {sides}{hint}"))
    }

    /// Whether a reader may read.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if sides have diverged and it is undecidable which to read.
    pub(crate) fn may_read(&self) -> Result<()> {
        match self.divergence() {
            Some(cause) if !self.is_decided => Err(diverged("open the store", cause).at(&self.home)),
            _ => Ok(()),
        }
    }

    /// Whether a writer may open.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if sides have diverged, or there is no proof that the newest epoch is visible;
    /// [`ErrorKind::Exists`] if this home is or may be a copy, or another store is in its place;
    /// [`ErrorKind::NotFound`] if there is no home and its place is unknown.
    pub(crate) fn may_write(&self, platform: &dyn Platform, options: &OpenOptions) -> Result<()> {
        if let Some(cause) = self.divergence() {
            return Err(diverged(WRITING, cause).at(&self.home));
        }
        self.check_home(platform)?;
        // Without any device with records there is no log to continue, whatever the options.
        let has_log = self
            .geometry
            .record_devices()
            .any(|entry| self.slots.get(entry.number.index()).is_some_and(Slot::is_readable));
        if self.slots.iter().all(|slot| !slot.is_writable()) {
            let cause = self.doubt(options.lost).unwrap_or_else(|| "none of its devices is in service".to_owned());
            let advice = "bring the devices back, or name their directories with --device";
            let advice = if has_log { format!("{advice}; the store can still be read") } else { advice.to_owned() };
            return Err(Error::new(ErrorKind::Lost, WRITING, cause).at(&self.home).advise(advice));
        }
        match self.doubt(options.lost).filter(|_| !options.degraded || !has_log) {
            None => self.check_bonds(platform, options),
            Some(cause) if !has_log && self.lacks_superblock_of_records() => {
                Err(Error::new(ErrorKind::Lost, WRITING, cause).at(&self.home).advise(
                    "granulo store repair writes a superblock again if the segments beside it are of this store",
                ))
            }
            Some(cause) if !has_log => Err(Error::new(ErrorKind::Lost, WRITING, cause).at(&self.home).advise(
                "no device with records is present: bring one back, or name its directory with --device",
            )),
            Some(cause) if let Some(slot) = self.newer() => Err(Error::new(ErrorKind::Lost, WRITING, cause)
                .at(&self.home)
                .advise(newer_advice(slot))),
            Some(cause) if self.lacks_only_superblocks(options.lost) => Err(Error::new(ErrorKind::Lost, WRITING, cause)
                .at(&self.home)
                .advise("granulo store repair --degraded rewrites damaged superblocks")),
            Some(cause) if options.lost.is_some() => Err(Error::new(ErrorKind::Lost, WRITING, cause)
                .at(&self.home)
                .advise("bring another one back, or say with --device where it is; --degraded writes without them")),
            Some(cause) => Err(Error::new(ErrorKind::Lost, WRITING, cause).at(&self.home).advise(
                "bring them back, or say with --device where they are; granulo store rebuild replaces one that is lost for good, and --degraded writes \
                 without them",
            )),
        }
    }

    /// Whether a device with records is where it should be, and its superblock is damaged or gone.
    fn lacks_superblock_of_records(&self) -> bool {
        let mut slots = self.geometry.record_devices().filter_map(|entry| self.slots.get(entry.number.index()));
        slots.any(|slot| matches!(slot.trouble, Some(Trouble::Damaged | Trouble::Unmarked)))
    }

    /// Whether all devices are where they should be, and only superblocks are damaged.
    fn lacks_only_superblocks(&self, lost: Option<DeviceNumber>) -> bool {
        let is_waited_for = |slot: &&Slot| Some(slot.entry.number) != lost && slot.entry.state != DeviceState::Gone;
        let troubles = || self.slots.iter().filter(is_waited_for).filter_map(|slot| slot.trouble.as_ref());
        troubles().next().is_some() && troubles().all(|trouble| matches!(trouble, Trouble::Damaged | Trouble::Unmarked))
    }

    /// Whether the home exists, or may be recreated where it was.
    fn check_home(&self, platform: &dyn Platform) -> Result<()> {
        if !self.geometry.has_home_apart() || self.on_home.is_some() {
            return Ok(());
        }
        match Superblock::read(&*platform.device(&self.home)) {
            Err(error) if is_of_process(&error) => Err(error),
            Ok(Some(found)) if found.superblock.geometry.store != self.geometry.store => {
                let cause = "another store has its home in the place of this one's";
                Err(Error::new(ErrorKind::Exists, WRITING, cause)
                    .at(&self.home)
                    .advise("move the other store away; the store can still be read"))
            }
            Ok(None) => {
                let named = self.named.and_then(|number| self.slots.get(number.index()));
                let was = named.and_then(|slot| self.geometry.devices.get(slot.entry.number.index()));
                let is_moved = named.zip(was).is_none_or(|(slot, was)| {
                    let there = platform.node(&was.directory(&self.geometry.home));
                    there.is_none() || there != platform.node(&slot.path)
                });
                if is_moved {
                    let cause = "it has no home, and the device is not where the store recorded it: it was moved";
                    return Err(Error::new(ErrorKind::NotFound, WRITING, cause)
                        .at(&self.home)
                        .advise("name the home at its new place"));
                }
                Ok(())
            }
            // A damaged one is rewritten.
            _ => Ok(()),
        }
    }

    /// Whether each device outside the home's directory that would be written regards this home as its own. If its
    /// recorded home is gone, the device was moved together with it, and the record is renewed. If there is a directory
    /// that is no home, it may be where that home is mounted: then the caller must name one of the devices, once.
    fn check_bonds(&self, platform: &dyn Platform, options: &OpenOptions) -> Result<()> {
        if !self.geometry.has_home_apart() {
            return Ok(());
        }
        let here = platform.node(&self.home);
        let is_named = |slot: &Slot| {
            let place = platform.resolve(&slot.path);
            options.devices.iter().any(|named| platform.resolve(named) == place)
        };
        let is_vouched_for = self.slots.iter().any(is_named);
        for (slot, on_device) in self.slots.iter().zip(&self.on_devices) {
            let Some(on_device) = on_device else { continue };
            if !slot.is_writable() || slot.entry.path.is_relative() {
                continue;
            }
            let Geometry { home, home_node, .. } = &on_device.superblock.geometry;
            let is_ours = here.is_some_and(|here| here.is(*home_node)) || here.is_some() && platform.node(home) == here;
            if is_ours {
                continue;
            }
            if self.answers(platform, home)? {
                let cause = format!(
                    "this home is a copy: device {} ({}) belongs to the one at {}, which still exists",
                    slot.entry.number,
                    escape_path(&slot.path),
                    escape_path(home)
                );
                return Err(Error::new(ErrorKind::Exists, WRITING, cause).at(&self.home).advise(
                    "name the original; to write to a copy with its own devices, move the original away first; the copy can be read",
                ));
            }
            if platform.node(home).is_some() && !is_vouched_for {
                let cause = format!(
                    "it is unknown whether this home was moved or is a copy: device {} ({}) belongs to one at {}, where there \
                     is a directory without a home",
                    slot.entry.number,
                    escape_path(&slot.path),
                    escape_path(home)
                );
                return Err(Error::new(ErrorKind::Exists, WRITING, cause).at(&self.home).advise(format!(
                    "mount what belongs there; or, if the store was moved, say so once with --device {}",
                    escape_path(&slot.path)
                )));
            }
        }
        Ok(())
    }

    /// Whether a home of this store is at a path.
    fn answers(&self, platform: &dyn Platform, home: &Path) -> Result<bool> {
        let found = superblock_if_any(&*platform.device(home))?;
        Ok(found.is_some_and(|found| {
            found.superblock.number == HOME_APART && found.superblock.geometry.store == self.geometry.store
        }))
    }
}

fn diverged(operation: &'static str, cause: String) -> Error {
    Error::new(ErrorKind::Lost, operation, cause).advise(
        "granulo store salvage lists the sides and exports the tree of one; granulo store repair --take NUMBER continues \
         with one side, and the data of the other stays in place",
    )
}

/// What to do about a device that has newer data than the others.
pub(crate) fn newer_advice(slot: &Slot) -> String {
    format!(
        "name {} in place of the store: granulo store repair then brings the others up to date",
        escape_path(&slot.path)
    )
}
