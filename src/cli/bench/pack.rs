//! `granulo bench pack`: many files against one composite store.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{AlsoMounted, Shared};
use crate::bench::pack::{
    MOST_FILES, Order, PUBLISHED_FILES, PUBLISHED_SIZE_BYTES, PackRequest, Population, Way, pack,
};
use crate::bench::place::Besides;
use crate::bench::result::{Details, Document};
use crate::cli::generate::request::TreeRequest;
use crate::cli::output::refuse_to_replace;
use crate::cli::{Ended, output, usage_error};
use crate::error::Result;
use crate::units::{format_duration, parse_size};

/// Compare many files with the same bytes in the granulo store and in one file
///
/// Compares files in directories named by the digits of their numbers (two levels for 50,000), the granulo store, the
/// append-only record file of the original benchmark, and one flat file as the baseline. Each is written to an empty
/// file system, made durable, and read back in full with cold caches: unmounted, mounted again, memory dropped. All
/// data read is compared with what was written.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sudo granulo bench pack --fs ext4,xfs,btrfs,ntfs,fat -o pack.json\n  \
    sudo granulo bench pack --fs ntfs,fat --fs-options 'ntfs=-c 65536' --fs-size 2GiB\n  \
    sudo granulo bench pack --fs ext4 --emulate hdd --orders name --rounds 1\n  \
    granulo bench pack /mnt/new --source vu-2005 --files 20000 --ways files,store",
    mut_arg("store", |store| store.help("the granulo store is always measured, unless --ways leaves it out").hide(true)),
)]
pub(super) struct PackArguments {
    #[command(flatten)]
    shared: Shared,
    #[command(flatten)]
    also: AlsoMounted,

    /// Number of files
    #[arg(long, value_name = "N", default_value_t = PUBLISHED_FILES, value_parser = clap::value_parser!(u64).range(1..=MOST_FILES), help_heading = "Workload")]
    files: u64,
    /// Bytes per file
    #[arg(long, value_name = "SIZE", default_value_t = PUBLISHED_SIZE_BYTES, value_parser = parse_size, help_heading = "Workload")]
    size: u64,
    /// Source of the file sizes: a survey, an fsstats CSV, a published table (vu-2005), a profile (geriatrix-agrawal)
    /// or a law (weighted:k=6)
    #[arg(long, value_name = "SOURCE", conflicts_with = "size", help_heading = "Workload")]
    source: Option<PathBuf>,
    /// Ways of storing the files
    #[arg(
        long,
        value_name = "WAY",
        value_delimiter = ',',
        default_value = "files,store,composite,flat",
        help_heading = "Workload"
    )]
    ways: Vec<WayChoice>,
    /// Read orders for individual files
    #[arg(
        long,
        value_name = "ORDER",
        value_delimiter = ',',
        default_value = "name,listed,inode",
        help_heading = "Workload"
    )]
    orders: Vec<OrderChoice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WayChoice {
    /// One file each
    Files,
    /// Objects in the granulo store
    Store,
    /// Records in one file, as in the original benchmark
    Composite,
    /// The bare bytes in one file: the baseline
    Flat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OrderChoice {
    /// By name, known in advance
    Name,
    /// In directory order
    Listed,
    /// By inode number within each directory
    Inode,
}

impl PackArguments {
    pub(super) fn run(self) -> Result<Ended> {
        refuse_to_replace(self.source.as_slice(), self.shared.output.iter().chain(&self.shared.report))?;
        let request = self.request()?;
        let places = self.shared.places(request.population.image_bytes())?;
        let besides = Besides { store: false, mount: self.also.mount };
        let (run, progress, (prepared, left_out)) =
            self.shared.prepare(|run| run.prepare_possible(&places, besides))?;
        if let Some(seconds) = self.slow_seconds(&request) {
            output::note(&format!("on disks this slow, this takes about {}", format_duration(seconds)));
        }
        let document = self.shared.during(&progress, || pack(&request, run, prepared, &progress))?;
        self.shared.finish(&document, &[left_out, warnings(&document)].concat())
    }

    fn request(&self) -> Result<PackRequest> {
        let population = match &self.source {
            Some(source) => {
                let TreeRequest { name, recipe, .. } = TreeRequest::of(source)?;
                Population::stratified(&name, &recipe.sizes, self.files, self.shared.seed)?
            }
            None => Population::same(self.files, self.size)?,
        };
        let once = |way: &WayChoice, ways: &[WayChoice]| ways.iter().filter(|other| *other == way).count() > 1;
        if self.ways.iter().any(|way| once(way, &self.ways)) {
            return Err(usage_error("--ways repeats a value"));
        }
        let orders: Vec<Order> = self.orders.iter().map(|order| Order::from(*order)).collect();
        if orders.iter().enumerate().any(|(at, order)| orders[..at].contains(order)) {
            return Err(usage_error("--orders repeats a value"));
        }
        let ways = self.ways.iter().map(|way| Way::from(*way)).collect();
        Ok(PackRequest { population, ways, orders, rounds: self.shared.rounds })
    }

    /// Approximate duration where disks are slowed down deliberately: operations then dominate.
    fn slow_seconds(&self, request: &PackRequest) -> Option<f64> {
        /// Per file and load: a read of the file, and of inodes and directories.
        const OPERATIONS_A_FILE: f64 = 1.2;
        let emulation = self.shared.emulate?;
        let population = &request.population;
        let sequential = population.bytes as f64 / emulation.bytes_per_second as f64;
        let mut seconds = 2.0 * sequential * request.ways.len() as f64;
        if request.ways.contains(&Way::Files) {
            let scattered = OPERATIONS_A_FILE * population.files as f64 / emulation.operations_per_second as f64;
            seconds += (scattered + sequential) * request.orders.len() as f64;
        }
        Some(seconds * (self.shared.fs.len() as u64 * self.shared.rounds) as f64)
    }
}

/// Reports what could not be measured.
fn warnings(document: &Document) -> Vec<String> {
    let Details::Pack(details) = &document.details else { return Vec::new() };
    let said = details.failures.iter().map(|failure| {
        let subject = document.subject_name(failure.subject);
        format!("{subject}, {}: {}", failure.way, failure.cause)
    });
    said.collect()
}

impl From<WayChoice> for Way {
    fn from(choice: WayChoice) -> Way {
        match choice {
            WayChoice::Files => Way::Files,
            WayChoice::Store => Way::Store,
            WayChoice::Composite => Way::Composite,
            WayChoice::Flat => Way::Flat,
        }
    }
}

impl From<OrderChoice> for Order {
    fn from(choice: OrderChoice) -> Order {
        match choice {
            OrderChoice::Name => Order::Name,
            OrderChoice::Listed => Order::Listed,
            OrderChoice::Inode => Order::Inode,
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
        pack: PackArguments,
    }

    fn parse(words: &[&str]) -> PackArguments {
        Arguments::try_parse_from([&["pack"], words].concat()).unwrap().pack
    }

    #[test]
    fn the_published_population_is_the_default() {
        let request = parse(&["--fs", "ext4"]).request().unwrap();
        assert!(request.population.is_published());
        assert_eq!((request.ways, request.orders), (Way::ALL.to_vec(), vec![Order::Name, Order::Listed, Order::Inode]));
        let asked = parse(&["x", "--source", "vu-2005", "--files", "100", "--ways", "files,flat"]).request().unwrap();
        assert_eq!((asked.population.files, asked.ways), (100, vec![Way::Files, Way::Flat]));
        for source in ["geriatrix-agrawal", "weighted:k=3"] {
            assert!(parse(&["x", "--source", source, "--files", "100"]).request().unwrap().population.bytes > 0);
        }
    }

    #[test]
    fn a_slow_disk_is_reckoned_with() {
        let slow = |words: &[&str]| {
            let arguments = parse(words);
            arguments.slow_seconds(&arguments.request().unwrap())
        };
        assert_eq!(slow(&["--fs", "ext4"]), None);
        let seconds = slow(&["--fs", "ext4", "--emulate", "hdd", "--rounds", "1", "--orders", "name"]).unwrap();
        assert!((500.0..700.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [&["x", "--ways", "files,files"][..], &["x", "--orders", "name,name"], &["x", "--source", "/none"]]
        {
            assert!(parse(words).request().is_err(), "{words:?}");
        }
        for words in [&["x", "--files", "0"][..], &["x", "--ways", "tar"], &["x", "--size", "1", "--source", "vu-2005"]]
        {
            assert!(Arguments::try_parse_from([&["pack"], words].concat()).is_err(), "{words:?}");
        }
        let huge = parse(&["x", "--files", "1000000000", "--size", "1TiB"]);
        assert!(huge.request().is_err());
    }
}
