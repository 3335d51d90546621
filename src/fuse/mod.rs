//! A store as a file system, through FUSE.
//!
//! ```text
//!  programs ──► kernel ──► /dev/fuse ──► serve (threads) ──► FileSystem ──► store: batches, handles, listings
//!                 ▲                                             │
//!                 └── names, attributes, content: cached ◄──────┘ nodes: what the kernel knows; live: what is newer here
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | `wire` | the protocol: requests and replies |
//! | `device`, `fusermount` | `/dev/fuse`, mounting and unmounting, by root and by others |
//! | `attention` | which threads look for requests |
//! | `serve` | from a request to its answer |
//! | `file_system` | what operations share: looking at an object, committing |
//! | `nodes`, `node`, `live` | the objects that the kernel knows, and what is newer here than in the store |
//! | `lookups`, `listing`, `open_directories`, `space` | looking |
//! | `names`, `changes`, `acl` | creating, removing, renaming; attributes |
//! | `files` | content |
//! | `waiting`, `settle` | what was written and is not committed yet, and when it is |
//! | `errno` | what programs are told, and the log |
//! | `freeing` | dead space comes back |
//! | `follow` | a read-only mount beside a writer |
//!
//! Laws: the number of an object is its inode number, for its life. What a program did is committed to the store in
//! that order, as far as `settle` says; `fsync` returns when it is durable, with everything before it. What a program
//! is told has failed has changed nothing. The kernel checks permissions.

mod acl;
mod attention;
mod changes;
mod device;
mod errno;
mod file_system;
mod files;
mod follow;
mod freeing;
mod fusermount;
#[cfg(feature = "testing")]
mod fuzzing;
mod listing;
mod live;
mod lookups;
mod names;
mod node;
mod nodes;
mod open_directories;
mod serve;
mod settle;
mod space;
#[cfg(test)]
mod tests;
mod waiting;
mod wire;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::MountFlags;

use self::device::Device;
pub(crate) use self::device::{KIND, MountOptions, Unmounted, unmount_at};
use self::errno::Log;
use self::file_system::{Appearance, FileSystem};
#[cfg(feature = "testing")]
pub(crate) use self::fuzzing::fuzz_requests;
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::store::{Attributes, Key, Store};

/// Names and attributes of a mount that is alone in changing the store.
const LONG_VALID: Duration = Duration::from_secs(24 * 3600);
/// Names and attributes of a mount beside a writer.
const SHORT_VALID: Duration = Duration::from_millis(500);
/// How often the end is looked for.
const TICK: Duration = Duration::from_millis(100);

/// What is to be mounted.
#[derive(Debug)]
pub(crate) struct MountRequest {
    pub(crate) store: Store,
    /// Shown as the device.
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) options: MountOptions,
    pub(crate) is_read_only: bool,
    /// Owner and group shown for everything.
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) commit_every: Duration,
    /// How often dead space is freed; zero: only if there is no room left.
    pub(crate) free_every: Duration,
    pub(crate) threads: usize,
}

/// Mounts a store and serves it until it is unmounted, or `stop` is set. `is_ready` is called when it can be used;
/// `say` gets the log.
///
/// # Errors
/// It cannot be mounted; what programs did last cannot be made durable.
pub(crate) fn mount(
    request: MountRequest,
    stop: &AtomicBool,
    is_ready: impl FnOnce(),
    say: Box<dyn Fn(&str) + Send + Sync>,
) -> Result<()> {
    let MountRequest { store, source, target, options, is_read_only, uid, gid, commit_every, free_every, threads } =
        request;
    if !is_read_only {
        make_root(&store)?;
    }
    let device = Device::mount(&source, &target, &options)?;
    let valid = if is_read_only { SHORT_VALID } else { LONG_VALID };
    let is_sync = options.flags.contains(MountFlags::SYNCHRONOUS);
    let is_dirsync = is_sync || options.flags.contains(MountFlags::DIRSYNC);
    let appearance = Appearance { is_read_only, is_dirsync, is_sync, uid, gid, valid };
    let system = FileSystem::new(store, appearance, Log::new(say));
    if !is_read_only {
        system.look_at_room(false);
    }
    if let Err(error) = device.agree(is_read_only) {
        _ = device.unmount();
        return Err(error);
    }
    let served = thread::scope(|scope| {
        let (tell, ended) = channel();
        for _ in 0..threads.max(1) {
            let (tell, device, system) = (tell.clone(), &device, &system);
            scope.spawn(move || {
                let served = serve::serve(scope, device, system, &system.attention);
                system.attention.end();
                _ = tell.send(served);
            });
        }
        drop(tell);
        let (is_mounted, unmounted) = channel();
        let (device, system) = (&device, &system);
        if is_read_only {
            scope.spawn(move || follow::follow(device, system));
        } else if !free_every.is_zero() {
            scope.spawn(move || freeing::free_at_intervals(system, free_every, &unmounted));
        }
        is_ready();
        let served = attend(device, system, commit_every, stop, &ended);
        drop(is_mounted);
        served
    });
    let synced = system.store.sync();
    match is_read_only {
        true => served,
        false => served.and(synced),
    }
}

/// Makes everything durable at intervals, until the threads have ended.
fn attend(
    device: &Device,
    system: &FileSystem,
    commit_every: Duration,
    stop: &AtomicBool,
    ended: &Receiver<Result<()>>,
) -> Result<()> {
    let (mut next, mut is_stopping, mut outcome) = (Instant::now() + commit_every, false, Ok(()));
    loop {
        match ended.recv_timeout(TICK) {
            Ok(one) => outcome = outcome.and(one),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next {
            // The reason for a failure is in the log.
            let is_refused = system.sync().is_err_and(|errno| settle::is_refusal(&errno));
            system.look_at_room(is_refused);
            next = Instant::now() + commit_every;
        }
        if stop.load(Ordering::Relaxed) && !is_stopping {
            is_stopping = true;
            _ = system.sync();
            match device.unmount() {
                Ok(Unmounted::Now) => {}
                Ok(Unmounted::WhenUnused) => {
                    system.log.say("it is in use: it ends when nobody has a file of it open any more");
                }
                Err(error) => system.log.say(&error.to_string()),
            }
        }
    }
    let ended = system.end().map_err(|errno| {
        Error::new(ErrorKind::Io, "commit the last changes", os_message(&errno.into()))
            .advise("they are lost; messages before this one say what failed")
    });
    outcome.and(ended)
}

/// The root of a store to which nothing has been imported has no record, and gets one.
fn make_root(store: &Store) -> Result<()> {
    let root = Key::root();
    if store.stat(&root)?.is_none() {
        store.set_attributes(&root, &new_root())?;
    }
    Ok(())
}

/// What is seen of a root without a record: it belongs to who mounts it.
fn new_root() -> Attributes {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Attributes { mode: 0o040_755, uid, gid, ..Attributes::of_directory(file_system::now()) }
}
