//! The bytes of an EROFS image that has metadata only: inodes whose contents lie in other files.
//!
//! The format is that of Linux: Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h. Blocks have 512 bytes, the
//! smallest unit at which a store aligns contents. Everything is written in one pass from the beginning to the end, but
//! for the few fields of a directory that are known when its last entry is: its inode is reserved before its entries
//! and completed after them. An inode is named by its offset in units of 32 bytes.
//!
//! ```text
//! superblock | inode of the root | devices (a hole until the end) | inodes, contents of directories, copied contents
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a block, as a power of two.
pub(super) const BLOCK_BITS: u32 = 9;
/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 1 << BLOCK_BITS;
/// Longest name that the format has.
pub(super) const MOST_NAME_BYTES: usize = 255;
/// Most files besides the image: device numbers have 16 bits, and 0 is the image.
pub(super) const MOST_FILES: usize = u16::MAX as usize;

const MAGIC: u32 = 0xE0F5_E1E2;
const SUPERBLOCK_AT: u64 = 1024;
const SUPERBLOCK_BYTES: u64 = 128;
const FEATURES_CHUNKED_AND_DEVICES: u32 = 0x4 | 0x8;
const DEVICE_BYTES: u64 = 128;
const INODE_BYTES: usize = 64;
const SLOT_BYTES: u64 = 32;
const ENTRY_BYTES: usize = 12;
/// A hole in the list of chunks.
const NO_BLOCK: u32 = u32::MAX;
/// The chunks of a file are listed with devices.
const LISTED: u32 = 0x20;
/// Largest chunk, as a power of two: the field has five bits, counted from that of a block.
const MOST_CHUNK_BITS: u32 = BLOCK_BITS + 0x1F;
/// Bytes that are collected before they are written.
const WRITTEN_BYTES: usize = 4 << 20;

/// How the content of an inode is found, in its own field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Blocks = 0,
    Inline = 2,
    Chunks = 4,
}

/// The types of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    File = 1,
    Directory = 2,
    CharacterDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
    Symlink = 7,
}

/// The fields of an inode that do not depend on its content.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// Type and permissions.
    pub(super) mode: u16,
    /// Owner.
    pub(super) uid: u32,
    /// Owning group.
    pub(super) gid: u32,
    /// Modification time.
    pub(super) seconds: i64,
    /// Its nanoseconds.
    pub(super) nanoseconds: u32,
    /// Number of names.
    pub(super) links: u32,
    /// Extended attributes, encoded by [`encode_xattrs`].
    pub(super) xattrs: Vec<u8>,
}

/// Where an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InodeNumber(pub(super) u64);

/// A part of a file's content: `None` as its place for a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Offset in the file, a multiple of a block.
    pub(super) offset_bytes: u64,
    /// Length: a multiple of a block, except at the end of the file.
    pub(super) length_bytes: u64,
    /// The file, 0 for the image itself, and the block in it.
    pub(super) place: (u16, u32),
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(super) struct DirectoryEntry {
    pub(super) name: Box<[u8]>,
    pub(super) inode: InodeNumber,
    pub(super) kind: Type,
}

/// Writes an image.
#[derive(Debug)]
pub(super) struct ImageWriter {
    file: File,
    /// Bytes that are not yet written, which begin at `written`.
    ahead: Vec<u8>,
    written: u64,
    root: InodeNumber,
    devices_at: u64,
    inodes: u64,
}

impl ImageWriter {
    /// Begins an image in an empty file, with the inode of the root, which has room for at most `most_files` others.
    pub(super) fn begin(file: File, root: &Inode, most_files: usize) -> io::Result<(ImageWriter, InodeNumber)> {
        let mut writer = ImageWriter {
            file,
            ahead: vec![0; (SUPERBLOCK_AT + SUPERBLOCK_BYTES) as usize],
            written: 0,
            root: InodeNumber(0),
            devices_at: 0,
            inodes: 0,
        };
        writer.root = writer.reserve(root)?;
        writer.devices_at = writer.end().next_multiple_of(DEVICE_BYTES);
        let behind = (writer.devices_at + DEVICE_BYTES * most_files as u64).next_multiple_of(BLOCK_BYTES);
        writer.flush()?;
        // A hole: most of the devices do not exist.
        writer.written = behind;
        let root = writer.root;
        Ok((writer, root))
    }

    fn end(&self) -> u64 {
        self.written + self.ahead.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.ahead, self.written)?;
        self.written += self.ahead.len() as u64;
        self.ahead.clear();
        Ok(())
    }

    fn pad_to(&mut self, multiple: u64) {
        let end = self.end().next_multiple_of(multiple);
        self.ahead.resize((end - self.written) as usize, 0);
    }

    /// Writes bytes over earlier ones.
    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match at.checked_sub(self.written) {
            Some(within) => {
                let within = within as usize;
                self.ahead[within..within + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.write_all_at(bytes, at),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.ahead.extend_from_slice(bytes);
        if self.ahead.len() >= WRITTEN_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends an inode with a tail: what its layout has behind the extended attributes.
    fn inode(
        &mut self,
        inode: &Inode,
        layout: Layout,
        size_bytes: u64,
        union: u32,
        tail: &[u8],
    ) -> io::Result<InodeNumber> {
        let xattrs = xattr_count(inode.xattrs.len())?;
        self.pad_to(SLOT_BYTES);
        let before_tail = INODE_BYTES as u64 + inode.xattrs.len() as u64;
        if layout == Layout::Inline && (self.end() + before_tail) % BLOCK_BYTES + tail.len() as u64 > BLOCK_BYTES {
            // The tail must not cross a block: it begins at one.
            let tail_at = (self.end() + before_tail).next_multiple_of(BLOCK_BYTES);
            let begin = (tail_at - before_tail).next_multiple_of(SLOT_BYTES);
            self.ahead.resize((begin - self.written) as usize, 0);
        }
        let at = self.end();
        self.inodes += 1;
        let number = u32::try_from(self.inodes).unwrap_or(u32::MAX);
        let mut bytes = [0; INODE_BYTES];
        let mut field = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        // Bit 0: an inode of 64 bytes.
        field(0, &(1 | (layout as u16) << 1).to_le_bytes());
        field(2, &xattrs.to_le_bytes());
        field(4, &inode.mode.to_le_bytes());
        field(8, &size_bytes.to_le_bytes());
        field(16, &union.to_le_bytes());
        field(20, &number.to_le_bytes());
        field(24, &inode.uid.to_le_bytes());
        field(28, &inode.gid.to_le_bytes());
        field(32, &inode.seconds.to_le_bytes());
        field(40, &inode.nanoseconds.to_le_bytes());
        field(LINKS_AT as usize, &inode.links.to_le_bytes());
        self.ahead.extend_from_slice(&bytes);
        self.ahead.extend_from_slice(&inode.xattrs);
        if layout == Layout::Chunks {
            self.pad_to(CHUNK_BYTES);
        }
        self.append(tail)?;
        Ok(InodeNumber(at / SLOT_BYTES))
    }

    /// Appends the inode of a directory, to be completed by [`directory`](Self::directory).
    pub(super) fn reserve(&mut self, inode: &Inode) -> io::Result<InodeNumber> {
        self.inode(inode, Layout::Blocks, 0, 0, &[])
    }

    /// Completes a directory: `entries` are in the order of their bytes, and lack those of itself and its parent.
    pub(super) fn directory(
        &mut self,
        number: InodeNumber,
        parent: InodeNumber,
        entries: Vec<DirectoryEntry>,
    ) -> io::Result<()> {
        let children = entries.iter().filter(|entry| entry.kind == Type::Directory).count();
        let dots = [(&b"."[..], number), (b"..", parent)];
        let dots = dots.map(|(name, inode)| DirectoryEntry { name: name.into(), inode, kind: Type::Directory });
        let mut entries = entries;
        entries.extend(dots);
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let (block, size_bytes) = self.content_of_directory(&entries)?;
        let at = number.0 * SLOT_BYTES;
        self.patch(at + 8, &size_bytes.to_le_bytes())?;
        self.patch(at + 16, &block.to_le_bytes())?;
        self.set_links(number, u32::try_from(children + 2).unwrap_or(u32::MAX))
    }

    /// Sets the number of names of an inode.
    pub(super) fn set_links(&mut self, number: InodeNumber, links: u32) -> io::Result<()> {
        self.patch(number.0 * SLOT_BYTES + LINKS_AT, &links.to_le_bytes())
    }

    /// Writes the blocks of a directory: in each, fixed parts of entries and then the names. Returns the first block
    /// and the number of bytes.
    fn content_of_directory(&mut self, entries: &[DirectoryEntry]) -> io::Result<(u32, u64)> {
        self.pad_to(BLOCK_BYTES);
        let first = self.end();
        let mut rest = entries;
        let mut last_bytes = 0;
        while !rest.is_empty() {
            self.pad_to(BLOCK_BYTES);
            let (mut count, mut used) = (0, 0);
            for entry in rest {
                used += ENTRY_BYTES + entry.name.len();
                if used > BLOCK_BYTES as usize {
                    break;
                }
                count += 1;
                last_bytes = used;
            }
            let (block, others) = rest.split_at(count);
            let mut name_at = ENTRY_BYTES * count;
            for entry in block {
                self.ahead.extend_from_slice(&entry.inode.0.to_le_bytes());
                self.ahead.extend_from_slice(&(name_at as u16).to_le_bytes());
                self.ahead.extend_from_slice(&[entry.kind as u8, 0]);
                name_at += entry.name.len();
            }
            block.iter().for_each(|entry| self.ahead.extend_from_slice(&entry.name));
            rest = others;
            if self.ahead.len() >= WRITTEN_BYTES {
                self.flush()?;
            }
        }
        let size_bytes = (self.end() - 1 - first) / BLOCK_BYTES * BLOCK_BYTES + last_bytes as u64;
        self.pad_to(BLOCK_BYTES);
        Ok((block_of(first)?, size_bytes))
    }

    /// Appends a file whose content is in `pieces`, in their order and separate; the rest are holes.
    pub(super) fn file(&mut self, inode: &Inode, size_bytes: u64, pieces: &[Piece]) -> io::Result<InodeNumber> {
        if size_bytes == 0 {
            return self.inode(inode, Layout::Blocks, 0, 0, &[]);
        }
        let bits = chunk_bits(size_bytes, pieces);
        let mut tail = Vec::with_capacity(CHUNK_BYTES as usize * size_bytes.div_ceil(1 << bits) as usize);
        let hole = (0, NO_BLOCK);
        let mut at = 0;
        let mut push_until = |end: u64, place: &mut dyn FnMut(u64) -> (u16, u32), at: &mut u64| {
            while *at < end {
                let (device, block) = place(*at);
                tail.extend_from_slice(&0u16.to_le_bytes());
                tail.extend_from_slice(&device.to_le_bytes());
                tail.extend_from_slice(&block.to_le_bytes());
                *at += 1 << bits;
            }
        };
        for piece in pieces {
            push_until(piece.offset_bytes, &mut |_| hole, &mut at);
            let of_chunk = |at: u64| (piece.place.0, piece.place.1 + ((at - piece.offset_bytes) >> BLOCK_BITS) as u32);
            push_until(piece.offset_bytes + piece.length_bytes, &mut { of_chunk }, &mut at);
        }
        push_until(size_bytes, &mut |_| hole, &mut at);
        self.inode(inode, Layout::Chunks, size_bytes, (bits - BLOCK_BITS) | LISTED, &tail)
    }

    /// Appends a symlink.
    pub(super) fn symlink(&mut self, inode: &Inode, target: &[u8]) -> io::Result<InodeNumber> {
        if target.len() as u64 <= BLOCK_BYTES / 2 {
            return self.inode(inode, Layout::Inline, target.len() as u64, 0, target);
        }
        let block = self.content(target, 0)?;
        self.inode(inode, Layout::Blocks, target.len() as u64, block, &[])
    }

    /// Appends a fifo, a socket, or a device with these numbers.
    pub(super) fn special(&mut self, inode: &Inode, major: u32, minor: u32) -> io::Result<InodeNumber> {
        // As `new_encode_dev` in include/linux/kdev_t.h.
        let device = minor & 0xFF | major << 8 | (minor & !0xFF) << 12;
        self.inode(inode, Layout::Blocks, 0, device, &[])
    }

    /// Appends bytes, and a number of zeroes behind them, in blocks of the image; returns the first.
    pub(super) fn content(&mut self, bytes: &[u8], zeroes: usize) -> io::Result<u32> {
        self.pad_to(BLOCK_BYTES);
        let block = block_of(self.end())?;
        self.ahead.extend_from_slice(bytes);
        self.ahead.resize(self.ahead.len() + zeroes, 0);
        self.pad_to(BLOCK_BYTES);
        self.append(&[])?;
        Ok(block)
    }

    /// Ends the image: `blocks` are those of the other files, in the order of their numbers. Returns its length.
    pub(super) fn end_with(mut self, blocks: &[u32]) -> io::Result<u64> {
        self.pad_to(4096);
        self.flush()?;
        let length_bytes = self.written;
        let mut devices = Vec::with_capacity(blocks.len() * DEVICE_BYTES as usize);
        for blocks in blocks {
            // The tag, which mount options replace.
            devices.extend_from_slice(&[0; 64]);
            devices.extend_from_slice(&blocks.to_le_bytes());
            devices.extend_from_slice(&[0; 60]);
        }
        self.file.write_all_at(&devices, self.devices_at)?;
        let mut superblock = [0; SUPERBLOCK_BYTES as usize];
        let mut field = |at: usize, value: &[u8]| superblock[at..at + value.len()].copy_from_slice(value);
        let too_late = || io::Error::other("the root is too far from the beginning of the image");
        field(0, &MAGIC.to_le_bytes());
        field(12, &[BLOCK_BITS as u8]);
        field(14, &u16::try_from(self.root.0).map_err(|_| too_late())?.to_le_bytes());
        field(16, &self.inodes.to_le_bytes());
        field(36, &block_of(length_bytes)?.to_le_bytes());
        field(64, b"granulo");
        field(80, &FEATURES_CHUNKED_AND_DEVICES.to_le_bytes());
        field(86, &(blocks.len() as u16).to_le_bytes());
        field(88, &u16::try_from(self.devices_at / DEVICE_BYTES).map_err(|_| too_late())?.to_le_bytes());
        self.file.write_all_at(&superblock, SUPERBLOCK_AT)?;
        Ok(length_bytes)
    }
}

/// Offset of the number of names in an inode.
const LINKS_AT: u64 = 44;
/// Bytes of a chunk in the list of a file.
const CHUNK_BYTES: u64 = 8;

fn block_of(at: u64) -> io::Result<u32> {
    u32::try_from(at >> BLOCK_BITS).map_err(|_| io::Error::other("the image would be larger than 2 TiB"))
}

/// Number of chunks that a file of this size with these pieces has.
pub(super) fn chunks_of(size_bytes: u64, pieces: &[Piece]) -> u64 {
    size_bytes.div_ceil(1 << chunk_bits(size_bytes, pieces))
}

/// The largest chunk, as a power of two, at whose multiples all pieces begin and end.
fn chunk_bits(size_bytes: u64, pieces: &[Piece]) -> u32 {
    let whole = size_bytes.next_power_of_two().trailing_zeros().clamp(BLOCK_BITS, MOST_CHUNK_BITS);
    pieces.iter().fold(whole, |bits, piece| {
        let end = piece.offset_bytes + piece.length_bytes;
        let ends_at = if end == size_bytes { 0 } else { end };
        bits.min((piece.offset_bytes | ends_at).trailing_zeros())
    })
}

/// The prefixes and whole names of extended attributes that Linux shows, with their numbers. The format has one for
/// `lustre.` too, which Linux skips.
const PREFIXES: [(&[u8], u8); 5] = [
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"user.", 1),
    (b"trusted.", 4),
    (b"security.", 6),
];
const XATTR_HEADER_BYTES: usize = 12;
/// Most bytes of the extended attributes of an inode: their field has 16 bits and counts in units of four.
const MOST_XATTR_BYTES: usize = XATTR_HEADER_BYTES + 4 * (u16::MAX as usize - 1);

/// Encodes extended attributes. Those that the format cannot have, by their prefix or length or with those before them,
/// are left out; returns how many.
pub(super) fn encode_xattrs(xattrs: &[(Vec<u8>, Vec<u8>)]) -> (Vec<u8>, usize) {
    let (mut bytes, mut left_out) = (vec![0; XATTR_HEADER_BYTES], 0);
    for (name, value) in xattrs {
        let before = bytes.len();
        if append_xattr(name, value, &mut bytes).is_none() || bytes.len() > MOST_XATTR_BYTES {
            bytes.truncate(before);
            left_out += 1;
        }
    }
    if bytes.len() == XATTR_HEADER_BYTES {
        bytes.clear();
    }
    (bytes, left_out)
}

/// Appends an extended attribute; `None`, with `bytes` as they were, if the format has none of that name or length.
fn append_xattr(name: &[u8], value: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let (rest, number) = PREFIXES.iter().find_map(|(prefix, number)| {
        let rest = name.strip_prefix(*prefix)?;
        // A prefix alone is no name, and a whole name no prefix.
        (rest.is_empty() != prefix.ends_with(b".")).then_some((rest, *number))
    })?;
    let (name_bytes, value_bytes) = (u8::try_from(rest.len()).ok()?, u16::try_from(value.len()).ok()?);
    bytes.extend_from_slice(&[name_bytes, number]);
    bytes.extend_from_slice(&value_bytes.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Some(())
}

/// The field of an inode that says how long its extended attributes are; the kernel looks for the content behind them.
fn xattr_count(bytes: usize) -> io::Result<u16> {
    let Some(listed_bytes) = bytes.checked_sub(XATTR_HEADER_BYTES) else { return Ok(0) };
    u16::try_from(1 + listed_bytes / 4)
        .map_err(|_| io::Error::other("the extended attributes of an inode are longer than the format has room for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset_bytes: u64, length_bytes: u64) -> Piece {
        Piece { offset_bytes, length_bytes, place: (1, 7) }
    }

    #[test]
    fn chunks_are_as_large_as_pieces_allow() {
        assert_eq!(chunk_bits(1, &[piece(0, 1)]), 9);
        assert_eq!(chunk_bits(20_000, &[piece(0, 20_000)]), 15);
        assert_eq!(chunk_bits(1 << 20, &[piece(0, 4096), piece(4096, (1 << 20) - 4096)]), 12);
        assert_eq!(chunk_bits(1 << 20, &[piece(65536, 65536)]), 16);
        assert_eq!(chunk_bits(1 << 20, &[]), 20);
    }

    #[test]
    fn attributes_without_a_place_are_counted() {
        let of = |name: &str| (name.as_bytes().to_vec(), b"value".to_vec());
        let (bytes, left_out) = encode_xattrs(&[of("user.a"), of("odd.b"), of("system.posix_acl_access")]);
        assert_eq!((bytes.len(), left_out), (12 + 12 + 12, 1));
        assert_eq!(bytes[12..17], [1, 1, 5, 0, b'a']);
        assert_eq!(bytes[24..28], [0, 2, 5, 0]);
        assert_eq!(xattr_count(bytes.len()).unwrap(), 7);
        // What Linux would not show, although the format could have it.
        let hidden = ["lustre.foo", "user.", "system.posix_acl_accessible"].map(of);
        assert_eq!(encode_xattrs(&hidden), (Vec::new(), 3));
        assert_eq!(encode_xattrs(&[]).0.len(), 0);
        assert_eq!(xattr_count(0).unwrap(), 0);
    }

    #[test]
    fn attributes_that_are_too_long_together_are_counted() {
        let of = |name: &str, length: usize| (name.as_bytes().to_vec(), vec![b'A'; length]);
        // With its head and name each has 60,008 bytes: four, and the small one behind the fifth, have room.
        let long = ["user.1", "user.2", "user.3", "user.4", "user.5"].map(|name| of(name, 60_000));
        let (bytes, left_out) = encode_xattrs(&[&long[..], &[of("user.6", 3)]].concat());
        assert_eq!((bytes.len(), left_out), (12 + 4 * 60_008 + 8, 1));
        assert_eq!(bytes[bytes.len() - 8..], [1, 1, 3, 0, b'6', b'A', b'A', b'A']);
        assert_eq!(12 + 4 * (usize::from(xattr_count(bytes.len()).unwrap()) - 1), bytes.len());
        // To the last byte, and one more.
        for (last, expected) in [(65_511, (12 + 4 * 65_534, 0)), (65_512, (12 + 3 * 65_540, 1))] {
            let longest = ["user.1", "user.2", "user.3"].map(|name| of(name, 65_535));
            let (bytes, left_out) = encode_xattrs(&[&longest[..], &[of("user.4", last)]].concat());
            assert_eq!((bytes.len(), left_out), expected);
        }
        assert_eq!(xattr_count(12 + 4 * 65_534).unwrap(), u16::MAX);
        assert!(xattr_count(12 + 4 * 65_535).is_err() && xattr_count(12 + 4 * 75_010).is_err());
    }
}
