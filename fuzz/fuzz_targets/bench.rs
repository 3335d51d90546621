//! Arbitrary results of benches: every result that can be read has words, a table and a page.
#![no_main]

use granulo::testing::bench::result;
use granulo::testing::report::bench::page::{self, NamedRun};
use granulo::testing::report::bench::{words, write_document};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(Ok(document)) = result::read(bytes) else { return };
    words::sentences(&document);
    write_document(&document, &mut std::io::sink()).expect("a sink takes everything");
    let runs = [NamedRun { name: "a".to_owned(), document }];
    let page = page::part(&runs).expect("every result has a page");
    page.write(0, &mut std::io::sink()).expect("a sink takes everything");
});
