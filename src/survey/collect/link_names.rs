//! Which of the names of a file is the one that it counts for, and that name until this is decided.
//!
//! It is the name in the directory with the smallest inode number, and there the smallest in byte order; a file that is
//! a root itself comes before all others. Both a walk and an inode scan know this of a name at once, and neither
//! threads nor the order of directories influence it. (A directory that a bind mount shows twice is the same directory:
//! there the smaller path decides.)

use serde::{Deserialize, Serialize};

use super::{Collector, FileRow, Shard};
use crate::locks::lock;
use crate::scan::links::{Joined, Link, SeenLink};
use crate::scan::place::{Parent, Place};
use crate::scan::{self, Batch, Stat, Visitor, join};
use crate::survey::HardLinks;
use crate::survey::places::{Extension, Tally};
use crate::survey::tree::{Sums, Traits};

/// The smallest name of a file that was met, and what is needed to count the file there.
#[derive(Debug)]
pub(super) struct LinkName {
    pub(super) place: Place<Sums>,
    pub(super) data: LinkNameData,
}

/// A name without its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::survey) struct LinkNameData {
    /// Inode number of its directory; 0 for a root.
    directory: u64,
    /// The name; the whole path of a root.
    pub(super) name: Box<[u8]>,
    pub(super) file: LinkedFile,
    /// The row for the table of files, if there is one.
    pub(super) row: Option<Box<Stat>>,
}

/// What the sums of a directory need to know of a file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LinkedFile {
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) link_count: u32,
    pub(super) traits: Traits,
}

/// A name that is being met.
pub(super) struct MetName<'a> {
    pub(super) link: Link,
    pub(super) file: LinkedFile,
    pub(super) name: &'a [u8],
    pub(super) parent: &'a Parent<Sums>,
}

impl LinkNameData {
    /// The owner of the file.
    pub(in crate::survey) fn uid(&self) -> u32 {
        self.file.traits.uid
    }
}

impl LinkedFile {
    pub(super) fn of(stat: &Stat) -> LinkedFile {
        let Stat { size_bytes, allocated_bytes, link_count, .. } = *stat;
        LinkedFile { size_bytes, allocated_bytes, link_count, traits: Traits::of(stat) }
    }
}

impl MetName<'_> {
    /// Whether this name comes before `other`.
    pub(super) fn is_before(&self, other: &LinkName) -> bool {
        let mine = (self.parent.inode(), self.name);
        match mine.cmp(&(other.data.directory, &other.data.name)) {
            std::cmp::Ordering::Equal => self.parent.path() < other.place.path(),
            different => different.is_lt(),
        }
    }

    /// The name to keep; its directory waits for the decision.
    pub(super) fn keep(&self, row: Option<&Stat>) -> LinkName {
        let row = row.map(|stat| Box::new(*stat));
        let data = LinkNameData { directory: self.parent.inode(), name: self.name.into(), file: self.file, row };
        LinkName { place: self.parent.hold(), data }
    }
}

impl LinkName {
    /// Whether it comes before another name of the same file.
    fn is_before(&self, other: &LinkName) -> bool {
        let key = |name: &LinkName| (name.data.directory, name.data.name.clone());
        match key(self).cmp(&key(other)) {
            std::cmp::Ordering::Equal => self.place.path() < other.place.path(),
            different => different.is_lt(),
        }
    }

    /// Its whole path.
    pub(super) fn path(&self) -> Vec<u8> {
        join(self.place.path(), &self.data.name)
    }
}

/// What follows from the names of a batch once its shard is free.
#[derive(Default)]
pub(super) struct FollowUp {
    /// What counts in the directory of the batch.
    own: Sums,
    /// Names that are no longer the smallest.
    displaced: Vec<LinkName>,
    /// The smallest names of files of which all were met.
    decided: Vec<LinkName>,
}

impl Collector {
    /// The places of undecided names, in the order of [`rest`](Self::rest).
    pub(in crate::survey) fn held(&self) -> Vec<Place<Sums>> {
        self.links.snapshot(|name| name.place.clone()).into_iter().map(|(_, place)| place).collect()
    }

    /// The devices of undecided names, in order, each with the path of one of them.
    pub(in crate::survey) fn undecided_devices(&self) -> Vec<(u64, Vec<u8>)> {
        let links = self.links.snapshot(|name| name.path());
        let mut devices: Vec<(u64, Vec<u8>)> = Vec::new();
        for (link, path) in links {
            if devices.last().is_none_or(|(device, _)| *device != link.device()) {
                devices.push((link.device(), path));
            }
        }
        devices
    }

    /// Continues with the undecided names of a checkpoint.
    pub(in crate::survey) fn restore_links(&self, links: &[(SeenLink, LinkNameData)], held: Vec<Place<Sums>>) {
        for ((link, data), place) in links.iter().zip(held) {
            self.links.restore(*link, LinkName { place, data: data.clone() });
        }
    }

    /// Adds the undecided names of one of the parts of a divided walk, which may be names of files that others met too.
    pub(in crate::survey) fn join_links(&self, links: &[(SeenLink, LinkNameData)], held: Vec<Place<Sums>>) {
        for ((link, data), place) in links.iter().zip(held) {
            let name = LinkName { place, data: data.clone() };
            let joined = self.links.join(*link, data.file.link_count, name, LinkName::is_before);
            let Some(Joined { displaced, decided }) = joined else { continue };
            let mut shard = self.shard(0);
            let mut sums = Sums::default();
            // Each part left its first name for the decision: all but one are names like others.
            match (self.hard_links, &displaced.data.row) {
                (HardLinks::Once, _) => shard.counts.hard_links_skipped += 1,
                (_, Some(stat)) => {
                    shard.files(&[self.row(stat, 1)], self);
                    let extension = Extension::of(last_component(&displaced.data.name));
                    sums = self.sums_at(&displaced.data.file, 1, extension);
                    shard.add_extension(extension, &sums.tally);
                }
                (_, None) => {}
            }
            drop(shard);
            self.release(0, displaced.place, &sums);
            decided.into_iter().for_each(|name| self.count_decided(0, name));
        }
    }

    /// Counts files whose names were not all met at the smallest that was: there will be no more.
    pub(in crate::survey) fn decide_links(&self) {
        for name in self.links.drain() {
            self.count_decided(0, name);
        }
    }

    /// Counts a file at its smallest name.
    fn count_decided(&self, worker: usize, name: LinkName) {
        let extension = Extension::of(last_component(&name.data.name));
        let sums = self.sums_at(&name.data.file, 0, extension);
        let mut shard = self.shard(worker);
        shard.add_extension(extension, &sums.tally);
        if let Some(stat) = name.data.row.as_deref().filter(|_| self.is_divided) {
            let counted = shard.files(&[self.row(stat, 0)], self);
            self.advance(0, &counted);
        }
        drop(shard);
        if let Place::Position(position) = name.place {
            self.offer_unlocated(position, &sums.tally, &name.data.name);
        } else {
            let (size_bytes, allocated_bytes) = (sums.tally.size_bytes as u64, sums.tally.allocated_bytes as u64);
            self.shard(worker).offer_file(size_bytes, allocated_bytes, || name.path());
        }
        if let (Some(table), Some(stat)) = (&self.file_table, &name.data.row) {
            let mut row = Batch::default();
            row.push(&name.path(), **stat);
            table.add(row);
        }
        self.release(worker, name.place, &sums);
    }

    /// Adds `tally` to the sums of the directory of a name that was undecided.
    fn release(&self, worker: usize, place: Place<Sums>, sums: &Sums) {
        match place {
            Place::Root => {}
            Place::Walked(directory) => {
                directory.release(sums, |directory, own, below| self.finished(worker, directory, own, below));
            }
            Place::Position(position) => {
                let mut late = lock(&self.late);
                let packed = late.entry(position).or_default();
                let mut whole = Sums::from(&*packed);
                scan::Tally::add(&mut whole, sums);
                *packed = whole.into();
            }
        }
    }

    /// Whether it matters which of its names a file counts for.
    #[inline]
    pub(super) fn is_undecided(&self, file: &LinkedFile) -> bool {
        let names = u64::from(file.link_count.max(1));
        names > 1
            && match self.hard_links {
                HardLinks::Once => true,
                HardLinks::Each => false,
                HardLinks::Shared => {
                    !file.size_bytes.is_multiple_of(names) || !file.allocated_bytes.is_multiple_of(names)
                }
            }
    }

    /// Meets a name of a file with several. Returns how many names were met before.
    pub(super) fn meet(&self, shard: &mut Shard, met: &MetName<'_>, row: Option<&Stat>, after: &mut FollowUp) -> u32 {
        let found = self.links.meet(met.link, |known| met.is_before(known), || met.keep(row));
        if self.hard_links == HardLinks::Shared {
            // Every name but the smallest counts for its share at once.
            let sums_as = |name: &[u8]| {
                let extension = Extension::of(last_component(name));
                (extension, self.sums_at(&met.file, 1, extension))
            };
            if let Some(displaced) = &found.displaced {
                let (extension, sums) = sums_as(&displaced.data.name);
                shard.add_extension(extension, &sums.tally);
            } else if !found.smallest {
                let (extension, sums) = sums_as(met.name);
                shard.add_extension(extension, &sums.tally);
                scan::Tally::add(&mut after.own, &sums);
            }
        }
        after.displaced.extend(found.displaced);
        after.decided.extend(found.decided);
        found.ordinal
    }

    /// What has to wait until the shard is free again.
    pub(super) fn follow_up(&self, worker: usize, after: FollowUp, own: &mut Sums) {
        scan::Tally::add(own, &after.own);
        for name in after.displaced {
            let shared = self.hard_links == HardLinks::Shared;
            let extension = Extension::of(last_component(&name.data.name));
            let sums = if shared { self.sums_at(&name.data.file, 1, extension) } else { Sums::default() };
            self.release(worker, name.place, &sums);
        }
        after.decided.into_iter().for_each(|name| self.count_decided(worker, name));
    }

    /// The tally of a file at one of its names: the smallest is number 0.
    #[inline]
    pub(super) fn tally_at(&self, file: &LinkedFile, number: u32) -> Tally {
        let share = |bytes| self.share(bytes, file.link_count, number);
        self.tally(share(file.size_bytes), share(file.allocated_bytes))
    }

    /// The sums of a file at one of its names, which has `extension`.
    #[inline]
    fn sums_at(&self, file: &LinkedFile, number: u32, extension: Extension) -> Sums {
        let tally = self.tally_at(file, number);
        Sums::of_file(tally, tally.size_bytes as u64, file.traits, extension)
    }

    /// The row of a file with several names, if its attributes count at this one. Which name they count for is decided
    /// later, and the distributions do not depend on it.
    pub(super) fn undecided_row(
        &self,
        shard: &mut Shard,
        name: &[u8],
        stat: &Stat,
        parent: &Parent<Sums>,
        after: &mut FollowUp,
    ) -> Option<FileRow> {
        let met = MetName { link: Link::from(stat), file: LinkedFile::of(stat), name, parent };
        let once = self.hard_links == HardLinks::Once;
        let with_row = self.is_divided || once && self.file_table.is_some();
        let ordinal = self.meet(shard, &met, with_row.then_some(stat), after);
        if self.is_divided && ordinal == 0 {
            // Another process may meet a first name of the file too.
            return None;
        }
        if once && ordinal > 0 {
            shard.counts.hard_links_skipped += 1;
            return None;
        }
        Some(self.row(stat, ordinal))
    }
}

/// The name at the end of a path.
pub(super) fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
