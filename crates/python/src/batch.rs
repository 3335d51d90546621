//! `_granulo.Batch`: changes that are committed together.
//!
//! The changes wait in memory and are given to the store in pieces of up to 8 MiB, each of which is atomic, as a batch
//! of the store's is: a crash leaves all of a piece or nothing. A piece is counted so that the store never divides it,
//! except where a removal asks for what waits to be committed. What waits when the batch is dropped is discarded.

use std::sync::Mutex;

use granulo_core::error::Result;
use granulo_core::locks::lock;
use granulo_store::{Attributes, Durability, Key, Store, Time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::keys::key_of;
use crate::process::OfProcess;

/// Most bytes of a piece: what the store commits as a whole.
const PIECE_BYTES: usize = 8 << 20;
/// Most bytes of a change besides content, key and alignment: header, attributes, its place in memory.
const CHANGE_BYTES: usize = 512;

#[derive(Debug)]
enum Change {
    Put(Key, Attributes, Vec<u8>),
    Remove(Key),
}

impl Change {
    /// Bytes of content and key.
    fn bytes(&self) -> usize {
        match self {
            Change::Put(key, _, content) => key.stored().len() + content.len(),
            Change::Remove(key) => key.stored().len(),
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Change>,
    /// Their bytes in a piece, at most.
    bytes: usize,
}

/// A batch.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None` once the batch has ended: it must not keep the store open.
    store: Mutex<Option<OfProcess<Store>>>,
    waiting: Mutex<Waiting>,
    /// Most bytes of a change besides content and key.
    change_bytes: usize,
}

/// Attributes of a file that Python puts: its permissions, and its time or else the present.
pub(crate) fn attributes(mode: u32, mtime_ns: Option<i64>) -> Attributes {
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_nanos()).unwrap_or_default()
    };
    let mtime = Time::of_nanoseconds(mtime_ns.unwrap_or_else(now));
    Attributes { mode: 0o100_000 | (mode & 0o7777) as u16, ..Attributes::of_file(mtime) }
}

fn apply(store: &Store, changes: &[Change]) -> Result<()> {
    let mut batch = store.batch(Durability::Batch);
    for change in changes {
        match change {
            Change::Put(key, attributes, content) => batch.put(key, attributes, content)?,
            Change::Remove(key) => batch.remove(key).map(drop)?,
        }
    }
    batch.commit()
}

impl Batch {
    pub(crate) fn new(store: Store) -> Batch {
        // The content of a record and its end are both aligned.
        let change_bytes = CHANGE_BYTES + 2 * store.geometry().alignment.unit_bytes() as usize;
        Batch { store: Mutex::new(Some(OfProcess::new(store))), waiting: Mutex::default(), change_bytes }
    }

    /// Adds a change; commits what waits first if they do not fit in a piece together.
    fn add(&self, py: Python<'_>, change: Change) -> PyResult<()> {
        if lock(&self.store).is_none() {
            return Err(PyValueError::new_err("the batch has ended"));
        }
        let bytes = self.change_bytes + change.bytes();
        // Another thread may fill what this one has emptied.
        loop {
            let mut waiting = lock(&self.waiting);
            if waiting.changes.is_empty() || waiting.bytes + bytes <= PIECE_BYTES {
                waiting.changes.push(change);
                waiting.bytes += bytes;
                return Ok(());
            }
            drop(waiting);
            self.commit(py)?;
        }
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (key, content, mode = 0o644, mtime_ns = None))]
    fn put(&self, key: &Bound<'_, PyAny>, content: &[u8], mode: u32, mtime_ns: Option<i64>) -> PyResult<()> {
        self.add(key.py(), Change::Put(key_of(key)?, attributes(mode, mtime_ns), content.to_vec()))
    }

    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add(key.py(), Change::Remove(key_of(key)?))
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        let Some(store) = lock(&self.store).as_ref().and_then(OfProcess::get).cloned() else {
            return Err(PyValueError::new_err("the batch has ended, or belongs to another process"));
        };
        py.detach(|| apply(&store, &waiting.changes)).or_raise(py)
    }

    /// Ends the batch; what was not committed is discarded.
    fn end(&self) {
        *lock(&self.waiting) = Waiting::default();
        let store = lock(&self.store).take();
        drop(store);
    }
}
