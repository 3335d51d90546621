//! `granulo report` with results of benches: one page, several runs together, and files that are no results or do not
//! match.

use std::fs;

use crate::args;
use crate::harness::{run, sandbox};

/// A small result of `bench create` in the sandbox.
fn result(sandbox: &std::path::Path, name: &str) -> std::path::PathBuf {
    let path = sandbox.join(name);
    run(args!["bench", "create", sandbox.join("place"), "--files", "300", "--rounds", "2", "--quiet", "-o", &path])
        .ended(0);
    path
}

#[test]
fn a_result_becomes_a_page() {
    let sandbox = sandbox();
    let (one, page) = (result(sandbox.path(), "one.json"), sandbox.path().join("page.html"));
    run(args!["report", &one, "-o", &page]).ended(0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>300 empty files in one directory on "));
    assert!(text.contains("\"curves\":[{\"subject\":0,\"phase\":\"create\",\"points\":[["), "there are no curves");
    assert!(text.contains("of 300 files, creating each of the last thousand took"));
    let two = result(sandbox.path(), "two.json");
    run(args!["report", &one, &two, "-o", &page]).ended(0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>2 runs – granulo</title>"));
    assert!(text.contains("{\"name\":\"one\",") && text.contains("{\"name\":\"two\","));
}

#[test]
fn results_of_different_kinds_are_parts_of_one_page() {
    let sandbox = sandbox();
    let (one, page) = (result(sandbox.path(), "one.json"), sandbox.path().join("page.html"));
    let plan = sandbox.path().join("plan.json");
    fs::write(&plan, run(["plan", "vu-2005", "--model", "ext4", "--json"]).ended(0).stdout).unwrap();
    run(args!["report", &one, &plan, "vu-2005", "vu-1984", "-o", &page]).ended(0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>4 results – granulo</title>"));
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let parts: Vec<_> = data["parts"].as_array().unwrap().iter().map(|part| (&part["kind"], &part["title"])).collect();
    assert_eq!(parts[0], (&"survey".into(), &"2 populations".into()));
    assert_eq!(parts[1], (&"plan".into(), &"Plan for vu-2005".into()));
    assert_eq!(parts[2].0, "bench");
    assert!(parts[2].1.as_str().unwrap().starts_with("300 empty files in one directory on "), "{parts:?}");
    assert_eq!(data["parts"][0]["sources"].as_array().unwrap().len(), 2);
    assert!(!text.contains("{{"), "a part of the template was not filled");
}

#[test]
fn what_is_no_result_is_refused() {
    let sandbox = sandbox();
    let (one, page) = (result(sandbox.path(), "one.json"), sandbox.path().join("page.html"));
    // What is no result is named; a result is not replaced by its page.
    let missing = run(args!["report", &one, "nothing.json", "-o", &page]).ended(2).said();
    assert!(missing.contains("nothing.json"), "{missing}");
    let onto_itself = run(args!["report", &one, "-o", &one]).ended(2).said();
    assert!(onto_itself.contains("would replace a result"), "{onto_itself}");
    let text = fs::read_to_string(&one).unwrap();
    let wrong = sandbox.path().join("wrong.json");
    for (from, to, expected) in [
        ("granulo/bench/1", "granulo/bench/2", "it has version 2"),
        ("\"started_at\"", "\"began_at\"", "missing field `started_at`"),
        ("\"bench\":\"create\"", "\"bench\":\"crate\"", "unknown variant `crate`"),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&wrong, text.replacen(from, to, 1)).unwrap();
        let ran = run(args!["report", &wrong, "-o", &page]).ended(2);
        assert!(ran.said().contains("wrong.json") && ran.said().contains(expected), "{}", ran.said());
    }
    assert!(!page.exists(), "a page was left");
}

#[test]
fn a_result_is_shown_as_it_was_printed() {
    let sandbox = sandbox();
    let one = sandbox.path().join("one.json");
    let made = run(args!["bench", "create", sandbox.path().join("place"), "--files", "300", "-o", &one]).ended(0);
    assert_eq!(run(args!["show", &one]).ended(0).stdout, made.stdout);
    let json = run(args!["show", &one, "--json"]).ended(0);
    assert_eq!(json.stdout, fs::read(&one).unwrap());
    let refused = run(args!["show", &one, "--cutoff", "4KiB"]).ended(2);
    assert!(refused.said().contains("accept only -o, --json"), "{}", refused.said());
    let plan = sandbox.path().join("plan.json");
    let planned = run(args!["plan", "vu-2005", "--model", "ext4", "--json"]).ended(0);
    fs::write(&plan, &planned.stdout).unwrap();
    assert_eq!(run(args!["show", &plan, "--json"]).ended(0).stdout, planned.stdout);
    assert_eq!(
        run(args!["show", &plan]).ended(0).stdout,
        run(args!["plan", "vu-2005", "--model", "ext4"]).ended(0).stdout
    );
}
