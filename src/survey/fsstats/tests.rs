//! Tests of the fsstats reader and writer: round trips, odd files, damage.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::survey::{Method, Resolution, Survey};

const COMPLETE: &str = include_str!("../../../tests/data/fsstats/complete.csv");
const MERGED: &str = include_str!("../../../tests/data/fsstats/merged.csv");
const CUT_IN_FILE_SIZE: &str = include_str!("../../../tests/data/fsstats/cut_in_file_size.csv");
const CUT_IN_NAME_LENGTH: &str = include_str!("../../../tests/data/fsstats/cut_in_name_length.csv");
const GARBAGE: &str = include_str!("../../../tests/data/fsstats/garbage.csv");

fn written(survey: &Survey) -> String {
    let mut text = Vec::new();
    write(survey, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn refused(text: &str) -> (ErrorKind, String) {
    let error = read(text.as_bytes(), "x.csv").unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_file_of_fsstats_is_read_with_its_counts_and_sums() {
    let (survey, warnings) = read(COMPLETE.as_bytes(), "complete.csv").unwrap();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(survey.origin.name.as_deref(), Some("complete.csv"));
    assert_eq!((survey.origin.method, survey.origin.resolution), (Method::Fsstats, Resolution::Buckets));
    let counts = &survey.counts;
    assert_eq!((counts.files, counts.directories, counts.symlinks), (4321, 310, 120));
    assert_eq!((counts.special, counts.hard_links_skipped, counts.snapshot_directories_skipped), (7, 31, 2));
    assert_eq!((survey.size_bytes(), survey.allocated_bytes()), (298_583_063, 309_302_272));
    let sizes = survey.distributions.of(Measure::FileSize);
    assert_eq!((sizes.min(), sizes.max()), (0, 41_082_715));
    assert_eq!((sizes.up_to(2047).count, sizes.up_to(4095).count), (2058, 2485));
    // Overheads of files, directories and symlinks, in the buckets of their sizes.
    let overheads = [Measure::PositiveOverhead, Measure::NegativeOverhead].map(|m| survey.distributions.of(m).count());
    assert_eq!(overheads.iter().sum::<u128>(), 4321 + 310 + 120);
    let overhead: u128 = survey.overhead_by_size.positive().iter().map(|bucket| bucket.sum).sum();
    assert_eq!(overhead, survey.distributions.of(Measure::PositiveOverhead).total());
    assert_eq!(survey.distributions.of(Measure::NameLength).max(), 74);
    let days = survey.distributions.by_bytes(ByteMeasure::MtimeAge);
    assert!(days.count().abs_diff(298_583_063) <= 20 * 1024 && days.max() > 365);
}

#[test]
fn a_merged_file_of_another_order_is_read_with_warnings() {
    let (survey, warnings) = read(MERGED.as_bytes(), "merged.csv").unwrap();
    assert_eq!((survey.counts.files, survey.size_bytes()), (8642, 2 * 298_583_063));
    assert_eq!(
        (survey.counts.symlinks, survey.counts.symlinks_absolute, survey.counts.symlinks_relative),
        (240, 60, 180)
    );
    assert_eq!((survey.counts.special, survey.counts.snapshot_directories_skipped), (14, 0));
    let any = |words: &str| warnings.iter().any(|warning| warning.contains(words));
    assert!(any("'access pattern' is unknown"), "{warnings:?}");
    assert!(any("'file size' is repeated"));
    assert!(any("'mtime (files)' states a count of 8,600, but its rows add up to 8,642"));
    assert!(any("there is no histogram 'atime (KB)'"));
    assert!(any("cannot be parsed"));
    // Its written form has all 15 histograms again.
    let (again, warnings) = read(written(&survey).as_bytes(), "again").unwrap();
    assert_eq!(warnings, [""; 0]);
    let buckets = |survey: &Survey| survey.distributions.of(Measure::FileSize).buckets().split_off(12);
    assert_eq!(buckets(&again), buckets(&survey));
}

#[test]
fn a_cut_file_is_read_as_far_as_it_is_whole() {
    let (kind, message) = refused(CUT_IN_FILE_SIZE);
    assert_eq!(kind, ErrorKind::Corrupt);
    assert!(message.contains("line 12: the histogram 'file size' is truncated"), "{message}");
    let (survey, warnings) = read(CUT_IN_NAME_LENGTH.as_bytes(), "cut").unwrap();
    assert_eq!((survey.counts.files, survey.size_bytes()), (4321, 298_583_063));
    assert!(survey.distributions.of(Measure::NameLength).is_empty());
    assert!(warnings[0].contains("'filename length' is truncated"), "{warnings:?}");
    assert_eq!(warnings.len(), 1 + 8);
}

#[test]
fn every_cut_is_an_error_or_loses_only_what_comes_after() {
    let whole = read(COMPLETE.as_bytes(), "whole").unwrap().0;
    let file_sizes_end = COMPLETE.find("histogram,capacity").unwrap();
    for length in (0..COMPLETE.len()).step_by(151) {
        match read(&COMPLETE.as_bytes()[..length], "cut") {
            Ok((survey, _)) => {
                for measure in Measure::ALL {
                    let (cut, whole) = (survey.distributions.of(measure), whole.distributions.of(measure));
                    assert!(cut.is_empty() || cut.count() == whole.count(), "{} at {length}", measure.name());
                }
            }
            Err(_) => assert!(length < file_sizes_end, "at {length}"),
        }
    }
}

#[test]
fn what_is_no_such_file_or_contradicts_itself_is_refused() {
    assert_eq!(refused("").0, ErrorKind::NotRecognised);
    assert_eq!(refused("name,size\na,1\n").0, ErrorKind::NotRecognised);
    assert_eq!(refused(&"x".repeat(MAX_BYTES + 1)).0, ErrorKind::NotRecognised);
    let (kind, message) = refused(GARBAGE);
    assert_eq!(kind, ErrorKind::Corrupt);
    assert!(message.contains("x.csv: line 6: 'NaN' is not a number"), "{message}");
    for (row, words) in [
        ("0,2,-7,1,1,1,1,1", "is negative"),
        ("0,2,99999999999999999999,1,1,1,1,1", "too large"),
        ("4,2,1,1,1,1,1,1", "ends before it begins"),
        ("0,99999999999999999999999,1,1,1,1,1,1", "too large"),
        ("0,2,3", ""),
        ("0,2", "count of the bucket is missing"),
        ("-1,-1,3,1,1,1,1,1", "no bounds"),
        ("0,2,1,1,1,1,1,1\n0,2,1,1,1,1,1,1", "overlaps"),
        ("0,2,3,1,1,1e20,1,1", ""),
        ("0,2,1,1,1,1e29,1,1", "sum of the values is too large"),
        ("max,340282366920938463463374607431768211455,bytes\n127,-1,1,1,1,1,1,1", "a bound of the bucket is too large"),
    ] {
        let text = format!("histogram,file size\ncount,3,items\n{row}\n\n");
        let outcome = read(text.as_bytes(), "x.csv").map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        assert!(outcome.contains(words) && outcome.is_empty() == words.is_empty(), "{row}: {outcome}");
    }
    let many: String = (0..300).map(|bucket| format!("{},{},1\n", 2 * bucket, 2 * bucket + 2)).collect();
    assert!(refused(&format!("histogram,file size\n{many}\n")).1.contains("more than 256 rows"));
}

#[test]
fn negative_ages_count_as_none_and_units_are_heeded() {
    let text = "histogram,file size\ncount,3,items\nmin,0,MB\nmax,3,MB\n0,2,1,.,.,1.5\n2,4,2,.,.,6.5\n\n\
                histogram,mtime (files)\ncount,3,items\nmin,-3,days\nmax,5,days\n\
                -1,0,2,0.6,0.6,-4.5,0,0\n4,8,1,.,.,5\n\n";
    let (survey, _) = read(text.as_bytes(), "x").unwrap();
    let sizes = survey.distributions.of(Measure::FileSize);
    assert_eq!((sizes.total(), sizes.max() >> 20), (8 << 20, 3));
    assert_eq!(survey.distributions.of(Measure::MtimeAge).total(), 5);
    assert_eq!(survey.distributions.of(Measure::MtimeAge).up_to(0).count, 2);
}

/// Surveys such as a walk produces.
fn surveys() -> impl Strategy<Value = Survey> {
    let size = (0u32..60, any::<u64>()).prop_map(|(shift, bits)| bits >> 4 >> shift);
    let file = (size, 0u64..5000, 0u64..5000, 0u64..1 << 40, 1u64..70);
    let files = proptest::collection::vec(file, 1..60);
    (files, proptest::collection::vec((0u64..3000, 1u64..256), 0..20), proptest::option::of(0i64..1 << 37)).prop_map(
        |(files, others, taken_at)| {
            let mut survey = Survey::default();
            survey.origin.taken_at = taken_at;
            survey.counts.special = 3;
            let overhead = |survey: &mut Survey, size: u64, allocated: u64| {
                let positive = allocated >= size;
                let measure = if positive { Measure::PositiveOverhead } else { Measure::NegativeOverhead };
                survey.distributions.of_mut(measure).record(allocated.abs_diff(size));
                survey.overhead_by_size.record(size, positive, 1, allocated.abs_diff(size).into());
            };
            for (size, days, other_days, extra, links) in files {
                let allocated = if extra % 5 == 0 { size / 2 } else { size.saturating_add(extra) };
                survey.counts.files += 1;
                overhead(&mut survey, size, allocated);
                let distributions = &mut survey.distributions;
                distributions.of_mut(Measure::FileSize).record(size);
                distributions.of_mut(Measure::Allocated).record(allocated);
                distributions.of_mut(Measure::LinkCount).record(links);
                for (measure, days) in [(Measure::MtimeAge, days), (Measure::AtimeAge, other_days)] {
                    distributions.of_mut(measure).record(days);
                }
                for (measure, days) in [(ByteMeasure::MtimeAge, days), (ByteMeasure::AtimeAge, other_days)] {
                    distributions.by_bytes_mut(measure).add(days, size.into());
                }
            }
            for (entries, length) in others {
                overhead(&mut survey, entries * 30, 4096);
                let distributions = &mut survey.distributions;
                distributions.of_mut(Measure::DirectoryEntries).record(entries);
                distributions.of_mut(Measure::DirectorySize).record(entries * 30);
                distributions.of_mut(Measure::NameLength).record(length);
                distributions.of_mut(Measure::SymlinkTargetLength).record(length * 7);
            }
            survey
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_written_survey_is_read_back_with_its_counts_sums_and_buckets(survey in surveys()) {
        let first = written(&survey);
        let (back, warnings) = read(first.as_bytes(), "back").unwrap();
        prop_assert_eq!(warnings, Vec::<String>::new());
        prop_assert_eq!(back.origin.taken_at, survey.origin.taken_at);
        for measure in Measure::ALL {
            let (was, is) = (survey.distributions.of(measure), back.distributions.of(measure));
            prop_assert_eq!((is.count(), is.total()), (was.count(), was.total()), "{}", measure.name());
        }
        let buckets = |survey: &Survey, measure| {
            let buckets = survey.distributions.of(measure).buckets();
            buckets.into_iter().filter(|bucket| bucket.low >= 2048 && bucket.count > 0).collect::<Vec<_>>()
        };
        for measure in [Measure::FileSize, Measure::Allocated, Measure::DirectorySize] {
            prop_assert_eq!(buckets(&back, measure), buckets(&survey, measure));
        }
        for measure in ByteMeasure::ALL {
            let (was, is) = (survey.distributions.by_bytes(measure), back.distributions.by_bytes(measure));
            prop_assert!(is.count().abs_diff(was.count()) <= 512);
        }
        // Ages by kilobyte lose fractions of a kilobyte, once.
        let second = written(&back);
        let (again, _) = read(second.as_bytes(), "again").unwrap();
        prop_assert_eq!(written(&again), second.clone());
        let without_ages = |text: &str| text.split("histogram,mtime (KB)").next().map(str::to_owned);
        prop_assert_eq!(without_ages(&second), without_ages(&first));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (looks_like(&bytes), read(&bytes, "x"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_mutation_makes_it_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, 0usize..40), 1..8),
    ) {
        let pieces: [&[u8]; 12] = [
            b"", b",", b"\n", b"-", b"9", b"99999999999999", b"e18", b".", b"histogram,", b"\xff", b"NaN", b"-1,",
        ];
        let mut text = COMPLETE.as_bytes().to_vec();
        for (at, piece, removed) in changes {
            let at = at.index(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, pieces[piece].iter().copied());
        }
        if let Ok((survey, _)) = read(&text, "x") {
            let again = written(&survey);
            prop_assert!(read(again.as_bytes(), "again").is_ok(), "{again}");
        }
    }
}
