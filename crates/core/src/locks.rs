//! Locks whose value is complete at all times: a thread that panicked while it held one leaves nothing half-done, so
//! the others continue with the value.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The value of a lock, even if a thread that held it has panicked.
#[inline]
pub fn unpoisoned<T>(value: LockResult<T>) -> T {
    value.unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Locks for reading.
#[inline]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    unpoisoned(lock.read())
}

/// Locks for writing.
#[inline]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    unpoisoned(lock.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_locked_keeps_the_value() {
        let mutex = Mutex::new(7);
        let panicked = std::thread::scope(|scope| {
            let holding = scope.spawn(|| {
                let _held = lock(&mutex);
                panic!("while locked");
            });
            holding.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 7);
        assert_eq!(unpoisoned(mutex.into_inner()), 7);
    }
}
