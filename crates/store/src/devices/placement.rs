//! Where records go: to fast devices, unless they are full.
//!
//! Above the high watermark (share of the file system that is allocated, by anyone) records overflow to slow devices,
//! without an error; they return to fast ones only below the low watermark, so that a store at the limit does not
//! alternate with every batch. The decision ([`decide`]) is computed from what the devices report; such a report
//! guarantees nothing, so if a class turns out to be full all the same, the other is tried once.
//!
//! The last hundredth of a device ([`reserve_bytes`]) is reserved for removals, for moving records and for the index:
//! space can still be freed in a full store. Changes of what is there (names, attributes, a file that becomes shorter)
//! may take the first quarter of it: those who make room on a full file system use them, too. Since only whole files
//! are freed, no file is larger than half of the reserve ([`file_bytes`]): the live bytes of a file always fit
//! elsewhere. What moves into the reserve stays on its device, which has the space again once the old file is freed.

use crate::devices::device::Room;
use crate::format::geometry::Class;
use crate::units::{GIB, MIB};

/// Bytes of a batch besides its records: the commit, and the header of a segment.
const BESIDE_BYTES: u64 = 4096;

/// The purpose of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// New records: they leave the reserve alone.
    Put,
    /// Other names or attributes of what is there, or less content.
    Changes,
    /// Removals and moved records, which free space afterwards.
    Frees,
}

/// Space on the devices of a class that would receive a batch, in any order; the fullest one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rooms {
    pub(crate) rooms: Vec<Room>,
}

/// The inputs of [`decide`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) high_watermark_percent: u8,
    pub(crate) low_watermark_percent: u8,
}

/// Bytes reserved for removals on a device.
pub(crate) fn reserve_bytes(room: Room) -> u64 {
    (room.total_bytes / 100).clamp(2 * MIB, GIB).min(room.total_bytes / 10)
}

/// Maximum length of a file on a device, in bytes, so that it can be emptied before it is freed; `most_bytes` is the
/// limit everywhere.
pub(crate) fn file_bytes(room: Room, most_bytes: u64) -> u64 {
    // A file system may not report its size.
    if room.total_bytes == 0 { most_bytes } else { most_bytes.min(reserve_bytes(room) / 2) }
}

impl Room {
    /// Bytes that anything new may occupy: not what is reserved for removals.
    pub fn put_bytes(self) -> u64 {
        self.available_bytes.saturating_sub(reserve_bytes(self))
    }
}

/// Bytes that moved records or units may occupy on a device: the index, commits and removals need some too.
pub(crate) fn moving_bytes(room: Room) -> u64 {
    room.available_bytes.saturating_sub(reserve_bytes(room) / 4)
}

impl Rooms {
    /// Whether `needed_bytes` fit on each of them.
    pub(crate) fn has_room(&self, needed_bytes: u64, claim: Purpose) -> bool {
        let fits = |room: &Room| {
            let reserve_bytes = reserve_bytes(*room);
            let kept = match claim {
                Purpose::Put => reserve_bytes,
                Purpose::Changes => reserve_bytes - reserve_bytes / 4,
                Purpose::Frees => 0,
            };
            room.available_bytes >= kept.saturating_add(needed_bytes).saturating_add(BESIDE_BYTES)
        };
        !self.rooms.is_empty() && self.rooms.iter().all(fits)
    }

    /// Whether more than `percent` per cent of one of them is allocated.
    pub(crate) fn is_above(&self, percent: u8) -> bool {
        let above = |room: &Room| {
            let taken = u128::from(room.total_bytes.saturating_sub(room.available_bytes));
            taken * 100 > u128::from(room.total_bytes) * u128::from(percent)
        };
        self.rooms.iter().any(above)
    }
}

/// The classes to try, best first, and whether records overflow from here on. Empty: there is no space at all.
pub(crate) fn decide(
    fast: &Rooms,
    slow: &Rooms,
    limits: Limits,
    is_overflowing: bool,
    needed_bytes: u64,
    claim: Purpose,
) -> (Vec<Class>, bool) {
    let has_room = |class: &Class| match class {
        Class::Fast => fast.has_room(needed_bytes, claim),
        Class::Slow => slow.has_room(needed_bytes, claim),
    };
    let limit = if is_overflowing { limits.low_watermark_percent } else { limits.high_watermark_percent };
    let overflows = fast.is_above(limit) || fast.rooms.is_empty();
    let order =
        if overflows && claim != Purpose::Frees { [Class::Slow, Class::Fast] } else { [Class::Fast, Class::Slow] };
    (order.into_iter().filter(has_room).collect(), overflows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { high_watermark_percent: 90, low_watermark_percent: 80 };

    fn device(total_mib: u64, percent_taken: u64) -> Rooms {
        Rooms {
            rooms: vec![Room {
                total_bytes: total_mib * MIB,
                available_bytes: total_mib * MIB * (100 - percent_taken) / 100,
            }],
        }
    }

    fn put(fast: &Rooms, slow: &Rooms, is_overflowing: bool) -> (Vec<Class>, bool) {
        decide(fast, slow, LIMITS, is_overflowing, MIB, Purpose::Put)
    }

    #[test]
    fn records_overflow_above_the_high_watermark_and_come_back_below_the_low_one() {
        let slow = device(100_000, 10);
        let mut is_overflowing = false;
        let mut first = Vec::new();
        for percent in [10, 85, 90, 91, 95, 85, 81, 80, 85, 90, 91] {
            let (classes, overflows) = put(&device(10_000, percent), &slow, is_overflowing);
            is_overflowing = overflows;
            first.push(classes[0]);
        }
        use Class::{Fast, Slow};
        assert_eq!(first, [Fast, Fast, Fast, Slow, Slow, Slow, Slow, Fast, Fast, Fast, Slow]);
    }

    #[test]
    fn of_several_copies_the_fullest_device_decides() {
        let mut fast = device(10_000, 10);
        fast.rooms.extend(device(10_000, 95).rooms);
        assert_eq!(put(&fast, &device(100_000, 10), false).0, [Class::Slow, Class::Fast]);
    }

    #[test]
    fn full_slow_devices_leave_the_rest_of_the_fast_ones() {
        assert_eq!(put(&device(10_000, 95), &device(10_000, 100), true), (vec![Class::Fast], true));
        assert_eq!(put(&device(10_000, 100), &device(10_000, 100), true).0, []);
    }

    #[test]
    fn the_reserve_is_for_removals() {
        let nearly = Rooms { rooms: vec![Room { total_bytes: 1000 * MIB, available_bytes: 9 * MIB }] };
        assert_eq!(put(&nearly, &nearly, false).0, []);
        assert_eq!(decide(&nearly, &nearly, LIMITS, true, MIB, Purpose::Frees).0, [Class::Fast, Class::Slow]);
        // On very small devices the reserve is not most of the device.
        assert_eq!(reserve_bytes(Room { total_bytes: 10 * MIB, available_bytes: 0 }), MIB);
        assert_eq!(reserve_bytes(Room { total_bytes: 1 << 50, available_bytes: 0 }), GIB);
    }

    #[test]
    fn what_is_in_use_in_a_file_of_a_full_device_has_somewhere_to_go() {
        for total_mib in [1, 10, 64, 1 << 10, 10 << 10, 1 << 20] {
            let room = Room { total_bytes: total_mib * MIB, available_bytes: 0 };
            let full = Room { available_bytes: reserve_bytes(room), ..room };
            for most in [64 * MIB, GIB] {
                assert!(file_bytes(full, most) <= moving_bytes(full), "{total_mib} MiB");
            }
        }
        let large = Room { total_bytes: 1 << 40, available_bytes: 1 << 40 };
        assert_eq!(file_bytes(large, 64 * MIB), 64 * MIB);
    }

    #[test]
    fn without_fast_devices_in_service_slow_ones_are_written() {
        assert_eq!(put(&Rooms::default(), &device(100, 10), false).0, [Class::Slow]);
    }
}
