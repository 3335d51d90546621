//! The log: records appended to segments, read through, and taken up again after a crash.

pub(crate) mod completeness;
pub(crate) mod lineage;
pub mod published;
pub(crate) mod scan;
pub(crate) mod writer;
