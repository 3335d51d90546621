//! Sorted rows as the nested lists of the format: `[1,2,{…},directory]`, where a directory is a list of its own
//! attributes and then its entries, and what is not a list is not a directory.
//!
//! Names are bytes, as ncdu writes them: only quotes, backslashes and control characters are escaped. `dev` is written
//! where it differs from that of the directory, `ino` with several names. Memory: one path.

use std::io::{self, Write};

use super::row::{Inode, Known, Row};
use super::sorted::Sorted;

/// Writes the document of all rows, whose keys begin with that of the directory `base`; of `base` alone if there are
/// none. `timestamp` is in seconds since 1970.
pub(super) fn write(rows: &mut Sorted, base: &[u8], timestamp: i64, out: &mut dyn Write) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    write!(out, "[1,2,{{\"progname\":\"granulo\",\"progver\":\"{version}\",\"timestamp\":{timestamp}}}")?;
    let mut tree = Tree { out, open: Vec::new(), path: Vec::new(), object: Vec::new() };
    // A mount point, or what was left out or could not be read: a root below it makes it a directory.
    let mut held: Option<(Vec<u8>, Row)> = None;
    while let Some(row) = rows.next()? {
        let key = rows.key();
        if let Some((above, above_row)) = held.take().filter(|(above, _)| !is_below(key, above)) {
            tree.row(&above, base, &above_row)?;
        }
        if matches!(row.known, Known::Leaf(_) | Known::Directory(_)) {
            tree.row(key, base, &row)?;
        } else {
            held = Some((key.to_vec(), row));
        }
    }
    if let Some((key, row)) = held {
        tree.row(&key, base, &row)?;
    }
    if tree.open.is_empty() {
        tree.open_directory(base, base, &Row::of(Known::Nothing))?;
    }
    tree.close_to(0)?;
    tree.out.write_all(b"]\n")
}

struct Tree<'o> {
    out: &'o mut dyn Write,
    /// The directories that are not complete: length of the key, and device.
    open: Vec<(usize, u64)>,
    /// The key of the last of them.
    path: Vec<u8>,
    object: Vec<u8>,
}

impl Tree<'_> {
    fn row(&mut self, key: &[u8], base: &[u8], row: &Row) -> io::Result<()> {
        let kept = self.open.iter().take_while(|(length, _)| is_below(key, &self.path[..*length])).count();
        self.close_to(kept)?;
        if self.open.is_empty() {
            if key == base {
                return self.open_directory(base, base, row);
            }
            self.open_directory(base, base, &Row::of(Known::Nothing))?;
        }
        // Directories above a root, of which nothing was read.
        let mut end = self.path.len();
        while let Some(next) = key.get(end + 1..).and_then(|rest| rest.iter().position(|&byte| byte == 0)) {
            end += 1 + next;
            self.open_directory(&key[..end], base, &Row::of(Known::Nothing))?;
        }
        if matches!(row.known, Known::Directory(_)) {
            return self.open_directory(key, base, row);
        }
        self.object(last_name(key), row);
        self.out.write_all(b",\n")?;
        self.out.write_all(&self.object)
    }

    fn open_directory(&mut self, key: &[u8], base: &[u8], row: &Row) -> io::Result<()> {
        if key == base {
            let path: Vec<u8> = key.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect();
            self.object(if path.is_empty() { b"/" } else { &path }, row);
        } else {
            self.object(last_name(key), row);
        }
        self.out.write_all(b",\n[")?;
        self.out.write_all(&self.object)?;
        let device = match &row.known {
            Known::Directory(inode) => inode.device,
            _ => self.device(),
        };
        self.path.clear();
        self.path.extend_from_slice(key);
        self.open.push((key.len(), device));
        Ok(())
    }

    /// The device of the innermost directory.
    fn device(&self) -> u64 {
        self.open.last().map_or(0, |(_, device)| *device)
    }

    fn close_to(&mut self, kept: usize) -> io::Result<()> {
        while self.open.len() > kept {
            self.open.pop();
            self.out.write_all(b"]")?;
        }
        self.path.truncate(self.open.last().map_or(0, |(length, _)| *length));
        Ok(())
    }

    /// Makes the attributes of an entry.
    fn object(&mut self, name: &[u8], row: &Row) {
        let device = self.device();
        let out = &mut self.object;
        out.clear();
        out.extend_from_slice(b"{\"name\":\"");
        escape(name, out);
        out.push(b'"');
        match &row.known {
            Known::Nothing => {}
            Known::Excluded => out.extend_from_slice(b",\"excluded\":\"pattern\""),
            Known::OtherFileSystem => out.extend_from_slice(b",\"excluded\":\"otherfs\""),
            Known::Unreadable => out.extend_from_slice(b",\"read_error\":true"),
            Known::Directory(inode) => attributes(inode, device, out),
            Known::Leaf(inode) => {
                attributes(inode, device, out);
                if inode.link_count > 1 {
                    number(out, "ino", inode.inode);
                    out.extend_from_slice(b",\"hlnkc\":true");
                    number(out, "nlink", inode.link_count.into());
                }
                if !inode.is_regular {
                    out.extend_from_slice(b",\"notreg\":true");
                }
            }
        }
        if row.is_unlisted && row.known != Known::Unreadable {
            out.extend_from_slice(b",\"read_error\":true");
        }
        out.push(b'}');
    }
}

fn attributes(inode: &Inode, device_above: u64, out: &mut Vec<u8>) {
    for (field, bytes) in [("asize", inode.size_bytes), ("dsize", inode.allocated_bytes)] {
        if bytes > 0 {
            // The format has signed numbers.
            number(out, field, bytes.min(i64::MAX as u64));
        }
    }
    if inode.device != device_above {
        number(out, "dev", inode.device);
    }
    number(out, "uid", inode.uid.into());
    number(out, "gid", inode.gid.into());
    number(out, "mode", inode.mode.into());
    number(out, "mtime", inode.mtime);
}

fn number(out: &mut Vec<u8>, field: &str, value: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value.to_string().as_bytes());
}

fn is_below(key: &[u8], directory: &[u8]) -> bool {
    key.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&0))
}

fn last_name(key: &[u8]) -> &[u8] {
    key.rsplit(|&byte| byte == 0).next().unwrap_or(key)
}

fn escape(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}
