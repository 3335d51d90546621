//! Shards of a survey: whatever is read without an error is added up or refused, nothing else.
#![no_main]

use granulo::testing::fuzzing::part;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| part(bytes));
