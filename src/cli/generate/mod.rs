//! `granulo generate`: a tree with the distributions of a source.

mod aging;
mod distances;
pub(super) mod request;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{DocumentArguments, refuse_to_replace};
use super::progress::during;
use super::survey::as_of;
use super::{Ended, now, output, signals};
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::population::design::Amount;
use crate::population::document::{Document, MadeFiles, Plan, SCHEMA};
use crate::population::make::{MakeOptions, make};
use crate::population::{Allowed, Content, Design, Made, Room, SizeLaw};
use crate::program;
use crate::progress::{Progress, Snapshot};
use crate::report::fields::Fields;
use crate::report::fields_page;
use crate::report::generate::{progress_words, write_plan, write_result};
use crate::survey::Survey;
use crate::survey::measure::Measure;
use crate::units::{escape_path, format_count, parse_percent, parse_size};
use distances::{bounds, planned, reached, survey_back};
use request::TreeRequest;

/// Create a file tree that resembles a measured one: sizes, directories, names and ages
///
/// Sizes are stratified, not sampled: the tree is as close to the source as this number of files allows. Names,
/// directory sizes, depths, and modification and access times follow the source as far as it records them. (Inode
/// change times cannot be set.) The same seed gives the same tree, with any number of threads. Afterwards the tree is
/// surveyed, and its distances from the source are printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo generate vu-2005 /scratch/vu --files 100000\n  \
    granulo generate usr.json /scratch/usr --scale 1/10 --content compressible:2.5\n  \
    granulo generate usr.json /scratch/names --files 10000000 --metadata-only\n  \
    granulo generate weighted:k=6,min=1KiB,max=10MiB /scratch/w --bytes 2GiB\n  \
    granulo generate geriatrix-agrawal /mnt/aged/tree --age 1000000 --fill 80%\n\n\
    SOURCE may also be a Geriatrix profile (see granulo show --list), or weighted:k=K,min=SIZE,max=SIZE for sizes of \
    min + (max - min) e^(k(x-1)).\n\nExit status: 0 success; 1 the tree is further from the source than allowed, or unfinished; \
    2 failed to start.")]
pub(super) struct GenerateArguments {
    /// Survey file, fsstats CSV, published table, Geriatrix profile, or size law
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Where to create the tree: an empty or not yet existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Number of files
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Amount")]
    files: Option<u64>,
    /// Total bytes of all files; with --files or --scale, every size is scaled to match
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Amount")]
    bytes: Option<u64>,
    /// Files per file of the source: 1/1000, 0.001 or 0.1%
    #[arg(long, value_name = "SHARE", value_parser = scale, conflicts_with = "files", help_heading = "Amount")]
    scale: Option<f64>,
    /// Upper limit of the space used
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Amount")]
    limit: Option<u64>,
    /// Share of the file system to leave free
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "5%", help_heading = "Amount")]
    keep_free: f64,
    /// Show what would be created, then stop
    #[arg(long, help_heading = "Amount")]
    dry_run: bool,

    /// File content: zero, random, compressible:RATIO, sparse[:PERCENT] (that share of the blocks as holes), or none
    /// (sizes only)
    #[arg(long, value_name = "WHAT", value_parser = Content::parse, default_value = "random", help_heading = "What")]
    content: Content,
    /// Write no data, only set sizes; same as --content none
    #[arg(long, conflicts_with = "content", help_heading = "What")]
    metadata_only: bool,
    /// Sizes to use instead of those of SOURCE: weighted:k=K,min=SIZE,max=SIZE
    #[arg(long, value_name = "LAW", value_parser = SizeLaw::parse, help_heading = "What")]
    sizes: Option<SizeLaw>,
    /// Files per directory, instead of the directory sizes of SOURCE [default if it records none: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What")]
    directory_files: Option<u64>,
    /// Reference time for ages, instead of now (2026-01-31 or 2026-01-31T12:00:00Z); also given to files without ages
    #[arg(long, value_name = "TIME", value_parser = as_of, conflicts_with = "age", help_heading = "What")]
    as_of: Option<i64>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What")]
    seed: u64,

    /// After reaching a fill level, create and delete this many times, then report how fragmented files and free
    /// space are
    #[arg(long, value_name = "OPERATIONS", value_parser = count, help_heading = "Aging")]
    age: Option<u64>,
    /// Fill level for aging: of the file system as df reports it, or of --limit [default: what --files, --bytes or
    /// --scale give, else 80%]
    #[arg(long, value_name = "PERCENT", value_parser = share, requires = "age", conflicts_with_all = ["files", "bytes", "scale"], help_heading = "Aging")]
    fill: Option<f64>,

    /// Number of threads [default: number of processors, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "age")]
    threads: Option<u16>,
    /// Do not wait until all data is on the device
    #[arg(long, conflicts_with = "age")]
    no_sync: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    result: DocumentArguments,
}

fn count(text: &str) -> std::result::Result<u64, String> {
    text.replace(['_', ','], "").parse().map_err(|_| format!("'{text}' is not a number"))
}

fn share(text: &str) -> std::result::Result<f64, String> {
    match parse_percent(text)? {
        share if share < 1.0 => Ok(share),
        _ => Err("it must be less than 100 %".to_owned()),
    }
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("'{text}' is not a scale; write, for example, 1/1000, 0.001 or 0.1%");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    let scale = match (text.split_once('/'), text.strip_suffix('%')) {
        (Some((part, whole)), _) => number(part)? / number(whole)?,
        (None, Some(percent)) => number(percent)? / 100.0,
        (None, None) => number(text)?,
    };
    if scale > 0.0 && scale <= 1e6 { Ok(scale) } else { Err(wrong()) }
}

/// The warning about a tree whose survey was interrupted.
const UNSURVEYED: &str = "interrupted while surveying the tree; the tree itself is complete";

/// The context of a run.
struct Generation<'a> {
    tree: &'a TreeRequest,
    design: &'a Design,
    planned_sizes: &'a Distribution,
    settings: MakeOptions,
    progress: &'a Progress,
}

impl GenerateArguments {
    pub(super) fn run(mut self) -> Result<Ended> {
        if self.metadata_only {
            self.content = Content::None;
        }
        refuse_to_replace(std::slice::from_ref(&self.source), self.result.output.iter().chain(&self.result.report))?;
        let tree = self.tree()?;
        let room = self.room()?;
        let allowed = Allowed { limit_bytes: self.limit, keep_free: self.keep_free };
        let at = |error: Error| error.at(&self.directory);
        let level = self.level(&tree, &room).map_err(at)?;
        let amount = match level {
            Some(level) => Amount { files: Some(level.files), ..Amount::default() },
            None => Amount { files: self.files, bytes: self.bytes, scale: self.scale },
        };
        let (files, factor) = tree.recipe.amount(amount)?;
        // Before anything that needs memory is computed: absurd counts end here.
        let size_bytes = tree.recipe.sizes.mean() * factor * files as f64;
        let least = room.least_needed(files, tree.recipe.directories(files), size_bytes, self.space_content());
        room.refuse(&least, &allowed).map_err(at)?;
        let started = now();
        let name_limit = usize::try_from(room.name_limit).unwrap_or(usize::MAX);
        let design = Design::new(&tree.recipe, files, factor, self.seed, self.as_of, name_limit);
        let planned_sizes = design.sizes.distribution();
        let document = self.document(&tree, &design, &room, &planned_sizes, started);
        if !self.result.json {
            output::print(|out| write_plan(&document, out))?;
        }
        room.refuse(&document.plan.needed, &allowed).map_err(at)?;
        if self.dry_run {
            return self.finish(&document, Ended::Well);
        }
        let root = self.open_root()?;
        let progress = signals::progress()?;
        let settings = MakeOptions {
            threads: self.threads(),
            content: self.content,
            now: started,
            block_bytes: room.unit_bytes().clamp(4096, 1 << 20),
            kept_bytes: room.kept_bytes(&allowed),
            sync: !self.no_sync,
        };
        let run =
            Generation { tree: &tree, design: &design, planned_sizes: &planned_sizes, settings, progress: &progress };
        if let Some(operations) = self.age {
            let level_bytes = level.map_or(document.plan.needed.bytes as u64, |level| level.bytes);
            return self.age(root, &run, document, operations, level_bytes);
        }
        let made = self.make(root, &run);
        let survey = self.survey(made.complete, &run)?;
        self.conclude(document, &run, made, survey)
    }

    /// The content that determines the space: while a tree ages, space without data is reserved.
    fn space_content(&self) -> Content {
        if self.age.is_some() && self.content == Content::None { Content::Zero } else { self.content }
    }

    /// The space of the file system for the tree; refuses a directory that is not empty.
    fn room(&self) -> Result<Room> {
        let fail = |error| Error::io("generate in", &self.directory, error);
        let place = match std::fs::metadata(&self.directory) {
            Ok(found) if !found.is_dir() => {
                return Err(Error::new(ErrorKind::Usage, "generate in", "it is not a directory").at(&self.directory));
            }
            Ok(_) => {
                let mut entries = std::fs::read_dir(&self.directory).map_err(fail)?;
                if entries.next().transpose().map_err(fail)?.is_some() {
                    return Err(Error::new(ErrorKind::Exists, "generate in", "it is not empty")
                        .at(&self.directory)
                        .advise("name an empty directory, or one that does not exist yet"));
                }
                rustix::fs::access(&self.directory, rustix::fs::Access::WRITE_OK)
                    .map_err(|errno| fail(errno.into()))?;
                self.directory.as_path()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let parent = self.directory.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                rustix::fs::access(parent, rustix::fs::Access::WRITE_OK)
                    .map_err(|errno| Error::io("create a directory in", parent, errno.into()))?;
                parent
            }
            Err(error) => return Err(fail(error)),
        };
        let opened = std::fs::File::open(place).map_err(fail)?;
        Room::of(opened).map_err(|errno| fail(errno.into()))
    }

    fn open_root(&self) -> Result<OwnedFd> {
        let fail = |error| Error::io("generate in", &self.directory, error);
        match std::fs::create_dir(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error)),
            _ => {}
        }
        Ok(std::fs::File::open(&self.directory).map_err(fail)?.into())
    }

    fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, |n| n.get()).min(16);
        self.threads.map_or_else(processors, usize::from)
    }

    fn document(
        &self,
        tree: &TreeRequest,
        design: &Design,
        room: &Room,
        planned_sizes: &Distribution,
        started: i64,
    ) -> Document {
        let has_times = tree.recipe.mtime_ages.is_some() || tree.recipe.atime_ages.is_some();
        let needed = room.needed(design, self.space_content());
        let mut distances = planned(&tree.recipe, design, planned_sizes);
        if self.age.is_some() {
            // The shape of the tree after aging is a matter of chance.
            distances.truncate(1);
        }
        Document {
            schema: SCHEMA,
            granulo_version: program::VERSION,
            granulo_commit: program::commit(),
            source: tree.name.clone(),
            directory: escape_path(&self.directory),
            seed: self.seed,
            threads: if self.age.is_some() { 1 } else { self.threads() },
            content: self.content.to_string(),
            dry_run: self.dry_run,
            complete: false,
            plan: Plan {
                files: design.files(),
                directories: design.tree.directories(),
                size_bytes: design.sizes.total(),
                largest_bytes: design.sizes.max(),
                size_factor: design.factor,
                ages_relative_to: self.as_of.or((has_times && self.age.is_none()).then_some(started)),
                needed,
                room: room.clone(),
                left_bytes: u128::from(room.available_bytes).saturating_sub(needed.bytes),
                limit_bytes: self.limit,
                operations: self.age,
            },
            made: None,
            aging: None,
            bounds: bounds(design, distances.first().and_then(|sizes| sizes.planned).filter(|_| self.age.is_none())),
            distances,
            notes: tree.notes.clone(),
        }
    }

    fn make(&self, root: OwnedFd, run: &Generation<'_>) -> Made {
        let files = run.design.files();
        let words = |now: &Snapshot| progress_words(now, files);
        let make = || make(root, &self.directory, run.design, run.settings, run.progress);
        during(self.quiet, run.progress, words, make)
    }

    /// Surveys the tree that was made, if it is complete.
    fn survey(&self, is_complete: bool, run: &Generation<'_>) -> Result<Option<Survey>> {
        let reference_time = self.as_of.unwrap_or(run.settings.now);
        match is_complete {
            true => survey_back(&self.directory, reference_time, self.quiet, run.progress).map(Some),
            false => Ok(None),
        }
    }

    /// Reports the result.
    fn conclude(
        &self,
        mut document: Document,
        run: &Generation<'_>,
        made: Made,
        survey: Option<Survey>,
    ) -> Result<Ended> {
        let mut ended = if made.complete { Ended::Well } else { Ended::Amiss };
        // An interrupted survey knows a part of the tree.
        let whole = survey.as_ref().filter(|survey| survey.origin.complete);
        document.complete = made.complete;
        document.made = Some(made_files(&made, whole));
        match whole {
            Some(survey) => {
                document.distances = reached(&run.tree.recipe, run.design, survey, &document.distances);
                document.bounds = bounds(run.design, document.distances.first().and_then(|sizes| sizes.reached));
            }
            None => {
                document.distances.clear();
                document.bounds.met = None;
            }
        }
        self.finish(&document, ended)?;
        if document.bounds.met == Some(false) {
            output::warn("the sizes are further from the source than allowed");
            ended = Ended::Amiss;
        }
        match whole {
            None if made.complete => {
                output::warn(UNSURVEYED);
                ended = Ended::Amiss;
            }
            Some(survey) if survey.distributions.of(Measure::FileSize) != run.planned_sizes => {
                output::warn("the tree on disk differs from what was created: something else is changing it");
                ended = Ended::Amiss;
            }
            _ => {}
        }
        self.say_what_stays(made.complete, made.files, made.failed);
        Ok(ended)
    }

    /// Reports what remains of an unfinished tree.
    fn say_what_stays(&self, complete: bool, files: u64, failed: Option<Error>) {
        if let Some(error) = failed {
            output::complain(&error);
        }
        if !complete {
            let files = format_count(files.into());
            output::note(&format!("{files} files were created and remain in {}", escape_path(&self.directory)));
        }
    }

    fn finish(&self, document: &Document, ended: Ended) -> Result<Ended> {
        self.result.emit_with(document, || fields_page::part(&document.directory, &Fields::of(document)?))?;
        if !self.result.json {
            output::print(|out| write_result(document, out))?;
        }
        Ok(ended)
    }
}

fn made_files(made: &Made, survey: Option<&Survey>) -> MadeFiles {
    let seconds = made.elapsed.as_secs_f64();
    MadeFiles {
        files: made.files,
        directories: made.directories,
        size_bytes: made.size_bytes,
        allocated_bytes: survey.map(Survey::allocated_bytes),
        elapsed_seconds: seconds,
        sync_seconds: made.sync.as_secs_f64(),
        files_per_second: made.files as f64 / seconds.max(1e-9),
        bytes_per_second: made.size_bytes as f64 / (seconds + made.sync.as_secs_f64()).max(1e-9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_read_in_three_ways() {
        for (text, value) in [("1/1000", 0.001), ("0.001", 0.001), ("0.1%", 0.001), ("2", 2.0), ("3 / 4", 0.75)] {
            assert!((scale(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        for text in ["", "0", "-1", "1/0", "0/5", "x", "1/x", "inf", "NaN"] {
            assert!(scale(text).is_err(), "{text}");
        }
        assert_eq!(count("1_000,000"), Ok(1_000_000));
        assert!(count("1e6").is_err() && count("-1").is_err());
    }
}
