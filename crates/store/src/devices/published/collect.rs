//! Garbage collection: objects that no manifest names or ever will.
//!
//! An object is first named by its own writer; others name it only because the manifest already does. So an object is
//! permanently garbage if the manifest does not name it, and
//!
//! - this writer removed it from the manifest, by a replacement that took effect: a copy of this very process that
//!   still names it is overtaken; or
//! - it is of another epoch, and was listed *before* this writer's manifest was confirmed to be the newest. Writers put
//!   objects only after their epoch has begun, so that epoch precedes this one, and its writer is fenced.
//!
//! Other objects of this epoch in the bucket are left alone: a copy of this very process may be about to publish them.
//! The next epoch collects them. Since garbage is never named again, it may be deleted arbitrarily late, even by a
//! writer that has been fenced meanwhile.

use std::collections::BTreeSet;

use super::MANIFEST;
use super::error::WriteError;
use super::manifest::{CLASSES, ObjectName, prefix};
use super::writer::Writer;
use crate::devices::objects::{ObjectError, Page};

const LIST: &str = "list";
const LOOK: &str = "inspect the manifest";

/// The result of collecting garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Objects that were deleted.
    pub deleted_objects: u64,
    /// Garbage that could not be deleted; the next collection retries.
    pub left_objects: u64,
    /// Objects among those of the log with foreign names. They are left alone.
    pub foreign_objects: u64,
}

impl Writer {
    /// Deletes objects that neither the manifest nor a pin in it names. Readers of an older version may miss them, and
    /// refresh.
    ///
    /// # Errors
    /// [`WriteError`] if the bucket cannot be listed, or another writer has begun an epoch. Some garbage may have been
    /// deleted; the log is unchanged.
    pub fn collect(&mut self) -> Result<Collected, WriteError> {
        self.collect_except(&BTreeSet::new())
    }

    /// Deletes objects that were dropped from the manifest, by this writer or one before, and that nobody needs any
    /// more; returns those that could not be deleted.
    pub(crate) fn delete_dropped(&mut self, names: &BTreeSet<ObjectName>) -> BTreeSet<ObjectName> {
        // Whatever a manifest says was dropped: what is named stays.
        let garbage = names.iter().copied().filter(|name| !self.manifest.names(*name)).collect();
        self.dropped.retain(|name| !names.contains(name));
        self.delete(garbage, &mut Collected::default());
        names.intersection(&self.dropped).copied().collect()
    }

    /// As [`collect`](Self::collect), without the garbage that is `kept`.
    ///
    /// # Errors
    /// As [`collect`](Self::collect).
    pub(crate) fn collect_except(&mut self, kept: &BTreeSet<ObjectName>) -> Result<Collected, WriteError> {
        self.may_write()?;
        let mut collected = Collected::default();
        let dropped = std::mem::take(&mut self.dropped);
        let (later, mut garbage): (BTreeSet<_>, BTreeSet<_>) =
            dropped.into_iter().partition(|name| kept.contains(name));
        self.dropped = later;
        for prefix in CLASSES.map(prefix) {
            let mut after: Option<String> = None;
            loop {
                let listed = self.bucket.until_answered(|objects| objects.list(prefix, after.as_deref()));
                let listed = listed.map_err(|error| self.bucket.failed(LIST, prefix, error));
                let page = match listed {
                    Ok(page) => page,
                    Err(error) => {
                        self.dropped.append(&mut garbage);
                        return Err(WriteError::Failed(error));
                    }
                };
                collected.foreign_objects += self.find_garbage(&page, &mut garbage);
                garbage.retain(|name| !kept.contains(name));
                // Only now: any other writer that put one of these before is fenced.
                if let Err(error) = self.look() {
                    self.dropped.extend(garbage.into_iter().filter(|name| name.epoch == self.manifest.epoch()));
                    return Err(error);
                }
                self.delete(std::mem::take(&mut garbage), &mut collected);
                after = page.objects.last().map(|object| object.name.clone());
                if page.is_last || after.is_none() {
                    break;
                }
            }
        }
        Ok(collected)
    }

    /// Adds what is garbage in a page of a listing, should the manifest still be the newest; returns the number of
    /// objects with foreign names.
    fn find_garbage(&self, page: &Page, garbage: &mut BTreeSet<ObjectName>) -> u64 {
        let mut foreign_objects = 0;
        for object in &page.objects {
            match ObjectName::of(&object.name) {
                Some(name) if name.epoch == self.manifest.epoch() || self.manifest.names(name) => {}
                Some(name) => drop(garbage.insert(name)),
                None => foreign_objects += 1,
            }
        }
        foreign_objects
    }

    /// Deletes garbage; what cannot be deleted is garbage of this writer from then on.
    fn delete(&mut self, garbage: BTreeSet<ObjectName>, collected: &mut Collected) {
        let paths: Vec<String> = garbage.iter().map(|name| name.path()).collect();
        if paths.is_empty() {
            return;
        }
        let answers = self.bucket.objects.delete_many(&paths);
        let mut is_patient = true;
        for ((name, path), answer) in garbage.into_iter().zip(&paths).zip(answers) {
            let answer = match answer {
                Err(ObjectError::Failed(_) | ObjectError::Unknown(_)) if is_patient => {
                    let answer = self.bucket.until_answered(|objects| objects.delete(path));
                    // Whatever keeps one from being deleted for so long keeps the others, too.
                    is_patient = matches!(answer, Ok(()) | Err(ObjectError::NotFound));
                    answer
                }
                answered => answered,
            };
            match answer {
                Ok(()) | Err(ObjectError::NotFound) => collected.deleted_objects += 1,
                Err(_) => {
                    collected.left_objects += 1;
                    self.dropped.insert(name);
                }
            }
        }
    }

    /// Checks that this writer's manifest is still the newest; if not, the writer has ended.
    fn look(&mut self) -> Result<(), WriteError> {
        match self.bucket.until_answered(|objects| objects.head(MANIFEST)) {
            Ok(head) if head.tag == self.tag => Ok(()),
            Ok(_) => Err(self.fence()),
            Err(error) => Err(WriteError::Failed(self.bucket.failed(LOOK, MANIFEST, error))),
        }
    }
}
