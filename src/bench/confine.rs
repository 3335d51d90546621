//! A memory limit for a program: it runs in a control group that bounds its memory and page cache together.
//!
//! A page of a file is charged to the group that reads it first, so a group's page cache is complete only if the caches
//! were dropped before. The path of the group is recorded in the scratch directory before the group is created; after a
//! kill, the next run can kill what runs in it and remove it. Only those programs are ever in the group.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cgroups::{Hierarchy, of_controller, unified};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{escape_path, unescape_path};

const OPERATION: &str = "limit memory";
/// File in a scratch directory with the path of a group.
const NOTED: &str = "confined";
/// Time limit for the programs of a group to end, and for the kernel to release it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Interface files of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group with a limit. Dropping it kills what runs in it and removes it.
#[derive(Debug)]
pub(super) struct Confined {
    path: PathBuf,
    version: Version,
    noted: PathBuf,
}

/// Memory charged to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Charged {
    /// Pages of files.
    pub page_cache_bytes: u64,
    /// Memory of the programs themselves.
    pub anonymous_bytes: u64,
}

/// Checks whether memory can be limited here.
///
/// # Errors
/// [`ErrorKind::NotFound`] and [`ErrorKind::PermissionDenied`], with what is missing.
pub(super) fn check() -> Result<()> {
    parent().map(|_| ())
}

/// Checks whether a program in a group is also slowed down by the devices that `--emulate` limits.
///
/// # Errors
/// Same as [`check`]; [`ErrorKind::Usage`] where a program that enters a group leaves the one with the limits.
pub(super) fn check_beside_slow_devices() -> Result<()> {
    let (_, version) = parent()?;
    // A process is in one group of each hierarchy, and cgroup v2 has both controllers in one.
    if version == Version::Two && of_controller("blkio")?.is_none() {
        let cause = "with cgroup v2, --emulate would not slow down a program that has a memory limit";
        return Err(Error::new(ErrorKind::Usage, OPERATION, cause).advise("remove --emulate"));
    }
    Ok(())
}

/// The parent for new groups, and its version.
fn parent() -> Result<(PathBuf, Version)> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(ErrorKind::PermissionDenied, OPERATION, "creating a control group needs root")
            .advise("run it as root"));
    }
    if let Some(Hierarchy { root, own }) = of_controller("memory")? {
        // A limit on this process also applies to the programs that it starts.
        return Ok((if own.join("memory.limit_in_bytes").exists() { own } else { root }, Version::One));
    }
    let Some(Hierarchy { root, .. }) = unified()? else {
        return Err(Error::new(ErrorKind::NotFound, OPERATION, "the kernel's memory controller is not mounted")
            .advise("mount it: mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory, or cgroup v2: mount -t cgroup2 cgroup2 /sys/fs/cgroup"));
    };
    let listed = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let has_memory = |text: String| text.split_whitespace().any(|name| name == "memory");
    if has_memory(listed("cgroup.subtree_control")) {
        return Ok((root, Version::Two));
    }
    let error =
        Error::new(ErrorKind::NotFound, OPERATION, "cgroup v2 has no memory controller for groups in this place")
            .at(&root);
    Err(match has_memory(listed("cgroup.controllers")) {
        true => error.advise(format!("enable it: echo +memory > {}/cgroup.subtree_control", escape_path(&root))),
        false => error.advise("boot a kernel with CONFIG_MEMCG and without cgroup_disable=memory"),
    })
}

impl Confined {
    /// Creates a group that has the name of the `scratch` directory; without a limit, it only counts.
    ///
    /// # Errors
    /// Same as [`check`]; errors from creating the group.
    pub(super) fn new(scratch: &Path, limit_bytes: Option<u64>) -> Result<Confined> {
        let (parent, version) = parent()?;
        Confined::below(&parent, version, scratch, limit_bytes)
    }

    fn below(parent: &Path, version: Version, scratch: &Path, limit_bytes: Option<u64>) -> Result<Confined> {
        let path = parent.join(scratch.file_name().unwrap_or_default());
        let noted = scratch.join(NOTED);
        // Both the guard and the record lead to the killing of what is in the group, so neither is of another's group.
        fs::create_dir(&path).map_err(|error| Error::io(OPERATION, &path, error))?;
        if let Err(error) = fs::write(&noted, escape_path(&path)) {
            let _ = fs::remove_dir(&path);
            return Err(Error::io(OPERATION, &noted, error));
        }
        let confined = Confined { path, version, noted };
        if let Some(limit_bytes) = limit_bytes {
            confined.limit(limit_bytes)?;
        }
        Ok(confined)
    }

    fn limit(&self, limit_bytes: u64) -> Result<()> {
        // No swap: all memory of the group counts against the limit.
        let (memory, with_swap, most) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit_bytes),
            Version::Two => ("memory.max", "memory.swap.max", 0),
        };
        let path = self.path.join(memory);
        write(&path, limit_bytes).map_err(|error| Error::io(OPERATION, &path, error))?;
        match write(&self.path.join(with_swap), most) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(OPERATION, &self.path.join(with_swap), error))
            }
            _ => Ok(()),
        }
    }

    /// A process that writes its PID to this file enters the group.
    pub(super) fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Memory charged now.
    pub(super) fn charged(&self) -> Charged {
        let text = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let (page_cache, anonymous) = match self.version {
            Version::One => ("total_cache", "total_rss"),
            Version::Two => ("file", "anon"),
        };
        Charged { page_cache_bytes: row(&text, page_cache), anonymous_bytes: row(&text, anonymous) }
    }

    /// Peak of the charged memory, where the kernel reports it.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        let name = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }

    /// Whether a program in the group was killed for lack of memory.
    pub(super) fn ran_out(&self) -> bool {
        let name = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        row(&fs::read_to_string(self.path.join(name)).unwrap_or_default(), "oom_kill") > 0
    }

    /// Kills everything in the group.
    pub(super) fn end(&self) {
        end_all(&self.path);
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        if remove(&self.path) {
            let _ = fs::remove_file(&self.noted);
        }
    }
}

/// Kills everything in the group of a killed run, and removes the group.
pub(super) fn clear_left_over(scratch: &Path) {
    let noted = scratch.join(NOTED);
    let Some(path) = fs::read_to_string(&noted).ok().and_then(|text| unescape_path(&text)) else { return };
    let is_of_a_run = path.file_name().is_some() && path.file_name() == scratch.file_name();
    if is_of_a_run && path.join("cgroup.procs").exists() {
        remove(&path);
    }
}

/// Writes to a file of the kernel; never creates it.
fn write(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    std::io::Write::write_all(&mut file, number.to_string().as_bytes())
}

/// A row `name number`.
fn row(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn end_all(group: &Path) {
    let started = Instant::now();
    loop {
        let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let processes: Vec<Pid> = listed.lines().filter_map(|row| Pid::from_raw(row.trim().parse().ok()?)).collect();
        if processes.is_empty() || started.elapsed() > PATIENCE {
            return;
        }
        for process in processes {
            let _ = kill_process(process, Signal::KILL);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Removes a group and kills what runs in it; returns whether it is gone.
fn remove(group: &Path) -> bool {
    end_all(group);
    // v1: releases its remaining pages; otherwise they move to the parent group.
    let _ = write(&group.join("memory.force_empty"), 0);
    let started = Instant::now();
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return true,
            Err(_) if started.elapsed() > PATIENCE => return false,
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernel_are_read() {
        let text = "cache 7\ntotal_cache 4096\noom_kill_disable 0\noom_kill 2\n";
        assert_eq!((row(text, "total_cache"), row(text, "oom_kill"), row(text, "anon")), (4096, 2, 0));
    }

    /// A group of either version, modelled with plain files.
    fn group_of(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Confined) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("group");
        fs::create_dir(&path).unwrap();
        files.iter().for_each(|(name, text)| fs::write(path.join(name), text).unwrap());
        let noted = directory.path().join(NOTED);
        (directory, Confined { path, version, noted })
    }

    #[test]
    fn both_versions_of_groups_are_understood() {
        let one = [
            ("memory.limit_in_bytes", ""),
            ("memory.memsw.limit_in_bytes", ""),
            ("memory.stat", "total_cache 3\ntotal_rss 4\n"),
            ("memory.max_usage_in_bytes", "9\n"),
            ("memory.oom_control", "oom_kill 1\n"),
        ];
        let two = [
            ("memory.max", ""),
            ("memory.stat", "anon 4\nfile 3\nfile_mapped 2\n"),
            ("memory.peak", "9\n"),
            ("memory.events", "max 7\noom 1\noom_kill 1\n"),
        ];
        for (version, files, limits) in [
            (Version::One, &one[..], [("memory.limit_in_bytes", "64"), ("memory.memsw.limit_in_bytes", "64")]),
            (Version::Two, &two[..], [("memory.max", "64"), ("memory.max", "64")]),
        ] {
            let (_directory, group) = group_of(version, files);
            group.limit(64).unwrap();
            for (name, text) in limits {
                assert_eq!(fs::read_to_string(group.path.join(name)).unwrap(), text, "{name}");
            }
            assert_eq!(group.charged(), Charged { page_cache_bytes: 3, anonymous_bytes: 4 });
            assert_eq!((group.peak_bytes(), group.ran_out()), (Some(9), true));
            fs::remove_dir_all(&group.path).unwrap();
        }
    }

    #[test]
    fn programs_in_a_group_of_the_same_name_live_on() {
        let directory = tempfile::tempdir().unwrap();
        let (top, scratch) = (directory.path().join("top"), directory.path().join("run"));
        let group = top.join("run");
        [&scratch, &group].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), other.id().to_string()).unwrap();
        let confined = Confined::below(&top, Version::Two, &scratch, None);
        clear_left_over(&scratch);
        let lives = other.try_wait().unwrap().is_none();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(confined.is_err() && lives, "{confined:?}");
    }

    #[test]
    fn only_a_group_of_a_run_is_cleared_away() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("cgroup.procs"), "").unwrap();
        fs::write(directory.path().join(NOTED), escape_path(&other)).unwrap();
        clear_left_over(directory.path());
        assert!(other.exists());
    }
}
