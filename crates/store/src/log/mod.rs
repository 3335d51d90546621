//! The log: records appended to segments, read through, and taken up again after a crash.

pub(crate) mod outdated;
pub(crate) mod recovery;
pub(crate) mod scan;
pub(crate) mod writer;
