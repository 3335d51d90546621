//! `granulo store put`: one file into a store, from a file or from standard input, of any length in bounded memory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::transfer_words;
use super::{Ended, StoreToWrite, key, output, usage_error};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::store::attributes::DEFAULT_FILE_MODE;
use crate::store::{Attributes, Durability, Key, Store, Time};

/// Store one file, from a file or from standard input
///
/// An existing object with this key is replaced atomically; parent directories are created. When the command returns,
/// the file is durable. It keeps mode, owner and modification time of FILE; standard input gives a file owned by this
/// user, modified now. For whole trees, links, holes and extended attributes, use granulo store import.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store put /srv/s logs/today today.log\n  granulo store put /srv/s logs/ today.log\n  \
    pg_dump shop | granulo store put /srv/s backups/shop.sql --mode 600"
)]
pub(super) struct PutArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Key; with a trailing slash, the directory for FILE
    #[arg(value_name = "KEY")]
    key: OsString,
    /// File; if omitted or '-', standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Permissions [default: those of FILE, or 644]
    #[arg(long, value_name = "OCTAL", value_parser = permissions)]
    mode: Option<u16>,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

fn permissions(text: &str) -> std::result::Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 && !text.starts_with('+') => Ok(mode),
        _ => Err("write permissions in octal, such as 644 or 1777".to_owned()),
    }
}

/// The source of the content.
struct Source {
    path: Option<PathBuf>,
    stream: Box<dyn Read>,
    attributes: Attributes,
    size_bytes: Option<u64>,
}

#[derive(Serialize)]
struct PutDocument {
    schema: &'static str,
    key: String,
    size_bytes: u64,
    mode: u16,
    failed_devices: Vec<u16>,
}

impl PutArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let path = self.file.as_deref().filter(|path| path.as_os_str() != "-");
        let key = target(&self.key, path)?;
        let mut source = match path {
            Some(path) => Source::file(path)?,
            None => Source::standard_input()?,
        };
        if let Some(permissions) = self.mode {
            source.attributes.mode = source.attributes.mode & !0o7777 | permissions;
        }
        let store = self.at.open()?;
        let progress = signals::progress()?;
        progress.set_total(source.size_bytes.unwrap_or(0));
        let put = during(self.quiet, &progress, transfer_words, || put(&store, &key, &mut source, &progress));
        let size_bytes = match put {
            Err(_) if progress.should_stop() => {
                output::note("interrupted; nothing was stored");
                return Ok(Ended::Amiss);
            }
            put => put?,
        };
        store.say_failures();
        let failed_devices = store.failed_devices();
        let ended = if failed_devices.is_empty() { Ended::Well } else { Ended::Amiss };
        emit(&self.document, || {
            let (key, mode) = (key.to_string(), source.attributes.mode);
            PutDocument { schema: "granulo/store-put/1", key, size_bytes, mode, failed_devices }
        })?;
        Ok(ended)
    }
}

/// The key for the file.
fn target(argument: &OsStr, path: Option<&Path>) -> Result<Key> {
    let named = key(argument)?;
    if !named.is_root() && !argument.as_bytes().ends_with(b"/") {
        return Ok(named);
    }
    match path.and_then(Path::file_name) {
        Some(name) => named.child(name.as_bytes()),
        None => Err(usage_error("a key with a trailing slash is a directory, and standard input has no name")
            .advise("add a name after the slash")),
    }
}

fn put(store: &Store, key: &Key, source: &mut Source, progress: &Progress) -> Result<u64> {
    let mut stream = Watched { inner: &mut source.stream, progress, failed: None };
    let mut batch = store.batch(Durability::Batch);
    let put = batch.put_from(key, &source.attributes, &mut stream, source.size_bytes);
    match (put, stream.failed) {
        // What writes to the pipe is stopped by the same signal: its end is then not that of the content.
        (Ok(_), _) if progress.should_stop() => Err(Error::new(ErrorKind::Interrupted, "put", "it was asked to stop")),
        (Ok(size_bytes), _) => batch.commit().map(|()| size_bytes),
        // The store knows that reading failed, but not from where.
        (Err(_), Some(error)) => {
            Err(Error::io("read", source.path.as_deref().unwrap_or(Path::new("standard input")), error))
        }
        (Err(error), None) => Err(error),
    }
}

impl Source {
    fn file(path: &Path) -> Result<Source> {
        let fail = |error| Error::io("put", path, error);
        let file = File::open(path).map_err(fail)?;
        let found = file.metadata().map_err(fail)?;
        if found.is_dir() {
            let error = Error::new(ErrorKind::Usage, "put", "it is a directory").at(path);
            return Err(error.advise("put a single file, or use granulo store import for a tree"));
        }
        if !found.is_file() {
            return Ok(Source { path: Some(path.to_owned()), stream: Box::new(file), ..Source::standard_input()? });
        }
        let attributes = Attributes {
            mode: (found.mode() & 0o177_777) as u16,
            uid: found.uid(),
            gid: found.gid(),
            mtime: Time { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 },
            ..Attributes::default()
        };
        Ok(Source { path: Some(path.to_owned()), stream: Box::new(file), attributes, size_bytes: Some(found.len()) })
    }

    fn standard_input() -> Result<Source> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attributes = Attributes {
            mode: DEFAULT_FILE_MODE,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mtime: Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() },
            ..Attributes::default()
        };
        Ok(Source { path: None, stream: Box::new(io::stdin().lock()), attributes, size_bytes: None })
    }
}

/// A stream that reports progress, and fails when the transfer is interrupted.
struct Watched<'a> {
    inner: &'a mut dyn Read,
    progress: &'a Progress,
    failed: Option<io::Error>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.should_stop() {
            return Err(io::Error::other("interrupted"));
        }
        match self.inner.read(buffer) {
            Ok(bytes) => {
                self.progress.add_bytes(bytes as u64);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let told = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                self.failed = Some(error);
                Err(told)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal() {
        assert_eq!(permissions("0644"), Ok(0o644));
        assert_eq!(permissions("7777"), Ok(0o7777));
        for wrong in ["", "+644", "648", "10000", "rw", "-1"] {
            assert!(permissions(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_slash_at_the_end_takes_the_name_of_the_file() {
        let named =
            |key: &str, path: Option<&str>| target(OsStr::new(key), path.map(Path::new)).map(|key| key.to_string());
        assert_eq!(named("a/b", Some("/x/y")).unwrap(), "a/b");
        assert_eq!(named("a/b/", Some("/x/y")).unwrap(), "a/b/y");
        assert_eq!(named("/", Some("y")).unwrap(), "y");
        assert!(named("a/", None).is_err() && named("a/../b", None).is_err());
    }
}
