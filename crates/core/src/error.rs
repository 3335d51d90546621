//! The one error type: a kind for programs; operation, path, cause and next step for people.
//!
//! [`Error`] prints as `cannot OPERATION PATH: CAUSE (NEXT STEP)`, in prose, with the path escaped so that a hostile
//! file name cannot reach a terminal. Programs read its kind, path and, where there are any, the number of the device
//! and what was expected and found, as fields. An unreadable file does not make a scan fail with one of these: such
//! files are counted (see `scan`), and the command ends with exit status 1.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::units::escape_path;

/// The kind of a failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong: an unknown name, an impossible combination.
    Usage,
    /// A requested file or directory does not exist.
    NotFound,
    /// The operating system refused access.
    PermissionDenied,
    /// The file is not in a format that granulo reads.
    NotRecognised,
    /// The file claims a format but contradicts it: truncated, damaged or edited.
    Corrupt,
    /// The file was written by a newer granulo.
    NewerVersion,
    /// The device is full.
    NoSpace,
    /// Another process does what only one may do.
    Busy,
    /// What is written to was opened for reading, or has become read-only after a failed write.
    ReadOnly,
    /// It exists already.
    Exists,
    /// Redundancy cannot repair the loss or damage.
    Lost,
    /// The work was asked to stop.
    Interrupted,
    /// Any other failure of the operating system.
    Io,
}

impl ErrorKind {
    /// The kind of an operating-system error.
    pub fn of(error: &io::Error) -> ErrorKind {
        match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        }
    }
}

/// A failure that ends an operation.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    path: Option<PathBuf>,
    cause: String,
    advice: Option<String>,
    source: Option<io::Error>,
    device: Option<u16>,
    mismatch: Option<Box<Mismatch>>,
}

/// What contradicts what.
#[derive(Debug)]
struct Mismatch {
    expected: String,
    found: String,
}

/// The result of an operation that may end with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` while doing `operation` (an infinitive: "read the survey"), because of `cause`.
    pub fn new(kind: ErrorKind, operation: &'static str, cause: impl Into<String>) -> Error {
        Error {
            kind,
            operation,
            path: None,
            cause: cause.into(),
            advice: None,
            source: None,
            device: None,
            mismatch: None,
        }
    }

    /// A document of version `found`, of which this granulo reads versions up to `readable`.
    pub fn newer_version(operation: &'static str, found: impl fmt::Display, readable: impl fmt::Display) -> Error {
        let cause = format!("it has version {found}; this granulo reads up to version {readable}");
        Error::new(ErrorKind::NewerVersion, operation, cause).mismatch(readable, found).advise("use a newer granulo")
    }

    /// An operating-system error while doing `operation` on `path`.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Error {
        let kind = ErrorKind::of(&source);
        let error = Error::new(kind, operation, os_message(&source)).at(path);
        let error = Error { source: Some(source), ..error };
        match kind {
            ErrorKind::NoSpace => error.advise("free some space or choose another device"),
            ErrorKind::PermissionDenied => error.advise("check the permissions or run as another user"),
            _ => error,
        }
    }

    /// The same error, about `path`.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Error {
        self.path = Some(path.to_owned());
        self
    }

    /// The same error, with what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// The same error, with the object of a store that it concerns, escaped.
    #[must_use]
    pub fn affecting(mut self, object: impl fmt::Display) -> Error {
        self.cause = format!("{}; it affects {object}", self.cause);
        self
    }

    /// The same error, about a device of a store.
    #[must_use]
    pub fn on_device(mut self, number: u16) -> Error {
        self.device = Some(number);
        self
    }

    /// The same error, with what was expected and what was found instead.
    #[must_use]
    pub fn mismatch(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Error {
        self.mismatch = Some(Box::new(Mismatch { expected: expected.to_string(), found: found.to_string() }));
        self
    }

    /// The error of the operating system behind it, if any.
    pub fn os_error(&self) -> Option<&io::Error> {
        self.source.as_ref()
    }

    /// The kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> &str {
        self.operation
    }

    /// The file or directory concerned, if any.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The number of the device of the store concerned, if any.
    pub fn device(&self) -> Option<u16> {
        self.device
    }

    /// What was expected, where something else was found.
    pub fn expected(&self) -> Option<&str> {
        self.mismatch.as_ref().map(|mismatch| mismatch.expected.as_str())
    }

    /// What was found instead of what was expected.
    pub fn found(&self) -> Option<&str> {
        self.mismatch.as_ref().map(|mismatch| mismatch.found.as_str())
    }
}

/// The message of an operating-system error, without Rust's "(os error 2)".
pub fn os_message(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.operation)?;
        if let Some(path) = &self.path {
            write!(f, " {}", escape_path(path))?;
        }
        write!(f, ": {}", self.cause)?;
        if let Some(advice) = &self.advice {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_sentence_with_path_and_advice() {
        let error = Error::io("open the survey", Path::new("/no/such"), io::Error::from_raw_os_error(2))
            .advise("see granulo survey --help");
        assert_eq!(
            error.to_string(),
            "cannot open the survey /no/such: No such file or directory (see granulo survey --help)"
        );
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn programs_read_fields() {
        let error = Error::newer_version("open the store", 3, 2).at(Path::new("/s")).on_device(1);
        assert_eq!((error.expected(), error.found(), error.device()), (Some("2"), Some("3"), Some(1)));
        assert_eq!(
            error.to_string(),
            "cannot open the store /s: it has version 3; this granulo reads up to version 2 (use a newer granulo)"
        );
        assert_eq!(Error::new(ErrorKind::Io, "read", "it is bad").expected(), None);
    }

    #[test]
    fn the_object_comes_after_the_cause_and_before_the_advice() {
        let error = Error::new(ErrorKind::Lost, "read", "a unit is damaged").affecting("a/b").advise("run it");
        assert_eq!(error.to_string(), "cannot read: a unit is damaged; it affects a/b (run it)");
    }

    #[test]
    fn a_hostile_path_is_escaped() {
        let error = Error::new(ErrorKind::Io, "read", "it is bad").at(Path::new("a\x1b[31mb"));
        assert_eq!(error.to_string(), "cannot read a\\x1b[31mb: it is bad");
    }
}
