//! A store mounted by the kernel itself: an EROFS image that has metadata only, whose files lie in the store's own
//! segments and extent files. Nothing is copied and no process stands in between.
//!
//! [`build`] makes the image of one state of the store with one walk; [`image`] has its format. The kernel opens the
//! image and each file of the store at mounting, and keeps them open: whatever a writer appends, compacts or removes
//! meanwhile, the mount shows the same state, because space is freed by removing whole files only. A pin by name keeps
//! them in the store as well, so that `status` and other readers of this state see what the mount holds.
//! [`image_file`] has what a mount that was killed, or that ended by itself, leaves in a store.
//!
//! The kernel verifies no checksum of the store and uses neither mirrors nor parity: `granulo store check --deep` does.
//! Bytes behind the end of a file, up to the end of its block of 512 bytes, are those of the store: a program that maps
//! the file can see the head of the next record there.

mod build;
mod image;
mod image_file;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount,
};

pub(crate) use build::Imaged;
pub(crate) use image_file::{clear_left_overs, home_and_name};

use self::image_file::ImageFile;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::store::PinnedSnapshot;

const OPERATION: &str = "mount";
/// The file system type.
pub(crate) const KIND: &str = "erofs";
/// Longest value of an option in fsconfig(2), without the NUL at its end.
const MOST_OPTION_BYTES: usize = 255;
/// Bytes that are announced to the kernel at a time.
const PREFETCH_BYTES: u64 = 32 << 20;

/// A mount.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// Its name, which is that of the pin.
    pub(crate) name: String,
    /// What its image has.
    pub(crate) imaged: Imaged,
}

/// Makes the image of a snapshot in the home of its store, and mounts it at a directory.
///
/// The image has no name any more when this returns: it goes with the mount.
///
/// # Errors
/// [`ErrorKind::Usage`] if the contents are not where a kernel can read them, or the kernel cannot mount such an image;
/// [`ErrorKind::PermissionDenied`] without the right to mount; errors of reading the store and of writing the image.
pub(crate) fn mount(
    snapshot: &PinnedSnapshot,
    home: &Path,
    directory: &Path,
    attributes: MountAttrFlags,
    progress: &Progress,
) -> Result<Mounted> {
    let place = fs::canonicalize(directory).map_err(|error| Error::io(OPERATION, directory, error))?;
    let home = fs::canonicalize(home).map_err(|error| Error::io(OPERATION, home, error))?;
    let image = ImageFile::create(&home)?;
    let imaged = build::build(snapshot, &home, image.file()?, progress)?;
    mount_image(&image.path, &imaged.files, &place, attributes)?;
    Ok(Mounted { name: image.name.clone(), imaged })
}

fn mount_image(image: &Path, files: &[PathBuf], directory: &Path, attributes: MountAttrFlags) -> Result<()> {
    let long = files.iter().chain([&image.to_owned()]).find(|path| path.as_os_str().len() > MOST_OPTION_BYTES).cloned();
    if let Some(path) = long {
        let cause = format!("its path is longer than the {MOST_OPTION_BYTES} bytes that the kernel accepts");
        return Err(Error::new(ErrorKind::Usage, OPERATION, cause).at(&path).advise(WITHOUT));
    }
    let context = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| explain(errno, None, directory))?;
    let configured = fsconfig_set_string(context.as_fd(), "source", image)
        .and_then(|()| files.iter().try_for_each(|file| fsconfig_set_string(context.as_fd(), "device", file.as_path())))
        .and_then(|()| fsconfig_set_flag(context.as_fd(), "ro"))
        .and_then(|()| fsconfig_create(context.as_fd()));
    configured.map_err(|errno| explain(errno, Some(&context), directory))?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_RDONLY;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .and_then(|mount| move_mount(mount.as_fd(), "", CWD, directory, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH))
        .map_err(|errno| explain(errno, Some(&context), directory))
}

const WITHOUT: &str = "mount without --kernel, through FUSE";

/// The error of a mount that failed, with what the kernel says of it.
fn explain(errno: Errno, context: Option<&OwnedFd>, directory: &Path) -> Error {
    let usage = |cause: &str| Error::new(ErrorKind::Usage, OPERATION, cause).at(directory).advise(WITHOUT);
    match errno {
        Errno::PERM => Error::new(ErrorKind::PermissionDenied, OPERATION, "a mount by the kernel needs CAP_SYS_ADMIN")
            .at(directory)
            .advise("run as root; or mount without --kernel, through FUSE"),
        Errno::NODEV => usage("the kernel has no EROFS"),
        Errno::NOSYS => usage("the kernel is older than Linux 5.2"),
        Errno::NOTBLK => usage("the kernel mounts EROFS from block devices only; Linux 6.12 mounts it from files"),
        errno => {
            let said = context.and_then(words_of).map_or(String::new(), |words| format!(" ({words})"));
            let cause = format!("{}{said}", crate::error::os_message(&io::Error::from(errno)));
            Error::new(ErrorKind::Io, OPERATION, cause).at(directory).advise(WITHOUT)
        }
    }
}

/// The last message of a mount that is being configured.
fn words_of(context: &OwnedFd) -> Option<String> {
    let mut last = None;
    let mut file = File::from(context.try_clone().ok()?);
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = file.read(&mut buffer) {
        last = Some(without_level(&String::from_utf8_lossy(buffer.get(..read)?)).to_owned());
    }
    last
}

/// A message without its level: `e erofs: …` is an error, `w` a warning, `i` information.
fn without_level(message: &str) -> &str {
    let message = message.trim();
    ["e ", "w ", "i "].iter().find_map(|level| message.strip_prefix(level)).unwrap_or(message)
}

/// Announces to the kernel that all contents will be read, file by file in the order of the disk; returns the bytes.
///
/// # Errors
/// Errors of opening a file of the store.
pub(crate) fn prefetch(files: &[PathBuf], progress: &Progress) -> Result<u64> {
    let mut total = 0;
    for path in files {
        let fail = |error| Error::io("read ahead", path, error);
        let file = File::open(path).map_err(fail)?;
        let bytes = file.metadata().map_err(fail)?.len();
        for at in (0..bytes).step_by(PREFETCH_BYTES as usize) {
            if progress.should_stop() {
                return Ok(total);
            }
            // Reading waits until the pages are there, which an announcement alone would not.
            let length = PREFETCH_BYTES.min(bytes - at);
            rustix::fs::fadvise(&file, at, std::num::NonZeroU64::new(length), rustix::fs::Advice::WillNeed)
                .map_err(|errno| fail(errno.into()))?;
            total += length;
            progress.add(0, 0, length.into());
        }
    }
    Ok(total)
}
