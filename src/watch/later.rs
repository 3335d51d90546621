//! Second looks at files that were written: what a file system allocates may change after the last event, when it
//! writes data back (delayed allocation, compression) or trims what it had allocated ahead (XFS).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::events::HandleBytes;

/// Inodes that are looked at some time after they were last written.
#[derive(Debug)]
pub(super) struct Later {
    delay: Duration,
    due: HashMap<HandleBytes, Instant>,
    /// In the order in which they were added; out of date where `due` has another time.
    queue: VecDeque<(Instant, HandleBytes)>,
}

impl Later {
    /// Looks after `delay`.
    pub(super) fn after(delay: Duration) -> Later {
        Later { delay, due: HashMap::new(), queue: VecDeque::new() }
    }

    /// Number of inodes.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Adds an inode that was written `now`.
    pub(super) fn add(&mut self, inode: HandleBytes, now: Instant) {
        let due = now + self.delay;
        self.queue.push_back((due, inode.clone()));
        self.due.insert(inode, due);
    }

    /// Takes out an inode that is due by `now`; with `None`, whichever is next.
    pub(super) fn next(&mut self, now: Option<Instant>) -> Option<HandleBytes> {
        while self.queue.front().is_some_and(|(due, _)| now.is_none_or(|now| *due <= now)) {
            let (due, inode) = self.queue.pop_front()?;
            if self.due.get(&inode) == Some(&due) {
                self.due.remove(&inode);
                return Some(inode);
            }
        }
        None
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_looked_at_once_after_its_last_write() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut later = Later::after(Duration::from_secs(10));
        let inode = |number: u8| -> HandleBytes { [number].into() };
        later.add(inode(1), at(0));
        later.add(inode(2), at(1));
        later.add(inode(1), at(5));
        assert_eq!((later.len(), later.next(Some(at(10)))), (2, None));
        assert_eq!(later.next(Some(at(11))), Some(inode(2)));
        assert_eq!(later.next(Some(at(14))), None);
        assert_eq!(later.next(None), Some(inode(1)));
        assert_eq!((later.len(), later.next(None)), (0, None));
    }
}
