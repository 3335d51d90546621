//! Looks at files some time after they were written: what a file system allocates changes after the last event, when it
//! writes data back (delayed allocation, compression) or trims what it had allocated ahead (XFS). Directories whose
//! names changed are looked at with them, because many changes of one are one look then.
//!
//! A file that is written all the time is looked at once in every delay, and once more after its last write.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::events::HandleBytes;

/// Inodes that are looked at some time after they were written.
#[derive(Debug)]
pub(super) struct Later {
    delay: Duration,
    last_written: HashMap<HandleBytes, Instant>,
    /// Every inode once, by the time of its next look.
    queue: VecDeque<(Instant, HandleBytes)>,
}

impl Later {
    /// Looks after `delay`.
    pub(super) fn after(delay: Duration) -> Later {
        Later { delay, last_written: HashMap::new(), queue: VecDeque::new() }
    }

    /// Number of inodes.
    pub(super) fn len(&self) -> usize {
        self.last_written.len()
    }

    /// Adds an inode that was written `now`, which is never earlier than before.
    pub(super) fn add(&mut self, inode: &[u8], now: Instant) {
        match self.last_written.get_mut(inode) {
            Some(last_written) => *last_written = now,
            None => {
                let inode = HandleBytes::from_slice(inode);
                self.last_written.insert(inode.clone(), now);
                self.queue.push_back((now + self.delay, inode));
            }
        }
    }

    /// Takes out an inode that is due by `now`. It stays if it was written again meanwhile.
    pub(super) fn next(&mut self, now: Instant) -> Option<HandleBytes> {
        if self.queue.front().is_none_or(|(due, _)| *due > now) {
            return None;
        }
        let (_, inode) = self.queue.pop_front()?;
        match self.last_written.get(&inode) {
            Some(&written) if written + self.delay > now => self.queue.push_back((now + self.delay, inode.clone())),
            _ => drop(self.last_written.remove(&inode)),
        }
        Some(inode)
    }

    /// All inodes, whether they are due or not.
    pub(super) fn all(&self) -> Vec<HandleBytes> {
        self.queue.iter().map(|(_, inode)| inode.clone()).collect()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.last_written.clear();
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_looked_at_while_it_is_written_and_after_its_last_write() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut later = Later::after(Duration::from_secs(10));
        let inode = |number: u8| HandleBytes::from_slice(&[number]);
        later.add(&inode(1), at(0));
        later.add(&inode(2), at(1));
        later.add(&inode(1), at(5));
        assert_eq!((later.len(), later.next(at(9))), (2, None));
        assert_eq!(later.next(at(12)), Some(inode(1)));
        assert_eq!((later.next(at(12)), later.next(at(12))), (Some(inode(2)), None));
        assert_eq!((later.len(), later.all()), (1, vec![inode(1)]));
        assert_eq!((later.next(at(21)), later.next(at(22))), (None, Some(inode(1))));
        assert_eq!((later.len(), later.next(at(100))), (0, None));
    }
}
