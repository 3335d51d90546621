//! `granulo bench create`: the time of every create, stat and delete of many files.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Shared;
use crate::bench::create::{CreateRequest, Created, Durability, MOST_FILES, Order, create};
use crate::bench::images::fitting_size_bytes;
use crate::cli::Ended;
use crate::error::Result;
use crate::units::{GIB, parse_size};

/// Time every create, stat and delete of many files, and show the curve of the n-th of them
///
/// Files named file-1, file-2, … are opened and closed, or written where they have a size; then the inode of each is asked for; then each is
/// deleted. What a phase leaves in memory is written back after it, which is timed on its own. All that was made is removed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo bench create /mnt/new --files 327800\n  granulo bench create /mnt/new --size 20000 --directory-files 1000 --order listed\n  \
    sudo granulo bench create --fs ext4,xfs,btrfs,ntfs,fat --store -o create.json\n  \
    sudo granulo bench create --fs ext4 --fs-options ext4= --fs-options 'ext4=-O ^dir_index' --files 10000"
)]
pub(super) struct CreateArguments {
    #[command(flatten)]
    shared: Shared,

    /// How many files
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=MOST_FILES), help_heading = "What is done")]
    files: u64,
    /// Bytes that are written into each
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size, help_heading = "What is done")]
    size: u64,
    /// Files in a directory [default: all in one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What is done")]
    directory_files: Option<u64>,
    /// Order in which they are deleted
    #[arg(long, value_name = "ORDER", default_value = "creation", help_heading = "What is done")]
    order: OrderChoice,
    /// When files, and objects of a store, are to be durable
    #[arg(long, value_name = "WHEN", default_value = "none", help_heading = "What is done")]
    durability: DurabilityChoice,
    /// Longest time of a phase in a turn, in seconds; what follows goes on with the files that are there then; 0 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 600, help_heading = "What is done")]
    longest: u64,
    /// Drop the caches before each phase
    #[arg(long, help_heading = "What is done")]
    cold: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OrderChoice {
    /// As they were made
    Creation,
    /// The last one first
    Reverse,
    /// Mixed up by the seed
    Random,
    /// By name
    Name,
    /// As the directory lists them, which is how rm -r deletes
    Listed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityChoice {
    /// By the sync after each phase
    None,
    /// Each when it was created or deleted
    Each,
    /// Every thousand
    Batch,
}

impl CreateArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let request = self.request();
        let size_bytes = fitting_size_bytes(request.files, request.size_bytes, GIB)?;
        let places = self.shared.places(size_bytes)?;
        let mut run = self.shared.begin()?;
        let progress = self.shared.watch()?;
        let prepared = run.prepare(&places, self.shared.store);
        self.shared.say_cleared(&run);
        let prepared = prepared?;
        let Created { document, left_out } = progress.during(|watch| create(&request, run, prepared, watch))?;
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
