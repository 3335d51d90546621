//! `granulo store rebalance`: move records that overflowed to slow devices back to fast ones.

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::maintenance_words;
use super::{Ended, StoreToWrite, or_damage, output, with_failures};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::store::{RebalancePlan, Rebalanced, Store};
use crate::units::{format_counted, format_size, parse_size};

/// Move overflowed records from slow devices back to fast ones, up to the low watermark
///
/// First shows what will be moved; --dry-run stops there. Readers may continue. Ctrl-C stops cleanly.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store rebalance /srv/s --dry-run\n  granulo store rebalance /srv/s --rate 100MiB"
)]
pub(super) struct RebalanceArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Limit the rate of moved data, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Show what would be done, then stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct RebalanceDocument {
    schema: &'static str,
    planned: Planned,
    /// `null` with `--dry-run`.
    done: Option<Done>,
}

#[derive(Serialize)]
struct Planned {
    segments: u64,
    moved_bytes: u64,
    left_segments: u64,
    left_bytes: u64,
    postponed_segments: Vec<u64>,
    room_bytes: u64,
}

#[derive(Serialize)]
struct Done {
    segments: u64,
    moved_records: u64,
    moved_bytes: u64,
    waiting_bytes: u64,
    damaged_segments: Vec<u64>,
    postponed_segments: Vec<u64>,
    full: bool,
    interrupted: bool,
}

impl RebalanceArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let store = if self.dry_run { self.at.read.open()? } else { self.at.open()? };
        with_failures(&store, or_damage(self.rebalance(&store)))
    }

    fn rebalance(&self, store: &Store) -> Result<Ended> {
        // The store plans again after a sync, so what is done may differ.
        let plan = store.plan_rebalance()?;
        if !self.document.json {
            output::print(|out| writeln!(out, "{}", planned_words(&plan, self.dry_run)))?;
        }
        let mut done = None;
        if !self.dry_run {
            let progress = signals::progress()?;
            let outcome = during(false, &progress, maintenance_words, || store.rebalance(self.rate, &progress));
            done = Some(outcome?);
        }
        let is_amiss = done.as_ref().is_some_and(|done| done.is_interrupted || !done.damaged_segments.is_empty());
        for number in done.iter().flat_map(|done| &done.damaged_segments) {
            let number = number.0;
            output::warn(&format!("segment {number:016x} is kept: it contains damage; see granulo store check --deep"));
        }
        let is_known = super::say_unknown_pins(store, done.as_ref().map_or(0, |done| done.waiting_bytes));
        super::say_postponed(done.as_ref().map_or(&plan.postponed, |done| &done.postponed).len());
        emit(&self.document, || document(&plan, done.as_ref()))?;
        if let Some(done) = done.as_ref().filter(|_| !self.document.json) {
            output::print(|out| writeln!(out, "{}", done_words(done)))?;
        }
        Ok(if is_amiss || !is_known { Ended::Amiss } else { Ended::Well })
    }
}

fn planned_words(plan: &RebalancePlan, is_dry: bool) -> String {
    let verb = if is_dry { "Would move" } else { "Moving" };
    let mut words = match (plan.segments.len(), plan.left.len()) {
        (0, 0) if !plan.postponed.is_empty() => return "No overflowed records can be moved.".to_owned(),
        (0, 0) => return "No records have overflowed to slow devices.".to_owned(),
        (count, _) => format!(
            "{verb} {} in {} to fast devices",
            format_size(plan.live_bytes().into()),
            format_counted(count as u64, "segment", "segments")
        ),
    };
    if !plan.left.is_empty() {
        words.push_str(&format!(
            "; {} stay, because fast devices have space for only {}",
            format_size(plan.left_bytes().into()),
            format_size(plan.room_bytes.into())
        ));
    }
    words
}

fn done_words(done: &Rebalanced) -> String {
    let mut words = format!(
        "{} of {} moved",
        format_counted(done.moved_records, "record", "records"),
        format_size(done.moved_bytes.into())
    );
    if done.waiting_bytes > 0 {
        words.push_str(&format!("; {} will be freed when readers finish", format_size(done.waiting_bytes.into())));
    }
    if done.is_full {
        words.push_str("; the fast devices became full, the rest stays on slow ones");
    }
    if done.is_interrupted {
        words.push_str("; interrupted, the rest is unchanged");
    }
    words
}

fn document(plan: &RebalancePlan, done: Option<&Rebalanced>) -> RebalanceDocument {
    RebalanceDocument {
        schema: "granulo/store-rebalance/1",
        planned: Planned {
            segments: plan.segments.len() as u64,
            moved_bytes: plan.live_bytes(),
            left_segments: plan.left.len() as u64,
            left_bytes: plan.left_bytes(),
            postponed_segments: plan.postponed.iter().map(|number| number.0).collect(),
            room_bytes: plan.room_bytes,
        },
        done: done.map(|done| Done {
            segments: done.segments,
            moved_records: done.moved_records,
            moved_bytes: done.moved_bytes,
            waiting_bytes: done.waiting_bytes,
            damaged_segments: done.damaged_segments.iter().map(|number| number.0).collect(),
            postponed_segments: done.postponed.iter().map(|number| number.0).collect(),
            full: done.is_full,
            interrupted: done.is_interrupted,
        }),
    }
}
