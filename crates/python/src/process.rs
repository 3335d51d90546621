//! What belongs to one process: a handle that a fork must neither use nor release.
//!
//! **Invariant**: a value is used and dropped only by the process that made it. A forked child has a copy of its memory
//! but none of its threads, and shares its locks: releasing one there would release it here. So the child leaks its
//! copy, and opens a handle of its own.

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> OfProcess<T> {
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

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if !self.is_here() {
            std::mem::forget(value);
        }
    }
}
