//! `granulo store status`: devices and their fill levels, live and dead bytes, redundancy, the last scrub.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::completeness::emit_with;
use super::snapshot::HeldRecord;
use super::{Ended, StoreToRead, output};
use crate::cli::output::DocumentArguments;
use crate::error::Result;
use crate::report::chart::columns;
use crate::report::store::{format_minute, write_fact, write_sentences};
use crate::report::store_page;
use crate::report::table::table;
use crate::store::bucket::{BucketStatus, Requests, StoredObjects};
use crate::store::ids::DeviceNumber;
use crate::store::{
    AgedSegments, Census, DeviceState, DeviceStatus, Geometry, HeldBySnapshots, StoreStatus, Time, UnknownPin,
};
use crate::units::{escape, escape_path, format_count, format_counted, format_share, format_size, format_time};

/// Show the devices of a store, how full they are, and pending work
///
/// A file that is written with -o has segments by age, and is for granulo show and report. A page has devices, segments
/// by age, snapshots, and what a rebuild would write. The exit status is 1 if a device has a problem.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store status /srv/s\n  granulo store status /srv/s --count --json\n  \
    granulo store status /srv/s --report s.html")]
pub(super) struct StatusArguments {
    #[command(flatten)]
    at: StoreToRead,
    /// Also count files, directories and links, which reads the whole index, and segments by age
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    pub(super) document: DocumentArguments,
}

/// Kind and version of the document.
pub(crate) const STORE_STATUS: &str = "granulo/store-status/1";

#[derive(Serialize)]
struct StatusDocument {
    schema: &'static str,
    epoch: String,
    epoch_began_seconds: i64,
    epochs: u64,
    devices: Vec<DeviceDocument>,
    records_in_sight: bool,
    redundancy: Vec<String>,
    copies: u8,
    parity_units: u8,
    alignment_bytes: Option<u64>,
    packed_bytes: u64,
    records: u64,
    live_bytes: u64,
    dead_records: u64,
    dead_bytes: u64,
    segments: u64,
    overflowed_bytes: u64,
    unit_bytes: u64,
    index_bytes: u64,
    index_devices: Vec<u16>,
    index_bytes_per_object: Option<f64>,
    waiting_bytes: u64,
    pins: Vec<String>,
    may_lack_pins: bool,
    unknown_pins: Vec<UnknownPinRecord>,
    snapshots: Vec<HeldRecord>,
    held_objects: u64,
    held_size_bytes: u128,
    quarantined_bytes: u64,
    last_scrub_seconds: Option<i64>,
    last_scrub_partial: bool,
    latched: Option<String>,
    writer: bool,
    counts: Option<CountsDocument>,
    segment_ages: Option<Vec<AgeDocument>>,
    bucket: Option<BucketDocument>,
}

/// What a store has in its bucket, and what this process, and all writers so far, have asked it.
#[derive(Serialize)]
struct BucketDocument {
    place: String,
    version: u64,
    manifest_bytes: u64,
    fast_objects: u64,
    fast_bytes: u64,
    slow_objects: u64,
    slow_bytes: u64,
    writer_silent_seconds: Option<u64>,
    requests: RequestsDocument,
    spent: RequestsDocument,
}

#[derive(Serialize)]
struct RequestsDocument {
    puts: u64,
    replaces: u64,
    reads: u64,
    heads: u64,
    lists: u64,
    deletes: u64,
    put_bytes: u64,
    read_bytes: u64,
}

impl RequestsDocument {
    fn of(requests: &Requests) -> RequestsDocument {
        RequestsDocument {
            puts: requests.puts,
            replaces: requests.replaces,
            reads: requests.reads,
            heads: requests.heads,
            lists: requests.lists,
            deletes: requests.deletes,
            put_bytes: requests.put_bytes,
            read_bytes: requests.read_bytes,
        }
    }
}

impl BucketDocument {
    fn of(status: &BucketStatus, silence: Option<Duration>) -> BucketDocument {
        BucketDocument {
            place: escape_path(&status.place),
            version: status.version,
            manifest_bytes: status.manifest_bytes,
            fast_objects: status.fast.objects,
            fast_bytes: status.fast.bytes,
            slow_objects: status.slow.objects,
            slow_bytes: status.slow.bytes,
            writer_silent_seconds: silence.map(|silence| silence.as_secs()),
            requests: RequestsDocument::of(&status.requests),
            spent: RequestsDocument::of(&status.spent),
        }
    }
}

#[derive(Serialize)]
struct UnknownPinRecord {
    path: String,
    cause: String,
}

#[derive(Serialize)]
struct AgeDocument {
    younger_than_days: Option<u32>,
    segments: u64,
    live_bytes: u64,
    dead_bytes: u64,
}

#[derive(Serialize)]
struct DeviceDocument {
    number: u16,
    class: &'static str,
    state: &'static str,
    path: String,
    in_sync: bool,
    trouble: Option<String>,
    total_bytes: Option<u64>,
    available_bytes: Option<u64>,
    fill_fraction: Option<f64>,
    segment_bytes: u64,
    dead_bytes: u64,
    unit_bytes: u64,
}

#[derive(Serialize)]
struct CountsDocument {
    files: u64,
    large_files: u64,
    links: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    size_bytes: u128,
    large_size_bytes: u128,
}

impl StatusArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let store = self.at.open_quietly()?;
        super::say_completeness(&store);
        let status = store.status(self.count)?;
        let held = store.held_by_snapshots()?;
        let is_kept = self.document.report.is_some() || self.document.output.is_some();
        let ages = if self.count || is_kept { Some(store.segment_ages()?) } else { None };
        let silence = store.writer_silence();
        let document = document((&status, silence), &store.geometry(), &held, ages.as_deref());
        let is_amiss = status.devices.iter().any(DeviceStatus::is_in_trouble);
        emit_with(&self.document, &document, |value| store_page::part(&[value]))?;
        if !self.document.json {
            output::print(|out| write_status((&status, silence), &held, out))?;
        }
        Ok(if is_amiss { Ended::Amiss } else { Ended::Well })
    }
}

/// For people, in the width of the output; only paths may be longer.
/// `silence`: of a writer on another machine.
fn write_status(
    (status, silence): (&StoreStatus, Option<Duration>),
    held: &HeldBySnapshots,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}", escape_path(&status.home))?;
    write_sentences(&status.redundancy, out)?;
    writeln!(out)?;
    table(out, |out| write_devices(status, out))?;
    writeln!(out)?;
    if !status.sees_log {
        let unknown = "No device with records is present, so what the devices have is unknown.".to_owned();
        write_sentences(&[unknown], out)?;
        writeln!(out)?;
    }
    let mut line = |name: &str, text: String| write_fact(name, 13, &text, out);
    let size = |bytes: u64| format_size(bytes.into());
    let count = |count: u64| format_count(count.into());
    if status.sees_log {
        line("in use", in_use_words(status))?;
    }
    let in_sync = status.devices.iter().filter(|device| device.is_in_sync).count();
    line(
        "epoch",
        format!(
            "{:016x}, from {} on, {} of {} in sync",
            status.epoch,
            format_time(status.epoch_began_nanoseconds.div_euclid(1_000_000_000)),
            in_sync,
            status.devices.iter().filter(|device| device.state != DeviceState::Gone).count()
        ),
    )?;
    if status.sees_log {
        let dead = format_counted(status.dead_records, "record", "records");
        line("dead", format!("{dead}, {} with commits", size(status.dead_bytes)))?;
    }
    if status.overflowed_bytes > 0 {
        line("overflowed", format!("{} on slow devices; see granulo store rebalance", size(status.overflowed_bytes)))?;
    }
    if status.sees_log {
        line("large files", format!("{} in stripe units, parity included", size(status.unit_bytes)))?;
    }
    let each =
        status.index_bytes_per_object().map_or_else(String::new, |bytes| format!(", {bytes:.0} bytes per record"));
    let places = match (&status.index_devices[..], status.devices.len()) {
        (_, 1) => String::new(),
        ([], _) => ", on no device".to_owned(),
        ([one], _) => format!(", on device {one}"),
        (several, _) => {
            format!(
                ", on each of devices {}",
                several.iter().map(DeviceNumber::to_string).collect::<Vec<_>>().join(" ")
            )
        }
    };
    line("index", format!("{}{each}{places}", size(status.index_bytes)))?;
    if let Some(bucket) = &status.bucket {
        let objects = |stored: StoredObjects| {
            format!("{} of {}", format_counted(stored.objects, "object", "objects"), size(stored.bytes))
        };
        let slow = match bucket.slow.objects {
            0 => String::new(),
            _ => format!(", {} in the cheap class", objects(bucket.slow)),
        };
        line("bucket", format!("{}{slow}; manifest {}", objects(bucket.fast), size(bucket.manifest_bytes)))?;
        let spent = &bucket.spent;
        let (puts, gets) = (spent.puts + spent.replaces + spent.lists, spent.reads + spent.heads);
        let requests = |count: u64, one: &str| format_counted(count, one, &format!("{one}s"));
        line("spent", format!("by writers so far: {}, {}", requests(puts, "put"), requests(gets, "get")))?;
        line("", format!("{} put, {} read", size(spent.put_bytes), size(spent.read_bytes)))?;
    }
    if status.waiting_bytes > 0 {
        line("waiting", format!("{} will be freed when readers finish", size(status.waiting_bytes)))?;
    }
    if let [.., newest] = &held.snapshots[..] {
        let snapshots = format_counted(held.snapshots.len() as u64, "snapshot", "snapshots");
        let objects = format_counted(held.all.objects, "object", "objects");
        line("snapshots", format!("{snapshots}, the newest {}", escape(&newest.snapshot.name)))?;
        line("", format!("they alone keep {objects}, {}", format_size(held.all.size_bytes)))?;
    }
    if !status.pins.is_empty() {
        let names: Vec<String> = status.pins.iter().map(|name| escape(name.as_bytes())).collect();
        line("pinned", format!("what is freed waits for {}", names.join(", ")))?;
    }
    for pin in &status.unknown_pins {
        line("readers", super::unknown_pin_words(pin))?;
    }
    if status.may_lack_pins {
        line(
            "pins",
            "may be missing, as the index was rebuilt from an incomplete log; pin again what is mounted".to_owned(),
        )?;
    }
    if status.quarantined_bytes > 0 {
        let bytes = size(status.quarantined_bytes);
        line("quarantine", format!("{bytes} outside the log; see granulo store repair --accept"))?;
    }
    if let Some(census) = &status.census {
        line("files", census_words(census))?;
        let Census { directories, symlinks, special, links, .. } = *census;
        line(
            "others",
            format!(
                "{} directories, {} symbolic links, {} special, {} names of shared files",
                count(directories),
                count(symlinks),
                count(special),
                count(links)
            ),
        )?;
    }
    let scrubbed = status.scrubbed_nanoseconds.map(|at| Time { seconds: at.div_euclid(1_000_000_000), nanoseconds: 0 });
    let partial = if status.is_scrub_partial { ", when not all devices were in service" } else { "" };
    line("last scrub", scrubbed.map_or_else(|| "never".to_owned(), |at| format_minute(at) + partial))?;
    let writer = match (status.has_writer, silence) {
        (false, _) => "none".to_owned(),
        (true, None) => "a process has the store open for writing".to_owned(),
        (true, Some(silence)) => {
            let silence = humantime::format_duration(Duration::from_secs(silence.as_secs()));
            format!("silent for {silence}: it has probably ended")
        }
    };
    line("writer", writer)?;
    match &status.latched {
        Some(cause) => line("read-only", cause.clone()),
        None => Ok(()),
    }
}

/// A row for each device, with its directory below where it does not fit beside.
fn write_devices(status: &StoreStatus, out: &mut dyn Write) -> io::Result<()> {
    const FIGURES: usize = 55;
    let path = |device: &DeviceStatus| escape_path(&device.path);
    let is_beside = status.devices.iter().all(|device| FIGURES + path(device).width() <= columns());
    let title = if is_beside { "  directory" } else { "" };
    writeln!(out, "  #  class     full      total   segments      units{title}")?;
    for device in &status.devices {
        let full = device.fill_fraction().map_or_else(|| "-".to_owned(), format_share);
        let total = device.room.map_or_else(|| "-".to_owned(), |room| format_size(room.total_bytes.into()));
        let row = format!(
            "{:>3}  {:<6} {full:>7} {total:>10} {:>10} {:>10}",
            device.number,
            super::class_name(device.class),
            known(status, device.segment_bytes),
            known(status, device.unit_bytes),
        );
        match is_beside {
            true => writeln!(out, "{row}  {}", path(device))?,
            false => writeln!(out, "{row}\n\t     {}", path(device))?,
        }
        if let Some(trouble) = &device.trouble {
            writeln!(out, "\t     device {} {trouble}", device.number)?;
        } else if device.state_name() != "in use" {
            writeln!(out, "\t     device {} is {}", device.number, device.state_name())?;
        }
    }
    Ok(())
}

/// Bytes on a device, if they are known.
fn known(status: &StoreStatus, bytes: u64) -> String {
    if status.sees_log { format_size(bytes.into()) } else { "-".to_owned() }
}

fn in_use_words(status: &StoreStatus) -> String {
    format!(
        "{}, {}, in {}",
        format_counted(status.live_records, "record", "records"),
        format_size(status.live_bytes.into()),
        format_counted(status.segments, "segment", "segments")
    )
}

fn census_words(census: &Census) -> String {
    format!(
        "{} of {}, {} of them large with {}",
        format_count(census.files.into()),
        format_size(census.size_bytes),
        format_count(census.large_files.into()),
        format_size(census.large_size_bytes),
    )
}

fn document(
    (status, silence): (&StoreStatus, Option<Duration>),
    geometry: &Geometry,
    held: &HeldBySnapshots,
    ages: Option<&[AgedSegments]>,
) -> StatusDocument {
    let age = |of: &AgedSegments| AgeDocument {
        younger_than_days: of.younger_than_days,
        segments: of.segments,
        live_bytes: of.live_bytes,
        dead_bytes: of.dead_bytes,
    };
    let device = |device: &DeviceStatus| DeviceDocument {
        number: device.number.0,
        class: super::class_name(device.class),
        state: device.state_name(),
        path: escape_path(&device.path),
        in_sync: device.is_in_sync,
        trouble: device.trouble.clone(),
        total_bytes: device.room.map(|room| room.total_bytes),
        available_bytes: device.room.map(|room| room.available_bytes),
        fill_fraction: device.fill_fraction(),
        segment_bytes: device.segment_bytes,
        dead_bytes: device.dead_bytes,
        unit_bytes: device.unit_bytes,
    };
    let unknown_pin = |pin: &UnknownPin| UnknownPinRecord { path: escape_path(&pin.path), cause: pin.cause.clone() };
    let counts = |census: &Census| CountsDocument {
        files: census.files,
        large_files: census.large_files,
        links: census.links,
        directories: census.directories,
        symlinks: census.symlinks,
        special: census.special,
        size_bytes: census.size_bytes,
        large_size_bytes: census.large_size_bytes,
    };
    StatusDocument {
        schema: STORE_STATUS,
        epoch: format!("{:016x}", status.epoch),
        epoch_began_seconds: status.epoch_began_nanoseconds.div_euclid(1_000_000_000),
        epochs: status.epochs,
        devices: status.devices.iter().map(device).collect(),
        records_in_sight: status.sees_log,
        redundancy: status.redundancy.clone(),
        copies: geometry.copies,
        parity_units: geometry.parity,
        alignment_bytes: status.alignment.bytes(),
        packed_bytes: status.packed_bytes,
        records: status.live_records,
        live_bytes: status.live_bytes,
        dead_records: status.dead_records,
        dead_bytes: status.dead_bytes,
        segments: status.segments,
        overflowed_bytes: status.overflowed_bytes,
        unit_bytes: status.unit_bytes,
        index_bytes: status.index_bytes,
        index_devices: status.index_devices.iter().map(|device| device.0).collect(),
        index_bytes_per_object: status.index_bytes_per_object(),
        waiting_bytes: status.waiting_bytes,
        pins: status.pins.clone(),
        may_lack_pins: status.may_lack_pins,
        unknown_pins: status.unknown_pins.iter().map(unknown_pin).collect(),
        snapshots: held.snapshots.iter().map(HeldRecord::of).collect(),
        held_objects: held.all.objects,
        held_size_bytes: held.all.size_bytes,
        quarantined_bytes: status.quarantined_bytes,
        last_scrub_seconds: status.scrubbed_nanoseconds.map(|at| at.div_euclid(1_000_000_000)),
        last_scrub_partial: status.is_scrub_partial,
        latched: status.latched.clone(),
        writer: status.has_writer,
        counts: status.census.as_ref().map(counts),
        segment_ages: ages.map(|ages| ages.iter().map(age).collect()),
        bucket: status.bucket.as_ref().map(|bucket| BucketDocument::of(bucket, silence)),
    }
}
