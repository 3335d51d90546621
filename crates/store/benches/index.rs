//! What the index costs: CPU time and memory of putting, finding, listing and removing many small objects.
//!
//! `cargo bench -p granulo-store --bench index -- [--quick] [--objects N] [--in DIRECTORY] [--one-batch]
//! [--only in_order|shuffled|one_batch]`.
//! Prints a line of CSV for each step. CPU time is that of all threads, user and system, so that other programs disturb
//! it little; memory is the peak of the process in the step, where the system lets it be reset, and what was there when
//! the step began.

use std::error::Error;
use std::path::{Path, PathBuf};

use granulo_core::random::mix;
use granulo_store::{Attributes, Durability, Key, Plan, Store, Time};
use rustix::time::{ClockId, clock_gettime};

/// Objects in a batch.
const BATCH: u64 = 2_500;
/// Times that a store is opened, one after the other.
const OPENINGS: u64 = 200;
/// Bytes of an object.
const CONTENT_BYTES: usize = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Options {
    objects: u64,
    directory: PathBuf,
    /// Also all objects in one batch.
    one_batch: bool,
    /// Only the steps of one name.
    only: Option<String>,
}

impl Options {
    fn is_wanted(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

fn options() -> Outcome<Options> {
    let mut options = Options { objects: 1_000_000, directory: std::env::temp_dir(), one_batch: false, only: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            "--quick" => options.objects = 20_000,
            "--objects" => options.objects = value()?.parse()?,
            "--in" => options.directory = value()?.into(),
            "--one-batch" => options.one_batch = true,
            "--only" => {
                let name = value()?;
                options.one_batch |= name == "one_batch";
                options.only = Some(name);
            }
            // Cargo says so.
            "--bench" | "--test" => {}
            other => return Err(format!("there is no option {other}").into()),
        }
    }
    Ok(options)
}

/// Gone with the process.
struct Scratch(PathBuf);

impl Scratch {
    fn new(below: &Path, name: &str) -> Scratch {
        Scratch(below.join(format!("granulo-index-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A number of `/proc/self/status` in MiB; 0 where there is none.
fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Runs a step and prints its line.
fn measure<T>(name: &str, objects: u64, step: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // Resets the peak, where it may.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    // A profile can tell the steps apart by the name of the thread.
    let _ = std::fs::write("/proc/self/comm", name);
    let (memory_mib, start, wall) = (status_mib("VmRSS:"), cpu_seconds(), std::time::Instant::now());
    let outcome = step()?;
    let (cpu, wall) = (cpu_seconds() - start, wall.elapsed().as_secs_f64());
    let each = cpu * 1e6 / objects as f64;
    println!("{name},{objects},{each:.3},{wall:.3},{},{memory_mib}", status_mib("VmHWM:"));
    Ok(outcome)
}

/// The numbers below `count`, in a random order that is always the same.
fn shuffled(count: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, (mix(last as u64) % (last as u64 + 1)) as usize);
    }
    numbers
}

/// A hundred objects to a directory, a hundred directories to one above.
fn key(number: u32) -> Outcome<Key> {
    Ok(Key::parse(format!("{:04}/{:02}/{:02}", number / 10_000, number / 100 % 100, number % 100))?)
}

fn attributes(number: u32) -> Attributes {
    let nanoseconds = (mix(u64::from(number)) % 1_000_000_000) as u32;
    Attributes::of_file(Time { seconds: 1_700_000_000 + i64::from(number / 16), nanoseconds })
}

fn put(store: &Store, numbers: impl Iterator<Item = u32>, batch_objects: u64) -> Outcome<()> {
    let content = [b'c'; CONTENT_BYTES];
    let (mut batch, mut waiting) = (store.batch(Durability::None), 0);
    for number in numbers {
        batch.put(&key(number)?, &attributes(number), &content)?;
        waiting += 1;
        if waiting == batch_objects {
            std::mem::replace(&mut batch, store.batch(Durability::None)).commit()?;
            waiting = 0;
        }
    }
    batch.commit()?;
    Ok(store.sync()?)
}

fn remove(store: &Store, numbers: impl Iterator<Item = u32>) -> Outcome<()> {
    let (mut batch, mut waiting) = (store.batch(Durability::None), 0);
    for number in numbers {
        if !batch.remove(&key(number)?)? {
            return Err(format!("object {number} is not there").into());
        }
        waiting += 1;
        if waiting == BATCH {
            std::mem::replace(&mut batch, store.batch(Durability::None)).commit()?;
            waiting = 0;
        }
    }
    batch.commit()?;
    Ok(store.sync()?)
}

fn find(store: &Store, numbers: &[u32], is_there: bool) -> Outcome<()> {
    for &number in numbers {
        if store.entry(&key(number)?)?.is_some() != is_there {
            return Err(format!("object {number}").into());
        }
    }
    Ok(())
}

fn list(store: &Store, objects: u64) -> Outcome<()> {
    let (mut found, mut bytes) = (0, 0);
    let mut walk = store.walk(&Key::root())?;
    while let Some(granulo_store::Lent { entry, .. }) = walk.lend()? {
        found += u64::from(entry.kind == granulo_store::Kind::File);
        bytes += entry.size_bytes;
    }
    let wanted = (objects, objects * CONTENT_BYTES as u64);
    if (found, bytes) == wanted { Ok(()) } else { Err(format!("{found} objects instead of {objects}").into()) }
}

fn open(home: &Path) -> Outcome<()> {
    for _ in 0..OPENINGS {
        drop(Store::open_read_only(home)?);
    }
    Ok(())
}

/// Bytes of the index an object, without its key.
fn print_index_size(home: &Path, objects: u64) -> Outcome<()> {
    let mut bytes = 0;
    for file in std::fs::read_dir(home.join("index"))? {
        bytes += file?.metadata()?.len();
    }
    let keys: usize = (0..objects as u32).map(|number| key(number).map_or(0, |key| key.stored().len())).sum();
    println!("index_bytes_of_{},{},,,,", (bytes as f64 / objects as f64 * 10.0).round() / 10.0, keys as u64 / objects);
    Ok(())
}

fn run(options: &Options) -> Outcome<()> {
    let count = options.objects;
    println!("step,objects,cpu_microseconds_each,wall_seconds,peak_mib,begin_mib");
    let orders = ["in_order", "shuffled"].into_iter().filter(|order| options.is_wanted(order));
    // What the measuring itself holds is not made where one batch alone is measured.
    let random = if orders.clone().count() > 0 { shuffled(count) } else { Vec::new() };
    let probes = &random[..random.len().min(200_000)];
    for order in orders {
        let numbers = (order == "shuffled").then_some(&random);
        let scratch = Scratch::new(&options.directory, order);
        let home = &scratch.0;
        let store = Store::create(home, &Plan::default())?;
        let all = || {
            numbers.map_or_else(
                || Box::new(0..count as u32) as Box<dyn Iterator<Item = u32>>,
                |numbers| Box::new(numbers.iter().copied()),
            )
        };
        measure(&format!("put_{order}"), count, || put(&store, all(), BATCH))?;
        print_index_size(home, count)?;
        measure(&format!("find_{order}"), probes.len() as u64, || find(&store, probes, true))?;
        drop(store);
        measure(&format!("open_{order}"), OPENINGS, || open(home))?;
        let store = Store::open(home)?;
        list(&store, count)?;
        measure(&format!("list_{order}"), count, || list(&store, count))?;
        measure(&format!("remove_{order}"), count, || remove(&store, all()))?;
        measure(&format!("find_none_{order}"), probes.len() as u64, || find(&store, probes, false))?;
    }
    if options.one_batch && options.is_wanted("one_batch") {
        let scratch = Scratch::new(&options.directory, "one-batch");
        let store = Store::create(&scratch.0, &Plan::default())?;
        measure("put_one_batch", count, || put(&store, 0..count as u32, u64::MAX))?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    run(&options()?)
}
