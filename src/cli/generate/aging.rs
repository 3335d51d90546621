//! `granulo generate --age`: the fill level, and the result of aging.

use std::os::fd::OwnedFd;

use super::super::progress::during;
use super::super::{Ended, output};
use super::request::TreeRequest;
use super::{GenerateArguments, Generation, UNSURVEYED};
use crate::distribution::distance;
use crate::error::{Error, ErrorKind, Result};
use crate::population::Room;
use crate::population::age::{Aged, Aging, age, written_fraction};
use crate::population::document::{self, Document, MadeFiles};
use crate::progress::Snapshot;
use crate::report::generate::aging_progress_words;
use crate::survey::Survey;
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
        let survey = self.survey(aged.complete, run)?;
        self.conclude_aging(document, run, &aging, aged, survey)
    }

    /// Reports the result.
    fn conclude_aging(
        &self,
        mut document: Document,
        run: &Generation<'_>,
        aging: &Aging,
        mut aged: Aged,
        survey: Option<Survey>,
    ) -> Result<Ended> {
        // What cannot be done at all is no result.
        if aged.created == 0
            && let Some(error) = aged.failed.take_if(|error| error.kind() == ErrorKind::Usage)
        {
            return Err(error);
        }
        let room = std::fs::File::open(&self.directory).ok().and_then(|opened| Room::of(opened).ok());
        // An interrupted survey knows a part of the tree.
        let whole = survey.as_ref().filter(|survey| survey.origin.complete);
        match (whole, document.distances.first_mut()) {
            (Some(survey), Some(sizes)) => {
                sizes.reached = Some(distance(&run.design.source_sizes, survey.distributions.of(Measure::FileSize)));
            }
            _ => document.distances.clear(),
        }
        let seconds = (aged.filled + aged.elapsed).as_secs_f64();
        document.complete = aged.complete;
        document.made = Some(MadeFiles {
            files: aged.files,
            directories: aged.directories,
            size_bytes: aged.size_bytes,
            allocated_bytes: whole.map(Survey::allocated_bytes),
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
        if aged.complete && whole.is_none() {
            output::warn(UNSURVEYED);
        }
        self.say_what_stays(aged.complete, aged.files, aged.failed);
        if aged.left_out > 0 {
            let many = format_count(aged.left_out.into());
            output::warn(&format!("{many} files larger than the fill level were left out"));
        }
        Ok(if whole.is_some() { Ended::Well } else { Ended::Amiss })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use crate::population::{Content, Design, MakeOptions};
    use crate::progress::Progress;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        generate: GenerateArguments,
    }

    /// Makes a small tree with `arguments`, and interrupts the survey of it; returns how that ended, and the document.
    fn unsurveyed(arguments: &[&str]) -> (Ended, Value) {
        let sandbox = tempfile::tempdir().unwrap();
        let output = sandbox.path().join("made.json");
        let (directory, output) = (sandbox.path().join("tree"), output.to_str().unwrap());
        let words = ["generate", "weighted:k=0,min=4096,max=4096", directory.to_str().unwrap(), "--files", "20"];
        let words = [&words[..], &["--quiet", "--json", "--output", output], arguments].concat();
        let arguments = Arguments::try_parse_from(words).unwrap().generate;
        let (tree, room) = (arguments.tree().unwrap(), arguments.room().unwrap());
        let design = Design::new(&tree.recipe, 20, 1.0, 1, None, 255);
        let sizes = design.sizes.distribution();
        let mut document = arguments.document(&tree, &design, &room, &sizes, 0);
        // As of a tree with enough files.
        document.bounds.met = Some(true);
        let (content, progress) = (Content::Zero, Progress::default());
        let settings = MakeOptions { threads: 1, content, now: 0, block_bytes: 4096, kept_bytes: 0, sync: false };
        let run = Generation { tree: &tree, design: &design, planned_sizes: &sizes, settings, progress: &progress };
        let root = arguments.open_root().unwrap();
        let survey = || {
            // A small tree is surveyed before anything can interrupt that.
            let mut survey = arguments.survey(true, &run).unwrap();
            survey.iter_mut().for_each(|survey| survey.origin.complete = false);
            survey
        };
        let ended = match arguments.age {
            Some(operations) => {
                let aging = Aging { operations, level_bytes: 1 << 20, ages: tree.ages.clone() };
                let aged = age(root, &arguments.directory, &design, &aging, settings, &progress);
                arguments.conclude_aging(document, &run, &aging, aged, survey())
            }
            None => {
                let made = arguments.make(root, &run);
                arguments.conclude(document, &run, made, survey())
            }
        };
        (ended.unwrap(), serde_json::from_slice(&std::fs::read(output).unwrap()).unwrap())
    }

    #[test]
    fn nothing_is_said_of_the_part_that_an_interrupted_survey_saw() {
        for arguments in [&[][..], &["--age", "10"]] {
            let (ended, document) = unsurveyed(arguments);
            assert_eq!((ended, &document["complete"]), (Ended::Amiss, &Value::from(true)), "{document}");
            assert!(document["made"]["files"].as_u64().unwrap() >= 20, "{document}");
            assert_eq!(document["made"]["allocated_bytes"], Value::Null);
            assert_eq!(document["distances"], json!([]));
            if arguments.is_empty() {
                assert_eq!(document["bounds"]["met"], Value::Null);
            }
        }
    }
}
