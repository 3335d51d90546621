//! The server of a mount is killed at random moments under load: what was fsynced is there after a remount, and the
//! tree is one that the programs could have seen.
//!
//! Each thread writes file after file and renames it when it is closed; every fifth it fsyncs, under its last name. So
//! if a file has its last name, all earlier ones have theirs, with their content. Before each file, the thread appends
//! its number to another that it never fsyncs: it has all numbers up to the last file that was fsynced.
//! `GRANULO_MOUNT_KILLS` is the number of kills (4).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use granulo_core::random::Random;

use crate::mounted::{PATIENCE, Place};

const THREADS: u64 = 3;

fn content(thread: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(thread << 32 | number);
    let length = [10, 3000, 30_000, 150_000][random.index(4)] + random.index(100);
    random.bytes(length)
}

/// Writes files from a number on until that fails; `durable` is one more than the last that is known to be durable.
fn write(directory: &Path, thread: u64, first: u64, durable: &AtomicU64) -> std::io::Result<()> {
    let mut log = OpenOptions::new().append(true).create(true).open(directory.join("log"))?;
    for number in first.. {
        log.write_all(&number.to_le_bytes())?;
        let (new, last) = (directory.join("new"), directory.join(number.to_string()));
        let mut file = File::create(&new)?;
        file.write_all(&content(thread, number))?;
        drop(file);
        fs::rename(&new, &last)?;
        if number % 5 == 0 {
            File::open(&last)?.sync_all()?;
            durable.store(number + 1, Ordering::SeqCst);
        }
    }
    Ok(())
}

#[test]
fn what_was_fsynced_survives_a_kill_and_the_rest_is_a_beginning() {
    let Some(place) = Place::with(&["--cutoff", "64KiB"]) else { return };
    let kills = std::env::var("GRANULO_MOUNT_KILLS").map_or(4, |value| value.parse().unwrap());
    let mut random = Random::new(7);
    let mut next = [0; THREADS as usize];
    for kill in 0..kills {
        let mounted = place.mount_with(&["--commit-every", "200ms"]);
        let durable: Vec<AtomicU64> = next.iter().map(|&next| AtomicU64::new(next)).collect();
        thread::scope(|scope| {
            for (thread, durable) in (0..).zip(&durable) {
                let directory = mounted.root.join(thread.to_string());
                let first = next[thread as usize];
                scope.spawn(move || {
                    let _ = fs::create_dir(&directory);
                    write(&directory, thread, first, durable).unwrap_err()
                });
            }
            // Each has made something durable, however slow that is here.
            let began = Instant::now();
            let is_slow = || durable.iter().zip(next).any(|(durable, next)| durable.load(Ordering::SeqCst) <= next);
            while is_slow() {
                assert!(began.elapsed() < PATIENCE, "nothing is made durable");
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_millis(random.below(900)));
            mounted.kill();
        });
        let mounted = place.mount();
        for (thread, durable) in (0..).zip(&durable) {
            let directory = mounted.root.join(thread.to_string());
            let names = fs::read_dir(&directory).map_or(Vec::new(), |entries| {
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            });
            let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
            numbers.sort_unstable();
            let there = numbers.len() as u64;
            assert!(numbers.iter().copied().eq(0..there), "kill {kill}, thread {thread}: {numbers:?}");
            let durable = durable.load(Ordering::SeqCst);
            assert!(there >= durable, "kill {kill}: thread {thread} has {there} files, and {durable} were durable");
            let log = fs::read(directory.join("log")).unwrap();
            let logged: Vec<u64> = log.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
            let missing = (next[thread as usize]..durable).find(|number| !logged.contains(number));
            assert_eq!(missing, None, "kill {kill}: thread {thread} had logged it, and then {durable} were durable");
            // The earlier ones were read before.
            for number in next[thread as usize]..there {
                let read = fs::read(directory.join(number.to_string())).unwrap();
                assert!(read == content(thread, number), "kill {kill}: file {number} of thread {thread}");
            }
            next[thread as usize] = there;
        }
        mounted.unmount();
        place.check();
    }
    assert!(next.iter().all(|&next| next > 0), "{next:?}");
}
