//! The set of files with several names that were seen: only for link counts above 1, sharded against contention.
//!
//! Of each file it keeps the smallest name met, in an order that the caller defines and that no scan can influence. An
//! inode leaves the set when all its names were seen, so the set holds only files with names still to come, or outside
//! the roots: one smallest name each, however many names there are.

use crate::locks::lock;
use std::sync::Mutex;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::Stat;

const SHARDS: usize = 16;

/// Files with several names, some of which were seen, each with the smallest of these.
#[derive(Debug)]
pub(crate) struct LinkSet<N> {
    devices: Mutex<Vec<u64>>,
    shards: [Mutex<HashMap<Key, Seen<N>>>; SHARDS],
}

#[derive(Debug)]
struct Seen<N> {
    unseen: u32,
    smallest: N,
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
pub(crate) struct Link {
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

/// What the set knew of a file when a name of it was met.
#[derive(Debug)]
pub(crate) struct Met<N> {
    /// Number of names of the file that were met before this one.
    pub ordinal: u32,
    /// Whether this name is the smallest up to now.
    pub smallest: bool,
    /// The name that was the smallest up to now.
    pub displaced: Option<N>,
    /// The smallest of all names, if this one was the last.
    pub decided: Option<N>,
}

/// What came of adding an entry of another set.
#[derive(Debug)]
pub(crate) struct Joined<N> {
    /// The name that is not the smallest.
    pub displaced: N,
    /// The smallest of all names, if all were met.
    pub decided: Option<N>,
}

/// The numbers of one entry of the set as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenLink {
    device: u64,
    inode: u64,
    unseen: u32,
}

impl SeenLink {
    /// The device that contains the file.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Replaces its device number with the current one, as returned by `now`.
    pub(crate) fn renumber_device(&mut self, now: &impl Fn(u64) -> u64) {
        self.device = now(self.device);
    }
}

impl<N> Default for LinkSet<N> {
    fn default() -> LinkSet<N> {
        LinkSet { devices: Mutex::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<N> LinkSet<N> {
    /// Records a name of a file whose link count is at least 2: `is_smaller` than the known one, and made by `name` if
    /// it is to be kept.
    pub(crate) fn meet(&self, link: Link, is_smaller: impl FnOnce(&N) -> bool, name: impl FnOnce() -> N) -> Met<N> {
        let key = Key { inode: link.inode, device: self.device_number(link.device) };
        let mut shard = lock(&self.shards[link.inode as usize % SHARDS]);
        let Some(seen) = shard.get_mut(&key) else {
            shard.insert(key, Seen { unseen: link.link_count.saturating_sub(1).max(1), smallest: name() });
            return Met { ordinal: 0, smallest: true, displaced: None, decided: None };
        };
        // A link created during the scan must not make this less than 1.
        let ordinal = link.link_count.saturating_sub(seen.unseen).max(1);
        let smallest = is_smaller(&seen.smallest);
        let displaced = smallest.then(|| std::mem::replace(&mut seen.smallest, name()));
        seen.unseen -= 1;
        let is_last = seen.unseen == 0;
        let decided = if is_last { shard.remove(&key).map(|seen| seen.smallest) } else { None };
        Met { ordinal, smallest, displaced, decided }
    }

    fn device_number(&self, device: u64) -> u32 {
        let mut devices = lock(&self.devices);
        let position = devices.iter().position(|&known| known == device);
        position.unwrap_or_else(|| {
            devices.push(device);
            devices.len() - 1
        }) as u32
    }

    /// Removes and returns the smallest names of all files with names that were not met.
    pub(crate) fn drain(&self) -> Vec<N> {
        let shards = self.shards.iter();
        shards.flat_map(|shard| std::mem::take(&mut *lock(shard)).into_values().map(|seen| seen.smallest)).collect()
    }

    /// The set as data, in order, with what `of` makes of the names.
    pub(crate) fn snapshot<R>(&self, of: impl Fn(&N) -> R) -> Vec<(SeenLink, R)> {
        let devices = lock(&self.devices);
        let mut links = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            links.extend(shard.iter().map(|(&key, seen)| {
                let device = devices[key.device as usize];
                (SeenLink { device, inode: key.inode, unseen: seen.unseen }, of(&seen.smallest))
            }));
        }
        links.sort_unstable_by_key(|(link, _)| (link.device, link.inode));
        links
    }

    /// Adds an entry of the snapshot of a set that met other names: of a file with `link_count` names, the smallest of
    /// which in that set is `name`. `None` if the file is unknown here.
    pub(crate) fn join(
        &self,
        link: SeenLink,
        link_count: u32,
        name: N,
        is_before: impl FnOnce(&N, &N) -> bool,
    ) -> Option<Joined<N>> {
        let key = Key { inode: link.inode, device: self.device_number(link.device) };
        let mut shard = lock(&self.shards[link.inode as usize % SHARDS]);
        let Some(seen) = shard.get_mut(&key) else {
            shard.insert(key, Seen { unseen: link.unseen.max(1), smallest: name });
            return None;
        };
        let displaced =
            if is_before(&name, &seen.smallest) { std::mem::replace(&mut seen.smallest, name) } else { name };
        // A link created during the scans must not make this less than 1.
        let met = link_count.saturating_sub(link.unseen).max(1);
        seen.unseen = seen.unseen.saturating_sub(met);
        let is_last = seen.unseen == 0;
        let decided = if is_last { shard.remove(&key).map(|seen| seen.smallest) } else { None };
        Some(Joined { displaced, decided })
    }

    /// Adds an entry of a snapshot.
    pub(crate) fn restore(&self, link: SeenLink, smallest: N) {
        let key = Key { inode: link.inode, device: self.device_number(link.device) };
        let seen = Seen { unseen: link.unseen.max(1), smallest };
        lock(&self.shards[link.inode as usize % SHARDS]).insert(key, seen);
    }
}
