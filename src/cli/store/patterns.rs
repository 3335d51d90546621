//! What an import takes of its source: `--exclude` and `--include`.
//!
//! Patterns are those of `granulo survey --exclude`: without a slash for any name, with one for the path below the
//! source. What is below a directory that matches is meant with it. What is excluded stays excluded, whatever is
//! included; directories above included files are taken, too.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;

use crate::error::Result;
use crate::scan::exclude::Exclude;
use crate::store::tree::Selection;

/// What of a source to take.
#[derive(Debug, Args)]
pub(super) struct Patterns {
    /// Leave out what matches this glob, such as '*.tmp', .git or 'build/**'; may be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Take only files that match this glob, or are in a directory that does; may be repeated
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
}

impl Patterns {
    pub(super) fn selection(&self) -> Result<Selection> {
        if self.exclude.is_empty() && self.include.is_empty() {
            return Ok(Selection::default());
        }
        let exclude = Exclude::new(&self.exclude)?;
        let include = if self.include.is_empty() { None } else { Some(Exclude::new(&self.include)?) };
        Ok(Selection::by(move |path, is_directory| {
            !is_match(&exclude, path)
                && include
                    .as_ref()
                    .is_none_or(|include| is_directory || path.ancestors().any(|above| is_match(include, above)))
        }))
    }
}

fn is_match(patterns: &Exclude, path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let directory = path.parent().map_or(&b""[..], |parent| parent.as_os_str().as_bytes());
    patterns.matches(directory, name.as_bytes())
}
