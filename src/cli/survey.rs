//! `granulo survey`: measure a tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::progress::{during, survey_words_of};
use super::{Ended, output, shard, signals, usage_error};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{check_target, is_written_directly, write_atomically};
use crate::report::{page, terminal};
use crate::scan::default_threads;
use crate::survey::checkpoint::{Checkpoint, may_be_written};
use crate::survey::file::{Detail, parse_time, write};
use crate::survey::machine::inodes_in_use;
use crate::survey::owner_ages::DEFAULT_BREAKS_DAYS;
use crate::survey::places::DEFAULT_LIMIT;
use crate::survey::run::{
    CheckpointPlan, Incremental, MemoryBound, MethodChoice, NcduTarget, Outcome, Request, Shard, take,
};
use crate::survey::source::STANDARD_INPUT;
use crate::survey::{HardLinks, Method, Options, Snapshots, Survey, fsstats};
use crate::units::{escape, is_printable, parse_size};

/// Measure the files below PATHs in one pass: sizes, space, ages, names, and where the small files are
///
/// Prints a summary; -o saves the survey for show, merge, compare and report, --report creates a page. Every regular
/// file is counted, a file with several names once. Unreadable files are counted as errors, and the survey continues.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo survey /usr --report usr.html\n  granulo survey /home /srv -o homes.json --one-file-system\n  \
    granulo survey /data --files-out files.parquet --exclude '*.tmp' --exclude .git\n  granulo survey --resume homes.json.checkpoint -o homes.json"
)]
pub(super) struct SurveyArguments {
    /// Files and directories to survey; symbolic links are followed here, but not below [default: the current
    /// directory]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Write the survey to this file, for show, merge, compare and report
    #[arg(short, long, value_name = "FILE.json", help_heading = "Results")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    report: Option<PathBuf>,
    /// Write the histograms to this file in the fsstats CSV layout
    #[arg(long, value_name = "FILE.csv", help_heading = "Results")]
    fsstats: Option<PathBuf>,
    /// Write one row per file to this Parquet table, for DuckDB, Polars and others
    #[arg(long = "files-out", alias = "files", value_name = "FILE.parquet", help_heading = "Results")]
    files: Option<PathBuf>,
    /// Write every entry to this file in the JSON of ncdu, to browse with ncdu -f FILE or gdu -f FILE. Memory stays
    /// bounded; about 40 bytes per entry are kept in scratch space until the end
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["anonymous", "shard", "resume"], help_heading = "Results")]
    ncdu: Option<PathBuf>,
    /// Print the survey as JSON instead of the summary
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Name of the survey, instead of its paths
    #[arg(long, value_name = "NAME", conflicts_with = "anonymous", help_heading = "Results")]
    name: Option<String>,
    /// Omit all names and paths, and which machine and file system it is, so that the survey can be shared
    #[arg(long, help_heading = "Results")]
    anonymous: bool,
    /// Rows in each list of directories and files; the summary shows all of them [default: 20, and fewer in the
    /// summary]
    #[arg(long, value_name = "N", help_heading = "Results")]
    top: Option<usize>,
    /// Breaks of ages in days, for the table of ages and for the bytes of each owner by age
    #[arg(long, value_name = "DAYS", value_delimiter = ',', default_values_t = DEFAULT_BREAKS_DAYS, help_heading = "Results")]
    age_breaks: Vec<u64>,
    /// Largest size of a small file in these lists
    #[arg(long = "cutoff", alias = "small", value_name = "SIZE", default_value = "64KiB", value_parser = parse_size, help_heading = "Results")]
    small: u64,
    /// Reference time for ages, instead of now (2026-01-31 or 2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = as_of, help_heading = "Results")]
    as_of: Option<i64>,

    /// How to count a file with several names: at the first one found, at each in full, or at each with its share
    #[arg(long, value_name = "HOW", default_value = "once", help_heading = "Selection")]
    hard_links: HardLinkChoice,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long, help_heading = "Selection")]
    one_file_system: bool,
    /// Skip names that match (or paths below PATH, if the pattern has a slash); may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    exclude: Vec<String>,
    /// Include snapshot directories (.snapshot, .snapshots, .zfs, ~snapshot)
    #[arg(long, help_heading = "Selection")]
    include_snapshots: bool,

    /// How to find the files: by walking directories, or by scanning the inode tables of a whole ext2, ext3, ext4,
    /// xfs or btrfs file system (a mount point or device; with inode-scan also an image or a directory on one), which
    /// needs read permission on the device
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Execution")]
    method: MethodArgument,
    /// Do not read directories in an inode scan: twice as fast, but without directory sizes, names, depths,
    /// extensions and locations. Where a walk is needed instead, it still has them
    #[arg(long, conflicts_with_all = ["exclude", "files", "ncdu"], help_heading = "Execution")]
    without_names: bool,
    /// In an inode scan, read only directories that changed since OLD.json, an earlier survey with this option. Names
    /// are kept in OLD.json.names, and for the next survey beside the output. Without the old files, everything is
    /// read; the result is the same
    #[arg(long, value_name = "OLD.json", requires = "output", conflicts_with_all = ["without_names", "anonymous", "files", "ncdu"], help_heading = "Execution")]
    incremental: Option<PathBuf>,
    /// Bound on the memory of an inode scan: its tables are then in an unnamed file, of which so much is in memory. A
    /// walk has no tables
    #[arg(long, value_name = "SIZE", value_parser = memory_bound, conflicts_with = "incremental", help_heading = "Execution")]
    memory: Option<u64>,
    /// Directory for that file, not in memory itself, and for the scratch space of --ncdu [default: $TMPDIR, else /tmp;
    /// of --ncdu, the directory of the result]
    #[arg(long, value_name = "DIR", help_heading = "Execution")]
    scratch: Option<PathBuf>,
    /// Survey one of N shards of the trees, number I from 1, as one of N processes that divide them. Writes a partial
    /// survey to -o; granulo merge adds all shards up to exactly the survey that one process would have taken
    #[arg(long, value_name = "I/N", value_parser = shard::parse, requires = "output", conflicts_with_all = ["report", "fsstats", "files", "json", "without_names", "incremental", "memory"], help_heading = "Execution")]
    shard: Option<(u32, u32)>,
    /// Depth of the directories that one process walks whole [default: the first with 64 directories for each shard]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(0..=16), requires = "shard", help_heading = "Execution")]
    shard_depth: Option<u32>,
    /// Number of threads [default: four per core, 8 to 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Execution")]
    threads: Option<u16>,
    /// Checkpoint file [default: the survey file name with .checkpoint appended]
    #[arg(long, value_name = "FILE", help_heading = "Execution")]
    checkpoint: Option<PathBuf>,
    /// Minutes between checkpoints; 0 writes one only on interruption
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0, value_parser = minutes, help_heading = "Execution")]
    checkpoint_every: f64,
    /// Resume an interrupted survey; paths and selection come from the checkpoint
    #[arg(long, value_name = "CHECKPOINT", conflicts_with_all = ["paths", "files", "anonymous", "top", "small", "age_breaks", "as_of", "hard_links", "one_file_system", "exclude", "include_snapshots", "method", "without_names", "incremental", "memory", "shard"], help_heading = "Execution")]
    resume: Option<PathBuf>,
    /// Print nothing but errors (and what --json prints): no summary, no progress, no notes
    #[arg(short, long, help_heading = "Execution")]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum HardLinkChoice {
    /// Once, at the name in the directory with the smallest inode
    Once,
    /// At every name, in full
    Each,
    /// At every name, divided by the number of names
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MethodArgument {
    /// By inode scan where that is possible and gives the same result, else by walk
    Auto,
    /// By walking directories
    Walk,
    /// By scanning inode tables; file systems mounted below are excluded
    InodeScan,
}

impl From<MethodArgument> for MethodChoice {
    fn from(argument: MethodArgument) -> MethodChoice {
        match argument {
            MethodArgument::Auto => MethodChoice::Auto,
            MethodArgument::Walk => MethodChoice::Walk,
            MethodArgument::InodeScan => MethodChoice::InodeScan,
        }
    }
}

impl From<HardLinkChoice> for HardLinks {
    fn from(choice: HardLinkChoice) -> HardLinks {
        match choice {
            HardLinkChoice::Once => HardLinks::Once,
            HardLinkChoice::Each => HardLinks::Each,
            HardLinkChoice::Shared => HardLinks::Shared,
        }
    }
}

/// Reads a day or a time.
pub(super) fn as_of(text: &str) -> std::result::Result<i64, String> {
    let day = format!("{text}T00:00:00Z");
    parse_time(text)
        .or_else(|| parse_time(&day))
        .ok_or_else(|| "write the time as 2026-01-31 or 2026-01-31T12:00:00Z".to_owned())
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("it must be a number of minutes, 0 or more".to_owned()),
    }
}

/// What the program itself has in memory is more than any less.
const SMALLEST_MEMORY_BYTES: u64 = 24 << 20;

fn memory_bound(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SMALLEST_MEMORY_BYTES { Err("it must be at least 24MiB".to_owned()) } else { Ok(bytes) }
}

/// The default of `--memory`.
const MEMORY_VARIABLE: &str = "GRANULO_MEMORY";

impl SurveyArguments {
    pub(super) fn run(self) -> Result<Ended> {
        self.check_paths()?;
        self.check_targets()?;
        let resumed = self.resume.as_deref().map(Checkpoint::read).transpose()?;
        let progress = signals::progress()?;
        let shard = self.shard(resumed.as_ref())?;
        let request = Request { shard: shard.clone(), ..self.request()? };
        let whole = self.resume.is_none() && shard.is_none();
        let inodes = inodes_in_use(&request.roots, self.one_file_system).filter(|_| whole);
        let words = survey_words_of(inodes);
        let outcome = during(self.quiet, &progress, words, || take(request, resumed, &progress));
        self.finish(outcome?, shard.as_ref())
    }

    /// The shard to take, or to resume.
    fn shard(&self, resumed: Option<&Checkpoint>) -> Result<Option<Shard>> {
        let asked = self.shard.map(|(number, count)| (number, count, self.shard_depth));
        let interrupted =
            resumed.and_then(Checkpoint::shard).map(|(number, count, depth)| (number, count, Some(depth)));
        let Some((number, count, depth)) = asked.or(interrupted) else { return Ok(None) };
        let Some(target) = self.output.clone() else {
            return Err(usage_error("a shard is written to a file: add -o FILE"));
        };
        if self.json || self.report.is_some() || self.fsstats.is_some() {
            return Err(usage_error("a shard has only one result, for granulo merge: use -o alone"));
        }
        Ok(Some(Shard { number, count, depth, target }))
    }

    fn request(&self) -> Result<Request> {
        let here = || {
            let failed = |error| Error::io("find", Path::new("the current directory"), error);
            std::env::current_dir().map_err(failed).map(|directory| vec![directory])
        };
        Ok(Request {
            roots: if self.paths.is_empty() && self.resume.is_none() { here()? } else { self.paths.clone() },
            shard: None,
            name: self.name.as_ref().map(|name| escape(name.as_bytes())),
            options: Options {
                hard_links: self.hard_links.into(),
                one_file_system: self.one_file_system,
                snapshots: if self.include_snapshots { Snapshots::Include } else { Snapshots::Skip },
                excluded: self.exclude.clone(),
                small_file_bytes: self.small,
                age_breaks_days: self.age_breaks.clone(),
            },
            threads: self.threads.map_or_else(default_threads, usize::from),
            limit: self.top.unwrap_or(DEFAULT_LIMIT),
            anonymous: self.anonymous,
            reference_time: self.as_of,
            method: self.method.into(),
            without_names: self.without_names,
            incremental: self
                .incremental
                .as_ref()
                .zip(self.output.as_ref())
                .map(|(old, output)| Incremental { old: beside(old, ".names"), new: beside(output, ".names") }),
            memory: self
                .memory_bytes()?
                .map(|bytes| MemoryBound { bytes, directory: self.scratch.clone().unwrap_or_else(std::env::temp_dir) }),
            file_table: self.files.clone(),
            ncdu: self.ncdu.clone().map(|path| NcduTarget { scratch: self.scratch_for(&path), path }),
            checkpoints: self.checkpoint_path().map(|path| CheckpointPlan {
                path,
                every: (self.checkpoint_every > 0.0).then(|| Duration::from_secs_f64(self.checkpoint_every * 60.0)),
            }),
        })
    }

    /// The bound given, or that of the environment, which yields to the options that exclude one.
    fn memory_bytes(&self) -> Result<Option<u64>> {
        let excluded = self.incremental.is_some() || self.shard.is_some() || self.resume.is_some();
        let of_environment = || std::env::var(MEMORY_VARIABLE).ok().filter(|text| !text.is_empty() && !excluded);
        match (self.memory, of_environment()) {
            (None, Some(text)) => memory_bound(&text)
                .map(Some)
                .map_err(|cause| usage_error(format!("{MEMORY_VARIABLE} is '{text}': {cause}"))),
            (given, _) => Ok(given),
        }
    }

    /// Where a result keeps what does not fit into memory until it is written.
    fn scratch_for(&self, target: &Path) -> PathBuf {
        let beside = || target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let own = || if is_written_directly(target) { std::env::temp_dir() } else { beside().to_owned() };
        self.scratch.clone().unwrap_or_else(own)
    }

    fn checkpoint_path(&self) -> Option<PathBuf> {
        let output =
            || self.output.as_ref().filter(|path| !is_written_directly(path)).map(|path| beside(path, ".checkpoint"));
        self.checkpoint.clone().or_else(|| self.resume.clone()).or_else(output)
    }

    /// Fails if standard input is meant, which has no files.
    fn check_paths(&self) -> Result<()> {
        let is_input = |path: &PathBuf| path.as_os_str() == STANDARD_INPUT && !path.exists();
        if !self.paths.iter().any(is_input) {
            return Ok(());
        }
        Err(usage_error("'-' is not a directory, and a survey measures files itself")
            .advise("give a list of sizes to granulo show: find PATH -type f -printf '%s\\n' | granulo show -"))
    }

    /// Fails before the walk if a result could not be written after it.
    fn check_targets(&self) -> Result<()> {
        let targets = [&self.output, &self.report, &self.fsstats, &self.files, &self.ncdu, &self.checkpoint_path()];
        for (index, target) in targets.iter().enumerate() {
            let Some(target) = target else { continue };
            if targets[..index].iter().any(|other| other.as_ref() == Some(target)) {
                return Err(output::two_results(target));
            }
            if self.files.as_ref() == Some(target) && is_written_directly(target) {
                let cause = "a table of files cannot be written to a device or a pipe";
                return Err(Error::new(ErrorKind::Usage, "write", cause).at(target));
            }
            check_target(target)?;
        }
        match self.checkpoint_path() {
            Some(path) if self.resume.as_ref() != Some(&path) && !may_be_written(&path) => {
                let cause = "an existing file is not a checkpoint";
                let error = Error::new(ErrorKind::Usage, "write the checkpoint", cause).at(&path);
                Err(error.advise("remove it, or name another with --checkpoint"))
            }
            _ => Ok(()),
        }
    }

    fn finish(&self, outcome: Outcome, shard: Option<&Shard>) -> Result<Ended> {
        let Outcome { survey, checkpoint, mut warnings, notes } = outcome;
        if survey.origin.complete && shard.is_none() {
            if let Some(path) = &self.output {
                warnings.extend(write_atomically(path, |out| write(&survey, Detail::Full, out)).err());
            }
            if let Some(path) = &self.fsstats {
                warnings.extend(write_atomically(path, |out| fsstats::write(&survey, out)).err());
            }
            if let Some(path) = &self.report {
                warnings.extend(
                    write_atomically(path, |out| page::write(std::slice::from_ref(&survey), super::now(), out)).err(),
                );
            }
        }
        let printed = match (shard, self.json, self.quiet) {
            (None, true, _) => output::print_document(|out| write(&survey, Detail::Full, out)),
            (_, _, true) => Ok(Ended::Well),
            (Some(shard), ..) => output::print(|out| shard::write_end(shard, &survey, out)),
            (None, ..) => output::print(|out| terminal::write_summary_of(&survey, self.top, out)),
        };
        if !self.quiet {
            notes.iter().for_each(|text| output::note(text));
        }
        self.say_what_was_wrong(&survey, &warnings);
        if survey.origin.complete {
            self.drop_checkpoint(warnings.is_empty());
        }
        if let Some(path) = &checkpoint {
            // Also where nothing but errors is wanted: it is not complete.
            let path = word(path);
            output::note(&format!("interrupted; resume with: granulo survey --resume {path}{}", self.results_again()));
        } else if !survey.origin.complete {
            output::note(match survey.origin.method {
                Method::InodeScan => {
                    "interrupted: the result is partial, and an inode scan cannot be resumed (--method walk can)"
                }
                _ if self.output.is_some() => "interrupted: the result is partial, and no checkpoint was written",
                _ => "interrupted: the result is partial (with -o, a survey can be resumed)",
            });
        }
        printed?;
        let amiss = survey.counts.errors > 0 || !survey.origin.complete || !warnings.is_empty();
        Ok(if amiss { Ended::Amiss } else { Ended::Well })
    }

    /// Removes the checkpoint of a complete survey, and the one that it resumed, once nothing needs them.
    fn drop_checkpoint(&self, all_written: bool) {
        let written = self.checkpoint_path();
        let mut existing = written.iter().chain(&self.resume).filter(|path| path.exists());
        if all_written && (self.output.is_some() || self.resume.is_none()) {
            existing.for_each(|path| Checkpoint::discard(path));
        } else if let Some(path) = existing.next() {
            let path = word(path);
            output::note(&format!(
                "the checkpoint is kept; write the survey with: granulo survey --resume {path} -o FILE"
            ));
        }
    }

    /// The options that a resumed survey needs again to write the same results.
    fn results_again(&self) -> String {
        let named = [("-o", &self.output), ("--report", &self.report), ("--fsstats", &self.fsstats)];
        let given = named.iter().filter_map(|(flag, path)| path.as_ref().map(|path| (*flag, word(path))));
        let name = self.name.iter().map(|name| ("--name", word(name)));
        given.chain(name).map(|(flag, value)| format!(" {flag} {value}")).collect()
    }

    fn say_what_was_wrong(&self, survey: &Survey, warnings: &[Error]) {
        if !survey.origin.method_reason.is_empty() && !self.quiet {
            output::note(&format!("walked instead of scanning inodes: {}", survey.origin.method_reason));
        }
        for inconsistency in &survey.origin.inconsistencies {
            output::warn(inconsistency);
        }
        for error in warnings {
            output::complain(error);
        }
        for example in survey.errors.examples() {
            output::warn(&format!("cannot {} {}: {}", example.operation, example.path, example.cause));
        }
        let unsaid = survey.counts.errors.saturating_sub(survey.errors.examples().len() as u64);
        if survey.origin.anonymous && unsaid > 0 {
            output::warn(&format!("{unsaid} could not be read; their paths are omitted"));
        } else if unsaid > 0 {
            output::warn(&format!("{unsaid} more could not be read"));
        }
    }
}

/// The path with a suffix.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A name as a word of a command line for a shell, with nothing that a terminal would interpret.
fn word(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if text.chars().all(is_printable) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let character = |byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            };
            format!("$'{}'", bytes.iter().map(character).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        survey: SurveyArguments,
    }

    #[test]
    fn the_options_to_resume_with_are_words_of_a_shell() {
        let again =
            |words: &[&str]| Arguments::try_parse_from([&["survey"], words].concat()).unwrap().survey.results_again();
        assert_eq!(again(&["-o", "/srv/a.json"]), " -o /srv/a.json");
        assert_eq!(again(&["-o", "a b.json", "--name", "it's"]), r" -o 'a b.json' --name 'it'\''s'");
        for (name, expected) in [
            (&b"a;b"[..], "'a;b'"),
            ("ä\\".as_bytes(), "'ä\\'"),
            (b"", "''"),
            (b"a\n'\\", r"$'a\x0a\'\\'"),
            (b"\xff b", r"$'\xff b'"),
            ("\u{202e}".as_bytes(), r"$'\xe2\x80\xae'"),
        ] {
            assert_eq!(word(OsStr::from_bytes(name)), expected);
        }
    }
}
