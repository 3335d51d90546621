//! A log that is published to a bucket, by writers and readers that do not know of each other, over a network that delays, loses and repeats.
//!
//! | module | subject |
//! | --- | --- |
//! | [`network`] | a bucket as each of them sees it: faults, requests that land late or twice, and others who act between any two |
//! | [`truth`] | what the bucket went through, judged at each change: the model |
//! | [`play`] | writers and readers, and what they do |
//! | [`random`] | as many scenarios as are asked for |
//!
//! Who acts while another's request is under way follows from the seed too: between any two requests of one, another may do something whole, and between two of its requests a third one.
//! Requests that land late give the other orders.

mod network;
mod play;
mod random;
mod truth;
