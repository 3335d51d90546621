//! The contents of a store, for people: objects in words and columns.
//!
//! Names are printed escaped. Times are in UTC: a store may be read on another machine than the one that wrote it.

pub(crate) mod check;
pub(crate) mod listing;
mod snapshots;
mod time;

use std::io::{self, Write};

use rustix::fs::FileType;
use serde::Serialize;

use super::chart::{columns, left, wrap};
use super::paragraphs::prose;
use super::terminal::exact_size;
use crate::store::{Entry, Kind, Status};
use crate::units::format_count;
use listing::Owners;
pub(crate) use snapshots::write_snapshots;
pub(crate) use time::{format_minute, format_nanosecond};

/// The type of an object, in the terms of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ObjectType {
    /// A regular file, whether it is a record or striped.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
}

impl ObjectType {
    /// The type of an entry; for one of several names of a file, that of the file.
    pub(crate) fn of(entry: &Entry) -> ObjectType {
        match (entry.kind, FileType::from_raw_mode(entry.mode.into())) {
            (Kind::Directory, _) => ObjectType::Directory,
            (Kind::Symlink, _) => ObjectType::Symlink,
            (Kind::Special, FileType::Socket) => ObjectType::Socket,
            (Kind::Special, FileType::BlockDevice) => ObjectType::BlockDevice,
            (Kind::Special, FileType::CharacterDevice) => ObjectType::CharacterDevice,
            (Kind::Special, _) => ObjectType::Fifo,
            _ => ObjectType::File,
        }
    }

    /// Whether it has device numbers.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, ObjectType::BlockDevice | ObjectType::CharacterDevice)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ObjectType::File => "file",
            ObjectType::Directory => "directory",
            ObjectType::Symlink => "symbolic link",
            ObjectType::Fifo => "fifo",
            ObjectType::Socket => "socket",
            ObjectType::BlockDevice => "block device",
            ObjectType::CharacterDevice => "character device",
        }
    }

    fn letter(self) -> char {
        match self {
            ObjectType::File => '-',
            ObjectType::Directory => 'd',
            ObjectType::Symlink => 'l',
            ObjectType::Fifo => 'p',
            ObjectType::Socket => 's',
            ObjectType::BlockDevice => 'b',
            ObjectType::CharacterDevice => 'c',
        }
    }
}

/// Type and permissions as `ls` prints them: `-rwsr-xr-t`.
pub(crate) fn format_mode(object_type: ObjectType, mode: u16) -> String {
    let mut text = String::with_capacity(10);
    text.push(object_type.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (false, false) => '-',
            (true, false) => 'x',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Counts in words, without those that are 0: `1,200 files, 1 directory`.
pub(crate) fn count_words(counts: &[(u64, &str, &str)]) -> String {
    let words = |&(count, one, many): &(u64, &str, &str)| {
        let what = if count == 1 { one } else { many };
        format!("{} {what}", format_count(count.into()))
    };
    counts.iter().filter(|(count, ..)| *count > 0).map(words).collect::<Vec<_>>().join(", ")
}

/// Writes sentences as one paragraph.
///
/// # Errors
/// Any error of writing.
pub(crate) fn write_sentences(sentences: &[String], out: &mut dyn Write) -> io::Result<()> {
    prose(&sentences.join(" "), out)
}

/// Writes something under its name, in `width` columns; what does not fit in the line continues below its beginning.
///
/// # Errors
/// Any error of writing.
pub(crate) fn write_fact(name: &str, width: usize, text: &str, out: &mut dyn Write) -> io::Result<()> {
    for (index, line) in wrap(text, columns() - width).iter().enumerate() {
        writeln!(out, "{}{line}", left(if index == 0 { name } else { "" }, width))?;
    }
    Ok(())
}

/// Writes all that is known about an object; `points_to` is the target of a symbolic link or the numbers of a device.
///
/// # Errors
/// Any error of writing.
pub(crate) fn write_status(
    key: &str,
    status: &Status,
    points_to: Option<&str>,
    owners: &mut Owners,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Status { entry, attributes, .. } = status;
    let object_type = ObjectType::of(entry);
    writeln!(out, "{:>11}  {key}", "key")?;
    let mut line = |name: &str, value: &str| write_fact(&format!("{name:>11}"), 13, value, out);
    line("type", object_type.name())?;
    if let Some(points_to) = points_to {
        line(if object_type.is_device() { "numbers" } else { "target" }, points_to)?;
    }
    line("number", &entry.number.to_string())?;
    line("size", &exact_size(entry.size_bytes))?;
    line("allocated", &format!("{} on all devices, without the index", exact_size(status.allocated_bytes)))?;
    line("mode", &format!("{:04o} {}", entry.mode & 0o7777, format_mode(object_type, entry.mode)))?;
    let owner = format!("{} ({})", owners.user(entry.uid), entry.uid);
    line("owner", &format!("{owner}, group {} ({})", owners.group(entry.gid), entry.gid))?;
    line("modified", &format_nanosecond(entry.mtime))?;
    let others = [("changed", attributes.ctime), ("born", attributes.btime), ("accessed", attributes.atime)];
    for (name, time) in others {
        if let Some(time) = time {
            line(name, &format_nanosecond(time))?;
        }
    }
    if status.shared.is_some() || status.names != 1 {
        line("names", &format_count(status.names.into()))?;
    }
    if let Some(holes) = &attributes.holes {
        let data: u64 = holes.data.iter().map(|(_, length)| length).sum();
        let runs = holes.data.len();
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{} runs", format_count(runs as u128)) };
        line("sparse", &format!("{} of data in {runs}", exact_size(data)))?;
    }
    for (index, (name, value)) in attributes.xattrs.iter().enumerate() {
        let value = format!("{}: {}", crate::units::escape(name), exact_size(value.len() as u64));
        line(if index == 0 { "xattrs" } else { "" }, &value)?;
    }
    let place = entry.location;
    let what = if entry.kind == Kind::Large { "descriptor" } else { "record" };
    let length = format!("{} B", format_count(place.record_bytes.into()));
    line(
        what,
        &format!("id {}, segment {} at {}, {length}", entry.id, place.segment, format_count(place.offset.0.into())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_in_words() {
        let counts = [(1200, "file", "files"), (0, "fifo", "fifos"), (1, "directory", "directories")];
        assert_eq!(count_words(&counts), "1,200 files, 1 directory");
        assert_eq!(count_words(&[]), "");
    }

    #[test]
    fn modes_are_those_of_ls() {
        for (object_type, mode, text) in [
            (ObjectType::File, 0o100_644, "-rw-r--r--"),
            (ObjectType::Directory, 0o041_777, "drwxrwxrwt"),
            (ObjectType::Directory, 0o041_776, "drwxrwxrwT"),
            (ObjectType::File, 0o104_755, "-rwsr-xr-x"),
            (ObjectType::File, 0o106_644, "-rwSr-Sr--"),
            (ObjectType::CharacterDevice, 0, "c---------"),
            (ObjectType::Symlink, 0o120_777, "lrwxrwxrwx"),
        ] {
            assert_eq!(format_mode(object_type, mode), text);
        }
    }
}
