//! Files written so that nobody ever sees half of one: to a temporary name beside the target, synced, renamed.

pub mod varint;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// The largest file that is read whole into memory, in bytes: larger than any result of granulo's.
pub const READ_LIMIT_BYTES: u64 = 256 << 20;

/// A file in the making. Dropped without [`commit`](Self::commit), it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

impl AtomicFile {
    /// Begins a file that will be at `path`; fails early where it could not be.
    ///
    /// # Errors
    /// What creating a file there fails with.
    pub fn create(path: &Path) -> Result<AtomicFile> {
        if path.is_dir() {
            return Err(Error::new(ErrorKind::Usage, "write", "it is a directory")
                .at(path)
                .advise("name a file in it"));
        }
        let temporary = temporary_beside(path);
        let file = File::create(&temporary).map_err(|error| Error::io("create a file for", path, error))?;
        Ok(AtomicFile { path: path.to_owned(), temporary, file: Some(file) })
    }

    /// The open temporary file.
    pub fn file(&self) -> io::Result<File> {
        match &self.file {
            Some(file) => file.try_clone(),
            None => Err(io::Error::other("the file was committed")),
        }
    }

    /// Gives it its name. A crash may leave it half written: only for what is checked when it is read, and can be made again.
    ///
    /// # Errors
    /// What renaming fails with; the target then is what it was.
    pub fn publish(mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.path).map_err(|error| Error::io("write", &self.path, error))?;
        self.temporary.clear();
        Ok(())
    }

    /// Makes it durable and gives it its name.
    ///
    /// # Errors
    /// What syncing or renaming fails with; the target then is what it was.
    pub fn commit(mut self) -> Result<()> {
        let fail = |error| Error::io("write", &self.path, error);
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(fail)?;
        }
        fs::rename(&self.temporary, &self.path).map_err(fail)?;
        self.temporary.clear();
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The rename is durable once the directory is; a file system that cannot sync one is no reason to fail.
        if let Ok(directory) = File::open(directory) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A name in the same directory that says what it is and is nobody else's.
fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned().into_vec();
    name.extend_from_slice(format!(".{}.tmp", std::process::id()).as_bytes());
    PathBuf::from(std::ffi::OsString::from_vec(name))
}

/// Writes a whole file at once; `write` gets a buffered writer. A target that is no regular file (`/dev/stdout`, a pipe) is
/// written directly.
///
/// # Errors
/// What creating, writing, syncing or renaming fails with; the target then is what it was.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let fail = |error| Error::io("write", path, error);
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        let mut out = BufWriter::new(fs::OpenOptions::new().write(true).open(path).map_err(fail)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(fail);
    }
    let target = AtomicFile::create(path)?;
    let mut out = BufWriter::with_capacity(1 << 18, target.file().map_err(fail)?);
    write(&mut out).and_then(|()| out.flush()).map_err(fail)?;
    drop(out);
    target.commit()
}

/// Reads a file that should be a result of granulo's: refuses directories and files above [`READ_LIMIT_BYTES`].
///
/// # Errors
/// What opening or reading fails with; [`ErrorKind::NotRecognised`] for what is too large.
pub fn read_bounded(operation: &'static str, path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let fail = |error| Error::io(operation, path, error);
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(READ_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > READ_LIMIT_BYTES {
        let cause = "it is larger than any result of granulo's can be";
        return Err(Error::new(ErrorKind::NotRecognised, operation, cause).at(path));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        write_atomically(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_atomically(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::Error::from_raw_os_error(28))
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_no_target() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomically(directory.path(), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}
