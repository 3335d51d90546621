//! Readers of traces that others recorded: tables, the output of Darshan's parsers, the output of tshark. Whatever the
//! bytes are, names come before the operations that use them.
#![no_main]

use granulo::testing::trace::{NfsReader, Whole};
use granulo::trace::csv::{self, Columns};
use granulo::trace::{Format, Input, Source, source_of};
use libfuzzer_sys::fuzz_target;

/// A damaged counter of Darshan may claim billions.
const MOST_OPERATIONS: usize = 20_000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, text)) = bytes.split_first() else { return };
    let Ok(input) = Input::of_bytes(text.to_vec()) else { return };
    let reader: Option<Box<dyn Source>> = match which {
        b'd' => {
            let text = [b"# darshan log version:", text].concat();
            Input::of_bytes(text).and_then(|input| source_of(input, Some(Format::Darshan))).ok()
        }
        b'n' => Some(Box::new(NfsReader::of_pdml(input))),
        // The columns are on the first line.
        b'c' => {
            let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
            let columns = std::str::from_utf8(&text[..end]).ok().and_then(|columns| Columns::parse(columns).ok());
            let table = Input::of_bytes(text[end..].to_vec());
            table.and_then(|table| csv::Reader::new(table, columns)).ok().map(|reader| Box::new(reader) as _)
        }
        _ => csv::Reader::new(input, None).ok().map(|reader| Box::new(reader) as _),
    };
    let Some(mut reader) = reader else { return };
    let mut whole = Whole::default();
    let (mut moved, mut given) = (0u128, 0u128);
    let mut add = |operation: granulo::trace::Operation, _: u64| given += u128::from(operation.length_bytes);
    for _ in 0..MOST_OPERATIONS {
        let Ok(Some(operation)) = reader.next() else { break };
        assert!(operation.file.is_none_or(|file| (file as usize) < reader.files().len()));
        assert!((operation.process as usize) < reader.processes().len());
        // Sums of lengths overflow at 2^64.
        if operation.length_bytes < 1 << 40 {
            moved += u128::from(operation.length_bytes);
            whole.add(&operation, &mut add);
        }
    }
    whole.finish(&mut add);
    assert_eq!(moved, given);
});
