//! Text on a terminal of 60 columns or more: bars of Unicode blocks, columns, shortened paths.
//!
//! Lines are broken by own code: ten lines, because the crate `textwrap` has to be told first what belongs together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use unicode_width::UnicodeWidthStr;

/// Width of output where there is no terminal; tables are written for it, and fitted to others.
pub(super) const COLUMNS: usize = 80;
/// The least width: in less, sizes and counts side by side do not fit.
const LEAST_COLUMNS: usize = 60;
/// Prose is hard to read in longer lines, and tables do not need them.
const MOST_COLUMNS: usize = 160;

static WIDTH: AtomicUsize = AtomicUsize::new(COLUMNS);

/// Sets the width of the terminal.
pub(crate) fn set_columns(columns: usize) {
    WIDTH.store(columns.clamp(LEAST_COLUMNS, MOST_COLUMNS), Relaxed);
}

/// Width of output: that of the terminal, if there is one.
pub(crate) fn columns() -> usize {
    WIDTH.load(Relaxed)
}

/// Whether there is less room than tables are written for: then they have fewer or shorter columns.
pub(super) fn is_narrow() -> bool {
    columns() < COLUMNS
}

/// Units that belong to the number before them.
const UNITS: [&str; 10] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
/// Others, of which prose may be broken before.
const FURTHER_UNITS: [&str; 6] = ["s", "ms", "µs", "ns", "min", "x"];

/// Whether a word is the unit of the figure before it, with or without a mark.
pub(super) fn is_unit(word: &str) -> bool {
    let word = word.trim_end_matches(['*', '†', ',', ';', ')']);
    let word = word.strip_suffix("/s").unwrap_or(word);
    UNITS.contains(&word) || FURTHER_UNITS.contains(&word)
}

/// Characters a column, at most: text may have any number of marks that have no width.
const MARKS: usize = 8;

/// A bar of `width` columns, filled to `fraction` in eighths of a column; anything above zero is visible.
pub(super) fn bar(fraction: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (fraction.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if fraction > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// `text` padded on the right to `width` columns.
pub(super) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// `text` padded on the left to `width` columns.
pub(super) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// `text` in at most `width` columns: the middle is cut, so that the root and the name stay readable.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = beginning(text, room / 3);
    format!("{head}…{}", end(text, room - head.width()))
}

/// The longest beginning of `text` in at most `width` columns. The width of a text is not the sum of its characters'.
fn beginning(text: &str, width: usize) -> &str {
    let ends = text.char_indices().take(MARKS * width).map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|&end| text[..end].width() <= width).last().unwrap_or(0);
    &text[..end]
}

/// The longest end of `text` in at most `width` columns.
fn end(text: &str, width: usize) -> &str {
    let starts = text.char_indices().rev().take(MARKS * width).map(|(at, _)| at);
    let start = starts.take_while(|&start| text[start..].width() <= width).last().unwrap_or(text.len());
    &text[start..]
}

/// A, B, …, Z, A2, B2, …: what stands for a name that is too long.
pub(super) fn letters(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26 + 1) }
}

/// `text` broken into lines of at most `width` columns, at spaces, but not between a number and its unit.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
        match words.last_mut() {
            Some(number) if UNITS.contains(&unit) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    for word in words {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths_and_show_every_trace() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(1e-9, 10), "▏");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(1.0, 10), "██████████");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn long_and_wide_paths_fit() {
        assert_eq!(shorten("/usr/bin", 20), "/usr/bin");
        assert_eq!(shorten("/usr/share/doc/packages/granulo", 20), "/usr/s…kages/granulo");
        assert!(shorten("/データ/データ/データ/データ", 15).width() <= 15);
        // An emoji's selector makes the character before it wider, and a control character has a width in a text only.
        for text in ["❤\u{fe0f}".repeat(40), "\u{1}".repeat(40), "e\u{301}".repeat(40)] {
            assert!((18..=20).contains(&shorten(&text, 20).width()), "{}", shorten(&text, 20).width());
        }
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("at most 64 KiB, 3.5 %", 12), ["at most", "64 KiB,", "3.5 %"]);
    }
}
