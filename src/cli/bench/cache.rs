//! `granulo bench cache`: run time of a workload over cache size and block size.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Shared;
use crate::bench::cache::{CacheRequest, Project, Workload, cache, prepare, usual_file_system};
use crate::bench::result::{Details, Document, FailureKind};
use crate::cli::{Ended, usage_error};
use crate::error::Result;
use crate::units::{MIB, format_size, parse_size};

/// Time a workload under a matrix of cache sizes and block sizes
///
/// The workload runs in a memory control group, whose limit covers its page cache and its own memory together, on
/// file systems created with each block size and mounted with cold caches before each run: without --fs, XFS, or ext4
/// where there is no XFS. Needs root. By default, a C project is generated and compiled, and the compiler writes its
/// intermediate files to the file system under test; the cache sizes then range from the smallest limit that works to
/// twice what the workload uses.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sudo granulo bench cache --fs ext4,xfs -o cache.json\n  \
    sudo granulo bench cache --block-size 1K,4K --cache-size 32M,64M,128M --rounds 5\n  \
    sudo granulo bench cache --fs ext4 --tree ~/src/project --cache-size 64M,256M -- make -j2\n\nExit status: 0 success; 1 finished with problems \
    (interrupted, the command failed); 2 failed.")]
pub(super) struct CacheArguments {
    #[command(flatten)]
    shared: Shared,

    /// Memory limits, page cache included [default: five, from the smallest that works to twice what the workload
    /// uses]
    #[arg(long = "cache-size", alias = "cache-sizes", value_name = "SIZE", value_delimiter = ',', value_parser = parse_size, help_heading = "Workload")]
    cache_sizes: Vec<u64>,
    /// Block sizes of the file systems [default: those of the published figure: 1K,2K,4K,8K for xfs, 1K,2K,4K for ext2
    /// to ext4]
    #[arg(long = "block-size", alias = "block-sizes", value_name = "SIZE", value_delimiter = ',', value_parser = parse_size, help_heading = "Workload")]
    block_sizes: Vec<u64>,
    /// Stop a run after this many seconds [default: ten times a run without a limit]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), help_heading = "Workload")]
    longest: Option<u64>,
    /// Copy this directory to the place where the command runs
    #[arg(long, value_name = "DIR", requires = "command", help_heading = "Workload")]
    tree: Option<PathBuf>,
    /// Programs in the C project, four files each
    #[arg(long, value_name = "N", default_value_t = Project::default().programs, value_parser = clap::value_parser!(u64).range(1..=10_000), conflicts_with = "command", help_heading = "Workload")]
    programs: u64,
    /// Headers shared by the programs
    #[arg(long, value_name = "N", default_value_t = Project::default().headers, value_parser = clap::value_parser!(u64).range(1..=10_000), conflicts_with = "command", help_heading = "Workload")]
    headers: u64,
    /// How many times to compile them in each run
    #[arg(long, value_name = "N", default_value_t = Project::default().builds, value_parser = clap::value_parser!(u64).range(1..=10_000), conflicts_with = "command", help_heading = "Workload")]
    builds: u64,
    /// Command to run instead of the compilation, in the directory under test
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl CacheArguments {
    pub(super) fn run(mut self) -> Result<Ended> {
        if self.shared.store {
            return Err(usage_error("bench cache runs programs, which need files, and cannot measure --store")
                .advise("remove --store"));
        }
        if self.shared.directories.is_empty() && self.shared.fs.is_empty() {
            self.shared.fs.push(usual_file_system());
        }
        let request = self.request()?;
        request.workload.check()?;
        let places = self.shared.places(request.workload.room_bytes(&self.block_sizes)?)?;
        let (run, progress, prepared) = self.shared.prepare(|run| prepare(run, &places, &self.block_sizes))?;
        let document = self.shared.during(&progress, || cache(&request, run, prepared, &progress))?;
        self.shared.finish(&document, &warnings(&document))
    }

    fn request(&self) -> Result<CacheRequest> {
        let mut sizes_bytes = self.cache_sizes.clone();
        sizes_bytes.sort_unstable();
        sizes_bytes.dedup();
        if let Some(&least) = sizes_bytes.first()
            && least < MIB
        {
            return Err(usage_error(format!(
                "{} of memory is too little to run any program",
                format_size(least.into())
            )));
        }
        let workload = match self.command.is_empty() {
            true => Workload::Compile(Project { programs: self.programs, headers: self.headers, builds: self.builds }),
            false => Workload::Command { command: self.command.clone(), tree: self.tree.clone() },
        };
        Ok(CacheRequest {
            workload,
            sizes_bytes,
            longest: self.longest.map(Duration::from_secs),
            rounds: self.shared.rounds,
        })
    }
}

/// Cells whose command failed by itself. That it ran out of memory or time is a result.
fn warnings(document: &Document) -> Vec<String> {
    let Details::Cache(details) = &document.details else { return Vec::new() };
    let failures = details.cells.iter().filter_map(|cell| Some((cell, cell.failure.as_ref()?)));
    let own = failures.filter(|(_, failure)| failure.kind == FailureKind::Failed);
    own.map(|(cell, failure)| {
        let subject = document.subject_name(cell.subject);
        format!(
            "{subject}, with {} and blocks of {}: {}",
            format_size(cell.limit_bytes.into()),
            format_size(cell.block_bytes.into()),
            failure.cause
        )
    })
    .collect()
}
