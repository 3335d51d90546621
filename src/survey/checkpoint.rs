//! Checkpoints: an interrupted survey as data, to resume later.
//!
//! A checkpoint is taken while no thread is processing a directory. It holds the counts so far, the unfinished part of
//! the walk, and the files with names still to come; nothing in it is ever executed. A resumed survey has the result
//! that an uninterrupted survey of the unchanged tree would have had.
//!
//! Layout: 24 bytes of text that name the format and its version, the length of the body (u64, little endian), its
//! XXH3-64 (u64, little endian), the body (postcard). Every field of the body is checked before it is used.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::collect::{Collector, LinkNameData, Shard};
use super::errors::{ErrorLog, Example, KindCount};
use super::measure::{ByteMeasure, Distributions, Measure};
use super::places::Places;
use super::tree::{DirectoryTree, Sums};
use super::{Counts, Options, OtherAllocated, OverheadBySize};
use crate::distribution::{Distribution, Encoded};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{read_bounded, write_atomically};
use crate::plan::Padding;
use crate::scan::links::SeenLink;
use crate::scan::place::Place;
use crate::scan::walk;

const MAGIC: &[u8; 24] = b"granulo checkpoint v4  \n";
const MAGIC_OF_ANY_VERSION: &[u8] = b"granulo checkpoint v";
const HEADER_BYTES: usize = MAGIC.len() + 16;

/// An interrupted survey.
#[derive(Serialize, Deserialize)]
pub struct Checkpoint {
    roots: Vec<Vec<u8>>,
    /// Device and inode of each root; `None` for a root that did not exist.
    root_identities: Vec<Option<(u64, u64)>>,
    /// What the result depends on.
    pub(super) options: Options,
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
    other_allocated: OtherAllocated,
    distributions: Vec<Encoded>,
    overhead_by_size: OverheadBySize,
    padding: Padding,
    places: Places,
    tree: DirectoryTree,
    errors_by_kind: Vec<KindCount>,
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
    /// What the result depends on.
    pub(super) options: &'a Options,
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
    pub(super) fn of(session: &Session<'_>, collector: &Collector, walk: walk::State<Sums>) -> Checkpoint {
        let shard = collector.whole();
        let (errors, links) = collector.rest();
        let counted = Measure::ALL.into_iter().map(|measure| Encoded::from(shard.distributions.of(measure)));
        let weighted = ByteMeasure::ALL.into_iter().map(|measure| Encoded::from(shard.distributions.by_bytes(measure)));
        Checkpoint {
            roots: session.roots.iter().map(|root| root.as_os_str().as_bytes().to_vec()).collect(),
            root_identities: session.roots.iter().map(|root| identity(root)).collect(),
            options: session.options.clone(),
            limit: session.limit,
            anonymous: session.anonymous,
            taken_at: session.taken_at,
            reference_time: session.reference_time,
            elapsed_seconds: session.elapsed_seconds,
            file_table: collector
                .file_table()
                .map(|table| (table.target().as_os_str().as_bytes().to_vec(), table.cut())),
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
        }
    }

    /// Roots as given.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.roots.iter().map(|root| path_of(root)).collect()
    }

    /// Where the table of files will be, and how many of its parts are closed.
    pub(super) fn file_table(&self) -> Option<(PathBuf, u32)> {
        self.file_table.as_ref().map(|(target, parts)| (path_of(target), *parts))
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
        let now = |device: u64| moved.get(&device).copied().unwrap_or(device);
        self.walk.renumber_devices(&now);
        self.links.iter_mut().for_each(|(link, _)| link.renumber_device(&now));
        Ok(())
    }

    /// Restores the counts into a new collector.
    ///
    /// # Errors
    /// A sentence that names the contradiction in the checkpoint.
    pub(crate) fn restore(&self, collector: &mut Collector) -> std::result::Result<(), &'static str> {
        if self.distributions.len() != Measure::ALL.len() + ByteMeasure::ALL.len() {
            return Err("it has an unexpected number of distributions");
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
        let errors = ErrorLog::from_parts(self.errors_by_kind.clone(), self.error_examples.clone());
        collector.restore(shard, errors);
        Ok(())
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
        let bytes = read_bounded("read the checkpoint", path)?;
        Checkpoint::parse(&bytes).map_err(|error| error.at(path))
    }

    /// Reads a checkpoint from bytes; see [`read`](Self::read).
    pub fn parse(bytes: &[u8]) -> Result<Checkpoint> {
        let fail = |kind, cause: &str| Error::new(kind, "read the checkpoint", cause);
        let damaged = |cause: &str| fail(ErrorKind::Corrupt, cause).advise("start the survey again");
        if !bytes.starts_with(MAGIC) {
            return Err(if bytes.starts_with(MAGIC_OF_ANY_VERSION) && bytes.len() >= MAGIC.len() {
                fail(ErrorKind::NewerVersion, "it was written by another version of granulo")
                    .advise("resume with that version, or start again")
            } else {
                fail(ErrorKind::NotRecognised, "it is not a granulo checkpoint")
            });
        }
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(damaged("it is truncated"));
        };
        let number = |at: usize| {
            let word: [u8; 8] = header[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        };
        if number(MAGIC.len()) != body.len() as u64 {
            return Err(damaged("it is truncated"));
        }
        if number(MAGIC.len() + 8) != XxHash3_64::oneshot(body) {
            return Err(damaged("its checksum is wrong"));
        }
        postcard::from_bytes(body).map_err(|_| damaged("its fields do not match its length"))
    }
}

/// A body with the header that makes it a checkpoint.
pub(crate) fn with_header(body: &[u8]) -> Vec<u8> {
    let words = [body.len() as u64, XxHash3_64::oneshot(body)].map(u64::to_le_bytes);
    [MAGIC, &words[0][..], &words[1][..], body].concat()
}

/// Whether `path` may be written as a checkpoint: it is one, or does not exist.
pub(crate) fn may_be_written(path: &Path) -> bool {
    use std::io::Read;
    let mut start = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => {
            let read = file.take(MAGIC_OF_ANY_VERSION.len() as u64).read_to_end(&mut start);
            read.is_ok() && start == MAGIC_OF_ANY_VERSION
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn identity(root: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(root).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}
