//! The lease: which process may publish, and whether it still lives.
//!
//! What keeps two writers apart is the log, which refuses the one before. The lease decides who waits for whom, so
//! nothing is lost if it is wrong: it is in the manifest, renewed with each version, and released with the last one. A
//! writer that publishes nothing shows that it lives by an object beside the manifest (`leases/EPOCH`), which nobody
//! else writes.
//!
//! Clocks of two machines are never compared. Processes that see each other have one clock; whoever does not see the
//! writer watches it, by its own.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::devices::objects::{Expected, ObjectError, Tag};
use crate::devices::published::{Bucket, MANIFEST, Process, Surroundings};
use crate::format::ids::Epoch;
use crate::locks::lock;

/// Of a writer that is silent for this long, nobody expects anything any more.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);
/// A writer that has published nothing for this long shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often whoever watches looks, and how often a writer thinks of its heartbeat.
const LOOK: Duration = Duration::from_secs(1);
/// Where the objects are that writers show themselves by.
pub(super) const LEASES: &str = "leases/";

/// Who may publish. By default, nobody may, and anybody may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The holder published its last version with this.
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

    /// Whether nobody holds it, as far as can be seen at once.
    pub(super) fn is_free(&self, surroundings: &dyn Surroundings) -> bool {
        self.is_released || surroundings.has_ended(&self.holder)
    }
}

fn milliseconds(surroundings: &dyn Surroundings) -> u64 {
    u64::try_from(surroundings.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The object by which the writer of an epoch shows that it lives.
pub(super) fn path_of(epoch: Epoch) -> String {
    format!("{LEASES}{:016x}", epoch.0)
}

/// Whether that is the name of one. Others' objects may lie among them.
pub(super) fn is_lease(name: &str) -> bool {
    let epoch =
        name.strip_prefix(LEASES).filter(|digits| digits.len() == 16).map(|digits| u64::from_str_radix(digits, 16));
    matches!(epoch, Some(Ok(epoch)) if path_of(Epoch(epoch)) == name)
}

/// What became of a writer that was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// It lives.
    Lives,
    /// It, or another one, has published a version.
    Published,
    /// It has been silent for too long.
    Silent,
}

/// Watches the holder of a lease, which is not released, until it is clear whether it lives. The manifest had a tag
/// when the lease was read.
///
/// # Errors
/// The bucket cannot be asked.
pub(super) fn watch(bucket: &Bucket, lease: &Lease, epoch: Epoch, tag: &Tag) -> Result<Watched, ObjectError> {
    let surroundings = &*bucket.surroundings;
    if surroundings.process().sees(&lease.holder) {
        let renewed = lease.renewed_milliseconds.max(beaten_milliseconds(bucket, epoch)?);
        let silence = milliseconds(surroundings).saturating_sub(renewed);
        return Ok(if u128::from(silence) < SILENCE.as_millis() { Watched::Lives } else { Watched::Silent });
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

/// How long nothing was heard of the holder of a lease, which is not released: by the clock that it shares with this
/// process, otherwise by that of the bucket. `None` if that is not known, or it is not silent.
///
/// # Errors
/// The bucket cannot be asked.
pub(super) fn silence(bucket: &Bucket, lease: &Lease, epoch: Epoch) -> Result<Option<Duration>, ObjectError> {
    let surroundings = &*bucket.surroundings;
    let silence = if surroundings.process().sees(&lease.holder) {
        let renewed = lease.renewed_milliseconds.max(beaten_milliseconds(bucket, epoch)?);
        Some(Duration::from_millis(milliseconds(surroundings).saturating_sub(renewed)))
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

/// The tag of the object by which a writer shows that it lives, if it has put one.
fn beat_of(bucket: &Bucket, epoch: Epoch) -> Result<Option<Tag>, ObjectError> {
    match bucket.head(&path_of(epoch)) {
        Ok(head) => Ok(Some(head.tag)),
        Err(ObjectError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What that object says: the time of the last heartbeat on the writer's machine, or 0.
fn beaten_milliseconds(bucket: &Bucket, epoch: Epoch) -> Result<u64, ObjectError> {
    match bucket.read(&path_of(epoch), 0..Beat::BYTES as u64) {
        Ok(piece) => Ok(Beat::decode(&piece.bytes).map_or(0, |beat| beat.milliseconds)),
        Err(ObjectError::NotFound) => Ok(0),
        Err(error) => Err(error),
    }
}

/// What a writer shows itself by; never the same twice.
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

/// What the writer's own object is.
#[derive(Debug, Default)]
struct Shown {
    beats: u64,
    /// The tag of the last one, if its answer arrived.
    tag: Option<Tag>,
}

/// Shows that the writer of an epoch lives, while it publishes nothing.
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
    /// Begins with a publication by which the epoch has begun.
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

    /// Nothing more is shown. What is on its way may still arrive.
    pub(super) fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// The lease is released: stops, and removes what was shown.
    pub(super) fn end(&self) {
        self.stop();
        // Not before what is on its way.
        if lock(&self.shown).beats > 0 {
            // What is left is garbage that a compaction finds.
            let _ = self.bucket.objects.delete(&self.path);
        }
    }

    /// Shows that the writer lives, if that is due; returns whether it goes on.
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
