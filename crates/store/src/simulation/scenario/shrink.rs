//! Shrinking a failing scenario to the fewest steps: first to the shortest prefix, then without each step that is not
//! needed.

use super::Scenario;
use super::play::Failure;

/// Most scenarios that are tried.
const MOST_TRIALS: usize = 400;

/// A scenario that violates the same law, and its failure. No step of it can be left out, unless [`MOST_TRIALS`] did
/// not suffice to find that.
pub(crate) fn shrink(
    scenario: &Scenario,
    failure: Failure,
    play: impl Fn(&Scenario) -> Result<u64, Failure>,
) -> (Scenario, Failure) {
    let mut least = scenario.clone();
    least.steps.truncate(failure.step + 1);
    let mut failure = failure;
    let (mut trials, mut has_changed) = (0, true);
    while has_changed {
        has_changed = false;
        for at in (0..least.steps.len()).rev() {
            if trials >= MOST_TRIALS {
                return (least, failure);
            }
            trials += 1;
            let mut fewer = least.clone();
            fewer.steps.remove(at);
            if let Err(other) = play(&fewer)
                && other.law() == failure.law()
            {
                fewer.steps.truncate(other.step + 1);
                (least, failure, has_changed) = (fewer, other, true);
                break;
            }
        }
    }
    (least, failure)
}
