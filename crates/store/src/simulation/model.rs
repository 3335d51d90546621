//! The states that a store may have, after a crash or an error.
//!
//! Batches are in order, and each piece of one (see [`pieces`]) exists whole or not at all. After a crash a store has
//! the state after a prefix of the pieces, without gaps, that includes every piece that was acknowledged as durable. A
//! piece whose batch ended with an error may exist or not; if it does, so do the earlier ones of the same batch.
//!
//! The model knows nothing of how a store works: no log, no index, no devices.

use std::collections::BTreeSet;
use std::fmt;

use super::state::{SeenChoices, State};
use super::workload::{Change, Durability, pieces};
use crate::Key;

/// A state that is not allowed.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Differences from the nearest allowed state.
    differences: Vec<String>,
    /// Number of allowed states.
    allowed: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "none of {} states that are allowed; from the nearest it differs so:", self.allowed)?;
        for difference in self.differences.iter().take(8) {
            write!(f, "\n  {difference}")?;
        }
        Ok(())
    }
}

/// The number of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchNumber(u64);

#[derive(Debug, Clone)]
struct Piece {
    batch: BatchNumber,
    changes: Vec<Change>,
    /// Changes of the batch up to the end of this piece.
    end: usize,
    shared: u64,
    has_failed: bool,
}

impl Piece {
    fn apply(&self, state: &mut State) {
        for (at, change) in self.changes.iter().enumerate() {
            state.apply(change, self.shared + at as u64);
        }
    }
}

/// The states that a store may have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    base: State,
    /// Pieces after the base, in order.
    tail: Vec<Piece>,
    /// How many pieces of the tail are durable, apart from those that failed.
    durable: usize,
    next_batch: u64,
    next_shared: u64,
    /// Objects without any expectation.
    blind: BTreeSet<Key>,
    /// Numbers and times that the store was seen to assign to objects.
    seen: SeenChoices,
    /// The states that were acknowledged since the last mark in the superblocks, and the state at that mark.
    since_mark: Vec<State>,
}

impl Model {
    /// A store with this state, all of it durable.
    pub(crate) fn of(state: State) -> Model {
        Model { next_shared: state.next_shared(), since_mark: vec![state.clone()], base: state, ..Model::default() }
    }

    /// Begins a batch, before the store is called.
    pub(crate) fn begin(&mut self, durability: Durability, changes: &[Change]) -> BatchNumber {
        let batch = BatchNumber(self.next_batch);
        self.next_batch += 1;
        let mut end = 0;
        for piece in pieces(durability, changes) {
            end += piece.len();
            let changes = piece.to_vec();
            self.tail.push(Piece { batch, changes, end, shared: self.next_shared, has_failed: false });
            self.next_shared += piece.len() as u64;
        }
        batch
    }

    /// The store acknowledged all of this batch as durable, and with it everything before; or, for a batch of
    /// durability `each`, its first `changes` changes.
    pub(crate) fn acknowledge(&mut self, batch: BatchNumber, changes: usize) {
        let last = self.tail.iter().rposition(|piece| piece.batch == batch && piece.end <= changes);
        self.durable = self.durable.max(last.map_or(0, |last| last + 1));
        if self.since_mark.is_empty() {
            self.since_mark.push(State::default());
        }
        self.fold();
    }

    /// The fate of unacknowledged batches is unknown.
    pub(crate) fn doubt(&mut self) {
        self.tail.iter_mut().for_each(|piece| piece.has_failed = true);
    }

    /// The store acknowledged everything as durable.
    pub(crate) fn acknowledge_all(&mut self) {
        self.acknowledge_unmarked();
        self.since_mark = vec![self.base.clone()];
    }

    /// The same, but its marks are of a log that may lack what was acknowledged before.
    pub(crate) fn acknowledge_unmarked(&mut self) {
        self.durable = self.tail.len();
        self.fold();
    }

    /// The batch ended with an error.
    pub(crate) fn fail(&mut self, batch: BatchNumber) {
        for piece in self.tail.iter_mut().skip(self.durable).filter(|piece| piece.batch == batch) {
            piece.has_failed = true;
        }
    }

    fn fold(&mut self) {
        let certain = self.tail[..self.durable].iter().take_while(|piece| !piece.has_failed).count();
        for piece in self.tail.drain(..certain) {
            piece.apply(&mut self.base);
            self.since_mark.push(self.base.clone());
        }
        self.durable -= certain;
    }

    /// Calls `visit` with every possible state, the fewest pieces first, and with the pieces in it, until it returns
    /// true.
    fn visit(&self, visit: &mut dyn FnMut(&State, &[bool]) -> bool) -> bool {
        self.visit_from(&self.base, &mut Vec::new(), visit)
    }

    fn visit_from(&self, state: &State, has: &mut Vec<bool>, visit: &mut dyn FnMut(&State, &[bool]) -> bool) -> bool {
        let at = has.len();
        if at >= self.durable && visit(state, has) {
            return true;
        }
        let Some(piece) = self.tail.get(at) else { return false };
        if piece.has_failed {
            let rest = self.tail[at..].iter().take_while(|next| next.batch == piece.batch).count();
            has.resize(at + rest, false);
            let found = self.visit_from(state, has, visit);
            has.truncate(at);
            if found {
                return true;
            }
        }
        let mut state = state.clone();
        piece.apply(&mut state);
        has.push(true);
        let found = self.visit_from(&state, has, visit);
        has.truncate(at);
        found
    }

    /// Whether a store may have this state after a crash.
    ///
    /// # Errors
    /// The differences from the nearest allowed state.
    pub(crate) fn allows(&self, found: &State) -> Result<(), Mismatch> {
        self.search(found, false).map(|_| ())
    }

    /// As [`allows`](Self::allows), whatever the objects with these keys are.
    ///
    /// # Errors
    /// As [`allows`](Self::allows).
    pub(crate) fn allows_but_for(&self, found: &State, keys: &[&Key]) -> Result<(), Mismatch> {
        self.but_for(keys).allows(found)
    }

    /// The same model, without any expectation of the objects with these keys.
    pub(crate) fn but_for(&self, keys: &[&Key]) -> Model {
        let mut model = self.clone();
        model.blind.extend(keys.iter().map(|key| (*key).clone()));
        model
    }

    /// Whether a store may have this state, whatever the objects with these keys are, if batches were damaged after
    /// they were acknowledged, and with them the marks that said so.
    pub(crate) fn allows_from_mark(&self, found: &State, keys: &[&Key]) -> bool {
        let blind = self.but_for(keys).blind;
        let none = [State::default()];
        let marked = if self.since_mark.is_empty() { &none[..] } else { &self.since_mark };
        let is_it = |state: &State| state.differences(found, &blind).is_empty();
        // Or any number of pieces that were begun since.
        let mut later = self.base.clone();
        let mut applied = self.tail.iter().map(|piece| {
            piece.apply(&mut later);
            is_it(&later)
        });
        marked.iter().any(is_it) || applied.any(|is_it| is_it)
    }

    /// Unacknowledged pieces: whether they exist is unknown.
    fn in_doubt(&self) -> impl Iterator<Item = &Piece> {
        let all = self.tail.iter().enumerate();
        all.filter(|(at, piece)| *at >= self.durable || piece.has_failed).map(|(_, piece)| piece)
    }

    /// Whether there are batches whose existence is unknown.
    pub(crate) fn has_doubt(&self) -> bool {
        self.in_doubt().next().is_some()
    }

    /// Whether an unacknowledged batch changes an object, under its current key or a former one.
    pub(crate) fn is_in_doubt(&self, key: &Key) -> bool {
        let mut keys = BTreeSet::from([key.clone()]);
        for change in self.tail.iter().rev().flat_map(|piece| piece.changes.iter().rev()) {
            let moves = match change {
                Change::Rename(from, to) | Change::Link(from, to) | Change::HardLink(from, to) => vec![(from, to)],
                Change::Exchange(one, other) => vec![(one, other), (other, one)],
                _ => Vec::new(),
            };
            let before = |key: &Key| {
                let was = moves.iter().filter_map(|(from, to)| from.join(&key.below(to)?).ok());
                was.collect::<Vec<Key>>()
            };
            let had: BTreeSet<Key> = keys.iter().flat_map(before).collect();
            keys.extend(had);
        }
        let touches = |change: &Change| keys.iter().any(|key| key.below(change.key()).is_some());
        self.in_doubt().flat_map(|piece| &piece.changes).any(touches)
    }

    /// The state with everything that was begun.
    pub(crate) fn latest(&self) -> State {
        let mut state = self.base.clone();
        self.tail.iter().for_each(|piece| piece.apply(&mut state));
        state
    }

    /// What a store that continues must show now, after errors: all pieces except those that failed. Which of those
    /// exist is known from then on.
    ///
    /// # Errors
    /// As [`allows`](Self::allows).
    pub(crate) fn observe(&mut self, found: &State) -> Result<(), Mismatch> {
        let has = self.search(found, true)?;
        let (blind, mut seen) = (self.blind.clone(), std::mem::take(&mut self.seen));
        self.visit(&mut |state, with| {
            let is_it = with == has;
            if is_it {
                state.contradictions(found, &blind, &mut seen);
            }
            is_it
        });
        self.seen = seen;
        let mut at = 0;
        let durable = has[..self.durable].iter().filter(|has| **has).count();
        self.tail.retain_mut(|piece| {
            piece.has_failed = false;
            at += 1;
            has[at - 1]
        });
        self.durable = durable;
        self.fold();
        Ok(())
    }

    fn search(&self, found: &State, whole: bool) -> Result<Vec<bool>, Mismatch> {
        let mut nearest: Option<Vec<String>> = None;
        let (mut allowed, mut result) = (0, Vec::new());
        let is_one = self.visit(&mut |state, has| {
            if whole && has.len() < self.tail.len() {
                return false;
            }
            allowed += 1;
            let mut differences = state.differences(found, &self.blind);
            if differences.is_empty() {
                differences = state.contradictions(found, &self.blind, &mut self.seen.clone());
            }
            if differences.is_empty() {
                result = has.to_vec();
                return true;
            }
            if nearest.as_ref().is_none_or(|nearest| differences.len() < nearest.len()) {
                nearest = Some(differences);
            }
            false
        });
        if is_one { Ok(result) } else { Err(Mismatch { differences: nearest.unwrap_or_default(), allowed }) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::{key, put, state};
    use super::*;

    #[test]
    fn a_prefix_with_all_that_is_durable_is_allowed_and_nothing_else() {
        let mut model = Model::default();
        let first = model.begin(Durability::Batch, &[put("a", 1), put("b", 2)]);
        let whole = [put("a", 1), put("b", 2), put("c", 3), put("d", 4)];
        assert!(model.allows(&State::default()).is_ok());
        assert!(model.allows(&state(&whole[..1])).is_err(), "half a batch");
        assert!(model.allows(&state(&whole[..2])).is_ok(), "a batch that was not acknowledged may be there");
        model.acknowledge(first, 2);
        assert!(model.allows(&State::default()).is_err(), "an acknowledged batch is missing");
        model.begin(Durability::None, &whole[2..3]);
        model.begin(Durability::None, &whole[3..]);
        for count in 2..=4 {
            assert!(model.allows(&state(&whole[..count])).is_ok());
        }
        let out_of_order = state(&[put("a", 1), put("b", 2), put("d", 4)]);
        let mismatch = model.allows(&out_of_order).unwrap_err().to_string();
        assert!(mismatch.contains("none of 3 states") && mismatch.contains("d is there"), "{mismatch}");
        model.acknowledge_all();
        assert!(model.allows(&state(&whole[..3])).is_err());
        assert!(model.allows(&state(&[put("a", 1), put("b", 2), put("c", 3), put("d", 5)])).is_err(), "other bytes");
    }

    #[test]
    fn each_change_of_durability_each_counts_for_itself() {
        let mut model = Model::default();
        let changes = [put("a", 1), put("b", 2), put("c", 3)];
        let batch = model.begin(Durability::Each, &changes);
        model.acknowledge(batch, 1);
        assert!(model.allows(&State::default()).is_err());
        assert!((1..=3).all(|count| model.allows(&state(&changes[..count])).is_ok()));
        model.acknowledge(batch, 2);
        assert!(model.allows(&state(&changes[..1])).is_err() && model.allows(&state(&changes[..2])).is_ok());
    }

    #[test]
    fn a_batch_that_failed_may_be_there_until_somebody_looks() {
        let mut model = Model::default();
        let whole = [put("a", 1), put("b", 2), Change::RemoveTree(key("a")), put("c", 3)];
        let first = model.begin(Durability::Batch, &whole[..1]);
        model.acknowledge(first, 1);
        let failed = model.begin(Durability::Batch, &whole[1..3]);
        model.fail(failed);
        let last = model.begin(Durability::Batch, &whole[3..]);
        model.acknowledge(last, 1);
        let candidates = [
            vec![put("a", 1), put("c", 3)],
            vec![put("a", 1), put("b", 2), put("c", 3)],
            vec![put("b", 2), put("c", 3)],
        ];
        for changes in &candidates {
            assert!(model.allows(&state(changes)).is_ok(), "{changes:?}");
        }
        assert!(model.allows(&state(&whole[..2])).is_err(), "what came after it is acknowledged");
        assert!(model.allows(&state(&[put("c", 3)])).is_err(), "its second piece without the first");
        model.observe(&state(&candidates[1])).unwrap();
        assert!(model.allows(&state(&candidates[1])).is_ok());
        assert!(model.allows(&state(&candidates[0])).is_err() && model.allows(&state(&candidates[2])).is_err());
    }
}
