//! `_granulo.Store`: an open store, and what Python does with keys in it.
//!
//! **Invariants**: the handle belongs to the process that opened it; another process, which has it by fork, opens one
//! of its own on first use, for reading if the first one writes (there is one writer). The lock around it is held only
//! for moments in which this thread also holds the interpreter, so that no fork finds it locked. Work on the disk is
//! done without the interpreter.

use std::path::PathBuf;
use std::sync::Mutex;

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::locks::lock;
use granulo_store::{Attributes, Buffer, Durability, Key, Kind, Plan, RecordPlace, Store, WHOLE_BYTES};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};

use crate::batch::{Batch, attributes};
use crate::buffers::{bytes_of_numbers, fill_buffer, indices_of};
use crate::entries::{Stat, Walk, has_content};
use crate::errors::{OrRaise, missing, unreadable};
use crate::keys::{bytes_of, key_of, path_of};
use crate::process::OfProcess;
use crate::reading::{Slots, offsets_of, read_rows, refuse_giant};
use crate::table::Table;

/// An open store.
#[pyclass(frozen, subclass, module = "granulo._granulo", name = "Store")]
#[derive(Debug)]
pub(crate) struct Handle {
    /// Absolute: whoever opens the store again may be in another directory by then.
    path: PathBuf,
    /// The process that opened it for writing, if one did.
    writer: Option<u32>,
    open: Mutex<Option<OfProcess<Store>>>,
    is_closed: Mutex<bool>,
}

/// What is read of a key: where its record is, and the size of the content.
type Found = (RecordPlace, u64);

/// A key that cannot be read: its number, and what it is a key of.
type Unread = (usize, Option<Kind>);

/// Looks up keys; stops at the first that has no content.
fn look_up(store: &Store, keys: &[Key]) -> Result<std::result::Result<Vec<Found>, Unread>> {
    let mut found = Vec::with_capacity(keys.len());
    for (at, key) in keys.iter().enumerate() {
        match store.entry(key)?.map(|listed| listed.entry) {
            Some(entry) if has_content(entry.kind) => {
                refuse_giant(entry.size_bytes).map_err(|error| error.at(&key.to_path()))?;
                found.push(((&entry).into(), entry.size_bytes));
            }
            other => return Ok(Err((at, other.map(|entry| entry.kind)))),
        }
    }
    Ok(Ok(found))
}

/// The contents of keys in one buffer, with their offsets. `None` if one of them was changed meanwhile.
fn read_keys<'py>(
    py: Python<'py>,
    store: &Store,
    found: &[Found],
    threads: usize,
) -> PyResult<Option<Bound<'py, PyByteArray>>> {
    let places: Vec<RecordPlace> = found.iter().map(|(place, _)| *place).collect();
    let length = found.iter().map(|(_, size_bytes)| size_bytes).sum();
    let mut is_whole = false;
    let buffer = fill_buffer(py, length, |buffer| {
        let slots = Slots::new(buffer, found.iter().map(|(_, size_bytes)| *size_bytes as usize));
        store.read_places(&places, threads, |at, content| {
            let _ = content.is_ok_and(|content| slots.fill(at, content));
        });
        is_whole = slots.unfilled().is_empty();
        Ok(())
    })?;
    Ok(is_whole.then_some(buffer))
}

/// Makes addresses of buckets known, if this was built with them.
fn reach_buckets() {
    #[cfg(feature = "bucket")]
    granulo_bucket::register();
}

/// The path as others have to find it, from whatever directory: an address is one already.
fn absolute(path: PathBuf) -> Result<PathBuf> {
    if granulo_store::bucket::is_address(&path) {
        return Ok(path);
    }
    std::path::absolute(&path).map_err(|error| Error::io("find", &path, error))
}

fn open(path: &std::path::Path, is_writer: bool) -> Result<Store> {
    match is_writer {
        true => Store::open(path),
        false => Store::open_read_only(path),
    }
}

impl Handle {
    /// The store, opened again if this is another process.
    ///
    /// # Errors
    /// Errors of opening; `ValueError` if it was closed.
    pub(crate) fn store(&self, py: Python<'_>) -> PyResult<Store> {
        if *lock(&self.is_closed) {
            return Err(PyValueError::new_err("the store is closed"));
        }
        if let Some(store) = lock(&self.open).as_ref().and_then(OfProcess::get) {
            return Ok(store.clone());
        }
        // In a forked child the writer is its parent.
        let store = py.detach(|| open(&self.path, false)).or_raise(py)?;
        let before = lock(&self.open).replace(OfProcess::new(store.clone()));
        drop(before);
        Ok(store)
    }

    /// The store for what outlives a call: it must not keep it open for writing.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub(crate) fn reading(&self, py: Python<'_>) -> PyResult<Store> {
        let store = self.store(py)?;
        match self.writable() {
            true => py
                .detach(|| match store.sync() {
                    Ok(()) => open(&self.path, false),
                    // Only this one has what cannot be made durable.
                    Err(_) => Ok(store.clone()),
                })
                .or_raise(py),
            false => Ok(store),
        }
    }
}

#[pymethods]
impl Handle {
    #[new]
    #[pyo3(signature = (path, mode = "r", cutoff_bytes = None, fast = Vec::new(), slow = Vec::new()))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        cutoff_bytes: Option<u64>,
        fast: Vec<PathBuf>,
        slow: Vec<PathBuf>,
    ) -> PyResult<Handle> {
        reach_buckets();
        let path = absolute(path).or_raise(py)?;
        let mut plan = Plan { fast, slow, ..Plan::default() };
        plan.cutoff_bytes = cutoff_bytes.unwrap_or(plan.cutoff_bytes);
        let store = match mode {
            "r" => py.detach(|| open(&path, false)),
            "r+" => py.detach(|| open(&path, true)),
            "x" => py.detach(|| Store::create(&path, &plan)),
            "a" => py.detach(|| match granulo_store::is_store(&path) {
                true => open(&path, true),
                false => Store::create(&path, &plan),
            }),
            _ => return Err(PyValueError::new_err(format!("the mode is 'r', 'r+', 'a' or 'x', not '{mode}'"))),
        };
        let open = Mutex::new(Some(OfProcess::new(store.or_raise(py)?)));
        let writer = (mode != "r").then(std::process::id);
        Ok(Handle { path, writer, open, is_closed: Mutex::new(false) })
    }

    /// Absolute path of the store, or the address of a bucket as ``str``.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match granulo_store::bucket::is_address(&self.path) {
            // Of the two slashes in an address, pathlib would make one.
            true => Ok(self.path.as_os_str().into_pyobject(py)?.into_any()),
            false => self.path.as_path().into_pyobject(py),
        }
    }

    /// Whether this process opened it for writing and has not closed it.
    #[getter]
    fn writable(&self) -> bool {
        self.writer == Some(std::process::id()) && !*lock(&self.is_closed)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        *lock(&self.is_closed)
    }

    /// Makes what was written durable, and closes the store.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let is_writer = self.writable();
        *lock(&self.is_closed) = true;
        let open = lock(&self.open).take();
        let synced = match open.as_ref().and_then(OfProcess::get) {
            Some(store) if is_writer => py.detach(|| store.sync()),
            _ => Ok(()),
        };
        drop(open);
        synced.or_raise(py)
    }

    /// The content of a file, or ``None``: see ``get``.
    fn read<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (py, wanted) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        let mut buffer = Buffer::default();
        match py.detach(|| store.read(&wanted, &mut buffer)).or_raise(py)? {
            Some(object) if has_content(object.entry.kind) => Ok(Some(PyBytes::new(py, object.content))),
            None if !wanted.is_root() => Ok(None),
            found => Err(unreadable(py, key, &wanted, found.map(|object| object.entry.kind))),
        }
    }

    /// The bytes of a file from offset ``start`` to ``stop`` (exclusive), as far as it has them; of a file of any size.
    fn read_range<'py>(&self, key: &Bound<'py, PyAny>, start: u64, stop: u64) -> PyResult<Bound<'py, PyBytes>> {
        let (py, wanted) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        let mut content = Vec::new();
        // Without memory for it, an exception: a vector that cannot grow would end the process.
        if stop.saturating_sub(start) > WHOLE_BYTES {
            let found = py.detach(|| store.entry(&wanted)).or_raise(py)?;
            let length = found.map_or(0, |listed| stop.min(listed.entry.size_bytes).saturating_sub(start));
            content
                .try_reserve_exact(length as usize)
                .map_err(|_| PyMemoryError::new_err(format!("there is no memory for {length} bytes")))?;
        }
        let read = || -> Result<Option<Kind>> {
            match store.read_range(&wanted, start..stop.max(start), &mut content)? {
                // Of an empty range, or of what has no content.
                Some(0) => Ok(store.entry(&wanted)?.map(|found| found.entry.kind)),
                read => Ok(read.map(|_| Kind::File)),
            }
        };
        match py.detach(read).or_raise(py)? {
            Some(kind) if has_content(kind) => PyBytes::new_with(py, content.len(), |bytes| {
                bytes.copy_from_slice(&content);
                Ok(())
            }),
            found => Err(unreadable(py, key, &wanted, found)),
        }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, wanted) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        let found = py.detach(|| store.entry(&wanted)).or_raise(py)?;
        Ok(found.is_some_and(|listed| has_content(listed.entry.kind)))
    }

    /// What is known of an object: see ``Stat``. Raises ``NotFoundError`` if there is none.
    fn stat(&self, key: &Bound<'_, PyAny>) -> PyResult<Stat> {
        let (py, wanted) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        match py.detach(|| store.stat(&wanted)).or_raise(py)? {
            Some(status) => Ok(Stat::of_status(&status)),
            None if wanted.is_root() => Ok(Stat::of_root()),
            None => Err(missing(py, key)),
        }
    }

    /// Number of files at and below a key.
    fn count(&self, below: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, top) = (below.py(), key_of(below)?);
        let store = self.store(py)?;
        py.detach(|| -> Result<u64> {
            let (mut walk, mut count) = (store.walk(&top)?, 0);
            while let Some(lent) = walk.lend()? {
                count += u64::from(matches!(lent.entry.kind, Kind::File | Kind::Large));
            }
            Ok(count)
        })
        .or_raise(py)
    }

    /// Contents of keys in one buffer, and their offsets as bytes: see ``read_many``.
    fn read_keys<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
        threads: usize,
    ) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyBytes>)> {
        let wanted: Vec<Key> = keys.iter().map(key_of).collect::<PyResult<_>>()?;
        let store = self.store(py)?;
        // Others may change what was looked up; after some attempts the error of reading it is the answer.
        for _ in 0..4 {
            let found = match py.detach(|| look_up(&store, &wanted)).or_raise(py)? {
                Ok(found) => found,
                Err((at, kind)) => return Err(unreadable(py, &keys[at], &wanted[at], kind)),
            };
            if let Some(buffer) = read_keys(py, &store, &found, threads)? {
                let ends = found.iter().scan(0, |end, (_, size_bytes)| {
                    *end += size_bytes;
                    Some(*end)
                });
                let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
                return Ok((buffer, PyBytes::new(py, &bytes_of_numbers(&offsets))));
            }
            py.detach(|| store.refresh()).or_raise(py)?;
        }
        py.detach(|| wanted.iter().try_for_each(|key| store.get(key).map(drop))).or_raise(py)?;
        let busy = Error::new(ErrorKind::Busy, "read many files", "one of them changes all the time");
        Err(busy).or_raise(py)
    }

    /// Contents of rows of a table, given as bytes of ``uint32``, in one buffer, and their offsets: see ``read_many``.
    fn read_rows<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
        indices: &Bound<'py, PyBytes>,
        threads: usize,
    ) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyBytes>)> {
        let (store, indices) = (self.store(py)?, indices_of(indices.as_bytes()));
        let offsets = offsets_of(table.rows(), &indices).or_raise(py)?;
        let length = offsets.last().copied().unwrap_or_default();
        let of = (table.rows(), table.names());
        let read = |buffer: &mut [u8]| read_rows(&store, of, &indices, threads, &|| true, buffer);
        Ok((fill_buffer(py, length, read)?, PyBytes::new(py, &bytes_of_numbers(&offsets))))
    }

    #[pyo3(signature = (key, content, mode = 0o644, mtime_ns = None))]
    fn put(&self, key: &Bound<'_, PyAny>, content: &[u8], mode: u32, mtime_ns: Option<i64>) -> PyResult<()> {
        let (py, key, attributes) = (key.py(), key_of(key)?, attributes(mode, mtime_ns));
        let store = self.store(py)?;
        py.detach(|| store.put(&key, &attributes, content)).or_raise(py)
    }

    /// Removes an object, or all of a tree; returns whether it existed: see ``remove`` and ``remove_tree``.
    fn remove_object(&self, key: &Bound<'_, PyAny>, whole_tree: bool) -> PyResult<bool> {
        let (py, key) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        let remove = || if whole_tree { store.remove_tree(&key) } else { store.remove(&key) };
        py.detach(remove).or_raise(py)
    }

    /// Makes a directory, and those above it; durable on return.
    fn make_directory(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key) = (key.py(), key_of(key)?);
        let store = self.store(py)?;
        py.detach(|| {
            let mut batch = store.batch(Durability::Batch);
            let attributes = attributes(0o755, None);
            batch.directory(&key, &Attributes { mode: 0o040_755, ..attributes })?;
            batch.commit()
        })
        .or_raise(py)
    }

    /// The batch of ``batch``, without its ``with`` block.
    fn open_batch(&self, py: Python<'_>) -> PyResult<Batch> {
        Ok(Batch::new(self.store(py)?))
    }

    /// Entries at and below a key, or in a directory, in key order.
    #[pyo3(signature = (below, recursive = true))]
    fn entries(&self, below: &Bound<'_, PyAny>, recursive: bool) -> PyResult<Walk> {
        let (py, top) = (below.py(), key_of(below)?);
        let store = self.store(py)?;
        let walk = py.detach(|| if recursive { store.walk(&top) } else { store.list(&top) }).or_raise(py)?;
        Ok(Walk::new(walk))
    }

    /// The table of ``listing``.
    #[pyo3(signature = (below, at = None))]
    fn table(&self, below: &Bound<'_, PyAny>, at: Option<&str>) -> PyResult<Table> {
        let (py, top) = (below.py(), key_of(below)?);
        let store = self.reading(py)?;
        py.detach(|| Table::of(&store, &top, at)).or_raise(py)
    }

    /// Keeps the current state under a name: ``listing(at=name)`` lists it. Durable on return.
    fn create_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let store = self.store(py)?;
        py.detach(|| store.create_snapshot(name).map(drop)).or_raise(py)
    }

    /// Makes everything durable that was written.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store(py)?;
        py.detach(|| store.sync()).or_raise(py)
    }

    /// Looks for what other processes have written; returns whether there is something new. Reading does so by itself.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let store = self.store(py)?;
        py.detach(|| store.refresh()).or_raise(py)
    }

    /// Frees the space of what was removed or overwritten.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store(py)?;
        let options =
            granulo_store::CompactOptions { counts_shared_once: true, ..granulo_store::CompactOptions::default() };
        let progress = granulo_store::Progress::default();
        py.detach(|| store.compact(&options, &progress).map(drop)).or_raise(py)
    }

    /// Counts, space in bytes and devices, as ``granulo store status`` shows them: a dictionary.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.store(py)?;
        let status = py.detach(|| store.status(true)).or_raise(py)?;
        let dict = PyDict::new(py);
        dict.set_item("home", status.home)?;
        for (name, value) in [
            ("live_records", status.live_records),
            ("live_bytes", status.live_bytes),
            ("dead_records", status.dead_records),
            ("dead_bytes", status.dead_bytes),
            ("segments", status.segments),
            ("unit_bytes", status.unit_bytes),
            ("index_bytes", status.index_bytes),
            ("waiting_bytes", status.waiting_bytes),
        ] {
            dict.set_item(name, value)?;
        }
        dict.set_item("has_writer", status.has_writer)?;
        dict.set_item("read_only_because", status.latched)?;
        if let Some(census) = status.census {
            for (name, count) in [
                ("files", census.files),
                ("large_files", census.large_files),
                ("links", census.links),
                ("directories", census.directories),
                ("symlinks", census.symlinks),
                ("special", census.special),
            ] {
                dict.set_item(name, count)?;
            }
            dict.set_item("size_bytes", census.size_bytes)?;
        }
        let devices = status.devices.iter().map(|device| {
            let about = PyDict::new(py);
            about.set_item("number", device.number.0)?;
            about.set_item("path", &device.path)?;
            about.set_item("state", device.state_name())?;
            about.set_item("trouble", device.trouble.as_deref())?;
            about.set_item("segment_bytes", device.segment_bytes)?;
            about.set_item("unit_bytes", device.unit_bytes)?;
            Ok(about)
        });
        dict.set_item("devices", devices.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }
}

/// The normal form of a key: without slashes at the ends and doubled ones.
#[pyfunction]
pub(crate) fn normal_key<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let key_bytes = Key::parse(bytes_of(key)?).or_raise(key.py())?;
    Ok(PyBytes::new(key.py(), &path_of(&key_bytes)))
}

/// Descriptors of the locks that a forked child has from its parent, for it to close.
#[pyfunction]
pub(crate) fn inherited_locks() -> Vec<i32> {
    granulo_store::inherited_locks()
}
