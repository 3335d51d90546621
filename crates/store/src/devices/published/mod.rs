//! A log of batches on a device of immutable objects: published, not appended (docs/FORMAT.md, section 12).
//!
//! A bucket has no append, no sync and no rename. A **batch** is any number of [`objects`](crate::objects), each put
//! whole under a unique name, and a **body**, which says what they mean. It is acknowledged once the **manifest**,
//! which names them with length and checksum and has the body, has been replaced. The manifest is the only object that
//! ever changes, and only by conditional replace: the request names the version to be replaced.
//!
//! - A writer begins an **epoch** with a manifest that names it. From then on the previous writer is **fenced**: it
//!   expects a manifest that no longer exists.
//! - A **lost answer** is settled by reading the manifest again: each has a random number known to its author, and each
//!   epoch records which manifest it continued.
//! - An object is **garbage** if the manifest does not name it and its writer is fenced, or this writer itself
//!   replaced it. No manifest will ever name it again.
//!
//! | module | subject |
//! | --- | --- |
//! | `manifest` | the document, its bytes, and what it says about another |
//! | `settle` | reading and replacing it, and the outcome of a replacement |
//! | `writer` | epochs and pins |
//! | `stage` | batches: objects that are put, then published |
//! | `upload` | objects that are named before they are put |
//! | `collect` | garbage |
//! | `reader` | verified content; refreshing |
//! | `surroundings`, `process` | random numbers, the time, and patience; who writes |
//!
//! ```
//! use std::sync::Arc;
//!
//! use granulo_store::objects::Memory;
//! use granulo_store::published::{Machine, Reader, WriteError, Writer};
//!
//! let (bucket, machine) = (Arc::new(Memory::default()), Arc::new(Machine::default()));
//! let mut first = Writer::create(bucket.clone(), machine.clone())?;
//! first.publish(&[b"one", b"two"], &[])?;
//!
//! // A second writer goes on, and the first one is fenced.
//! let mut second = Writer::open(bucket.clone(), machine.clone())?;
//! assert!(matches!(first.publish(&[b"late"], &[]), Err(WriteError::Fenced(_))));
//! second.pin("before")?;
//! let replaced: Vec<u64> = second.manifest().objects().map(|object| object.number()).collect();
//! second.publish(&[b"one and two"], &replaced)?;
//!
//! let mut reader = Reader::open(bucket, machine)?;
//! let contents = |reader: &Reader, version| -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
//!     reader.manifest().at(version).map(|object| Ok(reader.read(object)?)).collect()
//! };
//! assert_eq!(contents(&reader, reader.manifest().version())?, [b"one and two"]);
//! let (_, pinned) = reader.manifest().pins().next().unwrap();
//! assert_eq!(contents(&reader, pinned)?, [b"one", b"two"]);
//!
//! // Once nobody needs them, they are garbage; so is what the fenced writer left.
//! second.unpin("before")?;
//! assert_eq!(second.collect()?.deleted_objects, 3);
//! assert!(reader.refresh()? && reader.manifest().pins().next().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod collect;
mod error;
pub(crate) mod manifest;
mod process;
mod reader;
mod settle;
mod stage;
mod surroundings;
#[cfg(test)]
mod tests;
mod upload;
mod writer;

pub use collect::Collected;
pub use error::WriteError;
pub(crate) use manifest::ObjectName;
pub use manifest::{Manifest, PublishedObject};
pub use process::Process;
pub use reader::Reader;
pub(crate) use settle::Bucket;
pub use stage::Staged;
pub use surroundings::{Machine, Surroundings};
pub use writer::Writer;

/// The name of the manifest.
pub(crate) const MANIFEST: &str = "manifest";
