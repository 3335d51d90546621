//! Arbitrary bytes in place of the events of a watched file system: they are read, or count as a loss.
#![no_main]

use granulo::testing::fuzzing::watch_events;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| watch_events(bytes));
