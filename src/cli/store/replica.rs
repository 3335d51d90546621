//! What `granulo store clone`, `push` and `pull` have in common: how a copy is made, what they print, and their
//! document.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::devices::{OpenedStore, checked};
use super::progress::maintenance_words;
use super::remote::Remote;
use super::{Ended, output, warn_of_owner};
use crate::cli::buckets::{BucketToRead, BucketToWrite};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::store::{Copied, CopyOptions, OpenOptions, Store};
use crate::units::{escape_path, format_counted, format_size, parse_size};

/// How a copy is made.
#[derive(Debug, Args)]
pub(super) struct ReplicaArguments {
    /// Verify every byte of the copy before it counts, also what it had before
    #[arg(long)]
    verify: bool,
    /// Limit the rate of copied data, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<u64>,
    /// Current directory of a device of the source that is neither in its home nor where it was before; may be repeated
    #[arg(long = "device", value_name = "DIR", help_heading = "Devices")]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    reached: BucketToRead,
    #[command(flatten)]
    put: BucketToWrite,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct ReplicaDocument {
    schema: &'static str,
    from: String,
    to: String,
    /// Files with bytes that were transferred.
    files: u64,
    transferred_bytes: u64,
    /// What was there.
    kept_files: u64,
    kept_bytes: u64,
    segments: u64,
    snapshots: u64,
    /// Sequence number of the last batch.
    batch: u64,
    unchanged: bool,
    interrupted: bool,
}

/// What is copied where.
pub(super) struct Replica<'r> {
    /// Kind of the document.
    pub(super) schema: &'static str,
    pub(super) from: &'r Path,
    pub(super) to: &'r Path,
    /// There is no copy yet.
    pub(super) is_new: bool,
    pub(super) arguments: &'r ReplicaArguments,
}

impl Replica<'_> {
    pub(super) fn run(&self) -> Result<Ended> {
        let arguments = self.arguments;
        let bucket = arguments.put.added_to(arguments.reached.options());
        let options = CopyOptions { bytes_per_second: arguments.rate, is_verified: arguments.verify, bucket };
        let progress = signals::progress()?;
        let done = match (Remote::of(self.from)?, Remote::of(self.to)?) {
            (None, there) => self.send(there.as_ref(), &options, &progress)?,
            (Some(there), None) => self.receive(&there, &options, &progress)?,
            (Some(_), Some(_)) => {
                let error = Error::new(ErrorKind::Usage, "copy from one machine to another", "neither is this one");
                return Err(error.at(self.to).advise("run it on one of them"));
            }
        };
        emit(&arguments.document, || self.document(&done))?;
        if !arguments.document.json {
            output::print_words(&words(self.to, &done))?;
        }
        Ok(if done.is_interrupted { Ended::Amiss } else { Ended::Well })
    }

    /// Copies a store of this machine.
    fn send(&self, there: Option<&Remote>, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        let (devices, bucket) = (self.arguments.devices.clone(), options.bucket.clone());
        let from = OpenOptions { devices, bucket, ..OpenOptions::default() };
        let store = OpenedStore::new(Store::open_read_only_with(self.from, &checked(self.from, from)?)?);
        let Some(there) = there else {
            warn_of_owner(self.to);
            return during(false, progress, maintenance_words, || match self.is_new {
                true => store.clone_to(self.to, options, progress),
                false => store.push_to(self.to, options, progress),
            });
        };
        let connection = there.connect()?;
        during(false, progress, maintenance_words, || {
            connection.talk(|peer| match self.is_new {
                true => store.clone_to_peer(peer, options, progress),
                false => store.push_to_peer(peer, options, progress),
            })
        })
    }

    /// Copies a store of another machine.
    fn receive(&self, there: &Remote, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
        if let Some(device) = self.arguments.devices.first() {
            let error = Error::new(ErrorKind::Usage, "look for a device", "its store is on another machine").at(device);
            return Err(error.advise("run it there, and push"));
        }
        warn_of_owner(self.to);
        let connection = there.connect()?;
        during(false, progress, maintenance_words, || {
            connection.talk(|peer| match self.is_new {
                true => Store::clone_from_peer(peer, self.to, options, progress),
                false => Store::pull_from_peer(peer, self.to, options, progress),
            })
        })
    }

    fn document(&self, done: &Copied) -> ReplicaDocument {
        ReplicaDocument {
            schema: self.schema,
            from: escape_path(self.from),
            to: escape_path(self.to),
            files: done.files,
            transferred_bytes: done.bytes,
            kept_files: done.kept_files,
            kept_bytes: done.kept_bytes,
            segments: done.segments,
            snapshots: done.snapshots,
            batch: done.batch,
            unchanged: done.is_unchanged,
            interrupted: done.is_interrupted,
        }
    }
}

/// What was done, in a sentence.
fn words(to: &Path, done: &Copied) -> String {
    let to = escape_path(to);
    if done.is_interrupted {
        return format!("Interrupted: {to} is as it was; the same command goes on where this one ended");
    }
    if done.is_unchanged {
        return format!("{to} is up to date");
    }
    let mut words = format!(
        "{to} has the state of batch {}: {} in {} transferred",
        done.batch,
        format_size(done.bytes.into()),
        format_counted(done.files, "file", "files"),
    );
    if done.kept_bytes > 0 {
        words.push_str(&format!(", {} were there", format_size(done.kept_bytes.into())));
    }
    if done.snapshots > 0 {
        words.push_str(&format!("; with {}", format_counted(done.snapshots, "snapshot", "snapshots")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_is_in_words() {
        let done = Copied { bytes: 5 << 20, files: 1, batch: 1234, ..Copied::default() };
        let to = Path::new("/copy");
        assert_eq!(words(to, &done), "/copy has the state of batch 1234: 5 MiB in 1 file transferred");
        let done = Copied { files: 3, kept_bytes: 1 << 30, snapshots: 2, ..done };
        assert_eq!(
            words(to, &done),
            "/copy has the state of batch 1234: 5 MiB in 3 files transferred, 1 GiB were there; with 2 snapshots"
        );
        assert_eq!(words(to, &Copied { is_unchanged: true, ..done }), "/copy is up to date");
        assert!(words(to, &Copied { is_interrupted: true, ..done }).starts_with("Interrupted"));
    }
}
