//! Where a segment continues the log, if its header is damaged on every copy: its first commit names the chain of the
//! batch before it. So what follows that batch stays in quarantine (docs/FORMAT.md, section 9), although no header says
//! so.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Engine;
use crate::format::ids::{BatchSequence, LogOffset, SegmentNumber};
use crate::format::segment::{Continued, FIRST_BATCH_AT};
use crate::log::lineage::FoundSegment;
use crate::log::scan::{Committed, ScanStep};

impl Engine {
    /// Adds where segments without a header continue the log, as far as their first commit and the batch before it are
    /// intact.
    pub(super) fn find_continued(&self, found: &mut [FoundSegment]) {
        for at in 0..found.len() {
            if found[at].header.is_none() && found[at].is_of_history {
                found[at].continues = self.continued_by(&found[at], found);
            }
        }
    }

    /// Adds where the log continues in segments that share their number: those of a side that was not taken, whose
    /// epochs, like those of the others, are older than the history.
    pub(super) fn tell_apart(&self, found: &mut [FoundSegment]) {
        let mut with_number: BTreeMap<SegmentNumber, usize> = BTreeMap::new();
        let of_history = || found.iter().filter(|one| one.is_of_history);
        of_history().for_each(|one| *with_number.entry(one.id.number).or_default() += 1);
        let continued: Vec<Continued> = of_history().filter_map(|one| one.continues).collect();
        for one in found.iter_mut().filter(|one| one.is_of_history && with_number[&one.id.number] > 1) {
            let number = one.id.number;
            let end_of = |met: Committed| Continued {
                segment: number,
                offset: met.end,
                sequence: met.commit.sequence,
                chain: met.commit.chain(),
            };
            one.continued_at = self.commits(one).map(end_of).filter(|end| continued.contains(end)).collect();
        }
    }

    fn continued_by(&self, one: &FoundSegment, all: &[FoundSegment]) -> Option<Continued> {
        let first = self.commits(one).next().filter(|first| first.commit.begin == FIRST_BATCH_AT)?.commit;
        let (sequence, chain) = (BatchSequence(first.sequence.0.checked_sub(1)?), first.chain_before);
        let is_before = |other: &&FoundSegment| other.is_of_history && other.id.number < one.id.number;
        let mut before: Vec<&FoundSegment> = all.iter().filter(is_before).collect();
        before.sort_by_key(|other| Reverse(other.id.number));
        before.into_iter().find_map(|other| {
            let is_it = |met: &Committed| met.commit.sequence == sequence && met.commit.chain() == chain;
            let met = self.commits(other).find(is_it)?;
            Some(Continued { segment: other.id.number, offset: met.end, sequence, chain })
        })
    }

    /// The intact commits of a segment.
    fn commits(&self, found: &FoundSegment) -> impl Iterator<Item = Committed> {
        let mut scan = self.scan(found.id, &found.devices, LogOffset::START);
        std::iter::from_fn(move || {
            loop {
                if let ScanStep::Commit(committed, ..) = scan.next(false)? {
                    return Some(committed);
                }
            }
        })
    }
}
