//! Arbitrary traces in granulo's own format: every trace that can be read can be written again, and is then the same.
#![no_main]

use granulo::testing::fuzzing::columnar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| columnar(bytes));
