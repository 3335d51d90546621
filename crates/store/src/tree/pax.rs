//! The content of a pax extended header, read in one pass over its records; only what a store needs is kept.
//!
//! Invariants: the work is proportional to the bytes of the header, whatever the names of its records; memory for a
//! header is bounded by the limits below and in `archive`; of a global header only numbers and times are kept, so it
//! adds no cost to later members.
//!
//! Limits, and their sources: an extended attribute has a name of up to 255 bytes and a value of up to 65,536, and all
//! names of a file need up to 65,536, each with a zero byte: Linux allows no more (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`,
//! `XATTR_LIST_MAX`). Attributes in a global header would be repeated for each member; bsdtar ignores them and GNU tar
//! writes none by default, so they are omitted too. Omissions are counted.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::header::{Decoded, decimal, extended, time, xattr_name};
use super::posix::{LARGEST_XATTR_BYTES, MOST_RUNS};
use crate::format::attributes::Xattrs;
use crate::format::entry::Time;

/// Longest name of an extended attribute on Linux.
const LONGEST_XATTR_NAME_BYTES: usize = 255;
/// Most bytes of the names of all extended attributes of a file on Linux, each with a zero byte.
const LONGEST_XATTR_LIST_BYTES: usize = 1 << 16;

/// A value that a header may set, or reset with an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Said<T> {
    /// Not set.
    #[default]
    Nothing,
    /// The value of an earlier global header does not apply.
    TakenBack,
    Value(T),
}

impl<T> Said<T> {
    /// The effective value: the member's own, or else the global one.
    pub(super) fn or(self, global: Said<T>) -> Option<T> {
        match (self, global) {
            (Said::Value(value), _) | (Said::Nothing, Said::Value(value)) => Some(value),
            _ => None,
        }
    }

    fn of(value: &[u8], decode: impl FnOnce(&[u8]) -> Decoded<T>) -> Decoded<Said<T>> {
        if value.is_empty() { Ok(Said::TakenBack) } else { decode(value).map(Said::Value) }
    }
}

/// What a header may set for one member, or for all that follow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Common {
    pub uid: Said<u32>,
    pub gid: Said<u32>,
    pub mtime: Said<Time>,
    pub atime: Said<Time>,
}

impl Common {
    /// Takes in a record, if it is one of these.
    fn take(&mut self, keyword: &[u8], value: &[u8]) -> Decoded<()> {
        match keyword {
            b"uid" => self.uid = Said::of(value, owner)?,
            b"gid" => self.gid = Said::of(value, owner)?,
            b"mtime" => self.mtime = Said::of(value, time)?,
            b"atime" => self.atime = Said::of(value, time)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes in a global header; returns how many attributes it has, which are omitted.
    pub(super) fn take_global(&mut self, bytes: &[u8], looked_at: &mut u64) -> Decoded<u64> {
        let mut left_out = 0;
        for record in extended(bytes) {
            let (keyword, value) = record?;
            *looked_at += 1;
            self.take(keyword, value)?;
            let is_attribute = keyword.starts_with(b"SCHILY.xattr.") || is_foreign(keyword) || acl(keyword).is_some();
            left_out += u64::from(is_attribute);
        }
        Ok(left_out)
    }
}

/// The extended header of one member.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub name: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size_bytes: Option<u64>,
    pub common: Common,
    pub sparse: Option<PaxSparse>,
    /// Sorted by name, without duplicates.
    pub xattrs: Xattrs,
    /// Attributes in an unknown form, or beyond the limits of Linux.
    pub xattrs_left_out: u64,
}

impl Extended {
    /// Reads the records of a header. The last one of a keyword counts.
    pub(super) fn read(bytes: &[u8], looked_at: &mut u64) -> Decoded<Extended> {
        let mut read = Extended::default();
        let mut sparse = SparseRecords::default();
        let (mut path, mut sparse_name) = (None, None);
        let mut acls: Vec<&[u8]> = Vec::new();
        let (mut foreign, mut too_large, mut has_known, mut list_bytes) = (0, 0, false, 0);
        for record in extended(bytes) {
            let (keyword, value) = record?;
            *looked_at += 1;
            match keyword {
                b"path" => path = Some(value),
                b"GNU.sparse.name" => sparse_name = Some(value),
                b"linkpath" => read.link = Some(value.to_vec()),
                b"size" => read.size_bytes = Some(decimal(value)?),
                _ if is_foreign(keyword) => foreign += 1,
                _ => acls.extend(acl(keyword).filter(|acl| !acls.contains(acl))),
            }
            if let Some(name) = keyword.strip_prefix(b"SCHILY.xattr.") {
                has_known = true;
                let name = xattr_name(name);
                list_bytes += name.len() + 1;
                if name.is_empty()
                    || name.len() > LONGEST_XATTR_NAME_BYTES
                    || value.len() > LARGEST_XATTR_BYTES
                    || list_bytes > LONGEST_XATTR_LIST_BYTES
                {
                    too_large += 1;
                } else {
                    read.xattrs.push((name, value.to_vec()));
                }
            } else if let Some(keyword) = keyword.strip_prefix(b"GNU.sparse.") {
                sparse.take(keyword, value)?;
            } else {
                read.common.take(keyword, value)?;
            }
        }
        read.name = sparse_name.or(path).map(<[u8]>::to_vec);
        read.sparse = sparse.finish();
        // The last one of a name counts; the sort is stable.
        read.xattrs.reverse();
        read.xattrs.sort_by(|one, other| one.0.cmp(&other.0));
        read.xattrs.dedup_by(|later, earlier| later.0 == earlier.0);
        // bsdtar writes each attribute in both forms, but ACLs in one of their own.
        let has = |acl: &[u8]| read.xattrs.iter().any(|xattr| xattr.0[..] == *acl);
        let acls = acls.into_iter().filter(|acl| !has(acl)).count() as u64;
        read.xattrs_left_out = too_large + acls + if has_known { 0 } else { foreign };
        Ok(read)
    }
}

/// The extended attribute that an access control list in text stands for.
fn acl(keyword: &[u8]) -> Option<&'static [u8]> {
    match keyword {
        b"SCHILY.acl.access" => Some(b"system.posix_acl_access"),
        b"SCHILY.acl.default" => Some(b"system.posix_acl_default"),
        _ => None,
    }
}

/// Whether a record is an attribute in an unknown form.
fn is_foreign(keyword: &[u8]) -> bool {
    keyword.starts_with(b"LIBARCHIVE.xattr.") || keyword == b"SCHILY.acl.ace"
}

fn owner(value: &[u8]) -> Decoded<u32> {
    u32::try_from(decimal(value)?).map_err(|_| "an owner's number is out of range")
}

/// The map of a sparse file in one of the pax formats (0.0, 0.1 and 1.0), as far as it is in the extended header.
#[derive(Debug)]
pub(super) struct PaxSparse {
    pub runs: Vec<(u64, u64)>,
    pub size_bytes: u64,
    /// The rest is at the beginning of the data.
    pub is_in_data: bool,
}

#[derive(Default)]
struct SparseRecords {
    runs: Vec<(u64, u64)>,
    size_bytes: Option<u64>,
    offset: Option<u64>,
    has_map: bool,
    is_in_data: bool,
}

impl SparseRecords {
    fn take(&mut self, keyword: &[u8], value: &[u8]) -> Decoded<()> {
        match keyword {
            b"size" | b"realsize" => self.size_bytes = Some(decimal(value)?),
            b"major" => self.is_in_data = decimal(value)? == 1,
            b"offset" => self.offset = Some(decimal(value)?),
            b"numbytes" => {
                let offset = self.offset.take().ok_or("the map of a sparse file is malformed")?;
                self.push(offset, decimal(value)?)?;
                self.has_map = true;
            }
            b"map" => {
                self.runs.clear();
                let mut numbers = value.split(|&byte| byte == b',').map(decimal);
                while let Some(offset) = numbers.next().filter(|_| !value.is_empty()) {
                    let length = numbers.next().ok_or("the map of a sparse file is malformed")?;
                    self.push(offset?, length?)?;
                }
                self.has_map = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, offset: u64, length: u64) -> Decoded<()> {
        if self.runs.len() >= 2 * MOST_RUNS {
            return Err("the map of a sparse file is too long");
        }
        self.runs.push((offset, length));
        Ok(())
    }

    fn finish(self) -> Option<PaxSparse> {
        let SparseRecords { runs, size_bytes, has_map, is_in_data, .. } = self;
        let size_bytes = size_bytes.filter(|_| has_map || is_in_data)?;
        Some(PaxSparse { runs, size_bytes, is_in_data })
    }
}
