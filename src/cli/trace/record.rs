//! `granulo trace record`: runs a command under strace and records its file operations.
//!
//! strace writes to a pipe of granulo's, which it opens by its name in /proc, so the command inherits nothing. Signals
//! from the terminal reach the command directly, others are forwarded. granulo ends with the command's status.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::live::Live;
use super::{Counting, TraceOutput, pass, show, write_report};
use crate::cli::{Ended, output};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{AtomicFile, open_target};
use crate::progress::Progress;
use crate::survey::machine::host;
use crate::trace::summary::typed;
use crate::trace::{Input, strace};
use crate::units::escape_path;

/// Calls that are recorded; calls unknown to the installed strace are skipped.
const CALLS: [&str; 104] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "fcntl64",
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "lseek",
    "_llseek",
    "mmap",
    "mmap2",
    "sendfile",
    "sendfile64",
    "copy_file_range",
    "splice",
    "stat",
    "lstat",
    "fstat",
    "stat64",
    "lstat64",
    "fstat64",
    "newfstatat",
    "fstatat64",
    "statx",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "getdents",
    "getdents64",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "unlink",
    "unlinkat",
    "rmdir",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "truncate",
    "ftruncate",
    "truncate64",
    "ftruncate64",
    "fallocate",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "fsync",
    "fdatasync",
    "sync",
    "sync_file_range",
    "syncfs",
    "execve",
    "execveat",
    "fork",
    "vfork",
    "clone",
    "clone3",
    "chdir",
    "fchdir",
    "pipe2",
    "socket",
    "io_uring_setup",
    "io_uring_enter",
    "io_submit",
];

/// Run a command and record its file operations
///
/// The command and all its child processes run under strace, which makes system calls about two to ten times slower.
/// Its output is unchanged, and granulo returns its exit status.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo trace record -o make.gtrace -- make -j2\n  granulo trace read make.gtrace --below .\n  \
    granulo trace record -- cp a b\n  granulo trace record --mount /srv -o day.gtrace\n\nExit status: that of the command; 2 if it could not be traced."
)]
pub(super) struct RecordArguments {
    /// Write the trace to this file, in the .gtrace format; without it, only a summary is printed
    #[arg(short, long, value_name = "FILE.gtrace", value_parser = output::target())]
    output: Option<PathBuf>,
    /// Record the file operations of all processes on the mount of this path, at or below it, until Ctrl-C or the end
    /// of COMMAND; needs root, slows nothing down, but sees only whole-file operations
    #[arg(long, value_name = "PATH", conflicts_with = "keep_strace")]
    mount: Option<PathBuf>,
    /// Also keep the output of strace in this file
    #[arg(long, value_name = "FILE", value_parser = output::target())]
    keep_strace: Option<PathBuf>,
    #[command(flatten)]
    counting: Counting,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", value_parser = output::target())]
    report: Option<PathBuf>,
    /// Print the summary as JSON; the standard output of COMMAND goes to standard error
    #[arg(long)]
    json: bool,
    /// Command to run
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "mount")]
    command: Vec<OsString>,
}

impl RecordArguments {
    pub(super) fn run(self) -> Result<Ended> {
        const OPERATION: &str = "record the trace";
        if let Some(mount) = &self.mount {
            let Self { command, output, counting, json, report, .. } = &self;
            let (output, report) = (output.as_deref(), report.as_deref());
            let live = Live { mount, command, output, report, counting, json: *json };
            let (well, status) = live.run()?;
            return Ok(status.map_or(well, ended));
        }
        let fail = |error| Error::io(OPERATION, "strace".as_ref(), error);
        let (reader, writer) = io::pipe().map_err(fail)?;
        let kept = self.keep_strace.as_deref();
        let (kept, kept_target) = kept.map(open_target).transpose()?.unzip();
        let out = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
        let calls: Vec<String> = CALLS.iter().map(|call| format!("?{call}")).collect();
        let mut strace = Command::new("strace");
        strace.args(["-f", "--seccomp-bpf", "-q", "-ttt", "-T", "-y", "-s", "0", "-e", "signal=none", "-e"]);
        strace.arg(format!("trace={}", calls.join(","))).args(["-o", &out, "--"]).args(&self.command);
        if self.json {
            // Standard output is for the document alone.
            strace.stdout(io::stderr());
        }
        let first_pid = Arc::new(AtomicI32::new(0));
        pass_signals_on(first_pid.clone()).map_err(fail)?;
        let mut child = strace.spawn().map_err(|error| {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let error = fail(error);
            if missing { error.advise("install the package strace") } else { error }
        })?;
        // The pipe ends with strace; until then something must hold it open, because strace opens it later.
        let waiting = std::thread::spawn(move || {
            let status = child.wait();
            drop(writer);
            status
        });
        let heard = first_pid.clone();
        let stream = StraceOutput { stream: reader, kept, digits: Some(String::new()), first_pid };
        let source = strace::Reader::new(Input::new("strace".as_ref(), stream, None)?)
            .with_command(typed(&self.command))
            .on_host(host());
        let mut source = self.counting.of(Box::new(source), None)?;
        let source = &mut *source;
        let mut target = self.output.as_deref().map(|path| TraceOutput::create(path, source)).transpose()?;
        let summary = pass(source, self.counting.options(), target.as_mut(), &Progress::default(), true)?;
        let status = waiting.join().map_err(|_| Error::new(ErrorKind::Io, OPERATION, "could not wait for strace"))?;
        let status = status.map_err(fail)?;
        // It names a process as soon as the command runs, whatever of it is kept.
        if heard.load(Ordering::Relaxed) == 0 && !status.success() {
            let cause = format!("strace could not run the command ({status}); see its message above");
            return Err(Error::new(ErrorKind::Io, OPERATION, cause));
        }
        if let Some(path) = &self.keep_strace {
            kept_target.flatten().map_or(Ok(()), AtomicFile::commit)?;
            output::note(&format!("kept the output of strace in {}", escape_path(path)));
        }
        let is_written = target.is_some();
        target.map_or(Ok(()), |target| target.finish(source))?;
        if let Some(page) = &self.report {
            write_report(page, &typed(&self.command), &summary, source)?;
        }
        if self.json || !is_written {
            show(&typed(&self.command), &summary, source, self.json)?;
        }
        Ok(ended(status))
    }
}

/// As shells report it: a signal is 128 plus its number.
fn ended(status: ExitStatus) -> Ended {
    match status.code().or(status.signal().map(|signal| 128 + signal)) {
        Some(0) => Ended::Well,
        Some(code) => Ended::As(code as u8),
        None => Ended::Amiss,
    }
}

/// The output of strace, with a copy if one is requested, and the first process that it names.
struct StraceOutput {
    stream: io::PipeReader,
    kept: Option<File>,
    /// The digits of its number so far, until another character follows.
    digits: Option<String>,
    first_pid: Arc<AtomicI32>,
}

impl Read for StraceOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        if let Some(file) = &mut self.kept {
            file.write_all(&buffer[..read])?;
        }
        self.look_for_pid(&buffer[..read]);
        Ok(read)
    }
}

impl StraceOutput {
    /// A line begins with the number of its process; it may arrive in pieces.
    fn look_for_pid(&mut self, bytes: &[u8]) {
        let Some(digits) = &mut self.digits else { return };
        let more = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits.extend(bytes[..more].iter().map(|&byte| char::from(byte)));
        if more < bytes.len() {
            self.first_pid.store(digits.parse().unwrap_or(0), Ordering::Relaxed);
            self.digits = None;
        }
    }
}

/// Forwards signals to the command. strace protects itself from them; those that a terminal sends reach the command
/// directly.
fn pass_signals_on(first_pid: Arc<AtomicI32>) -> io::Result<()> {
    let at_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let by_terminal = at_terminal && [SIGINT, SIGQUIT].contains(&signal);
            let pid = Pid::from_raw(first_pid.load(Ordering::Relaxed).max(0));
            if let (Some(pid), Some(signal), false) = (pid, Signal::from_named_raw(signal), by_terminal) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    Ok(())
}
