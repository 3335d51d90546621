//! Stores in the buckets of real servers, from outside: the built `granulo`, a Ceph with its gateway and a MinIO.
//!
//! The servers are started by the scripts in `tests/servers`, one of each for all tests, which take turns, and end with
//! this process. A test whose server or program is missing reports that it is skipped, and fails instead when
//! `GRANULO_REQUIRE_ALL=1` is set. `GRANULO_BUCKET_KILLS` is the number of kills in each test that kills (3), and
//! `GRANULO_BUCKET_SEED` the seed of their moments (by default from the clock; it is printed). A moment is never what
//! a test judges by: whoever is killed whenever, what was acknowledged is there.
#![allow(clippy::useless_vec, reason = "`args!` makes one list for calls that keep it and for calls that do not")]

mod copies;
mod equal;
#[allow(dead_code, reason = "of the integration tests, which need all of it")]
#[path = "../it/harness.rs"]
mod harness;
mod kills;
mod model;
mod place;
mod readers;
mod servers;
mod writers;
