//! Why a write to a published store failed: what has changed, and whether the writer goes on.

use std::fmt;

use crate::error::Error;

/// Why nothing was written, or why the outcome is unknown.
#[derive(Debug)]
pub enum WriteError {
    /// Nothing has changed or will change. The writer may continue, unless the error says otherwise.
    Failed(Error),
    /// Another writer has begun an epoch. Nothing has changed or will change; this writer has ended.
    Fenced(Error),
    /// The write took effect as a whole or not at all; the next writer that opens settles which, for good. This writer
    /// has ended.
    Unsettled(Error),
}

impl WriteError {
    /// The error itself.
    pub fn error(&self) -> &Error {
        let (WriteError::Failed(error) | WriteError::Fenced(error) | WriteError::Unsettled(error)) = self;
        error
    }
}

impl From<Error> for WriteError {
    fn from(error: Error) -> WriteError {
        WriteError::Failed(error)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}
