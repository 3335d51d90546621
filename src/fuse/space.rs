//! Room and objects, for df(1) and statfs(2).
//!
//! The room is that of content: of the slow devices for a store that has some, since large files need most of it, less
//! what parity needs; and of the fast ones, less what copies need. Several devices on one file system share its room,
//! which counts once. What the store reserves for removals is free, and not available. Every record counts as an
//! object: a file with several names has one for each, and one for itself.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

use rustix::fs::statvfs;

use super::errno::Outcome;
use super::file_system::FileSystem;
use super::wire::reply::{Reply, Room};
use crate::store::Class;

impl FileSystem {
    /// Least room for content on a device of the store.
    pub(super) fn least_available_bytes(&self) -> Outcome<u64> {
        let status = self.store.status(false).map_err(|error| self.fail(error))?;
        let rooms = status.devices.iter().filter_map(|device| device.room);
        Ok(rooms.map(|room| room.put_bytes()).min().unwrap_or(u64::MAX))
    }

    pub(super) fn room(&self) -> Outcome<Reply> {
        let status = self.store.status(false).map_err(|error| self.fail(error))?;
        let geometry = self.store.geometry();
        let (data, units) = (u64::from(geometry.data), u64::from(geometry.data) + u64::from(geometry.parity));
        let mut room = Room { objects: status.live_records, ..Room::default() };
        let has_fast = status.devices.iter().any(|device| device.class == Class::Fast);
        let mut file_systems = HashSet::new();
        for device in &status.devices {
            let is_first = std::fs::metadata(&device.path).is_ok_and(|found| file_systems.insert(found.dev()));
            let Some(found) = device.room.filter(|_| is_first) else { continue };
            let (numerator, denominator) = match device.class {
                Class::Slow if units > 0 => (data, units),
                Class::Fast if has_fast => (1, u64::from(geometry.copies.max(1))),
                _ => (1, 1),
            };
            // With what is reserved for root, as statfs(2) has it.
            let (total_bytes, free_bytes) = statvfs(&device.path)
                .map_or((found.total_bytes, found.available_bytes), |of| {
                    (of.f_blocks * of.f_frsize, of.f_bfree * of.f_frsize)
                });
            room.total_bytes += total_bytes / denominator * numerator;
            room.free_bytes += free_bytes / denominator * numerator;
            room.available_bytes += found.put_bytes() / denominator * numerator;
        }
        Ok(Reply::room(&room))
    }
}
