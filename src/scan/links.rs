//! The set of files with several names that were seen: only for link counts above 1, sharded against contention.
//!
//! An inode leaves the set when all its names were seen, so the set holds only files with names still to come, or
//! outside the roots: 16 bytes per entry, 18 to 37 with the table's unused capacity.

use crate::locks::lock;
use std::sync::Mutex;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::Stat;

const SHARDS: usize = 16;

/// Files with several names, some of which were seen.
#[derive(Debug, Default)]
pub struct LinkSet {
    devices: Mutex<Vec<u64>>,
    shards: [Mutex<HashMap<Key, u32>>; SHARDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
struct Key {
    inode: u64,
    /// Index in `devices`; there are few.
    device: u32,
}

/// A file that may have several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The device that contains it.
    pub device: u64,
    /// Its inode number on the device.
    pub inode: u64,
    /// Its number of names.
    pub link_count: u32,
}

impl From<&Stat> for Link {
    fn from(stat: &Stat) -> Link {
        Link { device: stat.device, inode: stat.inode, link_count: stat.link_count }
    }
}

/// One entry of the set as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenLink {
    device: u64,
    inode: u64,
    unseen: u32,
}

impl SeenLink {
    /// Replaces its device number with the current one, as returned by `now`.
    pub fn renumber_device(&mut self, now: &impl Fn(u64) -> u64) {
        self.device = now(self.device);
    }
}

impl LinkSet {
    /// Number of names of the file that were seen before this one.
    pub fn ordinal(&self, link: Link) -> u32 {
        if link.link_count < 2 {
            return 0;
        }
        let key = Key { inode: link.inode, device: self.device_number(link.device) };
        let mut shard = lock(&self.shards[link.inode as usize % SHARDS]);
        match shard.get_mut(&key) {
            None => {
                shard.insert(key, link.link_count - 1);
                0
            }
            Some(unseen) => {
                // A link created during the scan must not make this less than 1.
                let ordinal = link.link_count.saturating_sub(*unseen).max(1);
                *unseen -= 1;
                if *unseen == 0 {
                    shard.remove(&key);
                }
                ordinal
            }
        }
    }

    fn device_number(&self, device: u64) -> u32 {
        let mut devices = lock(&self.devices);
        let position = devices.iter().position(|&known| known == device);
        position.unwrap_or_else(|| {
            devices.push(device);
            devices.len() - 1
        }) as u32
    }

    /// The set as data, in order.
    pub fn snapshot(&self) -> Vec<SeenLink> {
        let devices = lock(&self.devices);
        let mut links = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            links.extend(shard.iter().map(|(&key, &unseen)| SeenLink {
                device: devices[key.device as usize],
                inode: key.inode,
                unseen,
            }));
        }
        links.sort_unstable_by_key(|link| (link.device, link.inode));
        links
    }

    /// Restores the set from a snapshot.
    pub fn restore(links: &[SeenLink]) -> LinkSet {
        let set = LinkSet::default();
        for link in links {
            let key = Key { inode: link.inode, device: set.device_number(link.device) };
            lock(&set.shards[link.inode as usize % SHARDS]).insert(key, link.unseen.max(1));
        }
        set
    }
}
