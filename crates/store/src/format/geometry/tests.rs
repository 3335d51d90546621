//! Tests of geometries: widths, defaults, words, and everything that is refused.

use std::fs;

use super::*;
use crate::format::ids::DeviceNumber;

/// A plan with `fast` and `slow` devices in `root`, and the home beside them.
fn plan(root: &Path, fast: usize, slow: usize) -> (PathBuf, Plan) {
    let devices = |class: &str, count: usize| (0..count).map(|index| root.join(format!("{class}{index}"))).collect();
    (root.join("home"), Plan { fast: devices("fast", fast), slow: devices("slow", slow), ..Plan::default() })
}

fn geometry(fast: usize, slow: usize, change: impl FnOnce(&mut Plan)) -> Result<Geometry> {
    let directory = tempfile::tempdir().unwrap();
    let (home, mut plan) = plan(directory.path(), fast, slow);
    change(&mut plan);
    Geometry::new(&home, &plan)
}

/// The message when the geometry is refused.
fn refused(fast: usize, slow: usize, change: impl FnOnce(&mut Plan)) -> String {
    let error = geometry(fast, slow, change).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    error.to_string()
}

#[test]
fn stripes_are_as_wide_as_the_devices_allow() {
    for (slow, parity, expected) in [
        (1, None, (1, 0)),
        (2, None, (2, 0)),
        (3, None, (2, 1)),
        (4, None, (3, 1)),
        (5, None, (3, 1)),
        (6, None, (4, 1)),
        (10, None, (8, 1)),
        (12, None, (10, 1)),
        (40, None, (10, 1)),
        (4, Some(2), (2, 2)),
        (5, Some(2), (2, 2)),
        (13, Some(2), (10, 2)),
        (6, Some(0), (6, 0)),
        (40, Some(0), (10, 0)),
    ] {
        let geometry = geometry(2, slow, |plan| plan.parity = parity).unwrap();
        assert_eq!((geometry.data, geometry.parity), expected, "{slow} slow devices, parity {parity:?}");
        assert_eq!(geometry.copies, 2);
    }
}

#[test]
fn a_class_that_is_missing_is_replaced_by_the_other() {
    let one = geometry(0, 0, |_| {}).unwrap();
    assert_eq!((one.copies, one.data, one.parity, one.devices.len()), (1, 1, 0, 1));
    assert_eq!((one.home.as_path(), one.devices[0].path.as_path()), (Path::new(""), Path::new(".")));
    assert_eq!(one.devices[0].directory(Path::new("/s")), Path::new("/s"));
    let fast = geometry(3, 0, |_| {}).unwrap();
    assert_eq!((fast.copies, fast.data, fast.parity), (2, 2, 1));
    assert_eq!(fast.stripe_devices().count(), 3);
    let slow = geometry(0, 4, |_| {}).unwrap();
    assert_eq!((slow.copies, slow.data, slow.parity), (2, 3, 1));
    assert_eq!(slow.record_devices().count(), 4);
    assert_eq!(geometry(1, 3, |_| {}).unwrap().copies, 1);
}

#[test]
fn identities_differ_and_numbers_are_positions() {
    let geometry = geometry(2, 3, |_| {}).unwrap();
    let mut identities: Vec<_> = geometry.devices.iter().map(|device| device.identity).collect();
    identities.push(geometry.store);
    identities.sort_unstable();
    identities.dedup();
    assert_eq!(identities.len(), 6);
    assert!(geometry.devices.iter().zip(0..).all(|(device, number)| device.number == DeviceNumber(number)));
    assert!(geometry.devices[0].path.is_absolute() && geometry.home.is_absolute());
}

#[test]
fn the_explanation_is_in_words() {
    let words = |fast, slow, change: fn(&mut Plan)| geometry(fast, slow, change).unwrap().explain().join(" ");
    assert_eq!(
        words(2, 6, |_| {}),
        "Records up to 64 KiB on 2 fast devices, each on both. Larger files in stripes of 4 + 1 over 6 slow devices. \
         When the fast devices are 90 % full, records go to slow ones, until they are down to 80 %. \
         Any one device may be lost. What a lost slow device had can be rebuilt into spare space on the others."
    );
    assert_eq!(
        words(0, 0, |plan| plan.compression = Compression::Zstd(3)),
        "Records up to 64 KiB on one device. Larger files on the same device. Records are compressed with zstd, level 3, where that \
         makes them shorter. Nothing is kept twice: damage is found, and cannot be repaired."
    );
    let mirrored = words(3, 5, |plan| plan.parity = Some(2));
    assert!(mirrored.contains("on 3 fast devices, each on two of them."), "{mirrored}");
    assert!(
        mirrored.contains("Any one device may be lost. Any two slow devices may be lost if all fast"),
        "{mirrored}"
    );
    let triple = words(3, 3, |plan| plan.copies = Some(3));
    assert!(
        triple.contains("Any one device may be lost. Any two fast devices may be lost if all slow ones stay."),
        "{triple}"
    );
    assert!(triple.ends_with("rebuilt onto a new one."), "{triple}");
    let striped = words(2, 2, |_| {});
    assert!(striped.contains("stripes of 2 over 2 slow devices, without parity."), "{striped}");
    assert!(
        striped.contains("Any one fast device may be lost if all slow ones stay. Larger files have no parity"),
        "{striped}"
    );
    let single = words(1, 3, |plan| plan.cutoff_bytes = 0);
    assert!(single.starts_with("Records up to 8 KiB on 1 fast device. "), "{single}");
    assert!(single.contains("Any one slow device may be lost if all fast ones stay and no record has"), "{single}");
    assert!(single.contains("Records are not kept twice"), "{single}");
    let packing = words(0, 0, |plan| (plan.cutoff_bytes, plan.packed_bytes) = (0, 12 << 10));
    assert!(
        packing.starts_with(
            "Records up to 16 KiB on one device. Larger files on the same device. The first 12 KiB of each of these \
             are in a record, with the places of its stripes. "
        ),
        "{packing}"
    );
    let none = words(2, 0, |plan| plan.copies = Some(1));
    assert!(
        none.contains("Larger files in stripes of 2 over the same 2 devices, without parity. Nothing is kept twice"),
        "{none}"
    );
}

#[test]
fn what_the_devices_cannot_keep_is_refused_with_what_would_do() {
    for (said, parts) in [
        (
            refused(1, 3, |plan| plan.copies = Some(2)),
            ["mirror keeps each record on 2 fast devices, but there is one", "--small-redundancy none"],
        ),
        (refused(0, 0, |plan| plan.copies = Some(2)), ["on 2 devices, but there is one", "name 2 devices with --fast"]),
        (refused(2, 0, |plan| plan.copies = Some(3)), ["there are only 2", "--small-redundancy mirror"]),
        (
            refused(2, 3, |plan| plan.parity = Some(2)),
            ["raid6 needs at least 4 slow devices (2 + 2), but there are only 3", "--large-redundancy raid5"],
        ),
        (
            refused(2, 2, |plan| plan.parity = Some(1)),
            ["raid5 needs at least 3 slow devices", "--large-redundancy none"],
        ),
        (refused(2, 0, |plan| plan.parity = Some(1)), ["raid5 needs at least 3 devices", "name 3 with --slow"]),
    ] {
        for part in parts {
            assert!(said.contains(part), "'{part}' is not in: {said}");
        }
    }
}

#[test]
fn settings_out_of_bounds_are_refused() {
    for (change, part) in [
        ((|plan| plan.cutoff_bytes = GIB + 1) as fn(&mut Plan), "at most 1 GiB"),
        (|plan| plan.stripe_unit_bytes = 12 * KIB as u32, "12,288 bytes"),
        (|plan| plan.stripe_unit_bytes = 2 * KIB as u32, "4 KiB to 4 MiB"),
        (|plan| plan.stripe_unit_bytes = 8 * MIB as u32, "8,388,608 bytes"),
        (|plan| plan.packed_bytes = 0, "a multiple of 4 KiB, from 4 to 64 KiB; this is 0 bytes"),
        (|plan| plan.packed_bytes = 6 * KIB, "a multiple of 4 KiB, from 4 to 64 KiB; this is 6,144 bytes"),
        (|plan| plan.packed_bytes = 68 * KIB, "a multiple of 4 KiB, from 4 to 64 KiB; this is 69,632 bytes"),
        (|plan| plan.compression = Compression::Zstd(23), "zstd level"),
        (|plan| plan.compression = Compression::Zstd(0), "zstd level"),
        (|plan| plan.compression = Compression::Zstd(-8), "zstd level"),
        (|plan| plan.watermarks_percent = (80, 80), "these are 80 % and 80 %"),
        (|plan| plan.watermarks_percent = (101, 80), "at most 100 %"),
        (|plan| plan.watermarks_percent = (10, 0), "above 0 %"),
        (|plan| plan.segment_bytes = MIB - 1, "1 MiB to 8 GiB"),
        (|plan| plan.segment_bytes = 8 * GIB + 1, "1 MiB to 8 GiB"),
        (|plan| plan.copies = Some(0), "1 to 3 copies"),
    ] {
        let said = refused(2, 3, change);
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
    let said = refused(0, 4000, |plan| plan.copies = Some(1));
    assert!(said.contains("4000 devices with these paths do not fit in a superblock"), "{said}");
}

#[test]
fn directories_that_are_not_apart_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("a", root.join("other-a")).unwrap();
    let refused = |home: &str, fast: &[&str], slow: &[&str], part: &str| {
        let paths = |paths: &[&str]| paths.iter().map(|path| root.join(path)).collect();
        let plan = Plan { fast: paths(fast), slow: paths(slow), ..Plan::default() };
        let error = Geometry::new(&root.join(home), &plan).unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(part), "'{part}' is not in: {error}");
    };
    refused("home", &["a"], &["a"], "named twice");
    refused("home", &["a"], &["other-a"], "named twice");
    let through_missing = Plan { fast: vec![root.join("new/../x")], ..Plan::default() };
    assert_eq!(Geometry::new(&root.join("home"), &through_missing).unwrap_err().kind(), ErrorKind::NotFound);
    refused("home", &["a"], &["a/b"], "a device is inside another");
    refused("home", &["a/new/deep"], &["other-a/new"], "a device is inside another");
    refused("a", &["other-a"], &[], "a device is the home itself");
    refused("a/b/home", &["a"], &[], "the home is inside a device");
    refused("home", &["home/segments"], &[], "its own files under this name");
    refused("home", &["file"], &[], "not a directory");
}

#[test]
fn devices_in_the_home_move_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let plan = Plan { fast: vec![home.join("f")], slow: vec![home.join("deep/s")], ..Plan::default() };
    let geometry = Geometry::new(&home, &plan).unwrap();
    let paths: Vec<&Path> = geometry.devices.iter().map(|device| device.path.as_path()).collect();
    assert_eq!(paths, [Path::new("f"), Path::new("deep/s")]);
    assert_eq!(geometry.devices[1].directory(Path::new("/new")), Path::new("/new/deep/s"));
}

#[test]
fn one_file_system_for_several_devices_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (home, two) = plan(directory.path(), 1, 2);
    let geometry = Geometry::new(&home, &two).unwrap();
    let said = geometry.shared_file_systems(&home);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("fast0, ") && said[0].contains("slow1 are on the same file system"), "{said:?}");
    let (home, none) = plan(directory.path(), 0, 0);
    assert_eq!(Geometry::new(&home, &none).unwrap().shared_file_systems(&home), [] as [String; 0]);
}
