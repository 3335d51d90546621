//! Batches: objects are **staged**, put whole under names that no manifest has yet, and published later, all of a batch
//! at once.
//!
//! - A staged object is the writer's until it is published or abandoned: [`collect`](Writer::collect) leaves it. Any
//!   number may be staged at once, and published in any order.
//! - What a writer stages and never publishes is garbage of its epoch, which the next one collects.
//! - What the objects mean is in the **body** of the manifest, which the batch replaces as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::WriteError;
use super::manifest::{Manifest, OBJECT_BYTES, ObjectName, PublishedObject};
use super::settle::LONGEST_BYTES;
use super::writer::{PUBLISH, Writer};
use crate::devices::objects::ObjectError;
use crate::error::{Error, ErrorKind};
use crate::format::geometry::Class;
use crate::format::record::checksum;

const PUT: &str = "put";

/// No batch makes the manifest longer, so that there is room for another epoch, and for removals with their pins.
const LONGEST_WITH_BATCH_BYTES: u64 = LONGEST_BYTES / 16 * 15;

/// An object that was put, and that no manifest names yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    pub(super) name: ObjectName,
    pub(super) length_bytes: u64,
    pub(super) checksum: u64,
}

impl Staged {
    /// Its number; numbers ascend in the order in which objects are put.
    pub fn number(&self) -> u64 {
        self.name.number
    }

    /// As published with a version.
    pub(crate) fn published(&self, added: u64) -> PublishedObject {
        let Staged { name, length_bytes, checksum } = *self;
        PublishedObject { name, length_bytes, checksum, added, removed: 0 }
    }
}

impl Writer {
    /// Publishes a batch: the objects `added`, put into the fast class, replace those in `removed` (by number),
    /// atomically; the body stays. Returns the version with the batch, which is then acknowledged.
    ///
    /// # Errors
    /// [`WriteError`]; [`Usage`](crate::error::ErrorKind::Usage) if an object in `removed` does not exist,
    /// [`NoSpace`](crate::error::ErrorKind::NoSpace) if the manifest would be too long with these objects.
    pub fn publish(&mut self, added: &[&[u8]], removed: &[u64]) -> Result<u64, WriteError> {
        // Before anything is put.
        self.without(removed)?;
        self.refuse_rows(removed, added.len())?;
        let mut staged = Vec::new();
        for bytes in added {
            match self.stage(Class::Fast, bytes) {
                Ok(one) => staged.push(one),
                Err(error) => {
                    staged.iter().for_each(|one| self.abandon(one));
                    return Err(error);
                }
            }
        }
        let body = self.manifest.body.to_vec();
        let published = self.publish_staged(&staged, removed, body);
        if let Err(WriteError::Failed(_)) = published {
            staged.iter().for_each(|one| self.abandon(one));
        }
        published
    }

    /// Puts an object into a class, under a unique name, to be published later.
    ///
    /// # Errors
    /// [`WriteError`]; nothing is staged then.
    pub fn stage(&mut self, class: Class, bytes: &[u8]) -> Result<Staged, WriteError> {
        self.may_write()?;
        let name = self.put(class, bytes)?;
        self.staged.insert(name);
        Ok(Staged { name, length_bytes: bytes.len() as u64, checksum: checksum(bytes) })
    }

    /// Gives up an object that was staged: this writer will not publish it. The next epoch collects it, not this one: a
    /// copy of this very process may be about to publish it. One that was published stays.
    pub fn abandon(&mut self, staged: &Staged) {
        self.staged.remove(&staged.name);
    }

    /// Publishes a batch of staged objects, which replace those in `removed` (by number), and a body, atomically.
    /// Returns the version with the batch, which is then acknowledged.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); [`Usage`](crate::error::ErrorKind::Usage) if an object is not staged. After
    /// [`Failed`](WriteError::Failed) they still are.
    pub fn publish_staged(&mut self, added: &[Staged], removed: &[u64], body: Vec<u8>) -> Result<u64, WriteError> {
        let mut next = self.without(removed)?;
        let distinct: BTreeSet<ObjectName> = added.iter().map(|one| one.name).collect();
        if distinct.len() < added.len() || !distinct.is_subset(&self.staged) {
            return Err(self.misused("an object is not staged".to_owned()));
        }
        next.objects.extend(added.iter().map(|one| one.published(next.version)));
        next.objects.sort_by_key(PublishedObject::number);
        next.body = Arc::new(body);
        next.forget();
        self.refuse_growth(next.length_bytes())?;
        self.replace(next)
    }

    /// The next manifest, without objects.
    fn without(&self, removed: &[u64]) -> Result<Manifest, WriteError> {
        self.may_write()?;
        let mut next = self.succeeding()?;
        for number in removed {
            let found = next.objects.binary_search_by_key(number, PublishedObject::number);
            let found = found.ok().and_then(|at| next.objects.get_mut(at)).filter(|object| object.removed == 0);
            let Some(object) = found else {
                return Err(self.misused(format!("there is no object {number} to remove")));
            };
            object.removed = next.version;
        }
        Ok(next)
    }

    fn misused(&self, cause: String) -> WriteError {
        WriteError::Failed(Error::new(ErrorKind::Usage, PUBLISH, cause).at(&self.bucket.objects.place()))
    }

    /// Refuses a manifest that leaves too little room, unless it is shorter than the one before.
    fn refuse_growth(&self, length_bytes: u64) -> Result<(), WriteError> {
        if length_bytes <= self.manifest.length_bytes() {
            return Ok(());
        }
        Ok(self.bucket.refuse_longer(length_bytes, LONGEST_WITH_BATCH_BYTES)?)
    }

    /// Refuses rows that would make the manifest too long.
    fn refuse_rows(&self, removed: &[u64], added: usize) -> Result<(), WriteError> {
        let mut next = self.without(removed)?;
        next.forget();
        self.refuse_growth(next.length_bytes() + (OBJECT_BYTES * added) as u64)
    }

    /// Puts an object under a unique name; returns the name.
    fn put(&mut self, class: Class, bytes: &[u8]) -> Result<ObjectName, WriteError> {
        let mut attempts = self.bucket.attempts();
        let like = ObjectName { number: self.next_number, epoch: self.manifest.epoch(), nonce: 0, class };
        self.next_number += 1;
        let mut name = self.bucket.name(like)?;
        loop {
            let path = name.path();
            let cause = match self.bucket.objects.put_as(class, &path, bytes) {
                Ok(_) => return Ok(name),
                // Either it is ours, sent twice on the way, or it is not, and keeps its name.
                Err(ObjectError::Refused) => match self.bucket.has(&path, bytes) {
                    Ok(true) => return Ok(name),
                    Ok(false) => {
                        name = self.bucket.name(like)?;
                        ObjectError::Refused
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !attempts.again_after(&cause) {
                return Err(WriteError::Failed(self.bucket.failed(PUT, &path, cause)));
            }
        }
    }
}
