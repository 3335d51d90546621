//! The log: records are appended to segments, read sequentially, and recovered after a crash.

pub(crate) mod completeness;
pub(crate) mod lineage;
pub(crate) mod open_batch;
pub(crate) mod scan;
pub(crate) mod writer;
