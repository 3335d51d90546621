//! A disk that is slow on purpose: a loop device whose rates the kernel limits, by the blkio controller of cgroup v1.
//!
//! The limits are written for the one device into the root cgroup, which is that of write-back, and into the cgroup of this process,
//! which is that of its reads and direct writes; nobody else uses that device. Both are noted in a file of the scratch
//! directory before, so that they can be lifted after a kill: the number of a loop device is given to others later.
//!
//! The kernel counts every request as one operation before it joins them, and cuts requests at the largest that the device takes. So
//! read-ahead is raised to a multiple of that: then a sequential read needs few operations and is limited by the bytes, and
//! random ones are limited by the operations.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::cgroups::{Hierarchy, of_controller};
use super::host::line;
use super::loops::Loop;
use super::result::Emulated;
use super::volume;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{KIB, MIB, format_count, format_size, parse_size};

/// Requests of the largest size that read-ahead makes by default.
const READ_AHEAD_REQUESTS: u64 = 2;
/// The file in a scratch directory that says which limits are to be lifted.
const NOTED: &str = "limited";
/// What can be limited: the file of the controller, whether it counts operations.
const FILES: [(&str, bool); 4] = [
    ("blkio.throttle.read_iops_device", true),
    ("blkio.throttle.write_iops_device", true),
    ("blkio.throttle.read_bps_device", false),
    ("blkio.throttle.write_bps_device", false),
];

/// What is asked for: `hdd[:ops=120,bytes=160MB,read_ahead=4MiB]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    /// Operations a second in each direction.
    pub operations_per_second: u64,
    /// Bytes a second in each direction.
    pub bytes_per_second: u64,
    /// Least read-ahead; without it, two of the largest requests.
    pub read_ahead_bytes: Option<u64>,
}

impl Default for Emulation {
    /// A disk of 7,200 revolutions: one random read takes a seek and half a turn, 8.3 ms together.
    fn default() -> Self {
        Emulation { operations_per_second: 120, bytes_per_second: 160_000_000, read_ahead_bytes: None }
    }
}

impl FromStr for Emulation {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Emulation, String> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        if kind != "hdd" {
            return Err(format!("'{kind}' cannot be emulated; write hdd, or hdd:ops=120,bytes=160MB,read_ahead=4MiB"));
        }
        let mut emulation = Emulation::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let more_than_none = |number: u64| match number {
                0 => Err(format!("{name} of an emulated disk is more than 0")),
                number => Ok(number),
            };
            match name {
                "ops" => {
                    let number = value.parse().map_err(|_| format!("'{value}' is no number of operations a second"))?;
                    // The kernel keeps them in 32 bits.
                    emulation.operations_per_second = more_than_none(number)?.min(u32::MAX.into());
                }
                "bytes" => emulation.bytes_per_second = more_than_none(parse_size(value)?)?,
                "read_ahead" => emulation.read_ahead_bytes = Some(more_than_none(parse_size(value)?)?.min(64 * MIB)),
                _ => return Err(format!("an emulated disk has no '{name}'; it has ops, bytes and read_ahead")),
            }
        }
        Ok(emulation)
    }
}

/// A device that is limited; as fast as before when this is dropped.
#[derive(Debug)]
pub struct Limited {
    cgroups: Vec<PathBuf>,
    number: (u32, u32),
    noted: PathBuf,
    read_ahead: (PathBuf, String),
    /// What it is limited to.
    pub emulated: Emulated,
}

impl Limited {
    /// Limits a loop device that has its image below the scratch directory `scratch`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the kernel has no such controller; what writing to it fails with.
    pub(super) fn new(device: &Loop, emulation: Emulation, scratch: &Path) -> Result<Limited> {
        const OPERATION: &str = "emulate a slow disk";
        let gone = || Error::new(ErrorKind::NotFound, OPERATION, "the loop device has gone").at(device.path());
        let number = device.number().ok_or_else(gone)?;
        let queue = PathBuf::from(format!("/sys/block/{}/queue", device.name()));
        let largest = line(&queue.join("max_sectors_kb").to_string_lossy()).parse::<u64>().unwrap_or(0).max(4) * KIB;
        let asked = emulation.read_ahead_bytes.unwrap_or(READ_AHEAD_REQUESTS * largest);
        let read_ahead_bytes = asked.next_multiple_of(largest);
        let read_ahead = queue.join("read_ahead_kb");
        let before = line(&read_ahead.to_string_lossy());
        let limited = Limited {
            cgroups: cgroups()?,
            number,
            noted: scratch.join(format!("{NOTED}-{}", device.name())),
            read_ahead: (read_ahead.clone(), before),
            emulated: Emulated {
                operations_per_second: emulation.operations_per_second,
                bytes_per_second: emulation.bytes_per_second,
                read_ahead_bytes,
            },
        };
        let noted = note_text(number, &limited.cgroups);
        fs::write(&limited.noted, noted).map_err(|error| Error::io(OPERATION, &limited.noted, error))?;
        for cgroup in &limited.cgroups {
            for (file, counts) in FILES {
                let limit = if counts { emulation.operations_per_second } else { emulation.bytes_per_second };
                write_limit(&cgroup.join(file), number, limit)
                    .map_err(|error| Error::io(OPERATION, &cgroup.join(file), error))?;
            }
        }
        let kib = (read_ahead_bytes / KIB).to_string();
        fs::write(&read_ahead, kib).map_err(|error| Error::io(OPERATION, &read_ahead, error))?;
        Ok(limited)
    }

    /// What the result has to say of it.
    pub fn note(&self) -> String {
        let Emulated { operations_per_second, bytes_per_second, read_ahead_bytes } = self.emulated;
        format!(
            "The slow disk is emulated: at most {} operations and {} MB a second in each direction, read-ahead {}. What it does not \
             model: how far apart places are (every operation costs the same, as on an aged disk with its files spread about), a write \
             cache in the disk, a queue that the disk sorts, faster and slower tracks.",
            format_count(operations_per_second.into()),
            format_count((bytes_per_second / 1_000_000).into()),
            format_size(read_ahead_bytes.into()),
        )
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        lift(&self.cgroups, self.number);
        let (path, before) = &self.read_ahead;
        let _ = fs::write(path, before);
        let _ = fs::remove_file(&self.noted);
    }
}

/// Lifts the limits that a killed run noted in its scratch directory. The loop devices must be attached still, or free.
pub(super) fn lift_left_over(scratch: &Path) {
    let Ok(entries) = fs::read_dir(scratch) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(device) = name.to_str().and_then(|name| name.strip_prefix(NOTED)?.strip_prefix('-')) else { continue };
        // Somebody else's by now: the limits are theirs, or are gone.
        let backing = line(&format!("/sys/block/{device}/loop/backing_file"));
        if !backing.is_empty() && !Path::new(&backing).starts_with(scratch) {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some((number, cgroups)) = parse_note(&text) {
            lift(&cgroups, number);
        }
    }
}

fn lift(cgroups: &[PathBuf], number: (u32, u32)) {
    for cgroup in cgroups {
        for (file, _) in FILES {
            let _ = write_limit(&cgroup.join(file), number, 0);
        }
    }
}

/// Writes one limit; 0 lifts it.
fn write_limit(file: &Path, (major, minor): (u32, u32), limit: u64) -> std::io::Result<()> {
    // Never made where it is missing: a path of a cgroup that is gone.
    let mut open = fs::OpenOptions::new().write(true).open(file)?;
    std::io::Write::write_all(&mut open, format!("{major}:{minor} {limit}\n").as_bytes())
}

fn note_text((major, minor): (u32, u32), cgroups: &[PathBuf]) -> String {
    let paths: Vec<String> = cgroups.iter().map(|path| volume::shown(path)).collect();
    format!("{major}:{minor}\n{}\n", paths.join("\n"))
}

fn parse_note(text: &str) -> Option<((u32, u32), Vec<PathBuf>)> {
    let mut lines = text.lines();
    let (major, minor) = lines.next()?.split_once(':')?;
    let cgroups = lines.filter_map(crate::units::unescape_path).collect();
    Some(((major.parse().ok()?, minor.parse().ok()?), cgroups))
}

/// The root of the blkio hierarchy and, below it, the cgroup of this process.
fn cgroups() -> Result<Vec<PathBuf>> {
    let missing = || {
        let cause = "the kernel has no blkio controller of cgroup v1 mounted";
        Error::new(ErrorKind::NotFound, "emulate a slow disk", cause)
            .advise("mount it: mount -t cgroup -o blkio cgroup /sys/fs/cgroup/blkio; where cgroup v2 has the controller io, boot with systemd.unified_cgroup_hierarchy=0")
    };
    let Hierarchy { root, own } = of_controller("blkio")?.ok_or_else(missing)?;
    Ok(if own == root { vec![root] } else { vec![root, own] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read() {
        assert_eq!("hdd".parse(), Ok(Emulation::default()));
        let asked =
            Emulation { operations_per_second: 80, bytes_per_second: 100 << 20, read_ahead_bytes: Some(8 << 20) };
        assert_eq!("hdd:ops=80,bytes=100MiB,read_ahead=8MiB".parse(), Ok(asked));
        for wrong in ["", "ssd", "hdd:rpm=7200", "hdd:ops=0", "hdd:ops=x", "hdd:bytes=0", "hdd:ops", "hdd:bytes=fast"] {
            assert!(wrong.parse::<Emulation>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_to_be_lifted_is_read_back() {
        let cgroups = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup/blkio/a b"].map(PathBuf::from).to_vec();
        assert_eq!(parse_note(&note_text((7, 3), &cgroups)), Some(((7, 3), cgroups)));
        assert_eq!(parse_note("nothing"), None);
    }

    #[test]
    fn a_limit_is_not_written_where_there_is_no_controller() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write_limit(&directory.path().join("blkio.throttle.read_bps_device"), (7, 3), 1).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
