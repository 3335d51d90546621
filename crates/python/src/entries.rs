//! `_granulo.Stat` and `_granulo.Walk`: what is known of an object, and all objects below a key.

use std::collections::VecDeque;
use std::sync::Mutex;

use granulo_core::error::Result;
use granulo_core::locks::lock;
use granulo_store::{Entry, Kind, Status, Time};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::OrRaise;
use crate::keys::{path_of, text_of};
use crate::process::{OfProcess, lock_if_free};

/// What is known of an object.
#[pyclass(frozen, get_all, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Stat {
    /// ``"file"``, ``"directory"``, ``"symlink"`` or ``"special"``: a device, fifo or socket.
    kind: &'static str,
    /// Size of the content in bytes.
    size_bytes: u64,
    /// Type and permissions, as in ``st_mode``.
    mode: u16,
    /// Number of the owner.
    uid: u32,
    /// Number of the group.
    gid: u32,
    /// Time of the last change of the content, in nanoseconds since 1970.
    mtime_ns: i128,
    /// Time of the last change of content or attributes, in nanoseconds since 1970.
    ctime_ns: i128,
    /// Number of names (hard links); ``None`` in a walk.
    names: Option<u64>,
    /// Bytes allocated on all devices; ``None`` in a walk.
    allocated_bytes: Option<u64>,
}

/// Whether objects of a kind have content; that of a symbolic link is its target.
pub(crate) fn has_content(kind: Kind) -> bool {
    !matches!(kind, Kind::Directory | Kind::Special)
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

impl Stat {
    fn of(entry: &Entry) -> Stat {
        let kind = match entry.kind {
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Special => "special",
            _ => "file",
        };
        Stat {
            kind,
            size_bytes: entry.size_bytes,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime_ns: nanoseconds(entry.mtime),
            ctime_ns: nanoseconds(entry.ctime),
            names: None,
            allocated_bytes: None,
        }
    }

    pub(crate) fn of_status(status: &Status) -> Stat {
        let (names, allocated_bytes) = (Some(status.names), Some(status.allocated_bytes));
        Stat { names, allocated_bytes, ..Stat::of(&status.entry) }
    }

    /// A root that was never given attributes, and so has no record.
    pub(crate) fn of_root() -> Stat {
        Stat {
            kind: "directory",
            size_bytes: 0,
            mode: 0o040_755,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            names: Some(1),
            allocated_bytes: Some(0),
        }
    }
}

#[pymethods]
impl Stat {
    fn __repr__(&self) -> String {
        let Stat { kind, size_bytes, mode, mtime_ns, .. } = self;
        format!("Stat(kind='{kind}', size_bytes={size_bytes}, mode=0o{mode:o}, mtime_ns={mtime_ns})")
    }
}

/// Entries that are read together.
const READ_AHEAD: usize = 256;

/// Entries that were read and not handed out yet: paths, and what is known of the objects; last an error, if there is
/// one.
type Read = VecDeque<Result<(Vec<u8>, Stat)>>;

/// Entries in key order, of one state of the store. What was read is memory like any other: handing it out needs no
/// look at which process this is, which is a system call.
#[pyclass(frozen, module = "granulo._granulo")]
#[derive(Debug)]
pub(crate) struct Walk {
    read: Mutex<Read>,
    /// Locked before `read`, and waited for without the interpreter only.
    walk: OfProcess<Mutex<granulo_store::Walk>>,
}

impl Walk {
    pub(crate) fn new(walk: granulo_store::Walk) -> Walk {
        Walk { read: Mutex::default(), walk: OfProcess::new(Mutex::new(walk)) }
    }
}

/// The next entry; `None` at the end.
fn next(walk: &Mutex<granulo_store::Walk>, read: &Mutex<Read>) -> Option<Result<(Vec<u8>, Stat)>> {
    let (mut walk, mut read) = (lock(walk), lock(read));
    if read.is_empty() {
        read_on(&mut walk, &mut read);
    }
    read.pop_front()
}

fn read_on(walk: &mut granulo_store::Walk, read: &mut Read) {
    while read.len() < READ_AHEAD {
        match walk.lend().transpose() {
            Some(Ok(lent)) => read.push_back(Ok((path_of(lent.key), Stat::of(&lent.entry)))),
            Some(Err(error)) => return read.push_back(Err(error)),
            None => return,
        }
    }
}

#[pymethods]
impl Walk {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyString>, Stat)>> {
        let next = match lock_if_free(&self.read).and_then(|mut read| read.pop_front()) {
            Some(next) => Some(next),
            None => {
                let Some(walk) = self.walk.get() else {
                    return Err(pyo3::exceptions::PyValueError::new_err("a walk ends in the process that began it"));
                };
                py.detach(|| next(walk, &self.read))
            }
        };
        next.transpose().or_raise(py)?.map(|(path, stat)| Ok((text_of(py, &path)?, stat))).transpose()
    }
}
