//! `granulo store get`: the content of one file, or a part of it, in pieces: memory does not grow with the file.
//!
//! A file may be replaced by a writer while its pieces are read. The output is the file as it was at the beginning; if
//! that version is freed meanwhile, the read fails and never returns a mixture.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Seek};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::archive;
use super::keys::{expand, topmost};
use super::log::{find_versions, say_what_is_missing};
use super::progress::transfer_words;
use super::target::Target;
use super::{Ended, StateToRead, find, key, not_found, or_damage, or_damage_to, output, shown, usage_error};
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::report::store::ObjectType;
use crate::store::{Content, Key, Listed, Store};
use crate::units::{MIB, escape, format_count, parse_size};

/// Bytes of a hole that are written in one call.
const ZEROES_BYTES: u64 = MIB;

/// Write the content of files to standard output, or objects as a tar archive
///
/// Several files follow each other. KEY may be a pattern: '*', '?', '[…]' and '{…}' match within a name, '**' any
/// number of directories; a key that exists is only that key. With --tar, directories come with everything below them.
///
/// Every byte is verified before it is written. On damage that redundancy cannot repair, the output up to it is
/// correct and the exit status is 1; with -o, no file is created.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store get /srv/s logs/today | tail\n  granulo store get /srv/s disk.img -o disk.img\n  \
    granulo store get /srv/s disk.img --range 0-511\n  granulo store get /srv/s logs/today --range=-4K\n  \
    granulo store get /srv/s logs/today --id 4711\n  granulo store get /srv/s logs/today --at monday\n  \
    granulo store get /srv/s 'logs/2026-*.log' > all.log\n  granulo store get /srv/s cats dogs/1.jpg --tar | tar -tv"
)]
pub(super) struct GetArguments {
    #[command(flatten)]
    at: StateToRead,
    /// Keys of files, or patterns
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Write a tar archive of the objects and everything below them
    #[arg(long, conflicts_with_all = ["range", "id"])]
    tar: bool,
    /// Write to this file, which appears complete or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this byte range, counted from 0: FROM-TO (inclusive), FROM- to the end, or -N for the last N bytes
    #[arg(long, value_name = "FROM-TO", value_parser = parse_range, allow_hyphen_values = true)]
    range: Option<Bytes>,
    /// Write an earlier version, by its id from granulo store log
    #[arg(long, value_name = "ID", conflicts_with = "snapshot")]
    id: Option<u64>,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    /// Print a summary as JSON (with -o)
    #[arg(long, requires = "output")]
    json: bool,
}

/// A part of a file, as in the Range of HTTP (RFC 9110, section 14.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Between(u64, u64),
    From(u64),
    Last(u64),
}

fn parse_range(text: &str) -> std::result::Result<Bytes, String> {
    let wrong = || format!("'{text}' is not a range; write, for example, 0-99, 1MiB- or -4KiB");
    match text.split_once('-').ok_or_else(wrong)? {
        ("", "") => Err(wrong()),
        ("", last) => match parse_size(last)? {
            0 => Err("the last 0 bytes are an empty range".to_owned()),
            last => Ok(Bytes::Last(last)),
        },
        (from, "") => Ok(Bytes::From(parse_size(from)?)),
        (from, to) => match (parse_size(from)?, parse_size(to)?) {
            (from, to) if from <= to => Ok(Bytes::Between(from, to)),
            _ => Err("the end of a range must not be before its start".to_owned()),
        },
    }
}

impl Bytes {
    /// The range for a file of this size; `None` if it is empty.
    fn of(self, size_bytes: u64) -> Option<std::ops::Range<u64>> {
        let range = match self {
            Bytes::Between(from, to) => from..to.saturating_add(1).min(size_bytes),
            Bytes::From(from) => from..size_bytes,
            Bytes::Last(last) => size_bytes.saturating_sub(last)..size_bytes,
        };
        (range.start < range.end).then_some(range)
    }
}

#[derive(Serialize)]
struct GetDocument {
    schema: &'static str,
    /// The first of `keys`.
    key: String,
    keys: Vec<String>,
    size_bytes: u64,
    from_byte: u64,
    written_bytes: u64,
}

impl GetArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let named = self.keys.iter().map(|argument| key(argument)).collect::<Result<Vec<Key>>>()?;
        let store = self.at.open()?;
        if let (Some(id), [key]) = (self.id, named.as_slice()) {
            return or_damage_to(key, self.get_version(&store, key, id));
        }
        if self.id.is_some() {
            return Err(usage_error("--id is of one file, and there are several keys"));
        }
        let keys = expand(&store, &self.keys, "get")?;
        if self.tar {
            return or_damage(archive::get(&store, topmost(keys), self.output.as_deref(), self.quiet, self.json));
        }
        match keys.as_slice() {
            [key] => or_damage_to(key, self.get(&store, key)),
            _ if self.range.is_some() => Err(usage_error("--range is of one file, and there are several")),
            keys => self.get_all(&store, keys),
        }
    }

    /// Writes one file after the other.
    fn get_all(&self, store: &Store, keys: &[Key]) -> Result<Ended> {
        let mut contents = Vec::new();
        let mut size_bytes = 0;
        for key in keys {
            let found = self.checked(store, key)?;
            size_bytes += found.entry.size_bytes;
            contents.push((key, found.entry.size_bytes));
        }
        let mut target = Target::open(self.output.as_deref())?;
        let hidden = self.quiet || (self.output.is_none() && io::stdout().is_terminal());
        let progress = signals::progress()?;
        progress.set_total(size_bytes);
        let copied = during(hidden, &progress, transfer_words, || {
            let mut before_bytes = 0;
            for (key, file_bytes) in contents {
                let copied = copy_key(store, key, before_bytes, &mut target, &progress);
                match copied.map_err(|error| (key, error))? {
                    Copied::Whole => before_bytes += file_bytes,
                    ended => return Ok(ended),
                }
            }
            Ok(Copied::Whole)
        });
        match copied {
            Err((key, error)) => return or_damage_to(key, Err(error)),
            Ok(Copied::Whole) => target.commit()?,
            Ok(Copied::ReaderLeft) => return Ok(Ended::Well),
            Ok(Copied::Interrupted) => {
                output::note("interrupted");
                return Ok(Ended::Amiss);
            }
        }
        self.say(keys, size_bytes, 0, size_bytes)
    }

    /// The entry of a file that has content.
    fn checked(&self, store: &Store, key: &Key) -> Result<Listed> {
        if key.is_root() {
            return Err(is_a_directory(key));
        }
        let found = find(store, key, "get")?;
        refuse_what_has_no_content(store, key, ObjectType::of(&found.entry))?;
        Ok(found)
    }

    fn say(&self, keys: &[Key], size_bytes: u64, from_byte: u64, written_bytes: u64) -> Result<Ended> {
        if !self.json {
            return Ok(Ended::Well);
        }
        let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        let key = keys.first().cloned().unwrap_or_default();
        let schema = "granulo/store-get/1";
        super::completeness::print_json(&GetDocument { schema, key, keys, size_bytes, from_byte, written_bytes })
    }

    /// Writes a version that the segments still have.
    fn get_version(&self, store: &Store, key: &Key, id: u64) -> Result<Ended> {
        let found = find_versions(store, key, self.quiet)?;
        if found.find(id).is_none() && (!found.is_complete || !found.damage.is_empty()) {
            // It may be in what could not be read.
            say_what_is_missing(&found);
            output::complain(&found.content(id).map(drop).err().unwrap_or_else(|| not_found(store, key, "get")));
            return Ok(Ended::Amiss);
        }
        self.write(key, found.content(id)?)
    }

    fn get(&self, store: &Store, key: &Key) -> Result<Ended> {
        self.checked(store, key)?;
        self.write(key, store.content(key)?.ok_or_else(|| not_found(store, key, "get"))?)
    }

    fn write(&self, key: &Key, mut content: Content<'_>) -> Result<Ended> {
        let size_bytes = content.entry().size_bytes;
        let range = match self.range {
            None => 0..size_bytes,
            Some(bytes) => bytes.of(size_bytes).ok_or_else(|| {
                let size = format_count(size_bytes.into());
                Error::new(ErrorKind::Usage, "get the range of", format!("the file has {size} bytes")).at(&shown(key))
            })?,
        };
        let mut target = Target::open(self.output.as_deref())?;
        let hidden = self.quiet || (self.output.is_none() && io::stdout().is_terminal());
        let progress = signals::progress()?;
        progress.set_total(range.end - range.start);
        let copied =
            during(hidden, &progress, transfer_words, || copy(&mut content, range.clone(), 0, &mut target, &progress));
        match copied? {
            Copied::Whole => target.commit()?,
            Copied::ReaderLeft => return Ok(Ended::Well),
            Copied::Interrupted => {
                output::note("interrupted");
                return Ok(Ended::Amiss);
            }
        }
        self.say(std::slice::from_ref(key), size_bytes, range.start, range.end - range.start)
    }
}

fn is_a_directory(key: &Key) -> Error {
    let error = Error::new(ErrorKind::Usage, "get", "it is a directory").at(&shown(key));
    error.advise("use granulo store export for a tree")
}

fn refuse_what_has_no_content(store: &Store, key: &Key, object_type: ObjectType) -> Result<()> {
    let error = |cause: String| Error::new(ErrorKind::Usage, "get", cause).at(&shown(key));
    match object_type {
        ObjectType::File => Ok(()),
        ObjectType::Directory => Err(is_a_directory(key)),
        ObjectType::Symlink => {
            let target = store.get(key)?.ok_or_else(|| not_found(store, key, "get"))?;
            Err(error(format!("it is a symbolic link to {}", escape(&target))).advise("get its target"))
        }
        other => Err(error(format!("a {} has no content", other.name()))),
    }
}

enum Copied {
    Whole,
    ReaderLeft,
    Interrupted,
}

/// Writes a whole file, after other bytes that count as done.
fn copy_key(store: &Store, key: &Key, before_bytes: u64, target: &mut Target, progress: &Progress) -> Result<Copied> {
    let mut content = store.content(key)?.ok_or_else(|| not_found(store, key, "get"))?;
    let size_bytes = content.entry().size_bytes;
    copy(&mut content, 0..size_bytes, before_bytes, target, progress)
}

/// Writes a range of a file, after other bytes that count as done.
fn copy(
    content: &mut Content<'_>,
    range: std::ops::Range<u64>,
    before_bytes: u64,
    target: &mut Target,
    progress: &Progress,
) -> Result<Copied> {
    content.seek(range.start);
    let mut at = range.start;
    while at < range.end {
        if progress.should_stop() {
            return Ok(Copied::Interrupted);
        }
        let (offset, piece) = content.next_piece()?.unwrap_or((range.end, &[]));
        let hole = at..offset.min(range.end);
        let filled = if hole.is_empty() { Ok(()) } else { fill(hole, target, progress) };
        let written = filled.and_then(|()| {
            at = offset.min(range.end);
            let piece = &piece[..piece.len().min((range.end - at) as usize)];
            at += piece.len() as u64;
            target.write(piece)
        });
        match written {
            Ok(()) => {}
            Err(error) if target.is_standard_output() && error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Copied::ReaderLeft);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Copied::Interrupted),
            Err(error) => return Err(target.failed(error)),
        }
        progress.set(0, before_bytes + at - range.start);
    }
    Ok(Copied::Whole)
}

/// Leaves a hole in a file; elsewhere writes its zeros, which can take very long.
fn fill(hole: std::ops::Range<u64>, target: &mut Target, progress: &Progress) -> io::Result<()> {
    let mut left = hole.end.saturating_sub(hole.start);
    if target.atomic.is_some() {
        target.file.seek_relative(left as i64)?;
        let end = target.file.stream_position()?;
        return target.file.set_len(end);
    }
    let zeroes = vec![0; left.min(ZEROES_BYTES) as usize];
    while left > 0 {
        if progress.should_stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = left.min(ZEROES_BYTES);
        target.write(&zeroes[..length as usize])?;
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        for (text, size, expected) in [
            ("0-99", 1000, Some(0..100)),
            ("0-99", 50, Some(0..50)),
            ("0-0", 1, Some(0..1)),
            ("1K-", 2000, Some(1024..2000)),
            ("-4KiB", 10_000, Some(5904..10_000)),
            ("-4KiB", 100, Some(0..100)),
            ("50-", 50, None),
            ("50-60", 50, None),
            ("-1", 0, None),
            ("0-18446744073709551615", 7, Some(0..7)),
        ] {
            assert_eq!(parse_range(text).unwrap().of(size), expected, "{text} of {size}");
        }
        for wrong in ["", "-", "5", "9-8", "-0", "a-b", "--5", "1-2-3"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
