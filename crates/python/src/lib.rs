//! The extension `granulo._granulo`: what the Python package does in Rust. The package `granulo` around it, in Python,
//! is the interface; this is not.
//!
//! | module | subject |
//! | --- | --- |
//! | `process` | handles that a fork must neither use nor release |
//! | `errors`, `keys` | errors and keys on their way to Python and back |
//! | `buffers` | buffers and numbers on their way to Python and back |
//! | `rows`, `names`, `table` | a listing: shared rows, names on disk, both as one object |
//! | `order` | the exact and the window shuffle, as functions |
//! | `reading`, `reader`, `scratch` | rows into one buffer; batches of an order, read ahead; the way through scratch space |
//! | `entries`, `batch`, `handle` | the store |
//! | `survey` | surveys, plans and comparisons as JSON; the command |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use pyo3::prelude::*;

mod batch;
mod buffers;
mod entries;
mod errors;
mod handle;
mod keys;
mod names;
mod order;
mod process;
mod reader;
mod reading;
mod rows;
mod scratch;
#[cfg(feature = "survey")]
mod survey;
mod table;

/// What the package `granulo` does in Rust.
#[pymodule]
mod _granulo {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::entries::{Stat, Walk};
    #[pymodule_export]
    use crate::handle::{Handle, inherited_locks, normal_key};
    #[pymodule_export]
    use crate::reader::{Reader, order_of};
    #[pymodule_export]
    use crate::scratch::Scratch;
    #[cfg(feature = "survey")]
    #[pymodule_export]
    use crate::survey::{command, compare, plan, survey};
    #[pymodule_export]
    use crate::table::Table;

    /// The version of the library.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
