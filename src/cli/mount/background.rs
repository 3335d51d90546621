//! `granulo mount --background`: another process serves, and this one ends when the file system can be used.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;

use super::MountArguments;
use crate::cli::{Ended, output};
use crate::error::{Error, ErrorKind, Result};
use crate::program;

/// Where the system takes lines for its log, and what stands before one: the facility of daemons, a warning (RFC 3164).
const SYSTEM_LOG: &str = "/dev/log";
const PRIORITY: u8 = 3 * 8 + 4;
/// What the server says when it can be used.
const READY: &str = "ready";

/// Starts the server, and waits until it is ready or has failed: then it has said why.
pub(super) fn start(arguments: &MountArguments) -> Result<Ended> {
    let fail = |error| Error::io("start the server of", &arguments.store, error);
    let mut command = program::again();
    command.arg("mount").args(["--ready", READY]);
    command.args(["--threads", &arguments.threads.to_string()]);
    for options in &arguments.options {
        command.arg("-o").arg(options);
    }
    for device in &arguments.devices {
        command.arg("--device").arg(device);
    }
    for (option, every) in [("--commit-every", arguments.commit_every), ("--free-every", arguments.free_every)] {
        if let Some(every) = every {
            command.args([option, &format!("{}ns", every.as_nanos())]);
        }
    }
    if let Some(log) = &arguments.log {
        command.arg("--log").arg(log);
    }
    if let Some(snapshot) = &arguments.at {
        command.args(["--at", snapshot]);
    }
    if arguments.degraded {
        command.arg("--degraded");
    }
    command.args(arguments.reached.arguments()).args(arguments.put.arguments());
    command.arg("--").arg(&arguments.store).arg(&arguments.target);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let mut line = String::new();
    if let Some(said) = server.stdout.take() {
        BufReader::new(said).read_line(&mut line).map_err(fail)?;
    }
    if line.trim() == READY {
        return Ok(Ended::Well);
    }
    let status = server.wait().map_err(fail)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Ok(Ended::As(code)),
        _ => Err(Error::new(ErrorKind::Io, "mount", "the server ended early").at(&arguments.store)),
    }
}

/// The server outlives the session in which it was started.
pub(super) fn leave_session() {
    // It fails for the leader of a process group, which this is not.
    let _ = rustix::process::setsid();
}

/// Writes a line to the system's log, if there is one here.
pub(super) fn to_system_log(line: &str) {
    let line = format!("<{PRIORITY}>granulo[{}]: {line}", std::process::id());
    let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(line.as_bytes(), SYSTEM_LOG));
}

/// Says that the file system can be used. From then on nobody reads standard error: it goes to the log, if there is
/// one.
pub(super) fn is_ready(word: &str, log: Option<&File>) {
    let _ = output::print(|out| writeln!(out, "{word}"));
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    if let Ok(nowhere) = &nowhere {
        let _ = rustix::stdio::dup2_stdout(nowhere);
        log_to(log.unwrap_or(nowhere));
    }
    let _ = std::env::set_current_dir(Path::new("/"));
}

/// Standard error goes to a file.
pub(super) fn log_to(log: &File) {
    let _ = rustix::stdio::dup2_stderr(log);
}
