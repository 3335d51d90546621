//! Random scenarios: as many as are asked for.

use super::draw::draw;
use super::play::play;
use super::shrink::shrink;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `GRANULO_CRASH_POINTS` openings (2,000), from `GRANULO_CRASH_SEED` (1); or the one of `GRANULO_SCENARIO`.
#[test]
#[ignore = "laws 1 to 9 come one after the other"]
fn random_scenarios_keep_the_laws() {
    let only = number("GRANULO_SCENARIO");
    let points = number("GRANULO_CRASH_POINTS").unwrap_or(2000);
    let mut tried = 0;
    for seed in only.or(number("GRANULO_CRASH_SEED")).unwrap_or(1).. {
        let scenario = draw(seed);
        match play(&scenario) {
            Ok(count) => tried += count,
            Err(failure) => {
                let (least, of_least) = shrink(&scenario, failure);
                panic!(
                    "seed {seed}, {of_least}\n{least:#?}\nrepeat it with GRANULO_SCENARIO={seed} cargo test -p granulo-store --lib random_scenarios"
                );
            }
        }
        if only.is_some() || tried >= points {
            break;
        }
    }
}
