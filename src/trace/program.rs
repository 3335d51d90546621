//! External programs that decode a recording. A missing one is reported with its package, a failed one with its own
//! output; the output is read as a stream.
//!
//! They run in a process group of their own, so that Ctrl-C reaches only granulo, and do not outlive their reader.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use super::input::{Input, OPERATION};
use crate::error::{Error, ErrorKind, Result};
use crate::units::escape;

/// Programs, and where to get them.
const PROGRAMS: [(&str, &str); 3] =
    [("tshark", "install the package tshark"), ("darshan-parser", DARSHAN), ("darshan-dxt-parser", DARSHAN)];
const DARSHAN: &str = "install darshan-util, in the version that wrote the log or a later one: 'spack install \
    darshan-util', or from https://github.com/darshan-hpc/darshan; or run 'darshan-parser --show-incomplete LOG' \
    where it is installed, and use its output";

/// Bytes of standard error that are kept.
const COMPLAINT_BYTES: u64 = 16 << 10;

/// A running program.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    child: Child,
    complaints: Option<JoinHandle<Vec<u8>>>,
    feeder: Option<JoinHandle<std::io::Result<()>>>,
}

/// Path of a program.
///
/// # Errors
/// [`ErrorKind::NotFound`], with where to get it.
pub(super) fn find(name: &'static str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|directory| directory.join(name));
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    places.find(runs).ok_or_else(|| {
        let error = Error::new(ErrorKind::NotFound, "run the program", "it is not in the PATH").at(name.as_ref());
        match PROGRAMS.iter().find(|(known, _)| *known == name) {
            Some((_, advice)) => error.advise(*advice),
            None => error,
        }
    })
}

impl Program {
    /// Starts a program that reads `feed`, or nothing; returns its output as an input, to which errors refer as `path`.
    ///
    /// # Errors
    /// If it cannot be found or started.
    pub(super) fn start<S: AsRef<OsStr>>(
        name: &'static str,
        arguments: impl IntoIterator<Item = S>,
        feed: Option<Input>,
        path: &Path,
    ) -> Result<(Program, Input)> {
        let found = find(name)?;
        let mut command = Command::new(&found);
        let stdin = if feed.is_some() { Stdio::piped() } else { Stdio::null() };
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).env("LC_ALL", "C.UTF-8");
        let mut child = command.spawn().map_err(|error| Error::io("run the program", &found, error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let complaints = stderr.map(|mut stderr| {
            std::thread::spawn(move || {
                let mut words = Vec::new();
                let _ = stderr.by_ref().take(COMPLAINT_BYTES).read_to_end(&mut words);
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
                words
            })
        });
        // A program that has read enough closes its end. Its exit status counts, not the failure to send it more.
        let feeder = feed.zip(child.stdin.take()).map(|(mut feed, mut stdin)| {
            std::thread::spawn(move || match std::io::copy(&mut feed, &mut stdin) {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
                _ => Ok(()),
            })
        });
        let program = Program { name, child, complaints, feeder };
        let Some(stdout) = stdout else { unreachable!("its output is piped") };
        Ok((program, Input::new(path, stdout, None)?))
    }

    /// Waits for its end; returns its last output if it failed.
    pub(super) fn end(mut self) -> std::result::Result<(), String> {
        let status = self.child.wait();
        let words = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        if let Some(Err(error)) = self.feeder.take().and_then(|thread| thread.join().ok()) {
            return Err(format!("reading failed: {}", crate::error::os_message(&error)));
        }
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!(
                "{}: {}",
                self.name,
                last_words(&words).unwrap_or_else(|| format!("it exited with {status}"))
            )),
            Err(error) => Err(format!("{}: {}", self.name, crate::error::os_message(&error))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; then both calls fail, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error of a recording that could not be decoded.
pub(super) fn failed(path: &Path, words: String) -> Error {
    Error::new(ErrorKind::Corrupt, OPERATION, words).at(path)
}

/// Last lines of a program's output, joined.
fn last_words(said: &[u8]) -> Option<String> {
    const LINES: usize = 3;
    let lines: Vec<String> =
        said.split(|&b| b == b'\n').map(|line| escape(line.trim_ascii())).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    (!last.is_empty()).then(|| last.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::input::Line;

    #[test]
    fn what_is_missing_is_named() {
        let error = find("granulo-no-such-program").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("granulo-no-such-program"), "{error}");
    }

    #[test]
    fn what_it_prints_is_read_and_its_last_words_are_kept() {
        let script = ["-c", "echo one; echo two; echo it is broken >&2; exit 3"];
        let (program, mut input) = Program::start("sh", script, None, Path::new("x")).unwrap();
        let mut line = Vec::new();
        assert_eq!((input.line(&mut line, 100).unwrap(), &line[..]), (Line::Whole, &b"one"[..]));
        assert_eq!((input.line(&mut line, 100).unwrap(), &line[..]), (Line::Whole, &b"two"[..]));
        assert_eq!(input.line(&mut line, 100).unwrap(), Line::End);
        assert_eq!(program.end(), Err("sh: it is broken".to_owned()));
    }

    #[test]
    fn it_is_fed_while_it_prints() {
        let text = b"a line\n".repeat(1_000_000);
        let feed = Input::of_bytes(text.clone()).unwrap();
        let (program, mut printed) = Program::start("cat", [""; 0], Some(feed), Path::new("x")).unwrap();
        let mut back = vec![0; text.len() + 1];
        assert_eq!(printed.fill(&mut back).unwrap(), text.len());
        assert_eq!((back[..text.len()] == text, program.end()), (true, Ok(())));
        // A program that does not read everything has not failed.
        let (program, _) =
            Program::start("true", [""; 0], Some(Input::of_bytes(text).unwrap()), Path::new("x")).unwrap();
        assert_eq!(program.end(), Ok(()));
    }

    #[test]
    fn what_is_not_read_to_its_end_does_not_stay() {
        let (program, input) = Program::start("sh", ["-c", "exec yes"], None, Path::new("x")).unwrap();
        let process = program.child.id();
        drop((program, input));
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
}
