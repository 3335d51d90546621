//! File handles: names of inodes that outlive their paths (name_to_handle_at(2), open_by_handle_at(2)); and, in
//! [`sealed`] and [`spill`], memory that processes share and none can change, and memory within a bound; and, in
//! [`bulkstat`], the inodes of a mounted XFS.
//!
//! This is the only package of the workspace with unsafe code: thin wrappers of system calls that neither rustix nor
//! nix offers. Each `unsafe` block says why it is sound. The wrappers take and return owned values and slices, so that
//! no caller can break their assumptions.

pub mod bulkstat;
pub mod sealed;
pub mod spill;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;

/// Largest number of bytes in a handle (`MAX_HANDLE_SZ` in Linux `include/linux/exportfs.h`).
pub const MOST_HANDLE_BYTES: usize = 128;

/// The identity of an inode on its file system, as the file system encodes it: two handles that differ may refer to the
/// same inode, but equal ones never refer to different inodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// `handle_type` in native byte order, then the bytes of the handle.
    bytes: Box<[u8]>,
}

impl Handle {
    /// The handle of a type with these bytes; `None` if there are too many.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Handle> {
        (bytes.len() <= MOST_HANDLE_BYTES).then(|| Handle { bytes: [&kind.to_ne_bytes(), bytes].concat().into() })
    }

    /// The handle that [`as_bytes`](Self::as_bytes) described.
    pub fn from_bytes(bytes: &[u8]) -> Option<Handle> {
        ((4..=4 + MOST_HANDLE_BYTES).contains(&bytes.len())).then(|| Handle { bytes: bytes.into() })
    }

    /// Type and bytes in one, for use as a key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// `struct file_handle` with room for the largest handle: the kernel reads the header, and then reads or writes as many
/// bytes as the header says.
#[repr(C)]
struct Buffer {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; MOST_HANDLE_BYTES],
}

/// The handle of what the path `name` below `directory` leads to, or of `directory` itself if it is empty; a symbolic
/// link at its end is not followed.
///
/// # Errors
/// Those of name_to_handle_at(2): `EOPNOTSUPP` if the file system has no handles.
pub fn handle_of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Handle> {
    let mut buffer =
        Buffer { handle_bytes: MOST_HANDLE_BYTES as u32, handle_type: 0, f_handle: [0; MOST_HANDLE_BYTES] };
    let mut mount = 0;
    // SAFETY: the descriptor is open for the duration of the call and `name` ends with NUL. `buffer` has the layout of
    // `struct file_handle` and as many bytes behind the header as it says, `mount` is an int, and the kernel keeps none
    // of the pointers.
    let result = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            name.as_ptr(),
            std::ptr::from_mut(&mut buffer).cast(),
            &raw mut mount,
            if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 },
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = buffer.f_handle.get(..buffer.handle_bytes as usize);
    bytes.and_then(|bytes| Handle::new(buffer.handle_type, bytes)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Opens the inode of a handle on the file system that contains `mount`. Needs `CAP_DAC_READ_SEARCH`.
///
/// # Errors
/// Those of open_by_handle_at(2): `ESTALE` if there is no such inode any more.
pub fn open_handle(mount: BorrowedFd<'_>, handle: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let (kind, bytes) = handle.split_first_chunk::<4>().ok_or(io::ErrorKind::InvalidInput)?;
    let mut buffer = Buffer {
        handle_bytes: bytes.len() as u32,
        handle_type: i32::from_ne_bytes(*kind),
        f_handle: [0; MOST_HANDLE_BYTES],
    };
    buffer.f_handle.get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
    let flags = (flags | OFlags::CLOEXEC).bits() as i32;
    // SAFETY: the descriptor is open for the duration of the call. `buffer` has the layout of `struct file_handle`, and
    // its header says no more bytes than it holds. The kernel only reads it, validates it, and does not keep the
    // pointer: any bytes are refused with an error or refer to some inode of the file system.
    let descriptor =
        unsafe { libc::open_by_handle_at(mount.as_raw_fd(), std::ptr::from_mut(&mut buffer).cast(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new open descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_handle_leads_to_its_inode_under_any_name_and_to_none_once_it_is_gone() {
        let sandbox = tempfile::tempdir().unwrap();
        fs::write(sandbox.path().join("a"), "x").unwrap();
        let directory = File::open(sandbox.path()).unwrap();
        let handle = match handle_of(directory.as_fd(), c"a") {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            handle => handle.unwrap(),
        };
        assert_eq!(Handle::from_bytes(handle.as_bytes()), Some(handle.clone()));
        assert_ne!(handle, handle_of(directory.as_fd(), c"").unwrap());
        fs::rename(sandbox.path().join("a"), sandbox.path().join("b")).unwrap();
        match open_handle(directory.as_fd(), handle.as_bytes(), OFlags::PATH) {
            Ok(fd) => {
                let found = rustix::fs::fstat(fd).unwrap().st_ino;
                assert_eq!(found, fs::metadata(sandbox.path().join("b")).unwrap().ino());
                fs::remove_file(sandbox.path().join("b")).unwrap();
                let error = open_handle(directory.as_fd(), handle.as_bytes(), OFlags::PATH).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
            }
            // Without the capability.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn impossible_handles_are_refused() {
        assert_eq!(Handle::new(1, &[0; MOST_HANDLE_BYTES + 1]), None);
        assert_eq!(Handle::from_bytes(&[0; 3]), None);
        let root = File::open("/").unwrap();
        for bytes in [&[][..], &[0; 3], &[0; 4 + MOST_HANDLE_BYTES + 1], &[0xff; 40], &[1, 0, 0, 0]] {
            assert!(open_handle(root.as_fd(), bytes, OFlags::PATH).is_err());
        }
        let error = handle_of(root.as_fd(), c"no such name").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
