//! A device of immutable objects, as buckets are: an object is put whole, read in ranges, listed and deleted; only a conditional replace changes one.
//!
//! The other kind of device, a directory of files, is `devices::device`. What a log on objects needs of them is little, and this is all of it
//! (docs/FORMAT.md, section 12):
//!
//! - **One name, one order.** What [`put`](Objects::put), [`replace`](Objects::replace) and [`delete`](Objects::delete) do to a name takes effect at one moment and
//!   as a whole; whoever reads the name afterwards, anywhere, sees it. Between names nothing is promised.
//! - **Tags.** The tag of an object changes with its bytes, and a tag is never given to other bytes of that name again.
//! - **Answers may be lost.** A request whose answer did not come has taken effect, or has not, or still will: it may be under way for as long as it likes, and may even arrive
//!   twice. [`ObjectError::Unknown`] says so.
//! - **Listings may lag.** An object that was just put or deleted may be missing from a listing, or still be in it.
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
//! An `ETag` on S3 follows from the bytes, so bytes that come again have a tag that was there before: whoever replaces must not write the same bytes twice. Manifests have a
//! version and a random number in them. A client below that sends a request again by itself may say `Refused` of one that took effect at the first time; that is allowed, and
//! the log looks.

use std::fmt;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

mod memory;

pub use memory::Memory;

/// Which bytes an object has: changes with them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag(pub String);

/// What must be so for an object to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// There is none of the name.
    Absent,
    /// It has this tag.
    Tagged(Tag),
}

/// What is known of an object without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Length of the whole.
    pub size_bytes: u64,
    /// Of its bytes.
    pub tag: Tag,
}

/// A range of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// As many bytes of the range as there are.
    pub bytes: Vec<u8>,
    /// What the object was of which they are.
    pub head: Head,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its name, whole.
    pub name: String,
    /// Length of the whole.
    pub size_bytes: u64,
}

/// Part of a listing, in order of the bytes of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What it has.
    pub objects: Vec<ListedObject>,
    /// Whether none follows. Else the next one begins after the last name of this one.
    pub is_last: bool,
}

/// Why a request was not done, as far as can be said.
#[derive(Debug)]
pub enum ObjectError {
    /// There is no object of the name.
    NotFound,
    /// The condition did not hold: there is such an object, or it has another tag.
    Refused,
    /// It failed, and has not taken effect and never will.
    Failed(io::Error),
    /// The answer was lost: it took effect, or did not, or still will.
    Unknown(io::Error),
}

impl ObjectError {
    /// As an error of the system.
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
            ObjectError::NotFound => f.write_str("there is no such object"),
            ObjectError::Refused => f.write_str("the object is not what was expected"),
            ObjectError::Failed(error) => write!(f, "the request failed: {error}"),
            ObjectError::Unknown(error) => write!(f, "the answer was lost: {error}"),
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
    /// Where they are, for messages.
    fn place(&self) -> PathBuf;

    /// Puts an object whole, if there is none of the name.
    ///
    /// The log gives every put a name of its own, so it also stands on buckets that know no condition here and overwrite.
    ///
    /// # Errors
    /// [`Refused`](ObjectError::Refused) if there is one.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.replace(name, bytes, &Expected::Absent)
    }

    /// Puts an object whole in the place of another one, or of none, if it is as expected; gives its tag. Nothing may come between looking and putting.
    ///
    /// # Errors
    /// [`Refused`](ObjectError::Refused) if it is not.
    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError>;

    /// Reads as many bytes of a range as there are, and none behind the end.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError>;

    /// Size and tag of an object.
    ///
    /// # Errors
    /// [`NotFound`](ObjectError::NotFound).
    fn head(&self, name: &str) -> Result<Head, ObjectError>;

    /// Objects whose names begin with `prefix`, from the first one behind the name `after` on.
    ///
    /// # Errors
    /// None but those of the system.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError>;

    /// Deletes an object. That there is none is no error, or [`NotFound`](ObjectError::NotFound), as the bucket has it.
    ///
    /// # Errors
    /// What the system fails with.
    fn delete(&self, name: &str) -> Result<(), ObjectError>;
}
