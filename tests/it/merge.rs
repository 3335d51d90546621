//! `granulo merge`: the sum of surveys equals the survey of all their trees.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::args;
use crate::harness::{assert_same, run, sandbox, survey, wide_tree, write_file};
use crate::model::AS_OF;

/// Three trees that differ in everything.
fn trees() -> (TempDir, [PathBuf; 3]) {
    let sandbox = sandbox();
    let trees = ["a", "b", "c"].map(|name| sandbox.path().join(name));
    for (index, tree) in trees.iter().enumerate() {
        wide_tree(tree, 3 + index, 4);
        for size in [1, 500, 4097, 65_536, 65_537, 70_000 + 1000 * index, 300_000] {
            write_file(tree.join(format!("x{index}/f{size}.txt")), size + index);
        }
        std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
        fs::hard_link(tree.join("d0/f0"), tree.join("d0/again")).unwrap();
    }
    (sandbox, trees)
}

fn keep(sandbox: &Path, name: &str, roots: &[&PathBuf], options: &[&str]) -> PathBuf {
    let file = sandbox.join(name);
    let mut arguments = args!["-o", &file, "--as-of", AS_OF];
    arguments.extend(roots.iter().map(|root| (*root).into()));
    arguments.extend(options.iter().map(Into::into));
    survey(arguments);
    file
}

fn merge(files: &[&PathBuf], output: &Path) -> Value {
    let mut arguments = args!["merge", "--json", "-o", output];
    arguments.extend(files.iter().map(|file| (*file).into()));
    let ran = run(arguments).ended(0);
    assert_eq!(ran.said(), "");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(output).unwrap()).unwrap(), ran.json());
    ran.json()
}

#[test]
fn a_merged_survey_equals_the_survey_of_both() {
    let (sandbox, [a, b, c]) = trees();
    let s = sandbox.path();
    let parts = [("a", &a), ("b", &b), ("c", &c)].map(|(name, tree)| keep(s, &format!("{name}.json"), &[tree], &[]));
    let all = keep(s, "all.json", &[&a, &b, &c], &[]);
    let all: Value = serde_json::from_slice(&fs::read(all).unwrap()).unwrap();
    let merged = merge(&[&parts[0], &parts[1], &parts[2]], &s.join("sum.json"));
    assert_eq!(merged["method"], "merge");
    assert_same(&all, &merged, &["method"]);
}

#[test]
fn surveys_may_be_added_in_any_order_and_grouping() {
    let (sandbox, [a, b, c]) = trees();
    let s = sandbox.path();
    // Short lists, so that rows are dropped.
    let [a, b, c] =
        [("a.json", &a), ("b.json", &b), ("c.json", &c)].map(|(name, tree)| keep(s, name, &[tree], &["--top", "3"]));
    let ab = s.join("ab.json");
    merge(&[&a, &b], &ab);
    let bc = s.join("bc.json");
    merge(&[&b, &c], &bc);
    let left = merge(&[&ab, &c], &s.join("1.json"));
    let right = merge(&[&a, &bc], &s.join("2.json"));
    assert_same(&left, &right, &[]);
    let back = merge(&[&c, &b, &a], &s.join("3.json"));
    assert_same(&left, &back, &["roots", "name"]);
    let mut roots: Vec<&str> = back["roots"].as_array().unwrap().iter().map(|root| root.as_str().unwrap()).collect();
    roots.reverse();
    assert_eq!(Value::from(roots), left["roots"]);
}

#[test]
fn a_merge_of_one_survey_is_that_survey() {
    let (sandbox, [a, ..]) = trees();
    let file = keep(sandbox.path(), "a.json", &[&a], &[]);
    let merged = merge(&[&file], &sandbox.path().join("m.json"));
    assert_same(&serde_json::from_slice(&fs::read(file).unwrap()).unwrap(), &merged, &["method"]);
}

#[test]
fn surveys_with_other_rules_are_not_added() {
    let (sandbox, [a, b, _]) = trees();
    let s = sandbox.path();
    let once = keep(s, "once.json", &[&a], &[]);
    let each = keep(s, "each.json", &[&b], &["--hard-links", "each"]);
    let sum = s.join("sum.json");
    let said = run(args!["merge", &once, &each, "-o", &sum]).ended(2).said();
    assert!(said.contains("hard links") && said.contains("--hard-links"), "{said}");
    let small = keep(s, "small.json", &[&b], &["--small", "1000"]);
    let said = run(args!["merge", &once, &small, "-o", &sum]).ended(2).said();
    assert!(said.contains("small") && said.contains("--cutoff"), "{said}");
    assert!(!sum.exists());
}

#[test]
fn rules_are_those_of_the_surveys_that_have_any_wherever_they_come() {
    let (sandbox, [a, b, c]) = trees();
    let s = sandbox.path();
    let once = keep(s, "once.json", &[&a], &[]);
    let each = keep(s, "each.json", &[&b], &["--hard-links", "each"]);
    let small = keep(s, "small.json", &[&c], &["--cutoff", "1000", "--hard-links", "each"]);
    let (csv, sizes, names) = (s.join("fsstats.csv"), s.join("sizes"), s.join("names"));
    run(args!["survey", "--quiet", &c, "--fsstats", &csv]).ended(0);
    fs::write(&sizes, "10\n20\n").unwrap();
    fs::write(&names, "10 a.txt\n20 b.txt\n").unwrap();
    for without in [&csv, &sizes] {
        for files in [[without, &once, &each], [&once, without, &each], [&each, &once, without]] {
            let said = run([args!["merge"], files.map(Into::into).to_vec()].concat()).ended(2).said();
            assert!(said.contains("hard links"), "{said}");
        }
        // The sum has no places, which the cutoffs are of.
        for files in [[without, &each, &small], [&each, without, &small], [&each, &small, without]] {
            let sum = run([args!["merge", "--json"], files.map(Into::into).to_vec()].concat()).ended(0).json();
            assert_eq!((&sum["options"]["hard_links"], &sum["where"]), (&"each".into(), &Value::Null));
        }
    }
    // A list with names counts small files by extension.
    for files in [[&names, &small], [&small, &names]] {
        let said = run([args!["merge"], files.map(Into::into).to_vec()].concat()).ended(2).said();
        assert!(said.contains("--cutoff"), "{said}");
    }
    run(args!["merge", "--json", &names, &each]).ended(0);
}

#[test]
fn one_anonymous_survey_makes_the_sum_anonymous() {
    let (sandbox, [a, b, _]) = trees();
    let s = sandbox.path();
    let named = keep(s, "named.json", &[&a], &["--exclude", "unlikely-glob"]);
    let nameless = keep(s, "nameless.json", &[&b], &["--anonymous"]);
    for files in [[&named, &nameless], [&nameless, &named]] {
        let merged = merge(&files, &s.join("sum.json"));
        assert_eq!(merged["anonymous"], true);
        assert_eq!(merged["name"], Value::Null);
        let text = merged.to_string();
        for word in [s.to_str().unwrap(), "granulo-it", "unlikely-glob", "\"txt\"", "\"root\""] {
            assert!(!text.contains(word), "{word} is in the anonymous sum");
        }
        let files = |file: &PathBuf| -> u64 {
            let document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            document["counts"]["files"].as_u64().unwrap()
        };
        assert_eq!(merged["counts"]["files"], files(&named) + files(&nameless));
    }
}

#[test]
fn anonymous_surveys_may_be_added_in_any_order() {
    let (sandbox, [a, b, c]) = trees();
    let s = sandbox.path();
    let [a, b, c] =
        [("a.json", &a), ("b.json", &b), ("c.json", &c)].map(|(name, tree)| keep(s, name, &[tree], &["--anonymous"]));
    let first = merge(&[&a, &b, &c], &s.join("1.json"));
    for files in [[&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
        assert_same(&first, &merge(&files, &s.join("2.json")), &[]);
    }
    let ab = s.join("ab.json");
    merge(&[&b, &a], &ab);
    assert_same(&first, &merge(&[&c, &ab], &s.join("3.json")), &[]);
}

#[test]
fn a_published_table_is_not_added_to_anything() {
    let (sandbox, [a, ..]) = trees();
    let file = keep(sandbox.path(), "a.json", &[&a], &[]);
    for arguments in [args!["merge", "vu-1984", "web-2005"], args!["merge", &file, "vu-2005"]] {
        let said = run(arguments).ended(2).said();
        assert!(said.contains("published") && said.contains("granulo compare"), "{said}");
    }
}

#[test]
fn trees_that_overlap_are_warned_of() {
    let (sandbox, [a, ..]) = trees();
    let s = sandbox.path();
    let (whole, part) = (keep(s, "whole.json", &[&a], &[]), keep(s, "part.json", &[&a.join("d0")], &[]));
    let ran = run(args!["merge", &whole, &part, "--json"]).ended(0);
    assert!(ran.said().contains("d0") && ran.said().contains("count twice"), "{}", ran.said());
}

#[test]
fn a_sum_goes_nowhere_when_a_part_cannot_be_read() {
    let (sandbox, [a, ..]) = trees();
    let file = keep(sandbox.path(), "a.json", &[&a], &[]);
    let sum = sandbox.path().join("sum.json");
    let missing = sandbox.path().join("missing.json");
    let said = run(args!["merge", &file, &missing, "-o", &sum]).ended(2).said();
    assert!(said.contains("missing.json"), "{said}");
    assert!(!sum.exists());
}
