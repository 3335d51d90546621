//! Mounting and unmounting by others than root, through `fusermount3` of libfuse, which is installed set-user-id root.
//!
//! It opens `/dev/fuse`, mounts, and passes the device back over a socket whose descriptor it finds in `_FUSE_COMMFD`
//! (libfuse `util/fusermount.c`). It refuses what the administrator does not allow (`/etc/fuse.conf`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::error::{Error, ErrorKind, Result};

const PROGRAM: &str = "fusermount3";
const SOCKET: &str = "_FUSE_COMMFD";

/// Options by which it knows flags.
const FLAGS: [(MountFlags, &str); 9] = [
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::NOATIME, "noatime"),
    (MountFlags::NODIRATIME, "nodiratime"),
    (MountFlags::SYNCHRONOUS, "sync"),
    (MountFlags::DIRSYNC, "dirsync"),
    // It refuses this one, which is better than to mount without it.
    (MountFlags::NOSYMFOLLOW, "nosymfollow"),
];

/// Mounts at `target`; `source` is shown as the device. Returns the kernel's end, which does not block.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with what the program said, or if there is none.
pub(super) fn mount(source: &Path, target: &Path, flags: MountFlags, allow_other: bool) -> Result<File> {
    let fail = |error: io::Error| Error::io("mount at", target, error);
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| fail(errno.into()))?;
    let mut command = Command::new(PROGRAM);
    command
        .env(SOCKET, theirs.as_raw_fd().to_string())
        .arg("-o")
        .arg(words(source, flags, allow_other))
        .arg("--")
        .arg(target);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| missing("mount at", target, &error))?;
    // If it ends without a word, nobody has the other end.
    drop(theirs);
    let device = received(&ours).map_err(fail)?;
    let output = child.wait_with_output().map_err(fail)?;
    let device = device.filter(|_| output.status.success()).ok_or_else(|| refused("mount at", target, &output))?;
    fcntl_getfl(&device)
        .and_then(|flags| fcntl_setfl(&device, flags | OFlags::NONBLOCK))
        .map_err(|errno| fail(errno.into()))?;
    Ok(device.into())
}

/// Unmounts what this user has mounted.
///
/// # Errors
/// As [`mount`].
pub(super) fn unmount(target: &Path, is_lazy: bool) -> Result<()> {
    let output = Command::new(PROGRAM).arg(if is_lazy { "-uz" } else { "-u" }).arg("--").arg(target).output();
    let output = output.map_err(|error| missing("unmount", target, &error))?;
    if output.status.success() { Ok(()) } else { Err(refused("unmount", target, &output)) }
}

fn missing(operation: &'static str, target: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::PermissionDenied, operation, format!("only root can, or {PROGRAM} for others: {error}"))
        .at(target)
        .advise("install it (package fuse3), or ask the administrator")
}

fn refused(operation: &'static str, target: &Path, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let cause = said.trim().trim_start_matches(PROGRAM).trim_start_matches(": ");
    Error::new(ErrorKind::PermissionDenied, operation, cause).at(target)
}

/// The options, separated by commas. Those in the name of the source are escaped.
fn words(source: &Path, flags: MountFlags, allow_other: bool) -> OsString {
    let mut words = b"fsname=".to_vec();
    for &byte in source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            words.push(b'\\');
        }
        words.push(byte);
    }
    words.extend_from_slice(b",subtype=granulo,default_permissions");
    if allow_other {
        words.extend_from_slice(b",allow_other");
    }
    for (_, word) in FLAGS.iter().filter(|(flag, _)| flags.contains(*flag)) {
        words.push(b',');
        words.extend_from_slice(word.as_bytes());
    }
    OsString::from_vec(words)
}

/// The descriptor that comes over a socket; `None` if it is closed without one.
fn received(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_as_fusermount_knows_them() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        let words = words(Path::new("/a,b\\c"), flags, true);
        let expected = "fsname=/a\\,b\\\\c,subtype=granulo,default_permissions,allow_other,ro,nosuid,nodev";
        assert_eq!(words, OsString::from(expected));
    }

    #[test]
    fn a_socket_that_is_closed_has_no_descriptor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(received(&ours).unwrap().is_none());
    }
}
