//! Answers to the kernel. Each is one buffer that begins with room for its header.

use std::ops::Range;
use std::time::Duration;

use super::{MAJOR, MINOR};
use crate::store::Time;

/// Length of the header of each answer.
const HEADER_BYTES: usize = 16;
/// Bytes of a directory entry before its name.
const ENTRY_BYTES: usize = 24;
/// Bytes of the attributes before that.
const NODE_BYTES: usize = 128;

/// How much programs are advised to read and write at once.
const PREFERRED_BYTES: u32 = 4096;

/// What a program sees of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fuse) struct Shown {
    pub(in crate::fuse) node: u64,
    pub(in crate::fuse) size_bytes: u64,
    pub(in crate::fuse) allocated_bytes: u64,
    pub(in crate::fuse) atime: Time,
    pub(in crate::fuse) mtime: Time,
    pub(in crate::fuse) ctime: Time,
    pub(in crate::fuse) btime: Option<Time>,
    pub(in crate::fuse) mode: u32,
    /// Without a name 0; that of a directory grows with its subdirectories.
    pub(in crate::fuse) link_count: u32,
    pub(in crate::fuse) uid: u32,
    pub(in crate::fuse) gid: u32,
    pub(in crate::fuse) device: (u32, u32),
}

/// Room and objects of the file system.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::fuse) struct Room {
    pub(in crate::fuse) total_bytes: u64,
    /// Not in use, also by what only root may use.
    pub(in crate::fuse) free_bytes: u64,
    pub(in crate::fuse) available_bytes: u64,
    pub(in crate::fuse) objects: u64,
}

/// Answer to the first request.
#[derive(Debug, Clone, Copy)]
pub(in crate::fuse) struct Agreed {
    pub(in crate::fuse) max_readahead: u32,
    pub(in crate::fuse) capabilities: u64,
    pub(in crate::fuse) max_background: u16,
    pub(in crate::fuse) max_write: u32,
}

/// An answer being built.
#[derive(Debug)]
pub(in crate::fuse) struct Reply(Vec<u8>);

impl Reply {
    /// Without a body.
    pub(in crate::fuse) fn empty() -> Reply {
        Reply::with_room(0)
    }

    fn with_room(bytes: usize) -> Reply {
        let mut buffer = Vec::with_capacity(HEADER_BYTES + bytes);
        buffer.resize(HEADER_BYTES, 0);
        Reply(buffer)
    }

    /// With these bytes.
    pub(in crate::fuse) fn bytes(bytes: &[u8]) -> Reply {
        let mut reply = Reply::with_room(bytes.len());
        reply.0.extend_from_slice(bytes);
        reply
    }

    /// With as many bytes as `fill` says it has filled.
    pub(in crate::fuse) fn filled<E>(
        most_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Reply, E> {
        let mut buffer = vec![0; HEADER_BYTES + most_bytes];
        let filled = fill(&mut buffer[HEADER_BYTES..])?;
        buffer.truncate(HEADER_BYTES + filled);
        Ok(Reply(buffer))
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn zeroes(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    pub(in crate::fuse) fn agreed(agreed: &Agreed, page_bytes: u32) -> Reply {
        let mut reply = Reply::with_room(64);
        reply.u32(MAJOR);
        reply.u32(MINOR);
        reply.u32(agreed.max_readahead);
        reply.u32(agreed.capabilities as u32);
        reply.u16(agreed.max_background);
        reply.u16(agreed.max_background / 4 * 3);
        reply.u32(agreed.max_write);
        reply.u32(1);
        reply.u16((agreed.max_write / page_bytes) as u16);
        reply.u16(0);
        reply.u32((agreed.capabilities >> 32) as u32);
        reply.zeroes(28);
        reply
    }

    /// An entry with its node, valid so long.
    pub(in crate::fuse) fn entry(shown: &Shown, valid: Duration) -> Reply {
        let mut reply = Reply::with_room(NODE_BYTES);
        reply.push_node(shown, valid);
        reply
    }

    /// That there is no such entry, valid so long.
    pub(in crate::fuse) fn no_entry(valid: Duration) -> Reply {
        let mut reply = Reply::with_room(NODE_BYTES);
        reply.u64(0);
        reply.u64(0);
        reply.u64(valid.as_secs());
        reply.u64(0);
        reply.u32(valid.subsec_nanos());
        reply.zeroes(NODE_BYTES - 36);
        reply
    }

    /// A new file, which is open.
    pub(in crate::fuse) fn created(shown: &Shown, valid: Duration, flags: u32) -> Reply {
        let mut reply = Reply::entry(shown, valid);
        reply.push_opened(0, flags);
        reply
    }

    pub(in crate::fuse) fn opened(handle: u64, flags: u32) -> Reply {
        let mut reply = Reply::with_room(16);
        reply.push_opened(handle, flags);
        reply
    }

    pub(in crate::fuse) fn attributes(shown: &Shown, valid: Duration) -> Reply {
        let mut reply = Reply::with_room(104);
        reply.u64(valid.as_secs());
        reply.u32(valid.subsec_nanos());
        reply.u32(0);
        reply.push_attributes(shown);
        reply
    }

    /// Attributes with the birth time.
    pub(in crate::fuse) fn statx(shown: &Shown, valid: Duration) -> Reply {
        const BASIC: u32 = 0x7ff;
        const BIRTH: u32 = 0x800;
        let mut reply = Reply::with_room(288);
        reply.u64(valid.as_secs());
        reply.u32(valid.subsec_nanos());
        reply.zeroes(4 + 16);
        reply.u32(if shown.btime.is_some() { BASIC | BIRTH } else { BASIC });
        reply.u32(PREFERRED_BYTES);
        reply.u64(0);
        reply.u32(shown.link_count);
        reply.u32(shown.uid);
        reply.u32(shown.gid);
        reply.u16(shown.mode as u16);
        reply.u16(0);
        reply.u64(shown.node);
        reply.u64(shown.size_bytes);
        reply.u64(shown.allocated_bytes.div_ceil(512));
        reply.u64(0);
        for time in [shown.atime, shown.btime.unwrap_or_default(), shown.ctime, shown.mtime] {
            reply.u64(time.seconds as u64);
            reply.u32(time.nanoseconds);
            reply.u32(0);
        }
        reply.u32(shown.device.0);
        reply.u32(shown.device.1);
        reply.zeroes(8 + 112);
        reply
    }

    pub(in crate::fuse) fn written(bytes: usize) -> Reply {
        let mut reply = Reply::with_room(8);
        reply.u32(bytes as u32);
        reply.u32(0);
        reply
    }

    /// The length of something whose bytes were not asked for.
    pub(in crate::fuse) fn length(bytes: usize) -> Reply {
        Reply::written(bytes)
    }

    pub(in crate::fuse) fn offset(offset: u64) -> Reply {
        let mut reply = Reply::with_room(8);
        reply.u64(offset);
        reply
    }

    pub(in crate::fuse) fn room(room: &Room) -> Reply {
        const BLOCK_BYTES: u64 = 4096;
        /// As many objects as can be numbered.
        const MOST_OBJECTS: u64 = 1 << 48;
        let mut reply = Reply::with_room(80);
        reply.u64(room.total_bytes / BLOCK_BYTES);
        reply.u64(room.free_bytes / BLOCK_BYTES);
        reply.u64(room.available_bytes / BLOCK_BYTES);
        reply.u64(MOST_OBJECTS);
        reply.u64(MOST_OBJECTS - room.objects);
        reply.u32(BLOCK_BYTES as u32);
        reply.u32(super::LONGEST_NAME_BYTES as u32);
        reply.u32(BLOCK_BYTES as u32);
        reply.zeroes(4 + 24);
        reply
    }

    fn push_opened(&mut self, handle: u64, flags: u32) {
        self.u64(handle);
        self.u32(flags);
        self.u32(0);
    }

    fn push_node(&mut self, shown: &Shown, valid: Duration) {
        self.u64(shown.node);
        self.u64(0);
        self.u64(valid.as_secs());
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(valid.subsec_nanos());
        self.push_attributes(shown);
    }

    fn push_attributes(&mut self, shown: &Shown) {
        self.u64(shown.node);
        self.u64(shown.size_bytes);
        self.u64(shown.allocated_bytes.div_ceil(512));
        let times = [shown.atime, shown.mtime, shown.ctime];
        times.iter().for_each(|time| self.u64(time.seconds as u64));
        times.iter().for_each(|time| self.u32(time.nanoseconds));
        self.u32(shown.mode);
        self.u32(shown.link_count);
        self.u32(shown.uid);
        self.u32(shown.gid);
        self.u32(device_of(shown.device));
        self.u32(PREFERRED_BYTES);
        // No flags.
        self.u32(0);
    }

    /// The whole answer to a request.
    pub(in crate::fuse) fn finish(mut self, unique: u64) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..HEADER_BYTES].copy_from_slice(&unique.to_ne_bytes());
        self.0
    }
}

/// The answer that a request has failed.
pub(in crate::fuse) fn failed(unique: u64, errno: i32) -> [u8; HEADER_BYTES] {
    let mut reply = [0; HEADER_BYTES];
    reply[..4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
    reply[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    reply[8..].copy_from_slice(&unique.to_ne_bytes());
    reply
}

/// That what the kernel caches of a node's attributes and content is out of date.
pub(in crate::fuse) fn outdated(node: u64) -> Vec<u8> {
    // Without a length, all of it.
    outdated_range(node, &(0..0))
}

/// Tells the kernel that what it keeps of a range of a node's content is out of date; what programs have changed there
/// is written before.
pub(in crate::fuse) fn outdated_range(node: u64, range: &Range<u64>) -> Vec<u8> {
    const INVALIDATE_NODE: u32 = 2;
    let mut reply = Reply::with_room(24);
    reply.u64(node);
    reply.u64(range.start);
    reply.u64(range.end - range.start);
    let mut notice = reply.finish(0);
    notice[4..8].copy_from_slice(&INVALIDATE_NODE.to_ne_bytes());
    notice
}

/// A device number as the protocol has it.
fn device_of((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Major and minor number in a device number of the protocol.
pub(in crate::fuse) fn device_numbers(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// Directory entries for one answer, as many as fit.
#[derive(Debug)]
pub(in crate::fuse) struct Entries {
    reply: Reply,
    most_bytes: usize,
}

impl Entries {
    pub(in crate::fuse) fn new(most_bytes: usize) -> Entries {
        Entries { reply: Reply::with_room(most_bytes), most_bytes }
    }

    pub(in crate::fuse) fn is_empty(&self) -> bool {
        self.reply.0.len() == HEADER_BYTES
    }

    /// Whether an entry with a name of this length fits.
    pub(in crate::fuse) fn has_room(&self, name_bytes: usize, with_attributes: bool) -> bool {
        let length = if with_attributes { NODE_BYTES } else { 0 } + ENTRY_BYTES + name_bytes;
        self.reply.0.len() - HEADER_BYTES + length.next_multiple_of(8) <= self.most_bytes
    }

    /// Adds an entry that fits; a listing that continues at `next` continues behind it.
    pub(in crate::fuse) fn push(&mut self, name: &[u8], node: u64, mode: u32, next: u64) {
        self.reply.u64(node);
        self.reply.u64(next);
        self.reply.u32(name.len() as u32);
        self.reply.u32((mode & 0o170_000) >> 12);
        self.reply.0.extend_from_slice(name);
        let length = self.reply.0.len() - HEADER_BYTES;
        self.reply.zeroes(length.next_multiple_of(8) - length);
    }

    /// The same with attributes; without any, the kernel asks for them when it needs them.
    pub(in crate::fuse) fn push_with(
        &mut self,
        name: &[u8],
        (node, mode): (u64, u32),
        next: u64,
        shown: Option<(&Shown, Duration)>,
    ) {
        match shown {
            Some((shown, valid)) => self.reply.push_node(shown, valid),
            None => self.reply.zeroes(NODE_BYTES),
        }
        self.push(name, node, mode, next);
    }

    pub(in crate::fuse) fn finish(self) -> Reply {
        self.reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Shown {
        let time = Time { seconds: 1, nanoseconds: 2 };
        Shown {
            node: 7,
            size_bytes: 600,
            allocated_bytes: 600,
            atime: time,
            mtime: time,
            ctime: time,
            btime: Some(time),
            mode: 0o100_644,
            link_count: 1,
            uid: 0,
            gid: 0,
            device: (0, 0),
        }
    }

    #[test]
    fn answers_have_the_lengths_of_the_protocol() {
        let valid = Duration::from_secs(1);
        let lengths = [
            (Reply::entry(&shown(), valid), 128),
            (Reply::no_entry(valid), 128),
            (Reply::created(&shown(), valid, 0), 144),
            (Reply::attributes(&shown(), valid), 104),
            (Reply::statx(&shown(), valid), 288),
            (Reply::room(&Room::default()), 80),
            (Reply::opened(1, 0), 16),
            (
                Reply::agreed(&Agreed { max_readahead: 0, capabilities: 0, max_background: 1, max_write: 4096 }, 4096),
                64,
            ),
        ];
        for (reply, body_bytes) in lengths {
            let whole = reply.finish(9);
            assert_eq!(whole.len(), HEADER_BYTES + body_bytes);
            assert_eq!(whole[..4], (whole.len() as u32).to_ne_bytes());
            assert_eq!(whole[8..16], 9u64.to_ne_bytes());
        }
        assert_eq!(failed(3, 2)[4..8], (-2i32).to_ne_bytes());
        assert_eq!(outdated(3).len(), HEADER_BYTES + 24);
    }

    #[test]
    fn entries_are_padded_and_bounded() {
        let mut entries = Entries::new(64);
        assert!(entries.has_room(3, false) && !entries.has_room(3, true) && entries.is_empty());
        entries.push(b"abc", 7, 0o100_644, 1);
        assert!(!entries.is_empty());
        entries.push(b"d", 8, 0o040_755, 2);
        assert!(!entries.has_room(1, false));
        assert_eq!(entries.finish().finish(1).len(), HEADER_BYTES + 64);
        let mut entries = Entries::new(200);
        entries.push_with(b"abc", (7, 0o100_644), 1, Some((&shown(), Duration::ZERO)));
        assert_eq!(entries.finish().finish(1).len(), HEADER_BYTES + 160);
    }

    #[test]
    fn device_numbers_come_back() {
        for device in [(8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            assert_eq!(device_numbers(device_of(device)), device);
        }
    }
}
