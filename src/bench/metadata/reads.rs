//! Random reads of whole small files: by one thread, by several, and as one batch.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::target::{Memory, Target};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Files per batch.
const TOGETHER: usize = 8192;
/// Reads in flight while a batch is read.
pub(super) const DEPTH: usize = 32;
/// Largest small file, for the size of buffers.
const MEMORY_BYTES: usize = 64 << 10;

/// Reads the files in order with this many threads, until at most `longest` after `started`; returns reads per second
/// since then, `None` if it was asked to stop.
///
/// # Errors
/// The first read that failed, or returned other bytes than were written.
pub(super) fn one_by_one(
    target: &dyn Target,
    numbers: &[u64],
    threads: u64,
    (started, longest): (Instant, Duration),
    progress: &Progress,
    show: &(dyn Fn(u64) + Sync),
) -> Result<Option<f64>> {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let work = || {
        let mut memory = Memory::new(MEMORY_BYTES);
        while !failed.load(Ordering::Relaxed) && !progress.should_stop() && started.elapsed() < longest {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&number) = numbers.get(at as usize) else { return };
            if let Err(error) = target.read_whole(number, &mut memory) {
                if !failed.swap(true, Ordering::Relaxed)
                    && let Ok(mut failure) = failure.lock()
                {
                    *failure = Some(error);
                }
                return;
            }
            show(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let elapsed = started.elapsed().as_secs_f64();
    if let Some(error) = failure.into_inner().unwrap_or_default() {
        return Err(error);
    }
    Ok((!progress.should_stop()).then(|| done.load(Ordering::Relaxed) as f64 / elapsed.max(1e-9)))
}

/// Reads the files in batches, if the target supports that; returns reads per second since `started`.
///
/// # Errors
/// Same as [`one_by_one`].
pub(super) fn together(
    target: &dyn Target,
    numbers: &[u64],
    (started, longest): (Instant, Duration),
    progress: &Progress,
    show: &(dyn Fn(u64) + Sync),
) -> Result<Option<f64>> {
    let mut done = 0u64;
    for numbers in numbers.chunks(TOGETHER) {
        if progress.should_stop() {
            return Ok(None);
        }
        if started.elapsed() >= longest {
            break;
        }
        match target.read_together(numbers, DEPTH) {
            Some(read) => read?,
            None => return Ok(None),
        }
        done += numbers.len() as u64;
        show(done);
    }
    Ok(Some(done as f64 / started.elapsed().as_secs_f64().max(1e-9)))
}
