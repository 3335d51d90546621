//! One pass over references to blocks: the reuse distance of each, and the figures of caches of every size that follow
//! from it.
//!
//! The *depth* of a block is the number of different blocks that were referenced since it was; a cache of `C` blocks
//! with LRU has it if `C` is larger. Every figure of a cache of `C` blocks is a sum over what was recorded at depths of
//! `C` or more (`noted`): a reference at depth `d` is a miss for all `C` up to `d`; a block that was written, and whose
//! depth was at most `m` between then and a reference at depth `d`, was written back by the caches with `m < C <= d`
//! (Thompson and Smith 1989); a block that is fetched together with its preceding neighbour at depth `p` begins a
//! transfer of its own if `p < C <= d`.
//!
//! The blocks of a removed file leave gaps. The next block that is inserted uses the uppermost gap above its former
//! place, as a cache uses a free place before it evicts anything.
//!
//! **Sampling** (SHARDS; Waldspurger, Park, Garthwaite and Ahmad 2015). Blocks whose number is below a cutoff represent
//! all; depths count sampled blocks, and a cache of `C` blocks becomes one of `C` times the rate. The cutoff is lowered
//! whenever more blocks would be remembered than allowed, and down to a requested rate as soon as there are enough
//! blocks. Ratios are relative to all references, not only the sampled ones (SHARDS-adj). The error is estimated from
//! 32 groups of the sampled blocks.
//!
//! Unlike in SHARDS, pairs of neighbours are sampled together, so that transfers can be estimated from them; and
//! numbers are not independent but distributed among neighbours (`is_below`), so that each part of a long file or of a
//! device is in the sample by its share.

use std::collections::BinaryHeap;

use super::curve::{Curve, References};
use super::noted::{Figure, NEVER, Noted};
use super::order::Order;
use super::request::{Kind, kept_within};
use super::table::{CLEAN, Entry, FREE, Table, scatter};

/// Most memory per remembered block.
pub const BYTES_FOR_EACH_BLOCK: u64 = 144;
/// Most blocks that can be remembered, whatever the memory.
const MOST_BLOCKS: u64 = 1 << 28;
/// The cutoff for all blocks.
const ALL: u64 = 1 << CUTOFF_BITS;
const CUTOFF_BITS: u32 = 24;
/// References that are looked up together.
const BATCH: usize = 64;
/// Groups of blocks for estimating the error.
const GROUPS: usize = 32;
/// A sample of fewer blocks says little: a requested rate waits until it would have as many.
const LEAST_SAMPLE: usize = 1 << 14;

/// Which blocks are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Share of the blocks, but no fewer than 16,384 of them.
    pub rate: f64,
    /// Most blocks that are remembered; beyond that the share is lowered.
    pub most_blocks: u64,
}

impl Sampling {
    /// All blocks, as long as this memory holds them.
    pub fn within(memory_bytes: u64) -> Sampling {
        Sampling { rate: 1.0, most_blocks: memory_bytes / BYTES_FOR_EACH_BLOCK }
    }

    fn cutoff(self) -> u64 {
        ((self.rate * ALL as f64).round() as u64).clamp(1, ALL)
    }
}

/// Whether this block is in a share of the blocks.
pub(super) fn is_sampled(key: u64, sampling: Sampling) -> bool {
    is_below(key, sampling.cutoff())
}

/// Whether the number of a block's pair of neighbours is below the cutoff.
///
/// Of two adjacent pairs one has 0 as the first binary digit of its number, at random; of two such twos, one of the two
/// pairs with 0 has 0 as the second, and so on: so that of any run of `2^n` pairs exactly one, at random, is in a
/// sample of `2^-n`.
fn is_below(key: u64, cutoff: u64) -> bool {
    if cutoff == ALL {
        return true;
    }
    let mut run = key >> 1;
    for digit in (0..CUTOFF_BITS).rev() {
        let half = run & 1;
        run >>= 1;
        let number = (half ^ scatter(run ^ (u64::from(digit) << 56)) >> 40) & 1;
        let wanted = cutoff >> digit & 1;
        if number != wanted {
            return number < wanted;
        }
    }
    false
}

/// Scrambles pairs of neighbouring blocks.
fn spread(key: u64) -> u64 {
    scatter(key >> 1)
}

/// The pass.
#[derive(Debug)]
pub struct Recorder {
    table: Table,
    order: Order,
    /// Slots of removed blocks whose places are still free: they stay set in `order`, and count in depths.
    gaps: BinaryHeap<u32>,
    noted: Noted,
    references: References,
    cutoff: u64,
    wished_cutoff: u64,
    most_blocks: usize,
    batch: Vec<Pending>,
    /// Depth of the preceding reference, if it fetches.
    before: Option<u32>,
    groups: Groups,
    highest_memory_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    key: u64,
    kind: Kind,
    /// Number of transfers that it represents if it begins one.
    weight: f32,
    joins: bool,
}

/// Misses of groups of blocks at watched cache sizes.
#[derive(Debug)]
struct Groups {
    sizes: Vec<u64>,
    /// Depths from which on they miss, at the current rate.
    limits: Vec<u32>,
    /// For each group, the references that this many of the sizes miss.
    misses: Vec<f64>,
}

impl Recorder {
    /// An empty pass. The error of a sample is estimated for caches of `watched` blocks.
    pub fn new(sampling: Sampling, watched: &[u64]) -> Recorder {
        let mut sizes = watched.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let groups = Groups { limits: Vec::new(), misses: vec![0.0; GROUPS * (sizes.len() + 1)], sizes };
        let most_blocks = sampling.most_blocks.clamp(GROUPS as u64, MOST_BLOCKS) as usize;
        let mut recorder = Recorder {
            table: Table::new(),
            order: Order::new(),
            gaps: BinaryHeap::new(),
            noted: Noted::default(),
            references: References::default(),
            cutoff: ALL,
            wished_cutoff: sampling.cutoff(),
            most_blocks,
            batch: Vec::with_capacity(BATCH),
            before: None,
            groups,
            highest_memory_bytes: 0,
        };
        recorder.groups.scale(recorder.rate(), 1.0);
        recorder
    }

    /// Current share of the blocks that is sampled.
    pub fn rate(&self) -> f64 {
        self.cutoff as f64 / ALL as f64
    }

    /// Records a reference. `joins`: the preceding one was to the preceding neighbour, in the same request.
    pub fn refer(&mut self, key: u64, kind: Kind, joins: bool) {
        self.references.count(kind, joins);
        let mut weight = 1.0;
        if self.cutoff < ALL {
            if !self.is_sampled(key) {
                return;
            }
            // Blocks are sampled in pairs. The predecessor of an odd block is in its pair, so both are sampled; that of
            // an even one need not be. So odd ones count twice, and even ones not at all.
            if joins {
                weight = if key % 2 == 1 { 2.0 } else { 0.0 };
            }
        }
        self.batch.push(Pending { key, kind, weight, joins });
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn is_sampled(&self, key: u64) -> bool {
        is_below(key, self.cutoff)
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        // Touching all of them first fetches their cache lines in parallel.
        let mut slots = [FREE; BATCH];
        batch.iter().zip(&mut slots).for_each(|(pending, slot)| *slot = self.table.first_slot(pending.key));
        std::hint::black_box(slots.iter().fold(0, |sum, &slot| sum ^ self.order.touch(slot)));
        for &pending in &batch {
            self.process(pending);
        }
        self.batch = batch;
        self.batch.clear();
    }

    fn process(&mut self, Pending { key, kind, weight, joins }: Pending) {
        if self.order.is_full() {
            self.renumber();
        }
        let depth = match self.table.find(key) {
            Ok(at) => self.refer_again(at, kind),
            Err(_) if !self.is_sampled(key) => return,
            Err(at) => {
                self.refer_first(at, key, kind);
                NEVER
            }
        };
        self.noted.add(depth, Figure::of(kind), 1.0);
        self.groups.count(spread(key), depth);
        let before = self.before.filter(|_| joins);
        if kind.fetches() {
            let begins = if before.is_none_or(|before| before < depth) { f64::from(weight) } else { 0.0 };
            if begins != 1.0 {
                self.noted.add(depth, Figure::Joined, 1.0 - begins);
            }
            if let Some(before) = before.filter(|_| begins > 0.0) {
                self.noted.add(before, Figure::Joined, begins);
            }
        }
        self.before = kind.fetches().then_some(depth);
        if self.table.count() > self.limit() {
            self.lower();
        }
    }

    /// Most blocks that are remembered, at the current rate.
    fn limit(&self) -> usize {
        if self.cutoff > self.wished_cutoff { self.most_blocks.min(LEAST_SAMPLE) } else { self.most_blocks }
    }

    /// A reference to a remembered block; returns its depth.
    fn refer_again(&mut self, at: usize, kind: Kind) -> u32 {
        let Entry { slot, dirty_from, .. } = *self.table.entry(at);
        let depth = self.order.later(slot);
        match self.gaps.peek() {
            // The uppermost gap above is used, and the place of the block becomes one.
            Some(&gap) if gap > slot => {
                self.order.clear(gap);
                self.gaps.pop();
                self.gaps.push(slot);
            }
            _ => self.order.clear(slot),
        }
        self.write_back(dirty_from, depth);
        let entry = self.table.entry(at);
        entry.slot = self.order.push();
        match kind {
            _ if kind.is_write() => entry.dirty_from = 1,
            _ if dirty_from != CLEAN => entry.dirty_from = dirty_from.max(depth + 1),
            _ => {}
        }
        depth
    }

    fn refer_first(&mut self, at: usize, key: u64, kind: Kind) {
        if let Some(gap) = self.gaps.pop() {
            self.order.clear(gap);
        }
        let dirty_from = if kind.is_write() { 1 } else { CLEAN };
        self.table.insert_at(at, Entry { key, slot: self.order.push(), dirty_from });
        if self.table.is_full() {
            self.table.grow();
            self.note_memory();
        }
    }

    /// Records a write-back for caches in which a block was dirty and that are too small to have kept it.
    fn write_back(&mut self, dirty_from: u32, depth: u32) {
        if dirty_from != CLEAN && dirty_from <= depth {
            self.noted.add(depth, Figure::Written, 1.0);
            self.noted.add(dirty_from - 1, Figure::Written, -1.0);
        }
    }

    /// The file of these blocks was truncated or removed: keys in the ranges leave the cache.
    pub fn forget(&mut self, ranges: &[(u64, u64)]) {
        self.flush();
        let table = &self.table;
        let kept = table.blocks().map(|entry| entry.key);
        for key in kept_within(ranges, table.count(), kept, |key| table.find(key).is_ok()) {
            if let Ok(at) = self.table.find(key) {
                let Entry { slot, dirty_from, .. } = *self.table.entry(at);
                let depth = self.order.later(slot);
                self.write_back(dirty_from, depth);
                self.gaps.push(slot);
                self.table.remove_at(at);
            }
        }
    }

    fn renumber(&mut self) {
        let new = self.order.renumber();
        self.table.blocks_mut().for_each(|entry| entry.slot = new.of(entry.slot));
        self.gaps = std::mem::take(&mut self.gaps).into_iter().map(|slot| new.of(slot)).collect();
        self.note_memory();
    }

    /// Lowers the share of remembered blocks until an eighth of them may be added.
    fn lower(&mut self) {
        while self.table.count() > self.limit() / 8 * 7 && self.cutoff > 1 {
            let before = self.rate();
            let lower = (self.cutoff / 8 * 7 + self.cutoff % 8 * 7 / 8).max(1);
            self.cutoff = if self.cutoff > self.wished_cutoff { lower.max(self.wished_cutoff) } else { lower };
            self.rescale(self.rate() / before);
        }
    }

    /// Drops the blocks above the cutoff, and rescales what was recorded as if they had never been remembered.
    fn rescale(&mut self, factor: f64) {
        self.note_memory();
        let (cutoff, order) = (self.cutoff, &mut self.order);
        self.table.retain(|entry| {
            let keep = is_below(entry.key, cutoff);
            if !keep {
                order.clear(entry.slot);
            }
            keep
        });
        let scaled = |depth: u32| (f64::from(depth) * factor).round() as u32;
        for entry in self.table.blocks_mut().filter(|entry| entry.dirty_from != CLEAN) {
            entry.dirty_from = scaled(entry.dirty_from - 1) + 1;
        }
        // Of the gaps, as large a part stays as of the blocks, evenly chosen.
        let gaps = std::mem::take(&mut self.gaps).into_sorted_vec();
        for (number, slot) in gaps.into_iter().enumerate() {
            let kept_of_first = |count: usize| (count as f64 * factor) as usize;
            if kept_of_first(number + 1) > kept_of_first(number) {
                self.gaps.push(slot);
            } else {
                self.order.clear(slot);
            }
        }
        self.noted.scale(factor, scaled);
        self.groups.scale(self.rate(), factor);
        self.before = None;
    }

    fn note_memory(&mut self) {
        let bytes = self.memory_bytes();
        self.highest_memory_bytes = self.highest_memory_bytes.max(bytes);
    }

    /// Its current memory.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.order.memory_bytes()
            + self.noted.memory_bytes()
            + self.gaps.capacity() * size_of::<u32>()
    }

    /// Ends the pass.
    pub fn finish(mut self) -> Curve {
        self.flush();
        self.note_memory();
        let dirty: Vec<u32> = self.table.blocks().map(|entry| entry.dirty_from).filter(|&from| from != CLEAN).collect();
        for dirty_from in dirty {
            self.noted.add(NEVER, Figure::Written, 1.0);
            self.noted.add(dirty_from - 1, Figure::Written, -1.0);
        }
        let rate = self.rate();
        let errors = self.groups.errors(self.references.all() as f64 * rate, rate);
        Curve::new(rate, self.references, self.noted, errors, self.highest_memory_bytes as u64)
    }
}

impl Groups {
    fn count(&mut self, spread: u64, depth: u32) {
        let missed = self.limits.iter().take_while(|&&limit| limit <= depth).count();
        self.misses[spread as usize % GROUPS * (self.sizes.len() + 1) + missed] += 1.0;
    }

    /// Continues at another rate.
    fn scale(&mut self, rate: f64, factor: f64) {
        self.limits = self.sizes.iter().map(|&size| (size as f64 * rate).ceil().min(f64::from(NEVER)) as u32).collect();
        self.misses.iter_mut().for_each(|misses| *misses *= factor);
    }

    /// Standard errors of the miss ratios of the watched sizes, for the expected number of sampled references.
    fn errors(&self, expected: f64, rate: f64) -> Vec<(u64, f64)> {
        let classes = self.sizes.len() + 1;
        let error = |(at, &size): (usize, &u64)| {
            let misses = |group: &[f64]| group[at + 1..].iter().sum::<f64>() * GROUPS as f64 / expected.max(1.0);
            let ratios: Vec<f64> = self.misses.chunks(classes).map(misses).collect();
            let mean = ratios.iter().sum::<f64>() / GROUPS as f64;
            let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
            // If nearly all blocks are in the sample, the error is nearly zero.
            (size, (squares / (GROUPS * (GROUPS - 1)) as f64 * (1.0 - rate)).sqrt())
        };
        self.sizes.iter().enumerate().map(error).collect()
    }
}
