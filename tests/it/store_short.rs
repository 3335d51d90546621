//! Reads and writes that are short, from outside. POSIX lets any of them transfer less than asked for; the program has
//! to continue. Two ways, both genuine: a tracer lowers the counts of calls before the kernel sees them (`shorten.c`,
//! built here with `cc`), and a limit of the size of files (`prlimit --fsize`) lets the write that crosses it end in
//! the middle and the next one fail.
//!
//! What must hold: short calls change no result and no exit status, whatever the command; a write that ends in the
//! middle and then fails is told, and loses nothing.
//!
//! `GRANULO_SHORTS` is the number of seeds, and of limits for each command (3).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use granulo_core::random::Random;

use crate::args;
use crate::harness::{Ran, binary, finish, has_program, skip, source_tree, without_wishes};
use crate::store_faults::{prepared, restore, stays_sound, works};
use crate::store_place::{Place, bytes, can_trace, files, flip};

fn rounds() -> u64 {
    std::env::var("GRANULO_SHORTS").map_or(3, |value| value.parse().expect("GRANULO_SHORTS is a number"))
}

/// The tracer, built; `None`, with the reason reported, if it cannot be built or may not trace.
fn tracer(place: &Place) -> Option<PathBuf> {
    let tracer = place.path("shorten");
    let source = source_tree().join("tests/it/shorten.c");
    let built = Command::new("cc").args(["-O1", "-o"]).arg(&tracer).arg(source).stderr(Stdio::null()).status();
    let works = built.is_ok_and(|status| status.success())
        && Command::new(&tracer).args(["1", "1", "/bin/true"]).status().is_ok_and(|status| status.success());
    if !works {
        skip("it makes calls short, which needs a C compiler (cc) and the right to trace");
    }
    works.then_some(tracer)
}

/// Runs a command of the store; half of its calls, or all, are short.
fn shortened(tracer: &Path, (seed, one_in): (u64, u64), arguments: Vec<OsString>) -> Ran {
    let mut command = without_wishes(Command::new(tracer));
    command.arg(seed.to_string()).arg(one_in.to_string()).arg(binary()).arg("store").args(arguments);
    finish(&mut command)
}

/// A store, with every command that reads or writes it, while calls are short.
fn short_calls(fast: usize, slow: usize) {
    let mut place = Place::new(fast, slow, &[]);
    let Some(tracer) = tracer(&place) else { return };
    // Large enough for direct writes.
    let direct = bytes(77, 3_000_000);
    for seed in 1..=rounds() {
        let one_in = 1 + seed % 2;
        let prefix = format!("r{seed}");
        let run = |command: &str, rest: Vec<OsString>| {
            let ran = shortened(&tracer, (seed, one_in), [args![command, &place.home], rest].concat());
            assert_eq!(ran.code, Some(0), "seed {seed}, {command}: {}{}", ran.said(), ran.text());
            ran
        };
        let source = place.path(&prefix);
        let mut added = Vec::new();
        for number in 0..12u64 {
            let key = format!("{prefix}/d{}/{number}", number % 3);
            let content = match number {
                7 => bytes(seed, 250_000),
                8 => direct.clone(),
                _ => bytes(seed << 8 | number, 300 * number as usize),
            };
            fs::create_dir_all(source.join(&key).parent().unwrap()).unwrap();
            fs::write(source.join(&key), &content).unwrap();
            added.push((key, content));
        }
        run("import", args!["--quiet", &source]);
        let one = place.path("one");
        fs::write(&one, bytes(seed, 70_000)).unwrap();
        run("put", args!["one", &one]);
        for (key, content) in added.iter().chain([&("one".to_owned(), bytes(seed, 70_000))]) {
            let got = run("get", args![key]);
            assert!(got.stdout == *content, "seed {seed}: {key} has other bytes");
        }
        run("rm", args!["-r", format!("{prefix}/d1")]);
        run("compact", args!["--all"]);
        let target = place.path(&format!("out{seed}"));
        run("export", args!["--quiet", &target]);
        let listed = run("ls", args!["-R"]).text();
        place.objects.extend(added.into_iter().filter(|(key, _)| !key.starts_with(&format!("{prefix}/d1/"))));
        place.objects.insert("one".to_owned(), bytes(seed, 70_000));
        for (key, content) in &place.objects {
            assert!(
                fs::read(target.join(key)).unwrap() == *content,
                "seed {seed}: {key} was exported with other bytes"
            );
            assert!(listed.lines().any(|line| line.ends_with(key)), "seed {seed}: {key} is not listed");
        }
        assert_eq!(files(&target).len(), place.objects.len());
        if place.devices.len() > 1 {
            let run = |command: &str, rest: Vec<OsString>| {
                let ran = shortened(&tracer, (seed, one_in), [args![command, &place.home], rest].concat());
                assert_eq!(ran.code, Some(0), "seed {seed}, {command}: {}{}", ran.said(), ran.text());
            };
            flip(&place.segments(0)[0], 5000);
            run("repair", args![]);
            let new = place.path(&format!("new{seed}"));
            place.take_away(1, false);
            run("rebuild", args!["--device", "1", "--onto", &new]);
            place.devices[1] = new;
        }
        place.run_on("check", ["--deep"]).ended(0);
        place.is_whole();
    }
}

#[test]
fn short_calls_change_nothing_in_a_store_in_one_directory() {
    short_calls(0, 0);
}

#[test]
fn short_calls_change_nothing_in_a_store_on_two_fast_and_three_slow_devices() {
    short_calls(2, 3);
}

/// Offset and length of each write of more than one byte.
fn writes(trace: &str) -> Vec<(u64, u64)> {
    let write = |line: &str| {
        let (before, _) = line.rsplit_once(')')?;
        let mut last = before.rsplit(", ");
        let (offset, length) = (last.next()?.parse().ok()?, last.next()?.parse().ok()?);
        (length > 1).then_some((offset, length))
    };
    let whole = trace.lines().map(|line| line.replace(" <unfinished ...>", ")"));
    whole.filter(|line| line.contains("pwrite64(")).filter_map(|line| write(&line)).collect()
}

#[test]
fn a_write_that_ends_in_the_middle_and_then_fails_is_told_and_loses_nothing() {
    if !can_trace() {
        return;
    }
    if !has_program("prlimit") {
        return skip("it limits the size of files, which needs the program prlimit (util-linux)");
    }
    for (fast, slow) in [(0, 0), (2, 3)] {
        let (place, pristine) = prepared(fast, slow);
        for (number, work) in works(&place).iter().enumerate() {
            restore(&place, &pristine);
            place.strace(&["-e", "trace=pwrite64"], work.arguments.clone()).unwrap().ended(0);
            let writes = writes(&place.trace());
            let longest = writes.iter().map(|(offset, length)| offset + length).max().unwrap();
            let mut failed = 0;
            for round in 0..rounds() {
                restore(&place, &pristine);
                let mut random = Random::new(round << 8 | number as u64);
                // In the middle of a write; two of three times behind everything but the last ones.
                let late = |(offset, length): &&(u64, u64)| round % 3 == 2 || (offset + length) * 4 > longest * 3;
                let candidates: Vec<_> = writes.iter().filter(late).collect();
                let (offset, length) = candidates[random.below(candidates.len() as u64) as usize];
                let limit = offset + 1 + random.below(length - 1);
                let what = format!("{} of {} devices, files of {limit} bytes", work.name, place.devices.len());
                let mut command = without_wishes(Command::new("sh"));
                // Ignored, the signal leaves the error of the call.
                command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", "prlimit", &format!("--fsize={limit}")]);
                command.arg(binary()).arg("store").args(&work.arguments);
                let ran = finish(&mut command);
                assert!(matches!(ran.code, Some(0..=2)), "{what}: {:?}, {}", ran.code, ran.said());
                assert!(!ran.said().contains("panicked at"), "{what}: {}", ran.said());
                assert!(ran.code == Some(0) || !ran.said().trim().is_empty(), "{what}: it fails and says nothing");
                failed += u64::from(ran.code != Some(0));
                stays_sound(&place, work, ran.code == Some(0), &what);
            }
            println!("{} of {} devices: {failed} of {} failed", work.name, place.devices.len(), rounds());
        }
    }
}
