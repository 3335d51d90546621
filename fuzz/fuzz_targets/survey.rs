//! Survey files: every survey that is read without an error can be merged, shown and written, and is read back
//! unchanged.
#![no_main]

use std::path::Path;

use granulo::testing::report::{page, terminal};
use granulo::survey::file::{Detail, read, write};
use granulo::survey::merge::merge;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(survey) = read(bytes, Path::new("fuzz")) else { return };
    let mut text = Vec::new();
    write(&survey, Detail::Full, &mut text).expect("memory takes every write");
    let again = read(&text, Path::new("fuzz")).expect("what was written is read");
    let mut text_again = Vec::new();
    write(&again, Detail::Full, &mut text_again).expect("memory takes every write");
    assert_eq!(text, text_again);
    terminal::write_summary(&survey, &mut std::io::sink()).expect("a sink takes every write");
    page::write(std::slice::from_ref(&survey), 0, &mut std::io::sink()).expect("a sink takes every write");
    let doubled = merge(vec![survey.clone(), again]).expect("a survey can be added to itself");
    assert_eq!(doubled.size_bytes(), 2 * survey.size_bytes());
});
