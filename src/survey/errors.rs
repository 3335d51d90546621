//! What a survey could not read: counted by operation and kind, with a few examples.
//!
//! The examples are those that come first by path, operation and cause, in byte order: they depend on what failed, not
//! on the order in which threads met it, and logs can be merged in any order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many examples are kept with their paths.
pub const EXAMPLES: usize = 20;

/// What could not be read. Bounded: one entry for each pair of operation and kind, and [`EXAMPLES`] paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorLog {
    by_kind: BTreeMap<(String, String), u64>,
    examples: Vec<Example>,
}

/// One thing that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Example {
    /// The path, escaped.
    pub path: String,
    /// What was being done.
    pub operation: String,
    /// Why it failed.
    pub cause: String,
}

/// How often an operation failed in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCount {
    /// What was being done.
    pub operation: String,
    /// Why it failed.
    pub kind: String,
    /// How often.
    pub count: u64,
}

impl Example {
    /// The same with `change` applied to every text.
    pub fn map_text(change: impl Fn(String) -> String) -> impl Fn(Example) -> Example {
        move |Example { path, operation, cause }| Example {
            path: change(path),
            operation: change(operation),
            cause: change(cause),
        }
    }
}

impl KindCount {
    /// The same with `change` applied to every text.
    pub fn map_text(change: impl Fn(String) -> String) -> impl Fn(KindCount) -> KindCount {
        move |KindCount { operation, kind, count }| KindCount {
            operation: change(operation),
            kind: change(kind),
            count,
        }
    }
}

impl ErrorLog {
    /// Counts a failure of `operation` because of `cause` at `path` (escaped).
    pub fn record(&mut self, operation: &str, cause: &str, path: String) {
        *self.by_kind.entry((operation.to_owned(), cause.to_owned())).or_default() += 1;
        self.offer(Example { path, operation: operation.to_owned(), cause: cause.to_owned() });
    }

    /// Keeps an example if it is among the first.
    fn offer(&mut self, example: Example) {
        let position = self.examples.partition_point(|known| *known <= example);
        if position < EXAMPLES {
            self.examples.insert(position, example);
            self.examples.truncate(EXAMPLES);
        }
    }

    /// How many there were in all.
    pub fn count(&self) -> u64 {
        self.by_kind.values().sum()
    }

    /// By operation and kind, in alphabetical order.
    pub fn by_kind(&self) -> Vec<KindCount> {
        let entries = self.by_kind.iter();
        entries
            .map(|((operation, kind), &count)| KindCount { operation: operation.clone(), kind: kind.clone(), count })
            .collect()
    }

    /// The first few in byte order, with their paths.
    pub fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// The log from which [`by_kind`](Self::by_kind) and [`examples`](Self::examples) were taken.
    pub fn from_parts(by_kind: Vec<KindCount>, examples: Vec<Example>) -> ErrorLog {
        let mut log = ErrorLog::default();
        for KindCount { operation, kind, count } in by_kind {
            *log.by_kind.entry((operation, kind)).or_default() += count.min(1 << 53);
        }
        examples.into_iter().for_each(|example| log.offer(example));
        log
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &ErrorLog) {
        for (key, count) in &other.by_kind {
            *self.by_kind.entry(key.clone()).or_default() += count;
        }
        other.examples.iter().for_each(|example| self.offer(example.clone()));
    }

    /// Changes the path of every example.
    pub(super) fn map_paths(&mut self, change: impl Fn(&str) -> String) {
        self.examples.iter_mut().for_each(|example| example.path = change(&example.path));
        self.examples.sort();
    }

    /// Forgets every path.
    pub fn anonymise(&mut self) {
        self.examples.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(failures: &[(u8, u8, u8)]) -> ErrorLog {
        let mut log = ErrorLog::default();
        for (path, operation, cause) in failures {
            log.record(&format!("operation {operation}"), &format!("cause {cause}"), format!("path/{path}"));
        }
        log
    }

    fn sum(logs: &[&ErrorLog]) -> ErrorLog {
        let mut sum = ErrorLog::default();
        logs.iter().for_each(|log| sum.merge(log));
        sum
    }

    fn failures() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
        proptest::collection::vec((0..60u8, 0..3u8, 0..3u8), 0..50)
    }

    proptest! {
        #[test]
        fn merging_depends_on_no_order(a in failures(), b in failures(), c in failures()) {
            let all = [a.clone(), b.clone(), c.clone()].concat();
            let mut backwards = all.clone();
            backwards.reverse();
            let [a, b, c, whole] = [a, b, c, all].map(|failures| log(&failures));
            prop_assert_eq!(&log(&backwards), &whole);
            prop_assert_eq!(&sum(&[&sum(&[&a, &b]), &c]), &whole);
            prop_assert_eq!(&sum(&[&a, &sum(&[&b, &c])]), &whole);
            prop_assert_eq!(&sum(&[&c, &b, &a]), &whole);
            prop_assert!(whole.examples().is_sorted());
            prop_assert_eq!(&ErrorLog::from_parts(whole.by_kind(), whole.examples().to_vec()), &whole);
        }
    }
}
