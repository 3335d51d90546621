//! The first scan: the whole tree, in parallel, while events are already collected.
//!
//! Directories are opened by their handles, not by paths, so that no rename leads a thread astray and no path is too
//! long. What changes behind the back of a thread was marked by an event after the mark was set, and is looked at when
//! the scan is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashSet;

use super::look::{Listing, Truth};
use super::tree::{Entry, Tree};
use crate::locks::{lock, unpoisoned};
use crate::progress::Progress;
use crate::scan::Kind;
use crate::sys::Handle;

/// A directory to be listed: its inode number and its handle.
pub(super) type Unlisted = (u64, Handle);

/// The directories that are pending, and the number of threads that may add more.
#[derive(Default)]
struct Queue {
    pending: Vec<Unlisted>,
    busy: usize,
}

/// Records what a directory holds. Returns the directories in it that are to be listed, too.
pub(super) fn record(tree: &mut Tree, listing: Listing) -> Vec<Unlisted> {
    let mut unlisted = Vec::new();
    let Some(directory) = tree.update(&listing.stat) else { return unlisted };
    tree.set_trouble(directory, listing.trouble);
    let is_known = tree.children(directory).next().is_some();
    let mut kept = HashSet::new();
    for (name, entry, handle) in listing.entries {
        let is_another = is_another(tree, &entry, handle.as_ref());
        let is_new = tree.put(directory, &name, &entry);
        if is_known {
            kept.extend(tree.child(directory, &name));
        }
        if let (true, Entry::Inode(stat)) = (is_new || is_another, &entry) {
            unlisted.extend(to_list(tree, stat.inode, handle));
        }
    }
    // A listing that failed does not say what is gone.
    if is_known && listing.trouble.is_none() {
        tree.keep_children(directory, &kept);
    }
    unlisted
}

/// Whether a directory has the number of another one that was known: it was removed, and its number used again.
fn is_another(tree: &Tree, entry: &Entry, handle: Option<&Handle>) -> bool {
    let (Entry::Inode(stat), Some(handle)) = (entry, handle) else { return false };
    tree.inode(stat.inode).is_some() && tree.directory(stat.inode, handle.as_bytes()).is_none()
}

/// A directory to be listed. Without a handle it cannot be opened, unless it has vanished.
pub(super) fn to_list(tree: &mut Tree, number: u64, handle: Option<Handle>) -> Option<Unlisted> {
    if let Some(directory) = tree.inode(number) {
        match &handle {
            Some(handle) => tree.set_handle(directory, handle.as_bytes()),
            None => {
                let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
                tree.set_trouble(directory, Some(("open the directory", errno)));
            }
        }
    }
    handle.map(|handle| (number, handle))
}

/// Lists directories, and those in them that are new, with `threads`. Calls `meanwhile` about every `tick`. Returns
/// whether it came to the end.
pub(super) fn list(
    truth: &Truth,
    tree: &mut Tree,
    unlisted: Vec<Unlisted>,
    threads: usize,
    progress: &Progress,
    tick: Duration,
    mut meanwhile: impl FnMut(),
) -> bool {
    let queue = Mutex::new(Queue { pending: unlisted, busy: 0 });
    // For threads that wait for a directory, and for the one that waits for the end.
    let (changed, ended, is_stopped) = (Condvar::new(), Condvar::new(), AtomicBool::new(false));
    let tree = Mutex::new(tree);
    let next = || {
        let mut queue = lock(&queue);
        loop {
            if is_stopped.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(directory) = queue.pending.pop() {
                queue.busy += 1;
                return Some(directory);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    };
    let work = || {
        let _stop = StopOnPanic(&is_stopped, &changed);
        let mut buffer = Vec::new();
        while let Some((number, handle)) = next() {
            let found = match truth.list(&handle, &mut buffer) {
                Ok(listing) => {
                    count(progress, &listing);
                    record(&mut lock(&tree), listing)
                }
                Err(trouble) => {
                    let mut tree = lock(&tree);
                    if let Some(directory) = tree.inode(number) {
                        tree.set_trouble(directory, trouble);
                    }
                    progress.add_errors(u64::from(trouble.is_some()));
                    Vec::new()
                }
            };
            if progress.should_stop() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            let mut queue = lock(&queue);
            queue.pending.extend(found);
            queue.busy -= 1;
            if queue.busy == 0 && queue.pending.is_empty() {
                ended.notify_all();
            }
            drop(queue);
            changed.notify_all();
        }
    };
    if threads <= 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
            let mut guard = lock(&queue);
            while (guard.busy > 0 || !guard.pending.is_empty()) && !is_stopped.load(Ordering::Relaxed) {
                guard = unpoisoned(ended.wait_timeout(guard, tick)).0;
                drop(guard);
                meanwhile();
                guard = lock(&queue);
            }
        });
    }
    !is_stopped.load(Ordering::Relaxed)
}

/// Wakes the other threads when one panics.
struct StopOnPanic<'s>(&'s AtomicBool, &'s Condvar);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
            self.1.notify_all();
        }
    }
}

fn count(progress: &Progress, listing: &Listing) {
    let (mut files, mut directories, mut bytes) = (0, 0, 0);
    for (_, entry, _) in &listing.entries {
        if let Entry::Inode(stat) = entry {
            let is_file = stat.kind == Kind::File;
            files += u64::from(is_file);
            directories += u64::from(stat.kind == Kind::Directory);
            bytes += if is_file { u128::from(stat.size_bytes) } else { 0 };
        }
    }
    progress.add(files, directories, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Stat, Timestamp};

    fn stat(inode: u64, kind: Kind) -> Stat {
        let time = Timestamp { seconds: 7, nanoseconds: 0 };
        Stat {
            kind,
            size_bytes: 0,
            allocated_bytes: 0,
            link_count: 1,
            uid: 0,
            gid: 0,
            mode: 0,
            device: 1,
            inode,
            mtime: time,
            ctime: time,
            atime: time,
        }
    }

    fn handle(number: u8) -> Option<Handle> {
        Handle::new(1, &[number; 8])
    }

    /// What a root with these entries has, and which of them are to be listed.
    fn recorded(tree: &mut Tree, entries: Vec<(&str, Stat, Option<Handle>)>) -> (Vec<String>, Vec<u64>) {
        let entries =
            entries.into_iter().map(|(name, stat, handle)| (name.as_bytes().into(), Entry::Inode(stat), handle));
        let listing = Listing { stat: stat(2, Kind::Directory), entries: entries.collect(), trouble: None };
        let unlisted = record(tree, listing).into_iter().map(|(number, _)| number).collect();
        let names = tree.children(tree.root()).map(|name| String::from_utf8(tree.text(name).to_vec()).unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        (names, unlisted)
    }

    #[test]
    fn a_directory_that_is_listed_again_has_the_names_of_the_listing() {
        let mut tree = Tree::new(&stat(2, Kind::Directory));
        let (file, directory) = (|number| stat(number, Kind::File), |number| stat(number, Kind::Directory));
        let first = vec![("Foo", file(10), None), ("Bar", file(11), None), ("Sub", directory(12), handle(1))];
        assert_eq!(recorded(&mut tree, first).1, [12]);
        // Another spelling, another file under one that stays, and a directory with a number that was used before.
        let again = vec![("FOO", file(10), None), ("Bar", file(13), None), ("Sub", directory(12), handle(2))];
        let (names, unlisted) = recorded(&mut tree, again);
        assert_eq!((names, unlisted), (["Bar", "FOO", "Sub"].map(str::to_owned).to_vec(), vec![12]));
        tree.settle();
        assert!(tree.inode(11).is_none() && tree.inode(10).is_some());
        let same = vec![("Bar", file(13), None), ("Sub", directory(12), handle(2))];
        assert_eq!(recorded(&mut tree, same), (["Bar", "Sub"].map(str::to_owned).to_vec(), Vec::new()));
    }
}
