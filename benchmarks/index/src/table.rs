//! The lower bound: a sorted table that is written once. Blocks of about 4 KiB with shared prefixes omitted, a checksum
//! each, and the shortened first keys of the blocks in memory. No updates, no recovery: what a sealed part of an index
//! could be.

use crate::keys::VALUE;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const BLOCK: usize = 4096;

pub struct Builder {
    file: BufWriter<File>,
    block: Vec<u8>,
    last: Vec<u8>,
    index: Vec<u8>,
    offset: u64,
}

fn varint(mut n: usize, out: &mut Vec<u8>) {
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> usize {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        n |= usize::from(byte & 127) << shift;
        if byte < 128 {
            return n;
        }
        shift += 7;
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

impl Builder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        Ok(Self { file, block: Vec::new(), last: Vec::new(), index: Vec::new(), offset: 0 })
    }

    /// Keys must arrive in order.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(self.last.is_empty() || *key > *self.last, "keys in order");
        let same = shared(&self.last, key);
        if self.block.len() + key.len() - same + VALUE + 2 > BLOCK - 8 {
            self.flush()?;
        }
        if self.block.is_empty() {
            // The shortest key that separates this block from the previous one.
            let separator = &key[..key.len().min(same + 1)];
            varint(separator.len(), &mut self.index);
            self.index.extend_from_slice(separator);
            self.index.extend_from_slice(&self.offset.to_le_bytes());
        }
        let same = if self.block.is_empty() { 0 } else { same };
        varint(same, &mut self.block);
        varint(key.len() - same, &mut self.block);
        self.block.extend_from_slice(&key[same..]);
        self.block.extend_from_slice(value);
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&xxh3_64(&self.block).to_le_bytes())?;
        self.file.write_all(&self.block)?;
        self.offset += 8 + self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.write_all(&self.index)?;
        self.file.write_all(&xxh3_64(&self.index).to_le_bytes())?;
        self.file.write_all(&self.offset.to_le_bytes())?;
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

pub struct Table {
    file: File,
    keys: Vec<u8>,
    ends: Vec<u32>,
    offsets: Vec<u64>,
}

impl Table {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut tail = [0; 16];
        file.read_exact_at(&mut tail, length - 16)?;
        let start = u64::from_le_bytes(tail[8..].try_into().expect("8 bytes"));
        let mut index = vec![0; (length - 16 - start) as usize];
        file.read_exact_at(&mut index, start)?;
        assert_eq!(xxh3_64(&index).to_le_bytes(), tail[..8], "checksum of the index");
        let (mut keys, mut ends, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while at < index.len() {
            let size = read_varint(&index, &mut at);
            keys.extend_from_slice(&index[at..at + size]);
            ends.push(keys.len() as u32);
            at += size;
            offsets.push(u64::from_le_bytes(index[at..at + 8].try_into().expect("8 bytes")));
            at += 8;
        }
        offsets.push(start);
        Ok(Self { file, keys, ends, offsets })
    }

    fn first(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block - 1] as usize };
        &self.keys[start..self.ends[block] as usize]
    }

    fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.first(middle) <= key { low = middle } else { high = middle }
        }
        low
    }

    fn read(&self, first: usize, blocks: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (start, end) = (self.offsets[first], self.offsets[first + blocks]);
        buffer.resize((end - start) as usize, 0);
        self.file.read_exact_at(buffer, start)
    }

    /// Calls `visit` for each entry of a block, until it returns false.
    fn each(block: &[u8], key: &mut Vec<u8>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> bool {
        let (sum, block) = block.split_at(8);
        assert_eq!(xxh3_64(block).to_le_bytes(), *sum, "checksum of a block");
        let mut at = 0;
        while at < block.len() {
            let same = read_varint(block, &mut at);
            let rest = read_varint(block, &mut at);
            key.truncate(same);
            key.extend_from_slice(&block[at..at + rest]);
            at += rest + VALUE;
            if !visit(key, &block[at - VALUE..at]) {
                return false;
            }
        }
        true
    }

    pub fn get(
        &self,
        wanted: &[u8],
        out: &mut [u8; VALUE],
        buffer: &mut Vec<u8>,
        key: &mut Vec<u8>,
    ) -> io::Result<bool> {
        self.read(self.find(wanted), 1, buffer)?;
        let mut found = false;
        Self::each(buffer, key, &mut |key, value| {
            if key == wanted {
                out.copy_from_slice(value);
                found = true;
            }
            key < wanted
        });
        Ok(found)
    }

    pub fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        let (mut block, mut buffer, mut key) = (self.find(prefix), Vec::new(), Vec::new());
        // Short listings read block by block, long ones up to 1 MiB per read.
        let mut ahead = 1;
        while block < self.ends.len() {
            let many = ahead.min(self.ends.len() - block);
            self.read(block, many, &mut buffer)?;
            for b in block..block + many {
                let range = (self.offsets[b] - self.offsets[block]) as usize
                    ..(self.offsets[b + 1] - self.offsets[block]) as usize;
                let on = Self::each(&buffer[range], &mut key, &mut |key, value| {
                    if key.starts_with(prefix) {
                        visit(key, value);
                        true
                    } else {
                        key < prefix
                    }
                });
                if !on {
                    return Ok(());
                }
            }
            block += many;
            ahead = (ahead * 2).min(256);
        }
        Ok(())
    }
}
