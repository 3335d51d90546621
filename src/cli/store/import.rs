//! `granulo store import`: a tree or a tar archive into a store.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use serde::Serialize;

use super::completeness::emit;
use super::patterns::Patterns;
use super::progress::{transfer_words, with_total_from};
use super::{Ended, OpenedStore, StoreToWrite, key, objects_in_words, or_damage, output, say_reports, usage_error};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::report::store::{count_words, write_sentences};
use crate::store::Store;
use crate::store::tree::{ImportOptions, ImportSummary, Measure, import_into, import_tar_into, measure};
use crate::units::{MIB, escape_path, format_size};

/// How long to wait for a stream before checking for an interruption.
const MILLISECONDS_BETWEEN_LOOKS: u8 = 100;

/// Import a directory tree or a tar archive into a store
///
/// The content of SOURCE is stored below the root, or below --prefix, with everything a file system records: owners,
/// modes, times to the nanosecond, hard and symbolic links, extended attributes, holes, special files. Objects already
/// present with the same type, size, time, mode, owner and extended attributes are skipped: rerun the command to resume
/// an interrupted import, or to bring a store up to date (nothing is removed without --delete). With --verify, their
/// content is read, and what is damaged in the store is replaced: this is how a backup restores it. Unreadable files
/// are reported, and the rest is imported.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store import /srv/s /data/pictures --prefix pictures\n  granulo store import /srv/s /data/pictures --prefix pictures --delete --exclude .git\n  granulo store import /srv/s backup.tar\n  \
    zstd -dc backup.tar.zst | granulo store import /srv/s - --prefix backup"
)]
pub(super) struct ImportArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Directory, tar archive, or '-' for a tar archive from standard input
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Directory of the store to import to
    #[arg(long, value_name = "KEY", default_value = "/", hide_default_value = true)]
    prefix: OsString,
    /// Read what is already present, and replace it where it is damaged
    #[arg(long)]
    verify: bool,
    /// Do not keep access times: saves 14 bytes per object
    #[arg(long)]
    no_atime: bool,
    #[command(flatten)]
    patterns: Patterns,
    /// Afterwards remove from the store what is below --prefix and not in SOURCE; not what is excluded. Only if all of
    /// SOURCE could be examined
    #[arg(long)]
    delete: bool,
    /// Stay on the file system of SOURCE
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Number of reading threads [default: from the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Show what would be imported, then stop
    #[arg(long)]
    dry_run: bool,
    /// Print nothing but problems (and what --json prints)
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    wanted: DocumentArguments,
}

#[derive(Serialize)]
struct ImportDocument {
    schema: &'static str,
    source: String,
    prefix: String,
    dry_run: bool,
    complete: bool,
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    further_names: u64,
    size_bytes: u128,
    unchanged: u64,
    removed: u64,
    damaged_replaced: u64,
    changed_while_read: u64,
    store_directories_passed_over: u64,
    refused: u64,
    xattrs_unreadable: u64,
    errors: u64,
    failed_devices: Vec<u16>,
}

/// What an import was of, and whether of all of it.
#[derive(Debug, Clone, Copy)]
struct Coverage {
    is_archive: bool,
    is_whole: bool,
}

impl ImportArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let options = ImportOptions {
            prefix: key(&self.prefix)?,
            access_times: !self.no_atime,
            one_file_system: self.one_file_system,
            threads: self.threads.map(usize::from),
            verify: self.verify,
            selection: self.patterns.selection()?,
            delete: self.delete,
        };
        let is_archive = self.is_archive()?;
        if is_archive && self.delete {
            return Err(usage_error("an archive cannot be mirrored").advise("remove --delete, or import a directory"));
        }
        if self.dry_run {
            if is_archive {
                return Err(usage_error("the content of an archive is known only after reading it")
                    .advise("remove --dry-run, or list it with tar -tv"));
            }
            let store = self.at.read.open()?;
            return or_damage(self.measure(&store, &options));
        }
        // Before the store: a source that cannot be opened should not wait for a recovery.
        let archive = if is_archive { Some(self.archive()?) } else { None };
        let store = self.at.open()?;
        let progress = signals::progress()?;
        let mut summary = ImportSummary::default();
        let imported = during(self.quiet, &progress, transfer_words, || match archive {
            Some(file) => {
                let awaited = Awaited { file, progress: &progress };
                let mut archive = BufReader::with_capacity(MIB as usize, awaited);
                import_tar_into(&store, &mut archive, &options, &progress, &mut summary)
            }
            None => with_total_from(
                self.quiet,
                &progress,
                |counting| total_bytes(&store, &self.source, &options, counting),
                || import_into(&store, &self.source, &options, &progress, &mut summary),
            ),
        });
        let finished = match imported {
            // Nothing was done, and there is nothing to say of it.
            Err(error) if is_empty(&summary) => {
                store.say_failures();
                Err(error)
            }
            Err(error) => {
                // What was done until then; an error of its own hides nothing.
                let coverage = Coverage { is_archive, is_whole: false };
                if let Err(other) = self.finish(&store, &summary, &options, coverage) {
                    output::complain(&other);
                }
                Err(error)
            }
            Ok(()) => self.finish(&store, &summary, &options, Coverage { is_archive, is_whole: !summary.interrupted }),
        };
        or_damage(finished)
    }

    /// Whether the source is an archive: a file, a pipe, or standard input.
    fn is_archive(&self) -> Result<bool> {
        if self.source.as_os_str() == "-" {
            return Ok(true);
        }
        let found = std::fs::metadata(&self.source).map_err(|error| Error::io("import", &self.source, error))?;
        Ok(!found.is_dir())
    }

    fn archive(&self) -> Result<File> {
        let opened = if self.source.as_os_str() == "-" {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(&self.source)
        };
        opened.map_err(|error| Error::io("import", &self.source, error))
    }

    fn measure(&self, store: &Store, options: &ImportOptions) -> Result<Ended> {
        let progress = signals::progress()?;
        let measured =
            during(self.quiet, &progress, transfer_words, || measure(store, &self.source, options, &progress));
        let measured = measured?;
        let amiss = say_reports(&measured.reports) | measured.interrupted;
        if measured.interrupted {
            output::note("interrupted; this is only part of it");
        }
        emit(&self.wanted, || self.measure_document(&measured, options))?;
        if !self.wanted.json && !self.quiet {
            let counts = objects_in_words(
                measured.files,
                measured.directories,
                measured.symlinks,
                measured.specials,
                measured.links,
            );
            let size = format_size(measured.size_bytes);
            let mut texts = vec![format!("{} has {counts}, {size}; nothing was imported.", escape_path(&self.source))];
            if self.delete {
                let removals = count_words(&[(measured.removals, "object", "objects")]);
                let removals = if removals.is_empty() { "Nothing".to_owned() } else { removals };
                texts.push(format!("{removals} would be removed from the store."));
            }
            output::print(|out| write_sentences(&texts, out))?;
        }
        Ok(if amiss { Ended::Amiss } else { Ended::Well })
    }

    fn finish(
        &self,
        store: &OpenedStore,
        summary: &ImportSummary,
        options: &ImportOptions,
        coverage: Coverage,
    ) -> Result<Ended> {
        let failed = store.failed_devices();
        let amiss = say_reports(&summary.reports) | summary.interrupted | !failed.is_empty();
        store.say_failures();
        if summary.xattrs_unreadable > 0 {
            let count = count_words(&[(summary.xattrs_unreadable, "extended attribute", "extended attributes")]);
            let why = match coverage.is_archive {
                true => "in a form that is unknown, or beyond what Linux allows",
                false => "not readable by this user",
            };
            output::warn(&format!("left out {count}, {why}"));
        }
        if summary.own_directories > 0 {
            output::note("directories of the store itself are inside the source and were skipped");
        }
        if summary.removal_refused {
            output::warn("nothing was removed, because not all of the source could be examined");
        }
        if summary.interrupted {
            output::note("interrupted; everything imported so far is durable; rerun the command to continue");
        }
        emit(&self.wanted, || ImportDocument {
            complete: coverage.is_whole,
            failed_devices: failed,
            ..self.document(summary, options)
        })?;
        if !self.wanted.json && !self.quiet {
            output::print(|out| write_sentences(&sentences(summary), out))?;
        }
        Ok(if amiss { Ended::Amiss } else { Ended::Well })
    }

    fn document(&self, summary: &ImportSummary, options: &ImportOptions) -> ImportDocument {
        ImportDocument {
            schema: "granulo/store-import/1",
            source: escape_path(&self.source),
            prefix: options.prefix.to_string(),
            dry_run: false,
            complete: !summary.interrupted,
            files: summary.files,
            directories: summary.directories,
            symlinks: summary.symlinks,
            special: summary.specials,
            further_names: summary.links,
            size_bytes: summary.content_bytes.into(),
            unchanged: summary.unchanged,
            removed: summary.removed,
            damaged_replaced: summary.replaced,
            changed_while_read: summary.changed,
            store_directories_passed_over: summary.own_directories,
            refused: summary.refused,
            xattrs_unreadable: summary.xattrs_unreadable,
            errors: summary.reports.count,
            failed_devices: Vec::new(),
        }
    }

    fn measure_document(&self, measured: &Measure, options: &ImportOptions) -> ImportDocument {
        ImportDocument {
            dry_run: true,
            complete: !measured.interrupted,
            files: measured.files,
            directories: measured.directories,
            symlinks: measured.symlinks,
            special: measured.specials,
            further_names: measured.links,
            size_bytes: measured.size_bytes,
            removed: measured.removals,
            errors: measured.reports.count,
            ..self.document(&ImportSummary::default(), options)
        }
    }
}

/// A stream that may have no data for a while: interruptions are noticed meanwhile.
struct Awaited<'p> {
    file: File,
    progress: &'p Progress,
}

impl Read for Awaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.progress.should_stop() {
                return Err(io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], MILLISECONDS_BETWEEN_LOOKS) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return self.file.read(buffer),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Bytes that an import is to look at, from a walk beside it, which also brings what the import needs into the cache.
fn total_bytes(store: &Store, source: &Path, options: &ImportOptions, progress: &Progress) -> Result<u64> {
    let options = ImportOptions { delete: false, ..options.clone() };
    let measured = measure(store, source, &options, progress)?;
    Ok(if measured.interrupted { 0 } else { u64::try_from(measured.size_bytes).unwrap_or(u64::MAX) })
}

/// Whether an import did nothing at all.
fn is_empty(summary: &ImportSummary) -> bool {
    let ImportSummary { files, directories, symlinks, specials, links, unchanged, refused, .. } = *summary;
    [files, directories, symlinks, specials, links, unchanged, refused, summary.reports.count]
        .iter()
        .all(|&count| count == 0)
}

fn sentences(summary: &ImportSummary) -> Vec<String> {
    let ImportSummary { files, directories, symlinks, specials, links, .. } = *summary;
    let counts = objects_in_words(files, directories, symlinks, specials, links);
    let mut sentences = vec![format!("Imported {counts}, {}.", format_size(summary.content_bytes.into()))];
    if summary.unchanged > 0 {
        let unchanged = count_words(&[(summary.unchanged, "object was", "objects were")]);
        sentences.push(format!("{unchanged} already there."));
    }
    if summary.removed > 0 {
        let removed = count_words(&[(
            summary.removed,
            "object that the source no longer has was",
            "objects that the source no longer has were",
        )]);
        sentences.push(format!("{removed} removed."));
    }
    if summary.replaced > 0 {
        let replaced = count_words(&[(summary.replaced, "damaged object was", "damaged objects were")]);
        sentences.push(format!("{replaced} replaced."));
    }
    if summary.changed > 0 {
        let changed = count_words(&[(summary.changed, "file", "files")]);
        sentences.push(format!("{changed} changed while being read."));
    }
    if summary.refused > 0 {
        let refused = count_words(&[(summary.refused, "member of the archive was", "members of the archive were")]);
        sentences.push(format!("{refused} refused."));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_imported_is_in_words() {
        let summary = ImportSummary {
            files: 2,
            directories: 1,
            content_bytes: 2048,
            unchanged: 1,
            refused: 3,
            ..ImportSummary::default()
        };
        assert_eq!(
            sentences(&summary).join(" "),
            "Imported 2 files, 1 directory, 2 KiB. 1 object was already there. 3 members of the archive were refused."
        );
        assert_eq!(sentences(&ImportSummary::default()), ["Imported nothing, 0 B."]);
    }
}
