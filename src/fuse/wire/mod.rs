//! The FUSE protocol, as far as this file system speaks it: what the kernel asks ([`request`]) and what it is answered
//! ([`reply`]). Version 7.45 of `include/uapi/linux/fuse.h`; all numbers are in the order of the machine.
//!
//! The protocol is written down here, and not taken from a crate, because a file without a name (`O_TMPFILE`), birth
//! times (`statx`) and some of the rules about set-id bits are requests and flags that no crate passes on yet.

pub(super) mod reply;
pub(super) mod request;

/// Version of the protocol.
pub(super) const MAJOR: u32 = 7;
/// Newest minor version that this code knows; the kernel may be older or newer.
pub(super) const MINOR: u32 = 45;
/// The oldest kernel with everything that is needed (Linux 5.11): requests before that lack fields.
pub(super) const LEAST_MINOR: u32 = 33;
/// Number of the root directory in requests.
pub(super) const ROOT_NODE: u64 = 1;
/// Longest name that a directory entry can have here.
pub(super) const LONGEST_NAME_BYTES: usize = 255;

/// What both sides can do; from `FUSE_INIT`.
pub(super) mod capability {
    pub(in crate::fuse) const ASYNC_READ: u64 = 1;
    pub(in crate::fuse) const BIG_WRITES: u64 = 1 << 5;
    pub(in crate::fuse) const DONT_MASK: u64 = 1 << 6;
    pub(in crate::fuse) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(in crate::fuse) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(in crate::fuse) const ASYNC_DIO: u64 = 1 << 15;
    pub(in crate::fuse) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(in crate::fuse) const POSIX_ACL: u64 = 1 << 20;
    pub(in crate::fuse) const MAX_PAGES: u64 = 1 << 22;
    pub(in crate::fuse) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(in crate::fuse) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(in crate::fuse) const SETXATTR_EXT: u64 = 1 << 29;
    pub(in crate::fuse) const INIT_EXT: u64 = 1 << 30;
    pub(in crate::fuse) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// How a file was opened, for the kernel.
pub(super) mod opened {
    /// What the page cache has of it is still right.
    pub(in crate::fuse) const KEEP_CACHE: u32 = 1 << 1;
    /// Closing it needs no `FUSE_FLUSH`.
    pub(in crate::fuse) const NO_FLUSH: u32 = 1 << 5;
}
