//! Everything that can be wrong with a store, in a form for programs and in words.
//!
//! Each problem says what it is about, where, which object it concerns, and what helps. The words for `check`, `scrub`
//! and `repair` come from here.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::units::escape_path;

/// What a problem is about. [`name`](ProblemKind::name)s are for programs and do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A device is missing, empty, another one, damaged or stale.
    Device,
    /// A superblock, or one of its slots.
    Superblock,
    /// Devices contradict each other.
    Geometry,
    /// The catalog, or its place.
    Catalog,
    /// A sorted table.
    Table,
    /// An account of the catalog disagrees with the index or the log.
    Account,
    /// An entry of the index.
    Entry,
    /// The end of the log is not where the catalog says.
    Log,
    /// A segment, or a copy of it, is missing.
    SegmentMissing,
    /// A copy of a segment has the wrong size.
    SegmentSize,
    /// The header of a segment.
    SegmentHeader,
    /// A record, or bytes that should be records.
    Record,
    /// A commit record contradicts the batch before it.
    Batch,
    /// There are too few copies.
    Copies,
    /// An extent file.
    ExtentFile,
    /// A stripe unit.
    Unit,
    /// A file that belongs to nothing.
    Leftover,
    /// Copies that are valid but differ.
    Divergence,
}

impl ProblemKind {
    /// A short name that does not change.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Device => "device",
            ProblemKind::Superblock => "superblock",
            ProblemKind::Geometry => "geometry",
            ProblemKind::Catalog => "catalog",
            ProblemKind::Table => "table",
            ProblemKind::Account => "account",
            ProblemKind::Entry => "entry",
            ProblemKind::Log => "log",
            ProblemKind::SegmentMissing => "segment_missing",
            ProblemKind::SegmentSize => "segment_size",
            ProblemKind::SegmentHeader => "segment_header",
            ProblemKind::Record => "record",
            ProblemKind::Batch => "batch",
            ProblemKind::Copies => "copies",
            ProblemKind::ExtentFile => "extent_file",
            ProblemKind::Unit => "unit",
            ProblemKind::Leftover => "leftover",
            ProblemKind::Divergence => "divergence",
        }
    }
}

/// What helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remedy {
    /// Redundancy has the data: `repair`, or `scrub`.
    Repair,
    /// A device must return or be replaced: `rebuild`.
    Rebuild,
    /// A device must return: what it has is unknown without it, so it cannot be replaced.
    Return,
    /// The segments have the data: the index is rebuilt.
    RebuildIndex,
    /// No live object is concerned: `repair` moves what is valid, and frees the segment.
    Harmless,
    /// No copy and no parity has it: only a backup helps.
    Lost,
}

impl Remedy {
    /// A short name that does not change.
    pub fn name(self) -> &'static str {
        match self {
            Remedy::Repair => "repair",
            Remedy::Rebuild => "rebuild",
            Remedy::Return => "return",
            Remedy::RebuildIndex => "rebuild_index",
            Remedy::Harmless => "harmless",
            Remedy::Lost => "lost",
        }
    }

    /// What to do next.
    pub fn advice(self) -> &'static str {
        match self {
            Remedy::Repair => "run granulo store repair",
            Remedy::Rebuild => "bring the device back, or run granulo store rebuild",
            Remedy::Return => "bring the device back, or name its directory with --device",
            Remedy::RebuildIndex => "granulo store check --rebuild-index rebuilds the index",
            Remedy::Harmless => "no object in use is affected; granulo store repair frees the segment",
            Remedy::Lost => {
                "no copy has it: restore it from a backup with granulo store put or import --verify, or drop it with granulo \
                 store repair --drop-lost"
            }
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it is about.
    pub kind: ProblemKind,
    /// Number of the device.
    pub device: Option<DeviceNumber>,
    /// File or directory.
    pub path: PathBuf,
    /// Bytes of the file.
    pub range: Option<Range<u64>>,
    /// Number of the segment.
    pub segment: Option<SegmentNumber>,
    /// The index key of the object that it concerns.
    pub(crate) key: Option<Vec<u8>>,
    /// The object that it concerns, escaped; "shared file N" for a file with several names.
    pub object: Option<String>,
    /// The cause, as the end of a sentence that begins with the path.
    pub cause: String,
    /// What helps.
    pub remedy: Remedy,
    /// What to do next, where that is more precise than the advice of the remedy.
    pub(crate) advice: Option<String>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, path: PathBuf, cause: impl Into<String>, remedy: Remedy) -> Problem {
        Problem {
            kind,
            device: None,
            path,
            range: None,
            segment: None,
            key: None,
            object: None,
            cause: cause.into(),
            remedy,
            advice: None,
        }
    }

    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Problem {
        self.advice = Some(advice.into());
        self
    }

    /// The same of bytes of which nobody knows what was there: if they are lost, there is no object to drop.
    #[must_use]
    pub(crate) fn of_unknown(self) -> Problem {
        match self.remedy {
            Remedy::Lost => {
                self.advise("restore what is missing from a backup; granulo store repair --accept gives it up")
            }
            _ => self,
        }
    }

    #[must_use]
    pub(crate) fn on(mut self, device: DeviceNumber) -> Problem {
        self.device = Some(device);
        self
    }

    #[must_use]
    pub(crate) fn within(mut self, segment: SegmentNumber, range: Range<LogOffset>) -> Problem {
        (self.segment, self.range) = (Some(segment), Some(range.start.0..range.end.0));
        self
    }

    #[must_use]
    pub(crate) fn of(mut self, key: &[u8]) -> Problem {
        self.key = Some(key.to_vec());
        self
    }

    /// The memory that it needs, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let key_bytes = self.key.as_ref().map_or(0, Vec::len);
        let object_bytes = self.object.as_ref().map_or(0, String::len);
        let advice_bytes = self.advice.as_ref().map_or(0, String::len);
        size_of::<Problem>() + self.path.as_os_str().len() + key_bytes + object_bytes + self.cause.len() + advice_bytes
    }
}

impl Problem {
    /// In words, without what to do next.
    pub fn without_advice(&self) -> String {
        let mut text = escape_path(&self.path);
        if let Some(range) = &self.range {
            text.push_str(&format!(", bytes {} to {}", range.start, range.end));
        }
        text.push_str(&format!(": {}", self.cause));
        if let Some(object) = &self.object {
            text.push_str(&format!("; it affects {object}"));
        }
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = self.advice.as_deref().unwrap_or(self.remedy.advice());
        write!(f, "{} ({advice})", self.without_advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_where_of_whom_and_what_helps() {
        let problem = Problem::new(
            ProblemKind::Record,
            PathBuf::from("/ssd0/segments/01"),
            "a record is damaged",
            Remedy::Repair,
        );
        let mut problem = problem.on(DeviceNumber(0)).within(SegmentNumber(1), LogOffset(80)..LogOffset(200));
        problem.object = Some("cats/1.jpg".to_owned());
        assert_eq!(
            problem.to_string(),
            "/ssd0/segments/01, bytes 80 to 200: a record is damaged; it affects cats/1.jpg (run granulo store repair)"
        );
    }
}
