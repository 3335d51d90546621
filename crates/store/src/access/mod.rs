//! Reading an open store: one object, many, all, and listings.

pub(crate) mod content;
pub(crate) mod difference;
pub(crate) mod gather;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod listed;
pub(crate) mod load;
pub(crate) mod many;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod read;
pub(crate) mod versions;
pub(crate) mod walk;
