//! Fills a file system to a level: files with weighted sizes, occasional deletions of a random one, and flushes around
//! those.
//!
//! The level is `used / (used + available)`, as df computes it. Files are never larger than the bytes missing to the
//! level, so the level is approached from below and not exceeded. Space that the file system reserves or delays becomes
//! visible after write-back, and is checked again before the level counts as reached. The set of existing files needs
//! no memory: random numbers are drawn until one exists.

use super::FillTarget;
use crate::bench::caches::drop_caches;
use crate::bench::place::Prepared;
use crate::error::{Error, ErrorKind, Result};
use crate::population::SizeLaw;
use crate::progress::Progress;
use crate::random::{Random, mix};
use crate::units::{format_share, format_size};

/// Largest difference to the requested level.
pub(super) const TOLERANCE: f64 = 0.01;
/// Share of a file system that is too small for another file.
const GRAIN_FRACTION: f64 = 0.0005;
/// Consecutive attempts to fill that may fail to raise the level.
const MOST_VAIN_TRIES: u32 = 50;
/// Random draws for the number of an existing file.
const MOST_DRAWS: u32 = 10_000;

/// How to fill a file system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filling {
    /// Sizes of files.
    pub sizes: SizeLaw,
    /// One file is deleted after this many creations; 0 for never.
    pub delete_every: u64,
    /// Everything is flushed around a deletion, once this many files were created since the last flush; 0 for never.
    pub flush_every: u64,
}

/// Result of filling.
#[derive(Debug, PartialEq)]
pub(super) enum Filled {
    Reached,
    /// The level was already higher.
    Beyond(f64),
    /// The file system is full.
    Full(String),
    Stopped,
}

/// The files that fill one place.
#[derive(Debug)]
pub(super) struct Fill {
    random: Random,
    /// Created files; they are numbered from 0.
    created: u64,
    pub files: u64,
    pub bytes: u64,
    pub deleted: u64,
    since_deletion: u64,
    since_flush: u64,
}

impl Fill {
    pub(super) fn new(seed: u64) -> Fill {
        Fill {
            random: Random::new(mix(seed)),
            created: 0,
            files: 0,
            bytes: 0,
            deleted: 0,
            since_deletion: 0,
            since_flush: 0,
        }
    }

    /// Fills up to `level`; `show` receives the current level.
    pub(super) fn to(
        &mut self,
        level: f64,
        filling: &Filling,
        place: &Prepared,
        target: &mut dyn FillTarget,
        progress: &Progress,
        show: &mut dyn FnMut(f64),
    ) -> Result<Filled> {
        let block_bytes = place.subject().file_system.block_bytes.max(512);
        let (mut vain, mut highest, mut is_settled) = (0, 0, false);
        loop {
            target.sync()?;
            place.sync()?;
            let room = place.room()?;
            show(room.fill);
            let whole = room.used_bytes.saturating_add(room.available_bytes);
            let missing = ((level * whole as f64) as u64).saturating_sub(room.used_bytes);
            let grain = (2 * block_bytes).max((whole as f64 * GRAIN_FRACTION) as u64);
            let is_near = (room.fill - level).abs() <= TOLERANCE;
            if missing < grain && !is_settled {
                // Space of deleted files is freed after the first test at the latest: free it before.
                target.settle()?;
                (vain, highest, is_settled) = (0, 0, true);
                continue;
            }
            if missing < grain {
                return Ok(if room.fill <= level + TOLERANCE { Filled::Reached } else { Filled::Beyond(room.fill) });
            }
            vain = if room.used_bytes > highest { 0 } else { vain + 1 };
            highest = highest.max(room.used_bytes);
            if vain > MOST_VAIN_TRIES {
                let cause = format!("it stays at {} however much is written", format_share(room.fill));
                return Ok(if is_near { Filled::Reached } else { Filled::Full(cause) });
            }
            is_settled = false;
            match self.create_files(missing, block_bytes, filling, target, progress) {
                Ok(true) => {}
                Ok(false) => return Ok(Filled::Stopped),
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    let left = format_size(place.room()?.available_bytes.into());
                    return Ok(Filled::Full(format!("{error}; it reports {left} as available")));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates files of at most `missing` bytes in total, up to the next flush, and deletes as often as is asked for.
    /// Returns `false` if it was asked to stop.
    fn create_files(
        &mut self,
        missing: u64,
        block_bytes: u64,
        filling: &Filling,
        target: &mut dyn FillTarget,
        progress: &Progress,
    ) -> Result<bool> {
        let rounded = |bytes: u64| bytes.next_multiple_of(block_bytes);
        let mut left = missing;
        while left >= block_bytes {
            if progress.should_stop() {
                return Ok(false);
            }
            let size_bytes = filling.sizes.draw(&mut self.random).min(left - left % block_bytes);
            target.create(self.created, size_bytes)?;
            self.created += 1;
            self.files += 1;
            self.bytes += size_bytes;
            self.since_deletion += 1;
            self.since_flush += 1;
            left -= rounded(size_bytes).clamp(block_bytes, left);
            let deletes = filling.delete_every > 0 && self.since_deletion >= filling.delete_every;
            let flushes = filling.flush_every > 0
                && self.since_flush >= filling.flush_every
                && (deletes || filling.delete_every == 0);
            if flushes {
                flush(target)?;
            }
            if deletes {
                self.delete(target)?;
                self.since_deletion = 0;
            }
            if flushes {
                flush(target)?;
                self.since_flush = 0;
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Deletes a random file.
    fn delete(&mut self, target: &mut dyn FillTarget) -> Result<()> {
        for _ in 0..MOST_DRAWS {
            if let Some(size_bytes) = target.delete(self.random.below(self.created))? {
                self.files -= 1;
                self.bytes = self.bytes.saturating_sub(size_bytes);
                self.deleted += 1;
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Lost, "delete a random file", "none of the created files was found"))
    }

    /// Mean number of extents of up to `most` random files; `None` where that is unknown.
    pub(super) fn extents(&mut self, most: u64, target: &mut dyn FillTarget) -> Result<Option<f64>> {
        let (mut extents, mut files) = (0, 0);
        for _ in 0..most.min(2 * self.created) {
            match target.extents(self.random.below(self.created))? {
                Extents::Of(count) => (extents, files) = (extents + count, files + 1),
                Extents::None => {}
                Extents::Unknown => return Ok(None),
            }
        }
        Ok((files > 0).then(|| extents as f64 / files as f64))
    }
}

/// Number of extents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extents {
    Of(u64),
    /// There is no such file, or it has no data.
    None,
    /// The file system does not say.
    Unknown,
}

/// Writes back, then drops from memory.
fn flush(target: &mut dyn FillTarget) -> Result<()> {
    target.sync()?;
    drop_caches();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::fill::KeepGoing;

    /// A target in memory, with this capacity.
    #[derive(Default)]
    struct Memory {
        files: BTreeMap<u64, u64>,
        syncs: u64,
        room_bytes: u64,
    }

    impl FillTarget for Memory {
        fn create(&mut self, number: u64, size_bytes: u64) -> Result<()> {
            if self.files.values().sum::<u64>() + size_bytes > self.room_bytes {
                return Err(Error::new(ErrorKind::NoSpace, "create", "it is full"));
            }
            assert!(self.files.insert(number, size_bytes).is_none());
            Ok(())
        }

        fn delete(&mut self, number: u64) -> Result<Option<u64>> {
            Ok(self.files.remove(&number))
        }

        fn sync(&mut self) -> Result<()> {
            self.syncs += 1;
            Ok(())
        }

        fn extents(&mut self, number: u64) -> Result<Extents> {
            Ok(if self.files.contains_key(&number) { Extents::Of(3) } else { Extents::None })
        }

        fn make_directories(&mut self, _: u64, _: &mut KeepGoing<'_>) -> Result<bool> {
            Ok(true)
        }

        fn find_directories(&mut self, _: &mut KeepGoing<'_>) -> Result<u64> {
            Ok(0)
        }

        fn remove_directories(&mut self, _: &mut KeepGoing<'_>) -> Result<u64> {
            Ok(0)
        }

        fn write(&mut self, _: u64, _: &mut KeepGoing<'_>) -> Result<bool> {
            Ok(true)
        }

        fn read(&mut self, _: u64, _: &mut KeepGoing<'_>) -> Result<bool> {
            Ok(true)
        }

        fn prepare_files(&mut self, _: u64) -> Result<()> {
            Ok(())
        }

        fn make_files(&mut self, _: u64, _: u64, _: &mut KeepGoing<'_>) -> Result<bool> {
            Ok(true)
        }

        fn remove_files(&mut self, _: &mut KeepGoing<'_>) -> Result<u64> {
            Ok(0)
        }

        fn clear(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn filling(delete_every: u64, flush_every: u64) -> Filling {
        Filling { sizes: SizeLaw { k: 6.0, min_bytes: 1000, max_bytes: 100_000 }, delete_every, flush_every }
    }

    #[test]
    fn every_tenth_creation_one_is_deleted_and_what_is_missing_is_never_passed() {
        let progress = &Progress::default();
        let mut memory = Memory { room_bytes: 10_000_000, ..Memory::default() };
        let mut fill = Fill::new(1);
        // Without flushes, straight to the end.
        assert!(fill.create_files(5_000_000, 4096, &filling(10, 0), &mut memory, progress).unwrap());
        assert_eq!((memory.syncs, fill.deleted), (0, fill.created / 10));
        assert_eq!((fill.files, fill.bytes), (memory.files.len() as u64, memory.files.values().sum()));
        let rounded = |bytes: &u64| bytes.next_multiple_of(4096);
        assert!(memory.files.values().map(rounded).sum::<u64>() <= 5_000_000);
        assert!(fill.bytes > 3_000_000, "{fill:?}");
        assert_eq!(fill.extents(100, &mut memory).unwrap(), Some(3.0));
        let error = fill.create_files(50_000_000, 4096, &filling(10, 0), &mut memory, progress).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        progress.stop();
        assert!(!fill.create_files(5_000_000, 4096, &filling(10, 0), &mut memory, progress).unwrap());
    }

    #[test]
    fn there_are_flushes_before_and_after_a_deletion() {
        let progress = &Progress::default();
        let mut memory = Memory { room_bytes: u64::MAX, ..Memory::default() };
        let mut fill = Fill::new(1);
        assert!(fill.create_files(1 << 30, 4096, &filling(10, 10), &mut memory, progress).unwrap());
        assert_eq!((fill.created, fill.deleted, memory.syncs), (10, 1, 2));
        // In batches: deletions continue, flushes are less frequent.
        assert!(fill.create_files(1 << 30, 4096, &filling(10, 50), &mut memory, progress).unwrap());
        assert_eq!((fill.created, fill.deleted, memory.syncs), (60, 6, 4));
    }

    #[test]
    fn a_seed_is_a_fill() {
        let filled = |seed| {
            let mut memory = Memory { room_bytes: u64::MAX, ..Memory::default() };
            Fill::new(seed).create_files(1 << 24, 4096, &filling(10, 0), &mut memory, &Progress::default()).unwrap();
            memory.files
        };
        assert_eq!(filled(3), filled(3));
        assert_ne!(filled(3), filled(4));
    }
}
