//! Every fact that the paper states about its systems, in the tables and in the text, one by one.

use super::*;
use crate::distribution::distance;

fn population(name: &str) -> SystemPopulation {
    find(name).unwrap().population().unwrap()
}

fn measured_layout() -> Box<dyn crate::layout::Layout> {
    Model::parse(MEASURED_LAYOUT).unwrap().layout
}

/// Whether a figure is what a statement says; shares of the space may be a tenth of a percentage point off.
fn holds(statement: &Statement, figure: f64) -> bool {
    let is_of_space = matches!(statement.measure, Measure::SpaceFraction | Measure::SpaceBySpaceFraction);
    let rounding = if is_of_space { 1e-3 } else { 1e-6 };
    statement.least.is_none_or(|least| figure >= least - rounding)
        && statement.most.is_none_or(|most| figure <= most + rounding)
}

#[test]
fn there_are_65_with_the_figures_of_the_tables() {
    let systems = all();
    assert_eq!(systems.len(), 65);
    // "A total of nearly 600 million files."
    let files: u64 = systems.iter().map(|system| system.files).sum();
    assert!((595_000_000..605_000_000).contains(&files), "{files}");
    assert!(find("bio-2").is_some() && find("Uni-6").is_none());
    assert!(systems.iter().all(|system| u128::from(system.max_bytes) <= system.size_bytes + (1 << 20)));
    // The first row, to its last column.
    let uni_5 = &systems[0];
    assert_eq!((uni_5.name, uni_5.files, uni_5.directories), ("Uni-5", 139_440_887, 7_450_817));
    assert_eq!((uni_5.mean_bytes, uni_5.max_bytes), (3339 * KIB, 562_401_886 * KIB));
    assert_eq!((uni_5.directory_entries_mean, uni_5.directory_entries_max), (20, 100_000));
    assert_eq!((uni_5.name_length_mean, uni_5.name_length_max), (25, 254));
    // "The number of files counted for each system ranged from 139 million to just a few hundred, and the amount of
    // data in each system ranged from over 1500 TB to under 1TB."
    assert!(systems.iter().all(|system| (400..140_000_000).contains(&system.files)));
    let sizes = || systems.iter().map(|system| system.size_bytes);
    assert!(sizes().max() > Some(1500 * u128::from(TIB)) && sizes().min() < Some(TIB.into()));
    // "Ignoring the obvious outlier in the last row (Bio-2), the averages of the non-seismic systems range from 75 KB
    // to 49 MB."
    let others = || systems.iter().filter(|system| !system.name.starts_with("Sei") && system.name != "Bio-2");
    assert_eq!(others().map(|system| system.mean_bytes / KIB).min(), Some(75));
    assert_eq!(others().map(|system| system.mean_bytes / KIB).max(), Some(49_123));
    // "The largest directory was over 3 million files."
    assert_eq!(systems.iter().map(|system| system.directory_entries_max).max(), Some(3_188_509));
}

#[test]
fn the_mean_of_the_tables_is_bytes_by_files_but_for_lanl_9() {
    for system in all() {
        let mean = system.size_bytes as f64 / system.files as f64;
        let off = (mean / system.mean_bytes as f64 - 1.0).abs();
        let contradictions = system.population().unwrap().facts;
        let is_said = contradictions.iter().any(|fact| fact.words.contains("but their bytes and files give"));
        assert_eq!(off > 0.02, system.name == "LANL-9", "{}: {off}", system.name);
        assert_eq!(is_said, system.name == "LANL-9", "{}", system.name);
    }
}

#[test]
fn every_population_has_the_files_the_bytes_and_the_largest_file_of_the_tables() {
    for system in all() {
        let sizes = system.population().unwrap().sizes;
        assert_eq!(sizes.count(), u128::from(system.files), "{}", system.name);
        assert_eq!(sizes.total(), system.size_bytes, "{}", system.name);
        assert_eq!(sizes.max(), system.max_bytes, "{}", system.name);
    }
}

#[test]
fn every_statement_about_a_system_holds_for_its_population() {
    let (statements, layout) = (text::all(), measured_layout());
    let mut held = 0;
    for system in all() {
        let own: Vec<&Statement> = statements.iter().filter(|statement| statement.names(system.name)).collect();
        if own.is_empty() {
            continue;
        }
        let sizes = system.population().unwrap().sizes;
        for statement in own {
            let Some(figure) = statement.figure(&sizes, &*layout) else { continue };
            let is_conflict = statement.role == Role::Conflict;
            assert_eq!(holds(statement, figure), !is_conflict, "{}: {figure} for {statement:?}", system.name);
            held += 1;
        }
    }
    assert!(held >= 45, "{held}");
}

#[test]
fn published_shares_of_files_are_exact_to_a_file() {
    let files = |name: &str, low: u64, high: u64| text::files_between(&population(name).sizes, low, Some(high));
    assert_eq!(files("Fin-7", 0, 2048), 340_698);
    assert!(files("Fin-7", 0, 65_537).abs_diff(1_022_093) <= 1);
    assert!(files("Bio-1", 1 << 20, 4 << 20).abs_diff(581_455) <= 1);
    assert!(files("Bio-1", 0, 65_537) <= 8945);
    assert_eq!(files("Sei-1", 0, 2048), 6_000_001);
}

#[test]
fn shares_of_the_space_are_within_a_tenth_of_a_percentage_point() {
    let layout = measured_layout();
    for (name, high_bytes, share) in [("Fin-7", 16_777_217, 0.75), ("Bio-4", 262_144, 0.75)] {
        let sizes = population(name).sizes;
        let is_it = |statement: &&Statement| statement.names(name) && statement.high_bytes == Some(high_bytes);
        let statement = text::all().into_iter().find(|statement| is_it(&statement)).unwrap();
        let figure = statement.figure(&sizes, &*layout).unwrap();
        assert!((figure - share).abs() < 1e-3, "{name}: {figure}");
    }
}

#[test]
fn the_modes_of_lanl_7_stand_out() {
    let sizes = population("LANL-7").sizes;
    let modes: Vec<Statement> =
        text::all().into_iter().filter(|statement| statement.measure == Measure::Mode).collect();
    assert_eq!(modes.len(), 5);
    for mode in modes {
        let octave = |low: u64| text::files_between(&sizes, low, Some(2 * low));
        let (below, at, above) = (octave(mode.low_bytes / 2), octave(mode.low_bytes), octave(2 * mode.low_bytes));
        assert!(at > below && at > above, "{below} {at} {above} at {}", mode.low_bytes);
    }
}

#[test]
fn fin_16_to_fin_21_are_almost_identical_and_fin_15_is_not() {
    let sizes = |number: u32| population(&format!("Fin-{number}")).sizes;
    let first = sizes(16);
    for number in 17..=21 {
        let off = distance(&first, &sizes(number)).by_count;
        assert!(off < 0.01, "Fin-{number}: {off}");
    }
    assert!(distance(&first, &sizes(15)).by_count > 0.1);
}

#[test]
fn what_is_said_of_all_and_of_most_systems_holds() {
    let (systems, layout) = (all(), measured_layout());
    let by_largest: Vec<Statement> =
        text::all().into_iter().filter(|statement| statement.measure == Measure::SystemsByLargest).collect();
    assert_eq!(by_largest.len(), 2);
    for statement in by_largest {
        let is_inside = |max: u64| max >= statement.low_bytes && statement.high_bytes.is_none_or(|high| max < high);
        let many = systems.iter().filter(|system| is_inside(system.max_bytes)).count();
        assert!(holds(&statement, many as f64), "{many} for {statement:?}");
    }
    let populations: Vec<Distribution> = systems.iter().map(|system| system.population().unwrap().sizes).collect();
    let of_some: Vec<Statement> = text::all().into_iter().filter(|statement| statement.is_of_some()).collect();
    assert_eq!(of_some.len(), 1);
    for statement in of_some {
        let of_finance = systems.iter().zip(&populations).filter(|(system, _)| system.name.starts_with("Fin"));
        let is_held = |sizes: &Distribution| holds(&statement, statement.figure(sizes, &*layout).unwrap());
        let many = of_finance.filter(|(_, sizes)| is_held(sizes)).count();
        assert!(many >= 3, "{many} for {statement:?}");
    }
    let of_most: Vec<Statement> = text::all().into_iter().filter(|statement| statement.is_of_most()).collect();
    assert_eq!(of_most.len(), 3);
    for statement in of_most {
        let is_held = |sizes: &&Distribution| holds(&statement, statement.figure(sizes, &*layout).unwrap());
        let many = populations.iter().filter(is_held).count();
        assert!(many > 40, "{many} for {statement:?}");
    }
}

#[test]
fn facts_say_what_is_published_and_what_is_assumed() {
    let facts = population("Fin-7").facts;
    let of = |kind| facts.iter().filter(|fact| fact.kind == kind).map(|fact| fact.words.as_str()).collect::<Vec<_>>();
    let published = of(FactKind::Published);
    assert!(published[0].starts_with("1,703,488 files with 665 GiB in total"), "{published:?}");
    assert!(published.contains(&"60.0 % of the files are of 64 KiB or less"), "{published:?}");
    assert!(published[1].contains("442 directories with 3,855 entries on average and at most 15,541"));
    assert_eq!(of(FactKind::Typical), Vec::<&str>::new());
    assert_eq!(of(FactKind::Assumed).len(), 1);
    assert_eq!(of(FactKind::Contradiction).len(), 1);
    let shares: Vec<&Fact> = facts.iter().filter(|fact| fact.least == Some(0.6)).collect();
    assert!((shares[0].fitted.unwrap() - 0.6).abs() < 1e-6 && shares[0].source.starts_with("section IV.C"));
    // Of a system that the text does not name, only what is said of most.
    let facts = population("Uni-5").facts;
    assert_eq!(facts.iter().filter(|fact| fact.kind == FactKind::Typical).count(), 2);
    let bio_2 = population("Bio-2").facts;
    assert_eq!(bio_2.iter().filter(|fact| fact.kind == FactKind::Typical).count(), 0);
    assert!(bio_2.iter().any(|fact| fact.words.contains("almost 8TB")));
}

#[test]
fn what_is_assumed_lies_between_what_is_certain() {
    for system in assess_all().unwrap() {
        let shares = system.shares;
        let assumed = shares.descriptors_assumed_fraction;
        let (least, most) = (shares.descriptors_least_fraction, shares.descriptors_most_fraction);
        assert!(
            least * 0.999 <= assumed && assumed <= most * 1.001,
            "{least} {assumed} {most}: {}",
            system.system.name
        );
    }
}
