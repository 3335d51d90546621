//! A store in a bucket: files of a volume, whose bytes are pieces of objects.
//!
//! **Law: a publication is a cut.** The engine writes files of a [`volume`](self), as it writes those of a directory. A
//! publication makes what all of them are at one moment the next version of a [`published`](super::published) log: the
//! table of files is its body. So what a crash leaves is what a killed process leaves in a directory, at that moment,
//! with everything written before and nothing written later. Versions follow each other without gaps: a later one has
//! every earlier cut in it.
//!
//! | module | subject |
//! | --- | --- |
//! | `pieces` | the bytes of one file |
//! | `table` | names and files |
//! | `body` | the table as bytes |
//! | `volume` | a table and the log that it is published to; reading, and newer versions |
//! | `publish` | cuts: what is put into objects, and when; holds |
//! | `consolidate` | small pieces of a file, put together |
//! | `dropped`, `collect` | what no version refers to any more, and how it is deleted |
//! | `lease`, `lock` | who may publish, and how another process learns that it no longer lives |
//! | `options` | how a program uses it |
//! | `remembered` | what a writer was told, for the next one |
//! | `uploads` | objects on their way while more is written |
//! | `fetch` | reading objects in few requests, and ahead |
//! | `streams`, `memory`, `cache` | who reads in order; what of objects is in memory, and on disk |
//! | `file`, `device`, `platform` | the volume as the engine sees it |

pub(crate) mod body;
mod cache;
mod collect;
mod consolidate;
mod device;
pub(crate) mod dropped;
mod fetch;
mod file;
pub(crate) mod lease;
mod lock;
mod memory;
mod options;
pub(crate) mod pieces;
pub(crate) mod platform;
mod publish;
mod remembered;
mod streams;
pub(crate) mod table;
mod uploads;
pub(crate) mod volume;

pub use options::BucketOptions;

#[cfg(test)]
pub(crate) mod tests;
