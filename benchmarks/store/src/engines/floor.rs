//! The lower bound: no store that reads through the page cache can do with less.
//!
//! One log without headers, preallocated, written in pieces of 1 MiB whose write-back starts immediately; and one
//! index, written and read into memory as a whole: key, position, length, and with `checksum` the XXH3 of the content,
//! which every read verifies. One `pread` per read; a load reads the log in pieces of a few MiB; a list of keys is read
//! with io_uring and direct I/O in log order. The variant with the checksum is the fair one. What it cannot do: replace
//! or delete anything crash-safely, share its index among processes, have an index larger than memory.
//!
//! Deleting appends a tombstone for each object to the index and, because nothing is live any more, truncates the log
//! to zero.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use io_uring::{IoUring, opcode, types};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use twox_hash::XxHash3_64 as Xxh3;

const WRITE_BYTES: usize = 1 << 20;
const FLUSH_BYTES: u64 = 16 << 20;
const LOAD_BYTES: usize = 4 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Fields of an entry before its key: position, length, checksum, length of the key.
const HEAD_BYTES: usize = 8 + 8 + 8 + 2;
const TOMBSTONE: u64 = u64::MAX;

pub struct Floor {
    pub checksum: bool,
}

impl Engine for Floor {
    fn create(&self, place: &Path, _objects: u64, total_bytes: u64) -> Result<Box<dyn Writer>> {
        let file = File::create(place.join("log"))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, total_bytes.max(1))?;
        let log = BufWriter::with_capacity(WRITE_BYTES, file);
        let index = File::create(place.join("index"))?;
        let directory = File::open(place)?;
        Ok(Box::new(Logging { log, index, directory, entries: Vec::new(), at: 0, flushed: 0, checksum: self.checksum }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Log::open(place, self.checksum)?))
    }

    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let log = Log::open(place, false)?;
        let mut index =
            BufWriter::with_capacity(WRITE_BYTES, OpenOptions::new().append(true).open(place.join("index"))?);
        let mut entries = Vec::new();
        for key in keys {
            log.find(key)?;
            push_entry(&mut entries, key, TOMBSTONE, 0, 0);
        }
        index.write_all(&entries)?;
        index.into_inner()?.sync_data()?;
        let file = OpenOptions::new().write(true).open(place.join("log"))?;
        file.set_len(0)?;
        file.sync_all()?;
        Ok(true)
    }

    fn index_bytes(&self, place: &Path) -> Result<Option<u64>> {
        Ok(Some(std::fs::metadata(place.join("index"))?.len()))
    }
}

struct Logging {
    log: BufWriter<File>,
    index: File,
    directory: File,
    entries: Vec<u8>,
    at: u64,
    flushed: u64,
    checksum: bool,
}

fn push_entry(entries: &mut Vec<u8>, key: &str, place: u64, length: u64, checksum: u64) {
    for number in [place, length, checksum] {
        entries.extend_from_slice(&number.to_le_bytes());
    }
    entries.extend_from_slice(&(key.len() as u16).to_le_bytes());
    entries.extend_from_slice(key.as_bytes());
}

impl Writer for Logging {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        let checksum = if self.checksum { Xxh3::oneshot(content) } else { 0 };
        push_entry(&mut self.entries, key, self.at, content.len() as u64, checksum);
        self.log.write_all(content)?;
        self.at += content.len() as u64;
        let written = self.at - self.log.buffer().len() as u64;
        if written - self.flushed >= FLUSH_BYTES {
            // SAFETY: a system call with numbers only. It starts write-back and waits for nothing that matters here.
            unsafe {
                let length = (written - self.flushed) as i64;
                libc::sync_file_range(
                    self.log.get_ref().as_raw_fd(),
                    self.flushed as i64,
                    length,
                    libc::SYNC_FILE_RANGE_WRITE,
                );
            }
            self.flushed = written;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let log = self.log.into_inner()?;
        log.set_len(self.at)?;
        log.sync_all()?;
        (&self.index).write_all(&self.entries)?;
        self.index.sync_all()?;
        self.directory.sync_all()?;
        Ok(())
    }
}

/// Keys are already hashed.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are keys")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

struct Log {
    file: File,
    direct: File,
    entries: Vec<u8>,
    /// Position of a key's entry, by the hash of the key.
    places: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    checksum: bool,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a [u8],
    place: u64,
    length: usize,
    checksum: u64,
}

impl Log {
    fn open(place: &Path, checksum: bool) -> Result<Self> {
        let file = File::open(place.join("log"))?;
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(place.join("log"))?;
        let entries = std::fs::read(place.join("index"))?;
        let mut log = Self { file, direct, entries, places: HashMap::default(), checksum };
        let mut places: HashMap<u64, u32, _> =
            HashMap::with_capacity_and_hasher(log.entries.len() / 40, Default::default());
        let (mut at, mut dead) = (0, false);
        while at < log.entries.len() {
            let entry = log.entry(at);
            let hash = Xxh3::oneshot(entry.key);
            if entry.place == TOMBSTONE {
                places.remove(&hash);
                dead = true;
            } else if places.insert(hash, at as u32).is_some() {
                return Err("two keys of one hash".into());
            }
            at += HEAD_BYTES + entry.key.len();
        }
        if dead && !places.is_empty() {
            return Err("the floor deletes everything or nothing".into());
        }
        if dead {
            log.entries.clear();
        }
        log.places = places;
        Ok(log)
    }

    fn entry(&self, at: usize) -> Entry<'_> {
        let number =
            |from: usize| u64::from_le_bytes(self.entries[at + from..at + from + 8].try_into().expect("eight bytes"));
        let key_length = usize::from(u16::from_le_bytes([self.entries[at + 24], self.entries[at + 25]]));
        let key = &self.entries[at + HEAD_BYTES..at + HEAD_BYTES + key_length];
        Entry { key, place: number(0), length: number(8) as usize, checksum: number(16) }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let entry = (at < self.entries.len()).then(|| self.entry(at))?;
            at += HEAD_BYTES + entry.key.len();
            Some(entry)
        })
    }

    fn find(&self, key: &str) -> Result<Entry<'_>> {
        let at = self.places.get(&Xxh3::oneshot(key.as_bytes())).ok_or_else(|| missing(key))?;
        let entry = self.entry(*at as usize);
        if entry.key == key.as_bytes() { Ok(entry) } else { Err(missing(key)) }
    }

    fn verify(&self, entry: &Entry<'_>, content: &[u8]) -> Result<()> {
        match self.checksum && Xxh3::oneshot(content) != entry.checksum {
            true => Err("wrong checksum".into()),
            false => Ok(()),
        }
    }
}

impl Reader for Log {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Preading { log: self, buffer: Vec::new() }))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::Sequential)?;
        let mut buffer = vec![0; LOAD_BYTES];
        let entries: Vec<Entry<'_>> = self.entries().collect();
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let mut length = first.length;
            let alike = rest[1..].iter().take_while(|entry| {
                let fits = length + entry.length <= LOAD_BYTES;
                length += if fits { entry.length } else { 0 };
                fits
            });
            let (group, after) = rest.split_at(1 + alike.count());
            rest = after;
            if first.length <= LOAD_BYTES {
                self.file.read_exact_at(&mut buffer[..length], first.place)?;
                for entry in group {
                    let content = &buffer[(entry.place - first.place) as usize..][..entry.length];
                    self.verify(entry, content)?;
                    visit(Piece { key: entry.key, size: entry.length, start: 0, bytes: content });
                }
                continue;
            }
            let mut hash = Xxh3::new();
            for start in (0..first.length).step_by(LOAD_BYTES) {
                let piece = &mut buffer[..LOAD_BYTES.min(first.length - start)];
                self.file.read_exact_at(piece, first.place + start as u64)?;
                if self.checksum {
                    hash.write(piece);
                }
                visit(Piece { key: first.key, size: first.length, start, bytes: piece });
            }
            if self.checksum && hash.finish() != first.checksum {
                return Err("wrong checksum".into());
            }
        }
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.entries().for_each(|entry| visit(entry.key));
        Ok(())
    }

    fn read_many(&self, keys: &[&str], depth: usize, visit: &(dyn Fn(&[u8]) + Sync)) -> Result<bool> {
        let mut wanted = keys.iter().map(|key| self.find(key)).collect::<Result<Vec<_>>>()?;
        wanted.sort_by_key(|entry| entry.place);
        Queue::new(self, depth)?.read_all(&wanted, visit)?;
        Ok(true)
    }
}

struct Preading<'a> {
    log: &'a Log,
    buffer: Vec<u8>,
}

impl Session for Preading<'_> {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let entry = self.log.find(key)?;
        if self.buffer.len() < entry.length {
            self.buffer.resize(entry.length.next_power_of_two(), 0);
        }
        let content = &mut self.buffer[..entry.length];
        self.log.file.read_exact_at(content, entry.place)?;
        self.log.verify(&entry, content)?;
        visit(content);
        Ok(())
    }
}

/// Direct reads, `depth` in flight.
struct Queue<'a> {
    ring: IoUring,
    log: &'a Log,
    slots: Vec<Slot>,
    /// Reads that the kernel has not completed.
    open: usize,
}

/// The buffer of one read: whole blocks, aligned to a block.
#[derive(Default)]
struct Slot {
    buffer: Vec<u8>,
    begin: usize,
    entry: usize,
}

impl<'a> Queue<'a> {
    fn new(log: &'a Log, depth: usize) -> Result<Self> {
        let slots = (0..depth).map(|_| Slot::default()).collect();
        Ok(Self { ring: IoUring::new(depth as u32)?, log, slots, open: 0 })
    }

    fn read_all(&mut self, wanted: &[Entry<'_>], visit: &(dyn Fn(&[u8]) + Sync)) -> Result<()> {
        let mut next = 0;
        let mut free: Vec<usize> = (0..self.slots.len()).collect();
        while next < wanted.len() || self.open > 0 {
            while let (Some(&slot), true) = (free.last(), next < wanted.len()) {
                if wanted[next].length == 0 {
                    visit(&[]);
                } else {
                    free.pop();
                    self.start(slot, next, &wanted[next])?;
                }
                next += 1;
            }
            if self.open == 0 {
                break;
            }
            self.ring.submit_and_wait(1)?;
            let done: Vec<(usize, i32)> =
                self.ring.completion().map(|done| (done.user_data() as usize, done.result())).collect();
            self.open -= done.len();
            for (number, result) in done {
                let slot = &self.slots[number];
                let entry = &wanted[slot.entry];
                let skip = (entry.place % BLOCK_BYTES) as usize;
                if result < 0 {
                    return Err(std::io::Error::from_raw_os_error(-result).into());
                }
                if (result as usize) < skip + entry.length {
                    return Err("a short read".into());
                }
                let content = &slot.buffer[slot.begin + skip..][..entry.length];
                self.log.verify(entry, content)?;
                visit(content);
                free.push(number);
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, index: usize, entry: &Entry<'_>) -> Result<()> {
        let from = entry.place - entry.place % BLOCK_BYTES;
        let length = (entry.place + entry.length as u64).next_multiple_of(BLOCK_BYTES) - from;
        let slot = &mut self.slots[number];
        slot.entry = index;
        if slot.buffer.len() < (length + BLOCK_BYTES) as usize {
            slot.buffer = vec![0; ((length + BLOCK_BYTES) as usize).next_power_of_two()];
            slot.begin = slot.buffer.as_ptr().align_offset(BLOCK_BYTES as usize);
        }
        let target = slot.buffer[slot.begin..][..length as usize].as_mut_ptr();
        let read = opcode::Read::new(types::Fd(self.log.direct.as_raw_fd()), target, length as u32).offset(from);
        // SAFETY: the buffer lives in its slot, and is neither moved nor used before the completion with this number;
        // `drop` waits for those that an error left in flight.
        unsafe { self.ring.submission().push(&read.build().user_data(number as u64))? };
        self.open += 1;
        Ok(())
    }
}

impl Drop for Queue<'_> {
    /// The kernel writes into the buffers until the last read is complete.
    fn drop(&mut self) {
        while self.open > 0 {
            if self.ring.submit_and_wait(1).is_err() {
                std::process::abort();
            }
            self.open -= self.ring.completion().count();
        }
    }
}
