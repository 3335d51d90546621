//! Headings and paragraphs on a terminal: in its width, bold and faint where the terminal supports it.

use std::io::{self, Write};

use anstyle::Style;

use super::chart::{columns, wrap};

pub(super) const HEADING: Style = Style::new().bold();
pub(super) const FAINT: Style = Style::new().dimmed();

/// An empty line and a heading.
pub(super) fn heading(text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    wrap(text, columns()).iter().try_for_each(|line| writeln!(out, "{HEADING}{line}{HEADING:#}"))
}

pub(crate) fn prose(text: &str, out: &mut dyn Write) -> io::Result<()> {
    wrap(text, columns()).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// A remark.
pub(super) fn faint(text: &str, out: &mut dyn Write) -> io::Result<()> {
    wrap(text, columns()).iter().try_for_each(|line| writeln!(out, "{FAINT}{line}{FAINT:#}"))
}
