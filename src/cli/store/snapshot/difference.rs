//! `granulo store snapshot diff`: what was added, changed and removed between two states, as a stream.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::no_such_snapshot;
use crate::cli::output::DocumentArguments;
use crate::cli::store::completeness::{ProgramRecord, program_record};
use crate::cli::store::{Ended, Stop, StoreToRead, emit_while_reading, key, or_damage, write_while_reading};
use crate::error::Result;
use crate::report::store::ObjectType;
use crate::store::{Difference, Differences, Key, PinnedSnapshot, Store};
use crate::units::{escape, format_count, format_size};

/// List what was added, changed and removed since a snapshot, or between two
///
/// Changed: content or attributes were written again. What is below a directory that was renamed counts as removed and
/// added. Sizes are those of files; a changed file has its earlier size behind its name.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store snapshot diff /srv/s monday\n  granulo store snapshot diff /srv/s monday tuesday --prefix cats"
)]
pub(super) struct DifferenceArguments {
    #[command(flatten)]
    at: StoreToRead,
    /// The earlier snapshot
    #[arg(value_name = "FROM")]
    from: String,
    /// The later one [default: the current state]
    #[arg(value_name = "TO")]
    to: Option<String>,
    /// Only objects at or below this key
    #[arg(long, value_name = "KEY", default_value = "/", hide_default_value = true)]
    prefix: OsString,
    #[command(flatten)]
    document: DocumentArguments,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Added,
    Changed,
    Removed,
}

impl Change {
    fn of(difference: &Difference) -> Change {
        match (&difference.before, &difference.after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Changed => "changed",
            Change::Removed => "removed",
        }
    }
}

/// Counts of one kind of change.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Total {
    objects: u64,
    /// Of the files among them, before and after.
    size_bytes_before: u128,
    size_bytes_after: u128,
}

#[derive(Debug, Default, Serialize)]
struct Totals {
    added: Total,
    changed: Total,
    removed: Total,
}

impl Totals {
    fn add(&mut self, row: &Row) {
        let total = match row.change {
            Change::Added => &mut self.added,
            Change::Changed => &mut self.changed,
            Change::Removed => &mut self.removed,
        };
        total.objects += 1;
        total.size_bytes_before += u128::from(row.size_bytes_before.unwrap_or(0));
        total.size_bytes_after += u128::from(row.size_bytes_after.unwrap_or(0));
    }
}

#[derive(Serialize)]
struct Head {
    schema: &'static str,
    #[serde(flatten)]
    program: ProgramRecord,
    from: String,
    to: Option<String>,
    prefix: String,
}

#[derive(Serialize)]
struct Row {
    key: String,
    change: Change,
    #[serde(rename = "type")]
    object_type: Option<ObjectType>,
    /// Of files.
    size_bytes_before: Option<u64>,
    size_bytes_after: Option<u64>,
}

impl Row {
    fn of(difference: &Difference) -> Row {
        let object_type = |listed: &crate::store::Listed| ObjectType::of(&listed.entry);
        let size = |listed: &crate::store::Listed| {
            (object_type(listed) == ObjectType::File).then_some(listed.entry.size_bytes)
        };
        Row {
            key: difference.key.to_string(),
            change: Change::of(difference),
            object_type: difference.after.as_ref().or(difference.before.as_ref()).map(object_type),
            size_bytes_before: difference.before.as_ref().and_then(size),
            size_bytes_after: difference.after.as_ref().and_then(size),
        }
    }
}

impl DifferenceArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let top = key(&self.prefix)?;
        let store = self.at.open()?;
        let before = named(&store, &self.from)?;
        let after = match &self.to {
            Some(name) => named(&store, name)?,
            None => store.snapshot()?,
        };
        let written = emit_while_reading(&self.document, |out| self.json(before.differences(&after, &top)?, &top, out));
        let differences = before.differences(&after, &top)?;
        let printed = match self.document.json {
            true => write_while_reading(std::io::stdout().lock(), |out| self.json(differences, &top, out)),
            false => write_while_reading(anstream::stdout().lock(), |out| lines(differences, out)),
        };
        or_damage(printed.and(written))
    }

    fn json(&self, found: Differences, top: &Key, out: &mut dyn Write) -> std::result::Result<Ended, Stop> {
        let io = |error: serde_json::Error| Stop::from(std::io::Error::from(error));
        let head = serde_json::to_string(&Head {
            schema: "granulo/store-snapshot-diff/1",
            program: program_record(),
            from: escape(self.from.as_bytes()),
            to: self.to.as_ref().map(|name| escape(name.as_bytes())),
            prefix: top.to_string(),
        });
        out.write_all(head.map_err(io)?.trim_end_matches('}').as_bytes())?;
        write!(out, ",\"differences\":[")?;
        let mut totals = Totals::default();
        for (index, difference) in found.enumerate() {
            let row = Row::of(&difference?);
            totals.add(&row);
            if index > 0 {
                out.write_all(b",")?;
            }
            serde_json::to_writer(&mut *out, &row).map_err(io)?;
        }
        write!(out, "],\"totals\":")?;
        serde_json::to_writer(&mut *out, &totals).map_err(io)?;
        write!(out, ",\"completeness\":")?;
        serde_json::to_writer(&mut *out, &crate::cli::store::completeness::completeness_record()).map_err(io)?;
        out.write_all(b"}\n")?;
        Ok(Ended::Well)
    }
}

fn named(store: &Store, name: &str) -> Result<PinnedSnapshot> {
    match store.snapshot_named(name)? {
        Some(found) => Ok(found),
        None => Err(no_such_snapshot("compare snapshots", name, &store.snapshots()?)),
    }
}

fn lines(found: Differences, out: &mut dyn Write) -> std::result::Result<Ended, Stop> {
    let mut totals = Totals::default();
    for difference in found {
        let row = Row::of(&difference?);
        totals.add(&row);
        let size =
            row.size_bytes_after.or(row.size_bytes_before).map_or(String::new(), |size| format_size(size.into()));
        let earlier = match (row.change, row.size_bytes_before, row.size_bytes_after) {
            (Change::Changed, Some(before), Some(after)) if before != after => {
                format!(" (was {})", format_size(before.into()))
            }
            _ => String::new(),
        };
        writeln!(out, "{:<8} {size:>10}  {}{earlier}", row.change.name(), row.key)?;
    }
    let words = |what: &str, total: Total, size_bytes: u128| {
        format!("{} {what} ({})", format_count(total.objects.into()), format_size(size_bytes))
    };
    let Totals { added, changed, removed } = totals;
    let words = [
        words("added", added, added.size_bytes_after),
        words("changed", changed, changed.size_bytes_after),
        words("removed", removed, removed.size_bytes_before),
    ];
    writeln!(out, "{}", words.join(", "))?;
    Ok(Ended::Well)
}
