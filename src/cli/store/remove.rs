//! `granulo store rm`: remove objects, and directories with everything below them, in one batch; prints what will be
//! removed before removing it.

use std::collections::HashMap;
use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::keys::{expand, is_directory, topmost};
use super::progress::transfer_words;
use super::{Ended, StoreToWrite, key, or_damage, output, shown, with_failures};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::report::store::{ObjectType, count_words};
use crate::store::ids::ObjectNumber;
use crate::store::{Durability, Key, Store};
use crate::units::{format_count, format_size};

/// Remove objects from a store and, with -r, directories with everything below them
///
/// KEY may be a pattern: '*', '?', '[…]' and '{…}' match within a name, '**' any number of directories; a key that
/// exists is only that key. Nothing is removed if one KEY is missing. First shows how many objects and bytes will be
/// removed, without asking; --dry-run stops there. When the command returns, the removal is durable. Free the space
/// with granulo store compact.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store rm /srv/s logs/today\n  granulo store rm /srv/s logs -r --dry-run\n  granulo store rm /srv/s 'logs/2025-*' old.log\n  granulo store rm /srv/s / -r"
)]
pub(super) struct RemoveArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Keys or patterns
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Remove directories and everything below them; for the root, only what is below it
    #[arg(short, long)]
    recursive: bool,
    /// Show what would be removed, then stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

/// What is removed.
#[derive(Debug, Default, Serialize)]
struct Removal {
    /// Files whose last name is removed.
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    /// Names of files that keep another name elsewhere.
    names_of_files_that_stay: u64,
    /// Sizes of the files, and lengths of the targets.
    size_bytes: u128,
}

#[derive(Serialize)]
struct RemovalDocument {
    schema: &'static str,
    /// The first of `keys`.
    key: String,
    keys: Vec<String>,
    removed: bool,
    #[serde(flatten)]
    removal: Removal,
}

impl RemoveArguments {
    pub(super) fn run(self) -> Result<Ended> {
        self.keys.iter().try_for_each(|argument| key(argument).map(drop))?;
        let store = if self.dry_run { self.at.read.open()? } else { self.at.open()? };
        with_failures(&store, or_damage(self.remove(&store)))
    }

    fn remove(&self, store: &Store) -> Result<Ended> {
        let keys = expand(store, &self.keys, "remove")?;
        for key in &keys {
            if !self.recursive && is_directory(store, key, "remove")? {
                self.refuse_full_directory(store, key)?;
            }
        }
        let keys = topmost(keys);
        let progress = signals::progress()?;
        let counted = during(false, &progress, transfer_words, || count(store, &keys, &progress));
        let Some(removal) = counted? else {
            output::note("interrupted; nothing was removed");
            return Ok(Ended::Amiss);
        };
        if !self.document.json {
            let verb = if self.dry_run { "Would remove" } else { "Removing" };
            let what = match keys.as_slice() {
                [key] => key.to_string(),
                keys => format!("{} keys", format_count(keys.len() as u128)),
            };
            output::print(|out| writeln!(out, "{verb} {what}: {}", removal.words()))?;
        }
        if !self.dry_run {
            let mut batch = store.batch(Durability::Batch);
            keys.iter().try_for_each(|key| batch.remove_tree(key).map(drop))?;
            batch.commit()?;
        }
        emit(&self.document, || {
            let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
            let key = keys.first().cloned().unwrap_or_default();
            RemovalDocument { schema: "granulo/store-rm/1", key, keys, removed: !self.dry_run, removal }
        })?;
        Ok(Ended::Well)
    }

    fn refuse_full_directory(&self, store: &Store, key: &Key) -> Result<()> {
        let cause = if key.is_root() {
            "the root cannot be removed"
        } else if store.list(key)?.next().transpose()?.is_some() {
            "the directory is not empty"
        } else {
            return Ok(());
        };
        let error = Error::new(ErrorKind::Usage, "remove", cause).at(&shown(key));
        Err(error.advise("add -r to remove everything below it"))
    }
}

/// What would be removed with `tops`; `None` when that was interrupted. Memory grows only with the number of files with
/// several names.
fn count(store: &Store, tops: &[Key], progress: &Progress) -> Result<Option<Removal>> {
    let mut removal = Removal::default();
    let mut shared: HashMap<ObjectNumber, Shared> = HashMap::new();
    let walks = tops.iter().map(|top| store.walk(top)).collect::<Result<Vec<_>>>()?;
    for (index, listed) in (1..).zip(walks.into_iter().flatten()) {
        let listed = listed?;
        if progress.should_stop() {
            return Ok(None);
        }
        progress.set(index, u64::try_from(removal.size_bytes).unwrap_or(u64::MAX));
        let size_bytes = u128::from(listed.entry.size_bytes);
        match (ObjectType::of(&listed.entry), listed.shared) {
            // The root remains when everything below it is removed.
            (ObjectType::Directory, _) => removal.directories += u64::from(!listed.key.is_root()),
            (object_type, Some(number)) => {
                if let Some(object) = shared.get_mut(&number) {
                    object.seen += 1;
                } else {
                    let names = store.names_of(number);
                    shared.insert(number, Shared { seen: 1, names, object_type, size_bytes });
                }
            }
            (object_type, None) => removal.add(object_type, size_bytes),
        }
    }
    for object in shared.into_values() {
        if object.seen >= object.names {
            removal.add(object.object_type, object.size_bytes);
        } else {
            removal.names_of_files_that_stay += object.seen;
        }
    }
    Ok(Some(removal))
}

/// What has several names.
struct Shared {
    seen: u64,
    names: u64,
    object_type: ObjectType,
    size_bytes: u128,
}

impl Removal {
    /// Adds an object that is no directory.
    fn add(&mut self, object_type: ObjectType, size_bytes: u128) {
        match object_type {
            ObjectType::File => self.files += 1,
            ObjectType::Symlink => self.symlinks += 1,
            _ => self.special += 1,
        }
        self.size_bytes += size_bytes;
    }

    fn words(&self) -> String {
        let counts = count_words(&[
            (self.files, "file", "files"),
            (self.directories, "directory", "directories"),
            (self.symlinks, "symbolic link", "symbolic links"),
            (self.special, "special file", "special files"),
            (self.names_of_files_that_stay, "name of a file that remains", "names of files that remain"),
        ]);
        if counts.is_empty() {
            return "it is empty".to_owned();
        }
        format!("{counts}, {}", format_size(self.size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_in_words() {
        let removal = Removal { files: 1200, directories: 1, size_bytes: 5 << 20, ..Removal::default() };
        assert_eq!(removal.words(), "1,200 files, 1 directory, 5 MiB");
        let names = Removal { names_of_files_that_stay: 2, ..Removal::default() };
        assert_eq!(names.words(), "2 names of files that remain, 0 B");
        assert_eq!(Removal::default().words(), "it is empty");
    }
}
