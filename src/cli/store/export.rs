//! `granulo store export`: extract a tree from a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::{transfer_words, with_total};
use super::{Ended, StateToRead, key, objects_in_words, or_damage, output, say_reports};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::report::store::{count_words, write_sentences};
use crate::store::tree::{ExportOptions, ExportSummary, export};
use crate::units::{escape_path, format_size};

/// Export a store to a directory tree: content, attributes, links, extended attributes, holes
///
/// Nothing is written outside DIR, whatever names and links the store contains. Objects that cannot be created or
/// read are reported, and the rest is exported. Owners are set where this user is allowed to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store export /srv/s /data/restored\n  granulo store export /srv/s cats --prefix pictures/cats\n  \
    granulo store export /srv/s cats --prefix pictures/cats --resume"
)]
pub(super) struct ExportArguments {
    #[command(flatten)]
    at: StateToRead,
    /// Target directory: empty or not yet existing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Directory of the store to export to DIR
    #[arg(long, value_name = "KEY", default_value = "/", hide_default_value = true)]
    prefix: OsString,
    /// Resume an interrupted export: files with the same type, size and time are kept, others are replaced
    #[arg(long)]
    resume: bool,
    /// Report each owner that cannot be set
    #[arg(long)]
    same_owner: bool,
    /// Number of writing threads [default: from the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct ExportDocument {
    schema: &'static str,
    directory: String,
    prefix: String,
    complete: bool,
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    further_names: u64,
    size_bytes: u64,
    unchanged: u64,
    owners_not_set: u64,
    xattrs_not_set: u64,
    special_not_made: u64,
    errors: u64,
}

impl ExportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let options = ExportOptions {
            prefix: key(&self.prefix)?,
            resume: self.resume,
            require_owners: self.same_owner,
            threads: self.threads.map(usize::from),
        };
        let store = self.at.open()?;
        let progress = signals::progress()?;
        let exported = during(self.quiet, &progress, transfer_words, || {
            let tops = std::slice::from_ref(&options.prefix);
            with_total(self.quiet, &store, tops, &progress, || export(&store, &self.directory, &options, &progress))
        });
        or_damage(exported.and_then(|summary| finish_export(&summary, &options, &self.directory, &self.document)))
    }
}

/// Reports an export.
pub(super) fn finish_export(
    summary: &ExportSummary,
    options: &ExportOptions,
    directory: &Path,
    document: &DocumentArguments,
) -> Result<Ended> {
    let amiss = say_reports(&summary.reports) | summary.interrupted | (summary.specials_not_made > 0);
    say_what_was_left_out(summary);
    emit(document, || ExportDocument::of(summary, options, directory))?;
    if !document.json {
        output::print(|out| write_sentences(&sentences(summary), out))?;
    }
    Ok(if amiss { Ended::Amiss } else { Ended::Well })
}

impl ExportDocument {
    fn of(summary: &ExportSummary, options: &ExportOptions, directory: &Path) -> ExportDocument {
        ExportDocument {
            schema: "granulo/store-export/1",
            directory: escape_path(directory),
            prefix: options.prefix.to_string(),
            complete: !summary.interrupted,
            files: summary.files,
            directories: summary.directories,
            symlinks: summary.symlinks,
            special: summary.specials,
            further_names: summary.links,
            size_bytes: summary.content_bytes,
            unchanged: summary.unchanged,
            owners_not_set: summary.owners_not_set,
            xattrs_not_set: summary.xattrs_not_set,
            special_not_made: summary.specials_not_made,
            errors: summary.reports.count,
        }
    }
}

fn say_what_was_left_out(summary: &ExportSummary) {
    let left_out = [
        (
            summary.owners_not_set,
            "object belongs",
            "objects belong",
            "to this user, who is not allowed to set their owners",
        ),
        (summary.xattrs_not_set, "extended attribute", "extended attributes", "could not be set by this user here"),
        (summary.specials_not_made, "device", "devices", "could not be created: this needs root"),
    ];
    for (count, one, many, what) in left_out.into_iter().filter(|(count, ..)| *count > 0) {
        output::warn(&format!("{} {what}", count_words(&[(count, one, many)])));
    }
    if summary.interrupted {
        output::note("interrupted; rerun with --resume to finish, including directory attributes");
    }
}

fn sentences(summary: &ExportSummary) -> Vec<String> {
    let ExportSummary { files, directories, symlinks, specials, links, .. } = *summary;
    let counts = objects_in_words(files, directories, symlinks, specials, links);
    let mut sentences = vec![format!("Exported {counts}, {}.", format_size(summary.content_bytes.into()))];
    if summary.unchanged > 0 {
        sentences.push(format!("{} already there.", count_words(&[(summary.unchanged, "object was", "objects were")])));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_exported_is_in_words() {
        let summary = ExportSummary { files: 1, links: 2, content_bytes: 5, unchanged: 3, ..ExportSummary::default() };
        assert_eq!(
            sentences(&summary).join(" "),
            "Exported 1 file, 2 additional names, 5 B. 3 objects were already there."
        );
    }
}
