//! What a store may show: for each key the content that was acknowledged last, or what somebody tried to write there
//! since and does not know about.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::place::{Place, contents};

/// `None` is no object at all.
type State = Option<Vec<u8>>;

/// The states that each key may have; those that it never had a change to have none.
#[derive(Default)]
pub struct Model {
    possible: BTreeMap<String, Vec<State>>,
}

impl Model {
    /// A change that was acknowledged: there is no other state.
    pub fn acknowledged(&mut self, key: &str, content: &[u8]) {
        self.possible.insert(key.to_owned(), vec![Some(content.to_vec())]);
    }

    /// A change of which nobody knows whether it happened.
    pub fn attempted(&mut self, key: &str, content: &[u8]) {
        let states = self.possible.entry(key.to_owned()).or_insert_with(|| vec![None]);
        states.push(Some(content.to_vec()));
    }

    /// One of the two.
    pub fn ended(&mut self, is_acknowledged: bool, key: &str, content: &[u8]) {
        if is_acknowledged { self.acknowledged(key, content) } else { self.attempted(key, content) }
    }

    /// Compares with the whole store, of which every byte must be right.
    #[track_caller]
    pub fn compare(&self, place: &Place<'_>) {
        let exported = place.export();
        self.compare_with(&exported);
        fs::remove_dir_all(exported).unwrap();
        place.check();
    }

    #[track_caller]
    fn compare_with(&self, exported: &Path) {
        let mut found: BTreeMap<String, Vec<u8>> = contents(exported).into_iter().collect();
        for (key, states) in &self.possible {
            let state = found.remove(key);
            let is_possible = states.contains(&state);
            assert!(is_possible, "{key}: {} of {} possible states", described(&state), states.len());
        }
        assert!(found.is_empty(), "nobody wrote these: {:?}", found.keys());
    }
}

fn described(state: &State) -> String {
    match state {
        None => "it is missing, which is none".to_owned(),
        Some(content) => format!("its {} bytes are none", content.len()),
    }
}
