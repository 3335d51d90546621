//! Importing a tar archive into a store, from any stream.
//!
//! One thread stores members in the order of the archive: the stream has one order. A member that the store already has
//! (`unchanged`) is skipped, so an interrupted import can be repeated.
//!
//! An archive has what has several names once, a file or anything else, and its further names as links to the first. A
//! link is the first sign that there are several names: the record is then written again as that of a shared object;
//! the old one is dead, and the next compaction frees it.
//!
//! Hostile archives: names that are absolute or climb with `..`, links to such, and links to what the store does not
//! have below the prefix are refused, counted and reported; nothing outside the prefix is ever read or written. So is a
//! member so deep that the paths of all directories above it exceed [`MOST_ABOVE_BYTES`] in total: every path that
//! Linux accepts in one call is less deep. The memory of a batch, including names and attributes, bounds it. Owners are
//! taken by number; owner names and access control lists in text are not interpreted.

use std::collections::HashSet;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::archive::{Archive, Broken, Member, MemberKind};
use super::import::{check_prefix, finish};
use super::put::SMALL_BYTES;
use super::task::{ImportOptions, ImportSummary};
use super::turns::{ReadyBatch, UnsyncedBytes};
use super::unchanged::{Comparison, Unlisted, compare_with, device_numbers};
use super::{Ledger, Stoppable, Watched};
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::format::attributes::Attributes;
use crate::format::entry::{Entry, Kind, Time};
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::progress::Progress;
use crate::units::{MIB, escape};
use crate::{Batch, Durability, Listed, Store};

/// A batch is committed at this size,
const BATCH_BYTES: u64 = 2 * MIB;
/// or this number of members.
const BATCH_OBJECTS: u64 = 1024;
/// Approximate memory of a member or of a directory above one in a batch, besides names, attributes and content.
const OBJECT_BYTES: u64 = 256;
/// Most bytes of the paths of the directories above a member in total: 2,047 directories above a name of 4,095 bytes,
/// Linux's `PATH_MAX`, need slightly less.
const MOST_ABOVE_BYTES: usize = 4 << 20;

/// Imports the members of a tar archive, durable on return. The options `one_file_system` and `threads` have no effect.
///
/// # Errors
/// [`ErrorKind::NotRecognised`] if it is not an archive, [`ErrorKind::Corrupt`] if it is damaged or truncated; errors
/// of the stream or the store. The members before that are durable. Refused members are not an error: see
/// [`ImportSummary::refused`].
pub fn import_tar(
    store: &Store,
    archive: &mut dyn Read,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<ImportSummary> {
    let mut summary = ImportSummary::default();
    import_tar_into(store, archive, options, progress, &mut summary)?;
    Ok(summary)
}

/// As [`import_tar`]; `summary` has what was done and refused until an error, too.
///
/// # Errors
/// As [`import_tar`].
pub fn import_tar_into(
    store: &Store,
    archive: &mut dyn Read,
    options: &ImportOptions,
    progress: &Progress,
    summary: &mut ImportSummary,
) -> Result<()> {
    check_prefix(store, &options.prefix)?;
    let ledger = Ledger::new(progress);
    let mut import = TarImport {
        store,
        ledger: &ledger,
        options,
        batch: store.batch(Durability::None),
        batch_objects: 0,
        batch_bytes: 0,
        held_bytes: 0,
        most_held_bytes: store.engine().batch_bytes(BATCH_BYTES),
        id_before: store.engine().highest_id.load(Ordering::Relaxed),
        unsynced: UnsyncedBytes::default(),
        shared: HashMap::new(),
        claimed: HashSet::new(),
        waiting: HashMap::new(),
        last_directory: None,
        content: Vec::new(),
        done: ImportSummary::default(),
        committed: ImportSummary::default(),
    };
    let mut archive = Archive::new(Stoppable { ledger: &ledger, inner: archive });
    let ended = import.run(&mut archive);
    let committed = import.commit();
    *summary = std::mem::take(&mut import.committed);
    drop(import);
    if let Err(error) = ended.and(committed) {
        ledger.fail(error);
    }
    finish(store, &ledger, summary)
}

/// Why a member was not imported.
enum MemberFailure {
    /// It is refused for this reason.
    Refused(String),
    /// The import cannot continue, unless the store only refuses the member ([`ErrorKind::Usage`]).
    Fatal(Error),
    /// Earlier members could not be committed: the import cannot continue.
    Lost(Error),
}

impl From<Error> for MemberFailure {
    fn from(error: Error) -> MemberFailure {
        MemberFailure::Fatal(error)
    }
}

impl From<Broken> for MemberFailure {
    fn from(broken: Broken) -> MemberFailure {
        MemberFailure::Fatal(broken.into())
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Error {
        const READ: &str = "read the archive";
        match broken {
            Broken::Stream(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::Corrupt, READ, error.to_string()).advise("what precedes that was imported")
            }
            Broken::Stream(error) => Error::new(ErrorKind::of(&error), READ, os_message(&error)),
            Broken::Content { at: 0, member, why } if member.is_empty() => {
                Error::new(ErrorKind::NotRecognised, READ, format!("it is not a tar archive: {why}"))
                    .advise("if it is compressed, pipe it through its decompressor to standard input")
            }
            Broken::Content { at, member, why } => {
                let of = if member.is_empty() { String::new() } else { format!(" (member {})", escape(&member)) };
                Error::new(ErrorKind::Corrupt, READ, format!("at byte {at}{of}, {why}"))
                    .advise("what precedes that was imported")
            }
        }
    }
}

struct TarImport<'s, 'l, 'w> {
    store: &'s Store,
    ledger: &'l Ledger<'w>,
    options: &'l ImportOptions,
    batch: Batch<'s>,
    batch_objects: u64,
    batch_bytes: u64,
    held_bytes: u64,
    most_held_bytes: u64,
    /// The highest id before the import: what has a higher one is an earlier member, which a later one of the same name
    /// replaces, also if it looks the same.
    id_before: u64,
    unsynced: UnsyncedBytes,
    /// Shared objects that got names in this batch.
    shared: HashMap<Key, ObjectNumber>,
    /// Shared objects that are assigned to a member.
    claimed: HashSet<ObjectNumber>,
    /// Keys that this batch writes, with whether each is a directory.
    waiting: HashMap<Key, bool>,
    /// Directory of the last member that is in the batch or the store: it exists, or is in `waiting`.
    last_directory: Option<Key>,
    content: Vec<u8>,
    /// Of the members since the last commit.
    done: ImportSummary,
    /// Of those that were committed, and of those with nothing to commit.
    committed: ImportSummary,
}

impl<'s> TarImport<'s, '_, '_> {
    fn run<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<()> {
        while !self.ledger.is_over() {
            let next = match archive.next() {
                // Any error of a stream that was asked to stop.
                Err(_) if self.ledger.is_interrupted() => return Ok(()),
                next => next.map_err(Error::from)?,
            };
            let Some(member) = next else {
                if !archive.is_complete {
                    let cause = "it has no end marker, and may be truncated between two members";
                    self.ledger.report(Error::new(ErrorKind::Corrupt, "find the end of the archive", cause));
                }
                return Ok(());
            };
            let (name, at) = (member.name.clone(), member.at);
            match self.take(archive, member) {
                Ok(()) => {}
                Err(MemberFailure::Refused(why)) => {
                    self.done.refused += 1;
                    let cause = format!("{why} (its header is at byte {at} of the archive)");
                    self.ledger.report(Error::new(ErrorKind::Usage, "import the member", cause).at(&path(name)));
                }
                Err(MemberFailure::Fatal(_) | MemberFailure::Lost(_)) if self.ledger.is_interrupted() => {}
                Err(MemberFailure::Fatal(error)) if error.kind() == ErrorKind::Usage => {
                    self.done.refused += 1;
                    self.ledger.report(error.at(&path(name)));
                }
                Err(MemberFailure::Fatal(error) | MemberFailure::Lost(error)) => return Err(error),
            }
            self.ledger.advance(1, 0);
            if self.held_bytes >= self.most_held_bytes || self.batch_objects >= BATCH_OBJECTS {
                self.commit()?;
            }
        }
        Ok(())
    }

    fn take<R: Read>(&mut self, archive: &mut Archive<R>, member: Member) -> std::result::Result<(), MemberFailure> {
        if let MemberKind::Refused(why) = member.kind {
            return Err(MemberFailure::Refused(why.to_owned()));
        }
        let key = place(&self.options.prefix, &member.name).map_err(MemberFailure::Refused)?;
        let is_directory = member.kind == MemberKind::Directory;
        if !self.options.selection.takes_with_parents(&self.options.prefix, &key, is_directory) {
            return Ok(());
        }
        self.done.xattrs_unreadable += member.xattrs_unreadable;
        let mut attributes = member.attributes;
        if !self.options.access_times {
            attributes.atime = None;
        }
        let created = self.check_place(&key, is_directory)?;
        // The batch's entry for the key is newer than the store's.
        let listed = if self.waiting.contains_key(&key) { None } else { self.store.entry(&key)? };
        if member.kind == MemberKind::Link {
            let target = place(&self.options.prefix, &member.link)
                .map_err(|why| MemberFailure::Refused(format!("the name it links to: {why}")))?;
            // What the store has under that name is not what the archive has.
            if !self.options.selection.takes_with_parents(&self.options.prefix, &target, false) {
                return Err(MemberFailure::Refused("the name it links to is left out".to_owned()));
            }
            return self.link(key, created, listed.as_ref(), &target);
        }
        let size_bytes = attributes.holes.as_ref().map_or(member.data_bytes, |holes| holes.size_bytes);
        let same = listed.as_ref().filter(|listed| {
            listed.entry.id <= self.id_before
                && is_same(member.kind, &attributes, size_bytes, &member.link, &listed.entry)
                && listed.shared.is_none_or(|number| !self.claimed.contains(&number))
        });
        if let Some(same) = same {
            let unlisted = unlisted_of(member.kind, &attributes, &member.link);
            let compared = compare_with(self.store, &unlisted, same, self.options.verify)?;
            if compared != Comparison::Other {
                self.claimed.extend(same.shared);
            }
            if self.is_left(compared) {
                self.last_directory = key.parent();
                return Ok(());
            }
        }
        self.batch_objects += 1;
        self.held_bytes += held_bytes(&key, &attributes) + member.link.len() as u64;
        match member.kind {
            MemberKind::Directory => {
                if listed.is_some_and(|listed| listed.entry.kind != Kind::Directory) || self.is_waiting_file(&key) {
                    // What is refused removes nothing.
                    attributes.encode(Time::default(), &mut Vec::new())?;
                    self.batch.remove(&key)?;
                }
                self.batch.directory(&key, &attributes)?;
                self.done.directories += 1;
            }
            MemberKind::Symlink => {
                self.batch.symlink(&key, &attributes, &member.link)?;
                self.done.symlinks += 1;
            }
            MemberKind::Special(major, minor) => {
                self.batch.special(&key, &attributes, major, minor)?;
                self.done.specials += 1;
            }
            _ => {
                let put = self.put_file(archive, &key, &attributes, member.data_bytes)?;
                self.batch_bytes += put;
                self.done.content_bytes += put;
                self.done.files += 1;
            }
        }
        self.shared.remove(&key);
        self.note(key, is_directory, created);
        Ok(())
    }

    /// Notes a member that the batch has, and the directories that the store creates above it.
    fn note(&mut self, key: Key, is_directory: bool, created: Vec<Key>) {
        self.held_bytes += created.iter().map(|directory| directory.stored().len() as u64 + OBJECT_BYTES).sum::<u64>();
        self.waiting.extend(created.into_iter().map(|directory| (directory, true)));
        self.last_directory = key.parent();
        self.waiting.insert(key, is_directory);
    }

    /// Whether what the store has stays as it is, which is counted.
    fn is_left(&mut self, compared: Comparison) -> bool {
        self.done.unchanged += u64::from(compared == Comparison::Same);
        self.done.replaced += u64::from(compared == Comparison::Damaged);
        compared == Comparison::Same
    }

    /// Fails for a member whose parent is not a directory, or that would replace a directory with all its content: the
    /// store refuses such a batch as a whole. Returns the directories that the store will create above it.
    fn check_place(&self, key: &Key, is_directory: bool) -> std::result::Result<Vec<Key>, MemberFailure> {
        if !is_directory && (key.is_root() || self.is_directory(key)? == Some(true)) {
            return Err(MemberFailure::Refused("the store has a directory with this name".to_owned()));
        }
        let (mut above, mut created) = (key.parent(), Vec::new());
        while let Some(directory) = above.filter(|directory| self.last_directory.as_ref() != Some(directory)) {
            match self.is_directory(&directory)? {
                Some(true) => break,
                Some(false) => {
                    return Err(MemberFailure::Refused("its parent is not a directory".to_owned()));
                }
                None if directory.is_root() => break,
                None => {}
            }
            above = directory.parent();
            created.push(directory);
        }
        Ok(created)
    }

    /// Whether a key is a directory or something else, including the batch's changes.
    fn is_directory(&self, key: &Key) -> Result<Option<bool>> {
        match self.waiting.get(key) {
            Some(&is_directory) => Ok(Some(is_directory)),
            None => Ok(self.store.entry(key)?.map(|listed| listed.entry.kind == Kind::Directory)),
        }
    }

    fn is_waiting_file(&self, key: &Key) -> bool {
        self.waiting.get(key) == Some(&false)
    }

    fn put_file<R: Read>(
        &mut self,
        archive: &mut Archive<R>,
        key: &Key,
        attributes: &Attributes,
        data_bytes: u64,
    ) -> std::result::Result<u64, MemberFailure> {
        if data_bytes <= SMALL_BYTES {
            self.content.clear();
            archive.data().read_to_end(&mut self.content).map_err(Broken::Stream)?;
            self.ledger.advance(0, data_bytes);
            self.batch.put(key, attributes, &self.content)?;
            self.held_bytes += data_bytes;
            return Ok(data_bytes);
        }
        let mut failure = None;
        let mut stream =
            Watched { ledger: self.ledger, inner: Noting { inner: archive.data(), failure: &mut failure } };
        let put = self.batch.put_from(key, attributes, &mut stream, Some(data_bytes));
        match failure {
            // The store reports that the stream failed; the stream knows why.
            Some(failure) if put.is_err() => Err(Broken::Stream(failure).into()),
            _ => Ok(put?),
        }
    }

    /// Adds a name to the object `target`, below directories that the store will create.
    fn link(
        &mut self,
        key: Key,
        created: Vec<Key>,
        listed: Option<&Listed>,
        target: &Key,
    ) -> std::result::Result<(), MemberFailure> {
        if key == *target {
            return Err(MemberFailure::Refused("it is a link to itself".to_owned()));
        }
        let number = match self.shared.get(target) {
            Some(&number) => number,
            None => self.shared_number(target)?,
        };
        if listed.is_some_and(|listed| listed.shared == Some(number)) {
            self.done.unchanged += 1;
            return Ok(());
        }
        self.batch.link(&key, number)?;
        self.batch_objects += 1;
        self.shared.insert(key.clone(), number);
        self.note(key, false, created);
        self.done.links += 1;
        Ok(())
    }

    /// The number of the object of a key; if that is its only name, it becomes a shared one.
    fn shared_number(&mut self, target: &Key) -> std::result::Result<ObjectNumber, MemberFailure> {
        // The content of the batch is visible only after a commit.
        self.commit().map_err(MemberFailure::Lost)?;
        let listed = self.store.entry(target)?.ok_or_else(missing_target)?;
        let number = match listed.shared {
            Some(number) => return Ok(number),
            None if listed.entry.kind == Kind::Directory => {
                return Err(MemberFailure::Refused("its target is a directory".to_owned()));
            }
            None => self.batch.share(target)?,
        };
        self.shared.insert(target.clone(), number);
        Ok(number)
    }

    fn commit(&mut self) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, self.store.batch(Durability::None));
        let is_empty = self.batch_objects == 0;
        let mut done = std::mem::take(&mut self.done);
        // Those were reported, whatever becomes of the batch.
        self.committed.refused += std::mem::take(&mut done.refused);
        let piece = ReadyBatch { batch, content_bytes: self.batch_bytes, held_bytes: self.held_bytes, done };
        (self.batch_objects, self.batch_bytes, self.held_bytes) = (0, 0, 0);
        self.shared.clear();
        self.waiting.clear();
        let done = if is_empty { piece.done } else { self.unsynced.commit(self.store, piece)?.1 };
        self.committed.add(&done);
        Ok(())
    }
}

fn missing_target() -> MemberFailure {
    MemberFailure::Refused("its target does not exist".to_owned())
}

/// What a listing does not show of a member.
fn unlisted_of(kind: MemberKind, attributes: &Attributes, link: &[u8]) -> Unlisted {
    let content = match kind {
        MemberKind::Symlink => link.to_vec(),
        MemberKind::Special(major, minor) => device_numbers((major, minor)),
        _ => Vec::new(),
    };
    Unlisted { xattrs: attributes.xattrs.clone(), content }
}

/// Whether the store has the same member, as far as a listing shows.
fn is_same(kind: MemberKind, attributes: &Attributes, size_bytes: u64, link: &[u8], entry: &Entry) -> bool {
    let alike = match kind {
        MemberKind::File => {
            matches!(entry.kind, Kind::File | Kind::Large | Kind::Link) && entry.size_bytes == size_bytes
        }
        MemberKind::Symlink => entry.kind == Kind::Symlink && entry.size_bytes == link.len() as u64,
        MemberKind::Directory => entry.kind == Kind::Directory,
        _ => entry.kind == Kind::Special,
    };
    let Attributes { mode, uid, gid, mtime, .. } = *attributes;
    alike && (entry.mode, entry.uid, entry.gid, entry.mtime) == (mode, uid, gid, mtime)
}

/// The key in the store of a name in an archive, or why it is refused.
fn place(prefix: &Key, name: &[u8]) -> std::result::Result<Key, String> {
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if name.starts_with(b"/") {
        return Err("its name is absolute".to_owned());
    }
    let mut path = Vec::with_capacity(name.len());
    let mut above_bytes = 0;
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("its name contains ..".to_owned()),
            _ => {
                above_bytes += path.len();
                path.extend_from_slice(component);
                path.push(b'/');
            }
        }
    }
    if above_bytes > MOST_ABOVE_BYTES {
        return Err("it is too deep: the paths of the directories above it take more than 4 MiB".to_owned());
    }
    Key::parse(path).and_then(|below| prefix.join(&below)).map_err(|error| error.to_string())
}

/// Approximate memory of an object in a batch besides its content.
fn held_bytes(key: &Key, attributes: &Attributes) -> u64 {
    let xattrs: usize = attributes.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    let runs = attributes.holes.as_ref().map_or(0, |holes| holes.data.len());
    (key.stored().len() + xattrs + runs * size_of::<(u64, u64)>()) as u64 + OBJECT_BYTES
}

fn path(name: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(name))
}

/// A stream that keeps the reason of its failure.
struct Noting<'f, R> {
    inner: R,
    failure: &'f mut Option<io::Error>,
}

impl<R: Read> Read for Noting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            let passed_on = io::Error::from(error.kind());
            if error.kind() != io::ErrorKind::Interrupted {
                *self.failure = Some(error);
            }
            passed_on
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_climb_or_are_absolute_have_no_place() {
        let prefix = Key::parse("p").unwrap();
        assert_eq!(place(&prefix, b"./a//b/").unwrap(), Key::parse("p/a/b").unwrap());
        assert_eq!(place(&prefix, b"./").unwrap(), prefix);
        assert_eq!(place(&prefix, b"a..b/...").unwrap(), Key::parse("p/a..b/...").unwrap());
        for wrong in [&b""[..], b"/a", b"..", b"../a", b"a/../b", b"a/..", b"a\0b"] {
            assert!(place(&prefix, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_lies_too_deep_has_no_place() {
        // Linux's longest path, at its deepest.
        assert!(place(&Key::root(), &b"a/".repeat(2047)).is_ok());
        let longest = [&b"a/".repeat(2047)[..], b"b"].concat();
        assert_eq!((longest.len(), place(&Key::root(), &longest).unwrap().depth()), (4095, 2048));
        // A longer one may be as deep as the limit on total length allows.
        assert!(place(&Key::root(), &b"component-of-32-bytes-and-a-bit/".repeat(500)).is_ok());
        assert!(place(&Key::root(), &b"a/".repeat(2100)).unwrap_err().contains("too deep"));
        assert!(place(&Key::root(), &b"a/".repeat(21_000)).is_err());
    }

    #[test]
    fn what_is_no_archive_is_told_from_a_damaged_one() {
        let error = Error::from(Broken::Content { at: 0, member: Vec::new(), why: "a header's checksum is wrong" });
        assert_eq!(error.kind(), ErrorKind::NotRecognised);
        let error = Error::from(Broken::Content { at: 1024, member: b"a\x07".to_vec(), why: "it is malformed" });
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("at byte 1024 (member a\\x07), it is malformed"), "{error}");
        let cut = Broken::Stream(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert_eq!(Error::from(cut).kind(), ErrorKind::Corrupt);
    }
}
