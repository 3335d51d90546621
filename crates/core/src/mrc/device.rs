//! A device as two figures: the latency of a transfer, and bytes per second after it. `bench::device` measures one.

use serde::{Deserialize, Serialize};

use crate::units::{KIB, MIB};

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, or what was measured.
    pub name: String,
    /// Time of a transfer before its first byte.
    pub latency_seconds: f64,
    /// Bytes per second after the latency.
    pub bytes_per_second: f64,
}

/// Devices with a name: round figures of current products; a disk has 7,200 revolutions per minute.
pub const NAMED: [(&str, f64, f64); 3] = [("disk", 8e-3, 200e6), ("ssd", 100e-6, 500e6), ("nvme", 80e-6, 3e9)];

/// Lengths of the reads to which a device is fitted.
pub const SHORT_BYTES: u64 = 4 * KIB;
/// The longer of them.
pub const LONG_BYTES: u64 = MIB;

impl Device {
    /// The device with this name.
    pub fn named(name: &str) -> Option<Device> {
        let &(name, latency_seconds, bytes_per_second) = NAMED.iter().find(|(known, ..)| *known == name)?;
        Some(Device { name: name.to_owned(), latency_seconds, bytes_per_second })
    }

    /// Time for this many transfers of this many bytes in total, one after another.
    pub fn seconds(&self, transfers: f64, bytes: f64) -> f64 {
        transfers * self.latency_seconds + bytes / self.bytes_per_second
    }

    /// The device that fits the median times of reads of two lengths, [`SHORT_BYTES`] and [`LONG_BYTES`].
    pub fn fitted(name: String, short_seconds: f64, long_seconds: f64) -> Device {
        let more = (LONG_BYTES - SHORT_BYTES) as f64;
        // If a long read is hardly slower, the figures are those of the long one alone.
        let bytes_per_second = more / (long_seconds - short_seconds).max(long_seconds / 100.0);
        let latency_seconds = (short_seconds - SHORT_BYTES as f64 / bytes_per_second).max(0.0);
        Device { name, latency_seconds, bytes_per_second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reads_make_a_device() {
        let device = Device::named("disk").unwrap();
        let fitted = Device::fitted("x".into(), device.seconds(1.0, 4096.0), device.seconds(1.0, MIB as f64));
        assert!((fitted.latency_seconds - 8e-3).abs() < 1e-9 && (fitted.bytes_per_second / 200e6 - 1.0).abs() < 1e-9);
        assert_eq!(Device::named("tape"), None);
        // No difference in time at all.
        let odd = Device::fitted("x".into(), 1e-3, 1e-3);
        assert!(odd.bytes_per_second.is_finite() && odd.latency_seconds >= 0.0);
    }
}
