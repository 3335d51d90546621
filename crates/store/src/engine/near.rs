//! Look-ups of keys that rise, and lie close together: one scan that goes from each to the next, in place of a search in each sorted table.
//!
//! It answers as [`Engine::look_up_now`] does. Where keys do not rise, or lie far apart, that is what answers.

use crate::engine::{Engine, look_up_in};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::index::Scan;

/// So many keys have to rise before a scan begins: in random order they do not.
const RISING: i32 = 8;
/// Entries that a scan passes for one key, at most.
const MOST_STEPS: usize = 16;
/// Look-ups after a scan that had to pass more, before another begins.
const PAUSE: i32 = 256;

/// Where the last key was found.
#[derive(Debug, Default)]
pub(super) struct Near {
    last_key: Vec<u8>,
    /// How many keys came in order, below 0 in a pause.
    rising: i32,
    scan: Option<At>,
}

/// A scan that stands on an entry.
#[derive(Debug)]
struct At {
    version: u64,
    scan: Scan,
}

impl At {
    /// A scan that stands on the first entry from a key on.
    fn begin(engine: &Engine, key: &[u8]) -> Result<At> {
        let (version, snapshot) = {
            let view = engine.view();
            (view.state.version, view.snapshot())
        };
        let mut scan = snapshot.scan_from(key)?;
        scan.next_entry()?;
        Ok(At { version, scan })
    }

    /// What the index has for a key, which is not below the one before; outer `None` if that lies too far ahead.
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
    /// What the index has for a key now, with the version of it.
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
            // It reads more than a look-up does, and may meet damage that is none of this key's.
            if let Ok(Some(entry)) = at.find(key) {
                return Ok((version, entry));
            }
            self.scan = None;
            self.rising = -PAUSE;
        }
        engine.look_up_now(key)
    }

    /// Forgets where it is: the index is about to change.
    pub(super) fn leave(&mut self) {
        self.scan = None;
        self.rising = self.rising.min(0);
    }
}

impl Engine {
    /// What the index has for a key now, with the version of it: as long as that is the same, so is what it has.
    pub(super) fn look_up_now(&self, key: &[u8]) -> Result<(u64, Option<Entry>)> {
        look_up_in(self.view(), key)
    }
}
