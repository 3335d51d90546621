//! Tests of the simulated devices: a writer that omits a step must be caught, a correct one must not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::world::Fault;
use super::*;

/// A step that a writer may omit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forgets {
    Nothing,
    Sync,
    SyncOfTheName,
    OrderOfMark,
}

/// Writes pages of 700 equal bytes to a new file, each acknowledged when it is durable; then a mark in another file
/// records their number.
fn write_pages(device: &dyn Device, forgets: Forgets, acknowledged: &AtomicU64) -> io::Result<()> {
    device.create_directory("d")?;
    let mark = device.open("mark", Mode::Create)?;
    // A byte that never was durable may have any value once the file is longer.
    mark.write_at(&[0], 0)?;
    mark.sync()?;
    device.sync_directory("")?;
    let file = device.open("d/pages", Mode::Create)?;
    if forgets != Forgets::SyncOfTheName {
        device.sync_directory("d")?;
    }
    for page in 1..=6u8 {
        file.write_at(&[page; 700], u64::from(page - 1) * 700)?;
        if forgets == Forgets::OrderOfMark {
            mark.write_at(&[page], 0)?;
        }
        if forgets != Forgets::Sync {
            file.sync()?;
        }
        mark.write_at(&[page], 0)?;
        mark.sync()?;
        acknowledged.store(u64::from(page), Ordering::SeqCst);
    }
    Ok(())
}

/// Number of whole pages, and the number in the mark.
fn pages(device: &SimulatedDevice) -> (u64, u64) {
    let files: BTreeSet<String> = device.files().into_iter().map(|(path, _)| path).collect();
    let content = |path: &str| if files.contains(path) { device.content(path) } else { Vec::new() };
    let whole = |(index, page): &(usize, &[u8])| page.iter().all(|&byte| usize::from(byte) == index + 1);
    let whole = content("d/pages").chunks_exact(700).enumerate().take_while(whole).count();
    (whole as u64, content("mark").first().copied().unwrap_or(0).into())
}

/// Crashes before each operation, with many seeds; returns how often something that was acknowledged or marked is
/// missing.
fn losses(forgets: Forgets) -> u64 {
    let losses = Arc::new(AtomicU64::new(0));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let world = World::new(1, 0);
    let (counted, promised) = (Arc::clone(&losses), Arc::clone(&acknowledged));
    world.observe(move |world, operation| {
        for seed in 0..40 {
            let (whole, marked) = pages(&world.after_crash(operation * 1000 + seed).device(0));
            if whole < promised.load(Ordering::SeqCst).max(marked) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    write_pages(&*world.device(0), forgets, &acknowledged).unwrap();
    losses.load(Ordering::SeqCst)
}

#[test]
fn a_writer_that_forgets_to_sync_is_caught_and_a_careful_one_is_not() {
    assert_eq!(losses(Forgets::Nothing), 0);
    for forgets in [Forgets::Sync, Forgets::SyncOfTheName, Forgets::OrderOfMark] {
        assert!(losses(forgets) > 20, "{forgets:?}: {}", losses(forgets));
    }
}

#[test]
fn from_the_crash_on_everything_fails() {
    let whole = World::new(1, 0);
    let acknowledged = AtomicU64::new(0);
    write_pages(&*whole.device(0), Forgets::Nothing, &acknowledged).unwrap();
    let operations = whole.operations();
    assert_eq!(operations, 6 + 1 + 6 * 4);
    for at in 0..operations {
        let world = World::new(1, 0);
        world.crash_at(at);
        assert!(write_pages(&*world.device(0), Forgets::Nothing, &acknowledged).is_err());
        assert!(world.has_crashed());
        assert!(world.device(0).list("").is_err());
        assert_eq!(world.operations(), at);
        assert!(world.after_crash(1).device(0).list("").is_ok());
    }
}

/// A device with a file `f` of 4,000 ones, all durable.
fn with_a_file(world: &World) -> (Arc<SimulatedDevice>, Arc<dyn DeviceFile>) {
    let device = world.device(0);
    let file = device.open("f", Mode::Create).unwrap();
    file.write_at(&[1; 4000], 0).unwrap();
    file.sync().unwrap();
    device.sync_directory("").unwrap();
    (device, file)
}

#[test]
fn writes_are_lost_torn_reordered_and_kept() {
    let world = World::new(1, 0);
    let (_, file) = with_a_file(&world);
    file.write_at(&[2; 3000], 500).unwrap();
    file.write_at(&[3; 3000], 3000).unwrap();
    let remains: BTreeSet<Vec<u8>> = (0..2000).map(|seed| world.after_crash(seed).device(0).content("f")).collect();
    let mut both = vec![1; 6000];
    both[500..3500].fill(2);
    let one = both[..4000].to_vec();
    both[3000..].fill(3);
    assert!(remains.contains(&both) && remains.contains(&one) && remains.contains(&vec![1; 4000]));
    // Out of order: all of the second and nothing of the first; the first over the second.
    assert!(remains.iter().any(|r| r.len() == 6000 && r[500] == 1 && r[3000..].iter().all(|&b| b == 3)));
    assert!(remains.iter().any(|r| r.len() == 6000 && r[3000] == 2 && r[5999] == 3));
    // Torn in a sector, and between sectors.
    let cut = |r: &Vec<u8>| r[..4000].windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(remains.iter().any(|r| cut(r) > 4));
    // Longer without data: zeroes, or any bytes.
    assert!(remains.iter().any(|r| r.len() > 4000 && r[4000..].iter().all(|&b| b == 0)));
    assert!(remains.iter().any(|r| r.len() > 4000 && r[4000..].iter().any(|&b| b > 3)));
    assert!(remains.len() > 300, "{}", remains.len());
    for content in &remains {
        assert!(content[..500].iter().all(|&byte| byte == 1), "what was not written is as it was");
        assert!(content[500..3000].iter().all(|&byte| byte == 1 || byte == 2));
        assert!((4000..=6000).contains(&content.len()));
    }
}

#[test]
fn the_same_seed_leaves_the_same() {
    let world = World::new(2, 0);
    with_a_file(&world).1.write_at(&[2; 3000], 500).unwrap();
    for seed in 0..50 {
        let contents = [(); 2].map(|()| world.after_crash(seed).device(0).content("f"));
        assert_eq!(contents[0], contents[1]);
    }
    assert_eq!(world.after_shutdown().device(0).content("f")[500..3500], [2; 3000]);
    // A killed process leaves what it wrote, but not durable; after a shutdown it is.
    let killed = world.after_kill(0);
    assert_eq!(killed.device(0).content("f")[500..3500], [2; 3000]);
    assert!((0..50).any(|seed| killed.after_crash(seed).device(0).content("f")[500..3500] != [2; 3000]));
    assert!((0..50).all(|seed| world.after_shutdown().after_crash(seed).device(0).content("f")[3499] == 2));
}

#[test]
fn a_rename_is_done_or_not() {
    let world = World::new(1, 0);
    let (device, _) = with_a_file(&world);
    let new = device.open("new", Mode::Create).unwrap();
    new.write_at(&[2; 10], 0).unwrap();
    new.sync().unwrap();
    device.rename("new", "f").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let after = world.after_crash(seed).device(0);
        let (names, content) = (after.files(), after.content("f"));
        assert!(content == [1; 4000] || content == [2; 10], "the old or the new file is there");
        assert!(names.len() == 1 || content == [1; 4000], "renamed is not copied: {names:?}");
        seen.insert(names);
    }
    // The old one alone, the old one beside the new, the new one.
    assert_eq!(seen.len(), 3, "{seen:?}");
    device.sync_directory("").unwrap();
    assert!((0..300).all(|seed| world.after_crash(seed).device(0).content("f") == [2; 10]));
    device.remove("f").unwrap();
    let left: BTreeSet<usize> = (0..100).map(|seed| world.after_crash(seed).device(0).files().len()).collect();
    assert_eq!(left, BTreeSet::from([0, 1]));
}

#[test]
fn a_later_sync_says_nothing_about_what_one_failed_on() {
    let world = World::new(1, 0);
    let (_, file) = with_a_file(&world);
    file.write_at(&[2; 100], 0).unwrap();
    world.fail(Fault { operation: world.operations(), errno: Errno::IO, is_lasting: false, device: None });
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    file.write_at(&[3; 50], 50).unwrap();
    file.sync().unwrap();
    let remains: Vec<Vec<u8>> = (0..200).map(|seed| world.after_crash(seed).device(0).content("f")).collect();
    assert!(remains.iter().any(|content| content[0] == 1) && remains.iter().any(|content| content[0] == 2));
    assert!(
        remains.iter().all(|content| content[50..100] == [3; 50]),
        "a synced write is not undone by a doubtful one"
    );
    assert_eq!(world.failures(), 1);
    // The same for names.
    let device = world.device(0);
    world.fail(Fault { operation: world.operations() + 1, errno: Errno::IO, is_lasting: false, device: Some(0) });
    device.open("g", Mode::Create).unwrap();
    assert!(device.sync_directory("").is_err());
    device.sync_directory("").unwrap();
    let there = (0..100).filter(|&seed| world.after_crash(seed).device(0).files().len() == 2).count();
    assert!((10..90).contains(&there), "{there}");
}

#[test]
fn a_full_device_takes_what_fits_and_lets_go_of_space() {
    let world = World::new(1, 0);
    let device = world.device(0);
    device.set_capacity(5 * 4096);
    let file = device.open("f", Mode::Create).unwrap();
    file.write_at(&[1; 4096 * 3], 0).unwrap();
    assert_eq!(device.room().unwrap(), Room { total_bytes: 20_480, available_bytes: 8192 });
    let error = file.write_at(&[2; 4096 * 3], 4096 * 3 - 10).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!((file.size().unwrap(), device.room().unwrap().available_bytes), (20_480, 0));
    file.write_at(&[3; 4096], 4096).expect("what has space can be written over");
    file.set_size(4096 * 4).unwrap();
    assert_eq!(device.room().unwrap().available_bytes, 4096);
    device.remove("f").unwrap();
    assert_eq!(device.room().unwrap().available_bytes, 4096, "as long as it is open it takes space");
    let mut part = [9; 3];
    assert_eq!(file.read_at(&mut part, 4095).unwrap(), 3);
    assert_eq!(part, [1, 3, 3]);
    drop(file);
    assert_eq!(device.room().unwrap().available_bytes, 20_480);

    // Without a limit, but full on request: reading and removing still work.
    let world = World::new(1, 0);
    let (device, file) = with_a_file(&world);
    world.fail(Fault { operation: 0, errno: Errno::NOSPC, is_lasting: true, device: None });
    assert!(file.write_at(&[1], 0).is_err() && device.open("g", Mode::Create).is_err());
    assert!(file.size().is_ok() && device.remove("f").is_ok() && device.sync_directory("").is_ok());
    world.clear_faults();
    assert!(device.open("g", Mode::Create).is_ok());
}

#[test]
fn every_operation_can_be_made_to_fail() {
    let acknowledged = AtomicU64::new(0);
    for count_reads in [false, true] {
        for at in 0..31 {
            let world = World::new(1, at);
            world.count_reads(count_reads);
            world.fail(Fault { operation: at, errno: Errno::IO, is_lasting: false, device: None });
            let error = write_pages(&*world.device(0), Forgets::Nothing, &acknowledged).unwrap_err();
            assert_eq!((error.raw_os_error(), world.failures()), (Some(5), 1));
            assert_eq!(world.operations(), at + 1);
            world.fail(Fault { operation: 0, errno: Errno::IO, is_lasting: true, device: Some(0) });
            assert_eq!(world.device(0).list("").is_err(), count_reads);
        }
    }
}

#[test]
fn files_are_as_on_a_file_system() {
    let world = World::new(1, 0);
    let (device, file) = with_a_file(&world);
    let errno = |result: io::Result<Arc<dyn DeviceFile>>| result.unwrap_err().kind();
    assert_eq!(errno(device.open("f", Mode::Create)), io::ErrorKind::AlreadyExists);
    assert_eq!(errno(device.open("none", Mode::Write)), io::ErrorKind::NotFound);
    assert_eq!(errno(device.open("a/b/f", Mode::Create)), io::ErrorKind::NotFound);
    device.create_directory("a/b").unwrap();
    device.open("a/b/f", Mode::Create).unwrap();
    device.rename("f", "a/g").unwrap();
    assert_eq!(device.list("").unwrap(), []);
    assert_eq!(device.list("a").unwrap(), [("g".to_owned(), 4000)]);
    assert_eq!(device.list("nowhere").unwrap(), []);
    assert!(device.sync_directory("nowhere").is_err() && device.remove("f").is_err());
    assert!(device.open("a/g", Mode::Read).unwrap().write_at(b"x", 0).is_err());
    file.write_at(b"end", 5000).unwrap();
    let mut buffer = b"before".to_vec();
    assert_eq!(file.read_onto(&mut buffer, 100, 4990).unwrap(), 13);
    assert_eq!(buffer, b"before\0\0\0\0\0\0\0\0\0\0end");
    assert_eq!(file.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    file.set_size(2).unwrap();
    assert_eq!(device.content("a/g"), [1, 1]);
}

#[test]
fn damage_is_what_it_says() {
    let world = World::new(2, 0);
    let (device, file) = with_a_file(&world);
    let before = device.snapshot();
    device.flip_bit("f", 8 * 100 + 3);
    device.zero("f", 3900, 1000);
    device.truncate("f", 3950);
    let content = device.content("f");
    assert_eq!((content.len(), content[100], content[3899], content[3949]), (3950, 0b1001, 1, 0));
    assert_eq!(world.after_crash(1).device(0).content("f"), content);

    device.make_unreadable("f", 1000, 10);
    let mut part = [0; 600];
    assert_eq!(file.read_at(&mut part, 900).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.read_at(&mut part[..512], 0).unwrap(), 512, "sectors are lost one by one");
    file.write_at(&[7; 700], 900).unwrap();
    assert_eq!(file.read_at(&mut part, 900).unwrap(), 600);

    device.open("later", Mode::Create).unwrap();
    device.restore(&before);
    assert_eq!((device.files().len(), device.content("f")), (1, vec![1; 4000]));
    world.swap(0, 1);
    assert_eq!((device.files().len(), world.device(1).files().len()), (0, 1));
    world.device(1).delete("f");
    assert_eq!(world.device(1).files(), []);
    world.device(1).create_directory("d").unwrap();
    world.device(1).empty();
    assert!(world.device(1).open("d/f", Mode::Create).is_err());
    world.device(1).lose();
    assert!(world.device(1).list("").is_err() && world.device(0).list("").is_ok());
    assert!(world.after_crash(0).device(1).list("").is_err());
}

#[test]
fn many_threads_may_write() {
    let world = World::new(1, 0);
    let (_, file) = with_a_file(&world);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                for page in 0..50 {
                    file.write_at(&[thread as u8 + 1; 100], (page * 4 + thread) * 100).unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    let content = world.after_crash(3).device(0).content("f");
    assert!(content.chunks(100).take(200).enumerate().all(|(at, page)| page == [(at % 4) as u8 + 1; 100]));
}
