//! Distances of a generated tree from its source: as planned, and as surveyed on disk.

use std::path::Path;

use super::super::progress::{during, survey_words};
use crate::distribution::{Distance, Distribution, distance};
use crate::error::Result;
use crate::population::document::{BOUND_BY_BYTES, BOUND_BY_FILES, BOUNDED_FILES, Bounds, MeasureDistance};
use crate::population::stratify::{count_for_distance, least_distance_by_sum};
use crate::population::{Design, Recipe, Shape};
use crate::progress::Progress;
use crate::scan::default_threads;
use crate::survey::measure::Measure;
use crate::survey::run::{MethodChoice, Request, take};
use crate::survey::{Options, Snapshots, Survey};

/// The planned distances of a design.
pub(super) fn planned(recipe: &Recipe, design: &Design, sizes: &Distribution) -> Vec<MeasureDistance> {
    let row = |measure: Measure, planned| MeasureDistance {
        measure: measure.name(),
        unit: measure.unit(),
        planned,
        reached: None,
    };
    let mut rows = vec![row(Measure::FileSize, Some(distance(&design.source_sizes, sizes)))];
    if recipe.names.is_some() {
        rows.push(row(Measure::NameLength, None));
    }
    if let Shape::Measured { entries, depths } = &recipe.shape {
        rows.push(row(Measure::DirectoryEntries, Some(distance(entries, &design.tree.entries()))));
        let of_depths = depths.as_ref().map(|depths| distance(depths, &design.tree.depths()));
        rows.extend(of_depths.map(|planned| row(Measure::DirectoryDepth, Some(planned))));
    }
    rows.extend(recipe.mtime_ages.is_some().then(|| row(Measure::MtimeAge, None)));
    rows.extend(recipe.atime_ages.is_some().then(|| row(Measure::AtimeAge, None)));
    rows
}

/// The distances as surveyed on disk.
pub(super) fn reached(
    recipe: &Recipe,
    design: &Design,
    survey: &Survey,
    planned: &[MeasureDistance],
) -> Vec<MeasureDistance> {
    let (entries, depths) = match &recipe.shape {
        Shape::Measured { entries, depths } => (Some(entries), depths.as_ref()),
        Shape::Even { .. } => (None, None),
    };
    let source = |measure: Measure| match measure {
        Measure::FileSize => Some(&design.source_sizes),
        Measure::NameLength => recipe.names.as_ref(),
        Measure::DirectoryEntries => entries,
        Measure::DirectoryDepth => depths,
        Measure::MtimeAge => recipe.mtime_ages.as_ref(),
        Measure::AtimeAge => recipe.atime_ages.as_ref(),
        _ => None,
    };
    let of = |row: &MeasureDistance| {
        let measure = Measure::ALL.into_iter().find(|measure| measure.name() == row.measure);
        let found = measure.and_then(|measure| Some(distance(source(measure)?, survey.distributions.of(measure))));
        MeasureDistance { reached: found, ..row.clone() }
    };
    planned.iter().map(of).collect()
}

/// Bounds of the distances of the sizes, and whether they are met.
pub(super) fn bounds(design: &Design, sizes: Option<Distance>) -> Bounds {
    let files = design.files();
    let is_met = |sizes: Distance| sizes.by_count <= BOUND_BY_FILES && sizes.by_sum <= BOUND_BY_BYTES;
    Bounds {
        by_files: BOUND_BY_FILES,
        by_bytes: BOUND_BY_BYTES,
        from_files: BOUNDED_FILES,
        least_by_bytes: least_distance_by_sum(&design.source_sizes, files),
        files_for_bytes: count_for_distance(&design.source_sizes, BOUND_BY_BYTES),
        met: sizes.filter(|_| files >= BOUNDED_FILES).map(is_met),
    }
}

/// Surveys the tree on disk.
pub(super) fn survey_back(directory: &Path, reference_time: i64, quiet: bool, progress: &Progress) -> Result<Survey> {
    let request = Request {
        roots: vec![directory.to_owned()],
        options: Options { snapshots: Snapshots::Include, ..Options::default() },
        threads: default_threads(),
        name: None,
        shard: None,
        limit: 0,
        anonymous: false,
        reference_time: Some(reference_time),
        file_table: None,
        ncdu: None,
        checkpoints: None,
        method: MethodChoice::Walk,
        without_names: false,
        incremental: None,
        memory: None,
    };
    Ok(during(quiet, progress, survey_words(), || take(request, None, progress))?.survey)
}
