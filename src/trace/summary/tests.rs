//! Figures of small traces that can be counted by hand, and properties of all traces.

use proptest::prelude::*;

use super::*;
use crate::trace::{Listed, Source};

fn listed(operations: Vec<Operation>) -> Listed {
    let mut listed = Listed::new("test");
    for name in ["a", "b", "c", "d"] {
        listed.files.push(name.as_bytes());
        listed.processes.push(name.as_bytes());
    }
    listed.operations = operations;
    listed
}

fn summary_with(operations: Vec<Operation>, options: Options) -> Summary {
    summarise(&mut listed(operations), options, |_, _| Ok(true)).unwrap()
}

fn summary(operations: Vec<Operation>) -> Summary {
    summary_with(operations, Options::default())
}

/// A request on file 0 through open 0 (or none), at an offset.
fn request(kind: Kind, opening: Option<u32>, offset: u64, length: u64) -> Operation {
    let mut operation = Operation::new(0, 0, kind);
    operation.file = Some(0);
    operation.opening = opening;
    operation.offset_bytes = Some(offset);
    operation.length_bytes = length;
    operation
}

#[test]
fn a_copy_is_one_read_and_one_write() {
    let mut operations = Vec::new();
    for piece in 0..100 {
        operations.push(request(Kind::Read, Some(0), piece * 100_000, 100_000));
        let mut write = request(Kind::Write, Some(1), piece * 100_000, 100_000);
        write.file = Some(1);
        write.file_size_bytes = Some((piece + 1) * 100_000);
        operations.push(write);
    }
    operations.push(request(Kind::Read, Some(0), 10_000_000, 0));
    operations.push(request(Kind::Close, Some(0), 0, 0));
    // The second is never closed.
    let summary = summary(operations);
    let ReadWrite { reads, writes } = &summary.sides;
    for side in [reads, writes] {
        assert_eq!((side.whole.count(), side.whole.total()), (1, 10_000_000));
        assert_eq!((side.requests.count(), side.requests.max()), (100, 100_000));
        assert_eq!(side.patterns[Pattern::Sequential as usize].count, 99);
        assert_eq!(side.patterns[Pattern::First as usize].count, 1);
    }
    assert_eq!((reads.empty, writes.file_sizes.max(), reads.file_sizes.count()), (1, 10_000_000, 0));
    assert_eq!((summary.files.only_read, summary.files.only_written, summary.files.read_once), (1, 1, 1));
    assert_eq!(reads.by_file_size[UNKNOWN_SIZE].requests, 100);
}

#[test]
fn patterns_are_told_apart() {
    let at = |offsets: &[u64]| {
        let operations = offsets.iter().map(|&offset| request(Kind::Read, Some(0), offset, 10)).collect();
        summary(operations).sides.reads.patterns.map(|share| share.count)
    };
    // First, sequential, strided, random, unknown.
    assert_eq!(at(&[0, 10, 20, 30]), [1, 3, 0, 0, 0]);
    assert_eq!(at(&[0, 100, 200, 300]), [1, 0, 2, 1, 0]);
    assert_eq!(at(&[300, 200, 100, 0]), [1, 0, 2, 1, 0]);
    assert_eq!(at(&[5, 900, 17, 4000]), [1, 0, 0, 3, 0]);
    let mut unknown = request(Kind::Read, Some(0), 0, 10);
    unknown.offset_bytes = None;
    assert_eq!(summary(vec![unknown; 3]).sides.reads.patterns[Pattern::Unknown as usize].count, 3);
}

#[test]
fn reads_and_writes_through_one_opening_are_apart() {
    let operations = vec![
        request(Kind::Read, Some(0), 0, 10),
        request(Kind::Write, Some(0), 500, 10),
        request(Kind::Read, Some(0), 10, 10),
        request(Kind::Write, Some(0), 510, 10),
    ];
    let ReadWrite { reads, writes } = summary(operations).sides;
    assert_eq!((reads.patterns[1].count, writes.patterns[1].count), (1, 1));
    assert_eq!((reads.whole.total(), writes.whole.total()), (20, 20));
}

#[test]
fn without_openings_a_pause_or_a_new_start_parts_runs() {
    let second = 1_000_000_000;
    let timed = |time_ns: u64, offset: u64| Operation { time_ns, ..request(Kind::Read, None, offset, 10) };
    let whole = |operations: Vec<Operation>| {
        let reads = summary(operations).sides.reads;
        (reads.whole.count(), reads.whole.max())
    };
    assert_eq!(whole(vec![timed(0, 0), timed(1, 10), timed(2, 20)]), (1, 30));
    assert_eq!(whole(vec![timed(0, 0), timed(1, 10), timed(5 * second, 20)]), (2, 20));
    assert_eq!(whole(vec![timed(0, 0), timed(1, 10), timed(2, 0), timed(3, 10)]), (2, 20));
    let other = Operation { process: 1, ..timed(2, 20) };
    assert_eq!(whole(vec![timed(0, 0), timed(1, 10), other]), (2, 20));
    let gap = Options { gap_ns: 10 * second, ..Options::default() };
    let reads = summary_with(vec![timed(0, 0), timed(5 * second, 10)], gap).sides.reads;
    assert_eq!(reads.whole.count(), 1);
    // Reading a file again from its start does not end the write to it.
    let write = |offset| request(Kind::Write, None, offset, 10);
    let both = summary(vec![write(0), timed(0, 0), write(10), timed(0, 0), write(20)]);
    assert_eq!((both.sides.writes.whole.count(), both.sides.reads.whole.count()), (1, 2));
}

#[test]
fn one_block_serves_what_does_not_cross_its_edge() {
    let operations = vec![
        request(Kind::Read, Some(0), 0, 4096),
        request(Kind::Read, Some(0), 2048, 4096),
        request(Kind::Read, Some(0), 6000, 1),
        request(Kind::Read, Some(0), 16_384 - 1, 2),
    ];
    let reads = summary(operations).sides.reads;
    assert_eq!(
        [512, 4096, 8192, 16_384, 32_768].map(|block| reads.requests_within(block)),
        [0.25, 0.5, 0.75, 0.75, 1.0]
    );
    assert_eq!([512, 4096].map(|block| reads.requests_served(block)), [0.5, 1.0]);
    assert_eq!([4096, 8192, 16_384].map(|block| reads.whole_served(block)), [0.0, 0.0, 1.0]);
}

#[test]
fn failed_and_mapped_operations_move_nothing_unless_wanted() {
    let mut failed = request(Kind::Read, Some(0), 0, 0);
    failed.failed = true;
    let map = request(Kind::Map, Some(0), 0, 5000);
    let without = summary(vec![failed, map]);
    assert_eq!((without.kind(Kind::Read).failed, without.sides.reads.whole.count()), (1, 0));
    assert_eq!(without.kind(Kind::Map).bytes, 5000);
    let with = summary_with(vec![failed, map], Options { maps_are_reads: true, ..Options::default() });
    assert_eq!(with.sides.reads.whole.total(), 5000);
    let read = |summary: &Summary| -> u128 { summary.rates.intervals.iter().map(|interval| interval.read_bytes).sum() };
    assert_eq!((read(&without), read(&with)), (0, 5000));
}

#[test]
fn a_file_that_was_made_and_removed_is_temporary() {
    let on = |file, kind| Operation { file: Some(file), ..Operation::new(0, 0, kind) };
    let summary = summary(vec![on(0, Kind::Create), on(0, Kind::Unlink), on(1, Kind::Unlink), on(2, Kind::Create)]);
    assert_eq!((summary.files.temporary, summary.files.touched), (1, 3));
}

#[test]
fn whole_files_have_no_requests() {
    let mut source = listed(vec![request(Kind::Read, None, 0, 5000), request(Kind::Read, None, 0, 7000)]);
    source.origin.detail = Detail::WholeFiles;
    let summary = summarise(&mut source, Options::default(), |_, _| Ok(true)).unwrap();
    assert_eq!((summary.sides.reads.whole.count(), summary.sides.reads.requests.count()), (2, 0));
    let json = serde_json::to_value(Document::new("x", &summary, &source)).unwrap();
    assert!(json["reads"]["requests"].is_null() && json["detail"] == "whole_files");
    assert_eq!(json["reads"]["whole"]["total"], 12_000);
}

fn any_request() -> impl Strategy<Value = Operation> {
    let sizes = prop_oneof![0u64..100_000, 0u64..1 << 56];
    (
        0..Kind::ALL.len(),
        any::<bool>(),
        proptest::option::of(0u32..3),
        0u32..4,
        sizes.clone(),
        proptest::option::of(sizes),
        any::<u64>(),
    )
        .prop_map(|(kind, failed, opening, file, length_bytes, offset_bytes, time_ns)| Operation {
            time_ns,
            duration_ns: None,
            process: file,
            file: Some(file),
            opening,
            kind: Kind::ALL[kind],
            failed,
            offset_bytes,
            length_bytes: if failed { 0 } else { length_bytes },
            file_size_bytes: offset_bytes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_request_is_counted_once_everywhere(operations in proptest::collection::vec(any_request(), 0..100)) {
        let moved = |kind: Kind| {
            let of_kind = operations.iter().filter(|o| o.kind == kind && !o.failed && o.length_bytes > 0);
            of_kind.fold((0u128, 0u128), |(count, bytes), o| (count + 1, bytes + u128::from(o.length_bytes)))
        };
        let summary = summary(operations.clone());
        for (side, kind) in [(&summary.sides.reads, Kind::Read), (&summary.sides.writes, Kind::Write)] {
            let (count, bytes) = moved(kind);
            prop_assert_eq!(side.requests.count(), count);
            prop_assert_eq!(side.patterns.iter().map(|share| u128::from(share.count)).sum::<u128>(), count);
            prop_assert_eq!(side.patterns.iter().map(|share| share.bytes).sum::<u128>(), bytes);
            prop_assert_eq!(side.by_file_size.iter().map(|row| u128::from(row.requests)).sum::<u128>(), count);
            prop_assert_eq!(side.by_file_size.iter().map(|row| row.bytes).sum::<u128>(), bytes);
            let whole = side.by_file_size.iter().map(|row| u128::from(row.whole)).sum::<u128>();
            prop_assert_eq!(side.whole.count(), whole);
            prop_assert!(side.whole.count() <= count);
        }
        let rates: u64 = summary.rates.intervals.iter().map(|interval| interval.operations).sum();
        prop_assert_eq!(rates, operations.len() as u64);
        let source = listed(operations);
        prop_assert!(serde_json::to_vec(&Document::new("x", &summary, &source)).is_ok());
        prop_assert_eq!(source.progress().0, 0);
    }
}
