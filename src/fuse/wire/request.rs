//! Requests of the kernel.

use crate::store::Time;

/// Length of the header of each request.
pub(in crate::fuse) const HEADER_BYTES: usize = 40;

/// What every request has.
#[derive(Debug, Clone, Copy)]
pub(in crate::fuse) struct Header {
    pub(in crate::fuse) opcode: u32,
    /// Number of the request, for the answer.
    pub(in crate::fuse) unique: u64,
    pub(in crate::fuse) node: u64,
    pub(in crate::fuse) uid: u32,
    pub(in crate::fuse) gid: u32,
}

/// New attributes; what is `None` stays.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::fuse) struct NewAttributes {
    pub(in crate::fuse) mode: Option<u32>,
    pub(in crate::fuse) uid: Option<u32>,
    pub(in crate::fuse) gid: Option<u32>,
    pub(in crate::fuse) size: Option<u64>,
    pub(in crate::fuse) atime: Option<NewTime>,
    pub(in crate::fuse) mtime: Option<NewTime>,
    /// Set-id bits go with a new size: the caller may not keep them.
    pub(in crate::fuse) kills_set_id: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy)]
pub(in crate::fuse) enum NewTime {
    Now,
    At(Time),
}

/// What is to be created.
#[derive(Debug, Clone, Copy)]
pub(in crate::fuse) struct Creation {
    pub(in crate::fuse) mode: u32,
    pub(in crate::fuse) umask: u32,
}

/// One request.
#[derive(Debug)]
pub(in crate::fuse) enum Operation<'r> {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        capabilities: u64,
    },
    Lookup {
        name: &'r [u8],
    },
    /// Nodes with the number of look-ups that the kernel forgets.
    Forget(Vec<(u64, u64)>),
    GetAttributes,
    Statx,
    SetAttributes(NewAttributes),
    ReadLink,
    Symlink {
        name: &'r [u8],
        target: &'r [u8],
    },
    MakeNode {
        name: &'r [u8],
        creation: Creation,
        device: u32,
    },
    MakeDirectory {
        name: &'r [u8],
        creation: Creation,
    },
    Unlink {
        name: &'r [u8],
    },
    RemoveDirectory {
        name: &'r [u8],
    },
    Rename {
        name: &'r [u8],
        to: u64,
        new_name: &'r [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'r [u8],
    },
    Open,
    Create {
        name: &'r [u8],
        creation: Creation,
    },
    TemporaryFile {
        creation: Creation,
    },
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        kills_set_id: bool,
        bytes: &'r [u8],
    },
    Flush,
    Release,
    Sync,
    StatFileSystem,
    SetXattr {
        name: &'r [u8],
        value: &'r [u8],
        flags: u32,
        kills_set_gid: bool,
    },
    GetXattr {
        name: &'r [u8],
        size: u32,
    },
    ListXattrs {
        size: u32,
    },
    RemoveXattr {
        name: &'r [u8],
    },
    OpenDirectory,
    ReadDirectory {
        handle: u64,
        offset: u64,
        size: u32,
        with_attributes: bool,
    },
    ReleaseDirectory {
        handle: u64,
    },
    SyncDirectory,
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    CopyRange {
        from: u64,
        to_node: u64,
        to: u64,
        length: u64,
    },
    Interrupt,
    Destroy,
    /// Something that this file system does not do.
    Other,
}

/// Reads fields one after the other; `None` at the end.
struct Fields<'r>(&'r [u8]);

impl<'r> Fields<'r> {
    fn u32(&mut self) -> Option<u32> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*value))
    }

    fn u64(&mut self) -> Option<u64> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*value))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// A name, which ends with NUL.
    fn name(&mut self) -> Option<&'r [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..)?;
        Some(name)
    }

    fn take(&mut self, bytes: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Takes a request apart; `None` if it is not one. An unknown one is [`Operation::Other`].
pub(in crate::fuse) fn parse(bytes: &[u8]) -> Option<(Header, Operation<'_>)> {
    let mut at = Fields(bytes);
    let length = at.u32()? as usize;
    let opcode = at.u32()?;
    let header = Header { opcode, unique: at.u64()?, node: at.u64()?, uid: at.u32()?, gid: at.u32()? };
    let body = bytes.get(HEADER_BYTES..length)?;
    operation(&header, Fields(body)).map(|operation| (header, operation))
}

fn operation<'r>(header: &Header, mut at: Fields<'r>) -> Option<Operation<'r>> {
    const WRITE_KILL_SET_ID: u32 = 1 << 2;
    const XATTR_KILL_SET_GID: u32 = 1;
    Some(match header.opcode {
        1 => Operation::Lookup { name: at.name()? },
        2 => Operation::Forget(vec![(header.node, at.u64()?)]),
        3 => Operation::GetAttributes,
        4 => Operation::SetAttributes(new_attributes(at)?),
        5 => Operation::ReadLink,
        6 => Operation::Symlink { name: at.name()?, target: at.name()? },
        8 => {
            let (mode, device, umask) = (at.u32()?, at.u32()?, at.u32()?);
            at.skip(4)?;
            Operation::MakeNode { name: at.name()?, creation: Creation { mode, umask }, device }
        }
        9 => {
            let creation = Creation { mode: at.u32()?, umask: at.u32()? };
            Operation::MakeDirectory { name: at.name()?, creation }
        }
        10 => Operation::Unlink { name: at.name()? },
        11 => Operation::RemoveDirectory { name: at.name()? },
        12 => {
            let to = at.u64()?;
            Operation::Rename { name: at.name()?, to, new_name: at.name()?, flags: 0 }
        }
        13 => Operation::Link { node: at.u64()?, name: at.name()? },
        14 => Operation::Open,
        15 => {
            at.skip(8)?;
            Operation::Read { offset: at.u64()?, size: at.u32()? }
        }
        16 => {
            at.skip(8)?;
            let (offset, size, flags) = (at.u64()?, at.u32()?, at.u32()?);
            at.skip(16)?;
            let kills_set_id = flags & WRITE_KILL_SET_ID > 0;
            Operation::Write { offset, kills_set_id, bytes: at.take(size as usize)? }
        }
        17 => Operation::StatFileSystem,
        18 => Operation::Release,
        20 => Operation::Sync,
        21 => {
            let (size, flags, more) = (at.u32()?, at.u32()?, at.u32()?);
            at.skip(4)?;
            let (name, kills_set_gid) = (at.name()?, more & XATTR_KILL_SET_GID > 0);
            Operation::SetXattr { name, value: at.take(size as usize)?, flags, kills_set_gid }
        }
        22 => {
            let size = at.u32()?;
            at.skip(4)?;
            Operation::GetXattr { name: at.name()?, size }
        }
        23 => Operation::ListXattrs { size: at.u32()? },
        24 => Operation::RemoveXattr { name: at.name()? },
        25 => Operation::Flush,
        26 => init(at)?,
        27 => Operation::OpenDirectory,
        28 | 44 => {
            let (handle, offset, size) = (at.u64()?, at.u64()?, at.u32()?);
            Operation::ReadDirectory { handle, offset, size, with_attributes: header.opcode == 44 }
        }
        29 => Operation::ReleaseDirectory { handle: at.u64()? },
        30 | 50 => Operation::SyncDirectory,
        35 | 51 => {
            at.skip(4)?;
            let creation = Creation { mode: at.u32()?, umask: at.u32()? };
            at.skip(4)?;
            match header.opcode {
                35 => Operation::Create { name: at.name()?, creation },
                _ => Operation::TemporaryFile { creation },
            }
        }
        36 => Operation::Interrupt,
        38 => Operation::Destroy,
        42 => {
            let count = at.u32()?;
            at.skip(4)?;
            let nodes: Option<Vec<_>> = (0..count).map(|_| Some((at.u64()?, at.u64()?))).collect();
            Operation::Forget(nodes?)
        }
        43 => {
            at.skip(8)?;
            Operation::Allocate { offset: at.u64()?, length: at.u64()?, mode: at.u32()? }
        }
        45 => {
            let (to, flags) = (at.u64()?, at.u32()?);
            at.skip(4)?;
            Operation::Rename { name: at.name()?, to, new_name: at.name()?, flags }
        }
        46 => {
            at.skip(8)?;
            Operation::Seek { offset: at.u64()?, whence: at.u32()? }
        }
        47 => {
            at.skip(8)?;
            let (from, to_node) = (at.u64()?, at.u64()?);
            at.skip(8)?;
            Operation::CopyRange { from, to_node, to: at.u64()?, length: at.u64()? }
        }
        52 => Operation::Statx,
        _ => Operation::Other,
    })
}

fn init<'r>(mut at: Fields<'r>) -> Option<Operation<'r>> {
    let (major, minor, max_readahead, low) = (at.u32()?, at.u32()?, at.u32()?, at.u32()?);
    let is_extended = u64::from(low) & super::capability::INIT_EXT > 0;
    let high = if is_extended { at.u32()? } else { 0 };
    let capabilities = u64::from(low) | u64::from(high) << 32;
    Some(Operation::Init { major, minor, max_readahead, capabilities })
}

fn new_attributes(mut at: Fields<'_>) -> Option<NewAttributes> {
    let valid = at.u32()?;
    at.skip(4 + 8)?;
    let size = at.u64()?;
    at.skip(8)?;
    let [atime, mtime, _] = [at.u64()?, at.u64()?, at.u64()?];
    let [atime_nanoseconds, mtime_nanoseconds, _] = [at.u32()?, at.u32()?, at.u32()?];
    let mode = at.u32()?;
    at.skip(4)?;
    let (uid, gid) = (at.u32()?, at.u32()?);
    let has = |bit: u32| valid & 1 << bit > 0;
    let time = |bit: u32, now: u32, seconds: u64, nanoseconds| match (has(now), has(bit)) {
        (true, _) => Some(NewTime::Now),
        (false, true) => Some(NewTime::At(Time { seconds: seconds as i64, nanoseconds })),
        (false, false) => None,
    };
    Some(NewAttributes {
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: time(4, 7, atime, atime_nanoseconds),
        mtime: time(5, 8, mtime, mtime_nanoseconds),
        kills_set_id: has(11),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [(HEADER_BYTES + body.len()) as u32, opcode] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for word in [77, node] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for word in [1000u32, 100, 5, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        [&bytes, body].concat()
    }

    #[test]
    fn requests_are_taken_apart() {
        let bytes = request(12, 3, &[&9u64.to_ne_bytes()[..], b"old\0new\0"].concat());
        let (header, operation) = parse(&bytes).unwrap();
        assert_eq!((header.unique, header.node, header.uid, header.gid), (77, 3, 1000, 100));
        assert!(matches!(operation, Operation::Rename { name: b"old", to: 9, new_name: b"new", flags: 0 }));
        let bytes = request(16, 3, &[&[0; 8][..], &5u64.to_ne_bytes(), &3u32.to_ne_bytes(), &[0; 20], b"abc"].concat());
        let (_, operation) = parse(&bytes).unwrap();
        assert!(matches!(operation, Operation::Write { offset: 5, kills_set_id: false, bytes: b"abc" }));
        assert!(matches!(parse(&request(4711, 1, b"")).unwrap().1, Operation::Other));
    }

    #[test]
    fn what_is_too_short_is_no_request() {
        for opcode in 1..53 {
            for length in 0..24 {
                let bytes = request(opcode, 1, &vec![1; length]);
                let _ = parse(&bytes);
                assert!(parse(&bytes[..bytes.len().saturating_sub(length + 1)]).is_none());
            }
        }
    }
}
