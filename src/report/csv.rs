//! Results as CSV (RFC 4180): every list of records in a JSON document is a table.
//!
//! A table is named by the fields that lead to it, joined by dots: `distributions.file_size.buckets`. Its columns are
//! the fields of its records, in the order of the document; where a field is a record itself, those of that, joined by
//! dots as well. If records have lists of records, these are another table, whose rows begin with the plain fields of
//! the record around them. Values are those of the document: bytes, seconds, shares of 1. Lists of plain values are no
//! tables.

use std::borrow::Cow;
use std::io::{self, Write};

use super::nodes::{Node, Plain};

/// A table of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: String,
    pub(super) columns: Vec<String>,
    /// The plain values of each record, with their columns.
    pub(super) rows: Vec<Vec<(String, Plain)>>,
}

/// Reads a JSON document.
///
/// # Errors
/// It is not JSON.
pub(crate) fn read(json: &[u8]) -> serde_json::Result<Node> {
    serde_json::from_slice(json)
}

/// Whether the lists of this name in a document are all empty, and there is one.
pub(crate) fn is_empty_list(document: &Node, name: &str) -> bool {
    let mut lengths = Vec::new();
    add_lengths(document, "", name, &mut lengths);
    !lengths.is_empty() && lengths.iter().all(|&length| length == 0)
}

/// Adds the lengths of the lists called `wanted` in a node that is called `name`.
fn add_lengths(node: &Node, name: &str, wanted: &str, lengths: &mut Vec<usize>) {
    match node {
        Node::Plain(_) => {}
        Node::Record(fields) => {
            fields.iter().for_each(|(field, value)| add_lengths(value, &joined(name, field), wanted, lengths));
        }
        Node::List(items) => {
            if name == wanted {
                lengths.push(items.len());
            }
            items.iter().for_each(|item| add_lengths(item, name, wanted, lengths));
        }
    }
}

/// The tables of a document, in its order.
pub(crate) fn tables_of(document: &Node) -> Vec<Table> {
    let mut tables = Vec::new();
    find(document, "", &[], &mut tables);
    tables
}

/// The names of tables, with what is in them.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write_names(tables: &[Table], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "table,rows,columns")?;
    let line = |table: &Table| [table.name.clone(), table.rows.len().to_string(), table.columns.join(" ")];
    tables.iter().try_for_each(|table| write_line(line(table).iter().map(String::as_str), out))
}

impl Table {
    /// Writes it, with a line of names.
    ///
    /// # Errors
    /// Any error of `out`.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self.columns.iter().map(String::as_str), out)?;
        self.rows.iter().try_for_each(|row| {
            let text = |column: &String| value_in(row, column).map_or(Cow::Borrowed(""), Plain::text);
            let line: Vec<Cow<'_, str>> = self.columns.iter().map(text).collect();
            write_line(line.iter().map(AsRef::as_ref), out)
        })
    }

    fn add(&mut self, row: Vec<(String, Plain)>) {
        for (name, _) in &row {
            if !self.columns.contains(name) {
                self.columns.push(name.clone());
            }
        }
        self.rows.push(row);
    }
}

/// The value of a row in this column.
pub(super) fn value_in<'r>(row: &'r [(String, Plain)], column: &str) -> Option<&'r Plain> {
    row.iter().find(|(name, _)| name == column).map(|(_, value)| value)
}

fn write_line<'a>(values: impl Iterator<Item = &'a str>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", values.map(quoted).collect::<Vec<_>>().join(","))
}

/// A value, quoted where it needs that.
pub(super) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// What the records of a table are called where others are below them: the last field that leads to it, but for `rows`,
/// which says nothing.
fn own_name(table: &str) -> &str {
    let whole = table.strip_suffix(".rows").unwrap_or(table);
    whole.rsplit('.').next().unwrap_or(whole)
}

/// Adds the tables below a node; `around` are the plain fields of the records that it is in.
fn find(node: &Node, name: &str, around: &[(String, Plain)], tables: &mut Vec<Table>) {
    match node {
        Node::Plain(_) => {}
        Node::Record(fields) => {
            fields.iter().for_each(|(field, value)| find(value, &joined(name, field), around, tables));
        }
        Node::List(items) if items.iter().any(|item| matches!(item, Node::Record(_))) => {
            let at = tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
                tables.push(Table { name: name.to_owned(), columns: Vec::new(), rows: Vec::new() });
                tables.len() - 1
            });
            for item in items {
                let Node::Record(fields) = item else { continue };
                let mut row = around.to_vec();
                flatten(fields, "", &mut row);
                tables[at].add(row);
                let last = own_name(name);
                let plain = fields.iter().filter_map(|(field, value)| match value {
                    Node::Plain(value) => Some((joined(last, field), value.clone())),
                    _ => None,
                });
                let around: Vec<_> = around.iter().cloned().chain(plain).collect();
                fields.iter().for_each(|(field, value)| find(value, &joined(name, field), &around, tables));
            }
        }
        Node::List(_) => {}
    }
}

/// Adds the plain values of a record, and of the records in it.
fn flatten(fields: &[(String, Node)], name: &str, row: &mut Vec<(String, Plain)>) {
    for (field, value) in fields {
        match value {
            Node::Plain(value) => row.push((joined(name, field), value.clone())),
            Node::Record(inner) => flatten(inner, &joined(name, field), row),
            Node::List(_) => {}
        }
    }
}

fn joined(name: &str, field: &str) -> String {
    if name.is_empty() { field.to_owned() } else { format!("{name}.{field}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str, name: &str) -> String {
        let tables = tables_of(&read(json.as_bytes()).unwrap());
        let mut out = Vec::new();
        match tables.iter().find(|table| table.name == name) {
            Some(table) => table.write(&mut out).unwrap(),
            None => write_names(&tables, &mut out).unwrap(),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lists_of_records_are_tables() {
        let json = r#"{"schema": "s", "z": [{"b": 1, "a": {"y": null, "x": 0.5}}, {"c": "1,\"2\"", "b": -2}],
            "trees": [{"name": "t", "points": [{"at": 1}, {"at": 2}]}, {"name": "u", "points": []}],
            "deciles": [1, 2], "deep": {"empty": [], "list": [{"ok": true}]}}"#;
        assert_eq!(text(json, "z"), "b,a.y,a.x,c\n1,,0.5,\n-2,,,\"1,\"\"2\"\"\"\n");
        assert_eq!(text(json, "trees.points"), "trees.name,at\nt,1\nt,2\n");
        assert_eq!(text(json, "deep.list"), "ok\ntrue\n");
        for (name, is_empty) in [("deep.empty", true), ("deep.list", false), ("deciles", false), ("nothing", false)] {
            assert_eq!(is_empty_list(&read(json.as_bytes()).unwrap(), name), is_empty, "{name}");
        }
        let names = "table,rows,columns\nz,2,b a.y a.x c\ntrees,2,name\ntrees.points,2,trees.name at\ndeep.list,1,ok\n";
        assert_eq!(text(json, ""), names);
        let rows = r#"{"where": {"ages": {"rows": [{"uid": 7, "read": [{"files": 2}]}]}}}"#;
        assert_eq!(text(rows, "where.ages.rows.read"), "ages.uid,files\n7,2\n");
    }
}
