//! Arbitrary bytes in place of the kernel's requests and of access control lists: nothing outside of them is used.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| granulo::testing::fuzzing::fuse_requests(bytes));
