//! Everything that is accepted as a SOURCE: published names, survey files, fsstats CSVs; and what is not.

use std::fs;
use std::path::{Path, PathBuf};

use granulo_core::random::Random;
use serde_json::Value;

use crate::args;
use crate::harness::{assert_same, run, sandbox, source_tree, survey, wide_tree, write_file};
use crate::model::{AS_OF, number};

/// Asserts that `show SOURCE` refuses it with one sentence that names the file.
#[track_caller]
fn refused(source: &Path) -> String {
    let ran = run(args!["show", source]).ended(2);
    assert_eq!(ran.text(), "", "there is no result");
    let said = ran.said();
    assert!(said.starts_with("granulo: error: cannot read the "), "{said}");
    let name = source.file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name), "{said} does not name {name}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains("Error {") && !said.contains("os error"), "{said}");
    said
}

fn small_tree(root: &Path) {
    wide_tree(root, 4, 6);
    for size in [1, 100, 2048, 3000, 65_536, 65_537, 200_000, 1_500_000] {
        write_file(root.join(format!("sized/f{size}.dat")), size);
    }
    std::os::unix::fs::symlink("/absolute/target", root.join("link")).unwrap();
    std::os::unix::fs::symlink("f0", root.join("d0/link")).unwrap();
    fs::hard_link(root.join("sized/f3000.dat"), root.join("second-name")).unwrap();
    write_file(root.join(".snapshot/daily/f"), 10);
}

#[test]
fn vu_2005_reproduces_every_share_of_figure_3() {
    let document = run(["show", "vu-2005", "--json"]).ended(0).json();
    let table = fs::read_to_string(source_tree().join("data/tanenbaum_fig3_deciles.csv")).unwrap();
    let rows: Vec<Vec<f64>> = table
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.split(',').map(|field| field.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), 10);
    let block_sizes = document["block_sizes"].as_array().unwrap();
    let mut compared = 0;
    for (tenth, row) in rows.iter().enumerate() {
        let decile = &document["distributions"]["file_size"]["deciles"][tenth];
        assert_eq!(decile.as_f64(), Some(row[1]), "decile {}", tenth + 1);
        for (column, kib) in [1, 2, 4, 8, 16].into_iter().enumerate() {
            let block = block_sizes.iter().find(|row| row["block_bytes"] == kib * 1024).unwrap();
            let share = 100.0 * block["cumulative_weight"][tenth].as_f64().unwrap();
            let printed = row[2 + column];
            assert!((share - printed).abs() <= 0.2, "{kib} KiB, {} tenths: {share} is not {printed}", tenth + 1);
            compared += usize::from(tenth < 9);
        }
    }
    assert_eq!(compared, 45);
    for (kib, per_cent) in [(1, 0.0), (2, 1.0), (4, 2.0), (8, 4.0), (16, 10.0)] {
        let block = block_sizes.iter().find(|row| row["block_bytes"] == kib * 1024).unwrap();
        let growth = 100.0 * block["growth_fraction"].as_f64().unwrap();
        assert_eq!(growth.round(), per_cent, "growth of {kib} KiB blocks: {growth} %");
    }
    assert_eq!(document["counts"]["files"], 1_700_000);
    assert_eq!(document["method"], "published");
    assert_eq!(document["resolution"], "buckets");
}

#[test]
fn every_published_table_says_what_its_figure_says() {
    let table = fs::read_to_string(source_tree().join("data/tanenbaum_fig1_cdf.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.split(',').collect())
        .collect();
    for (column, name) in [(1, "vu-1984"), (2, "vu-2005"), (3, "web-2005")] {
        let document = run(["show", name, "--json"]).ended(0).json();
        let up_to = document["up_to"].as_array().unwrap();
        let mut compared = 0;
        for row in &rows {
            let size: u64 = row[0].parse().unwrap();
            let (Ok(printed), Some(found)) =
                (row[column].parse::<f64>(), up_to.iter().find(|found| found["size_bytes"] == size))
            else {
                continue;
            };
            let share = 100.0 * found["files_fraction"].as_f64().unwrap();
            assert!((share - printed).abs() <= 0.0051, "{name} up to {size}: {share} is not {printed}");
            compared += 1;
        }
        assert!(compared >= 19, "{name}: only {compared} rows");
    }
}

#[test]
fn distances_are_positive_symmetric_and_nothing_from_a_table_to_itself() {
    let distance = |a: &str, b: &str| {
        let document = run(["compare", a, b, "--json"]).ended(0).json();
        assert_eq!(document["schema"], "granulo/compare/1");
        let pair = &document["distances"][0];
        (pair["by_files"].as_f64().unwrap(), pair["by_bytes"].as_f64().unwrap())
    };
    let (by_files, by_bytes) = distance("vu-1984", "vu-2005");
    assert!(by_files > 0.05 && by_files < 1.0, "{by_files}");
    assert!(by_bytes > 0.5 && by_bytes < 1.0, "{by_bytes}");
    assert_eq!(distance("vu-2005", "vu-1984"), (by_files, by_bytes));
    assert_eq!(distance("vu-2005", "vu-2005"), (0.0, 0.0));
    // The largest gap of the printed curves is a lower bound of the distance.
    let table = fs::read_to_string(source_tree().join("data/tanenbaum_fig1_cdf.csv")).unwrap();
    let gap = |line: &str| -> Option<f64> {
        let fields: Vec<f64> = line.split(',').map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some((fields[1] - fields[2]).abs() / 100.0)
    };
    let largest = table.lines().filter_map(gap).fold(0.0, f64::max);
    assert!(largest > 0.05 && by_files >= largest - 0.001, "{by_files} is less than {largest}");
}

#[test]
fn a_comparison_has_a_column_for_every_source_and_a_row_for_every_pair() {
    let sandbox = sandbox();
    small_tree(&sandbox.path().join("t"));
    let file = sandbox.path().join("s.json");
    survey(args![sandbox.path().join("t"), "-o", &file]);
    let document = run(args!["compare", "vu-1984", "web-2005", &file, "--json"]).ended(0).json();
    assert_eq!(document["sources"].as_array().unwrap().len(), 3);
    assert_eq!(document["distances"].as_array().unwrap().len(), 3);
    for row in document["up_to"].as_array().unwrap() {
        for figures in ["files_fraction", "bytes_fraction"] {
            assert_eq!(row[figures].as_array().unwrap().len(), 3);
        }
    }
    assert_eq!(document["sources"][2]["resolution"], "exact");
    assert!(run(["compare", "vu-1984"]).ended(2).said().contains("SOURCE"));
}

#[test]
fn what_is_missing_or_no_file_is_said_with_what_to_do() {
    let sandbox = sandbox();
    let said = refused(&sandbox.path().join("vu-2006"));
    assert!(said.contains("No such file") && said.contains("vu-2005"), "{said}");
    let said = refused(sandbox.path());
    assert!(said.contains("directory") && said.contains("granulo survey"), "{said}");
}

#[test]
fn other_files_are_told_apart_in_words() {
    let sandbox = sandbox();
    let file = sandbox.path().join("other");
    let with = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        refused(&file)
    };
    let said = with(b"");
    assert!(said.contains("empty") && said.contains("granulo survey"), "{said}");
    for bytes in [&b"hello\n"[..], b"\xff\xfe\x00\x01", b"[1,2,3]", b"\"text\"", b"granulo checkpoint v2  \n"] {
        let said = with(bytes);
        assert!(said.contains("neither a granulo survey") || said.contains("not JSON"), "{said}");
    }
    assert!(with(b"PAR1PAR1").contains("not a whole table, or damaged"));
    assert!(with(b"{}").contains("without a schema"));
    assert!(with(b"{\"schema\":\"acme/compare/1\"}").contains("acme/compare/1"));
    assert!(with(b"{\"schema\":\"granulo/plan/1\"}").contains("missing field"));
    assert!(with(b"{\"schema\":17}").contains("cannot read the survey"));
    assert!(with(b"{ not json").contains("not JSON"));
    let said = with(b"{\"schema\":\"granulo/survey/2\",\"something\":{\"new\":[1]}}");
    assert!(said.contains("version 2") && said.contains("newer granulo"), "{said}");
    assert!(with(b"{\"schema\":\"granulo/survey/999999999999999\"}").contains("schema"));
    let said = with("{\"schema\":\"\\u001b]0;pwned\\u0007\"}".as_bytes());
    assert!(!said.contains('\x1b') && !said.contains('\x07'), "{said:?}");
    let mut deep = "{\"schema\":\"granulo/survey/1\",\"x\":".to_owned();
    deep.push_str(&"[".repeat(200_000));
    with(deep.as_bytes());
}

#[test]
fn noise_is_refused_and_never_a_panic() {
    let sandbox = sandbox();
    let file = sandbox.path().join("noise");
    let mut random = Random::new(1);
    for start in ["", "{", "histogram,", "{\"schema\":\"granulo/survey/1\","] {
        let mut bytes = start.as_bytes().to_vec();
        bytes.extend(random.bytes(4096));
        fs::write(&file, bytes).unwrap();
        refused(&file);
    }
}

fn survey_file(directory: &Path) -> (PathBuf, Vec<u8>) {
    small_tree(&directory.join("t"));
    let file = directory.join("s.json");
    survey(args![directory.join("t"), "-o", &file, "--as-of", AS_OF]);
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

#[test]
fn a_survey_file_cut_anywhere_is_damaged_not_believed() {
    let sandbox = sandbox();
    let (file, good) = survey_file(sandbox.path());
    let whole = good.trim_ascii_end().len();
    // Every position is tried in this process, some of them with the command.
    for length in (0..whole).step_by(whole / 400 + 1) {
        let read = granulo::survey::file::read(&good[..length], &file);
        assert!(read.is_err(), "cut to {length} bytes");
    }
    let cut = sandbox.path().join("cut.json");
    for length in (1..whole).step_by(whole / 12 + 1).chain([whole - 1]) {
        fs::write(&cut, &good[..length]).unwrap();
        refused(&cut);
    }
    // Truncated between two values, in a word, in a number.
    let text = String::from_utf8(good.clone()).unwrap();
    for (mark, behind) in [("\"counts\":{", 0), ("\"counts\":{", 4), ("\"overhead_fraction\":0.", 0)] {
        let length = text.find(mark).unwrap() + mark.len() + behind;
        fs::write(&cut, &good[..length]).unwrap();
        let said = refused(&cut);
        assert!(said.contains("it is truncated"), "cut behind {:?}: {said}", &text[length - 10..length]);
    }
    assert!(granulo::survey::file::read(&good[..whole], &file).is_ok());
}

#[test]
fn a_survey_file_that_contradicts_itself_is_refused() {
    let sandbox = sandbox();
    let (file, good) = survey_file(sandbox.path());
    let good: Value = serde_json::from_slice(&good).unwrap();
    let lie = |pointer: &str, value: Value| {
        let mut document = good.clone();
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
        fs::write(&file, document.to_string()).unwrap();
        let said = refused(&file);
        assert!(said.contains("take the survey again"), "{pointer}: {said}");
    };
    let sizes = "/distributions/file_size";
    lie(&format!("{sizes}/count"), 7.into());
    lie(&format!("{sizes}/total"), 7.into());
    lie(&format!("{sizes}/detail/count/0"), 0.into());
    lie(&format!("{sizes}/detail/value/0"), 99_999_999.into());
    lie(&format!("{sizes}/detail/value"), Value::from(Vec::<u64>::new()));
    lie(&format!("{sizes}/detail/bin_low/0"), 65_538.into());
    lie(&format!("{sizes}/detail/bin_sum/0"), 1.into());
    lie(&format!("{sizes}/detail/bin_max"), Value::Null);
    lie(&format!("{sizes}/detail"), Value::Null);
    lie("/distributions/name_length", Value::Null);
    lie("/counts/files", (-1).into());
    lie("/counts/files", u64::MAX.into());
    lie("/counts/files", "many".into());
    lie("/taken_at", "yesterday".into());
    lie("/method", "guess".into());
    lie("/where/directories/own/files/0/path", "bad\\escape".into());
    lie("/where/directories/own/files/0/files", u64::MAX.into());
    lie("/overhead_by_size/positive/0/low", 3.into());
    let mut document = good.clone();
    document["distributions"].as_object_mut().unwrap().remove("atime_age");
    fs::write(&file, document.to_string()).unwrap();
    assert!(refused(&file).contains("atime_age"));
}

#[test]
fn fields_that_are_not_known_are_left_alone() {
    let sandbox = sandbox();
    let (file, good) = survey_file(sandbox.path());
    let good: Value = serde_json::from_slice(&good).unwrap();
    let mut document = good.clone();
    document["later"] = Value::from(vec![1, 2]);
    document["counts"]["later"] = 5.into();
    document["distributions"]["later"] = serde_json::json!({"unit": "bytes", "histogram": [1, 2]});
    document["options"]["later"] = true.into();
    // A pretty-printed file is still valid.
    fs::write(&file, serde_json::to_string_pretty(&document).unwrap()).unwrap();
    assert_same(&run(args!["show", &file, "--json"]).ended(0).json(), &good, &[]);
}

#[test]
fn a_cutoff_and_a_block_size_are_answered_afterwards() {
    let sandbox = sandbox();
    let (file, _) = survey_file(sandbox.path());
    let text =
        run(args!["show", &file, "--cutoff", "2KiB", "--block-size", "1000", "--block-size", "64K"]).ended(0).text();
    assert!(text.contains("2 KiB") && text.contains("1,000 B") && text.contains("64 KiB"), "{text}");
    // The same for programs, to the byte.
    let arguments = ["--cutoff", "2KiB", "--cutoff", "65536", "--block-size", "1000", "--block-size", "64K", "--json"];
    let json = run(args!["show", &file].into_iter().chain(arguments.map(Into::into))).ended(0).json();
    let answers = &json["answers"];
    let at = |number: usize| &answers["cutoffs"][number];
    assert_eq!((&at(0)["cutoff_bytes"], &at(1)["cutoff_bytes"]), (&2048.into(), &65_536.into()));
    let up_to = json["up_to"].as_array().unwrap().iter().find(|row| row["size_bytes"] == 65_536).unwrap();
    assert_eq!((&at(1)["files_fraction"], &at(1)["doubt_files"]), (&up_to["files_fraction"], &0.into()));
    assert_eq!(answers["block_sizes"][0]["block_bytes"], 1000);
    let row = json["block_sizes"].as_array().unwrap().iter().find(|row| row["block_bytes"] == 65_536).unwrap();
    assert_eq!(&answers["block_sizes"][1], row);
    assert_eq!(json["distributions"], run(args!["show", &file, "--json"]).ended(0).json()["distributions"]);
    for wrong in [["--cutoff", "many"], ["--block-size", "0"], ["--block-size", "99999999999E"]] {
        run(args!["show", &file, wrong[0], wrong[1]]).ended(2);
    }
}

#[test]
fn an_fsstats_csv_keeps_counts_and_sums() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    small_tree(&root);
    let csv = sandbox.path().join("f.csv");
    let walked = survey(args![&root, "--fsstats", &csv, "--as-of", AS_OF]);
    let ran = run(args!["show", &csv, "--json"]).ended(0);
    assert_eq!(ran.said(), "", "what granulo wrote it reads without a warning");
    let read = ran.json();
    assert_eq!(read["method"], "fsstats");
    assert_eq!(read["resolution"], "buckets");
    for count in ["files", "directories", "symlinks", "special", "hard_links_skipped", "snapshot_directories_skipped"] {
        assert_eq!(read["counts"][count], walked["counts"][count], "{count}");
    }
    assert_eq!(read["totals"]["size_bytes"], walked["totals"]["size_bytes"]);
    assert_eq!(read["totals"]["allocated_bytes"], walked["totals"]["allocated_bytes"]);
    let names = ["file_size", "allocated", "positive_overhead", "directory_entries", "directory_size", "name_length"];
    for name in names.into_iter().chain(["link_count", "symlink_target_length", "mtime_age", "ctime_age", "atime_age"])
    {
        let (written, found) = (&walked["distributions"][name], &read["distributions"][name]);
        assert_eq!(found["count"], written["count"], "{name}: count");
        assert_eq!(found["total"], written["total"], "{name}: total");
    }
    // Its first row has empty files and others: how many are empty is not made up, also not for a sum.
    let sum = sandbox.path().join("sum.json");
    run(args!["merge", &csv, &csv, "-o", &sum]).ended(0);
    for (source, is_known) in [(&root, true), (&csv, false), (&sum, false)] {
        let command = if is_known { "survey" } else { "show" };
        assert_eq!(run(args![command, source]).ended(0).text().contains("empty ("), is_known, "{source:?}");
    }
    // The buckets of fsstats begin at 2 units: from there on they match.
    let buckets = |document: &Value| -> Vec<(u128, u128, u128)> {
        let buckets = document["distributions"]["file_size"]["buckets"].as_array().unwrap().clone();
        let from_2_kib = buckets.iter().filter(|bucket| number(&bucket["low"]) >= 2048);
        from_2_kib.map(|b| (number(&b["low"]), number(&b["count"]), number(&b["sum"]))).collect()
    };
    assert_eq!(buckets(&read), buckets(&walked));
}

#[test]
fn an_fsstats_csv_has_the_documented_lines_and_no_name() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    small_tree(&root);
    let csv = sandbox.path().join("f.csv");
    survey(args![&root, "--fsstats", &csv, "--as-of", AS_OF]);
    let text = fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    for (line, begins) in lines.iter().zip([
        "skipped special files,0",
        "skipped duplicate hardlinks,1",
        "skipped snapshot dirs,1",
        "total capacity used,",
        "total user data,1.75 MB",
        "percent overhead,",
    ]) {
        assert!(line.starts_with(begins), "{line} does not begin with {begins}");
    }
    let histograms: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("histogram,")).collect();
    let expected = "file size|capacity used|positive overhead|negative overhead|directory size (entries)|directory size|\
        filename length|link count|symlink target length|mtime (files)|mtime (KB)|ctime (files)|ctime (KB)|atime (files)|\
        atime (KB)";
    assert_eq!(histograms.join("|"), expected);
    let header = "bucket min,bucket max,count,percent,cumulative pct,val count,percent,cumulative pct";
    assert_eq!(lines.iter().filter(|line| **line == header).count(), 15);
    // 32 files, 26 of them below 2 KB: the 24 empty ones, 1 and 100 bytes.
    let first = lines.iter().position(|line| *line == header).unwrap() + 1;
    assert!(lines[first].starts_with("0,2,26,0.812500,0.812500,0.098633,"), "{}", lines[first]);
    assert_eq!(lines[first + 1].split(',').next(), Some("2"));
    for name in ["granulo-it", "sized", "f65536", "second-name", "link\n"] {
        assert!(!text.contains(name), "the name {name} is in the CSV");
    }
}

#[test]
fn an_fsstats_csv_without_a_section_is_read_with_a_warning() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    small_tree(&root);
    let csv = sandbox.path().join("f.csv");
    survey(args![&root, "--fsstats", &csv, "--as-of", AS_OF]);
    let text = fs::read_to_string(&csv).unwrap();
    let without = |name: &str| -> String {
        let sections = text.split_inclusive("\n\n");
        sections.filter(|section| !section.contains(&format!("histogram,{name}\n"))).collect()
    };
    fs::write(&csv, without("link count")).unwrap();
    let ran = run(args!["show", &csv, "--json"]).ended(0);
    assert!(ran.said().contains("link count") && ran.said().contains("warning"), "{}", ran.said());
    assert_eq!(ran.json()["counts"]["files"], 32);
    assert_eq!(ran.json()["distributions"]["link_count"]["count"], 0);
    // Without sizes there is no population.
    fs::write(&csv, without("file size")).unwrap();
    assert!(refused(&csv).contains("file size"));
    for length in (0..10).map(|tenth| tenth * text.len() / 10) {
        fs::write(&csv, &text[..length]).unwrap();
        let ran = run(args!["show", &csv, "--json"]);
        assert!(matches!(ran.code, Some(0 | 2)) && !ran.said().contains("panicked"), "cut to {length}: {ran:?}");
        assert!(!ran.said().is_empty(), "cut to {length} bytes, and nothing is said");
    }
}

#[test]
fn every_command_that_takes_a_source_takes_a_csv() {
    let sandbox = sandbox();
    let root = sandbox.path().join("t");
    small_tree(&root);
    let (csv, page) = (sandbox.path().join("f.csv"), sandbox.path().join("p.html"));
    survey(args![&root, "--fsstats", &csv, "--as-of", AS_OF]);
    assert!(run(args!["compare", &csv, "vu-2005"]).ended(0).text().contains("f.csv"));
    assert!(run(args!["merge", &csv, &csv, "--json"]).ended(0).json()["counts"]["files"] == 64);
    run(args!["report", &csv, "vu-1984", "-o", &page]).ended(0);
    assert!(fs::read_to_string(&page).unwrap().contains("f.csv"));
}

#[test]
fn reports_of_other_programs_are_sources_that_say_what_they_are() {
    let sandbox = sandbox();
    let lists = source_tree().join("tests/data/lists");
    let (zdb, fprof, dust) =
        (lists.join("zdb-level1techs.txt"), lists.join("fprof-atlas.txt"), sandbox.path().join("dust.json"));
    fs::write(&dust, r#"{"size":"12K","name":"/t","children":[{"size":"8.0K","name":"/t/a.txt","children":[]}]}"#)
        .unwrap();
    let shown = |path: &Path| run(args!["show", path, "--json"]).ended(0);
    for (path, name, said) in [
        (&zdb, "zdb-level1techs.txt (blocks of a ZFS pool)", "not files"),
        (&fprof, "fprof-atlas.txt", "is assumed"),
        (&dust, "dust.json", "-o b"),
    ] {
        let ran = shown(path);
        assert!(ran.said().contains(said), "{}", ran.said());
        let document = ran.json();
        assert_eq!((&document["name"], &document["method"]), (&name.into(), &"list".into()));
        assert_eq!(document["resolution"], "buckets", "{name}");
        assert!(run(args!["plan", path]).ended(0).text().contains(name));
        run(args!["compare", path, "vu-2005"]).ended(0);
        let cut = sandbox.path().join("cut");
        let whole = fs::read_to_string(path).unwrap();
        fs::write(&cut, whole.replace("8.00 KiB", "8.00 bytes").replace("4K:", "4K: x").replace("12K", "12Q")).unwrap();
        refused(&cut);
    }
    assert_eq!(shown(&fprof).json()["counts"]["files"], 116_411_394);
}

#[test]
fn a_table_of_files_is_a_source_as_the_survey_beside_it() {
    let sandbox = sandbox();
    let (root, table) = (sandbox.path().join("tree"), sandbox.path().join("files.parquet"));
    small_tree(&root);
    let survey = run(args!["survey", &root, "--files-out", &table, "--json"]).ended(0).json();
    let read = run(args!["show", &table, "--json"]).ended(0).json();
    assert_eq!(read["method"], "list");
    assert_eq!(read["name"], "files.parquet");
    for measure in ["file_size", "allocated"] {
        assert_eq!(read["distributions"][measure], survey["distributions"][measure], "{measure}");
    }
    for counted in ["files", "empty_files", "sparse_files"] {
        assert_eq!(read["counts"][counted], survey["counts"][counted], "{counted}");
    }
    let rows = |document: &Value, ranked: &str| -> Vec<(Value, Value, Value)> {
        let rows = document["where"][ranked]["rows"].as_array().unwrap();
        rows.iter()
            .map(|row| (row["files"].clone(), row["size_bytes"].clone(), row["allocated_bytes"].clone()))
            .collect()
    };
    for ranked in ["owners", "extensions"] {
        assert_eq!(rows(&read, ranked), rows(&survey, ranked), "{ranked}");
        assert!(!rows(&read, ranked).is_empty());
    }
    run(args!["plan", &table]).ended(0);

    let whole = fs::read(&table).unwrap();
    fs::write(&table, &whole[..whole.len() / 2]).unwrap();
    refused(&table);
    run(args!["compare", "vu-2005", &table]).ended(2);
}

#[test]
fn a_table_of_a_result_is_printed_as_csv() {
    let names = run(["show", "vu-2005", "--csv"]).ended(0).text();
    assert!(names.starts_with("table,rows,columns\n"), "{names}");
    assert!(names.contains("\ndistributions.file_size.buckets,"), "{names}");
    let table = run(["show", "vu-2005", "--csv=distributions.file_size.buckets"]).ended(0).text();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[0], "low,high,count,sum");
    let files: u64 = rows[1..].iter().map(|row| row.split(',').nth(2).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(files, 1_700_000);
    let wrong = run(["show", "vu-2005", "--csv=no\u{1b}[m"]).ended(2);
    assert!(wrong.said().contains(r"no table 'no\x1b[m'"), "{}", wrong.said());
}
