//! The environment variables of a process, as a value: so tests need not change their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Environment variables that are text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(crate) fn of_process() -> Variables {
        let text =
            std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Variables(text.collect())
    }

    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    /// The value of a variable, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Those whose names begin so, with the whole names in lower case, and not empty.
    pub(crate) fn beginning_with(&self, start: &str) -> impl Iterator<Item = (String, &str)> {
        let given = self.0.iter().filter(move |(key, value)| key.starts_with(start) && !value.is_empty());
        given.map(|(key, value)| (key.to_ascii_lowercase(), value.as_str()))
    }
}
