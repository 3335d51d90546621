//! btrfs, read from its devices or an image.
//!
//! A tree of trees has one tree for each subvolume and snapshot. In it, the items of an inode are adjacent: the inode,
//! the names in a directory, the target of a symlink. The nodes above the leaves are read when the file system is
//! opened and locate the leaves; a part of the tables is a run of leaves. Nothing is ever changed in place: what the
//! superblock refers to stays intact until a later transaction reuses the space of blocks deleted since. A leaf that
//! was replaced meanwhile is looked up in the newest transaction.
//!
//! Every block contains a checksum, its own address and the transaction that wrote it; they are checked against the
//! pointer to it. Inode numbers here combine the position of the tree with the inode number in it.

mod chunks;
mod inode;
mod node;
mod subvolumes;
mod superblock;
mod volume;

use std::collections::HashMap;
use std::hash::Hasher;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use twox_hash::XxHash3_64;

use self::node::{HEADER_BYTES, KEY_BYTES, Key, Pointer, items};
use self::subvolumes::{Edge, Subvolumes};
use self::superblock::Superblock;
use self::volume::{Volume, refuse};
use super::fields::{LittleEndian, Record as _};
use super::medium::Medium;
use super::{Damage, Found, InodeSource, Listed, Slot, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::lock;
use crate::scan::{Kind, Stat};

const CHECKSUM_BYTES: usize = 32;
const INODE_ITEM: u8 = 1;
const DIR_ITEM: u8 = 84;
const DIR_INDEX: u8 = 96;
const EXTENT_DATA: u8 = 108;
const ROOT_ITEM: u8 = 132;
const ROOT_REF: u8 = 156;
const CHUNK_ITEM: u8 = 228;
/// Numbers of user-visible inodes and trees are between these; the first is the root of each subvolume.
const FIRST_FREE: u64 = 256;
const LAST_FREE: u64 = u64::MAX - 255;
/// Leaves per part.
const PART_LEAVES: usize = 64;
/// Parts to read ahead.
const AHEAD_PARTS: usize = 4;
/// Leaves to read ahead for directories.
const AHEAD_LEAVES: usize = 8;
/// Largest number of leaves that are remembered, over all snapshots: 160 MiB, for 64 GiB of trees.
const MOST_LEAVES: usize = 1 << 22;
/// The part of an entry of a directory before its name.
const ENTRY_BYTES: usize = 30;
/// An entry of a directory with a name of one byte.
const SMALLEST_ENTRY_BYTES: usize = 56;
/// The position of a tree, shifted left by this, precedes the inode number in it.
const TREE_SHIFT: u32 = 48;
const MOST_TREES: usize = (1 << (u64::BITS - TREE_SHIFT)) - 1;
/// A placeholder directory for a subvolume that is linked elsewhere; its number is that of the subvolume.
const PLACEHOLDER: u64 = 1 << (TREE_SHIFT - 1);

/// The chosen part of a file system.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The subvolume; `None` for the default one.
    pub subvolume: Option<u64>,
    /// The directory below it, possibly in another subvolume.
    pub below: Vec<u8>,
    /// Whether to leave out the subvolumes and snapshots below it.
    pub one_subvolume: bool,
    /// Whether to ignore checksums, for images that are corrupted on purpose.
    pub unchecked: bool,
}

/// A btrfs file system, or one subvolume of it.
#[derive(Debug)]
pub struct Btrfs<M> {
    volume: Volume<M>,
    subvolumes: Subvolumes,
    trees: Vec<Tree>,
    leaves: Vec<Leaf>,
    parts: Vec<TreePart>,
    /// Locations of placeholder directories.
    placeholders: Mutex<HashMap<u64, Slot>>,
    start: u64,
    one_subvolume: bool,
    replaced: AtomicU64,
    warnings: Vec<String>,
    device: u64,
}

/// A subvolume.
#[derive(Debug)]
struct Tree {
    id: u64,
    /// Its position among the trees.
    position: u64,
    leaves: std::ops::Range<usize>,
    parts: std::ops::Range<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Leaf {
    block: u64,
    generation: u64,
    /// Its first key; for a single leaf that is the whole tree, the smallest possible key.
    first: Key,
}

impl Leaf {
    fn pointer(&self) -> Pointer {
        let first = Some(self.first).filter(|first| *first != Key::default());
        Pointer { block: self.block, generation: self.generation, first }
    }
}

#[derive(Debug)]
struct TreePart {
    tree: usize,
    leaves: std::ops::Range<usize>,
    /// Its inode numbers, ascending, once it was read.
    numbers: OnceLock<Box<[u64]>>,
}

/// Where the names of a directory begin, and its state.
#[derive(Debug, Default)]
pub struct Listing {
    /// Position of the leaf.
    leaf: u32,
    version: u64,
    /// When the inode changed, seconds since 1970.
    changed: i64,
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers {
    group: Group,
    listing: Group,
}

/// Some leaves in memory.
#[derive(Debug, Default)]
struct Group {
    leaves: std::ops::Range<usize>,
    bytes: Vec<u8>,
    run: Vec<u8>,
    /// Current items of leaves that were replaced.
    replaced: HashMap<usize, Vec<u8>>,
    /// Leaves that could not be read, not even in the newest transaction.
    failed: Vec<(usize, io::Error)>,
}

impl Group {
    /// A copy of the error of a leaf that could not be read, if it is one: each directory that may have names in it
    /// reports that.
    fn failure_of(&self, leaf: usize) -> Option<io::Error> {
        let (_, error) = self.failed.iter().find(|(failed, _)| *failed == leaf)?;
        Some(
            error
                .raw_os_error()
                .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error),
        )
    }
}

impl<M: Medium> Btrfs<M> {
    /// Reads everything above the leaves. `media` are all devices; inodes are reported to be on `device`.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] for another file system or unknown features, [`ErrorKind::Corrupt`] if it is
    /// unreadable or lacks devices, [`ErrorKind::NotFound`] if there is no such subvolume or directory.
    pub fn open(media: Vec<M>, choice: &Choice, device: u64) -> Result<Btrfs<M>> {
        let (volume, mut warnings) = Volume::open(media, !choice.unchecked)?;
        let subvolumes = Subvolumes::read(&volume, volume.superblock.root, volume.superblock.root_level)?;
        let top = choice.subvolume.unwrap_or(subvolumes.default);
        let (top, directory) = resolve(&volume, &subvolumes, top, &choice.below)?;
        let ids = if choice.one_subvolume { vec![top] } else { subvolumes.below(top) };
        if ids.len() > MOST_TREES {
            return Err(refuse(format!("it has {} subvolumes", ids.len())).advise("exclude them with -x"));
        }
        let (mut trees, mut leaves, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            let from = (leaves.len(), parts.len());
            if let Err(error) = collect(&volume, &subvolumes, id, &mut leaves) {
                warnings.push(format!("subvolume {id} is damaged and some of its inodes are missing: {error}"));
            }
            if leaves.len() > MOST_LEAVES {
                let cause = "it has too much metadata, over all snapshots, for this method";
                return Err(refuse(cause).advise("exclude snapshots with -x, or use --method walk"));
            }
            let of_part = |first: usize| first..leaves.len().min(first + PART_LEAVES);
            let tree = trees.len();
            let found = (from.0..leaves.len()).step_by(PART_LEAVES).map(of_part);
            parts.extend(found.map(|leaves| TreePart { tree, leaves, numbers: OnceLock::new() }));
            trees.push(Tree { id, position: tree as u64, leaves: from.0..leaves.len(), parts: from.1..parts.len() });
        }
        let one_subvolume = choice.one_subvolume;
        Ok(Btrfs {
            volume,
            subvolumes,
            trees,
            leaves,
            parts,
            placeholders: Mutex::default(),
            start: directory,
            one_subvolume,
            replaced: AtomicU64::new(0),
            warnings,
            device,
        })
    }

    /// The chosen directory.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Problems of the file system as a whole.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether a log holds changes that became durable after the last transaction.
    pub fn needs_recovery(&self) -> bool {
        self.volume.superblock.has_log
    }

    /// Number of leaves that were read from a later transaction.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Relaxed)
    }

    /// Maps an inode of a tree to its number here; `None` if it is not a user's inode.
    fn number(&self, tree: &Tree, object: u64) -> Option<u64> {
        (FIRST_FREE..PLACEHOLDER).contains(&object).then_some(tree.position << TREE_SHIFT | object)
    }

    /// Some of the leaves.
    fn some_leaves(&self, leaves: &std::ops::Range<usize>) -> &[Leaf] {
        self.leaves.get(leaves.clone()).unwrap_or_default()
    }

    /// The key range of a leaf: first key (inclusive) and end (exclusive).
    fn keys(&self, leaf: usize, tree: &Tree) -> (Key, Key) {
        let this = self.leaves.get(leaf).filter(|_| leaf > tree.leaves.start);
        let next = self.leaves.get(leaf + 1).filter(|_| leaf + 1 < tree.leaves.end);
        (this.map_or(Key::default(), |this| this.first), next.map_or(Key::LAST, |next| next.first))
    }

    /// The leaf of a tree that would contain a key.
    fn leaf_of(&self, tree: &Tree, key: Key) -> usize {
        let leaves = self.some_leaves(&tree.leaves);
        tree.leaves.start + leaves.partition_point(|leaf| leaf.first <= key).saturating_sub(1)
    }

    /// Reads leaves of a tree into a group.
    fn load(&self, tree: &Tree, leaves: std::ops::Range<usize>, group: &mut Group) {
        group.leaves = leaves.clone();
        group.replaced.clear();
        group.failed.clear();
        let pointers = self.some_leaves(&leaves).iter().map(Leaf::pointer);
        let mut missing = Vec::new();
        self.volume.read_leaves(pointers, &mut group.bytes, &mut group.run, |at, error, bytes| {
            bytes.fill(0);
            missing.push((leaves.start + at, error));
        });
        for (leaf, error) in missing {
            match self.look_again(tree, leaf) {
                Some(blocks) => {
                    self.replaced.fetch_add(1, Relaxed);
                    group.replaced.insert(leaf, blocks);
                }
                None => group.failed.push((leaf, error)),
            }
        }
    }

    /// Returns the leaf's replacement in the newest transaction.
    fn look_again(&self, tree: &Tree, leaf: usize) -> Option<Vec<u8>> {
        let (from, to) = self.keys(leaf, tree);
        let mut before = self.volume.superblock.generation;
        // It may be replaced again during the lookup.
        loop {
            let now = self.volume.superblock_now().filter(|now| now.generation > before)?;
            before = now.generation;
            let subvolumes = Subvolumes::read(&self.volume, now.root, now.root_level);
            let Some((root, level)) = subvolumes.ok().and_then(|found| found.root(tree.id)) else { continue };
            let (mut block, mut blocks, mut whole) = (vec![0; self.volume.node_bytes()], Vec::new(), true);
            self.volume.each_leaf(root, level, from, to, &mut |leaf| {
                whole = leaf.and_then(|leaf| self.volume.read(leaf, 0, &mut block)).is_ok();
                blocks.extend_from_slice(&block);
                whole
            });
            if whole {
                return Some(blocks);
            }
        }
    }

    /// Reports the items of a leaf of a group.
    fn each_item(&self, tree: &Tree, group: &Group, leaf: usize, mut visit: impl FnMut(Key, &[u8])) {
        let node_bytes = self.volume.node_bytes();
        let Some(replaced) = group.replaced.get(&leaf) else {
            let block = group.bytes.chunks_exact(node_bytes).nth(leaf - group.leaves.start);
            return items(block.unwrap_or_default()).for_each(|(key, data)| visit(key, data));
        };
        let (from, to) = self.keys(leaf, tree);
        let all = replaced.chunks_exact(node_bytes).flat_map(items);
        all.filter(|(key, _)| *key >= from && *key < to).for_each(|(key, data)| visit(key, data));
    }

    /// The inode that a directory entry refers to; `None` if it refers to another subvolume and those are left out.
    fn target(&self, tree: &Tree, directory: u64, entry: &Entry<'_>) -> Option<u64> {
        if entry.location.kind != ROOT_ITEM {
            // If it leads nowhere: a number that no inode has.
            return Some(self.number(tree, entry.location.object).unwrap_or(0));
        }
        if self.one_subvolume {
            return None;
        }
        let child = entry.location.object;
        let meant = |edge: &&Edge| edge.directory == directory && edge.name == entry.name;
        let linked = self.subvolumes.edge(tree.id, child).filter(meant);
        let linked = linked.and_then(|_| self.trees.iter().find(|tree| tree.id == child));
        Some(match linked {
            Some(linked) => linked.position << TREE_SHIFT | FIRST_FREE,
            None => tree.position << TREE_SHIFT | PLACEHOLDER | child & (PLACEHOLDER - 1),
        })
    }

    fn placeholders(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Slot>> {
        lock(&self.placeholders)
    }
}

/// The identifier of the file system that a device belongs to.
///
/// # Errors
/// Same as [`Btrfs::open`].
pub fn identifier(medium: &impl Medium) -> Result<[u8; 16]> {
    Ok(Superblock::read(medium, true)?.0.identifier)
}

/// Returns the subvolume and inode number of the directory at a path.
fn resolve(volume: &Volume<impl Medium>, subvolumes: &Subvolumes, top: u64, below: &[u8]) -> Result<(u64, u64)> {
    let missing = |what: String| Error::new(ErrorKind::NotFound, "find the directory to start at", what);
    let (mut tree, mut object) = (top, FIRST_FREE);
    let mut root = subvolumes.root(tree).ok_or_else(|| missing(format!("there is no subvolume {tree}")))?;
    for name in below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let of = |offset| Key { object, kind: DIR_INDEX, offset };
        let mut found = None;
        let read = volume.each_item(root.0, root.1, of(0), of(u64::MAX), &mut |_, data| {
            found = Entry::parse(data).filter(|entry| entry.name == name).map(|entry| entry.location).or(found);
        });
        read.map_err(|error| refuse(format!("the path to the directory cannot be read: {error}")))?;
        match found {
            Some(location) if location.kind == ROOT_ITEM => {
                let edge = subvolumes.edge(tree, location.object);
                if edge.is_none_or(|edge| edge.directory != object || edge.name != name) {
                    return Err(missing("it refers to a subvolume that is elsewhere".to_owned()));
                }
                (tree, object) = (location.object, FIRST_FREE);
                root = subvolumes.root(tree).ok_or_else(|| missing(format!("there is no subvolume {tree}")))?;
            }
            Some(location) => object = location.object,
            None => return Err(missing("no name refers to it".to_owned())),
        }
    }
    Ok((tree, object))
}

/// Appends the leaves of a subvolume.
///
/// # Errors
/// The last block that could not be read; the leaves found besides are appended all the same.
fn collect(volume: &Volume<impl Medium>, subvolumes: &Subvolumes, id: u64, leaves: &mut Vec<Leaf>) -> io::Result<()> {
    let (root, level) = subvolumes.root(id).ok_or_else(|| damaged("it has no B-tree"))?;
    let (start, most) = (leaves.len(), volume.most_blocks());
    let mut result = Ok(());
    volume.each_leaf(root, level, Key::default(), Key::LAST, &mut |leaf| {
        match leaf {
            Ok(Pointer { block, generation, first }) => {
                leaves.push(Leaf { block, generation, first: first.unwrap_or_default() });
            }
            Err(error) => result = Err(error),
        }
        if (leaves.len() - start) as u64 > most {
            result = Err(damaged("it has more leaves than there are blocks"));
            return false;
        }
        // Beyond this, `open` refuses the file system.
        leaves.len() <= MOST_LEAVES
    });
    result
}

/// An entry of a directory.
struct Entry<'a> {
    location: Key,
    name: &'a [u8],
}

impl Entry<'_> {
    fn parse(data: &[u8]) -> Option<Entry<'_>> {
        let (entry, rest) = data.split_first_chunk::<ENTRY_BYTES>()?;
        let name = rest.get(..entry.u16::<27>().into())?;
        Some(Entry { location: Key::parse(entry.field::<0, KEY_BYTES>()), name })
    }
}

/// Reads the inodes of a part.
struct Reader<'r, 'f, M> {
    btrfs: &'r Btrfs<M>,
    part: usize,
    tree: &'r Tree,
    numbers: Vec<u64>,
    placeholders: usize,
    /// A symlink whose target follows.
    symlink: Option<Stat>,
    found: &'r mut (dyn FnMut(Found<Listing>) + 'f),
}

impl<M: Medium> Reader<'_, '_, M> {
    fn item(&mut self, key: Key, data: &[u8]) {
        match key.kind {
            INODE_ITEM => self.inode(key, data),
            EXTENT_DATA
                if self.symlink.is_some_and(|stat| Some(stat.inode) == self.btrfs.number(self.tree, key.object)) =>
            {
                // An inline extent: 21 bytes and the target.
                let first = data.get(21).filter(|_| data.get(20) == Some(&0));
                self.finish_symlink(first == Some(&b'/'));
            }
            DIR_INDEX => self.entry(key, data),
            _ => {}
        }
    }

    fn finish_symlink(&mut self, absolute: bool) {
        if let Some(mut stat) = self.symlink.take() {
            stat.kind = Kind::Symlink { absolute };
            self.push(stat, None);
        }
    }

    fn push(&mut self, stat: Stat, listing: Option<Listing>) {
        (self.found)(Found::Inode { offset: self.numbers.len(), stat, listing });
        self.numbers.push(stat.inode);
    }

    fn inode(&mut self, key: Key, data: &[u8]) {
        self.finish_symlink(false);
        let Some(number) = self.btrfs.number(self.tree, key.object) else { return };
        match inode::decode(data, number, self.btrfs.device, self.btrfs.volume.superblock.sector_bytes) {
            Ok(None) => {}
            Ok(Some(stat)) => match stat.kind {
                Kind::Symlink { .. } => self.symlink = Some(stat),
                Kind::Directory => {
                    let names = Key { object: key.object, kind: DIR_INDEX, offset: 0 };
                    let leaf = self.btrfs.leaf_of(self.tree, names) as u32;
                    let (version, changed) = (inode::version(data), stat.ctime.seconds);
                    self.push(stat, Some(Listing { leaf, version, changed }));
                }
                _ => self.push(stat, None),
            },
            Err(cause) => {
                let (operation, inode) = ("read the inode", Some(number));
                (self.found)(Found::Damaged(Damage { operation, inode, error: damaged(cause) }));
                // It has a slot, as its names lead to it.
                self.numbers.push(number);
            }
        }
    }

    /// A placeholder directory exists only as an entry.
    fn entry(&mut self, key: Key, data: &[u8]) {
        let Some(entry) = Entry::parse(data).filter(|entry| entry.location.kind == ROOT_ITEM) else { return };
        let Some(number) = self.btrfs.target(self.tree, key.object, &entry).filter(|number| number & PLACEHOLDER != 0)
        else {
            return;
        };
        self.placeholders += 1;
        // Numbered from the end, where there are no inodes.
        let Some(offset) = self.btrfs.slots(self.part).checked_sub(self.placeholders) else { return };
        let slot = Slot { part: self.part, offset };
        if *self.btrfs.placeholders().entry(number).or_insert(slot) == slot {
            let stat = inode::placeholder(number, self.btrfs.device);
            (self.found)(Found::Inode { offset, stat, listing: Some(Listing::default()) });
        }
    }
}

impl<M: Medium> InodeSource for Btrfs<M> {
    type Listing = Listing;
    type Buffers = Buffers;

    fn root(&self) -> u64 {
        FIRST_FREE
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn slots(&self, part: usize) -> usize {
        let a_leaf = (self.volume.node_bytes() - HEADER_BYTES) / SMALLEST_ENTRY_BYTES;
        self.parts.get(part).map_or(0, |part| part.leaves.len() * a_leaf)
    }

    fn slot(&self, inode: u64) -> Option<Slot> {
        if inode & PLACEHOLDER != 0 {
            return self.placeholders().get(&inode).copied();
        }
        let tree = self.trees.get((inode >> TREE_SHIFT) as usize)?;
        let key = Key { object: inode & (PLACEHOLDER - 1), kind: INODE_ITEM, offset: 0 };
        let parts = self.parts.get(tree.parts.clone())?;
        let begins_before = |part: &TreePart| self.leaves.get(part.leaves.start).is_some_and(|leaf| leaf.first <= key);
        let within = parts.partition_point(begins_before).checked_sub(1)?;
        let offset = parts.get(within)?.numbers.get()?.binary_search(&inode).ok()?;
        Some(Slot { part: tree.parts.start + within, offset })
    }

    fn read_part(&self, part: usize, buffers: &mut Buffers, found: &mut impl FnMut(Found<Listing>)) {
        if let Some(next) = self.parts.get(part + AHEAD_PARTS) {
            self.volume.will_need(self.some_leaves(&next.leaves).iter().map(Leaf::pointer));
        }
        let Some(TreePart { tree, leaves, numbers: searchable }) = self.parts.get(part) else { return };
        let Some(tree) = self.trees.get(*tree) else { return };
        self.load(tree, leaves.clone(), &mut buffers.group);
        for (_, error) in buffers.group.failed.drain(..) {
            found(Found::Damaged(Damage { operation: "read a leaf of inodes", inode: None, error }));
        }
        let (numbers, placeholders) = (Vec::new(), 0);
        let mut reader = Reader { btrfs: self, part, tree, numbers, placeholders, symlink: None, found };
        for leaf in leaves.clone() {
            self.each_item(tree, &buffers.group, leaf, |key, data| reader.item(key, data));
        }
        if let Some(object) = reader.symlink.map(|stat| stat.inode & (PLACEHOLDER - 1))
            && leaves.end < tree.leaves.end
        {
            // Its target is in the next part; the buffer of listings is free meanwhile.
            self.load(tree, leaves.end..leaves.end + 1, &mut buffers.listing);
            self.each_item(tree, &buffers.listing, leaves.end, |key, data| {
                if key.object == object && key.kind == EXTENT_DATA {
                    reader.item(key, data);
                }
            });
        }
        reader.finish_symlink(false);
        let mut numbers = reader.numbers;
        // `slot` finds nothing in this part before. It searches by bisection, so numbers that a damaged leaf has out of
        // order may not be found. A second reading does not replace them.
        numbers.shrink_to_fit();
        let _ = searchable.set(numbers.into_boxed_slice());
    }

    fn position(&self, listing: &Listing) -> u64 {
        listing.leaf.into()
    }

    /// Numbers of inodes, and what a name leads to, depend on which subvolumes are read.
    fn identity(&self) -> Option<u64> {
        let mut hash = XxHash3_64::with_seed(self.one_subvolume.into());
        hash.write(&self.volume.superblock.identifier);
        self.trees.iter().for_each(|tree| hash.write_u64(tree.id));
        Some(hash.finish())
    }

    fn version(&self, listing: &Listing) -> Option<(u64, i64)> {
        // A placeholder has no inode, and no names.
        (listing.version != 0).then_some((listing.version, listing.changed))
    }

    fn list(&self, inode: u64, listing: &Listing, buffers: &mut Buffers, listed: &mut dyn FnMut(Listed<'_>)) {
        let object = inode & (PLACEHOLDER - 1);
        let tree = self.trees.get((inode >> TREE_SHIFT) as usize);
        let Some(tree) = tree.filter(|_| inode & PLACEHOLDER == 0) else { return };
        let last = self.leaf_of(tree, Key { object, kind: DIR_INDEX, offset: u64::MAX });
        for leaf in listing.leaf as usize..=last {
            let group = &mut buffers.listing;
            if !group.leaves.contains(&leaf) {
                let ahead = if group.leaves.end == leaf { AHEAD_LEAVES } else { 1 };
                let end = (leaf + ahead.max((last + 1 - leaf).min(PART_LEAVES))).min(tree.leaves.end);
                self.load(tree, leaf..end, group);
            }
            if let Some(error) = group.failure_of(leaf) {
                let (operation, inode) = ("list the directory", Some(object));
                listed(Listed::Damaged(Damage { operation, inode, error }));
            }
            self.each_item(tree, group, leaf, |key, data| {
                if key.object != object || key.kind != DIR_INDEX {
                    return;
                }
                let Some(entry) = Entry::parse(data) else {
                    let (operation, inode, error) =
                        ("list the directory", Some(object), damaged("an entry is truncated"));
                    return listed(Listed::Damaged(Damage { operation, inode, error }));
                };
                match self.target(tree, object, &entry) {
                    Some(number) => listed(Listed::Name(entry.name, number)),
                    None => listed(Listed::Elsewhere(entry.name)),
                }
            });
        }
    }

    fn begin_listing(&self) {}
}
