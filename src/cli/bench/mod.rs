//! `granulo bench …`: how file systems, or granulo's store, perform with many files. One file per command; this one has
//! what they share.
//!
//! Every bench takes the same options for where it measures and where its result goes ([`Shared`]). Exit status: 2
//! where it could not start or had to stop, 1 where it was interrupted, something was wrong, which the result
//! describes, or the result could not be written.

mod cache;
mod create;
mod fill;
mod metadata;
mod pack;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::output::LongResult;
use super::progress::during;
use super::{Ended, output, signals, usage_error};
use crate::bench::emulate::Emulation;
use crate::bench::file_systems::{FileSystemKind, FileSystemSpec};
use crate::bench::place::Place;
use crate::bench::result::Document;
use crate::bench::run::{Request, Run};
use crate::error::Result;
use crate::io::check_target;
use crate::progress::{Progress, Snapshot};
use crate::report;
use crate::report::bench::page::{self, NamedRun};
use crate::units::{escape_path, format_count, parse_size};

/// Measure how a file system, or the granulo store, performs with many files
///
/// A bench runs in directories, on file systems that it creates in image files and removes afterwards (also after
/// Ctrl-C; after a kill, the next run cleans up), and on stores in either. Targets take turns, so their figures are
/// comparable. Root is needed only to create file systems, drop caches and emulate slow disks; the result records
/// what was not possible without it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo bench create /mnt/new --files 300000\n  \
    sudo granulo bench create --fs ext4,xfs,btrfs,ntfs,fat --store -o create.json\n\nExit status: 0 success; 1 finished with problems \
    (interrupted, or a target left out); 2 failed.")]
pub(super) struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Create(Box<create::CreateArguments>),
    Pack(pack::PackArguments),
    Fill(fill::FillArguments),
    Metadata(Box<metadata::MetadataArguments>),
    Cache(Box<cache::CacheArguments>),
}

impl BenchArguments {
    pub(super) fn run(self) -> Result<Ended> {
        match self.command {
            BenchCommand::Create(arguments) => arguments.run(),
            BenchCommand::Pack(arguments) => arguments.run(),
            BenchCommand::Fill(arguments) => arguments.run(),
            BenchCommand::Metadata(arguments) => arguments.run(),
            BenchCommand::Cache(arguments) => arguments.run(),
        }
    }
}

/// What every bench takes.
#[derive(Debug, Args)]
struct Shared {
    /// Directories to measure in: empty or not yet existing
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// File systems to create and measure, such as ext4,xfs,btrfs,ntfs,fat; needs root
    #[arg(long, value_name = "KIND", value_delimiter = ',', help_heading = "Targets")]
    fs: Vec<FileSystemKind>,
    /// mkfs options for a kind of file system and, after -o, mount options; if repeated for a kind, each is measured;
    /// KIND= for none
    #[arg(long, value_name = "KIND=OPTIONS", value_parser = kind_and_options, help_heading = "Targets")]
    fs_options: Vec<(FileSystemKind, String)>,
    /// File system size [default: what the files need]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Targets")]
    fs_size: Option<u64>,
    /// Also measure the granulo store on each target
    #[arg(long, help_heading = "Targets")]
    store: bool,
    /// Slow down the devices of these file systems, as hdd[:ops=120,bytes=160MB,read_ahead=4MiB]
    #[arg(long, value_name = "DISK", help_heading = "Targets")]
    emulate: Option<Emulation>,
    /// Directory for file system images [default: $TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR", help_heading = "Targets")]
    scratch: Option<PathBuf>,

    /// Number of rounds; targets take turns within each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Execution")]
    rounds: u64,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Execution")]
    seed: u64,
    /// Do not show progress
    #[arg(short, long, help_heading = "Execution")]
    quiet: bool,

    /// Write the result to this file, as JSON with every sample
    #[arg(short, long, value_name = "FILE.json", help_heading = "Results")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Results")]
    json: bool,
}

/// A further target of the benches that can measure it.
#[derive(Debug, Args)]
struct AlsoMounted {
    /// Also measure the granulo store on each target, mounted as a file system
    #[arg(long, help_heading = "Targets")]
    mount: bool,
}

fn kind_and_options(text: &str) -> std::result::Result<(FileSystemKind, String), String> {
    let (kind, options) = text.split_once('=').ok_or("write KIND=OPTIONS, such as 'ext4=-b 1024 -o noatime'")?;
    Ok((kind.parse()?, options.to_owned()))
}

impl Shared {
    /// The named targets; file systems have `default_size_bytes` unless a size is specified.
    fn places(&self, default_size_bytes: u64) -> Result<Vec<Place>> {
        if self.directories.is_empty() && self.fs.is_empty() {
            return Err(usage_error("no target to measure")
                .advise("name an empty directory, or file systems to create: --fs ext4,xfs"));
        }
        if let Some((kind, _)) = self.fs_options.iter().find(|(kind, _)| !self.fs.contains(kind)) {
            return Err(usage_error(format!("--fs-options has options for {kind}, which --fs does not name")));
        }
        if self.fs.is_empty() && (self.emulate.is_some() || self.fs_size.is_some()) {
            let error = usage_error("--emulate and --fs-size need file systems created for the run");
            return Err(error.advise("name them with --fs"));
        }
        let mut places: Vec<Place> = self.directories.iter().cloned().map(Place::Directory).collect();
        for &kind in &self.fs {
            let size_bytes = self.fs_size.unwrap_or(default_size_bytes);
            let spec = FileSystemSpec { emulation: self.emulate, ..FileSystemSpec::new(kind, size_bytes) };
            let mut options = self.fs_options.iter().filter(|(of, _)| *of == kind).peekable();
            if options.peek().is_none() {
                places.push(Place::FileSystem(spec.clone()));
            }
            for (_, options) in options {
                places.push(Place::FileSystem(spec.clone().with_options(options)?));
            }
        }
        Ok(places)
    }

    /// Begins a run, after checking that its results can be written.
    fn begin(&self) -> Result<Run> {
        self.output.iter().chain(&self.report).try_for_each(|path| check_target(path))?;
        let typed = std::env::args_os().map(|word| escape_path(Path::new(&word))).collect();
        let scratch = self.scratch.clone().unwrap_or_else(std::env::temp_dir);
        Run::begin(Request { command_line: typed, seed: self.seed, scratch })
    }

    /// Begins a run and prepares what it measures; reports the leftovers of killed runs, also if that fails.
    fn prepare<T>(&self, prepare: impl FnOnce(&mut Run) -> Result<T>) -> Result<(Run, Progress, T)> {
        let mut run = self.begin()?;
        let progress = signals::progress()?;
        let prepared = prepare(&mut run);
        self.report_leftovers(&run);
        Ok((run, progress, prepared?))
    }

    /// Reports the leftovers of killed runs.
    fn report_leftovers(&self, run: &Run) {
        let cleared = run.cleared();
        for path in &cleared.removed {
            output::note(&format!("removed leftovers of a killed run: {}", escape_path(path)));
        }
        for (_, why) in &cleared.kept {
            output::warn(&format!("leftovers of a killed run could not be removed: {why}"));
        }
    }

    /// Runs `bench` with a progress line.
    fn during<T>(&self, progress: &Progress, bench: impl FnOnce() -> T) -> T {
        let rounds = self.rounds;
        during(self.quiet, progress, move |now: &Snapshot| words(now, rounds), bench)
    }

    /// Writes and prints a result, then `warnings` about what was wrong.
    fn finish(&self, document: &Document, warnings: &[String]) -> Result<Ended> {
        let result = LongResult { output: self.output.as_deref(), report: self.report.as_deref(), json: self.json };
        let is_written = result.emit(
            document,
            |out| {
                let runs = [NamedRun { name: "this run".to_owned(), document: document.clone() }];
                page::part(&runs)?.write(super::now(), out)
            },
            |out| report::bench::write_document(document, out),
        )?;
        warnings.iter().for_each(|warning| output::warn(warning));
        if !document.complete {
            output::warn("interrupted; the result has what was measured so far");
        }
        let is_well = document.complete && warnings.is_empty() && is_written;
        Ok(if is_well { Ended::Well } else { Ended::Amiss })
    }
}

fn words(now: &Snapshot, rounds: u64) -> String {
    let mut parts = vec![format!("round {} of {rounds}", now.stage.round + 1)];
    parts.extend([&now.stage.subject, &now.stage.name].into_iter().filter(|name| !name.is_empty()).cloned());
    let count = |number: u64| format_count(number.into());
    match (now.operations, now.total) {
        (0, 0) => {}
        (done, 0) => parts.push(count(done)),
        (done, total) => parts.push(format!("{} of {}", count(done), count(total))),
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::error::ErrorKind;
    use crate::progress::Stage;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        shared: Shared,
    }

    fn places(words: &[&str]) -> Result<Vec<Place>> {
        let arguments = Arguments::try_parse_from([&["bench"], words].concat()).unwrap();
        arguments.shared.places(1 << 30)
    }

    #[test]
    fn a_kind_is_measured_with_each_of_its_options() {
        let named = |words: &[&str]| -> Vec<String> {
            let name = |place: Place| match place {
                Place::Directory(directory) => escape_path(&directory),
                Place::FileSystem(spec) => spec.name(),
            };
            places(words).unwrap().into_iter().map(name).collect()
        };
        assert_eq!(named(&["a", "b", "--fs", "ext4,xfs"]), ["a", "b", "ext4", "xfs"]);
        let both = ["--fs", "ext4,xfs", "--fs-options", "ext4=", "--fs-options", "ext4=-O ^has_journal"];
        assert_eq!(named(&both), ["ext4", "ext4 -O ^has_journal", "xfs"]);
        let sizes = places(&["--fs", "fat", "--fs-size", "2GiB", "--emulate", "hdd:ops=80"]).unwrap();
        let Place::FileSystem(spec) = &sizes[0] else { panic!("{sizes:?}") };
        assert_eq!((spec.size_bytes, spec.emulation.unwrap().operations_per_second), (2 << 30, 80));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let both = ["--fs", "ext4", "--fs-options", "xfs=-m crc=0"];
        for words in [&[][..], &both, &["a", "--emulate", "hdd"], &["a", "--fs-size", "1GiB"]] {
            assert_eq!(places(words).unwrap_err().kind(), ErrorKind::Usage, "{words:?}");
        }
        for words in [&["--fs", "zfs"][..], &["a", "--rounds", "0"], &["--fs-options", "ext4"], &["--emulate", "tape"]]
        {
            assert!(Arguments::try_parse_from([&["bench"], words].concat()).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_line_says_where_it_is() {
        let stage = Stage { subject: "ext4".to_owned(), ..Stage::from("create") };
        let now = Snapshot { stage, operations: 2048, total: 100_000, ..Snapshot::default() };
        assert_eq!(words(&now, 3), "round 1 of 3 · ext4 · create · 2,048 of 100,000");
        assert_eq!(words(&Snapshot { operations: 0, total: 0, ..now }, 3), "round 1 of 3 · ext4 · create");
    }
}
