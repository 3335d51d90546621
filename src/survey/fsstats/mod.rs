//! The CSV of fsstats (Dayal 2008; Welch and Noer 2013 surveyed 65 systems with it), read and written.
//!
//! Header lines, then 15 histograms, each with a name, `count`, `average`, `min`, `max`, column names, a row for every
//! bucket that is not empty, and a blank line:
//!
//! - **Buckets** are `[0, 2)` and then powers of two of the unit: a file of 64 KiB shares a bucket with everything
//!   below 128 KiB, and empty files are not distinguished. Name and symlink lengths have buckets 8 wide up to 127, and
//!   one above. Histograms of kilobytes and days print an exclusive upper bound (2, 4, 8), the others an inclusive one.
//! - **Values**: each row has a count and the sum of its values, in the unit, with six decimals. For kilobytes that is
//!   exact to the byte, so sizes and sums survive writing and reading.
//! - **Overheads** are in the bucket of the *size* of the entry; count, average, min and max are those of the overhead.
//! - **Ages by kilobyte** count the kilobytes of the files, not the files, in whole kilobytes.
//!
//! A file that is read becomes a survey whose distributions are laid out within the buckets
//! ([`crate::distribution::spread`]), with the counts, sums, minima and maxima of the file. Writing that survey
//! produces the same text, except that the ages by kilobyte lose fractions of a kilobyte the first time.

mod fill;
mod read;
mod write;

pub use read::{MAX_BYTES, looks_like};
pub use write::write;

use std::path::Path;

use self::fill::survey_of;
use self::read::Parser;
use super::Survey;
use super::measure::{ByteMeasure, Measure};
use crate::error::{Error, ErrorKind, Result};

/// A kilobyte of fsstats, in bytes.
const KB: u64 = 1024;

const OPERATION: &str = "read the fsstats CSV";

/// Reads an fsstats CSV; `name` is the label of the survey and appears in errors. Also returns warnings, one sentence
/// each: what was missing, skipped or contradictory.
///
/// # Errors
/// [`ErrorKind::NotRecognised`] for another kind of file, or one above [`MAX_BYTES`]; [`ErrorKind::Corrupt`] when a
/// number is malformed or impossible, or when there is no complete histogram of the file sizes.
pub fn read(text: &[u8], name: &str) -> Result<(Survey, Vec<String>)> {
    let refuse = |kind, cause: String| Error::new(kind, OPERATION, cause).at(Path::new(name));
    if text.len() > MAX_BYTES {
        let cause = format!("it is larger than any such file ({} MiB)", MAX_BYTES >> 20);
        return Err(refuse(ErrorKind::NotRecognised, cause));
    }
    let (parsed, mut warnings) = Parser::parse(text).map_err(|cause| refuse(ErrorKind::Corrupt, cause))?;
    if parsed.found == 0 {
        let cause = "none of its lines starts with 'histogram,'".to_owned();
        return Err(refuse(ErrorKind::NotRecognised, cause));
    }
    let mut survey = survey_of(&parsed, &mut warnings).map_err(|cause| refuse(ErrorKind::Corrupt, cause))?;
    survey.origin.name = Some(name.to_owned());
    Ok((survey, warnings))
}

/// One of the histograms.
struct Histogram {
    name: &'static str,
    unit: &'static str,
    /// Bytes per unit in which a value of the distribution is counted.
    scale: u64,
    buckets: Buckets,
    population: Population,
}

/// How a histogram is divided.
#[derive(Clone, Copy, PartialEq)]
enum Buckets {
    /// Powers of two; the upper bound is excluded.
    Real,
    /// Powers of two; the upper bound is included.
    Integer,
    /// Equal widths up to [`LINEAR_LAST`]; the upper bound is included.
    Linear,
}

const LINEAR_WIDTH: u64 = 8;
const LINEAR_LAST: u64 = 127;

/// What a histogram counts.
#[derive(Clone, Copy)]
enum Population {
    /// Values, once each.
    Values(Measure),
    /// Values, once each, in the bucket of the size of the entry.
    BySize(Measure),
    /// Kilobytes of the files.
    Kilobytes(ByteMeasure),
}

use Buckets::{Integer, Linear, Real};
use Population::{BySize, Kilobytes, Values};

/// All of them, in file order.
const HISTOGRAMS: [Histogram; 15] = [
    histogram("file size", "KB", KB, Real, Values(Measure::FileSize)),
    histogram("capacity used", "KB", KB, Real, Values(Measure::Allocated)),
    histogram("positive overhead", "KB", KB, Real, BySize(Measure::PositiveOverhead)),
    histogram("negative overhead", "KB", KB, Real, BySize(Measure::NegativeOverhead)),
    histogram("directory size (entries)", "ents", 1, Integer, Values(Measure::DirectoryEntries)),
    histogram("directory size", "KB", KB, Real, Values(Measure::DirectorySize)),
    histogram("filename length", "chars", 1, Linear, Values(Measure::NameLength)),
    histogram("link count", "links", 1, Integer, Values(Measure::LinkCount)),
    histogram("symlink target length", "chars", 1, Linear, Values(Measure::SymlinkTargetLength)),
    histogram("mtime (files)", "days", 1, Real, Values(Measure::MtimeAge)),
    histogram("mtime (KB)", "days", 1, Real, Kilobytes(ByteMeasure::MtimeAge)),
    histogram("ctime (files)", "days", 1, Real, Values(Measure::CtimeAge)),
    histogram("ctime (KB)", "days", 1, Real, Kilobytes(ByteMeasure::CtimeAge)),
    histogram("atime (files)", "days", 1, Real, Values(Measure::AtimeAge)),
    histogram("atime (KB)", "days", 1, Real, Kilobytes(ByteMeasure::AtimeAge)),
];

const fn histogram(
    name: &'static str,
    unit: &'static str,
    scale: u64,
    buckets: Buckets,
    population: Population,
) -> Histogram {
    Histogram { name, unit, scale, buckets, population }
}

#[cfg(test)]
mod tests;
