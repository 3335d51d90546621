//! Geometry: which devices a store has, and how it spreads objects over them.

use std::path::PathBuf;

use crate::units::{GIB, KIB, MIB};

/// Objects up to this size are records whatever the cutoff: a descriptor would take more.
pub use crate::layout::granulo::ALWAYS_RECORD_BYTES;

/// Class of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// For records.
    Fast = 1,
    /// For stripe units.
    Slow = 2,
}

/// State of a device in the geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeviceState {
    /// In use.
    InUse = 1,
    /// New in the place of a lost one; not everything is on it yet.
    Rebuilding = 2,
    /// Left the store; its number is not used again.
    Gone = 3,
}

/// A device of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its number: the position in the geometry.
    pub number: u16,
    /// Random identity.
    pub identity: [u8; 16],
    /// Class.
    pub class: Class,
    /// State.
    pub state: DeviceState,
    /// Its directory; relative ones are relative to the home.
    pub path: PathBuf,
}

/// Compression of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Records are kept as they are.
    None,
    /// zstd of a level, -7 to 22.
    Zstd(i8),
}

/// How a store is laid out. The same on every device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Random identity of the store.
    pub store: [u8; 16],
    /// When it was made, nanoseconds since 1970.
    pub created_nanoseconds: i64,
    /// Largest object that is a record, in bytes.
    pub cutoff_bytes: u64,
    /// Stripe unit in bytes.
    pub stripe_unit_bytes: u32,
    /// Copies of records: 1 to 3.
    pub copies: u8,
    /// Units with data in a stripe.
    pub data: u8,
    /// Parity units in a stripe: 0 to 2.
    pub parity: u8,
    /// Compression of records.
    pub compression: Compression,
    /// Above this share of a fast device, in per cent, records go to slow ones.
    pub high_watermark_percent: u8,
    /// Down to this share `rebalance` and fresh records fill a fast device again.
    pub low_watermark_percent: u8,
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
    /// The devices, by number.
    pub devices: Vec<DeviceEntry>,
    /// The home's directory, as the devices know it; empty if the home is device 0.
    pub home: PathBuf,
}

/// What a new store is to be: options of `store init`. Widths that are not given follow from the number of devices.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directories of fast devices. Without any device, the home is the one device.
    pub fast: Vec<PathBuf>,
    /// Directories of slow devices.
    pub slow: Vec<PathBuf>,
    /// Largest object that is a record, in bytes.
    pub cutoff_bytes: u64,
    /// Copies of records; `None`: 2 if there are two fast devices, else 1.
    pub copies: Option<u8>,
    /// Parity units; `None`: 1 from three slow devices on, else 0.
    pub parity: Option<u8>,
    /// Stripe unit in bytes.
    pub stripe_unit_bytes: u32,
    /// Compression of records.
    pub compression: Compression,
    /// High and low watermark in per cent.
    pub watermarks_percent: (u8, u8),
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
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
            compression: Compression::None,
            watermarks_percent: (90, 80),
            segment_bytes: 64 * MIB,
        }
    }
}

/// The largest offset in a segment or an extent file.
pub const LARGEST_FILE_BYTES: u64 = 16 * GIB;
