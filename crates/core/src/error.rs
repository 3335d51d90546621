//! The one error type: a kind for programs; operation, path, cause and next step for people.
//!
//! [`Error`] prints as `cannot OPERATION PATH: CAUSE (NEXT STEP)`, in prose, with the path escaped so that a hostile
//! file name cannot reach a terminal. An unreadable file does not make a scan fail with one of these: such files are
//! counted (see `scan`), and the command ends with exit status 1.

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
}

/// The result of an operation that may end with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` while doing `operation` (an infinitive: "read the survey"), because of `cause`.
    pub fn new(kind: ErrorKind, operation: &'static str, cause: impl Into<String>) -> Error {
        Error { kind, operation, path: None, cause: cause.into(), advice: None, source: None }
    }

    /// An operating-system error while doing `operation` on `path`.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Error {
        let kind = ErrorKind::of(&source);
        let error = Error {
            kind,
            operation,
            path: Some(path.to_owned()),
            cause: os_message(&source),
            advice: None,
            source: Some(source),
        };
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
    fn a_hostile_path_is_escaped() {
        let error = Error::new(ErrorKind::Io, "read", "it is bad").at(Path::new("a\x1b[31mb"));
        assert_eq!(error.to_string(), "cannot read a\\x1b[31mb: it is bad");
    }
}
