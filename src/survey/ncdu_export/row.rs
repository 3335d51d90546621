//! What is known about one entry of the export, and its compact form in memory and in the scratch file.
//!
//! A row has a *key*, its path as bytes in which `NUL name` is a component: `/a/b` is `NUL a NUL b`, and `/` is empty.
//! No name contains NUL, so keys in byte order are a walk in depth: a directory, everything in it, then what follows.

use crate::io::varint;
use crate::scan::{Kind, Stat};

/// An entry, or a remark about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) known: Known,
    /// Whether it is a directory that could not be listed, or not to its end.
    pub(super) is_unlisted: bool,
}

/// What is known about an entry. A later one says more than an earlier one: see [`Row::join`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing but that it exists.
    Nothing,
    /// It was left out by a pattern.
    Excluded,
    /// It is on another file system, which was left out.
    OtherFileSystem,
    /// Its attributes could not be read.
    Unreadable,
    /// It is no directory.
    Leaf(Inode),
    /// It is a directory.
    Directory(Inode),
}

/// Attributes as the format has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) is_regular: bool,
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) link_count: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Seconds since 1970; what is older is 0, for the format has no negative numbers.
    pub(super) mtime: u64,
}

impl Known {
    /// The tag of its encoding, which is also its rank.
    fn tag(&self) -> u64 {
        match self {
            Known::Nothing => 0,
            Known::Excluded => 1,
            Known::OtherFileSystem => 2,
            Known::Unreadable => 3,
            Known::Leaf(_) => 4,
            Known::Directory(_) => 5,
        }
    }
}

impl From<&Stat> for Row {
    fn from(stat: &Stat) -> Row {
        let inode = Inode {
            is_regular: stat.kind == Kind::File,
            size_bytes: stat.size_bytes,
            allocated_bytes: stat.allocated_bytes,
            link_count: stat.link_count,
            uid: stat.uid,
            gid: stat.gid,
            mode: stat.mode,
            device: stat.device,
            inode: stat.inode,
            mtime: stat.mtime.seconds.max(0) as u64,
        };
        Row::of(if stat.kind == Kind::Directory { Known::Directory(inode) } else { Known::Leaf(inode) })
    }
}

impl Row {
    pub(super) fn of(known: Known) -> Row {
        Row { known, is_unlisted: false }
    }

    /// A remark that a directory was not listed to its end.
    pub(super) fn unlisted() -> Row {
        Row { known: Known::Nothing, is_unlisted: true }
    }

    /// Two rows with one key as one: a remark and its directory, or a name that was listed twice because it changed
    /// meanwhile.
    pub(super) fn join(self, other: Row) -> Row {
        let known = if other.known.tag() > self.known.tag() { other.known } else { self.known };
        Row { known, is_unlisted: self.is_unlisted || other.is_unlisted }
    }

    /// Appends the row to `out`: about 25 bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.known.tag() << 1 | u64::from(self.is_unlisted));
        if let Known::Leaf(inode) | Known::Directory(inode) = &self.known {
            let Inode { is_regular, size_bytes, allocated_bytes, link_count, uid, gid, mode, .. } = *inode;
            let small = [link_count, uid, gid, u32::from(mode)].map(u64::from);
            let numbers = [u64::from(is_regular), size_bytes, allocated_bytes, inode.device, inode.inode, inode.mtime];
            numbers.into_iter().chain(small).for_each(|number| varint::put(out, number));
        }
    }

    /// The row that [`encode`](Self::encode) wrote; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Row> {
        let mut at = 0;
        let mut next = || varint::take(bytes, &mut at);
        let head = next()?;
        let mut inode = || {
            let [regular, size_bytes, allocated_bytes, device, inode, mtime] =
                [next()?, next()?, next()?, next()?, next()?, next()?];
            let [link_count, uid, gid, mode] = [next()?, next()?, next()?, next()?];
            Some(Inode {
                is_regular: regular > 0,
                size_bytes,
                allocated_bytes,
                link_count: u32::try_from(link_count).ok()?,
                uid: u32::try_from(uid).ok()?,
                gid: u32::try_from(gid).ok()?,
                mode: u16::try_from(mode).ok()?,
                device,
                inode,
                mtime,
            })
        };
        let known = match head >> 1 {
            0 => Known::Nothing,
            1 => Known::Excluded,
            2 => Known::OtherFileSystem,
            3 => Known::Unreadable,
            4 => Known::Leaf(inode()?),
            5 => Known::Directory(inode()?),
            _ => return None,
        };
        Some(Row { known, is_unlisted: head & 1 == 1 })
    }
}

/// Rows with their keys, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Where a key and its row are.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    key_end: u32,
    end: u32,
}

impl Block {
    /// Adds the row of a directory itself, or of the entry with a name in it.
    pub(super) fn push(&mut self, directory: &[u8], name: Option<&[u8]>, row: &Row) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(directory);
        if let Some(name) = name {
            self.bytes.push(0);
            self.bytes.extend_from_slice(name);
        }
        let key_end = self.bytes.len() as u32;
        row.encode(&mut self.bytes);
        self.spans.push(Span { start, key_end, end: self.bytes.len() as u32 });
    }

    /// Adds all rows of `other`.
    pub(super) fn append(&mut self, other: &Block) {
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        let moved =
            |span: &Span| Span { start: span.start + offset, key_end: span.key_end + offset, end: span.end + offset };
        self.spans.extend(other.spans.iter().map(moved));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes in memory.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }

    /// Puts the rows into the order of their keys.
    pub(super) fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |span: &Span| &bytes[span.start as usize..span.key_end as usize];
        self.spans.sort_unstable_by(|one, other| key(one).cmp(key(other)));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The key and the encoded row with a number.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let span = self.spans.get(number)?;
        let [start, key_end, end] = [span.start, span.key_end, span.end].map(|at| at as usize);
        Some((&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }
}
