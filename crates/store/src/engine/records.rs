//! Reading one record, verified, from the first valid copy; and its content.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use super::Engine;
use crate::devices::LOST_ADVICE;
use crate::error::{Error, ErrorKind, Result, os_message};
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Location};
use crate::format::ids::{DeviceNumber, Epoch, SegmentId};
use crate::format::names::segment_path;
use crate::format::record::{Head, Record};

/// Bytes read of a record whose head is wanted.
const HEAD_READ_BYTES: u64 = 4096;

/// Why no copy of a record is valid.
struct CopyFaults {
    /// In words.
    what: String,
    /// Whether a device that may have another copy is missing.
    is_away: bool,
}

impl Engine {
    /// Reads a record from the first valid copy into `buffer`; `is_right` checks what was read.
    pub(crate) fn read_record<'b>(
        &self,
        location: Location,
        buffer: &'b mut Vec<u8>,
        is_right: impl Fn(&Record<'_>) -> bool,
    ) -> Result<Record<'b>> {
        let mut faults = Vec::new();
        let mut is_intact = false;
        let mut tried = 0;
        while let Some((device, segment)) = self.copy(location.segment, tried) {
            buffer.clear();
            let seal = self.seed(segment).at(location.offset);
            match self.read_copy(device, segment, location.offset, location.record_bytes as usize, buffer) {
                Ok(_) => is_intact = Record::decode(buffer, seal).is_some_and(|record| is_right(&record)),
                Err(error) => faults.push((device, Some(error))),
            }
            if is_intact {
                break;
            }
            if faults.last().is_none_or(|(faulty, _)| *faulty != device) {
                faults.push((device, None));
            }
            tried += 1;
        }
        // Verified above; here it is only located again.
        match Record::parse(buffer).filter(|_| is_intact) {
            Some(record) => Ok(record),
            None => {
                let CopyFaults { what, is_away } = self.describe_faults(location, faults);
                let cause = format!("the record at {} cannot be verified: {what}", location.offset);
                Err(Error::new(ErrorKind::Corrupt, "read", cause).at(&self.place_of(location)).advise(match is_away {
                    true => "bring the missing devices back: granulo store status".to_owned(),
                    false => format!("run granulo store check --deep; if it is lost, {LOST_ADVICE}"),
                }))
            }
        }
    }

    /// Why no copy of a record is valid. A fault without an error: it was read, and is damaged.
    fn describe_faults(&self, location: Location, faults: Vec<(DeviceNumber, Option<io::Error>)>) -> CopyFaults {
        let slots = self.devices.slots();
        let holders =
            self.view().state.segments.get(&location.segment).map_or_else(Vec::new, |row| row.devices.clone());
        let is_readable = |device: DeviceNumber| slots.get(device.index()).is_some_and(|slot| slot.is_readable());
        let is_away = holders.iter().any(|&device| !is_readable(device) && !self.devices.has_left(device));
        let of_copies = faults.into_iter().filter_map(|(device, error)| match error {
            _ if holders.contains(&device) && !is_readable(device) => {
                Some(format!("device {device} is not in service"))
            }
            None => Some(format!("its bytes on device {device} are damaged")),
            // A device that is not known to have a copy.
            Some(error) if error.kind() == io::ErrorKind::NotFound && !holders.contains(&device) => None,
            Some(error) => Some(format!("device {device}: {}", os_message(&error))),
        });
        let of_copies: Vec<String> = of_copies.collect();
        let what = match of_copies.is_empty() {
            true => "no device in service has its segment".to_owned(),
            false => of_copies.join("; "),
        };
        CopyFaults { what, is_away }
    }

    /// Reads a record that must have a given key (or shared object) and id.
    pub(crate) fn read_entry<'b>(&self, entry: &Entry, buffer: &'b mut Vec<u8>) -> Result<Record<'b>> {
        self.read_record(entry.location, buffer, |record| is_of(&record.head, entry))
    }

    /// Reads the head of a record, as [`read_entry`](Self::read_entry), without its content if possible.
    pub(crate) fn read_head<'b>(&self, entry: &Entry, buffer: &'b mut Vec<u8>) -> Result<Head<'b>> {
        let location = entry.location;
        let mut is_intact = false;
        if let Some((device, segment)) = self.copy(location.segment, 0) {
            let (seal, length) = (self.seed(segment).at(location.offset), location.record_bytes.min(HEAD_READ_BYTES));
            buffer.clear();
            is_intact = self.read_copy(device, segment, location.offset, length as usize, buffer).is_ok()
                && Head::decode(buffer, seal).is_some_and(|head| is_of(&head, entry));
        }
        if !is_intact {
            // Another copy, or a longer head, or the reason why there is none.
            self.read_entry(entry, buffer)?;
        }
        Ok(Head::parse(buffer).expect("a verified head can be parsed"))
    }

    /// The descriptor of a large object.
    pub(crate) fn descriptor(&self, entry: &Entry) -> Result<Descriptor> {
        let mut buffer = Vec::new();
        let record = self.read_entry(entry, &mut buffer)?;
        self.decode_descriptor(entry.location, record.content)
    }

    /// Reads units of a large object, verified, and reconstructed where that is necessary.
    pub(crate) fn read_units(&self, descriptor: &Descriptor, range: Range<u64>, onto: &mut Vec<u8>) -> Result<()> {
        self.extents.read_range(descriptor, range, onto).map(drop)
    }

    pub(crate) fn decode_descriptor(&self, location: Location, content: &[u8]) -> Result<Descriptor> {
        Descriptor::decode(content, &self.place_of(location))
    }

    /// The first copy of a segment, for messages.
    fn place_of(&self, location: Location) -> PathBuf {
        let (device, segment) =
            self.copy(location.segment, 0).unwrap_or((DeviceNumber(0), SegmentId::new(location.segment, Epoch(0))));
        self.devices.place(device, &segment_path(segment))
    }
}

/// Whether a record is that of an entry.
fn is_of(head: &Head<'_>, entry: &Entry) -> bool {
    (head.id, head.number, head.kind) == (entry.id, entry.number, entry.kind)
}

/// The attributes of a valid record.
pub(crate) fn decode_attributes(stored: &[u8]) -> Result<Attributes> {
    Attributes::decode(stored).ok_or_else(unknown_attributes)
}

/// The error for invalid attributes in a valid record.
pub(crate) fn unknown_attributes() -> Error {
    Error::new(ErrorKind::NewerVersion, "read the attributes", "they have a field that is unknown to this granulo")
}

/// Decompresses a frame whose content must have `size_bytes`.
pub(crate) fn decompress(frame: &[u8], size_bytes: u64) -> Result<Vec<u8>> {
    let wrong = |cause: String| Error::new(ErrorKind::Corrupt, "decompress", cause);
    // Before memory is allocated for it.
    if zstd::zstd_safe::get_frame_content_size(frame).ok().flatten() != Some(size_bytes) {
        return Err(wrong("the content does not have the length in the index".into()));
    }
    let content = zstd::bulk::decompress(frame, size_bytes as usize).map_err(|error| wrong(error.to_string()))?;
    match content.len() as u64 == size_bytes {
        true => Ok(content),
        false => Err(wrong("the content does not have the length in the index".into())),
    }
}
