//! A device of immutable objects, such as a bucket: an object is put whole, read in ranges, listed and deleted; only a
//! conditional replace changes one.
//!
//! The other kind of device, a directory of files, is `devices::device`. A log on objects needs little, and this is all
//! of it (docs/FORMAT.md, section 12):
//!
//! - **One name, one order.** The effect of [`put`](Objects::put), [`replace`](Objects::replace) and
//!   [`delete`](Objects::delete) on a name is atomic; any later read of the name, anywhere, sees it. Nothing is
//!   guaranteed across names.
//! - **Tags.** The tag of an object changes with its bytes, and is never reused for other bytes of that name.
//! - **Answers may be lost.** A request without an answer has taken effect, or has not, or still will: it may be
//!   delayed arbitrarily, and may even arrive twice. [`ObjectError::Unknown`] says so.
//! - **Listings may lag.** An object that was just put or deleted may be missing from a listing, or still appear in it.
//!
//! | | S3 | Google Cloud Storage | Azure |
//! | --- | --- | --- | --- |
//! | tag | `ETag` | generation | `ETag` |
//! | only if absent | `If-None-Match: *` | `ifGenerationMatch=0` | `If-None-Match: *` |
//! | only if it has the tag | `If-Match` | `ifGenerationMatch` | `If-Match` |
//! | [`Refused`](ObjectError::Refused) | 412, and 404 of a conditional put | 412 | 412, 409 `BlobAlreadyExists` |
//! | [`Failed`](ObjectError::Failed) | 409 `ConditionalRequestConflict`, 503 `SlowDown`, no connection, 4xx | 429, no connection, 4xx | 503 `ServerBusy`, no connection, 4xx |
//! | [`Unknown`](ObjectError::Unknown) | 500, a timeout, a connection that broke | the same | the same |
//!
//! An `ETag` on S3 depends on the bytes, so repeated bytes have a previous tag: a replacement must never write the same
//! bytes twice. Manifests contain a version and a random number. A client underneath that retries a request by itself
//! may return `Refused` for one that took effect the first time; that is allowed, and the log checks.

use std::fmt;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::format::geometry::Class;

pub(crate) mod counts;
mod memory;

pub use memory::Memory;

/// Identifies the bytes of an object: changes with them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag(pub String);

/// The condition for replacing an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// No object of this name exists.
    Absent,
    /// It has this tag.
    Tagged(Tag),
}

/// What is known about an object without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Length of the whole object.
    pub size_bytes: u64,
    /// Tag of its bytes.
    pub tag: Tag,
}

/// A range of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// As many bytes of the range as exist.
    pub bytes: Vec<u8>,
    /// Length and tag of the object when they were read.
    pub head: Head,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its full name.
    pub name: String,
    /// Length of the whole object.
    pub size_bytes: u64,
}

/// Part of a listing, in the byte order of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its objects.
    pub objects: Vec<ListedObject>,
    /// Whether this is the last page. Otherwise the next one begins after the last name of this one.
    pub is_last: bool,
}

/// Why a request failed, as far as known.
#[derive(Debug)]
pub enum ObjectError {
    /// There is no object of this name.
    NotFound,
    /// The condition did not hold: the object exists, or has another tag.
    Refused,
    /// It failed, has not taken effect and never will. Whether another attempt may succeed is in the kind of the error:
    /// see [`is_final`](ObjectError::is_final).
    Failed(io::Error),
    /// The answer was lost: it took effect, or did not, or still will.
    Unknown(io::Error),
}

impl ObjectError {
    /// Whether the same request would fail again: it is not allowed (`PermissionDenied`), or is one that the bucket
    /// cannot do (`InvalidInput`, `Unsupported`).
    pub fn is_final(&self) -> bool {
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        matches!(self, ObjectError::Failed(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported))
    }

    /// Converts to a system error.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            ObjectError::NotFound => io::ErrorKind::NotFound.into(),
            ObjectError::Refused => io::Error::new(io::ErrorKind::AlreadyExists, self.to_string()),
            ObjectError::Failed(error) | ObjectError::Unknown(error) => error,
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectError::NotFound => f.write_str("no such object"),
            ObjectError::Refused => f.write_str("the object is not what was expected"),
            ObjectError::Failed(error) => write!(f, "the request failed: {error}"),
            ObjectError::Unknown(error) => write!(f, "the response was lost: {error}"),
        }
    }
}

impl std::error::Error for ObjectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ObjectError::Failed(error) | ObjectError::Unknown(error) => Some(error),
            ObjectError::NotFound | ObjectError::Refused => None,
        }
    }
}

/// Immutable objects by name. Names have `/` between components, like paths; a prefix is a string, not a component.
///
/// ```
/// use granulo_store::objects::{Expected, Memory, ObjectError, Objects};
///
/// let bucket = Memory::default();
/// let first = bucket.put("greeting", b"hello")?;
/// assert!(matches!(bucket.put("greeting", b"again"), Err(ObjectError::Refused)));
///
/// let second = bucket.replace("greeting", b"good day", &Expected::Tagged(first.clone()))?;
/// assert!(matches!(bucket.replace("greeting", b"late", &Expected::Tagged(first)), Err(ObjectError::Refused)));
///
/// let piece = bucket.read("greeting", 5..100)?;
/// assert_eq!((piece.bytes.as_slice(), piece.head.size_bytes, piece.head.tag), (&b"day"[..], 8, second));
/// assert_eq!(bucket.list("gr", None)?.objects[0].name, "greeting");
/// bucket.delete("greeting")?;
/// assert!(matches!(bucket.head("greeting"), Err(ObjectError::NotFound)));
/// # Ok::<(), ObjectError>(())
/// ```
pub trait Objects: Send + Sync + Debug {
    /// Their location, for messages.
    fn place(&self) -> PathBuf;

    /// Puts an object whole, unless one of this name exists.
    ///
    /// The log uses a unique name for every put, so it also works on buckets that ignore the condition here and
    /// overwrite.
    ///
    /// # Errors
    /// [`Refused`](ObjectError::Refused) if one exists.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.replace(name, bytes, &Expected::Absent)
    }

    /// From now on, [`put_as`](Self::put_as) puts what is read at random into a storage class of this name, and the
    /// rest into another; `None`: that of the bucket. Without classes, as here, nothing changes.
    fn set_classes(&self, _fast: Option<&str>, _slow: Option<&str>) {}

    /// As [`put`](Self::put), into the storage class for what is read at random, or the cheap one; without classes, as
    /// here, all the same.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn put_as(&self, _class: Class, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.put(name, bytes)
    }

    /// Puts an object whole, replacing the expected one, or creating it if none is expected; returns its tag. Check and
    /// put must be atomic.
    ///
    /// # Errors
    /// [`Refused`](ObjectError::Refused) if the expectation does not hold; [`Unknown`](ObjectError::Unknown) if it may
    /// still take effect.
    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError>;

    /// Reads as many bytes of a range as exist.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError>;

    /// As [`read`](Self::read), unless the object still has this tag. Two requests, as here, or a conditional one.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Result<Option<Piece>, ObjectError> {
        match self.head(name)?.tag == *tag {
            true => Ok(None),
            false => self.read(name, range).map(Some),
        }
    }

    /// Size and tag of an object.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn head(&self, name: &str) -> Result<Head, ObjectError>;

    /// How long ago an object was put, by the clock of the bucket; `None` if that is not known, as here.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn age(&self, _name: &str) -> Result<Option<Duration>, ObjectError> {
        Ok(None)
    }

    /// Objects whose names begin with `prefix`, starting with the first one after the name `after`.
    ///
    /// # Errors
    /// Only those of the system.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError>;

    /// Deletes an object. If none exists, succeeds or returns [`NotFound`](ObjectError::NotFound), depending on the
    /// bucket.
    ///
    /// # Errors
    /// Those of the system.
    fn delete(&self, name: &str) -> Result<(), ObjectError>;

    /// Deletes many objects, with an answer for each, in order. One request each, as here, or fewer.
    fn delete_many(&self, names: &[String]) -> Vec<Result<(), ObjectError>> {
        names.iter().map(|name| self.delete(name)).collect()
    }
}
