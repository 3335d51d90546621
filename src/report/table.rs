//! Tables in the width of the output: as they are written where they fit, else closer together, else stacked.
//!
//! A table is written with the gaps that look best in 80 columns. Where there is less room, or figures are larger than
//! usual, the widest gaps shrink first, down to one space. If that is not enough, every row is broken at the same gap
//! (not the one between a figure and its unit), and its end stands indented below. Figures are never cut; a name is,
//! which is what follows a tab in a row: it takes the room that is left. Names are escaped, so they have no tabs of
//! their own. A row that begins with a tab is a remark across all columns, and wrapped.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::chart::{COLUMNS, columns, is_unit, left, shorten, wrap};

/// Spaces before a name.
const NAME_GAP: usize = 2;
/// Spaces before the end of a row that is broken.
const INDENT: usize = 4;

/// Columns of each of `bars` side by side that have `wide` columns where tables have theirs: less where there is less
/// room, and what is left where there is more.
pub(super) fn bar_columns(wide: usize, bars: usize) -> usize {
    match columns().checked_sub(COLUMNS) {
        None => (wide / 2).max(1),
        Some(left) => wide + left / bars,
    }
}

/// Writes the table that `write` writes, in the width of the output.
///
/// # Errors
/// Any error of `write` and `out`.
pub(crate) fn table(out: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    out.write_all(fit(&String::from_utf8_lossy(&text), columns()).as_bytes())
}

/// The rows of a table in `width` columns.
fn fit(text: &str, width: usize) -> String {
    let rows: Vec<Row> = text.lines().map(Row::of).collect();
    let longest_name =
        rows.iter().filter(|row| !row.is_remark()).filter_map(|row| Some(row.name.as_ref()?.width())).max();
    // Longer names are cut rather than gaps narrowed.
    let for_name = longest_name.map_or(0, |longest| NAME_GAP + longest.min(width / 5));
    let room = width.saturating_sub(for_name);
    let mut gaps = gaps(&rows);
    let mut excess = rows.iter().map(Row::used).max().unwrap_or(0).saturating_sub(room);
    while excess > 0 {
        let Some(widest) = gaps.iter_mut().filter(|gap| gap.kept > gap.least()).max_by_key(|gap| gap.kept) else {
            break;
        };
        widest.kept -= 1;
        excess -= 1;
    }
    let mut most = usize::MAX;
    if excess > 0 {
        gaps.iter_mut().for_each(|gap| gap.kept = gap.columns.min(2));
        most = width.saturating_sub(INDENT);
    }
    let parts = broken(&rows, &gaps, most);
    let mut fitted = String::new();
    let ends: Vec<usize> =
        parts.iter().map(|part| rows.iter().map(|row| row.cut(part, &gaps).1).max().unwrap_or(0)).collect();
    for row in &rows {
        if let Some(remark) = row.name.as_ref().filter(|_| row.is_remark()) {
            for line in wrap(remark, width) {
                fitted.push_str(&format!("{}{line}{}\n", row.before_name, row.after));
            }
            continue;
        }
        for (number, part) in parts.iter().enumerate() {
            let (mut line, used) = row.cut(part, &gaps);
            let indent = if number == 0 { 0 } else { INDENT };
            let is_last = number + 1 == parts.len();
            if let Some(name) = row.name.as_ref().filter(|name| is_last && !name.is_empty()) {
                let at = ends[number] + NAME_GAP;
                line.push_str(&" ".repeat(at - used));
                line.push_str(&row.before_name);
                line.push_str(&shorten(name, width.saturating_sub(indent + at)));
            } else if parts.len() > 1 && used == 0 {
                continue;
            }
            if is_last {
                line.push_str(&row.after);
            }
            fitted.push_str(&left("", indent));
            fitted.push_str(&line);
            fitted.push('\n');
        }
    }
    fitted
}

/// The parts of rows that do not fit: each ends before a gap, at most `width` columns after its beginning.
fn broken(rows: &[Row], gaps: &[Gap], width: usize) -> Vec<std::ops::Range<usize>> {
    let used = |part: &std::ops::Range<usize>| rows.iter().map(|row| row.cut(part, gaps).1).max().unwrap_or(0);
    let (mut parts, mut start) = (Vec::new(), 0);
    while used(&(start..usize::MAX)) > width {
        let is_end = |gap: &&Gap| gap.start > start && (gap.columns > 1 || is_between_figures(rows, gap));
        let ends = gaps.iter().filter(is_end);
        let Some(gap) = ends.clone().take_while(|gap| used(&(start..gap.start)) <= width).last().or(ends.min()) else {
            break;
        };
        parts.push(start..gap.start);
        start = gap.start + gap.columns;
    }
    parts.push(start..usize::MAX);
    parts
}

/// Whether no row has a figure before a gap of one column and its unit after it.
fn is_between_figures(rows: &[Row], gap: &Gap) -> bool {
    let word = |row: &Row| -> String {
        let cells = row.cells.iter().skip(gap.start + gap.columns).take_while(|cell| !cell.is_blank());
        cells.map(|cell| cell.text.as_str()).collect()
    };
    let is_sign = |row: &Row| gap.start > 0 && row.cells.get(gap.start - 1).is_some_and(|cell| cell.text == "±");
    !rows.iter().any(|row| is_sign(row) || is_unit(&word(row)))
}

/// Columns that are blank in every row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    start: usize,
    columns: usize,
    /// How many of them are kept.
    kept: usize,
}

impl Gap {
    fn least(&self) -> usize {
        usize::from(self.start > 0)
    }
}

fn gaps(rows: &[Row]) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let end = rows.iter().map(Row::used).max().unwrap_or(0);
    for column in 0..end {
        if rows.iter().any(|row| row.cells.get(column).is_some_and(|cell| !cell.is_blank())) {
            continue;
        }
        match gaps.last_mut() {
            Some(gap) if gap.start + gap.columns == column => {
                gap.columns += 1;
                gap.kept += 1;
            }
            _ => gaps.push(Gap { start: column, columns: 1, kept: 1 }),
        }
    }
    gaps
}

/// What stands in one column of a row.
#[derive(Debug)]
struct Cell {
    /// Changes of style before it.
    style: String,
    /// A character with its marks; nothing in the second column of a wide one.
    text: String,
}

impl Cell {
    fn is_blank(&self) -> bool {
        self.text == " "
    }
}

/// A row of a table.
#[derive(Debug, Default)]
struct Row {
    cells: Vec<Cell>,
    /// Changes of style before the name.
    before_name: String,
    /// The text after a tab.
    name: Option<String>,
    /// Changes of style at the end.
    after: String,
}

impl Row {
    fn of(line: &str) -> Row {
        let mut row = Row::default();
        let mut style = String::new();
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            if character == '\u{1b}' {
                style.push(character);
                for character in characters.by_ref() {
                    style.push(character);
                    if character == 'm' {
                        break;
                    }
                }
                continue;
            }
            if let Some(name) = &mut row.name {
                row.before_name.push_str(&std::mem::take(&mut style));
                name.push(character);
            } else if character == '\t' {
                row.name = Some(String::new());
            } else {
                match (character.width().unwrap_or(0), row.cells.last_mut()) {
                    (0, Some(last)) => last.text.push(character),
                    (width, _) => {
                        row.cells.push(Cell { style: std::mem::take(&mut style), text: character.into() });
                        let rest = (1..width).map(|_| Cell { style: String::new(), text: String::new() });
                        row.cells.extend(rest);
                    }
                }
            }
        }
        row.after = style;
        row
    }

    /// Whether it is a remark across all columns.
    fn is_remark(&self) -> bool {
        self.cells.is_empty() && self.name.is_some()
    }

    /// Columns up to the last that is not blank.
    fn used(&self) -> usize {
        self.cells.iter().rposition(|cell| !cell.is_blank()).map_or(0, |last| last + 1)
    }

    /// The cells in `part` without what is left out of the gaps, and the columns they need.
    fn cut(&self, part: &std::ops::Range<usize>, gaps: &[Gap]) -> (String, usize) {
        let (mut text, mut columns) = (String::new(), 0);
        let cells = &self.cells[part.start.min(self.cells.len())..part.end.min(self.cells.len())];
        let last = cells.iter().rposition(|cell| !cell.is_blank());
        let used = last.map_or(0, |last| part.start + last + 1);
        for (column, cell) in self.cells.iter().enumerate().take(part.end).skip(part.start) {
            text.push_str(&cell.style);
            let is_left_out = |gap: &Gap| (gap.start + gap.kept..gap.start + gap.columns).contains(&column);
            if column < used && !gaps.iter().any(is_left_out) {
                text.push_str(&cell.text);
                columns += 1;
            }
        }
        (text, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "\u{1b}[2m      size         files\u{1b}[0m\n     1 KiB     1,234,567\n   512 KiB             8\n";

    #[test]
    fn a_table_that_fits_stays_as_it_is() {
        assert_eq!(fit(TEXT, 24), TEXT);
        assert_eq!(fit("", 24), "");
        assert_eq!(fit("\u{1b}[2m 1   \u{1b}[0m\n 2  \n", 24), "\u{1b}[2m 1\u{1b}[0m\n 2\n", "no blanks at ends");
    }

    #[test]
    fn gaps_shrink_and_figures_do_not() {
        let fitted = "\u{1b}[2m     size      files\u{1b}[0m\n    1 KiB  1,234,567\n  512 KiB          8\n";
        assert_eq!(fit(TEXT, 20), fitted);
        let fitted = "\u{1b}[2m   size     files\u{1b}[0m\n  1 KiB 1,234,567\n512 KiB         8\n";
        assert_eq!(fit(TEXT, 17), fitted);
    }

    #[test]
    fn what_does_not_fit_at_all_is_stacked() {
        assert_eq!(
            fit("   aaaaaa   bbbbbb   cccccc\n      1 B      2 B      3 B\n", 16),
            "  aaaaaa\n    bbbbbb\n    cccccc\n     1 B\n       2 B\n       3 B\n"
        );
    }

    #[test]
    fn a_figure_stays_with_its_unit() {
        assert_eq!(
            fit("aaaaaa 12 KiB bbbbbb\ncccccc  1 KiB dddddd\n", 17),
            "aaaaaa 12 KiB\n    bbbbbb\ncccccc  1 KiB\n    dddddd\n"
        );
        assert_eq!(fit("aaaaaa 12 KiB bbbbbb\n", 14), "aaaaaa\n    12 KiB\n    bbbbbb\n");
    }

    #[test]
    fn a_name_takes_the_room_that_is_left() {
        assert_eq!(fit("     1\tname\n   234\tx\n", 20), "     1  name\n   234  x\n");
        assert_eq!(fit("     1\tname\n   234\t\n", 20), "     1  name\n   234\n");
        assert_eq!(fit("     1\ta/very/long/name\n   234\tx\n", 16), "     1  a/…/name\n   234  x\n");
        assert_eq!(fit("     1\ta/very/long/name\n   234\tx\n", 12), "     1  a…me\n   234  x\n");
    }

    #[test]
    fn a_remark_hides_no_gap() {
        let text = "     1     2\n\t\u{1b}[2ma b c d e f\u{1b}[0m\n     3     4\n";
        let remark = "\u{1b}[2ma b c d e\u{1b}[0m\n\u{1b}[2mf\u{1b}[0m\n";
        assert_eq!(fit(text, 9), format!("    1   2\n{remark}    3   4\n"));
    }

    #[test]
    fn wide_characters_have_two_columns() {
        assert_eq!(fit("データ     1\nabc        2\n", 9), "データ  1\nabc     2\n");
    }
}
