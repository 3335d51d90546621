//! Traces in granulo's own form that anybody wrote: whatever is read can be written again, and is then the same.
#![no_main]

use granulo::trace::columnar::{Reader, Writer};
use granulo::trace::{Input, Operation, Source};
use libfuzzer_sys::fuzz_target;

fn operations(bytes: &[u8]) -> Option<(Vec<Operation>, Reader)> {
    let mut reader = Reader::new(Input::of_bytes(bytes.to_vec()).ok()?).ok()?;
    let mut operations = Vec::new();
    while let Some(operation) = reader.next().expect("memory has no errors") {
        operations.push(operation);
    }
    Some((operations, reader))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, reader)) = operations(bytes) else { return };
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written, reader.origin()).expect("memory takes everything");
    for operation in &first {
        writer.push(operation, &reader).expect("memory takes everything");
    }
    writer.finish(&reader).expect("memory takes everything");
    let (second, _) = operations(&written).expect("what was written is read");
    assert_eq!(first, second);
});
