//! Habits that a machine can check: sizes of files, words, purity.

use std::fs;
use std::path::PathBuf;

use crate::harness::{files_below, source_tree};
use crate::layers::code_only;

/// Largest number of lines of a source file.
const MOST_LINES: usize = 700;

/// Columns of a line, as in rustfmt.toml.
const WIDTH: usize = 120;

/// Longer files, with their limits. A limit may only become smaller.
const LONGER: [(&str, usize); 0] = [];

/// Words that mean something else here, mark unfinished work, or that nobody in the field uses; and the right word.
const BANNED: [(&[&str], &str); 21] = [
    (&["waste"], "overhead"),
    (&["wasted"], "overhead"),
    (&["slack"], "overhead"),
    (&["disk", "usage"], "allocated"),
    (&["threshold"], "cutoff"),
    (&["todo"], "an issue"),
    (&["fixme"], "an issue"),
    (&["who", "fits"], "files that fit in"),
    (&["to", "be", "borne"], "allowed"),
    (&["bear", "it"], "perform, or allow"),
    (&["made", "anew"], "rebuilt, or recreated"),
    (&["surveyed", "back"], "surveyed"),
    (&["over", "one", "another"], "overlaid"),
    (&["look", "at", "without"], "a self-contained page"),
    (&["takes", "the", "right"], "needs permission"),
    (&["bad", "minutes"], "is noisy"),
    (&["is", "no", "checkpoint"], "is not a checkpoint"),
    (&["can", "be", "given", "several", "times"], "may be repeated"),
    (&["cut", "off"], "truncated"),
    (&["go", "on", "with"], "continue with"),
    (&["dealt"], "stratified"),
];

/// Every source file of the workspace, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let root = source_tree();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let sources =
        ["src", "crates/bucket/src", "crates/core/src", "crates/store/src", "crates/sys/src", "crates/python/src"];
    sources.iter().flat_map(|source| files_below(&root.join(source), "rs")).map(read).collect()
}

/// Every Python file that people install or learn from, with its path from the root.
fn python_sources() -> Vec<(String, String)> {
    let root = source_tree();
    let below = |place: &str| [files_below(&root.join(place), "py"), files_below(&root.join(place), "pyi")].concat();
    let files = ["crates/python/python", "crates/python/tests", "examples/python"].map(below).concat();
    let name = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Prose for people: the pages in docs and data, those beside Cargo.toml, and that of the Python package.
fn pages() -> Vec<(String, String)> {
    let root = source_tree();
    let mut pages = files_below(&root.join("docs"), "md");
    pages.extend(files_below(&root.join("data"), "md"));
    let beside =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "crates/python/README.md"].map(|name| root.join(name));
    pages.extend(beside.into_iter().filter(|page| page.exists()));
    pages.into_iter().map(|page| (page.display().to_string(), fs::read_to_string(&page).unwrap())).collect()
}

/// Words in lower case, with whether only one space precedes each; identifiers are split at `_` and at capitals.
fn words(text: &str) -> Vec<(String, bool)> {
    let mut words: Vec<(String, bool)> = Vec::new();
    let (mut gap, mut last) = (String::new(), ' ');
    let mut inside = false;
    for c in text.chars() {
        if c.is_alphabetic() {
            if !inside || (c.is_uppercase() && last.is_lowercase()) {
                words.push((String::new(), ["", " ", "_"].contains(&gap.as_str())));
                gap.clear();
            }
            words.last_mut().unwrap().0.extend(c.to_lowercase());
            inside = true;
        } else {
            gap.push(c);
            inside = false;
        }
        last = c;
    }
    words
}

fn banned(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words = words(line);
        for (phrase, instead) in BANNED {
            let hit = words.windows(phrase.len()).any(|window| {
                let alike = window.iter().zip(phrase).all(|((word, _), banned)| word == banned);
                alike && window[1..].iter().all(|(_, close)| *close)
            });
            if hit {
                found.push(format!("'{}' (say {instead}): {}", phrase.join(" "), line.trim()));
            }
        }
        // Only in capitals: these three letters also occur in other words.
        if line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "XXX") {
            found.push(format!("'XXX': {}", line.trim()));
        }
    }
    found
}

#[test]
fn no_source_file_is_too_long() {
    for (name, text) in sources() {
        let most = LONGER.iter().find(|(file, _)| *file == name).map_or(MOST_LINES, |(_, lines)| *lines);
        let lines = text.lines().count();
        assert!(lines <= most, "{name} has {lines} lines, and may have {most}: take it apart");
    }
}

/// rustfmt breaks code, and leaves comments as they are. Tables and examples have lines of their own.
#[test]
fn no_comment_is_too_wide() {
    let mut wide = Vec::new();
    for (name, text) in sources() {
        let mut is_example = false;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//")) {
            let comment = line.trim_start().trim_start_matches(['/', '!']).trim_start();
            is_example ^= comment.starts_with("```");
            if line.chars().count() > WIDTH && !is_example && !comment.starts_with('|') {
                wide.push(format!("{name}:{}", number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "wrap these at {WIDTH} columns: {wide:?}");
}

/// No tool formats them in CI, so their code counts as well as their comments.
#[test]
fn no_line_of_python_is_too_wide() {
    let sources = python_sources();
    assert!(sources.len() > 10, "only {} files of the Python package were found", sources.len());
    let mut wide = Vec::new();
    for (name, text) in sources {
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > WIDTH);
        wide.extend(lines.map(|(number, _)| format!("{name}:{}", number + 1)));
    }
    assert!(wide.is_empty(), "break these at {WIDTH} columns: {wide:?}");
}

#[test]
fn every_python_file_begins_by_saying_what_it_is() {
    let says = |text: &str| {
        let first = text.lines().find(|line| !line.starts_with("#!"));
        first.is_some_and(|line| line.starts_with("\"\"\""))
    };
    let missing: Vec<String> =
        python_sources().into_iter().filter(|(_, text)| !says(text)).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "these do not begin with a docstring: {missing:?}");
}

#[test]
fn a_module_with_others_inside_is_a_directory_with_mod_rs() {
    let beside = |name: &String| source_tree().join(name.trim_end_matches(".rs")).is_dir();
    let wrong: Vec<String> = sources().into_iter().map(|(name, _)| name).filter(beside).collect();
    assert!(wrong.is_empty(), "move them to mod.rs in the directory beside them: {wrong:?}");
}

#[test]
fn every_source_file_begins_by_saying_what_it_is() {
    let missing: Vec<String> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "these do not begin with a comment that says what they are: {missing:?}");
}

#[test]
fn every_concept_has_one_word() {
    let mut found = Vec::new();
    for (name, text) in sources().into_iter().chain(python_sources()).chain(pages()) {
        found.extend(banned(&text).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_reader_of_words_takes_names_apart() {
    for line in
        ["wasted", "let waste_bytes = 1;", "SlackBytes", "the disk usage of", "fn disk_usage()", "// TODO: x", "XXX"]
    {
        assert_eq!(banned(line).len(), 1, "{line}");
    }
    for line in ["wasteland", "parallel-disk-usage", "disks, usage: granulo", "slacks", "xxx", "methodology"] {
        assert_eq!(banned(line), Vec::<String>::new(), "{line}");
    }
}

#[test]
fn results_are_printed_by_the_command_line_alone() {
    for (name, text) in sources() {
        let code = code_only(&text);
        for call in ["println!", "eprintln!", "print!", "eprint!", "dbg!"] {
            let found = code
                .match_indices(call)
                .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
            assert!(!found, "{name} calls {call}; output goes through cli::output");
        }
    }
}

#[test]
fn no_module_is_a_place_for_anything() {
    for (name, _) in sources() {
        for part in name.trim_end_matches(".rs").split('/') {
            assert!(
                !["util", "utils", "common", "helpers", "misc"].contains(&part),
                "{name} says nothing of what is in it"
            );
        }
    }
}

#[test]
fn arithmetic_touches_no_clock_no_disk_and_no_chance() {
    let pure = ["crates/core/src/distribution/", "crates/core/src/layout/", "src/plan/"];
    let pure = sources().into_iter().filter(|(name, _)| pure.iter().any(|module| name.starts_with(module)));
    let mut seen = 0;
    for (name, text) in pure {
        seen += 1;
        let code: String = code_only(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        for impure in [
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "Instant",
            "SystemTime",
            "rand::",
            "rand ::",
            "thread_rng",
            "File::",
        ] {
            assert!(!code.contains(impure), "{name} mentions {impure}");
        }
    }
    assert!(seen > 5, "only {seen} files were looked at");
}
