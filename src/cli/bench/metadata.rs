//! `granulo bench metadata`: load, check, listing and cold small reads, on file systems and on stores.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{AlsoMounted, Shared};
use crate::bench::file_systems::{FileSystemKind, FileSystemSpec};
use crate::bench::metadata::{
    LARGEST_BYTES, Loads, MetadataRequest, Mix, Part, StoreLayout, Stores, metadata, prepare,
};
use crate::bench::place::{Besides, Place};
use crate::bench::result::Details;
use crate::cli::output::refuse_to_replace;
use crate::cli::{Ended, sources, usage_error};
use crate::error::Result;
use crate::survey::measure::Measure;
use crate::units::{GIB, MIB, format_size, parse_size};

/// Largest number of files, and of entries of the directory with many.
const MOST_FILES: u64 = 1_000_000_000;
/// Longest duration of a load or of reads, in seconds.
const MOST_SECONDS: u64 = 86_400;

/// Measure metadata operations: an SFS-like load, full checks, ls -l, cold small reads
///
/// Measures what Welch and Noer measured to see what SSDs add to disks: a mix of operations offered at rising rates,
/// with response times; a full check; an attribute listing of a directory with a million entries; and 60,000 random
/// reads of small files. The files are created once, with sizes from a source. File systems and stores can be on slow
/// devices, on fast ones or, for a hybrid store, on both.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo bench metadata /mnt/new --files 10000 --listed 100000\n  \
    sudo granulo bench metadata --fs ext4,xfs --store-layout slow,hybrid,fast --emulate hdd -o metadata.json\n  \
    sudo granulo bench metadata --fs ext4 --fs-devices slow,fast --part check,list\n  \
    granulo bench metadata /mnt/new --part load --mix getattr=60,lookup=40 --loads 1000,2000,4000\n\nExit status: 0 success; 1 finished \
    with problems (interrupted, a file system limit was reached); 2 failed.")]
pub(super) struct MetadataArguments {
    #[command(flatten)]
    shared: Shared,
    #[command(flatten)]
    also: AlsoMounted,

    /// Store layouts to create on file systems of their own: slow devices, fast and slow ones (hybrid), or a fast one
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',', help_heading = "Targets")]
    store_layout: Vec<StoreLayout>,
    /// File system under these stores [default: the first of --fs, or ext4]
    #[arg(long, value_name = "KIND", requires = "store_layout", help_heading = "Targets")]
    store_fs: Option<FileSystemKind>,
    /// Slow devices in each of these stores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16), help_heading = "Targets")]
    slow_devices: u64,
    /// Devices under the file systems: slow, fast, or both in turn [default: slow with --emulate, else fast]
    #[arg(long, value_name = "DEVICE", value_delimiter = ',', help_heading = "Targets")]
    fs_devices: Vec<Device>,

    /// Parts to measure
    #[arg(
        long = "part",
        value_name = "PART",
        value_delimiter = ',',
        default_value = "load,check,list,reads",
        help_heading = "Workload"
    )]
    parts: Vec<PartChoice>,
    /// Source of the file sizes: a survey, an fsstats CSV or a published table
    #[arg(long, value_name = "SOURCE", default_value = "vu-2005", help_heading = "Workload")]
    source: PathBuf,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=MOST_FILES), help_heading = "Workload")]
    files: u64,
    /// Truncate larger files of the source to this size
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size, help_heading = "Workload")]
    largest: u64,
    /// Files per directory
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Workload")]
    directory_files: u64,
    /// Entries in the directory to list; checks also cover it
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(0..=MOST_FILES), help_heading = "Workload")]
    listed: u64,
    /// Number of small files to read
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000), help_heading = "Workload")]
    reads: u64,
    /// Largest size of a small file
    #[arg(long = "cutoff", alias = "small", value_name = "SIZE", default_value = "64KiB", value_parser = parse_size, help_heading = "Workload")]
    small: u64,
    /// Stop each series of reads after this many seconds; the rate covers the reads done
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS), help_heading = "Workload")]
    longest_reads: u64,
    /// Threads for the load and for concurrent reads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Workload")]
    threads: u64,

    /// Operation mix, such as lookup=50,getattr=50 or sfs2008,commit=5
    #[arg(long, value_name = "MIX", default_value = "sfs2008", help_heading = "The load")]
    mix: Mix,
    /// Offered loads, in operations per second [default: from 50, doubling until overload]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = rate, help_heading = "The load")]
    loads: Vec<f64>,
    /// First load, in operations per second; each next one is double
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "loads", help_heading = "The load")]
    first_load: Option<f64>,
    /// Measured seconds at each load
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds, help_heading = "The load")]
    window: Duration,
    /// Warm-up seconds at each load, not counted
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds_or_none, help_heading = "The load")]
    warm_up: Duration,
    /// Time limit for the loads of a place in a round, in seconds: no load begins that could end later, except the
    /// first, which is cut short; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(..=MOST_SECONDS), help_heading = "The load")]
    longest: u64,
    /// Largest read or write
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = parse_size, help_heading = "The load")]
    transfer: u64,
    /// Count a change as done only once durable: fsync of files and directories, a synced batch in the store
    #[arg(long, help_heading = "The load")]
    durable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    /// Slowed down as --emulate says
    Slow,
    /// At native speed
    Fast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PartChoice {
    /// The operation mix at rising rates
    Load,
    /// A full check; in a store, of every byte
    Check,
    /// The directory with many entries, listed with attributes
    List,
    /// Random reads of small files
    Reads,
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=1e7).contains(&rate) => Ok(rate),
        _ => Err(format!("'{text}' is not a number of operations per second from 0.01 to 10,000,000")),
    }
}

fn seconds_or_none(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=MOST_SECONDS as f64).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("'{text}' is not a number of seconds up to {MOST_SECONDS}")),
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    match seconds_or_none(text) {
        Ok(time) if time < Duration::from_millis(50) => Err("a load lasts at least 0.05 seconds".to_owned()),
        other => other,
    }
}

impl MetadataArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let targets = self.shared.output.iter().chain(&self.shared.report);
        refuse_to_replace(std::slice::from_ref(&self.source), targets)?;
        let request = self.request()?;
        let (places, stores) = self.places(&request)?;
        let besides = Besides { store: self.shared.store, mount: self.also.mount };
        let (run, progress, prepared) =
            self.shared.prepare(|run| prepare(run, &request, &places, besides, stores.as_ref()))?;
        let document = self.shared.during(&progress, || metadata(&request, run, prepared, &progress))?;
        let warnings = match &document.details {
            Details::Metadata(details) => details.limits.clone(),
            _ => Vec::new(),
        };
        self.shared.finish(&document, &warnings)
    }

    fn request(&self) -> Result<MetadataRequest> {
        if self.largest > LARGEST_BYTES {
            let most = format_size(LARGEST_BYTES.into());
            return Err(usage_error(format!("--largest must be at most {most}")));
        }
        if !(512..=64 * MIB).contains(&self.transfer) {
            return Err(usage_error("--transfer must be from 512 B to 64 MiB"));
        }
        if self.longest > 0 && Duration::from_secs(self.longest) <= self.warm_up {
            return Err(usage_error("--longest must be longer than --warm-up"));
        }
        let survey = sources::open(&self.source)?;
        let source = sources::names(std::slice::from_ref(&survey), std::slice::from_ref(&self.source)).concat();
        let mut loads = self.loads.clone();
        loads.sort_by(f64::total_cmp);
        let mut parts: Vec<Part> = Vec::new();
        for part in &self.parts {
            parts.push(match part {
                PartChoice::Load => Part::Load,
                PartChoice::Check => Part::Check,
                PartChoice::List => Part::List,
                PartChoice::Reads => Part::Reads,
            });
        }
        Ok(MetadataRequest {
            source,
            sizes: survey.distributions.of(Measure::FileSize).clone(),
            files: self.files,
            largest_bytes: self.largest,
            directory_files: self.directory_files,
            listed: self.listed,
            small_bytes: self.small,
            reads: self.reads,
            longest_reads: Duration::from_secs(self.longest_reads),
            mix: self.mix.clone(),
            loads: match loads.as_slice() {
                [] => Loads::From(self.first_load.unwrap_or(50.0)),
                _ => Loads::These(loads),
            },
            threads: self.threads,
            warm_up: self.warm_up,
            window: self.window,
            longest_loads: (self.longest > 0).then(|| Duration::from_secs(self.longest)),
            transfer_bytes: self.transfer,
            is_durable: self.durable,
            parts,
            rounds: self.shared.rounds,
        })
    }

    /// File systems and stores to measure.
    fn places(&self, request: &MetadataRequest) -> Result<(Vec<Place>, Option<Stores>)> {
        let emulation = self.shared.emulate.unwrap_or_default();
        let store_kind = self.store_fs.or(self.shared.fs.first().copied()).unwrap_or(FileSystemKind::Ext4);
        let with_stores = !self.store_layout.is_empty();
        let mut kinds = self.shared.fs.clone();
        kinds.extend(with_stores.then_some(store_kind));
        let size_bytes = match self.shared.fs_size {
            Some(size_bytes) => size_bytes,
            // Directories have no image, however much they are to hold.
            None if kinds.is_empty() => GIB,
            None => request.room_bytes(&kinds, self.shared.store || self.also.mount || with_stores)?,
        };
        if self.fs_devices.contains(&Device::Fast)
            && !self.fs_devices.contains(&Device::Slow)
            && self.shared.emulate.is_some()
            && !with_stores
        {
            return Err(usage_error("--emulate needs slow devices, but --fs-devices has only fast ones"));
        }
        if !self.fs_devices.is_empty() && self.shared.fs.is_empty() {
            return Err(
                usage_error("--fs-devices needs file systems created for the run").advise("name them with --fs")
            );
        }
        // Stores alone are a valid target too; --emulate and --fs-size are then about their file systems.
        let named = match with_stores && self.shared.fs.is_empty() {
            true if !self.shared.fs_options.is_empty() => {
                return Err(usage_error("--fs-options needs file systems that --fs names"));
            }
            true => self.shared.directories.iter().cloned().map(Place::Directory).collect(),
            false => self.shared.places(size_bytes)?,
        };
        let mut places = Vec::new();
        for place in named {
            let Place::FileSystem(spec) = place else {
                places.push(place);
                continue;
            };
            let default = if spec.emulation.is_some() { Device::Slow } else { Device::Fast };
            let devices = if self.fs_devices.is_empty() { vec![default] } else { self.fs_devices.clone() };
            for device in devices {
                let emulation = (device == Device::Slow).then_some(emulation);
                places.push(Place::FileSystem(FileSystemSpec { emulation, ..spec.clone() }));
            }
        }
        let mut layouts: Vec<StoreLayout> = Vec::new();
        for &layout in &self.store_layout {
            if !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
        let stores = with_stores.then(|| Stores {
            layouts,
            file_system: FileSystemSpec::new(store_kind, size_bytes),
            emulation,
            slow_devices: self.slow_devices,
        });
        Ok((places, stores))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        metadata: MetadataArguments,
    }

    fn parsed(words: &[&str]) -> MetadataArguments {
        Arguments::try_parse_from([&["metadata"], words].concat()).unwrap().metadata
    }

    fn places(words: &[&str]) -> Result<(Vec<Place>, Option<Stores>)> {
        let arguments = parsed(words);
        arguments.places(&arguments.request()?)
    }

    #[test]
    fn file_systems_are_slow_fast_or_both() {
        let slow = |words: &[&str]| -> Vec<bool> {
            let is_slow = |place: &Place| matches!(place, Place::FileSystem(spec) if spec.emulation.is_some());
            places(words).unwrap().0.iter().map(is_slow).collect()
        };
        assert_eq!(slow(&["--fs", "ext4,xfs"]), [false, false]);
        assert_eq!(slow(&["--fs", "ext4", "--emulate", "hdd"]), [true]);
        assert_eq!(slow(&["--fs", "ext4,xfs", "--fs-devices", "slow,fast"]), [true, false, true, false]);
        let (places, stores) = places(&["--store-layout", "slow,hybrid,slow", "--store-fs", "xfs"]).unwrap();
        let stores = stores.unwrap();
        assert_eq!((places.len(), stores.layouts.len(), stores.file_system.kind), (0, 2, FileSystemKind::Xfs));
    }

    #[test]
    fn what_is_about_file_systems_is_about_those_of_stores_too() {
        let directory = [Place::Directory("a".into())];
        let beside = ["a", "--store-layout", "slow", "--emulate", "hdd:ops=80", "--fs-size", "9GiB"];
        let (named, stores) = places(&beside).unwrap();
        let Stores { emulation, file_system, .. } = stores.unwrap();
        assert_eq!(named, directory);
        assert_eq!((emulation.operations_per_second, file_system.size_bytes), (80, 9 << 30));
        let stores = places(&["--store-layout", "slow"]).unwrap().1.unwrap();
        // A million entries, and the space for the files.
        assert!((2 << 30..8 << 30).contains(&stores.file_system.size_bytes), "{}", stores.file_system.size_bytes);
        // A directory has no image that could be too large.
        assert_eq!(places(&["a", "--files", "1000000000"]).unwrap().0, directory);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            &[][..],
            &["a", "--fs-devices", "fast"],
            &["--fs", "ext4", "--emulate", "hdd", "--fs-devices", "fast"],
            &["--fs", "ext4", "--files", "1000000000"],
            &["--store-layout", "slow", "--fs-options", "ext4=-m 0"],
        ] {
            assert!(places(words).is_err(), "{words:?}");
        }
        assert!(parsed(&["a", "--largest", "1GiB"]).request().is_err());
        for words in [
            &["a", "--mix", "stat=1"][..],
            &["a", "--loads", "0"],
            &["a", "--loads", "1", "--first-load", "2"],
            &["a", "--window", "0"],
            &["a", "--window", "x"],
            &["a", "--store-fs", "ext4"],
            &["a", "--store-layout", "warm"],
            &["a", "--part", "rename"],
            &["a", "--files", "0"],
        ] {
            assert!(Arguments::try_parse_from([&["metadata"], words].concat()).is_err(), "{words:?}");
        }
    }
}
