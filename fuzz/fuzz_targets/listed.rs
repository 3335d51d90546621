//! Lists of sizes, tables of buckets, exports of ncdu: read or refused, and what is read is a survey like any other.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| granulo::testing::fuzzing::listed(bytes));
