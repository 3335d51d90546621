//! Maintenance of a simulated store: to its end, or until it is asked to stop.

use std::path::{Path, PathBuf};

use super::{Simulated, platform};
use crate::devices::survey::OpenOptions;
use crate::error::Result;
use crate::format::geometry::Alignment;
use crate::format::ids::DeviceNumber;
use crate::format::names::SegmentName;
use crate::maintain::repair::{plan_repair_on, repair_on, take_side_on};
use crate::progress::Progress;
use crate::simulation::world::World;
use crate::{
    CheckOptions, CompactOptions, Problem, RebuildOptions, RebuildReport, Remedy, RepairOptions, RepairPlan,
    RepairReport, ScrubOptions, ScrubReport,
};

/// A store after a scrub, its report, and each problem with whether it was repaired.
type Scrubbed = (Simulated, ScrubReport, Vec<(Problem, bool)>);

/// The plan of a repair, and its result.
#[derive(Debug)]
pub(crate) struct Repaired {
    pub(crate) plan: RepairPlan,
    pub(crate) report: RepairReport,
}

impl Repaired {
    /// What is still wrong, in words.
    pub(crate) fn left(&self) -> Option<String> {
        let is_well = self.report.check.problems() == 0 && self.report.scrub.failed == 0;
        let is_done = self.report.is_complete && is_well;
        (!is_done).then(|| format!("{:?}, planned {:?}", self.report, self.plan.lines))
    }

    /// Whether rebuilding devices mends what is left.
    pub(crate) fn leaves_only_devices(&self) -> bool {
        let is_of_rebuild = |left: &Problem| left.remedy == Remedy::Rebuild;
        self.report.is_complete && self.report.scrub.failed == 0 && self.report.left.iter().all(is_of_rebuild)
    }
}

/// Work that is asked to stop once a stage has done more than this many bytes.
fn until(stop: Option<u64>) -> Progress {
    let Some(bytes) = stop else { return Progress::default() };
    Progress::observed(move |progress| {
        if progress.snapshot().bytes > u128::from(bytes) {
            progress.stop();
        }
    })
}

impl Simulated {
    /// Frees space; returns whether it came to its end.
    pub(crate) fn compact_until(&mut self, stop: Option<u64>) -> Result<bool> {
        // A store with an alignment gets another one each time.
        let alignment = match self.store.geometry().alignment {
            Alignment::None => None,
            Alignment::Sector => Some(Alignment::Page),
            Alignment::Page => Some(Alignment::Sector),
        };
        let options =
            CompactOptions { is_alone: true, alignment, counts_shared_once: true, ..CompactOptions::default() };
        Ok(!self.store.compact(&options, &until(stop))?.is_interrupted)
    }

    /// Moves records that overflowed back to fast devices; returns whether it came to its end.
    pub(crate) fn rebalance_until(&mut self, stop: Option<u64>) -> Result<bool> {
        Ok(!self.store.rebalance(None, &until(stop))?.is_interrupted)
    }

    /// Verifies everything and repairs what it can; returns what it could not, in words, and its report.
    pub(crate) fn scrub_until(&self, stop: Option<u64>) -> Result<(Vec<String>, ScrubReport)> {
        let mut left = Vec::new();
        let mut found = |problem: &Problem, is_repaired: bool| {
            if !is_repaired {
                left.push(problem.without_advice());
            }
        };
        let report = self.store.scrub(ScrubOptions::default(), &mut found, &until(stop))?;
        Ok((left, report))
    }

    /// As `scrub_until`, to its end, and rebuilds the index from the log if needed; returns the report, and each
    /// problem with whether it was repaired.
    pub(crate) fn scrub_and_rebuild(self) -> Result<Scrubbed> {
        let (mut problems, how) = (Vec::new(), OpenOptions::default());
        let mut found = |problem: &Problem, is_repaired: bool| problems.push((problem.clone(), is_repaired));
        let (store, report) =
            self.store.scrub_and_rebuild(&how, ScrubOptions::default(), &mut found, &Progress::default())?;
        Ok((Simulated { store }, report, problems))
    }

    /// All problems except those of the index alone, in words. (A journal may end anywhere after a crash, and a reader
    /// of the log reports that.)
    pub(crate) fn check(&self) -> Result<Vec<String>> {
        let is_of_log = |problem: &Problem| {
            let is_of_index = problem.path.components().any(|part| part.as_os_str() == "index");
            !is_of_index && !matches!(problem.remedy, Remedy::RebuildIndex | Remedy::Harmless)
        };
        let problems = self.problems()?;
        Ok(problems.iter().filter(|problem| is_of_log(problem)).map(Problem::without_advice).collect())
    }

    /// All problems that a check finds, including those of the index.
    pub(crate) fn check_all(&self) -> Vec<String> {
        self.problems().expect("the index can be read").iter().map(Problem::without_advice).collect()
    }

    /// All problems that a check finds.
    pub(crate) fn problems(&self) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
        self.store.check(options, &mut |problem| problems.push(problem), &Progress::default())?;
        Ok(problems)
    }

    /// Bytes of segments that are no part of the log.
    pub(crate) fn quarantined_bytes(&self) -> Result<u64> {
        Ok(self.store.engine().quarantine()?.iter().map(|one| one.bytes).sum())
    }

    /// Whether a file is a segment that another history began.
    pub(crate) fn is_of_other_history(&self, path: &str) -> bool {
        let name = path.strip_prefix("segments/").and_then(SegmentName::parse);
        name.is_some_and(self.store.engine().may_be_of_others())
    }

    /// Extent files with units that only a side has which was not taken: the device of each, and its path there.
    pub(crate) fn extents_of_other_sides(&self) -> Vec<(usize, String)> {
        let engine = self.store.engine();
        let spared = engine.extents_of_other_sides().unwrap_or_default().into_iter();
        let path = |(device, file): (DeviceNumber, u32)| engine.extents.path(device, file).ok().flatten();
        spared.filter_map(|place| Some((place.0.index(), path(place)?))).collect()
    }

    /// Rebuilds a device onto another directory, and perhaps gives up what only that device has.
    pub(crate) fn rebuild_until(
        &self,
        device: DeviceNumber,
        onto: &str,
        gives_up: bool,
        stop: Option<u64>,
    ) -> Result<RebuildReport> {
        let onto = Some(PathBuf::from(onto));
        let options = RebuildOptions { device, onto, gives_up, ..RebuildOptions::default() };
        self.store.rebuild(&options, &until(stop))
    }

    /// Repairs a store that nobody has open.
    pub(crate) fn repair(home: &Path, world: &World, options: RepairOptions, stop: Option<u64>) -> Result<Repaired> {
        Simulated::repair_reporting(home, world, options, &until(stop))
    }

    /// The same; what is done after the plan is reported to `progress`.
    pub(crate) fn repair_reporting(
        home: &Path,
        world: &World,
        options: RepairOptions,
        progress: &Progress,
    ) -> Result<Repaired> {
        Simulated::repair_how(home, world, &OpenOptions::default(), options, progress)
    }

    /// The same, opened with these options.
    pub(crate) fn repair_how(
        home: &Path,
        world: &World,
        how: &OpenOptions,
        options: RepairOptions,
        progress: &Progress,
    ) -> Result<Repaired> {
        let platform = platform(world);
        let plan = plan_repair_on(platform.clone(), home, how, None, &mut |_| {}, &Progress::default())?;
        let report = repair_on(platform, home, how, &plan, options, &mut |_, _| {}, progress)?;
        Ok(Repaired { plan, report })
    }

    /// Continues with the side of a device; returns the numbers of the devices of the other side.
    pub(crate) fn take_side(home: &Path, world: &World, device: DeviceNumber) -> Result<Vec<DeviceNumber>> {
        let rejected = take_side_on(platform(world), home, &OpenOptions::default(), device)?;
        Ok(rejected.stale)
    }
}
