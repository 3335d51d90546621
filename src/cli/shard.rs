//! Shards of a survey on the command line: their numbers, what one says when it ends, and all of them together.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{output, sources};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::division::MOST_PARTS;
use crate::survey::Survey;
use crate::survey::part::{Joined, Part, join};
use crate::survey::run::Shard;
use crate::units::{escape_path, format_count};

/// Reads the number of a shard and the number of shards.
pub(super) fn parse(text: &str) -> std::result::Result<(u32, u32), String> {
    let numbers = text.split_once('/').and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
    match numbers {
        Some((number, count)) if (1..=count).contains(&number) && count <= MOST_PARTS => Ok((number, count)),
        _ => Err(format!("write 1/8 to 8/8 for 8 shards; there may be {}", format_count(MOST_PARTS.into()))),
    }
}

/// Writes what a shard found.
///
/// # Errors
/// Any error of `out`.
pub(super) fn write_end(shard: &Shard, survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let Shard { number, count, target, .. } = shard;
    let files = format_count(survey.counts.files.into());
    let directories = format_count(survey.counts.directories.into());
    writeln!(out, "shard {number} of {count}: {files} files in {directories} directories")?;
    if survey.origin.complete {
        writeln!(out, "written to {}; merge all shards with: granulo merge", escape_path(target))?;
    }
    Ok(())
}

/// Survey sources of which some may be shards.
pub(super) struct Opened {
    /// In the order of the sources; all shards together are one.
    pub(super) surveys: Vec<Survey>,
    /// Whether there are only shards.
    pub(super) only_shards: bool,
    /// Whether all shards of their survey are there.
    pub(super) is_whole: bool,
}

/// Opens survey sources, joins shards, and says what is missing.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<Opened> {
    let (mut surveys, mut parts, mut at) = (Vec::new(), Vec::new(), None);
    for path in paths {
        match is_file(path).then(|| Part::read(path)).transpose()?.flatten() {
            Some(part) => {
                at.get_or_insert(surveys.len());
                parts.push(part);
            }
            None => surveys.extend(sources::open_all(std::slice::from_ref(path))?),
        }
    }
    let Some(at) = at else { return Ok(Opened { surveys, only_shards: false, is_whole: true }) };
    let Joined { survey, missing, count, warnings } = join(parts)?;
    warnings.iter().for_each(|warning| output::warn(warning));
    if !missing.is_empty() {
        let numbers: Vec<String> = missing.iter().map(u32::to_string).collect();
        let cause = format!("{} of {count} are missing", missing.len());
        let error = Error::new(ErrorKind::NotFound, "find all shards", cause);
        output::complain(&error.advise(format!("take these and merge again: {}", numbers.join(", "))));
    }
    let only_shards = surveys.is_empty();
    surveys.insert(at, survey);
    Ok(Opened { surveys, only_shards, is_whole: missing.is_empty() })
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file())
}
