//! One step of the comparison of index libraries, as a process of its own: `run.py` calls it and defines the protocol.
//!
//! Every line of the output is `name value` or `name=value` pairs for run.py; errors go to standard error, exit status
//! 1.

mod engines;
mod keys;
mod table;

use engines::{Batch, Reader, Result, Session};
use keys::{LARGE, Shuffle, Tree, VALUE, value};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BATCH: u64 = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let (&[step, engine, dir], rest) = arguments.split_at_checked(3).ok_or("STEP ENGINE DIR ...")? else {
        unreachable!()
    };
    let dir = PathBuf::from(dir);
    let number = |i: usize| -> Result<u64> { Ok(rest.get(i).ok_or("too few arguments")?.parse()?) };
    match step {
        "load" => load(engine, &dir, number(0)?, rest.get(1) == Some(&"random"), rest.get(2) == Some(&"each")),
        "cold" => cold(engine, &dir, number(0)?, rest[1], number(2)?, number(3)?),
        "warm" => warm(engine, &dir, number(0)?, number(1)?),
        "update" => update(engine, &dir, number(0)?),
        "crash-write" => crash_write(engine, &dir, number(0)?, number(1)?),
        "reopen" => reopen(engine, &dir),
        "crash-check" => crash_check(engine, &dir, number(0)?, number(1)?, number(2)?),
        "follow" => follow(engine, &dir, number(0)?, number(1)?),
        "advance" => advance(engine, &dir, number(0)?, number(1)?),
        "hold" => hold(engine, &dir, rest.first() == Some(&"idle")),
        "churn" => churn(engine, &dir, number(0)?, number(1)?, rest.get(2) == Some(&"clear")),
        "try-write" => try_write(engine, &dir),
        "try-read" => try_read(engine, &dir, number(0)?),
        "flipped" => flipped(engine, &dir, number(0)?),
        "longest-key" => longest_key(engine, &dir),
        "keys" => keys_of(number(0)?),
        _ => Err("no such step".into()),
    }
}

/// Peak, private and file-backed resident KiB of this process.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("0").to_owned()
    };
    format!("peak_kib={} private_kib={} mapped_kib={}", field("VmHWM:"), field("RssAnon:"), field("RssFile:"))
}

/// Private resident KiB so far: the step's own memory, above all the list of directories.
fn own() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn files(dir: &Path, visit: &mut dyn FnMut(&Path, &std::fs::Metadata)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => files(&entry.path(), visit),
            Ok(data) => visit(&entry.path(), &data),
            Err(_) => {}
        }
    }
}

/// Size and allocated bytes of the files in a directory.
fn size(dir: &Path) -> (u64, u64) {
    let (mut length, mut allocated) = (0, 0);
    files(dir, &mut |_, data| {
        length += data.len();
        allocated += data.blocks() * 512;
    });
    (length, allocated)
}

/// KiB of the files in a directory that are in the page cache.
fn cached(dir: &Path) -> u64 {
    let mut pages = 0;
    files(dir, &mut |path, data| {
        use std::os::fd::AsRawFd;
        let Ok(file) = std::fs::File::open(path) else { return };
        let length = data.len() as usize;
        if length == 0 {
            return;
        }
        let mut resident = vec![0u8; length.div_ceil(4096)];
        // SAFETY: a private read-only mapping, never dereferenced, unmapped before the file is closed.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            if map != libc::MAP_FAILED {
                libc::mincore(map, length, resident.as_mut_ptr());
                libc::munmap(map, length);
            }
        }
        pages += resident.iter().filter(|&&page| page & 1 == 1).count() as u64;
    });
    pages * 4
}

fn load(engine: &str, dir: &Path, n: u64, random: bool, each: bool) -> Result<()> {
    let tree = Tree::new(n);
    let order = Shuffle::new(n, 1);
    let own = own();
    let start = Instant::now();
    let mut writer = engines::writer(engine, dir, !random && !each)?;
    let mut batch = Batch::default();
    for first in (0..n).step_by(BATCH as usize) {
        batch.clear();
        for i in first..n.min(first + BATCH) {
            let i = if random { order.at(i) } else { i };
            batch.push(Some(value(i, 0)), |key| tree.key(i, key));
        }
        writer.apply(&batch)?;
        if each {
            writer.commit()?;
        }
    }
    writer.commit()?;
    let seconds = start.elapsed().as_secs_f64();
    writer.settle()?;
    let settled = start.elapsed().as_secs_f64();
    let memory = memory();
    drop(writer);
    let closed = start.elapsed().as_secs_f64();
    let (length, allocated) = size(dir);
    println!(
        "seconds={seconds:.4} settled={settled:.4} closed={closed:.4} length={length} allocated={allocated} own_kib={own} {memory}"
    );
    Ok(())
}

/// Random look-ups by `threads` threads, each with its own snapshot. All of them hit, or all of them miss.
fn look_up(reader: &dyn Reader, tree: &Tree, seed: u64, count: u64, threads: u64, hit: bool) -> Result<f64> {
    let order = Shuffle::new(tree.n, seed);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|t| {
                let order = &order;
                scope.spawn(move || -> Result<()> {
                    let (mut session, mut key, mut found) = (reader.session()?, Vec::new(), [0; VALUE]);
                    for j in (t..count).step_by(threads as usize) {
                        let i = order.at(j % tree.n);
                        key.clear();
                        if hit {
                            tree.key(i, &mut key)
                        } else {
                            tree.missing(i, &mut key)
                        }
                        if session.get(&key, &mut found)? != hit || hit && found != value(i, 0) {
                            return Err(format!("look-up of entry {i}").into());
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

fn list(session: &mut dyn Session, prefix: &[u8], expected: u64) -> Result<f64> {
    let start = Instant::now();
    let (mut count, mut sum, mut last, mut ordered) = (0, 0u64, Vec::new(), true);
    session.scan(prefix, &mut |key, value| {
        ordered &= *last < *key;
        last.clear();
        last.extend_from_slice(key);
        sum = sum.wrapping_add(u64::from(value[0]));
        count += 1;
    })?;
    std::hint::black_box(sum);
    if count != expected || !ordered {
        return Err(format!("listing has {count} entries of {expected}, in order: {ordered}").into());
    }
    Ok(start.elapsed().as_secs_f64())
}

fn cold(engine: &str, dir: &Path, n: u64, what: &str, count: u64, threads: u64) -> Result<()> {
    let tree = Tree::new(n);
    let own = own();
    let start = Instant::now();
    let reader = engines::reader(engine, dir)?;
    look_up(&*reader, &tree, 2, 1, 1, true)?;
    let opened = start.elapsed().as_secs_f64();
    match what {
        "get" => drop(look_up(&*reader, &tree, 3, count, threads, true)?),
        "directory" => drop(list(&mut *reader.session()?, &tree.large_prefix(), LARGE)?),
        "all" => drop(list(&mut *reader.session()?, b"", n)?),
        _ => return Err("get, directory or all".into()),
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("opened={opened:.6} seconds={seconds:.6} own_kib={own} cached_kib={} {}", cached(dir), memory());
    Ok(())
}

fn warm(engine: &str, dir: &Path, n: u64, count: u64) -> Result<()> {
    let tree = Tree::new(n);
    let own = own();
    let reader = engines::reader(engine, dir)?;
    list(&mut *reader.session()?, b"", n)?;
    look_up(&*reader, &tree, 4, count / 4, 1, true)?;
    let one = look_up(&*reader, &tree, 5, count, 1, true)?;
    let four = look_up(&*reader, &tree, 6, count, 4, true)?;
    let miss = look_up(&*reader, &tree, 7, count, 1, false)?;
    let mut session = reader.session()?;
    let mut directory = f64::MAX;
    for _ in 0..5 {
        directory = directory.min(list(&mut *session, &tree.large_prefix(), LARGE)?);
    }
    let all = list(&mut *session, b"", n)?;
    // The cost of generating an entry's key and value, which is part of every figure.
    let order = Shuffle::new(n, 5);
    let start = Instant::now();
    let mut key = Vec::new();
    for j in 0..count {
        key.clear();
        tree.key(order.at(j % n), &mut key);
        std::hint::black_box((&key, value(j, 0)));
    }
    let keys = start.elapsed().as_secs_f64();
    println!(
        "get1={one:.6} get4={four:.6} miss={miss:.6} directory={directory:.6} all={all:.6} keys={keys:.6} own_kib={own} cached_kib={} {}",
        cached(dir),
        memory()
    );
    Ok(())
}

fn update(engine: &str, dir: &Path, n: u64) -> Result<()> {
    let tree = Tree::new(n);
    let order = Shuffle::new(n, 10);
    let mut writer = engines::writer(engine, dir, false)?;
    let before = size(dir).0;
    let mut batch = Batch::default();
    let mut steps = Vec::new();
    for deletion in [false, true] {
        let start = Instant::now();
        let range = if deletion { n / 100..n / 50 } else { 0..n / 100 };
        for first in range.clone().step_by(BATCH as usize) {
            batch.clear();
            for j in first..range.end.min(first + BATCH) {
                let i = order.at(j);
                batch.push((!deletion).then(|| value(i, 1)), |key| tree.key(i, key));
            }
            writer.apply(&batch)?;
            writer.commit()?;
        }
        steps.push(start.elapsed().as_secs_f64());
    }
    writer.settle()?;
    let memory = memory();
    drop(writer);
    println!("overwrite={:.6} delete={:.6} before={before} after={} {memory}", steps[0], steps[1], size(dir).0);
    Ok(())
}

/// Entries of a batch in the crash test.
const SMALL: u64 = 1000;

fn crash_write(engine: &str, dir: &Path, n: u64, from: u64) -> Result<()> {
    let tree = Tree::new(n);
    let mut writer = engines::writer(engine, dir, false)?;
    let mut batch = Batch::default();
    let mut output = std::io::stdout();
    for b in from.. {
        batch.clear();
        for j in 0..SMALL {
            batch.push(Some(value(j, b)), |key| tree.further(b, j, key));
        }
        writer.apply(&batch)?;
        writer.commit()?;
        writeln!(output, "{b}")?;
        output.flush()?;
    }
    Ok(())
}

/// Opens as the next writer would, and closes again.
fn reopen(engine: &str, dir: &Path) -> Result<()> {
    let start = Instant::now();
    let writer = engines::writer(engine, dir, false)?;
    println!("opened={:.6}", start.elapsed().as_secs_f64());
    drop(writer);
    Ok(())
}

/// Acknowledged batches from `from` to before `until` must exist, the next one complete or not at all.
fn crash_check(engine: &str, dir: &Path, n: u64, from: u64, until: u64) -> Result<()> {
    let tree = Tree::new(n);
    let reader = engines::reader(engine, dir)?;
    let mut session = reader.session()?;
    let (mut key, mut found, mut lost, mut part) = (Vec::new(), [0; VALUE], 0, 0);
    for b in from..=until {
        for j in 0..SMALL {
            key.clear();
            tree.further(b, j, &mut key);
            let there = session.get(&key, &mut found)? && found == value(j, b);
            if b < until {
                lost += u64::from(!there);
            } else {
                part += u64::from(there);
            }
        }
    }
    println!("lost={lost} unacknowledged={part}");
    Ok(())
}

fn generation(session: &mut dyn Session, tree: &Tree) -> Result<(u64, bool)> {
    let (mut key, mut found, mut first, mut same) = (Vec::new(), [0; VALUE], 0, true);
    for j in 0..SMALL {
        key.clear();
        tree.further(999_999, j, &mut key);
        if !session.get(&key, &mut found)? {
            return Ok((0, j == 0));
        }
        let generation = u64::from(u32::from_le_bytes(found[24..28].try_into().expect("4 bytes")));
        if j == 0 {
            first = generation;
        }
        same &= generation == first;
    }
    Ok((first, same))
}

/// A writer that updates a thousand entries with each commit, for `milliseconds`.
fn advance(engine: &str, dir: &Path, n: u64, milliseconds: u64) -> Result<()> {
    let tree = Tree::new(n);
    let mut writer = engines::writer(engine, dir, false)?;
    let mut batch = Batch::default();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut g = 0;
    while start.elapsed() < Duration::from_millis(milliseconds) {
        g += 1;
        batch.clear();
        for j in 0..SMALL {
            batch.push(Some(value(j, g)), |key| tree.further(999_999, j, key));
        }
        let begun = Instant::now();
        writer.apply(&batch)?;
        writer.commit()?;
        slowest = slowest.max(begun.elapsed());
    }
    println!("commits={g} seconds={:.3} slowest_ms={:.3}", start.elapsed().as_secs_f64(), slowest.as_secs_f64() * 1e3);
    Ok(())
}

/// A reader that takes one snapshot after another beside the writer, and always holds one.
fn follow(engine: &str, dir: &Path, n: u64, milliseconds: u64) -> Result<()> {
    let tree = Tree::new(n);
    let reader = engines::reader(engine, dir)?;
    let mut held = reader.session()?;
    let first = generation(&mut *held, &tree)?;
    let start = Instant::now();
    let (mut times, mut torn, mut changes, mut last, mut failed, mut why) =
        (Vec::new(), u64::from(!first.1), 0, 0, 0, String::new());
    let (mut key, mut found) = (Vec::new(), [0; VALUE]);
    let order = Shuffle::new(n, 11);
    while start.elapsed() < Duration::from_millis(milliseconds) {
        key.clear();
        tree.key(order.at(times.len() as u64 % n), &mut key);
        let begun = Instant::now();
        let session = reader.session().and_then(|mut session| {
            session.get(&key, &mut found)?;
            Ok(session)
        });
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        match session.and_then(|mut session| generation(&mut *session, &tree)) {
            Ok((now, same)) => {
                torn += u64::from(!same || now < last);
                changes += u64::from(now != last);
                last = now;
            }
            Err(error) => {
                failed += 1;
                why = error.to_string().replace(' ', "_");
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let kept = generation(&mut *held, &tree)? == first;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "snapshots={} changes={changes} torn={torn} failed={failed} held={kept} median_ms={:.4} p99_ms={:.4} slowest_ms={:.4} why={why}",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// Holds a snapshot until it is killed; when idle, it only keeps the index open.
fn hold(engine: &str, dir: &Path, idle: bool) -> Result<()> {
    let reader = engines::reader(engine, dir)?;
    let mut session = reader.session()?;
    session.get(b"x", &mut [0; VALUE])?;
    let _session = (!idle).then_some(session);
    println!("held");
    std::io::stdout().flush()?;
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

/// Overwrites a thousand entries with each of `commits` commits: how much do the files grow?
fn churn(engine: &str, dir: &Path, n: u64, commits: u64, clear: bool) -> Result<()> {
    let tree = Tree::new(n);
    let order = Shuffle::new(n, 12);
    let mut writer = engines::writer(engine, dir, false)?;
    let cleared = if clear { writer.clear_stale()? } else { String::new() };
    let before = size(dir).0;
    let mut batch = Batch::default();
    for c in 0..commits {
        batch.clear();
        for j in 0..SMALL {
            let i = order.at((c * SMALL + j) % n);
            batch.push(Some(value(i, c)), |key| tree.key(i, key));
        }
        writer.apply(&batch)?;
        writer.commit()?;
    }
    println!("before={before} after={} cleared={}", size(dir).0, cleared.replace(' ', "_"));
    Ok(())
}

fn try_write(engine: &str, dir: &Path) -> Result<()> {
    let start = Instant::now();
    let mut writer = engines::writer(engine, dir, false)?;
    let mut batch = Batch::default();
    batch.push(Some(value(1, 1)), |key| key.extend_from_slice(b"a\0second"));
    writer.apply(&batch)?;
    writer.commit()?;
    println!("seconds={:.6}", start.elapsed().as_secs_f64());
    Ok(())
}

fn try_read(engine: &str, dir: &Path, n: u64) -> Result<()> {
    let tree = Tree::new(n);
    let start = Instant::now();
    let reader = engines::reader(engine, dir)?;
    look_up(&*reader, &tree, 2, 1, 1, true)?;
    println!("seconds={:.6}", start.elapsed().as_secs_f64());
    Ok(())
}

/// The longest key that an engine accepts, up to twice the longest path.
fn longest_key(engine: &str, dir: &Path) -> Result<()> {
    let (mut low, mut high) = (1, 8193);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let fresh = dir.join(middle.to_string());
        let mut writer = engines::writer(engine, &fresh, false)?;
        let mut batch = Batch::default();
        batch.push(Some(value(1, 1)), |key| key.resize(middle, b'k'));
        let taken = writer.apply(&batch).and_then(|()| writer.commit()).is_ok();
        if taken { low = middle } else { high = middle }
    }
    println!("longest={low}");
    Ok(())
}

/// Lists and looks up everything in possibly damaged files: are the answers right?
fn flipped(engine: &str, dir: &Path, n: u64) -> Result<()> {
    let tree = Tree::new(n);
    let reader = engines::reader(engine, dir)?;
    let mut session = reader.session()?;
    let (mut i, mut right, mut key) = (0, true, Vec::new());
    session.scan(b"", &mut |found, value| {
        key.clear();
        if i < n {
            tree.key(i, &mut key);
        }
        right &= key == found && value == &keys::value(i, 0)[..];
        i += 1;
    })?;
    right &= i == n;
    let mut found = [0; VALUE];
    for i in 0..n {
        key.clear();
        tree.key(i, &mut key);
        right &= session.get(&key, &mut found)? && found == value(i, 0);
    }
    println!("right={}", u8::from(right));
    Ok(())
}

/// Properties of the keys.
fn keys_of(n: u64) -> Result<()> {
    let tree = Tree::new(n);
    let (mut key, mut last, mut total, mut shared, mut longest) = (Vec::new(), Vec::new(), 0, 0, 0);
    for i in 0..n {
        key.clear();
        tree.key(i, &mut key);
        if key <= last {
            return Err(format!("entry {i} out of order").into());
        }
        total += key.len();
        longest = longest.max(key.len());
        shared += key.iter().zip(&last).take_while(|(a, b)| a == b).count();
        std::mem::swap(&mut key, &mut last);
    }
    println!(
        "mean={:.2} shared={:.2} longest={longest} bytes={total}",
        total as f64 / n as f64,
        shared as f64 / n as f64
    );
    Ok(())
}
