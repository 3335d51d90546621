//! The whole index: that each entry has a possible place, that every directory has a path to the root, that shared
//! objects have as many names as were counted, and that files and attributes records refer to each other.

use std::collections::{BTreeSet, HashMap};

use super::{Checker, Sum};
use crate::engine::open::is_of_tables;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::{ObjectNumber, SegmentNumber};
use crate::format::index_key::{entry_key, is_superseded, object_key, object_of, object_of_attributes};
use crate::index::paths::Ways;
use crate::maintain::objects::ObjectPaths;
use crate::maintain::problem::{Problem, ProblemKind, Remedy};

impl Checker<'_> {
    fn entry_problem(&mut self, key: &[u8], cause: String) {
        let problem =
            Problem::new(ProblemKind::Entry, self.engine.index_directory.clone(), cause, Remedy::RebuildIndex);
        self.found(problem.of(key));
    }

    /// Reads the whole index once.
    pub(super) fn entries(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let mut sums: HashMap<SegmentNumber, Sum> = HashMap::new();
        let mut names: HashMap<ObjectNumber, u64> = HashMap::new();
        let mut shared = BTreeSet::new();
        let mut ways = Ways::default();
        let mut misplaced = Vec::new();
        let mut scan = match self.snapshot.scan_versions_from(&[]) {
            Ok(scan) => scan,
            Err(error) => return self.unreadable_index(error),
        };
        loop {
            let (key, entry) = match scan.next_entry() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => return self.unreadable_index(error),
            };
            let sum = sums.entry(entry.location.segment).or_default();
            sum.records += 1;
            sum.bytes += entry.location.record_bytes;
            ways.add(key, entry);
            if let Some(cause) = self.misplaced(entry) {
                misplaced.push((key.to_vec(), cause));
                continue;
            }
            if is_superseded(key) {
                continue;
            }
            match self.attributes_mismatch(key, entry) {
                Ok(cause) => misplaced.extend(cause.map(|cause| (key.to_vec(), cause))),
                Err(error) => return self.unreadable_index(error),
            }
            if entry.kind == Kind::Attributes {
                continue;
            }
            if let Some(number) = object_of(key) {
                shared.insert(number);
                continue;
            }
            self.report.keys += 1;
            if entry.kind == Kind::Link {
                *names.entry(entry.linked()).or_default() += 1;
            }
            if self.report.keys.is_multiple_of(4096) {
                pace.spend(0)?;
            }
        }
        ways.settle();
        let (detached, circles, doubled) = (ways.detached(), ways.circles(), ways.doubled());
        self.objects = ObjectPaths::of(ways);
        for (key, cause) in misplaced {
            self.entry_problem(&key, cause);
        }
        for directory in detached {
            self.unreachable(format!("directory {directory} has entries, but no name"));
        }
        for directory in circles {
            self.unreachable(format!("directory {directory} is inside itself, and has no other name"));
        }
        for (number, entries) in doubled {
            for (directory, name) in entries {
                self.entry_problem(&entry_key(directory, &name), format!("directory {number} has several names"));
            }
        }
        self.names(&names, &shared);
        self.sums = Some(sums);
        Ok(())
    }

    /// Why an object and the record of its attributes, either of which `entry` may be, do not refer to each other;
    /// `None` if they do, or if there is no such record. `key` is of the current state, not of a superseded version.
    fn attributes_mismatch(&self, key: &[u8], entry: &Entry) -> Result<Option<String>> {
        let cause = |is_joined: bool, cause: String| (!is_joined).then_some(cause);
        Ok(match object_of_attributes(key) {
            Some(object_key) => {
                let object = self.snapshot.look_up(&object_key)?;
                let is_joined = object.is_some_and(|object| object.attributes_id == entry.id);
                cause(is_joined, "the index has attributes of it that its entry does not refer to".to_owned())
            }
            None if entry.attributes_id > 0 => {
                let record = self.snapshot.attributes_record(key, entry.attributes_id)?;
                let is_joined = record.is_some_and(|record| record.number == entry.number);
                cause(is_joined, format!("the index does not have record {} with its attributes", entry.attributes_id))
            }
            None => None,
        })
    }

    fn unreachable(&mut self, cause: String) {
        let directory = self.engine.index_directory.clone();
        self.found(Problem::new(ProblemKind::Entry, directory, cause, Remedy::RebuildIndex));
    }

    /// Compares the number of names of shared objects with the count in the catalog.
    fn names(&mut self, names: &HashMap<ObjectNumber, u64>, shared: &BTreeSet<ObjectNumber>) {
        let known = std::sync::Arc::clone(&self.view.state.shared);
        let numbers: BTreeSet<ObjectNumber> = shared.iter().chain(names.keys()).chain(known.keys()).copied().collect();
        for number in numbers {
            let (counted, noted) = (names.get(&number).copied().unwrap_or(0), known.get(&number).copied().unwrap_or(0));
            let key = object_key(number);
            if counted > 0 && !shared.contains(&number) {
                self.entry_problem(&key, format!("{counted} names refer to a file that is not in the index"));
            } else if counted == 0 && shared.contains(&number) {
                self.entry_problem(&key, "no name refers to it".to_owned());
            } else if counted != noted {
                self.entry_problem(&key, format!("it has {counted} names, but the catalog counts {noted}"));
            }
        }
    }

    fn unreadable_index(&mut self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Corrupt && !is_of_tables(&error) {
            return Err(error);
        }
        let directory = self.engine.index_directory.clone();
        self.found(Problem::new(
            ProblemKind::Table,
            directory,
            format!("the index cannot be read to its end: {error}"),
            Remedy::RebuildIndex,
        ));
        Ok(())
    }

    /// Why an entry cannot have this place.
    fn misplaced(&self, entry: &Entry) -> Option<String> {
        let location = entry.location;
        let Some(row) = self.view.state.segments.get(&location.segment) else {
            return Some(format!("the index has it in segment {}, which is not in the catalog", location.segment));
        };
        let is_beyond = location.offset.0.saturating_add(location.record_bytes) > row.size_bytes;
        is_beyond.then(|| {
            format!(
                "the index has it at {} of segment {}, which has {} bytes",
                location.offset, row.number, row.size_bytes
            )
        })
    }
}
