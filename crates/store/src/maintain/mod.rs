//! What keeps a store sound and small: looking for damage, making it good, giving back space, saying how it is.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod compact;
mod lost_found;
pub(crate) mod moving;
mod objects;
pub(crate) mod problem;
pub(crate) mod quarantine;
pub(crate) mod rebalance;
pub(crate) mod rebuild;
pub(crate) mod repair;
pub(crate) mod rewrite;
pub(crate) mod salvage;
pub(crate) mod scrub;
pub(crate) mod status;
pub(crate) mod vacate;
