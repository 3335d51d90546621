//! Reports: results for people. Reports depend on results, never the reverse.

pub mod allocate;
pub mod bench;
pub mod cache;
pub mod cache_page;
mod chart;
pub mod compare;
pub mod generate;
pub mod page;
mod paragraphs;
pub mod plan;
pub mod plan_page;
mod plan_words;
pub mod store;
pub mod systems;
pub mod terminal;
pub mod trace;
pub mod trace_page;
pub mod words;
