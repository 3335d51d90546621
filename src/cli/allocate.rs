//! `granulo allocate`: the space that one file needs under a layout.

use clap::Args;
use serde::Serialize;

use super::output::DocumentArguments;
use super::{Ended, output, usage_error};
use crate::error::Result;
use crate::layout::Model;
use crate::program;
use crate::report::allocate::write_allocations;
use crate::report::allocate_page::part;
use crate::units::parse_size;

/// Print the space that one file of each size occupies under a layout
///
/// MODEL is NAME or NAME:option=value,…; granulo plan --list shows all of them. Allocated is what stat would report
/// (st_blocks * 512) for file systems that report it, and raw bytes on all devices for the others.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo allocate ext4:block=1024 0 1 1025 64KiB\n  \
    granulo allocate panfs --up-to 256KiB --step 4KiB\n  granulo allocate zfs:vdev=raidz2,disks=9,recordsize=8K 8K 128K 1M")]
pub(super) struct AllocateArguments {
    /// Layout model
    #[arg(value_name = "MODEL")]
    model: String,
    /// File sizes
    #[arg(value_name = "SIZE", value_parser = parse_size, required_unless_present = "up_to")]
    sizes: Vec<u64>,
    /// Add every size from 0 to this one, in steps: the curve of the model
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    up_to: Option<u64>,
    /// Step width
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4KiB", requires = "up_to")]
    step: u64,
    #[command(flatten)]
    document: DocumentArguments,
}

/// The schema of its document.
pub(super) const ALLOCATIONS: &str = "granulo/allocate/1";

/// The space that one file needs.
#[derive(Serialize)]
struct FileRecord {
    size_bytes: u64,
    allocated_bytes: u128,
    metadata_bytes: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_bytes: Option<u128>,
}

#[derive(Serialize)]
struct Allocations<'a> {
    schema: &'static str,
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    model: &'a str,
    metadata_is_within: bool,
    files: Vec<FileRecord>,
}

/// Largest number of steps of a curve.
const MOST_STEPS: u64 = 1_000_000;

impl AllocateArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let model = Model::parse(&self.model)?;
        let mut sizes = self.sizes;
        if let Some(up_to) = self.up_to {
            if self.step == 0 || up_to / self.step > MOST_STEPS {
                return Err(usage_error(format!("--up-to and --step give more than {MOST_STEPS} steps"))
                    .advise("use a larger --step"));
            }
            sizes.extend((0..=up_to / self.step).map(|step| step * self.step));
        }
        if self.document.is_wanted() {
            let allocations = Allocations::of(&model, &sizes);
            self.document.emit_with(&allocations, || part(&[&model.name], std::slice::from_ref(&allocations)))?;
        }
        if self.document.json {
            return Ok(Ended::Well);
        }
        output::print(|out| write_allocations(&model, &sizes, out))
    }
}

impl<'a> Allocations<'a> {
    fn of(model: &'a Model, sizes: &[u64]) -> Allocations<'a> {
        let record = |&size_bytes: &u64| {
            let space = model.layout.file(size_bytes);
            FileRecord {
                size_bytes,
                allocated_bytes: space.allocated_bytes,
                metadata_bytes: space.metadata_bytes,
                reported_bytes: model.layout.reported(size_bytes),
            }
        };
        Allocations {
            schema: ALLOCATIONS,
            granulo_version: program::VERSION,
            granulo_commit: program::commit(),
            model: &model.name,
            metadata_is_within: model.layout.metadata_is_within(),
            files: sizes.iter().map(record).collect(),
        }
    }
}
