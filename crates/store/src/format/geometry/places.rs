//! The directories of a new store: made absolute, told apart, and checked against each other.
//!
//! Nothing is created here. Two devices must not be the same directory by different paths, nor nested: one would write
//! into the other, and one lost disk would take both.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Class, DeviceEntry, DeviceState, Geometry, Plan, refuse};
use crate::error::{Error, Result};
use crate::format::ids::DeviceNumber;
use crate::units::escape_path;

/// Names in a home and in a device directory (docs/FORMAT.md, section 1).
const OWN_NAMES: [&str; 5] = ["superblock", "lock", "segments", "extents", "index"];

/// The directories of a store.
pub(super) struct StoreDirectories {
    /// Absolute.
    pub home: PathBuf,
    /// In the order of their numbers: fast ones, then slow ones; relative to the home if inside it, else absolute.
    pub devices: Vec<(Class, PathBuf)>,
}

/// A directory named in a plan.
struct NamedDirectory {
    class: Option<Class>,
    path: PathBuf,
    /// Device and inode, if it exists: through a mount, two paths may lead to one directory.
    identity: Option<(u64, u64)>,
}

/// Resolves the directories of a plan.
///
/// # Errors
/// A path is not a directory, equals another, or is inside one that must not contain it.
pub(super) fn resolve(home: &Path, plan: &Plan) -> Result<StoreDirectories> {
    let home = place(None, home)?;
    refuse_addresses(&home, plan)?;
    let fast = plan.fast.iter().map(|path| place(Some(Class::Fast), path));
    let slow = plan.slow.iter().map(|path| place(Some(Class::Slow), path));
    let devices = fast.chain(slow).collect::<Result<Vec<NamedDirectory>>>()?;
    for (index, device) in devices.iter().enumerate() {
        check_beside_home(device, &home)?;
        for other in devices.iter().take(index) {
            check_beside_each_other(device, other)?;
        }
    }
    let relative = |device: NamedDirectory| {
        let inside = device.path.strip_prefix(&home.path).map(Path::to_owned);
        (device.class.unwrap_or(Class::Fast), inside.unwrap_or(device.path))
    };
    Ok(StoreDirectories { devices: devices.into_iter().map(relative).collect(), home: home.path.clone() })
}

/// The scheme of an address, `SCHEME://…`, of a store in a bucket; `None` for a path.
pub(crate) fn address_scheme(path: &Path) -> Option<&str> {
    let (scheme, _) = path.to_str()?.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    is_scheme.then_some(scheme)
}

/// Refuses devices of a store in a bucket, and devices in buckets: the bucket is the only one.
fn refuse_addresses(home: &NamedDirectory, plan: &Plan) -> Result<()> {
    let is_in_bucket = address_scheme(&home.path).is_some();
    let apart = plan.fast.iter().chain(&plan.slow).find(|device| is_in_bucket || address_scheme(device).is_some());
    apart.map_or(Ok(()), |device| {
        let error = refuse("a store in a bucket has no other devices, and no other store has one there").at(device);
        Err(error.advise("name no device: the home is then the only one"))
    })
}

fn check_beside_home(device: &NamedDirectory, home: &NamedDirectory) -> Result<()> {
    if device.is(home) {
        let error = refuse("a device is the home itself").at(&device.path);
        return Err(error.advise("name a directory in it, or name no device: the home is then the only one"));
    }
    if home.path.starts_with(&device.path) {
        let error = refuse(format!("the home is inside a device, {}", escape_path(&device.path)));
        return Err(error.at(&home.path).advise("put the home beside the devices, or the devices into it"));
    }
    let first = device.path.strip_prefix(&home.path).ok().and_then(|inside| inside.components().next());
    match first {
        Some(name) if OWN_NAMES.iter().any(|own| name.as_os_str() == *own) => {
            let error = refuse("the store keeps its own files under this name").at(&device.path);
            Err(error.advise("choose another name in the home, such as fast0"))
        }
        _ => Ok(()),
    }
}

fn check_beside_each_other(device: &NamedDirectory, other: &NamedDirectory) -> Result<()> {
    if device.is(other) {
        let error = refuse("a device is named twice").at(&device.path);
        return Err(error.advise("each device needs its own directory, on its own disk"));
    }
    let (outer, inner) = if device.path.starts_with(&other.path) { (other, device) } else { (device, other) };
    if inner.path.starts_with(&outer.path) {
        let error = refuse(format!("a device is inside another, {}", escape_path(&outer.path))).at(&inner.path);
        return Err(error.advise("each device needs its own directory, on its own disk"));
    }
    Ok(())
}

impl NamedDirectory {
    fn is(&self, other: &NamedDirectory) -> bool {
        self.path == other.path || (self.identity.is_some() && self.identity == other.identity)
    }
}

fn place(class: Option<Class>, path: &Path) -> Result<NamedDirectory> {
    let path = absolute(path)?;
    if address_scheme(&path).is_some() {
        return Ok(NamedDirectory { class, path, identity: None });
    }
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(NamedDirectory { class, path, identity: Some((found.dev(), found.ino())) }),
        Ok(_) => Err(refuse("it is not a directory").at(&path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NamedDirectory { class, path, identity: None }),
        Err(error) => Err(Error::io("look at", &path, error)),
    }
}

/// The absolute path, resolved as far as it exists; an address in a bucket is one.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if address_scheme(path).is_some() {
        return Ok(path.to_owned());
    }
    let fail = |error| Error::io("create the store in", path, error);
    let mut exists = std::path::absolute(path).map_err(fail)?;
    let mut missing = Vec::new();
    loop {
        match fs::canonicalize(&exists) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A path that ends in `..` has no name: its target is unknown until the rest exists.
                let name = exists.file_name().map(ToOwned::to_owned).ok_or_else(|| fail(error))?;
                missing.push(name);
                exists.pop();
            }
            Err(error) => return Err(fail(error)),
        }
    }
}

impl Geometry {
    /// Sentences about devices of this store that share a file system: one failure would take them all. The directories
    /// need not exist yet.
    pub fn shared_file_systems(&self, home: &Path) -> Vec<String> {
        self.shared_by(self.devices.iter().map(|device| device.directory(home)))
    }

    /// As [`shared_file_systems`](Self::shared_file_systems), if a device goes to another directory: only what shares a
    /// file system with that one.
    pub fn shared_with(&self, home: &Path, device: DeviceNumber, directory: &Path) -> Vec<String> {
        let is_other = |other: &&DeviceEntry| other.number != device && other.state != DeviceState::Gone;
        let others = self.devices.iter().filter(is_other).map(|other| other.directory(home));
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let name = escape_path(&directory);
        let mut all = self.shared_by(others.chain([directory]));
        all.retain(|sentence| sentence.contains(&name));
        all
    }

    fn shared_by(&self, directories: impl Iterator<Item = PathBuf>) -> Vec<String> {
        let mut seen: Vec<(u64, Vec<String>)> = Vec::new();
        for directory in directories {
            let Some(found) = directory.ancestors().find_map(|path| fs::metadata(path).ok()) else { continue };
            let name = escape_path(&directory);
            match seen.iter_mut().find(|(number, _)| *number == found.dev()) {
                Some((_, names)) => names.push(name),
                None => seen.push((found.dev(), vec![name])),
            }
        }
        let sentence = |names: Vec<String>| {
            let (last, others) = names.split_last()?;
            let together = || {
                format!("{} and {last} are on the same file system: one failure would take them all", others.join(", "))
            };
            (!others.is_empty()).then(together)
        };
        seen.into_iter().filter_map(|(_, names)| sentence(names)).collect()
    }
}
