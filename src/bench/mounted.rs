//! A store that is mounted as a file system, by this program in a process of its own: what programs that open files
//! get from it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::scratch::unmount_at;
use super::served::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::program;
use crate::store::{Plan, Store};

/// A store and its mount point. Dropping it unmounts it.
#[derive(Debug)]
pub(super) struct Mounted {
    home: PathBuf,
    plan: Plan,
    point: PathBuf,
    log: PathBuf,
    server: Option<Server>,
}

impl Mounted {
    /// Creates a store at `home` and mounts it below `directory`.
    ///
    /// # Errors
    /// Errors from creating the store; the last words of the process that serves it.
    pub(super) fn create(directory: &Path, home: &Path, plan: Plan) -> Result<Mounted> {
        let mut mounted = Mounted {
            home: home.to_owned(),
            plan,
            point: directory.join("mount"),
            log: directory.join("log"),
            server: None,
        };
        mounted.create_again()?;
        Ok(mounted)
    }

    /// Creates and mounts it where it was before.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub(super) fn create_again(&mut self) -> Result<()> {
        Store::create(&self.home, &self.plan)?;
        fs::create_dir(&self.point).map_err(|error| Error::io("create the directory", &self.point, error))?;
        self.mount()
    }

    /// The mount point.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Mounts it again after [`unmount`](Self::unmount).
    ///
    /// # Errors
    /// The last words of the process that serves it.
    pub(super) fn mount(&mut self) -> Result<()> {
        let mut command = program::again();
        // It survives if this process is killed, so it must not hold the lock of the run.
        command.process_group(0).stdin(Stdio::null()).arg("mount").arg(&self.home).arg(&self.point);
        self.server = Some(Server::start(command, "granulo mount", &self.point, &self.log, true)?);
        Ok(())
    }

    /// Unmounts it, and waits until everything is durable. No file below it may be open.
    ///
    /// # Errors
    /// Errors from unmounting.
    pub(super) fn unmount(&mut self) -> Result<()> {
        if self.server.is_some() {
            unmount_at(&self.point)?;
        }
        // Only now, so that another attempt is possible after an error.
        if let Some(server) = self.server.take() {
            server.wait();
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What cannot be unmounted now is cleared away by the next run.
        let _ = self.unmount();
    }
}

/// Whether this program can mount a store.
///
/// # Errors
/// [`ErrorKind::Usage`] if it was built without that.
pub(super) fn check() -> Result<()> {
    match cfg!(feature = "fuse") {
        true => Ok(()),
        false => {
            let error = Error::new(ErrorKind::Usage, "mount a store", "this granulo was built without mounts");
            Err(error.advise("build it with the feature fuse"))
        }
    }
}
