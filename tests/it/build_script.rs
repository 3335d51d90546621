//! The build script: which commit the program is a build of, in a repository, in a package, and in neither.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{has_program, sandbox, skip, source_tree};

/// What the script compiled to `script` says in `root` of a release build, with more of the environment.
fn said(script: &Path, root: &Path, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(script);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("CARGO_MANIFEST_DIR", root);
    command.env("PROFILE", "release").envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=GRANULO_BUILD="));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_build_knows_its_commit_and_whether_it_was_changed() {
    if !has_program("rustc") || !has_program("git") {
        return skip("there is no rustc or no git");
    }
    let sandbox = sandbox();
    let (script, root) = (sandbox.path().join("script"), sandbox.path().join("tree"));
    let source = source_tree().join("build.rs");
    let compiled = Command::new("rustc").args(["--edition", "2024", "-o"]).args([&script, &source]).status().unwrap();
    assert!(compiled.success());
    fs::create_dir_all(root.join("src")).unwrap();
    fs::copy(source, root.join("build.rs")).unwrap();
    fs::write(root.join("src/main.rs"), "fn main() {}").unwrap();
    // No repository, or one that is not the program's.
    assert_eq!(said(&script, &root, &[]), "");
    let git = |arguments: &[&str]| {
        let author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let run = Command::new("git").arg("-C").arg(&root).args(author).args(arguments).output().unwrap();
        assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    assert_eq!(said(&script, &root, &[]), "");
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    let commit = git(&["rev-parse", "HEAD"])[..12].to_owned();
    assert_eq!(said(&script, &root, &[]), commit);
    fs::write(root.join("notes"), "not of the program").unwrap();
    assert_eq!(said(&script, &root, &[]), commit);
    fs::write(root.join("src/main.rs"), "fn main() { }").unwrap();
    assert_eq!(said(&script, &root, &[]), format!("{commit}+changed"));
    assert_eq!(said(&script, &root, &[("PROFILE", "debug")]), "");
    assert_eq!(said(&script, &root, &[("PROFILE", "debug"), ("GRANULO_COMMIT", "v1.2-3")]), "v1.2-3");
    assert_eq!(said(&script, &root, &[("GRANULO_COMMIT", "a\x1bb")]), format!("{commit}+changed"));
    // A package records what it was made from.
    let recorded = |extra: &str| format!("{{\n  \"git\": {{\n    \"sha1\": \"{}\"{extra}\n  }}\n}}", "ab".repeat(20));
    fs::write(root.join(".cargo_vcs_info.json"), recorded("")).unwrap();
    assert_eq!(said(&script, &root, &[]), "abababababab");
    fs::write(root.join(".cargo_vcs_info.json"), recorded(",\n    \"dirty\": true")).unwrap();
    assert_eq!(said(&script, &root, &[]), "abababababab+changed");
}
