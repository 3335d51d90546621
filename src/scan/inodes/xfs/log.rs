//! The log: changes that are committed but not written back, replayed in memory.
//!
//! While a file system is mounted, its log holds what `syncfs` made durable; inodes and blocks are written back later.
//! From the last record that still matters (the tail, which the newest record names) to the newest, transactions are
//! assembled and applied in order: changed pieces of blocks replace the bytes read from the device, changed inodes are
//! merged. A mount does the same after a crash, but here nothing is written, and intents, which only concern free
//! space, are ignored.
//!
//! The log is a ring of sectors, each of which begins with the number of the cycle in which it was written; records
//! have a checksum.

use std::io;

use super::changes::Changes;
use super::superblock::Superblock;
use super::transactions::Transactions;
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::{BigEndian, Record as _};
use crate::scan::inodes::medium::Medium;

const SECTOR: usize = 512;
const MAGIC: u32 = 0xfeed_babe;
/// Sectors whose cycle numbers fit into one header.
const HEADER_SECTORS: usize = 64;
const CHECKSUM: usize = 32;
/// The original first bytes of sectors: their offset in the first header and in the others, and their size.
const TURNS: usize = 44;
const MORE_TURNS: usize = 4;
const TURNS_BYTES: usize = 4 * HEADER_SECTORS;
/// Little-endian numbers in items.
const LITTLE_ENDIAN: u32 = 1;
/// Flag of the operation that is the last before a file system is unmounted.
const UNMOUNT: u8 = 0x20;
/// Header bytes covered by the checksum.
const HEADER_BYTES: usize = 328;
const MORE_HEADER_BYTES: usize = 260;
/// Longest record: 256 KiB, plus padding to the stripes of a device.
const MOST_RECORD_BYTES: usize = 1 << 20;
/// Sectors before the end of the log that are searched for the newest record.
const MOST_BACK: u64 = 8 * MOST_RECORD_BYTES as u64 / SECTOR as u64;
/// A larger log is not replayed, since its changes have to fit in memory.
pub(super) const MOST_BYTES: u64 = 128 << 20;
/// The log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The changes in it that were not written back.
    pub(super) changes: Changes,
    /// End of the newest record: cycle and sector.
    head: u64,
}

/// The sectors of a log.
struct Ring<'m, M> {
    medium: &'m M,
    start: u64,
    sectors: u64,
}

impl<M: Medium> Ring<'_, M> {
    /// Reads sectors, wrapping around at the end.
    fn read(&self, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        let sector = sector % self.sectors;
        let before = ((self.sectors - sector) * SECTOR as u64).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at_mut(before);
        self.medium.read_at(first, self.start + sector * SECTOR as u64)?;
        if rest.is_empty() { Ok(()) } else { self.medium.read_at(rest, self.start) }
    }

    /// The cycle in which a sector was written.
    fn turn(&self, sector: u64) -> io::Result<u32> {
        let mut bytes = [0; 8];
        self.read_part(sector, &mut bytes)?;
        Ok(turn_of(&bytes))
    }

    fn read_part(&self, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.medium.read_at(bytes, self.start + sector % self.sectors * SECTOR as u64)
    }

    /// The first sector that was not written in the newest cycle, and that cycle.
    fn head(&self) -> io::Result<(u64, u32)> {
        let newest = self.turn(0)?;
        let (mut low, mut high) = (0, self.sectors);
        // Sectors before the head have the newest cycle, those after it the previous one.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.turn(middle)? == newest { low = middle } else { high = middle }
        }
        Ok((high, newest))
    }
}

fn turn_of(sector: &[u8; 8]) -> u32 {
    let first = sector.u32::<0>();
    if first == MAGIC { sector.u32::<4>() } else { first }
}

/// A record of the log.
struct Record {
    /// Its length, including its headers.
    sectors: u64,
    tail: u64,
    operations: u32,
    data: Vec<u8>,
}

impl Log {
    /// Reads the log and its changes.
    ///
    /// # Errors
    /// If it is damaged, or its changes do not fit in memory.
    pub(super) fn read(medium: &impl Medium, superblock: &Superblock, checked: bool) -> io::Result<Log> {
        let start = superblock.log.ok_or_else(|| damaged("the log is on another device"))?;
        let blocks = superblock.log_blocks.into();
        let start = superblock.place_of(start, blocks).ok_or_else(|| damaged("the log is outside the file system"))?;
        let sectors = blocks * u64::from(superblock.block_bytes) / SECTOR as u64;
        if sectors < HEADER_SECTORS as u64 {
            return Err(damaged("the log is too short"));
        }
        let ring = Ring { medium, start, sectors };
        let (head, turn) = ring.head()?;
        let newest = newest_record(&ring, superblock, head, turn, checked)?;
        let mut log = Log { head: u64::from(turn) << 32 | head, ..Log::default() };
        let Some((at, record)) = newest else { return Ok(log) };
        let tail = record.tail & u64::from(u32::MAX);
        if tail >= sectors {
            return Err(damaged("the newest record of the log is damaged"));
        }
        let length = (head + sectors - tail) % sectors;
        if length * SECTOR as u64 > MOST_BYTES {
            return Err(damaged("the log has more changes than fit in memory"));
        }
        let unmounted = record.operations == 1 && record.data.get(9).is_some_and(|flags| flags & UNMOUNT != 0);
        if unmounted && (at + record.sectors) % sectors == head % sectors {
            return Ok(log);
        }
        let mut transactions = Transactions::default();
        let mut sector = tail;
        let mut done = 0;
        while done < length {
            let record = read_record(&ring, superblock, sector, checked)?;
            transactions.take(&record.data, record.operations, &mut log.changes)?;
            done += record.sectors;
            sector = (sector + record.sectors) % sectors;
        }
        if done != length {
            return Err(damaged("the newest record of the log is incomplete"));
        }
        Ok(log)
    }

    /// Whether it has the same inodes as `before`.
    pub(super) fn has_same_inodes(&self, before: &Log) -> bool {
        self.head == before.head || self.changes.has_same_inodes(&before.changes)
    }
}

/// The newest record, which ends before `head`; `None` if the log was never written.
fn newest_record(
    ring: &Ring<'_, impl Medium>,
    superblock: &Superblock,
    head: u64,
    turn: u32,
    checked: bool,
) -> io::Result<Option<(u64, Record)>> {
    for back in 1..=MOST_BACK.min(ring.sectors) {
        let sector = (head + ring.sectors - back) % ring.sectors;
        let mut start = [0; 8];
        ring.read_part(sector, &mut start)?;
        if start.u32::<0>() != MAGIC {
            continue;
        }
        let written = start.u32::<4>();
        if written != turn && written.wrapping_add(1) != turn {
            break;
        }
        let record = read_record(ring, superblock, sector, checked)?;
        if record.sectors > back {
            return Err(damaged("the newest record of the log is incomplete"));
        }
        return Ok(Some((sector, record)));
    }
    if turn == 0 { Ok(None) } else { Err(damaged("the newest record of the log was not found")) }
}

fn read_record(
    ring: &Ring<'_, impl Medium>,
    superblock: &Superblock,
    sector: u64,
    checked: bool,
) -> io::Result<Record> {
    let wrong = || damaged("a record of the log is damaged");
    let mut header = [0; SECTOR];
    ring.read(sector, &mut header)?;
    let length = header.u32::<12>() as usize;
    if header.u32::<0>() != MAGIC || length > MOST_RECORD_BYTES {
        return Err(wrong());
    }
    if header.u32::<300>() != LITTLE_ENDIAN {
        return Err(damaged("the log was written by another type of machine"));
    }
    if *header.field::<304, 16>() != superblock.user_identifier {
        return Err(damaged("the log belongs to another file system"));
    }
    // One header per 32 KiB of the largest possible record.
    let most = header.u32::<320>() as usize;
    let version2 = header.u32::<8>() & 2 != 0;
    let headers = if version2 { most.div_ceil(HEADER_SECTORS * SECTOR).clamp(1, 32) } else { 1 };
    let mut more = vec![0; (headers - 1) * SECTOR];
    ring.read(sector + 1, &mut more)?;
    let more = more.as_chunks::<SECTOR>().0;
    let count = length.div_ceil(SECTOR);
    let mut data = vec![0; count * SECTOR];
    ring.read(sector + headers as u64, &mut data)?;
    let stored = u32::from_le_bytes(*header.field::<CHECKSUM, 4>());
    if checked && stored != 0 {
        let crc = crc32c(crc32c(!0, &header[..CHECKSUM]), &[0; 4]);
        let crc = crc32c(crc, &header[CHECKSUM + 4..HEADER_BYTES]);
        let crc = more.iter().fold(crc, |crc, more| crc32c(crc, &more[..MORE_HEADER_BYTES]));
        if !crc32c(crc, data.get(..length).ok_or_else(wrong)?) != stored {
            return Err(wrong());
        }
    }
    // Restores the first four bytes of each sector from the headers; the cycle number replaced them.
    let turns = more.iter().map(|more| more.field::<MORE_TURNS, TURNS_BYTES>());
    let mut turns =
        std::iter::once(header.field::<TURNS, TURNS_BYTES>()).chain(turns).flat_map(|turns| turns.as_chunks().0);
    for sector in data.as_chunks_mut::<SECTOR>().0 {
        let first: &[u8; 4] = turns.next().ok_or_else(wrong)?;
        sector[..4].copy_from_slice(first);
    }
    data.truncate(length);
    let sectors = (headers + count) as u64;
    Ok(Record { sectors, tail: header.u64::<24>(), operations: header.u32::<40>(), data })
}
