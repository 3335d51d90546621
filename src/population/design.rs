//! The design of a tree: everything that follows from distributions, a number of files and a seed.

use super::content::seed_of;
use super::names::{LONGEST, SeededNames};
use super::permutation::Permutation;
use super::stratify::{Table, scaled, stratify};
use super::streams::{Stream, draw, start};
use super::tree::Tree;
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::random::below;
use crate::units::SECONDS_A_DAY;

/// Files per directory where nothing else is known.
pub(crate) const DIRECTORY_FILES: u64 = 100;
/// Length of names where nothing else is known.
const NAME_LENGTH: u64 = 12;
/// More files than any current file system holds; everything is exact below.
pub(crate) const MOST_FILES: u64 = 1 << 48;

const OPERATION: &str = "generate";

/// The distributions of the tree to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Sizes of files.
    pub sizes: Distribution,
    /// Files of the source, which the number of directories and [`Amount::scale`] refer to.
    pub files: u128,
    /// Lengths of names.
    pub names: Option<Distribution>,
    /// How files are divided among directories.
    pub shape: Shape,
    /// Days since files were changed.
    pub mtime_ages: Option<Distribution>,
    /// Days since files were read.
    pub atime_ages: Option<Distribution>,
}

/// How files are divided among directories.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// As in a measured tree: the same number of directories per file, with the same numbers of entries.
    Measured {
        /// Entries of each directory.
        entries: Distribution,
        /// Depth of each directory.
        depths: Option<Distribution>,
    },
    /// The same number of files in each directory.
    Even {
        /// Files of each directory.
        directory_files: u64,
        /// Shares of the directories by depth.
        depths: Option<Distribution>,
    },
}

/// How many files, and how large.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amount {
    /// Number of files.
    pub files: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
    /// Files per file of the source.
    pub scale: Option<f64>,
}

/// Times of a file, seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileTimes {
    /// Last change.
    pub mtime: Option<i64>,
    /// Last read.
    pub atime: Option<i64>,
}

/// A complete tree.
#[derive(Debug)]
pub struct Design {
    /// The seed from which everything follows, with the recipe.
    pub seed: u64,
    /// Factor that sizes were multiplied by.
    pub factor: f64,
    /// The sizes from which they were stratified.
    pub source_sizes: Distribution,
    /// Sizes of files.
    pub(crate) sizes: Table,
    /// Directories.
    pub(crate) tree: Tree,
    size_order: Permutation,
    name_lengths: Option<(Table, Permutation)>,
    pub(super) names: SeededNames,
    mtimes: Option<StratifiedAges>,
    atimes: Option<StratifiedAges>,
    /// What ages are relative to; files without ages have this time if it was requested.
    pub as_of: Option<i64>,
    content_start: u64,
}

#[derive(Debug)]
struct StratifiedAges {
    days: Table,
    order: Permutation,
    seconds_start: u64,
}

impl StratifiedAges {
    fn new(source: &Distribution, files: u64, seed: u64, order: Stream, seconds: Stream) -> StratifiedAges {
        let order = Permutation::new(files, start(seed, order));
        StratifiedAges { days: stratify(source, files), order, seconds_start: start(seed, seconds) }
    }

    fn time(&self, index: u64, as_of: i64) -> i64 {
        let days = self.days.value(self.order.at(index));
        let second = below(draw(self.seconds_start, index), SECONDS_A_DAY as u64);
        let before = days.saturating_mul(SECONDS_A_DAY as u64).saturating_add(second);
        as_of.saturating_sub(i64::try_from(before).unwrap_or(i64::MAX))
    }
}

impl Recipe {
    /// A recipe with sizes only.
    pub fn of_sizes(sizes: Distribution) -> Recipe {
        let shape = Shape::Even { directory_files: DIRECTORY_FILES, depths: None };
        let files = sizes.count();
        Recipe { sizes, files, names: None, shape, mtime_ages: None, atime_ages: None }
    }

    /// The number of files, and the factor for sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: no amount, an empty tree, or more than any file system holds.
    pub fn amount(&self, asked: Amount) -> Result<(u64, f64)> {
        let fail = |cause: &str| Error::new(ErrorKind::Usage, OPERATION, cause);
        let (count, total) = (self.sizes.count(), self.sizes.total());
        if count == 0 {
            return Err(fail("the source has no files").advise("choose another source"));
        }
        let mean = total as f64 / count as f64;
        let files = match (asked.files, asked.scale, asked.bytes) {
            (Some(files), _, _) => files as f64,
            (None, Some(scale), _) => (self.files as f64 * scale).round(),
            (None, None, Some(_)) if total == 0 => {
                return Err(
                    fail("all files of the source are empty: they cannot add up to --bytes").advise("use --files")
                );
            }
            (None, None, Some(bytes)) => (bytes as f64 / mean).round(),
            (None, None, None) => {
                return Err(fail("the number of files is missing").advise("use --files, --bytes or --scale"));
            }
        };
        if files < 1.0 {
            return Err(fail("the result would be less than one file").advise("increase --files, --bytes or --scale"));
        }
        if files > MOST_FILES as f64 {
            let cause = format!("{files:.0} files are more than any file system can hold");
            return Err(fail(&cause).advise("reduce --files or --scale"));
        }
        let factor = match asked.bytes {
            Some(_) if total == 0 => return Err(fail("all files of the source are empty: there is nothing to scale")),
            Some(bytes) if asked.files.is_some() || asked.scale.is_some() => bytes as f64 / (files * mean),
            _ => 1.0,
        };
        Ok((files as u64, factor))
    }

    /// Whether all files are in one directory.
    pub fn is_flat(&self) -> bool {
        matches!(&self.shape, Shape::Even { depths: Some(depths), .. } if depths.max() == 0)
    }

    /// How many directories a tree of `files` files gets.
    pub fn directories(&self, files: u64) -> u64 {
        match &self.shape {
            Shape::Measured { entries, .. } => {
                let per_file = entries.count() as f64 / self.files.max(1) as f64;
                ((files as f64 * per_file).round() as u64).max(1)
            }
            Shape::Even { .. } if self.is_flat() => 1,
            Shape::Even { directory_files, .. } => files.div_ceil((*directory_files).max(1)).max(1),
        }
    }

    /// The sizes multiplied by `factor`, with a small correction because sizes are integers. It does not correct what
    /// it would make worse: where most sizes become 0, there may be none, or far too many bytes.
    pub fn scaled_sizes(&self, factor: f64) -> Distribution {
        if factor == 1.0 {
            return self.sizes.clone();
        }
        let wanted = self.sizes.total() as f64 * factor;
        let uncorrected = scaled(&self.sizes, factor);
        let mut corrected = factor;
        let mut sizes = uncorrected.clone();
        for _ in 0..3 {
            corrected *= wanted / (sizes.total().max(1)) as f64;
            if !corrected.is_finite() {
                break;
            }
            sizes = scaled(&self.sizes, corrected);
        }
        let miss = |sizes: &Distribution| (sizes.total() as f64 - wanted).abs();
        if miss(&sizes) > miss(&uncorrected) { uncorrected } else { sizes }
    }
}

impl Design {
    /// The tree of `files` files after `recipe`, with sizes multiplied by `factor` and names no longer than
    /// `name_limit`.
    pub fn new(recipe: &Recipe, files: u64, factor: f64, seed: u64, as_of: Option<i64>, name_limit: usize) -> Design {
        let source_sizes = recipe.scaled_sizes(factor);
        let tree = match &recipe.shape {
            Shape::Measured { entries, depths } => {
                Tree::measured(entries, depths.as_ref(), files, recipe.directories(files), seed)
            }
            Shape::Even { directory_files, depths } => Tree::even(*directory_files, depths.as_ref(), files),
        };
        let entries = files + tree.directories() - 1;
        let order = |length: u64, stream: Stream| Permutation::new(length, start(seed, stream));
        let ages = |source: &Option<Distribution>, order: Stream, seconds: Stream| {
            let source = source.as_ref().filter(|source| !source.is_empty())?;
            Some(StratifiedAges::new(source, files, seed, order, seconds))
        };
        Design {
            seed,
            factor,
            sizes: stratify(&source_sizes, files),
            source_sizes,
            size_order: order(files, Stream::Sizes),
            name_lengths: recipe
                .names
                .as_ref()
                .filter(|names| !names.is_empty())
                .map(|names| (stratify(names, entries), order(entries, Stream::Names))),
            names: SeededNames::new(seed, name_limit.min(LONGEST)),
            mtimes: ages(&recipe.mtime_ages, Stream::MtimeAges, Stream::MtimeSeconds),
            atimes: ages(&recipe.atime_ages, Stream::AtimeAges, Stream::AtimeSeconds),
            as_of,
            content_start: start(seed, Stream::Content),
            tree,
        }
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        self.tree.files()
    }

    /// The size of a file.
    #[inline]
    pub fn size(&self, file: u64) -> u64 {
        self.sizes.value(self.size_order.at(file))
    }

    /// The size of a file in another order; order 0 is that of the tree. Each order has every size once.
    pub(super) fn size_in_round(&self, round: u64, file: u64) -> u64 {
        if round == 0 {
            return self.size(file);
        }
        let order = Permutation::new(self.files(), draw(start(self.seed, Stream::Sizes), round));
        self.sizes.value(order.at(file))
    }

    /// The times of a file; `now` is what ages are relative to where nothing else was requested.
    pub fn times(&self, file: u64, now: i64) -> FileTimes {
        let as_of = self.as_of.unwrap_or(now);
        let time = |ages: &Option<StratifiedAges>| ages.as_ref().map(|ages| ages.time(file, as_of)).or(self.as_of);
        FileTimes { mtime: time(&self.mtimes), atime: time(&self.atimes) }
    }

    /// The seed of the content of a file.
    pub fn content_seed(&self, file: u64) -> u64 {
        seed_of(self.content_start, file)
    }

    /// The length of the name of an entry.
    pub(super) fn name_length(&self, entry: u64) -> u64 {
        match &self.name_lengths {
            Some((lengths, order)) => lengths.value(order.at(entry)),
            None => NAME_LENGTH,
        }
    }

    /// Bytes of all names.
    pub fn name_bytes(&self) -> u128 {
        match &self.name_lengths {
            Some((lengths, _)) => lengths.total(),
            None => u128::from(NAME_LENGTH) * u128::from(self.files() + self.tree.directories() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::published;

    fn recipe() -> Recipe {
        Recipe::of_sizes(published::find("vu-2005").unwrap().distribution().clone())
    }

    #[test]
    fn how_many_files_follows_from_what_was_asked() {
        let recipe = recipe();
        let mean = recipe.sizes.mean();
        let amount = |files, bytes, scale| recipe.amount(Amount { files, bytes, scale });
        assert_eq!(amount(Some(10), None, None).unwrap(), (10, 1.0));
        assert_eq!(amount(None, None, Some(0.001)).unwrap(), (1700, 1.0));
        let (files, factor) = amount(None, Some(1 << 30), None).unwrap();
        assert!((files as f64 * mean / (1u64 << 30) as f64 - 1.0).abs() < 1e-3 && factor == 1.0);
        let (files, factor) = amount(Some(1000), Some(1 << 20), None).unwrap();
        assert!(files == 1000 && (factor * 1000.0 * mean / (1u64 << 20) as f64 - 1.0).abs() < 1e-9);
        for (files, bytes, scale) in [
            (None, None, None),
            (Some(0), None, None),
            (None, Some(1), None),
            (None, None, Some(1e-9)),
            (Some(u64::MAX), None, None),
        ] {
            assert_eq!(amount(files, bytes, scale).unwrap_err().kind(), ErrorKind::Usage);
        }
        let mut empty = Distribution::default();
        assert!(Recipe::of_sizes(empty.clone()).amount(Amount { files: Some(1), ..Amount::default() }).is_err());
        empty.add(0, 5);
        let empty = Recipe::of_sizes(empty);
        assert!(empty.amount(Amount { bytes: Some(9), ..Amount::default() }).is_err());
        assert_eq!(empty.amount(Amount { files: Some(9), ..Amount::default() }).unwrap().0, 9);
    }

    #[test]
    fn files_and_bytes_together_scale_every_size() {
        let recipe = recipe();
        let (files, factor) =
            recipe.amount(Amount { files: Some(20_000), bytes: Some(64 << 20), scale: None }).unwrap();
        let design = Design::new(&recipe, files, factor, 1, None, 255);
        let total = design.sizes.total() as f64;
        assert!((total / (64 << 20) as f64 - 1.0).abs() < 0.01, "{total}");
    }

    #[test]
    fn fewer_bytes_than_files_are_not_exceeded() {
        let mut sizes = Distribution::default();
        sizes.add(4096, 1000);
        let scaled = Recipe::of_sizes(sizes).scaled_sizes(300.0 / 4_096_000.0);
        assert_eq!(scaled.count(), 1000);
        assert!(scaled.total() <= 4096, "{}", scaled.total());
    }

    #[test]
    fn ages_are_whole_days_before_the_time_that_was_given() {
        let mut ages = Distribution::default();
        ages.add(0, 10);
        ages.add(400, 30);
        let recipe = Recipe { mtime_ages: Some(ages.clone()), ..recipe() };
        let as_of = 1_000_000_000;
        let design = Design::new(&recipe, 4000, 1.0, 3, Some(as_of), 255);
        let mut found = Distribution::default();
        for file in 0..4000 {
            let times = design.times(file, 0);
            found.record(((as_of - times.mtime.unwrap()) / 86_400) as u64);
            assert_eq!(times.atime, Some(as_of), "not known, but a time was given");
        }
        assert_eq!(crate::distribution::distance(&ages, &found).by_count, 0.0);
        assert_eq!(Design::new(&recipe, 10, 1.0, 3, None, 255).times(0, 5).atime, None);
    }

    #[test]
    fn every_size_is_given_to_one_file() {
        let recipe = recipe();
        let design = Design::new(&recipe, 5000, 1.0, 7, None, 255);
        let mut sizes = Distribution::default();
        (0..5000).for_each(|file| sizes.record(design.size(file)));
        assert_eq!(sizes, design.sizes.distribution());
        let other = Design::new(&recipe, 5000, 1.0, 8, None, 255);
        assert!((0..5000).filter(|&file| design.size(file) != other.size(file)).count() > 4000);
    }
}
