//! What grew between surveys of one tree, and what a survey says of owners, ages and single files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args;
use crate::harness::{finish, granulo, run, sandbox, survey, write_file};

fn keep(root: &Path, file: &Path, more: &[&str]) -> Value {
    let mut arguments = args!["-o", file, root];
    arguments.extend(more.iter().map(Into::into));
    survey(arguments)
}

/// The survey in `file` as if it had been taken that many days ago, with that many bytes in use.
pub fn date(file: &Path, days: i64, used: u64) {
    let mut document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let day = 1 + 27 - days;
    document["taken_at"] = format!("2026-02-{day:02}T00:00:00Z").into();
    let found = &mut document["machines"][0]["file_systems"][0];
    found["capacity_bytes"] = 10_000_000.into();
    found["free_bytes"] = (10_000_000 - used).into();
    found["available_bytes"] = (10_000_000 - used).into();
    fs::write(file, document.to_string()).unwrap();
}

#[test]
fn two_surveys_of_a_tree_say_first_what_grew() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    write_file(root.join("stays/a.txt"), 1000);
    write_file(root.join("goes/b.log"), 5000);
    let [old, new, out] = ["old.json", "new.json", "out.json"].map(|name| sandbox.path().join(name));
    keep(&root, &old, &[]);
    date(&old, 10, 0);
    fs::remove_file(root.join("goes/b.log")).unwrap();
    write_file(root.join("stays/deep/er/c.bin"), 70_000);
    write_file(root.join("stays/deep/er/d.bin"), 30_000);
    keep(&root, &new, &[]);
    date(&new, 0, 0);
    let ran = run(args!["compare", &old, &new, "-o", &out]).ended(0);
    let text = ran.text();
    assert!(text.starts_with("In 10 days between the surveys: +1 file and +92.8 KiB net"), "{text}");
    assert!(text.contains("stays/deep/er") && text.contains(".bin") && text.contains("−4.88 KiB"), "{text}");
    let document: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let growth = &document["growth"];
    assert_eq!((&growth["total"]["files"], &growth["total"]["size_bytes"]), (&1.into(), &95_000.into()));
    // Of the chain of directories, the last one.
    let first = &growth["directories"]["by_size"][0];
    assert!(first["path"].as_str().unwrap().ends_with("stays/deep/er"), "{first}");
    assert_eq!(first["size_bytes"]["least"], 100_000);
    let page = sandbox.path().join("page.html");
    let ran = run(args!["compare", &old, &new, "--report", &page]).ended(0);
    assert_eq!(ran.text(), text);
    assert!(ran.said().contains("wrote ") && fs::read_to_string(&page).unwrap().contains("stays/deep/er"));
    let replaced = run(args!["compare", &old, &new, "--report", &old]).ended(2).said();
    assert!(replaced.contains("the output would replace a result"), "{replaced}");
    // In the other order it is the same, and other trees do not grow.
    let back = run(args!["compare", "--json", &new, &old]).ended(0).json();
    assert_eq!(&back["growth"], growth);
    let other = run(args!["compare", "--json", &new, "vu-2005"]).ended(0).json();
    assert!(other.get("growth").is_none());
    let names: Vec<&str> =
        document["sources"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(names[0].ends_with(", 2026-02-18") && names[1].ends_with(", 2026-02-28"), "{names:?}");
}

#[test]
fn a_history_says_how_fast_a_tree_grows_and_when_it_is_full() {
    let sandbox = sandbox();
    let (root, surveys) = (sandbox.path().join("tree"), sandbox.path().join("surveys"));
    fs::create_dir(&surveys).unwrap();
    for step in 0..4u64 {
        write_file(root.join(format!("f{step}")), 1000);
        let file = surveys.join(format!("{step}.json"));
        keep(&root, &file, &[]);
        date(&file, 9 - 3 * step as i64, 1_000_000 * (step + 1));
    }
    fs::write(surveys.join("other.json"), "{\"schema\": \"granulo/plan/1\"}").unwrap();
    fs::write(surveys.join("package.json"), "{\"name\": \"another program's\"}").unwrap();
    fs::write(surveys.join("notes.txt"), "no survey").unwrap();
    let ran = run(args!["history", &surveys]).ended(0);
    assert_eq!(ran.said(), "");
    let words = ran.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("full in 18 days, on 2026-03-18"), "{words}");
    assert!(words.contains("+0.333 files and +333 B a day"), "{words}");
    let history = run(args!["history", "--json", &surveys]).ended(0).json();
    let tree = &history["trees"][0];
    assert_eq!(tree["points"].as_array().unwrap().len(), 4);
    assert_eq!(tree["files"]["per_day"].as_f64().unwrap(), 1.0 / 3.0);
    assert_eq!(tree["forecasts"][0]["left"], 6_000_000);
    let csv = run(args!["history", "--csv", &surveys]).ended(0).text();
    assert_eq!(csv.lines().count(), 5);
    assert!(csv.lines().all(|line| line.split(',').count() == 14), "{csv}");
    // One that is damaged is said, and the others are shown.
    fs::write(surveys.join("cut.json"), "{\"schema\": \"granulo/survey/1\", \"na").unwrap();
    let ran = run(args!["history", &surveys]).ended(1);
    assert!(ran.said().contains("cut.json") && ran.text().contains("4 surveys"), "{}", ran.said());
    run(args!["history", sandbox.path()]).ended(2);
    // None of them is replaced by what is made of them.
    for option in ["-o", "--report"] {
        let replaced = run(args!["history", &surveys, option, surveys.join("2.json")]).ended(2).said();
        assert!(replaced.contains("2.json: the output would replace a result"), "{replaced}");
    }
}

/// Such as a merge without one of the shards: less than the tree has is not less than it had.
#[test]
fn a_survey_of_a_part_of_the_tree_is_no_point_of_its_history() {
    let sandbox = sandbox();
    let (root, surveys) = (sandbox.path().join("tree"), sandbox.path().join("surveys"));
    fs::create_dir(&surveys).unwrap();
    write_file(root.join("a"), 1000);
    let [whole, part] = ["1.json", "2.json"].map(|name| surveys.join(name));
    keep(&root, &whole, &[]);
    let mut document = keep(&root, &part, &[]);
    document["complete"] = false.into();
    fs::write(&part, document.to_string()).unwrap();
    let ran = run(args!["history", "--json", &surveys]).ended(1);
    assert!(ran.said().contains("2.json") && ran.said().contains("a part of the tree"), "{}", ran.said());
    assert_eq!(ran.json()["trees"][0]["points"].as_array().unwrap().len(), 1);
    run(args!["history", &whole, &part]).ended(2);
    let compared = run(args!["compare", &whole, &part]).ended(0).text();
    let words = compared.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("is of a part of the tree"), "{compared}");
    let both = run(args!["compare", &whole, &whole]).ended(0).text();
    assert!(!both.contains("is of a part"), "{both}");
}

#[test]
fn lists_of_other_programs_are_sources() {
    use std::io::Write;
    let mut command = granulo();
    command.args(["show", "--json", "-"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"10\n70000 73728 a.txt\n0\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["method"], &document["counts"]["files"]), (&"list".into(), &3.into()));
    assert_eq!(document["totals"]["size_bytes"], 70_010);
    let sandbox = sandbox();
    let [buckets, ncdu] = ["buckets.csv", "ncdu.json"].map(|name| sandbox.path().join(name));
    fs::write(&buckets, "min,max,count\n0,0,2\n1,1024,8\n").unwrap();
    fs::write(&ncdu, r#"[1,2,{},[{"name":"/t","dsize":4096},{"name":"a","asize":5,"dsize":4096}]]"#).unwrap();
    for (file, files) in [(&buckets, 10), (&ncdu, 1)] {
        assert_eq!(run(args!["show", "--json", file]).ended(0).json()["counts"]["files"], files);
        run(args!["plan", file]).ended(0);
    }
    fs::write(&ncdu, "[1,2,{},[").unwrap();
    assert!(run(args!["show", &ncdu]).ended(2).said().contains("ncdu"));
}

#[test]
fn wide_terminals_show_more_of_a_path_and_narrow_ones_what_fits() {
    let sandbox = sandbox();
    let long = "a-directory-with-a-long-name/".repeat(4);
    write_file(sandbox.path().join("t").join(&long).join("file"), 100);
    let file = sandbox.path().join("s.json");
    keep(&sandbox.path().join("t"), &file, &[]);
    let shown = |columns: &str| {
        let output = granulo().env("COLUMNS", columns).arg("show").arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest(&shown("80")) <= 80);
    assert!((81..=140).contains(&widest(&shown("140"))), "{}", shown("140"));
    assert!((50..=60).contains(&widest(&shown("60"))), "{}", shown("60"));
    assert_eq!(shown("40"), shown("60"));
    assert_eq!(shown("nonsense"), shown("80"));
}

#[test]
fn surveys_of_two_machines_are_told_apart() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    write_file(root.join("a"), 10);
    let [one, other, sum] = ["one.json", "other.json", "sum.json"].map(|name| sandbox.path().join(name));
    keep(&root, &one, &["--name", "the tree"]);
    let mut document = keep(&root, &other, &["--name", "the tree"]);
    document["machines"][0]["host"] = "zqother".into();
    document["machines"][0]["file_systems"][0]["uuid"] = "another".into();
    document["machines"][0]["file_systems"][0]["device"] = "/dev/another".into();
    fs::write(&other, document.to_string()).unwrap();
    let ran = run(args!["compare", "--json", &one, &other]).ended(0).json();
    assert!(ran.get("growth").is_none());
    assert_eq!(ran["sources"][1]["name"], "the tree on zqother");
    assert!(run(args!["show", &other]).ended(0).text().starts_with("the tree on zqother\n"));
    let ran = run(args!["merge", "--json", &one, &other, "-o", &sum]).ended(0);
    // Both have a root of one name, but not one tree.
    assert_eq!(ran.said(), "");
    let merged = ran.json();
    assert!(merged["name"].as_str().unwrap().ends_with(" + the tree on zqother"), "{}", merged["name"]);
    assert_eq!(merged["machines"].as_array().unwrap().len(), 2);
    // Both have mounted it from a server.
    for (device, kind) in [("server:/home", "nfs4"), ("a@1-2.fs=/", "ceph"), ("/dev/sda", "ocfs2")] {
        for path in [&one, &other] {
            let mut document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let found = &mut document["machines"][0]["file_systems"][0];
            (found["device"], found["kind"]) = (device.into(), kind.into());
            fs::write(path, document.to_string()).unwrap();
        }
        let ran = run(args!["merge", "--json", &one, &other]).ended(0);
        assert!(ran.said().contains("is in more than one survey"), "{device}: {}", ran.said());
    }
}

#[test]
fn relative_roots_are_one_tree_in_one_directory() {
    let sandbox = sandbox();
    for (directory, file) in [("one", "one.json"), ("two", "two.json"), ("one/.", "three.json")] {
        let directory = sandbox.path().join(directory);
        fs::create_dir_all(directory.join("data")).unwrap();
        write_file(directory.join("data/a"), 10);
        let result = sandbox.path().join(file);
        finish(granulo().current_dir(&directory).args(args!["survey", "data", "-o", result])).ended(0);
    }
    let [one, two, three] = ["one.json", "two.json", "three.json"].map(|file| sandbox.path().join(file));
    let compared = |other: &Path| run(args!["compare", "--json", &one, other]).ended(0).json();
    assert!(compared(&two).get("growth").is_none());
    assert!(compared(&three).get("growth").is_some());
    // From elsewhere: the lists have other paths.
    let four = sandbox.path().join("four.json");
    finish(granulo().current_dir(sandbox.path()).args(args!["survey", "one/data", "-o", &four])).ended(0);
    assert!(compared(&four).get("growth").is_none());
    let histories = run(args!["history", "--json", &one, &two, &three]).ended(0).json();
    assert_eq!(histories["trees"].as_array().unwrap().len(), 2, "{histories}");
    let merged = run(args!["merge", "--json", &one, &two]).ended(0);
    assert_eq!(merged.said(), "");
    let real = fs::canonicalize(sandbox.path()).unwrap();
    let root = |directory: &str| real.join(directory).join("data").display().to_string();
    let document = merged.json();
    assert_eq!(document["roots"], serde_json::json!([root("one"), root("two")]));
    assert!(document.get("directory").is_none());
    let roots: Vec<_> =
        document["tree"]["nodes"].as_array().unwrap().iter().filter(|node| node["parent"].is_null()).collect();
    assert_eq!(roots.len(), 2, "{document}");
    let twice = run(args!["merge", "--json", &one, &three]).ended(0);
    assert!(twice.said().contains("is in more than one survey"), "{}", twice.said());
    assert_eq!(twice.json()["roots"], serde_json::json!(["data", "data"]));
}

#[test]
fn owners_have_ages_and_the_largest_files_are_listed() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    for (name, size) in [("a/big", 9000), ("a/b/bigger", 20_000), ("small", 10)] {
        write_file(root.join(name), size);
    }
    fs::hard_link(root.join("a/big"), root.join("again")).unwrap();
    let file = sandbox.path().join("s.json");
    let document = keep(&root, &file, &["--top", "2", "--age-breaks", "1,100", "--as-of", "2099-01-01"]);
    let paths: Vec<&str> =
        document["where"]["files"].as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let relative: Vec<String> = paths.iter().map(|path| relative(&PathBuf::from(path))).collect();
    assert_eq!(relative[0], "a/b/bigger");
    assert!(["a/big", "again"].contains(&relative[1].as_str()), "{relative:?}");
    let row = &document["where"]["owner_ages"]["rows"][0];
    let sizes = |class: &str| -> Vec<u64> {
        row[class].as_array().unwrap().iter().map(|sums| sums["size_bytes"].as_u64().unwrap()).collect()
    };
    assert_eq!((sizes("written"), sizes("read")), (vec![0, 0, 29_010], vec![0, 0, 29_010]));
    let text = run(args!["show", &file]).ended(0).text();
    assert!(text.contains("Largest files") && text.contains("that nobody read"), "{text}");
    assert_eq!(run(args!["show", "--json", &file]).ended(0).json()["where"], document["where"]);
    let published = run(args!["show", "--json", "--quantile", "50", "vu-2005"]).ended(0).json();
    let quantiles = &published["answers"]["quantiles"][0];
    assert!(quantiles["mtime_age"].is_null() && quantiles["file_size"].is_u64(), "{quantiles}");
    let answers = run(args!["show", "--json", "--quantile", "50", "--quantile", "100%", &file]).ended(0).json();
    let quantiles = &answers["answers"]["quantiles"];
    assert_eq!((&quantiles[0]["file_size"], &quantiles[1]["file_size"]), (&9000.into(), &20_000.into()));
    run(args!["survey", &root, "--age-breaks", "9,3"]).ended(2);
    run(args!["show", &file, "--quantile", "101"]).ended(2);
    let shares = run(args!["show", &file, "--quantile", "99.95%", "--quantile", "99.99"]).ended(0).text();
    assert!(shares.contains(" 99.95 % ") && shares.contains(" 99.99 % "), "{shares}");
    let fine = run(args!["show", &file, "--quantile", "99.9999%"]).ended(2);
    assert!(fine.said().contains("more than three decimals"), "{}", fine.said());
}

#[test]
fn a_survey_without_a_path_is_of_the_current_directory_and_quiet_means_quiet() {
    let sandbox = sandbox();
    write_file(sandbox.path().join("t/a"), 10);
    let mut command = granulo();
    let output =
        command.current_dir(sandbox.path().join("t")).args(["survey", "-q", "-o", "../s.json"]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let document: Value = serde_json::from_slice(&fs::read(sandbox.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(document["counts"]["files"], 1);
    assert!(document["roots"][0].as_str().unwrap().ends_with("/t"));
    run(args!["survey", "-q", sandbox.path().join("missing")]).ended(2);
}
