//! Stores in buckets, from outside: the built `granulo`, and a server of S3 in this process (`commands`), a Ceph with its
//! gateway and a MinIO.
//!
//! The real servers are started by the scripts in `tests/servers`, one of each for all tests, which take turns, and end with
//! this process. A test whose server or program is missing reports that it is skipped, and fails instead when
//! `GRANULO_REQUIRE_ALL=1` is set. `GRANULO_BUCKET_KILLS` is the number of kills in each test that kills (3), and
//! `GRANULO_BUCKET_SEED` the seed of their moments (by default from the clock; it is printed). A moment is never what
//! a test judges by: whoever is killed whenever, what was acknowledged is there.
#![allow(clippy::useless_vec, reason = "`args!` makes one list for calls that keep it and for calls that do not")]

mod commands;
mod copies;
mod equal;
#[allow(dead_code, reason = "of the integration tests, which need all of it")]
#[path = "../it/harness.rs"]
mod harness;
mod kills;
mod model;
#[allow(dead_code, reason = "of the integration tests, which need all of it")]
#[path = "../it/nasty.rs"]
mod nasty;
mod place;
mod readers;
mod servers;
#[allow(dead_code, reason = "the tests of the package use all of it")]
#[path = "../../crates/bucket/src/tests/server.rs"]
mod simulated;
mod writers;
