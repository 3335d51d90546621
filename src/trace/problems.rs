//! Problems of a trace: counted by kind, with the first example of each; everything else remains valid.

use serde::{Deserialize, Serialize};

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trouble {
    /// The input ends prematurely.
    Truncated,
    /// A checksum or a length does not match the bytes.
    Damaged,
    /// A line, packet or record that does not have the format.
    Unreadable,
    /// An unknown call that may concern files.
    UnknownCall,
    /// A beginning without an end in the trace.
    Unfinished,
    /// An end without a beginning in the trace.
    Unmatched,
    /// An operation on an open, handle or descriptor that the trace does not name.
    UnknownFile,
    /// A time that precedes that of the previous operation by more than calls overlap.
    ClockBackwards,
    /// A required field is missing.
    Incomplete,
    /// An impossible value.
    Absurd,
    /// Operations that the recorder noticed without their content (io_uring).
    NotTraced,
    /// Events that the recorder lost.
    Lost,
    /// More of something than can be kept.
    TooMany,
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Trouble; 13] = [
        Trouble::Truncated,
        Trouble::Damaged,
        Trouble::Unreadable,
        Trouble::UnknownCall,
        Trouble::Unfinished,
        Trouble::Unmatched,
        Trouble::UnknownFile,
        Trouble::ClockBackwards,
        Trouble::Incomplete,
        Trouble::Absurd,
        Trouble::NotTraced,
        Trouble::Lost,
        Trouble::TooMany,
    ];

    /// A description, to follow a count ("3 unreadable lines or records").
    pub fn words(self) -> &'static str {
        match self {
            Trouble::Truncated => "truncated",
            Trouble::Damaged => "damaged",
            Trouble::Unreadable => "unreadable, skipped",
            Trouble::UnknownCall => "unknown calls, skipped",
            Trouble::Unfinished => "started, but did not end",
            Trouble::Unmatched => "ended without a start, skipped",
            Trouble::UnknownFile => "on files whose open was not recorded",
            Trouble::ClockBackwards => "with a time before the previous one",
            Trouble::Incomplete => "with missing fields",
            Trouble::Absurd => "with impossible values, skipped",
            Trouble::NotTraced => "seen, but without their operations",
            Trouble::Lost => "lost by the recorder",
            Trouble::TooMany => "too many to store",
        }
    }
}

/// A kind of problem and its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its kind.
    pub kind: Trouble,
    /// Its count.
    pub count: u64,
    /// The first example, with its location, escaped.
    pub first: String,
}

/// All problems.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// Counts a problem; `example` is called only for the first of its kind.
    pub fn count(&mut self, kind: Trouble, example: impl FnOnce() -> String) {
        self.count_many(kind, 1, example);
    }

    /// Counts several problems in one call.
    pub fn count_many(&mut self, kind: Trouble, count: u64, example: impl FnOnce() -> String) {
        match self.list.iter_mut().find(|problem| problem.kind == kind) {
            Some(problem) => problem.count = problem.count.saturating_add(count),
            None => self.list.push(Problem { kind, count, first: example() }),
        }
    }

    /// Adds the problems of the trace that this one was made from.
    pub fn add(&mut self, others: &Problems) {
        for other in &others.list {
            self.count_many(other.kind, other.count, || other.first.clone());
        }
    }

    /// All problems, by kind.
    pub fn list(&self) -> Vec<&Problem> {
        let mut list: Vec<&Problem> = self.list.iter().collect();
        list.sort_by_key(|problem| problem.kind);
        list
    }

    /// Count of one kind.
    pub fn of(&self, kind: Trouble) -> u64 {
        self.list.iter().find(|problem| problem.kind == kind).map_or(0, |problem| problem.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The beginning of a line, escaped, for an example.
pub(super) fn excerpt(line: &[u8]) -> String {
    const LONGEST: usize = 100;
    let shown = &line[..line.len().min(LONGEST)];
    let mut text = crate::units::escape(shown);
    if shown.len() < line.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_is_kept_and_all_are_counted() {
        let mut problems = Problems::default();
        problems.count(Trouble::Unreadable, || "line 3: x".to_owned());
        problems.count(Trouble::Unreadable, || unreachable!("only the first is asked for"));
        problems.count(Trouble::Truncated, || "line 9".to_owned());
        let mut sum = problems.clone();
        sum.add(&problems);
        assert_eq!(sum.of(Trouble::Unreadable), 4);
        assert_eq!(
            sum.list().iter().map(|problem| problem.kind).collect::<Vec<_>>(),
            [Trouble::Truncated, Trouble::Unreadable]
        );
        assert_eq!(sum.list()[1].first, "line 3: x");
    }

    #[test]
    fn an_excerpt_is_short_and_escaped() {
        let text = excerpt(&[b"\x1b[31m".to_vec(), vec![b'x'; 500]].concat());
        assert!(text.starts_with("\\x1b[31m") && text.ends_with('…') && text.len() < 120);
    }
}
