//! The manifest of a log on a bucket, and names of its objects. The laws are with the entry in the library.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| granulo::store::fuzzing::published(bytes));
