//! Tables that are read, and the problems of others.

use super::*;
use proptest::prelude::*;

fn read(text: impl Into<Vec<u8>>, columns: Option<&str>) -> (Vec<Operation>, Reader) {
    let columns = columns.map(|columns| Columns::parse(columns).unwrap());
    let mut reader = Reader::new(Input::of_bytes(text.into()).unwrap(), columns).unwrap();
    let mut operations = Vec::new();
    while let Some(operation) = reader.next().unwrap() {
        operations.push(operation);
    }
    (operations, reader)
}

#[test]
fn a_block_trace_of_msr_is_read() {
    let (operations, reader) = read(
        "128166372003061629,hm,0,Read,383496192,32768,41286\n128166372016382155,hm,1,Write,2822144,4096,223\n",
        None,
    );
    assert_eq!(reader.origin.clock, Clock::Wall);
    let first = operations[0];
    assert_eq!(first.time_ns, (128_166_372_003_061_629 - FILE_TIME_OF_1970) * 100);
    assert_eq!((first.kind, first.offset_bytes, first.length_bytes), (Kind::Read, Some(383_496_192), 32_768));
    assert_eq!(first.duration_ns, Some(4_128_600));
    assert_eq!((operations[1].kind, operations[1].file, operations[1].process), (Kind::Write, Some(1), 0));
    assert_eq!(reader.files.iter().collect::<Vec<_>>(), [&b"hm.0"[..], b"hm.1"]);
    assert_eq!(reader.processes.iter().collect::<Vec<_>>(), [&b"hm"[..]]);
    assert!(reader.problems.is_empty());
}

#[test]
fn columns_are_found_by_their_names() {
    let text =
        "# Timestamp,Response,IOType,LUN,Offset,Size\n1455592451.5,0.25,R,2,4096,512\n1455592452.5,,W,\"a,b\",0,1024\n";
    let (operations, reader) = read(text, Some("time=Timestamp,op=IOType,size=Size,file=LUN,duration=Response"));
    assert_eq!(operations.len(), 2);
    assert_eq!((operations[0].time_ns, operations[0].duration_ns), (1_455_592_451_500_000_000, Some(250_000_000)));
    assert_eq!((operations[1].duration_ns, operations[1].offset_bytes), (None, None));
    assert_eq!(reader.files.get(1), Some(&b"a,b"[..]));
    assert_eq!(reader.origin.clock, Clock::Wall);
    assert_eq!(reader.origin.notes.len(), 1, "{:?}", reader.origin.notes);
    // Also without being told, whether the header is a comment or not, behind an empty line.
    for text in [&text[2..], text, &format!("\n{text}")] {
        let guessed = read(text, None).0;
        assert_eq!(guessed[0], Operation { offset_bytes: Some(4096), ..operations[0] });
    }
    let missing = Columns::parse("size=Length").unwrap();
    let error = Reader::new(Input::of_bytes(text.as_bytes().to_vec()).unwrap(), Some(missing)).unwrap_err().to_string();
    assert!(error.contains("no column 'Length'") && error.contains("IOType"), "{error}");
}

#[test]
fn what_is_wrong_is_counted_and_the_rest_stands() {
    let mut text =
        b"time,kind,where,size\n10,R,0,5\n11,R,0,\n12,frobnicate,0,5\n13,R,0,-5\n14,R,x,5\n15,R\n\xff\xfe\0\n\
        16,R,18446744073709551615,2\n17,close,,\n5,W,7,99999999999999999999\n5,W,7,9\n"
            .to_vec();
    text.extend_from_slice(&vec![b'x'; 100_000]);
    text.extend_from_slice(b"\n18,R,0,6\n19,R,0");
    let (operations, reader) = read(text, Some("time=1,op=2,offset=3,size=4"));
    let lengths: Vec<u64> = operations.iter().map(|operation| operation.length_bytes).collect();
    assert_eq!(lengths, [5, 0, 9, 6]);
    let of = |trouble| reader.problems.of(trouble);
    assert_eq!(of(Trouble::Incomplete), 2 + 1, "{:?}", reader.problems);
    assert_eq!((of(Trouble::UnknownCall), of(Trouble::Absurd), of(Trouble::Unreadable)), (1, 3, 2));
    assert_eq!((of(Trouble::ClockBackwards), of(Trouble::Truncated)), (1, 1));
}

#[test]
fn only_a_size_has_to_be_there() {
    let (operations, reader) = read("4\n8\n", Some("size=1:4KiB"));
    assert_eq!(operations.iter().map(|o| (o.time_ns, o.length_bytes)).collect::<Vec<_>>(), [(0, 16_384), (1, 32_768)]);
    assert_eq!((reader.origin.clock, reader.origin.notes.len()), (Clock::None, 3));
    let new = |columns| Reader::new(Input::of_bytes(b"1,2\n".to_vec()).unwrap(), columns).unwrap_err().to_string();
    assert!(new(Some(Columns::parse("time=1").unwrap())).contains("no column has the size"));
    assert!(new(None).contains("--columns"));
}

proptest! {
    #[test]
    fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for columns in ["time=1,op=2,offset=3:sectors,size=4", "size=1,file=2+3", "msr", "snia-fiu"] {
            let (operations, reader) = read(bytes.clone(), Some(columns));
            for operation in operations {
                prop_assert!(operation.file.is_some_and(|file| (file as usize) < reader.files.len()));
                prop_assert!((operation.process as usize) < reader.processes.len());
            }
        }
    }

    #[test]
    fn what_was_written_is_read(rows in proptest::collection::vec((0u64..1 << 50, any::<bool>(), any::<u32>(), any::<u32>()), 1..50)) {
        let text: String = rows
            .iter()
            .map(|(time, read, offset, size)| format!("{}.{:09} {} {offset} {size}\n", time / 1_000_000_000,
                time % 1_000_000_000, if *read { "R" } else { "W" }))
            .collect();
        let (operations, _) = read(text, Some("time=1,op=2,offset=3:sectors,size=4"));
        prop_assert_eq!(operations.len(), rows.len());
        for (operation, (time, read, offset, size)) in operations.iter().zip(rows) {
            prop_assert_eq!(operation.time_ns, time);
            prop_assert_eq!(operation.kind == Kind::Read, read);
            prop_assert_eq!(operation.offset_bytes, Some(u64::from(offset) * 512));
            prop_assert_eq!(operation.length_bytes, u64::from(size));
        }
    }
}
