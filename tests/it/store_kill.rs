//! A writer that is killed: SIGKILL at random moments; nothing acknowledged is lost, nothing torn is visible, no lock
//! remains.
//!
//! The writer is this binary again, which [`WRITER`] in its environment tells to run [`the_writer_that_is_killed`]:
//! some threads put, replace, link and remove objects small and large in batches, and a line on standard output
//! acknowledges each after its commit. All content follows from thread and number of the batch, and every batch puts
//! its number, so a reader of the store knows the complete state that it must have: that of the last acknowledged
//! batch, or of the one after it, in full.
//!
//! `GRANULO_KILLS` is the number of writers to kill (20), `GRANULO_KILL_SEED` the seed (by default from the clock; it
//! is printed). The exact moments of death depend on the machine, so a seed repeats the work and the delays, not the
//! crash.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use granulo::error::ErrorKind;
use granulo::store::{
    Attributes, Batch, CheckOptions, Choice, CompactOptions, Durability, Key, Plan, Problem, Progress, Store,
};
use granulo_core::random::Random;

use crate::harness::sandbox_for_many;

/// The home of the store for the writer.
const WRITER: &str = "GRANULO_KILL_WRITER";
/// Threads that write, each to its own keys.
const THREADS: u64 = 3;
/// Keys of each thread.
const KEYS: u64 = 24;
/// Larger objects are striped.
const CUTOFF_BYTES: u64 = 16 << 10;
/// How long a writer may take for its first commit.
const PATIENCE: Duration = Duration::from_secs(60);

/// A change in a batch.
enum Change {
    Put(String, Content),
    /// One file with two names.
    Link([String; 2], Content),
    Remove(String),
    RemoveTree(String),
}

/// Content by its origin: seed and length.
type Content = (u64, usize);
/// The contents of a thread's keys.
type State = BTreeMap<String, Content>;

fn bytes((seed, length): Content) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| random.any().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

fn name(thread: u64, number: u64) -> String {
    format!("t{thread}/d{}/k{number}", number % 4)
}

/// The key for the number of a thread's last batch.
fn counter(thread: u64) -> String {
    format!("t{thread}/last")
}

/// The changes of a batch, from its thread and number alone. No key occurs twice in a batch, so that it is atomic.
fn changes(thread: u64, batch: u64) -> Vec<Change> {
    let mut random = Random::new(thread << 48 | batch);
    if batch % 32 == 31 {
        return vec![Change::RemoveTree(format!("t{thread}/d{}", random.below(4)))];
    }
    let mut free: Vec<u64> = (0..KEYS).collect();
    let mut made = Vec::new();
    for _ in 0..=random.below(6) {
        let mut take = || name(thread, free.swap_remove(random.below(free.len() as u64) as usize));
        let (one, other) = (take(), take());
        let length = match random.below(8) {
            0 => 0,
            1 => CUTOFF_BYTES + 1 + random.below(100_000),
            2 => CUTOFF_BYTES,
            _ => random.below(4000),
        };
        let content = (random.any(), length as usize);
        made.push(match random.below(8) {
            0 | 1 => Change::Remove(one),
            2 => Change::Link([one, other], content),
            _ => Change::Put(one, content),
        });
    }
    made
}

fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(key, content) => {
                state.insert(key.clone(), *content);
            }
            Change::Link(keys, content) => state.extend(keys.iter().map(|key| (key.clone(), *content))),
            Change::Remove(key) => {
                state.remove(key);
            }
            Change::RemoveTree(directory) => state.retain(|key, _| !key.starts_with(&format!("{directory}/"))),
        }
    }
}

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

fn file() -> Attributes {
    Attributes { mode: 0o100_644, ..Attributes::default() }
}

fn perform(batch: &mut Batch<'_>, change: &Change) {
    match change {
        Change::Put(path, content) => batch.put(&key(path), &file(), &bytes(*content)).unwrap(),
        Change::Link(paths, content) => {
            let content = bytes(*content);
            let shared = batch.shared(&file(), &mut &content[..], Some(content.len() as u64)).unwrap();
            paths.iter().for_each(|path| batch.link(&key(path), shared).unwrap());
        }
        Change::Remove(path) => {
            batch.remove(&key(path)).unwrap();
        }
        Change::RemoveTree(path) => {
            batch.remove_tree(&key(path)).unwrap();
        }
    }
}

/// The number of a thread's last batch; 0 before the first.
fn last(store: &Store, thread: u64) -> u64 {
    let content = store.get(&key(&counter(thread))).unwrap();
    content.map_or(0, |digits| String::from_utf8(digits).unwrap().parse().unwrap())
}

/// Opens as a writer. A process that another test is just starting holds a lock of this one until it executes its
/// program.
fn open_for_writing(home: &Path) -> Store {
    let began = Instant::now();
    loop {
        match Store::open(home) {
            Err(error) if error.kind() == ErrorKind::Busy && began.elapsed() < Duration::from_secs(1) => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Prints a message in one call, on a line of its own whatever the test harness prints. Ends the process if nobody
/// reads: the test is over.
fn say(what: &str, thread: u64, number: u64) {
    if std::io::stdout().write_all(format!("\n{what} {thread} {number}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

/// Writes until it is killed. Without [`WRITER`], only a test that passes.
#[test]
fn the_writer_that_is_killed() {
    let Some(home) = std::env::var_os(WRITER) else { return };
    let store = open_for_writing(Path::new(&home));
    let write = |thread: u64| {
        let found = last(&store, thread);
        say("found", thread, found);
        for number in found + 1.. {
            let mut batch = store.batch(Durability::Batch);
            changes(thread, number).iter().for_each(|change| perform(&mut batch, change));
            batch.put(&key(&counter(thread)), &file(), number.to_string().as_bytes()).unwrap();
            batch.commit().unwrap();
            say("acknowledged", thread, number);
            if thread == 0 && number % 16 == 0 {
                let options = CompactOptions { choice: Choice::Dead(20), ..CompactOptions::default() };
                store.compact(&options, &Progress::default()).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let write = &write;
            scope.spawn(move || write(thread));
        }
    });
}

/// The output of a writer, by thread.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    /// The last batch that it found; `None` if it did not get that far.
    found: [Option<u64>; THREADS as usize],
    /// The last batch that it acknowledged; 0 for none.
    acknowledged: [u64; THREADS as usize],
}

/// A running writer, and its output.
struct Writer {
    process: Child,
    said: Arc<Mutex<Said>>,
    listener: Option<thread::JoinHandle<()>>,
}

impl Writer {
    fn start(home: &Path) -> Writer {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store_kill::the_writer_that_is_killed", "--nocapture", "--test-threads=1"])
            .env(WRITER, home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Said::default()));
        let (heard, stdout) = (Arc::clone(&said), BufReader::new(process.stdout.take().unwrap()));
        let listener = thread::spawn(move || {
            for line in stdout.split(b'\n') {
                let line = String::from_utf8(line.unwrap()).unwrap();
                let mut words = line.split(' ');
                let what = words.next();
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
                let (Some(thread), Some(number)) = (number(), number()) else { continue };
                let mut said = heard.lock().unwrap();
                match what {
                    Some("found") => said.found[thread as usize] = Some(number),
                    Some("acknowledged") => said.acknowledged[thread as usize] = number,
                    _ => {}
                }
            }
        });
        Writer { process, said, listener: Some(listener) }
    }

    fn said(&self) -> Said {
        *self.said.lock().unwrap()
    }

    fn wait_until_it_writes(&mut self) {
        let began = Instant::now();
        while self.said().acknowledged == [0; THREADS as usize] {
            assert!(began.elapsed() < PATIENCE, "the writer commits nothing");
            assert_eq!(self.process.try_wait().unwrap(), None, "the writer ended by itself");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it; returns its output.
    fn kill(mut self) -> Said {
        self.process.kill().unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the writer ended by itself: {status}");
        self.listener.take().unwrap().join().unwrap();
        self.said()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Already killed, unless the test fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The expected contents: per thread, the batches that are known to be in the store, and the contents of its keys after
/// them.
#[derive(Default)]
struct Expected {
    batches: [u64; THREADS as usize],
    states: [State; THREADS as usize],
}

impl Expected {
    /// Compares with the store, which may have one batch more of each thread than was acknowledged.
    fn compare(&mut self, store: &Store, acknowledged: [u64; THREADS as usize], who: &str) {
        let mut found = State::new();
        let mut expected = State::new();
        for thread in 0..THREADS {
            let at = thread as usize;
            let least = acknowledged[at].max(self.batches[at]);
            let now = last(store, thread);
            assert!(
                (least..=least + 1).contains(&now),
                "{who}: batch {least} of thread {thread} was acknowledged, {now} is there"
            );
            while self.batches[at] < now {
                self.batches[at] += 1;
                apply(&mut self.states[at], &changes(thread, self.batches[at]));
            }
            expected.append(&mut self.states[at].clone());
        }
        for listed in store.walk(&Key::root()).unwrap() {
            let listed = listed.unwrap();
            let path = listed.key.to_path().to_str().unwrap().to_owned();
            if listed.entry.kind == granulo::store::Kind::Directory || path.ends_with("/last") {
                continue;
            }
            let content = expected.get(&path).copied();
            let content = content.unwrap_or_else(|| panic!("{who}: {path} was removed, and is there"));
            assert!(store.get(&listed.key).unwrap() == Some(bytes(content)), "{who}: {path} has other content");
            found.insert(path, content);
        }
        let lost: Vec<&String> = expected.keys().filter(|path| !found.contains_key(*path)).collect();
        assert!(lost.is_empty(), "{who}: not there: {lost:?}");
    }
}

#[track_caller]
fn is_sound(store: &Store, is_deep: bool) {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep, ..CheckOptions::default() };
    store.check(options, &mut |problem: Problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Kills half of the writers, in a store of this plan.
fn kill_writers(plan: &dyn Fn(&Path) -> Plan) {
    let kills = number("GRANULO_KILLS").unwrap_or(20).div_ceil(2);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = number("GRANULO_KILL_SEED").unwrap_or_else(clock);
    println!("GRANULO_KILL_SEED={seed}");
    let mut random = Random::new(seed);
    let sandbox = sandbox_for_many();
    let home = sandbox.path().join("home");
    drop(Store::create(&home, &plan(sandbox.path())).unwrap());
    let mut expected = Expected::default();
    let mut while_opening = 0;
    for kill in 1..=kills {
        let mut writer = Writer::start(&home);
        if random.below(4) == 0 {
            // While it starts, opens and recovers.
            thread::sleep(Duration::from_micros(random.below(60_000)));
            while_opening += 1;
        } else {
            writer.wait_until_it_writes();
            let refused = Store::open(&home).expect_err("two writers");
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
            // A reader beside it sees everything acknowledged before the read.
            let reader = Store::open_read_only(&home).unwrap();
            thread::sleep(Duration::from_micros(random.below(120_000)));
            let acknowledged = writer.said().acknowledged;
            reader.refresh().unwrap();
            for thread in 0..THREADS {
                let seen = last(&reader, thread);
                assert!(
                    seen >= acknowledged[thread as usize],
                    "kill {kill}: thread {thread} acknowledged {acknowledged:?}, a reader sees {seen}"
                );
            }
            thread::sleep(Duration::from_micros(random.below(3000)));
        }
        let said = writer.kill();
        // It found what the reader saw after the previous writer was killed.
        for (found, batches) in said.found.iter().zip(expected.batches) {
            assert!(
                found.is_none_or(|found| found == batches),
                "kill {kill}: a reader saw the batches {:?}, the next writer found {:?}",
                expected.batches,
                said.found
            );
        }
        let acknowledged = said.acknowledged;
        let reader = Store::open_read_only(&home).unwrap();
        expected.compare(&reader, acknowledged, &format!("kill {kill}, a reader"));
        is_sound(&reader, false);
        drop(reader);
        if kill < kills && random.below(2) == 0 {
            // The next writer to be killed recovers what this one left.
            continue;
        }
        let next = Store::open(&home).unwrap_or_else(|error| panic!("kill {kill}, the next writer: {error}"));
        expected.compare(&next, acknowledged, &format!("kill {kill}, the next writer"));
        is_sound(&next, true);
    }
    println!("{kills} writers killed, {while_opening} of them early; batches {:?}", expected.batches);
    assert!(
        kills < 4 || expected.batches.iter().all(|&batches| batches > 0),
        "no writer came to write: {:?}",
        expected.batches
    );
}

#[test]
fn killed_writers_lose_nothing_of_a_store_in_one_directory() {
    kill_writers(&|_| Plan { cutoff_bytes: CUTOFF_BYTES, segment_bytes: 1 << 20, ..Plan::default() });
}

#[test]
fn killed_writers_lose_nothing_of_a_store_on_two_fast_and_three_slow_devices() {
    kill_writers(&|sandbox| {
        let directories = |class: &str, count: usize| -> Vec<PathBuf> {
            (0..count).map(|number| sandbox.join(format!("{class}{number}"))).collect()
        };
        Plan {
            fast: directories("fast", 2),
            slow: directories("slow", 3),
            cutoff_bytes: CUTOFF_BYTES,
            stripe_unit_bytes: 4096,
            segment_bytes: 1 << 20,
            ..Plan::default()
        }
    });
}
