//! What `--list` prints, as documents: the layout models, and the published populations.

use serde::Serialize;

use crate::distribution::published::{self, Published};
use crate::layout::{Kind, kinds};
use crate::population::profiles::{self, Profile};
use crate::program;

/// The layout models, `granulo/models/1`.
#[derive(Serialize)]
pub(super) struct ModelList {
    schema: &'static str,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    models: Vec<ModelRecord>,
}

#[derive(Serialize)]
struct ModelRecord {
    name: &'static str,
    summary: &'static str,
    options: Vec<OptionRecord>,
}

#[derive(Serialize)]
struct OptionRecord {
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
    values: String,
}

/// The published populations, `granulo/published/1`.
#[derive(Serialize)]
pub(super) struct PublishedList {
    schema: &'static str,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    tables: Vec<TableRecord>,
    profiles: Vec<ProfileRecord>,
}

#[derive(Serialize)]
struct TableRecord {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    year: u16,
    files: u64,
    is_count_assumed: bool,
}

/// A population for `generate` alone.
#[derive(Serialize)]
struct ProfileRecord {
    name: String,
    source: &'static str,
    sizes: usize,
    largest_bytes: u64,
    ages: usize,
}

/// All layout models.
pub(super) fn models() -> ModelList {
    ModelList {
        schema: "granulo/models/1",
        granulo_version: program::VERSION,
        granulo_commit: program::commit(),
        models: kinds().iter().map(|kind| model(kind)).collect(),
    }
}

fn model(kind: &Kind) -> ModelRecord {
    let option = |option: &crate::layout::Opt| OptionRecord {
        name: option.name,
        default: option.default,
        meaning: option.meaning,
        values: option.range.describe(),
    };
    ModelRecord { name: kind.name, summary: kind.summary, options: kind.options.iter().map(option).collect() }
}

/// All published populations.
pub(super) fn published() -> PublishedList {
    PublishedList {
        schema: "granulo/published/1",
        granulo_version: program::VERSION,
        granulo_commit: program::commit(),
        tables: published::all().iter().map(table).collect(),
        profiles: profiles::all().iter().map(profile).collect(),
    }
}

fn table(table: &Published) -> TableRecord {
    TableRecord {
        name: table.name,
        title: table.title,
        source: table.source,
        year: table.year,
        files: table.files,
        is_count_assumed: table.is_count_assumed,
    }
}

fn profile(profile: &Profile) -> ProfileRecord {
    ProfileRecord {
        name: profile.name.clone(),
        source: profiles::SOURCE,
        sizes: profile.sizes.cells().count(),
        largest_bytes: profile.sizes.max(),
        ages: profile.ages.len(),
    }
}
