//! `/dev/fuse`: mounting a file system on it, requests and answers, unmounting.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::attention::{Attendant, Attention};
use super::fusermount;
use super::wire::capability as can;
use super::wire::reply::{Agreed, Reply, failed};
use super::wire::request::{Operation, parse};
use super::wire::{LEAST_MINOR, MAJOR};
use crate::error::{Error, ErrorKind, Result};

const DEVICE: &str = "/dev/fuse";
/// Bytes of content in one request at most.
pub(super) const MOST_WRITE_BYTES: u32 = 1 << 20;
/// A request has that, and what comes before it.
pub(super) const REQUEST_BYTES: usize = MOST_WRITE_BYTES as usize + 8192;
/// Requests in the background: read-ahead, and pages that are written.
const MOST_BACKGROUND: u16 = 64;
/// The file system type; what follows the point is shown with it.
pub(crate) const KIND: &str = "fuse.granulo";

/// How a file system is mounted.
#[derive(Debug, Clone)]
pub(crate) struct MountOptions {
    /// Read-only, no execution, and the like.
    pub(crate) flags: MountFlags,
    /// Others than the one who mounts may use it.
    pub(crate) allow_other: bool,
}

/// A mounted file system: the kernel's end of it is a device.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    target: PathBuf,
}

impl Device {
    /// Mounts a file system at `target`; `source` is shown as its device.
    ///
    /// # Errors
    /// Errors of the kernel, or of `fusermount3` for a user who may not mount.
    pub(super) fn mount(source: &Path, target: &Path, options: &MountOptions) -> Result<Device> {
        let file = match mount_directly(source, target, options) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                fusermount::mount(source, target, options.flags, options.allow_other)?
            }
            mounted => mounted?,
        };
        Ok(Device { file, target: target.to_owned() })
    }

    /// Waits for a request and reads it; `None` if the file system is no longer mounted.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn receive<'b>(&self, buffer: &'b mut [u8], attendant: &mut Attendant<'_>) -> Result<Option<&'b [u8]>> {
        loop {
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(length) => {
                    attendant.found();
                    return Ok(buffer.get(..length));
                }
                // The request was interrupted before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::AGAIN) => {
                    if !attendant.found_none() && attendant.may_sleep() {
                        let mut device = [PollFd::new(&self.file, PollFlags::IN)];
                        // What it returns is found out by reading.
                        _ = poll(&mut device, None);
                    }
                }
                // Unmounted, or ended through /sys/fs/fuse/connections.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(Error::io("read from", Path::new(DEVICE), error.into())),
            }
        }
    }

    /// Answers a request. One that was interrupted or is no longer waited for needs no answer.
    pub(super) fn send(&self, answer: &[u8]) {
        let _ = rustix::io::write(&self.file, answer);
    }

    /// Answers the first request: agrees on what both sides can do.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] if the kernel is too old, or speaks another version.
    pub(super) fn agree(&self, is_read_only: bool) -> Result<()> {
        let attention = Attention::default();
        let (mut buffer, mut attendant) = (vec![0; REQUEST_BYTES], attention.attendant());
        loop {
            let request = self.receive(&mut buffer, &mut attendant)?;
            let gone = || Error::new(ErrorKind::Io, "mount at", "it was unmounted at once").at(&self.target);
            let Some((header, operation)) = parse(request.ok_or_else(gone)?) else { continue };
            let Operation::Init { major, minor, max_readahead, capabilities } = operation else {
                self.send(&failed(header.unique, Errno::IO.raw_os_error()));
                continue;
            };
            // Linux 5.11 and 5.12 have that version, too, but not the long header of FUSE_SETXATTR.
            if major != MAJOR || minor < LEAST_MINOR || capabilities & can::SETXATTR_EXT == 0 {
                self.send(&failed(header.unique, Errno::PROTO.raw_os_error()));
                let cause = format!("the kernel speaks FUSE {major}.{minor}, and {MAJOR}.{LEAST_MINOR} is needed");
                return Err(Error::new(ErrorKind::NewerVersion, "mount at", cause)
                    .at(&self.target)
                    .advise("use Linux 5.13 or later"));
            }
            // The kernel looks at times before it uses content that it has cached, but not for symbolic links.
            let wanted = match is_read_only {
                true => (wanted() | can::AUTO_INVAL_DATA) & !can::CACHE_SYMLINKS,
                false => wanted(),
            };
            let agreed = Agreed {
                max_readahead: max_readahead.min(MOST_WRITE_BYTES),
                capabilities: capabilities & wanted,
                max_background: MOST_BACKGROUND,
                max_write: MOST_WRITE_BYTES,
            };
            let page_bytes = rustix::param::page_size() as u32;
            self.send(&Reply::agreed(&agreed, page_bytes).finish(header.unique));
            return Ok(());
        }
    }

    /// Unmounts it. If it is in use, it goes from the tree of names now, and is gone when nobody uses it any more.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn unmount(&self) -> Result<Unmounted> {
        unmount_at(&self.target)
    }
}

/// Mounts without help, as root can; returns the kernel's end, which does not block.
fn mount_directly(source: &Path, target: &Path, options: &MountOptions) -> Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(nonblocking).open(DEVICE);
    let file = file
        .map_err(|error| Error::io("open", Path::new(DEVICE), error).advise("the kernel needs FUSE: modprobe fuse"))?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other = if options.allow_other { ",allow_other" } else { "" };
    let data =
        format!("fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions{other}", file.as_raw_fd());
    let data = CString::new(data).unwrap_or_default();
    let mounted = mount(source.as_os_str().as_bytes(), target, KIND, options.flags, data.as_c_str());
    mounted.map(|()| file).map_err(|errno| Error::io("mount at", target, errno.into()))
}

/// How something was unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmounted {
    Now,
    /// When nobody uses it any more.
    WhenUnused,
}

/// Who has just closed a file, or is about to start a program, may use a mount for a moment.
const BUSY: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

fn wanted() -> u64 {
    can::ASYNC_READ
        | can::BIG_WRITES
        | can::DONT_MASK
        | can::DO_READDIRPLUS
        | can::ASYNC_DIO
        | can::PARALLEL_DIROPS
        | can::POSIX_ACL
        | can::MAX_PAGES
        | can::CACHE_SYMLINKS
        | can::HANDLE_KILLPRIV_V2
        | can::SETXATTR_EXT
        | can::INIT_EXT
        | can::DIRECT_IO_ALLOW_MMAP
}

/// Unmounts what is mounted at a directory, in whatever way this user may.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn unmount_at(target: &Path) -> Result<Unmounted> {
    let unmount_now = || unmount(target, UnmountFlags::NOFOLLOW);
    match repeatedly(POLL, unmount_now, |error| *error == Errno::BUSY) {
        Ok(()) => Ok(Unmounted::Now),
        Err(Errno::BUSY) => match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(Unmounted::WhenUnused),
            Err(error) => Err(Error::io("unmount", target, error.into())),
        },
        Err(Errno::PERM) => match repeatedly(10 * POLL, || fusermount::unmount(target, false), |_| true) {
            Ok(()) => Ok(Unmounted::Now),
            Err(_) => fusermount::unmount(target, true).map(|()| Unmounted::WhenUnused),
        },
        Err(error) => Err(Error::io("unmount", target, error.into())),
    }
}

/// Attempts something again while it fails because something is in use, for [`BUSY`] at most.
fn repeatedly<E>(
    pause: Duration,
    attempt: impl Fn() -> std::result::Result<(), E>,
    is_in_use: impl Fn(&E) -> bool,
) -> std::result::Result<(), E> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_in_use(&error) && began.elapsed() < BUSY => sleep(pause),
            ended => return ended,
        }
    }
}
