//! Files that are locked with `flock`.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// An open file that holds a lock.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing is not enough: a child started by another thread also has the file until it calls `exec`.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Locks a file without waiting; `None` if others hold a lock that excludes this one.
pub(super) fn try_lock(file: File, operation: FlockOperation) -> io::Result<Option<Held>> {
    match flock(&file, operation) {
        Ok(()) => Ok(Some(Held { file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
