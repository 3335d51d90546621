//! Two or more populations side by side, for example then and now.

use serde::{Deserialize, Serialize};

use super::file::{UpToRow, format_time, up_to};
use super::growth::{Growth, growth, is_of_one_tree};
use super::measure::Measure;
use super::{Resolution, Survey};
use crate::distribution::{Distribution, distance};
use crate::document::Unread;
use crate::error::Result;
use crate::program;

/// The schema identifier of comparisons.
const SCHEMA: &str = "granulo/compare/1";

/// Populations side by side. Lists in its rows have one figure for each source, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `granulo/compare/1`.
    pub schema: String,
    /// Version that wrote it.
    #[serde(default)]
    pub granulo_version: String,
    /// Commit that wrote it, with `+changed` where the tree differed from it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granulo_commit: Option<String>,
    /// The sources.
    pub sources: Vec<Compared>,
    /// Shares up to zero and each power of two.
    pub up_to: Vec<CumulativeRow>,
    /// Distances of every pair.
    pub distances: Vec<Pair>,
    /// What changed, if there are two sources and they are surveys of one tree; from the earlier to the later, whatever
    /// their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
}

/// One population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What it is called here.
    pub name: String,
    /// The host, if it is of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it was taken, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<String>,
    /// How fine its data are.
    pub resolution: Resolution,
    /// Number of files.
    pub files: u128,
    /// Sum of their sizes.
    pub size_bytes: u128,
    /// Mean size.
    pub mean: f64,
    /// Deciles of the sizes by files.
    pub deciles: [u64; 10],
    /// Deciles of the sizes by bytes.
    pub deciles_by_total: [u64; 10],
}

/// Shares up to one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CumulativeRow {
    /// The size.
    pub size_bytes: u64,
    /// Share of the files of that size or smaller.
    pub files_fraction: Vec<f64>,
    /// Share of the bytes in them.
    pub bytes_fraction: Vec<f64>,
}

/// Distance between two populations: Kolmogorov-Smirnov distances of their sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The first.
    pub a: String,
    /// The second.
    pub b: String,
    /// Largest difference between the shares of files up to a size; 0 to 1.
    pub by_files: f64,
    /// The size at which it occurs.
    pub by_files_at: u64,
    /// Largest difference between the shares of bytes in files up to a size; 0 to 1.
    pub by_bytes: f64,
    /// The size at which it occurs.
    pub by_bytes_at: u64,
}

/// Reads a comparison; `None` if the document is something else.
///
/// # Errors
/// Same as [`Unread::read`].
pub(crate) fn read_document(document: &Unread<'_>) -> Option<Result<Comparison>> {
    document.read("read the comparison", SCHEMA, "write it again with granulo compare -o")
}

/// Compares `surveys`; `names` are their labels.
pub fn compare(surveys: &[Survey], names: &[String]) -> Comparison {
    let sizes: Vec<&Distribution> = surveys.iter().map(|survey| survey.distributions.of(Measure::FileSize)).collect();
    let sources = surveys.iter().zip(names).zip(&sizes).map(|((survey, name), sizes)| Compared {
        name: name.clone(),
        host: survey.origin.host().map(str::to_owned),
        taken_at: survey.origin.taken_at.map(format_time),
        resolution: survey.origin.resolution,
        files: sizes.count(),
        size_bytes: sizes.total(),
        mean: sizes.mean(),
        deciles: sizes.deciles(),
        deciles_by_total: sizes.deciles_by_sum(),
    });
    let mut distances = Vec::new();
    for (index, a) in sizes.iter().enumerate() {
        for (other, b) in sizes.iter().enumerate().skip(index + 1) {
            let gap = distance(a, b);
            distances.push(Pair {
                a: names[index].clone(),
                b: names[other].clone(),
                by_files: gap.by_count,
                by_files_at: gap.by_count_at,
                by_bytes: gap.by_sum,
                by_bytes_at: gap.by_sum_at,
            });
        }
    }
    let growth = match surveys {
        [one, other] if is_of_one_tree(one, other) && one.origin.taken_at > other.origin.taken_at => {
            Some(growth(other, one))
        }
        [one, other] if is_of_one_tree(one, other) => Some(growth(one, other)),
        _ => None,
    };
    Comparison {
        schema: SCHEMA.to_owned(),
        granulo_version: program::VERSION.to_owned(),
        granulo_commit: program::commit().map(str::to_owned),
        sources: sources.collect(),
        up_to: rows(&sizes),
        distances,
        growth,
    }
}

/// Rows up to the largest file of any source; a source that ends earlier stays at 1.
fn rows(sizes: &[&Distribution]) -> Vec<CumulativeRow> {
    let columns: Vec<Vec<UpToRow>> = sizes.iter().map(|sizes| up_to(sizes)).collect();
    let Some(longest) = columns.iter().max_by_key(|column| column.len()) else { return Vec::new() };
    let at = |column: &Vec<UpToRow>, index: usize| column.get(index).or(column.last()).copied();
    let row = |(index, edge): (usize, &UpToRow)| CumulativeRow {
        size_bytes: edge.size_bytes,
        files_fraction: columns.iter().map(|column| at(column, index).map_or(0.0, |row| row.files_fraction)).collect(),
        bytes_fraction: columns.iter().map(|column| at(column, index).map_or(0.0, |row| row.bytes_fraction)).collect(),
    };
    longest.iter().enumerate().map(row).collect()
}
