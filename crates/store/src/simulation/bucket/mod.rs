//! A log that is published to a bucket by writers and readers that do not know of each other, over a network that
//! delays, loses and repeats requests.
//!
//! | module | subject |
//! | --- | --- |
//! | [`network`] | a bucket as each client sees it: faults, requests that land late or twice, interleaved clients |
//! | [`truth`] | the history of the bucket, judged at each change: the model |
//! | [`play`] | writers and readers, and what they do |
//! | [`random`] | random scenarios, in any number |
//!
//! The seed also determines who acts while another client's request is in progress: between any two requests of one,
//! another may do a complete operation, and between two of its requests a third one. Requests that land late produce
//! the other orders.

mod network;
mod play;
mod random;
mod truth;
