//! Traces: what is read and written, operation by operation, whatever recorded it.
//!
//! A [`Source`] is a stream of [`Operation`]s with the names of files and processes beside it. Readers of strace output, captures and
//! tables make one; granulo's own form ([`columnar`])
//! is one that all of them can be kept in.
//!
//! Invariants: file and process numbers are dense and count from 0, and an operation comes only after its names. Operations come in the
//! order in which they ended, or were recorded; the time is when each began, so that times may go back a little. What a reader cannot
//! make sense of it counts in [`Problems`], and goes on: an error ends a trace only where nothing behind it could be read.

pub mod below;
pub mod columnar;
pub mod csv;
pub mod darshan;
pub mod fanotify;
pub mod input;
pub mod kind;
pub mod listed;
pub mod names;
pub mod nfs;
pub mod open;
pub mod problems;
mod program;
pub mod strace;
pub mod summary;
pub mod whole;

pub use below::Below;
pub use input::Input;
pub use kind::Kind;
pub use listed::Listed;
pub use names::{Index, Names};
pub use open::{Format, detect, open, open_table, source_of};
pub use problems::{Problem, Problems, Trouble};

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// One operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// When it began, in nanoseconds since what [`Origin::clock`] says.
    pub time_ns: u64,
    /// How long it took, if that was recorded.
    pub duration_ns: Option<u64>,
    /// Who did it: a number in [`Source::processes`].
    pub process: u32,
    /// On what: a number in [`Source::files`]. A file keeps its number, and its first name, when it is renamed; another file that takes
    /// its name later has another number.
    pub file: Option<u32>,
    /// Through which opening: all operations with one number went through one open file description, from [`Kind::Open`] or
    /// [`Kind::Create`] to [`Kind::Close`]. Numbers count from 0 and are not used again. `None` where the trace does not know openings
    /// (NFS version 3, blocks of a device): then a process and a file stand for it.
    pub opening: Option<u32>,
    /// What was done.
    pub kind: Kind,
    /// Whether it failed; the length is 0 then.
    pub failed: bool,
    /// Where in the file it began, if that is known and has a meaning for the kind.
    pub offset_bytes: Option<u64>,
    /// How many bytes were read, written or mapped (not how many were asked for); the new size for [`Kind::Truncate`]; else 0.
    pub length_bytes: u64,
    /// How large the file was after it, if that is known.
    pub file_size_bytes: Option<u64>,
}

impl Operation {
    /// An operation of which only this much is known.
    pub fn new(time_ns: u64, process: u32, kind: Kind) -> Operation {
        Operation {
            time_ns,
            duration_ns: None,
            process,
            file: None,
            opening: None,
            kind,
            failed: false,
            offset_bytes: None,
            length_bytes: 0,
            file_size_bytes: None,
        }
    }

    /// The first byte behind it, if its offset is known.
    pub fn end_bytes(&self) -> Option<u64> {
        self.offset_bytes.map(|offset| offset.saturating_add(self.length_bytes))
    }
}

/// A stream of operations.
pub trait Source {
    /// The next operation; `None` at the end.
    ///
    /// # Errors
    /// What reading fails with; where nothing can be read any more.
    fn next(&mut self) -> Result<Option<Operation>>;

    /// The names of the files that were met so far, by their numbers.
    fn files(&self) -> &Names;

    /// The names of the processes, clients or hosts that were met so far, by their numbers.
    fn processes(&self) -> &Names;

    /// Where the operations are from.
    fn origin(&self) -> &Origin;

    /// What was wrong so far.
    fn problems(&self) -> &Problems;

    /// How far the input has been read, and how large it is if that is known: for progress.
    fn progress(&self) -> (u64, Option<u64>);
}

/// Where operations are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What recorded them: `strace`, `pcap`, `darshan`, `csv`, `fanotify`, …; a conversion keeps it.
    pub recorder: String,
    /// The command that was traced, if it was recorded with the trace, escaped.
    pub command: Option<String>,
    /// What times count from.
    pub clock: Clock,
    /// What an operation is.
    pub detail: Detail,
    /// What this kind of trace cannot show, as sentences.
    pub notes: Vec<String>,
}

impl Origin {
    /// Single requests by the wall clock, from `recorder`.
    pub fn new(recorder: &str) -> Origin {
        Origin {
            recorder: recorder.to_owned(),
            command: None,
            clock: Clock::Wall,
            detail: Detail::Requests,
            notes: Vec::new(),
        }
    }
}

/// What times count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// 1970, UTC.
    Wall,
    /// The start of the trace, or anything else.
    Start,
    /// There are no times: they count operations.
    None,
}

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// A read or write is one request.
    Requests,
    /// A read or write is all that was read or written from opening to closing: single requests are not known.
    WholeFiles,
}
