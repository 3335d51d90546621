//! What differs between two states of a store: two walks side by side, in memory that does not grow. Records are not
//! read: an object that was written again has another id.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::pinned::PinnedSnapshot;
use super::walk::{Listed, Walk};
use crate::error::Result;
use crate::format::entry::Kind;
use crate::format::key::Key;

/// A key whose object is not the same in two states. At least one of them has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Key,
    /// What it was; `None` if it was added.
    pub before: Option<Listed>,
    /// What it is; `None` if it was removed.
    pub after: Option<Listed>,
}

/// The differences of two states in the order of keys; it ends after an error. See [`PinnedSnapshot::differences`].
#[derive(Debug)]
pub struct Differences {
    before: Peekable<Walk>,
    after: Peekable<Walk>,
    /// One of the walks is at its end because of an error: what the other still has is no difference.
    has_failed: bool,
}

impl PinnedSnapshot {
    /// How a later state differs from this one, at and below a key: objects that were added, removed, or written again
    /// (content, attributes, or both). What is below a directory that was renamed was removed and added.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// store.put(&Key::parse("same")?, &attributes, b"1")?;
    /// let before = store.snapshot()?;
    /// store.put(&Key::parse("new")?, &attributes, b"2")?;
    /// let differences = before.differences(&store.snapshot()?, &Key::root())?;
    /// let keys: Vec<String> = differences.map(|one| one.map(|one| one.key.to_string())).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["new"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of reading the index.
    pub fn differences(&self, later: &PinnedSnapshot, top: &Key) -> Result<Differences> {
        let walk = |snapshot: &PinnedSnapshot| snapshot.walk(top, &Key::root()).map(Iterator::peekable);
        Ok(Differences { before: walk(self)?, after: walk(later)?, has_failed: false })
    }
}

/// Whether two states have the same object at a key. A directory is the same whatever is in it, and the root, which
/// always exists, whatever it is.
fn is_same(before: &Listed, after: &Listed) -> bool {
    let ids = |listed: &Listed| (listed.entry.id, listed.entry.attributes_id, listed.shared);
    ids(before) == ids(after) || before.key.is_root() && before.entry.kind == Kind::Directory
}

impl Differences {
    /// Which of the walks has the lower key next, and so advances; an error counts as the lowest key, so that it is
    /// taken alone. `None` at the end of both.
    fn order(&mut self) -> Option<Ordering> {
        match (self.before.peek(), self.after.peek()) {
            (None, None) => None,
            (Some(Err(_)), _) | (Some(_), None) => Some(Ordering::Less),
            (_, Some(Err(_))) | (None, Some(_)) => Some(Ordering::Greater),
            (Some(Ok(before)), Some(Ok(after))) => Some(before.key.stored().cmp(after.key.stored())),
        }
    }
}

impl Iterator for Differences {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Result<Difference>> {
        while !self.has_failed {
            let order = self.order()?;
            let before = if order.is_le() { self.before.next().transpose() } else { Ok(None) };
            let after = if order.is_ge() { self.after.next().transpose() } else { Ok(None) };
            let (before, after) = match (before, after) {
                (Err(error), _) | (_, Err(error)) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
                (Ok(before), Ok(after)) => (before, after),
            };
            match (&before, &after) {
                (Some(before), Some(after)) if is_same(before, after) => {}
                (Some(Listed { key, .. }), _) | (None, Some(Listed { key, .. })) => {
                    return Some(Ok(Difference { key: key.clone(), before, after }));
                }
                (None, None) => return None,
            }
        }
        None
    }
}
