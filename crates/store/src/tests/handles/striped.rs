//! Large objects that are changed in some places: what is written for that, and what stays in place.

use super::*;
use crate::devices::extents::most_chunks;
use crate::layout::granulo::Striping;

/// Bytes of a stripe with parity.
const STRIPE_BYTES: u64 = 5 * 4096;

#[test]
fn a_touched_stripe_costs_its_own_bytes_and_no_more() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut content = bytes(1, 4096 + 20 * 16_384);
    store.put(&key("f"), &file(), &content).unwrap();
    let handle = open(&store, "f");
    let before = descriptor(&store, "f");
    let costs = |at: usize, new: &[u8], content: &mut [u8]| {
        let before = extent_bytes(&sandbox);
        handle.write_at(new, at as u64).unwrap();
        handle.commit(Durability::Batch).unwrap();
        content[at..at + new.len()].copy_from_slice(new);
        assert!(store.get(&key("f")).unwrap().unwrap() == content);
        assert!(read(&handle) == content);
        is_sound(&store);
        extent_bytes(&sandbox) - before
    };
    // Packed bytes are in the record only.
    assert_eq!(costs(100, b"packed", &mut content), 0);
    assert_eq!(descriptor(&store, "f").chunks, before.chunks);
    for (at, stripes) in
        [(4096, 1), (4096 + 7 * 16_384 + 5, 1), (4096 + 10 * 16_384 - 1, 2), (4096 + 20 * 16_384 - 2, 1)]
    {
        assert_eq!(costs(at, b"xy", &mut content), stripes * STRIPE_BYTES, "at {at}");
    }
    // One byte past the end begins a stripe; the next one rewrites it.
    content.push(b'!');
    let before = extent_bytes(&sandbox);
    handle.append(b"!").unwrap();
    handle.commit(Durability::Batch).unwrap();
    assert_eq!(extent_bytes(&sandbox) - before, 2 * 4096);
    content.push(b'?');
    handle.append(b"?").unwrap();
    handle.commit(Durability::Batch).unwrap();
    assert_eq!(extent_bytes(&sandbox) - before, 4 * 4096);
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    // Truncation at the end of a stripe writes nothing; within one, that stripe.
    let before = extent_bytes(&sandbox);
    for (size, cost) in [(4096 + 15 * 16_384, 0), (4096 + 12 * 16_384 + 5000, 3 * 4096)] {
        handle.set_len(size).unwrap();
        handle.commit(Durability::Batch).unwrap();
        content.truncate(size as usize);
        assert_eq!(extent_bytes(&sandbox) - before, cost);
        assert!(store.get(&key("f")).unwrap().unwrap() == content);
        is_sound(&store);
    }
    // Accounts equal the referenced units.
    let named: u64 = descriptor(&store, "f").runs().map(|run| run.length_bytes).sum();
    let live: u64 = store.engine().view().state.extents.values().map(|row| row.live_bytes).sum();
    assert_eq!(live, named);
}

#[test]
fn scattered_bytes_stay_within_the_bound_of_chunks() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut content = bytes(1, 4096 + 1400 * 16_384);
    store.put(&key("f"), &file(), &content).unwrap();
    let rule = Striping { stripe_unit_bytes: 4096, data: 4, parity: 1 };
    let most = descriptor(&store, "f").chunks.len() + most_chunks(content.len() as u64, rule);
    let handle = open(&store, "f");
    let mut longest = 0;
    for at in 0..700_usize {
        let place = 4096 + (at * 9 % 700) * 2 * 16_384 + at;
        handle.write_at(&[at as u8], place as u64).unwrap();
        content[place] = at as u8;
        handle.commit(Durability::None).unwrap();
        longest = longest.max(descriptor(&store, "f").chunks.len());
    }
    assert!(longest <= most && longest > most - 10 && most < 1300, "{longest} chunks of {most}");
    assert!(descriptor(&store, "f").chunks.len() < longest, "it was rewritten");
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    // All of them together are too many.
    (0..700).for_each(|at| handle.write_at(b"x", 4096 + at * 2 * 16_384).unwrap());
    (0..700).for_each(|at| content[4096 + at * 2 * 16_384] = b'x');
    handle.close().unwrap();
    assert!(descriptor(&store, "f").chunks.len() <= most);
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    is_sound(&store);
    compact(&store);
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    is_sound(&store);
}

#[test]
fn a_rotten_unit_is_made_good_when_a_part_of_its_stripe_is_written() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut content = bytes(1, 4096 + 10 * 16_384);
    store.put(&key("f"), &file(), &content).unwrap();
    let handle = open(&store, "f");
    let chunk = &descriptor(&store, "f").chunks[0];
    let run = chunk.unit(3, 2);
    let place = store.engine().extents.place(run.device, run.file);
    let mut there = std::fs::read(&place).unwrap();
    there[run.offset_bytes as usize + 77] ^= 1;
    std::fs::write(&place, there).unwrap();
    let at = 4096 + 3 * 16_384 + 10;
    handle.write_at(b"beside", at as u64).unwrap();
    content[at..at + 6].copy_from_slice(b"beside");
    assert!(read(&handle) == content);
    handle.commit(Durability::Batch).unwrap();
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    // Nothing refers to the damaged unit any more.
    is_sound(&store);
}

#[test]
fn a_chunk_that_is_cut_anywhere_is_read_made_good_and_moved_as_any() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let mut content = bytes(1, 4096 + 13 * 16_384 + 6000);
    store.put(&key("f"), &file(), &content).unwrap();
    let handle = open(&store, "f");
    for stripe in [1, 2, 6, 9, 13] {
        let at = 4096 + stripe * 16_384 + 100;
        handle.write_at(&[stripe as u8; 300], at as u64).unwrap();
        content[at..at + 300].fill(stripe as u8);
        handle.commit(Durability::Batch).unwrap();
    }
    let cut = descriptor(&store, "f");
    assert_eq!(cut.chunks.iter().map(|chunk| chunk.stripes.count()).collect::<Vec<_>>(), [1, 1, 1, 3, 1, 2, 1, 3, 1]);
    // Each device in turn is damaged, and its units are reconstructed from the others.
    for device in 0..6 {
        let files: BTreeMap<PathBuf, Vec<u8>> = extent_files(&sandbox)
            .into_keys()
            .filter(|path| path.starts_with(sandbox.path().join(format!("slow{device}"))))
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.iter().for_each(|(path, there)| std::fs::write(path, vec![0xee; there.len()]).unwrap());
        assert!(store.get(&key("f")).unwrap().unwrap() == content);
        assert!(read(&open(&store, "f")) == content);
        files.iter().for_each(|(path, there)| std::fs::write(path, there).unwrap());
    }
    // Dead units between live ones are freed with their files.
    compact(&store);
    assert!(read(&handle) == content);
    is_sound(&store);
    handle.close().unwrap();
    drop(store);
    let store = rebuild_index(&sandbox.path().join("s"), &OpenOptions::default()).unwrap();
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    is_sound(&store);
}

#[test]
fn a_sparse_file_is_written_within_its_data_behind_it_and_into_its_holes() {
    let sandbox = TempDir::new().unwrap();
    let store = store(&sandbox);
    let holes = Holes { size_bytes: 1_000_000, data: vec![(0, 100_000), (500_000, 100_000)] };
    let data = bytes(1, 200_000);
    let mut model = vec![0; 1_000_000];
    model[..100_000].copy_from_slice(&data[..100_000]);
    model[500_000..600_000].copy_from_slice(&data[100_000..]);
    store.put(&key("f"), &Attributes { holes: Some(holes), ..file() }, &data).unwrap();
    let handle = open(&store, "f");
    let mut write = |at: usize, length: usize| {
        let before = extent_bytes(&sandbox);
        let new = bytes(at as u64, length);
        handle.write_at(&new, at as u64).unwrap();
        model.resize(model.len().max(at + length), 0);
        model[at..at + length].copy_from_slice(&new);
        assert!(read(&handle) == model);
        handle.commit(Durability::Batch).unwrap();
        assert!(store.get(&key("f")).unwrap().unwrap() == model);
        is_sound(&store);
        extent_bytes(&sandbox) - before
    };
    assert!(write(550_000, 10) <= 2 * STRIPE_BYTES, "within data");
    assert!(write(600_000, 10) <= 2 * STRIPE_BYTES, "right behind the last data");
    assert!(write(900_000, 10) <= 2 * STRIPE_BYTES, "behind it");
    assert!(write(2_000_000, 10) <= 2 * STRIPE_BYTES, "behind the end");
    assert!(write(300_000, 10) > 200_000, "into a hole: rewritten");
    let runs = handle.attributes().unwrap().holes.unwrap().data;
    assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), [0, 300_000, 500_000, 900_000, 2_000_000]);
}

#[test]
fn with_fewer_devices_than_a_stripe_is_wide_it_is_written_all_the_same() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    // Three units with data and two of parity; four devices are left.
    let plan = Plan { parity: Some(2), ..plan(sandbox.path(), Compression::None) };
    let store = Store::create(&home, &plan).unwrap();
    let mut content = bytes(1, 4096 + 9 * 12_288 + 77);
    store.put(&key("f"), &file(), &content).unwrap();
    assert_eq!(descriptor(&store, "f").chunks[0].stripes.data, 3);
    drop(store);
    let moved = ["slow2", "slow4"].map(|name| (sandbox.path().join(name), sandbox.path().join(format!("{name} away"))));
    moved.iter().for_each(|(place, away)| std::fs::rename(place, away).unwrap());
    let store = Store::open(&home).unwrap();
    let handle = open(&store, "f");
    for at in [30_000, 60_000, 114_000] {
        handle.write_at(b"degraded", at as u64).unwrap();
        content[at..at + 8].copy_from_slice(b"degraded");
        handle.commit(Durability::Batch).unwrap();
        assert!(store.get(&key("f")).unwrap().unwrap() == content);
        assert_eq!(descriptor(&store, "f").chunks[0].stripes.data, 2, "rewritten");
    }
    handle.append(&bytes(2, 100_000)).unwrap();
    content.extend(bytes(2, 100_000));
    handle.close().unwrap();
    assert!(store.get(&key("f")).unwrap().unwrap() == content);
    drop(store);
    moved.iter().for_each(|(place, away)| std::fs::rename(away, place).unwrap());
    assert!(Store::open(&home).unwrap().get(&key("f")).unwrap().unwrap() == content);
}
