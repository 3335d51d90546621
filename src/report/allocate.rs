//! What single files take, on a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::chart::{bar, right};
use super::terminal::exact_size;
use crate::layout::Model;
use crate::units::format_share;

const FAINT: Style = Style::new().dimmed();
const BYTES: Style = AnsiColor::Magenta.on_default();

/// One line a size: allocated, by how much that is more than the size, metadata.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_allocations(model: &Model, sizes: &[u64], out: &mut dyn Write) -> io::Result<()> {
    const BAR: usize = 20;
    let most = sizes.iter().map(|&size| model.layout.file(size).allocated_bytes).max().unwrap_or(0);
    let reports = model.layout.reported(0).is_some();
    let last = if reports { "reported" } else { "" };
    writeln!(
        out,
        "{FAINT}{:>14}{:>14}{:>10}{:>12} {:BAR$}{last:>9}{FAINT:#}",
        "size", "allocated", "more", "metadata", ""
    )?;
    for &size in sizes {
        let space = model.layout.file(size);
        let more = match size {
            0 => "–".to_owned(),
            _ => format_share(space.allocated_bytes as f64 / size as f64 - 1.0),
        };
        let filled = if most == 0 { 0.0 } else { space.allocated_bytes as f64 / most as f64 };
        let reported = model.layout.reported(size).map_or(String::new(), wide_size);
        writeln!(
            out,
            "{}{}{}{} {BYTES}{}{BYTES:#}{}",
            right(&exact_size(size), 14),
            right(&wide_size(space.allocated_bytes), 14),
            right(&more, 10),
            right(&wide_size(space.metadata_bytes), 12),
            super::chart::left(&bar(filled, BAR), if reports { BAR } else { 0 }),
            right(&reported, if reports { 9 } else { 0 }),
        )?;
    }
    Ok(())
}

/// A size to the byte where it is one of a file, else short.
fn wide_size(bytes: u128) -> String {
    u64::try_from(bytes).map_or_else(|_| crate::units::format_size(bytes), exact_size)
}
