//! Benchmarks: how a file system, or granulo's store, bears a population.
//!
//! | module | subject |
//! | --- | --- |
//! | [`result`] | the document that every bench writes, `granulo/bench/1` |
//! | [`samples`] | spread of few samples; times of millions of operations in constant memory |

pub mod result;
pub mod samples;
