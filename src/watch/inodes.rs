//! Looks at inodes, by the names that are known of them.
//!
//! A name is one system call, a handle three. Whatever a name leads to by now, only the number counts: attributes are
//! taken if they are those of the inode that the handle probably refers to. Else the handle itself is opened.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::events::{HandleBytes, probable_number};
use super::tree::InodeSlot;
use super::{LONGEST_PATH_BYTES, LOOKS_A_BREATH, Watch};
use crate::scan::{Kind, Stat};

/// Smallest allocation unit: files that need no more than their size in these are not allocated ahead.
const BLOCK_BYTES: u64 = 4096;

impl Watch<'_> {
    /// Updates inodes. `looked` gets each that is still there, and whether more is allocated than its size needs.
    ///
    /// Those of a directory are looked at one after the other, through the open directory if there are several, and
    /// directories in the order in which they were met: what is on the way to one is in the caches for the next.
    pub(super) fn look_at_inodes(
        &mut self,
        handles: Vec<HandleBytes>,
        mut looked: impl FnMut(&mut Self, &HandleBytes, bool),
    ) {
        let directory = |handle: &HandleBytes| Some(self.tree.place(self.tree.inode(probable_number(handle)?)?)?.0);
        let mut placed: Vec<_> = handles.into_iter().map(|handle| (directory(&handle), handle)).collect();
        placed.sort_unstable_by_key(|(directory, _)| *directory);
        let mut looks = 0;
        for near in placed.chunk_by(|(one, _), (other, _)| one == other) {
            let open = match near {
                [(Some(directory), _), _, ..] => self.open_by_path(*directory),
                _ => None,
            };
            for (directory, handle) in near {
                looks += 1;
                if looks % LOOKS_A_BREATH == 0 {
                    self.group.drain(&mut self.marked);
                }
                let near = open.as_ref().map(AsFd::as_fd).zip(*directory);
                let stat = self.look_by_name(near, handle);
                let Some(stat) = stat.or_else(|| self.truth.inode(handle)) else { continue };
                self.tree.update(&stat);
                let needed_bytes = stat.size_bytes.next_multiple_of(BLOCK_BYTES);
                looked(self, handle, stat.kind == Kind::File && stat.allocated_bytes > needed_bytes);
            }
        }
    }

    /// Opens what is at the path of a directory.
    fn open_by_path(&mut self, directory: InodeSlot) -> Option<OwnedFd> {
        let (above, name) = self.tree.place(directory)?;
        let path = self.tree.write_path(above, name, LONGEST_PATH_BYTES, &mut self.path)?;
        self.truth.directory(path)
    }

    /// The attributes of the inode that a handle probably refers to, by its name: in a directory that is open, `near`,
    /// if it is still there, else by its path. `None` if its number is not known or something else is there by now.
    fn look_by_name(&mut self, near: Option<(BorrowedFd<'_>, InodeSlot)>, handle: &HandleBytes) -> Option<Stat> {
        let number = probable_number(handle)?;
        let (directory, name) = self.tree.place(self.tree.inode(number)?)?;
        let stat = match near.filter(|(_, open)| *open == directory) {
            Some((open, _)) => {
                self.path.clear();
                self.path.extend_from_slice(name);
                self.path.push(0);
                self.truth.path(open, CStr::from_bytes_with_nul(&self.path).ok()?)
            }
            None => {
                let path = self.tree.write_path(directory, name, LONGEST_PATH_BYTES, &mut self.path)?;
                self.truth.path(self.truth.mount(), path)
            }
        };
        stat.filter(|stat| stat.inode == number)
    }
}
