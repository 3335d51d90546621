//! Copies of segments that threads of this process are writing. Their files have names of no segment, like those that a
//! crash leaves, and must not be taken for such.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::format::ids::DeviceNumber;
use crate::locks::{lock, unpoisoned};

/// Files by device and path.
pub(crate) type CopyPaths = BTreeSet<(DeviceNumber, String)>;

/// The copies that are being written.
#[derive(Debug, Default)]
pub(crate) struct CopiesInProgress {
    files: Mutex<CopyPaths>,
    ended: Condvar,
}

/// One of them, until dropped.
#[derive(Debug)]
pub(crate) struct CopyInProgress<'c> {
    all: &'c CopiesInProgress,
    file: (DeviceNumber, String),
}

impl CopiesInProgress {
    /// Begins a copy, after another thread that writes the same file has ended.
    pub(crate) fn begin(&self, device: DeviceNumber, path: &str) -> CopyInProgress<'_> {
        let file = (device, path.to_owned());
        let is_taken = |files: &mut CopyPaths| files.contains(&file);
        let mut files = unpoisoned(self.ended.wait_while(lock(&self.files), is_taken));
        files.insert(file.clone());
        drop(files);
        CopyInProgress { all: self, file }
    }

    /// The files that are being written. None begins or ends while the lock is held.
    pub(crate) fn files(&self) -> MutexGuard<'_, CopyPaths> {
        lock(&self.files)
    }
}

impl Drop for CopyInProgress<'_> {
    fn drop(&mut self) {
        self.all.files().remove(&self.file);
        self.all.ended.notify_all();
    }
}
