//! What every test needs: a directory of its own, the built command, and its output.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory that is removed after the test. Everybody may enter it, for the tests that run as another user.
pub fn sandbox() -> TempDir {
    sandbox_in(&std::env::temp_dir())
}

/// The same in memory, where that is available: for trees of many files.
pub fn sandbox_for_many() -> TempDir {
    let memory = Path::new("/dev/shm");
    let usable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    if usable { sandbox_in(memory) } else { sandbox() }
}

fn sandbox_in(parent: &Path) -> TempDir {
    let directory = tempfile::Builder::new().prefix("granulo-it-").tempdir_in(parent).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Reports why a test cannot run here, even when the output of tests is captured; fails it where everything must run.
pub fn skip(why: &str) {
    let all = std::env::var_os("GRANULO_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!all, "GRANULO_REQUIRE_ALL=1, and this test cannot run: {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Reports that this kernel cannot do what a test needs. That is no failure where everything must run: it cannot be
/// installed.
pub fn skip_on_this_kernel(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Whether a program is installed.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(name).is_file())
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The built command.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_granulo"))
}

/// The built command, with nothing on standard input and no colour settings in the environment.
pub fn granulo() -> Command {
    without_wishes(Command::new(binary()))
}

pub fn without_wishes(mut command: Command) -> Command {
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The built command as a user other than root; a copy of it is placed in `sandbox`. `None`, with the reason reported,
/// where that is not possible.
pub fn granulo_as_nobody(sandbox: &TempDir) -> Option<Command> {
    if !is_root() {
        return Some(granulo());
    }
    if !has_program("setpriv") {
        skip("root may do everything, and there is no setpriv to become somebody else");
        return None;
    }
    let copy = sandbox.path().join("granulo");
    // By another process: a test that forks while this one has the copy open for writing would keep it from being
    // executed.
    assert!(Command::new("cp").arg(binary()).arg(&copy).status().unwrap().success(), "cp");
    let mut command = without_wishes(Command::new("setpriv"));
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    Some(command)
}

/// The exit status and output of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran { code: output.status.code(), stdout: output.stdout, stderr: output.stderr }
    }
}

impl Ran {
    /// Fails unless it ended with `code`, and without a panic.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        let said = self.said();
        assert!(!said.contains("panicked at"), "it panicked: {said}");
        assert_eq!(self.code, Some(code), "standard error: {said}\nstandard output: {}", self.text());
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Runs a prepared command to its end.
#[track_caller]
pub fn finish(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

/// Runs `granulo` with arguments.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    finish(granulo().args(arguments))
}

/// The output of `granulo survey --json ARGUMENTS`; it must end well without messages.
#[track_caller]
pub fn survey<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Value {
    let ran = finish(granulo().args(["survey", "--json"]).args(arguments)).ended(0);
    assert_eq!(ran.said(), "");
    ran.json()
}

/// Arguments of several string types.
#[macro_export]
macro_rules! args {
    ($($argument:expr),* $(,)?) => {
        vec![$(std::ffi::OsString::from($argument)),*]
    };
}

/// A file of `size` bytes, with the directories above it.
pub fn write_file(path: impl AsRef<Path>, size: usize) -> PathBuf {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![b'x'; size]).unwrap();
    path.to_owned()
}

/// `directories` directories with `files` empty files each, as `d0/f0`, …
pub fn wide_tree(root: &Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let directory = root.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..files {
            fs::File::create(directory.join(format!("f{file}"))).unwrap();
        }
    }
}

/// Differences between two documents, as `/pointer: one, other`; the first few.
pub fn differences(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(one, other, String::new(), &mut found);
    found.truncate(12);
    found
}

fn collect(one: &Value, other: &Value, at: String, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let missing = Value::from("(missing)");
                let (x, y) = (a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing));
                collect(x, y, format!("{at}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(i, (x, y))| collect(x, y, format!("{at}/{i}"), found));
        }
        _ if one == other => {}
        _ => found.push(format!("{at}: {one}, {other}")),
    }
}

/// Fails where two surveys differ in anything but their start, their duration, the room on their file systems, and the
/// fields in `but`.
#[track_caller]
pub fn assert_same(one: &Value, other: &Value, but: &[&str]) {
    let strip = |document: &Value| {
        let mut document = document.clone();
        let fields = document.as_object_mut().unwrap();
        for field in ["taken_at", "elapsed_seconds", "machines"].iter().chain(but) {
            fields.remove(*field);
        }
        document
    };
    let found = differences(&strip(one), &strip(other));
    assert!(found.is_empty(), "they differ:\n{}", found.join("\n"));
}

/// Runs a shell script as root of a separate mount namespace, so that its mounts disappear with it. `None`, with the
/// reason reported, where that is not possible. `$GRANULO` is the command; `arguments` are `$1`, `$2`, …
pub fn in_mount_namespace(script: &str, arguments: &[OsString]) -> Option<Ran> {
    let unshare = || {
        let mut command = without_wishes(Command::new("unshare"));
        command.arg("--mount");
        if !is_root() {
            command.arg("--map-root-user");
        }
        command.env("GRANULO", binary());
        command
    };
    let probe_at = sandbox();
    let probe =
        unshare().args(["sh", "-c", "mount -t tmpfs -o size=64k tmpfs \"$1\"", "sh"]).arg(probe_at.path()).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        skip("it mounts file systems, which needs root (or user namespaces) and the program unshare");
        return None;
    }
    let script = format!("set -e\n{script}");
    Some(finish(unshare().args(["sh", "-c", &script, "sh"]).args(arguments)))
}

/// The root of the source tree.
pub fn source_tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `directory` with this extension, sorted.
pub fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Compares with `tests/golden/NAME`, or rewrites the file when `GRANULO_UPDATE_GOLDEN=1`.
#[track_caller]
pub fn assert_golden(name: &str, text: &str) {
    let path = source_tree().join("tests/golden").join(name);
    if std::env::var_os("GRANULO_UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        return fs::write(path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if let Some((number, (new, old))) = (1..).zip(text.lines().zip(expected.lines())).find(|(_, (new, old))| new != old)
    {
        panic!("{name}, line {number}:\n  golden: {old}\n  now:    {new}\n(GRANULO_UPDATE_GOLDEN=1 accepts it)");
    }
    assert_eq!(text, expected, "{name} (GRANULO_UPDATE_GOLDEN=1 accepts it)");
}

/// Asserts a message for a person: one line with these parts.
#[track_caller]
pub fn complains(ran: &Ran, parts: &[&str]) {
    let said = ran.said();
    assert!(said.starts_with("granulo: error: ") || said.starts_with("error: "), "{said}");
    assert!(!said.contains("os error") && !said.contains("Error {"), "{said}");
    for part in parts {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}
