//! Parts of a survey: what one of several processes that divided a tree among them leaves, and all of them together.
//!
//! A part is a finished walk as a checkpoint: what was counted, and what only all parts together decide, namely files
//! with names in several parts, which count nothing yet, and the sums of directories that were divided. Joining all
//! parts gives exactly the survey that one walk would have given (docs/METHOD.md, section 23). The file systems of
//! files with several names are told by what they say of themselves, because device numbers differ between machines.
//! Owners have the names that they have where their files are, which may not be where the parts are joined.
//!
//! The body of its file is in postcard. Every field of it is checked before it is used.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{makedev, statvfs};
use serde::{Deserialize, Serialize};

use super::Survey;
use super::checkpoint::Checkpoint;
use super::collect::Collector;
use super::machine::{self, Machine, is_on_network};
use super::places::Tally;
use super::request::{Request, directory, machines, of_origin, origin, owner_name};
use super::sealed::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::io::write_atomically;
use crate::mounts::{Mount, mounts, visible_at};
use crate::scan::division::Division;
use crate::scan::walk::Remainder;
use crate::units::escape;

const KIND: Kind = Kind {
    name: b"granulo partial v2     \n",
    of_any_version: b"granulo partial v",
    noun: "partial survey",
    operation: "read the partial survey",
    advice: "take that shard again",
};

/// Upper bounds of any count and any sum of bytes in a part: of the 16,384 that there may be, none overflows.
const MOST: u64 = 1 << 49;
const MOST_BYTES: u128 = 1 << 113;

/// One of the parts of a survey.
#[derive(Serialize, Deserialize)]
pub struct Part {
    name: Option<String>,
    /// Where relative roots are.
    directory: Option<String>,
    machines: Vec<Machine>,
    /// What the devices of files with names in other parts are called on every machine.
    devices: Vec<(u64, String)>,
    checkpoint: Checkpoint,
}

/// All parts of a survey that are there, together.
#[derive(Debug)]
pub struct Joined {
    /// The survey; not complete if parts are missing.
    pub survey: Survey,
    /// Numbers of the parts that are missing, from 1.
    pub missing: Vec<u32>,
    /// Number of parts.
    pub count: u32,
    /// Remarks for people.
    pub warnings: Vec<String>,
}

impl Part {
    /// The part that a finished walk leaves.
    pub(super) fn of(request: &Request, collector: &Collector, mut checkpoint: Checkpoint) -> Part {
        if !request.anonymous {
            checkpoint.name_owners(owner_name);
        }
        let devices = collector.undecided_devices();
        let mounts = mounts().unwrap_or_default();
        Part {
            name: request.name.clone(),
            directory: directory(request),
            machines: machines(request),
            devices: devices.into_iter().map(|(device, path)| (device, identity(device, &path, &mounts))).collect(),
            checkpoint,
        }
    }

    /// Writes it durably and atomically to `path`.
    ///
    /// # Errors
    /// Any error of writing; a file at `path` is then unchanged.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let fail =
            |cause: postcard::Error| Error::new(ErrorKind::Io, "write the partial survey", cause.to_string()).at(path);
        let body = postcard::to_stdvec(self).map_err(fail)?;
        write_atomically(path, |out| out.write_all(&with_header(&body)))
    }

    /// Reads a part, if the file at `path` is one.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] or [`ErrorKind::Corrupt`], or any error of reading.
    pub fn read(path: &Path) -> Result<Option<Part>> {
        let bytes = KIND.read(path).map_err(|error| Error::io("read the source", path, error))?;
        if !KIND.looks_like(&bytes) {
            return Ok(None);
        }
        Part::parse(&bytes).map(Some).map_err(|error| error.at(path))
    }

    /// Reads a part from bytes; see [`read`](Self::read).
    ///
    /// # Errors
    /// The same, and [`ErrorKind::NotRecognised`].
    pub fn parse(bytes: &[u8]) -> Result<Part> {
        let body = KIND.open(bytes)?;
        postcard::from_bytes(body).map_err(|_| KIND.damaged("its fields do not match its length"))
    }

    fn division(&self) -> Result<Division> {
        let division = self.checkpoint.division.filter(Division::is_valid);
        division.ok_or_else(|| KIND.damaged("it has no number"))
    }
}

/// Whether a file begins like a part.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    KIND.looks_like(bytes)
}

/// A body with the header that makes it a part.
pub(crate) fn with_header(body: &[u8]) -> Vec<u8> {
    KIND.seal(body)
}

/// What the file system with a device number is called on every machine: its own identity, else where a network file
/// system comes from, else its number on this machine. A file that was met on it had the path.
fn identity(device: u64, path: &[u8], mounts: &[Mount]) -> String {
    // The file may be gone by now, or its path too long: what is above it, or a mount point, tells the same.
    let path = Path::new(OsStr::from_bytes(path));
    let points = mounts.iter().filter(|mount| device_of(mount) == device).map(|mount| mount.point.as_path());
    let found = path.ancestors().chain(points).find(|path| is_on(device, path));
    let fsid = found.and_then(fsid_of);
    let mount = found.and_then(|path| visible_at(mounts, &path.canonicalize().ok()?));
    let name = match (fsid, mount) {
        (Some(fsid), _) => format!("fsid {fsid:x}"),
        (None, Some(mount)) if is_on_network(&mount.kind, &escape(mount.source.as_bytes())) => {
            escape(&[mount.kind.as_bytes(), b" ", mount.source.as_bytes()].concat())
        }
        _ => return format!("device {device:x} of {}", machine::host()),
    };
    // Copies of a file system have its identity: where they are mounted tells them apart.
    let is_alike = |mount: &Mount, other: &Mount| match fsid {
        Some(fsid) => has_fsid(other, fsid),
        None => other.source == mount.source,
    };
    let has_copies = |mount: &&Mount| {
        mounts.iter().any(|other| other.device != mount.device && other.kind == mount.kind && is_alike(mount, other))
    };
    let Some(mount) = mount.filter(has_copies) else { return name };
    let points = mounts.iter().filter(|other| other.device == mount.device).map(|other| other.point.as_os_str());
    format!("{name} at {}", escape(points.min().unwrap_or_default().as_bytes()))
}

fn device_of(mount: &Mount) -> u64 {
    makedev(mount.device.0, mount.device.1)
}

fn is_on(device: u64, path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.dev() == device)
}

/// What the file system at a path says that it is, if it says so.
fn fsid_of(path: &Path) -> Option<u64> {
    statvfs(path).ok().map(|found| found.f_fsid).filter(|&fsid| fsid != 0)
}

/// Whether a mount is of a device, and its file system says that it is this one. (Others have no copies, and servers
/// may not answer.)
fn has_fsid(mount: &Mount, fsid: u64) -> bool {
    mount.device.0 != 0 && is_on(device_of(mount), &mount.point) && fsid_of(&mount.point) == Some(fsid)
}

/// All of `parts`, at least one, together.
///
/// # Errors
/// [`ErrorKind::Usage`] when they are not parts of one survey, or one is there twice; [`ErrorKind::Corrupt`] when one
/// contradicts itself.
pub fn join(mut parts: Vec<Part>) -> Result<Joined> {
    let fail = |cause: String, advice: &str| Error::new(ErrorKind::Usage, "merge the shards", cause).advise(advice);
    parts.sort_by_key(|part| part.checkpoint.division.map(|division| division.index));
    let divisions = parts.iter().map(Part::division).collect::<Result<Vec<Division>>>()?;
    let (Some(first), Some(division)) = (parts.first(), divisions.first().copied()) else {
        return Err(fail("there are none".to_owned(), "name at least one"));
    };
    let settings = |part: &Part| {
        let Checkpoint { options, limit, anonymous, .. } = &part.checkpoint;
        (part.checkpoint.roots(), options.clone(), *limit, *anonymous)
    };
    for (part, theirs) in parts.iter().zip(&divisions).skip(1) {
        if settings(part) != settings(first) || theirs.count != division.count {
            return Err(fail(
                "they are not of one survey: roots, options or the number of shards differ".to_owned(),
                "merge those that were taken with the same command",
            ));
        }
        if theirs.depth != division.depth {
            return Err(fail(
                format!(
                    "the tree changed: shard {} divided it at depth {}, shard {} at depth {}",
                    division.index + 1,
                    division.depth,
                    theirs.index + 1,
                    theirs.depth
                ),
                "take them again with the same --shard-depth",
            ));
        }
    }
    if let Some(twice) = divisions.windows(2).find(|pair| pair[0].index == pair[1].index) {
        return Err(fail(format!("shard {} is there twice", twice[0].index + 1), "name each once"));
    }
    let mut warnings = Vec::new();
    let references = || parts.iter().map(|part| part.checkpoint.reference_time);
    let reference_time = references().min().unwrap_or_default();
    let later_seconds = references().max().unwrap_or_default() - reference_time;
    if later_seconds > 0 {
        warnings.push(format!(
            "the ages of some shards are relative to a time that is up to {later_seconds} s later: \
             give all of them the same --as-of"
        ));
    }
    let present = |index: &u32| divisions.iter().any(|division| division.index == *index);
    let missing: Vec<u32> = (0..division.count).filter(|index| !present(index)).map(|index| index + 1).collect();
    let collector = collected(&mut parts, reference_time)?;

    let Some(first) = parts.first() else { unreachable!("there is one") };
    let mut request = Request::new(first.checkpoint.roots());
    request.options = first.checkpoint.options.clone();
    request.anonymous = first.checkpoint.anonymous;
    request.name = first.name.clone();
    let taken_at = parts.iter().map(|part| part.checkpoint.taken_at).min().unwrap_or_default();
    let elapsed_seconds = parts.iter().map(|part| part.checkpoint.elapsed_seconds).fold(0.0, f64::max);
    let mut origin = origin(&request, taken_at, elapsed_seconds, missing.is_empty());
    origin.reference_time = Some(reference_time);
    // Not where they are merged; those of several machines may have been taken in different directories.
    let directory = first.directory.clone();
    origin.directory = directory.filter(|first| parts.iter().all(|part| part.directory.as_ref() == Some(first)));
    parts.into_iter().for_each(|part| machine::merge(&mut origin.machines, part.machines));
    let survey = of_origin(collector.survey(), origin);
    Ok(Joined { survey, missing, count: division.count, warnings })
}

/// Whether no sum of as many parts as there may be can overflow.
fn is_plausible(part: &Part) -> bool {
    let Checkpoint { other_allocated, overhead_by_size, padding, places, walk, .. } = &part.checkpoint;
    let tables = places.owners.tallies().chain(places.extensions.tallies());
    let overheads = overhead_by_size.positive.iter().chain(&overhead_by_size.negative);
    let bytes = [other_allocated.directories_bytes, other_allocated.symlinks_bytes];
    let errors = [places.owners.max_error(), places.extensions.max_error()];
    let mut ages = places.owner_ages.iter().flat_map(|ages| ages.sums());
    let log = &part.checkpoint.errors_by_kind;
    bytes.iter().chain(&padding.0).all(|&bytes| bytes <= MOST_BYTES)
        && overheads.into_iter().all(|&(count, bytes)| count <= MOST && bytes <= MOST_BYTES)
        && errors.into_iter().chain(log.iter().map(|kind| kind.count)).all(|count| count <= MOST)
        && Tally::are_within(tables, MOST, MOST_BYTES)
        && Tally::are_within(walk.sums().map(|sums| &sums.tally), MOST, MOST_BYTES)
        && ages.all(|sums| sums.files <= MOST && sums.size_bytes <= MOST_BYTES)
}

/// What all parts counted, and what they decide together.
fn collected(parts: &mut [Part], reference_time: i64) -> Result<Collector> {
    let contradiction = |cause: &str| KIND.damaged(cause);
    let (options, limit) = match parts.first() {
        Some(first) => (first.checkpoint.options.clone(), first.checkpoint.limit),
        None => unreachable!("there is one"),
    };
    if !parts.iter().all(is_plausible) {
        return Err(contradiction("a sum is too large"));
    }
    let collector = Collector::new(&options, 1, reference_time, limit).divided();
    let states = parts.iter().map(|part| &part.checkpoint.walk);
    let (remainder, held) = Remainder::of(states).map_err(contradiction)?;
    let mut held = held.into_iter();
    let mut devices: Vec<String> = Vec::new();
    for part in parts {
        let (shard, errors) = part.checkpoint.collected().map_err(contradiction)?;
        collector.join(&shard, &errors);
        for (_, name) in &part.devices {
            if !devices.contains(name) {
                devices.push(name.clone());
            }
        }
        let number = |device: u64| {
            let name = &part.devices.iter().find(|(known, _)| *known == device)?.1;
            devices.iter().position(|known| known == name).map(|at| at as u64)
        };
        if part.checkpoint.links().iter().any(|(link, _)| number(link.device()).is_none()) {
            return Err(contradiction("a file is on a device that has no name"));
        }
        part.checkpoint.renumber_links(|device| number(device).unwrap_or(device));
        let links = part.checkpoint.links();
        let places: Vec<_> = held.by_ref().take(links.len()).collect();
        if places.len() != links.len() {
            return Err(contradiction("the files with several names are not those of the walk"));
        }
        collector.join_links(links, places);
    }
    if held.next().is_some() {
        return Err(contradiction("the files with several names are not those of the walk"));
    }
    collector.decide_links();
    remainder.finish(&collector);
    Ok(collector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_one_name_whatever_became_of_the_file_that_was_met_on_it() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().metadata().unwrap().dev();
        let mounts = mounts().unwrap();
        let of = |path: &Path| identity(device, path.as_os_str().as_bytes(), &mounts);
        let name = of(place.path());
        assert_eq!(of(&place.path().join("gone/below")), name);
        assert_eq!(of(&place.path().join("long/".repeat(2000))), name);
    }
}
