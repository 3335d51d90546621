//! `granulo generate`: trees that match their source, identical for any number of threads, and refused requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::args;
use crate::harness::{
    Ran, assert_golden, binary, finish, granulo, granulo_as_nobody, in_mount_namespace, run, sandbox_for_many, survey,
    without_wishes, write_file,
};
use crate::images::{Image, Mount};

/// A generated file: size, times, content.
type Seen = BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)>;

fn seen(root: &Path) -> Seen {
    let mut seen = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let below = path.strip_prefix(root).unwrap().to_owned();
            if found.is_dir() {
                seen.insert(below, (0, 0, 0, Vec::new()));
                left.push(path);
            } else {
                let (mtime, atime) = (found.mtime(), found.atime());
                seen.insert(below, (found.len(), mtime, atime, fs::read(&path).unwrap()));
            }
        }
    }
    seen
}

/// A survey of granulo's source tree as the target.
fn source(at: &Path) -> PathBuf {
    let path = at.join("source.json");
    let tree = crate::harness::source_tree();
    let arguments = args!["survey", tree.join("src"), "-o", &path, "--as-of", "2030-01-01"];
    run(arguments).ended(0);
    path
}

#[test]
fn a_tree_is_as_near_to_its_source_as_it_says() {
    let sandbox = sandbox_for_many();
    let (source, tree) = (source(sandbox.path()), sandbox.path().join("tree"));
    let generated =
        run(args!["generate", &source, &tree, "--files", "5000", "--json", "--as-of", "2030-01-01"]).ended(0);
    assert_eq!(generated.said(), "");
    let document = generated.json();
    assert_eq!(document["schema"], "granulo/generate/1");
    assert_eq!((&document["complete"], &document["plan"]["files"]), (&Value::from(true), &Value::from(5000)));
    // Surveyed by a separate command.
    let again = sandbox.path().join("again.json");
    let surveyed = survey(args!["-o", &again, &tree, "--as-of", "2030-01-01"]);
    assert_eq!(surveyed["counts"]["files"], 5000);
    assert_eq!(surveyed["counts"]["directories"], document["plan"]["directories"]);
    assert_eq!(surveyed["totals"]["size_bytes"], document["plan"]["size_bytes"]);
    assert_eq!(surveyed["totals"]["allocated_bytes"], document["made"]["allocated_bytes"]);
    let compared = run(args!["compare", &source, &again, "--json"]).ended(0).json();
    let sizes = &document["distances"][0];
    assert_eq!(sizes["measure"], "file_size");
    assert_eq!(compared["distances"][0]["by_files"], sizes["reached"]["by_count"]);
    assert_eq!(compared["distances"][0]["by_bytes"], sizes["reached"]["by_sum"]);
    let measures: Vec<&str> =
        document["distances"].as_array().unwrap().iter().map(|row| row["measure"].as_str().unwrap()).collect();
    assert_eq!(
        measures,
        ["file_size", "name_length", "directory_entries", "directory_depth", "mtime_age", "atime_age"]
    );
    for row in document["distances"].as_array().unwrap() {
        let reached = row["reached"]["by_count"].as_f64().unwrap();
        let most = match row["measure"].as_str().unwrap() {
            // Several hundred directories, each of which is one part of the whole.
            "directory_entries" => 0.02,
            // Many times as many directories below a root with as few entries as before: they are deeper.
            "directory_depth" => 0.5,
            _ => 0.002,
        };
        assert!(reached <= most, "{row}");
        if let Some(planned) = row["planned"]["by_count"].as_f64() {
            assert_eq!(planned, reached, "{row}");
        }
    }
    // At the size of the source its depth is the same, except for one or two directories.
    let alike = sandbox.path().join("alike");
    let alike = run(args!["generate", &source, &alike, "--scale", "1", "--dry-run", "--json"]).ended(0).json();
    let depths = alike["distances"].as_array().unwrap().iter().find(|row| row["measure"] == "directory_depth");
    let planned = depths.unwrap()["planned"]["by_count"].as_f64().unwrap();
    assert!(planned * alike["plan"]["directories"].as_f64().unwrap() < 2.5, "{alike}");
}

#[test]
fn the_bounds_are_met_at_a_hundred_thousand_files() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let document =
        run(args!["generate", "web-2005", &tree, "--files", "100000", "--metadata-only", "--json"]).ended(0).json();
    assert_eq!(document["bounds"]["met"], true);
    let reached = &document["distances"][0]["reached"];
    assert!(reached["by_count"].as_f64().unwrap() <= 0.01 && reached["by_sum"].as_f64().unwrap() <= 0.02);
    assert_eq!(document["plan"]["directories"], 1000);
}

#[test]
fn bounds_that_cannot_be_met_are_said_to_be_missed_and_why() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let ran = run(args!["generate", "vu-2005", &tree, "--files", "100000", "--metadata-only"]).ended(1);
    assert!(ran.said().contains("further from the source than allowed"), "{}", ran.said());
    let text = ran.text().replace('\n', " ");
    assert!(text.contains("too large a part of it") && text.contains("needed."), "{text}");
}

#[test]
fn the_same_seed_is_the_same_tree_with_any_number_of_threads() {
    let sandbox = sandbox_for_many();
    let source = source(sandbox.path());
    let make = |name: &str, seed: &str, threads: &str| {
        let tree = sandbox.path().join(name);
        let more = ["--scale", "1", "--seed", seed, "--threads", threads, "--as-of", "2020-02-02"];
        finish(granulo().args(args!["generate", &source, &tree]).args(more)).ended(0);
        seen(&tree)
    };
    let (one, four, other) = (make("one", "7", "1"), make("four", "7", "4"), make("other", "8", "4"));
    assert!(one.len() > 200);
    assert!(one == four, "threads change the tree");
    assert!(one != other, "the seed does not");
}

#[test]
fn contents_are_what_they_are_called() {
    let sandbox = sandbox_for_many();
    let bytes = |content: &str| {
        let tree = sandbox.path().join(content);
        let ran = run(args![
            "generate",
            "weighted:k=3,min=100kB,max=1MB",
            &tree,
            "--files",
            "12",
            "--content",
            content,
            "--json"
        ]);
        (ran.ended(0).json(), seen(&tree).into_values().flat_map(|file| file.3).collect::<Vec<u8>>())
    };
    let (document, random) = bytes("random");
    assert_eq!(document["content"], "random");
    assert!(zstd::bulk::compress(&random, 3).unwrap().len() >= random.len());
    let (_, compressible) = bytes("compressible:2.5");
    let ratio = compressible.len() as f64 / zstd::bulk::compress(&compressible, 3).unwrap().len() as f64;
    assert!((ratio / 2.5 - 1.0).abs() <= 0.05, "{ratio}");
    let (document, zero) = bytes("zero");
    assert!(zero.len() == random.len() && zero.iter().all(|&byte| byte == 0));
    let whole = document["made"]["allocated_bytes"].as_u64().unwrap();
    assert!(whole >= zero.len() as u64);
    let (document, sparse) = bytes("sparse:75%");
    assert_eq!(sparse.len(), random.len());
    let share = document["made"]["allocated_bytes"].as_u64().unwrap() as f64 / whole as f64;
    assert!((share - 0.25).abs() < 0.03, "{share}");
    let (document, none) = bytes("none");
    assert_eq!((none.len(), document["made"]["allocated_bytes"].as_u64()), (random.len(), Some(0)));
}

#[test]
fn files_and_bytes_together_scale_the_sizes() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let ran = run(args!["generate", "vu-1984", &tree, "--files", "2000", "--bytes", "1MiB", "--json"]).ended(0).json();
    let bytes = ran["plan"]["size_bytes"].as_f64().unwrap();
    assert!((bytes / 1_048_576.0 - 1.0).abs() < 0.02, "{bytes}");
    assert!(ran["plan"]["size_factor"].as_f64().unwrap() < 0.5);
    assert!(ran["distances"][0]["reached"]["by_count"].as_f64().unwrap() < 0.01);
}

#[test]
fn profiles_and_laws_are_sources() {
    let sandbox = sandbox_for_many();
    let agrawal = run(args![
        "generate",
        "geriatrix-agrawal",
        sandbox.path().join("a"),
        "--files",
        "2300",
        "--metadata-only",
        "--json"
    ])
    .ended(0)
    .json();
    assert_eq!(agrawal["source"], "geriatrix-agrawal");
    assert_eq!(agrawal["plan"]["largest_bytes"], 8_388_608);
    assert_eq!(agrawal["distances"][0]["reached"]["by_count"], 0.0);
    let law = "weighted:k=4,min=1000,max=2000";
    let tree = sandbox.path().join("b");
    run(args!["generate", "vu-2005", &tree, "--sizes", law, "--files", "300"]).ended(0);
    let sizes: Vec<u64> = seen(&tree).values().filter(|file| file.1 != 0).map(|file| file.0).collect();
    assert!(sizes.len() == 300 && sizes.iter().all(|size| (1000..=2000).contains(size)));
    let listed = run(["show", "--list"]).ended(0).text();
    assert!(listed.contains("geriatrix-wang-os"), "{listed}");
}

#[test]
fn a_law_keeps_its_sizes_beside_a_source_with_few_files() {
    let sandbox = sandbox_for_many();
    let (tree, law) = (sandbox.path().join("tree"), "weighted:k=1,min=1000,max=1000000");
    // The source counts 230 files.
    run(args!["generate", "geriatrix-agrawal", &tree, "--sizes", law, "--files", "2000", "--metadata-only"]).ended(0);
    let sizes: BTreeSet<u64> = seen(&tree).values().filter(|file| file.1 != 0).map(|file| file.0).collect();
    assert!(sizes.len() > 1900, "{}", sizes.len());
}

#[test]
fn a_profile_with_one_directory_says_nothing_of_others() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let arguments = args!["generate", "geriatrix-wang-os", &tree, "--files", "300", "--dry-run"];
    let generate = |more: &[&str]| finish(granulo().args(&arguments).args(more));
    let said = generate(&[]).ended(0).text();
    assert!(!said.contains("does not record"), "{said}");
    refused(generate(&["--directory-files", "10"]), &["the source has one directory only", "omit it"]);
}

/// Removes what depends on the machine: times, rates, available and allocated bytes.
fn portable(text: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut leave_out = false;
    for line in text.lines() {
        leave_out = (leave_out && !line.is_empty()) || line.starts_with("Needs about") || line.starts_with("Created:");
        if !leave_out {
            kept.push(line.to_owned());
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn plan_and_result_read_as_they_always_did() {
    let sandbox = sandbox_for_many();
    let mut text = String::new();
    for more in
        [&["--files", "3000", "--dry-run"][..], &["--scale", "1/1000", "--bytes", "20MB", "--content", "sparse:90%"]]
    {
        let ran =
            finish(granulo().current_dir(sandbox.path()).args(["generate", "vu-2005", "tree"]).args(more)).ended(0);
        assert_eq!(ran.said(), "");
        assert!(ran.text().lines().all(|line| line.chars().count() <= 80), "{}", ran.text());
        text.push_str(&portable(&ran.text()));
    }
    assert_golden("generate-vu-2005.txt", &text);
    assert!(fs::read_dir(sandbox.path().join("tree")).unwrap().count() > 0);
}

#[test]
fn a_dry_run_makes_nothing() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let document = run(args!["generate", "vu-2005", &tree, "--files", "1000", "--dry-run", "--json"]).ended(0).json();
    assert!(!tree.exists());
    assert_eq!((&document["made"], &document["dry_run"]), (&Value::Null, &Value::from(true)));
    assert!(document["distances"][0]["planned"]["by_count"].as_f64().unwrap() < 0.01);
}

#[track_caller]
fn refused(ran: Ran, words: &[&str]) {
    let ran = ran.ended(2);
    for word in words {
        assert!(ran.said().contains(word), "{word}: {}", ran.said());
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let generate = |source: &str, more: &[&str]| finish(granulo().args(args!["generate", source, &tree]).args(more));
    refused(generate("vu-2006", &["--files", "1"]), &["vu-2005", "No such file"]);
    refused(generate("vu-2005", &[]), &["--files, --bytes or --scale"]);
    refused(generate("vu-2005", &["--files", "0"]), &["less than one file"]);
    refused(generate("vu-2005", &["--scale", "0"]), &["is not a scale"]);
    refused(generate("vu-2005", &["--files", "1000000000000000000"]), &["more than any file system can hold"]);
    refused(generate("vu-2005", &["--files", "100000000000", "--metadata-only"]), &["it needs"]);
    refused(generate("vu-2005", &["--bytes", "8EiB"]), &["it needs"]);
    refused(generate("vu-2005", &["--files", "99999999999999999999"]), &["not a number"]);
    refused(generate("vu-2005", &["--files", "1000", "--limit", "1MiB"]), &["the limit is 1 MiB", "--limit"]);
    refused(generate("vu-2005", &["--files", "10", "--content", "text"]), &["compressible:RATIO"]);
    refused(generate("vu-2005", &["--files", "10", "--sizes", "weighted:k=x"]), &["not a number for k"]);
    refused(generate("weighted:min=2,max=1", &["--files", "10"]), &["min is above max"]);
    refused(generate("vu-2005", &["--files", "10", "--keep-free", "100%"]), &["less than 100 %"]);
    refused(generate("vu-2005", &["--files", "10", "--scale", "1/2"]), &["cannot be used with"]);
    assert!(!tree.exists());
    let hostile = sandbox.path().join("a\x1b[31m\nb");
    refused(run(args!["generate", &hostile, &tree, "--files", "1"]), &["a\\x1b[31m\\nb"]);
    let file = write_file(sandbox.path().join("file"), 5);
    refused(run(args!["generate", "vu-2005", &file, "--files", "1"]), &["not a directory"]);
    refused(run(args!["generate", "vu-2005", file.join("x"), "--files", "1"]), &["cannot"]);
    refused(run(args!["generate", "vu-2005", sandbox.path().join("no/such"), "--files", "1"]), &["no: No such file"]);
}

#[test]
fn a_directory_with_something_in_it_is_left_alone() {
    let sandbox = sandbox_for_many();
    let file = write_file(sandbox.path().join("tree/precious"), 5);
    refused(run(args!["generate", "vu-2005", file.parent().unwrap(), "--files", "10"]), &["it is not empty"]);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    let hostile = sandbox.path().join("to\x1b[2Jo");
    let ran = run(args!["generate", "vu-1984", &hostile, "--files", "10"]).ended(0);
    assert!(ran.text().contains("to\\x1b[2Jo") && !ran.text().contains('\x1b'));
}

#[test]
fn where_one_may_not_write_it_says_so() {
    let sandbox = sandbox_for_many();
    let Some(mut command) = granulo_as_nobody(&sandbox) else { return };
    let closed = sandbox.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let set = |mode| fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    set(0o555);
    let ran = finish(command.args(args!["generate", "vu-1984", closed.join("tree"), "--files", "10"]));
    set(0o755);
    refused(ran, &["Permission denied", "closed"]);
}

#[test]
fn an_interruption_leaves_what_was_made_and_says_so() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let mut command = granulo();
    command.args(args!["generate", "vu-1984", &tree, "--files", "2000000", "--content", "none", "--keep-free", "0"]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !fs::read_dir(&tree).is_ok_and(|mut entries| entries.next().is_some()) {
        assert!(started.elapsed() < Duration::from_secs(120), "it never began");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap()).ended(1);
    assert!(ran.said().contains("files were created and remain in"), "{}", ran.said());
    assert!(ran.text().contains("Created before the interruption"), "{}", ran.text());
    assert!(fs::read_dir(&tree).unwrap().next().is_some());
}

#[test]
fn a_disk_that_fills_meanwhile_ends_it_in_order() {
    let sandbox = sandbox_for_many();
    fs::create_dir(sandbox.path().join("m")).unwrap();
    let script = "mount -t tmpfs -o size=200m tmpfs \"$1/m\"
\"$GRANULO\" generate weighted:k=0,min=4kB,max=4096 \"$1/m/tree\" --files 40000 --keep-free 0 --threads 1 &
until [ -n \"$(ls \"$1/m/tree\" 2>/dev/null)\" ]; do :; done
head -c 200M /dev/zero > \"$1/m/filler\" 2>/dev/null || true
wait $!";
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    let ran = ran.ended(1);
    assert!(
        ran.said().contains("No space left on device") && ran.said().contains("files were created"),
        "{}",
        ran.said()
    );
}

#[test]
fn space_that_is_to_stay_free_stays_free() {
    let sandbox = sandbox_for_many();
    fs::create_dir(sandbox.path().join("m")).unwrap();
    let script = "mount -t tmpfs -o size=64m tmpfs \"$1/m\"
\"$GRANULO\" generate weighted:k=0,min=1MB,max=1MB \"$1/m/tree\" --files 60 --keep-free 20%";
    let Some(ran) = in_mount_namespace(script, &args![sandbox.path()]) else { return };
    refused(ran, &["(20.0 % of the file system) must stay free"]);
}

#[test]
fn a_tree_ages_at_a_level_of_its_limit() {
    let sandbox = sandbox_for_many();
    let age = |name: &str, more: &[&str]| {
        let tree = sandbox.path().join(name);
        let arguments = ["--age", "4000", "--limit", "24MiB", "--fill", "50%", "--content", "zero", "--json"];
        let command = finish(granulo().args(args!["generate", "geriatrix-wang-os", &tree]).args(arguments).args(more));
        (command.ended(0).json(), seen(&tree))
    };
    let (document, one) = age("one", &[]);
    let aging = &document["aging"];
    assert_eq!((&aging["operations"], &document["complete"]), (&Value::from(4000), &Value::from(true)));
    assert_eq!(aging["level_bytes"], 12 << 20);
    let (created, deleted) = (aging["created"].as_u64().unwrap(), aging["deleted"].as_u64().unwrap());
    assert!(deleted > 500 && created - deleted == document["made"]["files"].as_u64().unwrap(), "{aging}");
    assert!(aging["age_distance"].as_f64().unwrap() < 0.2, "{aging}");
    let sizes: u64 = one.values().map(|file| file.0).sum();
    assert_eq!(document["made"]["size_bytes"], sizes);
    assert!(document["made"]["allocated_bytes"].as_u64().unwrap() <= 12 << 20);
    let sizes_of = |tree: &Seen| tree.iter().map(|(path, file)| (path.clone(), file.0)).collect::<Vec<_>>();
    assert!(sizes_of(&one) == sizes_of(&age("again", &[]).1), "the same seed is not the same tree");
    assert!(sizes_of(&one) != sizes_of(&age("other", &["--seed", "2"]).1));
}

#[test]
fn aging_that_cannot_be_is_refused() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let generate = |more: &[&str]| finish(granulo().args(args!["generate", "geriatrix-agrawal", &tree]).args(more));
    refused(generate(&["--fill", "50%", "--files", "5"]), &["--age"]);
    refused(generate(&["--age", "5", "--fill", "0"]), &["already in use"]);
    refused(generate(&["--age", "5", "--limit", "10", "--fill", "50%"]), &["not even one file"]);
    refused(generate(&["--age", "5", "--fill", "120%"]), &["less than 100 %"]);
    refused(generate(&["--age", "x"]), &["not a number"]);
    for idle in [&["--as-of", "2020-01-01"][..], &["--threads", "2"], &["--no-sync"]] {
        refused(generate(&[&["--age", "10", "--dry-run"], idle].concat()), &["cannot be used with", "--age"]);
    }
    assert!(!tree.exists());
}

#[test]
fn aging_with_more_directories_than_may_be_open_does_not_start() {
    let sandbox = sandbox_for_many();
    let tree = sandbox.path().join("tree");
    let mut few = without_wishes(Command::new("sh"));
    few.args(["-c", "ulimit -n 100 && ulimit -Hn 100 && exec \"$@\"", "sh"]).arg(binary());
    few.args(args!["generate", "weighted:k=0,min=1,max=1000", &tree, "--files", "500", "--age", "10"]);
    few.args(["--directory-files", "1"]);
    refused(finish(&mut few), &["keeps 500 directories open", "--directory-files"]);
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 0);
}

/// Aging on a separate file system: files deleted and recreated are more fragmented than before, and so is free space.
#[test]
fn aging_fragments_files_and_free_space() {
    for (kind, mkfs) in [("ext4", &["mkfs.ext4", "-F", "-q"][..]), ("xfs", &["mkfs.xfs", "-q"])] {
        let Some(image) = Image::make(400 << 20, mkfs, Mount::Kernel("")) else { return };
        let tree = image.root().join("tree");
        let arguments = ["--age", "6000", "--fill", "85%", "--metadata-only", "--keep-free", "2%", "--json"];
        let ran = finish(granulo().args(args!["generate", "weighted:k=6,min=4KiB,max=4MiB", &tree]).args(arguments));
        let document = ran.ended(0).json();
        assert_eq!(document["plan"]["room"]["file_system"], kind);
        let aging = &document["aging"];
        let figure = |when: &str, what: &str| aging[when].pointer(what).and_then(Value::as_f64).unwrap();
        assert!(figure("last", "/extents_per_file") > figure("first", "/extents_per_file"), "{kind}: {aging}");
        assert!(figure("last", "/free/extents") > 2.0 * figure("first", "/free/extents"), "{kind}: {aging}");
        let fill = aging["fill_fraction"].as_f64().unwrap();
        assert!((0.75..=0.9).contains(&fill), "{kind}: {aging}");
    }
}
