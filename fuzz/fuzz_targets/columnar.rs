//! Traces in granulo's own form that anybody wrote: whatever is read can be written again, and is then the same.
#![no_main]

use granulo::trace::columnar::fuzzing::columnar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| columnar(bytes));
