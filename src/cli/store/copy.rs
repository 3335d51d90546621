//! `granulo store cp`: copies within a store. The copy has the attributes of the original; files with several names
//! within what is copied have them in the copy too.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read};

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::devices::OpenedStore;
use super::keys::{expand, is_directory, topmost};
use super::progress::{transfer_words, with_total};
use super::record::device_numbers;
use super::{Ended, StoreToWrite, key, objects_in_words, or_damage, output, shown, usage_error, with_failures};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::report::store::{ObjectType, write_sentences};
use crate::store::ids::ObjectNumber;
use crate::store::{Batch, Buffer, Content, Durability, Key, Listed, Store};
use crate::units::format_size;

const COPY: &str = "copy";

/// Copy objects within a store
///
/// If the last KEY is a directory, the others are copied into it under their own names; otherwise it is the key of the
/// copy. Content is read, verified and stored again: a copy needs as much space as its original. Existing files are
/// replaced. When the command returns, the copy is durable.
#[derive(Debug, Args)]
#[command(
    override_usage = "granulo store cp [OPTIONS] <STORE> <FROM>... <TO>",
    after_help = "Examples:\n  granulo store cp /srv/s logs/today logs/today.bak\n  granulo store cp /srv/s pictures archive/pictures -r\n  \
    granulo store cp /srv/s 'logs/2026-11-*' november"
)]
pub(super) struct CopyArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Keys or patterns to copy, and last the new key, or the directory to copy into
    #[arg(value_name = "KEY", num_args = 2.., required = true)]
    keys: Vec<OsString>,
    /// Copy directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Fail if something already has the new key
    #[arg(short, long)]
    no_replace: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Copied {
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    further_names: u64,
    size_bytes: u64,
}

#[derive(Serialize)]
struct CopyDocument {
    schema: &'static str,
    from: Vec<String>,
    to: String,
    complete: bool,
    #[serde(flatten)]
    copied: Copied,
    failed_devices: Vec<u16>,
}

impl CopyArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let Some((to, from)) = self.keys.split_last() else { return Err(usage_error("a key is missing")) };
        let to_key = key(to)?;
        let store = self.at.open()?;
        let ended = self.copy(&store, from, &to_key);
        with_failures(&store, or_damage(ended))
    }

    fn copy(&self, store: &OpenedStore, from: &[OsString], to: &Key) -> Result<Ended> {
        let tops = topmost(expand(store, from, COPY)?);
        let into =
            to.is_root() || store.entry(to)?.is_some_and(|it| ObjectType::of(&it.entry) == ObjectType::Directory);
        if !into && tops.len() > 1 {
            let error =
                Error::new(ErrorKind::Usage, COPY, "it is not a directory, and there is more than one object to copy");
            return Err(error.at(&shown(to)).advise("create the directory, or copy one by one"));
        }
        let (mut pairs, mut targets) = (Vec::new(), HashSet::new());
        for top in tops {
            let target = match top.name() {
                Some(name) if into => to.child(name)?,
                Some(_) => to.clone(),
                None => return Err(refused(&top, "the root has no name of its own")),
            };
            self.check(store, &top, &target)?;
            if !targets.insert(target.clone()) {
                return Err(refused(&target, "two of the objects would get this key").advise("copy them one by one"));
            }
            pairs.push((top, target));
        }
        let progress = signals::progress()?;
        let mut copied = Copied::default();
        let tops: Vec<Key> = pairs.iter().map(|(top, _)| top.clone()).collect();
        let done = during(self.quiet, &progress, transfer_words, || {
            with_total(self.quiet, store, &tops, &progress, || copy_all(store, &pairs, &progress, &mut copied))
        });
        let is_whole = done?;
        if !is_whole {
            output::note("interrupted; what was copied so far stays");
        }
        emit(&self.document, || CopyDocument {
            schema: "granulo/store-cp/1",
            from: tops.iter().map(Key::to_string).collect(),
            to: to.to_string(),
            complete: is_whole,
            copied,
            failed_devices: store.failed_devices(),
        })?;
        if !self.document.json && !self.quiet {
            let Copied { files, directories, symlinks, special, further_names, size_bytes } = copied;
            let counts = objects_in_words(files, directories, symlinks, special, further_names);
            let sentence = format!("Copied {counts}, {}.", format_size(size_bytes.into()));
            output::print(|out| write_sentences(&[sentence], out))?;
        }
        Ok(if is_whole { Ended::Well } else { Ended::Amiss })
    }

    fn check(&self, store: &Store, from: &Key, to: &Key) -> Result<()> {
        let is_directory = is_directory(store, from, COPY)?;
        if is_directory && !self.recursive {
            return Err(refused(from, "it is a directory").advise("add -r to copy everything below it"));
        }
        if to.below(from).is_some() {
            let why = if to == from { "it would replace itself" } else { "it cannot be copied into itself" };
            return Err(refused(from, why));
        }
        let Some(existing) = store.entry(to)? else { return Ok(()) };
        if self.no_replace {
            return Err(Error::new(ErrorKind::Exists, "copy to", "it already exists").at(&shown(to)));
        }
        match (is_directory, ObjectType::of(&existing.entry) == ObjectType::Directory) {
            (true, false) => Err(refused(to, "it is not a directory, and a directory would replace it")),
            (false, true) => Err(refused(to, "it is a directory, and would be replaced by something else")),
            _ => Ok(()),
        }
    }
}

fn refused(key: &Key, why: &str) -> Error {
    Error::new(ErrorKind::Usage, COPY, why).at(&shown(key))
}

/// Copies each tree; returns whether it came to the end.
fn copy_all(store: &Store, pairs: &[(Key, Key)], progress: &Progress, copied: &mut Copied) -> Result<bool> {
    let mut copier = Copier { store, batch: store.batch(Durability::Batch), names: HashMap::new(), progress, copied };
    for (from, to) in pairs {
        for listed in store.walk(from)? {
            let listed = listed?;
            let below = listed.key.below(from).unwrap_or_else(Key::root);
            if progress.should_stop() || !copier.copy(&listed, &to.join(&below)?)? {
                copier.batch.commit()?;
                return Ok(false);
            }
            progress.add(1, 0, 0);
        }
    }
    copier.batch.commit()?;
    Ok(true)
}

struct Copier<'s, 'p> {
    store: &'s Store,
    batch: Batch<'s>,
    /// Of files with several names: the number of the copy.
    names: HashMap<ObjectNumber, ObjectNumber>,
    progress: &'p Progress,
    copied: &'p mut Copied,
}

impl Copier<'_, '_> {
    /// Copies one object; returns `false` if that was interrupted.
    fn copy(&mut self, listed: &Listed, to: &Key) -> Result<bool> {
        let object_type = ObjectType::of(&listed.entry);
        if object_type == ObjectType::File {
            return self.file(listed, to);
        }
        let mut buffer = Buffer::default();
        let Some(object) = self.store.read(&listed.key, &mut buffer)? else { return Ok(true) };
        match object_type {
            ObjectType::Directory => {
                self.batch.directory(to, &object.attributes)?;
                self.copied.directories += 1;
            }
            ObjectType::Symlink => {
                self.batch.symlink(to, &object.attributes, object.content)?;
                self.copied.symlinks += 1;
            }
            _ => {
                let (major, minor) = device_numbers(object.content).unwrap_or_default();
                self.batch.special(to, &object.attributes, major, minor)?;
                self.copied.special += 1;
            }
        }
        Ok(true)
    }

    fn file(&mut self, listed: &Listed, to: &Key) -> Result<bool> {
        let shared = listed.shared.filter(|&number| self.store.names_of(number) > 1);
        if let Some(&copy) = shared.as_ref().and_then(|number| self.names.get(number)) {
            self.batch.link(to, copy)?;
            self.copied.further_names += 1;
            return Ok(true);
        }
        let Some(content) = self.store.content(&listed.key)? else { return Ok(true) };
        let attributes = content.attributes().clone();
        let data_bytes = attributes.holes.as_ref().map_or(content.entry().size_bytes, |holes| holes.data_bytes());
        let mut stream = Pieces { content, rest: Vec::new(), at: 0, progress: self.progress, failed: None };
        let put = match shared {
            None => self.batch.put_from(to, &attributes, &mut stream, Some(data_bytes)).map(|_| None),
            Some(_) => self.batch.shared(&attributes, &mut stream, Some(data_bytes)).map(Some),
        };
        let copy = match (put, stream.failed) {
            (Err(_), _) if self.progress.should_stop() => return Ok(false),
            // The store reports that the stream failed; the stream knows why.
            (Err(_), Some(error)) => return Err(error),
            (put, _) => put?,
        };
        if let (Some(copy), Some(number)) = (copy, shared) {
            self.batch.link(to, copy)?;
            self.names.insert(number, copy);
        }
        self.copied.files += 1;
        self.copied.size_bytes += data_bytes;
        Ok(true)
    }
}

/// The data of a file of the store as a stream.
struct Pieces<'s, 'p> {
    content: Content<'s>,
    rest: Vec<u8>,
    at: usize,
    progress: &'p Progress,
    failed: Option<Error>,
}

impl Read for Pieces<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.should_stop() {
            return Err(io::Error::other("interrupted"));
        }
        if self.at == self.rest.len() {
            self.rest.clear();
            self.at = 0;
            match self.content.next_piece() {
                Ok(Some((_, piece))) => self.rest.extend_from_slice(piece),
                Ok(None) => return Ok(0),
                Err(error) => {
                    self.failed = Some(error);
                    return Err(io::Error::other("the original cannot be read"));
                }
            }
        }
        let length = buffer.len().min(self.rest.len() - self.at);
        buffer[..length].copy_from_slice(&self.rest[self.at..self.at + length]);
        self.at += length;
        self.progress.add_bytes(length as u64);
        Ok(length)
    }
}
