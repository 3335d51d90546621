//! The files to pack, by number: all of one size as in the article, or with the sizes of a measured population.

use crate::bench::numbered::NumberedPath;
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::population::design::{Design, Recipe};
use crate::units::{GIB, MIB, format_count, format_size};

/// Number of files in the article.
pub(crate) const PUBLISHED_FILES: u64 = 50_000;
/// Size of each.
pub(crate) const PUBLISHED_SIZE_BYTES: u64 = 20_000;
/// Largest number of files.
pub(crate) const MOST_FILES: u64 = 1_000_000_000;
/// Most bytes of all files together.
const MOST_BYTES: u64 = 1 << 46;
/// Least space for a file's name and inode.
const METADATA_BYTES: u64 = 512;
/// File systems that create inodes in advance have one per this many bytes.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Longest name; names consist of digits.
const NAME_LIMIT: usize = 255;

/// Files to be packed.
#[derive(Debug)]
pub(crate) struct Population {
    /// Its name in results.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    sizes: Sizes,
}

#[derive(Debug)]
enum Sizes {
    Same(u64),
    /// Stratified from a distribution, in an order from the seed.
    Stratified(Box<Design>),
}

impl Population {
    /// Files of one size.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if they are larger than any disk.
    pub(crate) fn same(files: u64, size_bytes: u64) -> Result<Population> {
        let bytes = files.saturating_mul(size_bytes);
        check(files, bytes.into())?;
        let name = format!("{} × {} bytes", format_count(files.into()), format_count(size_bytes.into()));
        Ok(Population { name, files, bytes, sizes: Sizes::Same(size_bytes) })
    }

    /// Files with the sizes of a distribution.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if they are larger than any disk, and for a distribution without files.
    pub(crate) fn stratified(name: &str, sizes: &Distribution, files: u64, seed: u64) -> Result<Population> {
        if sizes.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "pack", "the source has no files").advise("choose another source"));
        }
        check(files, (sizes.mean() * files as f64) as u128)?;
        let design = Design::new(&Recipe::of_sizes(sizes.clone()), files, 1.0, seed, None, NAME_LIMIT);
        let bytes = design.sizes.total();
        check(files, bytes)?;
        let name = format!("{} × sizes of {name}", format_count(files.into()));
        Ok(Population { name, files, bytes: bytes as u64, sizes: Sizes::Stratified(Box::new(design)) })
    }

    /// Size of a file; the first number is 0.
    #[inline]
    pub(crate) fn size(&self, file: u64) -> u64 {
        match &self.sizes {
            Sizes::Same(size_bytes) => *size_bytes,
            Sizes::Stratified(design) => design.size(file),
        }
    }

    /// Size of each file, if all are equal.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        match self.sizes {
            Sizes::Same(size_bytes) => Some(size_bytes),
            Sizes::Stratified(_) => None,
        }
    }

    /// Whether this is the population of the article.
    pub(crate) fn is_published(&self) -> bool {
        self.files == PUBLISHED_FILES && self.size_bytes() == Some(PUBLISHED_SIZE_BYTES)
    }

    /// The path scheme of the article: as many digits as the number of files has.
    pub(super) fn path(&self) -> NumberedPath {
        NumberedPath::in_pairs(self.files.to_string().len())
    }

    /// Estimated space of the files, each in whole blocks with its name and inode.
    pub(crate) fn room_bytes(&self, block_bytes: u64) -> u64 {
        /// Sizes per cell of the distribution that stand for all in it.
        const SAMPLES: u64 = 16;
        let block_bytes = block_bytes.max(1);
        let file_bytes =
            |size: u64| size.div_ceil(block_bytes).saturating_mul(block_bytes).saturating_add(METADATA_BYTES);
        match &self.sizes {
            Sizes::Same(size_bytes) => file_bytes(*size_bytes).saturating_mul(self.files),
            Sizes::Stratified(design) => {
                let mut bytes = 0u64;
                design.sizes.for_samples(SAMPLES, |size, count| {
                    bytes = bytes.saturating_add(file_bytes(size).saturating_mul(count));
                });
                bytes
            }
        }
    }

    /// Suggested size of a file system for it.
    pub(crate) fn image_bytes(&self) -> u64 {
        let blocks = self.room_bytes(4096);
        let inodes = self.files.saturating_mul(BYTES_PER_INODE);
        // xfs preallocates space behind a growing file, up to its size again: a store's segments occupy more than their
        // length.
        let bytes = blocks.saturating_mul(2).max(inodes.saturating_add(inodes / 8));
        bytes.saturating_add(512 * MIB).max(GIB).next_multiple_of(MIB)
    }
}

/// Refuses absurd values before any calculation.
fn check(files: u64, bytes: u128) -> Result<()> {
    if files > MOST_FILES || bytes > MOST_BYTES.into() {
        let cause = format!("{} files would have {}", format_count(files.into()), format_size(bytes));
        return Err(Error::new(ErrorKind::Usage, "pack so many bytes", cause).advise("use fewer or smaller files"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::published;

    #[test]
    fn the_published_one_is_a_gigabyte() {
        let population = Population::same(PUBLISHED_FILES, PUBLISHED_SIZE_BYTES).unwrap();
        assert!(population.is_published() && population.bytes == 1_000_000_000);
        assert_eq!((population.size(49_999), population.name.as_str()), (20_000, "50,000 × 20,000 bytes"));
        assert_eq!(population.room_bytes(64 << 10), 50_000 * (65_536 + 512));
        assert!((2 * GIB..3 * GIB).contains(&population.image_bytes()));
        let mut path = population.path();
        path.set(12_345);
        assert_eq!(path.as_bytes(), b"12/34/5");
    }

    #[test]
    fn sizes_are_those_of_the_source() {
        let sizes = published::find("vu-2005").unwrap().distribution();
        let population = Population::stratified("vu-2005", sizes, 5000, 1).unwrap();
        let total: u64 = (0..5000).map(|file| population.size(file)).sum();
        assert_eq!((total, population.size_bytes()), (population.bytes, None));
        assert!(population.room_bytes(4096) > population.bytes + 5000 * 512);
        assert!(!population.is_published() && population.name == "5,000 × sizes of vu-2005");
    }

    #[test]
    fn what_is_absurd_is_refused() {
        assert!(Population::same(u64::MAX, 1).is_err() && Population::same(2, u64::MAX).is_err());
        let sizes = published::find("vu-2005").unwrap().distribution();
        assert!(Population::stratified("vu-2005", sizes, u64::MAX, 1).is_err());
        assert!(Population::stratified("nothing", &Distribution::default(), 1, 1).is_err());
    }
}
