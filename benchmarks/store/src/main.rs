//! One step of the comparison of stores, as a separate process, so that its peak memory is its own: `run.py` calls it
//! and defines the protocol.
//!
//! `STEP ENGINE PLACE SET COUNT [WHAT] [OPERATIONS] [THREADS]`; the output is `name=value` pairs for run.py. The sum of
//! what was read is compared with the expected sum, outside the timed part; an error goes to standard error, exit
//! status 1.

mod engines;
mod objects;

use engines::{Engine, Reader, Result};
use objects::{Objects, Sum};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const SEED: u64 = 7;

fn main() {
    #[cfg(feature = "bucket")]
    granulo_bucket::register();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let number = |i: usize| -> Result<u64> { Ok(arguments.get(i).ok_or("too few arguments")?.parse()?) };
    match arguments {
        ["engines"] => {
            println!("{}", engines::NAMES.join(" "));
            return Ok(());
        }
        ["describe", set, count] => {
            let objects = Objects::new(set, count.parse()?)?;
            let (total, largest, keys) = (objects.total_bytes(), objects.largest_bytes(), objects.key_bytes());
            println!("count={count} payload={total} largest={largest} keys={keys}");
            return Ok(());
        }
        _ => {}
    }
    let &[step, engine, place, set, count, ..] = arguments else {
        return Err("STEP ENGINE PLACE SET COUNT ...".into());
    };
    let (engine, place) = (engines::find(engine)?, Path::new(place));
    let objects = Objects::new(set, count.parse()?)?;
    match step {
        "ingest" => ingest(&*engine, place, &objects),
        "load" => load(&*engine, place, &objects, arguments.get(5) == Some(&"warm")),
        "random" => {
            let how = match *arguments.get(5).ok_or("cold, warm or sparse")? {
                "cold" => How { warm: false, distinct: false, list: false },
                "warm" => How { warm: true, distinct: false, list: false },
                "sparse" => How { warm: false, distinct: true, list: false },
                "list" => How { warm: false, distinct: true, list: true },
                other => return Err(format!("cold, warm, sparse or list, not {other}").into()),
            };
            random(&*engine, place, &objects, &how, number(6)?, number(7)? as usize)
        }
        "list" => match *arguments.get(5).ok_or("names, attributes or warm")? {
            "names" => list(&*engine, place, &objects, false, false),
            "attributes" => list(&*engine, place, &objects, true, false),
            "warm" => list(&*engine, place, &objects, false, true),
            other => Err(format!("names, attributes or warm, not {other}").into()),
        },
        "modes" => set_modes(&*engine, place, &objects),
        "delete" => delete(&*engine, place, &objects),
        "empty" => empty(&*engine, place),
        _ => Err(format!("no step {step}").into()),
    }
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: a plain structure that the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &mut usage);
        usage
    }
}

/// Processor time of all threads of this process, in seconds.
fn processor_seconds() -> f64 {
    let usage = usage(libc::RUSAGE_SELF);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Resources that the process used before the engine begins.
struct Own {
    /// Resident: the ring, the sizes, the keys, and the buffer for a content.
    kib: u64,
    seconds: f64,
}

impl Own {
    /// Peak and time count from here on.
    fn begin() -> Own {
        // If the kernel does not support this, the peak is at most too high.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Own { kib: status("VmRSS:"), seconds: processor_seconds() }
    }

    /// Processor time since, peak resident KiB of this process (including mapped memory), and of its largest child.
    fn end(&self) -> String {
        let (cpu, children) = (processor_seconds() - self.seconds, usage(libc::RUSAGE_CHILDREN).ru_maxrss);
        format!("cpu={cpu:.6} own_kib={} peak_kib={} child_kib={children}", self.kib, status("VmHWM:"))
    }
}

fn check(what: &str, read: Sum, expected: Sum) -> Result<()> {
    if read == expected { Ok(()) } else { Err(format!("{what}: {read:?} instead of {expected:?}").into()) }
}

fn ingest(engine: &dyn Engine, place: &Path, objects: &Objects) -> Result<()> {
    // Touched to its end, so that it counts as our own memory.
    let mut content = vec![1; objects.largest_bytes()];
    let keys = objects.keys();
    let own = Own::begin();
    let start = Instant::now();
    let mut writer = engine.create(place, objects.count(), objects.total_bytes())?;
    for (number, key) in keys.iter().enumerate() {
        objects.content(number as u64, &mut content);
        writer.put(key, &content)?;
    }
    writer.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    print!("seconds={seconds:.6} {}", own.end());
    match engine.index_bytes(place)? {
        Some(bytes) => println!(" index={bytes}"),
        None => println!(),
    }
    Ok(())
}

/// Loads everything once; the engine passes each piece to the sum.
fn load_all(reader: &dyn Reader) -> Result<(Sum, u64)> {
    let (mut sum, mut keys) = (Sum::default(), 0);
    reader.load(&mut |piece| {
        sum.add_piece(piece.size, piece.start, piece.bytes);
        keys += if piece.start == 0 { piece.key.len() as u64 } else { 0 };
    })?;
    Ok((sum, keys))
}

fn load(engine: &dyn Engine, place: &Path, objects: &Objects, warm: bool) -> Result<()> {
    let own = Own::begin();
    let mut start = Instant::now();
    let reader = engine.open(place)?;
    let opened = start.elapsed().as_secs_f64();
    if warm {
        load_all(&*reader)?;
        start = Instant::now();
    }
    let (sum, keys) = load_all(&*reader)?;
    let (seconds, memory) = (start.elapsed().as_secs_f64(), own.end());
    check("load", sum, objects.expected_of(0..objects.count()))?;
    if keys != objects.key_bytes() {
        return Err("load: the keys are not those of the objects".into());
    }
    println!("seconds={seconds:.6} opened={opened:.6} {memory}");
    Ok(())
}

/// The parameters of a step of random reads.
struct How {
    warm: bool,
    distinct: bool,
    /// All keys are known in advance, and may be read in any order.
    list: bool,
}

fn random(engine: &dyn Engine, place: &Path, objects: &Objects, how: &How, count: u64, threads: usize) -> Result<()> {
    let numbers = objects.draw(count, SEED, how.distinct);
    let keys: Vec<String> = numbers.iter().map(|&number| objects.key(number)).collect();
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let own = Own::begin();
    let mut start = Instant::now();
    let reader = engine.open(place)?;
    let opened = start.elapsed().as_secs_f64();
    if how.warm {
        load_all(&*reader)?;
        start = Instant::now();
    }
    let total = Mutex::new(Sum::default());
    let mut queue = 0;
    if how.list {
        let asked = reader.read_many(&keys, threads, &|content| {
            total.lock().expect("no panic").add(content);
        })?;
        if asked {
            queue = 1;
        } else {
            keys.sort_unstable();
            by_threads(&*reader, &keys, threads, &total)?;
        }
    } else {
        by_threads(&*reader, &keys, threads, &total)?;
    }
    let (seconds, memory) = (start.elapsed().as_secs_f64(), own.end());
    check("random reads", total.into_inner()?, objects.expected_of(numbers.iter().copied()))?;
    println!("seconds={seconds:.6} opened={opened:.6} operations={} queue={queue} {memory}", numbers.len());
    Ok(())
}

/// Each thread takes the next key until there are no more.
fn by_threads(reader: &dyn Reader, keys: &[&str], threads: usize, total: &Mutex<Sum>) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let mut session = reader.session()?;
        let mut sum = Sum::default();
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            session.read(key, &mut |content| sum.add(content))?;
        }
        let mut total = total.lock().map_err(|_| "a thread panicked")?;
        *total = total.plus(sum);
        Ok(())
    };
    if threads <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

fn list(engine: &dyn Engine, place: &Path, objects: &Objects, attributes: bool, warm: bool) -> Result<()> {
    let mut own = Own::begin();
    let mut start = Instant::now();
    let reader = engine.open(place)?;
    let opened = start.elapsed().as_secs_f64();
    if warm {
        reader.list(&mut |_| {})?;
        (own.seconds, start) = (processor_seconds(), Instant::now());
    }
    let (mut count, mut bytes, mut sizes, mut digest) = (0, 0, 0, 0u64);
    let mut take = |key: &[u8], size| {
        count += 1;
        bytes += key.len() as u64;
        sizes += size;
        digest = digest.wrapping_add(key.last_chunk().map_or(0, |&last| objects::mix(u64::from_le_bytes(last))));
    };
    let known = if attributes {
        reader.list_attributes(&mut take)?
    } else {
        reader.list(&mut |key| take(key, 0))?;
        true
    };
    let (seconds, memory) = (start.elapsed().as_secs_f64(), own.end());
    if !known {
        println!("unsupported=1");
        return Ok(());
    }
    let expected = objects.keys().iter().fold(0u64, |sum, key| {
        sum.wrapping_add(key.as_bytes().last_chunk().map_or(0, |&last| objects::mix(u64::from_le_bytes(last))))
    });
    let wanted = (objects.count(), objects.key_bytes(), if attributes { objects.total_bytes() } else { 0 }, expected);
    if (count, bytes, sizes, digest) != wanted {
        return Err(format!("listing: {:?} instead of {wanted:?}", (count, bytes, sizes, digest)).into());
    }
    println!("seconds={seconds:.6} opened={opened:.6} {memory}");
    Ok(())
}

fn set_modes(engine: &dyn Engine, place: &Path, objects: &Objects) -> Result<()> {
    let keys = objects.keys();
    let own = Own::begin();
    let start = Instant::now();
    if engine.set_modes(place, &keys)? {
        println!("seconds={:.6} {}", start.elapsed().as_secs_f64(), own.end());
    } else {
        println!("unsupported=1");
    }
    Ok(())
}

fn delete(engine: &dyn Engine, place: &Path, objects: &Objects) -> Result<()> {
    let keys = objects.keys();
    let own = Own::begin();
    let start = Instant::now();
    if engine.delete(place, &keys)? {
        println!("seconds={:.6} {}", start.elapsed().as_secs_f64(), own.end());
    } else {
        println!("unsupported=1");
    }
    Ok(())
}

/// Runs after `delete`, in a process that knows only the files.
fn empty(engine: &dyn Engine, place: &Path) -> Result<()> {
    let mut left = 0;
    engine.open(place)?.list(&mut |_| left += 1)?;
    if left > 0 {
        return Err(format!("{left} objects are still there").into());
    }
    println!("left=0");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory that is removed after the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("store-bench-test-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const READS: [How; 3] = [
        How { warm: true, distinct: false, list: false },
        How { warm: false, distinct: true, list: false },
        How { warm: false, distinct: true, list: true },
    ];

    /// Every step checks what it read; LMDB needs a process for each step, and mounting a squashfs needs root.
    #[test]
    fn every_engine_gives_back_what_it_got() {
        for name in engines::NAMES.iter().filter(|name| !name.starts_with("lmdb") && **name != "squashfs") {
            for set in ["A", "B", "C"] {
                let (scratch, engine) = (Scratch::new(&format!("{name}-{set}")), engines::find(name).unwrap());
                let objects = Objects::new(set, 300).unwrap();
                ingest(&*engine, &scratch.0, &objects).unwrap();
                load(&*engine, &scratch.0, &objects, false).unwrap();
                for how in &READS {
                    random(&*engine, &scratch.0, &objects, how, 100, 4).unwrap();
                }
                for (attributes, warm) in [(false, false), (true, false), (false, true)] {
                    list(&*engine, &scratch.0, &objects, attributes, warm).unwrap();
                }
                if engine.set_modes(&scratch.0, &objects.keys()).unwrap() {
                    list(&*engine, &scratch.0, &objects, true, false).unwrap();
                    random(&*engine, &scratch.0, &objects, &READS[1], 100, 4).unwrap();
                }
                if engine.delete(&scratch.0, &objects.keys()).unwrap() {
                    empty(&*engine, &scratch.0).unwrap();
                    let gone = random(&*engine, &scratch.0, &objects, &READS[1], 1, 1).unwrap_err();
                    assert!(gone.to_string().contains("object") || *name == "files", "{name}: {gone}");
                } else {
                    assert!(empty(&*engine, &scratch.0).is_err());
                }
            }
        }
    }

    #[test]
    fn a_wrong_byte_ends_every_step_that_reads_it() {
        for name in ["floor", "floor-checksum", "tar"] {
            let (scratch, engine) = (Scratch::new(&format!("wrong-{name}")), engines::find(name).unwrap());
            let objects = Objects::new("A", 100).unwrap();
            ingest(&*engine, &scratch.0, &objects).unwrap();
            let file = scratch.0.join(if name == "tar" { "objects.tar" } else { "log" });
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[30_001] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            load(&*engine, &scratch.0, &objects, false).unwrap_err();
            random(&*engine, &scratch.0, &objects, &READS[1], 100, 2).unwrap_err();
            random(&*engine, &scratch.0, &objects, &READS[2], 100, 8).unwrap_err();
        }
    }
}
