//! Reading what a listing returned, by the places of its records: nothing is looked up again.
//!
//! A place and an id suffice to find and to verify a record, so a program that keeps those of millions of files (a data
//! set that is read in a new order each time) needs no keys to read them. A record that is no longer where it was, as
//! compaction moved or dropped it, is an error, never another content; whoever has the key looks it up again.

use super::gather::{Joining, Wanted, sort};
use super::load::{ContentSource, content_of};
use super::read::{fill_holes, refuse_more_than_whole};
use crate::Store;
use crate::devices::device::make_landing;
use crate::engine::Engine;
use crate::engine::records::decode_attributes;
use crate::error::Result;
use crate::format::entry::{Entry, Location};
use crate::format::record::Record;

/// How neighbours are joined: a set that is read in another order than its own wants few of the bytes in between.
const JOINING: Joining = Joining { gap_bytes: 8 << 10, longest_bytes: 1 << 20 };
/// Most records that are sorted together.
const MOST_SORTED: usize = 1 << 20;

/// Where the record of a file is, and which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    /// Its location.
    pub location: Location,
    /// Its id ([`Entry::id`]): a record with another one is not it.
    pub id: u64,
}

impl From<&Entry> for RecordPlace {
    fn from(entry: &Entry) -> RecordPlace {
        RecordPlace { location: entry.location, id: entry.id }
    }
}

/// Callback with the index of a place and the content of its file.
type Take<'t> = &'t (dyn Fn(usize, Result<&[u8]>) + Sync);

impl Engine {
    fn read_places(&self, places: &[RecordPlace], first: usize, depth: usize, take: Take<'_>) {
        let of_place = |(at, place): (usize, &RecordPlace)| {
            let RecordPlace { location, id } = *place;
            Wanted { location, id, tag: at as u32 }
        };
        let mut wanted: Vec<Wanted> = places.iter().enumerate().map(of_place).collect();
        sort(&mut wanted);
        self.read_wanted(&wanted, JOINING, depth, &|at, record| {
            let (wanted, mut aside, mut spread) = (&wanted[at], Vec::new(), Vec::new());
            let content = record.and_then(|record| self.file_content(wanted, &record, &mut aside, &mut spread));
            take(first + wanted.tag as usize, content);
        });
    }

    /// The content of a valid record of a file, holes filled: in place, or in one of the buffers.
    fn file_content<'b>(
        &self,
        wanted: &Wanted,
        record: &Record<'b>,
        aside: &'b mut Vec<u8>,
        spread: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let holes = decode_attributes(record.head.attributes)?.holes;
        if let Some(holes) = &holes {
            refuse_more_than_whole(holes.size_bytes)?;
        }
        let stored: &'b [u8] = match content_of(self, wanted, record)? {
            ContentSource::InPlace => record.content,
            ContentSource::Decompressed(content) => {
                *aside = content;
                aside
            }
            ContentSource::Large(descriptor) => {
                refuse_more_than_whole(descriptor.stored_bytes)?;
                let begin = make_landing(aside, descriptor.stored_bytes as usize, 0);
                self.read_units(&descriptor, 0..descriptor.stored_bytes, aside)?;
                &aside[begin..]
            }
        };
        match &holes {
            Some(holes) => {
                fill_holes(holes, stored, spread)?;
                Ok(spread)
            }
            None => Ok(stored),
        }
    }
}

impl Store {
    /// Reads and verifies many files by the places that a listing returned, in disk order: up to `depth` threads call
    /// `take` concurrently, once for each place, with its index in `places` and the content, holes filled. In no
    /// particular order. Places are valid as long as a [snapshot](Store::snapshot) of their state is kept, and mostly
    /// longer.
    ///
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use granulo_store::{Attributes, Key, Kind, Plan, RecordPlace, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// for name in ["a", "b", "c"] {
    ///     store.put(&Key::parse(name)?, &attributes, name.as_bytes())?;
    /// }
    /// let places: Vec<RecordPlace> =
    ///     store.list(&Key::root())?.map(|listed| listed.map(|listed| (&listed.entry).into())).collect::<Result<_, _>>()?;
    /// // It may be overwritten meanwhile: the place is that of what was listed.
    /// store.put(&Key::parse("b")?, &attributes, b"another")?;
    /// let contents = Mutex::new(vec![Vec::new(); places.len()]);
    /// store.read_places(&places, 8, |at, content| contents.lock().unwrap()[at] = content.unwrap().to_vec());
    /// assert_eq!(contents.into_inner()?, [b"a", b"b", b"c"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A file of more than 1 GiB is an error ([`Usage`](crate::error::ErrorKind::Usage)), and so is a record that is no
    /// longer there or damaged on every copy ([`Corrupt`](crate::error::ErrorKind::Corrupt)).
    pub fn read_places(&self, places: &[RecordPlace], depth: usize, take: impl Fn(usize, Result<&[u8]>) + Sync) {
        for (number, places) in places.chunks(MOST_SORTED).enumerate() {
            self.engine().read_places(places, number * MOST_SORTED, depth.max(1), &take);
        }
    }
}
