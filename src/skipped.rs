//! Unit tests that cannot run where they are.

use std::io::{self, Write};

/// Says that a test is skipped, and why; with `GRANULO_REQUIRE_ALL=1` it fails instead. To standard error itself, which
/// the test harness does not capture.
pub(crate) fn skip(why: &str) {
    let all = std::env::var_os("GRANULO_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!all, "GRANULO_REQUIRE_ALL=1, and this test cannot run: {why}");
    let _ = io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes());
}
