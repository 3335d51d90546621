//! `granulo bench fill`: performance over the fill level.

use clap::{Args, ValueEnum};

use super::Shared;
use crate::bench::file_systems::FileSystemKind;
use crate::bench::fill::{Estimate, FillRequest, Filling, HIGHEST_LEVEL, check_directories, fill};
use crate::bench::place::{Besides, Place};
use crate::bench::result::{Details, Document};
use crate::cli::{Ended, output, usage_error};
use crate::error::Result;
use crate::population::SizeLaw;
use crate::units::{GIB, escape, format_count, format_duration, format_share, format_size, parse_percent, parse_size};

/// Size of the file system that is created if none is named.
const FILE_SYSTEM_BYTES: u64 = 4 * GIB;
/// Largest number of levels.
const MOST_LEVELS: usize = 1000;
/// Largest number of directories, or small files, of a test: their names have this many digits.
const MOST_ENTRIES: u64 = 100_000_000;

/// Fill a file system in steps, and time the same tests at each level
///
/// First reads the raw device as a baseline. Then writes files until used / (used + available) reaches a level: sizes
/// are weighted by e^(k(x-1)), one random file is deleted for every ten created, with flushes before and after. At
/// each level, with dropped caches and several times, it creates directories, finds them, finds and removes them,
/// writes and reads a large file, and creates and deletes small files. Without DIR and --fs, it creates a 4 GiB ext4
/// file system. Everything created is removed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sudo granulo bench fill -o fill.json\n  \
    sudo granulo bench fill --fs ext4,xfs,btrfs --fs-size 16GiB --levels 30%..98% --step 4% --file-size 128MiB\n  \
    sudo granulo bench fill /mnt/disk --levels 50%,80%,90%,95% --flush-every 100\n  \
    sudo granulo bench fill --fs ext4 --store --rounds 2 --content random",
    mut_arg("rounds", |rounds| {
        rounds.long("rounds").alias("repeats").default_value("4").help("Repeats of the tests at each level; targets take turns")
    }),
    mut_arg("fs_size", |size| size.help("File system size [default: 4GiB]")),
)]
pub(super) struct FillArguments {
    #[command(flatten)]
    shared: Shared,

    /// Fill levels: a range, or a list such as 50%,80%,95%
    #[arg(long, value_name = "FROM..TO", default_value = "30%..98%", value_parser = levels, help_heading = "Workload")]
    levels: Levels,
    /// Step between levels
    #[arg(long, value_name = "PERCENT", default_value = "4%", value_parser = parse_percent, help_heading = "Workload")]
    step: f64,
    /// Weight k of the size distribution e^(k(x-1)); a larger k gives more small files
    #[arg(long, value_name = "K", default_value_t = 6.0, help_heading = "Workload")]
    weight: f64,
    /// Smallest file size (exclusive)
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_size, help_heading = "Workload")]
    smallest: u64,
    /// Largest file size
    #[arg(long, value_name = "SIZE", default_value = "10MiB", value_parser = parse_size, help_heading = "Workload")]
    largest: u64,
    /// File content
    #[arg(long, value_name = "WHAT", default_value = "zero", help_heading = "Workload")]
    content: ContentChoice,
    /// Delete a random file after every N created; 0 for never
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Workload")]
    delete_every: u64,
    /// Flush before and after a deletion once N files were created since the last flush; 0 for never
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Workload")]
    flush_every: u64,
    /// Directories per test
    #[arg(long = "directories", value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=MOST_ENTRIES), help_heading = "Workload")]
    test_directories: u64,
    /// Size of the large file
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_size, help_heading = "Workload")]
    file_size: u64,
    /// Small files per test
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=MOST_ENTRIES), help_heading = "Workload")]
    small_files: u64,
    /// Size of each small file
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size, help_heading = "Workload")]
    small_size: u64,
    /// Allow filling the root file system if DIR is on it
    #[arg(long, help_heading = "Workload")]
    allow_root_file_system: bool,
}

/// Levels as typed.
#[derive(Debug, Clone, PartialEq)]
enum Levels {
    Range(f64, f64),
    List(Vec<f64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ContentChoice {
    /// Zeros, as in the original benchmark
    Zero,
    /// Incompressible bytes
    Random,
}

fn levels(text: &str) -> std::result::Result<Levels, String> {
    let level = |text: &str| match parse_percent(text)? {
        level if level > 0.0 && level <= HIGHEST_LEVEL => Ok(level),
        _ => {
            Err(format!("'{}' is not a level; the highest is {}", escape(text.as_bytes()), format_share(HIGHEST_LEVEL)))
        }
    };
    match text.split_once("..") {
        Some((from, to)) => match (level(from)?, level(to)?) {
            (from, to) if from <= to => Ok(Levels::Range(from, to)),
            _ => Err(format!("'{}' is a decreasing range; write the lower level first", escape(text.as_bytes()))),
        },
        None => text.split(',').map(level).collect::<std::result::Result<_, _>>().map(Levels::List),
    }
}

impl FillArguments {
    pub(super) fn run(mut self) -> Result<Ended> {
        let request = self.request()?;
        if self.shared.directories.is_empty() && self.shared.fs.is_empty() {
            self.shared.fs = vec![FileSystemKind::Ext4];
        }
        check_directories(&self.shared.directories, self.shared.store, self.allow_root_file_system)?;
        let places: Vec<Place> = self.shared.places(FILE_SYSTEM_BYTES)?.into_iter().map(without_discard).collect();
        let besides = Besides { store: self.shared.store, mount: false };
        let (run, progress, prepared) = self.shared.prepare(|run| run.prepare(&places, besides))?;
        let announce = |estimate: Estimate| {
            if !self.shared.quiet {
                output::note(&words(estimate, request.levels.len()));
            }
        };
        let document = self.shared.during(&progress, || fill(&request, run, prepared, &progress, &announce))?;
        self.shared.finish(&document, &warnings(&document))
    }

    fn request(&self) -> Result<FillRequest> {
        let mut levels = match &self.levels {
            Levels::List(levels) => levels.clone(),
            Levels::Range(from, to) => steps(*from, *to, self.step)?,
        };
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let (k, min_bytes, max_bytes) = (self.weight, self.smallest, self.largest);
        // The error of the law itself describes the fault.
        let sizes = SizeLaw::parse(&format!("weighted:k={k},min={min_bytes},max={max_bytes}")).map_err(usage_error)?;
        if max_bytes == 0 {
            return Err(usage_error("empty files fill nothing; --largest must be more than 0"));
        }
        if self.file_size == 0 {
            return Err(usage_error("--file-size must be more than 0"));
        }
        if self.delete_every == 1 {
            return Err(usage_error("with --delete-every 1 no file would stay; use 2 or more, or 0 for never"));
        }
        Ok(FillRequest {
            levels,
            filling: Filling { sizes, delete_every: self.delete_every, flush_every: self.flush_every },
            is_random: self.content == ContentChoice::Random,
            repeats: self.shared.rounds,
            directories: self.test_directories,
            file_bytes: self.file_size,
            small_files: self.small_files,
            small_bytes: self.small_size,
        })
    }
}

/// `from`, then steps of `step` up to `to`, which is always the last.
fn steps(from: f64, to: f64, step: f64) -> Result<Vec<f64>> {
    // In millionths, so that 30 % and 17 steps of 4 % are 98 %.
    let millionths = |share: f64| (share * 1e6).round() as u64;
    let (from, to, step) = (millionths(from), millionths(to), millionths(step));
    if step == 0 || (to - from) / step >= MOST_LEVELS as u64 {
        return Err(usage_error(format!("this --step gives more than {} levels", format_count(MOST_LEVELS as u128))));
    }
    let mut levels: Vec<u64> = (from..=to).step_by(step as usize).collect();
    if levels.last() != Some(&to) {
        levels.push(to);
    }
    Ok(levels.into_iter().map(|level| level as f64 / 1e6).collect())
}

/// Btrfs discards freed space on its own on devices that support it, which would punch holes into the image again.
fn without_discard(place: Place) -> Place {
    match place {
        Place::FileSystem(mut spec)
            if spec.kind == FileSystemKind::Btrfs && !spec.mount_options.contains("discard") =>
        {
            let options = [spec.mount_options.as_str(), "nodiscard"];
            spec.mount_options = options.into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",");
            Place::FileSystem(spec)
        }
        other => other,
    }
}

fn words(estimate: Estimate, levels: usize) -> String {
    let count = |number: u64| format_count(number.into());
    format!(
        "writing about {} to fill up, and timing {} tests at {} levels; this takes about {}",
        format_size(estimate.fill_bytes.into()),
        count(estimate.tests),
        count(levels as u64),
        duration(estimate.seconds)
    )
}

/// A long time in round numbers.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format_duration(seconds.max(1.0).round()),
        seconds if seconds < 2.0 * 3600.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds => format!("{:.0} hours", seconds / 3600.0),
    }
}

/// Levels that were not reached.
fn warnings(document: &Document) -> Vec<String> {
    let Details::Fill(details) = &document.details else { return Vec::new() };
    let missed = details.left_out.iter().filter(|left_out| left_out.tests.is_empty());
    let said = missed.map(|left_out| {
        let subject = document.subject_name(left_out.subject);
        format!("{subject} was not filled to {}: {}", format_share(left_out.level), left_out.cause)
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        fill: FillArguments,
    }

    fn parse(words: &[&str]) -> std::result::Result<FillArguments, clap::Error> {
        Arguments::try_parse_from([&["fill"], words].concat()).map(|arguments| arguments.fill)
    }

    fn levels_of(words: &[&str]) -> Vec<f64> {
        parse(words).unwrap().request().unwrap().levels
    }

    #[test]
    fn the_tests_of_the_source_are_the_default() {
        let request = parse(&[]).unwrap().request().unwrap();
        assert_eq!((request.levels.len(), request.levels[0], request.levels[17]), (18, 0.3, 0.98));
        assert_eq!((request.repeats, request.directories, request.file_bytes), (4, 10_000, GIB / 2));
        assert_eq!((request.filling.delete_every, request.filling.flush_every), (10, 10));
        assert_eq!(request.filling.sizes, SizeLaw::default());
        assert!(!request.is_random);
        for option in ["--rounds", "--repeats"] {
            assert_eq!(parse(&[option, "2"]).unwrap().request().unwrap().repeats, 2);
        }
    }

    #[test]
    fn levels_are_a_range_or_a_list() {
        assert_eq!(levels_of(&["--levels", "30..50%", "--step", "10%"]), [0.3, 0.4, 0.5]);
        assert_eq!(levels_of(&["--levels", "30%..45%", "--step", "10%"]), [0.3, 0.4, 0.45]);
        assert_eq!(levels_of(&["--levels", "80%,50%,80%"]), [0.5, 0.8]);
        for wrong in ["", "0%", "100%", "50%..30%", "x", "50%,", "0.5"] {
            assert!(parse(&["--levels", wrong]).is_err(), "{wrong}");
        }
        for step in ["0%", "0.0001%"] {
            assert!(parse(&["--step", step]).unwrap().request().is_err(), "{step}");
        }
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for words in [
            &["--weight=-1"][..],
            &["--weight", "inf"],
            &["--smallest", "2MiB", "--largest", "1MiB"],
            &["--smallest", "0", "--largest", "0"],
            &["--file-size", "0"],
            &["--delete-every", "1"],
        ] {
            assert!(parse(words).unwrap().request().is_err(), "{words:?}");
        }
    }

    #[test]
    fn btrfs_keeps_what_it_frees() {
        let place = |options: &str| {
            let words = ["--fs", "btrfs,ext4", "--fs-options", options];
            let places = parse(&words).unwrap().shared.places(GIB).unwrap().into_iter().map(without_discard);
            let name = |place| match place {
                Place::FileSystem(spec) => FileSystemKind::name(spec.kind).to_owned() + &spec.mount_options,
                Place::Directory(_) => String::new(),
            };
            places.map(name).collect::<Vec<_>>()
        };
        assert_eq!(place("btrfs=-o compress=zstd"), ["btrfscompress=zstd,nodiscard", "ext4"]);
        assert_eq!(place("btrfs=-o discard=async"), ["btrfsdiscard=async", "ext4"]);
    }

    #[test]
    fn what_it_will_come_to_is_said_in_round_numbers() {
        let said = words(Estimate { fill_bytes: 3 << 30, tests: 504, seconds: 754.0 }, 18);
        assert_eq!(
            said,
            "writing about 3 GiB to fill up, and timing 504 tests at 18 levels; this takes about 13 minutes"
        );
        assert_eq!((duration(0.2), duration(9000.0)), ("1.00 s".to_owned(), "2 hours".to_owned()));
    }
}
