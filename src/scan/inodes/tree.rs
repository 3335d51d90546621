//! The tree of directories, as a scan of inodes finds it: built from the names that lead to children, in no order.

use crate::scan::{DirectoryLocation, join};

/// Marks an unknown parent.
const NONE: u32 = u32::MAX;

/// A directory's name in its parent.
pub(super) struct Link {
    parent: u32,
    child: u32,
    /// Offset of the name in the arena.
    name: u32,
}

/// What one thread finds: links, and the names, concatenated, each after its length.
#[derive(Default)]
pub(super) struct Links {
    links: Vec<Link>,
    names: Vec<u8>,
}

impl Links {
    /// Records that directory `child` has the name `name` in `parent`.
    pub(super) fn push(&mut self, parent: u32, child: u32, name: &[u8]) {
        let at = self.names.len() as u32;
        self.names.push(name.len().min(255) as u8);
        self.names.extend_from_slice(&name[..name.len().min(255)]);
        self.links.push(Link { parent, child, name: at });
    }

    fn name(&self, link: &Link) -> &[u8] {
        let at = link.name as usize;
        &self.names[at + 1..at + 1 + self.names[at] as usize]
    }
}

/// Directories by position, each with its parent and its name there.
pub(super) struct Tree {
    /// The path of the root, as specified.
    path: Vec<u8>,
    root: u32,
    parents: Vec<u32>,
    /// Arena and offset of each name.
    names: Vec<(u16, u32)>,
    arenas: Vec<Vec<u8>>,
    /// The children of directory i are `children[first_child[i]..first_child[i + 1]]`.
    first_child: Vec<u32>,
    children: Vec<u32>,
    /// Number of directories with a second name.
    pub(super) doubled: u64,
}

impl Tree {
    /// Builds the tree of `count` directories from `found`, below `root`; `whole`: the root is that of the file system.
    pub(super) fn new(path: Vec<u8>, root: u32, whole: bool, count: usize, found: Vec<Links>) -> Tree {
        let (mut parents, mut names) = (vec![NONE; count], vec![(0, 0); count]);
        let mut doubled = 0;
        for (arena, links) in (0..).zip(&found) {
            for link in &links.links {
                // A link to the root from below would form a cycle; one from above is outside the tree.
                if link.child == root {
                    doubled += u64::from(whole);
                    continue;
                }
                if parents[link.child as usize] != NONE {
                    doubled += 1;
                    continue;
                }
                parents[link.child as usize] = link.parent;
                names[link.child as usize] = (arena, link.name);
            }
        }
        if doubled > 0 {
            settle(root, &found, &mut parents, &mut names);
        }
        let arenas = found.into_iter().map(|links| links.names).collect();
        let mut first_child = vec![0u32; count + 1];
        for &parent in parents.iter().filter(|&&parent| parent != NONE) {
            first_child[parent as usize + 1] += 1;
        }
        for position in 0..count {
            first_child[position + 1] += first_child[position];
        }
        let mut children = vec![0; first_child[count] as usize];
        let mut next = first_child.clone();
        for (child, &parent) in parents.iter().enumerate().filter(|(_, parent)| **parent != NONE) {
            children[next[parent as usize] as usize] = child as u32;
            next[parent as usize] += 1;
        }
        Tree { path, root, parents, names, arenas, first_child, children, doubled }
    }

    pub(super) fn root(&self) -> u32 {
        self.root
    }

    pub(super) fn children(&self, directory: u32) -> &[u32] {
        let at = directory as usize;
        &self.children[self.first_child[at] as usize..self.first_child[at + 1] as usize]
    }

    /// Whether `parent` is where the directory was found first.
    pub(super) fn is_child(&self, parent: u32, child: u32) -> bool {
        self.parents[child as usize] == parent && child != self.root
    }

    pub(super) fn name(&self, directory: u32) -> &[u8] {
        let (arena, at) = self.names[directory as usize];
        let (arena, at) = (&self.arenas[arena as usize], at as usize);
        &arena[at + 1..at + 1 + arena[at] as usize]
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
        while at != self.root && self.parents[at as usize] != NONE {
            names.push(self.name(at));
            at = self.parents[at as usize];
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
        loop {
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

/// Chooses among several names of a directory: the one reached first from the root, so that no cycle hides a reachable
/// directory; of the names in one parent, the smallest. Unreachable directories have no parent.
fn settle(root: u32, found: &[Links], parents: &mut [u32], names: &mut [(u16, u32)]) {
    let numbered = (0..).zip(found);
    let mut links: Vec<(u16, &Link)> =
        numbered.flat_map(|(arena, links)| links.links.iter().map(move |link| (arena, link))).collect();
    // Not by arena: which thread read a directory must not matter.
    links.sort_unstable_by_key(|(arena, link)| (link.parent, found[usize::from(*arena)].name(link)));
    parents.fill(NONE);
    let mut left = vec![root];
    while let Some(parent) = left.pop() {
        let from = links.partition_point(|(_, link)| link.parent < parent);
        for (arena, link) in links[from..].iter().take_while(|(_, link)| link.parent == parent) {
            let child = link.child as usize;
            if parents[child] == NONE && link.child != root {
                parents[child] = parent;
                names[child] = (*arena, link.name);
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
