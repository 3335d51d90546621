//! The JSON that ncdu exports (`ncdu -o FILE`, format 1; gdu writes the same): `[1, minor, {…}, directory]`, where a
//! directory is a list of its own attributes and then its entries, and what is not a list is a file.
//!
//! It is read as a stream: only the directories that contain the current one are in memory. Files with several names
//! (`hlnkc` with `ino`) count once.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Listed, MOST_FILE_BYTES};
use crate::survey::measure::Measure;

/// Whether it begins as a list of the two numbers of the format and an object.
pub(super) fn looks_like(text: &[u8]) -> bool {
    let Some(rest) = text.trim_ascii_start().strip_prefix(b"[") else { return false };
    let mut fields = rest.splitn(3, |&byte| byte == b',').map(<[u8]>::trim_ascii);
    let (major, minor, object) = (fields.next(), fields.next(), fields.next());
    let is_number = |field: Option<&[u8]>| field.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    major == Some(b"1") && is_number(minor) && object.is_some_and(|rest| rest.starts_with(b"{"))
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let mut tree = ReadTree { listed: Listed::new(), seen: HashSet::new() };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = deserializer.deserialize_seq(Export(&mut tree)).and_then(|()| deserializer.end());
    read.map_err(|error| format!("it is not an export of ncdu: {error}"))?;
    Ok(tree.listed)
}

struct ReadTree {
    listed: Listed,
    /// Device and inode of files with several names.
    seen: HashSet<(u64, u64)>,
}

/// Attributes of a file or directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    name: String,
    asize: u64,
    dsize: u64,
    dev: u64,
    ino: u64,
    hlnkc: bool,
    notreg: bool,
    read_error: bool,
    excluded: Option<String>,
}

/// The whole document.
struct Export<'t>(&'t mut ReadTree);

impl<'de> Visitor<'de> for Export<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of version, attributes and a directory")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let missing = || A::Error::custom("it ends too early");
        let major: u64 = sequence.next_element()?.ok_or_else(missing)?;
        if major != 1 {
            return Err(A::Error::custom("its format is newer"));
        }
        sequence.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        sequence.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        let whole = Entry { tree: self.0, device: 0, depth: 0 };
        sequence.next_element_seed(whole)?.ok_or_else(missing)?;
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// A file or a directory.
struct Entry<'t> {
    tree: &'t mut ReadTree,
    device: u64,
    depth: u64,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a file, or the list of a directory")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<(), M::Error> {
        let file = Attributes::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        self.tree.file(&file, self.device);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let own: Attributes = sequence.next_element()?.ok_or_else(|| A::Error::custom("a directory is empty"))?;
        let Entry { tree, device, depth } = self;
        let device = if own.dev > 0 { own.dev } else { device };
        let mut entries = 0;
        while sequence.next_element_seed(Entry { tree: &mut *tree, device, depth: depth + 1 })?.is_some() {
            entries += 1;
        }
        tree.directory(&own, entries, depth);
        Ok(())
    }
}

impl ReadTree {
    fn file(&mut self, file: &Attributes, device: u64) {
        let survey = &mut self.listed.survey;
        survey.distributions.of_mut(Measure::NameLength).record(file.name.len() as u64);
        if file.read_error {
            survey.counts.errors += 1;
        } else if file.excluded.is_some() {
            survey.counts.excluded += 1;
        } else if file.notreg {
            survey.counts.special += 1;
        } else if file.hlnkc && !self.seen.insert((if file.dev > 0 { file.dev } else { device }, file.ino)) {
            survey.counts.hard_links_skipped += 1;
        } else {
            let [size_bytes, allocated_bytes] = [file.asize, file.dsize].map(|bytes| bytes.min(MOST_FILE_BYTES));
            self.listed.add(size_bytes, Some(allocated_bytes), Some(file.name.as_bytes()));
        }
    }

    fn directory(&mut self, own: &Attributes, entries: u64, depth: u64) {
        let survey = &mut self.listed.survey;
        survey.counts.directories += 1;
        survey.counts.errors += u64::from(own.read_error);
        survey.other_allocated.directories_bytes += u128::from(own.dsize.min(MOST_FILE_BYTES));
        survey.distributions.of_mut(Measure::DirectorySize).record(own.asize.min(MOST_FILE_BYTES));
        survey.distributions.of_mut(Measure::DirectoryEntries).record(entries);
        survey.distributions.of_mut(Measure::DirectoryDepth).record(depth);
        if depth > 0 {
            survey.distributions.of_mut(Measure::NameLength).record(own.name.len() as u64);
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
             [{"name":"sub","asize":4096,"dsize":4096},
              {"name":"b.txt","asize":10,"dsize":4096,"ino":5,"hlnkc":true,"nlink":2},
              {"name":"big","asize":100000,"dsize":102400,"unknown":[1,{"x":2}]},
              {"name":"empty"}]]]"#;
        assert!(looks_like(text));
        let (survey, _) = read(text).unwrap().survey();
        let counts = &survey.counts;
        assert_eq!((counts.files, counts.directories, counts.special, counts.hard_links_skipped), (3, 2, 1, 1));
        assert_eq!((survey.size_bytes(), survey.allocated_bytes()), (100_010, 106_496));
        assert_eq!(survey.distributions.of(Measure::DirectoryEntries).total(), 3 + 3);
        assert_eq!(survey.distributions.of(Measure::NameLength).count(), 6);
        for wrong in
            [&b"[1"[..], b"[1,0,{}]", b"[2,0,{},[{}]]", b"[1,0,{},[]]", b"[1,0,{},5]", b"[1,0,{},[{\"asize\":-1}]]"]
        {
            assert!(read(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        // Deeper than any stack.
        let deep = [b"[1,0,{},".to_vec(), b"[{},".repeat(100_000)].concat();
        assert!(read(&deep).is_err());
    }
}
