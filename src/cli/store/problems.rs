//! A problem of a store, printed and in JSON (docs/SCHEMA.md, "Problems of a store").

use serde::Serialize;

use crate::store::{Problem, Remedy};
use crate::units::escape_path;

/// A problem.
#[derive(Debug, Serialize)]
pub(super) struct ProblemRecord {
    kind: &'static str,
    remedy: &'static str,
    device: Option<u16>,
    /// Escaped.
    path: String,
    segment: Option<u64>,
    range: Option<(u64, u64)>,
    /// The affected object, escaped.
    object: Option<String>,
    cause: String,
    /// Whether it was repaired; `null` if no repair was tried.
    repaired: Option<bool>,
}

impl ProblemRecord {
    pub(super) fn new(problem: &Problem, repaired: Option<bool>) -> ProblemRecord {
        ProblemRecord {
            kind: problem.kind.name(),
            remedy: problem.remedy.name(),
            device: problem.device.map(|device| device.0),
            path: escape_path(&problem.path),
            segment: problem.segment.map(|number| number.0),
            range: problem.range.clone().map(|range| (range.start, range.end)),
            object: problem.object.clone(),
            cause: problem.cause.clone(),
            repaired,
        }
    }
}

/// A problem as a line, with the outcome of its repair.
pub(super) fn line(problem: &Problem, is_repaired: bool) -> String {
    match is_repaired {
        true => format!("repaired: {}", problem.without_advice()),
        false => format!("{}: {problem}", word(problem.remedy)),
    }
}

/// Its severity.
pub(super) fn word(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Repair => "repairable",
        Remedy::Rebuild | Remedy::Return => "device",
        Remedy::RebuildIndex => "index",
        Remedy::Harmless => "harmless",
        Remedy::Lost => "lost",
    }
}
