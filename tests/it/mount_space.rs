//! A mounted store on a full device: the program gets the error, nothing that was refused is there later, and what is
//! dead comes back as space, at intervals and before a program gets that error.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, copy_file_range, fallocate, statvfs};
use rustix::io::Errno;

use crate::harness::{finish, granulo, run};
use crate::images::{Image, Mount};
use crate::mounted::{Mounted, PATIENCE, Place, segment_bytes};
use crate::nasty::content;

/// A store on a device of its own that is soon full.
struct Small {
    place: Place,
}

impl Small {
    /// `None`, with the reason reported, where nothing can be mounted.
    fn new(size_mib: u64) -> Option<Small> {
        let small = Small { place: Place::empty()? };
        fs::create_dir(small.device()).unwrap();
        let size = format!("size={size_mib}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(small.device()).status();
        assert!(mounted.unwrap().success());
        run(["store".as_ref(), "init".as_ref(), small.store().as_os_str()]).ended(0);
        Some(small)
    }

    fn device(&self) -> PathBuf {
        self.place.sandbox.path().join("small")
    }

    fn store(&self) -> PathBuf {
        self.device().join("store")
    }

    fn mount(&self, arguments: &[&str]) -> Mounted {
        Mounted::start(&self.store(), &self.place.target(), arguments)
    }

    /// Checks every byte of the store, which must be sound.
    #[track_caller]
    fn check(&self) {
        run(["store".as_ref(), "check".as_ref(), self.store().as_os_str(), "--deep".as_ref()]).ended(0);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.device()).status();
    }
}

#[test]
fn a_full_device_is_an_error_to_the_program_and_the_mount_goes_on() {
    let Some(small) = Small::new(24) else { return };
    let mounted = small.mount(&[]);
    fs::write(mounted.root.join("first"), "kept").unwrap();
    let fill =
        |name: &str| (0..400).try_for_each(|at| fs::write(mounted.root.join(format!("{name}{at}")), content(100_000)));
    // Closing reports what writing could not know; std ignores that, so the next write does.
    let filled = fill("a").and_then(|()| fill("b"));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));
    assert_eq!(fs::read(mounted.root.join("first")).unwrap(), b"kept");
    for entry in fs::read_dir(&mounted.root).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "first") {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(fs::read(mounted.root.join("first")).unwrap(), b"kept");
    assert!(mounted.log().contains("the device is full") || mounted.log().contains("space"), "{}", mounted.log());
    mounted.unmount();
    small.check();
}

/// The store reserves a hundredth of a device: more than what waits in memory, from 13 GB on.
#[test]
fn a_large_device_refuses_what_only_its_reserve_could_keep() {
    let Some(place) = Place::empty() else { return };
    let mkfs = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0"];
    let Some(image) = Image::make(20 << 30, &mkfs, Mount::Kernel("")) else { return };
    let store = image.root().join("store");
    run(["store".as_ref(), "init".as_ref(), store.as_os_str()]).ended(0);
    let mounted = Mounted::start(&store, &place.target(), &["--free-every", "0s"]);
    let room = statvfs(image.root()).unwrap();
    let fill = File::create(image.root().join("fill")).unwrap();
    // 300 MiB are left, of which 205 are reserved.
    fallocate(&fill, FallocateFlags::empty(), 0, room.f_bavail * room.f_frsize - (300 << 20)).unwrap();
    let at = |number: usize| mounted.root.join(number.to_string());
    let mut accepted = 0;
    let refused = loop {
        match fs::write(at(accepted), content(100_000)) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 3000, "more is accepted than there is room");
    };
    assert_eq!(refused.raw_os_error(), Some(28));
    let room = statvfs(&mounted.root).unwrap();
    assert!(room.f_bavail < room.f_bfree, "what is reserved is not available");
    // Room for the times of what is there.
    drop(fill);
    fs::remove_file(image.root().join("fill")).unwrap();
    mounted.unmount();
    let mounted = Mounted::start(&store, &place.target(), &[]);
    for number in 0..accepted {
        assert!(fs::read(mounted.root.join(number.to_string())).unwrap() == content(100_000), "{number}");
    }
    mounted.unmount();
}

#[test]
fn what_a_full_device_has_refused_is_not_there_later() {
    const LENGTH: usize = 50_000;
    let Some(small) = Small::new(24) else { return };
    let mounted = small.mount(&["--free-every", "0s"]);
    let root = mounted.root.clone();
    let at = |name: &str| root.join(name);
    fs::write(at("file"), content(LENGTH)).unwrap();
    fs::write(at("large"), content(1 << 20)).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(at(name)).unwrap();
    let (file, large) = (open("file"), open("large"));
    file.sync_all().unwrap();
    fs::create_dir(at("filling")).unwrap();
    let filled = (0..).try_for_each(|number| fs::write(at(&format!("filling/{number}")), content(100_000)));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));

    let mut kept = content(LENGTH);
    // The kernel sends it in parts, of which the first may fit.
    let written = file.write_at(&[7; 1 << 20], 0).unwrap_or_else(|error| {
        assert_eq!(error.raw_os_error(), Some(28));
        0
    });
    assert!(written < 1 << 20);
    kept.resize(LENGTH.max(written), 0);
    kept[..written].fill(7);
    assert_eq!(file.metadata().unwrap().len(), kept.len() as u64);
    let (mut from, mut to) = (0, 10);
    let copied = copy_file_range(&large, Some(&mut from), &file, Some(&mut to), 1 << 20);
    assert_eq!(copied, Err(Errno::NOSPC));
    // This needs little room: it is there as a whole, or it is not there.
    if fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, 100_000).is_ok() {
        kept.resize(kept.len().max(101_000), 0);
        kept[1000..101_000].fill(0);
    }
    fs::remove_dir_all(at("filling")).unwrap();
    file.sync_all().unwrap();
    drop((file, large));
    mounted.unmount();
    let mounted = small.mount(&[]);
    assert!(fs::read(at("file")).unwrap() == kept);
    mounted.unmount();
    small.check();
}

#[test]
fn space_comes_back_on_a_full_device_before_a_program_hears_of_it() {
    const FILES: usize = 500;
    let Some(small) = Small::new(96) else { return };
    // Not at intervals.
    let mounted = small.mount(&["--free-every", "0s"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    let held_content = content(99_000);
    fs::write(at(FILES), &held_content).unwrap();
    let held = File::open(at(FILES)).unwrap();
    fs::remove_file(at(FILES)).unwrap();
    // Half of the device, three times: removed, and written over.
    (0..FILES).for_each(|name| fs::write(at(name), content(100_000)).unwrap());
    (0..FILES).for_each(|name| fs::remove_file(at(name)).unwrap());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_001)).unwrap());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_002)).unwrap());
    assert!((0..FILES).all(|name| fs::read(at(name)).unwrap() == content(100_002)));
    let mut read = Vec::new();
    (&held).read_to_end(&mut read).unwrap();
    assert!(read == held_content);
    drop(held);
    mounted.unmount();
    small.check();
}

#[test]
fn space_that_waited_for_a_reader_comes_back_before_a_program_hears_that_there_is_none() {
    const FILES: usize = 500;
    let Some(small) = Small::new(96) else { return };
    let mounted = small.mount(&["--free-every", "0s"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    let write_all = |length: usize| (0..FILES).try_for_each(|name| fs::write(at(name), content(length)));
    write_all(100_000).unwrap();
    File::open(&mounted.root).unwrap().sync_all().unwrap();
    // Half of the device is kept for a reader. There is no room for the other content of all.
    let reader = granulo::store::Store::open_read_only(&small.store()).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let kept = snapshot.entry(&granulo::store::Key::parse("0").unwrap()).unwrap().unwrap();
    assert_eq!(kept.entry.size_bytes, 100_000);
    let filled = write_all(100_001).and_then(|()| write_all(100_002));
    assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));
    assert!(reader.status(false).unwrap().waiting_bytes > 30_000_000);
    drop((snapshot, reader));
    // Nothing more becomes dead.
    let another = |name: usize| mounted.root.join(format!("another{name}"));
    (0..FILES / 2).for_each(|name| fs::write(another(name), content(100_003)).unwrap());
    assert!((0..FILES / 2).all(|name| fs::read(another(name)).unwrap() == content(100_003)));
    mounted.unmount();
    small.check();
}

#[test]
fn space_comes_back_at_intervals() {
    const FILES: usize = 1000;
    let Some(place) = Place::new() else { return };
    let mounted = place.mount_with(&["-o", "commit=1", "--free-every", "100ms"]);
    let at = |name: usize| mounted.root.join(name.to_string());
    (0..FILES).for_each(|name| fs::write(at(name), content(100_000 + name)).unwrap());
    let held = File::open(at(0)).unwrap();
    (0..FILES).filter(|name| name % 100 != 7).for_each(|name| fs::remove_file(at(name)).unwrap());
    let began = Instant::now();
    while segment_bytes(&place.store()) > 10 << 20 {
        assert!(began.elapsed() < PATIENCE, "{} bytes: {}", segment_bytes(&place.store()), mounted.log());
        thread::sleep(Duration::from_millis(20));
    }
    (7..FILES).step_by(100).for_each(|name| assert!(fs::read(at(name)).unwrap() == content(100_000 + name)));
    let mut read = Vec::new();
    (&held).read_to_end(&mut read).unwrap();
    assert!(read == content(100_000));
    drop(held);
    mounted.unmount();
    place.check();
}

#[test]
fn it_stays_mounted_while_there_is_no_room_for_the_last_changes() {
    let Some(small) = Small::new(24) else { return };
    let mounted = small.mount(&["--commit-every", "1h", "--free-every", "0s"]);
    fs::write(mounted.root.join("file"), content(200_000)).unwrap();
    let hog = small.device().join("hog");
    let filled = fs::write(&hog, vec![1; 64 << 20]).unwrap_err();
    assert_eq!(filled.raw_os_error(), Some(28));
    let refused = finish(granulo().arg("unmount").arg(&mounted.root)).ended(2).said();
    assert!(refused.contains("still mounted") && refused.contains("No space"), "{refused}");
    assert!(fs::read(mounted.root.join("file")).unwrap() == content(200_000));
    fs::remove_file(&hog).unwrap();
    mounted.unmount();
    let mounted = small.mount(&[]);
    assert!(fs::read(mounted.root.join("file")).unwrap() == content(200_000));
    mounted.unmount();
    small.check();
}
