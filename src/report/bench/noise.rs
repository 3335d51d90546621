//! Where the figures of a bench are not to be trusted: differences between targets that are no larger than the spread
//! of their own samples, and a machine that was busy with something else.

use super::words::Rounds;
use crate::bench::result::{Details, Document, Series};
use crate::units::format_share;

/// Measures that one warning names.
const NAMED: usize = 4;
/// A load average above this many for each processor before a run is another's.
const BUSY: f64 = 0.5;

/// Warnings, the most serious first; empty if there is nothing to warn of.
pub(super) fn warnings(document: &Document) -> Vec<String> {
    busy(document).into_iter().chain(noisy(document)).chain(noisy_growth(document)).collect()
}

/// What the machine did besides.
fn busy(document: &Document) -> Option<String> {
    let host = &document.host;
    let most = BUSY * host.cpus.max(1) as f64;
    (host.load_before > most).then(|| {
        format!(
            "The machine was busy before the run: a load average of {:.1} on {} {}. Measure again when it is idle.",
            host.load_before,
            host.cpus,
            if host.cpus == 1 { "processor" } else { "processors" },
        )
    })
}

/// Where rounds differ by more than the last creations of a target do from its first ones.
fn noisy_growth(document: &Document) -> Option<String> {
    let Details::Create(details) = &document.details else { return None };
    let is_noise = |at: usize| {
        let phases = || details.phases.iter().filter(move |phase| phase.subject == at && phase.phase == "create");
        let first: Vec<f64> = phases().map(|phase| phase.latencies.first_mean_ns).collect();
        let last: Vec<f64> = phases().map(|phase| phase.latencies.last_mean_ns).collect();
        Rounds::of(&first, &last).is_some_and(|rounds| rounds.is_noise)
    };
    let subjects = document.subjects.iter().enumerate();
    let names: Vec<&str> = subjects.filter(|(at, _)| is_noise(*at)).map(|(_, subject)| subject.name.as_str()).collect();
    let further = names.len().saturating_sub(NAMED);
    let more = if further > 0 { format!(" and {further} more") } else { String::new() };
    (!names.is_empty()).then(|| {
        format!(
            "Noise is larger than the effect: rounds differ by more than the last creations do from the first ({}{more}). \
             More rounds may tell whether creating files becomes slower.",
            names[..names.len().min(NAMED)].join(", "),
        )
    })
}

/// Two targets and how far apart they are, and how far their samples are spread.
struct Compared {
    measure: String,
    effect: f64,
    noise: f64,
}

/// The measures whose fastest two targets differ by less than their samples do.
fn noisy(document: &Document) -> Option<String> {
    let mut seen: Vec<&Series> = Vec::new();
    let mut found = Vec::new();
    for series in &document.series {
        let is_same = |other: &Series| {
            other.measure == series.measure
                && other.caches == series.caches
                && [other.level, other.second_level] == [series.level, series.second_level]
        };
        if seen.iter().any(|other| is_same(other)) {
            continue;
        }
        seen.push(series);
        let together: Vec<&Series> = document.series.iter().filter(|other| is_same(other)).collect();
        found.extend(compared(series, &together).filter(|pair| pair.noise > pair.effect));
    }
    found.sort_by(|a, b| (b.noise - b.effect).total_cmp(&(a.noise - a.effect)));
    let worst = found.first()?;
    let mut names: Vec<&str> = Vec::new();
    for pair in &found {
        if !names.contains(&pair.measure.as_str()) {
            names.push(&pair.measure);
        }
    }
    let further = names.len().saturating_sub(NAMED);
    let names = names[..names.len().min(NAMED)].join(", ");
    let further = if further > 0 { format!(" and {further} more") } else { String::new() };
    Some(format!(
        "Noise is larger than the effect: the two best targets differ by less than their samples ({names}{further}; \
         {}: {} apart, samples spread over {}). More rounds may tell them apart.",
        worst.measure,
        format_share(worst.effect),
        format_share(worst.noise),
    ))
}

/// The two best of the targets of a measure: their distance, and the larger of the ranges of their samples, both as a
/// share of the smaller median.
fn compared(series: &Series, together: &[&Series]) -> Option<Compared> {
    let mut sampled: Vec<&&Series> = together.iter().filter(|other| other.spread.count > 1).collect();
    let is_rate = series.unit.ends_with("/s");
    sampled.sort_by(|a, b| {
        let order = a.spread.median.total_cmp(&b.spread.median);
        if is_rate { order.reverse() } else { order }
    });
    let [best, next, ..] = sampled[..] else { return None };
    if best.subject == next.subject {
        return None;
    }
    let least = best.spread.median.min(next.spread.median);
    let range = |of: &Series| of.spread.max - of.spread.min;
    (least > 0.0).then(|| Compared {
        measure: series.measure.clone(),
        effect: (best.spread.median - next.spread.median).abs() / least,
        noise: range(best).max(range(next)) / least,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::CacheState;

    fn pair(a: &[f64], b: &[f64], unit: &str) -> Option<Compared> {
        let of = |subject, samples: &[f64]| Series::new(subject, "read", unit, CacheState::Cold, samples.to_vec());
        let (a, b) = (of(0, a), of(1, b));
        compared(&a, &[&a, &b])
    }

    #[test]
    fn the_growth_of_a_time_is_compared_with_its_rounds() {
        let rounds = Rounds::of(&[1.0, 1.0, 3.0], &[1.2, 1.1, 3.9]).unwrap();
        assert!(rounds.is_noise && rounds.count == 3, "1.2 times as long, and rounds differ 3 times");
        let rounds = Rounds::of(&[1.0, 1.1], &[4.0, 4.4]).unwrap();
        assert!(!rounds.is_noise && (rounds.least, rounds.most) == (4.0, 4.0));
        assert!(Rounds::of(&[1.0], &[2.0]).is_none(), "one round has no spread");
    }

    #[test]
    fn noise_is_compared_with_the_effect() {
        let found = pair(&[1.0, 1.0, 1.3], &[1.1, 1.1, 1.1], "seconds").unwrap();
        assert!((found.effect - 0.1).abs() < 1e-9 && (found.noise - 0.3).abs() < 1e-9);
        let found = pair(&[2.0, 2.01, 2.02], &[1.0, 1.0, 1.0], "operations/s").unwrap();
        assert!(found.noise < found.effect);
        assert!(pair(&[1.0], &[2.0, 2.0], "seconds").is_none(), "one sample has no spread");
    }
}
