//! `granulo bench create`: the time of every create, stat and delete of many files.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{AlsoMounted, Shared};
use crate::bench::create::{CreateRequest, Created, Durability, MOST_FILES, Order, create};
use crate::bench::images::fitting_size_bytes;
use crate::bench::place::Besides;
use crate::cli::{Ended, usage_error};
use crate::error::Result;
use crate::units::{GIB, parse_size};

/// Time each create, stat and delete of many files, and plot the time of the n-th
///
/// Creates files named file-1, file-2, … (empty, or of a given size), then stats each of them, then deletes each of
/// them. After each phase, a sync writes back dirty data and is timed separately. Everything created is removed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo bench create /mnt/new --files 327800\n  granulo bench create /mnt/new --size 20000 --directory-files 1000 --order listed\n  \
    sudo granulo bench create --fs ext4,xfs,btrfs,ntfs,fat --store -o create.json\n  \
    sudo granulo bench create --fs ext4 --fs-options ext4= --fs-options 'ext4=-O ^dir_index' --files 10000"
)]
pub(super) struct CreateArguments {
    #[command(flatten)]
    shared: Shared,
    #[command(flatten)]
    also: AlsoMounted,

    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=MOST_FILES), help_heading = "Workload")]
    files: u64,
    /// Bytes to write to each file
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size, help_heading = "Workload")]
    size: u64,
    /// Files per directory [default: all in one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Workload")]
    directory_files: Option<u64>,
    /// Deletion order
    #[arg(long, value_name = "ORDER", default_value = "creation", help_heading = "Workload")]
    order: OrderChoice,
    /// When files, and objects of a store, must be durable
    #[arg(long, value_name = "WHEN", default_value = "none", help_heading = "Workload")]
    durability: DurabilityChoice,
    /// Time limit for a phase in a round, in seconds; later phases use the files created so far; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 600, help_heading = "Workload")]
    longest: u64,
    /// Drop the caches before each phase
    #[arg(long, help_heading = "Workload")]
    cold: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OrderChoice {
    /// Creation order
    Creation,
    /// Reverse creation order
    Reverse,
    /// Random order from the seed
    Random,
    /// By name
    Name,
    /// Directory order, as rm -r deletes
    Listed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityChoice {
    /// At the sync after each phase
    None,
    /// After each create or delete
    Each,
    /// After every thousand files
    Batch,
}

impl CreateArguments {
    pub(super) fn run(self) -> Result<Ended> {
        if self.also.mount && matches!(self.durability, DurabilityChoice::Batch) {
            let error = usage_error("--durability batch needs syncfs, which does not reach a mounted store");
            return Err(error.advise("use --durability each or none, or omit --mount"));
        }
        let request = self.request();
        let size_bytes = match self.shared.fs_size {
            Some(size_bytes) => size_bytes,
            // Directories have no image, however much they are to hold.
            None if self.shared.fs.is_empty() => GIB,
            None => fitting_size_bytes(request.files, request.size_bytes, GIB)?,
        };
        let places = self.shared.places(size_bytes)?;
        let besides = Besides { store: self.shared.store, mount: self.also.mount };
        let (run, progress, prepared) = self.shared.prepare(|run| run.prepare(&places, besides))?;
        let Created { document, left_out } =
            self.shared.during(&progress, || create(&request, run, prepared, &progress))?;
        self.shared.finish(&document, &left_out)
    }

    fn request(&self) -> CreateRequest {
        CreateRequest {
            files: self.files,
            size_bytes: self.size,
            directory_files: self.directory_files.unwrap_or(0),
            order: match self.order {
                OrderChoice::Creation => Order::Creation,
                OrderChoice::Reverse => Order::Reverse,
                OrderChoice::Random => Order::Random,
                OrderChoice::Name => Order::Name,
                OrderChoice::Listed => Order::Listed,
            },
            durability: match self.durability {
                DurabilityChoice::None => Durability::None,
                DurabilityChoice::Each => Durability::Each,
                DurabilityChoice::Batch => Durability::Batch,
            },
            is_cold: self.cold,
            rounds: self.shared.rounds,
            longest: (self.longest > 0).then(|| Duration::from_secs(self.longest)),
        }
    }
}
