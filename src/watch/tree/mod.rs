//! What the watcher knows of a file system: every inode with a name, every name, and how they hang together.
//!
//! Directories are identified by their inodes and names by their directory, so that a rename of a directory changes one
//! name, whatever is below it. Paths and depths are derived when somebody asks.
//!
//! Invariants: a name is in one directory and belongs to one inode, or to something odd; an inode knows all its names;
//! a directory has at most one; an inode without names is an orphan until [`Tree::settle`], which drops it with
//! everything below, or until a name for it is found, as in the middle of a rename.
//!
//! Memory: 80 bytes an inode and 40 a name plus its characters, in vectors that grow, and 5 to 9 bytes for each in a
//! table of hashes; about 60 bytes for the handle of each directory.

use std::ffi::CStr;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

use crate::scan::{Kind, Stat, Timestamp};

/// No inode or name.
pub(super) const NONE: u32 = u32::MAX;
/// The number of an inode slot that is not in use.
const FREE: u64 = u64::MAX;

/// Position of an inode.
pub(super) type InodeSlot = u32;
/// Position of a name.
pub(super) type NameSlot = u32;

/// An inode.
#[derive(Debug, Clone)]
struct Inode {
    number: u64,
    size_bytes: u64,
    allocated_bytes: u64,
    /// Seconds of mtime, ctime and atime.
    times: [i64; 3],
    ctime_nanoseconds: u32,
    link_count: u32,
    uid: u32,
    /// The first of its names; they are linked.
    name: NameSlot,
    /// The first name in it, if it is a directory; they are linked both ways.
    first_child: NameSlot,
    kind: Kind,
}

/// A name in a directory.
#[derive(Debug, Clone)]
struct Name {
    directory: InodeSlot,
    /// What it refers to; [`NONE`] for something odd.
    inode: InodeSlot,
    next: NameSlot,
    previous: NameSlot,
    next_of_inode: NameSlot,
    text: Box<[u8]>,
}

/// A failed operation: what was done, and the error number.
pub(super) type Trouble = (&'static str, i32);

/// A name that counts as a name only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Odd {
    /// Something else is mounted there.
    MountPoint,
    /// Its inode could not be read.
    Unreadable(Trouble),
}

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// An inode of the file system.
    Inode(Stat),
    /// Something else.
    Odd(Odd),
}

/// The inodes and names of a file system.
#[derive(Debug)]
pub(super) struct Tree {
    device: u64,
    root: InodeSlot,
    inodes: Vec<Inode>,
    free_inodes: Vec<InodeSlot>,
    names: Vec<Name>,
    free_names: Vec<NameSlot>,
    by_number: HashTable<InodeSlot>,
    by_name: HashTable<NameSlot>,
    odd: HashMap<NameSlot, Odd>,
    /// Handles of directories, by which events name them: a number may be used again, a handle never is.
    handles: HashMap<InodeSlot, Box<[u8]>>,
    /// Directories that could not be listed, or not to the end.
    unlisted: HashMap<InodeSlot, Trouble>,
    orphans: Vec<(InodeSlot, u64)>,
    hasher: DefaultHashBuilder,
}

impl Inode {
    fn of(stat: &Stat) -> Inode {
        let mut inode = Inode {
            number: stat.inode,
            size_bytes: 0,
            allocated_bytes: 0,
            times: [0; 3],
            ctime_nanoseconds: 0,
            link_count: 0,
            uid: 0,
            name: NONE,
            first_child: NONE,
            kind: stat.kind,
        };
        inode.update(stat);
        inode
    }

    fn update(&mut self, stat: &Stat) {
        self.size_bytes = stat.size_bytes;
        self.allocated_bytes = stat.allocated_bytes;
        self.times = [stat.mtime, stat.ctime, stat.atime].map(|time| time.seconds);
        self.ctime_nanoseconds = stat.ctime.nanoseconds;
        self.link_count = stat.link_count;
        self.uid = stat.uid;
    }
}

impl Tree {
    /// A file system of which only the root is known.
    pub(super) fn new(root: &Stat) -> Tree {
        let mut tree = Tree {
            device: root.device,
            root: 0,
            inodes: Vec::new(),
            free_inodes: Vec::new(),
            names: Vec::new(),
            free_names: Vec::new(),
            by_number: HashTable::new(),
            by_name: HashTable::new(),
            odd: HashMap::new(),
            handles: HashMap::new(),
            unlisted: HashMap::new(),
            orphans: Vec::new(),
            hasher: DefaultHashBuilder::default(),
        };
        tree.root = tree.insert(root);
        tree
    }

    /// The root.
    pub(super) fn root(&self) -> InodeSlot {
        self.root
    }

    /// Number of inodes, and of names.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.by_number.len(), self.by_name.len())
    }

    /// The inode with a number.
    pub(super) fn inode(&self, number: u64) -> Option<InodeSlot> {
        let hash = self.hasher.hash_one(number);
        self.by_number.find(hash, |&slot| self.inodes[slot as usize].number == number).copied()
    }

    /// The directory with a number, if this is its handle: certainly the one that is known.
    pub(super) fn directory(&self, number: u64, handle: &[u8]) -> Option<InodeSlot> {
        self.inode(number).filter(|slot| self.handles.get(slot).is_some_and(|known| **known == *handle))
    }

    /// Records the handle of a directory that is about to be listed.
    pub(super) fn set_handle(&mut self, directory: InodeSlot, handle: &[u8]) {
        self.handles.insert(directory, handle.into());
    }

    /// The inode's number.
    pub(super) fn number(&self, inode: InodeSlot) -> u64 {
        self.inodes[inode as usize].number
    }

    /// The inode's kind.
    pub(super) fn kind(&self, inode: InodeSlot) -> Kind {
        self.inodes[inode as usize].kind
    }

    /// The inode's attributes, as far as a survey uses them.
    pub(super) fn stat(&self, inode: InodeSlot) -> Stat {
        let inode = &self.inodes[inode as usize];
        let [mtime, ctime, atime] = inode.times.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        Stat {
            kind: inode.kind,
            size_bytes: inode.size_bytes,
            allocated_bytes: inode.allocated_bytes,
            link_count: inode.link_count,
            uid: inode.uid,
            gid: 0,
            mode: 0,
            device: self.device,
            inode: inode.number,
            mtime,
            ctime: Timestamp { nanoseconds: inode.ctime_nanoseconds, ..ctime },
            atime,
        }
    }

    /// The name of an entry.
    pub(super) fn text(&self, name: NameSlot) -> &[u8] {
        &self.names[name as usize].text
    }

    /// What a name leads to: an inode, or something odd.
    pub(super) fn target(&self, name: NameSlot) -> Result<InodeSlot, Odd> {
        match self.names[name as usize].inode {
            NONE => Err(self.odd.get(&name).copied().unwrap_or(Odd::MountPoint)),
            inode => Ok(inode),
        }
    }

    /// The directory of an inode's first name, and the name.
    pub(super) fn place(&self, inode: InodeSlot) -> Option<(InodeSlot, &[u8])> {
        let name = self.names.get(self.inodes[inode as usize].name as usize)?;
        Some((name.directory, &name.text))
    }

    /// The files whose inodes changed at a time, in seconds since 1970, or later.
    pub(super) fn files_changed_since(&self, since: i64) -> Vec<InodeSlot> {
        let is_late = |inode: &Inode| inode.number != FREE && inode.kind == Kind::File && inode.times[1] >= since;
        (0..).zip(&self.inodes).filter(|(_, inode)| is_late(inode)).map(|(slot, _)| slot).collect()
    }

    /// Why a directory is not known to the end.
    pub(super) fn trouble(&self, directory: InodeSlot) -> Option<Trouble> {
        self.unlisted.get(&directory).copied()
    }

    /// Records whether a directory could be listed.
    pub(super) fn set_trouble(&mut self, directory: InodeSlot, trouble: Option<Trouble>) {
        match trouble {
            Some(trouble) => self.unlisted.insert(directory, trouble),
            None => self.unlisted.remove(&directory),
        };
    }

    /// The names in a directory.
    pub(super) fn children(&self, directory: InodeSlot) -> impl Iterator<Item = NameSlot> {
        let first = Some(self.inodes[directory as usize].first_child).filter(|&name| name != NONE);
        std::iter::successors(first, |&name| Some(self.names[name as usize].next).filter(|&name| name != NONE))
    }

    /// The entry `name` of a directory.
    pub(super) fn child(&self, directory: InodeSlot, name: &[u8]) -> Option<NameSlot> {
        let same = |&slot: &NameSlot| {
            let known = &self.names[slot as usize];
            known.directory == directory && *known.text == *name
        };
        self.by_name.find(self.hash_name(directory, name), same).copied()
    }

    fn hash_name(&self, directory: InodeSlot, name: &[u8]) -> u64 {
        self.hasher.hash_one((directory, name))
    }

    /// Updates the attributes of an inode, if it is known and still of the kind that it was: otherwise the number was
    /// used again, and events on names say so.
    pub(super) fn update(&mut self, stat: &Stat) -> Option<InodeSlot> {
        let slot = self.inode(stat.inode).filter(|&slot| same_kind(self.kind(slot), stat.kind))?;
        self.inodes[slot as usize].update(stat);
        Some(slot)
    }

    /// Whether a known inode has other attributes than these, or may have changed in other ways since a time, in
    /// seconds since 1970. Access times do not matter.
    pub(super) fn differs(&self, stat: &Stat, since: i64) -> Option<InodeSlot> {
        let slot = self.inode(stat.inode)?;
        let known = &self.inodes[slot as usize];
        let attributes = (stat.size_bytes, stat.allocated_bytes, stat.link_count, stat.uid);
        let is_same = same_kind(known.kind, stat.kind)
            && (known.size_bytes, known.allocated_bytes, known.link_count, known.uid) == attributes
            && (known.times[0], known.times[1]) == (stat.mtime.seconds, stat.ctime.seconds)
            && known.ctime_nanoseconds == stat.ctime.nanoseconds
            && stat.ctime.seconds < since;
        (!is_same).then_some(slot)
    }

    /// The path below the root of an inode that is below it, by its first name; empty for the root.
    pub(super) fn path(&self, inode: InodeSlot) -> Vec<u8> {
        let mut path = Vec::new();
        if let Some((directory, name)) = self.place(inode) {
            self.write_path(directory, name, usize::MAX, &mut path);
            path.pop();
        }
        path
    }

    /// Writes the path below the root of `name` in a directory to `path`. `None`, and `path` is what it was, if it has
    /// more than `most_bytes`, or the directory is not below the root at the moment: directories that changed places
    /// may form a ring until both names were looked at.
    pub(super) fn write_path<'p>(
        &self,
        directory: InodeSlot,
        name: &[u8],
        most_bytes: usize,
        path: &'p mut Vec<u8>,
    ) -> Option<&'p CStr> {
        let (mut at, mut bytes) = (directory, name.len());
        while let Some((above, name)) = self.place(at) {
            bytes += name.len() + 1;
            if bytes > most_bytes {
                return None;
            }
            at = above;
        }
        if at != self.root || bytes > most_bytes {
            return None;
        }
        path.clear();
        path.resize(bytes + 1, 0);
        // From its end, as names lead upwards.
        let (mut end, mut next) = (bytes, Some((directory, name)));
        while let Some((above, name)) = next {
            path[end - name.len()..end].copy_from_slice(name);
            end -= name.len();
            next = self.place(above);
            if next.is_some() {
                end -= 1;
                path[end] = b'/';
            }
        }
        CStr::from_bytes_with_nul(path).ok()
    }

    /// Records that `name` in `directory` leads to `entry`. Returns whether that is a directory that was not known
    /// there, so that its names have to be listed.
    pub(super) fn put(&mut self, directory: InodeSlot, name: &[u8], entry: &Entry) -> bool {
        let stat = match entry {
            Entry::Inode(stat) => stat,
            Entry::Odd(odd) => {
                let slot = match self.child(directory, name) {
                    Some(slot) if self.names[slot as usize].inode == NONE => slot,
                    known => {
                        known.into_iter().for_each(|slot| self.detach(slot));
                        self.attach(directory, name, NONE)
                    }
                };
                self.odd.insert(slot, *odd);
                return false;
            }
        };
        let mut inode = self.inode(stat.inode);
        if let Some(slot) = inode {
            if slot == self.root {
                return false;
            }
            if !same_kind(self.kind(slot), stat.kind) {
                self.renew(slot, stat);
            }
        }
        if let Some(slot) = self.child(directory, name) {
            if inode == Some(self.names[slot as usize].inode) {
                self.replace_attributes(inode, stat);
                return false;
            }
            self.detach(slot);
        }
        let slot = *inode.get_or_insert_with(|| self.insert(stat));
        self.replace_attributes(inode, stat);
        let is_directory = stat.kind == Kind::Directory;
        let old = self.inodes[slot as usize].name;
        if is_directory && old != NONE {
            self.detach(old);
        }
        self.attach(directory, name, slot);
        is_directory
    }

    /// Updates an inode from a look at one of its names, which also knows where a symbolic link leads.
    fn replace_attributes(&mut self, inode: Option<InodeSlot>, stat: &Stat) {
        if let Some(inode) = inode.and_then(|slot| self.inodes.get_mut(slot as usize)) {
            inode.update(stat);
            inode.kind = stat.kind;
        }
    }

    /// Removes a name. Its inode becomes an orphan if that was its last.
    pub(super) fn detach(&mut self, slot: NameSlot) {
        let Name { directory, inode, next, previous, next_of_inode, text } = std::mem::replace(
            &mut self.names[slot as usize],
            Name {
                directory: NONE,
                inode: NONE,
                next: NONE,
                previous: NONE,
                next_of_inode: NONE,
                text: Box::default(),
            },
        );
        if let Ok(entry) = self.by_name.find_entry(self.hasher.hash_one((directory, &*text)), |&other| other == slot) {
            entry.remove();
        }
        match previous {
            NONE => self.inodes[directory as usize].first_child = next,
            previous => self.names[previous as usize].next = next,
        }
        if next != NONE {
            self.names[next as usize].previous = previous;
        }
        if inode == NONE {
            self.odd.remove(&slot);
        } else {
            let mut at = self.inodes[inode as usize].name;
            if at == slot {
                self.inodes[inode as usize].name = next_of_inode;
            } else {
                while self.names[at as usize].next_of_inode != slot {
                    at = self.names[at as usize].next_of_inode;
                }
                self.names[at as usize].next_of_inode = next_of_inode;
            }
            if self.inodes[inode as usize].name == NONE {
                self.orphans.push((inode, self.number(inode)));
            }
        }
        self.free_names.push(slot);
    }

    /// Drops inodes without a name, and what is below them.
    pub(super) fn settle(&mut self) {
        while let Some((slot, number)) = self.orphans.pop() {
            let inode = &self.inodes[slot as usize];
            if inode.number != number || inode.name != NONE {
                continue;
            }
            self.detach_children(slot);
            if let Ok(entry) = self.by_number.find_entry(self.hasher.hash_one(number), |&other| other == slot) {
                entry.remove();
            }
            self.unlisted.remove(&slot);
            self.handles.remove(&slot);
            self.inodes[slot as usize].number = FREE;
            self.free_inodes.push(slot);
        }
    }

    fn detach_children(&mut self, directory: InodeSlot) {
        self.keep_children(directory, &HashSet::new());
    }

    /// Removes the names of a directory that are not in `kept`.
    pub(super) fn keep_children(&mut self, directory: InodeSlot, kept: &HashSet<NameSlot>) {
        let gone: Vec<NameSlot> = self.children(directory).filter(|child| !kept.contains(child)).collect();
        gone.into_iter().for_each(|child| self.detach(child));
    }

    /// The number of an inode was used again for another kind: nothing of the old one remains.
    fn renew(&mut self, slot: InodeSlot, stat: &Stat) {
        self.detach_children(slot);
        while self.inodes[slot as usize].name != NONE {
            self.detach(self.inodes[slot as usize].name);
        }
        self.unlisted.remove(&slot);
        self.handles.remove(&slot);
        self.inodes[slot as usize] = Inode::of(stat);
    }

    fn insert(&mut self, stat: &Stat) -> InodeSlot {
        let slot = store(Inode::of(stat), &mut self.inodes, &mut self.free_inodes);
        let (inodes, hasher) = (&self.inodes, &self.hasher);
        let hash = |slot: &InodeSlot| hasher.hash_one(inodes[*slot as usize].number);
        self.by_number.insert_unique(hasher.hash_one(stat.inode), slot, hash);
        slot
    }

    fn attach(&mut self, directory: InodeSlot, text: &[u8], inode: InodeSlot) -> NameSlot {
        let next = self.inodes[directory as usize].first_child;
        let next_of_inode = self.inodes.get(inode as usize).map_or(NONE, |inode| inode.name);
        let name = Name { directory, inode, next, previous: NONE, next_of_inode, text: text.into() };
        let slot = store(name, &mut self.names, &mut self.free_names);
        if next != NONE {
            self.names[next as usize].previous = slot;
        }
        self.inodes[directory as usize].first_child = slot;
        if let Some(inode) = self.inodes.get_mut(inode as usize) {
            inode.name = slot;
        }
        let (names, hasher) = (&self.names, &self.hasher);
        let hash = |slot: &NameSlot| {
            let name = &names[*slot as usize];
            hasher.hash_one((name.directory, &*name.text))
        };
        self.by_name.insert_unique(hasher.hash_one((directory, text)), slot, hash);
        slot
    }
}

fn same_kind(a: Kind, b: Kind) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// Keeps an item in a slot that is free, or in a new one.
fn store<T>(item: T, items: &mut Vec<T>, free: &mut Vec<u32>) -> u32 {
    match free.pop() {
        Some(slot) => {
            items[slot as usize] = item;
            slot
        }
        None => {
            items.push(item);
            (items.len() - 1) as u32
        }
    }
}

#[cfg(test)]
mod tests;
