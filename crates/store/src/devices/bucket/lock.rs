//! The lock of a store in a bucket: its lease, taken and released.
//!
//! - A process that finds the lease released, or its holder dead on this machine, takes it at once; otherwise it first
//!   watches the holder. Taking it replaces exactly the manifest on which the decision was based: of several processes
//!   that decide at once, one succeeds.
//! - The lease is released by the last publication. What that cannot publish is lost as if the process had ended, and
//!   the lease expires once others see that nobody renews it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::body;
use super::lease::{Heart, Lease, Watched, path_of, watch};
use super::remembered::Remembered;
use super::volume::{Author, Files, Log, Volume};
use crate::devices::objects::{ObjectError, Tag};
use crate::devices::platform::Lock;
use crate::devices::published::{Reader, Writer};
use crate::format::geometry::Class;
use crate::format::ids::Epoch;
use crate::locks::lock;

/// Largest number of attempts to begin on a manifest that others keep replacing.
const MOST_BEGINNINGS: u32 = 10;
/// How long to remember that another process writes: the engine asks several times.
const BUSY: Duration = Duration::from_secs(2);

/// What a process knows before it begins to write.
struct Known {
    tag: Tag,
    epoch: Epoch,
    lease: Lease,
}

impl Volume {
    /// Begins to write; `None` if this process or another one already writes.
    ///
    /// # Errors
    /// Nothing can be written to it.
    pub(crate) fn lock(self: &Arc<Self>) -> io::Result<Option<Box<dyn Lock>>> {
        let mut right = lock(&self.right);
        if right.is_held || self.bucket.surroundings.elapsed() < right.busy_until {
            return Ok(None);
        }
        self.is_sound()?;
        if !self.begin()? {
            right.busy_until = self.bucket.surroundings.elapsed() + BUSY;
            return Ok(None);
        }
        right.is_held = true;
        Ok(Some(Box::new(WriterLock { volume: Arc::clone(self) })))
    }

    /// Whether a process holds the lease, or may hold it, as far as readers know.
    pub(super) fn is_leased(&self) -> bool {
        let is_known = self.look(|_| ()).is_ok();
        !is_known || !lock(&self.files).lease.is_free(&*self.bucket.surroundings)
    }

    /// The holder of the lease, in words.
    pub(super) fn holder(&self) -> Option<String> {
        let files = lock(&self.files);
        (!files.lease.is_released).then(|| files.lease.holder.to_string())
    }

    /// `None` if there is nothing to begin on: this process already writes, or will create the log.
    fn known(&self) -> Option<Known> {
        let log = lock(&self.log);
        let files = lock(&self.files);
        match &*log {
            Log::Reading(reader) => {
                let (tag, epoch) = (reader.tag().clone(), reader.manifest().epoch());
                Some(Known { tag, epoch, lease: files.lease.clone() })
            }
            Log::Writing(_) | Log::Absent => None,
        }
    }

    /// Becomes the writer of the log as it is known here, or of a newer version; returns whether it did.
    fn begin(&self) -> io::Result<bool> {
        let mut have_others_published = false;
        for _ in 0..MOST_BEGINNINGS {
            let Some(Known { tag, epoch, lease }) = self.known() else {
                lock(&self.files).set_writable(true);
                return Ok(true);
            };
            let is_free = lease.is_free(&*self.bucket.surroundings);
            if !is_free && have_others_published {
                return Ok(false);
            }
            let watched = if is_free { Watched::Silent } else { self.watch(&lease, epoch, &tag)? };
            if watched == Watched::Silent {
                let before = lock(&self.files).remembered.clone();
                self.try_classes(&before)?;
            }
            match watched {
                Watched::Lives => return Ok(false),
                Watched::Silent if self.take(&tag)? => {
                    if !lease.is_released {
                        // If this fails, a compaction finds it.
                        let _ = self.bucket.objects.delete(&path_of(epoch));
                    }
                    self.delete_some();
                    return Ok(true);
                }
                Watched::Silent | Watched::Published => {}
            }
            have_others_published = true;
            self.refresh()?;
        }
        Ok(false)
    }

    fn watch(&self, lease: &Lease, epoch: Epoch, tag: &Tag) -> io::Result<Watched> {
        watch(&self.bucket, lease, epoch, tag).map_err(ObjectError::into_io)
    }

    /// Begins an epoch on the manifest with a tag; returns whether that was still the newest one.
    fn take(&self, tag: &Tag) -> io::Result<bool> {
        let mut log = lock(&self.log);
        let Log::Reading(reader) = &*log else { return Ok(false) };
        if reader.tag() != tag {
            return Ok(false);
        }
        let lease = Lease::own(&*self.bucket.surroundings);
        let told = |error: &dyn ToString| io::Error::other(error.to_string());
        let dropped = self.body_of(reader).map_err(|error| told(&error))?.dropped;
        let body = body::with_lease(reader.manifest().body(), &lease).expect("what was read is a body");
        let Some(writer) = Writer::open_if(reader, body).map_err(|error| told(&error))? else { return Ok(false) };
        let mut files = lock(&self.files);
        let inline_bytes = files.table.all().map(|pieces| pieces.in_memory_bytes()).sum();
        let heart = Heart::begin(&self.bucket, writer.manifest().epoch());
        let spending = self.spending(&files);
        let staged = BTreeMap::new();
        *log = Log::Writing(Box::new(Author { writer, staged, inline_bytes, dropped, spending, heart }));
        files.lease = lease;
        files.set_writable(true);
        self.recall(&mut files);
        Ok(true)
    }

    /// Puts and deletes an object in each storage class that is new with this writer: without support by the bucket,
    /// every later writer would fail.
    ///
    /// # Errors
    /// It cannot be put.
    pub(super) fn try_classes(&self, before: &Remembered) -> io::Result<()> {
        let objects = &self.bucket.objects;
        let remembered = before.with(&self.options);
        for (class, name, before) in [
            (Class::Fast, &remembered.fast_class, &before.fast_class),
            (Class::Slow, &remembered.slow_class, &before.slow_class),
        ] {
            let Some(name) = name.as_ref().filter(|_| name != before) else { continue };
            let probe = format!("probe/{:016x}", self.bucket.surroundings.random().map_err(io::Error::other)?);
            objects.set_classes(remembered.fast_class.as_deref(), remembered.slow_class.as_deref());
            let refused = |error| io::Error::other(format!("cannot put into the storage class {name}: {error}"));
            objects.put_as(class, &probe, b"probe").map_err(refused)?;
            // A leftover does no harm.
            let _ = objects.delete(&probe);
        }
        Ok(())
    }

    /// Adopts the storage classes of the previous writer, and those given to this one; the next version records them.
    fn recall(&self, files: &mut Files) {
        let remembered = files.remembered.with(&self.options);
        self.bucket.objects.set_classes(remembered.fast_class.as_deref(), remembered.slow_class.as_deref());
        files.changes += u64::from(files.remembered != remembered);
        files.remembered = remembered;
    }

    /// Publishes the rest, releases the lease, and becomes a reader of what is published.
    fn end(&self) {
        let mut log = lock(&self.log);
        // Call `sync` first to learn whether everything is durable.
        let is_released = self.publish_next(&mut log, true).is_ok();
        lock(&self.files).set_writable(false);
        *log = match std::mem::replace(&mut *log, Log::Absent) {
            Log::Writing(author) => {
                if is_released {
                    author.heart.end();
                }
                lock(&self.files).end_spending(&author.spending);
                let reader = author.writer.into_reader();
                self.read_on(&reader);
                Log::Reading(reader)
            }
            other => other,
        };
        drop(log);
        lock(&self.right).is_held = false;
    }

    /// Forgets unpublished changes: staged objects are no longer this process's to publish.
    fn read_on(&self, reader: &Reader) {
        // What this process encoded, it can decode.
        if let Ok(body) = self.body_of(reader) {
            lock(&self.files).become_next(body);
        }
    }
}

/// The lock of the store, held by this process.
#[derive(Debug)]
struct WriterLock {
    volume: Arc<Volume>,
}

impl Lock for WriterLock {}

impl Drop for WriterLock {
    fn drop(&mut self) {
        self.volume.end();
    }
}
