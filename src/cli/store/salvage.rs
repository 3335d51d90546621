//! `granulo store salvage`: the sides of a store that was written to separately, and the tree of one of them.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::export::finish_export;
use super::progress::transfer_words;
use super::{Ended, StoreToRead, or_damage, output, say_completeness};
use crate::cli::output::{DocumentArguments, target};
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::format_minute;
use crate::report::table::table;
use crate::store::ids::DeviceNumber;
use crate::store::tree::{ExportOptions, export};
use crate::store::{OpenOptions, Side, Store, Time};
use crate::units::format_count;

/// Read a side of a store that was written to separately; without --side, list the sides
///
/// Devices that were written to without each other have diverged: granulo store repair --take continues with one side,
/// and what only the other has stays on its devices until granulo store repair --accept. Before and after that, this
/// exports the tree as a side's history shows it to a new directory. Nothing is written to the store. What a crash left
/// behind the end of a log is on no side, and is not read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store salvage /srv/s\n  granulo store salvage /srv/s --side 1 -o /data/side1\n  \
    granulo store salvage /srv/s --side 8c1f0a2b3d4e5f60 -o /data/side"
)]
pub(super) struct SalvageArguments {
    #[command(flatten)]
    at: StoreToRead,
    /// Side to export: the number of a device with it, or one of its epochs
    #[arg(long, value_name = "DEVICE|EPOCH", requires = "output")]
    side: Option<String>,
    /// Directory for the tree: empty or not yet existing
    #[arg(short, long, value_name = "DIR", requires = "side")]
    output: Option<PathBuf>,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page of the result to this file
    #[arg(long, value_name = "FILE.html", value_parser = target())]
    report: Option<PathBuf>,
}

#[derive(Serialize)]
struct SidesDocument<'a> {
    schema: &'static str,
    sides: &'a [SideRecord],
}

#[derive(Serialize)]
struct SideRecord {
    current: bool,
    devices: Vec<u16>,
    epochs: Vec<EpochRecord>,
    objects: Option<u64>,
    objects_only_here: Option<u64>,
    complete: bool,
    error: Option<String>,
}

#[derive(Serialize)]
struct EpochRecord {
    epoch: String,
    began_nanoseconds: i64,
}

/// A side, and the store as it shows it.
struct OpenSide {
    side: Side,
    store: Result<Store>,
}

impl SalvageArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let how = self.at.options()?;
        let sides = Store::sides(&self.at.store, &how)?;
        match (&self.side, &self.output) {
            (Some(name), Some(directory)) => {
                let side = chosen(&sides, name).map_err(|error| error.at(&self.at.store))?;
                or_damage(self.export(&how, side, directory))
            }
            _ => self.list(&how, sides),
        }
    }

    fn export(&self, how: &OpenOptions, side: &Side, directory: &std::path::Path) -> Result<Ended> {
        let store = Store::open_side(&self.at.store, how, side)?;
        say_completeness(&store);
        let options = ExportOptions::default();
        let progress = signals::progress()?;
        let exported = during(self.quiet, &progress, transfer_words, || export(&store, directory, &options, &progress));
        exported.and_then(|summary| finish_export(&summary, &options, directory, &self.document()))
    }

    /// Where the result goes: `output` is for the tree.
    fn document(&self) -> DocumentArguments {
        DocumentArguments::without_output(self.json, self.report.clone())
    }

    fn list(&self, how: &OpenOptions, sides: Vec<Side>) -> Result<Ended> {
        let open = |side: Side| OpenSide { store: Store::open_side(&self.at.store, how, &side), side };
        let opened: Vec<OpenSide> = sides.into_iter().map(open).collect();
        // A side is opened without the marks of the log, which say what the store itself lacks.
        if let Ok(own) = self.at.open_quietly() {
            say_completeness(&own);
        }
        let mut records = Vec::new();
        for (at, one) in opened.iter().enumerate() {
            let others = opened.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<&Store> = others.filter_map(|(_, other)| other.store.as_ref().ok()).collect();
            records.push(record(one, &others));
        }
        let is_amiss = records.iter().any(|record| record.error.is_some());
        emit(&self.document(), || SidesDocument { schema: "granulo/store-salvage/1", sides: &records })?;
        if !self.json {
            output::print(|out| write(&opened, &records, out))?;
        }
        Ok(if is_amiss { Ended::Amiss } else { Ended::Well })
    }
}

/// The side with this device, or epoch.
fn chosen<'s>(sides: &'s [Side], name: &str) -> Result<&'s Side> {
    let refuse =
        |cause: String, advice: &str| Err(Error::new(ErrorKind::Usage, "read a side of", cause).advise(advice));
    let is_epoch = name.len() == 16;
    let is_named = |side: &&Side| match is_epoch {
        true => side.epochs.iter().any(|(epoch, _)| format!("{:016x}", epoch.0) == name.to_ascii_lowercase()),
        false => name.parse().is_ok_and(|number| side.devices.contains(&DeviceNumber(number))),
    };
    // The store's own is no side of its devices if others are: it is what the other commands read.
    let named: Vec<&Side> = sides.iter().filter(is_named).collect();
    let apart: Vec<&Side> = named.iter().copied().filter(|side| !side.is_current).collect();
    let named = if apart.is_empty() || is_epoch { named } else { apart };
    const LIST: &str = "granulo store salvage without --side lists the sides";
    match named[..] {
        [side] => Ok(side),
        [] if is_epoch => refuse(format!("no side has epoch {name}"), LIST),
        [] => refuse(format!("device {name} is on no side of its own"), LIST),
        _ => refuse(
            format!("device {name} has several sides"),
            "name one of its epochs; without --side, they are listed",
        ),
    }
}

fn record(one: &OpenSide, others: &[&Store]) -> SideRecord {
    let OpenSide { side, store } = one;
    let counted = store.as_ref().ok().map(|store| store.count_beside(others));
    let failed = counted.as_ref().and_then(|counted| counted.as_ref().err()).or(store.as_ref().err());
    let error = failed.map(ToString::to_string);
    let (objects, objects_only_here) = counted.and_then(Result::ok).unzip();
    SideRecord {
        current: side.is_current,
        devices: side.devices.iter().map(|device| device.0).collect(),
        epochs: side
            .epochs
            .iter()
            .map(|(epoch, began)| EpochRecord { epoch: format!("{:016x}", epoch.0), began_nanoseconds: *began })
            .collect(),
        objects,
        objects_only_here,
        complete: store.as_ref().is_ok_and(|store| store.completeness().missing.is_empty()),
        error,
    }
}

/// A row for each side: the last of its epochs names it.
fn write(opened: &[OpenSide], records: &[SideRecord], out: &mut dyn Write) -> io::Result<()> {
    table(out, |out| {
        writeln!(
            out,
            "{:<16}  {:<16}  {:<12}  {:>12}  {:>12}",
            "epoch", "since (UTC)", "devices", "objects", "only here"
        )?;
        for (OpenSide { side, .. }, record) in opened.iter().zip(records) {
            let epoch = record.epochs.last().map_or("", |epoch| &epoch.epoch);
            let since =
                side.epochs.first().map_or_else(String::new, |&(_, began)| format_minute(Time::of_nanoseconds(began)));
            let mut devices: Vec<String> = record.devices.iter().map(u16::to_string).collect();
            if devices.len() > 4 {
                devices.truncate(3);
                devices.push("…".to_owned());
            }
            let number = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| format_count(count.into()));
            let (objects, only_here) = (number(record.objects), number(record.objects_only_here));
            writeln!(out, "{epoch:<16}  {since:<16}  {:<12}  {objects:>12}  {only_here:>12}", devices.join(", "))?;
        }
        Ok(())
    })?;
    if opened.len() == 1 {
        writeln!(out, "The devices share one history, and no other was left.")?;
    } else if opened.iter().any(|one| one.side.is_current) {
        writeln!(out, "The first is the store as the other commands read it.")?;
    }
    records.iter().filter_map(|record| record.error.as_ref()).try_for_each(|error| writeln!(out, "{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_side_says_how_to_find_one() {
        for (name, said) in [("3", "device 3 is on no side"), ("00000000000000ff", "no side has epoch")] {
            let error = chosen(&[], name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(said) && error.to_string().contains("lists the sides"), "{error}");
        }
    }
}
