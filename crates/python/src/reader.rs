//! `_granulo.Reader`: batches of an order, read ahead by a thread.
//!
//! The order says which files come next, the memory how many of them are a **run**. A run is read in disk order, by
//! several threads, each record into its place in the order; meanwhile the run before is handed out. So the memory
//! needed is that of two runs whatever the size of the data, and the device sees ascending reads of neighbours. With
//! the exact order and memory for a share of the data, each run is one ascending pass that reads half of that share of
//! the records.
//!
//! **Invariants**: batches come in the order's sequence; a run consists of whole batches, as many as fit in half of the
//! memory, at least one. The thread says when the order has ended: if it ends in any other way, the consumer gets
//! an error, never a sequence that is too short. An error ends the sequence.

use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::process::{OfProcess, lock_if_free};
use crate::reading::{offsets_of, read_rows};
use crate::rows::Rows;
use crate::scratch::Scratch;
use crate::table::Table;

/// What reading a file takes besides its content, in bytes: its row, its place, its slot, and their order.
const FILE_BYTES: u64 = 160;

/// A batch in a run.
#[derive(Debug)]
struct Planned {
    indices: Vec<u32>,
    /// In the batch, one more than there are files.
    offsets: Vec<u64>,
}

impl Planned {
    fn length_bytes(&self) -> u64 {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// The memory that it takes while it is read.
    fn memory_bytes(&self) -> u64 {
        self.length_bytes() + self.indices.len() as u64 * FILE_BYTES
    }
}

/// Batches that were read together.
#[derive(Debug)]
struct Run {
    batches: std::vec::IntoIter<Planned>,
    buffer: Vec<u8>,
    /// How much of the buffer was handed out.
    at: usize,
}

/// What the thread and those who take its runs tell each other, besides the runs.
#[derive(Debug, Default)]
struct Shared {
    /// Buffers that runs no longer need.
    spare: Mutex<Vec<Vec<u8>>>,
    /// Nobody takes runs any more.
    is_over: AtomicBool,
}

/// What the thread needs.
struct Work {
    store: Store,
    rows: Arc<Rows>,
    names: Arc<Names>,
    order: Order,
    part: Part,
    next_batch: u64,
    /// A batch that no longer fitted in the run before.
    kept: Option<Planned>,
    run_bytes: u64,
    threads: usize,
    scratch: Option<Scratch>,
    shared: Arc<Shared>,
}

impl Work {
    /// The next batch; `None` at the end.
    fn plan(&mut self) -> Result<Option<Planned>> {
        if self.kept.is_some() {
            return Ok(self.kept.take());
        }
        let all = self.rows.count() as u64;
        if self.next_batch >= self.part.batches(all) {
            return Ok(None);
        }
        let positions = self.part.positions(self.next_batch, all);
        let indices: Vec<u32> = positions.map(|position| self.order.at(position, Some(&self.rows))).collect();
        let offsets = offsets_of(&self.rows, &indices)?;
        self.next_batch += self.part.of_workers;
        Ok(Some(Planned { indices, offsets }))
    }

    /// The next run; `None` at the end.
    fn run(&mut self) -> Result<Option<Run>> {
        let (mut batches, mut indices, mut length, mut memory) = (Vec::new(), Vec::new(), 0, 0);
        while let Some(batch) = self.plan()? {
            memory += batch.memory_bytes();
            if memory > self.run_bytes && !batches.is_empty() {
                self.kept = Some(batch);
                break;
            }
            length += batch.length_bytes();
            indices.extend_from_slice(&batch.indices);
            batches.push(batch);
        }
        if batches.is_empty() {
            return Ok(None);
        }
        // What is in it of the run before need not be cleared: every byte is overwritten, or the run is an error.
        let mut buffer = lock(&self.shared.spare).pop().unwrap_or_default();
        let more = (length as usize).saturating_sub(buffer.len());
        buffer.try_reserve(more).map_err(|_| too_little_memory(length))?;
        buffer.resize(length as usize, 0);
        let (of, are_wanted) = ((&*self.rows, &*self.names), || !self.shared.is_over.load(Ordering::Relaxed));
        match &self.scratch {
            Some(scratch) => scratch.read(&self.rows, &indices, &are_wanted, &mut buffer)?,
            None => read_rows(&self.store, of, &indices, self.threads, &are_wanted, &mut buffer)?,
        }
        Ok(Some(Run { batches: batches.into_iter(), buffer, at: 0 }))
    }

    fn work(mut self, give: &SyncSender<Given>) {
        loop {
            let run = self.run();
            let is_last = !matches!(run, Ok(Some(_)));
            // Nobody may be left who wants more, or hears of the end.
            if give.send(run).is_err() || is_last {
                return;
            }
        }
    }
}

/// The error of a run that does not fit in memory: that may be a single batch, whatever was allowed.
fn too_little_memory(length_bytes: u64) -> Error {
    let cause = format!("there is no memory for batches of {length_bytes} bytes");
    Error::new(ErrorKind::Usage, "read ahead", cause).advise("make batches smaller, or allow less memory")
}

/// What the thread gives: a run, the end of the order, or an error.
type Given = Result<Option<Run>>;

/// A thread that reads runs; it ends soon after this is dropped, which waits for it: it has memory, and the store open.
#[derive(Debug)]
struct Ahead {
    runs: Option<Mutex<Receiver<Given>>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// The next run; `None` at the end of the order.
    ///
    /// # Errors
    /// Those of the thread; it panicked.
    fn take(&self) -> Given {
        let given = self.runs.as_ref().and_then(|runs| lock(runs).recv().ok());
        given
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Io, "read ahead", "the thread that reads ended unexpectedly")))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.runs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Which run is handed out.
#[derive(Debug)]
enum Current {
    /// None yet.
    Begin,
    Run(Run),
    /// The last one was, or an error.
    End,
}

/// A batch for Python: row numbers as `uint32`, the contents in one buffer, and their offsets as `int64`.
type HandedOut<'py> = (Bound<'py, PyBytes>, Bound<'py, PyByteArray>, Bound<'py, PyBytes>);

impl Current {
    /// The next batch of the run, if there is one.
    fn hand_out<'py>(&mut self, py: Python<'py>) -> Option<HandedOut<'py>> {
        let Current::Run(run) = self else { return None };
        let batch = run.batches.next()?;
        let end = run.at + batch.length_bytes() as usize;
        let buffer = PyByteArray::new(py, &run.buffer[run.at..end]);
        run.at = end;
        let indices: Vec<u8> = batch.indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        Some((PyBytes::new(py, &indices), buffer, PyBytes::new(py, &bytes_of_numbers(&batch.offsets))))
    }
}

/// Batches of an order.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Reader {
    ahead: OfProcess<Ahead>,
    current: Mutex<Current>,
}

impl Reader {
    /// Makes a run with a batch in it the current one; returns whether there is one.
    fn advance(&self, ahead: &Ahead) -> Result<bool> {
        let mut current = lock(&self.current);
        match std::mem::replace(&mut *current, Current::End) {
            Current::End => return Ok(false),
            Current::Run(run) if run.batches.len() > 0 => {
                *current = Current::Run(run);
                return Ok(true);
            }
            Current::Run(Run { buffer, .. }) => lock(&ahead.shared.spare).push(buffer),
            Current::Begin => {}
        }
        let run = ahead.take()?;
        let is_there = run.is_some();
        *current = run.map_or(Current::End, Current::Run);
        Ok(is_there)
    }
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
        let store = store.get().reading(py)?;
        let files = rows.count() as u32;
        let scratch = scratch.map(Scratch::share);
        let (next_batch, run_bytes) = (part.first_from(first_batch), memory_bytes / 2);
        let (give, runs) = sync_channel(0);
        let shared = Arc::new(Shared::default());
        let of_work = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("granulo read".into()).spawn(move || {
            let (order, kept, shared) = (Order::new(kind, files, seed, epoch), None, of_work);
            let work = Work { store, rows, names, order, part, next_batch, kept, run_bytes, threads, scratch, shared };
            work.work(&give);
        });
        let ahead = Ahead { runs: Some(Mutex::new(runs)), shared, thread: Some(thread.or_raise(py)?) };
        Ok(Reader { ahead: OfProcess::new(ahead), current: Mutex::new(Current::Begin) })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<HandedOut<'py>>> {
        let Some(ahead) = self.ahead.get() else {
            return Err(PyValueError::new_err("a reader ends in the process that began it"));
        };
        while py.detach(|| self.advance(ahead)).or_raise(py)? {
            // Another thread may have taken the rest of the run meanwhile, and be waiting for the next.
            if let Some(batch) = lock_if_free(&self.current).and_then(|mut current| current.hand_out(py)) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
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
