//! Units that several versions of a large object share.
//!
//! A change leaves the other stripes of an object in place, and cuts the chunks around what changed. So the versions in
//! snapshots and the present one lead to the same bytes by different runs, each within a run of an earlier version.
//! Accounts count them once for each. When they move, they are copied once: of the oldest version that has them, and a
//! later one finds where they went.

use std::collections::BTreeMap;

use super::choice::ExtentId;
use crate::devices::extents::Claim;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::descriptor::{Chunk, Component, Descriptor, Run};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{first_superseded, superseded};
use crate::index::Snapshot;

/// Where runs went that later versions may have parts of: about a hundred bytes for each. Their files stay claimed as
/// long as new records may refer to them.
#[derive(Debug, Default)]
pub(super) struct MovedRuns(BTreeMap<Run, (Component, Claim)>);

impl MovedRuns {
    /// Adds a run that was copied whole.
    pub(super) fn add(&mut self, was: Run, target: Component, claim: Claim) {
        if was.length_bytes > 0 {
            self.0.insert(was, (target, claim));
        }
    }

    /// Where the bytes of a run went, with a run that it is in.
    pub(super) fn find(&self, run: Run) -> Option<(Component, Claim)> {
        let last = Run { length_bytes: u64::MAX, ..run };
        let (was, (target, claim)) = self.0.range(..=last).next_back().filter(|_| run.length_bytes > 0)?;
        if (was.device, was.file) != (run.device, run.file) {
            return None;
        }
        let ahead_bytes = run.offset_bytes - was.offset_bytes;
        let is_within = ahead_bytes + run.length_bytes <= was.length_bytes;
        let target = Component { offset_bytes: target.offset_bytes + ahead_bytes, ..*target };
        is_within.then(|| (target, claim.clone()))
    }
}

/// The run of a component, which may be empty.
pub(super) fn run_of(chunk: &Chunk, component: usize) -> Run {
    let Component { device, file, offset_bytes } = chunk.components[component];
    Run { device, file, offset_bytes, length_bytes: chunk.stripes.component_bytes(component) }
}

/// Keys of the versions of large objects that snapshots reference, oldest first: their size in memory for each.
///
/// # Errors
/// Any error of reading the index.
pub(super) fn versions_of_large(snapshot: &Snapshot) -> Result<Vec<Vec<u8>>> {
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut scan = snapshot.scan_versions_from(&first_superseded())?;
    while let Some((key, entry)) = scan.next_entry()? {
        if entry.kind == Kind::Large {
            found.push((entry.id, key.to_vec()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

impl Engine {
    /// Bytes that the accounts of extent files count more than once. A descriptor that cannot be read shares nothing,
    /// nor does the present version if the object has another name by now.
    ///
    /// # Errors
    /// Any error of reading the index.
    pub(super) fn shared_bytes(&self) -> Result<BTreeMap<ExtentId, u64>> {
        let snapshot = self.snapshot();
        let mut objects: BTreeMap<ObjectNumber, BTreeMap<u64, Entry>> = BTreeMap::new();
        for key in versions_of_large(&snapshot)? {
            let present = superseded(&key).map(|(of, _)| snapshot.look_up(&of)).transpose()?.flatten();
            let both = snapshot.look_up(&key)?.into_iter().chain(present);
            for entry in both.filter(|entry| entry.kind == Kind::Large) {
                objects.entry(entry.number).or_default().insert(entry.id, entry);
            }
        }
        let mut shared = BTreeMap::new();
        for versions in objects.into_values().filter(|versions| versions.len() > 1) {
            let descriptors: Vec<Descriptor> =
                versions.values().filter_map(|entry| self.descriptor(entry).ok()).collect();
            count_again(descriptors.iter().flat_map(Descriptor::runs).collect(), &mut shared);
        }
        Ok(shared)
    }
}

/// Adds, for each file, the bytes that are in several runs: for all but one of them.
fn count_again(mut runs: Vec<Run>, shared: &mut BTreeMap<ExtentId, u64>) {
    runs.sort_unstable();
    let (mut file, mut end_bytes) = (None, 0_u64);
    for run in runs {
        let place = (run.device, run.file);
        if file.replace(place) != Some(place) {
            end_bytes = 0;
        }
        let again_bytes = end_bytes.saturating_sub(run.offset_bytes).min(run.length_bytes);
        *shared.entry(place).or_default() += again_bytes;
        end_bytes = end_bytes.max(run.offset_bytes + run.length_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::DeviceNumber;

    fn run(file: u32, offset_bytes: u64, length_bytes: u64) -> Run {
        Run { device: DeviceNumber(1), file, offset_bytes, length_bytes }
    }

    #[test]
    fn bytes_in_several_runs_are_counted_for_all_but_one() {
        let count = |runs: &[Run]| {
            let mut shared = BTreeMap::new();
            count_again(runs.to_vec(), &mut shared);
            shared.into_iter().map(|((_, file), bytes)| (file, bytes)).collect::<Vec<_>>()
        };
        assert_eq!(count(&[run(1, 0, 10), run(1, 10, 10), run(2, 5, 10)]), [(1, 0), (2, 0)]);
        assert_eq!(count(&[run(1, 0, 10), run(1, 0, 10), run(1, 0, 10)]), [(1, 20)]);
        // A run, and two parts of it; and some of one of these.
        assert_eq!(
            count(&[run(1, 60, 40), run(1, 0, 100), run(1, 0, 40), run(1, 70, 10), run(2, 0, 1)]),
            [(1, 90), (2, 0)]
        );
        assert_eq!(count(&[run(1, 0, 10), run(1, 5, 10), run(1, 30, 5)]), [(1, 5)]);
    }

    #[test]
    fn a_part_of_a_run_went_with_it() {
        let mut moved = MovedRuns::default();
        let claim = Claim::default();
        let target = |file, offset_bytes| Component { device: DeviceNumber(1), file, offset_bytes };
        moved.add(run(1, 100, 50), target(7, 1000), claim.clone());
        moved.add(run(1, 200, 50), target(8, 0), claim.clone());
        moved.add(run(1, 300, 0), target(9, 0), claim);
        let found = |run: Run| moved.find(run).map(|(target, _)| (target.file, target.offset_bytes));
        assert_eq!([found(run(1, 100, 50)), found(run(1, 100, 10))], [Some((7, 1000)); 2]);
        assert_eq!([found(run(1, 140, 10)), found(run(1, 249, 1))], [Some((7, 1040)), Some((8, 49))]);
        for absent in [run(1, 99, 2), run(1, 140, 11), run(1, 150, 1), run(2, 100, 50), run(1, 300, 1), run(1, 120, 0)]
        {
            assert_eq!(found(absent), None, "{absent:?}");
        }
    }
}
