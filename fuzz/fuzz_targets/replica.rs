//! What another granulo sends while a store is copied. The library entry checks the laws.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| granulo::store::fuzzing::replica(bytes));
