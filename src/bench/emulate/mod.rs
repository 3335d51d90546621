//! A deliberately slow disk: a loop device whose rates the kernel limits.
//!
//! The limits are recorded in a file of the scratch directory before they are set, so that they can be lifted after a
//! kill: the kernel reuses the numbers of loop devices. The kernel counts every request as one operation before it
//! merges them, and splits requests at the device's maximum. So read-ahead is raised to a multiple of that maximum: a
//! sequential read then needs few operations and is limited by bytes, and random reads are limited by operations.

mod controller;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::host::line;
use super::loops::Loop;
use super::result::Emulated;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{KIB, MIB, format_count, format_size, parse_size};
use controller::{Controller, OPERATION, Rates};

/// Default read-ahead, in requests of the largest size.
const READ_AHEAD_REQUESTS: u64 = 2;
/// File in a scratch directory that names the limits to be lifted.
const NOTED: &str = "limited";

/// Requested limits: `hdd[:ops=120,bytes=160MB,read_ahead=4MiB]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    /// Operations per second in each direction.
    pub operations_per_second: u64,
    /// Bytes per second in each direction.
    pub bytes_per_second: u64,
    /// Least read-ahead; by default, two of the largest requests.
    pub read_ahead_bytes: Option<u64>,
}

impl Default for Emulation {
    /// A disk at 7,200 revolutions per minute: a random read takes a seek and half a revolution, 8.3 ms together.
    fn default() -> Self {
        Emulation { operations_per_second: 120, bytes_per_second: 160_000_000, read_ahead_bytes: None }
    }
}

impl FromStr for Emulation {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Emulation, String> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        if kind != "hdd" {
            return Err(format!(
                "'{kind}' cannot be emulated; write hdd or, for example, hdd:ops=120,bytes=160MB,read_ahead=4MiB"
            ));
        }
        let mut emulation = Emulation::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let more_than_none = |number: u64| match number {
                0 => Err(format!("{name} of an emulated disk must be more than 0")),
                number => Ok(number),
            };
            match name {
                "ops" => {
                    let number =
                        value.parse().map_err(|_| format!("'{value}' is not a number of operations per second"))?;
                    // The kernel stores the rate in 32 bits.
                    emulation.operations_per_second = more_than_none(number)?.min(u32::MAX.into());
                }
                "bytes" => emulation.bytes_per_second = more_than_none(parse_size(value)?)?,
                "read_ahead" => emulation.read_ahead_bytes = Some(more_than_none(parse_size(value)?)?.min(64 * MIB)),
                _ => return Err(format!("an emulated disk has no option '{name}'; it has ops, bytes and read_ahead")),
            }
        }
        Ok(emulation)
    }
}

/// A limited device. Dropping it lifts the limits.
#[derive(Debug)]
pub struct Limited {
    controller: Controller,
    number: (u32, u32),
    noted: PathBuf,
    read_ahead: (PathBuf, String),
    /// Its limits.
    pub emulated: Emulated,
}

impl Limited {
    /// Limits a loop device whose image is below the scratch directory `scratch`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the kernel has no such controller; errors from writing to it.
    pub(super) fn new(device: &Loop, emulation: Emulation, scratch: &Path) -> Result<Limited> {
        let gone = || Error::new(ErrorKind::NotFound, OPERATION, "the loop device is gone").at(device.path());
        let number = device.number().ok_or_else(gone)?;
        let queue = PathBuf::from(format!("/sys/block/{}/queue", device.name()));
        let largest = line(&queue.join("max_sectors_kb").to_string_lossy()).parse::<u64>().unwrap_or(0).max(4) * KIB;
        let asked = emulation.read_ahead_bytes.unwrap_or(READ_AHEAD_REQUESTS * largest);
        let read_ahead_bytes = asked.next_multiple_of(largest);
        let read_ahead = queue.join("read_ahead_kb");
        let before = line(&read_ahead.to_string_lossy());
        let limited = Limited {
            controller: controller_of_run(scratch)?,
            number,
            noted: scratch.join(format!("{NOTED}-{}", device.name())),
            read_ahead: (read_ahead.clone(), before),
            emulated: Emulated {
                operations_per_second: emulation.operations_per_second,
                bytes_per_second: emulation.bytes_per_second,
                read_ahead_bytes,
            },
        };
        let noted = format!("{}\n{}", limited.read_ahead.1, limited.controller.note(number));
        fs::write(&limited.noted, noted).map_err(|error| Error::io(OPERATION, &limited.noted, error))?;
        let rates = Rates { operations: emulation.operations_per_second, bytes: emulation.bytes_per_second };
        limited.controller.limit(number, rates)?;
        let kib = (read_ahead_bytes / KIB).to_string();
        fs::write(&read_ahead, kib).map_err(|error| Error::io(OPERATION, &read_ahead, error))?;
        Ok(limited)
    }

    /// A note on it for the result.
    pub fn note(&self) -> String {
        let Emulated { operations_per_second, bytes_per_second, read_ahead_bytes } = self.emulated;
        let gap = self.controller.gap().map_or(String::new(), |gap| format!("{gap}, "));
        format!(
            "The slow disk is emulated: at most {} operations and {} MB per second in each direction, read-ahead {}. \
                Not modelled: {gap}seek distance (every operation costs the same, as on an aged disk with scattered \
                files), a write cache in the disk, a queue that the disk sorts, faster and slower tracks.",
            format_count(operations_per_second.into()),
            format_count((bytes_per_second / 1_000_000).into()),
            format_size(read_ahead_bytes.into()),
        )
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let is_lifted = self.controller.lift(self.number, true);
        let (path, before) = &self.read_ahead;
        let _ = fs::write(path, before);
        // Otherwise, removing the scratch directory tries again.
        if is_lifted {
            let _ = fs::remove_file(&self.noted);
        }
    }
}

/// What a file in a scratch directory says of a limited device.
#[derive(Debug)]
struct Noted {
    device: String,
    read_ahead_kib: String,
    number: (u32, u32),
    controller: Controller,
}

/// The devices that a run has limited.
fn noted_in(scratch: &Path) -> impl Iterator<Item = Noted> {
    fs::read_dir(scratch).into_iter().flatten().flatten().filter_map(|entry| {
        let device = entry.file_name().to_str()?.strip_prefix(NOTED)?.strip_prefix('-')?.to_owned();
        let text = fs::read_to_string(entry.path()).ok()?;
        let (read_ahead_kib, noted) = text.split_once('\n')?;
        let (number, controller) = Controller::of_note(noted)?;
        Some(Noted { device, read_ahead_kib: read_ahead_kib.to_owned(), number, controller })
    })
}

/// The controller for another device of a run: that of its limited devices, which knows what was before them.
fn controller_of_run(scratch: &Path) -> Result<Controller> {
    if let Some(noted) = noted_in(scratch).next() {
        return Ok(noted.controller);
    }
    Controller::find(&scratch.file_name().unwrap_or_default().to_string_lossy())
}

/// Lifts the limits that a killed run recorded in its scratch directory. The loop devices must still be attached, or
/// free.
pub(super) fn lift_left_over(scratch: &Path) {
    for Noted { device, read_ahead_kib, number, controller } in noted_in(scratch) {
        // Someone else uses it now: the limits are theirs, or are gone.
        let backing = line(&format!("/sys/block/{device}/loop/backing_file"));
        if backing.is_empty() || Path::new(&backing).starts_with(scratch) {
            controller.lift(number, false);
            let _ = fs::write(format!("/sys/block/{device}/queue/read_ahead_kb"), read_ahead_kib);
        }
    }
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
    fn the_last_device_of_a_run_leaves_what_was_before_the_first() {
        let scratch = tempfile::tempdir().unwrap();
        let [root, group, before] = ["root", "root/run", "root/before"].map(|name| scratch.path().join(name));
        [&group, &before].iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let (control, procs) = (root.join("cgroup.subtree_control"), before.join("cgroup.procs"));
        [&control, &procs].iter().for_each(|file| fs::write(file, "").unwrap());
        let switched_on = ["io", "memory"].map(str::to_owned).to_vec();
        let first = Controller::Io { root, group: group.clone(), before, switched_on };
        let noted = |name: &str| scratch.path().join(format!("{NOTED}-{name}"));
        fs::write(noted("loop1"), format!("128\n{}", first.note((7, 1)))).unwrap();
        let second = controller_of_run(scratch.path()).unwrap();
        assert_eq!(second, first);
        // The limits of the first device are lifted, and set again, while the second has its own.
        fs::write(noted("loop2"), format!("128\n{}", second.note((7, 2)))).unwrap();
        fs::remove_file(noted("loop1")).unwrap();
        assert_eq!(controller_of_run(scratch.path()).unwrap(), first);
        assert!(second.lift((7, 2), true) && !group.exists());
        assert_eq!(fs::read_to_string(procs).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(fs::read_to_string(control).unwrap(), "-memory\n");
    }
}
