//! The files that are measured: name, size and content of the n-th file, in constant memory.
//!
//! Sizes are the quantiles of a distribution at equally spaced ranks, truncated at the largest size. The ranks of
//! consecutive files differ by the golden ratio of the total, so every directory has the same distribution. Content is
//! a slice of one random buffer that begins at an offset of its own for each file: reads can be verified, and the
//! content compresses badly.

use std::fmt::Write;

use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::population::{Permutation, scramble};
use crate::units::MIB;

/// Largest size that can be requested, in bytes.
pub(crate) const LARGEST_BYTES: u64 = 64 * MIB;
/// Number of different offsets at which content begins.
const PLACES: u64 = 64 << 10;
/// Initial number of files with fresh names, for removal.
pub(super) const SPARE_FILES: u64 = 1000;
/// Name of the directory with many entries.
pub(super) const LARGE_DIRECTORY: &str = "listed";

/// All files of a run.
#[derive(Debug)]
pub(super) struct FileSet {
    pub files: u64,
    /// Files per directory.
    directory_files: u64,
    /// Number of files up to each size, by ascending size.
    sizes: Vec<(u64, u64)>,
    /// Difference between the ranks of consecutive files; coprime to the number of files.
    step: u64,
    content: Vec<u8>,
    seed: u64,
}

impl FileSet {
    /// `files` files with sizes from `source`, none larger than `largest_bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the source has no files.
    pub(super) fn new(
        source: &Distribution,
        files: u64,
        largest_bytes: u64,
        directory_files: u64,
        seed: u64,
    ) -> Result<FileSet> {
        let whole = source.count();
        if whole == 0 {
            return Err(Error::new(
                ErrorKind::Usage,
                "create files like those of the source",
                "the source has no files",
            ));
        }
        let mut sizes: Vec<(u64, u64)> = Vec::new();
        let mut before = 0u128;
        for cell in source.cells() {
            before += cell.count;
            // Ranks are equally spaced, each in the middle of its share.
            let up_to = ((before * u128::from(files) * 2 + whole) / (whole * 2)) as u64;
            let size = cell.mean().min(largest_bytes);
            let ranks = sizes.last().map_or(0, |(_, ranks)| *ranks);
            match sizes.last_mut() {
                Some((last, ranks)) if *last == size => *ranks = up_to,
                _ if up_to > ranks => sizes.push((size, up_to)),
                _ => {}
            }
        }
        let longest = sizes.last().map_or(0, |(size, _)| *size) + PLACES;
        let words = (0..longest.div_ceil(8)).flat_map(|at| scramble(seed.wrapping_add(at)).to_le_bytes());
        Ok(FileSet { files, directory_files, sizes, step: golden_step(files), content: words.collect(), seed })
    }

    /// Size of a file, counted from 0.
    pub(super) fn size(&self, number: u64) -> u64 {
        let rank = (u128::from(number) * u128::from(self.step) % u128::from(self.files.max(1))) as u64;
        let at = self.sizes.partition_point(|(_, up_to)| *up_to <= rank);
        self.sizes.get(at).or(self.sizes.last()).map_or(0, |(size, _)| *size)
    }

    /// Content of a file.
    pub(super) fn content(&self, number: u64) -> &[u8] {
        let start = (scramble(self.seed ^ number) % PLACES) as usize;
        &self.content[start..start + self.size(number) as usize]
    }

    /// Number of directories that hold the files.
    pub(super) fn directories(&self) -> u64 {
        self.files.div_ceil(self.directory_files)
    }

    /// A seed derived from the run's seed, for one purpose.
    pub(super) fn seed_of(&self, purpose: u64) -> u64 {
        scramble(self.seed ^ scramble(purpose))
    }

    /// The directory that a file is in.
    pub(super) fn directory_of(&self, number: u64) -> u64 {
        number / self.directory_files
    }

    /// Bytes of all files, and their space in blocks of `block_bytes`.
    pub(super) fn totals(&self, block_bytes: u64) -> (u64, u64) {
        let mut before = 0;
        let mut totals = (0u64, 0u64);
        for &(size, up_to) in &self.sizes {
            let count = up_to - before;
            before = up_to;
            totals.0 = totals.0.saturating_add(size.saturating_mul(count));
            totals.1 = totals.1.saturating_add(size.next_multiple_of(block_bytes.max(1)).saturating_mul(count));
        }
        totals
    }

    /// Sets `name` to the path of a file.
    pub(super) fn name_file(&self, number: u64, name: &mut String) {
        name.clear();
        // Writing to a string cannot fail.
        let _ = write!(name, "d{}/f{number}", self.directory_of(number));
    }

    /// Sets `name` to the path of a directory.
    pub(super) fn name_directory(&self, directory: u64, name: &mut String) {
        name.clear();
        let _ = write!(name, "d{directory}");
    }

    /// Sets `name` to the path of a directory's symbolic link, which points to a file beside it.
    pub(super) fn name_link(&self, directory: u64, name: &mut String) {
        name.clear();
        let _ = write!(name, "d{directory}/link");
    }

    /// Sets `name` to the target of that link.
    pub(super) fn name_target(&self, directory: u64, name: &mut String) {
        name.clear();
        let _ = write!(name, "f{}", directory * self.directory_files);
    }

    /// Sets `name` to the path of a file that is created during a measurement.
    pub(super) fn name_fresh(&self, number: u64, name: &mut String) {
        name.clear();
        let _ = write!(name, "d{}/n{number}", number % self.directories());
    }

    /// Sets `name` to the path of an entry of the directory with many entries.
    pub(super) fn name_listed(&self, number: u64, name: &mut String) {
        name.clear();
        let _ = write!(name, "{LARGE_DIRECTORY}/file-{number}");
    }

    /// Numbers of `count` files no larger than `small_bytes`, in random order: each once, repeated if there are fewer
    /// than `count`. Empty if there are none.
    pub(super) fn small_files(&self, count: u64, small_bytes: u64, round: u64) -> Vec<u64> {
        let mut chosen = Vec::new();
        if !self.sizes.iter().any(|(size, _)| *size <= small_bytes) {
            return chosen;
        }
        let mut time = 0;
        while (chosen.len() as u64) < count {
            let mixed = Permutation::new(self.files, scramble(self.seed ^ scramble(round ^ (time << 32))));
            let small = (0..self.files).map(|at| mixed.at(at)).filter(|&number| self.size(number) <= small_bytes);
            let lacking = count - chosen.len() as u64;
            chosen.extend(small.take(lacking as usize));
            time += 1;
        }
        chosen
    }

    /// Number of files no larger than `small_bytes`.
    pub(super) fn count_up_to(&self, small_bytes: u64) -> u64 {
        let at = self.sizes.partition_point(|(size, _)| *size <= small_bytes);
        at.checked_sub(1).map_or(0, |last| self.sizes[last].1)
    }
}

/// A number near the golden ratio of `count` that is coprime to it.
fn golden_step(count: u64) -> u64 {
    let near = (count as f64 * 0.618_033_988_749_895) as u64;
    (near.max(1)..).find(|&step| divisor(step, count.max(1)) == 1).unwrap_or(1)
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::distribution::{distance, published};

    fn made(files: u64, largest_bytes: u64) -> FileSet {
        let source = published::find("vu-2005").unwrap().distribution();
        FileSet::new(source, files, largest_bytes, 100, 7).unwrap()
    }

    #[test]
    fn sizes_are_those_of_the_source() {
        let set = made(50_000, 16 * MIB);
        let mut sizes = Distribution::default();
        (0..set.files).for_each(|number| sizes.record(set.size(number)));
        let found = distance(published::find("vu-2005").unwrap().distribution(), &sizes);
        assert!(found.by_count < 1e-3, "{found:?}");
        assert_eq!(u128::from(set.totals(4096).0), sizes.total());
    }

    #[test]
    fn every_directory_has_its_part_of_them() {
        let set = made(10_000, MIB);
        let means: Vec<u64> = (0..10)
            .map(|part| (part * 1000..(part + 1) * 1000).map(|number| set.size(number)).sum::<u64>() / 1000)
            .collect();
        let all = means.iter().sum::<u64>() / 10;
        assert!(means.iter().all(|mean| mean.abs_diff(all) < all / 10), "{means:?}");
        assert!(
            (0..10_000).all(|number| set.size(number) <= MIB && set.content(number).len() as u64 == set.size(number))
        );
        assert_ne!(set.content(1)[..8], set.content(2)[..8]);
    }

    #[test]
    fn small_files_are_chosen_once_each() {
        let set = made(1000, MIB);
        let small = set.count_up_to(65_536);
        assert!((900..920).contains(&small), "{small}");
        let mut chosen = set.small_files(small, 65_536, 1);
        assert_ne!(chosen, set.small_files(small, 65_536, 2));
        assert!(chosen.iter().all(|&number| set.size(number) <= 65_536));
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len() as u64, small);
        assert_eq!(set.small_files(3 * small + 1, 65_536, 1).len() as u64, 3 * small + 1);
        let mut only_large = Distribution::default();
        only_large.record(100_000);
        let large = FileSet::new(&only_large, 10, MIB, 10, 1).unwrap();
        assert_eq!((large.small_files(5, 65_536, 1).len(), large.count_up_to(65_536)), (0, 0));
        assert!(FileSet::new(&Distribution::default(), 10, MIB, 10, 1).is_err());
    }

    #[test]
    fn names_have_their_places() {
        let set = made(1000, MIB);
        let mut name = String::new();
        set.name_file(250, &mut name);
        assert_eq!(name, "d2/f250");
        set.name_target(2, &mut name);
        assert_eq!(name, "f200");
        set.name_fresh(1013, &mut name);
        assert_eq!((name.as_str(), set.directories()), ("d3/n1013", 10));
    }

    proptest! {
        #[test]
        fn every_rank_is_met_once(files in 1u64..3000) {
            let step = golden_step(files);
            let mut ranks: Vec<u64> = (0..files).map(|number| number * step % files).collect();
            ranks.sort_unstable();
            prop_assert!(ranks.into_iter().eq(0..files));
        }
    }
}
