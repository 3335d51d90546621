//! Pseudo file systems: views of the kernel without files on a device.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;

/// `f_type` of proc, sysfs, cgroup, cgroup2, devpts, debugfs, tracefs, securityfs, bpf, pstore, configfs, efivarfs,
/// mqueue, hugetlbfs, fusectl, selinux, binfmt_misc, nsfs, rpc_pipefs, autofs (Linux `include/uapi/linux/magic.h`).
const PSEUDO: [u64; 20] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x1cd1,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6165_676c,
    0x6265_6570,
    0xde5e_81e4,
    0x1980_0202,
    0x9584_58f6,
    0x6573_5543,
    0xf97c_ff8c,
    0x4249_4e4d,
    0x6e73_6673,
    0x6759_6969,
    0x0187,
];

/// Whether a pseudo file system is mounted at `name`: its "files" have sizes (`/proc/kcore`: 128 TiB) but occupy no
/// space. A survey of `/` leaves them out; one that names them as a root does not.
pub(super) fn is_pseudo_file_system(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let kind = fstatfs(fd.as_fd())?.f_type as u64 & 0xffff_ffff;
    Ok(PSEUDO.contains(&kind))
}
