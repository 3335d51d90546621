//! `granulo cache`: predictions for a trace, against caches simulated here, one reference after the other.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use granulo_core::random::Random;
use serde_json::Value;

use crate::args;
use crate::harness::{assert_golden, run, sandbox, skip, source_tree};

/// A read or write: file, offset, length, whether it writes.
type Request = (u64, u64, u64, bool);

/// Typical program behaviour: some files read as a whole repeatedly, records of a larger one, a growing log.
fn requests(count: usize) -> Vec<Request> {
    let mut random = Random::new(7);
    let mut requests = Vec::new();
    let mut log_bytes = 0;
    while requests.len() < count {
        match random.below(10) {
            0..5 => {
                let file = random.below(12) * random.below(12);
                let size = 1000 + file * 1700;
                let whole = (0..size).step_by(8192).map(|at| (file, at, 8192.min(size - at), false));
                requests.extend(whole);
            }
            5..9 => {
                let record = random.below(2000) * random.below(2000) / 2000;
                requests.push((200, record * 512, 512, random.below(3) == 0));
            }
            _ => {
                let length = 100 + random.below(900);
                requests.push((201, log_bytes, length, true));
                log_bytes += length;
            }
        }
    }
    requests
}

/// The same requests in strace's format.
fn strace_of(requests: &[Request]) -> String {
    let mut text = String::new();
    let mut time = 1_700_000_000_000_000u64;
    let mut line = |what: String| {
        time += 37;
        let _ = writeln!(text, "100 {}.{:06} {what} <0.000010>", time / 1_000_000, time % 1_000_000);
    };
    let files: HashSet<u64> = requests.iter().map(|request| request.0).collect();
    let mut files: Vec<u64> = files.into_iter().collect();
    files.sort_unstable();
    for file in files {
        line(format!("openat(AT_FDCWD, \"/data/{file}\", O_RDWR) = {}</data/{file}>", file + 3));
    }
    for &(file, offset, length, is_write) in requests {
        let call = if is_write { "pwrite64" } else { "pread64" };
        line(format!("{call}({}</data/{file}>, \"x\"..., {length}, {offset}) = {length}", file + 3));
    }
    text
}

fn trace_in(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("trace");
    fs::write(&path, text).unwrap();
    path
}

/// Misses, fetched blocks, transfers and blocks written back for one cache, simulated with a list.
fn simulated(requests: &[Request], block: u64, blocks: usize) -> [u64; 4] {
    let mut cache: Vec<((u64, u64), bool)> = Vec::new();
    let mut sizes = std::collections::HashMap::new();
    let [mut misses, mut fetched, mut transfers, mut written] = [0u64; 4];
    for &(file, offset, length, is_write) in requests {
        let size = sizes.get(&file).copied().unwrap_or(0u64);
        let mut fetched_before = false;
        for place in offset / block..=(offset + length - 1) / block {
            let (begin, end) = (place * block, ((place + 1) * block).min(size));
            let found = cache.iter().position(|(key, _)| *key == (file, place));
            let dirty = found.is_some_and(|at| cache.remove(at).1);
            cache.push(((file, place), dirty || is_write));
            if cache.len() > blocks {
                written += u64::from(cache.remove(0).1);
            }
            let keeps_some = (begin < offset && begin < size) || offset + length < end;
            let is_fetched = found.is_none() && (!is_write || keeps_some);
            misses += u64::from(found.is_none());
            fetched += u64::from(is_fetched);
            transfers += u64::from(is_fetched && !fetched_before);
            fetched_before = is_fetched;
        }
        sizes.insert(file, size.max(offset + length));
    }
    written += cache.iter().filter(|(_, dirty)| *dirty).count() as u64;
    [misses, fetched, transfers, written]
}

fn cells(document: &Value) -> &Vec<Value> {
    document["cells"].as_array().unwrap()
}

#[test]
fn the_matrix_is_what_caches_do() {
    let sandbox = sandbox();
    let requests = requests(6_000);
    let trace = trace_in(sandbox.path(), &strace_of(&requests));
    let common = [
        "--block-size",
        "512,2K,8K",
        "--cache-size",
        "16K,100K,400K",
        "--json",
        "--latency",
        "1ms",
        "--bandwidth",
        "1000kB",
    ];
    let mut arguments = args!["cache", &trace];
    arguments.extend(args!["--base", "2s"]);
    let ran = run(arguments.iter().cloned().chain(common.map(Into::into))).ended(0);
    assert_eq!(ran.said(), "");
    let json = ran.json();
    assert_eq!(json["schema"], "granulo/cache/1");
    assert_eq!(
        json["seen"]["reads"].as_u64().unwrap() + json["seen"]["writes"].as_u64().unwrap(),
        requests.len() as u64
    );
    assert_eq!(cells(&json).len(), 9);
    for cell in cells(&json) {
        let (cache, block) = (cell["cache_bytes"].as_u64().unwrap(), cell["block_bytes"].as_u64().unwrap());
        let [misses, fetched, transfers, written] = simulated(&requests, block, (cache / block) as usize);
        let of = json["block_sizes"].as_array().unwrap().iter().find(|of| of["block_bytes"] == block).unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let references =
            ["reads", "partial_writes", "whole_writes"].map(|kind| number(&of["references"][kind])).iter().sum::<f64>();
        assert_eq!((number(&cell["miss_ratio"]) * references).round() as u64, misses, "{cell}");
        assert_eq!(number(&cell["fetched_blocks"]) as u64, fetched, "{cell}");
        assert_eq!(number(&cell["fetches"]) as u64, transfers, "{cell}");
        assert_eq!(number(&cell["written_back_blocks"]) as u64, written, "{cell}");
        assert_eq!(of["rate"], 1.0);
        let moved = (fetched + written) as f64 * block as f64 / 1e6;
        let seconds = 2.0 + 1e-3 * (transfers as f64 + number(&cell["writes"])) + moved;
        assert!((number(&cell["seconds"]) - seconds).abs() < 1e-6, "{cell}");
    }
    // Write-through: as many transfers as writes, whatever the cache.
    let through =
        run(arguments.into_iter().chain(common.map(Into::into)).chain(args!["--writes", "through"])).ended(0).json();
    let writes = requests.iter().filter(|request| request.3).count();
    assert!(cells(&through).iter().all(|cell| cell["writes"].as_f64().unwrap() as usize == writes));
}

#[test]
fn what_people_see_fits_80_columns() {
    let sandbox = sandbox();
    trace_in(sandbox.path(), &strace_of(&requests(8_000)));
    let see = |arguments: &[&str]| {
        let ran: crate::harness::Ran = crate::harness::finish(
            crate::harness::granulo().current_dir(sandbox.path()).args(["cache", "trace"]).args(arguments),
        );
        let text = ran.ended(0).text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        text
    };
    assert_golden("cache.txt", &see(&["--cache-size", "4K..16M", "--target", "50%,20%,15%,1%"]));
    let policies = see(&[
        "--block-size",
        "1K",
        "--cache-size",
        "64K,256K",
        "--policy",
        "all",
        "--device",
        "nvme",
        "--sample-blocks",
        "2000",
    ]);
    assert_golden("cache-policies.txt", &policies);
}

#[test]
fn samples_say_how_far_they_may_be_off() {
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(60_000)));
    let of = |block: &str, more: &[&str]| {
        let fixed = args!["cache", &trace, "--json", "--block-size", block, "--cache-size", "64K,256K,512K"];
        run(fixed.into_iter().chain(more.iter().map(Into::into))).ended(0).json()
    };
    let see = |more: &[&str]| of("64", more);
    let (exact, sampled) = (see(&[]), see(&["--sample", "50%"]));
    for (one, other) in cells(&exact).iter().zip(cells(&sampled)) {
        let number = |cell: &Value, name: &str| cell[name].as_f64().unwrap();
        let difference = (number(one, "miss_ratio") - number(other, "miss_ratio")).abs();
        assert_eq!(number(one, "error_ratio"), 0.0);
        assert!(number(other, "error_ratio") > 0.0 && difference < 2.0 * number(other, "error_ratio"), "{one} {other}");
    }
    // If a sample would have too few blocks, all are used.
    assert_eq!(of("4K", &["--sample", "50%"])["cells"], of("4K", &[])["cells"]);
    // A bound above the number of blocks changes nothing.
    assert_eq!(see(&["--sample-blocks", "1000000"])["cells"], exact["cells"]);
    let bounded = of("512", &["--sample-blocks", "1000"]);
    let rate = bounded["block_sizes"][0]["rate"].as_f64().unwrap();
    assert!(rate < 0.5 && rate > 0.05, "{rate}");
    // So does a bound on memory.
    let small = of("512", &["--memory", "100K"]);
    assert!(small["block_sizes"][0]["rate"].as_f64().unwrap() < 0.9);
}

#[test]
fn policies_are_told_apart() {
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(20_000)));
    let arguments = ["--json", "--block-size", "1K", "--cache-size", "128K", "--policy", "all"];
    let json = run(args!["cache", &trace].into_iter().chain(arguments.map(Into::into))).ended(0).json();
    let policies = json["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().map(|cell| cell["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["lru", "fifo", "clock", "2q", "s3-fifo", "arc"]);
    let ratios: Vec<f64> = policies.iter().map(|cell| cell["miss_ratio"].as_f64().unwrap()).collect();
    assert_eq!(ratios[0], cells(&json)[0]["miss_ratio"].as_f64().unwrap());
    // Whole files are scans, which policies with a probationary area handle better.
    assert!(ratios[3..].iter().all(|ratio| ratio < &ratios[0]), "{ratios:?}");
    assert!((0..6).all(|at| !ratios[..at].contains(&ratios[at])), "{ratios:?}");
}

#[test]
fn a_measured_matrix_stands_beside_what_is_predicted() {
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(3_000)));
    let measured = source_tree().join("benchmarks/runs/2026-11-21-bench/cache.json");
    let document: Value = serde_json::from_slice(&fs::read(&measured).unwrap()).unwrap();
    let written = sandbox.path().join("out.json");
    let arguments = args!["cache", &trace, "--block-size", "1K", "--beside", &measured, "-o", &written];
    let ran = run(arguments).ended(0);
    assert!(ran.said().contains("wrote"));
    assert!(ran.text().lines().all(|line| line.chars().count() <= 80 || line.contains("cache.json")), "{}", ran.text());
    let json: Value = serde_json::from_slice(&fs::read(&written).unwrap()).unwrap();
    let beside = json["beside"]["cells"].as_array().unwrap();
    assert_eq!(beside.len(), document["details"]["cells"].as_array().unwrap().len());
    // With the largest limit, each file system takes as long as measured, or as the device alone.
    for subject in beside.iter().map(|cell| &cell["subject"]).collect::<HashSet<_>>() {
        let of = beside.iter().filter(|cell| cell["subject"] == *subject);
        let largest = of.max_by_key(|cell| cell["limit_bytes"].as_u64()).unwrap();
        let seconds = |name: &str| largest[name].as_f64().unwrap();
        let off = seconds("predicted_seconds") - seconds("measured_seconds");
        assert!(off.abs() < 1e-6 || (off > 0.0 && seconds("base_seconds") == 0.0), "{largest}");
    }
    assert_eq!(json["base_seconds"], beside[0]["base_seconds"]);
    assert_eq!(json["beside"]["is_fitted"], true);
    for (cell, was) in beside.iter().zip(document["details"]["cells"].as_array().unwrap()) {
        let number = |cell: &Value, name: &str| cell[name].as_u64().unwrap();
        assert_eq!(number(cell, "cache_bytes"), number(cell, "limit_bytes") - number(was, "anonymous_bytes"));
        assert_eq!(number(cell, "block_bytes"), number(cell, "file_system_block_bytes").max(4096));
        assert_eq!(cell["measured_read_bytes"], was["read_bytes"]);
        assert!(cell["predicted_seconds"].as_f64() >= cell["base_seconds"].as_f64());
    }
    let create = source_tree().join("benchmarks/runs/2026-11-21-bench/create.json");
    let said = run(args!["cache", &trace, "--beside", &create]).ended(2).said();
    assert!(said.contains("the result of a different bench"), "{said}");
    let said = run(args!["cache", &trace, "--beside", &trace]).ended(2).said();
    assert!(said.contains("granulo bench cache -o"), "{said}");
}

#[test]
fn a_device_is_measured_past_the_page_cache() {
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(100)));
    let file = sandbox.path().join("file");
    let bytes: Vec<u8> = (0..64u32 << 20).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
    fs::write(&file, bytes).unwrap();
    let ran = run(args!["cache", &trace, "--json", "--measure", &file]);
    if ran.code == Some(2) && ran.said().contains("O_DIRECT") {
        return skip("the file system of the temporary directory has no direct reads");
    }
    let json = ran.ended(0).json();
    let device = &json["device"];
    let (latency, rate) = (device["latency_seconds"].as_f64().unwrap(), device["bytes_per_second"].as_f64().unwrap());
    assert!((0.0..1.0).contains(&latency) && (1e6..1e12).contains(&rate), "{device}");
    assert_eq!(device["name"], file.to_str().unwrap());
}

#[test]
fn removed_files_leave_the_cache() {
    let sandbox = sandbox();
    let mut text = String::new();
    let mut time = 0;
    for round in 0..50 {
        for what in [
            format!("openat(AT_FDCWD, \"/tmp/{round}\", O_RDWR|O_CREAT, 0600) = 3</tmp/{round}>"),
            format!("write(3</tmp/{round}>, \"x\"..., 4096) = 4096"),
            format!("pread64(3</tmp/{round}>, \"x\"..., 4096, 0) = 4096"),
            format!("close(3</tmp/{round}>) = 0"),
            format!("unlink(\"/tmp/{round}\") = 0"),
        ] {
            time += 1;
            let _ = writeln!(text, "100 1700000000.{time:06} {what} <0.000010>");
        }
    }
    let trace = trace_in(sandbox.path(), &text);
    let json = run(args!["cache", &trace, "--json", "--block-size", "4K", "--cache-size", "4K"]).ended(0).json();
    assert_eq!(json["seen"]["cuts"], 50);
    // Nothing is fetched, because everything is new, and nothing is ever written back.
    for field in ["fetched_blocks", "written_back_blocks", "seconds"] {
        assert_eq!(cells(&json)[0][field], 0.0, "{field}");
    }
    assert_eq!(cells(&json)[0]["miss_ratio"], 0.5);
}

#[test]
fn wrong_requests_are_refused_with_what_would_be_right() {
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(10)));
    let nothing = sandbox.path().join("nothing");
    fs::write(&nothing, "").unwrap();
    for (arguments, said) in [
        (vec!["--block-size", "0"], "from 16 B to 1 GiB"),
        (vec!["--block-size", "2G"], "from 16 B to 1 GiB"),
        (vec!["--block-size", "1K", "--cache-size", "1000"], "no cache can hold even one block"),
        (vec!["--cache-size", "8G..1M"], "the smaller size first"),
        (vec!["--cache-size", "1..15E"], "at most 64"),
        (vec!["--sample", "0%"], "more than 0 %"),
        (vec!["--sample", "0.5"], "write 50%"),
        (vec!["--sample-blocks", "3"], "1000"),
        (vec!["--policy", "mru"], "s3-fifo, arc, all"),
        (vec!["--device", "tape"], "disk, ssd, nvme"),
        (vec!["--latency", "8"], "8ms, 90us"),
        (vec!["--bandwidth", "0"], "the bandwidth must be more than 0"),
        (vec!["--measure", "/etc/passwd", "--device", "ssd"], "cannot be used with"),
        (vec!["--measure", "/nothere"], "No such file"),
        (vec!["--format", "tar"], "possible values: auto, granulo, strace"),
        (vec!["--threads", "0"], "1..=1024"),
    ] {
        let ran = run(args!["cache", &trace].into_iter().chain(arguments.iter().map(Into::into))).ended(2);
        assert!(ran.said().contains(said), "{arguments:?}: {}", ran.said());
        assert_eq!(ran.text(), "");
    }
    run(args!["cache", &nothing]).ended(2);
    run(args!["cache", sandbox.path().join("nothere")]).ended(2);
    let file = sandbox.path().join("no-file");
    fs::create_dir(&file).unwrap();
    run(args!["cache", &trace, "-o", &file]).ended(2);
    run(args!["cache", &trace, "--report", sandbox.path().join("nothere/page.html")]).ended(2);
}

#[test]
fn a_result_that_cannot_be_written_is_printed() {
    if !Path::new("/dev/full").exists() {
        return skip("there is no /dev/full");
    }
    let sandbox = sandbox();
    let trace = trace_in(sandbox.path(), &strace_of(&requests(100)));
    let printed = run(args!["cache", &trace, "--quiet"]).ended(0);
    for option in ["-o", "--report"] {
        let ran = run(args!["cache", &trace, "--quiet", option, "/dev/full"]).ended(1);
        assert_eq!(ran.text(), printed.text());
        assert!(ran.said().contains("/dev/full: No space left on device"), "{}", ran.said());
    }
}

#[test]
fn what_cannot_be_followed_is_counted_and_the_rest_stands() {
    let sandbox = sandbox();
    let text = "100 1700000000.000001 openat(AT_FDCWD, \"/a\", O_RDWR) = 3</a> <0.000010>\n\
                100 1700000000.000002 pread64(3</a>, \"x\"..., 4096, 0) = 4096 <0.000010>\n\
                100 1700000000.000003 pread64(3</a>, \"x\"..., 9223372036854775807, 0) = 9223372036854775807 <0.000010>\n\
                100 1700000000.000004 pread64(3</a>, \"x\"..., 4096, 9223372036854771712) = 4096 <0.000010>\n\
                100 1700000000.000005 pread64(3</a>, \"x\"..., 4096, 0) = 0 <0.000010>\n\
                garbage\n\
                100 1700000000.000006 pread64(3</a>, \"x\"..., 4096, 0) = 4096 <0.000010>\n";
    let trace = trace_in(sandbox.path(), text);
    let ran = run(args!["cache", &trace, "--json", "--block-size", "16,4K"]).ended(1);
    let (json, said) = (ran.json(), ran.said());
    assert!(said.contains("longer than 64 GiB (the longest 8.00 EiB)") && said.contains("--longest-request"), "{said}");
    assert_eq!((&json["seen"]["too_long"], &json["seen"]["reads"]), (&1.into(), &3.into()), "{said}");
    assert_eq!(json["block_sizes"][1]["blocks"], 2);
    // A trace without reads and writes has no result, and this is reported.
    let trace = trace_in(sandbox.path(), text.split_inclusive('\n').next().unwrap());
    let ran = run(args!["cache", &trace]).ended(1);
    assert!(ran.said().contains("nothing in the trace reads or writes"), "{}", ran.said());
    assert!(ran.text().contains("0 reads"));
}
