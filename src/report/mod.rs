//! Reports: results for people. Knows the results; the results do not know it.

pub mod allocate;
pub mod bench;
mod chart;
pub mod compare;
pub mod generate;
pub mod page;
pub mod plan;
pub mod plan_page;
mod plan_words;
pub mod store;
pub mod terminal;
pub mod trace;
pub mod words;
