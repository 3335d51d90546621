//! Whether a copy of a store may become a newer state of it without losing anything: only if all that was written to
//! the copy is in the log of the source.
//!
//! - The last batch of the copy is in the log of the source, at the same place: its sequence number and its chain, and
//!   with them everything before it, are the same. Who opened the copy for writing and wrote nothing does not matter.
//! - Or compaction of the source has freed that segment. Then the writer of that batch was one of the source's, by its
//!   epoch, which is random, and the source had all its batches when the next epoch began.
//! - Or the source has so many epochs that it has dropped that one. Then the copy has the note of what it was brought
//!   to last, and nothing behind that.
//!
//! A source that was put back from a backup does not have that batch, or had fewer when the next epoch began.

use std::path::Path;
use std::sync::Arc;

use super::image::Image;
use super::source::{Source, has_bytes};
use crate::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::DeviceEntry;
use crate::index::catalog::{Position, State};
use crate::units::format_size;

/// Note of a copy that was made beside a writer.
pub(crate) const BESIDE_WRITER: &str = "replica.beside";
/// Notes of a source that say nothing about its copy begin with one of these: about its devices, and as a copy.
const OF_SOURCE: [&str; 2] = ["scrub.", "replica."];

/// How a copy relates to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Relation {
    /// Both have the same last batch.
    Same,
    /// The source goes on behind all that the copy has.
    Behind,
    /// The copy goes on behind all that the source has.
    Ahead,
    /// The copy has what the source does not have, for this reason.
    Apart(&'static str),
}

/// Whether a copy has the state of its source already; if not, it may get that.
///
/// # Errors
/// [`ErrorKind::Exists`] if it has something else, or is a copy of another store; any error of reading.
pub(crate) fn may_become(
    (copy, image): (&Image, &Image),
    source: &mut dyn Source,
    of_copy: &mut dyn Source,
    home: &Path,
) -> Result<bool> {
    let refuse = |cause: &str, advice: &str| {
        Err(Error::new(ErrorKind::Exists, "update the copy", cause).at(home).advise(advice))
    };
    if copy.geometry.store != image.geometry.store {
        return refuse("it is another store", "name a copy that was made by granulo store clone");
    }
    if !have_same_devices(copy, image) {
        return refuse(
            "the devices of its source are not those of which it was made",
            "clone the source into another directory",
        );
    }
    match relation(copy, image, source, of_copy)? {
        Relation::Same => Ok(true),
        Relation::Behind => Ok(false),
        Relation::Ahead => refuse(
            "it was written to since: it has all that the source has, and more",
            "nothing was changed; granulo store pull takes that over into the source",
        ),
        Relation::Apart(cause) => refuse(
            cause,
            "nothing was changed; clone the source into another directory, and keep what only this one has",
        ),
    }
}

/// Whether the source has everything that a copy has.
///
/// # Errors
/// Any error of reading one of them.
pub(super) fn has_nothing_of_its_own(
    (copy, image): (&Image, &Image),
    source: &mut dyn Source,
    of_copy: &mut dyn Source,
) -> Result<bool> {
    Ok(matches!(relation(copy, image, source, of_copy)?, Relation::Same | Relation::Behind))
}

/// How a copy relates to an image of its source.
///
/// # Errors
/// Any error of reading the source.
fn relation(copy: &Image, image: &Image, source: &mut dyn Source, of_copy: &mut dyn Source) -> Result<Relation> {
    let (behind, ahead) = (copy.position(), image.position());
    if (behind.sequence, behind.chain) == (ahead.sequence, ahead.chain) {
        return Ok(Relation::Same);
    }
    if behind.sequence < ahead.sequence {
        return Ok(match is_in(copy, image, source)? {
            Some(false) => Relation::Apart("it was written to"),
            Some(true) => Relation::Behind,
            None => by_history(copy, image),
        });
    }
    Ok(match is_in(image, copy, of_copy)? {
        Some(true) => Relation::Ahead,
        _ => Relation::Apart("it was written to, or the source was put back from a backup"),
    })
}

/// Whether the last batch of an image is in the log of a later one; `None` if its segment was freed there.
fn is_in(earlier: &Image, later: &Image, source: &mut dyn Source) -> Result<Option<bool>> {
    let Position { segment, commit, offset, .. } = earlier.position();
    let Some(last) = &earlier.last else { return Ok(Some(true)) };
    let Some(row) = later.state.segments.get(&segment) else { return Ok(None) };
    let is_same_segment = earlier.state.segments.get(&segment).is_some_and(|known| known.id() == row.id());
    if !is_same_segment || row.size_bytes < offset.0 {
        return Ok(Some(false));
    }
    has_bytes(source, row, commit, &last.record).map(Some)
}

fn by_history(copy: &Image, image: &Image) -> Relation {
    let (sequence, Some(last)) = (copy.position().sequence, &copy.last) else { return Relation::Behind };
    let is_newest = image.history.newest().epoch == last.epoch;
    let had = image.history.last_batch_of(last.epoch).or(is_newest.then_some(image.position().sequence));
    let is_dropped = image.history.entries().next().is_some_and(|oldest| oldest.last_batch >= sequence);
    match had {
        Some(had) if had >= sequence => Relation::Behind,
        // Whoever wrote it may have been this source, or one that was put back from a backup since.
        None if is_dropped => {
            Relation::Apart("the source was opened so often since that it no longer knows the writer of its last batch")
        }
        None => Relation::Apart("it was written to, and the source does not know its writer"),
        Some(_) => Relation::Apart("the source was put back from a backup"),
    }
}

/// The index of a copy of an image. For readers of the copy, it is newer than what they know.
pub(crate) fn state_of_copy(image: &Image, before: Option<&Image>) -> State {
    let mut state = image.state.clone();
    let notes = Arc::make_mut(&mut state.notes);
    notes.retain(|name, _| !OF_SOURCE.iter().any(|of| name.starts_with(of)));
    let (known, epoch) = before.map_or((0, 0), |before| (before.state.version, before.state.epoch));
    state.version = state.version.max(known + 1);
    // Readers of the copy have pins in its epochs, which must go on to be those of what they read.
    if epoch > state.epoch {
        state.epoch = epoch;
        let superseded = state.superseded.iter().map(|(since, file)| ((*since).max(epoch), file.clone())).collect();
        state.superseded = Arc::new(superseded);
    }
    state
}

/// What is in quarantine would go with what the copy was: only who accepts that removes it.
///
/// # Errors
/// [`ErrorKind::Exists`] if there is something.
pub(super) fn refuse_quarantine(copy: &Store) -> Result<()> {
    let bytes: u64 = copy.engine().quarantine()?.iter().map(|one| one.bytes).sum();
    if bytes == 0 {
        return Ok(());
    }
    let cause = format!("{} are in quarantine there, and would be removed", format_size(bytes.into()));
    let error = Error::new(ErrorKind::Exists, "update the copy", cause).at(&copy.engine().home);
    Err(error.advise("clone into another directory, and look at what granulo store check says of this one"))
}

/// Whether two images have the same devices: a copy has a directory for each device of its source.
fn have_same_devices(one: &Image, other: &Image) -> bool {
    let of = |device: &DeviceEntry| (device.number, device.identity, device.class, device.state);
    let (one, other) = (&one.geometry, &other.geometry);
    one.has_home_apart() == other.has_home_apart() && one.devices.iter().map(of).eq(other.devices.iter().map(of))
}
