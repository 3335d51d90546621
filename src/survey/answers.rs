//! Answers about cutoffs and block sizes that were asked for: `answers` of a survey in docs/SCHEMA.md.

use serde::Serialize;

use super::Survey;
use super::measure::Measure;
use crate::plan::{BlockSize, block_size};
use crate::units::fraction;

/// Answers, in the order of the questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answers {
    /// Files up to each cutoff.
    pub cutoffs: Vec<Cutoff>,
    /// Space for each block size.
    pub block_sizes: Vec<BlockSize>,
}

/// The files of a size or smaller.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cutoff {
    /// The size.
    pub cutoff_bytes: u64,
    /// How many there are.
    pub files: u128,
    /// Their share of all files.
    pub files_fraction: f64,
    /// Sum of their sizes.
    pub size_bytes: u128,
    /// Its share of all bytes.
    pub bytes_fraction: f64,
    /// Largest error of `files`; 0 if it is exact.
    pub doubt_files: u128,
}

impl Answers {
    /// The answers that a survey gives.
    pub fn of(survey: &Survey, cutoffs_bytes: &[u64], block_sizes_bytes: &[u64]) -> Answers {
        let sizes = survey.distributions.of(Measure::FileSize);
        let cutoff = |&cutoff_bytes: &u64| {
            let at = sizes.up_to(cutoff_bytes);
            Cutoff {
                cutoff_bytes,
                files: at.count,
                files_fraction: fraction(at.count, sizes.count()),
                size_bytes: at.sum,
                bytes_fraction: fraction(at.sum, sizes.total()),
                doubt_files: at.doubt,
            }
        };
        let block = |&block_bytes: &u64| block_size(sizes, survey.padding.as_ref(), block_bytes);
        Answers {
            cutoffs: cutoffs_bytes.iter().map(cutoff).collect(),
            block_sizes: block_sizes_bytes.iter().map(block).collect(),
        }
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.cutoffs.is_empty() && self.block_sizes.is_empty()
    }
}
