//! Locates the control group hierarchies of the kernel, and the groups of this process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::mounts::{Mount, mounts};

/// A mounted hierarchy: one controller of cgroup v1, or cgroup v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Its root, as this process sees it.
    pub root: PathBuf,
    /// The group of this process; the root where that is not visible.
    pub own: PathBuf,
}

/// The hierarchy that has a controller of cgroup v1; `None` if none is mounted.
pub(super) fn of_controller(controller: &str) -> Result<Option<Hierarchy>> {
    let is_it = |mount: &Mount| mount.kind == "cgroup" && mount.options.split(',').any(|option| option == controller);
    find(is_it, |listed| listed.split(',').any(|name| name == controller))
}

/// The hierarchy of cgroup v2; `None` if it is not mounted.
pub(super) fn unified() -> Result<Option<Hierarchy>> {
    find(|mount| mount.kind == "cgroup2", str::is_empty)
}

fn find(is_mount: impl Fn(&Mount) -> bool, is_row: impl Fn(&str) -> bool) -> Result<Option<Hierarchy>> {
    let mounts = mounts()?;
    let Some(mount) = mounts.iter().find(|mount| is_mount(mount)) else { return Ok(None) };
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = text.lines().find_map(|row| {
        let mut fields = row.splitn(3, ':').skip(1);
        let is_it = is_row(fields.next()?);
        fields.next().filter(|_| is_it)
    });
    // In a container, the mount may show only part of the hierarchy.
    let own = own.and_then(|path| Path::new(path).strip_prefix(&mount.root).ok()).map(|path| mount.point.join(path));
    let own = own.filter(|path| path.is_dir()).unwrap_or_else(|| mount.point.clone());
    Ok(Some(Hierarchy { root: mount.point.clone(), own }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_below_their_top() {
        let found = [of_controller("memory"), of_controller("blkio"), unified()];
        for hierarchy in found.into_iter().filter_map(|found| found.unwrap()) {
            assert!(hierarchy.own.starts_with(&hierarchy.root) && hierarchy.own.join("cgroup.procs").exists());
        }
        assert_eq!(of_controller("no such controller").unwrap(), None);
    }
}
