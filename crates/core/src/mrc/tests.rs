//! Curves compared with a cache that is simulated block by block, one size at a time; samples compared with exact
//! curves.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::curve::Curve;
use super::device::Device;
use super::policy::Policy;
use super::recorder::{BYTES_FOR_EACH_BLOCK, Recorder, Sampling};
use super::request::{Event, Kind, Request};
use super::study::{self, StudyRequest, TraceResult, Writes};
use super::table::scatter;
use crate::progress::Progress;

fn wanted(block_sizes_bytes: &[u64], cache_sizes_bytes: &[u64]) -> StudyRequest {
    StudyRequest {
        block_sizes_bytes: block_sizes_bytes.to_vec(),
        cache_sizes_bytes: cache_sizes_bytes.to_vec(),
        rate: 1.0,
        most_blocks: None,
        memory_bytes: 1 << 30,
        policies: Vec::new(),
        writes: Writes::Back,
        device: Device::named("disk").unwrap(),
        base_seconds: 0.0,
        targets: Vec::new(),
        longest_bytes: 1 << 40,
        threads: 2,
    }
}

fn study(wanted: &StudyRequest, events: &[Event]) -> TraceResult {
    let mut events = events.iter().copied();
    study::run(wanted, &mut || Ok(events.next()), &Progress::default()).unwrap()
}

/// Figures of a cache.
#[derive(Debug, Default, PartialEq, Clone, Copy)]
struct Did {
    references: u64,
    misses: u64,
    fetched: u64,
    fetches: u64,
    written_back: u64,
}

/// A straightforward cache: a list of blocks, the last used at the end; files as sets of bytes.
struct Naive {
    blocks: usize,
    block_bytes: u64,
    list: Vec<((u64, u64), bool)>,
    /// Sizes of files, by number.
    sizes: Vec<u64>,
    did: Did,
}

impl Naive {
    fn run(blocks: usize, block_bytes: u64, events: &[Event]) -> Did {
        let mut naive = Naive { blocks, block_bytes, list: Vec::new(), sizes: vec![0; 16], did: Did::default() };
        events.iter().for_each(|event| naive.take(event));
        naive.did.written_back += naive.list.iter().filter(|(_, dirty)| *dirty).count() as u64;
        naive.did
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Size { file, size_bytes } => {
                self.sizes[file as usize] = self.sizes[file as usize].max(size_bytes);
            }
            Event::Cut { file, size_bytes } => {
                self.sizes[file as usize] = self.sizes[file as usize].min(size_bytes);
                let block_bytes = self.block_bytes;
                self.list.retain(|&((of, place), _)| of != file || place * block_bytes < size_bytes);
            }
            Event::Request(request) => self.request(&request),
        }
    }

    fn request(&mut self, request: &Request) {
        let (begin, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes);
        let size = self.sizes[request.file as usize];
        let bytes: BTreeSet<u64> = (begin..end).collect();
        let mut fetched_before = false;
        for place in bytes.iter().map(|byte| byte / self.block_bytes).collect::<BTreeSet<u64>>() {
            let all = place * self.block_bytes..(place + 1) * self.block_bytes;
            let stays = all.clone().any(|byte| byte < size && !bytes.contains(&byte));
            let fetches = !request.is_write || stays;
            let hit = self.refer((request.file, place), request.is_write);
            self.did.references += 1;
            self.did.misses += u64::from(!hit);
            let fetched = !hit && fetches;
            self.did.fetched += u64::from(fetched);
            self.did.fetches += u64::from(fetched && !fetched_before);
            fetched_before = fetched;
        }
        self.sizes[request.file as usize] = size.max(end);
    }

    fn refer(&mut self, block: (u64, u64), is_write: bool) -> bool {
        let found = self.list.iter().position(|(key, _)| *key == block);
        let dirty = found.map(|at| self.list.remove(at).1);
        self.list.push((block, dirty.unwrap_or(false) || is_write));
        if self.list.len() > self.blocks {
            self.did.written_back += u64::from(self.list.remove(0).1);
        }
        dirty.is_some()
    }
}

fn did(curve: &Curve, blocks: u64) -> Did {
    let at = curve.at(blocks);
    let references = curve.references.all();
    Did {
        references,
        misses: (at.miss_ratio * references as f64).round() as u64,
        fetched: at.fetched_blocks as u64,
        fetches: at.fetches as u64,
        written_back: at.written_back_blocks as u64,
    }
}

fn an_event() -> impl Strategy<Value = Event> {
    let request = |file, offset_bytes, length_bytes, is_write| {
        Event::Request(Request { file, offset_bytes, length_bytes, is_write })
    };
    prop_oneof![
        8 => (0u64..4, 0u64..60, 1u64..40, any::<bool>()).prop_map(move |(f, o, l, w)| request(f, o, l, w)),
        2 => (0u64..4, Just(0u64), 1u64..60, Just(false)).prop_map(move |(f, o, l, w)| request(f, o, l, w)),
        1 => (0u64..4, 0u64..60).prop_map(|(file, size_bytes)| Event::Cut { file, size_bytes }),
        1 => (0u64..4).prop_map(|file| Event::Cut { file, size_bytes: 0 }),
        1 => (0u64..4, 0u64..80).prop_map(|(file, size_bytes)| Event::Size { file, size_bytes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_curve_is_what_caches_of_each_size_do(
        events in proptest::collection::vec(an_event(), 1..120),
        block_bytes in 1u64..17,
    ) {
        let found = study(&wanted(&[block_bytes], &[1 << 10]), &events);
        let (_, curve) = &found.curves[0];
        for blocks in (1..14).chain([17, 23, 40, 89]) {
            prop_assert_eq!(did(curve, blocks), Naive::run(blocks as usize, block_bytes, &events), "{} blocks", blocks);
        }
    }

    #[test]
    fn the_least_cache_is_the_least(events in proptest::collection::vec(an_event(), 1..80), wish in 0.0f64..1.0) {
        let found = study(&wanted(&[4], &[64]), &events);
        let (_, curve) = &found.curves[0];
        match curve.least_blocks(wish) {
            None => prop_assert!(curve.compulsory_ratio() > wish),
            Some(blocks) => {
                prop_assert!(curve.at(blocks).miss_ratio <= wish + 1e-9);
                prop_assert!(blocks == 0 || curve.at(blocks - 1).miss_ratio > wish);
            }
        }
        let enough = curve.enough_blocks();
        prop_assert_eq!(curve.at(enough).miss_ratio, curve.compulsory_ratio());
        prop_assert!(enough == 0 || curve.at(enough - 1).miss_ratio > curve.compulsory_ratio());
        prop_assert_eq!(curve.sizes().last().copied(), Some(enough));
    }

    #[test]
    fn simulated_lru_is_the_curve(events in proptest::collection::vec(an_event(), 1..120), blocks in 1u64..30) {
        let wanted = StudyRequest { policies: vec![Policy::Lru], ..wanted(&[4, 8], &[blocks * 8]) };
        let found = study(&wanted, &events);
        for ((block_bytes, curve), cell) in found.curves.iter().zip(&found.policies) {
            prop_assert_eq!(cell.block_bytes, *block_bytes);
            prop_assert_eq!(cell.miss_ratio, Some(curve.at(blocks * 8 / block_bytes).miss_ratio));
        }
    }
}

/// Numbers of blocks: some are much more popular than others, and sometimes a scan reads a part of them.
fn popular(count: u64, blocks: u64) -> impl Iterator<Item = u64> {
    let mut state = 7u64;
    (0..count).map(move |number| {
        state = scatter(state);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        let phase = number / (count / 20);
        match phase % 5 {
            4 => (scatter(phase) + number) % blocks,
            _ => scatter((blocks as f64).powf(uniform) as u64) % blocks,
        }
    })
}

fn record(sampling: Sampling, watched: &[u64], keys: impl Iterator<Item = u64>) -> Curve {
    let mut recorder = Recorder::new(sampling, watched);
    keys.for_each(|key| recorder.refer(key, Kind::Read, false));
    recorder.finish()
}

const WATCHED: [u64; 7] = [1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 150_000];

#[test]
fn samples_are_within_a_hundredth_of_the_exact_curve() {
    let trace = || popular(2_000_000, 200_000);
    let exact = record(Sampling::within(1 << 30), &WATCHED, trace());
    assert!(exact.is_exact() && exact.at(1_000).miss_ratio > exact.at(100_000).miss_ratio + 0.1);
    for (name, sampling) in [
        ("a tenth", Sampling { rate: 0.1, most_blocks: u64::MAX }),
        ("a fiftieth", Sampling { rate: 0.02, most_blocks: u64::MAX }),
        ("16,384 blocks", Sampling { rate: 1.0, most_blocks: 16_384 }),
        ("8,192 blocks of a half", Sampling { rate: 0.5, most_blocks: 8_192 }),
    ] {
        let sampled = record(sampling, &WATCHED, trace());
        assert!(!sampled.is_exact());
        let difference = |&size: &u64| (exact.at(size).miss_ratio - sampled.at(size).miss_ratio).abs();
        // If the cache holds only a few sampled blocks, a sample says little.
        let sizes = |least: f64| exact.sizes().into_iter().filter(move |&size| size as f64 * sampled.rate >= least);
        for size in sizes(1_000.0) {
            assert!(difference(&size) < 0.01, "{name}, {size} blocks: off by {}", difference(&size));
        }
        let mean = sizes(50.0).map(|size| difference(&size)).sum::<f64>() / sizes(50.0).count() as f64;
        assert!(mean < 0.005, "{name}: off by {mean} on the mean");
        let outside = WATCHED.iter().filter(|size| difference(size) > 3.0 * sampled.error(**size).unwrap().max(1e-4));
        assert!(outside.count() <= 1, "{name}: the errors that it names are too small: {:?}", sampled.errors);
        let named = |(size, error): &(u64, f64)| *size as f64 * sampled.rate < 1_000.0 || *error < 0.01;
        assert!(sampled.errors.iter().all(named), "{name}: {:?}", sampled.errors);
        let blocks = sampled.blocks() / exact.blocks();
        assert!((0.95..1.05).contains(&blocks), "{name}: {blocks} of the blocks");
    }
}

#[test]
fn a_sample_finds_the_cliff_of_a_scan() {
    // Repeated scans: no hits at all in a cache that is one block too small, only hits in one that is not.
    let trace = || (0..1_000_000).map(|number| number % 200_000);
    let exact = record(Sampling::within(1 << 30), &WATCHED, trace());
    assert_eq!((exact.at(199_999).miss_ratio, exact.at(200_000).miss_ratio), (1.0, 0.2));
    let sampled = record(Sampling { rate: 0.1, most_blocks: u64::MAX }, &WATCHED, trace());
    let found = sampled.least_blocks(0.3).unwrap() as f64;
    assert!((found / 200_000.0 - 1.0).abs() < 0.02, "it is said to be at {found}");
    let sizes: Vec<u64> = (0..300).map(|part| part * 1_000).collect();
    let differences = sizes.iter().map(|&size| (exact.at(size).miss_ratio - sampled.at(size).miss_ratio).abs());
    let mean = differences.sum::<f64>() / sizes.len() as f64;
    assert!(mean < 0.01, "off by {mean} on the mean");
}

#[test]
fn small_samples_wait_until_they_say_something() {
    let sampling = Sampling { rate: 0.01, most_blocks: u64::MAX };
    let few = record(sampling, &WATCHED, popular(200_000, 10_000));
    assert!(few.is_exact());
    let many = record(sampling, &WATCHED, (0..3_000_000).chain(0..3_000_000));
    assert!((many.rate - 0.01).abs() < 1e-6, "{}", many.rate);
    // Each part of a long row of blocks is in the sample by its share.
    assert!((many.blocks() / 3_000_000.0 - 1.0).abs() < 1e-3, "{}", many.blocks());
    assert!((many.at(2_990_000).miss_ratio - 1.0).abs() < 0.01 && (many.at(3_010_000).miss_ratio - 0.5).abs() < 0.01);
}

#[test]
fn memory_is_bounded_and_beyond_it_a_sample_is_taken() {
    let bytes = 1u64 << 21;
    let sampling = Sampling::within(bytes);
    assert_eq!(sampling.most_blocks, bytes / BYTES_FOR_EACH_BLOCK);
    // Every block once, then all of them again: the greatest depth.
    let curve = record(sampling, &[100_000], (0..300_000).chain(0..300_000));
    assert!(!curve.is_exact());
    // The least number of slots, and the allocations of empty structures, are the same for every size.
    assert!(curve.memory_bytes < bytes + (1 << 16), "{} of {bytes}", curve.memory_bytes);
    assert!((curve.at(290_000).miss_ratio - 1.0).abs() < 0.01, "{:?}", curve.at(290_000));
    assert!((curve.at(310_000).miss_ratio - 0.5).abs() < 0.01, "{:?}", curve.at(310_000));
}

#[test]
fn samples_know_transfers_and_what_is_written_back() {
    // Files of 16 blocks, written and read as a whole, removed one time in twenty.
    let mut state = 3u64;
    let events: Vec<Event> = (0..120_000)
        .map(|number| {
            state = scatter(state);
            let file = state % 8_000;
            match number % 20 {
                19 => Event::Cut { file, size_bytes: 0 },
                _ => Event::Request(Request {
                    file,
                    offset_bytes: 0,
                    length_bytes: 16 << 10,
                    is_write: state >> 40 & 3 == 0,
                }),
            }
        })
        .collect();
    let size = 40_000;
    let exact = study(&wanted(&[1024], &[size << 10]), &events).curves.remove(0).1.at(size);
    for rate in [0.3, 0.5] {
        let found =
            study(&StudyRequest { rate, ..wanted(&[1024], &[size << 10]) }, &events).curves.remove(0).1.at(size);
        for (what, one, other) in [
            ("misses", exact.miss_ratio, found.miss_ratio),
            ("fetched", exact.fetched_blocks, found.fetched_blocks),
            ("fetches", exact.fetches, found.fetches),
            ("written back", exact.written_back_blocks, found.written_back_blocks),
        ] {
            assert!((other / one - 1.0).abs() < 0.08, "{what}: {one} is said to be {other}");
        }
    }
}

#[test]
fn the_same_comes_out_with_any_number_of_threads() {
    let events: Vec<Event> = popular(60_000, 5_000)
        .map(|block| {
            Event::Request(Request {
                file: block % 50,
                offset_bytes: block << 9,
                length_bytes: 3 << 9,
                is_write: block % 7 == 0,
            })
        })
        .collect();
    let sizes = [1 << 20, 4 << 20];
    let one = StudyRequest { threads: 1, policies: Policy::EVERY.to_vec(), ..wanted(&[512, 1024, 4096], &sizes) };
    let many = StudyRequest { threads: 3, ..one.clone() };
    let (a, b) = (study(&one, &events), study(&many, &events));
    assert_eq!(a.curves, b.curves);
    assert_eq!(a.policies, b.policies);
    assert_eq!(a.policies.len(), 6 * 3 * 2);
}

#[test]
fn policies_that_take_too_much_memory_are_left_out() {
    let events: Vec<Event> = (0..40_000)
        .map(|block| {
            Event::Request(Request { file: 0, offset_bytes: block << 12, length_bytes: 1 << 12, is_write: false })
        })
        .collect();
    let all =
        StudyRequest { policies: vec![Policy::Fifo], memory_bytes: 2 << 20, ..wanted(&[4096], &[1 << 20, 1 << 30]) };
    let found = study(&all, &events);
    assert_eq!(found.policies.iter().map(|cell| cell.miss_ratio).collect::<Vec<_>>(), [Some(1.0), None]);
}

#[test]
fn what_is_removed_leaves_the_simulated_caches_whatever_the_pass_remembers() {
    // A file that is emptied and written again: every reference is the first to its block.
    let write = |offset_bytes| Request { file: 0, offset_bytes, length_bytes: 40 << 10, is_write: true };
    let writes = || (0..500).map(|number| Event::Request(write(number * (40 << 10))));
    let emptied = Event::Cut { file: 0, size_bytes: 0 };
    let events: Vec<Event> = (0..20).flat_map(|_| std::iter::once(emptied).chain(writes())).collect();
    let policies = Policy::EVERY.to_vec();
    let exact = StudyRequest { policies, ..wanted(&[4096], &[64 << 20]) };
    // The pass remembers all blocks, a few of them, and fewer than the requested sample.
    for (rate, most_blocks) in [(1.0, None), (1.0, Some(1000)), (0.2, Some(300))] {
        let found = study(&StudyRequest { rate, most_blocks, ..exact.clone() }, &events);
        assert_eq!(found.curves[0].1.is_exact(), most_blocks.is_none());
        assert_eq!(found.policies.len(), 6);
        for cell in found.policies {
            let missed = cell.miss_ratio.unwrap();
            assert!(missed > if rate < 1.0 { 0.97 } else { 1.0 - 1e-9 }, "{:?}, {rate}: {missed}", cell.policy);
        }
    }
}

#[test]
fn an_error_of_the_source_ends_it_and_a_stop_keeps_what_there_is() {
    let wanted = wanted(&[4096], &[1 << 20]);
    let event = Event::Request(Request { file: 0, offset_bytes: 0, length_bytes: 1, is_write: false });
    let mut left = 10;
    let mut source = || {
        left -= 1;
        if left > 0 {
            Ok(Some(event))
        } else {
            Err(crate::error::Error::new(crate::error::ErrorKind::Corrupt, "read", "it is bad"))
        }
    };
    let progress = Progress::default();
    assert!(study::run(&wanted, &mut source, &progress).unwrap_err().to_string().contains("it is bad"));
    let mut events = 0;
    let mut endless = || {
        events += 1;
        if events > 10_000 {
            progress.stop();
        }
        Ok(Some(event))
    };
    let found = study::run(&wanted, &mut endless, &progress).unwrap();
    assert!(!found.complete && found.seen.reads > 10_000);
    assert_eq!(found.curves[0].1.references.reads, found.seen.reads);
}
