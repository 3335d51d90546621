//! Files of the log or of large objects in whose place is something else: a symbolic link, because somebody moved a
//! segment to another disk, or a directory, or a pipe. What was there may exist, so a writer, which might give up what
//! it does not see, does not open before it is back (docs/FORMAT.md, law 8: no link is followed).

use std::path::PathBuf;

use crate::devices::device::NotAFile;
use crate::devices::extents::file_number;
use crate::devices::names;
use crate::devices::set::Devices;
use crate::devices::slot::Slot;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names::{EXTENTS, SEGMENTS, SegmentName};

/// What helps.
pub(crate) const ADVICE: &str = "put the file itself in its place, or a copy of it";
/// The same, for a writer.
pub(crate) const WRITERS_ADVICE: &str =
    "put the file itself in its place, or a copy of it; --degraded continues without it, and gives nothing up";

/// # Errors
/// [`ErrorKind::NotRecognised`] if something else is in the place of a segment or of an extent file on a device that
/// may be written.
pub(crate) fn refuse_others(devices: &Devices, advice: &str) -> Result<()> {
    let is_segment = |name: &str| SegmentName::parse(name).is_some();
    let is_extent = |name: &str| file_number(name).is_some();
    for slot in devices.slots().iter().filter(|slot| slot.is_writable()) {
        for (directory, is_ours) in [(SEGMENTS, &is_segment as &dyn Fn(&str) -> bool), (EXTENTS, &is_extent)] {
            // A directory that cannot be listed is reported where its files are needed.
            let others = names::list_others(&*slot.device, directory).unwrap_or_default();
            if let Some((name, kind)) = others.into_iter().find(|(name, _)| is_ours(name)) {
                return Err(Error::new(ErrorKind::NotRecognised, "write with", kind.to_string())
                    .at(&slot.path.join(directory).join(name))
                    .on_device(slot.entry.number.0)
                    .advise(advice));
            }
        }
    }
    Ok(())
}

/// What is in the place of a file on a device, if that is no file, and where.
pub(crate) fn in_place_of(slot: &Slot, directory: &str, is_it: impl Fn(&str) -> bool) -> Option<(PathBuf, NotAFile)> {
    let others = names::list_others(&*slot.device, directory).ok()?;
    let (name, kind) = others.into_iter().find(|(name, _)| is_it(name))?;
    Some((slot.path.join(directory).join(name), kind))
}
