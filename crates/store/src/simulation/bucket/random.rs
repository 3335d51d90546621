//! Random scenarios, in any number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::number;
use super::play::play;

/// `GRANULO_BUCKETS` scenarios (2,000), from `GRANULO_BUCKET_SEED` (1); or the one of `GRANULO_BUCKET`.
#[test]
fn random_buckets_keep_what_was_acknowledged() {
    let only = number("GRANULO_BUCKET");
    let count = number("GRANULO_BUCKETS").unwrap_or(2000);
    let first = number("GRANULO_BUCKET_SEED").unwrap_or(1);
    let seeds = only.map_or(first..first.saturating_add(count), |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let play_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return None;
            }
            if let Err((broken, _)) = play(seed, false) {
                next.store(seeds.end, Ordering::Relaxed);
                return Some((seed, broken));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = std::thread::scope(|scope| {
        let played: Vec<_> = (0..threads).map(|_| scope.spawn(play_some)).collect();
        played.into_iter().filter_map(|played| played.join().unwrap()).min()
    });
    if let Some((seed, broken)) = failed {
        let trace = play(seed, true).err().map_or_else(Vec::new, |(_, trace)| trace).join("\n");
        panic!(
            "{trace}\nseed {seed}: {broken}\nrepeat it with GRANULO_BUCKET={seed} cargo test -p granulo-store --lib random_buckets"
        );
    }
}

/// Otherwise what `play` asserts, its laws, would hold vacuously.
#[test]
fn every_kind_of_event_occurs() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=500 {
        // A scenario that breaks a law fails the test above.
        for (what, count) in play(seed, false).unwrap_or_default() {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in [
        "acknowledged",
        "published what was staged",
        "failed",
        "fenced",
        "unsettled",
        "an epoch began",
        "a manifest landed late",
        "collected",
        "read",
        "corrupt",
        "lost",
        "outdated",
    ] {
        assert!(seen.get(what).is_some_and(|&count| count >= 10), "{what} is seldom or never: {seen:?}");
    }
}
