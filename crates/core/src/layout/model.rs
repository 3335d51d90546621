//! Models by name: `NAME:option=value,…`, as on the command line.
//!
//! Every layout describes itself with a [`Kind`]. Parsing checks each value against its [`Range`] and fills in
//! defaults, so that a layout is built only from options that are valid one by one; its `build` reports invalid
//! combinations. An error lists what would be valid.

use super::{Layout, block, btrfs, ceph, ext, fat, granulo, hdfs, lustre, minio, ntfs, panfs, s3, xfs, zfs};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{format_size, parse_size};

/// The values of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// A size in bytes.
    Size {
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
        /// Whether it must be a power of two; 0 is one, if it is allowed.
        power_of_two: bool,
    },
    /// A whole number.
    Count {
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
    },
    /// A ratio, at least 1: `1.8` means that 1.8 bytes become one.
    Ratio {
        /// The largest allowed.
        most: f64,
    },
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// An option of a layout.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// The part before the `=`.
    pub name: &'static str,
    /// The default value, as the user would write it.
    pub default: &'static str,
    /// Its values.
    pub range: Range,
    /// Its meaning, in a few words.
    pub meaning: &'static str,
}

/// A layout with a name.
#[derive(Debug)]
pub struct Kind {
    /// The part before the `:`.
    pub name: &'static str,
    /// A description, in a few words.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [Opt],
    /// Builds it from options that are valid one by one; a sentence if they cannot be combined.
    pub build: fn(&Options) -> std::result::Result<Box<dyn Layout>, String>,
}

/// Every layout, in the order of listings.
pub fn kinds() -> &'static [&'static Kind] {
    &[
        &block::BLOCK,
        &ext::EXT2,
        &ext::EXT3,
        &ext::EXT4,
        &xfs::XFS,
        &btrfs::BTRFS,
        &ntfs::NTFS,
        &fat::FAT,
        &fat::EXFAT,
        &panfs::PANFS,
        &zfs::ZFS,
        &ceph::CEPH,
        &lustre::LUSTRE,
        &hdfs::HDFS,
        &minio::MINIO,
        &s3::S3,
        &granulo::GRANULO,
    ]
}

/// The options of one layout, each with a value.
#[derive(Debug)]
pub struct Options {
    kind: &'static Kind,
    values: Vec<String>,
    given: Vec<bool>,
}

impl Options {
    /// Whether the user set it; otherwise it has its default, which a layout may adapt to the other options.
    pub fn is_given(&self, name: &str) -> bool {
        let at = self.kind.options.iter().position(|option| option.name == name);
        at.is_some_and(|at| self.given[at])
    }

    fn text(&self, name: &str) -> &str {
        let at = self.kind.options.iter().position(|option| option.name == name);
        at.map_or("", |at| &self.values[at])
    }

    /// The bytes of a [`Range::Size`].
    pub fn size(&self, name: &str) -> u64 {
        parse_size(self.text(name)).unwrap_or_default()
    }

    /// The number of a [`Range::Count`].
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// The number of a [`Range::Ratio`].
    pub fn ratio(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(1.0)
    }

    /// Whether a [`Range::Switch`] is on.
    pub fn switch(&self, name: &str) -> bool {
        self.text(name) == "on"
    }

    /// The word of a [`Range::Choice`].
    pub fn choice(&self, name: &str) -> &str {
        self.text(name)
    }
}

/// A layout with its name and options.
#[derive(Debug)]
pub struct Model {
    /// As it was written.
    pub name: String,
    /// Its kind.
    pub kind: &'static Kind,
    /// The options from which it was built.
    pub options: Options,
    /// Its arithmetic.
    pub layout: Box<dyn Layout>,
}

impl Model {
    /// Parses `NAME` or `NAME:option=value,…`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], with the names or values that would be valid.
    pub fn parse(text: &str) -> Result<Model> {
        let wrong = |cause: String, advice: String| {
            Err(Error::new(ErrorKind::Usage, "use this layout model", format!("{text}: {cause}")).advise(advice))
        };
        let (name, given) = text.split_once(':').unwrap_or((text, ""));
        let Some(kind) = kinds().iter().find(|kind| kind.name == name) else {
            let names: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
            return wrong(format!("there is no model '{name}'"), format!("the models are {}", names.join(", ")));
        };
        let mut values: Vec<Option<String>> = vec![None; kind.options.len()];
        for pair in given.split(',').filter(|pair| !pair.is_empty()) {
            let Some((option, value)) = pair.split_once('=') else {
                return wrong(format!("'{pair}' is not option=value"), kind.usage());
            };
            let Some(at) = kind.options.iter().position(|known| known.name == option) else {
                return wrong(format!("{name} has no option '{option}'"), kind.usage());
            };
            if values[at].is_some() {
                return wrong(format!("option '{option}' is repeated"), "use each option once".to_owned());
            }
            if let Err(expected) = kind.options[at].range.check(value) {
                return wrong(format!("'{value}' is invalid for {option}"), format!("{option} must be {expected}"));
            }
            values[at] = Some(value.to_owned());
        }
        let given = values.iter().map(Option::is_some).collect();
        let defaults = kind.options.iter().map(|option| option.default.to_owned());
        let values = values.into_iter().zip(defaults).map(|(given, default)| given.unwrap_or(default)).collect();
        let options = Options { kind, values, given };
        match (kind.build)(&options) {
            Ok(layout) => Ok(Model { name: text.to_owned(), kind, options, layout }),
            Err(cause) => wrong(cause, kind.usage()),
        }
    }
}

impl Kind {
    /// Its options with their defaults, as the user would write them.
    pub fn usage(&self) -> String {
        if self.options.is_empty() {
            return format!("{} has no options", self.name);
        }
        let pairs: Vec<String> =
            self.options.iter().map(|option| format!("{}={}", option.name, option.default)).collect();
        format!("options of {}, with their defaults: {}", self.name, pairs.join(","))
    }
}

impl Range {
    /// Describes the values in words.
    pub fn describe(&self) -> String {
        match *self {
            Range::Size { least, most, power_of_two } => {
                let what = if power_of_two { "a power of two" } else { "a size" };
                format!("{what} from {} to {}", format_size(least.into()), format_size(most.into()))
            }
            Range::Count { least, most } => format!("a whole number from {least} to {most}"),
            Range::Ratio { most } => format!("a ratio from 1 to {most}"),
            Range::Switch => "on or off".to_owned(),
            Range::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// # Errors
    /// The error says what would be valid.
    fn check(&self, value: &str) -> std::result::Result<(), String> {
        let right = match *self {
            Range::Size { least, most, power_of_two } => parse_size(value).is_ok_and(|bytes| {
                (least..=most).contains(&bytes) && (!power_of_two || bytes == 0 || bytes.is_power_of_two())
            }),
            Range::Count { least, most } => value.parse().is_ok_and(|count: u64| (least..=most).contains(&count)),
            Range::Ratio { most } => value.parse().is_ok_and(|ratio: f64| (1.0..=most).contains(&ratio)),
            Range::Switch => ["on", "off"].contains(&value),
            Range::Choice(words) => words.contains(&value),
        };
        if right { Ok(()) } else { Err(self.describe()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_model_says_what_would_be_right() {
        for (text, cause, advice) in [
            ("zf", "there is no model 'zf'", "the models are block, ext2"),
            ("block:siz=1", "block has no option 'siz'", "size=4096"),
            ("block:size", "'size' is not option=value", "size=4096"),
            ("block:size=3x", "'3x' is invalid for size", "size must be a size from 1 B"),
            ("block:size=1,size=2", "is repeated", "once"),
        ] {
            let error = Model::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            let said = error.to_string();
            assert!(said.contains(cause) && said.contains(advice), "{said}");
        }
        assert!(Model::parse("block:").is_ok());
    }

    #[test]
    fn every_default_is_a_value_and_every_model_can_be_built_with_them() {
        for kind in kinds() {
            for option in kind.options {
                assert_eq!(option.range.check(option.default), Ok(()), "{}:{}", kind.name, option.name);
            }
            Model::parse(kind.name).unwrap();
        }
    }
}
