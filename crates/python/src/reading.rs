//! Reading rows of a listing into one buffer, by their places; where a record is no longer there, by its name.
//!
//! **Invariant**: what is returned is the content that was listed. A record that compaction moved has kept its id, and
//! is read where it is now; a file that was overwritten or removed, and whose space was freed, is an error, never
//! another content; and no part of the buffer is left as it was. Content goes from the verified record to its place in
//! the buffer, without a copy in between.

use std::sync::Mutex;

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::locks::lock;
use granulo_store::{Buffer, Key, RecordPlace, Store, WHOLE_BYTES};

use crate::keys::path_of_stored;
use crate::names::Names;
use crate::rows::Rows;

/// Files, neighbours on disk, that are read between two looks at whether they are still wanted.
const PIECE_FILES: usize = 1 << 14;

/// Slots of a buffer that threads fill, each its own.
pub(crate) struct Slots<'b>(Vec<Mutex<Option<&'b mut [u8]>>>);

impl<'b> Slots<'b> {
    /// Divides a buffer into slots of these sizes.
    pub(crate) fn new(mut buffer: &'b mut [u8], sizes: impl Iterator<Item = usize>) -> Slots<'b> {
        Slots(
            sizes
                .map(|size| {
                    let (slot, rest) = std::mem::take(&mut buffer).split_at_mut(size);
                    buffer = rest;
                    Mutex::new(Some(slot))
                })
                .collect(),
        )
    }

    /// Fills a slot if the content has its size; returns whether it has. A slot is filled once.
    pub(crate) fn fill(&self, at: usize, content: &[u8]) -> bool {
        let Some(slot) = self.0.get(at) else { return false };
        let mut slot = lock(slot);
        match slot.as_mut() {
            Some(bytes) if bytes.len() == content.len() => {
                bytes.copy_from_slice(content);
                *slot = None;
                true
            }
            _ => false,
        }
    }

    /// The slots that were not filled, whatever the reason.
    pub(crate) fn unfilled(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|&at| lock(&self.0[at]).is_some()).collect()
    }
}

/// Refuses a file that is too large, before memory for it is asked for.
///
/// # Errors
/// It has more than 1 GiB.
pub(crate) fn refuse_giant(size_bytes: u64) -> Result<()> {
    if size_bytes <= WHOLE_BYTES {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Usage, "read", "a file has more than 1 GiB, and is not read whole");
    Err(error.advise("read it in pieces: Store.read_range"))
}

/// Offsets of contents in a buffer: one more than there are contents.
///
/// # Errors
/// There is no such row, or its file is too large.
pub(crate) fn offsets_of(rows: &Rows, indices: &[u32]) -> Result<Vec<u64>> {
    let mut offsets = Vec::with_capacity(indices.len() + 1);
    let mut end = 0;
    offsets.push(end);
    for &index in indices {
        let no_row = || format!("there is no file {index} in a listing of {}", rows.count());
        let row = rows.get(index as usize).ok_or_else(|| Error::new(ErrorKind::Usage, "read", no_row()))?;
        refuse_giant(row.size_bytes)?;
        end += row.size_bytes;
        offsets.push(end);
    }
    Ok(offsets)
}

/// The error of work whose result nobody waits for any more.
pub(crate) fn unwanted() -> Error {
    Error::new(ErrorKind::Interrupted, "read", "nobody waits for it any more")
}

/// Reads rows into `buffer`, which has the sum of their sizes. All of them must exist ([`offsets_of`] checks that).
///
/// # Errors
/// The first file that cannot be read, with its name; [`unwanted`], soon after the rows are no longer wanted.
pub(crate) fn read_rows(
    store: &Store,
    (rows, names): (&Rows, &Names),
    indices: &[u32],
    threads: usize,
    are_wanted: &dyn Fn() -> bool,
    buffer: &mut [u8],
) -> Result<()> {
    let listed: Vec<_> = indices.iter().filter_map(|&index| rows.get(index as usize)).collect();
    let slots = Slots::new(buffer, listed.iter().map(|row| row.size_bytes as usize));
    let mut order: Vec<usize> = (0..listed.len()).collect();
    if order.len() > PIECE_FILES {
        order.sort_unstable_by_key(|&at| listed[at].place.location);
    }
    for piece in order.chunks(PIECE_FILES) {
        if !are_wanted() {
            return Err(unwanted());
        }
        let places: Vec<RecordPlace> = piece.iter().map(|&at| listed[at].place).collect();
        // What fails here is read again below, by its name: that succeeds, or says why not.
        store.read_places(&places, threads, |at, content| {
            let _ = content.is_ok_and(|content| slots.fill(piece[at], content));
        });
    }
    let mut memory = Buffer::default();
    for at in slots.unfilled() {
        let name = names.get(rows, indices[at] as usize).map_err(unreadable_names)?;
        let key = Key::parse(path_of_stored(&name))?;
        let object = store.read(&key, &mut memory)?;
        let is_listed =
            object.is_some_and(|object| object.entry.id == listed[at].place.id && slots.fill(at, object.content));
        if !is_listed {
            let cause = "it was changed or removed since it was listed, and what was listed can no longer be read";
            return Err(Error::new(ErrorKind::NotFound, "read", cause)
                .at(&key.to_path())
                .advise("list the store again, or keep the first listing open: its files are kept for it"));
        }
    }
    Ok(())
}

/// The error of a file of names that cannot be read.
pub(crate) fn unreadable_names(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "read the names of a listing", error.to_string())
}
