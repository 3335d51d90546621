//! What belongs to one process: a handle that a fork must neither use nor release; and locks beside the interpreter's.
//!
//! **Invariant**: a value is used and dropped only by the process that made it. A forked child has a copy of its memory
//! but none of its threads, and shares its locks: releasing one there would release it here. So the child leaks its
//! copy, and opens a handle of its own. In its own process a value is dropped without the interpreter: it may write to
//! a disk, or wait for a thread. So nobody may hold a lock while one is dropped.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::Python;

/// Locks a mutex unless another thread has it: who has the interpreter must not wait for one who wants it, or a disk.
pub(crate) fn lock_if_free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct OfProcess<T: Send> {
    process: u32,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { process: std::process::id(), value: Some(value) }
    }

    /// The value, unless this is a forked child.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        match self.is_here() {
            true => Python::attach(|py| py.detach(|| drop(value))),
            false => std::mem::forget(value),
        }
    }
}
