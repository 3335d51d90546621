//! The order of the last references to blocks: a bit for each reference that is still the last of its block, counted in
//! groups.
//!
//! Each reference uses the next slot. The number of different blocks after a slot is a sum over whole groups (a Fenwick
//! tree) plus a count of bits in one group. When all slots are used, those that are still set are renumbered in the
//! same order.

const WORD_BITS: u32 = 64;
const GROUP_WORDS: usize = 16;
const GROUP_BITS: u32 = GROUP_WORDS as u32 * WORD_BITS;
/// Least number of slots.
const LEAST_SLOTS: usize = 1 << 16;
/// Slots per set slot after renumbering: a trade-off between its frequency and the memory of the bits.
const SLOTS_FOR_EACH: usize = 4;

/// The slots.
#[derive(Debug)]
pub(super) struct Order {
    words: Vec<u64>,
    /// A Fenwick tree of the set slots in each group before the current one.
    sums: Vec<u32>,
    /// The slot that is used next.
    next: u32,
    /// Number of set slots.
    set: u32,
    /// Number of set slots in groups before the current one.
    closed: u32,
}

/// The new numbers of slots.
#[derive(Debug)]
pub(super) struct Renumbered {
    words: Vec<u64>,
    before: Vec<u32>,
}

impl Order {
    pub(super) fn new() -> Order {
        Order::with_set(0)
    }

    /// With the first `set` slots set, and room for more. Slots are 32 bits: at most 2³⁰ may be set.
    fn with_set(set: u32) -> Order {
        let slots = (set as usize * SLOTS_FOR_EACH).max(LEAST_SLOTS).next_multiple_of(GROUP_BITS as usize);
        let groups = slots / GROUP_BITS as usize;
        let mut words = vec![0; groups * GROUP_WORDS];
        words[..(set / WORD_BITS) as usize].fill(u64::MAX);
        if !set.is_multiple_of(WORD_BITS) {
            words[(set / WORD_BITS) as usize] = (1 << (set % WORD_BITS)) - 1;
        }
        let mut order = Order { words, sums: vec![0; groups + 1], next: set, set, closed: 0 };
        (0..set / GROUP_BITS).for_each(|group| order.close(group));
        order
    }

    /// Whether no slot is left and renumbering is due.
    pub(super) fn is_full(&self) -> bool {
        self.next as usize == self.words.len() * WORD_BITS as usize
    }

    /// Uses the next slot.
    pub(super) fn push(&mut self) -> u32 {
        let slot = self.next;
        self.words[(slot / WORD_BITS) as usize] |= 1 << (slot % WORD_BITS);
        self.next += 1;
        self.set += 1;
        if self.next.is_multiple_of(GROUP_BITS) {
            self.close(slot / GROUP_BITS);
        }
        slot
    }

    /// How many set slots are later than this one.
    pub(super) fn later(&self, slot: u32) -> u32 {
        let (group, word) = (slot / GROUP_BITS, (slot / WORD_BITS) as usize);
        let before = if group == self.next / GROUP_BITS { self.closed } else { self.sum_before(group) };
        let first = group as usize * GROUP_WORDS;
        let whole: u32 = self.words[first..word].iter().map(|word| word.count_ones()).sum();
        let through = u64::MAX >> (WORD_BITS - 1 - slot % WORD_BITS);
        self.set - before - whole - (self.words[word] & through).count_ones()
    }

    /// Clears a slot.
    pub(super) fn clear(&mut self, slot: u32) {
        self.words[(slot / WORD_BITS) as usize] &= !(1 << (slot % WORD_BITS));
        self.set -= 1;
        let group = slot / GROUP_BITS;
        if group != self.next / GROUP_BITS {
            self.closed -= 1;
            let mut at = group as usize + 1;
            while at < self.sums.len() {
                self.sums[at] -= 1;
                at += at & at.wrapping_neg();
            }
        }
    }

    /// Renumbers the set slots from 0, in the same order.
    pub(super) fn renumber(&mut self) -> Renumbered {
        let renewed = Order::with_set(self.set);
        let words = std::mem::replace(self, renewed).words;
        let mut sum = 0;
        let count = |word: &u64| {
            let before = sum;
            sum += word.count_ones();
            before
        };
        let before = words.iter().map(count).collect();
        Renumbered { words, before }
    }

    /// Reads what [`Self::later`] reads for a slot, to bring it into the processor's cache: a group spans two cache
    /// lines.
    pub(super) fn touch(&self, slot: u32) -> u64 {
        let word = |slot: u32| self.words.get((slot / WORD_BITS) as usize).copied().unwrap_or(0);
        word(slot) ^ word(slot / GROUP_BITS * GROUP_BITS)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>() + self.sums.len() * size_of::<u32>()
    }

    fn close(&mut self, group: u32) {
        let first = group as usize * GROUP_WORDS;
        let set: u32 = self.words[first..first + GROUP_WORDS].iter().map(|word| word.count_ones()).sum();
        self.closed += set;
        let mut at = group as usize + 1;
        while at < self.sums.len() {
            self.sums[at] += set;
            at += at & at.wrapping_neg();
        }
    }

    fn sum_before(&self, group: u32) -> u32 {
        let (mut at, mut sum) = (group as usize, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
}

impl Renumbered {
    /// The new number of a slot that was set.
    pub(super) fn of(&self, slot: u32) -> u32 {
        let word = (slot / WORD_BITS) as usize;
        let earlier = (1u64 << (slot % WORD_BITS)) - 1;
        self.before[word] + (self.words[word] & earlier).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_are_counted_as_in_a_list(choices in proptest::collection::vec(any::<u32>(), 1..4000)) {
            // The set slots, oldest first.
            let (mut order, mut list) = (Order::new(), Vec::new());
            for (number, choice) in choices.into_iter().enumerate() {
                match choice % 5 {
                    0 if !list.is_empty() => {
                        let at = (choice / 5) as usize % list.len();
                        prop_assert_eq!(order.later(list[at]) as usize, list.len() - 1 - at);
                        order.clear(list.remove(at));
                    }
                    _ => list.push(order.push()),
                }
                if number % 1777 == 1776 {
                    let renumbered = order.renumber();
                    for (at, slot) in list.iter_mut().enumerate() {
                        *slot = renumbered.of(*slot);
                        prop_assert_eq!(*slot as usize, at);
                    }
                }
            }
            for (at, slot) in list.iter().enumerate() {
                prop_assert_eq!(order.later(*slot) as usize, list.len() - 1 - at);
            }
        }
    }

    #[test]
    fn it_is_full_when_every_slot_was_taken() {
        let mut order = Order::new();
        let mut slots: Vec<u32> = (0..LEAST_SLOTS).map(|_| order.push()).collect();
        assert!(order.is_full());
        slots.drain(..LEAST_SLOTS - 3).for_each(|slot| order.clear(slot));
        let renumbered = order.renumber();
        assert_eq!(slots.iter().map(|&slot| renumbered.of(slot)).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|slot| order.later(slot)), [2, 1, 0]);
        assert!(!order.is_full());
        assert_eq!(order.push(), 3);
    }
}
