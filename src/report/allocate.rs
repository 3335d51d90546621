//! Space that single files need, on a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::chart::{bar, left, right};
use super::table::{bar_columns, table};
use super::terminal::exact_size;
use crate::layout::Model;
use crate::units::{format_count, format_share, format_size};

const FAINT: Style = Style::new().dimmed();
const BYTES: Style = AnsiColor::Magenta.on_default();

/// One line per size: allocated bytes, their excess over the size, metadata.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_allocations(model: &Model, sizes: &[u64], out: &mut dyn Write) -> io::Result<()> {
    let width = bar_columns(20, 1);
    let most = sizes.iter().map(|&size| model.layout.file(size).allocated_bytes).max().unwrap_or(0);
    let reports = model.layout.reported(0).is_some();
    let last = if reports { "reported" } else { "" };
    table(out, |out| {
        writeln!(
            out,
            "{FAINT}{:>14}{:>14}{:>10}{:>12} {:width$}{last:>9}{FAINT:#}",
            "size", "allocated", "more", "metadata", ""
        )?;
        for &size in sizes {
            let space = model.layout.file(size);
            let more = match size {
                0 => "–".to_owned(),
                _ => more_than(space.allocated_bytes as f64 / size as f64),
            };
            let filled = if most == 0 { 0.0 } else { space.allocated_bytes as f64 / most as f64 };
            let reported = model.layout.reported(size).map_or(String::new(), |bytes| sized(bytes, 9));
            writeln!(
                out,
                "{} {} {} {} {BYTES}{}{BYTES:#}{}",
                right(&sized(size.into(), 13), 13),
                right(&sized(space.allocated_bytes, 13), 13),
                right(&more, 9),
                right(&sized(space.metadata_bytes, 11), 11),
                left(&bar(filled, width), if reports { width } else { 0 }),
                right(&reported, if reports { 9 } else { 0 }),
            )?;
        }
        Ok(())
    })
}

/// The excess of a file over its size: in per cent, or as a multiple where that is shorter.
fn more_than(ratio: f64) -> String {
    if ratio < 100.0 { format_share(ratio - 1.0) } else { format!("x {}", format_count(ratio.round() as u128)) }
}

/// A size, exact to the byte where that is short enough.
fn sized(bytes: u128, width: usize) -> String {
    let exact = u64::try_from(bytes).map(exact_size).ok().filter(|text| text.len() <= width);
    exact.unwrap_or_else(|| format_size(bytes))
}
