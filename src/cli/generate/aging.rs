//! `granulo generate --age`: the fill level, and the result of aging.

use std::os::fd::OwnedFd;

use super::super::progress::during;
use super::super::{Ended, output};
use super::distances::survey_back;
use super::request::TreeRequest;
use super::{GenerateArguments, Generation};
use crate::distribution::distance;
use crate::error::{Error, ErrorKind, Result};
use crate::population::Room;
use crate::population::age::{Aged, Aging, age, written_fraction};
use crate::population::document::{self, Document, MadeFiles};
use crate::progress::Snapshot;
use crate::report::generate::aging_progress_words;
use crate::survey::measure::Measure;
use crate::units::{format_count, format_share};

/// Default fill level.
const FILL: f64 = 0.8;

/// The space that files need at the fill level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) bytes: u64,
    /// The approximate number of files.
    pub(super) files: u64,
}

impl GenerateArguments {
    /// The space that files need at the fill level; `None` without aging, or with aging at the requested size.
    pub(super) fn level(&self, tree: &TreeRequest, room: &Room) -> Result<Option<Level>> {
        if self.age.is_none() || self.files.is_some() || self.bytes.is_some() || self.scale.is_some() {
            return Ok(None);
        }
        let fill = self.fill.unwrap_or(FILL);
        let bytes = match self.limit {
            Some(limit) => limit as f64 * fill,
            None => (room.used_bytes as f64 + room.available_bytes as f64) * fill - room.used_bytes as f64,
        };
        let fail = |cause: String| Error::new(ErrorKind::Usage, "age", cause);
        if bytes < 1.0 {
            let used = format_share(room.fill_fraction());
            return Err(fail(format!("{used} of the file system is already in use")).advise("raise --fill"));
        }
        let mean = room.tariff(written_fraction(self.content)).mean_bytes(&tree.recipe.sizes);
        let files = (bytes / mean.max(1.0)) as u64;
        if files == 0 {
            let cause = "not even one file of the mean size fits below the fill level".to_owned();
            return Err(fail(cause).advise("raise --fill or --limit"));
        }
        Ok(Some(Level { bytes: bytes as u64, files }))
    }

    /// Fills the directory up to the level, ages it, and reports the result.
    pub(super) fn age(
        &self,
        root: OwnedFd,
        run: &Generation<'_>,
        document: Document,
        operations: u64,
        level_bytes: u64,
    ) -> Result<Ended> {
        let aging = Aging { operations, level_bytes, ages: run.tree.ages.clone() };
        let words = |now: &Snapshot| aging_progress_words(now, level_bytes, operations);
        let aged = during(self.quiet, run.progress, words, || {
            age(root, &self.directory, run.design, &aging, run.settings, run.progress)
        });
        self.conclude_aging(document, run, &aging, aged)
    }

    /// Surveys the tree, and reports the result.
    fn conclude_aging(&self, mut document: Document, run: &Generation<'_>, aging: &Aging, aged: Aged) -> Result<Ended> {
        let room = std::fs::File::open(&self.directory).ok().and_then(|opened| Room::of(opened).ok());
        let mut allocated_bytes = None;
        if aged.complete {
            let survey = survey_back(&self.directory, run.settings.now, self.quiet, run.progress)?;
            allocated_bytes = Some(survey.allocated_bytes());
            if let Some(sizes) = document.distances.first_mut() {
                sizes.reached = Some(distance(&run.design.source_sizes, survey.distributions.of(Measure::FileSize)));
            }
        } else {
            document.distances.clear();
        }
        let seconds = (aged.filled + aged.elapsed).as_secs_f64();
        document.complete = aged.complete;
        document.made = Some(MadeFiles {
            files: aged.files,
            directories: aged.directories,
            size_bytes: aged.size_bytes,
            allocated_bytes,
            elapsed_seconds: seconds,
            sync_seconds: 0.0,
            files_per_second: aged.created as f64 / seconds.max(1e-9),
            bytes_per_second: aged.created_bytes as f64 / seconds.max(1e-9),
        });
        document.aging = Some(document::Aging {
            operations: aged.operations,
            created: aged.created,
            deleted: aged.deleted,
            left_out: aged.left_out,
            level_bytes: aging.level_bytes,
            fill_fraction: room.map_or(0.0, |room| room.fill_fraction()),
            filled_seconds: aged.filled.as_secs_f64(),
            elapsed_seconds: aged.elapsed.as_secs_f64(),
            age_distance: aged.age_distance,
            first: aged.first,
            last: aged.last,
        });
        document.notes.extend(aged.notes);
        self.finish(&document, Ended::Well)?;
        self.say_what_stays(aged.complete, aged.files, aged.failed);
        if aged.left_out > 0 {
            let many = format_count(aged.left_out.into());
            output::warn(&format!("{many} files larger than the fill level were left out"));
        }
        Ok(if aged.complete { Ended::Well } else { Ended::Amiss })
    }
}
