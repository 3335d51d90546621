//! A volume as the machine that a store is on: its directories are in the bucket; time, random numbers and whatever is
//! not in the bucket are of this machine.
//!
//! - The lock of the store is its lease (`lock`); whoever takes it fences off the writer before.
//! - Every version has the log *and* the index of what it acknowledges, so a writer that has the lease has recovered.
//! - Readers pin nothing: objects outlive the version that dropped them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::device::VolumeDevice;
use super::fetch::NEAR_BYTES;
use super::volume::Volume;
use crate::devices::anchored::Anchor;
use crate::devices::device::Device;
use crate::devices::host::Host;
use crate::devices::objects::counts::BucketStatus;
use crate::devices::platform::{Creator, Hold, Lock, Platform, PrivateDevice};
use crate::error::Result;
use crate::format::geometry::Node;
use crate::format::record::checksum;
use crate::locks::lock;

/// File system of directories in a bucket, which are in none. Their inodes are made of their addresses.
const IN_BUCKET: u64 = u64::from_le_bytes(*b"granvol\0");

/// The machine of a store in a bucket.
#[derive(Debug)]
pub(crate) struct BucketPlatform {
    volume: Arc<Volume>,
    home: PathBuf,
}

impl BucketPlatform {
    /// The machine of the store whose home is a volume.
    pub(crate) fn new(home: &Path, volume: Volume) -> BucketPlatform {
        BucketPlatform { volume: Arc::new(volume), home: home.to_owned() }
    }

    #[cfg(test)]
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The path in the volume of a directory; `None` if it is not in it.
    fn inside(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(&self.home).ok()?;
        inside
            .components()
            .map(|part| part.as_os_str().to_str())
            .collect::<Option<Vec<&str>>>()
            .map(|all| all.join("/"))
    }
}

impl Platform for BucketPlatform {
    fn creator(&self) -> Creator {
        Host.creator()
    }

    fn device_with(&self, path: &Path, file_mode: u16) -> Arc<dyn Device> {
        match self.inside(path) {
            Some(directory) => {
                Arc::new(VolumeDevice { volume: Arc::clone(&self.volume), place: path.to_owned(), directory })
            }
            None => Host.device_with(path, file_mode),
        }
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let Some(directory) = self.inside(path) else { return Host.node(path) };
        let files = lock(&self.volume.files);
        let is_there = files.table.has_directory(&directory);
        drop(files);
        let inode = checksum(path.as_os_str().as_encoded_bytes());
        (is_there && self.volume.exists()).then_some(Node { file_system: IN_BUCKET, inode })
    }

    fn anchor(&self, path: &Path) -> Option<Box<dyn Anchor>> {
        // Nothing can be mounted over a directory in a bucket.
        self.inside(path).map_or_else(|| Host.anchor(path), |_| None)
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        self.inside(path).map_or_else(|| Host.resolve(path), |_| path.to_owned())
    }

    fn random(&self) -> Result<u64> {
        self.volume.bucket.surroundings.random()
    }

    fn has_directories(&self, path: &Path, allowed: &[PathBuf]) -> io::Result<bool> {
        let Some(directory) = self.inside(path) else { return Host.has_directories(path, allowed) };
        let is_allowed = |found: &str| {
            let found = self.home.join(found);
            allowed.iter().any(|allowed| allowed.starts_with(&found))
        };
        self.volume.look(|table| table.directories_in(&directory).any(|found| !is_allowed(found)))
    }

    fn has_others(&self, home: &Path) -> io::Result<bool> {
        self.inside(home).map_or(Ok(false), |_| self.volume.has_others())
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        match self.inside(directory) {
            Some(_) => self.volume.lock(),
            None => Host.lock(directory),
        }
    }

    fn holder(&self, directory: &Path) -> Option<String> {
        self.inside(directory).map_or_else(|| Host.holder(directory), |_| self.volume.holder())
    }

    fn is_locked(&self, directory: &Path) -> bool {
        self.inside(directory).map_or_else(|| Host.is_locked(directory), |_| self.volume.is_leased())
    }

    fn has_writer(&self, directory: &Path) -> bool {
        self.inside(directory).map_or_else(|| Host.has_writer(directory), |_| self.volume.is_leased())
    }

    fn pin(&self, index: &Path, epoch: u64) -> io::Result<Option<Box<dyn Lock>>> {
        self.inside(index).map_or_else(|| Host.pin(index, epoch), |_| Ok(None))
    }

    fn unpinned(&self, index: &Path, below: u64) -> u64 {
        self.inside(index).map_or_else(|| Host.unpinned(index, below), |_| below)
    }

    fn private_device(&self) -> Result<PrivateDevice> {
        Host.private_device()
    }

    fn now_nanoseconds(&self) -> i64 {
        self.volume.bucket.surroundings.now_nanoseconds()
    }

    fn idle_interval(&self) -> Option<Duration> {
        // A mark of an idle log is a publication, and the next batch has it.
        None
    }

    fn least_gap_bytes(&self) -> u64 {
        NEAR_BYTES
    }

    fn bucket(&self) -> Option<BucketStatus> {
        self.volume.status()
    }

    fn writer_silence(&self) -> Option<Duration> {
        self.volume.silence()
    }

    fn has_unanswered(&self) -> bool {
        self.volume.has_unanswered()
    }

    fn collect(&self) -> io::Result<()> {
        self.volume.collect()
    }

    fn hold(&self) -> Box<dyn Hold> {
        self.volume.hold()
    }
}
