//! What a store shows, and what it announces about it.

use std::collections::BTreeMap;

use super::super::ever::Ever;
use super::super::model::Model;
use super::super::state::State;
use crate::Key;

/// What a store says about its completeness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    /// All that was acknowledged.
    Complete,
    /// That, and something unacknowledged.
    Tail,
    /// Something that was acknowledged may be missing.
    Incomplete,
    /// Too few devices are present to know.
    Unknown,
}

/// What a store shows.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// The objects, read and verified.
    pub(crate) state: State,
    /// Those that are listed but cannot be read, and why.
    pub(crate) unreadable: BTreeMap<Key, String>,
    /// Why the listing ended early.
    pub(crate) ended: Option<String>,
    /// What it says about its completeness.
    pub(crate) announced: Announced,
    /// The same in words.
    pub(crate) words: Vec<String>,
}

impl Look {
    /// Why something could not be listed or read.
    pub(crate) fn causes(&self) -> impl Iterator<Item = &str> {
        self.unreadable.values().chain(&self.ended).map(String::as_str)
    }

    /// Whether it is what redundancy promises: all of it, readable, and announced as such.
    ///
    /// # Errors
    /// What is missing, old, or wrongly announced.
    pub(crate) fn is_whole(&self, model: &Model) -> Result<(), String> {
        if let Some(cause) = &self.ended {
            return Err(format!("laws 1, 2: a listing ends with: {cause}"));
        }
        // An unacknowledged batch may be on some of the devices that are present and not on others.
        if let Some((key, cause)) = self.unreadable.iter().find(|(key, _)| !model.is_in_doubt(key)) {
            return Err(format!("laws 1, 2: {key} cannot be read: {cause}"));
        }
        let in_doubt: Vec<&Key> = self.unreadable.keys().collect();
        model.allows_but_for(&self.state, &in_doubt).map_err(|mismatch| format!("laws 1, 2: {mismatch}"))
    }

    /// Whether everything that is shown was ever there.
    ///
    /// # Errors
    /// What never was.
    pub(crate) fn is_of(&self, ever: &Ever) -> Result<(), String> {
        let then = self.state.snapshots().flat_map(|(_, snapshot)| snapshot.objects());
        for (key, object) in self.state.objects().chain(then) {
            if !ever.had(key, object) {
                return Err(format!("law 4: {key} never was what it is shown as: {object:.200?}"));
            }
        }
        Ok(())
    }

    /// Whether what is shown is right, and what is not shown is announced. If a segment `was_cut`, what follows the
    /// last mark may have left no trace.
    ///
    /// # Errors
    /// What is wrong, or missing without announcement.
    pub(crate) fn is_honest(&self, model: &Model, ever: &Ever, was_cut: bool) -> Result<(), String> {
        self.is_of(ever)?;
        if matches!(self.announced, Announced::Incomplete | Announced::Unknown) || self.ended.is_some() {
            return Ok(());
        }
        let errors: Vec<&Key> = self.unreadable.keys().collect();
        // What follows the last mark cannot be distinguished from unacknowledged batches.
        if (self.announced == Announced::Tail || was_cut) && model.allows_from_mark(&self.state, &errors) {
            return Ok(());
        }
        model
            .allows_but_for(&self.state, &errors)
            .map_err(|mismatch| format!("law 4: nothing is said to be missing ({:?}), but {mismatch}", self.announced))
    }
}
