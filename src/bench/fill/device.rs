//! The device itself: its read rate from the beginning on, whatever file system it holds, as `hdparm -t` measures it.
//!
//! Reads bypass the page cache (O_DIRECT); where the device does not allow that, they go through the page cache, which
//! is dropped before; where that is not permitted either, the rate may be that of memory. If the device cannot be
//! opened at all (no root, no single device), a file is read instead, in the same ways.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::bench::caches::drop_caches;
use crate::bench::content::{Content, PIECE_BYTES};
use crate::bench::place::Prepared;
use crate::bench::result::CacheState;
use crate::error::{Error, Result};

/// As long as `hdparm -t` reads.
const DURATION: Duration = Duration::from_secs(3);
/// Bytes per read, and alignment of memory and offsets.
const READ_BYTES: usize = 4 << 20;
const ALIGNMENT: usize = 4096;
/// Most bytes that are read.
const MOST_BYTES: u64 = 8 << 30;

/// What is read to measure the device.
#[derive(Debug)]
pub(super) struct Baseline {
    path: PathBuf,
    size_bytes: u64,
    is_direct: bool,
    /// The file that was created for it.
    made: Option<PathBuf>,
    buffer: Vec<u8>,
}

impl Baseline {
    /// Opens the device of a place, or a file of `file_bytes` on it, and notes any deviation in the place. `None` if
    /// there is no space for the file either.
    pub(super) fn open(place: &mut Prepared, file_bytes: u64, content: &Content) -> Result<Option<Baseline>> {
        let name = place.name().to_owned();
        if let Some((path, size_bytes)) = device_node(place) {
            for is_direct in [true, false] {
                if open(&path, is_direct).is_ok() {
                    if !is_direct {
                        place.note(format!(
                            "The device of {name} does not allow reads that bypass the page cache (O_DIRECT); it was \
                                read through the cache, which was dropped first where permitted."
                        ));
                    }
                    return Ok(Some(Baseline { path, size_bytes, is_direct, made: None, buffer: buffer() }));
                }
            }
        }
        let path = place.directory().join("baseline");
        let room = place.room()?;
        if room.available_bytes / 2 < file_bytes {
            place.note(format!(
                "The speed of the device of {name} was not measured: it cannot be opened, and there is too little \
                    space for a file."
            ));
            return Ok(None);
        }
        place.note(format!(
            "The device of {name} cannot be opened, which needs root and a separate device; a file was read instead."
        ));
        // Created before it is written, so that it is also removed when that fails.
        let mut baseline = Baseline {
            path: path.clone(),
            size_bytes: file_bytes,
            is_direct: true,
            made: Some(path.clone()),
            buffer: buffer(),
        };
        write(&path, file_bytes, content).map_err(|error| Error::io("write", &path, error))?;
        baseline.is_direct = open(&path, true).and_then(|mut file| baseline.read_from(&mut file, 0)).is_ok();
        Ok(Some(baseline))
    }

    /// Returns bytes per second, and the state of the caches. Reads the `part`-th of `parts`, so that nothing is read
    /// twice if the device is large enough.
    pub(super) fn rate(&mut self, part: u64, parts: u64) -> Result<(f64, CacheState)> {
        let fail = |path: &Path, error| Error::io("read", path, error);
        let mut file = open(&self.path, self.is_direct).map_err(|error| fail(&self.path, error))?;
        let is_device = self.made.is_none();
        let from = if is_device { self.size_bytes / parts.max(1) * part } else { 0 };
        let from = from - from % READ_BYTES as u64;
        // Direct reads too: below a loop device without direct I/O, they are served from the cached image.
        let caches = self.caches(drop_caches().state);
        let started = Instant::now();
        let read = self.read_from(&mut file, from).map_err(|error| fail(&self.path, error))?;
        Ok((read as f64 / started.elapsed().as_secs_f64().max(1e-9), caches))
    }

    /// The caches that reads meet, if this state was reached by dropping them.
    fn caches(&self, dropped: CacheState) -> CacheState {
        if self.is_direct { CacheState::Cold } else { dropped }
    }

    fn read_from(&mut self, file: &mut File, from: u64) -> io::Result<u64> {
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let buffer = &mut self.buffer[start..start + READ_BYTES];
        file.seek(SeekFrom::Start(from))?;
        let started = Instant::now();
        let mut done = 0;
        while started.elapsed() < DURATION && done < MOST_BYTES {
            match file.read(buffer) {
                Ok(0) => break,
                Ok(read) => done += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The end of a device whose size is not a multiple of the alignment.
                Err(error) if done > 0 && error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

fn buffer() -> Vec<u8> {
    vec![0; READ_BYTES + ALIGNMENT]
}

fn open(path: &Path, is_direct: bool) -> io::Result<File> {
    let flags = if is_direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The node of a place's device, and its size.
fn device_node(place: &Prepared) -> Option<(PathBuf, u64)> {
    let number = place.device_number()?;
    let device = &place.subject().device;
    let path = Path::new("/dev").join(&device.name);
    let found = fs::metadata(&path).ok().filter(|found| found.file_type().is_block_device())?;
    let is_it = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())) == number;
    (is_it && device.size_bytes >= READ_BYTES as u64).then_some((path, device.size_bytes))
}

fn write(path: &Path, size_bytes: u64, content: &Content) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut at = 0;
    while at < size_bytes {
        let piece = content.piece(0, at, (size_bytes - at).min(PIECE_BYTES as u64));
        file.write_all(piece)?;
        at += piece.len() as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_through_the_cache_is_as_cold_as_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![1; READ_BYTES]).unwrap();
        let mut baseline =
            Baseline { path, size_bytes: READ_BYTES as u64, is_direct: false, made: None, buffer: buffer() };
        let (rate, caches) = baseline.rate(0, 1).unwrap();
        assert!(rate > 0.0 && caches == drop_caches().state, "{rate}, {caches:?}");
        assert_eq!(baseline.caches(CacheState::AsIs), CacheState::AsIs);
        baseline.is_direct = true;
        assert_eq!(baseline.caches(CacheState::AsIs), CacheState::Cold);
    }
}
