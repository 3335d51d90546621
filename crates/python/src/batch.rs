//! `_granulo.Batch`: changes that are committed together.
//!
//! The changes wait in memory and are given to the store in pieces of up to 8 MiB of content, each of which is atomic,
//! as a batch of the store's is: a crash leaves all of a piece or nothing. What waits when the batch is dropped is
//! discarded.

use std::sync::Mutex;

use granulo_core::error::Result;
use granulo_core::locks::lock;
use granulo_store::{Attributes, Durability, Key, Store, Time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::keys::key_of;
use crate::process::OfProcess;

/// Content after which what waits is committed, in bytes.
const PIECE_BYTES: usize = 8 << 20;

#[derive(Debug)]
enum Change {
    Put(Key, Attributes, Vec<u8>),
    Remove(Key),
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Change>,
    content_bytes: usize,
}

/// A batch.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None` once the batch has ended: it must not keep the store open.
    store: Mutex<Option<OfProcess<Store>>>,
    waiting: Mutex<Waiting>,
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
        Batch { store: Mutex::new(Some(OfProcess::new(store))), waiting: Mutex::default() }
    }

    fn add(&self, change: Change, content_bytes: usize) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.changes.push(change);
        waiting.content_bytes += content_bytes;
        waiting.content_bytes >= PIECE_BYTES
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (key, content, mode = 0o644, mtime_ns = None))]
    fn put(&self, key: &Bound<'_, PyAny>, content: &[u8], mode: u32, mtime_ns: Option<i64>) -> PyResult<()> {
        let change = Change::Put(key_of(key)?, attributes(mode, mtime_ns), content.to_vec());
        if self.add(change, content.len()) { self.commit(key.py()) } else { Ok(()) }
    }

    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add(Change::Remove(key_of(key)?), 0);
        Ok(())
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
