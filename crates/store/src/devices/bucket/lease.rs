//! The lease: which process may publish, and whether it is still alive.
//!
//! The log keeps two writers apart: it refuses the earlier one. The lease only decides who waits for whom, so nothing
//! is lost if it is wrong. It is part of the manifest, renewed with each version, and released with the last one. A
//! writer that publishes nothing proves that it is alive by a heartbeat: an object beside the manifest (`leases/EPOCH`)
//! that only it writes.
//!
//! Clocks of two machines are never compared. Processes that see each other share one clock; a process that cannot see
//! the writer watches it, by its own clock.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::devices::objects::{Expected, ObjectError, Tag};
use crate::devices::published::{Bucket, MANIFEST, Process, Surroundings};
use crate::format::ids::Epoch;
use crate::locks::lock;

/// A writer that is silent for this long is considered dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);
/// A writer that has published nothing for this long sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Interval at which a watcher looks, and a writer checks whether a heartbeat is due.
const LOOK: Duration = Duration::from_secs(1);
/// Prefix of the objects with heartbeats.
pub(super) const LEASES: &str = "leases/";

/// Who may publish. By default it is free: any process may take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The holder released it with its last version.
    pub(crate) is_released: bool,
    pub(crate) holder: Process,
    /// When it was renewed, in milliseconds since the holder's machine started.
    pub(crate) renewed_milliseconds: u64,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease { is_released: true, holder: Process::default(), renewed_milliseconds: 0 }
    }
}

impl Lease {
    /// That of this process, now.
    pub(super) fn own(surroundings: &dyn Surroundings) -> Lease {
        let renewed_milliseconds = milliseconds(surroundings);
        Lease { is_released: false, holder: surroundings.process(), renewed_milliseconds }
    }

    /// Whether nobody holds it, as far as this process can tell without waiting.
    pub(super) fn is_free(&self, surroundings: &dyn Surroundings) -> bool {
        self.is_released || surroundings.has_ended(&self.holder)
    }
}

fn milliseconds(surroundings: &dyn Surroundings) -> u64 {
    u64::try_from(surroundings.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The heartbeat object of the writer of an epoch.
pub(super) fn path_of(epoch: Epoch) -> String {
    format!("{LEASES}{:016x}", epoch.0)
}

/// Whether a name is that of a heartbeat object; other objects may have the same prefix.
pub(super) fn is_lease(name: &str) -> bool {
    let epoch =
        name.strip_prefix(LEASES).filter(|digits| digits.len() == 16).map(|digits| u64::from_str_radix(digits, 16));
    matches!(epoch, Some(Ok(epoch)) if path_of(Epoch(epoch)) == name)
}

/// The outcome of watching a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// It is alive.
    Lives,
    /// It, or another writer, has published a version.
    Published,
    /// It has been silent for too long.
    Silent,
}

/// Watches the holder of an unreleased lease until it is clear whether it is alive. `tag` is that of the manifest from
/// which the lease was read.
///
/// # Errors
/// The bucket cannot be asked.
pub(super) fn watch(bucket: &Bucket, lease: &Lease, epoch: Epoch, tag: &Tag) -> Result<Watched, ObjectError> {
    let surroundings = &*bucket.surroundings;
    if surroundings.process().sees(&lease.holder) {
        let is_silent = heard_here(bucket, lease, epoch)? >= SILENCE;
        return Ok(if is_silent { Watched::Silent } else { Watched::Lives });
    }
    let began = surroundings.elapsed();
    let beaten = beat_of(bucket, epoch)?;
    loop {
        if bucket.head(MANIFEST)?.tag != *tag {
            return Ok(Watched::Published);
        }
        if beat_of(bucket, epoch)? != beaten {
            return Ok(Watched::Lives);
        }
        if surroundings.elapsed().saturating_sub(began) >= SILENCE {
            return Ok(Watched::Silent);
        }
        surroundings.pause(LOOK);
    }
}

/// How long the holder of an unreleased lease has been silent: by the clock that it shares with this process, otherwise
/// by that of the bucket. `None` if this is unknown, or shorter than [`SILENCE`].
///
/// # Errors
/// The bucket cannot be asked.
pub(super) fn silence(bucket: &Bucket, lease: &Lease, epoch: Epoch) -> Result<Option<Duration>, ObjectError> {
    let silence = if bucket.surroundings.process().sees(&lease.holder) {
        Some(heard_here(bucket, lease, epoch)?)
    } else {
        let published = bucket.objects.age(MANIFEST)?;
        match bucket.objects.age(&path_of(epoch)) {
            Ok(beaten) => published.zip(beaten).map(|(published, beaten)| published.min(beaten)),
            Err(ObjectError::NotFound) => published,
            Err(error) => return Err(error),
        }
    };
    Ok(silence.filter(|silence| *silence >= SILENCE))
}

/// How long ago the holder of a lease was last heard from; it shares its clock with this process.
fn heard_here(bucket: &Bucket, lease: &Lease, epoch: Epoch) -> Result<Duration, ObjectError> {
    let renewed = lease.renewed_milliseconds.max(beaten_milliseconds(bucket, epoch)?);
    Ok(Duration::from_millis(milliseconds(&*bucket.surroundings).saturating_sub(renewed)))
}

/// The tag of a writer's heartbeat object, if there is one.
fn beat_of(bucket: &Bucket, epoch: Epoch) -> Result<Option<Tag>, ObjectError> {
    match bucket.head(&path_of(epoch)) {
        Ok(head) => Ok(Some(head.tag)),
        Err(ObjectError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The time of the last heartbeat, by the clock of the writer's machine; 0 without one.
fn beaten_milliseconds(bucket: &Bucket, epoch: Epoch) -> Result<u64, ObjectError> {
    match bucket.read(&path_of(epoch), 0..Beat::BYTES as u64) {
        Ok(piece) => Ok(Beat::decode(&piece.bytes).map_or(0, |beat| beat.milliseconds)),
        Err(ObjectError::NotFound) => Ok(0),
        Err(error) => Err(error),
    }
}

/// A heartbeat; no two are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beat {
    number: u64,
    milliseconds: u64,
}

impl Beat {
    const BYTES: usize = 16;

    fn encode(self) -> [u8; Beat::BYTES] {
        (u128::from(self.milliseconds) << 64 | u128::from(self.number)).to_le_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Beat> {
        let both = u128::from_le_bytes(bytes.try_into().ok()?);
        Some(Beat { number: both as u64, milliseconds: (both >> 64) as u64 })
    }
}

/// The heartbeat object of this writer.
#[derive(Debug, Default)]
struct Shown {
    beats: u64,
    /// The tag of the last heartbeat, if its answer arrived.
    tag: Option<Tag>,
}

/// Sends heartbeats for the writer of an epoch while it publishes nothing.
#[derive(Debug)]
pub(super) struct Heart {
    bucket: Bucket,
    path: String,
    /// When the lease was last renewed, by a publication or a heartbeat.
    renewed_milliseconds: AtomicU64,
    has_stopped: AtomicBool,
    shown: Mutex<Shown>,
}

impl Heart {
    /// Starts after the publication that began the epoch.
    pub(super) fn begin(bucket: &Bucket, epoch: Epoch) -> Arc<Heart> {
        let heart = Arc::new(Heart {
            bucket: bucket.clone(),
            path: path_of(epoch),
            renewed_milliseconds: AtomicU64::new(milliseconds(&*bucket.surroundings)),
            has_stopped: AtomicBool::new(false),
            shown: Mutex::default(),
        });
        let weak: Weak<Heart> = Arc::downgrade(&heart);
        bucket.surroundings.keep_calling(LOOK, Box::new(move || weak.upgrade().is_some_and(|heart| heart.beat())));
        heart
    }

    /// A publication has renewed the lease.
    pub(super) fn renew(&self) {
        self.renewed_milliseconds.store(milliseconds(&*self.bucket.surroundings), Ordering::Relaxed);
    }

    /// Sends no more heartbeats. One on its way may still arrive.
    pub(super) fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// The lease is released: stops, and deletes the heartbeat object.
    pub(super) fn end(&self) {
        self.stop();
        // The lock waits for a heartbeat on its way.
        if lock(&self.shown).beats > 0 {
            // If this fails, a compaction finds it.
            let _ = self.bucket.objects.delete(&self.path);
        }
    }

    /// Sends a heartbeat if one is due; returns whether to continue.
    fn beat(&self) -> bool {
        let mut shown = lock(&self.shown);
        if self.has_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let now = milliseconds(&*self.bucket.surroundings);
        let silence = now.saturating_sub(self.renewed_milliseconds.load(Ordering::Relaxed));
        if u128::from(silence) >= HEARTBEAT.as_millis() && self.show(&mut shown, now).is_ok() {
            self.renewed_milliseconds.fetch_max(now, Ordering::Relaxed);
        }
        true
    }

    fn show(&self, shown: &mut Shown, now: u64) -> Result<(), ObjectError> {
        let objects = &self.bucket.objects;
        let expected = match shown.tag.take() {
            Some(tag) => Expected::Tagged(tag),
            None if shown.beats == 0 => Expected::Absent,
            // The answer was lost.
            None => match objects.head(&self.path) {
                Ok(head) => Expected::Tagged(head.tag),
                Err(ObjectError::NotFound) => Expected::Absent,
                Err(error) => return Err(error),
            },
        };
        shown.beats += 1;
        let beat = Beat { number: shown.beats, milliseconds: now };
        shown.tag = Some(objects.replace(&self.path, &beat.encode(), &expected)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_read_back() {
        let beat = Beat { number: 3, milliseconds: 70_000 };
        assert_eq!(Beat::decode(&beat.encode()), Some(beat));
        assert_eq!(Beat::decode(b"short"), None);
        assert_eq!(path_of(Epoch(0xab)), "leases/00000000000000ab");
    }
}
