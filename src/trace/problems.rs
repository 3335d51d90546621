//! What was wrong with a trace: counted by kind, with the first example of each, while the rest stands.

use serde::{Deserialize, Serialize};

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The input ends in the middle of something.
    Truncated,
    /// A checksum or a length contradicts the bytes.
    Damaged,
    /// A line, packet or record that is not of the format.
    Unreadable,
    /// A call that may concern files and is not known.
    UnknownCall,
    /// Something began and its end is not in the trace.
    Unfinished,
    /// Something ended and its beginning is not in the trace.
    Unmatched,
    /// An operation on an opening, handle or descriptor that the trace does not name.
    UnknownFile,
    /// A time before that of the operation before it, by more than calls overlap.
    ClockBackwards,
    /// A field that should be there is not.
    Incomplete,
    /// A value that cannot be.
    Absurd,
    /// Operations that the recorder saw pass but not what they did (io_uring).
    NotTraced,
    /// Events that the recorder lost.
    Lost,
    /// More of something than is kept.
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

    /// What it is, behind a count ("3 unreadable lines or records").
    pub fn words(self) -> &'static str {
        match self {
            Trouble::Truncated => "cut off in the middle",
            Trouble::Damaged => "damaged",
            Trouble::Unreadable => "not readable, left out",
            Trouble::UnknownCall => "unknown calls, left out",
            Trouble::Unfinished => "begun and never ended",
            Trouble::Unmatched => "ended and never begun, left out",
            Trouble::UnknownFile => "on files that were opened unseen",
            Trouble::ClockBackwards => "times that go back",
            Trouble::Incomplete => "with fields missing",
            Trouble::Absurd => "with values that cannot be, left out",
            Trouble::NotTraced => "seen, but not what they did",
            Trouble::Lost => "lost by the recorder",
            Trouble::TooMany => "too many to keep",
        }
    }
}

/// How often something was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What it is.
    pub kind: Trouble,
    /// How often.
    pub count: u64,
    /// The first of them, where and what, escaped.
    pub first: String,
}

/// All that was wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// Counts a problem; `example` is asked only for the first of its kind.
    pub fn count(&mut self, kind: Trouble, example: impl FnOnce() -> String) {
        self.count_many(kind, 1, example);
    }

    /// Counts several at once.
    pub fn count_many(&mut self, kind: Trouble, count: u64, example: impl FnOnce() -> String) {
        match self.list.iter_mut().find(|problem| problem.kind == kind) {
            Some(problem) => problem.count = problem.count.saturating_add(count),
            None => self.list.push(Problem { kind, count, first: example() }),
        }
    }

    /// Adds those of a trace that this one was made of.
    pub fn add(&mut self, others: &Problems) {
        for other in &others.list {
            self.count_many(other.kind, other.count, || other.first.clone());
        }
    }

    /// All of them, by kind.
    pub fn list(&self) -> Vec<&Problem> {
        let mut list: Vec<&Problem> = self.list.iter().collect();
        list.sort_by_key(|problem| problem.kind);
        list
    }

    /// How often one kind was met.
    pub fn of(&self, kind: Trouble) -> u64 {
        self.list.iter().find(|problem| problem.kind == kind).map_or(0, |problem| problem.count)
    }

    /// Whether nothing was wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The beginning of a line, escaped, for an example.
pub fn excerpt(line: &[u8]) -> String {
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
