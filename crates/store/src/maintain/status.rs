//! Status: devices, how full they are and with what, what is live and dead, and what waits. It comes from the accounts
//! in the catalog, without reading segments; only the kinds of objects are counted in the index, on request.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::choice::dead_bytes;
use super::scrub::{FINISHED, finished};
use crate::Store;
use crate::devices::device::{Device, Mode, Room};
use crate::devices::objects::counts::BucketStatus;
use crate::devices::platform::UnknownPin;
use crate::devices::slot::{Slot, Trouble};
use crate::engine::Engine;
use crate::engine::missing::PINS_DOUBTED;
use crate::error::Result;
use crate::format::entry::Kind;
use crate::format::geometry::{Alignment, Class, DeviceState};
use crate::format::ids::DeviceNumber;
use crate::format::names::SegmentName;
use crate::format::rows::SegmentRow;
use crate::index::catalog::manifest;
use crate::index::copies::IndexDevice;
use crate::units::SECONDS_A_DAY;

/// A device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceStatus {
    /// Its number.
    pub number: DeviceNumber,
    /// Its class.
    pub class: Class,
    /// Its state in the geometry.
    pub state: DeviceState,
    /// Its directory.
    pub path: PathBuf,
    /// Whether the newest epoch counts it among the devices in sync.
    pub is_in_sync: bool,
    /// Its fault, as the end of "device 3 …".
    pub trouble: Option<String>,
    /// Free space on its file system, if known.
    pub room: Option<Room>,
    /// Bytes of segments on it.
    pub segment_bytes: u64,
    /// Bytes of dead records and of commits in these.
    pub dead_bytes: u64,
    /// Bytes of units of large objects on it.
    pub unit_bytes: u64,
}

impl DeviceStatus {
    /// Whether it has a fault.
    pub fn is_in_trouble(&self) -> bool {
        self.trouble.is_some() && self.state != DeviceState::Gone
    }

    /// Its state in words.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            DeviceState::InUse => "in use",
            DeviceState::Rebuilding => "being rebuilt",
            DeviceState::Gone => "gone",
        }
    }

    /// Share of the file system that is allocated, by anything.
    pub fn fill_fraction(&self) -> Option<f64> {
        let room = self.room.filter(|room| room.total_bytes > 0)?;
        Some(room.total_bytes.saturating_sub(room.available_bytes) as f64 / room.total_bytes as f64)
    }
}

/// Objects by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Files, one with several names counted once.
    pub files: u64,
    /// Large ones among them.
    pub large_files: u64,
    /// Names of files with several.
    pub links: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Fifos, sockets and devices.
    pub special: u64,
    /// Sizes of the files.
    pub size_bytes: u128,
    /// Sizes of the large ones.
    pub large_size_bytes: u128,
}

/// The state of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreStatus {
    /// Its home.
    pub home: PathBuf,
    /// The newest epoch, that of the last open for writing.
    pub epoch: u64,
    /// When it began, nanoseconds since 1970.
    pub epoch_began_nanoseconds: i64,
    /// How many epochs are known.
    pub epochs: u64,
    /// Its devices, by number.
    pub devices: Vec<DeviceStatus>,
    /// Whether a device with records is present: otherwise what the devices have is unknown, and counted as nothing.
    pub sees_log: bool,
    /// Number of copies of each kind of data, and what that survives, in words.
    pub redundancy: Vec<String>,
    /// Where the content of files begins in new segments.
    pub alignment: Alignment,
    /// First bytes of a large file that its descriptor packs.
    pub packed_bytes: u64,
    /// Live records: objects and further names.
    pub live_records: u64,
    /// Bytes of live records, of one copy.
    pub live_bytes: u64,
    /// Dead records, and removals.
    pub dead_records: u64,
    /// Bytes of these and of commits, of one copy.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of live records on slow devices, though the store has fast ones; of one copy.
    pub overflowed_bytes: u64,
    /// Bytes of units of large objects on all devices, with parity.
    pub unit_bytes: u64,
    /// Bytes of the index (sorted tables and changes since), of one copy.
    pub index_bytes: u64,
    /// Devices with a copy of the index. If empty, the status was read from the log.
    pub index_devices: Vec<DeviceNumber>,
    /// Segments and units that were freed and wait for readers, in bytes on all devices.
    pub waiting_bytes: u64,
    /// Names of the pins that outlive a process.
    pub pins: Vec<String>,
    /// Whether there may be more: the index was built from an incomplete log.
    pub may_lack_pins: bool,
    /// What may be pins of readers and cannot be looked at: what was freed waits for it, too.
    pub unknown_pins: Vec<UnknownPin>,
    /// Bytes that a crash left after the end of the log, on the devices that are present.
    pub quarantined_bytes: u64,
    /// When the last scrub ended, nanoseconds since 1970.
    pub scrubbed_nanoseconds: Option<i64>,
    /// Whether devices were not in service during it: [`ScrubReport::is_partial`](crate::ScrubReport::is_partial).
    pub is_scrub_partial: bool,
    /// Why writing is no longer allowed.
    pub latched: Option<String>,
    /// Whether this or another process has it open for writing.
    pub has_writer: bool,
    /// Objects by kind, if they were counted.
    pub census: Option<Census>,
    /// What is in its bucket, and what that was asked, if it is in one.
    pub bucket: Option<BucketStatus>,
}

impl StoreStatus {
    /// Bytes of the index for each record in use.
    pub fn index_bytes_per_object(&self) -> Option<f64> {
        (self.live_records > 0).then(|| self.index_bytes as f64 / self.live_records as f64)
    }
}

/// Whether there are files in the directory of a device, whatever its superblock.
fn has_files(slot: &Slot) -> bool {
    slot.device.list("").is_ok_and(|listed| !listed.is_empty())
}

/// The fault of a device, as the end of "device 3 …".
pub(crate) fn explain_trouble(slot: &Slot) -> Option<String> {
    match slot.trouble.as_ref()? {
        Trouble::Empty if has_files(slot) => Some("has no superblock".to_owned()),
        trouble => Some(trouble.explain()),
    }
}

/// The segments of an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgedSegments {
    /// They were begun less than so many days ago, and not less than the class before says; `None`: or earlier.
    pub younger_than_days: Option<u32>,
    /// How many there are.
    pub segments: u64,
    /// Bytes of live records in them, of one copy.
    pub live_bytes: u64,
    /// Bytes of dead ones and of commits, of one copy.
    pub dead_bytes: u64,
}

/// Ends of the classes of ages, in days.
const AGES_DAYS: [u32; 4] = [1, 7, 30, 365];

impl AgedSegments {
    fn none_of_each() -> Vec<AgedSegments> {
        let ends = AGES_DAYS.into_iter().map(Some).chain([None]);
        ends.map(|younger_than_days| AgedSegments { younger_than_days, segments: 0, live_bytes: 0, dead_bytes: 0 })
            .collect()
    }

    fn has(&self, age_nanoseconds: i64) -> bool {
        const DAY_NANOSECONDS: i64 = SECONDS_A_DAY * 1_000_000_000;
        self.younger_than_days.is_none_or(|days| age_nanoseconds / DAY_NANOSECONDS < days.into())
    }
}

impl Engine {
    /// When a segment was begun, by the first of its headers that can be read, in nanoseconds since 1970.
    fn began(&self, segment: &SegmentRow) -> Option<i64> {
        let (slots, name) = (self.devices.slots(), SegmentName::from(segment.id()));
        let copies = segment.devices.iter().filter_map(|device| slots.get(device.index()));
        let mut headers = copies.filter(|slot| slot.is_readable());
        headers.find_map(|slot| slot.segment_header(name, &self.geometry().store)).map(|it| it.created_nanoseconds)
    }

    fn segment_ages(&self) -> Result<Vec<AgedSegments>> {
        self.refresh()?;
        let (view, now) = (self.view().clone(), self.platform.now_nanoseconds());
        let mut classes = AgedSegments::none_of_each();
        for row in view.state.segments.values().filter(|row| !self.is_superseded(row.number)) {
            let Some(began) = self.began(row) else { continue };
            let class = classes.iter_mut().find(|class| class.has(now.saturating_sub(began)));
            let class = class.expect("the last class has every age");
            class.segments += 1;
            class.live_bytes += row.live_bytes;
            class.dead_bytes += dead_bytes(row).map_err(|error| error.at(&self.home))?;
        }
        Ok(classes)
    }

    pub(crate) fn status(&self, with_census: bool) -> Result<StoreStatus> {
        self.refresh()?;
        let view = self.view().clone();
        let (mut segment_bytes, mut dead_on, mut unit_bytes): (
            BTreeMap<DeviceNumber, u64>,
            BTreeMap<DeviceNumber, u64>,
            BTreeMap<DeviceNumber, u64>,
        ) = Default::default();
        let rows: Vec<_> = view.state.segments.values().filter(|row| !self.is_superseded(row.number)).collect();
        for row in view.state.segments.values() {
            // Of a segment that was moved, nothing is live.
            let dead = if self.is_superseded(row.number) { row.size_bytes } else { dead_bytes(row).unwrap_or(0) };
            for &device in &row.devices {
                *dead_on.entry(device).or_default() += dead;
                *segment_bytes.entry(device).or_default() += row.size_bytes;
            }
        }
        for row in view.state.extents.values() {
            *unit_bytes.entry(row.device).or_default() += row.live_bytes;
        }
        let dead_bytes: u64 =
            rows.iter().map(|row| dead_bytes(row)).sum::<Result<_>>().map_err(|error| error.at(&self.home))?;
        let history = self.devices.history();
        let device = |slot: &Slot| DeviceStatus {
            number: slot.entry.number,
            class: slot.entry.class,
            state: slot.entry.state,
            path: slot.path.clone(),
            is_in_sync: history.newest().has(slot.entry.number),
            trouble: explain_trouble(slot),
            room: slot.device.room().ok().filter(|_| slot.is_readable()),
            segment_bytes: segment_bytes.get(&slot.entry.number).copied().unwrap_or(0),
            dead_bytes: dead_on.get(&slot.entry.number).copied().unwrap_or(0),
            unit_bytes: unit_bytes.get(&slot.entry.number).copied().unwrap_or(0),
        };
        let scrub = view.state.notes.get(FINISHED).and_then(|note| finished(std::str::from_utf8(note).ok()?));
        let index_files = self.index.list(crate::index::table::INDEX_DIRECTORY).unwrap_or_default();
        Ok(StoreStatus {
            home: self.home.clone(),
            epoch: history.newest().epoch.0,
            epoch_began_nanoseconds: history.newest().began_nanoseconds,
            epochs: history.entries().count() as u64,
            devices: self.devices.slots().iter().map(device).collect(),
            sees_log: self.devices.sees_log(&self.geometry()),
            redundancy: self.geometry().explain(),
            alignment: self.geometry().alignment,
            packed_bytes: self.geometry().packed_bytes,
            live_records: rows.iter().map(|row| row.live_records).sum(),
            live_bytes: rows.iter().map(|row| row.live_bytes).sum(),
            dead_records: rows.iter().map(|row| row.dead_records).sum(),
            dead_bytes,
            segments: rows.len() as u64,
            overflowed_bytes: self.overflowed().iter().map(|row| row.live_bytes).sum(),
            unit_bytes: unit_bytes.values().sum(),
            index_bytes: index_files.iter().map(|(_, size_bytes)| size_bytes).sum(),
            index_devices: self.index_devices(),
            waiting_bytes: self.waiting_bytes(),
            pins: view.state.pins.keys().cloned().collect(),
            unknown_pins: self.unknown_pins(),
            may_lack_pins: view.state.notes.contains_key(PINS_DOUBTED),
            quarantined_bytes: self.quarantined_bytes(),
            scrubbed_nanoseconds: scrub.map(|(at, _)| at),
            is_scrub_partial: scrub.is_some_and(|(_, report)| report.is_partial),
            latched: self.latched().map(str::to_owned),
            has_writer: self.is_writer() || self.platform.is_locked(&self.home),
            census: if with_census { Some(self.census()?) } else { None },
            bucket: self.platform.bucket(),
        })
    }

    /// Devices with a manifest, among those that should have one.
    fn index_devices(&self) -> Vec<DeviceNumber> {
        let has_one = |place: &&IndexDevice| place.device.open(&manifest::path(), Mode::Read).is_ok();
        let places = self.index.places();
        let mut numbers: Vec<DeviceNumber> = places.iter().filter(has_one).map(|place| place.number).collect();
        numbers.sort_unstable();
        if self.is_index_private { Vec::new() } else { numbers }
    }

    fn census(&self) -> Result<Census> {
        let mut census = Census::default();
        let snapshot = self.snapshot();
        let mut scan = snapshot.scan_from(&[])?;
        while let Some((_, entry)) = scan.next_entry()? {
            match entry.kind {
                Kind::File | Kind::Large => {
                    census.files += 1;
                    census.size_bytes += u128::from(entry.size_bytes);
                }
                Kind::Directory => census.directories += 1,
                Kind::Symlink => census.symlinks += 1,
                Kind::Special => census.special += 1,
                Kind::Link => census.links += 1,
                // None of these is the entry of an object.
                Kind::Removal
                | Kind::TreeRemoval
                | Kind::Commit
                | Kind::Release
                | Kind::Snapshot
                | Kind::Attributes => {}
            }
            if entry.kind == Kind::Large {
                census.large_files += 1;
                census.large_size_bytes += u128::from(entry.size_bytes);
            }
        }
        Ok(census)
    }
}

impl Store {
    /// The status of the store: devices, what is live and dead, what waits. With `with_census`, objects are counted by
    /// kind, which reads the whole index.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn status(&self, with_census: bool) -> Result<StoreStatus> {
        self.engine().status(with_census)
    }

    /// How long nothing has been heard of the process on another machine that has a store in a bucket open for writing,
    /// if that is so long that it has probably ended. Asks the bucket, if there is such a process.
    pub fn writer_silence(&self) -> Option<Duration> {
        self.engine().platform.writer_silence()
    }

    /// The segments by the time since they were begun, youngest first. Reads the header of each; one of which no header
    /// can be read is left out.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn segment_ages(&self) -> Result<Vec<AgedSegments>> {
        self.engine().segment_ages()
    }
}
