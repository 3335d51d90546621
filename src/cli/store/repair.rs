//! `granulo store repair`: a plan, then its execution.

use clap::Args;
use serde::Serialize;

use super::check::checked;
use super::completeness::emit;
use super::problems::{ProblemRecord, line, word};
use super::progress::maintenance_words;
use super::{Ended, StoreToWrite, output};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::store::ids::DeviceNumber;
use crate::store::{Problem, RepairOptions, RepairPlan, RepairReport, plan_repair, repair, take_side};
use crate::units::{format_count, format_counted, format_size, parse_size};

/// Lost objects that are printed; JSON lists more.
const PRINTED: usize = 1000;

/// Repair a store from its redundancy; shows first what it will do
///
/// Reads every byte, and shows what is damaged or missing, what it can be repaired from, and what is lost. Then
/// repairs it, and reads everything again: superblocks, copies of segments, stripe units, devices that were missing,
/// the index. Objects without any good copy or parity are listed, and removed only with --drop-lost. Only --accept
/// clears the record of what may be missing, and frees what a crash left behind the end of the log. The exit status
/// is 1 if problems remain.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store repair /srv/s --dry-run\n  granulo store repair /srv/s\n  granulo store repair /srv/s --drop-lost"
)]
pub(super) struct RepairArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// If devices were written to separately, continue with the side of this device (its number); the others become
    /// stale, and keep their data
    #[arg(long, value_name = "NUMBER", conflicts_with = "dry_run")]
    take: Option<u16>,
    /// Show what would be done, then stop
    #[arg(long)]
    dry_run: bool,
    /// Remove lost objects
    #[arg(long)]
    drop_lost: bool,
    /// Accept that what may be missing is gone, and free what a crash left in quarantine; all devices must be present
    #[arg(long)]
    accept: bool,
    /// Limit the read rate, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct PlanRow {
    remedy: &'static str,
    kind: &'static str,
    problems: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct RepairDocument {
    schema: &'static str,
    plan: Vec<PlanRow>,
    index: Option<String>,
    superblocks: Option<String>,
    done: bool,
    complete: bool,
    repaired: u64,
    repairs_failed: u64,
    devices_admitted: Vec<u16>,
    copies_made: u64,
    objects_moved: u64,
    files_removed: u64,
    objects_dropped: u64,
    lost_unplanned: u64,
    directories_restored: u64,
    attributes_restored: u64,
    names_restored: u64,
    directories_detached: u64,
    segments_given_back: u64,
    quarantined_bytes: u64,
    accepted: bool,
    segments_released: u64,
    problems_left: u64,
    lost: Vec<ProblemRecord>,
}

impl RepairArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let how = self.at.options()?;
        if let Some(device) = self.take {
            let rejected = self
                .at
                .waiting
                .until_free(&self.at.read.store, || take_side(&self.at.read.store, &how, DeviceNumber(device)))?;
            let named =
                |devices: &[DeviceNumber]| devices.iter().map(DeviceNumber::to_string).collect::<Vec<_>>().join(", ");
            let of_others = match rejected.of_copy.is_empty() {
                true => format!("stale from now on: {}", named(&rejected.stale)),
                false => format!(
                    "left out, because they are of a copy of the store: {} (unchanged; granulo store rebuild --device \
                     NUMBER --onto DIRECTORY replaces each)",
                    named(&rejected.of_copy)
                ),
            };
            output::note(&format!("the store continues with the side of device {device}; {of_others}"));
        }
        let progress = signals::progress()?;
        let home = &self.at.read.store;
        let plan =
            during(false, &progress, maintenance_words, || plan_repair(home, &how, self.rate, &mut |_| {}, &progress));
        let plan = plan?;
        super::completeness::say(&plan.completeness);
        let has_to_accept = self.accept && plan.has_to_accept();
        let is_idle = plan.is_empty() && !has_to_accept;
        if !self.document.json {
            self.print_plan(&plan)?;
        }
        if !plan.is_complete && plan.index.is_none() {
            output::note("interrupted; nothing was changed");
            return Ok(Ended::Amiss);
        }
        if self.dry_run || is_idle {
            emit(&self.document, || document(&plan, None))?;
            return Ok(if plan.has_problems() || has_to_accept { Ended::Amiss } else { Ended::Well });
        }
        let options = RepairOptions { drop_lost: self.drop_lost, accept: self.accept, bytes_per_second: self.rate };
        let mut printed = Ok(Ended::Well);
        let mut found = |problem: &Problem, is_repaired: bool| {
            if !self.document.json {
                let line = output::print(|out| writeln!(out, "{}", line(problem, is_repaired)));
                if line.is_err() {
                    printed = line;
                }
            }
        };
        let report = self.at.waiting.until_free(home, || {
            during(false, &progress, maintenance_words, || repair(home, &how, &plan, options, &mut found, &progress))
        });
        let report = report?;
        printed?;
        // What was missing to the plan may be back or is accepted now, and the repair may have found more.
        super::completeness::say(&report.completeness);
        emit(&self.document, || document(&plan, Some(&report)))?;
        if !self.document.json {
            print_report(&report, report.completeness.is_complete())?;
        }
        let is_well = report.is_complete && report.check.problems() == 0 && report.scrub.failed == 0;
        Ok(if is_well { Ended::Well } else { Ended::Amiss })
    }

    /// What --accept does, or would do; `None` if there is nothing to accept.
    fn acceptance_words(&self, plan: &RepairPlan) -> Option<String> {
        // Until superblocks are written again, it is unknown what is missing.
        if plan.superblocks.is_some() && !self.accept {
            return None;
        }
        let bytes = format_size(plan.quarantined_bytes.into());
        let what = match (plan.completeness.is_complete(), plan.quarantined_bytes) {
            (true, 0) => return None,
            (true, _) => format!("free {bytes} of quarantine"),
            (false, 0) => "accept what may be missing".to_owned(),
            (false, _) => format!("accept what may be missing, and free {bytes} of quarantine"),
        };
        Some(match (self.accept, self.dry_run) {
            (true, true) => format!("Would {what}."),
            (true, false) => format!("Going to {what}."),
            (false, _) => format!("Use --accept to {what}."),
        })
    }

    fn print_plan(&self, plan: &RepairPlan) -> Result<Ended> {
        output::print(|out| {
            if plan.is_empty() {
                writeln!(out, "There is nothing to repair.")?;
            }
            if let Some(words) = self.acceptance_words(plan) {
                writeln!(out, "{words}")?;
            }
            if plan.is_empty() {
                return Ok(());
            }
            writeln!(out, "{}", if self.dry_run { "Would do:" } else { "Plan:" })?;
            if let Some(cause) = &plan.superblocks {
                writeln!(out, "  write the superblocks again: {cause}")?;
            }
            if plan.completeness.tail.is_some() {
                writeln!(out, "  continue the log where it ends: a writer did not end cleanly")?;
            }
            if let Some(cause) = &plan.index {
                writeln!(out, "  rebuild the index from the segments: {cause}")?;
            }
            for ((remedy, kind), line) in &plan.lines {
                let bytes = format_size(line.bytes.into());
                writeln!(
                    out,
                    "  {:<10} {:<16} {:>14} {bytes:>12}",
                    word(*remedy),
                    kind.name(),
                    format_counted(line.problems, "problem", "problems")
                )?;
            }
            for problem in plan.lost.iter().take(PRINTED) {
                writeln!(out, "  lost: {}", problem.without_advice())?;
            }
            let left = plan.lost_problems() - plan.lost.len().min(PRINTED) as u64;
            if left > 0 {
                writeln!(out, "  and {} more", format_count(left.into()))?;
            }
            Ok(())
        })
    }
}

fn print_report(report: &RepairReport, knows_all: bool) -> Result<Ended> {
    output::print(|out| {
        for device in &report.admitted {
            writeln!(out, "device {device} is in service again")?;
        }
        let counts = [
            (report.scrub.repaired, "problem repaired", "problems repaired"),
            (report.copies, "segment copy created", "segment copies created"),
            (
                report.moved_objects,
                "large file moved from a device that left",
                "large files moved from a device that left",
            ),
            (report.removed_files, "leftover removed", "leftovers removed"),
            (report.given_back, "damaged segment emptied and freed", "damaged segments emptied and freed"),
            (report.released, "segment freed from quarantine", "segments freed from quarantine"),
            (report.restored_directories, "directory rebuilt from the index", "directories rebuilt from the index"),
            (
                report.restored_attributes,
                "set of attributes rebuilt from the index",
                "sets of attributes rebuilt from the index",
            ),
            (report.restored_names, "name rebuilt from the index", "names rebuilt from the index"),
            (
                report.detached,
                "directory without a parent moved to lost+found",
                "directories without a parent moved to lost+found",
            ),
            (report.dropped, "name of a lost object removed", "names of lost objects removed"),
        ];
        for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            writeln!(out, "{}", format_counted(count, one, many))?;
        }
        for problem in &report.left {
            writeln!(out, "{}", line(problem, false))?;
        }
        if report.scrub.failed > 0 {
            let repairs = format_counted(report.scrub.failed, "repair", "repairs");
            writeln!(
                out,
                "{repairs} failed, and may not last although they can be read back now: see to the device, and rerun"
            )?;
        }
        if report.unplanned > 0 {
            let problems = format_counted(report.unplanned, "problem", "problems");
            writeln!(
                out,
                "{problems} with lost objects that the plan does not list: nothing of them was dropped; rerun"
            )?;
        }
        match report.is_complete {
            true => writeln!(out, "{}", checked(&report.check, false).sentence(knows_all)),
            false => writeln!(out, "interrupted; rerun to continue"),
        }
    })
}

fn document(plan: &RepairPlan, report: Option<&RepairReport>) -> RepairDocument {
    let row =
        |(&(remedy, kind), line): (&(crate::store::Remedy, crate::store::ProblemKind), &crate::store::PlanLine)| {
            PlanRow { remedy: remedy.name(), kind: kind.name(), problems: line.problems, bytes: line.bytes }
        };
    let empty = RepairReport::default();
    let done = report.is_some();
    let report = report.unwrap_or(&empty);
    let lost = if done { &report.lost } else { &plan.lost };
    RepairDocument {
        schema: "granulo/store-repair/1",
        plan: plan.lines.iter().map(row).collect(),
        index: plan.index.clone(),
        superblocks: plan.superblocks.clone(),
        done,
        complete: report.is_complete,
        repaired: report.scrub.repaired,
        repairs_failed: report.scrub.failed,
        devices_admitted: report.admitted.iter().map(|device| device.0).collect(),
        copies_made: report.copies,
        objects_moved: report.moved_objects,
        files_removed: report.removed_files,
        objects_dropped: report.dropped,
        lost_unplanned: report.unplanned,
        quarantined_bytes: plan.quarantined_bytes,
        accepted: report.is_accepted,
        segments_released: report.released,
        directories_restored: report.restored_directories,
        attributes_restored: report.restored_attributes,
        names_restored: report.restored_names,
        directories_detached: report.detached,
        segments_given_back: report.given_back,
        problems_left: report.check.problems(),
        lost: lost.iter().map(|problem| ProblemRecord::new(problem, None)).collect(),
    }
}
