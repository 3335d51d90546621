//! Any document of granulo as facts and tables, for those that have no report of their own.
//!
//! Names and units come from the names of fields, which end in their unit (docs/SCHEMA.md): `verified_bytes` is the
//! fact "verified" with a size. Strings of a document are printable, or it is refused.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::Error;

use super::chart::{columns, left, wrap};
use super::csv::{Table, tables_of, value_in};
use super::nodes::{Node, Plain};
use super::origin::told_apart;
use super::paragraphs::{HEADING, faint};
use crate::document::check_printable_strings;
use crate::units::{format_count, format_counted, format_duration, format_share, format_size, format_time};

/// Rows of a table that are kept for a page.
const MOST_ROWS: usize = 1000;
/// Items of a list of plain values that are shown.
const MOST_ITEMS: usize = 12;
/// Columns of the names of facts on a terminal, at most.
const MOST_NAME_COLUMNS: usize = 32;
/// Fields whose seconds are a time, not a duration.
const TIMES: [&str; 7] = ["mtime", "ctime", "atime", "btime", "created", "epoch_began", "last_scrub"];
/// Ends of fields that are shares by bytes, or counts of what would have so many, and not bytes.
const NO_BYTES: [&str; 2] = ["by_bytes", "for_bytes"];
/// A time whose name has no unit.
const AGES_RELATIVE_TO: &str = "ages_relative_to";
/// Fields whose number is a name, not a count.
const NUMBERS: [&str; 8] = ["number", "segment", "device", "uid", "gid", "shared", "seed", "batch"];
/// Fields about the document itself, and what its heading says.
const OF_DOCUMENT: [&str; 6] = ["schema", "granulo_version", "granulo_commit", "host", "written_at", "home"];

/// A document as facts and tables.
#[derive(Debug, Serialize)]
pub(crate) struct Fields {
    /// What kind of result it is, such as "Store check".
    pub(crate) kind: String,
    /// Of which store, on which machine and when, as far as it says so.
    pub(crate) of: Option<String>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) tables: Vec<FieldTable>,
}

/// A plain value of the document, with its name.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Whether it is a count or an amount.
    pub(crate) is_amount: bool,
}

/// A list of records.
#[derive(Debug, Serialize)]
pub(crate) struct FieldTable {
    pub(crate) title: String,
    /// As `granulo show --csv` calls it.
    pub(crate) name: String,
    columns: Vec<Column>,
    /// The first rows.
    rows: Vec<Vec<Cell>>,
    pub(crate) row_count: usize,
}

#[derive(Debug, Serialize)]
struct Column {
    title: String,
    text: bool,
}

#[derive(Debug, Serialize)]
struct Cell {
    text: String,
    /// What it is sorted by.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
}

impl Fields {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not JSON, not a record, or has a string that is not printable.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Fields> {
        check_printable_strings(json)?;
        let document: Node = serde_json::from_slice(json)?;
        let tables = tables_of(&document).iter().map(FieldTable::of).collect();
        let Node::Record(fields) = document else { return Err(Error::custom("it is not a record")) };
        let text = |field: &str| {
            fields.iter().find_map(|(name, value)| match value {
                Node::Plain(Plain::Text(text)) if name == field => Some(text.as_str()),
                _ => None,
            })
        };
        let kind = kind(text("schema").unwrap_or_default());
        let of = text("home").map(|home| told_apart(home, text("host"), text("written_at")));
        let mut facts = Vec::new();
        let fields: Vec<(String, Node)> = fields.into_iter().filter(|it| !is_in_heading(&it.0, &it.1)).collect();
        add_facts(&fields, "", &mut facts);
        Ok(Fields { kind, of, facts, tables })
    }

    /// The same of a value that can be a document.
    ///
    /// # Errors
    /// It cannot be JSON, and as [`Fields::read`].
    pub(crate) fn of(document: &impl Serialize) -> serde_json::Result<Fields> {
        Fields::read(&serde_json::to_vec(document)?)
    }

    /// Writes the facts, and which tables there are.
    ///
    /// # Errors
    /// Any error of `out`.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let of = self.of.as_ref().map_or_else(String::new, |of| format!(": {of}"));
        writeln!(out, "{HEADING}{}{of}{HEADING:#}", self.kind)?;
        let longest = self.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
        let width = (longest + 2).min(MOST_NAME_COLUMNS).min(columns() / 2);
        for fact in &self.facts {
            let lines = wrap(&fact.text, columns() - width);
            let has_own_line = fact.name.chars().count() + 2 > width;
            if has_own_line {
                writeln!(out, "{}", fact.name)?;
            }
            for (index, line) in lines.iter().enumerate() {
                let name = if index == 0 && !has_own_line { &fact.name } else { "" };
                writeln!(out, "{}{line}", left(name, width))?;
            }
        }
        if self.tables.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        for table in &self.tables {
            let rows = format_counted(table.row_count as u64, "row", "rows");
            faint(&format!("{}: {rows}, printed by --csv={}", table.title, table.name), out)?;
        }
        Ok(())
    }
}

/// Whether a field of the document is about it. A record of such a name is something else: the host of a bench.
fn is_in_heading(name: &str, value: &Node) -> bool {
    OF_DOCUMENT.contains(&name) && matches!(value, Node::Plain(_))
}

/// Adds the plain values of a record, those of records in it, and its lists of plain values.
fn add_facts(fields: &[(String, Node)], around: &str, facts: &mut Vec<Fact>) {
    for (field, value) in fields {
        let name = format!("{around}{}", label(field));
        match value {
            Node::Plain(value) => {
                facts.push(Fact { name, text: text(field, value), is_amount: is_amount(field, value) })
            }
            Node::Record(inner) => add_facts(inner, &format!("{name}, "), facts),
            Node::List(items) if items.iter().any(|item| matches!(item, Node::Record(_))) => {}
            Node::List(items) => facts.push(Fact { name, text: list(field, items), is_amount: false }),
        }
    }
}

/// The items of a list without records.
fn list(field: &str, items: &[Node]) -> String {
    let shown = items.iter().take(MOST_ITEMS).map(|item| match item {
        Node::Plain(value) => text(field, value),
        Node::List(inner) => format!("({})", list(field, inner)),
        Node::Record(_) => "…".to_owned(),
    });
    let mut shown: Vec<String> = shown.collect();
    if items.len() > MOST_ITEMS {
        shown.push(format!("{} more", format_count((items.len() - MOST_ITEMS) as u128)));
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

impl FieldTable {
    fn of(table: &Table) -> FieldTable {
        let field = |column: &String| column.rsplit('.').next().unwrap_or(column).to_owned();
        let is_text = |column: &String| {
            table.rows.iter().any(|row| matches!(value_in(row, column), Some(Plain::Text(_) | Plain::Flag(_))))
        };
        let cell = |row: &Vec<(String, Plain)>, column: &String| {
            let value = value_in(row, column).unwrap_or(&Plain::Null);
            let number = if let Plain::Number(number) = value { number.parse().ok() } else { None };
            Cell { text: text(&field(column), value), value: number }
        };
        FieldTable {
            title: sentence_case(&table.name.split('.').map(label).collect::<Vec<_>>().join(", ")),
            name: table.name.clone(),
            columns: table
                .columns
                .iter()
                .map(|column| Column {
                    title: sentence_case(&column.split('.').map(label).collect::<Vec<_>>().join(", ")),
                    text: is_text(column),
                })
                .collect(),
            rows: table
                .rows
                .iter()
                .take(MOST_ROWS)
                .map(|row| table.columns.iter().map(|column| cell(row, column)).collect())
                .collect(),
            row_count: table.rows.len(),
        }
    }
}

/// The kind that a schema names: "Store check" of `granulo/store-check/1`.
fn kind(schema: &str) -> String {
    let kind = schema.split('/').nth(1).unwrap_or_default();
    if kind.is_empty() { "Result".to_owned() } else { sentence_case(&kind.replace('-', " ")) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Fraction,
    Time,
    Duration,
}

/// The unit that the name of a field has, and the name without it.
fn unit_of(field: &str) -> (String, Option<Unit>) {
    let (stem, when) =
        ["_before", "_after"].iter().find_map(|when| Some((field.strip_suffix(when)?, *when))).unwrap_or((field, ""));
    let unit = match stem.rsplit_once('_') {
        Some(_) if NO_BYTES.iter().any(|end| stem.ends_with(end)) => None,
        Some((name, "bytes")) => Some((name, Unit::Bytes)),
        Some((name, "fraction")) => Some((name, Unit::Fraction)),
        Some((name, "seconds")) if TIMES.contains(&name) => Some((name, Unit::Time)),
        Some((name, "seconds")) => Some((name, Unit::Duration)),
        _ => None,
    };
    unit.map_or((field.to_owned(), None), |(name, unit)| (format!("{name}{when}"), Some(unit)))
}

/// The name of a field for people.
fn label(field: &str) -> String {
    on_one_line(&unit_of(field).0.replace('_', " "))
}

/// Text without ends of lines and tabs, which would look like other facts.
fn on_one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\t', "\\t")
}

fn sentence_case(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn is_amount(field: &str, value: &Plain) -> bool {
    matches!(value, Plain::Number(_)) && !NUMBERS.contains(&field) && field != "mode" && field != AGES_RELATIVE_TO
}

/// A value in the unit of its field.
fn text(field: &str, value: &Plain) -> String {
    let number = match value {
        Plain::Null => return "–".to_owned(),
        Plain::Flag(flag) => return if *flag { "yes" } else { "no" }.to_owned(),
        Plain::Text(text) => return on_one_line(text),
        Plain::Number(number) => number,
    };
    let decimal: f64 = number.parse().unwrap_or_default();
    match (unit_of(field).1, number.parse::<i128>()) {
        (Some(Unit::Bytes), Ok(bytes)) => signed(bytes, format_size),
        (Some(Unit::Bytes), Err(_)) if decimal >= 0.0 => format_size(decimal.round() as u128),
        (Some(Unit::Fraction), _) => format_share(decimal),
        (Some(Unit::Time), _) => format_time(decimal.floor() as i64),
        (Some(Unit::Duration), _) if decimal >= 0.0 => format_duration(decimal),
        _ if field == AGES_RELATIVE_TO => format_time(decimal.floor() as i64),
        _ if field == "mode" => number.parse::<u32>().map_or_else(|_| number.clone(), |mode| format!("{mode:o}")),
        (_, Ok(count)) if !NUMBERS.contains(&field) => signed(count, format_count),
        (_, Ok(_)) => number.clone(),
        _ => format!("{decimal:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn signed(value: i128, format: fn(u128) -> String) -> String {
    format!("{}{}", if value < 0 { "−" } else { "" }, format(value.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_facts_and_tables() {
        let json = r#"{"schema": "granulo/store-check/1", "granulo_version": "9", "deep": true, "verified_bytes": 4096,
            "live_fraction": 0.5, "keys": 12345, "last_scrub_seconds": 1700000000, "elapsed_seconds": 1.5, "seed": 12345,
            "completeness": {"state": "complete"}, "index_devices": [0, 1], "pins": [], "ratio": 1.25, "lost": null,
            "problems": [{"kind": "2024", "size_bytes": -2048}, {"size_bytes": 1}], "by_bytes": 0.25, "mtime_seconds": -1,
            "size_bytes_before": 6000, "data_runs": [[4096, 10]], "line": "one\ntwo", "mean_bytes": 71972.4544,
            "ages_relative_to": 1700000000}"#;
        let fields = Fields::read(json.as_bytes()).unwrap();
        let facts: Vec<(&str, &str)> = fields.facts.iter().map(|fact| (&*fact.name, &*fact.text)).collect();
        let expected = [
            ("deep", "yes"),
            ("verified", "4 KiB"),
            ("live", "50.0 %"),
            ("keys", "12,345"),
            ("last scrub", "2023-11-14 22:13:20 UTC"),
            ("elapsed", "1.50 s"),
            ("seed", "12345"),
            ("completeness, state", "complete"),
            ("index devices", "0, 1"),
            ("pins", "none"),
            ("ratio", "1.25"),
            ("lost", "–"),
            ("by bytes", "0.25"),
            ("mtime", "1969-12-31 23:59:59 UTC"),
            ("size before", "5.86 KiB"),
            ("data runs", "(4,096, 10)"),
            ("line", "one\\ntwo"),
            ("mean", "70.3 KiB"),
            ("ages relative to", "2023-11-14 22:13:20 UTC"),
        ];
        assert_eq!(facts, expected);
        assert!(!fields.facts.last().unwrap().is_amount);
        assert_eq!(fields.kind, "Store check");
        let [table] = &fields.tables[..] else { panic!("{:?}", fields.tables) };
        assert_eq!((&*table.title, &*table.name, table.row_count), ("Problems", "problems", 2));
        let titles: Vec<(&str, bool)> = table.columns.iter().map(|column| (&*column.title, column.text)).collect();
        assert_eq!(titles, [("Kind", true), ("Size", false)]);
        let cells: Vec<Vec<&str>> = table.rows.iter().map(|row| row.iter().map(|cell| &*cell.text).collect()).collect();
        assert_eq!(cells, [["2024", "−2 KiB"], ["–", "1 B"]]);
    }

    #[test]
    fn what_is_no_record_or_not_printable_is_refused() {
        for wrong in ["[]", "{", "1", "{\"schema\": \"granulo/x/1\", \"a\": \"\\u001b[31m\"}"] {
            assert!(Fields::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
