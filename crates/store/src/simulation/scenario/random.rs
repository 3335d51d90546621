//! Random scenarios, in any number.

use std::collections::BTreeSet;

use super::super::workload::Durability;
use super::super::{goes_on, list, number};
use super::draw::draw;
use super::play::{Failure, play};
use super::shrink::shrink;
use super::{Scenario, Shape, Step, Work};

/// `GRANULO_CRASH_POINTS` opens (2,000), from `GRANULO_CRASH_SEED` (1); or the scenario `GRANULO_SCENARIO`. With
/// `GRANULO_GO_ON` all failures are listed.
#[test]
fn random_scenarios_keep_the_laws() {
    let only = number("GRANULO_SCENARIO");
    let points = number("GRANULO_CRASH_POINTS").unwrap_or(2000);
    let (mut tried, mut failed) = (0, 0);
    for seed in only.or(number("GRANULO_CRASH_SEED")).unwrap_or(1).. {
        let scenario = draw(seed);
        match play(&scenario) {
            Ok(count) => tried += count,
            Err(failure) if goes_on() && only.is_none() => {
                // About as many as in a scenario.
                (tried, failed) = (tried + 20, failed + 1);
                list(&format!("seed {seed}, {}", failure.to_string().replace('\n', " ")));
            }
            Err(failure) => {
                let (least, of_least) = shrink(&scenario, failure, play);
                panic!(
                    "seed {seed}, {of_least}\n{least}repeat it with GRANULO_SCENARIO={seed} cargo test -p granulo-store --lib random_scenarios"
                );
            }
        }
        if only.is_some() || tried >= points {
            break;
        }
    }
    assert_eq!(failed, 0, "scenarios failed");
}

/// Seeds that found something, in the store or in the model, and are not worth a name. They say less once `draw` draws
/// otherwise.
#[test]
fn scenarios_that_failed_once_keep_the_laws() {
    for seed in [
        202611267000003591,
        202611267000021701,
        202611267100001307,
        202611267100003705,
        202611267100009428,
        202611267100012939,
        202611267100013631,
        202611267100024435,
        202611267100035663,
        202611270000024068,
        202611270100009761,
        202611270100014869,
        202611270100043129,
        202611270100054233,
        202611270400011814,
        202611271000009803,
        202611271400012125,
        202611271400014807,
        202611290100009341,
        202611300000030545,
        202611300000053593,
        202611300100018541,
        202611300100030071,
        202611300100039762,
        202611300100053427,
        202611300100055084,
        202611300200033187,
        202611300300003635,
        202611300300025940,
        202611300500004162,
        202612020000033521,
        202612020000044584,
        202612030000011419,
        202612030100001214,
        202612030100033413,
        202612030100059000,
        202612040100005638,
        202612040100022806,
        202612070300073945,
    ] {
        play(&draw(seed)).unwrap_or_else(|failure| panic!("seed {seed}, {failure}"));
    }
}

/// A failure that needs a kill and then a close needs two steps of eleven.
#[test]
fn a_failure_is_told_with_as_few_steps_as_it_takes() {
    let batch = |seed| Step::Batch(Work::Small, Durability::Batch, seed);
    let mut steps: Vec<Step> = (0..4).map(batch).collect();
    steps.extend([Step::Kill, batch(5), Step::Sync, Step::Close, Step::Keep(0), batch(6), batch(7)]);
    let scenario = Scenario { shape: Shape::One, seed: 1, steps };
    let breaks = |scenario: &Scenario| {
        let kills = scenario.steps.contains(&Step::Kill);
        let at = scenario.steps.iter().position(|step| *step == Step::Close).filter(|_| kills);
        at.map_or(Ok(0), |step| Err(Failure { step, cause: "closed after a kill".to_owned() }))
    };
    let (least, failure) = shrink(&scenario, breaks(&scenario).unwrap_err(), breaks);
    assert_eq!(least.steps, [Step::Kill, Step::Close]);
    assert_eq!(failure.step, 1);
}

#[test]
fn a_seed_gives_the_same_scenario_and_all_kinds_of_steps() {
    let mut kinds = BTreeSet::new();
    let mut shapes = BTreeSet::new();
    for seed in 0..300 {
        let scenario = draw(seed);
        assert_eq!(scenario, draw(seed));
        shapes.insert(format!("{:?}", scenario.shape));
        for step in scenario.steps {
            kinds.insert(format!("{step:?}").split('(').next().unwrap().to_owned());
        }
    }
    // All except a look, which follows each step.
    assert_eq!((shapes.len(), kinds.len()), (6, 39), "{kinds:?}");
}
