//! Models by name: `NAME:option=value,…`, as on the command line.
//!
//! Parsing checks each value against its [`Range`](super::Range) and fills in defaults, so that a layout is built only
//! from options that are valid one by one; its `build` reports invalid combinations. An error lists what would be
//! valid.

use super::kind::{Kind, Options};
use super::{Layout, block, btrfs, ceph, ext, fat, granulo, hdfs, lustre, minio, ntfs, panfs, s3, xfs, zfs};
use crate::error::{Error, ErrorKind, Result};

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

/// A layout with its name and options.
#[derive(Debug)]
pub struct Model {
    /// As it was written, with its options.
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
        let options = Options::new(kind, values);
        match (kind.build)(&options) {
            Ok(layout) => Ok(Model { name: text.to_owned(), kind, options, layout }),
            Err(cause) => wrong(cause, kind.usage()),
        }
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
