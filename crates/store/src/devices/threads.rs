//! Threads that may be unavailable: under a limit of processes or memory the system may refuse one at any time. Shared
//! work is then done by fewer threads, in the end by the caller alone; nothing panics for lack of a thread.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::error::{Error, ErrorKind, Result};
use crate::locks::{lock, unpoisoned};

#[cfg(test)]
thread_local! {
    static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes the system refuse every thread that `work` requests.
#[cfg(test)]
pub(crate) fn without_threads<T>(work: impl FnOnce() -> T) -> T {
    REFUSED.set(true);
    let done = work();
    REFUSED.set(false);
    done
}

fn builder() -> io::Result<Builder> {
    #[cfg(test)]
    if REFUSED.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(Builder::new())
}

fn refused(error: io::Error) -> Error {
    Error::new(ErrorKind::of(&error), "start a thread", crate::error::os_message(&error))
        .advise("raise the limit on processes (ulimit -u) or memory")
}

/// Spawns a thread of a scope.
///
/// # Errors
/// The system refuses.
pub(crate) fn spawn_within<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    builder().and_then(|builder| builder.spawn_scoped(scope, work)).map_err(refused)
}

/// Spawns a thread that may outlive its caller.
///
/// # Errors
/// The system refuses.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    builder().and_then(|builder| builder.spawn(work)).map_err(refused)
}

/// Runs `work` on up to `threads` threads, including this one. A panic in one of them propagates.
pub(crate) fn share(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            if spawn_within(scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// As [`share`], on `beginning` threads, and on all of them from the moment at which `work` calls what it is given: a
/// thread costs as much as reading several records from memory, and pays where a device is waited for.
pub(crate) fn share_once_slow(beginning: usize, threads: usize, work: impl Fn(&dyn Fn()) + Sync) {
    let is_slow = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (work, is_slow) = (&work, &is_slow);
        let join = move || {
            if !is_slow.swap(true, Ordering::Relaxed) {
                (beginning..threads).try_for_each(|_| spawn_within(scope, move || work(&|| ())).map(drop)).ok();
            }
        };
        let begun = (1..threads.min(beginning)).try_for_each(|_| spawn_within(scope, move || work(&join)).map(drop));
        // Without threads, this one does it all.
        begun.ok();
        work(&join);
    });
}

/// Runs the jobs, up to `threads` in parallel; returns their results in order.
pub(crate) fn each<J: Send, T: Send>(jobs: Vec<J>, threads: usize, work: impl Fn(J) -> T + Sync) -> Vec<T> {
    let count = jobs.len();
    if count < 2 || threads < 2 {
        return jobs.into_iter().map(work).collect();
    }
    let jobs: Vec<Mutex<Option<J>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let done: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    share(threads.min(count), || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(job), Some(place)) = (jobs.get(at), done.get(at)) else { return };
            let job = lock(job).take();
            *lock(place) = job.map(&work);
        }
    });
    // Every job was run: a panic in one would have propagated from `share`.
    done.into_iter().filter_map(|done| unpoisoned(done.into_inner())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_once_each_also_without_a_thread() {
        let done = |threads| each((0..100).collect(), threads, |job: u64| job * job);
        let expected: Vec<u64> = (0..100).map(|job| job * job).collect();
        assert_eq!(done(8), expected);
        assert_eq!(done(1), expected);
        assert_eq!(without_threads(|| done(8)), expected);
        assert_eq!(each(Vec::<u64>::new(), 4, |job| job), []);
    }

    #[test]
    fn a_thread_that_is_refused_is_an_error_that_says_what_to_do() {
        let error = without_threads(|| spawn(|| ()).map(drop)).unwrap_err();
        assert!(error.to_string().contains("cannot start a thread"), "{error}");
        let error = without_threads(|| std::thread::scope(|scope| spawn_within(scope, || ()).map(drop))).unwrap_err();
        assert!(error.to_string().contains("cannot start a thread"), "{error}");
    }
}
