//! Checkpoints: whatever is read without an error is restored or refused, nothing else.
#![no_main]

use granulo::testing::fuzzing::checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checkpoint(bytes));
