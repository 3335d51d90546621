//! An object of many chunks, written at random offsets, compared with bytes in memory: immediately, after a reopen, and
//! from the log alone.

use super::*;
use crate::random::Random;

/// Above 4 MiB and 8 MiB, so that the object has three chunks with different units.
const SIZE_BYTES: usize = 22 << 20;
const LONGEST_WRITE_BYTES: usize = 150_000;

/// Writes at random offsets, sometimes truncates or appends, and compares what is read with the model.
fn work(handle: &Handle, model: &mut Vec<u8>, random: &mut Random, writes: usize) {
    for number in 0..writes {
        let length = 1 + random.index(if number % 3 == 0 { LONGEST_WRITE_BYTES } else { 100 });
        let new = bytes(random.any(), length);
        match random.index(20) {
            0 => {
                let size = model.len() - random.index(100_000);
                handle.set_len(size as u64).unwrap();
                model.truncate(size);
            }
            1 => {
                handle.append(&new).unwrap();
                model.extend(new);
            }
            _ => {
                let at = random.index(model.len() - length);
                handle.write_at(&new, at as u64).unwrap();
                model[at..at + length].copy_from_slice(&new);
            }
        }
        if number % 8 == 0 {
            handle.commit(if number % 16 == 0 { Durability::Batch } else { Durability::None }).unwrap();
        }
        let at = random.index(model.len() - LONGEST_WRITE_BYTES);
        let mut part = vec![0; 1 + random.index(LONGEST_WRITE_BYTES)];
        assert_eq!(handle.read_at(&mut part, at as u64).unwrap(), part.len());
        assert!(part == model[at..at + part.len()], "after write {number}");
    }
}

#[test]
fn an_object_of_many_chunks_is_what_was_written_to_it() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let mut store = store(&sandbox);
    let mut model = bytes(1, SIZE_BYTES);
    store.put(&key("f"), &file(), &model).unwrap();
    assert!(descriptor(&store, "f").chunks.len() >= 3);
    let mut random = Random::new(20);
    for round in 0..4 {
        let handle = open(&store, "f");
        work(&handle, &mut model, &mut random, 60);
        handle.close().unwrap();
        assert!(store.get(&key("f")).unwrap().unwrap() == model, "round {round}");
        assert!(descriptor(&store, "f").chunks.len() > 20, "it was spliced");
        if round == 2 {
            compact(&store);
        }
        is_sound(&store);
        drop(store);
        store = match round % 2 {
            0 => Store::open(&home).unwrap(),
            _ => rebuild_index(&home, &OpenOptions::default()).unwrap(),
        };
        assert!(store.get(&key("f")).unwrap().unwrap() == model, "after round {round}");
        is_sound(&store);
    }
}
