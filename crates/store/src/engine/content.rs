//! The content of an object as it is stored, and the record and the entry that are made of it.
//!
//! Batches and open files write records; what both need for that is here.

use crate::error::Result;
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Location, Time};
use crate::format::geometry::Compression;
use crate::format::ids::ObjectNumber;
use crate::format::record::NewRecord;
use crate::layout::granulo::Alignment;

/// Shorter content is not compressed.
const LEAST_COMPRESSED_BYTES: usize = 64;

/// An object as in its record.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) attributes: Attributes,
    pub(crate) size_bytes: u64,
    pub(crate) content: StoredContent,
}

/// The stored content of an object, without its holes.
#[derive(Debug)]
pub(crate) enum StoredContent {
    Whole(Vec<u8>),
    Striped(Descriptor),
}

impl Base {
    /// Runs of data: offset in the file and length.
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        match &self.attributes.holes {
            Some(holes) => holes.data.clone(),
            None if self.size_bytes == 0 => Vec::new(),
            None => vec![(0, self.size_bytes)],
        }
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.content {
            StoredContent::Whole(content) => content.len() as u64,
            StoredContent::Striped(descriptor) => descriptor.stored_bytes,
        }
    }

    /// As which kind of record it is stored.
    fn kind(&self) -> Kind {
        match self.content {
            StoredContent::Whole(_) => Kind::File,
            StoredContent::Striped(_) => Kind::Large,
        }
    }

    /// The descriptor of a large object.
    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        match &self.content {
            StoredContent::Whole(_) => None,
            StoredContent::Striped(descriptor) => Some(descriptor),
        }
    }

    /// Its entry in the index with these attributes, all of them set; without id, number and location.
    pub(crate) fn entry(&self, attributes: &Attributes) -> Entry {
        Entry { size_bytes: self.size_bytes, ..entry_of(self.kind(), attributes, Time::default()) }
    }

    /// Appends its record with these attributes, all of them set. It has no id and no numbers yet.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for attributes that cannot be stored.
    pub(crate) fn encode(
        &self,
        attributes: &Attributes,
        name: Option<&[u8]>,
        alignment: Alignment,
        compression: Compression,
        onto: &mut Vec<u8>,
    ) -> Result<()> {
        let mut stored = Vec::new();
        attributes.encode(Time::default(), &mut stored)?;
        let new = NewRecord { name, attributes: &stored, ..NewRecord::of(self.kind()) };
        match &self.content {
            StoredContent::Striped(descriptor) => {
                NewRecord { content: &descriptor.encode(), ..new }.encode(alignment, onto)
            }
            StoredContent::Whole(content) => match compressed(content, compression, &mut Vec::new()) {
                Some(content) => NewRecord { is_zstd: true, content, ..new }.encode(alignment, onto),
                None => NewRecord { content, ..new }.encode(alignment, onto),
            },
        }
    }
}

/// An entry with the attributes for the index, of a record written at `now`; its location comes with the commit.
pub(crate) fn entry_of(kind: Kind, attributes: &Attributes, now: Time) -> Entry {
    Entry {
        kind,
        id: 0,
        number: ObjectNumber::NONE,
        attributes_id: 0,
        is_plain: kind.plain_code().is_some() && attributes.are_shown_by_an_entry(now),
        location: Location::NONE,
        size_bytes: 0,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: attributes.mtime,
        ctime: attributes.changed(now),
    }
}

/// Content as a frame, which is made in `frame`, if compression is on and makes it shorter.
pub(crate) fn compressed<'f>(content: &[u8], compression: Compression, frame: &'f mut Vec<u8>) -> Option<&'f [u8]> {
    let Compression::Zstd(level) = compression else { return None };
    let most = content.len().checked_sub(1).filter(|_| content.len() >= LEAST_COMPRESSED_BYTES)?;
    frame.resize(most, 0);
    let length = zstd::bulk::compress_to_buffer(content, &mut frame[..], level.into()).ok()?;
    Some(&frame[..length])
}
