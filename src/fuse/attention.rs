//! Which threads look at the device for the next request.
//!
//! A program waits for each of its requests, so the time until a thread has one counts more than the number of threads.
//! To wake a sleeping thread takes 5 to 100 µs, most on virtual machines, whose idle processors halt. So as few threads
//! as possible look at the device, one if possible, and that one keeps looking for a moment after a request, because
//! the next one usually comes then. It does not if the program that was answered waits for this processor, as on a busy
//! machine: so the more often a thread looked in vain, the more often it sleeps at once. Others wait here. One of them
//! is called when requests come faster than they are answered, and before a thread turns to something that may take
//! long. Whether it does is not always known before: [`Attention::away`] and [`Attention::lock`] are for code that
//! finds out in the middle of a request, on whatever thread that is.
//!
//! Invariant: while a thread waits here, another one looks at the device, or was called to.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::locks::lock;

/// How long a thread keeps looking for the next request before it sleeps.
const KEEN: Duration = Duration::from_micros(100);
/// After looking so long in vain again and again, so many requests at most are slept for before it looks again.
const MOST_SLEPT: u32 = 63;
/// Requests that were there at once, one after the other, after which another thread is called.
const QUEUED: u32 = 4;

thread_local! {
    /// Whether this thread counts among those that look at its device.
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// The threads of a mount.
#[derive(Debug, Default)]
pub(super) struct Attention {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that look at the device, or were called to.
    looking: usize,
    waiting: usize,
    /// Calls that nobody has answered yet.
    calls: usize,
    has_ended: bool,
}

impl State {
    /// Calls one that waits; returns whether there is one.
    fn call(&mut self) -> bool {
        let is_there = self.waiting > self.calls;
        if is_there {
            self.calls += 1;
            self.looking += 1;
        }
        is_there
    }
}

/// A thread that answers requests.
#[derive(Debug)]
pub(super) struct Attendant<'a> {
    attention: &'a Attention,
    /// Requests that were there at once since it last waited or called.
    queued: u32,
    /// Until when it keeps looking.
    keen_until: Option<Instant>,
    /// Requests to sleep for at once, because looking was in vain, and how many of them it has slept for.
    sleeps: u32,
    slept: u32,
}

/// What a thread does while others look at the device; it counts again when this is dropped, also by a panic.
#[derive(Debug)]
struct Away<'a>(&'a Attention);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).looking += 1;
        IS_LOOKING.set(true);
    }
}

impl Drop for Attendant<'_> {
    fn drop(&mut self) {
        IS_LOOKING.set(false);
    }
}

impl Attention {
    /// A thread begins to look at the device.
    pub(super) fn attendant(&self) -> Attendant<'_> {
        lock(&self.state).looking += 1;
        IS_LOOKING.set(true);
        Attendant { attention: self, queued: 0, keen_until: None, sleeps: 0, slept: 0 }
    }

    /// Does something that may take long, while others look at the device. Nothing but `work`, on a thread that does
    /// not look at it, or is away already.
    pub(super) fn away<T>(&self, work: impl FnOnce() -> T) -> T {
        if !IS_LOOKING.replace(false) {
            return work();
        }
        let is_called = {
            let mut state = lock(&self.state);
            state.looking -= 1;
            state.looking == 0 && state.call()
        };
        let _away = Away(self);
        if is_called {
            self.called.notify_one();
        }
        work()
    }

    /// Locks a mutex. Whoever has it locked may wait for devices, or for space: others look at the device meanwhile.
    pub(super) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        match mutex.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::Poisoned(locked)) => locked.into_inner(),
            Err(TryLockError::WouldBlock) => self.away(|| lock(mutex)),
        }
    }

    /// Nothing comes any more: all threads look at the device once more, and find out.
    pub(super) fn end(&self) {
        lock(&self.state).has_ended = true;
        self.called.notify_all();
    }
}

impl Attendant<'_> {
    /// There was no request. Returns when this thread is to look again: at once if no other does, which is told by
    /// `false`; or when it was called.
    pub(super) fn found_none(&mut self) -> bool {
        self.queued = 0;
        let mut state = lock(&self.attention.state);
        if state.looking <= 1 || state.has_ended {
            return false;
        }
        (state.looking, state.waiting) = (state.looking - 1, state.waiting + 1);
        while state.calls == 0 && !state.has_ended {
            state = self.attention.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        match state.calls {
            // It has ended.
            0 => state.looking += 1,
            _ => state.calls -= 1,
        }
        self.keen_until = None;
        true
    }

    /// Whether this thread, which found no request, is to sleep until there is one. If not, it looks again.
    pub(super) fn may_sleep(&mut self) -> bool {
        let now = Instant::now();
        match self.keen_until {
            None if self.slept < self.sleeps => {
                self.slept += 1;
                true
            }
            None => {
                (self.keen_until, self.slept) = (Some(now + KEEN), 0);
                false
            }
            Some(until) if now < until => false,
            Some(_) => {
                (self.keen_until, self.sleeps) = (None, (2 * self.sleeps + 1).min(MOST_SLEPT));
                true
            }
        }
    }

    /// There was a request.
    pub(super) fn found(&mut self) {
        if self.keen_until.take().is_some() {
            self.sleeps = 0;
        }
        self.queued += 1;
        if self.queued >= QUEUED {
            self.queued = 0;
            if lock(&self.attention.state).call() {
                self.attention.called.notify_one();
            }
        }
    }

    /// Does something that may take long, while others look at the device.
    pub(super) fn away<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.attention.away(work)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use super::*;

    #[test]
    fn the_only_one_that_looks_does_not_wait() {
        let attention = Attention::default();
        let mut only = attention.attendant();
        assert!(!only.found_none());
        // Nobody can be called.
        (0..QUEUED).for_each(|_| only.found());
        assert_eq!(only.away(|| lock(&attention.state).looking), 0);
        assert!(!only.found_none());
    }

    #[test]
    fn who_looked_in_vain_sleeps_more_often_until_it_finds_something() {
        let attention = Attention::default();
        let mut only = attention.attendant();
        let sleeps_before_it_looks = |only: &mut Attendant<'_>| {
            let slept = (0..).take_while(|_| only.may_sleep()).count();
            only.keen_until = Some(Instant::now());
            slept
        };
        assert_eq!([0; 9].map(|_| sleeps_before_it_looks(&mut only)), [0, 2, 4, 8, 16, 32, 64, 64, 64]);
        only.found();
        assert_eq!(sleeps_before_it_looks(&mut only), 0);
    }

    #[test]
    fn a_thread_is_away_once_and_back_after_a_panic() {
        let attention = Attention::default();
        let looking = || lock(&attention.state).looking;
        assert_eq!((attention.away(looking), looking()), (0, 0), "this thread does not look");
        let mut only = attention.attendant();
        assert_eq!((only.away(|| attention.away(looking)), attention.away(looking), looking()), (0, 0, 1));
        let panicked = catch_unwind(AssertUnwindSafe(|| attention.away::<()>(|| panic!("away"))));
        assert!(panicked.is_err() && looking() == 1 && attention.away(looking) == 0);
        drop(only);
        assert_eq!(attention.away(looking), 1, "it is another that looks");
    }

    /// Requests through a channel, each of which the thread that has it answers only when another was answered: nobody
    /// may be left waiting while there are requests.
    #[test]
    fn all_requests_are_answered_while_some_take_long() {
        const THREADS: usize = 4;
        const REQUESTS: usize = 2_000;
        let attention = Attention::default();
        let (give, given): (Sender<usize>, Receiver<usize>) = channel();
        let (given, answered) = (Mutex::new(given), AtomicUsize::new(0));
        let take = || lock(&given).try_recv().ok();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut attendant = attention.attendant();
                    while answered.load(Ordering::SeqCst) < REQUESTS {
                        let Some(request) = take() else {
                            if !attendant.found_none() {
                                thread::yield_now();
                            }
                            continue;
                        };
                        attendant.found();
                        // Every third one ends only when the one after it was answered, by somebody else.
                        if request % 3 == 0 {
                            let others = || answered.load(Ordering::SeqCst) > request / 3;
                            attendant.away(|| {
                                while !others() {
                                    thread::yield_now()
                                }
                            });
                        }
                        if answered.fetch_add(1, Ordering::SeqCst) + 1 >= REQUESTS {
                            attention.end();
                        }
                    }
                });
            }
            // Two at a time: the second one frees the first.
            for request in (0..REQUESTS).step_by(2) {
                while answered.load(Ordering::SeqCst) < request {
                    thread::yield_now();
                }
                for one in [request * 3, request * 3 + 1] {
                    give.send(one).unwrap();
                }
            }
        });
        assert_eq!(answered.load(Ordering::SeqCst), REQUESTS);
    }
}
