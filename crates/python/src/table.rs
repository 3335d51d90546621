//! `_granulo.Table`: all files of a store, or below a key, as one object.
//!
//! Two files without names hold it: the rows in a sealed memfd that every process maps, and the names on disk. A forked
//! child has both; another process opens them by their descriptors. So there is one copy whatever the number of
//! workers, and nothing stays behind however they end.
//!
//! The process that listed the store also keeps that state from being freed, as long as it has the table.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_store::{Key, Kind, PinnedSnapshot, Store};
use granulo_sys::sealed::SealedMemory;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::buffers::fill_buffer;
use crate::errors::OrRaise;
use crate::keys::{key_of, path_of_stored, text_of};
use crate::names::{Names, NamesWriter};
use crate::process::OfProcess;
use crate::reading::unreadable_names;
use crate::rows::{Rows, RowsWriter, no_memory};

/// All files of a state of a store.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Table {
    rows: std::sync::Arc<Rows>,
    names: std::sync::Arc<Names>,
    /// The state, in the process that listed it.
    _pin: Option<OfProcess<PinnedSnapshot>>,
}

impl Table {
    /// Lists the files at and below a key, now or in a snapshot.
    ///
    /// # Errors
    /// There is no such key or snapshot; errors of reading the index and of writing the table.
    pub(crate) fn of(store: &Store, top: &Key, at: Option<&str>) -> Result<Table> {
        let missing = |cause: &str| Error::new(ErrorKind::NotFound, "list the store", cause);
        let pin = match at {
            Some(name) => store.snapshot_named(name)?.ok_or_else(|| missing("there is no such snapshot"))?,
            None => store.snapshot()?,
        };
        if !top.is_root() && pin.entry(top)?.is_none() {
            return Err(missing("there is no such key").at(&top.to_path()));
        }
        let mut rows = RowsWriter::new().map_err(no_memory)?;
        let mut names = NamesWriter::new().map_err(unwritable_names)?;
        let mut walk = pin.walk(top, &Key::root())?;
        while let Some(lent) = walk.lend()? {
            if matches!(lent.entry.kind, Kind::File | Kind::Large) {
                names.begins_block().into_iter().for_each(|offset| rows.begin_block(offset));
                rows.push(&lent.entry)?;
                names.push(lent.key.stored()).map_err(unwritable_names)?;
            }
        }
        drop(walk);
        let names = names.finish().map_err(unwritable_names)?;
        let rows = rows.finish(names.length_bytes, names.checksum).map_err(no_memory)?;
        Ok(Table { rows: rows.into(), names: Names::new(names.file).into(), _pin: Some(OfProcess::new(pin)) })
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The parts, for a thread that may outlive this object.
    pub(crate) fn shared(&self) -> (std::sync::Arc<Rows>, std::sync::Arc<Names>) {
        (self.rows.clone(), self.names.clone())
    }

    /// A column of numbers of so many bytes.
    fn column<'py, const BYTES: usize>(
        &self,
        py: Python<'py>,
        value: impl Fn(usize) -> [u8; BYTES] + Send + Sync,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        fill_buffer(py, (self.rows.count() * BYTES) as u64, |buffer| {
            buffer.as_chunks_mut::<BYTES>().0.iter_mut().enumerate().for_each(|(at, cell)| *cell = value(at));
            Ok(())
        })
    }
}

fn unwritable_names(error: std::io::Error) -> Error {
    Error::new(ErrorKind::of(&error), "write the names of a listing", error.to_string())
        .advise("set TMPDIR to a directory with room for them")
}

#[pymethods]
impl Table {
    /// Opens the two files of a table of another process.
    #[staticmethod]
    fn from_files(py: Python<'_>, rows: PathBuf, names: PathBuf) -> PyResult<Table> {
        let opened = File::open(rows).and_then(|rows| Ok((rows, File::open(names)?)));
        let (rows, names) = opened.or_raise(py)?;
        let memory = SealedMemory::open(OwnedFd::from(rows)).or_raise(py)?;
        let (rows, names) = (Rows::open(memory).or_raise(py)?, Names::new(names));
        let length = names.file().metadata().or_raise(py)?.len();
        if length != rows.names_bytes() {
            let other = "the file of names is that of another listing";
            return Err(Error::new(ErrorKind::NotRecognised, "open the listing", other)).or_raise(py);
        }
        Ok(Table { rows: rows.into(), names: names.into(), _pin: None })
    }

    /// Descriptors of the table and of its names.
    fn descriptors(&self) -> (i32, i32) {
        (self.rows.memory().as_fd().as_raw_fd(), self.names.file().as_raw_fd())
    }

    fn __len__(&self) -> usize {
        self.rows.count()
    }

    /// Bytes of shared memory, and of names on disk.
    fn memory(&self) -> (usize, u64) {
        (self.rows.memory().len(), self.rows.names_bytes())
    }

    /// Checksums of the names in their order, and of the order of the places.
    fn checksums(&self) -> (u64, u64) {
        self.rows.checksums()
    }

    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.column(py, |at| self.rows.size_bytes(at).to_le_bytes())
    }

    fn modes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.column(py, |at| self.rows.get(at).map_or(0, |row| row.mode).to_le_bytes())
    }

    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.column(py, |at| self.rows.get(at).map_or(0, |row| row.place.location.segment.0).to_le_bytes())
    }

    fn segment_offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.column(py, |at| self.rows.get(at).map_or(0, |row| row.place.location.offset.0).to_le_bytes())
    }

    /// Rows in the order of their places.
    fn by_place<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        self.column(py, |at| self.rows.by_place(at).to_le_bytes())
    }

    /// The names of a range of rows: offsets as `int64`, their bytes, and whether they are UTF-8.
    fn names_between<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, bool)> {
        let stop = stop.min(self.rows.count());
        let (mut offsets, mut bytes, mut is_text) = (0u64.to_le_bytes().to_vec(), Vec::new(), true);
        let collect = || {
            self.names.each(&self.rows, start.min(stop)..stop, |name| {
                // Each by itself: two that are no text may make one.
                is_text &= std::str::from_utf8(name).is_ok();
                bytes.extend(name.iter().map(|&byte| if byte == 0 { b'/' } else { byte }));
                offsets.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            })
        };
        py.detach(collect).map_err(unreadable_names).or_raise(py)?;
        Ok((PyBytes::new(py, &offsets), PyBytes::new(py, &bytes), is_text))
    }

    fn name<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, pyo3::types::PyString>> {
        let name = py.detach(|| self.names.get(&self.rows, row)).map_err(unreadable_names).or_raise(py)?;
        text_of(py, &path_of_stored(&name))
    }

    fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let (py, key) = (key.py(), key_of(key)?);
        py.detach(|| self.names.find(&self.rows, key.stored())).map_err(unreadable_names).or_raise(py)
    }
}
