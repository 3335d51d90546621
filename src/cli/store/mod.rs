//! `granulo store …`: the hybrid composite-file store. One file per command.
//!
//! Commands that only read open the store for reading, beside a writer or without one. Exit status: 2 where a command
//! could not do what was requested (no store, another writer, no such key), 1 where it found damage or ended early, see
//! [`or_damage`].

mod archive;
mod check;
mod clone;
mod compact;
mod completeness;
mod copy;
pub(super) mod devices;
mod export;
mod get;
mod import;
mod init;
mod keys;
mod list;
mod load;
mod log;
mod named;
mod patterns;
pub(super) mod problems;
mod progress;
mod pull;
mod push;
mod put;
mod rebalance;
mod rebuild;
mod record;
mod remote;
mod remove;
mod rename;
mod repair;
mod replica;
mod salvage;
mod scrub;
mod serve;
mod snapshot;
mod stat;
mod status;
mod target;
mod unpin;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

pub(super) use self::check::STORE_CHECK;
use self::completeness::{or_error_document, say_completeness, say_postponed, with_completeness};
use self::devices::{OpenedStore, checked, say_what_is_wrong};
pub(super) use self::status::STORE_STATUS;
use super::{Ended, output, usage_error};
use crate::cli::buckets::{BucketToRead, BucketToWrite};
use crate::cli::output::DocumentArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::io::write_atomically;
use crate::report::fields::Fields;
use crate::report::store::{ObjectType, count_words};
use crate::store::bucket::is_address;
use crate::store::geometry::Alignment;
use crate::store::tree::Reports;
use crate::store::{Class, Key, Listed, OpenOptions, Store, UnknownPin};
use crate::units::{escape_path, format_count, parse_size};

/// Time between two attempts to become the writer.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// The same for a store in a bucket, where each attempt is requests that cost money.
const BETWEEN_ATTEMPTS_IN_BUCKET: Duration = Duration::from_secs(2);

/// Store files: small ones as records in a few large files, large ones in stripes
///
/// STORE is the home directory created by granulo store init. KEY is a path in the store, without '.' and '..'; a
/// leading slash is ignored. One process can write at a time, while any number read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store init /srv/pictures --fast /ssd0/p --fast /ssd1/p --slow /hdd0/p --slow /hdd1/p\n  \
    granulo store put /srv/pictures cats/1.jpg 1.jpg\n  granulo store ls /srv/pictures cats -l\n  \
    granulo store get /srv/pictures cats/1.jpg > 1.jpg\n\nExit status: 0 success; 1 finished with problems (damaged objects, \
    unreadable files, interrupted); 2 failed."
)]
pub(super) struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Init(init::InitArguments),
    Import(import::ImportArguments),
    Export(export::ExportArguments),
    Put(put::PutArguments),
    Get(get::GetArguments),
    Ls(list::ListArguments),
    Stat(stat::StatArguments),
    Log(log::LogArguments),
    Rm(remove::RemoveArguments),
    Mv(rename::MoveArguments),
    Cp(copy::CopyArguments),
    Ln(rename::LinkArguments),
    Check(check::CheckArguments),
    Scrub(scrub::ScrubArguments),
    Repair(repair::RepairArguments),
    Salvage(salvage::SalvageArguments),
    Rebuild(rebuild::RebuildArguments),
    Load(load::LoadArguments),
    Compact(compact::CompactArguments),
    Rebalance(rebalance::RebalanceArguments),
    Snapshot(snapshot::SnapshotArguments),
    Clone(clone::CloneArguments),
    Push(push::PushArguments),
    Pull(pull::PullArguments),
    Serve(serve::ServeArguments),
    Status(status::StatusArguments),
    Unpin(unpin::UnpinArguments),
}

impl StoreArguments {
    pub(super) fn run(self) -> Result<Ended> {
        // An intact object is intact, whatever else is missing.
        let is_get = matches!(self.command, StoreCommand::Get(_));
        let ended = self.command.run()?;
        Ok(if is_get { ended } else { with_completeness(ended) })
    }
}

impl StoreCommand {
    fn run(self) -> Result<Ended> {
        match self {
            StoreCommand::Init(arguments) => arguments.run(),
            StoreCommand::Import(arguments) => arguments.run(),
            StoreCommand::Export(arguments) => arguments.run(),
            StoreCommand::Put(arguments) => arguments.run(),
            StoreCommand::Get(arguments) => arguments.run(),
            StoreCommand::Ls(arguments) => arguments.run(),
            StoreCommand::Stat(arguments) => arguments.run(),
            StoreCommand::Log(arguments) => arguments.run(),
            StoreCommand::Rm(arguments) => arguments.run(),
            StoreCommand::Mv(arguments) => arguments.run(),
            StoreCommand::Cp(arguments) => arguments.run(),
            StoreCommand::Ln(arguments) => arguments.run(),
            StoreCommand::Check(arguments) => or_error_document("check", &arguments.document.clone(), arguments.run()),
            StoreCommand::Scrub(arguments) => or_error_document("scrub", &arguments.document.clone(), arguments.run()),
            StoreCommand::Repair(arguments) => arguments.run(),
            StoreCommand::Salvage(arguments) => arguments.run(),
            StoreCommand::Rebuild(arguments) => arguments.run(),
            StoreCommand::Load(arguments) => arguments.run(),
            StoreCommand::Compact(arguments) => arguments.run(),
            StoreCommand::Rebalance(arguments) => arguments.run(),
            StoreCommand::Snapshot(arguments) => arguments.run(),
            StoreCommand::Clone(arguments) => arguments.run(),
            StoreCommand::Push(arguments) => arguments.run(),
            StoreCommand::Pull(arguments) => arguments.run(),
            StoreCommand::Serve(arguments) => arguments.run(),
            StoreCommand::Status(arguments) => {
                or_error_document("status", &arguments.document.clone(), arguments.run())
            }
            StoreCommand::Unpin(arguments) => arguments.run(),
        }
    }
}

/// The key that an argument names.
fn key(argument: &OsStr) -> Result<Key> {
    Key::parse(argument.as_bytes())
}

/// Where a store is, for a command that only reads.
#[derive(Debug, Args)]
struct StoreToRead {
    /// The store
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Current directory of a device that is neither in STORE nor where it was before; may be repeated
    #[arg(long = "device", value_name = "DIR", help_heading = "Devices")]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    bucket: BucketToRead,
}

/// Where a store is, and which of its states, for a command that reads objects.
#[derive(Debug, Args)]
struct StateToRead {
    #[command(flatten)]
    read: StoreToRead,
    /// Read the state of this snapshot, see granulo store snapshot
    #[arg(long = "at", value_name = "NAME")]
    snapshot: Option<String>,
}

/// Where a store is, for a command that writes.
#[derive(Debug, Args)]
struct StoreToWrite {
    #[command(flatten)]
    read: StoreToRead,
    /// Write even if so many devices are missing that they may hold newer data
    #[arg(long, help_heading = "Devices")]
    degraded: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    bucket: BucketToWrite,
}

/// What to do while another process writes to the store.
#[derive(Debug, Args)]
struct Waiting {
    /// While another process writes to the store, wait for it to end, at most for this time [default: without limit]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = humantime::parse_duration)]
    wait: Option<Option<Duration>>,
}

impl StoreToRead {
    fn options(&self) -> Result<OpenOptions> {
        completeness::are_of(&self.store);
        let bucket = self.bucket.options();
        checked(&self.store, OpenOptions { devices: self.devices.clone(), bucket, ..OpenOptions::default() })
    }

    /// Opens for reading, beside a writer or without one.
    fn open_quietly(&self) -> Result<Store> {
        Store::open_read_only_with(&self.store, &self.options()?)
    }

    /// The same; reports problems with the devices.
    fn open(&self) -> Result<OpenedStore> {
        self.open_quietly().map(OpenedStore::new)
    }
}

impl StateToRead {
    /// Opens for reading; reports problems with the devices.
    fn open(&self) -> Result<OpenedStore> {
        let Some(snapshot) = &self.snapshot else { return self.read.open() };
        Store::open_at(&self.read.store, snapshot, &self.read.options()?).map(OpenedStore::new)
    }
}

impl StoreToWrite {
    fn options(&self) -> Result<OpenOptions> {
        warn_of_owner(&self.read.store);
        let read = self.read.options()?;
        Ok(OpenOptions { degraded: self.degraded, bucket: self.bucket.added_to(read.bucket.clone()), ..read })
    }

    /// Opens for writing, which recovers after a crash; reports problems with the devices.
    fn open(&self) -> Result<OpenedStore> {
        self.open_quietly(&self.options()?).map(OpenedStore::new)
    }

    /// The same with these options and without reports.
    fn open_quietly(&self, options: &OpenOptions) -> Result<Store> {
        self.waiting.open(&self.read.store, options)
    }
}

impl Waiting {
    /// Opens a store for writing, as soon as nobody else does.
    fn open(&self, store: &Path, options: &OpenOptions) -> Result<Store> {
        self.until_free(store, || Store::open_with(store, options))
    }

    /// Does what opens a store for writing, as soon as nobody else has it open for that.
    fn until_free<T>(&self, store: &Path, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let pause = if is_address(store) { BETWEEN_ATTEMPTS_IN_BUCKET } else { BETWEEN_ATTEMPTS };
        let mut is_said = false;
        loop {
            match (act(), self.wait) {
                (Err(error), Some(most))
                    if error.kind() == ErrorKind::Busy && most.is_none_or(|most| began.elapsed() < most) =>
                {
                    if !is_said {
                        output::note("another process writes to the store; waiting for it to end");
                        is_said = true;
                    }
                    std::thread::sleep(pause);
                }
                (Err(error), None) if error.kind() == ErrorKind::Busy => {
                    return Err(error.advise("try again later, or add --wait; the store can still be read"));
                }
                (done, _) => return done,
            }
        }
    }
}

/// Says that the owner of a private store cannot use what root creates in it.
fn warn_of_owner(store: &Path) {
    const GROUP_WRITES: u32 = 0o020;
    let Ok(found) = std::fs::metadata(store) else { return };
    let owner = found.uid();
    if owner != 0 && found.mode() & GROUP_WRITES == 0 && rustix::process::geteuid().is_root() {
        output::warn(&format!(
            "the store belongs to user {owner}, who cannot use the files that root creates in it: run this as its owner, \
             or chown them to it afterwards"
        ));
    }
}

/// The key as a path, for errors: the root has a name there.
fn shown(key: &Key) -> PathBuf {
    if key.is_root() { PathBuf::from("/") } else { key.to_path() }
}

/// The entry of the index for a key; links are followed.
fn find(store: &Store, key: &Key, operation: &'static str) -> Result<Listed> {
    match store.entry(key)? {
        Some(found) => Ok(found),
        None => Err(not_found(store, key, operation)),
    }
}

/// The error for a missing key: reports how much of the path exists.
fn not_found(store: &Store, key: &Key, operation: &'static str) -> Error {
    if !store.completeness().is_complete() {
        let cause = "no such key in what can be read; it may be in what is missing";
        return Error::new(ErrorKind::NotFound, operation, cause)
            .at(&shown(key))
            .advise("the store is incomplete: bring its devices back, or restore from a backup");
    }
    let error = Error::new(ErrorKind::NotFound, operation, "no such key").at(&shown(key));
    let above = std::iter::successors(key.parent(), Key::parent);
    let nearest = above.filter_map(|parent| store.entry(&parent).ok().flatten()).next();
    match nearest {
        Some(found) if found.key.is_root() => error.advise("list the keys with granulo store ls"),
        Some(found) => {
            let what = ObjectType::of(&found.entry).name();
            error.advise(format!("its nearest existing ancestor is {}, a {what}", found.key))
        }
        None => error,
    }
}

/// Counts of what was imported or exported.
fn objects_in_words(files: u64, directories: u64, symlinks: u64, special: u64, links: u64) -> String {
    let counts = count_words(&[
        (files, "file", "files"),
        (directories, "directory", "directories"),
        (symlinks, "symbolic link", "symbolic links"),
        (special, "special file", "special files"),
        (links, "additional name", "additional names"),
    ]);
    if counts.is_empty() { "nothing".to_owned() } else { counts }
}

/// Reports what a transfer could not do; returns whether there was anything.
fn say_reports(reports: &Reports) -> bool {
    reports.first.iter().for_each(|error| output::warn(&error.to_string()));
    let unsaid = reports.count.saturating_sub(reports.first.len() as u64);
    if unsaid > 0 {
        output::warn(&format!("{} more like these", format_count(unsaid.into())));
    }
    reports.count > 0
}

/// Warns of what keeps space that was freed and cannot be looked at; returns whether there is nothing.
fn say_unknown_pins(store: &Store, waiting_bytes: u64) -> bool {
    let unknown = if waiting_bytes > 0 { store.unknown_pins() } else { Vec::new() };
    unknown.iter().for_each(|pin| output::warn(&format!("space that was freed waits: {}", unknown_pin_words(pin))));
    unknown.is_empty()
}

/// What may be the pin of a reader, and what to do.
fn unknown_pin_words(pin: &UnknownPin) -> String {
    format!(
        "{} cannot be looked at ({}), and another user may read the store; if nobody does, remove it as root",
        escape_path(&pin.path),
        pin.cause
    )
}

/// Alignment of the content of files, as specified by `--align`.
fn alignment(text: &str) -> std::result::Result<Alignment, String> {
    let bytes = if text == Alignment::None.name() { Ok(None) } else { parse_size(text).map(Some) };
    let found = Alignment::ALL.into_iter().find(|alignment| bytes == Ok(alignment.bytes()));
    found.ok_or_else(|| "write none, 512 or 4096".to_owned())
}

/// The name of a class of devices.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::Fast => "fast",
        Class::Slow => "slow",
    }
}

/// Whether an error is damage in the store.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost)
}

/// The end of a command that could begin: damage is reported and results in `Amiss`; other errors are as if it had not
/// begun.
fn or_damage(result: Result<Ended>) -> Result<Ended> {
    match result {
        Err(error) if is_damage(&error) => {
            output::complain(&error);
            Ok(Ended::Amiss)
        }
        other => other,
    }
}

/// The result of a command that wrote: a device that failed meanwhile is reported, and the exit status is 1.
fn with_failures(store: &OpenedStore, result: Result<Ended>) -> Result<Ended> {
    store.say_failures();
    result.map(|ended| ended.and(store.failed_devices().is_empty()))
}

/// The same where one object is read: an error with a position in the log is followed by what lies there.
fn or_damage_to(key: &Key, result: Result<Ended>) -> Result<Ended> {
    let is_damaged = result.as_ref().is_err_and(is_damage);
    let ended = or_damage(result);
    if is_damaged {
        output::note(&format!("{key} was only partly read"));
    }
    ended
}

/// What ends a listing early: reading or writing.
enum Stop {
    Store(Error),
    Output(io::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Store(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

/// Writes to `out`, standard output, while reading from a store; a reader that closes the pipe early is not a failure.
fn write_while_reading(
    out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> std::result::Result<Ended, Stop>,
) -> Result<Ended> {
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    let written = write(&mut out);
    // What was written before a failure is valid, and is shown.
    match (written, out.flush()) {
        (Err(Stop::Store(error)), _) => Err(error),
        (Err(Stop::Output(error)), _) | (Ok(_), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Ended::Well)
        }
        (Err(Stop::Output(error)), _) | (Ok(_), Err(error)) => {
            Err(Error::io("write to", Path::new("standard output"), error))
        }
        (Ok(ended), Ok(())) => Ok(ended),
    }
}

/// Writes a document to the files that were asked for, while reading from a store; each appears as a whole or not at
/// all. The page is made of the whole document.
fn emit_while_reading(
    arguments: &DocumentArguments,
    mut write: impl FnMut(&mut dyn Write) -> std::result::Result<Ended, Stop>,
) -> Result<Ended> {
    let mut ended = Ended::Well;
    if let Some(path) = &arguments.output {
        ended = write_file_while_reading(path, &mut write)?;
    }
    if let Some(path) = &arguments.report {
        let mut json = Vec::new();
        let written = write(&mut json).map_err(|stop| match stop {
            Stop::Store(error) => error,
            Stop::Output(error) => Error::io("write", path, error),
        });
        ended = written?;
        output::write_fields_page(path, Fields::read(&json))?;
    }
    Ok(ended)
}

/// Writes to a file while reading from a store.
fn write_file_while_reading(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::result::Result<Ended, Stop>,
) -> Result<Ended> {
    let mut outcome = Ok(Ended::Well);
    let written = write_atomically(path, |out| match write(out) {
        Ok(ended) => {
            outcome = Ok(ended);
            Ok(())
        }
        Err(Stop::Output(error)) => Err(error),
        Err(Stop::Store(error)) => {
            outcome = Err(error);
            // Only to end the writing.
            Err(io::Error::other("the store cannot be read"))
        }
    });
    // The error of the store, if there is one, is the cause of that of the file.
    let ended = outcome?;
    written.map(|()| ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_none_512_or_4096() {
        assert_eq!(alignment("none"), Ok(Alignment::None));
        assert_eq!(alignment("512"), Ok(Alignment::Sector));
        assert_eq!(alignment("4096"), Ok(Alignment::Page));
        assert_eq!(alignment("4KiB"), Ok(Alignment::Page));
        for wrong in ["", "0", "4", "1024", "8KiB", "page"] {
            assert_eq!(alignment(wrong), Err("write none, 512 or 4096".to_owned()), "{wrong}");
        }
    }
}
