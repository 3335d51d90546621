//! A listing in columns like those of `ls -l`: mode, names, owner, group, size, time, name.
//!
//! Columns are as wide as the widest of the first `ROWS_MEASURED` rows; wider fields in later rows shift their row to
//! the right. So a listing of any length needs constant memory, and its first rows appear early.

use std::collections::HashMap;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::{ObjectType, format_minute, format_mode};
use crate::report::chart::{left, right};
use crate::store::Entry;
use crate::units::escape;

/// Rows that determine the widths of columns.
const ROWS_MEASURED: usize = 1024;

/// The names of owners and groups on this machine; the number where there is none.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// The name of a user, escaped.
    pub(crate) fn user(&mut self, uid: u32) -> &str {
        let name = || uzers::get_user_by_uid(uid).map(|user| escape(user.name().as_encoded_bytes()));
        self.users.entry(uid).or_insert_with(|| name().unwrap_or_else(|| uid.to_string()))
    }

    /// The name of a group, escaped.
    pub(crate) fn group(&mut self, gid: u32) -> &str {
        let name = || uzers::get_group_by_gid(gid).map(|group| escape(group.name().as_encoded_bytes()));
        self.groups.entry(gid).or_insert_with(|| name().unwrap_or_else(|| gid.to_string()))
    }
}

/// An object of a listing.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// Its name, escaped.
    pub name: String,
    /// Its entry in the index.
    pub entry: &'a Entry,
    /// Number of names of the file.
    pub names: u64,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// The target of a symbolic link, escaped.
    pub target: Option<String>,
}

/// Columns in progress.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    owners: Owners,
    waiting: Vec<ListingRow>,
    /// Widths of names, owner, group, size; known once rows were written.
    widths: Option<[usize; 4]>,
}

#[derive(Debug)]
struct ListingRow {
    mode: String,
    /// Names, owner, group, size.
    middle: [String; 4],
    time: String,
    name: String,
}

impl Columns {
    /// Adds a row, and writes it once the widths are known.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn add(&mut self, line: Line<'_>, out: &mut dyn Write) -> io::Result<()> {
        let Line { name, entry, names, device, target } = line;
        let size = match device {
            Some((major, minor)) => format!("{major}, {minor}"),
            None => entry.size_bytes.to_string(),
        };
        let row = ListingRow {
            mode: format_mode(ObjectType::of(entry), entry.mode),
            middle: [
                names.to_string(),
                self.owners.user(entry.uid).to_owned(),
                self.owners.group(entry.gid).to_owned(),
                size,
            ],
            time: format_minute(entry.mtime),
            name: match target {
                Some(target) => format!("{name} -> {target}"),
                None => name,
            },
        };
        if let Some(widths) = self.widths {
            return write_row(&row, widths, out);
        }
        self.waiting.push(row);
        if self.waiting.len() == ROWS_MEASURED { self.finish(out) } else { Ok(()) }
    }

    /// Writes the rows that are still buffered.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut widths = self.widths.unwrap_or_default();
        for row in &self.waiting {
            for (width, text) in widths.iter_mut().zip(&row.middle) {
                *width = (*width).max(text.width());
            }
        }
        self.widths = Some(widths);
        std::mem::take(&mut self.waiting).iter().try_for_each(|row| write_row(row, widths, out))
    }
}

fn write_row(row: &ListingRow, widths: [usize; 4], out: &mut dyn Write) -> io::Result<()> {
    let [names, owner, group, size] = &row.middle;
    writeln!(
        out,
        "{} {} {} {} {} {} {}",
        row.mode,
        right(names, widths[0]),
        left(owner, widths[1]),
        left(group, widths[2]),
        right(size, widths[3]),
        row.time,
        row.name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ids::{LogOffset, ObjectNumber, SegmentNumber};
    use crate::store::{Kind, Location, Time};

    fn entry(size_bytes: u64) -> Entry {
        let location = Location { segment: SegmentNumber(1), offset: LogOffset(80), record_bytes: 60 };
        let (mode, mtime) = (0o100_640, Time { seconds: 86_400, nanoseconds: 0 });
        Entry {
            kind: Kind::File,
            id: 1,
            number: ObjectNumber(1),
            attributes_id: 0,
            is_plain: true,
            location,
            size_bytes,
            mode,
            uid: 4_000_000_000,
            gid: 4_000_000_001,
            mtime,
            ctime: mtime,
        }
    }

    fn line(name: &str, entry: &Entry) -> Line<'static> {
        let entry: &'static Entry = Box::leak(Box::new(*entry));
        Line { name: name.to_owned(), entry, names: 1, device: None, target: None }
    }

    #[test]
    fn columns_are_aligned() {
        let (mut columns, mut out) = (Columns::default(), Vec::new());
        columns.add(line("small", &entry(7)), &mut out).unwrap();
        columns.add(Line { names: 12, ..line("large", &entry(1_000_000)) }, &mut out).unwrap();
        assert_eq!(out, b"");
        columns.finish(&mut out).unwrap();
        columns.add(Line { target: Some("../x".to_owned()), ..line("late", &entry(12)) }, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "-rw-r-----  1 4000000000 4000000001       7 1970-01-02 00:00 small\n\
             -rw-r----- 12 4000000000 4000000001 1000000 1970-01-02 00:00 large\n\
             -rw-r-----  1 4000000000 4000000001      12 1970-01-02 00:00 late -> ../x\n"
        );
    }

    #[test]
    fn rows_do_not_pile_up() {
        let (mut columns, mut lines) = (Columns::default(), 0);
        for index in 0..10 * ROWS_MEASURED {
            let mut out = Vec::new();
            columns.add(line("x", &entry(index as u64)), &mut out).unwrap();
            lines += out.iter().filter(|&&byte| byte == b'\n').count();
            assert!(columns.waiting.len() < ROWS_MEASURED);
        }
        assert_eq!(lines, 10 * ROWS_MEASURED);
    }

    #[test]
    fn a_device_shows_its_numbers() {
        let (mut columns, mut out) = (Columns::default(), Vec::new());
        let device = Entry { kind: Kind::Special, mode: 0o020_666, ..entry(0) };
        columns.add(Line { device: Some((1, 3)), ..line("null", &device) }, &mut out).unwrap();
        columns.finish(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("crw-rw-rw- 1 4000000000 4000000001 1, 3 1970"));
    }
}
