//! Units that nothing names: left in extent files by writers that died, or by a punch that failed. They are found by what the file system
//! says is allocated, and told from the others by the descriptors of all large objects.
//!
//! Nothing is given back while anybody may be about to name it (a batch that is open), or may still read it (what was freed and waits for readers), or
//! when a descriptor cannot be read: then nobody knows what it names.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use super::pace::Pace;
use crate::access::gather::{Joining, Wanted, sort};
use crate::devices::device::Mode;
use crate::devices::extents;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::entry::Kind;
use crate::format::segment::number_of;
use crate::index::catalog::Freed;
use crate::layout::granulo::SECTOR_BYTES;

/// Files that are looked at in one pass over the index: half a megabyte of memory each.
const FILES: usize = 32;
/// Descriptors that are read at once.
const DESCRIPTORS: usize = 4096;
const JOINING: Joining = Joining { gap_bytes: 16 << 10, longest_bytes: 1 << 20 };
const THREADS: usize = 4;
/// What the file system may have allocated beside: its own map of the file, and blocks larger than 4 KiB.
const TOLERATED_BYTES: u64 = 1 << 20;

/// Sectors of an extent file that something names.
#[derive(Debug, Default)]
struct Named {
    bits: Vec<u64>,
}

impl Named {
    fn mark(&mut self, offset: u64, length: u64) {
        let (first, end) = (offset / SECTOR_BYTES, (offset + length).div_ceil(SECTOR_BYTES));
        let words = end.div_ceil(64) as usize;
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
        for sector in first..end {
            self.bits[(sector / 64) as usize] |= 1 << (sector % 64);
        }
    }

    /// Runs of bytes up to `size_bytes` that nothing names.
    fn unnamed(&self, size_bytes: u64) -> Vec<(u64, u64)> {
        let is_named =
            |sector: u64| self.bits.get((sector / 64) as usize).is_some_and(|word| word >> (sector % 64) & 1 == 1);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for sector in (0..size_bytes.div_ceil(SECTOR_BYTES)).filter(|&sector| !is_named(sector)) {
            let at = sector * SECTOR_BYTES;
            match runs.last_mut() {
                Some((offset, length)) if *offset + *length == at => *length += SECTOR_BYTES,
                _ => runs.push((at, SECTOR_BYTES)),
            }
        }
        runs
    }
}

impl Engine {
    /// Extent files on devices that may be written, with the bytes that are allocated beyond what is named or waits for readers.
    fn surpluses(&self) -> Vec<((u16, u32), u64)> {
        let view = self.view().clone();
        let mut waiting: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        for (_, freed) in view.state.freed.iter() {
            if let Freed::Extent { device, file, length, .. } = *freed {
                *waiting.entry((device, file)).or_default() += length;
            }
        }
        let mut found = Vec::new();
        for slot in self.devices.slots().iter().filter(|slot| slot.is_writable()) {
            for (name, _) in slot.device.list(extents::DIRECTORY).unwrap_or_default() {
                let Some(file) = number_of(&name).and_then(|file| u32::try_from(file).ok()) else { continue };
                let place = (slot.entry.number, file);
                let Ok(allocated) =
                    slot.device.open(&extents::path(file), Mode::Read).and_then(|file| file.allocated_bytes())
                else {
                    continue;
                };
                let live = view.state.extents.get(&place).map_or(0, |row| row.live_bytes);
                found.push((place, allocated.saturating_sub(live + waiting.get(&place).copied().unwrap_or(0))));
            }
        }
        found
    }

    /// Bytes of units that nothing names, about.
    pub(crate) fn orphaned_bytes(&self) -> u64 {
        self.surpluses().iter().map(|&(_, surplus)| surplus).filter(|&surplus| surplus > TOLERATED_BYTES).sum()
    }

    /// Gives back units that nothing names, in files whose accounts differ, or in all; gives their bytes.
    ///
    /// # Errors
    /// What reading the index fails with; a descriptor that cannot be read.
    pub(crate) fn give_back_orphans(&self, is_deep: bool, pace: &mut Pace<'_>) -> Result<u64> {
        let found = self.surpluses();
        let files: Vec<(u16, u32)> = found
            .into_iter()
            .filter(|&(_, surplus)| is_deep || surplus > TOLERATED_BYTES)
            .map(|(place, _)| place)
            .collect();
        let mut given = 0;
        for files in files.chunks(FILES) {
            let named = self.named(files)?;
            for (&(device, number), named) in &named {
                let punched = self.punch_unnamed(device, number, named)?;
                given += punched;
                let spent = pace.spend(punched);
                if !pace.outcome(spent)? {
                    return Ok(given);
                }
            }
        }
        Ok(given)
    }

    fn punch_unnamed(&self, device: u16, number: u32, named: &Named) -> Result<u64> {
        let path = extents::path(number);
        let fail = |error| Error::io("give back space in", &self.devices.place(device, &path), error);
        let Some(on) = self.devices.readable(device) else { return Ok(0) };
        let file = on.open(&path, Mode::Write).map_err(fail)?;
        let (size, before) = (file.size().map_err(fail)?, file.allocated_bytes().map_err(fail)?);
        for (offset, length) in named.unnamed(size) {
            file.punch_hole(offset, length).map_err(fail)?;
        }
        Ok(before.saturating_sub(file.allocated_bytes().map_err(fail)?))
    }

    /// What is named in some extent files.
    fn named(&self, files: &[(u16, u32)]) -> Result<BTreeMap<(u16, u32), Named>> {
        let named: Mutex<BTreeMap<(u16, u32), Named>> =
            Mutex::new(files.iter().map(|&file| (file, Named::default())).collect());
        let mark = |device: u16, file: u32, offset: u64, length: u64| {
            let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(named) = named.get_mut(&(device, file)) {
                named.mark(offset, length);
            }
        };
        let (snapshot, freed) = {
            let view = self.view();
            (view.snapshot(), view.state.freed.clone())
        };
        for (_, freed) in freed.iter() {
            if let Freed::Extent { device, file, offset, length } = *freed {
                mark(device, file, offset, length);
            }
        }
        let mut scan = snapshot.scan(Bound::Unbounded, Bound::Unbounded)?;
        let mut wanted: Vec<Wanted> = Vec::new();
        loop {
            let next = scan.next_entry()?;
            let is_end = next.is_none();
            wanted.extend(next.filter(|(_, entry)| entry.kind == Kind::Large).map(|(_, entry)| Wanted::new(&entry, 0)));
            if wanted.len() >= DESCRIPTORS || is_end {
                sort(&mut wanted);
                let failure: Mutex<Option<Error>> = Mutex::new(None);
                self.read_wanted(&wanted, JOINING, THREADS, &|at, record| match record
                    .and_then(|record| self.decode_descriptor(wanted[at].location, record.content))
                {
                    Ok(descriptor) => {
                        descriptor.runs().for_each(|run| mark(run.device, run.file, run.offset_bytes, run.length_bytes))
                    }
                    Err(error) => {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                });
                if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
                    return Err(error);
                }
                wanted.clear();
            }
            if is_end {
                return Ok(named.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_given_back_in_whole_runs() {
        let mut named = Named::default();
        named.mark(4096, 8192);
        named.mark(1 << 20, 5000);
        assert_eq!(named.unnamed(12_288), [(0, 4096)]);
        assert_eq!(
            named.unnamed((1 << 20) + 16_384),
            [(0, 4096), (12_288, (1 << 20) - 12_288), ((1 << 20) + 8192, 8192)]
        );
        assert_eq!(Named::default().unnamed(5000), [(0, 8192)]);
        assert_eq!(Named::default().unnamed(0), []);
    }
}
