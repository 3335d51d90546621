//! Arbitrary texts in place of strace's output: every trace that can be read has figures, words and a document.
#![no_main]

use granulo::testing::report::trace::write_trace;
use granulo::trace::summary::{Document, Options, summarise};
use granulo::trace::{Format, Input, detect, source_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    detect(bytes);
    let input = Input::of_bytes(bytes.to_vec()).expect("memory has no errors");
    let mut source = source_of(input, Some(Format::Strace)).expect("this reader needs no header");
    let summary = summarise(&mut *source, Options::default(), |_, _| Ok(true)).expect("memory has no errors");
    write_trace("a", &summary, &*source, &mut std::io::sink()).expect("a sink takes everything");
    serde_json::to_writer(std::io::sink(), &Document::new("a", &summary, &*source)).expect("a sink takes everything");
});
