//! Reports: results for people. Reports depend on results, never the reverse.

pub(crate) mod allocate;
pub mod bench;
pub(crate) mod cache;
pub(crate) mod cache_page;
pub(crate) mod chart;
pub(crate) mod compare;
pub(crate) mod csv;
pub(crate) mod generate;
mod growth;
pub(crate) mod history;
pub(crate) mod history_page;
pub mod page;
pub(crate) mod paragraphs;
pub(crate) mod plan;
pub(crate) mod plan_page;
mod plan_words;
pub(crate) mod store;
pub(crate) mod store_page;
pub(crate) mod systems;
pub(crate) mod table;
pub mod terminal;
pub mod trace;
pub(crate) mod trace_page;
pub(crate) mod words;
