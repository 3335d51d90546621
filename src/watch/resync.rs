//! After events were lost: what changed since, by an incremental scan.
//!
//! The tables of inodes are read, which takes seconds where a walk takes minutes, and compared with what the watcher
//! knows. Every change of an inode changes its ctime, and every change of a name that of its directory. An inode that
//! differs, or was changed so recently that the clock does not tell, is looked at; a directory is listed again. Parents
//! come first, so that a path is valid when it is used. What is not at its path, because it or a directory above it was
//! moved meanwhile, waits: an event says where it is now, but not what else changed in it before.

use std::time::Instant;

use hashbrown::HashSet;

use super::scan::{Unlisted, record};
use super::tree::InodeSlot;
use super::{LONGEST_PATH_BYTES, Watch};
use crate::scan::Kind;
use crate::survey::inode_scan::each_inode;
use crate::sys::Handle;

/// Clocks of inodes lag behind, by a tick of the kernel.
const MARGIN_SECONDS: i64 = 2;
/// Inodes that are compared between two looks at the queue.
const INODES_A_BREATH: u64 = 1 << 16;

impl Watch<'_> {
    /// Updates what changed since the last look. Returns the number of changed inodes, or why it is not possible.
    pub(super) fn resync(&mut self) -> Result<usize, String> {
        let changed = self.changed_inodes()?;
        let count = changed.len();
        self.unreached.extend(changed);
        self.reach()?;
        Ok(count)
    }

    /// Updates changed inodes through their paths. Those that are not there stay for another time.
    ///
    /// # Errors
    /// A path is too long.
    pub(super) fn reach(&mut self) -> Result<(), String> {
        let changed = std::mem::take(&mut self.unreached);
        let mut reached = HashSet::new();
        // A directory that moved below a new one is found when that is listed, and then those in it.
        loop {
            let unlisted = self.list_changed(&changed, &mut reached)?;
            if unlisted.is_empty() {
                break;
            }
            self.list(unlisted);
        }
        let now = Instant::now();
        for number in changed.into_iter().filter(|number| !reached.contains(number)) {
            let Some(inode) = self.tree.inode(number) else { continue };
            if self.tree.kind(inode) == Kind::Directory {
                self.unreached.insert(number);
                continue;
            }
            match self.look_at_path(inode)? {
                // What is allocated ahead is not yet what stays.
                Some(handle) => self.written_back.add(handle.as_bytes(), now),
                None => _ = self.unreached.insert(number),
            }
        }
        self.tree.settle();
        Ok(())
    }

    /// Lists the changed directories that are not among `listed`, parents first. Returns new directories.
    fn list_changed(&mut self, changed: &HashSet<u64>, listed: &mut HashSet<u64>) -> Result<Vec<Unlisted>, String> {
        let (mut unlisted, mut buffer) = (Vec::new(), Vec::new());
        let mut pending = vec![self.tree.root()];
        while let Some(directory) = pending.pop() {
            let number = self.tree.number(directory);
            if changed.contains(&number) && !listed.contains(&number) {
                let Some(handle) = self.look_at_path(directory)? else { continue };
                match self.truth.list(&handle, &mut buffer) {
                    Ok(listing) => unlisted.extend(record(&mut self.tree, listing)),
                    Err(None) => continue,
                    Err(trouble) => self.tree.set_trouble(directory, trouble),
                }
                listed.insert(number);
            }
            let names = self.tree.children(directory).filter_map(|name| self.tree.target(name).ok());
            pending.extend(names.filter(|&inode| self.tree.kind(inode) == Kind::Directory));
        }
        Ok(unlisted)
    }

    /// Numbers of known inodes that differ from the tables.
    fn changed_inodes(&mut self) -> Result<HashSet<u64>, String> {
        let since = self.true_until - MARGIN_SECONDS;
        let (mut changed, mut read) = (HashSet::new(), 0);
        let (tree, group, marked) = (&self.tree, &mut self.group, &mut self.marked);
        let compared = each_inode(&self.request.survey, &mut |stat| {
            read += 1;
            if read % INODES_A_BREATH == 0 {
                group.drain(marked);
            }
            changed.extend(tree.differs(stat, since).map(|_| stat.inode));
        });
        compared.map(|()| changed).map_err(|error| error.to_string())
    }

    /// Updates an inode through its path. `None` if something else is there: an event will say so.
    fn look_at_path(&mut self, inode: InodeSlot) -> Result<Option<Handle>, String> {
        let number = self.tree.number(inode);
        let path = match self.tree.place(inode) {
            Some((directory, name)) => self.tree.write_path(directory, name, LONGEST_PATH_BYTES, &mut self.path),
            None => Some(c"."),
        };
        let path = path.ok_or("a path is too long, or has directories that are changing places")?;
        let Some(stat) = self.truth.path(self.truth.mount(), path).filter(|stat| stat.inode == number) else {
            return Ok(None);
        };
        self.tree.update(&stat);
        Ok(self.truth.handle(path))
    }
}
