//! Measures a device for miss-ratio curves: reads at random offsets that bypass the page cache.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::mrc::device::{Device, LONG_BYTES, SHORT_BYTES};
use crate::population::scramble;
use crate::units::{MIB, escape_path, format_size};

/// Reads timed for each length, at most.
const MOST_READS: u64 = 400;
/// Limit of the time for each length.
const TIME_LIMIT: Duration = Duration::from_secs(4);
/// Alignment of direct reads in memory that suits every device.
const ALIGNMENT: usize = 4096;
/// Smallest range in which random reads are far apart.
const LEAST_BYTES: u64 = 64 * MIB;

/// Measures a device, or the one below a file, with reads at random offsets that bypass the page cache.
///
/// # Errors
/// Errors from opening or reading; a file that is too small, or on a file system without direct reads.
pub(crate) fn measure(path: &Path, stop: &AtomicBool) -> Result<Device> {
    const OPERATION: &str = "measure";
    let fail = |error: std::io::Error| {
        let advice = "name a block device, or a file on a file system with direct reads (O_DIRECT)";
        let is_refused = error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error());
        let error = Error::io(OPERATION, path, error);
        if is_refused { error.advise(advice) } else { error }
    };
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(Error::new(ErrorKind::Usage, OPERATION, "it is neither a file nor a block device").at(path));
    }
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path).map_err(fail)?;
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(fail)?;
    if size_bytes < LEAST_BYTES {
        let cause = format!("it has {}", format_size(size_bytes.into()));
        let advice = format!("name one of at least {}", format_size(LEAST_BYTES.into()));
        return Err(Error::new(ErrorKind::Usage, OPERATION, cause).at(path).advise(advice));
    }
    let time = |length| median_read_seconds(&file, length, size_bytes, stop).map_err(fail);
    let (short_seconds, long_seconds) = (time(SHORT_BYTES)?, time(LONG_BYTES)?);
    match (short_seconds, long_seconds) {
        (Some(short), Some(long)) => Ok(Device::fitted(escape_path(path), short, long)),
        _ => Err(Error::new(ErrorKind::Usage, OPERATION, "it was interrupted").at(path)),
    }
}

/// Median seconds of reads of `length` bytes at random offsets, as many as [`MOST_READS`] and [`TIME_LIMIT`] allow;
/// `None` if stopped before the first.
fn median_read_seconds(file: &File, length: u64, size_bytes: u64, stop: &AtomicBool) -> std::io::Result<Option<f64>> {
    let mut buffer = vec![0; length as usize + ALIGNMENT];
    let begin = (buffer.as_ptr() as usize).wrapping_neg() % ALIGNMENT;
    let slots = size_bytes / length;
    let (started, mut seconds) = (Instant::now(), Vec::new());
    for number in 0..MOST_READS {
        if stop.load(Ordering::Relaxed) || started.elapsed() > TIME_LIMIT {
            break;
        }
        // Other offsets for each length: a cache of the device has nothing of the second series.
        let offset = scramble(number ^ (length << 32)) % slots * length;
        let before = Instant::now();
        file.read_exact_at(&mut buffer[begin..begin + length as usize], offset)?;
        seconds.push(before.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds.get(seconds.len() / 2).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let small = directory.path().join("small");
        std::fs::write(&small, [0; 4096]).unwrap();
        for (path, word) in
            [(directory.path(), "neither a file"), (&small, "64 MiB"), (Path::new("/no/such"), "No such")]
        {
            let error = measure(path, &stop).unwrap_err();
            // Where direct reads are not supported, the file is refused before its size is checked.
            assert!(error.to_string().contains(word) || error.to_string().contains("O_DIRECT"), "{error}");
        }
    }
}
