//! The inodes of a mounted XFS, many in a call and as the kernel has them in memory: `XFS_IOC_INUMBERS` and
//! `XFS_IOC_BULKSTAT` in their fifth version (Linux 5.4 and later). Layouts are those of `fs/xfs/libxfs/xfs_fs.h` in
//! Linux, without padding between fields. Needs `CAP_SYS_ADMIN`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct xfs_bulk_ireq`: first inode, flags, records that fit, records returned, group, reserved.
const HEADER_BYTES: usize = 64;
const RECORDS_THAT_FIT: usize = 12;
const RECORDS_RETURNED: usize = 16;

/// `struct xfs_inumbers`.
const CHUNK_BYTES: usize = 24;
/// `struct xfs_bulkstat`.
const INODE_BYTES: usize = 192;

/// `_IOR('X', 127, struct xfs_bulkstat_req)`.
const BULKSTAT: libc::Ioctl = libc::_IOR::<[u8; HEADER_BYTES]>(b'X' as u32, 127);
/// `_IOR('X', 128, struct xfs_inumbers_req)`.
const INUMBERS: libc::Ioctl = libc::_IOR::<[u8; HEADER_BYTES]>(b'X' as u32, 128);

/// 64 consecutive inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeChunk {
    /// The first.
    pub first: u64,
    /// A bit for each that is in use, the first in the lowest.
    pub used: u64,
}

/// An inode in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeRecord {
    /// Its number.
    pub inode: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Its allocated bytes, those that are only reserved included; 0 if its content is in the inode, whatever its
    /// attributes have.
    pub allocated_bytes: u64,
    /// Last read: seconds since 1970, and nanoseconds.
    pub atime: (i64, u32),
    /// Last change of the content.
    pub mtime: (i64, u32),
    /// Last change of the inode.
    pub ctime: (i64, u32),
    /// Its generation: another one for each file that has had the number.
    pub generation: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its number of names.
    pub link_count: u32,
    /// Extents of its extended attributes, outside of the inode.
    pub attribute_extents: u32,
    /// Type and permissions.
    pub mode: u16,
}

/// A buffer for the calls, to be used again.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Calls the kernel for at most `count` records from inode `first` on; returns them, and where to continue.
    fn call<const RECORD: usize>(
        &mut self,
        file_system: BorrowedFd<'_>,
        request: libc::Ioctl,
        first: u64,
        count: u32,
    ) -> io::Result<(&[[u8; RECORD]], u64)> {
        let length = HEADER_BYTES + count as usize * RECORD;
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        let (header, _) = self.bytes.split_at_mut(HEADER_BYTES);
        header.fill(0);
        header[..8].copy_from_slice(&first.to_ne_bytes());
        header[RECORDS_THAT_FIT..][..4].copy_from_slice(&count.to_ne_bytes());
        // SAFETY: the descriptor is open for the duration of the call. The kernel reads a header of `HEADER_BYTES`,
        // writes one back, and writes at most `count` records of `RECORD` bytes behind it: the buffer is that long. It
        // copies, so alignment does not matter, and keeps no pointer. Other file systems refuse the request.
        let result = unsafe { libc::ioctl(file_system.as_raw_fd(), request, self.bytes.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let (header, records) = self.bytes.split_at(HEADER_BYTES);
        let returned = u32::from_ne_bytes(field(header, RECORDS_RETURNED)).min(count);
        Ok((&records.as_chunks().0[..returned as usize], u64::from_ne_bytes(field(header, 0))))
    }
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

/// All chunks of inodes of the XFS that contains an open file, by ascending number.
///
/// # Errors
/// Those of the kernel: `ENOTTY` for another file system or an older kernel, `EPERM` without the capability.
pub fn inode_chunks(file_system: BorrowedFd<'_>, buffer: &mut Buffer) -> io::Result<Vec<InodeChunk>> {
    const AT_A_TIME: u32 = 1024;
    let (mut chunks, mut next) = (Vec::new(), 0);
    loop {
        let (records, behind) = buffer.call::<CHUNK_BYTES>(file_system, INUMBERS, next, AT_A_TIME)?;
        if records.is_empty() {
            return Ok(chunks);
        }
        let chunk = |record: &[u8; CHUNK_BYTES]| InodeChunk {
            first: u64::from_ne_bytes(field(record, 0)),
            used: u64::from_ne_bytes(field(record, 8)),
        };
        chunks.extend(records.iter().map(chunk));
        next = behind;
    }
}

/// At most `count` inodes in use from number `first` on, and the number to continue with; none if there are none.
///
/// # Errors
/// Those of [`inode_chunks`], and of reading the first inode: `EUCLEAN` if it is damaged.
pub fn bulkstat<'b>(
    file_system: BorrowedFd<'_>,
    first: u64,
    count: u32,
    buffer: &'b mut Buffer,
) -> io::Result<(impl Iterator<Item = InodeRecord> + 'b, u64)> {
    let (records, next) = buffer.call::<INODE_BYTES>(file_system, BULKSTAT, first, count)?;
    Ok((records.iter().map(inode), next))
}

fn inode(record: &[u8; INODE_BYTES]) -> InodeRecord {
    let wide = |offset| u64::from_ne_bytes(field(record, offset));
    let narrow = |offset| u32::from_ne_bytes(field(record, offset));
    InodeRecord {
        inode: wide(0),
        size_bytes: wide(8),
        allocated_bytes: wide(16) * u64::from(narrow(96)),
        atime: (wide(32) as i64, narrow(80)),
        mtime: (wide(40) as i64, narrow(84)),
        ctime: (wide(48) as i64, narrow(88)),
        generation: narrow(64),
        uid: narrow(68),
        gid: narrow(72),
        link_count: narrow(112),
        attribute_extents: narrow(120),
        mode: u16::from_ne_bytes(field(record, 132)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_no_xfs_is_refused() {
        let directory = File::open("/proc").unwrap();
        let error = inode_chunks(directory.as_fd(), &mut Buffer::default()).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EPERM | libc::EOPNOTSUPP)), "{error}");
    }

    #[test]
    fn fields_of_a_record_are_where_the_kernel_has_them() {
        // As many blocks as that would be too many bytes.
        let record: [u8; INODE_BYTES] = std::array::from_fn(|at| if (16..24).contains(&at) { 0 } else { at as u8 });
        let InodeRecord { inode: number, mode, link_count, mtime, .. } = inode(&record);
        assert_eq!(number, u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(mtime.1, u32::from_ne_bytes([84, 85, 86, 87]));
        assert_eq!((link_count, mode), (u32::from_ne_bytes([112, 113, 114, 115]), u16::from_ne_bytes([132, 133])));
    }
}
