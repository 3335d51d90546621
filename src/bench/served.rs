//! A program that serves a file system: started, waited for until it is mounted, and, after it is unmounted, until the
//! program has ended. Only then is everything written that it held back.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{programs, volume};
use crate::error::{Error, ErrorKind, Result};

/// Time limit for a program to serve its file system, and to end after it is unmounted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that serves a file system in the foreground, or had put itself in the background.
#[derive(Debug)]
pub(super) struct Server {
    child: Option<Child>,
}

impl Server {
    /// Starts a program, called `name` in errors, and waits until something is mounted at `point`. What it says goes to
    /// `log`. One that does not stay in the foreground ends when it has mounted.
    ///
    /// # Errors
    /// The last words of the program, if it ends first or takes too long.
    pub(super) fn start(mut command: Command, name: &str, point: &Path, log: &Path, stays: bool) -> Result<Server> {
        const OPERATION: &str = "mount the file system";
        let fail = |error| Error::io(OPERATION, log, error);
        let out = File::create(log).map_err(fail)?;
        command.stdout(out.try_clone().map_err(fail)?).stderr(out);
        let mut child = command.spawn().map_err(|error| Error::io("run", name.as_ref(), error))?;
        let started = Instant::now();
        loop {
            let ended = child.try_wait().map_err(fail)?;
            if volume::mounts_below(point)?.iter().any(|mount| mount.point == point) {
                break;
            }
            if ended.is_some_and(|status| stays || !status.success()) || started.elapsed() > PATIENCE {
                let status = child.kill().and_then(|()| child.wait()).map_err(fail)?;
                let said = fs::read(log).unwrap_or_default();
                let cause = format!("{name} failed: {}", programs::last_words(&said, status));
                return Err(Error::new(ErrorKind::Io, OPERATION, cause));
            }
            sleep(Duration::from_millis(10));
        }
        if !stays {
            child.wait().map_err(fail)?;
            return Ok(Server { child: None });
        }
        Ok(Server { child: Some(child) })
    }

    /// Waits until it has ended, after it was unmounted; kills it if it does not.
    pub(super) fn wait(self) {
        let Some(mut child) = self.child else { return };
        let started = Instant::now();
        while child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if started.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
            }
            sleep(Duration::from_millis(5));
        }
    }
}
