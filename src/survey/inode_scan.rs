//! Surveys by the inodes of a whole file system: when that is possible, and how it is done.
//!
//! The walk does what an inode scan cannot: several roots, a table of files with their paths, file systems mounted
//! below the root. No reason is reported where nobody asked for an inode scan and none was to be expected (a plain
//! directory).

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::collect::Collector;
use super::request::{
    Incremental, MemoryBound, MethodChoice, Moments, Outcome, Request, TICK, machines, named, origin,
};
use super::{Method, Origin, Snapshots, machine};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::scan::Stat;
use crate::scan::exclude::Exclude;
use crate::scan::inodes::btrfs::{self, Btrfs, Choice};
use crate::scan::inodes::ext::Ext;
use crate::scan::inodes::kernel::MountedXfs;
use crate::scan::inodes::medium::Device;
use crate::scan::inodes::remember::{RememberedNames, Remembering};
use crate::scan::inodes::target::ScanTarget;
use crate::scan::inodes::xfs::Xfs;
use crate::scan::inodes::{Ended, FileSystem, Found, InodeSource, Scan, Scope, file_system};
use crate::scan::walk::display_root;
use crate::sys::spill::Spill;
use crate::units::{escape_path, format_count};

/// Reading this many slots of inode tables, 16 MiB, is never slower than a walk.
const PLACES_ALWAYS_READ: u64 = 1 << 16;
/// A walk spends as much on an inode as an inode scan on this many slots, warm or cold.
const PLACES_AN_INODE: u64 = 16;

/// This many inodes are read quickly either way.
const FEW_INODES: u64 = 1 << 16;

/// How a survey is taken.
pub(super) enum Chosen {
    /// By a walk, with the reason for not scanning inodes; empty where an inode scan was not expected.
    Walk { reason: String },
    /// By an inode scan.
    Scan(Box<InodeScan>),
}

/// An opened file system.
pub(super) struct InodeScan {
    target: ScanTarget,
    source: Opened,
}

/// Its reader.
enum Opened {
    Ext(Box<Ext<Device>>),
    Btrfs(Box<Btrfs<Device>>),
    Xfs(Box<Xfs<Device>>),
    /// Where the kernel has most inodes in memory.
    MountedXfs(MountedXfs),
}

/// Chooses the method for a request.
///
/// # Errors
/// When an inode scan was requested and is not possible.
pub(super) fn choose(request: &Request) -> Result<Chosen> {
    if request.without_names && !request.options.excluded.is_empty() {
        return Err(names_needed("what is excluded"));
    }
    match request.method {
        MethodChoice::Walk if request.without_names => {
            Err(usage("a walk needs names").advise("omit --without-names or --method"))
        }
        MethodChoice::Walk if request.incremental.is_some() => {
            Err(usage("a walk reads everything").advise("omit --incremental or --method"))
        }
        MethodChoice::Walk => Ok(Chosen::Walk { reason: String::new() }),
        MethodChoice::InodeScan => {
            let [path] = &request.roots[..] else {
                return Err(
                    usage("an inode scan takes one path").advise("survey each path separately and merge the surveys")
                );
            };
            if request.file_table.is_some() {
                return Err(usage("a table of files needs a walk").advise("omit --files or --method"));
            }
            if request.ncdu.is_some() {
                return Err(usage("an export for ncdu needs a walk").advise("omit --ncdu or --method"));
            }
            let target = ScanTarget::of(path)?;
            if request.without_names && !target.mount_points.is_empty() {
                return Err(names_needed("what is hidden below a mount point").at(path));
            }
            if let Some(kind) = foreign_kind(&target) {
                let error = usage(format!("its file system is {kind}")).at(path);
                return Err(error.advise("only ext2, ext3, ext4, xfs and btrfs can be scanned; use --method walk"));
            }
            InodeScan::open(target, request, path).map(Chosen::Scan)
        }
        MethodChoice::Auto => Ok(match worth_it(request) {
            None => Chosen::Walk { reason: String::new() },
            Some((path, target)) => {
                match obstacle(request, &target).map_or_else(|| InodeScan::open(target, request, path), Err) {
                    Ok(scan) => {
                        let obstacle = too_empty(&scan).or_else(|| reserved(&scan));
                        let obstacle = obstacle.or_else(|| encrypted(request, &scan));
                        match obstacle.or_else(|| memory_suffices(request, &scan)) {
                            None => Chosen::Scan(scan),
                            Some(reason) => Chosen::Walk { reason },
                        }
                    }
                    Err(error) => Chosen::Walk { reason: error.to_string() },
                }
            }
        }),
    }
}

fn usage(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, "scan the inodes of", cause)
}

/// The error for an option that needs names.
fn names_needed(what: &str) -> Error {
    usage(format!("only names show {what}")).advise("omit --without-names")
}

/// The kind of a mounted file system that cannot be scanned.
fn foreign_kind(target: &ScanTarget) -> Option<&str> {
    target.mount.as_ref().map(|mount| mount.kind.as_str()).filter(|kind| FileSystem::called(kind).is_none())
}

/// The only root, if it is a whole file system of a kind that can be scanned.
fn worth_it(request: &Request) -> Option<(&Path, ScanTarget)> {
    let [path] = &request.roots[..] else { return None };
    let found = std::fs::metadata(path).ok()?;
    if !found.is_dir() && !found.file_type().is_block_device() {
        return None;
    }
    let target = ScanTarget::of(path).ok().filter(|target| foreign_kind(target).is_none())?;
    (!found.is_dir() || target.is_mount_point(path)).then_some((path.as_path(), target))
}

/// Why a walk would be faster: most slots of the tables were used once or never, and an inode scan reads them all. Only
/// ext allocates tables for inodes that may never exist.
fn too_empty(InodeScan { target, source }: &InodeScan) -> Option<String> {
    let Opened::Ext(source) = source else { return None };
    let places: u64 = (0..source.parts()).map(|part| source.slots(part) as u64).sum();
    let in_use = target.inodes_in_use().or_else(|| source.inodes_in_use())?;
    (places > PLACES_ALWAYS_READ && places / PLACES_AN_INODE > in_use).then(|| {
        let [places, in_use] = [places, in_use].map(|count| format_count(count.into()));
        format!("its inode tables have {places} slots for {in_use} inodes in use, so a walk is faster")
    })
}

/// How many inodes of a mounted file system with many the kernel has in memory, and how many are in use, if it has most
/// of them.
fn in_memory(target: &ScanTarget) -> Option<(u64, u64)> {
    let (in_use, in_memory) = (target.inodes_in_use()?, target.inodes_in_memory()?);
    (in_use > FEW_INODES && in_memory / 4 > in_use / 5).then_some((in_memory, in_use))
}

/// Why a walk would be as fast: on XFS, an inode scan of the device reads what the kernel may have in memory. That does
/// not matter if it does not read directories, or not again.
fn memory_suffices(request: &Request, InodeScan { target, source }: &InodeScan) -> Option<String> {
    let reads_directories = !request.without_names && request.incremental.is_none();
    let (Opened::Xfs(_), true) = (source, reads_directories) else { return None };
    let counts: [u64; 2] = in_memory(target)?.into();
    let [in_memory, in_use] = counts.map(|count| format_count(count.into()));
    Some(format!("the kernel has {in_memory} of {in_use} inodes in memory, so a walk is as fast"))
}

/// A mounted XFS of which the kernel has most inodes in memory, opened so that it is asked for them.
fn asked_of_kernel(target: &ScanTarget, request: &Request) -> Option<MountedXfs> {
    let point = target.mount_point().filter(|_| request.incremental.is_none())?;
    in_memory(target)?;
    // An old kernel, or one that refuses, leaves the device.
    MountedXfs::open(point, target.device).ok()
}

/// What keeps a scan of a mounted file system from describing one moment.
const CHANGED: &str = "the file system changed while its inodes were being read";
/// What a mounted XFS counts as allocated, and only the kernel knows of which file.
const RESERVED: &str = "blocks are reserved for copy-on-write, and only the kernel knows which files they count for";

/// Why the allocated size would differ from that of a walk: files that share blocks were written to.
fn reserved(InodeScan { target, source }: &InodeScan) -> Option<String> {
    let Opened::Xfs(xfs) = source else { return None };
    (target.mount.is_some() && xfs.may_have_reservations()).then(|| RESERVED.to_owned())
}

const ENCRYPTED: &str = "it may have encrypted names, which only the kernel can read";

/// Why names would differ from those of a walk: with the key, the kernel decrypts them.
fn encrypted(request: &Request, InodeScan { target, source }: &InodeScan) -> Option<String> {
    let Opened::Ext(ext) = source else { return None };
    let has_names = target.mount.is_some() && !request.without_names;
    (has_names && ext.may_be_encrypted()).then(|| ENCRYPTED.to_owned())
}

/// Why an inode scan would not produce the result of a walk.
fn obstacle(request: &Request, target: &ScanTarget) -> Option<Error> {
    if request.file_table.is_some() {
        return Some(usage("a table of files needs a walk"));
    }
    if request.ncdu.is_some() {
        return Some(usage("an export for ncdu needs a walk"));
    }
    if request.without_names && !target.mount_points.is_empty() {
        return Some(names_needed("what is hidden below a mount point"));
    }
    if target.mount_points.is_empty() {
        return None;
    }
    let left_out = target.mount_points.iter().all(|nested| nested.is_left_out);
    match (request.options.one_file_system, left_out) {
        (true, true) => None,
        (true, false) => Some(usage("parts of it are also mounted below it")),
        (false, _) => Some(usage("other file systems are mounted below it").advise("exclude them with -x")),
    }
}

/// A source that knows the names of directories from an earlier inode scan, if there was one of the same file system.
fn remembering<'s, S: InodeSource>(
    source: &'s S,
    files: &Incremental,
    now: i64,
    notes: &mut Vec<String>,
) -> Result<Remembering<'s, S>> {
    let identity = source.identity().ok_or_else(|| {
        usage("changes since an earlier scan cannot be determined on this kind of file system")
            .advise("omit --incremental")
    })?;
    let path = escape_path(&files.old);
    let names = match files.old.exists() {
        true => RememberedNames::open(&files.old, identity).map_err(|cause| format!("{path} cannot be used: {cause}")),
        false => Err(format!("{path} does not exist yet")),
    };
    let names = names.map_err(|reason| notes.push(format!("{reason}; all directories were read"))).ok();
    Remembering::new(source, identity, names, &files.new, now)
}

/// Where a scan keeps its tables.
fn spill(request: &Request) -> Result<Spill> {
    let Some(MemoryBound { bytes, directory }) = &request.memory else { return Ok(Spill::default()) };
    Spill::within(*bytes, directory).map_err(|error| {
        Error::io("create a file for the tables in", directory, error).advise("name another directory with --scratch")
    })
}

fn directories_read([reused, read]: [u64; 2]) -> String {
    let all = format_count((reused + read).into());
    format!("{} of {all} directories were read; the others are unchanged", format_count(read.into()))
}

/// What all attempts to scan share.
struct ScanContext<'r> {
    request: &'r Request,
    moments: &'r Moments,
    progress: &'r Progress,
}

impl ScanContext<'_> {
    /// Scans once, and once more with names where that turns out to be necessary.
    fn attempts<S: InodeSource>(&self, source: &S, scope: &mut Scope) -> Result<(Collector, Ended)> {
        let (request, moments) = (self.request, self.moments);
        loop {
            let collector = Collector::new(&request.options, scope.threads, moments.reference_time, request.limit)
                .with_progress(self.progress);
            let scan = Scan::new(source, &collector, scope);
            let ended = scan.run(TICK, || {
                if self.progress.should_stop() {
                    scan.stop();
                }
            });
            let ended = ended.map_err(|error| error.at(&request.roots[0]))?;
            if !ended.again || scope.counted_by_name {
                return Ok((collector, ended));
            }
            scope.counted_by_name = true;
        }
    }
}

/// Passes every inode of the mounted file system that is the root of `request` to `found`, from its tables, with what
/// was changed before the call. Other attributes than those of the kernel's may be reported for what changes meanwhile.
///
/// # Errors
/// When its tables cannot be read, are damaged, or would not be read sooner than a walk would end.
pub(crate) fn each_inode(request: &Request, found: &mut dyn FnMut(&Stat)) -> Result<()> {
    let refuse = |reason: String| Err(usage(reason));
    let Some((path, target)) = worth_it(request) else {
        return refuse("only ext2, ext3, ext4, xfs and btrfs can be scanned".to_owned());
    };
    let scan = InodeScan::open(target, request, path)?;
    if let Some(reason) = too_empty(&scan).or_else(|| memory_suffices(request, &scan)) {
        return refuse(reason);
    }
    let is_sound = match &scan.source {
        Opened::Ext(ext) => each_inode_of(&**ext, found),
        Opened::Xfs(xfs) => each_inode_of(&**xfs, found),
        Opened::MountedXfs(xfs) => each_inode_of(xfs, found),
        Opened::Btrfs(btrfs) => each_inode_of(&**btrfs, found) && btrfs.replaced() == 0,
    };
    if is_sound { Ok(()) } else { refuse("some inodes could not be read".to_owned()) }
}

fn each_inode_of<S: InodeSource>(source: &S, found: &mut dyn FnMut(&Stat)) -> bool {
    let (mut buffers, mut is_sound) = (S::Buffers::default(), true);
    for part in 0..source.parts() {
        source.read_part(part, &mut buffers, &mut |inode| match inode {
            Found::Inode { stat, .. } => found(&stat),
            Found::Damaged(_) => is_sound = false,
        });
    }
    is_sound
}

fn open_ext(device: Device, target: &ScanTarget) -> Result<Opened> {
    let ext = Ext::open(device, target.device)?;
    let is_written_to = target.mount.as_ref().is_some_and(|mount| mount.is_writable);
    Ok(Opened::Ext(Box::new(if is_written_to { ext.await_changes() } else { ext })))
}

impl InodeScan {
    fn open(target: ScanTarget, request: &Request, path: &Path) -> Result<Box<InodeScan>> {
        target.synchronise();
        let read = |path: &Path, opened: std::io::Result<Device>| {
            opened.map_err(|error| Error::io("read the inodes of", path, error))
        };
        let device = read(&target.device_path, Device::open(&target.device_path))?;
        let mounted = target.mount.as_ref().and_then(|mount| FileSystem::called(&mount.kind));
        let past_cache = |path: &PathBuf| read(path, Device::open_past_cache(path));
        let source = match mounted.or_else(|| file_system(&device)) {
            // On ext, copies of the superblock are tried where the magic number is missing.
            None => open_ext(device, &target).map_err(|error| match error.kind() {
                ErrorKind::NotRecognised => {
                    let cause = "it is not an ext2, ext3, ext4, xfs or btrfs file system";
                    Error::new(ErrorKind::NotRecognised, "read the superblock", cause)
                }
                _ => error,
            }),
            Some(FileSystem::Ext) => open_ext(device, &target),
            Some(FileSystem::Xfs) => match asked_of_kernel(&target, request) {
                Some(xfs) => Ok(Opened::MountedXfs(xfs)),
                None => {
                    let device = past_cache(&target.device_path)?;
                    Xfs::open(device, target.device, false).map(|xfs| Opened::Xfs(Box::new(xfs)))
                }
            },
            Some(FileSystem::Btrfs) => {
                let identifier =
                    btrfs::identifier(&past_cache(&target.device_path)?).map_err(|error| error.at(path))?;
                let devices = target.members(identifier).iter().map(past_cache).collect::<Result<Vec<Device>>>()?;
                let (subvolume, below) = target.below_subvolume(path).unzip();
                let one_subvolume = request.options.one_file_system;
                let choice = Choice { subvolume, below: below.unwrap_or_default(), one_subvolume, unchecked: false };
                Btrfs::open(devices, &choice, target.device).map(|btrfs| Opened::Btrfs(Box::new(btrfs)))
            }
        };
        let source = source.map_err(|error| error.at(path))?;
        let whole = match &source {
            Opened::Ext(ext) => target.root.is_none_or(|root| root == ext.root()),
            Opened::Xfs(xfs) => target.root.is_none_or(|root| root == xfs.root()),
            Opened::MountedXfs(xfs) => target.root.is_none_or(|root| root == xfs.root()),
            Opened::Btrfs(btrfs) => btrfs.start() == btrfs.root(),
        };
        if request.without_names && !whole {
            return Err(names_needed("what is below a directory that is not a mount point").at(path));
        }
        Ok(Box::new(InodeScan { target, source }))
    }

    /// Takes the survey.
    ///
    /// # Errors
    /// When the starting directory does not exist.
    pub(super) fn take(&self, request: &Request, moments: &Moments, progress: &Progress) -> Result<Outcome> {
        match &self.source {
            Opened::Ext(ext) => self.scan(&**ext, self.target.root, request, moments, progress),
            Opened::Xfs(xfs) => self.scan(&**xfs, self.target.root, request, moments, progress),
            Opened::MountedXfs(xfs) => self.scan(xfs, self.target.root, request, moments, progress),
            Opened::Btrfs(btrfs) => self.scan(&**btrfs, Some(btrfs.start()), request, moments, progress),
        }
    }

    /// Scans what is below `root`.
    fn scan<S: InodeSource>(
        &self,
        source: &S,
        root: Option<u64>,
        request: &Request,
        moments: &Moments,
        progress: &Progress,
    ) -> Result<Outcome> {
        let path = &request.roots[0];
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut scope = Scope {
            path: display_root(path).to_vec(),
            root,
            mount_points: self.target.mount_points.iter().map(|nested| nested.below_root.clone()).collect(),
            include_snapshots: request.options.snapshots == Snapshots::Include,
            exclude: Exclude::new(&request.options.excluded)?,
            counted_by_name: false,
            without_names: request.without_names,
            threads: request.threads.clamp(1, cores),
            device: self.target.device,
            spill: spill(request)?,
        };
        let before = self.target.state();
        let (mut warnings, mut notes) = (Vec::new(), Vec::new());
        let run = ScanContext { request, moments, progress };
        let (collector, ended) = match &request.incremental {
            None => run.attempts(source, &mut scope)?,
            Some(files) => {
                let source = remembering(source, files, moments.taken_at, &mut notes)?;
                let attempt = run.attempts(&source, &mut scope)?;
                if !attempt.1.stopped {
                    notes.push(directories_read(source.counts()));
                    warnings.extend(source.complete(&files.new).err());
                }
                attempt
            }
        };
        if let Some(bound) = request.memory.as_ref().filter(|_| scope.spill.is_full()) {
            let path = escape_path(&bound.directory);
            notes.push(format!("there was too little room in {path}: more memory was used than --memory says"));
        }
        let inconsistencies = self.inconsistencies(&ended, before != self.target.state());
        let mut origin = Origin {
            reference_time: Some(moments.reference_time),
            method: Method::InodeScan,
            inconsistencies,
            without_names: scope.without_names,
            machines: machines(request),
            ..origin(request, moments.taken_at, moments.started.elapsed().as_secs_f64(), !ended.stopped)
        };
        if self.target.root.is_none() && self.target.mount.is_none() {
            let machines = origin.machines.iter_mut();
            machines.for_each(|machine| machine.file_systems = vec![machine::of_image(path)]);
        }
        let mut survey = collector.survey();
        if scope.without_names {
            // The locations of files were not requested, and a snapshot directory is like any other.
            survey.places = None;
            origin.options.snapshots = Snapshots::Include;
        }
        Ok(Outcome { survey: named(survey, origin), checkpoint: None, warnings, notes })
    }

    /// What keeps the result from describing one moment.
    fn inconsistencies(&self, ended: &Ended, changed: bool) -> Vec<String> {
        let mut found = Vec::new();
        match &self.source {
            Opened::Ext(ext) => {
                found.extend_from_slice(ext.warnings());
                if changed {
                    found.push(CHANGED.to_owned());
                }
                if self.target.mount.is_none() && ext.needs_recovery() {
                    let cause = "its journal has changes that were not written back: it was not unmounted, or is \
                        mounted elsewhere";
                    found.push(cause.to_owned());
                }
            }
            Opened::Xfs(xfs) => {
                found.extend_from_slice(xfs.warnings());
                if self.target.mount.is_some() && (changed || xfs.has_changed()) {
                    found.push(CHANGED.to_owned());
                }
                found.extend(reserved(self));
                if self.target.mount.is_none() && xfs.was_replayed() {
                    let cause =
                        "its log had changes that were not written back: it was not unmounted, or is mounted elsewhere";
                    found.push(cause.to_owned());
                }
            }
            Opened::MountedXfs(_) => found.extend(changed.then(|| CHANGED.to_owned())),
            // Committed data stays, whatever follows, except where something reused the space of deleted data.
            Opened::Btrfs(btrfs) => {
                found.extend_from_slice(btrfs.warnings());
                if btrfs.replaced() > 0 {
                    found
                        .push("parts of it were replaced before they were read; their new content was read".to_owned());
                }
                if self.target.mount.is_none() && btrfs.needs_recovery() {
                    let cause = "its log has changes that are in no committed transaction: it was not unmounted, or \
                        is mounted elsewhere";
                    found.push(cause.to_owned());
                }
            }
        }
        for (count, one, many) in [
            (ended.damaged, "inode or directory is damaged", "inodes or directories are damaged"),
            (ended.dangling, "name refers to no inode", "names refer to no inode"),
            (
                ended.miscounted,
                "inode does not have the number of names it states",
                "inodes do not have the number of names they state",
            ),
            (
                ended.unreachable,
                "directory cannot be reached from the root",
                "directories cannot be reached from the root",
            ),
            (ended.doubled, "directory has a second name", "directories have a second name"),
        ] {
            if count > 0 && !ended.stopped {
                found.push(format!("{} {}", format_count(count.into()), if count == 1 { one } else { many }));
            }
        }
        found
    }
}
