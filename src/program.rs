//! This program: which build it is, and how it is started again, since a mount is served by a process of its own.
//!
//! Normally that is the executable of this process. Where the command runs inside another program, such as the
//! interpreter that the Python package uses, that program says how it starts the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// The release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of which it is a build, followed by `+changed` where the tree differed from it; `None` if unknown, as of
/// a debug build.
pub(crate) fn commit() -> Option<&'static str> {
    Some(env!("GRANULO_BUILD")).filter(|build| !build.is_empty())
}

/// Release and commit, for people.
pub(crate) fn version() -> String {
    match commit() {
        Some(commit) => format!("{VERSION} ({commit})"),
        None => VERSION.to_owned(),
    }
}

/// A program and its first arguments.
static STARTED_BY: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says by which program and first arguments the command is started, if not by the executable of this process. What is
/// said first counts.
pub(crate) fn is_started_by(words: Vec<OsString>) {
    let _ = STARTED_BY.set(words);
}

/// The command, to which arguments are added.
pub(crate) fn again() -> Command {
    match STARTED_BY.get().map(Vec::as_slice) {
        Some([program, first @ ..]) => {
            let mut command = Command::new(program);
            command.args(first);
            command
        }
        _ => {
            let mut command = Command::new("/proc/self/exe");
            command.arg0("granulo");
            command
        }
    }
}
