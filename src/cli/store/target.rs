//! Where content of a store goes on the command line: standard output, or a file that appears complete or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::{AtomicFile, open_target};

/// The destination of the content. Standard output gets the raw bytes, without the colour filter for text.
pub(super) struct Target {
    pub(super) file: File,
    path: Option<PathBuf>,
    pub(super) atomic: Option<AtomicFile>,
}

impl Target {
    pub(super) fn open(path: Option<&Path>) -> Result<Target> {
        let Some(path) = path else {
            let file = io::stdout().as_fd().try_clone_to_owned();
            let file = file.map_err(|error| Error::io("write to", Path::new("standard output"), error))?;
            return Ok(Target { file: file.into(), path: None, atomic: None });
        };
        let (file, atomic) = open_target(path)?;
        Ok(Target { file, path: Some(path.to_owned()), atomic })
    }

    pub(super) fn is_standard_output(&self) -> bool {
        self.path.is_none()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    pub(super) fn failed(&self, error: io::Error) -> Error {
        match &self.path {
            Some(path) => Error::io("write", path, error),
            None => Error::io("write to", Path::new("standard output"), error),
        }
    }

    pub(super) fn commit(self) -> Result<()> {
        self.atomic.map_or(Ok(()), AtomicFile::commit)
    }
}
