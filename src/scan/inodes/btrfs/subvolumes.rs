//! Subvolumes and snapshots: each is a tree of its own, and names in one lead to others.

use std::collections::HashMap;

use super::node::{Key, Pointer};
use super::volume::{Volume, refuse};
use super::{DIR_ITEM, Entry, FIRST_FREE, LAST_FREE, ROOT_ITEM, ROOT_REF};
use crate::error::Result;
use crate::scan::inodes::fields::LittleEndian;
use crate::scan::inodes::medium::Medium;

/// The top-level tree of a file system.
const TOP: u64 = 5;
/// The directory in the tree of trees that names the default one.
const ROOT_DIRECTORY: u64 = 6;
const ROOT_ITEM_BYTES: usize = 239;
/// Size of the part before the name.
const ROOT_REF_BYTES: usize = 18;

/// Where a subvolume is linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) directory: u64,
    pub(super) name: Vec<u8>,
}

/// All subvolumes.
#[derive(Debug, Default)]
pub(super) struct Subvolumes {
    roots: HashMap<u64, (Pointer, u8)>,
    /// By parent and child.
    edges: HashMap<(u64, u64), Edge>,
    children: HashMap<u64, Vec<u64>>,
    /// The one that is mounted by default.
    pub(super) default: u64,
}

impl Subvolumes {
    /// Reads them from the tree of trees at `root`.
    pub(super) fn read(volume: &Volume<impl Medium>, root: Pointer, level: u8) -> Result<Subvolumes> {
        let mut found = Subvolumes { default: TOP, ..Subvolumes::default() };
        let read = volume.each_item(root, level, Key::default(), Key::LAST, &mut |key, data| found.take(key, data));
        read.map_err(|error| refuse(format!("its root tree cannot be read: {error}")))?;
        found.children.values_mut().for_each(|children| children.sort_unstable());
        Ok(found)
    }

    fn take(&mut self, key: Key, data: &[u8]) {
        let is_tree = key.object == TOP || (FIRST_FREE..=LAST_FREE).contains(&key.object);
        match key.kind {
            ROOT_ITEM if is_tree => {
                // A subvolume that is being deleted has no references.
                if let Some(item) = data.first_chunk::<ROOT_ITEM_BYTES>().filter(|item| item.u32::<216>() > 0) {
                    let root = Pointer { block: item.u64::<176>(), generation: item.u64::<160>(), first: None };
                    self.roots.insert(key.object, (root, item[238]));
                }
            }
            ROOT_REF => {
                self.children.entry(key.object).or_default().push(key.offset);
                if let Some((reference, rest)) = data.split_first_chunk::<ROOT_REF_BYTES>() {
                    let name = rest.get(..reference.u16::<16>().into()).unwrap_or_default().to_vec();
                    self.edges.insert((key.object, key.offset), Edge { directory: reference.u64::<0>(), name });
                }
            }
            DIR_ITEM if key.object == ROOT_DIRECTORY => {
                if let Some(entry) = Entry::parse(data).filter(|entry| entry.name == b"default") {
                    self.default = entry.location.object;
                }
            }
            _ => {}
        }
    }

    /// Root and level of a subvolume's tree.
    pub(super) fn root(&self, id: u64) -> Option<(Pointer, u8)> {
        self.roots.get(&id).copied()
    }

    pub(super) fn edge(&self, parent: u64, child: u64) -> Option<&Edge> {
        self.edges.get(&(parent, child))
    }

    /// A subvolume and all below it, each once.
    pub(super) fn below(&self, top: u64) -> Vec<u64> {
        let mut found = vec![top];
        let mut seen = std::collections::HashSet::from([top]);
        let mut at = 0;
        while let Some(id) = found.get(at) {
            let children = self.children.get(id).into_iter().flatten();
            found.extend(children.copied().filter(|child| self.roots.contains_key(child) && seen.insert(*child)));
            at += 1;
        }
        found
    }
}
