//! Populations as other programs list them: sizes one a line, tables of buckets, the JSON of ncdu and dust, the reports
//! of fprof and zdb, and tables of files as Parquet.
//!
//! None of it has times that are counted, so a survey of it has none. Nothing here trusts its input: numbers are
//! bounded, text is escaped wherever it is printed, and work is linear in the input.

mod buckets;
mod dust;
mod fprof;
mod ncdu;
mod rounded;
mod sizes;
pub(super) mod table;
mod zdb;

use super::measure::Measure;
use super::places::{Extension, Kind, Places, Tally};
use super::{Method, Origin, Resolution, Survey};
use crate::distribution::{Interval, spread};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Padding;
use crate::units::SMALL_FILE_BYTES;

/// The largest size of a file that is believed: what Linux can store.
const MOST_FILE_BYTES: u64 = i64::MAX as u64;
/// Files of a row of a table, at most.
const MOST_FILES: u64 = 1 << 53;

/// Reads `text` as any of these; `None` if it is none. Also returns warnings, in sentences.
///
/// # Errors
/// [`ErrorKind::Corrupt`], with the line, if it is one that cannot be read to its end.
pub fn read(text: &[u8], name: &str) -> Option<Result<(Survey, Vec<String>)>> {
    let read = if ncdu::looks_like(text) {
        ncdu::read(text)
    } else if buckets::looks_like(text) {
        buckets::read(text)
    } else if sizes::looks_like(text) {
        sizes::read(text)
    } else if dust::looks_like(text) {
        dust::read(text)
    } else if fprof::looks_like(text) {
        fprof::read(text)
    } else if zdb::looks_like(text) {
        zdb::read(text)
    } else {
        return None;
    };
    let named = |listed: Listed| {
        let of = listed.of.map_or(String::new(), |of| format!(" ({of})"));
        let (mut survey, warnings) = listed.survey();
        survey.origin.name = Some(format!("{name}{of}"));
        (survey, warnings)
    };
    Some(read.map(named).map_err(|cause| Error::new(ErrorKind::Corrupt, "read the list of files", cause)))
}

/// Whether a text that begins like this may be a long list.
pub(super) fn begins_as_list(head: &[u8]) -> bool {
    ncdu::looks_like(head) || buckets::looks_like(head) || sizes::looks_like(head) || dust::looks_like(head)
}

/// A survey that grows file by file.
struct Listed {
    survey: Survey,
    padding: Padding,
    warnings: Vec<String>,
    /// What it is a list of, where that is not files; added to its name.
    of: Option<&'static str>,
}

impl Listed {
    fn new() -> Listed {
        let origin = Origin { method: Method::List, ..Origin::default() };
        let survey = Survey { origin, places: None, ..Survey::default() };
        Listed { survey, padding: Padding::default(), warnings: Vec::new(), of: None }
    }

    /// Counts a file, with its name (or path) if that is known.
    fn add(&mut self, size_bytes: u64, allocated_bytes: Option<u64>, name: Option<&[u8]>) {
        let survey = &mut self.survey;
        survey.counts.files += 1;
        survey.counts.empty_files += u64::from(size_bytes == 0);
        self.padding.record(size_bytes);
        survey.distributions.of_mut(Measure::FileSize).record(size_bytes);
        if let Some(allocated_bytes) = allocated_bytes {
            survey.distributions.of_mut(Measure::Allocated).record(allocated_bytes);
            self.overhead(size_bytes, allocated_bytes);
        }
        if let Some(name) = name {
            let tally = tally_of(size_bytes, allocated_bytes);
            let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
            self.places().extensions.add(Kind::Named(Extension::of(last)), &tally);
        }
    }

    /// Counts a file that was added for its owner.
    fn add_owner(&mut self, uid: u32, size_bytes: u64, allocated_bytes: Option<u64>) {
        self.places().owners.add(Kind::Named(uid), &tally_of(size_bytes, allocated_bytes));
    }

    fn places(&mut self) -> &mut Places {
        self.survey.places.get_or_insert_with(|| Places { files: None, ..Places::new(0) })
    }

    fn overhead(&mut self, size_bytes: u64, allocated_bytes: u64) {
        let survey = &mut self.survey;
        let positive = allocated_bytes >= size_bytes;
        let overhead = allocated_bytes.abs_diff(size_bytes);
        let measure = if positive { Measure::PositiveOverhead } else { Measure::NegativeOverhead };
        survey.distributions.of_mut(measure).record(overhead);
        survey.overhead_by_size.record(size_bytes, positive, 1, overhead.into());
        survey.counts.sparse_files += u64::from(!positive);
    }

    /// Counts files of which only a range of sizes is known, both ends inclusive, and perhaps their sum.
    fn add_range(&mut self, low: u64, high: u64, count: u64, sum: Option<u128>) -> std::result::Result<(), String> {
        let survey = &mut self.survey;
        survey.origin.resolution = Resolution::Buckets;
        survey.counts.files =
            survey.counts.files.checked_add(count).filter(|all| *all <= MOST_FILES).ok_or("too many files")?;
        let interval = Interval { low, high, count: count.into(), sum };
        spread(survey.distributions.of_mut(Measure::FileSize), &interval).map_err(str::to_owned)
    }

    fn survey(self) -> (Survey, Vec<String>) {
        let mut survey = self.survey;
        if survey.origin.resolution == Resolution::Exact {
            survey.padding = Some(self.padding);
        }
        if let Some(places) = &mut survey.places {
            places.owners.cover(survey.counts.files);
            places.extensions.cover(survey.counts.files);
        }
        (survey, self.warnings)
    }
}

fn tally_of(size_bytes: u64, allocated_bytes: Option<u64>) -> Tally {
    Tally::of_file(size_bytes, allocated_bytes.unwrap_or(0), size_bytes <= SMALL_FILE_BYTES)
}

/// The lines of a text that are not empty, each with its number from 1.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let numbered = text.split(|&byte| byte == b'\n').zip(1..).map(|(line, number)| (number, line.trim_ascii()));
    numbered.filter(|(_, line)| !line.is_empty())
}

/// A size: digits only, bounded.
fn number(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii();
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok().filter(|number| *number <= MOST_FILE_BYTES)
}
