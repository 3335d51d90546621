//! Geometry: which devices a store has, and how it spreads objects over them.
//!
//! [`Geometry::new`] builds a geometry once, from a [`Plan`]. It refuses plans that cannot keep the promised
//! redundancy, and says what is missing. `Geometry::out_of_bounds` has the invariants of every geometry, including one
//! read from a superblock. Records are on the fast devices, stripes on the slow ones; if a class has no devices, the
//! other takes its role ([`Geometry::record_devices`], [`Geometry::stripe_devices`]).
//!
//! Stripes are as wide as the devices allow, up to [`WIDEST_DATA`] data units: wider ones would save less than 1 % of
//! the space and read more devices in a rebuild. From [`DEVICES_WITH_SPARE`] devices on, stripes with parity leave one
//! device out, a different one for each object, so that lost units can be rebuilt into the free space of the others.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod places;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ids::DeviceNumber;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{GIB, KIB, MIB, format_count, format_size};
pub(crate) use places::{absolute, address_scheme};

pub use crate::layout::granulo::Alignment;
use crate::layout::granulo::{DEFAULT_PACKED_BYTES, Striping, check_packed, largest_record_bytes};

/// Maximum number of data units in a stripe of a new store.
pub const WIDEST_DATA: u8 = 10;

/// From this number of stripe devices on, a stripe with parity leaves one device out.
pub const DEVICES_WITH_SPARE: usize = 5;

/// Minimum number of data units with parity: one unit and a copy of it would be mirroring.
const LEAST_DATA_WITH_PARITY: usize = 2;

/// A segment has at least its header and the commit of a batch.
const LEAST_SEGMENT_BYTES: u64 = 4 * KIB;

/// The largest cutoff, in bytes.
const LARGEST_CUTOFF_BYTES: u64 = GIB;

/// Bytes of an epoch in a superblock, without its set.
pub(crate) const EPOCH_BYTES: usize = 8 + 8 + 8 + 8 + 2;
/// Bytes of a device in a set.
pub(crate) const MEMBER_BYTES: usize = 2;

/// Bytes of a superblock slot; maximum bytes of the geometry in it without devices and paths; bytes of a device besides
/// its path (docs/FORMAT.md, section 4).
const SUPERBLOCK_BYTES: usize = 64 * KIB as usize;
const SUPERBLOCK_FIXED_BYTES: usize = 112 + SUPERBLOCK_PLACE_BYTES + 2 + 49;
const SUPERBLOCK_DEVICE_BYTES: usize = 20 + SUPERBLOCK_PLACE_BYTES + LEAST_EPOCHS * MEMBER_BYTES;
const SUPERBLOCK_PLACE_BYTES: usize = 18;
/// Minimum number of epochs for which a superblock has room.
const LEAST_EPOCHS: usize = 8;

/// Permission bits of a store's files by default.
pub const PRIVATE_MODE: u16 = 0o600;

/// Class of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// For records.
    Fast = 1,
    /// For stripe units.
    Slow = 2,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Fast => "fast",
            Class::Slow => "slow",
        })
    }
}

/// State of a device in the geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeviceState {
    /// In use.
    InUse = 1,
    /// New, in place of a lost one; not fully rebuilt yet.
    Rebuilding = 2,
    /// Left the store; its number is not reused.
    Gone = 3,
}

/// A device of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its number: the position in the geometry.
    pub number: DeviceNumber,
    /// Random identity.
    pub identity: [u8; 16],
    /// Class.
    pub class: Class,
    /// State.
    pub state: DeviceState,
    /// Its directory; relative ones are relative to the home.
    pub path: PathBuf,
    /// File system and inode of that directory when it was last written to.
    pub node: Node,
}

/// Identity of a directory in its file system: other paths may lead to it, and its path may come to lead elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Node {
    /// Identity of the file system.
    pub file_system: u64,
    /// Number of the inode; 0 where none is known.
    pub inode: u64,
}

impl Node {
    /// Whether both are known, and the same.
    pub fn is(self, other: Node) -> bool {
        self.inode != 0 && self == other
    }
}

impl DeviceEntry {
    /// Its directory, in a store with this home.
    pub fn directory(&self, home: &Path) -> PathBuf {
        if self.path == Path::new(".") { home.to_owned() } else { home.join(&self.path) }
    }
}

/// Compression of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Records are stored uncompressed.
    None,
    /// zstd at a level, -7 to 22 without 0.
    Zstd(i8),
}

/// The layout of a store, the same on every device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Random identity of the store.
    pub store: [u8; 16],
    /// When it was created, nanoseconds since 1970.
    pub created_nanoseconds: i64,
    /// Largest object that is a record, in bytes, unless [`largest_record_bytes`](Self::largest_record_bytes) is more.
    pub cutoff_bytes: u64,
    /// Stripe unit in bytes.
    pub stripe_unit_bytes: u32,
    /// First bytes of a larger object that its descriptor packs.
    pub packed_bytes: u64,
    /// Copies of records: 1 to 3.
    pub copies: u8,
    /// Data units in a stripe.
    pub data: u8,
    /// Parity units in a stripe: 0 to 2.
    pub parity: u8,
    /// Compression of records.
    pub compression: Compression,
    /// High watermark: above this share of a fast device, in per cent, records spill to slow ones.
    pub high_watermark_percent: u8,
    /// Low watermark: `rebalance` and new records fill a fast device up to this share again.
    pub low_watermark_percent: u8,
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
    /// The devices, by number.
    pub devices: Vec<DeviceEntry>,
    /// The home's directory, as recorded on the devices; empty if the home is device 0.
    pub home: PathBuf,
    /// File system and inode of that directory.
    pub home_node: Node,
    /// Where the content of files begins in segments begun from now on.
    pub alignment: Alignment,
    /// Permission bits that files of the store may have; directories add the matching search bits.
    pub file_mode: u16,
}

/// The options of `store init`. Widths left unset follow from the number of devices.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directories of fast devices, relative to the working directory. Without any device, the home is the only one.
    pub fast: Vec<PathBuf>,
    /// Directories of slow devices.
    pub slow: Vec<PathBuf>,
    /// Largest object that is a record, in bytes.
    pub cutoff_bytes: u64,
    /// Copies of records; `None`: 2 with two or more fast devices, else 1.
    pub copies: Option<u8>,
    /// Parity units; `None`: 1 with three or more slow devices, else 0.
    pub parity: Option<u8>,
    /// Stripe unit in bytes.
    pub stripe_unit_bytes: u32,
    /// First bytes of a larger object that its descriptor packs: a multiple of 4 KiB, at most 64 KiB.
    pub packed_bytes: u64,
    /// Compression of records.
    pub compression: Compression,
    /// High and low watermark in per cent.
    pub watermarks_percent: (u8, u8),
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
    /// Where the content of files begins in segments.
    pub alignment: Alignment,
    /// Permission bits of the store's files.
    pub file_mode: u16,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            fast: Vec::new(),
            slow: Vec::new(),
            cutoff_bytes: 64 * KIB,
            copies: None,
            parity: None,
            stripe_unit_bytes: 64 * KIB as u32,
            packed_bytes: DEFAULT_PACKED_BYTES,
            compression: Compression::None,
            watermarks_percent: (90, 80),
            segment_bytes: 64 * MIB,
            alignment: Alignment::None,
            file_mode: PRIVATE_MODE,
        }
    }
}

/// The largest offset in a segment or an extent file.
pub const LARGEST_FILE_BYTES: u64 = 16 * GIB;

/// How many lost devices a store survives without losing any data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// Devices of any class.
    pub any: u8,
    /// Fast devices, or those in their role, if no slow one is lost.
    pub fast: u8,
    /// Slow devices, or those in their role, if no fast one is lost and no record has overflowed.
    pub slow: u8,
}

impl Geometry {
    /// Whether two are the same but for the directories, by number, in which home and devices were seen: a copy that
    /// takes the place of another has others.
    pub(crate) fn is_same_elsewhere(&self, other: &Geometry) -> bool {
        let without_nodes = |geometry: &Geometry| {
            let mut geometry = Geometry { home_node: Node::default(), ..geometry.clone() };
            geometry.devices.iter_mut().for_each(|device| device.node = Node::default());
            geometry
        };
        without_nodes(self) == without_nodes(other)
    }

    /// The geometry of a new store at `home`, with random identities.
    ///
    /// Directories need not exist yet. Paths are resolved as far as they exist; devices in the home get paths relative
    /// to it, so that a store that contains all its devices can be moved.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for redundancy that the devices cannot provide (with what is missing and what would
    /// suffice), for directories that are equal or nested, and for settings out of bounds; any error of resolving a
    /// path.
    pub fn new(home: &Path, plan: &Plan) -> Result<Geometry> {
        let places = places::resolve(home, plan)?;
        let on_home = places.devices.is_empty();
        let home_device = [(Class::Fast, PathBuf::from("."))];
        let directories = if on_home { &home_device[..] } else { &places.devices[..] };
        let number = |index: usize| {
            u16::try_from(index)
                .ok()
                .filter(|number| *number < u16::MAX)
                .ok_or_else(|| refuse("a store has fewer than 65,535 devices"))
        };
        let device = |(index, (class, path)): (usize, &(Class, PathBuf))| {
            Ok(DeviceEntry {
                number: DeviceNumber(number(index)?),
                identity: random_identity()?,
                class: *class,
                state: DeviceState::InUse,
                path: path.clone(),
                node: Node::default(),
            })
        };
        let mut geometry = Geometry {
            store: random_identity()?,
            created_nanoseconds: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)),
            cutoff_bytes: plan.cutoff_bytes,
            stripe_unit_bytes: plan.stripe_unit_bytes,
            packed_bytes: plan.packed_bytes,
            copies: 1,
            data: 1,
            parity: 0,
            compression: plan.compression,
            high_watermark_percent: plan.watermarks_percent.0,
            low_watermark_percent: plan.watermarks_percent.1,
            segment_bytes: plan.segment_bytes,
            devices: directories.iter().enumerate().map(device).collect::<Result<_>>()?,
            home: if on_home { PathBuf::new() } else { places.home },
            home_node: Node::default(),
            alignment: plan.alignment,
            file_mode: plan.file_mode,
        };
        geometry.copies = geometry.copies_for(plan.copies, on_home)?;
        (geometry.data, geometry.parity) = geometry.widths_for(plan.parity, on_home)?;
        match geometry.out_of_bounds().or_else(|| geometry.out_of_use()) {
            Some(cause) => Err(refuse(cause)),
            None => Ok(geometry),
        }
    }

    /// Why a new store should not be like this: it would work, but badly.
    fn out_of_use(&self) -> Option<String> {
        let segment = format_size(self.segment_bytes.into());
        (self.segment_bytes < MIB).then(|| format!("the segment size must be from 1 MiB to 8 GiB; this is {segment}"))
    }

    /// Why no geometry can be like this; in one that was read, it means damage, because the program relies on these
    /// bounds.
    pub(crate) fn out_of_bounds(&self) -> Option<String> {
        let unit = u64::from(self.stripe_unit_bytes);
        let paths = self.devices.iter().map(|device| SUPERBLOCK_DEVICE_BYTES + device.path.as_os_str().len());
        let superblock_bytes =
            SUPERBLOCK_FIXED_BYTES + LEAST_EPOCHS * EPOCH_BYTES + self.home.as_os_str().len() + paths.sum::<usize>();
        let (high, low) = (self.high_watermark_percent, self.low_watermark_percent);
        let Geometry { stripe_unit_bytes, data, parity, .. } = *self;
        let striping = Striping { stripe_unit_bytes, data, parity };
        if self.cutoff_bytes > LARGEST_CUTOFF_BYTES {
            let cutoff = format_size(self.cutoff_bytes.into());
            Some(format!(
                "the cutoff must be at most 1 GiB, as each record is read and written whole; this is {cutoff}"
            ))
        } else if !unit.is_power_of_two() || !(4 * KIB..=4 * MIB).contains(&unit) {
            Some(format!(
                "the stripe unit must be a power of two from 4 KiB to 4 MiB; this is {} bytes",
                format_count(unit.into())
            ))
        } else if !(1..=3).contains(&self.copies) {
            Some("a record must have 1 to 3 copies".to_owned())
        } else if let Err(cause) = striping.check() {
            // No descriptor with such stripes can be read.
            Some(cause)
        } else if let Err(cause) = check_packed(self.packed_bytes) {
            Some(cause)
        } else if matches!(self.compression, Compression::Zstd(level) if level == 0 || !(-7..=22).contains(&level)) {
            Some("the zstd level must be from 1 to 22, or from -7 to -1 for speed".to_owned())
        } else if high > 100 || low == 0 || low >= high {
            Some(format!(
                "the low watermark must be above 0 % and below the high one, and the high one at most 100 %; these are {low} % and {high} %"
            ))
        } else if !(LEAST_SEGMENT_BYTES..=8 * GIB).contains(&self.segment_bytes) {
            let segment = format_size(self.segment_bytes.into());
            Some(format!("the segment size must be from 1 MiB to 8 GiB; this is {segment}"))
        } else if self.file_mode & !0o666 != 0 || self.file_mode & PRIVATE_MODE != PRIVATE_MODE {
            Some(format!(
                "the owner needs read and write permission on the files of a store, and nobody execute permission; this is mode {:04o}",
                self.file_mode
            ))
        } else if superblock_bytes > SUPERBLOCK_BYTES {
            Some(format!("{} devices with these paths do not fit in a superblock", self.devices.len()))
        } else {
            None
        }
    }

    /// The largest object that is a record, in bytes: the cutoff, unless a descriptor would need more than a record.
    pub fn largest_record_bytes(&self) -> u64 {
        largest_record_bytes(self.cutoff_bytes, self.packed_bytes)
    }

    /// Whether the home is a directory of its own and not a device.
    pub fn has_home_apart(&self) -> bool {
        !self.home.as_os_str().is_empty()
    }

    /// Devices that are tried first for records.
    pub fn record_devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.of_class_or_other(Class::Fast)
    }

    /// Devices for stripe units.
    pub fn stripe_devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.of_class_or_other(Class::Slow)
    }

    /// How many losses are survived, wherever objects are.
    pub fn survives(&self) -> Survived {
        let spare_copies = self.copies - 1;
        let one_class = !self.has(Class::Fast) || !self.has(Class::Slow);
        let any = spare_copies.min(self.parity);
        if one_class {
            Survived { any, fast: any, slow: any }
        } else {
            Survived { any, fast: spare_copies, slow: self.parity }
        }
    }

    /// Whether a device of this class is in the store or planned.
    fn has(&self, class: Class) -> bool {
        self.devices.iter().any(|device| device.state != DeviceState::Gone && device.class == class)
    }

    fn of_class_or_other(&self, class: Class) -> impl Iterator<Item = &DeviceEntry> {
        let any_class = !self.has(class);
        self.devices
            .iter()
            .filter(move |device| device.state != DeviceState::Gone && (any_class || device.class == class))
    }

    /// Copies of records, as requested or as the devices allow.
    fn copies_for(&self, asked: Option<u8>, on_home: bool) -> Result<u8> {
        let devices = self.record_devices().count();
        let copies = asked.unwrap_or(if devices >= 2 { 2 } else { 1 });
        if usize::from(copies) <= devices {
            return Ok(copies);
        }
        let name = if copies == 2 { "mirror" } else { "triple" };
        let class = self.class_word(Class::Fast, on_home);
        let error = refuse(format!("{name} keeps each record on {copies} {class}devices, but {}", only(devices)));
        Err(error.advise(match (devices, on_home) {
            (_, true) => format!("name {copies} devices with --fast DIR, or choose --small-redundancy none"),
            (2, _) => "add another with --fast DIR, or choose --small-redundancy mirror".to_owned(),
            _ => "add others with --fast DIR, or choose --small-redundancy none".to_owned(),
        }))
    }

    /// Data and parity units of a stripe; parity as requested or as the devices allow.
    fn widths_for(&self, asked: Option<u8>, on_home: bool) -> Result<(u8, u8)> {
        let devices = self.stripe_devices().count();
        let parity = asked.unwrap_or(if devices > LEAST_DATA_WITH_PARITY { 1 } else { 0 });
        let units = usize::from(parity);
        if parity > 0 && devices < LEAST_DATA_WITH_PARITY + units {
            let class = self.class_word(Class::Slow, on_home);
            let least = LEAST_DATA_WITH_PARITY + units;
            let error = refuse(format!(
                "{} needs at least {least} {class}devices ({LEAST_DATA_WITH_PARITY} + {parity}), but {}",
                if parity == 1 { "raid5" } else { "raid6" },
                only(devices),
            ));
            let lower = if parity == 2 && devices == least - 1 { "raid5" } else { "none" };
            return Err(error.advise(format!("name {least} with --slow DIR, or choose --large-redundancy {lower}")));
        }
        let spare = usize::from(parity > 0 && devices >= DEVICES_WITH_SPARE);
        let data = (devices - units - spare).clamp(1, WIDEST_DATA.into());
        Ok((data as u8, parity))
    }

    /// The class as named in a message, with a trailing space; empty if the home or the other class takes the role.
    fn class_word(&self, class: Class, on_home: bool) -> &'static str {
        match class {
            _ if on_home || !self.has(class) => "",
            Class::Fast => "fast ",
            Class::Slow => "slow ",
        }
    }
}

fn only(devices: usize) -> String {
    if devices == 1 { "there is one".to_owned() } else { format!("there are only {devices}") }
}

fn refuse(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, "create the store", cause)
}

/// 16 random bytes from the system.
pub(crate) fn random_identity() -> Result<[u8; 16]> {
    let mut identity = [0; 16];
    let mut filled = 0;
    while let Some(rest) = identity.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(bytes) => filled += bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("read random bytes from", Path::new("the system"), errno.into())),
        }
    }
    Ok(identity)
}

#[cfg(test)]
mod tests;
