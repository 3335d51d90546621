//! Pieces against plain bytes; snapshots of them; bytes that move into objects.

use proptest::prelude::*;

use super::*;
use crate::devices::bucket::body::tests::three_objects;

/// The bytes of a file, those of objects by number.
fn bytes_of(pieces: &Pieces, objects: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces.iter() {
        let (at, length) = (bytes.len() as u64, piece.length as usize);
        assert!(piece.at == at && length > 0, "a gap at {at}, or an empty piece");
        match &piece.source {
            Source::Hole => bytes.resize(bytes.len() + length, 0),
            Source::Bytes { .. } => bytes.extend_from_slice(piece.bytes().unwrap()),
            Source::Object { object, offset } => {
                let (_, content) = objects.iter().find(|(number, _)| *number == object.number()).unwrap();
                bytes.extend_from_slice(&content[*offset as usize..*offset as usize + length]);
            }
        }
    }
    assert_eq!(bytes.len() as u64, pieces.size_bytes());
    let in_a_row = pieces.iter().zip(pieces.iter().skip(1));
    for (one, next) in in_a_row.filter(|(one, _)| one.bytes().is_none()) {
        assert!(!one.source.leads_to(one.length, &next.source), "{one:?} and {next:?} are one piece");
    }
    bytes
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    SetSize(u64),
    Snapshot,
    /// Every piece in memory of a snapshot of which this is the number, modulo 3, moves.
    Move(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let data = || proptest::collection::vec(any::<u8>(), 0..12);
    let step = prop_oneof![
        4 => (0..60_u64, data()).prop_map(|(at, data)| Step::Write(at, data)),
        4 => data().prop_map(Step::Append),
        1 => (0..60_u64).prop_map(Step::SetSize),
        1 => Just(Step::Snapshot),
        1 => (0..3_usize).prop_map(Step::Move),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn pieces_are_the_bytes_that_were_written(steps in steps()) {
        let available = three_objects();
        let (mut pieces, mut expected): (Pieces, Vec<u8>) = Default::default();
        let mut snapshots: Vec<(Pieces, Vec<u8>)> = Vec::new();
        let mut objects: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, data) => {
                    pieces.write(at, &data);
                    if !data.is_empty() {
                        let end = at as usize + data.len();
                        expected.resize(expected.len().max(end), 0);
                        expected[at as usize..end].copy_from_slice(&data);
                    }
                }
                Step::Append(data) => {
                    pieces.write(pieces.size_bytes(), &data);
                    expected.extend_from_slice(&data);
                }
                Step::SetSize(size) => {
                    pieces.set_size(size);
                    expected.resize(size as usize, 0);
                }
                Step::Snapshot => snapshots.push((pieces.clone(), expected.clone())),
                Step::Move(skip) => {
                    // As a publication does it, which began with the last snapshot.
                    let Some(object) = available.get(objects.len()) else { continue };
                    let Some((snapshot, _)) = snapshots.last_mut() else { continue };
                    let (mut moves, mut content) = (Moves::default(), Vec::new());
                    for piece in snapshot.iter().skip(skip) {
                        if let Some(bytes) = piece.bytes() {
                            moves.add(piece, object, content.len() as u64);
                            content.extend_from_slice(bytes);
                        }
                    }
                    objects.push((object.number(), content));
                    *snapshot = snapshot.relocated(&moves);
                    pieces = pieces.relocated(&moves);
                    prop_assert!(snapshot.in_memory_bytes() == 0 || skip > 0);
                }
            }
            prop_assert_eq!(bytes_of(&pieces, &objects), expected.clone());
            for (snapshot, then) in &snapshots {
                prop_assert_eq!(&bytes_of(snapshot, &objects), then);
            }
            for range in [0..5, 3..40, 17..18, 50..90] {
                let parts: Vec<Piece> = pieces.within(range.clone()).collect();
                let there = range.end.min(pieces.size_bytes()).saturating_sub(range.start);
                prop_assert_eq!(parts.iter().map(|part| part.length).sum::<u64>(), there);
                prop_assert!(parts.first().is_none_or(|part| part.at == range.start));
            }
        }
    }
}

#[test]
fn a_run_is_what_is_in_memory_without_anything_between() {
    let mut pieces = Pieces::default();
    pieces.append(10, Source::Hole);
    pieces.write(10, b"one");
    let snapshot = pieces.clone();
    pieces.write(13, b"two");
    pieces.set_size(20);
    pieces.write(20, b"three");
    assert_eq!(snapshot.size_bytes(), 13);
    let runs = [0, 9, 10, 12, 13, 15, 16, 19, 20, 24, 25].map(|at| pieces.run_around(at));
    assert_eq!(runs, [0..0, 9..9, 10..16, 10..16, 10..16, 10..16, 16..16, 19..19, 20..25, 20..25, 25..25]);
    assert_eq!(pieces.in_memory_bytes(), 11);
}

#[test]
fn pieces_in_a_row_are_exchanged_if_nothing_has_changed() {
    let objects = three_objects();
    let mut pieces = Pieces::default();
    pieces.append(10, Source::Hole);
    for offset in [0, 20, 50] {
        pieces.append(10, Source::Object { object: Arc::clone(&objects[1]), offset });
    }
    let run: Vec<Piece> = pieces.iter().skip(1).cloned().collect();
    let whole = || Source::Object { object: Arc::clone(&objects[2]), offset: 0 };
    for (at, length) in [(0, 0), (5, 5), (40, 9)] {
        let mut changed = pieces.clone();
        changed.write(at, &vec![1; length]);
        assert!(changed.exchange(&run, whole()), "what is around them counts for nothing");
        let found = changed.within(10..40).next().unwrap();
        assert!(found.length == 30 && changed.size_bytes() == pieces.size_bytes().max(at + length as u64));
    }
    for (at, length) in [(5, 6), (25, 1), (39, 4)] {
        let mut changed = pieces.clone();
        changed.write(at, &vec![1; length]);
        assert!(!changed.exchange(&run, whole()));
    }
    pieces.set_size(39);
    assert!(!pieces.exchange(&run, whole()) && !pieces.exchange(&[], whole()));
}
