//! A store that is mounted for a test, and unmounted after it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{Ran, finish, granulo, is_root, run, sandbox, skip};

/// Longer than anything takes here.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Whether a store can be mounted here; reports why not like a skipped test.
pub fn can_mount() -> bool {
    let can = is_root() && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        skip("it mounts a store, which needs root and /dev/fuse");
    }
    can
}

/// A sandbox with a store and a place to mount it at.
pub struct Place {
    pub sandbox: TempDir,
}

/// A running `granulo mount`.
pub struct Mounted {
    pub child: Child,
    pub root: PathBuf,
    log: PathBuf,
}

impl Place {
    /// `None`, with the reason reported, where nothing can be mounted.
    pub fn new() -> Option<Place> {
        Place::with(&[])
    }

    /// The same with options of `store init`.
    pub fn with(options: &[&str]) -> Option<Place> {
        let place = Place::empty()?;
        run(["store", "init"]
            .into_iter()
            .map(Into::into)
            .chain([place.store().into_os_string()])
            .chain(options.iter().map(Into::into)))
        .ended(0);
        Some(place)
    }

    /// Without a store.
    pub fn empty() -> Option<Place> {
        if !can_mount() {
            return None;
        }
        let place = Place { sandbox: sandbox() };
        fs::create_dir(place.target()).unwrap();
        Some(place)
    }

    pub fn store(&self) -> PathBuf {
        self.sandbox.path().join("store")
    }

    pub fn target(&self) -> PathBuf {
        self.sandbox.path().join("mnt")
    }

    pub fn mount(&self) -> Mounted {
        self.mount_with(&[])
    }

    /// Mounts it with further arguments.
    pub fn mount_with(&self, arguments: &[&str]) -> Mounted {
        Mounted::start(&self.store(), &self.target(), arguments)
    }

    /// Checks every byte of the store, which must be sound.
    #[track_caller]
    pub fn check(&self) {
        let checked = run(["store".as_ref(), "check".as_ref(), self.store().as_os_str(), "--deep".as_ref()]);
        checked.ended(0);
    }
}

/// Bytes in the segments of a store that is a directory.
pub fn segment_bytes(store: &Path) -> u64 {
    let segments = fs::read_dir(store.join("segments")).unwrap();
    segments.map(|segment| segment.unwrap().metadata().unwrap().len()).sum()
}

fn is_mounted(root: &Path) -> bool {
    let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).into_owned();
    mounts.lines().any(|line| line.split(' ').nth(4) == root.to_str() && line.contains("fuse.granulo"))
}

impl Mounted {
    pub fn start(store: &Path, target: &Path, arguments: &[&str]) -> Mounted {
        let log = target.with_extension("log");
        let mut command = granulo();
        command.arg("mount").args(["-o", "allow_other,suid,dev"]).args(arguments).arg(store).arg(target);
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let mut mounted = Mounted { child, root: target.to_owned(), log };
        let began = Instant::now();
        // The log says when it can be used.
        while !is_mounted(target) || !mounted.log().contains("mounted at") {
            let ended = mounted.child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "it is not mounted: {}", mounted.log());
            sleep(Duration::from_millis(5));
        }
        mounted
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Unmounts it, as a user would; all is durable then.
    #[track_caller]
    pub fn unmount(mut self) {
        let unmounted: Ran = finish(granulo().arg("unmount").arg(&self.root));
        unmounted.ended(0);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }

    /// SIGKILL; what remains is removed from the tree of names.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        detach(&self.root);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

fn detach(root: &Path) {
    if is_mounted(root) {
        let _ = Command::new("umount").arg("-l").arg(root).status();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            detach(&self.root);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        detach(&self.root);
    }
}
