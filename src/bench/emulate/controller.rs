//! The kernel's controllers that limit the rates of a device.
//!
//! cgroup v1, controller blkio: limits of the device are set in the root cgroup, to which write-back is charged, and in
//! the cgroup of this process, to which its reads and direct writes are charged. cgroup v2, controller io: the root
//! cgroup has no limits, so the process and its children move into a cgroup of their own while a device is limited;
//! write-back is attributed to that cgroup where the memory controller is enabled. (Linux,
//! Documentation/admin-guide/cgroup-v1/blkio-controller.rst and cgroup-v2.rst.)

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::cgroups::{Hierarchy, of_controller, unified};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{escape_path, unescape_path};

pub(super) const OPERATION: &str = "emulate a slow disk";
/// The files of cgroup v1, and whether they count operations.
const BLKIO_FILES: [(&str, bool); 4] = [
    ("blkio.throttle.read_iops_device", true),
    ("blkio.throttle.write_iops_device", true),
    ("blkio.throttle.read_bps_device", false),
    ("blkio.throttle.write_bps_device", false),
];
/// Time limit for programs in a cgroup to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Rates in each direction, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    pub operations: u64,
    pub bytes: u64,
}

/// Where the limits of a device are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Controller {
    /// cgroup v1: in these cgroups.
    Blkio(Vec<PathBuf>),
    /// cgroup v2: in a cgroup of the run; the process moved there from `before`. `switched_on` are the controllers that
    /// were not enabled for the children of the root.
    Io { root: PathBuf, group: PathBuf, before: PathBuf, switched_on: Vec<String> },
}

impl Controller {
    /// Returns the controller of this machine for a run that has none yet; `name` is for its cgroup, if it needs one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(super) fn find(name: &str) -> Result<Controller> {
        if let Some(Hierarchy { root, own }) = of_controller("blkio")? {
            return Ok(Controller::Blkio(if own == root { vec![root] } else { vec![root, own] }));
        }
        let Some(Hierarchy { root, own }) = unified()?.filter(|found| lists(&found.root, "cgroup.controllers", "io"))
        else {
            let cause = "neither the controller blkio of cgroup v1 nor io of cgroup v2 is mounted";
            return Err(Error::new(ErrorKind::NotFound, OPERATION, cause)
                .advise("mount it: mount -t cgroup -o blkio cgroup /sys/fs/cgroup/blkio"));
        };
        let group = root.join(name);
        let off = ["io", "memory"].into_iter().filter(|controller| {
            lists(&root, "cgroup.controllers", controller) && !lists(&root, "cgroup.subtree_control", controller)
        });
        let switched_on = off.map(str::to_owned).collect();
        Ok(Controller::Io { root, group, before: own, switched_on })
    }

    /// Limits a device.
    ///
    /// # Errors
    /// Errors from writing to the controller.
    pub(super) fn limit(&self, number: (u32, u32), rates: Rates) -> Result<()> {
        let written = |path: &Path, done: io::Result<()>| done.map_err(|error| Error::io(OPERATION, path, error));
        match self {
            Controller::Blkio(cgroups) => {
                for (cgroup, (file, counts)) in pairs(cgroups) {
                    let path = cgroup.join(file);
                    let limit = if counts { rates.operations } else { rates.bytes };
                    written(&path, write(&path, &blkio_line(number, limit)))?;
                }
                Ok(())
            }
            Controller::Io { root, group, switched_on, .. } => {
                let control = root.join("cgroup.subtree_control");
                for controller in switched_on {
                    written(&control, write(&control, &format!("+{controller}")))?;
                }
                match fs::create_dir(group) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => written(group, Err(error))?,
                    _ => {}
                }
                let (procs, max) = (group.join("cgroup.procs"), group.join("io.max"));
                written(&max, write(&max, &io_line(number, Some(rates))))?;
                written(&procs, write(&procs, &std::process::id().to_string()))
            }
        }
    }

    /// Lifts the limits of a device. With the last of them, the cgroup of the run is removed, once the process has
    /// moved back to its previous cgroup (`goes_back`; a killed run has no process to move). Returns whether nothing of
    /// it is left.
    pub(super) fn lift(&self, number: (u32, u32), goes_back: bool) -> bool {
        match self {
            Controller::Blkio(cgroups) => {
                for (cgroup, (file, _)) in pairs(cgroups) {
                    let _ = write(&cgroup.join(file), &blkio_line(number, 0));
                }
                true
            }
            Controller::Io { root, group, before, switched_on } => {
                let max = group.join("io.max");
                let _ = write(&max, &io_line(number, None));
                if fs::read_to_string(&max).is_ok_and(|left| !left.trim().is_empty()) {
                    return true;
                }
                if goes_back {
                    let home = if before.is_dir() { before } else { root };
                    let _ = write(&home.join("cgroup.procs"), &std::process::id().to_string());
                }
                let started = Instant::now();
                while fs::remove_dir(group).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                    if started.elapsed() > PATIENCE {
                        return false;
                    }
                    sleep(Duration::from_millis(20));
                }
                for controller in switched_on {
                    let _ = write(&root.join("cgroup.subtree_control"), &format!("-{controller}"));
                }
                true
            }
        }
    }

    /// What it does not limit; `None` if it limits everything.
    pub(super) fn gap(&self) -> Option<&'static str> {
        match self {
            Controller::Io { group, .. } if !lists(group, "cgroup.controllers", "memory") => {
                Some("write-back, because the memory controller is off")
            }
            _ => None,
        }
    }

    /// As lines of a file, for lifting the limits after a kill.
    pub(super) fn note(&self, (major, minor): (u32, u32)) -> String {
        let mut lines = vec![format!("{major}:{minor}")];
        match self {
            Controller::Blkio(cgroups) => {
                lines.push("blkio".to_owned());
                lines.extend(cgroups.iter().map(|path| escape_path(path)));
            }
            Controller::Io { root, group, before, switched_on } => {
                lines.push("io".to_owned());
                lines.extend([root, group, before].map(|path| escape_path(path)));
                lines.extend(switched_on.iter().cloned());
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// Parses the output of [`note`](Self::note).
    pub(super) fn of_note(text: &str) -> Option<((u32, u32), Controller)> {
        let mut lines = text.lines();
        let (major, minor) = lines.next()?.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        let kind = lines.next()?;
        let mut path = || lines.next().and_then(unescape_path);
        let controller = match kind {
            "blkio" => Controller::Blkio(std::iter::from_fn(path).collect()),
            "io" => {
                let (root, group, before) = (path()?, path()?, path()?);
                Controller::Io { root, group, before, switched_on: lines.map(str::to_owned).collect() }
            }
            _ => return None,
        };
        Some((number, controller))
    }
}

fn pairs(cgroups: &[PathBuf]) -> impl Iterator<Item = (&PathBuf, (&'static str, bool))> {
    cgroups.iter().flat_map(|cgroup| BLKIO_FILES.into_iter().map(move |file| (cgroup, file)))
}

fn blkio_line((major, minor): (u32, u32), limit: u64) -> String {
    format!("{major}:{minor} {limit}")
}

fn io_line((major, minor): (u32, u32), rates: Option<Rates>) -> String {
    let word = |rate: Option<u64>| rate.map_or("max".to_owned(), |rate| rate.to_string());
    let (bytes, operations) = (word(rates.map(|rates| rates.bytes)), word(rates.map(|rates| rates.operations)));
    format!("{major}:{minor} rbps={bytes} wbps={bytes} riops={operations} wiops={operations}")
}

/// Writes one line to a file of the kernel, and never creates it: the cgroup may be gone.
fn write(file: &Path, line: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}

/// Whether a file of a cgroup contains `word`.
fn lists(cgroup: &Path, file: &str, word: &str) -> bool {
    fs::read_to_string(cgroup.join(file)).unwrap_or_default().split_whitespace().any(|listed| listed == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { operations: 120, bytes: 160_000_000 };

    #[test]
    fn what_is_to_be_lifted_is_read_back() {
        let paths = ["/sys/fs/cgroup", "/sys/fs/cgroup/a b", "/sys/fs/cgroup/x\ny"].map(PathBuf::from);
        let [root, group, before] = paths.clone();
        let io = Controller::Io { root, group, before, switched_on: vec!["io".to_owned()] };
        for controller in [Controller::Blkio(paths.to_vec()), io] {
            assert_eq!(Controller::of_note(&controller.note((7, 3))), Some(((7, 3), controller)));
        }
        for wrong in ["", "nothing", "7:3", "7:3\ntape\n/a\n", "7:3\nio\n/a\n/b\n"] {
            assert_eq!(Controller::of_note(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_of_the_first_version_are_lines_for_one_device() {
        let directory = tempfile::tempdir().unwrap();
        let controller = Controller::Blkio(vec![directory.path().to_owned()]);
        // Creates nothing where there is no controller.
        assert!(controller.limit((7, 3), RATES).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        BLKIO_FILES.iter().for_each(|(file, _)| fs::write(directory.path().join(file), "").unwrap());
        let written = |file: &str| fs::read_to_string(directory.path().join(file)).unwrap();
        controller.limit((7, 3), RATES).unwrap();
        assert_eq!(written("blkio.throttle.read_iops_device"), "7:3 120\n");
        assert_eq!(written("blkio.throttle.write_bps_device"), "7:3 160000000\n");
        // The kernel takes each line as a change; a plain file keeps the rest of the previous content.
        assert!(controller.lift((7, 3), true));
        assert!(written("blkio.throttle.read_iops_device").starts_with("7:3 0\n"));
    }

    #[test]
    fn limits_of_the_second_version_need_a_cgroup_of_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let (root, group) = (directory.path().to_owned(), directory.path().join("run"));
        let before = root.join("before");
        fs::create_dir_all(&before).unwrap();
        fs::create_dir(&group).unwrap();
        let files = [
            root.join("cgroup.subtree_control"),
            group.join("io.max"),
            group.join("cgroup.procs"),
            before.join("cgroup.procs"),
        ];
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let [control, max, procs, home] = files.map(|file| move || fs::read_to_string(&file).unwrap());
        let switched_on = vec!["io".to_owned()];
        let controller = Controller::Io { root, group, before, switched_on };
        controller.limit((7, 3), RATES).unwrap();
        assert_eq!((control().as_str(), procs()), ("+io\n", format!("{}\n", std::process::id())));
        assert_eq!(max(), "7:3 rbps=160000000 wbps=160000000 riops=120 wiops=120\n");
        assert!(controller.gap().is_some());
        // In these plain files another device is still limited: the process stays.
        assert!(controller.lift((7, 3), true));
        assert!(max().starts_with("7:3 rbps=max wbps=max riops=max wiops=max\n") && home().is_empty());
    }
}
