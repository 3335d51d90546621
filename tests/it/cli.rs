//! Output generated from the definitions of the arguments: help, version, completions, man pages.

use std::fs;
use std::process::{Command, Stdio};

use crate::args;
use crate::harness::{finish, granulo, has_program, run, sandbox, skip, write_file};

/// The commands that the help lists.
pub fn commands() -> Vec<String> {
    let help = run(["--help"]).ended(0).text();
    let groups = help.split("\nOptions:\n").next().unwrap();
    let named =
        groups.lines().filter(|line| line.starts_with("  ")).map(|line| line.split_whitespace().next().unwrap());
    let commands: Vec<String> = named.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(commands.len() >= 17, "{commands:?}");
    commands
}

#[test]
fn the_version_is_that_of_the_package() {
    let expected = format!("granulo {}", env!("CARGO_PKG_VERSION"));
    let said = run(["--version"]).ended(0).text();
    let commit = said.trim_end().strip_prefix(&expected).unwrap();
    assert!(commit.is_empty() || commit.starts_with(" (") && commit.ends_with(')'), "{said}");
    assert_eq!(run(["survey", "--version"]).ended(0).text(), said);
    assert_eq!(run(["store", "init", "--version"]).ended(0).text(), said);
}

#[test]
fn every_command_has_help_that_says_what_it_does() {
    for command in commands() {
        let short = run([command.as_str(), "-h"]).ended(0).text();
        let long = run([command.as_str(), "--help"]).ended(0).text();
        let first = long.lines().next().unwrap().to_owned();
        assert!(first.len() > 20 && first.len() <= 100, "{command}: {first}");
        assert!(short.starts_with(&first), "{command}");
        assert!(long.contains(&format!("Usage: granulo {command}")), "{command}: {long}");
    }
}

#[test]
fn completions_are_scripts_that_name_every_command() {
    let sandbox = sandbox();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).ended(0).stdout;
        let text = String::from_utf8(script.clone()).unwrap();
        for command in commands() {
            assert!(text.contains(&command), "the completions of {shell} do not know {command}");
        }
        assert!(text.contains("one-file-system"), "{shell}");
        let file = sandbox.path().join(shell);
        fs::write(&file, script).unwrap();
        if shell != "bash" && !has_program(shell) {
            // Only the text was checked; its syntax is not, where the shell is not installed.
            continue;
        }
        if !has_program(shell) {
            return skip("there is no bash to check the completions with");
        }
        let checked = Command::new(shell).arg("-n").arg(&file).stdin(Stdio::null()).output().unwrap();
        assert!(checked.status.success(), "{shell} -n: {}", String::from_utf8_lossy(&checked.stderr));
    }
    run(["completions", "cobol"]).ended(2);
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let sandbox = sandbox();
    run(args!["man", "--directory", sandbox.path()]).ended(0);
    let mut pages: Vec<String> =
        fs::read_dir(sandbox.path()).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    for command in commands() {
        let page = format!("granulo-{command}.1");
        assert!(pages.contains(&page), "{page} is not among {pages:?}");
        let text = fs::read_to_string(sandbox.path().join(&page)).unwrap();
        assert!(text.contains(".TH") && text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    assert!(pages.contains(&"granulo.1".to_owned()));
    let printed = run(["man"]).ended(0).text();
    assert_eq!(printed, fs::read_to_string(sandbox.path().join("granulo.1")).unwrap());
    let missing = sandbox.path().join("missing");
    assert!(run(args!["man", "--directory", &missing]).ended(2).said().contains("missing"));
}

#[test]
fn the_environment_has_defaults_that_yield_to_options() {
    let sandbox = sandbox();
    let tree = sandbox.path().join("tree");
    write_file(tree.join("file"), 1000);
    let survey = |variables: &[(&str, &str)], options: &[&str], status| {
        let mut command = granulo();
        command.arg("survey").args(options).arg(&tree).current_dir(sandbox.path()).envs(variables.iter().copied());
        finish(&mut command).ended(status)
    };
    for (value, is_quiet) in [("1", true), ("yes", true), ("0", false), ("", false)] {
        assert_eq!(survey(&[("GRANULO_QUIET", value)], &[], 0).text().is_empty(), is_quiet, "GRANULO_QUIET={value}");
    }
    let all = [("GRANULO_MEMORY", "24MiB"), ("GRANULO_SCRATCH", "/tmp"), ("GRANULO_THREADS", "2")];
    survey(&all, &["-o", "whole.json"], 0);
    survey(&all, &["--incremental", "whole.json", "-o", "again.json"], 0);
    survey(&all, &["--shard", "1/1", "-o", "part"], 0);
    survey(&all, &["--memory", "32MiB"], 0);
    survey(&[("GRANULO_MEMORY", "little")], &["--memory", "32MiB"], 0);
    for variable in ["GRANULO_MEMORY", "GRANULO_THREADS", "GRANULO_QUIET"] {
        let said = survey(&[(variable, "little")], &[], 2).said();
        assert!(said.contains(&format!("{variable} is 'little'")), "{said}");
    }
}

#[test]
fn nothing_is_a_command_and_a_wrong_one_is_named() {
    assert!(finish(&mut granulo()).ended(2).said().contains("Usage: granulo"));
    let said = run(["surwey", "/usr"]).ended(2).said();
    assert!(said.contains("surwey") && said.contains("survey"), "{said}");
    run(["--color", "purple", "show", "vu-2005"]).ended(2);
}
