//! Look-ups of ascending keys that are close together: one scan that advances from each to the next, instead of a
//! search in each sorted table.
//!
//! It returns the same as [`Engine::look_up_now`], which answers if keys do not ascend or are far apart.

use crate::engine::{Engine, look_up_in};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::index::Scan;

/// Number of ascending keys before a scan begins: random keys do not reach it.
const RISING: i32 = 8;
/// Maximum number of entries that a scan skips for one key.
const MOST_STEPS: usize = 16;
/// Number of look-ups after an unsuccessful scan before the next begins.
const PAUSE: i32 = 256;

/// Position of the last key.
#[derive(Debug, Default)]
pub(super) struct Near {
    last_key: Vec<u8>,
    /// Number of keys that arrived in order, below 0 during a pause.
    rising: i32,
    scan: Option<At>,
}

/// A scan that is at an entry.
#[derive(Debug)]
struct At {
    version: u64,
    scan: Scan,
}

impl At {
    /// Starts a scan at the first entry from a key on.
    fn begin(engine: &Engine, key: &[u8]) -> Result<At> {
        let (version, snapshot) = {
            let view = engine.view();
            (view.state.version, view.snapshot())
        };
        let mut scan = snapshot.scan_from(key)?;
        scan.next_entry()?;
        Ok(At { version, scan })
    }

    /// The entry for a key, which is not below the previous one; outer `None` if it is too far ahead.
    fn find(&mut self, key: &[u8]) -> Result<Option<Option<Entry>>> {
        for _ in 0..MOST_STEPS {
            match self.scan.given() {
                Some((given, entry)) if given == key => return Ok(Some(Some(*entry))),
                Some((given, _)) if given < key => _ = self.scan.next_entry()?,
                _ => return Ok(Some(None)),
            }
        }
        Ok(None)
    }
}

impl Near {
    /// The current entry for a key, with the version of the index.
    pub(super) fn look_up(&mut self, engine: &Engine, key: &[u8]) -> Result<(u64, Option<Entry>)> {
        let is_rising = self.last_key.as_slice() <= key;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let version = engine.view().state.version;
        let is_usable = is_rising && self.scan.as_ref().is_none_or(|at| at.version == version);
        if !is_usable {
            self.scan = None;
            self.rising = self.rising.min(0);
        }
        self.rising = self.rising.saturating_add(1);
        if self.scan.is_none() && self.rising > RISING {
            self.scan = At::begin(engine, key).ok();
        }
        if let Some(at) = &mut self.scan
            && at.version == version
        {
            // It reads more than a look-up does, and may encounter damage unrelated to this key.
            if let Ok(Some(entry)) = at.find(key) {
                return Ok((version, entry));
            }
            self.scan = None;
            self.rising = -PAUSE;
        }
        engine.look_up_now(key)
    }

    /// Drops the scan: the index is about to change.
    pub(super) fn leave(&mut self) {
        self.scan = None;
        self.rising = self.rising.min(0);
    }
}

impl Engine {
    /// The current entry for a key, with the version of the index: while that is unchanged, so is the entry.
    pub(super) fn look_up_now(&self, key: &[u8]) -> Result<(u64, Option<Entry>)> {
        look_up_in(self.view(), key)
    }
}
