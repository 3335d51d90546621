//! Reports: results for people. Knows the results; the results do not know it.

mod chart;
pub mod compare;
pub mod page;
pub mod terminal;
pub mod words;
