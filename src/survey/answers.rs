//! Answers about cutoffs and block sizes that were asked for: `answers` of a survey in docs/SCHEMA.md.

use serde::Serialize;

use super::Survey;
use super::measure::{ByteMeasure, Measure};
use crate::distribution::{Distribution, Weight};
use crate::plan::{BlockSize, block_size};
use crate::units::fraction;

/// Answers, in the order of the questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answers {
    /// Files up to each cutoff.
    pub cutoffs: Vec<Cutoff>,
    /// Space for each block size.
    pub block_sizes: Vec<BlockSize>,
    /// Values below which a share lies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantiles>,
}

/// Values up to which a share lies, with it; `None` where nothing is known, as the ages of a published population.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// The share.
    pub fraction: f64,
    /// Size of a file, by files.
    pub file_size: Option<u64>,
    /// Size of a file, by bytes.
    pub file_size_by_total: Option<u64>,
    /// Days since the content of a file changed, by files.
    pub mtime_age: Option<u64>,
    /// The same by bytes.
    pub mtime_age_bytes: Option<u64>,
    /// Days since a file was read, by files.
    pub atime_age: Option<u64>,
    /// The same by bytes.
    pub atime_age_bytes: Option<u64>,
}

impl Quantiles {
    fn of(survey: &Survey, fraction: f64) -> Quantiles {
        // Parts of a thousandth of a per cent.
        let (part, whole) = ((fraction * 1e5).round() as u128, 100_000);
        let of = |measure| quantile(survey.distributions.of(measure), part, whole);
        let by_bytes = |measure| quantile(survey.distributions.by_bytes(measure), part, whole);
        let sizes = survey.distributions.of(Measure::FileSize);
        Quantiles {
            fraction,
            file_size: of(Measure::FileSize),
            file_size_by_total: (sizes.total() > 0).then(|| sizes.quantile_by_sum(part, whole)),
            mtime_age: of(Measure::MtimeAge),
            mtime_age_bytes: by_bytes(ByteMeasure::MtimeAge),
            atime_age: of(Measure::AtimeAge),
            atime_age_bytes: by_bytes(ByteMeasure::AtimeAge),
        }
    }
}

/// The quantile of a distribution that has values.
fn quantile<W: Weight>(values: &Distribution<W>, part: u128, whole: u128) -> Option<u64> {
    (values.count() > 0).then(|| values.quantile(part, whole))
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
            quantiles: Vec::new(),
        }
    }

    /// The same, and what shares lie below: from 0 to 1, to a thousandth of a per cent.
    #[must_use]
    pub fn with_quantiles(self, survey: &Survey, fractions: &[f64]) -> Answers {
        let quantiles = fractions.iter().map(|&fraction| Quantiles::of(survey, fraction)).collect();
        Answers { quantiles, ..self }
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.cutoffs.is_empty() && self.block_sizes.is_empty() && self.quantiles.is_empty()
    }
}
