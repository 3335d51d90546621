//! Converts an inode item to the values that `stat` reports, and makes up those of a placeholder.

use crate::scan::inodes::fields::{LittleEndian, Record as _};
use crate::scan::inodes::remember::version_of;
use crate::scan::{Kind, Stat, Timestamp};

const BYTES: usize = 160;

/// Decodes an inode; `None` if it has no names left. The target of a symlink is read later, to tell whether it is
/// absolute.
///
/// # Errors
/// A description of the damage.
pub(super) fn decode(data: &[u8], inode: u64, device: u64, sector_bytes: u32) -> Result<Option<Stat>, &'static str> {
    let data = data.first_chunk::<BYTES>().ok_or("it is truncated")?;
    let link_count = data.u32::<40>();
    if link_count == 0 {
        return Ok(None);
    }
    let mode = data.u32::<52>();
    let kind = u16::try_from(mode).ok().and_then(Kind::of_mode).ok_or("its kind is unknown")?;
    let (size_bytes, bytes) = (data.u64::<16>(), data.u64::<24>());
    if size_bytes > i64::MAX as u64 || bytes > i64::MAX as u64 {
        return Err("its size is impossible");
    }
    let time = |field: &[u8; 12]| Timestamp { seconds: field.u64::<0>() as i64, nanoseconds: field.u32::<8>() };
    Ok(Some(Stat {
        kind,
        size_bytes,
        // `stat` reports a sector for inline data, and the uncompressed size for compressed data.
        allocated_bytes: bytes.next_multiple_of(sector_bytes.into()),
        link_count,
        uid: data.u32::<44>(),
        gid: data.u32::<48>(),
        mode: mode as u16,
        device,
        inode,
        mtime: time(data.field::<136, 12>()),
        ctime: time(data.field::<124, 12>()),
        atime: time(data.field::<112, 12>()),
    }))
}

/// A number that differs after every change of a directory: a hash of its item, with times and the transaction of the
/// last change. The time of the last read does not matter.
pub(super) fn version(data: &[u8]) -> u64 {
    version_of(data.len() as u64, data, [0..112, 124..data.len()])
}

/// The empty directory that the kernel shows in a snapshot where the original has a nested subvolume: snapshots do not
/// include those. Its attributes are those of the kernel's `new_simple_dir`.
pub(super) fn placeholder(inode: u64, device: u64) -> Stat {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // The kernel creates it at the time of the lookup.
    let time = Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
    Stat {
        kind: Kind::Directory,
        size_bytes: 0,
        allocated_bytes: 0,
        link_count: 1,
        uid: 0,
        gid: 0,
        mode: 0o40755,
        device,
        inode,
        mtime: time,
        ctime: time,
        atime: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_directory_is_another_version() {
        let mut data = vec![0x5a; BYTES];
        let before = version(&data);
        for at in 0..BYTES {
            data[at] ^= 1;
            assert_eq!(version(&data) == before, (112..124).contains(&at), "byte {at}");
            data[at] ^= 1;
        }
    }

    #[test]
    fn an_inode_says_what_stat_says() {
        let mut data = vec![0; BYTES];
        let put = |data: &mut Vec<u8>, at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        put(&mut data, 16, &5u64.to_le_bytes());
        put(&mut data, 24, &5u64.to_le_bytes());
        assert_eq!(decode(&data, 300, 1, 4096), Ok(None));
        put(&mut data, 40, &2u32.to_le_bytes());
        assert!(decode(&data, 300, 1, 4096).is_err());
        put(&mut data, 52, &0o100644u32.to_le_bytes());
        put(&mut data, 136, &(-7i64).to_le_bytes());
        let stat = decode(&data, 300, 1, 4096).unwrap().unwrap();
        assert_eq!((stat.kind, stat.size_bytes, stat.allocated_bytes), (Kind::File, 5, 4096));
        assert_eq!((stat.link_count, stat.mode, stat.mtime.seconds), (2, 0o100644, -7));
        put(&mut data, 24, &u64::MAX.to_le_bytes());
        assert!(decode(&data, 300, 1, 4096).is_err());
        assert!(decode(&data[..100], 300, 1, 4096).is_err());
    }
}
