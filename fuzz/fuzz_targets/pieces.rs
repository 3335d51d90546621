//! A large image from a few bytes: its number of sectors, then sector numbers, each with its contents. The others are
//! zero.

use std::collections::HashMap;
use std::io;

use granulo::testing::scan::inodes::medium::Medium;

const SECTOR_BYTES: usize = 512;

pub struct Pieces<'a> {
    length_bytes: u64,
    sectors: HashMap<u64, &'a [u8]>,
}

impl<'a> Pieces<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Pieces<'a>> {
        let number = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().unwrap()));
        let (length, rest) = bytes.split_at_checked(4)?;
        let sectors = rest.chunks_exact(4 + SECTOR_BYTES).map(|piece| (number(&piece[..4]), &piece[4..]));
        Some(Pieces { length_bytes: number(length) * SECTOR_BYTES as u64, sectors: sectors.collect() })
    }
}

impl Medium for Pieces<'_> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.length_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.fill(0);
        let mut at = offset;
        while at < end {
            let (sector, within) = (at / SECTOR_BYTES as u64, (at % SECTOR_BYTES as u64) as usize);
            let length = (SECTOR_BYTES - within).min((end - at) as usize);
            if let Some(piece) = self.sectors.get(&sector) {
                bytes[(at - offset) as usize..][..length].copy_from_slice(&piece[within..within + length]);
            }
            at += length as u64;
        }
        Ok(())
    }

    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }
}
