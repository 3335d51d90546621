//! The JSON that ncdu exports (`ncdu -o FILE`, <https://dev.yorhel.nl/ncdu/jsonfmt>, format 1; gdu and `granulo survey
//! --ncdu` write the same): `[1, minor, {…}, directory]`, where a directory is a list of its own attributes and then
//! its entries, and what is not a list is a file. Names are bytes, not necessarily UTF-8.
//!
//! It is read as a stream, and not recursively, so that trees of any depth can be read: only what is needed of the
//! directories around the current one is in memory. Files with several names (`hlnkc` with `ino`) count once.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as DeError, IgnoredAny, Visitor};

use super::{Listed, MOST_FILE_BYTES};
use crate::survey::measure::Measure;

/// The bits of `mode` that say what an entry is.
const FORMAT_BITS: u32 = 0o170_000;
/// Those bits of a symlink. Without `-e`, ncdu writes no `mode`, and only that it is no regular file.
const SYMLINK: u32 = 0o120_000;

/// Whether it begins as a list of the two numbers of the format and an object.
pub(super) fn looks_like(text: &[u8]) -> bool {
    let Some(rest) = text.trim_ascii_start().strip_prefix(b"[") else { return false };
    let mut fields = rest.splitn(3, |&byte| byte == b',').map(<[u8]>::trim_ascii);
    let (major, minor, object) = (fields.next(), fields.next(), fields.next());
    let is_number = |field: Option<&[u8]>| field.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    major == Some(b"1") && is_number(minor) && object.is_some_and(|rest| rest.starts_with(b"{"))
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let mut tree = ReadTree { listed: Listed::new(), seen: HashSet::new(), open: Vec::new() };
    let mut text = Text { whole: text, at: 0 };
    text.document(&mut tree).map_err(|cause| format!("it is not an export of ncdu: {cause}"))?;
    Ok(tree.listed)
}

/// The rest of the document.
struct Text<'t> {
    whole: &'t [u8],
    at: usize,
}

impl<'t> Text<'t> {
    fn document(&mut self, tree: &mut ReadTree) -> Result<(), String> {
        self.expect(b'[')?;
        if self.value::<u64>()? != 1 {
            return Err("its format is newer".to_owned());
        }
        for _ in 0..2 {
            self.expect(b',')?;
            self.value::<IgnoredAny>()?;
        }
        self.expect(b',')?;
        self.expect(b'[')?;
        tree.open(self.attributes()?);
        while !tree.open.is_empty() {
            match self.next()? {
                b']' => tree.close(),
                b',' if self.peek()? == b'[' => {
                    self.at += 1;
                    tree.open(self.attributes()?);
                }
                b',' => {
                    let file = self.attributes()?;
                    tree.file(&file);
                }
                other => return Err(self.unexpected(other)),
            }
        }
        // Of what a newer version may add, nothing is known.
        while self.next()? == b',' {
            self.value::<IgnoredAny>()?;
        }
        match self.whole.get(self.at..).is_none_or(|rest| rest.trim_ascii().is_empty()) {
            true if self.whole.get(self.at - 1) == Some(&b']') => Ok(()),
            _ => Err("something follows its end".to_owned()),
        }
    }

    /// The next byte that is not space, which stays where it is.
    fn peek(&mut self) -> Result<u8, String> {
        let rest = self.whole.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.whole.get(self.at).copied().ok_or_else(|| "it ends too early".to_owned())
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        let byte = self.next()?;
        if byte == wanted { Ok(()) } else { Err(self.unexpected(byte)) }
    }

    /// The error for a byte that was just read.
    fn unexpected(&self, byte: u8) -> String {
        format!("'{}' at byte {} is not expected there", byte.escape_ascii(), self.at - 1)
    }

    /// The attributes of an entry: an object. (A list would do for its fields in their order.)
    fn attributes(&mut self) -> Result<Attributes, String> {
        match self.peek()? {
            b'{' => self.value(),
            other => {
                self.at += 1;
                Err(self.unexpected(other))
            }
        }
    }

    /// Reads a JSON value that is in memory whole; a directory is read piece by piece instead.
    fn value<T: Deserialize<'t>>(&mut self) -> Result<T, String> {
        let start = self.at;
        let mut values = serde_json::Deserializer::from_slice(&self.whole[start..]).into_iter();
        let value = values.next().ok_or("it ends too early")?;
        self.at += values.byte_offset();
        value.map_err(|error| {
            let cause = error.to_string();
            let cause = cause.split(" at line ").next().unwrap_or_default();
            format!("{cause} in what begins at byte {start}")
        })
    }
}

struct ReadTree {
    listed: Listed,
    /// Device and inode of files with several names.
    seen: HashSet<(u64, u64)>,
    /// The directories around the current one, and that.
    open: Vec<OpenDirectory>,
}

struct OpenDirectory {
    device: u64,
    entries: u64,
    /// Whether it was left out: ncdu writes those on other file systems as directories without entries.
    is_left_out: bool,
    is_unreadable: bool,
}

/// Attributes of a file or directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    name: Name,
    asize: u64,
    dsize: u64,
    dev: u64,
    ino: u64,
    hlnkc: bool,
    notreg: bool,
    mode: u32,
    read_error: bool,
    excluded: Option<Name>,
}

/// The bytes of a name.
#[derive(Debug, Default)]
struct Name(Vec<u8>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Name;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a name")
            }

            fn visit_bytes<E: DeError>(self, bytes: &[u8]) -> Result<Name, E> {
                Ok(Name(bytes.to_owned()))
            }

            fn visit_str<E: DeError>(self, text: &str) -> Result<Name, E> {
                self.visit_bytes(text.as_bytes())
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

impl ReadTree {
    fn open(&mut self, own: Attributes) {
        let device = if own.dev > 0 { own.dev } else { self.device() };
        let is_left_out = own.excluded.is_some();
        let opened = OpenDirectory { device, entries: 0, is_left_out, is_unreadable: own.read_error };
        if is_left_out {
            self.file(&own);
            return self.open.push(opened);
        }
        self.open.last_mut().into_iter().for_each(|parent| parent.entries += 1);
        let survey = &mut self.listed.survey;
        survey.counts.directories += 1;
        survey.counts.errors += u64::from(own.read_error);
        survey.other_allocated.directories_bytes += u128::from(own.dsize.min(MOST_FILE_BYTES));
        survey.distributions.of_mut(Measure::DirectorySize).record(own.asize.min(MOST_FILE_BYTES));
        if !self.open.is_empty() {
            survey.distributions.of_mut(Measure::NameLength).record(own.name.0.len() as u64);
        }
        self.open.push(opened);
    }

    /// What a directory has is known now, unless it could not be listed at all.
    fn close(&mut self) {
        let Some(OpenDirectory { entries, is_left_out, is_unreadable, .. }) = self.open.pop() else { return };
        if is_left_out || is_unreadable && entries == 0 {
            return;
        }
        let distributions = &mut self.listed.survey.distributions;
        distributions.of_mut(Measure::DirectoryEntries).record(entries);
        distributions.of_mut(Measure::DirectoryDepth).record(self.open.len() as u64);
    }

    /// The device of the current directory.
    fn device(&self) -> u64 {
        self.open.last().map_or(0, |directory| directory.device)
    }

    fn file(&mut self, file: &Attributes) {
        let device = if file.dev > 0 { file.dev } else { self.device() };
        let survey = &mut self.listed.survey;
        if file.excluded.as_ref().is_some_and(|Name(why)| why == b"pattern") {
            survey.counts.excluded += 1;
            return;
        }
        self.open.last_mut().into_iter().for_each(|parent| parent.entries += 1);
        survey.distributions.of_mut(Measure::NameLength).record(file.name.0.len() as u64);
        if file.excluded.is_some() {
            // Another file system (`otherfs`, `othfs`, `kernfs`): its name is there.
            survey.counts.mount_points_skipped += 1;
        } else if file.read_error {
            survey.counts.errors += 1;
        } else if file.mode & FORMAT_BITS == SYMLINK {
            survey.counts.symlinks += 1;
            survey.other_allocated.symlinks_bytes += u128::from(file.dsize.min(MOST_FILE_BYTES));
            survey.distributions.of_mut(Measure::SymlinkTargetLength).record(file.asize.min(MOST_FILE_BYTES));
        } else if file.notreg {
            survey.counts.special += 1;
        } else if file.hlnkc && !self.seen.insert((device, file.ino)) {
            survey.counts.hard_links_skipped += 1;
        } else {
            let [size_bytes, allocated_bytes] = [file.asize, file.dsize].map(|bytes| bytes.min(MOST_FILE_BYTES));
            self.listed.add(size_bytes, Some(allocated_bytes), Some(&file.name.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_a_survey() {
        let text = br#"[1,2,{"progname":"ncdu","progver":"1.18","timestamp":1},
            [{"name":"/t","asize":4096,"dsize":4096,"dev":7},
             {"name":"a.txt","asize":10,"dsize":4096,"ino":5,"hlnkc":true,"nlink":2},
             {"name":"pipe","notreg":true},
             {"name":"link","asize":7,"dsize":0,"mode":41471,"notreg":true},
             [{"name":"sub","asize":4096,"dsize":4096},
              {"name":"b.txt","asize":10,"dsize":4096,"ino":5,"hlnkc":true,"nlink":2},
              {"name":"big","asize":100000,"dsize":102400,"unknown":[1,{"x":2}]},
              {"name":"empty"}]]]"#;
        assert!(looks_like(text));
        let (survey, _) = read(text).unwrap().survey();
        let counts = &survey.counts;
        assert_eq!((counts.files, counts.directories, counts.special, counts.hard_links_skipped), (3, 2, 1, 1));
        assert_eq!((survey.size_bytes(), survey.allocated_bytes()), (100_010, 106_496));
        // Owners are not known, extensions of every file are.
        assert_eq!(survey.overhead_bytes(), Some(106_496 - 100_010));
        assert_eq!((counts.symlinks, survey.distributions.of(Measure::SymlinkTargetLength).total()), (1, 7));
        assert_eq!(survey.distributions.of(Measure::DirectoryEntries).total(), 4 + 3);
        assert_eq!(survey.distributions.of(Measure::NameLength).count(), 7);
        for wrong in [
            &b"[1"[..],
            b"[1,2,{},[[\"/t\",10]]]",
            b"[1,2,{},[[]]]",
            b"[1,0,{}]",
            b"[2,0,{},[{}]]",
            b"[1,0,{},[]]",
            b"[1,0,{},5]",
            b"[1,0,{},[{\"asize\":-1}]]",
        ] {
            assert!(read(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn trees_are_deeper_than_any_stack_and_names_are_bytes() {
        let (down, up) = (b",[{\"name\":\"\xff\\u0001\"}".repeat(100_000), b"]".repeat(100_000));
        let deep = [&b"[1,0,{}"[..], &down, &up, b"]\n"].concat();
        let (survey, _) = read(&deep).unwrap().survey();
        assert_eq!(survey.counts.directories, 100_000);
        assert_eq!(survey.distributions.of(Measure::NameLength).total(), 2 * 99_999);
        assert!(read(&deep[..deep.len() - 2]).err().unwrap().contains("too early"));
        assert!(read(&[&deep[..], b"]"].concat()).err().unwrap().contains("follows"));
    }

    /// As in a walk: a pattern makes a name absent, while a mount point and what cannot be read have names.
    #[test]
    fn what_is_left_out_is_not_an_entry() {
        let text = br#"[1,2,{},[{"name":"/t"},{"name":"x","dev":0,"excluded":"pattern"},
            {"name":"z","excluded":"otherfs"},[{"name":"w","excluded":"othfs","mode":17407}],{"name":"y","read_error":true},
            [{"name":"v","read_error":true}],[{"name":"u","read_error":true},{"name":"a","excluded":"otherfs"}]]]"#;
        let (survey, _) = read(text).unwrap().survey();
        assert_eq!((survey.counts.excluded, survey.counts.errors, survey.counts.files), (1, 3, 0));
        assert_eq!((survey.counts.mount_points_skipped, survey.counts.directories), (3, 3));
        let of = |measure| (survey.distributions.of(measure).count(), survey.distributions.of(measure).total());
        assert_eq!((of(Measure::DirectoryEntries), of(Measure::DirectoryDepth)), ((2, 5 + 1), (2, 1)));
        assert!(read(b"[1,2,{},[{\"name\":7}]]").err().unwrap().contains("byte 9"));
    }
}
