//! Loop devices: a file as a block device.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::host::line;
use super::programs;
use crate::error::{Error, ErrorKind, Result};

/// Time limit for the kernel to release a device.
const PATIENCE: Duration = Duration::from_secs(5);

/// An attached loop device. Dropping it detaches it.
#[derive(Debug)]
pub struct Loop {
    path: PathBuf,
    /// Whether the image is read and written with direct I/O, past the page cache of its file system.
    pub is_direct: bool,
}

impl Loop {
    /// Attaches `image`, with direct I/O where its file system supports that.
    ///
    /// # Errors
    /// The output of `losetup`, or that there are no loop devices here.
    pub(super) fn attach(image: &Path, lock: &File) -> Result<Loop> {
        const OPERATION: &str = "attach a loop device";
        if !Path::new("/dev/loop-control").exists() {
            return Err(Error::new(
                ErrorKind::NotFound,
                OPERATION,
                "there are no loop devices: /dev/loop-control is missing",
            )
            .advise("load the kernel module loop, or measure in a directory"));
        }
        let mut arguments =
            vec!["--find".into(), "--show".into(), "--direct-io=on".into(), image.as_os_str().to_owned()];
        let device = programs::run(OPERATION, "losetup", &arguments, lock).or_else(|_| {
            // Before util-linux 2.38, losetup fails after it has attached a device that cannot do direct I/O.
            devices_below(image).iter().try_for_each(|left| detach(left))?;
            arguments.retain(|argument| argument != "--direct-io=on");
            programs::run(OPERATION, "losetup", &arguments, lock)
        })?;
        let path = PathBuf::from(device.trim());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Newer versions succeed where the kernel leaves direct I/O off.
        let is_direct = line(&format!("/sys/block/{name}/loop/dio")) == "1";
        Ok(Loop { path, is_direct })
    }

    /// Its path, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, such as `loop3`.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its numbers.
    pub fn number(&self) -> Option<(u32, u32)> {
        let text = line(&format!("/sys/block/{}/dev", self.name()));
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = detach(&self.path);
    }
}

/// Detaches a device, and waits up to [`PATIENCE`] until it is free. One that is still in use is no error: the kernel
/// detaches it with its last user.
///
/// # Errors
/// If there is no `losetup`, or it fails.
pub(super) fn detach(device: &Path) -> Result<()> {
    let fail = |error| Error::io("detach the loop device", device, error);
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_attached = || Path::new(&format!("/sys/block/{name}/loop/backing_file")).exists();
    let mut command = Command::new(programs::find("losetup")?);
    let output = command.arg("--detach").arg(device).stdin(Stdio::null()).output().map_err(fail)?;
    if !output.status.success() && is_attached() {
        let cause = programs::last_words(&output.stderr, output.status);
        return Err(Error::new(ErrorKind::Io, "detach the loop device", cause).at(device));
    }
    let started = Instant::now();
    while is_attached() && started.elapsed() < PATIENCE {
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Loop devices on files below `directory`, including removed files.
pub(super) fn devices_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(blocks) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = blocks.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let stands_below = |name: &String| {
        let mut file = fs::read(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        file.truncate(file.trim_ascii_end().len());
        PathBuf::from(std::ffi::OsString::from_vec(file)).starts_with(directory)
    };
    let mut devices: Vec<PathBuf> = names.filter(stands_below).map(|name| Path::new("/dev").join(name)).collect();
    devices.sort();
    devices
}
