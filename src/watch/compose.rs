//! From the state of the watcher to a survey: the tree is passed to the collector as a walk would pass it, so that both
//! give the same document.
//!
//! What is excluded is decided here, by the paths that hold now: a rename may move files into an excluded directory and
//! out of it. Cost: time proportional to the number of names, memory for the sums of every directory meanwhile.

use std::io;

use super::tree::{InodeSlot, Odd, Tree, Trouble};
use crate::scan::exclude::Exclude;
use crate::scan::inodes::InodeVisitor;
use crate::scan::place::Parent;
use crate::scan::walk::display_root;
use crate::scan::{
    Batch, Directory, DirectoryLocation, Kind, SNAPSHOT_DIRECTORIES, Skipped, Tally as _, Visitor, join,
};
use crate::survey::collect::Collector;
use crate::survey::places::Tally;
use crate::survey::request::{Request, machines, named, origin};
use crate::survey::tree::Sums;
use crate::survey::{Origin, Snapshots, Survey};

/// Entries per batch.
const BATCH_ENTRIES: usize = 256;
/// Directories between two looks at other work.
const DIRECTORIES_A_BREATH: usize = 1024;

/// When a survey is taken, seconds since 1970, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) taken_at: i64,
    pub(super) elapsed_seconds: f64,
}

/// Sums of a directory with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectorySums {
    /// Its path below the mount; empty for the mount itself.
    pub(crate) path: Vec<u8>,
    /// Its depth below the mount.
    pub(crate) depth: u32,
    /// The sums.
    pub(crate) sums: Tally,
}

/// A directory on the way through the tree.
struct Passed {
    inode: InodeSlot,
    /// Position of its parent; its own for the root.
    parent: u32,
    depth: u32,
    own: Sums,
    below: Sums,
}

/// Where a directory is, for the collector.
struct Location<'t> {
    tree: &'t Tree,
    inode: InodeSlot,
    depth: u32,
    root: &'t [u8],
}

impl DirectoryLocation for Location<'_> {
    fn path(&self) -> Vec<u8> {
        match self.tree.path(self.inode) {
            below if below.is_empty() => self.root.to_vec(),
            below => join(self.root.to_vec(), &below),
        }
    }

    fn depth(&self) -> u32 {
        self.depth
    }
}

/// A tree that is to become a survey.
pub(super) struct Composition<'t> {
    tree: &'t Tree,
    root: &'t [u8],
    exclude: &'t Exclude,
    include_snapshots: bool,
    collector: Collector,
    passed: Vec<Passed>,
}

/// The survey of `tree` as `request` wants it, and the sums of directories down to `depth`. Calls `meanwhile` again and
/// again.
pub(super) fn compose(
    tree: &Tree,
    request: &Request,
    exclude: &Exclude,
    moment: Moment,
    depth: Option<u32>,
    mut meanwhile: impl FnMut(),
) -> (Survey, Vec<DirectorySums>) {
    let root = request.roots.first().map_or(&b""[..], |root| display_root(root));
    let reference_time = request.reference_time.unwrap_or(moment.taken_at);
    let mut composition = Composition {
        tree,
        root,
        exclude,
        include_snapshots: request.options.snapshots == Snapshots::Include,
        collector: Collector::new(&request.options, 1, reference_time, request.limit),
        passed: Vec::new(),
    };
    composition.collector.root(root, &tree.stat(tree.root()));
    composition.pass_names(&mut meanwhile);
    composition.collector.named();
    let sums = composition.pass_sums(depth.unwrap_or(0));
    let origin = origin(request, moment.taken_at, moment.elapsed_seconds, true);
    let origin = Origin { machines: machines(request), reference_time: Some(reference_time), ..origin };
    (named(composition.collector.survey(), origin), sums)
}

impl Composition<'_> {
    /// Passes all directories to the collector, parents first.
    fn pass_names(&mut self, meanwhile: &mut impl FnMut()) {
        let mut pending = vec![(self.tree.root(), 0, 0)];
        let mut batch = Batch::default();
        while let Some((inode, parent, depth)) = pending.pop() {
            let position = self.passed.len() as u32;
            if self.passed.len().is_multiple_of(DIRECTORIES_A_BREATH) {
                meanwhile();
            }
            let own = self.pass_directory(inode, position, depth, &mut batch, &mut pending);
            self.passed.push(Passed { inode, parent, depth, own, below: Sums::default() });
        }
    }

    fn pass_directory(
        &self,
        inode: InodeSlot,
        position: u32,
        depth: u32,
        batch: &mut Batch,
        pending: &mut Vec<(InodeSlot, u32, u32)>,
    ) -> Sums {
        let location = Location { tree: self.tree, inode, depth, root: self.root };
        let directory = Directory::at(&location);
        let trouble = self.tree.trouble(inode);
        if let Some(trouble) = trouble {
            self.fail(trouble, &|| directory.path());
        }
        let below_root = if self.exclude.needs_path() { self.tree.path(inode) } else { Vec::new() };
        let parent = Parent::at_position(position, self.tree.number(inode));
        let (mut own, mut entries) = (Sums::default(), 0);
        for child in self.tree.children(inode) {
            let name = self.tree.text(child);
            if self.exclude.matches(&below_root, name) {
                self.collector.skipped(0, Skipped::Excluded, 1);
                continue;
            }
            let target = self.tree.target(child);
            let may_be_snapshots = match target {
                Ok(inode) => self.tree.kind(inode) == Kind::Directory,
                Err(odd) => odd == Odd::MountPoint,
            };
            if may_be_snapshots && !self.include_snapshots && SNAPSHOT_DIRECTORIES.contains(&name) {
                self.collector.skipped(0, Skipped::SnapshotDirectory, 1);
                continue;
            }
            entries += 1;
            match target {
                Ok(inode) => {
                    let stat = self.tree.stat(inode);
                    if stat.kind == Kind::Directory {
                        pending.push((inode, position, depth + 1));
                    }
                    batch.push(name, stat);
                    if batch.len() >= BATCH_ENTRIES {
                        self.collector.entries(0, directory, &parent, batch, &mut own);
                        batch.clear();
                    }
                }
                Err(Odd::MountPoint) => {
                    self.collector.name_alone(0, name);
                    self.collector.skipped(0, Skipped::MountPoint, 1);
                }
                Err(Odd::Unreadable(trouble)) => {
                    self.collector.name_alone(0, name);
                    self.fail(trouble, &|| directory.path_of(name));
                }
            }
        }
        if !batch.is_empty() {
            self.collector.entries(0, directory, &parent, batch, &mut own);
            batch.clear();
        }
        // A directory that could not be opened has no number of entries.
        if trouble.is_none_or(|(operation, _)| operation != "open the directory") {
            self.collector.listed(0, directory, entries);
        }
        own
    }

    fn fail(&self, (operation, errno): Trouble, path: &dyn Fn() -> Vec<u8>) {
        self.collector.failed(operation, io::Error::from_raw_os_error(errno), path);
    }

    /// Adds up the directories, children first, and returns those of at most `depth`.
    fn pass_sums(&mut self, depth: u32) -> Vec<DirectorySums> {
        let mut all = Vec::new();
        for position in (0..self.passed.len()).rev() {
            let Passed { inode, parent, depth: at_depth, mut own, below } = self.passed[position];
            let location = Location { tree: self.tree, inode, depth: at_depth, root: self.root };
            own.add(&self.collector.late(position as u32));
            self.collector.located(position as u32, Directory::at(&location));
            let subtree = self.collector.finished(0, Directory::at(&location), &own, &below);
            if at_depth <= depth {
                all.push(DirectorySums { path: self.tree.path(inode), depth: at_depth, sums: subtree.tally });
            }
            if position > 0 {
                self.passed[parent as usize].below.add(&subtree);
            }
        }
        all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        all
    }
}
