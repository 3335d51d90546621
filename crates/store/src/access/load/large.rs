//! Parts of large objects: which is read next, and what has become of it.
//!
//! A part that cannot be read is one error, which stands for the whole object: no further part of it is given.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{BufferRange, Loaded, PlacedObject, SharedWork};
use crate::devices::device::make_landing;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::descriptor::Descriptor;
use crate::locks::lock;

/// Approximate size of a part of a large object, in bytes.
pub(super) const PART_BYTES: u64 = 2 << 20;
/// Bytes of units of large objects that are announced to the operating system before they are read.
const AHEAD_BYTES: u64 = 16 << 20;

/// A large object.
#[derive(Debug)]
pub(super) struct Large {
    /// Header, key and attributes of its record.
    pub(super) head: Vec<u8>,
    pub(super) descriptor: Descriptor,
    /// A part could not be read: the error has been given, and stands for all of it.
    pub(super) has_failed: AtomicBool,
}

/// A large object with parts that are still to be read.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) large: Arc<Large>,
    pub(super) at: u64,
    pub(super) is_announced: bool,
}

/// Where the part of a large object that begins at `at` ends: at the end of a unit, as a unit in two parts would be
/// read and verified twice.
pub(crate) fn part_end(descriptor: &Descriptor, at: u64) -> u64 {
    let mut begin = descriptor.packed_bytes();
    for chunk in &descriptor.chunks {
        let end = begin + chunk.stripes.length_bytes;
        if at < end {
            let unit = u64::from(chunk.stripes.unit_bytes);
            let within = at.saturating_sub(begin);
            return (begin + (within + PART_BYTES.max(unit)) / unit * unit).min(end);
        }
        begin = end;
    }
    descriptor.stored_bytes
}

impl SharedWork {
    /// The next part of a large object; announces the parts after it to the operating system.
    pub(super) fn next_part(&self, engine: &Engine) -> Option<(Arc<Large>, Range<u64>)> {
        let mut unread = lock(&self.large);
        let mut ahead = 0;
        for Unread { large, at, is_announced } in unread.iter_mut() {
            if ahead >= AHEAD_BYTES {
                break;
            }
            ahead += large.descriptor.stored_bytes - *at;
            if !*is_announced {
                engine.extents.will_read(&large.descriptor, AHEAD_BYTES);
                *is_announced = true;
            }
        }
        let front = unread.front_mut()?;
        let large = Arc::clone(&front.large);
        let range = front.at..part_end(&large.descriptor, front.at);
        if range.end >= large.descriptor.stored_bytes {
            unread.pop_front();
        } else {
            front.at = range.end;
        }
        Some((large, range))
    }

    /// Reads a part of a large object; once a part of it could not be read, all others are empty.
    ///
    /// # Errors
    /// The first part that cannot be read.
    pub(super) fn part(&self, engine: &Engine, large: &Large, range: Range<u64>) -> Result<Loaded> {
        let mut piece = Loaded::new(self);
        if large.has_failed.load(Ordering::Relaxed) {
            return Ok(piece);
        }
        let begin = make_landing(&mut piece.read, (range.end - range.start) as usize, 0);
        if let Err(error) = engine.read_units(&large.descriptor, range.clone(), &mut piece.read) {
            return match large.has_failed.swap(true, Ordering::Relaxed) {
                true => Ok(Loaded::new(self)),
                false => Err(self.explained(engine, error, |error| self.names.of_large(error, large))),
            };
        }
        let head = piece.put_aside(&large.head);
        let content = BufferRange { is_aside: false, bytes: begin..piece.read.len() };
        piece.objects.push(PlacedObject {
            head,
            content,
            offset: range.start,
            content_bytes: large.descriptor.stored_bytes,
        });
        Ok(piece)
    }
}
