//! `granulo trace record --mount`: all operations on the files of a mount, until Ctrl-C or the end of a command.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::{Counting, TraceOutput, pass, show, write_report};
use crate::cli::{Ended, output, signals};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::survey::machine::host;
use crate::trace::fanotify::Recording;
use crate::trace::summary::typed;
use crate::units::escape_path;

/// What the arguments request.
pub(super) struct Live<'a> {
    pub mount: &'a Path,
    pub command: &'a [OsString],
    pub output: Option<&'a Path>,
    /// Where its page goes.
    pub report: Option<&'a Path>,
    pub counting: &'a Counting,
    pub json: bool,
}

impl Live<'_> {
    /// Records; returns the status of the command, if there is one.
    pub(super) fn run(&self) -> Result<(Ended, Option<ExitStatus>)> {
        let stop = signals::watch()?;
        let recording = Recording::start(self.mount, stop.clone())?.on_host(host());
        let recording = match self.command {
            [] => recording,
            command => recording.with_command(typed(command)),
        };
        let below = escape_path(recording.below());
        let name = if self.command.is_empty() { below.clone() } else { typed(self.command) };
        let mut source = self.counting.of(Box::new(recording), None)?;
        let source = &mut *source;
        let mut target = self.output.map(|path| TraceOutput::create(path, source)).transpose()?;
        let command = match self.command {
            [] => {
                output::note(&format!("recording file operations below {below}; press Ctrl-C to stop"));
                None
            }
            command => Some(until_it_ends(command, self.json, stop.clone())?),
        };
        // The source ends by itself when the flag is set, with what happened until then.
        let summary = pass(source, self.counting.options(), target.as_mut(), &Progress::default(), false)?;
        let status = command.map(wait).transpose()?;
        let is_written = target.is_some();
        target.map_or(Ok(()), |target| target.finish(source))?;
        if let Some(page) = self.report {
            write_report(page, &name, &summary, source)?;
        }
        if self.json || !is_written && summary.operations > 0 {
            show(&name, &summary, source, self.json)?;
        } else if !is_written {
            output::note(&format!("no file below {below} was opened or closed"));
        }
        Ok((Ended::Well, status))
    }
}

/// Starts a command, with its standard output on standard error if `quiet`; `stop` is set when it ends.
fn until_it_ends(
    command: &[OsString],
    quiet: bool,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<std::io::Result<ExitStatus>>> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]);
    if quiet {
        started.stdout(std::io::stderr());
    }
    let child = started.spawn();
    let mut child: Child = child.map_err(|error| Error::io("run", command[0].as_ref(), error))?;
    Ok(std::thread::spawn(move || {
        let status = child.wait();
        stop.store(true, Ordering::Relaxed);
        status
    }))
}

fn wait(command: JoinHandle<std::io::Result<ExitStatus>>) -> Result<ExitStatus> {
    let failed = || Error::new(ErrorKind::Io, "record the trace", "could not wait for the command");
    command.join().map_err(|_| failed())?.map_err(|_| failed())
}
