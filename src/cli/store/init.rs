//! `granulo store init`: create a store, and report what it survives.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::completeness::emit_unopened;
use super::{Ended, output};
use crate::cli::buckets::{BucketToRead, BucketToWrite};
use crate::cli::output::DocumentArguments;
use crate::error::Result;
use crate::report::store::write_sentences;
use crate::store::geometry::{Alignment, Survived};
use crate::store::{Compression, DeviceEntry, Geometry, OpenOptions, Plan, Store};
use crate::units::{escape_path, parse_percent, parse_size};

/// Default level of zstd: its own default.
const DEFAULT_LEVEL: i8 = 3;

/// Create a store, in one directory or across several devices
///
/// Without devices, STORE is the only one. Each device is a directory on a disk of its own: fast ones (flash) for
/// small files and metadata, slow ones for large files. Defaults depend on the number of devices: with two or more
/// fast devices, records are mirrored; with three or more slow devices, stripes have parity. If one class has no
/// devices, those of the other serve for both.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store init /data/store --compress zstd\n  \
    granulo store init /srv/s --fast /ssd0/s --fast /ssd1/s --slow /hdd0/s --slow /hdd1/s --dry-run")]
pub(super) struct InitArguments {
    /// Home directory of the store: empty or not yet existing
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Directory on a fast device; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Devices")]
    fast: Vec<PathBuf>,
    /// Directory on a slow device; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Devices")]
    slow: Vec<PathBuf>,
    /// Copies of each record: one, two or three [default: mirror with two or more fast devices]
    #[arg(long, value_name = "HOW", help_heading = "Devices")]
    small_redundancy: Option<SmallRedundancy>,
    /// Parity of stripes [default: raid5 with three or more slow devices]
    #[arg(long, value_name = "HOW", help_heading = "Devices")]
    large_redundancy: Option<LargeRedundancy>,
    /// High watermark: above this fill level of a fast device, records go to slow devices
    #[arg(long, value_name = "PERCENT", value_parser = watermark, default_value = "90%", help_heading = "Devices")]
    high_watermark: u8,
    /// Low watermark: below this fill level of a fast device, records go back to it
    #[arg(long, value_name = "PERCENT", value_parser = watermark, default_value = "80%", help_heading = "Devices")]
    low_watermark: u8,
    /// Largest file stored as a record; files up to 4 KiB above --packed always are
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB", help_heading = "Layout")]
    cutoff: u64,
    /// Stripe unit: bytes of a large file on one device before the next
    #[arg(long, value_name = "SIZE", value_parser = unit, default_value = "64KiB", help_heading = "Layout")]
    stripe_unit: u32,
    /// First bytes of a larger file that are kept with its descriptor, on a fast device: a multiple of 4 KiB, at most
    /// 64 KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4KiB", help_heading = "Layout")]
    packed: u64,
    /// Compress records that get smaller by it: none, zstd or zstd:LEVEL
    #[arg(long, value_name = "HOW", value_parser = compression, default_value = "none", help_heading = "Layout")]
    compress: Compression,
    /// Align the content of files to this many bytes, so that it can be mapped: none, 512 or 4096
    #[arg(long, value_name = "BYTES", value_parser = super::alignment, default_value = "none", help_heading = "Layout")]
    align: Alignment,
    /// Size at which a segment (a file of records) is sealed
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB", help_heading = "Layout")]
    segment_size: u64,
    /// Permissions of the store's files, to share it with a group: 600, 640 or 660, or more
    #[arg(long, value_name = "OCTAL", value_parser = permissions, default_value = "600", help_heading = "Layout")]
    mode: u16,
    /// Show the geometry, and create nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reached: BucketToRead,
    #[command(flatten)]
    put: BucketToWrite,
    #[command(flatten)]
    wanted: DocumentArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SmallRedundancy {
    None,
    Mirror,
    Triple,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LargeRedundancy {
    None,
    Raid5,
    Raid6,
}

fn watermark(text: &str) -> std::result::Result<u8, String> {
    let percent = parse_percent(text)? * 100.0;
    let whole = percent.round();
    if (whole - percent).abs() > 1e-9 || !(0.0..=100.0).contains(&whole) {
        return Err("it must be a whole percentage from 1% to 100%".to_owned());
    }
    Ok(whole as u8)
}

fn permissions(text: &str) -> std::result::Result<u16, String> {
    let wrong =
        || "write file permissions in octal, such as 600 or 640; the owner needs read and write permission".to_owned();
    let mode = u16::from_str_radix(text, 8).map_err(|_| wrong())?;
    (mode & !0o666 == 0 && mode & 0o600 == 0o600).then_some(mode).ok_or_else(wrong)
}

fn unit(text: &str) -> std::result::Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| "a stripe unit is at most 4 MiB".to_owned())
}

fn compression(text: &str) -> std::result::Result<Compression, String> {
    let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    match (name, level) {
        ("none", None) => Ok(Compression::None),
        ("zstd", None) => Ok(Compression::Zstd(DEFAULT_LEVEL)),
        ("zstd", Some(level)) => level
            .parse()
            .map(Compression::Zstd)
            .map_err(|_| format!("'{level}' is not a compression level; write, for example, zstd:3")),
        _ => Err("write none, zstd or zstd:LEVEL".to_owned()),
    }
}

impl InitArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let plan = self.plan();
        let geometry = if self.dry_run {
            Geometry::new(&self.store, &plan)?
        } else {
            let bucket = self.put.added_to(self.reached.options());
            let options = OpenOptions { bucket, ..OpenOptions::default() };
            Geometry::clone(&*Store::create_with(&self.store, &plan, &options)?.geometry())
        };
        let warnings = geometry.shared_file_systems(&self.store);
        warnings.iter().for_each(|warning| output::warn(warning));
        emit_unopened(&self.wanted, &self.document(&geometry, warnings))?;
        if self.wanted.json {
            return Ok(Ended::Well);
        }
        output::print(|out| write_sentences(&geometry.explain(), out))
    }

    fn plan(&self) -> Plan {
        Plan {
            fast: self.fast.clone(),
            slow: self.slow.clone(),
            cutoff_bytes: self.cutoff,
            copies: self.small_redundancy.map(|redundancy| match redundancy {
                SmallRedundancy::None => 1,
                SmallRedundancy::Mirror => 2,
                SmallRedundancy::Triple => 3,
            }),
            parity: self.large_redundancy.map(|redundancy| match redundancy {
                LargeRedundancy::None => 0,
                LargeRedundancy::Raid5 => 1,
                LargeRedundancy::Raid6 => 2,
            }),
            stripe_unit_bytes: self.stripe_unit,
            packed_bytes: self.packed,
            compression: self.compress,
            watermarks_percent: (self.high_watermark, self.low_watermark),
            segment_bytes: self.segment_size,
            alignment: self.align,
            file_mode: self.mode,
        }
    }

    fn document(&self, geometry: &Geometry, warnings: Vec<String>) -> GeometryDocument {
        let Survived { any, fast, slow } = geometry.survives();
        let device = |device: &DeviceEntry| DeviceRecord {
            number: device.number.0,
            class: device.class.to_string(),
            path: escape_path(&device.directory(&self.store)),
        };
        GeometryDocument {
            schema: "granulo/store-init/1",
            made: !self.dry_run,
            home: escape_path(&self.store),
            store: geometry.store.iter().map(|byte| format!("{byte:02x}")).collect(),
            cutoff_bytes: geometry.cutoff_bytes,
            copies: geometry.copies,
            stripe_unit_bytes: geometry.stripe_unit_bytes,
            packed_bytes: geometry.packed_bytes,
            data_units: geometry.data,
            parity_units: geometry.parity,
            compression: match geometry.compression {
                Compression::None => "none".to_owned(),
                Compression::Zstd(level) => format!("zstd:{level}"),
            },
            high_watermark_fraction: f64::from(geometry.high_watermark_percent) / 100.0,
            low_watermark_fraction: f64::from(geometry.low_watermark_percent) / 100.0,
            segment_bytes: geometry.segment_bytes,
            alignment_bytes: geometry.alignment.bytes(),
            devices: geometry.devices.iter().map(device).collect(),
            survives: Survives { any_devices: any, fast_devices: fast, slow_devices: slow },
            explanation: geometry.explain(),
            warnings,
        }
    }
}

#[derive(Serialize)]
struct GeometryDocument {
    schema: &'static str,
    made: bool,
    home: String,
    store: String,
    cutoff_bytes: u64,
    copies: u8,
    stripe_unit_bytes: u32,
    packed_bytes: u64,
    data_units: u8,
    parity_units: u8,
    compression: String,
    high_watermark_fraction: f64,
    low_watermark_fraction: f64,
    segment_bytes: u64,
    alignment_bytes: Option<u64>,
    devices: Vec<DeviceRecord>,
    survives: Survives,
    explanation: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct DeviceRecord {
    number: u16,
    class: String,
    path: String,
}

#[derive(Serialize)]
struct Survives {
    any_devices: u8,
    fast_devices: u8,
    slow_devices: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_read() {
        assert_eq!(compression("zstd"), Ok(Compression::Zstd(3)));
        assert_eq!(compression("zstd:-5"), Ok(Compression::Zstd(-5)));
        assert_eq!(compression("none"), Ok(Compression::None));
        for wrong in ["", "zstd:", "zstd:1000", "lz4", "none:1"] {
            assert!(compression(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn watermarks_are_whole() {
        assert_eq!(watermark("55%"), Ok(55));
        assert_eq!(watermark("100"), Ok(100));
        assert!(watermark("55.5%").is_err() && watermark("101%").is_err() && watermark("-1").is_err());
    }
}
