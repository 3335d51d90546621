//! Checkpoints: whatever is read without an error is restored or refused, nothing else. The header is prepended with
//! the right checksum, so that the body is fuzzed; the bare input is tried as well.
#![no_main]

use granulo::scan::Settings;
use granulo::scan::walk::Walk;
use granulo::survey::Options;
use granulo::survey::checkpoint::{Checkpoint, with_header};
use granulo::survey::collect::Collector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Checkpoint::parse(bytes);
    let Ok(checkpoint) = Checkpoint::parse(&with_header(bytes)) else { return };
    let mut collector = Collector::new(&Options::default(), 1, 0, 20);
    if checkpoint.restore(&mut collector).is_err() {
        return;
    }
    if let Ok(walk) = Walk::resume(Settings::default(), &collector, &checkpoint.walk) {
        let _ = walk.is_finished();
    }
    let _ = collector.survey().size_bytes();
});
