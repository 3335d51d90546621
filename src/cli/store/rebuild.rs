//! `granulo store rebuild`: rebuild the contents of a lost device elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::maintenance_words;
use super::{Ended, OpenedStore, Waiting, checked, output, usage_error, with_failures};
use crate::cli::buckets::BucketToRead;
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::store::geometry::{DeviceEntry, DeviceState};
use crate::store::ids::DeviceNumber;
use crate::store::{OpenOptions, RebuildOptions, RebuildPlan, RebuildReport, Store};
use crate::units::{format_count, format_counted, format_size, parse_size};

/// Rebuild a lost device, onto a new directory or into spare space
///
/// With --onto, an empty directory takes over the device number. Without it, copies of segments and stripe units go
/// to the other devices, and the device leaves the store. The store stays readable meanwhile. After Ctrl-C or a
/// crash, rerun the command to continue. If something can be rebuilt only in part from what is left, the device stays
/// lost, as it may have it intact, until it returns or --give-up says that it will not. The exit status is 1 then.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store rebuild /srv/s --onto /mnt/new/s --dry-run\n  \
    granulo store rebuild /srv/s --device 3 --onto /mnt/new/s --rate 100MiB\n  granulo store rebuild /srv/s --device 3")]
pub(super) struct RebuildArguments {
    /// The store
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Number of the lost device (see granulo store status); if omitted, the only lost one. A value that is not a
    /// number is the current directory of another device of the store; may be repeated
    #[arg(long = "device", value_name = "NUMBER|DIR")]
    devices: Vec<OsString>,
    /// Rebuild even if so many other devices are missing that they may hold newer data
    #[arg(long)]
    degraded: bool,
    /// Directory on another disk to rebuild onto
    #[arg(long, value_name = "DIR")]
    onto: Option<PathBuf>,
    /// Do without what only the lost device has; granulo store repair --drop-lost then removes what is left of it
    #[arg(long)]
    give_up: bool,
    /// Limit the write rate, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Show what would be done, then stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    bucket: BucketToRead,
    #[command(flatten)]
    wanted: DocumentArguments,
}

#[derive(Serialize)]
struct RebuildDocument {
    schema: &'static str,
    device: u16,
    segments: u64,
    segment_bytes: u64,
    objects: u64,
    unit_bytes: u64,
    lost_segments: u64,
    without_place: u64,
    done: bool,
    complete: bool,
    settled: bool,
    written_bytes: u64,
    lost: u64,
}

impl RebuildArguments {
    pub(super) fn run(self) -> Result<Ended> {
        super::completeness::are_of(&self.store);
        let (named, directories) = self.named()?;
        let bucket = self.bucket.options();
        let how = OpenOptions {
            degraded: self.degraded,
            devices: directories,
            lost: named,
            bucket,
            ..OpenOptions::default()
        };
        let mut how = checked(&self.store, how)?;
        let mut store = Store::open_read_only_with(&self.store, &how)?;
        super::warn_of_owner(&self.store);
        let is_there = |device: &&DeviceEntry| device.state != DeviceState::Gone;
        if store.geometry().devices.iter().filter(is_there).count() < 2 {
            return Err(alone().at(&self.store));
        }
        super::say_completeness(&store);
        let device = match named {
            Some(device) => device,
            None => only_lost(&store.lost_devices()).map_err(|error| error.at(&self.store))?,
        };
        let options =
            RebuildOptions { device, onto: self.onto.clone(), gives_up: self.give_up, bytes_per_second: self.rate };
        let plan = store.plan_rebuild(&options)?;
        if !self.dry_run {
            // A writer begins without the device, which is stale then. It does not if that serves nothing.
            plan.must_fit()?;
            how.lost = Some(device);
            drop(store);
            store = self.waiting.open(&self.store, &how)?;
        }
        let store = OpenedStore::of_known(store);
        if !self.wanted.json {
            self.print_plan(device, &plan)?;
        }
        if let Some(onto) = &self.onto {
            let others = store.geometry().shared_with(&self.store, device, onto);
            others.iter().for_each(|warning| output::warn(warning));
        }
        let mut report = RebuildReport::default();
        if !self.dry_run {
            let progress = signals::progress()?;
            let rebuilt = during(false, &progress, maintenance_words, || store.rebuild(&options, &progress));
            report = rebuilt?;
        }
        emit(&self.wanted, || self.document(device, &plan, &report))?;
        if !self.wanted.json && !self.dry_run {
            self.print_report(device, &report)?;
        }
        let is_well = if self.dry_run { plan.lost_segments + plan.without_place == 0 } else { report.is_complete };
        with_failures(&store, Ok(if is_well { Ended::Well } else { Ended::Amiss }))
    }

    /// The number of the lost device, and the directories for others.
    fn named(&self) -> Result<(Option<DeviceNumber>, Vec<PathBuf>)> {
        let mut lost = None;
        let mut directories = Vec::new();
        for value in &self.devices {
            match value.to_str().and_then(|text| text.parse().ok()) {
                Some(_) if lost.is_some() => {
                    return Err(usage_error("only one device can be rebuilt at a time").advise("give one number"));
                }
                Some(number) => lost = Some(DeviceNumber(number)),
                None => directories.push(PathBuf::from(value)),
            }
        }
        Ok((lost, directories))
    }

    fn print_plan(&self, device: DeviceNumber, plan: &RebuildPlan) -> Result<Ended> {
        let verb = if self.dry_run { "Would rebuild" } else { "Rebuilding" };
        output::print(|out| {
            writeln!(
                out,
                "{verb} what was on device {}: {} ({}), units of {} ({}), {} together",
                device,
                format_counted(plan.segments, "segment", "segments"),
                format_size(plan.segment_bytes.into()),
                format_counted(plan.objects, "large object", "large objects"),
                format_size(plan.unit_bytes.into()),
                format_size(plan.total_bytes().into())
            )?;
            if plan.lost_segments > 0 {
                writeln!(
                    out,
                    "{} segments have no copy on another device in service and are lost",
                    format_count(plan.lost_segments.into())
                )?;
            }
            if plan.without_place > 0 {
                let count = format_count(plan.without_place.into());
                writeln!(
                    out,
                    "no other device has room for {count} of its segments and chunks: add a new one with --onto"
                )?;
            }
            Ok(())
        })
    }

    fn print_report(&self, device: DeviceNumber, report: &RebuildReport) -> Result<Ended> {
        let written = format_size(report.bytes.into());
        let is_settled = match self.onto {
            Some(_) => "is in service again",
            None => "has left the store",
        };
        output::print(|out| match (report.is_settled, report.lost) {
            (true, _) if report.is_complete => writeln!(out, "device {device} {is_settled}; wrote {written}"),
            (true, lost) if lost > 0 => writeln!(
                out,
                "device {device} {is_settled}; wrote {written}; {} segments and objects are damaged now: granulo store \
                 repair --drop-lost removes what cannot be read",
                format_count(lost.into())
            ),
            (true, _) => writeln!(
                out,
                "device {device} {is_settled}; wrote {written}; interrupted: what was written while it was lost has too \
                 few copies, which granulo store repair makes"
            ),
            (false, 0) => writeln!(out, "interrupted after {written}; rerun to continue"),
            (false, lost) => writeln!(
                out,
                "wrote {written}; {} segments and objects cannot be rebuilt as a whole from what is left: {}, or rerun \
                 with --give-up",
                format_count(lost.into()),
                match self.onto {
                    Some(_) => "if the device returns, rebuild onto its former directory",
                    None => "bring the device back",
                }
            ),
        })
    }

    fn document(&self, device: DeviceNumber, plan: &RebuildPlan, report: &RebuildReport) -> RebuildDocument {
        RebuildDocument {
            schema: "granulo/store-rebuild/1",
            device: device.0,
            segments: plan.segments,
            segment_bytes: plan.segment_bytes,
            objects: plan.objects,
            unit_bytes: plan.unit_bytes,
            lost_segments: plan.lost_segments,
            without_place: plan.without_place,
            done: !self.dry_run,
            complete: report.is_complete,
            settled: report.is_settled,
            written_bytes: report.bytes,
            lost: report.lost,
        }
    }
}

/// The error for a store with one device.
fn alone() -> Error {
    let cause = "it is the only device: there is no other one to rebuild it from";
    Error::new(ErrorKind::Usage, "rebuild a device of", cause).advise(
        "copy what can be read with granulo store export, and import it, or a backup, into a new store: granulo store init",
    )
}

/// The device to rebuild where none is named.
fn only_lost(lost: &[DeviceNumber]) -> Result<DeviceNumber> {
    let fail = |cause: String| Error::new(ErrorKind::Usage, "rebuild a device of", cause);
    match lost {
        [only] => Ok(*only),
        [] => Err(fail("no device is lost".to_owned()).advise("see granulo store status")),
        several => {
            let numbers: Vec<String> = several.iter().map(DeviceNumber::to_string).collect();
            Err(fail(format!("devices {} are lost", numbers.join(", "))).advise("name one with --device"))
        }
    }
}
