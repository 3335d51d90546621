//! Checkpoints: an interrupted survey as data, to resume later.
//!
//! A checkpoint is taken while no thread is processing a directory. It holds the counts so far, the unfinished part of
//! the walk, and the files with names still to come; nothing in it is ever executed. A resumed survey has the result
//! that an uninterrupted survey of the unchanged tree would have had.
//!
//! The body of its file is in postcard. Every field of it is checked before it is used.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::collect::{Collector, LinkNameData, Shard};
use super::errors::{ErrorLog, Example, KindCount};
use super::file_table::{FileTable, remove_parts};
use super::measure::{ByteMeasure, Distributions, Measure};
use super::places::Places;
use super::sealed::Kind;
use super::tree::{DirectoryTree, Sums};
use super::{Counts, Options, OtherAllocated, OverheadBySize};
use crate::distribution::{Distribution, Encoded};
use crate::error::{Error, ErrorKind, Result};
use crate::io::write_atomically;
use crate::plan::Padding;
use crate::scan::division::Division;
use crate::scan::links::SeenLink;
use crate::scan::place::Place;
use crate::scan::walk;

const KIND: Kind = Kind {
    name: b"granulo checkpoint v4  \n",
    of_any_version: b"granulo checkpoint v",
    noun: "checkpoint",
    operation: "read the checkpoint",
    advice: "start the survey again",
};

/// An interrupted survey.
#[derive(Serialize, Deserialize)]
pub struct Checkpoint {
    roots: Vec<Vec<u8>>,
    /// Device and inode of each root; `None` for a root that did not exist.
    root_identities: Vec<Option<(u64, u64)>>,
    /// What the result depends on.
    pub(super) options: Options,
    /// The part of the tree that is surveyed; `None`: all of it.
    pub(super) division: Option<Division>,
    /// Rows of the lists of directories.
    pub(super) limit: usize,
    /// Whether the result will have no names.
    pub(super) anonymous: bool,
    /// Start of the first session, seconds since 1970.
    pub(super) taken_at: i64,
    /// What ages are relative to, seconds since 1970.
    pub(super) reference_time: i64,
    /// Wall time until now, in seconds.
    pub(super) elapsed_seconds: f64,
    file_table: Option<(Vec<u8>, u32)>,
    counts: Counts,
    pub(super) other_allocated: OtherAllocated,
    distributions: Vec<Encoded>,
    pub(super) overhead_by_size: OverheadBySize,
    pub(super) padding: Padding,
    pub(super) places: Places,
    tree: DirectoryTree,
    pub(super) errors_by_kind: Vec<KindCount>,
    error_examples: Vec<Example>,
    /// Files with names still to come, in the order of the places that the walk holds.
    links: Vec<(SeenLink, LinkNameData)>,
    /// What remains to be done.
    pub(crate) walk: walk::State<Sums>,
}

/// What a checkpoint records besides what was collected.
pub(super) struct Session<'a> {
    /// Roots as given.
    pub(super) roots: &'a [PathBuf],
    /// Device and inode of each, as far as they could be examined, when the session began.
    pub(super) root_identities: &'a [Option<(u64, u64)>],
    /// What the result depends on.
    pub(super) options: &'a Options,
    /// The part of the tree that is surveyed; `None`: all of it.
    pub(super) division: Option<Division>,
    /// Rows of the lists of directories.
    pub(super) limit: usize,
    /// Whether the result will have no names.
    pub(super) anonymous: bool,
    /// Start of the first session, seconds since 1970.
    pub(super) taken_at: i64,
    /// What ages are relative to, seconds since 1970.
    pub(super) reference_time: i64,
    /// Wall time until now, in seconds.
    pub(super) elapsed_seconds: f64,
}

impl Checkpoint {
    /// Checkpoint of `collector` with the unfinished part of the walk. Closes the current part of the table of files.
    ///
    /// # Errors
    /// The table of files lacks rows that could not be written: a survey that is resumed would not have them either.
    pub(super) fn of(session: &Session<'_>, collector: &Collector, walk: walk::State<Sums>) -> Result<Checkpoint> {
        let file_table = match collector.file_table() {
            Some(table) => Some((table.target().as_os_str().as_bytes().to_vec(), table.cut()?)),
            None => None,
        };
        let shard = collector.whole();
        let (errors, links) = collector.errors_and_links();
        let counted = Measure::ALL.into_iter().map(|measure| Encoded::from(shard.distributions.of(measure)));
        let weighted = ByteMeasure::ALL.into_iter().map(|measure| Encoded::from(shard.distributions.by_bytes(measure)));
        Ok(Checkpoint {
            roots: session.roots.iter().map(|root| root.as_os_str().as_bytes().to_vec()).collect(),
            root_identities: session.root_identities.to_vec(),
            options: session.options.clone(),
            division: session.division,
            limit: session.limit,
            anonymous: session.anonymous,
            taken_at: session.taken_at,
            reference_time: session.reference_time,
            elapsed_seconds: session.elapsed_seconds,
            file_table,
            counts: shard.counts,
            other_allocated: shard.other_allocated,
            distributions: counted.chain(weighted).collect(),
            overhead_by_size: shard.overhead_by_size,
            padding: shard.padding,
            places: shard.places,
            tree: shard.tree,
            errors_by_kind: errors.by_kind(),
            error_examples: errors.examples().to_vec(),
            links,
            walk,
        })
    }

    /// Roots as given.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.roots.iter().map(|root| path_of(root)).collect()
    }

    /// Which shard it is of, and of how many, with the depth of the division.
    pub fn shard(&self) -> Option<(u32, u32, u32)> {
        self.division.map(|division| (division.index + 1, division.count, division.depth))
    }

    /// Where the table of files will be, and how many of its parts are closed.
    pub(super) fn file_table(&self) -> Option<(PathBuf, u32)> {
        self.file_table.as_ref().map(|(target, parts)| (path_of(target), *parts))
    }

    /// The table of files, to be continued where it was when the checkpoint was written.
    ///
    /// # Errors
    /// As [`FileTable::resume`].
    pub(super) fn resume_file_table(&self) -> Result<Option<FileTable>> {
        let Some((target, parts)) = self.file_table() else { return Ok(None) };
        // Files with names still to come may have been counted, and have no rows yet.
        let files = self.counts.files;
        let rows = files.saturating_sub(self.links.len() as u64)..=files;
        FileTable::resume(&target, parts, rows).map(Some)
    }

    /// Removes the checkpoint at `path`, and the parts of a table of files that it needs: once the results are written.
    pub fn discard(path: &Path) {
        let table = Checkpoint::read(path).ok().and_then(|checkpoint| checkpoint.file_table());
        // If it stayed, resuming it would only produce the same result, for which it needs the parts.
        if std::fs::remove_file(path).is_ok()
            && let Some((target, parts)) = table
        {
            remove_parts(&target, parts);
        }
    }

    /// Records the names of the owners, also of files with names still to come; `name_of` returns a name, escaped.
    pub(super) fn name_owners(&mut self, name_of: impl Fn(u32) -> Option<String>) {
        self.places.name_owners(&name_of);
        let others: BTreeSet<u32> = self.links.iter().map(|(_, data)| data.uid()).collect();
        self.places.owner_names.extend(others.into_iter().filter_map(|uid| Some((uid, name_of(uid)?))));
    }

    /// Updates the device numbers of the roots, which change when a file system is mounted again. (Other devices are
    /// unknown; a file with several names on one of them may then count once more.)
    ///
    /// # Errors
    /// When a root is no longer the same directory or file.
    pub(super) fn follow_devices(&mut self) -> Result<()> {
        let mut moved = HashMap::new();
        for (root, then) in self.roots().iter().zip(&self.root_identities) {
            let Some((device_then, inode_then)) = *then else { continue };
            match identity(root) {
                Some((device, inode)) if inode == inode_then => moved.insert(device_then, device),
                _ => {
                    let cause = "it differs from when the survey was interrupted";
                    let error = Error::new(ErrorKind::NotFound, "resume the survey of", cause).at(root);
                    return Err(error.advise("mount it again, or start the survey again"));
                }
            };
        }
        let now = |device: u64| current_device(&moved, device);
        self.walk.renumber_devices(&now);
        self.links.iter_mut().for_each(|(link, _)| link.renumber_device(&now));
        Ok(())
    }

    /// Restores the counts into a new collector.
    ///
    /// # Errors
    /// A sentence that names the contradiction in the checkpoint.
    pub(crate) fn restore(&self, collector: &mut Collector) -> std::result::Result<(), &'static str> {
        let (shard, errors) = self.collected()?;
        collector.restore(shard, errors);
        Ok(())
    }

    /// What was collected, except for files with names still to come.
    pub(super) fn collected(&self) -> std::result::Result<(Shard, ErrorLog), &'static str> {
        if self.distributions.len() != Measure::ALL.len() + ByteMeasure::ALL.len() {
            return Err("it has an unexpected number of distributions");
        }
        if self.division.is_some_and(|division| !division.is_valid()) {
            return Err("the number of a part is wrong");
        }
        let mut distributions = Distributions::default();
        let (counted, weighted) = self.distributions.split_at(Measure::ALL.len());
        for (measure, encoded) in Measure::ALL.into_iter().zip(counted) {
            *distributions.of_mut(measure) = Distribution::try_from(encoded)?;
        }
        for (measure, encoded) in ByteMeasure::ALL.into_iter().zip(weighted) {
            *distributions.by_bytes_mut(measure) = Distribution::try_from(encoded)?;
        }
        if !self.counts.is_plausible() || !self.overhead_by_size.is_whole() {
            return Err("a count is too large");
        }
        if self.places.owner_ages.as_ref().is_some_and(|ages| !ages.is_sound()) {
            return Err("the ages by owner do not belong to their breaks");
        }
        let shard = Shard {
            counts: self.counts.clone(),
            other_allocated: self.other_allocated,
            distributions,
            overhead_by_size: self.overhead_by_size.clone(),
            padding: self.padding,
            places: self.places.clone(),
            tree: self.tree.clone(),
            ..Shard::new(self.places.limit())
        };
        Ok((shard, ErrorLog::from_parts(self.errors_by_kind.clone(), self.error_examples.clone())))
    }

    /// Files with names still to come, in the order of the places that the walk holds.
    pub(super) fn links(&self) -> &[(SeenLink, LinkNameData)] {
        &self.links
    }

    /// Replaces each device number of these files.
    pub(super) fn renumber_links(&mut self, number: impl Fn(u64) -> u64) {
        self.links.iter_mut().for_each(|(link, _)| link.renumber_device(&number));
    }

    /// Restores the files with names still to come, with the places that the walk holds for them.
    ///
    /// # Errors
    /// When there is not one place for each.
    pub(crate) fn restore_links(
        &self,
        collector: &Collector,
        held: Vec<Place<Sums>>,
    ) -> std::result::Result<(), &'static str> {
        if held.len() != self.links.len() {
            return Err("the files with several names are not those of the walk");
        }
        collector.restore_links(&self.links, held);
        Ok(())
    }

    /// Writes it durably and atomically to `path`.
    ///
    /// # Errors
    /// Any error of writing; an older checkpoint at `path` is then unchanged.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let fail =
            |cause: postcard::Error| Error::new(ErrorKind::Io, "write the checkpoint", cause.to_string()).at(path);
        let body = postcard::to_stdvec(self).map_err(fail)?;
        write_atomically(path, |out| out.write_all(&with_header(&body)))
    }

    /// Reads the checkpoint of an interrupted survey.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`], [`ErrorKind::NewerVersion`] or [`ErrorKind::Corrupt`], or any error of reading.
    pub fn read(path: &Path) -> Result<Checkpoint> {
        let bytes = KIND.read(path).map_err(|error| Error::io(KIND.operation, path, error))?;
        Checkpoint::parse(&bytes).map_err(|error| error.at(path))
    }

    /// Reads a checkpoint from bytes; see [`read`](Self::read).
    pub fn parse(bytes: &[u8]) -> Result<Checkpoint> {
        let body = KIND.open(bytes)?;
        postcard::from_bytes(body).map_err(|_| KIND.damaged("its fields do not match its length"))
    }
}

/// The number of a device now: of one with a root, where that is; another is none of these, even if they have its
/// number now.
fn current_device(moved: &HashMap<u64, u64>, device: u64) -> u64 {
    match moved.get(&device) {
        Some(&now) => now,
        // The kernel's numbers have 32 bits: this is none of them.
        None if moved.values().any(|&now| now == device) => !device,
        None => device,
    }
}

/// A body with the header that makes it a checkpoint.
pub(crate) fn with_header(body: &[u8]) -> Vec<u8> {
    KIND.seal(body)
}

/// Whether `path` may be written as a checkpoint: it is one, or does not exist.
pub(crate) fn may_be_written(path: &Path) -> bool {
    KIND.may_be_written(path)
}

/// Device and inode of a root.
pub(super) fn identity(root: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(root).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a reboot the disk of the root has the number that another disk had, whose files are not on it.
    #[test]
    fn a_device_without_a_root_is_not_taken_for_one_that_has_its_number_now() {
        let moved = HashMap::from([(0x801, 0x811), (0x821, 0x801)]);
        let now = |device| current_device(&moved, device);
        assert_eq!([0x801, 0x821, 0x831].map(now), [0x811, 0x801, 0x831]);
        assert!(![0x801, 0x811, 0x821, 0x831].contains(&now(0x811)));
    }
}
