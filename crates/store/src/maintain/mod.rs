//! Keeping a store sound and small: finding damage, repairing it, freeing space, reporting status.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod choice;
pub(crate) mod compact;
mod cut_short;
mod drop_lost;
mod lost_found;
pub(crate) mod moving;
mod objects;
pub(crate) mod problem;
pub(crate) mod quarantine;
mod readmission;
pub(crate) mod rebalance;
pub(crate) mod rebuild;
mod remedies;
pub(crate) mod repair;
mod replace;
pub(crate) mod replicate;
pub(crate) mod rewrite;
pub(crate) mod salvage;
pub(crate) mod scrub;
mod shared_units;
mod sides;
pub(crate) mod status;
pub(crate) mod vacate;
