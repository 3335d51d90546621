//! Where other file systems are mounted below the root: what they hide is not counted. Mounting is not an event of the
//! file system, so the table of mounts is watched as well (proc_pid_mountinfo(5): a change makes it readable with
//! priority).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};
use crate::mounts::mounts;

/// The mount points below a directory.
#[derive(Debug)]
pub(super) struct MountPoints {
    table: File,
    root: PathBuf,
    /// Number of the mount at the root.
    mount: u64,
    known: BTreeSet<PathBuf>,
}

impl MountPoints {
    /// Those below `root`, which must be canonical, on the `mount` there.
    pub(super) fn below(root: PathBuf, mount: u64) -> Result<MountPoints> {
        let path = Path::new("/proc/self/mountinfo");
        let table = File::open(path).map_err(|error| Error::io("watch the mounts in", path, error))?;
        let mut points = MountPoints { table, root, mount, known: BTreeSet::new() };
        points.changed();
        points.known = points.current();
        Ok(points)
    }

    fn current(&self) -> BTreeSet<PathBuf> {
        let below = |point: PathBuf| point.strip_prefix(&self.root).ok().map(Path::to_owned);
        // What is on another mount hides nothing here, even if that shows a directory of this file system.
        let on_it = mounts().unwrap_or_default().into_iter().filter(|mount| mount.parent == self.mount);
        let points = on_it.filter_map(|mount| below(mount.point));
        points.filter(|point| !point.as_os_str().is_empty()).collect()
    }

    fn changed(&mut self) -> bool {
        let mut watched = [PollFd::new(self.table.as_fd(), PollFlags::POLLPRI)];
        matches!(poll(&mut watched, PollTimeout::ZERO), Ok(1..))
    }

    /// Paths below the root where something was mounted or unmounted since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<PathBuf> {
        if !self.changed() {
            return Vec::new();
        }
        let current = self.current();
        let changes = self.known.symmetric_difference(&current).cloned().collect();
        self.known = current;
        changes
    }
}
