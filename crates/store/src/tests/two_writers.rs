//! Two writers of a store in a bucket: each sleeps from one of its requests to one of the other's. What either was told
//! is durable is there in the end, so whoever was overtaken has committed nothing after that.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::leases::{Place, open_as};
use super::{bytes, file, key};
use crate::devices::objects::{Expected, Head, Memory, ObjectError, Objects, Page, Piece, Tag};
use crate::engine::locking::Access;
use crate::error::Result;
use crate::locks::{lock, unpoisoned};
use crate::simulation::machines::SimulatedProcess;
use crate::*;

/// Rounds of each writer, and what it puts in each.
const ROUNDS: usize = 2;
const PUTS: usize = 3;

/// Whose turn it is.
#[derive(Debug, Default)]
struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turn {
    of: usize,
    have_ended: [bool; 2],
}

impl Turns {
    /// Waits for the first turn.
    fn begin(&self, who: usize) {
        let turn = lock(&self.state);
        drop(unpoisoned(self.changed.wait_while(turn, |turn| turn.of != who && !turn.have_ended[1 - who])));
    }

    /// The other one's turn, until it gives way or ends.
    fn give_way(&self, who: usize) {
        let mut turn = lock(&self.state);
        turn.of = 1 - who;
        drop(turn);
        self.changed.notify_all();
        self.begin(who);
    }

    fn end(&self, who: usize) {
        let mut turn = lock(&self.state);
        (turn.of, turn.have_ended[who]) = (1 - who, true);
        drop(turn);
        self.changed.notify_all();
    }
}

/// The bucket of a process that falls asleep before one of its requests, and wakes up in its next turn.
#[derive(Debug)]
struct Drowsy {
    bucket: Memory,
    process: Arc<SimulatedProcess>,
    turns: Arc<Turns>,
    who: usize,
    left: AtomicU64,
}

impl Drowsy {
    fn awake(&self) -> &Memory {
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if before == Ok(1) {
            self.process.sleep();
            self.turns.give_way(self.who);
            self.process.wake();
        }
        &self.bucket
    }
}

type Answer<T> = std::result::Result<T, ObjectError>;

impl Objects for Drowsy {
    fn place(&self) -> PathBuf {
        self.bucket.place()
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Answer<Tag> {
        self.awake().replace(name, bytes, expected)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Answer<Piece> {
        self.awake().read(name, range)
    }

    fn head(&self, name: &str) -> Answer<Head> {
        self.awake().head(name)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Answer<Page> {
        self.awake().list(prefix, after)
    }

    fn delete(&self, name: &str) -> Answer<()> {
        self.awake().delete(name)
    }
}

/// What a writer was told is durable, and how often it was told that it is not.
#[derive(Debug, Default)]
struct Told {
    acknowledged: Vec<String>,
    refused: u64,
}

fn content(name: &str) -> Vec<u8> {
    let seed = name.bytes().fold(0, |seed, byte| seed << 8 | u64::from(byte));
    // Some are put as objects.
    bytes(seed, if name.ends_with('1') { 20_000 } else { 200 })
}

/// Opens, puts and closes, again and again, and waits where that is refused.
fn write(objects: &Arc<Drowsy>, told: &mut Told) {
    let mut attempts = 0;
    let mut open = || -> Result<Store> {
        loop {
            match open_as(objects.clone(), &objects.process, Access::Write) {
                Err(error) if attempts > 20 => return Err(error),
                Err(_) => objects.process.machines().pass(Duration::from_secs(1)),
                Ok(store) => return Ok(store),
            }
            attempts += 1;
        }
    };
    for round in 0..ROUNDS {
        let store = open().unwrap();
        for number in 0..PUTS {
            let name = format!("{}/{round}{number}", objects.who);
            match store.put(&key(&name), &file(), &content(&name)) {
                Ok(()) => told.acknowledged.push(name),
                Err(_) => told.refused += 1,
            }
        }
    }
}

/// The first writer sleeps from this request of its own to that one of the second, which then sleeps until the first
/// one has ended. Returns what both were told.
fn play(place: &Place, sleeps: [u64; 2]) -> Told {
    let turns = Arc::new(Turns::default());
    let writer = |who: usize| {
        let process = place.machines.process(["north", "south"][who]);
        let bucket = Memory::clone(&place.bucket);
        Arc::new(Drowsy { bucket, process, turns: Arc::clone(&turns), who, left: AtomicU64::new(sleeps[who]) })
    };
    let writers = [writer(0), writer(1)];
    let told = std::thread::scope(|scope| {
        let works = writers.each_ref().map(|objects| {
            scope.spawn(move || {
                let mut told = Told::default();
                objects.turns.begin(objects.who);
                let work = std::panic::AssertUnwindSafe(|| write(objects, &mut told));
                let outcome = std::panic::catch_unwind(work);
                objects.turns.end(objects.who);
                outcome.map(|()| told)
            })
        });
        works.map(|work| work.join().unwrap().unwrap_or_else(|_| panic!("a writer panicked with {sleeps:?}")))
    });
    let mut both = Told::default();
    for told in told {
        both.acknowledged.extend(told.acknowledged);
        both.refused += told.refused;
    }
    both
}

#[test]
fn whoever_was_overtaken_commits_nothing_more() {
    let points = std::env::var("GRANULO_CRASH_POINTS").ok().and_then(|text| text.parse().ok()).unwrap_or(60_u64);
    // The requests of a writer, and some more: then it does not sleep.
    let most = 24;
    let step = (most * most / points.max(1)).isqrt().max(1) as usize;
    let (mut refused, mut acknowledged) = (0, 0);
    for first in (1..=most).step_by(step) {
        for second in (1..=most).step_by(step) {
            let place = Place::new();
            let told = play(&place, [first, second]);
            let store = place.read();
            for name in &told.acknowledged {
                let found = store.get(&key(name)).unwrap();
                assert!(found.is_some_and(|found| found == content(name)), "{name} with [{first}, {second}]: {told:?}");
            }
            let mut problems = Vec::new();
            let deep = CheckOptions { is_deep: true, ..CheckOptions::default() };
            let mut note = |problem: Problem| problems.push(problem.to_string());
            store.check(deep, &mut note, &Progress::default()).unwrap();
            assert!(problems.is_empty(), "[{first}, {second}]: {problems:#?}");
            refused += told.refused;
            acknowledged += told.acknowledged.len();
        }
    }
    assert!(refused > 10 && acknowledged > 100, "{refused} and {acknowledged}");
}
