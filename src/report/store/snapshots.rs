//! The snapshots of a store as a table, with the space that each alone keeps.

use std::io::{self, Write};

use super::count_words;
use crate::report::chart::{left, right};
use crate::report::paragraphs::prose;
use crate::report::table::table;
use crate::store::HeldBySnapshots;
use crate::units::{escape, format_count, format_size, format_time};

/// Width of a time.
const TIME_WIDTH: usize = 23;

/// Writes one line for each, and one for all together.
pub(crate) fn write_snapshots(held: &HeldBySnapshots, out: &mut dyn Write) -> io::Result<()> {
    if held.snapshots.is_empty() {
        return writeln!(out, "no snapshots");
    }
    let names: Vec<String> = held.snapshots.iter().map(|one| escape(&one.snapshot.name)).collect();
    let width = names.iter().map(|name| unicode_width::UnicodeWidthStr::width(&name[..])).max().unwrap_or(0).max(4);
    let row = |name: &str, taken: &str, objects: &str, size: &str, out: &mut dyn Write| {
        let (name, taken) = (left(name, width), left(taken, TIME_WIDTH));
        writeln!(out, "{name}  {taken}  {}  {}", right(objects, 12), right(size, 10))
    };
    table(out, |out| {
        row("name", "taken", "alone", "size", out)?;
        for (name, one) in names.iter().zip(&held.snapshots) {
            let taken = format_time(one.snapshot.created_seconds());
            row(name, &taken, &format_count(one.alone.objects.into()), &format_size(one.alone.size_bytes), out)?;
        }
        Ok(())
    })?;
    match count_words(&[(held.all.objects, "object", "objects")]) {
        none if none.is_empty() => prose("The current state has all that they have.", out),
        objects => prose(&format!("Together they keep {objects}, {}.", format_size(held.all.size_bytes)), out),
    }
}
