//! `_granulo.Scratch`: the contents of a data set, spread over files in the order of an epoch.
//!
//! Where reads of neighbours with gaps are slow (disks, buckets), the exact order is read in two passes. The first
//! reads all files in disk order, without gaps, and appends each to the **stretch** of the order in which it will be
//! needed, a file in scratch space; the second reads one stretch after the other. A stretch has at most half of the
//! memory. The order was drawn before, so this changes when a byte is read, and nothing of what is handed out.
//!
//! **Invariants**: a stretch holds every file of its positions once; its records are as long as the table says. The
//! directory belongs to whoever made it, who removes it; workers read it by its path. Bytes were verified when they
//! were read from the store, and carry a checksum (XXH3-64) for the way through the scratch space.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::locks::lock;
use granulo_store::Store;
use pyo3::prelude::*;
use twox_hash::XxHash3_64;

use crate::errors::OrRaise;
use crate::handle::Handle;
use crate::names::Names;
use crate::order::{Kind, Order};
use crate::reading::{offsets_of, read_rows, unwanted};
use crate::rows::Rows;
use crate::table::Table;

/// Memory of the first pass for each stretch that is being written.
const WRITE_BYTES: usize = 256 << 10;
/// Most stretches: as many files are open at once.
const MOST_STRETCHES: u64 = 512;
/// Bytes in front of each content: its checksum.
const CHECKSUM_BYTES: u64 = 8;

/// Where every file is: the stretch, and the offset in it.
#[derive(Debug)]
struct Places {
    directory: PathBuf,
    stretch_of: Vec<u16>,
    offset_of: Vec<u64>,
}

/// Contents in scratch space.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug, Clone)]
pub(crate) struct Scratch(Arc<Places>);

impl Places {
    /// Divides an order into stretches of at most so many bytes, and places every file in the order in which it is
    /// written: that of the disk.
    fn of(rows: &Rows, order: &mut Order, directory: PathBuf, stretch_bytes: u64) -> Result<(Places, usize)> {
        let count = rows.count();
        let (mut stretch_of, mut offset_of) = (vec![0u16; count], vec![0u64; count]);
        let (mut stretch, mut length) = (0u16, 0);
        for position in 0..count as u64 {
            let row = order.at(position, Some(rows)) as usize;
            let bytes = rows.size_bytes(row) + CHECKSUM_BYTES;
            if length > 0 && length + bytes > stretch_bytes {
                (stretch, length) = (stretch + 1, 0);
                if u64::from(stretch) >= MOST_STRETCHES {
                    let cause = format!("the data would be in more than {MOST_STRETCHES} stretches");
                    return Err(Error::new(ErrorKind::Usage, "spread the data", cause).advise("allow more memory"));
                }
            }
            length += bytes;
            stretch_of[row] = stretch;
        }
        let stretches = usize::from(stretch) + 1;
        let mut ends = vec![0; stretches];
        for at in 0..count {
            let row = rows.by_place(at) as usize;
            let end = &mut ends[usize::from(stretch_of[row])];
            offset_of[row] = *end;
            *end += rows.size_bytes(row) + CHECKSUM_BYTES;
        }
        Ok((Places { directory, stretch_of, offset_of }, stretches))
    }

    fn path(&self, stretch: usize) -> PathBuf {
        self.directory.join(format!("stretch-{stretch:03}"))
    }

    fn io(&self, operation: &'static str, stretch: usize, error: std::io::Error) -> Error {
        Error::io(operation, &self.path(stretch), error)
    }

    /// The first pass: reads the store in disk order, a piece after the other, as long as they are wanted.
    fn fill(
        &self,
        store: &Store,
        (rows, names): (&Rows, &Names),
        stretches: usize,
        (piece_bytes, threads): (u64, usize),
        are_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        fs::create_dir_all(&self.directory).map_err(|error| Error::io("make the directory", &self.directory, error))?;
        let mut files = Vec::new();
        for stretch in 0..stretches {
            let created = File::create_new(self.path(stretch));
            let file = created.map_err(|error| self.io("create the stretch", stretch, error))?;
            files.push(BufWriter::with_capacity(WRITE_BYTES, file));
        }
        let (mut at, mut buffer) = (0, Vec::new());
        while at < rows.count() {
            let (mut piece, mut length) = (Vec::new(), 0);
            while at < rows.count() {
                let row = rows.by_place(at);
                let end = length + rows.size_bytes(row as usize);
                if end > piece_bytes && !piece.is_empty() {
                    break;
                }
                length = end;
                piece.push(row);
                at += 1;
            }
            let offsets = offsets_of(rows, &piece)?;
            buffer.resize(length as usize, 0);
            read_rows(store, (rows, names), &piece, threads, are_wanted, &mut buffer)?;
            for (row, range) in piece.iter().zip(offsets.windows(2)) {
                let content = &buffer[range[0] as usize..range[1] as usize];
                let stretch = usize::from(self.stretch_of[*row as usize]);
                let file = &mut files[stretch];
                let written =
                    file.write_all(&XxHash3_64::oneshot(content).to_le_bytes()).and_then(|()| file.write_all(content));
                written.map_err(|error| self.io("write the stretch", stretch, error))?;
            }
        }
        for (stretch, mut file) in files.into_iter().enumerate() {
            file.flush().map_err(|error| self.io("write the stretch", stretch, error))?;
        }
        Ok(())
    }
}

impl Scratch {
    pub(crate) fn share(&self) -> Scratch {
        self.clone()
    }

    /// Reads rows into a buffer, stretch by stretch and ascending in each.
    ///
    /// # Errors
    /// Those of reading; [`ErrorKind::Corrupt`] if a content is not what was written; [`unwanted`], soon after the rows
    /// are no longer wanted.
    pub(crate) fn read(
        &self,
        rows: &Rows,
        indices: &[u32],
        are_wanted: &dyn Fn() -> bool,
        buffer: &mut [u8],
    ) -> Result<()> {
        let Scratch(places) = self;
        let offsets = offsets_of(rows, indices)?;
        let place_of = |at: &usize| {
            let row = indices[*at] as usize;
            (places.stretch_of[row], places.offset_of[row])
        };
        let mut sorted: Vec<usize> = (0..indices.len()).collect();
        sorted.sort_unstable_by_key(place_of);
        let mut open: Option<(u16, File)> = None;
        let mut stored = Vec::new();
        for at in sorted {
            if !are_wanted() {
                return Err(unwanted());
            }
            let (stretch, offset) = place_of(&at);
            let file = match &mut open {
                Some((number, file)) if *number == stretch => file,
                other => {
                    let path = places.path(stretch.into());
                    let file = File::open(&path).map_err(|error| Error::io("open the stretch", &path, error))?;
                    &mut other.insert((stretch, file)).1
                }
            };
            let target = &mut buffer[offsets[at] as usize..offsets[at + 1] as usize];
            stored.resize(target.len() + CHECKSUM_BYTES as usize, 0);
            let read = file.read_exact_at(&mut stored, offset);
            read.map_err(|error| places.io("read the stretch", stretch.into(), error))?;
            let (sum, content) = stored.split_at(CHECKSUM_BYTES as usize);
            if sum != XxHash3_64::oneshot(content).to_le_bytes() {
                let cause = "a content in it was damaged on the way through scratch space";
                return Err(Error::new(ErrorKind::Corrupt, "read the stretch", cause).at(&places.path(stretch.into())));
            }
            target.copy_from_slice(content);
        }
        Ok(())
    }
}

#[pymethods]
impl Scratch {
    /// The places of a data set in an order; with `fill`, its contents are written there.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, Handle>,
        table: &Table,
        seed: u64,
        epoch: u64,
        directory: PathBuf,
        memory_bytes: u64,
        threads: usize,
        fill: bool,
    ) -> PyResult<Scratch> {
        let (rows, names) = table.shared();
        let kind = Kind::named("exact", rows.count() as u64, 0, None).or_raise(py)?;
        let store = store.get().store(py)?;
        // Ctrl-C ends the first pass, which may take hours.
        let interrupted = Mutex::new(None);
        let are_wanted = || {
            let signal = Python::attach(|py| py.check_signals()).err();
            let is_none = signal.is_none();
            *lock(&interrupted) = signal;
            is_none
        };
        let made = py.detach(|| -> Result<Scratch> {
            let mut order = Order::new(kind, rows.count() as u32, seed, epoch);
            let (places, stretches) = Places::of(&rows, &mut order, directory, memory_bytes / 2)?;
            if fill {
                places.fill(&store, (&rows, &names), stretches, (memory_bytes / 4, threads), &are_wanted)?;
            }
            Ok(Scratch(Arc::new(places)))
        });
        match lock(&interrupted).take() {
            Some(signal) => Err(signal),
            None => made.or_raise(py),
        }
    }
}
