//! Survey files: the JSON of docs/SCHEMA.md, written and read.
//!
//! Derived values (means, deciles, buckets, block sizes) are written for other programs and ignored when read. All
//! other values are checked: arrays against each other, counts and totals against the cells, and everything against
//! bounds that keep later arithmetic from overflowing. So a survey that was read is as sound as one that was taken.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{IgnoredAny, MapAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::{ErrorLog, Example, KindCount};
use super::machine::Machine;
use super::measure::{ByteMeasure, Distributions, Measure};
use super::places_file::{MOST_BYTES, PlacesRecord, safe};
use super::tree_file::TreeRecord;
use super::{Counts, MOST, Method, Options, Origin, OtherAllocated, OverheadBySize, Resolution, Survey};
use crate::distribution::{Bucket, Distribution, Encoded, Weight, bucket_number};
use crate::document::check_printable_strings;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::systems::Fact;
use crate::plan::{BlockSize, Padding, block_sizes};
use crate::program;
use crate::units::{escape, fraction};

const KIND: &str = "granulo/survey/";
const VERSION: u32 = 1;

/// How much of the distributions is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Everything.
    Full,
    /// All except the fine data: enough to read, not to compute further values from.
    Summary,
}

/// Writes a survey as one line of JSON.
///
/// # Errors
/// Any error of `out`.
pub fn write(survey: &Survey, detail: Detail, out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, &Document::of(survey, detail))?;
    out.write_all(b"\n")
}

/// Whether `text` looks like a survey file (or any other JSON of granulo's).
pub fn looks_like(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

/// Reads what [`write()`] wrote with full detail; `path` is for the error.
///
/// # Errors
/// [`ErrorKind::NotRecognised`], [`ErrorKind::NewerVersion`] or [`ErrorKind::Corrupt`].
pub fn read(text: &[u8], path: &Path) -> Result<Survey> {
    parse(text).map_err(|error| error.at(path))
}

fn parse(text: &[u8]) -> Result<Survey> {
    let fail = |kind, cause: String| Error::new(kind, "read the survey", cause);
    let corrupt = |cause: &str| {
        fail(ErrorKind::Corrupt, cause.to_owned()).advise("the file was edited or damaged: take the survey again")
    };
    let cut =
        || fail(ErrorKind::Corrupt, "it is truncated".to_owned()).advise("copy it again, or take the survey again");
    let json = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Eof => cut(),
        _ if is_at_the_end(text, &error) => cut(),
        serde_json::error::Category::Data => corrupt(&error.to_string()),
        _ => fail(ErrorKind::NotRecognised, format!("it is not JSON: {error}")),
    };
    #[derive(Deserialize)]
    struct Schema {
        schema: Option<String>,
    }
    let Schema { schema } = serde_json::from_slice(text).map_err(json)?;
    let version = schema.as_deref().and_then(|schema| schema.strip_prefix(KIND)).and_then(|v| v.parse::<u32>().ok());
    match version {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => {
            return Err(Error::newer_version("read the survey", newer, VERSION));
        }
        _ => {
            let error = match schema {
                Some(other) => {
                    let (expected, found) = (format!("{KIND}{VERSION}"), escape(other.as_bytes()));
                    let cause = format!("its schema is \"{found}\", not {expected}");
                    fail(ErrorKind::NotRecognised, cause).mismatch(expected, found)
                }
                None => fail(ErrorKind::NotRecognised, "it is JSON without a schema, not a survey".to_owned()),
            };
            return Err(error.advise("write one with: granulo survey PATH -o FILE"));
        }
    }
    check_printable_strings(text).map_err(json)?;
    let stored: Stored = serde_json::from_slice(text).map_err(json)?;
    stored.into_survey().map_err(|cause| corrupt(&cause))
}

/// Whether the parser failed at the very end of the text: a number cut after its decimal point is not a number.
fn is_at_the_end(text: &[u8], error: &serde_json::Error) -> bool {
    let last_line = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let last_column = text.iter().rev().take_while(|&&byte| byte != b'\n').count();
    text.trim_ascii().last() != Some(&b'}') && (error.line(), error.column()) == (last_line, last_column)
}

/// A point in time as RFC 3339, UTC.
pub fn format_time(seconds: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Seconds since 1970 of an RFC 3339 time (or one without `T` and `Z`).
pub fn parse_time(text: &str) -> Option<i64> {
    let time: SystemTime = humantime::parse_rfc3339_weak(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The document as written.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: String,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    name: &'a Option<String>,
    roots: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: &'a Option<String>,
    machines: &'a [Machine],
    method: Method,
    #[serde(skip_serializing_if = "str::is_empty")]
    method_reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    consistent: Option<bool>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    inconsistencies: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    without_names: bool,
    #[serde(skip_serializing_if = "<[Fact]>::is_empty")]
    facts: &'a [Fact],
    resolution: Resolution,
    taken_at: Option<String>,
    ages_relative_to: Option<String>,
    elapsed_seconds: f64,
    complete: bool,
    anonymous: bool,
    options: &'a Options,
    counts: &'a Counts,
    totals: Totals,
    distributions: DistributionMap<'a>,
    overhead_by_size: OverheadRecord,
    up_to: Vec<UpToRow>,
    block_sizes: Vec<BlockSize>,
    #[serde(rename = "where")]
    places: Option<PlacesRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<TreeRecord>,
    errors: ErrorsRecord,
}

impl<'a> Document<'a> {
    /// The document of a survey.
    pub fn of(survey: &'a Survey, detail: Detail) -> Document<'a> {
        let origin = &survey.origin;
        let sizes = survey.distributions.of(Measure::FileSize);
        Document {
            schema: format!("{KIND}{VERSION}"),
            granulo_version: program::VERSION,
            granulo_commit: program::commit(),
            name: &origin.name,
            roots: &origin.roots,
            directory: &origin.directory,
            machines: &origin.machines,
            method: origin.method,
            method_reason: &origin.method_reason,
            consistent: (origin.method == Method::InodeScan).then_some(origin.inconsistencies.is_empty()),
            inconsistencies: &origin.inconsistencies,
            without_names: origin.without_names,
            facts: &origin.facts,
            resolution: origin.resolution,
            taken_at: origin.taken_at.map(format_time),
            ages_relative_to: origin.reference_time.map(format_time),
            elapsed_seconds: origin.elapsed_seconds,
            complete: origin.complete,
            anonymous: origin.anonymous,
            options: &origin.options,
            counts: &survey.counts,
            totals: Totals {
                size_bytes: survey.size_bytes(),
                allocated_bytes: survey.allocated_bytes(),
                overhead_fraction: survey.overhead_fraction(),
                directories_allocated_bytes: survey.other_allocated.directories_bytes,
                symlinks_allocated_bytes: survey.other_allocated.symlinks_bytes,
            },
            distributions: DistributionMap { survey, detail },
            overhead_by_size: OverheadRecord {
                positive: survey.overhead_by_size.positive(),
                negative: survey.overhead_by_size.negative(),
            },
            up_to: up_to(sizes),
            block_sizes: block_sizes(sizes, survey.padding.as_ref()),
            places: survey.places.as_ref().map(PlacesRecord::of),
            tree: survey.tree.as_ref().map(|tree| TreeRecord::of(tree, origin.anonymous)),
            errors: ErrorsRecord { by_kind: survey.errors.by_kind(), examples: survey.errors.examples().to_vec() },
        }
    }
}

#[derive(Serialize)]
struct Totals {
    size_bytes: u128,
    allocated_bytes: u128,
    overhead_fraction: f64,
    directories_allocated_bytes: u128,
    symlinks_allocated_bytes: u128,
}

/// Share of files and bytes in files up to a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UpToRow {
    /// The size.
    pub size_bytes: u64,
    /// Share of the files of that size or smaller.
    pub files_fraction: f64,
    /// Share of the bytes in them.
    pub bytes_fraction: f64,
}

/// [`UpToRow`]s for zero and for each power of two up to the first that holds every file.
pub fn up_to(sizes: &Distribution) -> Vec<UpToRow> {
    let (files, bytes) = (sizes.count(), sizes.total());
    let mut rows = Vec::new();
    let (mut files_seen, mut bytes_seen) = (0, 0);
    let mut cells = sizes.cells().peekable();
    let edges = std::iter::once(0).chain((0..u64::BITS).map(|exponent| 1u64 << exponent)).chain([u64::MAX]);
    for edge in edges {
        while let Some(cell) = cells.next_if(|cell| cell.high <= edge) {
            files_seen += cell.count;
            bytes_seen += cell.sum;
        }
        rows.push(UpToRow {
            size_bytes: edge,
            files_fraction: fraction(files_seen, files),
            bytes_fraction: fraction(bytes_seen, bytes),
        });
        if cells.peek().is_none() {
            break;
        }
    }
    rows
}

struct DistributionMap<'a> {
    survey: &'a Survey,
    detail: Detail,
}

impl Serialize for DistributionMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let distributions = &self.survey.distributions;
        let of_counted = |measure: Measure| {
            let padding = self.survey.padding.as_ref().filter(|_| measure == Measure::FileSize);
            DistributionRecord::of(distributions.of(measure), measure.unit(), padding, self.detail)
        };
        let of_weighted = |measure: ByteMeasure| {
            DistributionRecord::of(distributions.by_bytes(measure), measure.unit(), None, self.detail)
        };
        // The first two have most of the cells.
        let (first, others) = Measure::ALL.split_at(2);
        let (first, others, weighted) = std::thread::scope(|scope| {
            let first = scope.spawn(|| first.iter().map(|&measure| of_counted(measure)).collect::<Vec<_>>());
            let others: Vec<_> = others.iter().map(|&measure| of_counted(measure)).collect();
            let weighted = ByteMeasure::ALL.map(of_weighted);
            (first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), others, weighted)
        });
        let mut map = serializer.serialize_map(None)?;
        for (measure, record) in Measure::ALL.iter().zip(first.iter().chain(&others)) {
            map.serialize_entry(measure.name(), record)?;
        }
        for (measure, record) in ByteMeasure::ALL.iter().zip(&weighted) {
            map.serialize_entry(measure.name(), record)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct DistributionRecord<'a> {
    unit: &'static str,
    count: u128,
    min: u64,
    max: u64,
    mean: f64,
    total: u128,
    deciles: [u64; 10],
    deciles_by_total: [u64; 10],
    buckets: Vec<Bucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<&'a Padding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Encoded>,
}

impl<'a> DistributionRecord<'a> {
    fn of<W: Weight>(
        distribution: &Distribution<W>,
        unit: &'static str,
        padding: Option<&'a Padding>,
        detail: Detail,
    ) -> DistributionRecord<'a> {
        DistributionRecord {
            unit,
            count: distribution.count(),
            min: distribution.min(),
            max: distribution.max(),
            mean: distribution.mean(),
            total: distribution.total(),
            deciles: distribution.deciles(),
            deciles_by_total: distribution.deciles_by_sum(),
            buckets: distribution.buckets(),
            padding,
            detail: (detail == Detail::Full).then(|| Encoded::from(distribution)),
        }
    }
}

#[derive(Serialize)]
struct OverheadRecord {
    positive: Vec<Bucket>,
    negative: Vec<Bucket>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct ErrorsRecord {
    by_kind: Vec<KindCount>,
    examples: Vec<Example>,
}

/// The document as read: the values that cannot be derived.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    roots: Vec<String>,
    #[serde(default)]
    directory: Option<String>,
    #[serde(default)]
    machines: Vec<Machine>,
    method: Method,
    #[serde(default)]
    method_reason: String,
    #[serde(default)]
    inconsistencies: Vec<String>,
    #[serde(default)]
    without_names: bool,
    #[serde(default)]
    facts: Vec<Fact>,
    resolution: Resolution,
    #[serde(default)]
    taken_at: Option<String>,
    #[serde(default)]
    ages_relative_to: Option<String>,
    #[serde(default)]
    elapsed_seconds: f64,
    complete: bool,
    anonymous: bool,
    options: Options,
    counts: Counts,
    totals: StoredTotals,
    #[serde(deserialize_with = "known_distributions")]
    distributions: BTreeMap<&'static str, StoredDistribution>,
    overhead_by_size: StoredOverhead,
    #[serde(rename = "where")]
    places: Option<PlacesRecord>,
    #[serde(default)]
    tree: Option<TreeRecord>,
    #[serde(default)]
    errors: ErrorsRecord,
}

/// The distributions that this version knows, by name; others are ignored.
fn known_distributions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<BTreeMap<&'static str, StoredDistribution>, D::Error> {
    struct Known;
    impl<'de> serde::de::Visitor<'de> for Known {
        type Value = BTreeMap<&'static str, StoredDistribution>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("distributions by name")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Self::Value, M::Error> {
            let counted = Measure::ALL.into_iter().map(Measure::name);
            let names: Vec<&'static str> = counted.chain(ByteMeasure::ALL.into_iter().map(ByteMeasure::name)).collect();
            let mut known = BTreeMap::new();
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                match names.iter().find(|name| **name == key) {
                    Some(name) => {
                        known.insert(*name, map.next_value()?);
                    }
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(known)
        }
    }
    deserializer.deserialize_map(Known)
}

#[derive(Deserialize)]
struct StoredTotals {
    directories_allocated_bytes: u128,
    symlinks_allocated_bytes: u128,
}

#[derive(Deserialize)]
struct StoredDistribution {
    count: u128,
    total: u128,
    #[serde(default)]
    padding: Option<Padding>,
    detail: Encoded,
}

#[derive(Deserialize)]
struct StoredOverhead {
    positive: Vec<StoredBucket>,
    negative: Vec<StoredBucket>,
}

#[derive(Deserialize)]
struct StoredBucket {
    low: u64,
    count: u64,
    sum: u128,
}

impl StoredDistribution {
    fn decode<W: Weight>(&self, name: &str) -> std::result::Result<Distribution<W>, String> {
        let distribution = Distribution::try_from(&self.detail).map_err(|cause| format!("{cause} ({name})"))?;
        if (distribution.count(), distribution.total()) != (self.count, self.total) {
            return Err(format!("the count or total of the distribution {name} does not match its details"));
        }
        Ok(distribution)
    }
}

impl Stored {
    fn into_survey(self) -> std::result::Result<Survey, String> {
        let mut distributions = Distributions::default();
        let stored =
            |name: &str| self.distributions.get(name).ok_or_else(|| format!("the distribution {name} is missing"));
        for measure in Measure::ALL {
            // Surveys of the first version lack it.
            if measure != Measure::DirectoryDepth || self.distributions.contains_key(measure.name()) {
                *distributions.of_mut(measure) = stored(measure.name())?.decode(measure.name())?;
            }
        }
        for measure in ByteMeasure::ALL {
            *distributions.by_bytes_mut(measure) = stored(measure.name())?.decode(measure.name())?;
        }
        let padding = stored(Measure::FileSize.name())?.padding;
        if padding.is_some_and(|padding| padding.0.iter().any(|&bytes| bytes > MOST_BYTES)) {
            return Err("the padding is too large".to_owned());
        }
        let mut overhead_by_size = OverheadBySize::default();
        for (buckets, positive) in [(&self.overhead_by_size.positive, true), (&self.overhead_by_size.negative, false)] {
            for bucket in buckets {
                if u128::from(bucket.low) != Bucket::of(bucket_number(bucket.low)).low {
                    return Err("a bucket of the overhead by size does not start at a power of two".to_owned());
                }
                if bucket.count > MOST || bucket.sum > MOST_BYTES {
                    return Err("the counts in a bucket of the overhead by size are too large".to_owned());
                }
                overhead_by_size.record(bucket.low, positive, bucket.count, bucket.sum);
            }
        }
        let other_allocated = OtherAllocated {
            directories_bytes: self.totals.directories_allocated_bytes,
            symlinks_bytes: self.totals.symlinks_allocated_bytes,
        };
        let others = [other_allocated.directories_bytes, other_allocated.symlinks_bytes];
        if !self.counts.is_plausible() || others.iter().any(|&bytes| bytes > MOST_BYTES) {
            return Err("a count is too large".to_owned());
        }
        let time = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => parse_time(text).map(Some).ok_or("a time is not in RFC 3339 format"),
        };
        let (taken_at, reference_time) = (time(&self.taken_at)?, time(&self.ages_relative_to)?);
        Ok(Survey {
            origin: Origin {
                name: self.name.map(safe),
                roots: self.roots.into_iter().map(safe).collect(),
                directory: self.directory.map(safe),
                machines: self.machines.into_iter().map(|machine| machine.map_text(&safe)).collect(),
                method: self.method,
                method_reason: safe(self.method_reason),
                inconsistencies: self.inconsistencies.into_iter().map(safe).collect(),
                without_names: self.without_names,
                facts: self.facts.into_iter().map(|fact| fact.map_text(safe)).collect(),
                resolution: self.resolution,
                taken_at,
                reference_time,
                elapsed_seconds: self.elapsed_seconds,
                complete: self.complete,
                anonymous: self.anonymous,
                options: self.options,
            },
            counts: self.counts,
            other_allocated,
            distributions,
            overhead_by_size,
            padding,
            places: self.places.map(|places| places.places()).transpose()?,
            tree: self.tree.map(|tree| tree.tree(MOST, MOST_BYTES)).transpose()?,
            errors: ErrorLog::from_parts(
                self.errors.by_kind.into_iter().map(KindCount::map_text(safe)).collect(),
                self.errors.examples.into_iter().map(Example::map_text(safe)).collect(),
            ),
        })
    }
}
