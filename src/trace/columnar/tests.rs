//! The own format: a round trip preserves everything; truncation or damage costs no more than necessary.

use proptest::prelude::*;

use super::*;
use crate::trace::{Format, Input, Kind, Listed, Operation, Source, Trouble, detect};

pub(super) fn packed(listed: &mut Listed) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, listed.origin()).unwrap();
    while let Some(operation) = listed.next().unwrap() {
        writer.push(&operation, listed).unwrap();
    }
    writer.finish(listed).unwrap();
    bytes
}

fn unpacked(bytes: &[u8]) -> (Vec<Operation>, Reader) {
    let mut reader = Reader::new(Input::of_bytes(bytes.to_vec()).unwrap()).unwrap();
    let mut operations = Vec::new();
    while let Some(operation) = reader.next().unwrap() {
        operations.push(operation);
    }
    (operations, reader)
}

/// `count` reads of many files, which fill several blocks.
pub(super) fn reads(count: u32) -> Listed {
    let mut listed = Listed::new("test");
    listed.processes.push(b"one");
    for number in 0..count {
        if number % 8 == 0 {
            listed.files.push(format!("/a/file/with/the/number/{number}").as_bytes());
        }
        let mut operation = Operation::new(1_700_000_000_000_000_000 + u64::from(number) * 1_000, 0, Kind::Read);
        operation.file = Some(number / 8);
        operation.opening = Some(number / 8);
        operation.offset_bytes = Some(u64::from(number % 8) * 4096);
        operation.length_bytes = 4096;
        operation.duration_ns = Some(u64::from(number % 1000));
        listed.operations.push(operation);
    }
    listed
}

/// Offset of each block, and the end of the last one.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut at = MAGIC.len();
    let mut starts = Vec::new();
    while at < bytes.len() {
        starts.push(at);
        let frame = Frame::decode(bytes[at..at + FRAME_BYTES].try_into().unwrap()).unwrap();
        at += FRAME_BYTES + frame.packed_bytes as usize;
    }
    starts.push(at);
    starts
}

#[test]
fn a_trace_of_several_blocks_comes_back() {
    let mut listed = reads(200_000);
    listed.origin.command = Some("cp a b".to_owned());
    listed.problems.count(Trouble::Unreadable, || "line 7".to_owned());
    let bytes = packed(&mut listed);
    assert_eq!(detect(&bytes), Some(Format::Granulo));
    // HEAD, four blocks of operations, FOOT.
    assert_eq!(frames(&bytes).len(), 7);
    let (operations, reader) = unpacked(&bytes);
    assert_eq!(operations, listed.operations);
    assert_eq!((reader.files(), reader.processes()), (&listed.files, &listed.processes));
    assert_eq!((reader.origin(), reader.problems()), (&listed.origin, &listed.problems));
    assert!(bytes.len() < 200_000 * 4, "{} bytes", bytes.len());
}

#[test]
fn a_truncated_trace_gives_every_whole_block() {
    let mut listed = reads(150_000);
    let bytes = packed(&mut listed);
    let starts = frames(&bytes);
    for (cut, whole) in [
        (starts[1], 0),
        (starts[1] + 10, 0),
        (starts[2] - 1, 0),
        (starts[2], MOST_OPERATIONS),
        (starts[3] + FRAME_BYTES, 2 * MOST_OPERATIONS),
        (starts[4], 150_000),
        (bytes.len() - 1, 150_000),
    ] {
        let (operations, reader) = unpacked(&bytes[..cut]);
        assert_eq!(operations[..], listed.operations[..whole], "cut at {cut}");
        assert_eq!(reader.problems().of(Trouble::Truncated), 1);
    }
    for cut in 0..starts[1] {
        assert!(Reader::new(Input::of_bytes(bytes[..cut].to_vec()).unwrap()).is_err());
    }
}

#[test]
fn a_damaged_block_costs_what_is_in_it() {
    let mut listed = reads(150_000);
    let mut bytes = packed(&mut listed);
    let starts = frames(&bytes);
    bytes[starts[2] + FRAME_BYTES + 100] ^= 1;
    let (operations, reader) = unpacked(&bytes);
    assert_eq!(operations[..MOST_OPERATIONS], listed.operations[..MOST_OPERATIONS]);
    assert_eq!(operations[MOST_OPERATIONS..], listed.operations[2 * MOST_OPERATIONS..]);
    assert_eq!(reader.problems().of(Trouble::Damaged), 1);
    let last = operations.last().unwrap().file.unwrap();
    assert_eq!(reader.files().get(last), listed.files.get(last));
    // After a damaged frame, nothing can be found.
    bytes[starts[2] + 5] ^= 1;
    let (operations, reader) = unpacked(&bytes);
    assert_eq!(operations.len(), MOST_OPERATIONS);
    assert_eq!(reader.problems().of(Trouble::Damaged), 1);
}

#[test]
fn long_names_fill_a_block_too() {
    let mut listed = Listed::new("test");
    listed.processes.push(b"one");
    for number in 0..20_000u32 {
        listed.files.push(&vec![b'x'; 1_000 + number as usize % 7]);
        let mut operation = Operation::new(0, 0, Kind::Stat);
        operation.file = Some(number);
        listed.operations.push(operation);
    }
    let bytes = packed(&mut listed);
    let (operations, reader) = unpacked(&bytes);
    assert_eq!(operations, listed.operations);
    assert_eq!(reader.files(), &listed.files);
}

#[test]
fn the_longest_names_fit_and_a_longer_one_is_refused() {
    let listed = |lengths: &[usize]| {
        let mut listed = Listed::new("test");
        listed.processes.push(b"one");
        for (number, &length) in lengths.iter().enumerate() {
            listed.files.push(&vec![b'x'; length]);
            let mut operation = Operation::new(0, 0, Kind::Stat);
            operation.file = Some(number as u32);
            listed.operations.push(operation);
        }
        listed
    };
    // Lines of strace have up to 1 MiB: together they do not fit a block.
    let mut long = listed(&[1 << 20; 80]);
    let (operations, reader) = unpacked(&packed(&mut long));
    assert_eq!((operations.len(), reader.files().len()), (80, 80));
    let too_long = listed(&[super::MOST_RAW_BYTES + 1]);
    let mut writer = Writer::new(Vec::new(), too_long.origin()).unwrap();
    let refused = writer.push(&too_long.operations[0], &too_long).unwrap_err();
    assert_eq!(refused.to_string(), "a name in the trace is too long");
}

#[test]
fn other_versions_and_other_files_are_refused() {
    let refused = |bytes: &[u8]| Reader::new(Input::of_bytes(bytes.to_vec()).unwrap()).unwrap_err();
    let newer = refused(b"granulo trace 2\nand anything");
    assert_eq!(newer.kind(), crate::error::ErrorKind::NewerVersion);
    assert!(newer.to_string().contains("version 2"), "{newer}");
    assert_eq!(refused(b"something else, and long").kind(), crate::error::ErrorKind::NotRecognised);
    assert_eq!(refused(b"granulo trace 1\n").kind(), crate::error::ErrorKind::Corrupt);
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let optional = |most: u64| proptest::option::of(prop_oneof![0..most, any::<u64>()]);
    let fields =
        (any::<u64>(), optional(1 << 20), 0u32..2, proptest::option::of(0u32..3), proptest::option::of(any::<u32>()));
    let more = (0..Kind::ALL.len(), any::<bool>(), optional(1 << 30), any::<u64>(), optional(1 << 30));
    (fields, more).prop_map(
        |(
            (time_ns, duration_ns, process, file, opening),
            (kind, failed, offset_bytes, length_bytes, file_size_bytes),
        )| {
            let kind = Kind::ALL[kind];
            Operation {
                time_ns,
                duration_ns,
                process,
                file,
                opening,
                kind,
                failed,
                offset_bytes,
                length_bytes,
                file_size_bytes,
            }
        },
    )
}

proptest! {
    #[test]
    fn whatever_goes_in_comes_out(operations in proptest::collection::vec(any_operation(), 0..200)) {
        let mut listed = Listed::new("test");
        for name in [&b"a"[..], b"", b"\xff\n"] {
            listed.files.push(name);
        }
        listed.processes.push(b"p");
        listed.processes.push(b"q");
        listed.operations = operations;
        let (back, reader) = unpacked(&packed(&mut listed));
        prop_assert_eq!(&back, &listed.operations);
        prop_assert_eq!(reader.files(), &listed.files);
        prop_assert!(reader.problems().is_empty());
    }

    #[test]
    fn a_changed_byte_is_found(at in 0usize..2_000, bit in 0u8..8) {
        let mut listed = reads(64);
        let mut bytes = packed(&mut listed);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(mut reader) = Reader::new(Input::of_bytes(bytes).unwrap()) {
            let mut count = 0;
            while let Some(operation) = reader.next().unwrap() {
                prop_assert_eq!(operation, listed.operations[count]);
                count += 1;
            }
            prop_assert!(!reader.problems().is_empty());
        }
    }
}
