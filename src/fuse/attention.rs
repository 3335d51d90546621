//! Which threads look at the device for the next request.
//!
//! A program waits for each of its requests, so the time until a thread has one counts more than the number of threads.
//! To wake a sleeping thread takes 5 to 100 µs, most on virtual machines, whose idle processors halt. So as few threads
//! as possible look at the device, one if possible, and that one keeps looking for a moment after a request, because
//! the next one usually comes then. Others wait here. One of them is called when requests come faster than they are
//! answered, and before a thread turns to something that may take long.
//!
//! Invariant: while a thread waits here, another one looks at the device, or was called to.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::locks::lock;

/// How long a thread keeps looking for the next request before it sleeps.
pub(super) const KEEN: Duration = Duration::from_micros(100);
/// Requests that were there at once, one after the other, after which another thread is called.
const QUEUED: u32 = 4;

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
}

impl Attention {
    /// A thread begins to look at the device.
    pub(super) fn attendant(&self) -> Attendant<'_> {
        lock(&self.state).looking += 1;
        Attendant { attention: self, queued: 0 }
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
        true
    }

    /// There was a request.
    pub(super) fn found(&mut self) {
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
        let is_called = {
            let mut state = lock(&self.attention.state);
            state.looking -= 1;
            state.looking == 0 && state.call()
        };
        if is_called {
            self.attention.called.notify_one();
        }
        let done = work();
        lock(&self.attention.state).looking += 1;
        done
    }
}

#[cfg(test)]
mod tests {
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
