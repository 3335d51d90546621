//! The tree of directories, as a scan of inodes finds it: built from the names that lead to children, in no order.

use allocator_api2::vec::Vec as SpilledVec;

use crate::scan::{DirectoryLocation, join};
use crate::sys::spill::Spill;

/// Marks an unknown parent.
const NONE: u32 = u32::MAX;
/// Directories between two looks at the memory of the process: few, as each may have rows on several pages.
const DIRECTORIES_A_LOOK: usize = 64;

/// A directory's name in its parent.
pub(super) struct Link {
    parent: u32,
    child: u32,
    /// Offset of the name in the arena.
    name: u32,
}

/// What one thread finds: links, and the names, concatenated, each after its length.
pub(super) struct Links {
    links: SpilledVec<Link, Spill>,
    names: SpilledVec<u8, Spill>,
}

impl Links {
    pub(super) fn new(spill: &Spill) -> Links {
        Links { links: SpilledVec::new_in(spill.clone()), names: SpilledVec::new_in(spill.clone()) }
    }

    /// Records that directory `child` has the name `name` in `parent`.
    pub(super) fn push(&mut self, parent: u32, child: u32, name: &[u8]) {
        let at = self.names.len() as u32;
        let name = name.get(..255).unwrap_or(name);
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        self.links.push(Link { parent, child, name: at });
    }
}

/// The name at an offset of an arena.
fn name_at(arena: &[u8], at: u32) -> &[u8] {
    let stored = arena.get(at as usize..).and_then(<[u8]>::split_first);
    stored.and_then(|(&length, names)| names.get(..length.into())).unwrap_or_default()
}

/// A directory's parent, and its name there: an arena and an offset in it.
#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    name: u32,
    arena: u16,
}

/// Directories by position, each with its parent and its name there.
pub(super) struct Tree {
    /// The path of the root, as specified.
    path: Vec<u8>,
    root: u32,
    nodes: SpilledVec<Node, Spill>,
    arenas: Vec<SpilledVec<u8, Spill>>,
    /// The children of directory i are `children[first_child[i]..first_child[i + 1]]`.
    first_child: SpilledVec<u32, Spill>,
    children: SpilledVec<u32, Spill>,
    spill: Spill,
    /// Number of directories with a second name.
    pub(super) doubled: u64,
}

impl Tree {
    /// Builds the tree of `count` directories from `found`, below `root`; `whole`: the root is that of the file system.
    pub(super) fn new(path: Vec<u8>, root: u32, whole: bool, count: usize, found: Vec<Links>, spill: &Spill) -> Tree {
        let mut nodes = filled(Node { parent: NONE, name: 0, arena: 0 }, count, spill);
        let mut doubled = 0;
        for (arena, links) in (0..).zip(&found) {
            for (link, at) in links.links.iter().zip(0..) {
                look(spill, at);
                // A link to the root from below would form a cycle; one from above is outside the tree.
                if link.child == root {
                    doubled += u64::from(whole);
                    continue;
                }
                match nodes.get_mut(link.child as usize) {
                    Some(node) if node.parent == NONE => {
                        *node = Node { parent: link.parent, name: link.name, arena };
                    }
                    _ => doubled += 1,
                }
            }
        }
        if doubled > 0 {
            settle(root, &found, &mut nodes);
        }
        let arenas = found.into_iter().map(|links| links.names).collect();
        let (first_child, children) = by_parent(&nodes, spill);
        Tree { path, root, nodes, arenas, first_child, children, spill: spill.clone(), doubled }
    }

    pub(super) fn root(&self) -> u32 {
        self.root
    }

    pub(super) fn children(&self, directory: u32) -> &[u32] {
        let bounds = self.first_child.get(directory as usize..).and_then(<[u32]>::first_chunk);
        bounds.and_then(|&[first, end]| self.children.get(first as usize..end as usize)).unwrap_or_default()
    }

    /// Whether `parent` is where the directory was found first.
    pub(super) fn is_child(&self, parent: u32, child: u32) -> bool {
        self.parent(child) == Some(parent) && child != self.root
    }

    fn parent(&self, directory: u32) -> Option<u32> {
        self.nodes.get(directory as usize).map(|node| node.parent).filter(|&parent| parent != NONE)
    }

    pub(super) fn name(&self, directory: u32) -> &[u8] {
        let node = self.nodes.get(directory as usize);
        let place = node.and_then(|node| Some((self.arenas.get(usize::from(node.arena))?, node.name)));
        place.map_or(&[], |(arena, at)| name_at(arena, at))
    }

    /// The path of a directory below the root, without the root's own path. The directory must be reachable from the
    /// root.
    pub(super) fn below_root(&self, directory: u32) -> Vec<u8> {
        self.assemble(directory, Vec::new())
    }

    /// The whole path of a directory that is reachable from the root.
    pub(super) fn path(&self, directory: u32) -> Vec<u8> {
        self.assemble(directory, self.path.clone())
    }

    fn assemble(&self, directory: u32, path: Vec<u8>) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = directory;
        while at != self.root
            && let Some(parent) = self.parent(at)
        {
            names.push(self.name(at));
            at = parent;
        }
        names.iter().rev().fold(path, |path, name| join(path, name))
    }

    /// The directory at a path below the root.
    pub(super) fn find(&self, below_root: &[u8]) -> Option<u32> {
        let mut at = self.root;
        for name in below_root.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            at = *self.children(at).iter().find(|&&child| self.name(child) == name)?;
        }
        Some(at)
    }

    /// Visits the tree from the root, children before their parents. `enter` returns whether to descend into a
    /// directory; `leave` receives a directory, its depth and the results of its children, combined by `add`.
    pub(super) fn visit<B: Default>(
        &self,
        mut enter: impl FnMut(u32) -> bool,
        mut add: impl FnMut(&mut B, B),
        mut leave: impl FnMut(u32, u32, &B) -> B,
    ) {
        if !enter(self.root) {
            return;
        }
        let mut stack = vec![(self.root, 0usize, B::default())];
        for step in 0.. {
            look(&self.spill, step);
            let depth = stack.len() as u32 - 1;
            let Some((directory, next, below)) = stack.last_mut() else { break };
            if let Some(&child) = self.children(*directory).get(*next) {
                *next += 1;
                if enter(child) {
                    stack.push((child, 0, B::default()));
                }
                continue;
            }
            let left = leave(*directory, depth, below);
            stack.pop();
            match stack.last_mut() {
                Some((_, _, below)) => add(below, left),
                None => break,
            }
        }
    }
}

/// Looks at the memory of the process at some of the steps of a loop over directories.
pub(super) fn look(spill: &Spill, step: usize) {
    if step.is_multiple_of(DIRECTORIES_A_LOOK) {
        spill.relieve_now();
    }
}

/// A table of `count` equal rows.
pub(super) fn filled<T: Clone>(row: T, count: usize, spill: &Spill) -> SpilledVec<T, Spill> {
    let mut rows = SpilledVec::with_capacity_in(count, spill.clone());
    while rows.len() < count {
        spill.relieve();
        rows.resize(count.min(rows.len() + DIRECTORIES_A_LOOK), row.clone());
    }
    rows
}

/// Directories in the order of their parents, and the place of the first child of each; after them, the number of all.
fn by_parent(nodes: &[Node], spill: &Spill) -> (SpilledVec<u32, Spill>, SpilledVec<u32, Spill>) {
    // First the number of children of each, then where they begin.
    let mut first_child = filled(0u32, nodes.len() + 1, spill);
    for (node, at) in nodes.iter().zip(0..) {
        look(spill, at);
        if let Some(count) = first_child.get_mut(node.parent as usize) {
            *count += 1;
        }
    }
    let mut before = 0;
    for first in &mut first_child {
        let count = std::mem::replace(first, before);
        before += count;
    }
    let (mut children, mut next) = (filled(0, before as usize, spill), first_child.clone());
    for (child, node) in (0u32..).zip(nodes) {
        look(spill, child as usize);
        if let Some(next) = next.get_mut(node.parent as usize)
            && let Some(place) = children.get_mut(*next as usize)
        {
            *place = child;
            *next += 1;
        }
    }
    (first_child, children)
}

/// Chooses among several names of a directory: the one reached first from the root, so that no cycle hides a reachable
/// directory; of the names in one parent, the smallest. Unreachable directories have no parent.
fn settle(root: u32, found: &[Links], nodes: &mut [Node]) {
    let numbered = (0..).zip(found);
    let named = numbered
        .flat_map(|(arena, links)| links.links.iter().map(move |link| (arena, link, name_at(&links.names, link.name))));
    let mut links: Vec<(u16, &Link, &[u8])> = named.collect();
    // Not by arena: which thread read a directory must not matter.
    links.sort_unstable_by_key(|&(_, link, name)| (link.parent, name));
    nodes.iter_mut().for_each(|node| node.parent = NONE);
    let mut left = vec![root];
    while let Some(parent) = left.pop() {
        let from = links.partition_point(|(_, link, _)| link.parent < parent);
        for &(arena, link, _) in links.iter().skip(from).take_while(|(_, link, _)| link.parent == parent) {
            if let Some(node) = nodes.get_mut(link.child as usize)
                && node.parent == NONE
                && link.child != root
            {
                *node = Node { parent, name: link.name, arena };
                left.push(link.child);
            }
        }
    }
}

/// A directory of the tree.
pub(super) struct At<'t> {
    pub(super) tree: &'t Tree,
    pub(super) directory: u32,
    pub(super) depth: u32,
}

impl DirectoryLocation for At<'_> {
    fn path(&self) -> Vec<u8> {
        self.tree.path(self.directory)
    }

    fn depth(&self) -> u32 {
        self.depth
    }
}
