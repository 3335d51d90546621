//! `granulo store snapshot`: states of a store that are kept by name: create, list, remove, compare.

mod difference;
mod expiry;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::difference::DifferenceArguments;
use self::expiry::Expiry;
use super::completeness::emit;
use super::named::position_of;
use super::{Ended, StoreToRead, StoreToWrite, output, usage_error, with_failures};
use crate::cli::now;
use crate::cli::output::DocumentArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::write_snapshots;
use crate::store::{SnapshotHeld, SnapshotRow, Store};
use crate::survey::file::format_time as rfc3339;
use crate::units::{escape, format_counted};

/// Keep the current state of a store by a name, and list, compare and remove such snapshots
///
/// A snapshot takes the space of what changes after it, and nothing more. With --at NAME, ls, get, stat, load, export
/// and mount read it. Compaction, repair, rebuild and rebalance keep it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store snapshot create /srv/s monday\n  granulo store snapshot diff /srv/s monday\n  \
    granulo store export /srv/s /data/then --at monday\n  granulo store snapshot rm /srv/s --keep-daily 7 --keep-weekly 5"
)]
pub(super) struct SnapshotArguments {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    Create(CreateArguments),
    Ls(ListArguments),
    Diff(DifferenceArguments),
    Rm(RemoveArguments),
}

impl SnapshotArguments {
    pub(super) fn run(self) -> Result<Ended> {
        match self.command {
            SnapshotCommand::Create(arguments) => arguments.run(),
            SnapshotCommand::Ls(arguments) => arguments.run(),
            SnapshotCommand::Diff(arguments) => arguments.run(),
            SnapshotCommand::Rm(arguments) => arguments.run(),
        }
    }
}

/// A snapshot in JSON.
#[derive(Debug, Serialize)]
struct SnapshotRecord {
    name: String,
    created_seconds: i64,
    sequence: u64,
}

/// The same, with what goes with it.
#[derive(Debug, Serialize)]
pub(super) struct HeldRecord {
    #[serde(flatten)]
    snapshot: SnapshotRecord,
    alone_objects: u64,
    alone_size_bytes: u128,
}

impl SnapshotRecord {
    fn of(row: &SnapshotRow) -> SnapshotRecord {
        SnapshotRecord { name: escape(&row.name), created_seconds: row.created_seconds(), sequence: row.sequence }
    }
}

impl HeldRecord {
    pub(super) fn of(held: &SnapshotHeld) -> HeldRecord {
        HeldRecord {
            snapshot: SnapshotRecord::of(&held.snapshot),
            alone_objects: held.alone.objects,
            alone_size_bytes: held.alone.size_bytes,
        }
    }
}

/// Keep the current state by a name
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store snapshot create /srv/s before-upgrade\n  granulo store snapshot create /srv/s"
)]
struct CreateArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Its name [default: the time, in UTC]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct CreatedDocument {
    schema: &'static str,
    #[serde(flatten)]
    snapshot: SnapshotRecord,
}

impl CreateArguments {
    fn run(self) -> Result<Ended> {
        let store = self.at.open()?;
        let outcome = self.create(&store);
        with_failures(&store, outcome)
    }

    fn create(&self, store: &Store) -> Result<Ended> {
        let name = self.name.clone().unwrap_or_else(|| rfc3339(now()));
        let row = store.create_snapshot(&name).map_err(|error| match error.kind() {
            ErrorKind::Exists => error.advise("remove it first, or use another name"),
            _ => error,
        })?;
        emit(&self.document, || CreatedDocument {
            schema: "granulo/store-snapshot-create/1",
            snapshot: SnapshotRecord::of(&row),
        })?;
        if self.document.json {
            return Ok(Ended::Well);
        }
        output::print(|out| writeln!(out, "{}", escape(&row.name)))
    }
}

/// List the snapshots of a store, oldest first, with the space that each alone keeps
///
/// Alone: objects that the snapshot has, and neither the current state nor any other snapshot; and the sizes of the
/// files among them. A renamed object, or one with other attributes, counts as replaced. Times are in UTC.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store snapshot ls /srv/s\n  granulo store snapshot ls /srv/s --json | jq '.snapshots[].name'"
)]
struct ListArguments {
    #[command(flatten)]
    at: StoreToRead,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct ListDocument {
    schema: &'static str,
    held_objects: u64,
    held_size_bytes: u128,
    snapshots: Vec<HeldRecord>,
}

impl ListArguments {
    fn run(self) -> Result<Ended> {
        let store = self.at.open()?;
        let held = store.held_by_snapshots()?;
        emit(&self.document, || ListDocument {
            schema: "granulo/store-snapshot-ls/1",
            held_objects: held.all.objects,
            held_size_bytes: held.all.size_bytes,
            snapshots: held.snapshots.iter().map(HeldRecord::of).collect(),
        })?;
        if self.document.json {
            return Ok(Ended::Well);
        }
        output::print(|out| write_snapshots(&held, out))
    }
}

/// Remove snapshots: by name, or all but those that are to be kept
///
/// With --keep options, a snapshot stays if any of them keeps it: the newest of each of the last N hours, days, weeks,
/// months or years (in UTC) that have any, or the N newest of all. What is removed is freed by the next compaction.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store snapshot rm /srv/s monday tuesday\n  \
    granulo store snapshot rm /srv/s --keep-last 3 --keep-daily 7 --keep-weekly 5 --dry-run")]
struct RemoveArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Names of snapshots
    #[arg(value_name = "NAME", conflicts_with = "keep")]
    names: Vec<String>,
    #[command(flatten)]
    expiry: Expiry,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct RemovedDocument {
    schema: &'static str,
    dry_run: bool,
    removed: Vec<SnapshotRecord>,
    kept: Vec<SnapshotRecord>,
}

impl RemoveArguments {
    fn run(self) -> Result<Ended> {
        if self.names.is_empty() && self.expiry.is_empty() {
            let error = usage_error("nothing says which snapshots to remove");
            return Err(error.advise("name them, or say which to keep, as with --keep-daily 7"));
        }
        let store = if self.dry_run { self.at.read.open()? } else { self.at.open()? };
        let outcome = self.remove(&store);
        with_failures(&store, outcome)
    }

    fn remove(&self, store: &Store) -> Result<Ended> {
        let (removed, kept) = self.choose(store.snapshots()?)?;
        if !self.dry_run {
            for row in &removed {
                store.remove_snapshot(&String::from_utf8_lossy(&row.name))?;
            }
        }
        let records = |rows: &[SnapshotRow]| rows.iter().map(SnapshotRecord::of).collect();
        emit(&self.document, || RemovedDocument {
            schema: "granulo/store-snapshot-rm/1",
            dry_run: self.dry_run,
            removed: records(&removed),
            kept: records(&kept),
        })?;
        if self.document.json {
            return Ok(Ended::Well);
        }
        output::print(|out| {
            let what = if self.dry_run { "would remove" } else { "removed" };
            removed.iter().try_for_each(|row| writeln!(out, "{what} {}", escape(&row.name)))?;
            if self.names.is_empty() {
                writeln!(out, "{} kept", format_counted(kept.len() as u64, "snapshot is", "snapshots are"))?;
            }
            Ok(())
        })
    }

    /// The snapshots to remove and those to keep. All names are known before one is removed.
    fn choose(&self, rows: Vec<SnapshotRow>) -> Result<(Vec<SnapshotRow>, Vec<SnapshotRow>)> {
        let mut named = BTreeSet::new();
        for name in &self.names {
            let found = position_of(name.as_bytes(), rows.iter().map(|row| &row.name[..]));
            named.insert(found.ok_or_else(|| no_such_snapshot("remove the snapshot", name, &rows))?);
        }
        let keeps = match self.names.is_empty() {
            true => self.expiry.keeps(&rows.iter().map(SnapshotRow::created_seconds).collect::<Vec<i64>>()),
            false => (0..rows.len()).map(|at| !named.contains(&at)).collect(),
        };
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for (row, is_kept) in rows.into_iter().zip(keeps) {
            if is_kept { kept.push(row) } else { removed.push(row) }
        }
        Ok((removed, kept))
    }
}

fn no_such_snapshot(operation: &'static str, name: &str, rows: &[SnapshotRow]) -> Error {
    let error = Error::new(ErrorKind::NotFound, operation, format!("there is no snapshot {}", escape(name.as_bytes())));
    let names: Vec<String> = rows.iter().rev().take(10).map(|row| escape(&row.name)).collect();
    error.advise(match names.is_empty() {
        true => "the store has none".to_owned(),
        false => format!("the newest are {}", names.join(", ")),
    })
}
