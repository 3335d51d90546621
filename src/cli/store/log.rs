//! `granulo store log`: the versions of a key that the segments still have, newest first.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::progress::maintenance_words;
use super::{Ended, StoreToRead, key, not_found, output, shown};
use crate::cli::output::DocumentArguments;
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::{ObjectType, format_minute};
use crate::report::table::table;
use crate::store::{Key, Kind, Removed, Store, Version, VersionContent, Versions};
use crate::units::escape;

/// List the versions of a key that the segments still have, newest first
///
/// What was overwritten, removed or renamed stays in the segments until compaction frees it, or for as long as a
/// snapshot keeps it. Reads the whole log; a writer may be active. KEY is looked up as a name in the directory that has
/// its path now: what was renamed to KEY has its older versions under its previous key, and the names in a removed
/// directory are not found. Of a file with several names, the versions of its content while KEY was one of them are
/// listed too. An asterisk marks the current version. Times are in UTC. The exit status is 1 if a part of the log is
/// damaged: versions may be missing.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store log /srv/s logs/today\n  granulo store get /srv/s logs/today --id 4711 > before\n  \
    granulo store log /srv/s logs/today --json | jq '.versions[].id'"
)]
pub(super) struct LogArguments {
    #[command(flatten)]
    at: StoreToRead,
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct LogDocument {
    schema: &'static str,
    key: String,
    directory: u64,
    complete: bool,
    versions: Vec<VersionRecord>,
    damage: Vec<DamageRecord>,
}

#[derive(Serialize)]
struct VersionRecord {
    id: u64,
    kind: &'static str,
    current: bool,
    /// Absent content is `null`.
    content: Option<&'static str>,
    number: Option<u64>,
    shared: Option<u64>,
    size_bytes: Option<u64>,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime_seconds: Option<i64>,
    mtime_nanoseconds: Option<u32>,
    ctime_seconds: Option<i64>,
    ctime_nanoseconds: Option<u32>,
    renamed_to: Option<RenamedRecord>,
    segment: u64,
    offset: u64,
    record_bytes: u64,
}

#[derive(Serialize)]
struct RenamedRecord {
    directory: u64,
    name: String,
}

#[derive(Serialize)]
struct DamageRecord {
    segment: u64,
    offset: u64,
    damaged_bytes: u64,
}

impl LogArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let key = key(&self.key)?;
        let store = self.at.open()?;
        let found = find_versions(&store, &key, self.quiet)?;
        if found.versions.is_empty() && found.is_complete && found.damage.is_empty() {
            let error = Error::new(ErrorKind::NotFound, "list the versions of", "the segments have none");
            return Err(error.at(&shown(&key)).advise("list the existing keys with granulo store ls"));
        }
        emit(&self.document, || document(&found))?;
        if !self.document.json {
            output::print(|out| write(&found, out))?;
        }
        Ok(say_what_is_missing(&found))
    }
}

/// The versions of a key, with a progress line.
pub(super) fn find_versions(store: &Store, key: &Key, quiet: bool) -> Result<Versions> {
    let progress = signals::progress()?;
    let found = during(quiet, &progress, maintenance_words, || store.versions(key, &progress));
    found.map_err(|error| match error.kind() {
        // With the nearest directory that exists.
        ErrorKind::NotFound => not_found(store, key, "find versions of"),
        _ => error,
    })
}

/// Reports what could not be read of the log.
pub(super) fn say_what_is_missing(found: &Versions) -> Ended {
    for damage in &found.damage {
        let (segment, from, to) = (damage.segment.0, damage.range.start, damage.range.end);
        output::warn(&format!("segment {segment} is damaged from {from} to {to}: versions in it are missing"));
    }
    if !found.is_complete {
        output::note("interrupted: older and newer versions may be missing");
    }
    if found.is_complete && found.damage.is_empty() { Ended::Well } else { Ended::Amiss }
}

/// The kind of a version, in JSON.
fn kind(version: &Version) -> &'static str {
    match (&version.removed, version.entry.kind) {
        (Some(Removed::Renamed { .. }), _) => "rename",
        (Some(Removed::Tree), _) => "tree_removal",
        (Some(_), _) | (None, Kind::Removal) => "removal",
        (None, Kind::Large) => "large",
        (None, Kind::Link) => "name",
        (None, _) => match ObjectType::of(&version.entry) {
            ObjectType::File => "file",
            ObjectType::Directory => "directory",
            ObjectType::Symlink => "symlink",
            ObjectType::Fifo => "fifo",
            ObjectType::Socket => "socket",
            ObjectType::BlockDevice => "block_device",
            ObjectType::CharacterDevice => "character_device",
        },
    }
}

fn content(version: &Version) -> Option<&'static str> {
    match version.content {
        VersionContent::Present => Some("present"),
        VersionContent::Missing => Some("missing"),
        VersionContent::Freed => Some("freed"),
        _ => None,
    }
}

/// Whether a version has attributes: neither a removal nor a name.
fn is_object(version: &Version) -> bool {
    version.removed.is_none() && version.entry.kind != Kind::Link
}

impl VersionRecord {
    fn new(version: &Version) -> VersionRecord {
        let entry = version.entry;
        let object = Some(entry).filter(|_| is_object(version));
        let renamed_to = match &version.removed {
            Some(Removed::Renamed { directory, name }) => {
                Some(RenamedRecord { directory: directory.0, name: escape(name) })
            }
            _ => None,
        };
        VersionRecord {
            id: entry.id,
            kind: kind(version),
            current: version.is_current,
            content: content(version),
            number: Some(entry.number.0).filter(|_| version.removed.is_none()),
            shared: version.shared.map(|number| number.0),
            size_bytes: object.map(|entry| entry.size_bytes),
            mode: object.map(|entry| entry.mode),
            uid: object.map(|entry| entry.uid),
            gid: object.map(|entry| entry.gid),
            mtime_seconds: object.map(|entry| entry.mtime.seconds),
            mtime_nanoseconds: object.map(|entry| entry.mtime.nanoseconds),
            ctime_seconds: version.written.map(|time| time.seconds),
            ctime_nanoseconds: version.written.map(|time| time.nanoseconds),
            renamed_to,
            segment: entry.location.segment.0,
            offset: entry.location.offset.0,
            record_bytes: entry.location.record_bytes,
        }
    }
}

fn document(found: &Versions) -> LogDocument {
    let damage = found.damage.iter().map(|damage| DamageRecord {
        segment: damage.segment.0,
        offset: damage.range.start.0,
        damaged_bytes: damage.range.end - damage.range.start,
    });
    LogDocument {
        schema: "granulo/store-log/1",
        key: found.key.to_string(),
        directory: found.directory.0,
        complete: found.is_complete,
        versions: found.versions.iter().map(VersionRecord::new).collect(),
        damage: damage.collect(),
    }
}

/// What else there is to say about a version.
fn remark(found: &Versions, version: &Version) -> String {
    let mut parts = Vec::new();
    match &version.removed {
        Some(Removed::Renamed { directory, name }) if *directory == found.directory => {
            parts.push(format!("to {}", escape(name)));
        }
        Some(Removed::Renamed { directory, name }) => {
            parts.push(format!("to {} in directory {directory}", escape(name)));
        }
        _ => {}
    }
    if version.entry.kind == Kind::Link {
        parts.push(format!("of file {}", version.entry.number));
    }
    parts.extend(version.shared.map(|number| format!("content of file {number}")));
    match version.content {
        VersionContent::Freed => parts.push("content freed".to_owned()),
        VersionContent::Missing => parts.push("content missing".to_owned()),
        _ => {}
    }
    parts.join(", ")
}

fn write(found: &Versions, out: &mut dyn Write) -> io::Result<()> {
    let header = ["id", "kind", "size", "modified", "changed", "segment"].map(str::to_owned);
    let row = |version: &Version| {
        let entry = version.entry;
        let (size, modified) = match is_object(version) {
            true => (entry.size_bytes.to_string(), format_minute(entry.mtime)),
            false => ("-".to_owned(), "-".to_owned()),
        };
        let changed = version.written.map_or_else(|| "-".to_owned(), format_minute);
        let kind = kind(version).replace('_', " ");
        [entry.id.to_string(), kind, size, modified, changed, entry.location.segment.0.to_string()]
    };
    let rows: Vec<[String; 6]> = found.versions.iter().map(row).collect();
    let mut widths = [0; 6];
    for row in rows.iter().chain([&header]) {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.len().max(*width);
        }
    }
    let line = |mark: &str, row: &[String; 6], remark: &str, out: &mut dyn Write| {
        let [id, kind, size, modified, changed, segment] = row;
        let [a, b, c, d, e, f] = widths;
        let text =
            format!("{mark} {id:>a$}  {kind:<b$}  {size:>c$}  {modified:<d$}  {changed:<e$}  {segment:>f$}  {remark}");
        writeln!(out, "{}", text.trim_end())
    };
    table(out, |out| {
        line(" ", &header, "", out)?;
        found.versions.iter().zip(&rows).try_for_each(|(version, row)| {
            line(if version.is_current { "*" } else { " " }, row, &remark(found, version), out)
        })
    })
}
