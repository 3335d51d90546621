//! Listings: entries in order of keys, of one consistent state, however long they take.

use crate::engine::Engine;
use crate::engine::effects::{below, is_within};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::key::{Key, shared_key};
use crate::index::{Scan, Snapshot};

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The whole key.
    pub key: Key,
    /// Kind, size, mode, owner, time and place. Links are followed.
    pub entry: Entry,
    /// Number of the shared object, if the name is a link.
    pub shared: Option<u64>,
}

/// An entry of a listing whose key is lent until the next one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent<'w> {
    /// The whole key.
    pub key: &'w Key,
    /// Kind, size, mode, owner, time and place. Links are followed.
    pub entry: Entry,
    /// Number of the shared object, if the name is a link.
    pub shared: Option<u64>,
}

/// Entries in order of keys, of one consistent state. See [`Store::list`](crate::Store::list) and [`Store::walk`](crate::Store::walk).
///
/// As an iterator it gives entries to keep; [`lend`](Self::lend) takes no memory for each.
#[derive(Debug)]
pub struct Walk {
    snapshot: Snapshot,
    scan: Scan,
    top: Key,
    /// The key of the entry that was given last.
    key: Key,
    /// The shared object of the name that was given last, if it is a link.
    shared: Option<(u64, Entry)>,
    /// Only the entries of `top` itself.
    is_flat: bool,
    ended: bool,
}

impl Engine {
    /// What is at and below `top`, or only its entries; from the stored key `from` on, if that is behind the first.
    pub(crate) fn walk(&self, top: &Key, is_flat: bool, from: &[u8]) -> Result<Walk> {
        self.refresh()?;
        let snapshot = self.view().snapshot();
        Walk::new(snapshot, top, is_flat, from)
    }
}

impl Walk {
    /// As [`Engine::walk`], of one state.
    pub(crate) fn new(snapshot: Snapshot, top: &Key, is_flat: bool, from: &[u8]) -> Result<Walk> {
        let found = snapshot.look_up(top.stored())?;
        if is_flat && !top.is_root() && found.is_none_or(|entry| entry.kind != Kind::Directory) {
            let (kind, cause) = match found {
                None => (ErrorKind::NotFound, "there is no such object"),
                Some(_) => (ErrorKind::Usage, "it is no directory"),
            };
            return Err(Error::new(kind, "list", cause).at(&top.to_path()));
        }
        let first = if is_flat { below(top.stored()) } else { top.stored().to_vec() };
        let scan = snapshot.scan_from(first.as_slice().max(from))?;
        Ok(Walk { snapshot, scan, top: top.clone(), key: Key::root(), shared: None, is_flat, ended: false })
    }

    /// The next entry, as the iterator gives it, with a key that is this walk's.
    ///
    /// # Errors
    /// What reading the index fails with; the walk is at its end then.
    pub fn lend(&mut self) -> Result<Option<Lent<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(true));
        step?;
        Ok(match (&self.shared, self.scan.given()) {
            _ if self.ended => None,
            (Some((shared, entry)), _) => Some(Lent { key: &self.key, entry: *entry, shared: Some(*shared) }),
            // The one copy of it that is made.
            (None, given) => given.map(|(_, entry)| Lent { key: &self.key, entry: *entry, shared: None }),
        })
    }

    /// Goes on to the next entry: its key is then `self.key`, and it is the scan's, or that of `self.shared`. Gives whether there is one.
    #[inline]
    fn step(&mut self) -> Result<bool> {
        self.shared = None;
        loop {
            let Some((stored, entry)) = self.scan.next_entry()? else { return Ok(false) };
            if !self.key.set_stored(stored) {
                // Shared objects lie before all paths but the root.
                self.scan.seek(&[1])?;
                continue;
            }
            let top = self.top.stored();
            if !is_within(stored, top) {
                return Ok(false);
            }
            let start = if top.is_empty() { 0 } else { (top.len() + 1).min(stored.len()) };
            if self.is_flat
                && let Some(first) = stored[start..].iter().position(|&byte| byte == 0)
            {
                // Past everything below that entry of the directory.
                let mut past = stored[..start + first].to_vec();
                past.push(1);
                self.scan.seek(&past)?;
                continue;
            }
            if entry.kind != Kind::Link {
                return Ok(true);
            }
            let shared = entry.size_bytes;
            if let Some(entry) = self.snapshot.look_up(&shared_key(shared))? {
                self.shared = Some((shared, entry));
                return Ok(true);
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Result<Listed>> {
        let next = self.lend().map(|lent| lent.map(|Lent { key, entry, shared }| (key.clone(), entry, shared)));
        next.map(|next| next.map(|(key, entry, shared)| Listed { key, entry, shared })).transpose()
    }
}
