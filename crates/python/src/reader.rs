//! `_granulo.Reader`: batches of an order, read ahead by a thread.
//!
//! The order says which files come next, the memory how many of them are a **run**. A run is read in disk order, by
//! several threads, each record into its place in the order; meanwhile the run before is handed out. So the memory
//! needed is that of two runs whatever the size of the data, and the device sees ascending reads of neighbours. With
//! the exact order and memory for a share of the data, each run is one ascending pass that reads that share of the
//! records.
//!
//! **Invariants**: batches come in the order's sequence; a run consists of whole batches, at least one; each half of
//! the memory holds one run. An error ends the sequence.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::locks::lock;
use granulo_store::Store;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::buffers::bytes_of_numbers;
use crate::errors::OrRaise;
use crate::handle::Handle;
use crate::names::Names;
use crate::order::{Kind, Order, Part};
use crate::process::OfProcess;
use crate::reading::{offsets_of, read_rows};
use crate::rows::Rows;
use crate::scratch::Scratch;
use crate::table::Table;

/// A batch in a run.
#[derive(Debug)]
struct Planned {
    indices: Vec<u32>,
    /// In the batch, one more than there are files.
    offsets: Vec<u64>,
}

/// Batches that were read together.
#[derive(Debug)]
struct Run {
    batches: std::vec::IntoIter<Planned>,
    buffer: Vec<u8>,
    /// How much of the buffer was handed out.
    at: usize,
}

/// Buffers that runs no longer need.
type Spare = Arc<Mutex<Vec<Vec<u8>>>>;

/// What the thread needs.
struct Work {
    store: Store,
    rows: Arc<Rows>,
    names: Arc<Names>,
    order: Order,
    part: Part,
    next_batch: u64,
    run_bytes: u64,
    threads: usize,
    scratch: Option<Scratch>,
    spare: Spare,
}

impl Work {
    /// The next run; `None` at the end.
    fn run(&mut self) -> Result<Option<Run>> {
        let all = self.rows.count() as u64;
        let (mut batches, mut indices, mut length) = (Vec::new(), Vec::new(), 0);
        while self.next_batch < self.part.batches(all) {
            let of_batch = self.part.positions(self.next_batch, all);
            let of_batch: Vec<u32> = of_batch.map(|position| self.order.at(position, Some(&self.rows))).collect();
            let offsets = offsets_of(&self.rows, &of_batch)?;
            length += offsets.last().copied().unwrap_or_default();
            indices.extend_from_slice(&of_batch);
            batches.push(Planned { indices: of_batch, offsets });
            self.next_batch += self.part.of_workers;
            // The next batch is probably as large as this one.
            if length + length / batches.len() as u64 > self.run_bytes {
                break;
            }
        }
        if batches.is_empty() {
            return Ok(None);
        }
        let mut buffer = lock(&self.spare).pop().unwrap_or_default();
        buffer.resize(length as usize, 0);
        match &self.scratch {
            Some(scratch) => scratch.read(&self.rows, &indices, &mut buffer)?,
            None => read_rows(&self.store, (&self.rows, &self.names), &indices, self.threads, &mut buffer)?,
        }
        Ok(Some(Run { batches: batches.into_iter(), buffer, at: 0 }))
    }

    fn work(mut self, give: &SyncSender<Result<Run>>) {
        loop {
            let Some(run) = self.run().transpose() else { return };
            let is_last = run.is_err();
            // Nobody may be left who wants more, or hears of an error.
            if give.send(run).is_err() || is_last {
                return;
            }
        }
    }
}

/// A thread that reads runs; it ends when nobody takes them any more.
#[derive(Debug)]
struct Ahead {
    runs: Option<Mutex<Receiver<Result<Run>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.runs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Batches of an order.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Reader {
    ahead: OfProcess<Ahead>,
    current: Mutex<Option<Run>>,
    spare: Spare,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (store, table, order, seed, epoch, window, buckets, rank, of_ranks, worker, of_workers,
        batch_files, drop_last, first_batch, memory_bytes, threads, scratch = None))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, Handle>,
        table: &Table,
        order: &str,
        seed: u64,
        epoch: u64,
        window: u32,
        buckets: Option<u32>,
        rank: u64,
        of_ranks: u64,
        worker: u64,
        of_workers: u64,
        batch_files: u64,
        drop_last: bool,
        first_batch: u64,
        memory_bytes: u64,
        threads: usize,
        scratch: Option<&Scratch>,
    ) -> PyResult<Reader> {
        if rank >= of_ranks || worker >= of_workers || batch_files == 0 {
            return Err(PyValueError::new_err(
                "a rank is below the number of ranks, a worker below theirs, a batch has files",
            ));
        }
        let part = Part { rank, of_ranks, worker, of_workers, batch_files, drop_last };
        let (rows, names) = table.shared();
        let kind = Kind::named(order, rows.count() as u64, window, buckets).or_raise(py)?;
        let store = store.get().store(py)?;
        let spare = Spare::default();
        let files = rows.count() as u32;
        let scratch = scratch.map(Scratch::share);
        let (next_batch, run_bytes) = (part.first_from(first_batch), memory_bytes / 2);
        let (give, runs) = sync_channel(0);
        let work_spare = Arc::clone(&spare);
        let thread = std::thread::Builder::new().name("granulo read".into()).spawn(move || {
            let order = Order::new(kind, files, seed, epoch);
            let spare = work_spare;
            Work { store, rows, names, order, part, next_batch, run_bytes, threads, scratch, spare }.work(&give);
        });
        let ahead = Ahead { runs: Some(Mutex::new(runs)), thread: Some(thread.or_raise(py)?) };
        Ok(Reader { ahead: OfProcess::new(ahead), current: Mutex::default(), spare })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Row numbers as `uint32`, the contents in one buffer, and their offsets as `int64`.
    fn __next__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyByteArray>, Bound<'py, PyBytes>)>> {
        let Some(ahead) = self.ahead.get() else {
            return Err(PyValueError::new_err("a reader ends in the process that began it"));
        };
        let next = py.detach(|| -> Result<bool> {
            let mut current = lock(&self.current);
            if current.as_ref().is_some_and(|run| run.batches.len() > 0) {
                return Ok(true);
            }
            if let Some(Run { mut buffer, .. }) = current.take() {
                buffer.clear();
                lock(&self.spare).push(buffer);
            }
            let Some(runs) = &ahead.runs else { return Ok(false) };
            let received = lock(runs).recv();
            match received {
                Ok(run) => *current = Some(run?),
                Err(_) if ahead.thread.as_ref().is_some_and(|_| std::thread::panicking()) => {
                    return Err(Error::new(ErrorKind::Io, "read", "a thread ended unexpectedly"));
                }
                Err(_) => return Ok(false),
            }
            Ok(true)
        });
        if !next.or_raise(py)? {
            return Ok(None);
        }
        let mut current = lock(&self.current);
        let Some(run) = current.as_mut() else { return Ok(None) };
        let Some(Planned { indices, offsets }) = run.batches.next() else { return Ok(None) };
        let end = run.at + offsets.last().map_or(0, |&end| end as usize);
        let buffer = PyByteArray::new(py, &run.buffer[run.at..end]);
        run.at = end;
        let indices: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        Ok(Some((PyBytes::new(py, &indices), buffer, PyBytes::new(py, &bytes_of_numbers(&offsets)))))
    }
}

/// The rows of an order from a position on, as `uint32`; without a table, the numbers of an abstract set of files.
#[pyfunction]
#[pyo3(signature = (order, files, seed, epoch, window = 0, buckets = None, start = 0, stop = None))]
#[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
pub(crate) fn order_of<'py>(
    py: Python<'py>,
    order: &str,
    files: u32,
    seed: u64,
    epoch: u64,
    window: u32,
    buckets: Option<u32>,
    start: u64,
    stop: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let kind = Kind::named(order, files.into(), window, buckets).or_raise(py)?;
    let stop = stop.unwrap_or(files.into()).min(files.into());
    let rows: Vec<u8> = py.detach(|| {
        let mut order = Order::new(kind, files, seed, epoch);
        (start..stop).flat_map(|position| order.at(position, None).to_le_bytes()).collect()
    });
    Ok(PyBytes::new(py, &rows))
}
