//! Many objects in one call: all are looked up, then read in disk order, neighbours together, by as many threads as the
//! devices take concurrent requests. A thread reads by itself what it cannot read this way: large objects, moved
//! records, records that are damaged on one copy.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::gather::{Joining, Wanted, sort};
use super::read::{Buffer, LookedUp, Object, fill_holes, refuse_giant};
use crate::Store;
use crate::devices::threads;
use crate::engine::Engine;
use crate::engine::records::decompress;
use crate::error::Result;
use crate::format::attributes::Holes;
use crate::format::entry::Kind;
use crate::format::key::Key;
use crate::format::record::Record;

/// How neighbours are joined: these are few among many, so the bytes between them are mostly unwanted.
const JOINING: Joining = Joining { gap_bytes: 8 << 10, longest_bytes: 1 << 20 };
/// Keys that are looked up before the first of them is read.
const LOOKED_UP: usize = 1 << 16;

/// Callback with the index of a key and its object.
pub(crate) type Take<'t> = &'t (dyn Fn(usize, Result<Option<Object<'_>>>) + Sync);

impl Engine {
    fn get_many(&self, keys: &[Key], first: usize, depth: usize, take: Take<'_>) {
        let mut found: Vec<Option<LookedUp>> = Vec::with_capacity(keys.len());
        let mut wanted = Vec::with_capacity(keys.len());
        let mut alone = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            found.push(None);
            match self.find(key.stored()) {
                Ok(Some(entry)) if entry.entry.kind != Kind::Large => {
                    wanted.push(Wanted::new(&entry.entry, at as u32));
                    found[at] = Some(entry);
                }
                // A missing key may have been written a moment ago.
                Ok(_) => alone.push(at),
                Err(error) => take(first + at, Err(error)),
            }
        }
        sort(&mut wanted);
        self.read_wanted(&wanted, JOINING, depth, &|place, record| {
            let at = wanted[place].tag as usize;
            let (key, mut spread) = (&keys[at], Vec::new());
            match (record, found[at]) {
                (Ok(record), Some(found)) => match self.object_of(key, found, &record, &mut spread) {
                    Ok(object) => take(first + at, Ok(Some(object))),
                    Err(error) => take(first + at, Err(error)),
                },
                _ => take(first + at, self.read(key, &mut Buffer::default())),
            }
        });
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = Buffer::default();
            while let Some(&at) = alone.get(next.fetch_add(1, Ordering::Relaxed)) {
                take(first + at, self.read(&keys[at], &mut buffer));
            }
        };
        threads::share(depth.min(alone.len()), work);
    }

    /// The object of a valid record; its content in place, or, decompressed or with its holes filled, in `buffer`.
    fn object_of<'b>(
        &self,
        key: &Key,
        found: LookedUp,
        record: &Record<'b>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Object<'b>> {
        let LookedUp { entry, .. } = found;
        refuse_giant(key, &entry)?;
        let attributes = self.attributes_of(&entry, &record.head)?;
        let mut content = record.content;
        let mut unpacked = Vec::new();
        if record.head.is_zstd {
            unpacked = decompress(content, attributes.holes.as_ref().map_or(entry.size_bytes, Holes::data_bytes))?;
        }
        if let Some(holes) = &attributes.holes {
            fill_holes(holes, if record.head.is_zstd { &unpacked } else { content }, buffer)?;
            content = buffer;
        } else if record.head.is_zstd {
            *buffer = unpacked;
            content = buffer;
        }
        Ok(Object { key: key.clone(), entry, attributes, content })
    }
}

impl Store {
    /// Reads many objects in disk order: up to `depth` threads call `take` concurrently, once for each key, with its
    /// index in `keys` and the result that [`read`](Self::read) would return. In no particular order. 32 is a good
    /// depth for flash that is not cached.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// use granulo_store::{Attributes, Durability, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
    /// let keys: Vec<Key> = (0..100).map(|n| Key::parse(format!("samples/{n}"))).collect::<Result<_, _>>()?;
    /// let mut batch = store.batch(Durability::Batch);
    /// keys.iter().try_for_each(|key| batch.put(key, &attributes, b"sample"))?;
    /// batch.commit()?;
    /// let bytes = AtomicUsize::new(0);
    /// store.get_many(&keys, 32, |at, object| match object {
    ///     Ok(Some(object)) => _ = bytes.fetch_add(object.content.len(), Ordering::Relaxed),
    ///     Ok(None) => panic!("{} is gone", keys[at]),
    ///     Err(error) => panic!("{error}"),
    /// });
    /// assert_eq!(bytes.into_inner(), 600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, keys: &[Key], depth: usize, take: impl Fn(usize, Result<Option<Object<'_>>>) + Sync) {
        for (number, keys) in keys.chunks(LOOKED_UP).enumerate() {
            self.engine().get_many(keys, number * LOOKED_UP, depth.max(1), &take);
        }
    }
}
