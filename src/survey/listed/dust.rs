//! The JSON of dust (`dust -j`, <https://github.com/bootandy/dust>): `{"size":"12K","name":"…","children":[…]}`, as
//! `src/display_node.rs` there writes it.
//!
//! Sizes are texts: `4.0K` or `4.0Ki` below ten of a unit, `12K` above, cut to whole units; `123B`; with `-o b` exact,
//! with `-o si` in powers of 1,000 (which looks the same as 1,024 in versions that write `K` for both: that is read as
//! 1,024). They are allocated bytes, or sizes with `-s`, and nothing says which. Nor does it say what is a file: an
//! entry without entries is read as one, which an empty directory is, too. So the result is as coarse as that, with
//! warnings.

use serde::Deserialize;

use super::rounded::{Rounded, factor, rounded};
use super::{Listed, MOST_FILES};
use crate::units::{escape, format_share};

/// The part of all bytes from which entries are said to be missing.
const MISSING_SHARE: f64 = 0.02;
/// What a directory may have beyond its entries, for itself.
const OWN_BYTES: f64 = (1 << 20) as f64;

#[derive(Deserialize)]
struct Node {
    size: String,
    #[serde(default)]
    name: String,
    children: Vec<Node>,
}

/// Whether it begins as an object with `size` first, of a text.
pub(super) fn looks_like(text: &[u8]) -> bool {
    let mut rest = text;
    [&b"{"[..], b"\"size\"", b":", b"\""].into_iter().all(|token| {
        let after = rest.trim_ascii_start().strip_prefix(token);
        after.into_iter().for_each(|after| rest = after);
        after.is_some()
    })
}

pub(super) fn read(text: &[u8]) -> Result<Listed, String> {
    let root: Node = serde_json::from_slice(text).map_err(|error| format!("it is not the JSON of dust: {error}"))?;
    let mut reader = Reader { listed: Listed::new(), rounded: 0, missing_bytes: 0.0 };
    let all = reader.node(&root)?;
    let Reader { mut listed, rounded, missing_bytes } = reader;
    listed.warnings.push(
        "dust does not say what is a file, nor whether its sizes are allocated: entries without entries are taken as \
         files, and their sizes as those of the files (which dust -s writes)"
            .to_owned(),
    );
    if rounded > 0 {
        listed.warnings.push("dust rounded its sizes to two digits: write them exactly with -o b".to_owned());
    }
    let share = missing_bytes / (all.value as f64).max(1.0);
    if share > MISSING_SHARE {
        let share = format_share(share);
        listed.warnings.push(format!(
            "entries with {share} of the bytes are missing, for dust shows only the largest: add -n 1000000000"
        ));
    }
    Ok(listed)
}

struct Reader {
    listed: Listed,
    /// Files with a size that is not exact.
    rounded: u64,
    /// What directories have beyond their entries and for themselves.
    missing_bytes: f64,
}

impl Reader {
    /// Counts a node and all below it, and returns its size.
    fn node(&mut self, node: &Node) -> Result<Rounded, String> {
        let wrong = || {
            let shown: String = node.size.chars().take(40).collect();
            format!(
                "'{}' is no size of dust (with -f it counts files, which is no population)",
                escape(shown.as_bytes())
            )
        };
        let size = size(&node.size).ok_or_else(wrong)?;
        if !node.children.is_empty() {
            self.listed.survey.counts.directories += 1;
            let mut below = 0.0;
            for child in &node.children {
                let child = self.node(child)?;
                below += child.value as f64 + (child.step - 1) as f64;
            }
            self.missing_bytes += (size.value as f64 - below - OWN_BYTES).max(0.0);
            return Ok(size);
        }
        if self.listed.survey.counts.files >= MOST_FILES {
            return Err("too many files".to_owned());
        }
        if size.step == 1 {
            self.listed.add(size.value, None, Some(node.name.as_bytes()));
        } else {
            self.rounded += 1;
            self.listed.add_range(size.value, size.value + (size.step - 1), 1, None)?;
        }
        Ok(size)
    }
}

fn size(text: &str) -> Option<Rounded> {
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(end);
    let (letter, thousand) = match unit {
        "B" => ("", 1024),
        _ => match unit.strip_suffix("iB").or(unit.strip_suffix('i')) {
            Some(letter) => (letter, 1024),
            None => match unit.strip_suffix('B') {
                Some(letter) => (letter, 1000),
                None => (unit, 1024),
            },
        },
    };
    (!letter.is_empty() || unit == "B").then_some(())?;
    rounded(digits, factor(letter, thousand)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::measure::Measure;

    #[test]
    fn exact_sizes_are_files_of_these_sizes() {
        let text = br#"{"size":"5000B","name":"/t","children":[
            {"size":"4900B","name":"/t/a","children":[{"size":"4800B","name":"/t/a/x.log","children":[]}]},
            {"size":"0B","name":"/t/empty","children":[]}]}"#;
        assert!(looks_like(text));
        let (survey, warnings) = read(text).unwrap().survey();
        assert_eq!((survey.counts.files, survey.counts.directories, survey.size_bytes()), (2, 2, 4800));
        assert_eq!(survey.origin.resolution, crate::survey::Resolution::Exact);
        // Of the 5,000 bytes the directories have 200 for themselves.
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn rounded_sizes_are_ranges_and_what_is_missing_is_said() {
        let text = br#"{"size":"1.0G","name":"/t","children":[{"size":"12K","name":"/t/a","children":[]},
            {"size":"4.0Ki","name":"/t/b","children":[]},{"size":"7B","name":"/t/c","children":[]}]}"#;
        let (survey, warnings) = read(text).unwrap().survey();
        let sizes = survey.distributions.of(Measure::FileSize);
        assert_eq!((survey.counts.files, sizes.up_to(7).count), (3, 1));
        assert_eq!((sizes.up_to((12 << 10) - 1).count, sizes.up_to((13 << 10) - 1).count), (2, 3));
        assert_eq!(survey.origin.resolution, crate::survey::Resolution::Buckets);
        assert!(warnings.iter().any(|warning| warning.contains("-o b")), "{warnings:?}");
        assert!(warnings.iter().any(|warning| warning.contains("missing")), "{warnings:?}");
        for wrong in ["7", "", "K", "1.2.3K", "1Q", "-1B", "9e9B"] {
            let text = format!(r#"{{"size":"{wrong}","name":"","children":[]}}"#);
            assert!(read(text.as_bytes()).is_err(), "{wrong}");
        }
        assert!(read(br#"{"size":"7B","name":"x"}"#).is_err());
        assert!(!looks_like(br#"{"schema":"x"}"#) && !looks_like(b"{\"size\":7}"));
        let deep = [r#"{"size":"1B","children":["#.repeat(10_000), "]}".repeat(10_000)].concat();
        assert!(read(deep.as_bytes()).is_err());
    }
}
