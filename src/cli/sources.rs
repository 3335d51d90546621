//! Reading sources for the commands that take them.

use std::path::{Path, PathBuf};

use super::output;
use crate::error::Result;
use crate::survey::{Survey, source};

/// Opens each source and prints its remarks.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<Vec<Survey>> {
    paths.iter().map(|path| open(path)).collect()
}

/// Opens a source and prints its remarks.
pub(super) fn open(path: &Path) -> Result<Survey> {
    Ok(open_with_notes(path)?.0)
}

/// The same; also returns the remarks.
pub(super) fn open_with_notes(path: &Path) -> Result<(Survey, Vec<String>)> {
    let source = source::open(path)?;
    for warning in &source.warnings {
        output::warn(&format!("{}: {warning}", crate::units::escape_path(path)));
    }
    Ok((source.survey, source.warnings))
}

/// The label of each of `surveys`: its own name if it has one, else that of its file; numbered where two are equal.
pub(super) fn names(surveys: &[Survey], paths: &[PathBuf]) -> Vec<String> {
    let plain: Vec<String> = surveys
        .iter()
        .zip(paths)
        .map(|(survey, path)| survey.origin.name.clone().unwrap_or_else(|| crate::units::escape_path(path)))
        .collect();
    let numbered = plain.iter().enumerate().map(|(index, name)| {
        let alike = plain[..index].iter().filter(|other| *other == name).count();
        if alike == 0 { name.clone() } else { format!("{name} ({})", alike + 1) }
    });
    numbered.collect()
}
