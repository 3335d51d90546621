//! Programs that a bench runs. A missing one is reported with its package, a failed one with its own output.
//!
//! They run in a process group of their own, so that Ctrl-C reaches only granulo, which then stops cleanly. Their
//! standard input is the lock of the scratch directory: while one of them works on an image, no other run takes that
//! for a left-over.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::result::Tool;
use crate::error::{Error, ErrorKind, Result};
use crate::units::escape;

/// Programs with their Debian packages, and the argument that prints their version.
const PROGRAMS: [(&str, &str, &str); 22] = [
    ("mkfs.ext2", "e2fsprogs", "-V"),
    ("mkfs.ext3", "e2fsprogs", "-V"),
    ("mkfs.ext4", "e2fsprogs", "-V"),
    ("e2fsck", "e2fsprogs", "-V"),
    ("mkfs.xfs", "xfsprogs", "-V"),
    ("xfs_repair", "xfsprogs", "-V"),
    ("mkfs.btrfs", "btrfs-progs", "-V"),
    ("mkfs.ntfs", "ntfs-3g", "-V"),
    ("ntfs-3g", "ntfs-3g", "--version"),
    ("mkfs.fat", "dosfstools", "--help"),
    ("fusefat", "fusefat", "-V"),
    ("mkfs.exfat", "exfatprogs", "-V"),
    ("mount.exfat-fuse", "exfat-fuse", "-V"),
    ("losetup", "util-linux", "-V"),
    ("mount", "util-linux", "-V"),
    ("fusermount3", "fuse3", "-V"),
    ("btrfs", "btrfs-progs", "--version"),
    ("fsck.fat", "dosfstools", "--help"),
    ("fsck.exfat", "exfatprogs", "-V"),
    ("cc", "gcc", "--version"),
    ("cp", "coreutils", "--version"),
    ("sh", "dash", "--version"),
];

/// Path of a program.
///
/// # Errors
/// [`ErrorKind::NotFound`], with the package to install.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|directory| directory.join(program));
    places.find(|path| path.is_file()).ok_or_else(|| {
        let error = Error::new(ErrorKind::NotFound, "run the program", "it is not in the PATH");
        let error = error.at(program.as_ref());
        match PROGRAMS.iter().find(|(name, ..)| *name == program) {
            Some((_, package, _)) => error.advise(format!("install the package {package}")),
            None => error,
        }
    })
}

/// Version that a program reports; empty if it reports none.
pub(crate) fn version(program: &str) -> Tool {
    let argument = PROGRAMS.iter().find(|(name, ..)| *name == program).map_or(&"--version", |(.., argument)| argument);
    // The programs of dosfstools do not report it, except this one.
    let (asked, argument) = if program.ends_with(".fat") { ("fatlabel", "--version") } else { (program, *argument) };
    let said = find(asked).ok().and_then(|path| Command::new(path).arg(argument).stdin(Stdio::null()).output().ok());
    let said = said.map(|output| [output.stdout, b"\n".to_vec(), output.stderr].concat()).unwrap_or_default();
    // Some print pages of help; the version is on a line that begins with the program's name, or is the only one with a
    // point in a number.
    let said = String::from_utf8_lossy(&said).into_owned();
    let has_version = |line: &&str| {
        let digits = |text: &str| text.chars().next().is_some_and(|c| c.is_ascii_digit());
        let numbers = line.split([' ', 'v']).filter(|word| digits(word) && word.contains('.'));
        line.len() < 100 && !line.starts_with([' ', '-', '\t']) && numbers.count() > 0
    };
    let line = said.lines().find(has_version).map(|line| escape(line.trim().as_bytes()));
    Tool { name: program.to_owned(), version: line.unwrap_or_default() }
}

/// A command that is ready to run: not reached by Ctrl-C, and holding the lock of the scratch directory.
pub(super) fn command(program: &str, lock: &File) -> Result<Command> {
    let mut command = Command::new(find(program)?);
    let lock = lock.try_clone().map_err(|error| Error::io("run the program", program.as_ref(), error))?;
    command.process_group(0).stdin(lock).env("LC_ALL", "C").env_remove("POSIXLY_CORRECT");
    Ok(command)
}

/// Runs a program to its end; returns its output.
///
/// # Errors
/// Its last lines on standard error, if it fails.
pub(super) fn run<S: AsRef<OsStr>>(
    operation: &'static str,
    program: &str,
    arguments: impl IntoIterator<Item = S>,
    lock: &File,
) -> Result<String> {
    let arguments: Vec<OsString> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
    let mut command = command(program, lock)?;
    let output = command.args(&arguments).output().map_err(|error| Error::io("run", program.as_ref(), error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut typed = program.to_owned();
    for argument in &arguments {
        typed.push(' ');
        typed.push_str(&crate::units::escape_path(argument.as_ref()));
    }
    let said = if output.stderr.iter().all(u8::is_ascii_whitespace) { output.stdout } else { output.stderr };
    Err(Error::new(ErrorKind::Io, operation, format!("'{typed}' failed: {}", last_words(&said, output.status))))
}

/// Last lines of a program's output, joined.
pub(super) fn last_words(said: &[u8], status: std::process::ExitStatus) -> String {
    const LINES: usize = 3;
    let said = String::from_utf8_lossy(said);
    let lines: Vec<String> =
        said.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| escape(line.as_bytes())).collect();
    match &lines[lines.len().saturating_sub(LINES)..] {
        [] => format!("it exited with {status}"),
        last => last.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let error = find("granulo-no-such-program").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("granulo-no-such-program"), "{error}");
    }

    #[test]
    fn a_failure_has_the_words_of_the_program() {
        let lock = tempfile::tempfile().unwrap();
        let error = run("try", "sh", ["-c", "printf m%sh uc; echo 'it is broken' >&2; exit 3"], &lock).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("it is broken") && !text.contains("much"), "{text}");
        assert_eq!(run("try", "sh", ["-c", "echo done"], &lock).unwrap(), "done\n");
        let silent = run("try", "sh", ["-c", "exit 3"], &lock).unwrap_err();
        assert!(silent.to_string().contains("exit status: 3"), "{silent}");
    }
}
