//! Extent files: their names, where the next component goes, and files that others create or delete.

use super::*;

#[test]
fn names_have_number_and_epoch() {
    assert_eq!(file_name(0x2a, 0xfeed), "0000002a-0000feed");
    assert_eq!(file_number("0000002a-0000feed"), Some(0x2a));
    assert_eq!(file_number("ffffffff-00000000"), Some(u32::MAX));
    for other in
        ["", "0000002a", "0000002a-", "0000002a-0000FEED", "2a-0000feed", "+000002a-0000feed", "0000002a-0000feed.new"]
    {
        assert_eq!(file_number(other), None, "{other}");
    }
}

#[test]
fn extent_files_are_rolled_and_what_is_in_them_is_left_alone() {
    let rule = Striping { stripe_unit_bytes: 4096, data: 1, parity: 0 };
    let mut bench = Bench::of(rule);
    let row = |file, end_bytes| ExtentRow { device: DeviceNumber(0), file, end_bytes, live_bytes: 0 };
    let place = |bench: &Bench| {
        let Component { file, offset_bytes, .. } =
            bench.put(1, rule, &content(10_000), true, 4096).chunks[0].components[0];
        (file, offset_bytes)
    };
    assert_eq!(place(&bench), (0, 0));
    assert_eq!(place(&bench), (0, 8192));
    // The end known to the catalog is not at a sector boundary.
    bench.allocator = allocator([row(0, 20_000)]);
    assert_eq!(place(&bench), (0, 20_480));
    // A file ends where the catalog says or at its actual end, whichever is later.
    bench.allocator = allocator([row(0, 8192)]);
    assert_eq!(place(&bench), (0, 28_672));
    // A full file, followed by one that the catalog does not know: left by a killed writer, in another epoch.
    let remains = bench.devices.directory(DeviceNumber(0)).join(EXTENTS).join(file_name(1, 0xdead));
    fs::write(&remains, "remains").unwrap();
    bench.allocator = allocator([row(0, LIMIT_BYTES)]);
    bench.files.forget(DeviceNumber(0));
    assert_eq!(place(&bench), (2, 0));
    assert_eq!(fs::read(&remains).unwrap(), b"remains");
    // A file being freed receives nothing, and its number is not reused.
    bench.allocator = Arc::new(Allocator::new([row(0, 0), row(2, 8192)], [(DeviceNumber(0), 2)], LIMIT_BYTES));
    assert_eq!(place(&bench), (3, 0));
    bench.allocator.retire(DeviceNumber(0), 3);
    assert_eq!(place(&bench), (4, 0));
    bench.allocator = Arc::new(Allocator::new([row(4, 8192)], [(DeviceNumber(0), 6)], LIMIT_BYTES));
    assert_eq!(place(&bench), (7, 0));
    // The catalog knows a file that the device lost.
    bench.allocator = allocator([row(0, 8192), row(9, 4096)]);
    assert_eq!(place(&bench), (10, 0));
    bench.allocator = allocator([row(u32::MAX, LIMIT_BYTES)]);
    assert_eq!(bench.writer(1, rule, None).write(&content(10_000)).unwrap_err().kind(), ErrorKind::NoSpace);
}

#[test]
fn a_component_never_spans_files() {
    let rule = rule(2, 1);
    let mut bench = Bench::of(rule);
    bench.allocator = Arc::new(Allocator::new([], [], 100_000));
    let objects: Vec<Vec<u8>> = (1..9).map(|number| content(number * 30_000)).collect();
    let put = |(id, object): (usize, &Vec<u8>)| bench.put(id as u64, rule, object, id % 2 == 0, 7_000);
    let descriptors: Vec<Descriptor> = objects.iter().enumerate().map(put).collect();
    for (descriptor, object) in descriptors.iter().zip(&objects) {
        assert!(bench.read(descriptor).0 == *object);
        // A component longer than the limit has a file of its own.
        assert!(descriptor.runs().all(|run| run.offset_bytes == 0 || run.offset_bytes + run.length_bytes <= 100_000));
    }
    assert!(bench.files.list(DeviceNumber(0)).unwrap().len() > 2, "{:?}", bench.files.list(DeviceNumber(0)));
}

#[test]
fn a_file_that_another_process_makes_is_found_when_the_store_has_changed() {
    let rule = rule(1, 0);
    let bench = Bench::of(rule);
    let reader = ExtentFiles::new(Arc::clone(&bench.devices) as Arc<dyn DeviceSource>);
    let object = content(9000);
    let run = Run { device: DeviceNumber(0), file: 0, offset_bytes: 0, length_bytes: 4096 };
    assert_eq!(reader.open_run(run).unwrap_err(), UnitFault::Absent);
    let descriptor = bench.put(1, rule, &object, true, 9000);
    reader.look_again();
    let mut out = Vec::new();
    assert!(reader.read_range(&descriptor, 0..u64::MAX, &mut out).unwrap().is_empty() && out == object);
    assert!(bench.files.unlink(DeviceNumber(0), 0).unwrap() && !bench.files.unlink(DeviceNumber(0), 0).unwrap());
    // An open handle continues to work.
    out.clear();
    assert!(reader.read_range(&descriptor, 0..u64::MAX, &mut out).unwrap().is_empty() && out == object);
    assert_eq!(bench.verify(&descriptor)[0].fault, UnitFault::Absent);
}

#[test]
fn more_files_than_are_kept_open_are_read() {
    let rule = rule(1, 0);
    let mut bench = Bench::of(rule);
    let object = content(9000);
    let descriptors: Vec<Descriptor> = (0..MOST_OPEN as u32 + 20)
        .map(|file| {
            let row = ExtentRow { device: DeviceNumber(0), file, end_bytes: u64::MAX / 2, live_bytes: 0 };
            bench.allocator = allocator([row]);
            bench.put(1, rule, &object, true, 9000)
        })
        .collect();
    assert!(descriptors.iter().all(|descriptor| bench.read(descriptor).0 == object));
    assert!(lock(&bench.files.cache).open.len() <= MOST_OPEN);
}

#[test]
fn of_a_replaced_device_only_files_of_its_successor_are_synced() {
    let bench = Bench::new(1);
    let open = || bench.files.open_or_create(DeviceNumber(0), 0).unwrap();
    let (mut touched, mut later) = (Touched::default(), Touched::default());
    touched.add(DeviceNumber(0), 0, &open());
    let synced = |touched: &Touched| -> Vec<Arc<dyn DeviceFile>> {
        let file = |unsynced: Unsynced<'_>| match unsynced {
            Unsynced::File(_, _, open) => Some(Arc::clone(&open.file)),
            Unsynced::Names(_) => None,
        };
        bench.files.unsynced(touched).into_iter().filter_map(file).collect()
    };
    assert_eq!(synced(&touched).len(), 1);
    bench.replace(DeviceNumber(0));
    assert_eq!(synced(&touched).len(), 0, "what was written there was lost with the device");
    let current = open();
    later.add(DeviceNumber(0), 0, &current);
    touched.merge(later);
    let files = synced(&touched);
    assert!(files.len() == 1 && Arc::ptr_eq(&files[0], &current.file));
}

#[test]
fn nothing_is_unlinked_on_a_device_that_may_not_be_written() {
    let bench = Bench::new(1);
    bench.files.open_or_create(DeviceNumber(0), 0).unwrap();
    lock(&bench.devices.stale).insert(DeviceNumber(0));
    let error = bench.files.unlink(DeviceNumber(0), 0).unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && bench.extent(DeviceNumber(0), 0).exists(), "{error}");
    lock(&bench.devices.stale).clear();
    assert!(bench.files.unlink(DeviceNumber(0), 0).unwrap());
}
