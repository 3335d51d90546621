//! Laws of the files, whatever a store is asked to do.
//!
//! Law 3: no file of the log and no extent file is shortened, overwritten with other bytes, or removed, unless a
//! release in the log refers to it. Bytes that were damaged, or never durable everywhere, may become what redundancy
//! proves; so a change is right only if another copy or the file before the damage has the same bytes. A reader, and an
//! open that fails, change no byte at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::media::FileContent;
use super::super::mishap::{FileKind, Image};
use super::super::world::moved;
use crate::devices::names::OTHER;

/// Files that the store may remove.
#[derive(Debug, Clone, Default)]
pub(crate) struct Released {
    /// On any device.
    segments: BTreeSet<String>,
    extents: BTreeSet<(usize, String)>,
    /// What may not go, whatever was released.
    spared: BTreeSet<(usize, String)>,
}

impl Released {
    /// Adds everything that is on a device now.
    pub(crate) fn add(&mut self, device: usize, image: &Image) {
        for path in image.keys() {
            match FileKind::of(path) {
                FileKind::Segment => _ = self.segments.insert(path.clone()),
                _ => _ = self.extents.insert((device, path.clone())),
            }
        }
    }

    /// Two devices change places.
    pub(crate) fn swap(&mut self, disks: (usize, usize)) {
        for files in [&mut self.extents, &mut self.spared] {
            *files = std::mem::take(files).into_iter().map(|(disk, path)| (moved(disk, disks), path)).collect();
        }
    }

    /// A file of a device stays, whatever is added.
    pub(crate) fn spare(&mut self, device: usize, path: &str) {
        self.spared.insert((device, path.to_owned()));
    }

    /// Nothing is spared any more.
    pub(crate) fn spare_nothing(&mut self) {
        self.spared.clear();
    }

    fn has(&self, device: usize, path: &str) -> bool {
        let of_device = (device, path.to_owned());
        (self.segments.contains(path) || self.extents.contains(&of_device)) && !self.spared.contains(&of_device)
    }
}

/// Damaged places: the earlier content of the files, by device and path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sound {
    files: BTreeMap<(usize, String), Vec<Arc<FileContent>>>,
    /// Devices that did not do what they acknowledged, so that their correct content is unknown.
    doubted: BTreeSet<usize>,
    /// Devices that were rebuilt, or on which a repair recreated an extent file.
    filled: BTreeSet<usize>,
}

impl Sound {
    /// Keeps the state of a device before something is done to it.
    pub(crate) fn keep(&mut self, device: usize, image: &Image) {
        for (path, content) in image {
            let known = self.files.entry((device, own_name(path).to_owned())).or_default();
            if known.last().is_none_or(|last| !Arc::ptr_eq(last, content)) {
                known.push(Arc::clone(content));
            }
        }
    }

    /// Two devices change places.
    pub(crate) fn swap(&mut self, disks: (usize, usize)) {
        let files = std::mem::take(&mut self.files).into_iter();
        self.files = files.map(|((disk, path), content)| ((moved(disk, disks), path), content)).collect();
        for some in [&mut self.doubted, &mut self.filled] {
            *some = std::mem::take(some).into_iter().map(|disk| moved(disk, disks)).collect();
        }
    }

    /// Extent files of a device are recreated: what they lack is a hole, which is filled when more can be
    /// reconstructed.
    pub(crate) fn fill(&mut self, device: usize) {
        self.filled.insert(device);
    }

    /// A device does not do what it acknowledges.
    pub(crate) fn doubt(&mut self, device: usize) {
        self.doubted.insert(device);
    }

    /// Whether it is among those.
    pub(crate) fn is_doubted(&self, device: usize) -> bool {
        self.doubted.contains(&device)
    }

    fn has(&self, device: usize, path: &str, at: usize, (old, byte): (u8, u8)) -> bool {
        let known = self.files.get(&(device, path.to_owned()));
        self.is_doubted(device)
            || old == 0 && self.filled.contains(&device)
            || known.is_some_and(|all| all.iter().any(|content| content.bytes.get(at) == Some(&byte)))
    }
}

fn own_name(path: &str) -> &str {
    path.strip_suffix(OTHER).unwrap_or(path)
}

fn under_either_name<'a>(image: &'a Image, path: &str) -> Option<&'a Arc<FileContent>> {
    let own = own_name(path);
    image.get(own).or_else(|| image.get(&format!("{own}{OTHER}")))
}

/// Checks that nothing at all has changed.
///
/// # Errors
/// The change.
pub(crate) fn untouched(before: &[Image], after: &[Image]) -> Result<(), String> {
    for (device, (old, new)) in before.iter().zip(after).enumerate() {
        for (path, content) in old {
            match new.get(path) {
                None => return Err(format!("law 3: {path} of device {device} vanished")),
                Some(now) if now.bytes != content.bytes => {
                    return Err(format!("law 3: {path} of device {device} was changed"));
                }
                Some(_) => {}
            }
        }
        // A lock file has no content.
        if let Some((path, _)) =
            new.iter().find(|(path, content)| !old.contains_key(*path) && !content.bytes.is_empty())
        {
            return Err(format!("law 3: {path} of device {device} was made"));
        }
    }
    Ok(())
}

/// Checks that only what may change of the log and the extents has changed.
///
/// # Errors
/// Any other change.
pub(crate) fn patient(before: &[Image], after: &[Image], released: &Released, sound: &Sound) -> Result<(), String> {
    for (device, old) in before.iter().enumerate() {
        for (path, content) in old {
            let kind = FileKind::of(path);
            if !matches!(kind, FileKind::Segment | FileKind::Extent) {
                continue;
            }
            let Some(now) = under_either_name(&after[device], path) else {
                if released.has(device, own_name(path)) || content.bytes.is_empty() {
                    continue;
                }
                return Err(format!("law 3: {path} of device {device} vanished, and no release names it"));
            };
            if Arc::ptr_eq(now, content) {
                continue;
            }
            if now.bytes.len() < content.bytes.len() {
                let (was, is) = (content.bytes.len(), now.bytes.len());
                return Err(format!("law 3: {path} of device {device} was cut from {was} to {is} bytes"));
            }
            let mut changed = content.bytes.iter().zip(&now.bytes).enumerate().filter(|(_, (old, new))| old != new);
            let is_proven = |at: usize, (old, byte): (u8, u8)| {
                // Parity has other bytes, so for extents only the content before the damage is known.
                let copies = |images: &[Image]| {
                    let mut others = images.iter().enumerate().filter(|(other, _)| *other != device);
                    others.any(|(_, image)| {
                        under_either_name(image, path).is_some_and(|copy| copy.bytes.get(at) == Some(&byte))
                    })
                };
                kind == FileKind::Segment && copies(before) || sound.has(device, own_name(path), at, (old, byte))
            };
            if let Some((at, (old, new))) = changed.find(|(at, (old, new))| !is_proven(*at, (**old, **new))) {
                return Err(format!(
                    "law 3: byte {at} of {path} of device {device} was overwritten, {old:#x} with {new:#x}, and nothing proves it"
                ));
            }
        }
    }
    Ok(())
}
