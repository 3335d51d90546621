//! `granulo store stat`: everything known about one object.

use std::ffi::OsString;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::record::{ObjectRecord, device_numbers};
use super::{Ended, StateToRead, key, not_found, or_damage_to, output, shown};
use crate::cli::output::DocumentArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::listing::Owners;
use crate::report::store::{ObjectType, write_status};
use crate::store::{Key, Status, Store};
use crate::units::escape;

/// Print everything known about one object
///
/// Its record is read and verified; the stripes of a large file are not. Allocated is the space of its records and
/// stripes on all devices, copies and parity included.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store stat /srv/s cats/1.jpg\n  granulo store stat /srv/s cats/1.jpg --json | jq .allocated_bytes"
)]
pub(super) struct StatArguments {
    #[command(flatten)]
    at: StateToRead,
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct StatDocument {
    schema: &'static str,
    #[serde(flatten)]
    object: ObjectRecord,
    names: u64,
    target: Option<String>,
    device: Option<(u32, u32)>,
    allocated_bytes: u64,
    ctime_seconds: Option<i64>,
    ctime_nanoseconds: Option<u32>,
    btime_seconds: Option<i64>,
    btime_nanoseconds: Option<u32>,
    atime_seconds: Option<i64>,
    atime_nanoseconds: Option<u32>,
    xattrs: Vec<XattrRecord>,
    /// Offset and length of each run of data; `null` for a file that is not sparse.
    data_runs: Option<Vec<(u64, u64)>>,
    id: u64,
    segment: u64,
    offset: u64,
    record_bytes: u64,
}

#[derive(Serialize)]
struct XattrRecord {
    name: String,
    value: String,
}

impl StatArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let key = key(&self.key)?;
        let store = self.at.open()?;
        or_damage_to(&key, self.stat(&store, &key))
    }

    fn stat(&self, store: &Store, key: &Key) -> Result<Ended> {
        let missing = || {
            if key.is_root() {
                let cause = "the root has no attributes, because no import set them";
                return Error::new(ErrorKind::NotFound, "stat", cause).at(&shown(key));
            }
            not_found(store, key, "stat")
        };
        let status = store.stat(key)?.ok_or_else(missing)?;
        let object_type = ObjectType::of(&status.entry);
        let has_more = object_type == ObjectType::Symlink || object_type.is_device();
        let content = if has_more { store.get(key)? } else { None };
        let device = content.as_deref().filter(|_| object_type.is_device()).and_then(device_numbers);
        let target = content.filter(|_| object_type == ObjectType::Symlink).map(|target| escape(&target));
        emit(&self.document, || document(key, &status, target.clone(), device))?;
        if self.document.json {
            return Ok(Ended::Well);
        }
        let points_to = target.or_else(|| device.map(|(major, minor)| format!("{major}, {minor}")));
        let key = key.to_string();
        output::print(|out| write_status(&key, &status, points_to.as_deref(), &mut Owners::default(), out))
    }
}

fn document(key: &Key, status: &Status, target: Option<String>, device: Option<(u32, u32)>) -> StatDocument {
    let Status { entry, attributes, names, shared, allocated_bytes } = status;
    let xattr = |(name, value): &(Vec<u8>, Vec<u8>)| XattrRecord { name: escape(name), value: escape(value) };
    StatDocument {
        schema: "granulo/store-stat/1",
        object: ObjectRecord::new(key.to_string(), entry, *shared),
        names: *names,
        target,
        device,
        allocated_bytes: *allocated_bytes,
        ctime_seconds: attributes.ctime.map(|time| time.seconds),
        ctime_nanoseconds: attributes.ctime.map(|time| time.nanoseconds),
        btime_seconds: attributes.btime.map(|time| time.seconds),
        btime_nanoseconds: attributes.btime.map(|time| time.nanoseconds),
        atime_seconds: attributes.atime.map(|time| time.seconds),
        atime_nanoseconds: attributes.atime.map(|time| time.nanoseconds),
        xattrs: attributes.xattrs.iter().map(xattr).collect(),
        data_runs: attributes.holes.as_ref().map(|holes| holes.data.clone()),
        id: entry.id,
        segment: entry.location.segment.0,
        offset: entry.location.offset.0,
        record_bytes: entry.location.record_bytes,
    }
}
