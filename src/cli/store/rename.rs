//! `granulo store mv` and `granulo store ln`: new names for objects of a store.

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::{Ended, StoreToWrite, find, key, not_found, or_damage, shown, with_failures};
use crate::cli::output::DocumentArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::ObjectType;
use crate::store::{Existing, Key, Store};

/// Rename an object of a store; a directory moves with its content
///
/// A single small batch, whatever a directory holds; when the command returns, it is durable. The object keeps its
/// number. If TO is a directory, the object moves into it under its own name.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store mv /srv/s logs/today logs/yesterday\n  granulo store mv /srv/s incoming archive -T --no-replace\n  granulo store mv /srv/s current next --exchange"
)]
pub(super) struct MoveArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Current key
    #[arg(value_name = "FROM")]
    from: OsString,
    /// New key, or the directory to move into
    #[arg(value_name = "TO")]
    to: OsString,
    /// Treat TO as the new key even if it is a directory; an empty one is replaced by a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Fail if the new key already exists
    #[arg(short, long, conflicts_with = "exchange")]
    no_replace: bool,
    /// Swap the keys of both objects
    #[arg(long)]
    exchange: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

/// Give a file in a store another name
///
/// Both names then refer to the same file, like hard links; it is removed with the last of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store ln /srv/s logs/2026-11-23 logs/latest")]
pub(super) struct LinkArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Existing key of the file
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Additional key
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct NamedDocument {
    schema: &'static str,
    from: String,
    to: String,
    /// Number of the object.
    number: u64,
    /// Whether the two exchanged their names.
    exchanged: bool,
}

impl MoveArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (from, to) = (key(&self.from)?, key(&self.to)?);
        let store = self.at.open()?;
        with_failures(&store, or_damage(self.rename(&store, &from, to)))
    }

    fn rename(&self, store: &Store, from: &Key, to: Key) -> Result<Ended> {
        let found = find(store, from, "rename")?;
        if self.exchange {
            find(store, &to, "rename")?;
            store.exchange(from, &to)?;
            return said(&self.document, "granulo/store-mv/1", from, &to, found.entry.number.0, true);
        }
        let is_directory = |key: &Key| -> Result<bool> {
            Ok(key.is_root()
                || store.entry(key)?.is_some_and(|found| ObjectType::of(&found.entry) == ObjectType::Directory))
        };
        let to = match from.name() {
            Some(name) if !self.no_target_directory && is_directory(&to)? => to.child(name)?,
            _ => to,
        };
        let existing = if self.no_replace { Existing::Refuse } else { Existing::Replace };
        store.rename(from, &to, existing).map_err(|error| without_directory(store, from, &to, "rename", error))?;
        said(&self.document, "granulo/store-mv/1", from, &to, found.entry.number.0, false)
    }
}

impl LinkArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (existing, name) = (key(&self.key)?, key(&self.name)?);
        let store = self.at.open()?;
        with_failures(&store, or_damage(self.link(&store, &existing, &name)))
    }

    fn link(&self, store: &Store, existing: &Key, name: &Key) -> Result<Ended> {
        const ADD: &str = "add another name for";
        let found = find(store, existing, ADD)?;
        store.hard_link(existing, name).map_err(|error| without_directory(store, existing, name, ADD, error))?;
        said(&self.document, "granulo/store-ln/1", existing, name, found.entry.number.0, false)
    }
}

/// The error for an object that was to get a name in a directory that does not exist.
fn without_directory(store: &Store, existing: &Key, name: &Key, operation: &'static str, error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let is_missing =
        |directory: &Key| !directory.is_root() && store.entry(directory).is_ok_and(|found| found.is_none());
    match std::iter::successors(name.parent(), Key::parent).take_while(is_missing).last() {
        None => error,
        Some(directory) if !store.completeness().is_complete() => not_found(store, &directory, operation),
        Some(directory) => Error::new(ErrorKind::NotFound, operation, format!("no such directory: {directory}"))
            .at(&shown(existing))
            .advise("granulo store put and import create directories"),
    }
}

fn said(
    arguments: &DocumentArguments,
    schema: &'static str,
    from: &Key,
    to: &Key,
    number: u64,
    exchanged: bool,
) -> Result<Ended> {
    emit(arguments, || NamedDocument { schema, from: from.to_string(), to: to.to_string(), number, exchanged })?;
    Ok(Ended::Well)
}
