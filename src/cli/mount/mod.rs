//! `granulo mount`: a store as a file system. Also as `mount.granulo`, which mount(8) calls.

mod background;
pub(super) mod helper;
mod kernel;
mod options;

use std::fs::{self, File, canonicalize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;

use self::options::Options;
use super::buckets::{BucketToRead, BucketToWrite};
use super::store::devices::{checked, say_what_is_wrong};
use super::{Ended, now, output, signals, usage_error};
use crate::erofs;
use crate::error::{Error, ErrorKind, Result};
use crate::fuse::{MountOptions, MountRequest, mount};
use crate::store::Store;
use crate::store::bucket::is_address;
use crate::store::geometry::DeviceState;
use crate::survey::file::format_time;
use crate::units::escape_path;

/// Threads that answer the kernel, unless said otherwise.
const THREADS: u16 = 4;
/// How often everything is made durable, unless said otherwise.
const COMMIT_EVERY: Duration = Duration::from_secs(5);
/// How often dead space is freed, unless said otherwise.
const FREE_EVERY: Duration = Duration::from_secs(60);

/// Mount a store as a file system
///
/// Serves the store at DIR until it is unmounted, in the foreground with its log on standard error; Ctrl-C or SIGTERM
/// makes everything durable and unmounts. What was written is durable a few seconds later, and after fsync at once.
/// While one process has it mounted for writing, others can mount it with -o ro, and see what is durable within a
/// second. Needs root, or fusermount3 (package fuse3) for a directory of one's own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo mount /srv/pictures /mnt\n  granulo mount --background -o allow_other \
    /srv/pictures /mnt\n  granulo mount -o ro /srv/pictures /mnt2\n  granulo mount --kernel /srv/pictures /mnt3\n  \
    granulo unmount /mnt\n\nIn /etc/fstab, with granulo linked as /sbin/mount.granulo:\n  /srv/pictures  /mnt  granulo  \
    allow_other,nofail  0  0\n\nOptions: ro, rw, allow_other, uid=ID, gid=ID (owner shown for everything), \
    commit=DURATION, free=DURATION, suid, dev, noexec, noatime, sync, device=DIR, degraded, log=FILE, at=SNAPSHOT, and \
    those of mount(8). Set-id bits and device files have no effect without suid and dev; if root mounts by mount(8) or \
    /etc/fstab, they have, without nosuid and nodev. The kernel always checks permissions.")]
pub(super) struct MountArguments {
    /// The store
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Directory to mount it at
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Mount options, separated by commas; may be repeated
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Mount the state of this snapshot, read-only, see granulo store snapshot
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    /// Let the kernel read the store itself: the current state, read-only, without a process in between
    ///
    /// Makes an image of the metadata that points into the store's own files; contents must begin at multiples of 512
    /// bytes (granulo store init --align 512, or compact --align 512) and not be compressed. Needs Linux 6.12. The
    /// kernel verifies no checksums: see --verify.
    #[arg(long, conflicts_with_all = ["background", "commit_every", "free_every", "log"], help_heading = "Kernel")]
    kernel: bool,
    /// Read every byte first, and mount only if all is well
    #[arg(long, requires = "kernel", help_heading = "Kernel")]
    verify: bool,
    /// Read everything ahead into memory, in the order of the disk
    #[arg(long, requires = "kernel", help_heading = "Kernel")]
    prefetch: bool,
    /// Return when it is mounted; the server continues in the background
    #[arg(long)]
    background: bool,
    /// How often everything is made durable [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    commit_every: Option<Duration>,
    /// How often space is freed if much is dead; 0: only if there is no room left [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    free_every: Option<Duration>,
    /// Write the log to this file [default: standard error; with --background the system's log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = THREADS, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Current directory of a device that is neither in STORE nor where it was before; may be repeated
    #[arg(long = "device", value_name = "DIR", help_heading = "Devices")]
    devices: Vec<PathBuf>,
    /// Write even if so many devices are missing that they may hold newer data
    #[arg(long, help_heading = "Devices")]
    degraded: bool,
    #[command(flatten)]
    reached: BucketToRead,
    #[command(flatten)]
    put: BucketToWrite,
    /// Said on standard output when it is mounted
    #[arg(long, hide = true, value_name = "WORD")]
    ready: Option<String>,
}

impl MountArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let options = self.mount_options()?;
        self.refuse_kernel()?;
        check_target(&self.target)?;
        if self.kernel {
            return kernel::run(&self, &options);
        }
        if self.background {
            return background::start(&self);
        }
        self.serve(options)
    }

    /// All options, wherever they were given.
    fn mount_options(&self) -> Result<Options> {
        let mut options = Options::default();
        self.options.iter().try_for_each(|list| options.take(list))?;
        options.is_degraded |= self.degraded;
        options.devices.extend(self.devices.iter().cloned());
        options.bucket = self.put.added_to(self.reached.added_to(options.bucket));
        options.log = self.log.clone().or(options.log);
        self.at.iter().for_each(|snapshot| options.set_at(snapshot));
        options.commit_every = self.commit_every.or(options.commit_every);
        options.free_every = self.free_every.or(options.free_every);
        if options.commit_every.is_some_and(|every| every.is_zero()) {
            return Err(usage_error(
                "everything cannot be made durable all the time: --commit-every must be more than 0",
            ));
        }
        Ok(options)
    }

    /// # Errors
    /// The kernel cannot read a store in a bucket.
    fn refuse_kernel(&self) -> Result<()> {
        if !self.kernel || !is_address(&self.store) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Usage, "mount", "the kernel itself reads only stores on this machine");
        Err(error.at(&self.store).advise("omit --kernel"))
    }

    fn serve(self, options: Options) -> Result<Ended> {
        let in_background = self.ready.is_some();
        if in_background {
            background::leave_session();
        }
        let source = if is_address(&self.store) { self.store.clone() } else { resolved(&self.store)? };
        let target = resolved(&self.target)?;
        let log = options.log.as_deref().map(open_log).transpose()?;
        let store = open_store(&source, &options)?;
        refuse_own_files(&store, (&source, &options), &target)?;
        say_what_is_wrong(&store);
        clear_left_overs(&store, &source, !options.is_read_only())?;
        let stop = signals::watch()?;
        let request = MountRequest {
            store,
            source,
            target: target.clone(),
            options: MountOptions { flags: options.flags, allow_other: options.allow_other },
            is_read_only: options.is_read_only(),
            uid: options.uid,
            gid: options.gid,
            commit_every: options.commit_every.unwrap_or(COMMIT_EVERY),
            free_every: options.free_every.unwrap_or(FREE_EVERY),
            threads: self.threads.into(),
        };
        let is_ready = || match &self.ready {
            Some(word) => background::is_ready(word, log.as_ref()),
            None => {
                log.iter().for_each(background::log_to);
                output::note(&format!("mounted at {}", escape_path(&target)));
            }
        };
        let say: Box<dyn Fn(&str) + Send + Sync> = match (&log, in_background) {
            (Some(_), _) => Box::new(|line| output::warn(&format!("{} {line}", format_time(now())))),
            (None, true) => Box::new(background::to_system_log),
            (None, false) => Box::new(output::warn),
        };
        mount(request, &stop, is_ready, say)?;
        Ok(Ended::Well)
    }
}

/// The path without symbolic links and relative parts: the server changes its directory.
fn resolved(path: &Path) -> Result<PathBuf> {
    canonicalize(path).map_err(|error| Error::io("mount", path, error))
}

/// # Errors
/// It is not a directory, or one at which a server has died.
fn check_target(target: &Path) -> Result<()> {
    match fs::metadata(target) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Usage, "mount at", "it is not a directory").at(target)),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            Err(Error::io("mount at", target, error).advise("a server has died there; granulo unmount it first"))
        }
        Err(error) => Err(Error::io("mount at", target, error)),
    }
}

/// # Errors
/// What is mounted would hide files of the store, or stand between them. The server would then wait for itself, and
/// with it every process that syncs all file systems.
fn refuse_own_files(store: &Store, (home, options): (&Path, &Options), target: &Path) -> Result<()> {
    let geometry = store.geometry();
    let recorded = geometry.devices.iter().filter(|device| device.state != DeviceState::Gone);
    // Those in the home are recorded relative to it.
    let recorded = recorded.map(|device| home.join(&device.path));
    let mut places = [home.to_owned()].into_iter().chain(recorded).chain(options.devices.iter().cloned());
    let is_own = |place: PathBuf| {
        // A device that is elsewhere or lost has nothing here to hide.
        canonicalize(place).is_ok_and(|place| place.starts_with(target) || target.starts_with(&place))
    };
    if !places.any(is_own) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Usage, "mount at", "the store has its own files there").at(target);
    Err(error.advise("mount it at a directory of its own, beside the store and its devices"))
}

/// Clears away what mounts by the kernel left that were killed, or that ended without granulo.
fn clear_left_overs(store: &Store, home: &Path, is_writer: bool) -> Result<()> {
    let cleared = erofs::clear_left_overs(store, home, is_writer)?;
    for path in &cleared.images {
        output::note(&format!("removed {}, which a mount left that was killed", escape_path(path)));
    }
    for name in &cleared.pins {
        output::note(&format!("released the pin {name}: what it kept is mounted no more"));
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File> {
    File::options().append(true).create(true).open(path).map_err(|error| Error::io("write the log to", path, error))
}

fn open_store(home: &Path, options: &Options) -> Result<Store> {
    let open = checked(home, options.to_open())?;
    if let Some(snapshot) = &options.at {
        return Store::open_at(home, snapshot, &open);
    }
    if options.is_read_only() {
        return Store::open_read_only_with(home, &open);
    }
    Store::open_with(home, &open).map_err(|error| match error.kind() {
        ErrorKind::Busy => error.advise("mount it read-only beside that process: -o ro"),
        _ => error,
    })
}
