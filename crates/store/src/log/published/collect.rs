//! Garbage: objects that no manifest names, and none ever will.
//!
//! An object is named by its own writer first, and by others only because the manifest had it already. So an object is garbage for ever if the manifest does not name it, and
//!
//! - this writer dropped it from the manifest, or drew its name and gave it up; or
//! - it is of another epoch, and was listed *before* this writer's manifest was seen to be the newest still. Writers put objects only once their epoch has begun, so that epoch came
//!   before this one, and its writer is fenced.
//!
//! Objects of this epoch that are in the bucket otherwise are left alone: a copy of this very process may be about to publish them. The next epoch takes them.
//! As nothing that was found to be garbage is ever named again, deleting it may come as late as it likes, also from a writer that is fenced meanwhile.

use std::collections::BTreeSet;

use super::MANIFEST;
use super::manifest::{ObjectName, PREFIX};
use super::writer::{WriteError, Writer};
use crate::devices::objects::ObjectError;

const LIST: &str = "list";
const LOOK: &str = "look at the manifest";

/// What collecting garbage has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Objects that were deleted.
    pub deleted_objects: u64,
    /// Garbage that could not be deleted; the next time takes it.
    pub left_objects: u64,
    /// Objects among those of the log whose names are none of its own. They are left alone.
    pub foreign_objects: u64,
}

impl Writer {
    /// Deletes objects that neither the manifest nor a pin in it names. Readers that still look at an older version may miss them, and refresh.
    ///
    /// # Errors
    /// [`WriteError`], if the bucket cannot be listed, or another writer has begun an epoch. Some garbage may be gone then; the log is what it was.
    pub fn collect(&mut self) -> Result<Collected, WriteError> {
        self.may_write()?;
        let mut collected = Collected::default();
        let mut garbage: BTreeSet<ObjectName> = std::mem::take(&mut self.given_up);
        let mut after: Option<String> = None;
        loop {
            let listed = self.bucket.until_answered(|objects| objects.list(PREFIX, after.as_deref()));
            let listed = listed.map_err(|error| self.bucket.failed(LIST, PREFIX, error));
            let page = match listed {
                Ok(page) => page,
                Err(error) => {
                    self.given_up.append(&mut garbage);
                    return Err(WriteError::Failed(error));
                }
            };
            for object in &page.objects {
                match ObjectName::of(&object.name) {
                    Some(name) if name.epoch == self.manifest.epoch() || self.manifest.names(name) => {}
                    Some(name) => drop(garbage.insert(name)),
                    None => collected.foreign_objects += 1,
                }
            }
            // Only now: who has put any of these before, is fenced if it is not this one.
            if let Err(error) = self.look() {
                self.given_up.extend(garbage.into_iter().filter(|name| name.epoch == self.manifest.epoch()));
                return Err(error);
            }
            for name in std::mem::take(&mut garbage) {
                let path = name.path();
                match self.bucket.until_answered(|objects| objects.delete(&path)) {
                    Ok(()) | Err(ObjectError::NotFound) => collected.deleted_objects += 1,
                    Err(_) => {
                        collected.left_objects += 1;
                        self.given_up.insert(name);
                    }
                }
            }
            after = page.objects.last().map(|object| object.name.clone());
            if page.is_last || after.is_none() {
                return Ok(collected);
            }
        }
    }

    /// Whether the manifest that this writer left is the newest still; if not, it has ended.
    fn look(&mut self) -> Result<(), WriteError> {
        match self.bucket.until_answered(|objects| objects.head(MANIFEST)) {
            Ok(head) if head.tag == self.tag => Ok(()),
            Ok(_) => Err(self.fence()),
            Err(error) => Err(WriteError::Failed(self.bucket.failed(LOOK, MANIFEST, error))),
        }
    }
}
