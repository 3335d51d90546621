//! What a survey could not read: counted by operation and kind, with the first few examples.

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Counts a failure of `operation` because of `cause`; calls `path` (escaped) only while there is room for it.
    pub fn record(&mut self, operation: &str, cause: &str, path: impl FnOnce() -> String) {
        *self.by_kind.entry((operation.to_owned(), cause.to_owned())).or_default() += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(Example { path: path(), operation: operation.to_owned(), cause: cause.to_owned() });
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

    /// The first few, with their paths.
    pub fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// The log from which [`by_kind`](Self::by_kind) and [`examples`](Self::examples) were taken.
    pub fn from_parts(by_kind: Vec<KindCount>, mut examples: Vec<Example>) -> ErrorLog {
        let mut log = ErrorLog::default();
        for KindCount { operation, kind, count } in by_kind {
            *log.by_kind.entry((operation, kind)).or_default() += count.min(1 << 53);
        }
        examples.truncate(EXAMPLES);
        log.examples = examples;
        log
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &ErrorLog) {
        for (key, count) in &other.by_kind {
            *self.by_kind.entry(key.clone()).or_default() += count;
        }
        let room = EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    /// Forgets every path.
    pub fn anonymise(&mut self) {
        self.examples.clear();
    }
}
