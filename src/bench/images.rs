//! File systems created for a run: an image file in the scratch directory, a loop device on it, and a mount.
//!
//! The program that creates the file system works on the image file, where it can see that holes read as zeros; on a
//! device it would leave the clearing of its tables to the kernel, which would do that during a measurement. The kernel
//! mounts what it can; a program (FUSE) serves the rest, and the result says so. Dropping an image unmounts, detaches
//! and removes it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::emulate::Limited;
use super::file_systems::{FileSystemKind, FileSystemSpec, Fuse};
use super::loops::Loop;
use super::programs;
use super::scratch::{Scratch, unmount_at};
use super::served::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::units::format_size;

const OPERATION: &str = "create a file system";

/// A file system on an image.
#[derive(Debug)]
pub struct Image {
    spec: FileSystemSpec,
    directory: PathBuf,
    device: Option<Loop>,
    limited: Option<Limited>,
    /// Whether it is mounted.
    mounted: bool,
    /// The program that serves it; `None` for the kernel.
    fuse: Option<Fuse>,
    server: Option<Server>,
    // Last field, so that the directory is removed after everything in it.
    scratch: Arc<Scratch>,
}

/// Checks the requirements for creating these file systems that can be seen before any is created: root, programs,
/// sizes and block sizes. Whether the kernel can load a driver shows when it mounts; loop devices and limits, when they
/// are set up.
///
/// # Errors
/// The first requirement that is not met.
pub fn check(specs: &[FileSystemSpec]) -> Result<()> {
    if specs.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        let cause = "mounting a file system needs root";
        let advice = "run it as root, or name a directory to measure, which needs no root";
        return Err(Error::new(ErrorKind::PermissionDenied, OPERATION, cause).advise(advice));
    }
    for spec in specs {
        spec.check()?;
        let for_kind = |error: Error| Error::new(error.kind(), OPERATION, format!("{}: {error}", spec.kind));
        programs::find(&spec.kind.maker()).map_err(for_kind)?;
        if let Some(fuse) = fuse_of(spec.kind) {
            programs::find(fuse.program).map_err(for_kind)?;
        }
    }
    programs::find("losetup")?;
    programs::find("mount")?;
    Ok(())
}

/// Whether the programs and the driver for a kind are there.
pub(crate) fn is_possible(kind: FileSystemKind) -> bool {
    let is_served =
        kernel_has(kind) || module_exists(kind) || kind.fuse().is_some_and(|fuse| programs::find(fuse.program).is_ok());
    is_served && programs::find(&kind.maker()).is_ok()
}

/// The program that would serve a kind here: `None` if the kernel knows the kind, or may load a module for it.
fn fuse_of(kind: FileSystemKind) -> Option<Fuse> {
    kind.fuse().filter(|_| !kernel_has(kind) && !module_exists(kind))
}

fn kernel_has(kind: FileSystemKind) -> bool {
    let text = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    text.lines().any(|line| line.split('\t').next_back() == Some(kind.kernel_type()))
}

/// Whether a module for it is installed for this kernel.
fn module_exists(kind: FileSystemKind) -> bool {
    let release = super::host::line("/proc/sys/kernel/osrelease");
    let listed = fs::read_to_string(format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
    let name = format!("/{}.ko", kind.kernel_type());
    listed.lines().filter_map(|line| line.split(':').next()).any(|path| path.contains(&name))
}

impl Image {
    /// Creates and mounts one in the scratch directory.
    ///
    /// # Errors
    /// Same as [`check`]; [`ErrorKind::NoSpace`] if it could fill the file system of the scratch directory; the output
    /// of a program that failed.
    pub fn make(scratch: &Arc<Scratch>, number: usize, spec: FileSystemSpec) -> Result<Image> {
        check(std::slice::from_ref(&spec))?;
        let directory = scratch.directory(&number.to_string())?;
        let fuse = fuse_of(spec.kind);
        let mut image = Image {
            spec,
            directory,
            device: None,
            limited: None,
            mounted: false,
            fuse,
            server: None,
            scratch: scratch.clone(),
        };
        fs::create_dir(image.root()).map_err(|error| Error::io("create the directory", &image.root(), error))?;
        image.scratch.promise(&image.file(), image.spec.size_bytes)?;
        image.remake()?;
        Ok(image)
    }

    /// Its specification.
    pub fn spec(&self) -> &FileSystemSpec {
        &self.spec
    }

    /// Its mount point.
    pub fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Its loop device.
    pub fn device(&self) -> Option<&Loop> {
        self.device.as_ref()
    }

    /// The device below a program that serves the file system, since syncing the file system does not reach the device;
    /// `None` if the kernel serves it.
    pub fn served_device(&self) -> Option<&Path> {
        self.fuse.as_ref()?;
        self.device().map(Loop::path)
    }

    /// How its device was slowed down, if it was.
    pub fn limited(&self) -> Option<&Limited> {
        self.limited.as_ref()
    }

    /// How it was created and mounted, as commands.
    pub fn made_by(&self) -> String {
        let arguments = self.maker_arguments().join(" ");
        let made = format!("{} {arguments}", self.spec.kind.maker());
        let options = &self.spec.mount_options;
        let options = if options.is_empty() { String::new() } else { format!(" -o {options}") };
        match self.fuse {
            Some(fuse) => format!("{}; {}{options}", made.trim_end(), fuse.program),
            None => format!("{}; mount -t {}{options}", made.trim_end(), self.spec.kind.kernel_type()),
        }
    }

    /// Programs that created it and serve it.
    pub fn programs(&self) -> Vec<String> {
        let mut programs = vec![self.spec.kind.maker()];
        programs.extend(self.fuse.map(|fuse| fuse.program.to_owned()));
        programs
    }

    /// Notes on it for the result.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.limited.iter().map(Limited::note).collect();
        if self.device.as_ref().is_some_and(|device| !device.is_direct) {
            notes.push(format!(
                "The image of {} is cached by the file system below, which does not support direct I/O for it: \
                    repeated reads may come from memory.",
                self.spec.name()
            ));
        }
        if let Some(fuse) = self.fuse {
            notes.push(format!(
                "{} is served by {} in user space, because this kernel has no {}: every operation passes through \
                    another process.",
                self.spec.name(),
                fuse.program,
                self.spec.kind.kernel_type()
            ));
        }
        notes
    }

    /// Recreates it: empty, and mounted.
    ///
    /// # Errors
    /// The output of the program that failed.
    pub fn remake(&mut self) -> Result<()> {
        self.take_down()?;
        let (path, kind) = (self.file(), self.spec.kind);
        let fail = |error| Error::io("create an image at", &path, error);
        // A new file: another mount namespace may still have the old file system mounted, and write to its image.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(fail(error));
        }
        let file = File::create_new(&path).map_err(fail)?;
        file.set_len(self.spec.size_bytes).map_err(fail)?;
        // Names in a path are bytes, whatever they hold.
        let mut arguments: Vec<OsString> = self.maker_arguments().into_iter().map(OsString::from).collect();
        arguments.push(path.as_os_str().to_owned());
        programs::run(OPERATION, &kind.maker(), &arguments, self.scratch.lock())?;
        if self.spec.emulation.is_some() {
            // A disk has its space before it is written to.
            let reserved = fallocate(&file, FallocateFlags::empty(), 0, self.spec.size_bytes);
            if let Err(error) = reserved.map_err(io::Error::from)
                && ErrorKind::of(&error) == ErrorKind::NoSpace
            {
                return Err(fail(error));
            }
        }
        file.sync_all().map_err(fail)?;
        drop(file);
        let device = Loop::attach(&path, self.scratch.lock())?;
        if let Some(emulation) = self.spec.emulation {
            self.limited = Some(Limited::new(&device, emulation, self.scratch.path())?);
        }
        self.device = Some(device);
        self.mount()
    }

    /// Mounts it again after [`unmount`](Self::unmount).
    ///
    /// # Errors
    /// The output of the program that should mount it.
    pub fn mount(&mut self) -> Result<()> {
        let Some(device) = self.device.as_ref().map(|device| device.path().to_owned()) else {
            return Err(Error::new(ErrorKind::Io, "mount", "it has no device").at(&self.file()));
        };
        match self.fuse {
            Some(fuse) => self.mount_by(fuse, &device)?,
            None => {
                let mut arguments = vec!["-i", "-t", self.spec.kind.kernel_type()];
                if !self.spec.mount_options.is_empty() {
                    arguments.extend(["-o", &self.spec.mount_options]);
                }
                let mut arguments: Vec<_> = arguments.into_iter().map(OsString::from).collect();
                arguments.extend([device.into_os_string(), self.root().into_os_string()]);
                programs::run("mount the file system", "mount", &arguments, self.scratch.lock())?;
            }
        }
        self.mounted = true;
        Ok(())
    }

    /// Starts the program that serves it, and waits until it does.
    fn mount_by(&mut self, fuse: Fuse, device: &Path) -> Result<()> {
        let mut command = programs::command(fuse.program, self.scratch.lock())?;
        let options: Vec<&str> = fuse.options.iter().copied().chain(Some(self.spec.mount_options.as_str())).collect();
        let options = options.into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",");
        if let Some(foreground) = fuse.foreground {
            // It survives if granulo is killed, so it must not hold the lock.
            command.arg(foreground).stdin(Stdio::null());
        }
        if !options.is_empty() {
            command.args(["-o", &options]);
        }
        command.arg(device).arg(self.root());
        let (log, stays) = (self.directory.join("log"), fuse.foreground.is_some());
        self.server = Some(Server::start(command, fuse.program, &self.root(), &log, stays)?);
        Ok(())
    }

    /// Lifts the limits of a slow device for phases that are not measured, or sets them again.
    ///
    /// # Errors
    /// Errors from setting the limits.
    pub fn set_slow(&mut self, is_slow: bool) -> Result<()> {
        match (is_slow, self.spec.emulation, &self.device) {
            (true, Some(emulation), Some(device)) if self.limited.is_none() => {
                self.limited = Some(Limited::new(device, emulation, self.scratch.path())?);
            }
            (false, ..) => self.limited = None,
            _ => {}
        }
        Ok(())
    }

    /// Unmounts it; the device stays. No file below it may be open.
    ///
    /// # Errors
    /// Errors from unmounting.
    pub fn unmount(&mut self) -> Result<()> {
        if self.mounted {
            unmount_at(&self.root())?;
            self.mounted = false;
        }
        if let Some(server) = self.server.take() {
            server.wait();
        }
        Ok(())
    }

    /// Writes zeros to all holes of its file, which read as zeros, so that the device has its space allocated, like a
    /// device that was in use before. It is unmounted meanwhile. `go_on` receives the bytes examined and the total;
    /// returns whether it finished.
    ///
    /// # Errors
    /// Errors from writing; if it cannot be remounted.
    pub fn fill_holes(&mut self, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<bool> {
        self.unmount()?;
        let path = self.file();
        let filled =
            fill_holes(&path, go_on).map_err(|error| Error::io("fill the holes of the image", &path, error))?;
        self.mount()?;
        Ok(filled)
    }

    /// Unmounts and detaches.
    fn take_down(&mut self) -> Result<()> {
        let unmounted = self.unmount();
        self.limited = None;
        self.device = None;
        unmounted
    }

    fn file(&self) -> PathBuf {
        self.directory.join("image")
    }

    fn maker_arguments(&self) -> Vec<String> {
        let kind = self.spec.kind;
        let mut arguments: Vec<String> = kind.maker_arguments().iter().map(|argument| (*argument).to_owned()).collect();
        arguments.extend(self.spec.block_bytes.iter().flat_map(|&bytes| kind.block_arguments(bytes)));
        arguments.extend(self.spec.make_options.iter().cloned());
        arguments
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = self.take_down();
        let _ = fs::remove_file(self.file());
        let _ = fs::remove_file(self.directory.join("log"));
        let _ = fs::remove_dir(self.root());
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Writes zeros into the holes of a file; returns whether it finished.
fn fill_holes(path: &Path, go_on: &mut dyn FnMut(u64, u64) -> bool) -> std::io::Result<bool> {
    const PIECE_BYTES: u64 = 1 << 20;
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let size_bytes = file.metadata()?.len();
    let zeros = vec![0; PIECE_BYTES as usize];
    let mut at = 0;
    while at < size_bytes {
        let hole = match seek(&file, SeekFrom::Hole(at)) {
            // The end of the file counts as a hole.
            Ok(hole) if hole < size_bytes => hole,
            _ => break,
        };
        at = match seek(&file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(size_bytes),
            // Only the hole is left.
            Err(rustix::io::Errno::NXIO) => size_bytes,
            Err(error) => return Err(error.into()),
        };
        let mut from = hole;
        while from < at {
            if !go_on(from, size_bytes) {
                return Ok(false);
            }
            let length = (at - from).min(PIECE_BYTES);
            file.write_all_at(&zeros[..length as usize], from)?;
            from += length;
        }
    }
    file.sync_all()?;
    Ok(true)
}

/// Suggested size of an image for `files` files of `size_bytes`: twice the space for their blocks, plus an inode each
/// where those are created in advance (one per 16 KiB, as e2fsprogs does); at least `least_bytes`.
pub fn fitting_size_bytes(files: u64, size_bytes: u64, least_bytes: u64) -> Result<u64> {
    const BYTES_AN_INODE: u64 = 16 << 10;
    let blocks = size_bytes.div_ceil(4096).saturating_mul(4096);
    let for_files = files.saturating_mul(BYTES_AN_INODE.max(blocks.saturating_mul(2)));
    let size_bytes = for_files.saturating_add(for_files / 8).max(least_bytes);
    if size_bytes > 1 << 44 {
        let cause = format!("they would need an image of {}", format_size(size_bytes.into()));
        return Err(Error::new(ErrorKind::Usage, "create so many files", cause).advise("use fewer files"));
    }
    Ok(size_bytes.next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_become_zeros_and_nothing_else_changes() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len(6 << 20).unwrap();
        file.write_all_at(b"in the middle", 3 << 20).unwrap();
        file.sync_all().unwrap();
        let before = fs::read(&path).unwrap();
        assert!(!fill_holes(&path, &mut |done, _| done < 1 << 20).unwrap());
        assert!(fill_holes(&path, &mut |_, total| total == 6 << 20).unwrap());
        assert_eq!(fs::read(&path).unwrap(), before);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 6 << 20);
    }

    /// A namespace that is made while the file system is mounted keeps it mounted, and lets it write when it ends.
    #[test]
    fn a_file_system_that_is_mounted_elsewhere_does_not_write_to_the_next_image() {
        use std::io::Read;
        use std::os::unix::fs::MetadataExt;
        use std::process::Command;
        let spec = FileSystemSpec::new(FileSystemKind::Ext4, 64 << 20);
        let directory = tempfile::tempdir().unwrap();
        if let Err(error) = check(std::slice::from_ref(&spec)).and_then(|()| programs::find("unshare").map(drop)) {
            return crate::skipped::skip(&error.to_string());
        }
        let scratch = Arc::new(Scratch::create(directory.path()).unwrap());
        let mut image = Image::make(&scratch, 1, spec).unwrap();
        fs::write(image.root().join("old"), [1; 100_000]).unwrap();
        let script = ["--mount", "sh", "-c", "echo; read wait"];
        let mut elsewhere =
            Command::new("unshare").args(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        elsewhere.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let inode = |image: &Image| fs::metadata(image.file()).unwrap().ino();
        let old = inode(&image);
        image.remake().unwrap();
        assert_ne!(inode(&image), old);
        fs::write(image.root().join("new"), [2; 100_000]).unwrap();
        // Its last mount ends here.
        drop(elsewhere.stdin.take());
        elsewhere.wait().unwrap();
        image.unmount().unwrap();
        image.mount().unwrap();
        assert_eq!(fs::read(image.root().join("new")).unwrap(), [2; 100_000]);
    }

    #[test]
    fn an_image_is_made_below_any_name() {
        use std::os::unix::ffi::OsStrExt;
        let spec = FileSystemSpec::new(FileSystemKind::Ext4, 64 << 20);
        if let Err(error) = check(std::slice::from_ref(&spec)) {
            return crate::skipped::skip(&error.to_string());
        }
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::create_dir(&directory).unwrap();
        let scratch = Arc::new(Scratch::create(&directory).unwrap());
        let image = Image::make(&scratch, 1, spec).unwrap();
        fs::write(image.root().join("file"), b"x").unwrap();
        drop((image, scratch));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn an_image_has_room_for_what_is_asked() {
        let least = 1 << 30;
        assert_eq!(fitting_size_bytes(10, 0, least).unwrap(), least);
        let million = fitting_size_bytes(1_000_000, 0, least).unwrap();
        assert!(million > 16_384_000_000 && million < 20_000_000_000, "{million}");
        assert!(fitting_size_bytes(100_000, 20_000, least).unwrap() > 4_000_000_000);
        assert!(fitting_size_bytes(u64::MAX, u64::MAX, least).is_err());
    }
}
