//! Frames and manifests of the catalog. The laws are with the entry in the library.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| granulo::store::fuzzing::catalog(bytes));
