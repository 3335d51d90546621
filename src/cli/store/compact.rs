//! `granulo store compact`: free the space of removed and replaced objects; prints the plan before it runs.

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::maintenance_words;
use super::{Ended, StoreToWrite, or_damage, output, with_failures};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::store::geometry::Alignment;
use crate::store::{Choice, CompactOptions, CompactPlan, Compacted, Store};
use crate::units::{format_counted, format_size, parse_percent, parse_size};

/// Free the space of removed and replaced objects, and restore the order of groups
///
/// First shows what will be moved and freed; --dry-run stops there. Segments with enough dead bytes are rewritten:
/// their live records are moved to the end of the log. Extent files are emptied by the same rule and removed. Readers
/// may continue; space that one of them still needs is freed when it finishes. Ctrl-C stops cleanly.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store compact /srv/s --dry-run\n  granulo store compact /srv/s --dead 10% --rate 100MiB\n  \
    granulo store compact /srv/s --all\n  granulo store compact /srv/s --align 4096"
)]
pub(super) struct CompactArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Rewrite segments and extent files with at least this share of dead bytes
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "30%")]
    dead: u8,
    /// Also rewrite segments in which groups are scattered
    #[arg(long)]
    order: bool,
    /// Rewrite everything, so that all groups are contiguous and in order
    #[arg(long, conflicts_with_all = ["dead", "order"])]
    all: bool,
    /// Align the content of files to this many bytes from now on, and rewrite segments that are aligned differently:
    /// none, 512 or 4096
    #[arg(long, value_name = "BYTES", value_parser = super::alignment)]
    align: Option<Alignment>,
    /// Limit the rate of moved data, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Show what would be done, then stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

fn percent(text: &str) -> std::result::Result<u8, String> {
    let percent = parse_percent(text)? * 100.0;
    if (1.0..=100.0).contains(&percent) && (percent - percent.round()).abs() < 1e-9 {
        Ok(percent.round() as u8)
    } else {
        Err("it must be a whole percentage from 1 to 100".to_owned())
    }
}

#[derive(Serialize)]
struct CompactDocument {
    schema: &'static str,
    planned: Planned,
    /// `null` with `--dry-run`.
    done: Option<Done>,
}

#[derive(Serialize)]
struct Planned {
    segments: Vec<SegmentDocument>,
    moved_records: u64,
    moved_bytes: u64,
    extents: Vec<ExtentDocument>,
    moved_unit_bytes: u64,
    quarantined_bytes: u64,
    gained_bytes: u64,
    waiting_bytes: u64,
    postponed_segments: Vec<u64>,
}

#[derive(Serialize)]
struct ExtentDocument {
    device: u16,
    file: u32,
    size_bytes: u64,
    live_bytes: u64,
    quarantined_bytes: u64,
}

#[derive(Serialize)]
struct SegmentDocument {
    number: u64,
    class: &'static str,
    copies: u64,
    size_bytes: u64,
    live_bytes: u64,
    live_records: u64,
}

#[derive(Serialize)]
struct Done {
    segments: u64,
    moved_records: u64,
    moved_bytes: u64,
    kept_removals: u64,
    extent_files: u64,
    moved_unit_bytes: u64,
    gained_bytes: i64,
    waiting_bytes: u64,
    damaged_segments: Vec<u64>,
    postponed_segments: Vec<u64>,
    damaged_extents: Vec<DamagedExtent>,
    interrupted: bool,
}

#[derive(Serialize)]
struct DamagedExtent {
    device: u16,
    file: u32,
}

impl CompactArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let store = if self.dry_run { self.at.read.open()? } else { self.at.open()? };
        with_failures(&store, or_damage(self.compact(&store)))
    }

    fn options(&self) -> CompactOptions {
        let choice = match (self.all, self.order) {
            (true, _) => Choice::All,
            (false, true) => Choice::DeadOrDisordered(self.dead),
            (false, false) => Choice::Dead(self.dead),
        };
        CompactOptions {
            choice,
            is_alone: true,
            alignment: self.align,
            bytes_per_second: self.rate,
            counts_shared_once: true,
        }
    }

    fn compact(&self, store: &Store) -> Result<Ended> {
        let options = self.options();
        let plan = store.plan_compaction(&options)?;
        if !self.document.json {
            let verb = if self.dry_run { "Would rewrite" } else { "Rewriting" };
            output::print(|out| writeln!(out, "{verb} {}", planned_words(&plan)))?;
            if plan.segments.is_empty() && plan.extents.is_empty() && !self.all {
                self.say_what_is_dead(store)?;
            }
        }
        let done = if self.dry_run { None } else { Some(self.run_with_progress(store, &options)?) };
        super::say_postponed(done.as_ref().map_or(&plan.postponed, |done| &done.postponed).len());
        let ended = done.as_ref().map_or(Ended::Well, how_it_ended);
        let waiting_bytes = done.as_ref().map_or(0, |done| done.waiting_bytes);
        let ended = ended.and(super::say_unknown_pins(store, waiting_bytes));
        emit(&self.document, || document(&plan, done.as_ref()))?;
        if let Some(done) = done.as_ref().filter(|_| !self.document.json) {
            output::print(|out| writeln!(out, "{}", done_words(done)))?;
        }
        Ok(ended)
    }

    /// Says what no segment has enough of.
    fn say_what_is_dead(&self, store: &Store) -> Result<()> {
        let dead_bytes = store.status(false)?.dead_bytes;
        if dead_bytes > 0 {
            let dead = format_size(dead_bytes.into());
            output::note(&format!(
                "{dead} are dead, but nothing has {} % of it; a smaller --dead, or --all, frees them",
                self.dead
            ));
        }
        Ok(())
    }

    fn run_with_progress(&self, store: &Store, options: &CompactOptions) -> Result<Compacted> {
        let progress = signals::progress()?;
        during(false, &progress, maintenance_words, || store.compact(options, &progress))
    }
}

fn how_it_ended(done: &Compacted) -> Ended {
    for number in &done.damaged_segments {
        let number = number.0;
        output::warn(&format!("segment {number:016x} is kept: it contains damage; see granulo store check --deep"));
    }
    for (device, file) in &done.damaged_extents {
        output::warn(&format!(
            "extent file {file:08x} of device {device} is kept: it contains a damaged unit; see granulo store check --deep"
        ));
    }
    if done.damaged_segments.is_empty() && done.damaged_extents.is_empty() && !done.is_interrupted {
        Ended::Well
    } else {
        Ended::Amiss
    }
}

fn planned_words(plan: &CompactPlan) -> String {
    let mut words = format!(
        "{}: {} of {} to move",
        format_counted(plan.segments.len() as u64, "segment", "segments"),
        format_counted(plan.live_records(), "record", "records"),
        format_size(plan.live_bytes().into()),
    );
    if !plan.extents.is_empty() {
        words.push_str(&format!(
            "; {}: {} to copy",
            format_counted(plan.extents.len() as u64, "extent file", "extent files"),
            format_size(plan.live_unit_bytes().into())
        ));
    }
    words.push_str(&format!("; {} will be freed", format_size(plan.gained_bytes().into())));
    if plan.quarantined_bytes() > 0 {
        words.push_str(&format!(", {} of it from quarantine", format_size(plan.quarantined_bytes().into())));
    }
    words
}

fn done_words(done: &Compacted) -> String {
    let gained = match u64::try_from(done.gained_bytes) {
        Ok(bytes) => format!("{} freed", format_size(bytes.into())),
        Err(_) => format!("{} more used", format_size(done.gained_bytes.unsigned_abs().into())),
    };
    let mut words = format_counted(done.moved_records, "record moved", "records moved");
    if done.moved_unit_bytes > 0 {
        words.push_str(&format!(", {} of stripe units copied", format_size(done.moved_unit_bytes.into())));
    }
    words.push_str(&format!(", {gained}"));
    if done.kept_removals > 0 {
        words.push_str(&format!(", {}", format_counted(done.kept_removals, "removal kept", "removals kept")));
    }
    if done.waiting_bytes > 0 {
        words.push_str(&format!("; {} wait for readers to finish", format_size(done.waiting_bytes.into())));
    }
    if done.is_interrupted {
        words.push_str("; interrupted, the rest is unchanged");
    }
    words
}

fn document(plan: &CompactPlan, done: Option<&Compacted>) -> CompactDocument {
    let segment = |segment: &crate::store::PlannedSegment| SegmentDocument {
        number: segment.number.0,
        class: super::class_name(segment.class),
        copies: segment.copies,
        size_bytes: segment.size_bytes,
        live_bytes: segment.live_bytes,
        live_records: segment.live_records,
    };
    let extent = |file: &crate::store::PlannedExtent| ExtentDocument {
        device: file.device.0,
        file: file.file,
        size_bytes: file.size_bytes,
        live_bytes: file.live_bytes,
        quarantined_bytes: file.quarantined_bytes,
    };
    CompactDocument {
        schema: "granulo/store-compact/1",
        planned: Planned {
            segments: plan.segments.iter().map(segment).collect(),
            moved_records: plan.live_records(),
            moved_bytes: plan.live_bytes(),
            extents: plan.extents.iter().map(extent).collect(),
            moved_unit_bytes: plan.live_unit_bytes(),
            quarantined_bytes: plan.quarantined_bytes(),
            gained_bytes: plan.gained_bytes(),
            waiting_bytes: plan.waiting_bytes,
            postponed_segments: plan.postponed.iter().map(|number| number.0).collect(),
        },
        done: done.map(|done| Done {
            segments: done.segments,
            moved_records: done.moved_records,
            moved_bytes: done.moved_bytes,
            kept_removals: done.kept_removals,
            extent_files: done.extent_files,
            moved_unit_bytes: done.moved_unit_bytes,
            gained_bytes: done.gained_bytes,
            waiting_bytes: done.waiting_bytes,
            damaged_segments: done.damaged_segments.iter().map(|number| number.0).collect(),
            postponed_segments: done.postponed.iter().map(|number| number.0).collect(),
            damaged_extents: done
                .damaged_extents
                .iter()
                .map(|&(device, file)| DamagedExtent { device: device.0, file })
                .collect(),
            interrupted: done.is_interrupted,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_in_words() {
        let done =
            Compacted { moved_records: 1200, gained_bytes: 5 << 20, moved_unit_bytes: 1 << 20, ..Compacted::default() };
        assert_eq!(done_words(&done), "1,200 records moved, 1 MiB of stripe units copied, 5 MiB freed");
        let done = Compacted { gained_bytes: -2048, kept_removals: 2, waiting_bytes: 1 << 20, ..Compacted::default() };
        assert_eq!(
            done_words(&done),
            "0 records moved, 2 KiB more used, 2 removals kept; 1 MiB wait for readers to finish"
        );
    }

    #[test]
    fn shares_are_whole_per_cent() {
        assert_eq!(percent("30%"), Ok(30));
        assert!(percent("0").is_err() && percent("101").is_err() && percent("1.5").is_err());
    }
}
