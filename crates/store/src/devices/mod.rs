//! The devices: directories of files, which of them are in service, placement, and parity across them; and objects in
//! buckets.

pub(crate) mod admission;
pub(crate) mod anchored;
pub(crate) mod aside;
pub(crate) mod bucket;
pub(crate) mod device;
mod direct;
pub(crate) mod directory;
pub(crate) mod epochs;
pub(crate) mod erasure;
pub(crate) mod extents;
pub(crate) mod failing;
pub(crate) mod host;
mod late;
mod locked;
pub(crate) mod names;
pub mod objects;
mod pins;
pub(crate) mod placement;
pub(crate) mod platform;
pub(crate) mod platforms;
mod private;
pub mod published;
pub(crate) mod set;
pub(crate) mod slot;
pub(crate) mod superblocks;
pub(crate) mod survey;
pub(crate) mod threads;
pub(crate) mod watch;
pub(crate) mod written;

/// What helps with an object that no device has intact.
pub(crate) const LOST_ADVICE: &str = "restore it from a backup with granulo store put or import --verify, or drop it with granulo store repair --drop-lost";
