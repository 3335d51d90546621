//! Traces: reads, writes and other operations, one by one, whatever recorded them.
//!
//! A [`Source`] is a stream of [`Operation`]s with the names of files and processes. Readers of strace output, captures
//! and tables are sources; granulo's own format ([`columnar`]) can store all of them.
//!
//! Invariants: file and process numbers are dense and count from 0, and an operation comes only after its names.
//! Operations come in the order in which they ended, or were recorded; their time is when they began, so times may go
//! back a little. What a reader cannot interpret counts in [`Problems`], and it continues: an error ends a trace only
//! if nothing after it can be read.

mod below;
pub mod columnar;
pub mod csv;
mod darshan;
pub(crate) mod fanotify;
mod input;
mod kind;
mod listed;
mod names;
pub(crate) mod nfs;
mod open;
mod problems;
mod program;
pub mod published;
pub(crate) mod strace;
pub mod summary;
pub(crate) mod whole;

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
    /// Start time, in nanoseconds since the origin of [`Origin::clock`].
    pub time_ns: u64,
    /// Duration, if it was recorded.
    pub duration_ns: Option<u64>,
    /// The process: a number in [`Source::processes`].
    pub process: u32,
    /// The file: a number in [`Source::files`]. A file keeps its number and its first name when it is renamed; another
    /// file that takes its name later has another number.
    pub file: Option<u32>,
    /// The open that it belongs to: all operations with the same number used one open file description, from
    /// [`Kind::Open`] or [`Kind::Create`] to [`Kind::Close`]. Numbers count from 0 and are not reused. `None` if the
    /// trace has no opens (NFS version 3, blocks of a device): process and file identify them then.
    pub opening: Option<u32>,
    /// The kind of operation.
    pub kind: Kind,
    /// Whether it failed; the length is 0 then.
    pub failed: bool,
    /// Offset in the file, if it is known and meaningful for the kind.
    pub offset_bytes: Option<u64>,
    /// Number of bytes read, written or mapped (not the number requested); the new size for [`Kind::Truncate`];
    /// otherwise 0.
    pub length_bytes: u64,
    /// Size of the file afterwards, if it is known.
    pub file_size_bytes: Option<u64>,
}

impl Operation {
    /// An operation with only these fields.
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

    /// The end of its range, if its offset is known.
    pub fn end_bytes(&self) -> Option<u64> {
        self.offset_bytes.map(|offset| offset.saturating_add(self.length_bytes))
    }
}

/// A stream of operations.
pub trait Source {
    /// The next operation; `None` at the end.
    ///
    /// # Errors
    /// Errors from reading; if nothing more can be read.
    fn next(&mut self) -> Result<Option<Operation>>;

    /// What was found besides the operations so far.
    fn findings(&self) -> Findings<'_>;

    /// Progress: how much of the input has been read, and its size if that is known.
    fn progress(&self) -> (u64, Option<u64>);

    /// Names of the files found so far, by number.
    fn files(&self) -> &Names {
        self.findings().files
    }

    /// Names of the processes, clients or hosts found so far, by number.
    fn processes(&self) -> &Names {
        self.findings().processes
    }

    /// Origin of the operations.
    fn origin(&self) -> &Origin {
        self.findings().origin
    }

    /// Problems found so far.
    fn problems(&self) -> &Problems {
        self.findings().problems
    }
}

/// What a reader has found besides operations.
#[derive(Debug, Clone, Copy)]
pub struct Findings<'s> {
    /// Names of the files, by number.
    pub files: &'s Names,
    /// Names of the processes, clients or hosts, by number.
    pub processes: &'s Names,
    /// Origin of the operations.
    pub origin: &'s Origin,
    /// Problems.
    pub problems: &'s Problems,
}

/// Origin of operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The recorder: `strace`, `pcap`, `darshan`, `csv`, `fanotify`, …; a conversion keeps it.
    pub recorder: String,
    /// Name of the machine, if the trace has it, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The traced command, if the trace has it, escaped.
    pub command: Option<String>,
    /// What the times of a trace count from.
    pub clock: Clock,
    /// Granularity of operations.
    pub detail: Detail,
    /// Sentences on what this kind of trace cannot show.
    pub notes: Vec<String>,
}

impl Origin {
    /// What most traces of `recorder` have: individual requests, wall-clock times, no command, no notes.
    pub fn new(recorder: &str) -> Origin {
        Origin {
            recorder: recorder.to_owned(),
            host: None,
            command: None,
            clock: Clock::Wall,
            detail: Detail::Requests,
            notes: Vec::new(),
        }
    }
}

/// What the times of a trace count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Clock {
    /// The beginning of 1970, UTC.
    Wall,
    /// The start of the trace, or any other time.
    Start,
    /// The trace has no times: those of its operations are their numbers.
    None,
}

/// Granularity of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Detail {
    /// A read or write is one request.
    Requests,
    /// A read or write is everything that was read or written from open to close: individual requests are not known.
    WholeFiles,
}
