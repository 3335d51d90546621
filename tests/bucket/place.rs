//! A store in a bucket, from outside: an address of its own, the command that works on it, and a directory for files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use granulo_core::random::Random;
use tempfile::TempDir;

use crate::args;
use crate::harness::{Ran, finish, granulo, sandbox};
use crate::servers::Server;

/// How long anything may take on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A command without arguments behind the store.
pub const NO_MORE: [&str; 0] = [];

/// A store in a bucket of a server.
pub struct Place<'a> {
    pub server: &'a Server,
    pub sandbox: TempDir,
    /// The store's place in the bucket.
    pub prefix: String,
    made: AtomicU64,
}

/// Bytes that distinguish each object from the others.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

/// Waits until something is true, however slow this machine is.
#[track_caller]
pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl<'a> Place<'a> {
    /// A new store, with its large objects in the storage class for what is rarely read.
    pub fn new(server: &'a Server) -> Place<'a> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let place = Place::at(server, format!("store-{}-{number}", std::process::id()));
        place.run_on("init", NO_MORE).ended(0);
        place
    }

    /// What is there already.
    pub fn at(server: &'a Server, prefix: String) -> Place<'a> {
        Place { server, sandbox: sandbox(), prefix, made: AtomicU64::new(0) }
    }

    pub fn address(&self) -> String {
        format!("s3://{}/{}", self.server.setting("BUCKET"), self.prefix)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    /// A path that nothing has.
    pub fn new_path(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}-{}", self.made.fetch_add(1, Ordering::Relaxed)))
    }

    /// A program that finds the server by the environment, and nothing else that this machine has configured.
    pub fn with_server(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.envs(self.server.environment());
        command.env("HOME", self.sandbox.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command.env_remove("GRANULO_CACHE");
        for class in ["FAST_CLASS", "SLOW_CLASS"] {
            command.env(format!("GRANULO_{class}"), self.server.setting(class));
        }
        command.stdin(Stdio::null());
        command
    }

    /// `granulo store COMMAND ADDRESS …`
    pub fn command<S: AsRef<OsStr>>(&self, command: &str, rest: impl IntoIterator<Item = S>) -> Command {
        let mut granulo = self.with_server(granulo());
        granulo.args(["store", command]).arg(self.address()).args(rest);
        granulo
    }

    /// Runs a command of the store to its end; it may fail, but not panic.
    #[track_caller]
    pub fn run_on<S: AsRef<OsStr>>(&self, command: &str, rest: impl IntoIterator<Item = S>) -> Ran {
        let ran = finish(&mut self.command(command, rest));
        assert!(!ran.said().contains("panicked at") && ran.code.is_some(), "{command}: {ran:?}: {}", ran.said());
        ran
    }

    /// Arguments that put one object, from a file made for it.
    pub fn put_arguments(&self, key: &str, content: &[u8]) -> Vec<OsString> {
        let file = self.new_path("content");
        fs::write(&file, content).unwrap();
        args!["--quiet", "--wait=300s", key, file]
    }

    #[track_caller]
    pub fn put(&self, key: &str, content: &[u8]) -> Ran {
        self.run_on("put", self.put_arguments(key, content))
    }

    /// Starts a command that somebody will kill.
    pub fn start<S: AsRef<OsStr>>(&self, command: &str, rest: impl IntoIterator<Item = S>) -> Child {
        self.command(command, rest).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Exports everything into a new directory.
    #[track_caller]
    pub fn export(&self) -> PathBuf {
        let target = self.new_path("export");
        self.run_on("export", args!["--quiet", &target]).ended(0);
        target
    }

    /// Every byte is right.
    #[track_caller]
    pub fn check(&self) {
        self.run_on("check", ["--deep"]).ended(0);
    }
}

/// Files below a directory by their paths from there, with their bytes.
pub fn contents(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
