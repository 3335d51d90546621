//! fsstats CSVs: every survey that is read without an error can be written, and is read back with the same files.
#![no_main]

use granulo::survey::fsstats::{read, write};
use granulo::survey::measure::Measure;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((survey, _)) = read(bytes, "fuzz") else { return };
    let mut text = Vec::new();
    write(&survey, &mut text).expect("memory takes every write");
    let (again, _) = read(&text, "fuzz").expect("what was written is read");
    let files = |survey: &granulo::survey::Survey| survey.distributions.of(Measure::FileSize).count();
    assert_eq!(files(&survey), files(&again));
});
