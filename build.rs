//! Which commit the program is built from, for `granulo --version` and results: `GRANULO_BUILD`, empty if unknown.
//!
//! It is what the variable `GRANULO_COMMIT` says (for packagers; 1 to 64 letters, digits, `+`, `-`, `.` and `_`), else
//! what Cargo recorded in a package, else what git says of the tree: the commit, with `+changed` where files of the
//! program differ from it. A debug build only has what the variable says: otherwise each commit would compile the
//! library and its tests again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the program is made of.
const PARTS: [&str; 8] = [".cargo", "Cargo.lock", "Cargo.toml", "build.rs", "crates", "data", "src", "web"];
/// Digits of a commit that are kept.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GRANULO_COMMIT");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let is_debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let build = match env::var("GRANULO_COMMIT").ok().filter(|commit| is_plain(commit)) {
        Some(commit) => Some(commit),
        None if is_debug => None,
        None => of_package(&root).or_else(|| of_repository(&root)),
    };
    println!("cargo::rustc-env=GRANULO_BUILD={}", build.unwrap_or_default());
}

/// Whether it is a word that can be printed anywhere.
fn is_plain(commit: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_');
    (1..=64).contains(&commit.len()) && commit.bytes().all(plain)
}

fn named(commit: &str, is_changed: bool) -> Option<String> {
    let commit = commit.get(..DIGITS).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some(format!("{commit}{}", if is_changed { "+changed" } else { "" }))
}

/// What `cargo package` recorded: `{"git": {"sha1": "…", "dirty": true}, …}`.
fn of_package(root: &Path) -> Option<String> {
    let recorded = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let value = |name: &str| Some(recorded.split_once(&format!("\"{name}\""))?.1.trim_start_matches([':', ' ']));
    let commit = value("sha1")?.strip_prefix('"')?;
    named(commit, value("dirty").is_some_and(|is_dirty| is_dirty.starts_with("true")))
}

/// What git says, if it tracks this build script: the tree is then not only a part of somebody else's.
fn of_repository(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "HEAD"])?;
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    let parts = PARTS.into_iter().chain([log.as_str()]).map(|part| root.join(part));
    for part in parts.filter(|part| part.exists()) {
        println!("cargo::rerun-if-changed={}", part.display());
    }
    let changes = git(&[&["status", "--porcelain", "--"], &PARTS[..]].concat())?;
    named(&commit, !changes.is_empty())
}
