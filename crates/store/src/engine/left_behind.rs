//! Segments that were released and could not be removed everywhere: a device was away, or refused. They are noted by
//! name in the change that drops their row. After more sessions than the history remembers, nothing else tells them
//! from segments of a side that was not taken, which stay until that is accepted.

use std::collections::BTreeSet;

use super::Engine;
use crate::error::Result;
use crate::format::decode::Decoder;
use crate::format::ids::SegmentNumber;
use crate::format::names::SegmentName;

/// The note: for each segment the number in 8 bytes and the low half of its epoch in 4, little-endian.
const LEFT_BEHIND: &str = "segments.left";

fn encode(names: &BTreeSet<SegmentName>) -> Vec<u8> {
    let encoded = |name: &SegmentName| [&name.number.0.to_le_bytes()[..], &name.epoch_low_half.to_le_bytes()].concat();
    names.iter().flat_map(encoded).collect()
}

fn decode(note: &[u8]) -> BTreeSet<SegmentName> {
    let mut at = Decoder::new(note);
    let next = || Some(SegmentName { number: SegmentNumber(at.u64()?), epoch_low_half: at.u32()? });
    std::iter::from_fn(next).collect()
}

impl Engine {
    /// The segments that were left behind.
    pub(super) fn left_behind(&self) -> BTreeSet<SegmentName> {
        self.view().state.notes.get(LEFT_BEHIND).map(|note| decode(note)).unwrap_or_default()
    }

    /// The note, with these segments too; `None` if there are none.
    pub(super) fn note_of_left(&self, names: &[SegmentName]) -> Option<(String, Vec<u8>)> {
        let mut all = self.left_behind();
        all.extend(names);
        (!names.is_empty()).then(|| (LEFT_BEHIND.to_owned(), encode(&all)))
    }

    /// Every device is present, and what was left behind was removed.
    ///
    /// # Errors
    /// Errors of the index.
    pub(crate) fn forget_left_behind(&self) -> Result<()> {
        if self.left_behind().is_empty() { Ok(()) } else { self.note(&[(LEFT_BEHIND, Vec::new())]) }
    }

    /// Which segments this history has begun for certain: in an epoch that it remembers, or as it has noted.
    pub(crate) fn has_begun(&self) -> impl Fn(SegmentName) -> bool + use<> {
        let (history, left) = (self.devices.history(), self.left_behind());
        move |name| history.has_begun(name) || left.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let name = |number, epoch_low_half| SegmentName { number: SegmentNumber(number), epoch_low_half };
        let names = BTreeSet::from([name(3, 7), name(3, u32::MAX), name(u64::MAX, 0)]);
        assert_eq!(decode(&encode(&names)), names);
        assert!(decode(&encode(&names)[..11]).is_empty() && decode(&[]).is_empty());
    }
}
