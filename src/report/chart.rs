//! Text on a terminal of 80 columns: bars of Unicode blocks, columns, shortened paths.
//!
//! Lines are broken by own code: ten lines, because the crate `textwrap` has to be told first what belongs together.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of all output.
pub(super) const COLUMNS: usize = 80;

/// Units that belong to the number before them.
const UNITS: [&str; 10] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];

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
    let head = take_columns(text.chars(), room / 3);
    let tail: Vec<char> = take_columns(text.chars().rev(), room - head.width()).chars().collect();
    format!("{head}…{}", tail.into_iter().rev().collect::<String>())
}

fn take_columns(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// `text` broken into lines of at most `width` columns, at spaces, but not between a number and its unit.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
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
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("at most 64 KiB, 3.5 %", 12), ["at most", "64 KiB,", "3.5 %"]);
    }
}
