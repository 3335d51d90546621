//! The files of a store in a bucket, in the body of its manifest. The library entry checks the laws.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| granulo::store::fuzzing::volume(bytes));
