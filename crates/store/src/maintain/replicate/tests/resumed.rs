//! Copies that begin again, or go on where another one ended: what they find, what they count, and what they say.

use std::fs::OpenOptions;

use super::super::directory;
use super::super::image::{FileKind, Image, ImageFile};
use super::super::source::{Source, StoreSource};
use super::super::wire::encode_image;
use super::buckets::a_bucket;
use super::*;
use crate::error::Error;

/// What a frame has before its content, and the content of the first one.
const HEAD_BYTES: u64 = 13;
const HELLO_BYTES: u64 = 4;

/// A source of which a writer frees a file meanwhile: the read with this number does not find it.
struct Freeing {
    source: StoreSource,
    reads_left: u64,
}

impl Source for Freeing {
    fn image(&mut self) -> Result<Image> {
        self.source.image()
    }

    fn read(&mut self, file: &ImageFile, offset: u64, length: usize, onto: &mut Vec<u8>) -> Result<()> {
        if self.reads_left > 0 {
            self.reads_left -= 1;
            if self.reads_left == 0 {
                return Err(Error::new(ErrorKind::NotFound, "read", "it was freed"));
            }
        }
        self.source.read(file, offset, length, onto)
    }
}

fn open(home: &Path) -> Store {
    Store::open_read_only(home).unwrap()
}

fn counts(copied: &Copied) -> (u64, u64, u64, u64) {
    (copied.files, copied.bytes, copied.kept_files, copied.kept_bytes)
}

/// A request to stop when more than so many bytes have come.
fn stopping(behind_bytes: u64) -> Progress {
    Progress::observed(move |progress| {
        let now = progress.snapshot();
        if now.stage.name == "copying" && now.bytes > u128::from(now.skipped_bytes + behind_bytes) {
            progress.stop();
        }
    })
}

#[test]
fn a_copy_that_begins_again_counts_what_came_once() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let (sandbox, home, copy) = one_store();
    let other = sandbox.path().join("other");
    let all = clone(&home, &other).unwrap();
    assert!(all.files > 1, "{all:?}");
    for reads_left in 1..=all.files {
        let mut source = Freeing { source: StoreSource::new(&open(&home)), reads_left };
        let made = directory::make(&mut source, &copy, &options, &progress).unwrap();
        assert_eq!((source.reads_left, counts(&made)), (0, counts(&all)), "read {reads_left}");
        fs::remove_dir_all(&copy).unwrap();
    }
    // What was taken over from the copy in an attempt that ended was there.
    clone(&home, &copy).unwrap();
    write(&Store::open(&home).unwrap(), 1);
    let once = push(&home, &other).unwrap();
    // The first read is for the comparison.
    let mut source = Freeing { source: StoreSource::new(&open(&home)), reads_left: 3 };
    let twice = directory::update(&mut source, &copy, &options, &progress).unwrap();
    assert_eq!((source.reads_left, twice.bytes + twice.kept_bytes), (0, once.bytes + once.kept_bytes), "{twice:?}");
    assert_eq!(of(&copy), of(&home));
}

#[test]
fn what_an_interrupted_copy_left_was_there_for_the_next() {
    let (sandbox, home, copy) = one_store();
    let all = clone(&home, &sandbox.path().join("whole")).unwrap();
    let first = StoreSource::new(&open(&home)).image().unwrap().files().swap_remove(0);
    // In a bucket, a file is there when all of it is.
    for (to, behind_bytes) in [(copy, 0), (a_bucket(), first.size_bytes)] {
        let stopped = open(&home).clone_to(&to, &CopyOptions::default(), &stopping(behind_bytes)).unwrap();
        assert!(stopped.is_interrupted, "{stopped:?}");
        let done = clone(&home, &to).unwrap();
        assert!(done.kept_files > 0 && done.kept_bytes >= first.size_bytes, "{done:?}");
        assert_eq!((done.files + done.kept_files, done.bytes + done.kept_bytes), (all.files, all.bytes), "{done:?}");
        assert_eq!(of(&to), of(&home));
    }
}

/// The source fails behind its first file.
#[test]
fn what_came_into_a_bucket_before_an_error_stays() {
    let (sandbox, home, _) = one_store();
    let bucket = a_bucket();
    let of_image = StoreSource::new(&open(&home)).image().unwrap().files();
    let (first_bytes, second) = (of_image[0].size_bytes, home.join(&of_image[1].path));
    let aside = sandbox.path().join("aside");
    let (from, to) = (second.clone(), aside.clone());
    let failing = Progress::observed(move |progress| {
        let now = progress.snapshot();
        if now.stage.name == "copying" && now.bytes >= first_bytes.into() && !to.exists() {
            fs::rename(&from, &to).unwrap();
            fs::create_dir(&from).unwrap();
        }
    });
    let failed = open(&home).clone_to(&bucket, &CopyOptions::default(), &failing).unwrap_err();
    assert!(failed.kind() == ErrorKind::Io && failed.to_string().contains("a directory"), "{failed}");
    fs::remove_dir(&second).unwrap();
    fs::rename(&aside, &second).unwrap();
    assert!(clone(&home, &bucket).unwrap().kept_bytes >= first_bytes);
    assert_eq!(of(&bucket), of(&home));
}

/// A segment of more than one piece.
#[test]
fn what_has_arrived_of_a_long_file_is_not_sent_again() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = (sandbox.path().join("home"), sandbox.path().join("copy"));
    let store = Store::create(&home, &Plan { segment_bytes: 16 << 20, ..Plan::default() }).unwrap();
    let mut batch = store.batch(Durability::Batch);
    for number in 0..200 {
        batch.put(&key(&format!("d/{number}")), &file(), &bytes(number, 60_000)).unwrap();
    }
    batch.commit().unwrap();
    drop(store);
    let clone_to =
        |most_bytes| with_peer(&copy, most_bytes, |peer| open(&home).clone_to_peer(peer, &options, &progress));
    let broken = clone_to(10 << 20).unwrap_err();
    assert!(broken.to_string().contains("run the same command again"), "{broken}");
    let aside = sandbox.path().join("copy.incoming");
    assert!(!copy.exists() && files(&aside).keys().all(|path| path.extension().is_none()), "nothing is incomplete");
    // The source goes on meanwhile.
    Store::open(&home).unwrap().put(&key("later"), &file(), &bytes(7, 60_000)).unwrap();
    let done = clone_to(u64::MAX).unwrap();
    assert!(done.kept_bytes >= 8 << 20 && done.bytes < 5 << 20, "{done:?}");
    assert_eq!(of(&copy), of(&home));
    assert_sound(&copy);
    assert!(!aside.exists());
}

/// What comes from a stream, with one bit changed behind so many bytes.
struct Noisy {
    from: UnixStream,
    before: u64,
}

impl Read for Noisy {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buffer)?;
        if self.before < read as u64 {
            buffer[self.before as usize] ^= 1;
            self.before = u64::MAX;
        } else {
            self.before -= read as u64;
        }
        Ok(read)
    }
}

impl AsFd for Noisy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}

#[test]
fn what_was_changed_on_the_way_is_not_kept_and_what_came_before_is() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let (_sandbox, home, copy) = one_store();
    let image = StoreSource::new(&open(&home)).image().unwrap();
    let of_image = image.files();
    let (first, second) = (&of_image[0], &of_image[1]);
    assert!(first.kind == FileKind::Extents && second.size_bytes > 40_000, "{of_image:?}");
    let before = 4 * HEAD_BYTES + HELLO_BYTES + encode_image(&image).unwrap().len() as u64 + first.size_bytes + 30_000;
    let (here, there) = UnixStream::pair().unwrap();
    let changed = std::thread::scope(|scope| {
        let copy = &copy;
        scope.spawn(move || {
            let (mut from, mut to) = (Noisy { from: there.try_clone().unwrap(), before }, there);
            let peer = Peer { from: &mut from, to: &mut to, place: "here".into() };
            let _ = Store::serve_peer(copy, peer, &Progress::default());
        });
        let (mut from, mut to) = (here.try_clone().unwrap(), here);
        let peer = Peer { from: &mut from, to: &mut to, place: "there".into() };
        open(&home).clone_to_peer(peer, &options, &progress)
    });
    let changed = changed.unwrap_err().to_string();
    assert!(changed.contains("changed on the way") && changed.contains("run the same command again"), "{changed}");
    let done = with_peer(&copy, u64::MAX, |peer| open(&home).clone_to_peer(peer, &options, &progress)).unwrap();
    assert_eq!(done.kept_bytes, first.size_bytes, "{done:?}");
    assert_eq!(of(&copy), of(&home));
}

#[test]
fn a_request_to_stop_hides_no_error() {
    let options = CopyOptions::default();
    let (sandbox, home, copy) = one_store();
    let was = clone(&home, &copy).unwrap();
    let progress = Progress::default();
    progress.stop();
    // Nothing is a directory in a file.
    let below = sandbox.path().join("file");
    fs::write(&below, "").unwrap();
    let to = below.join("copy");
    let failed = with_peer(&home, u64::MAX, |peer| Store::clone_from_peer(peer, &to, &options, &progress));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    // The same on the other side, which says so.
    let failed = with_peer(&to, u64::MAX, |peer| open(&home).clone_to_peer(peer, &options, &progress));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    // A connection that has ended is what stopping brings about: the copy is as it was.
    write(&Store::open(&home).unwrap(), 1);
    let most_bytes = HEAD_BYTES + HELLO_BYTES;
    let pull = |peer: Peer<'_>| Store::pull_from_peer(peer, &copy, &options, &progress);
    let stopped = with_peer(&home, most_bytes, pull).unwrap();
    assert!(stopped.is_interrupted, "{stopped:?}");
    assert_eq!((stopped.batch, stopped.segments), (was.batch, was.segments));
}

#[test]
fn an_error_of_this_side_is_not_said_to_be_one_of_the_other() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let (_sandbox, home, copy) = one_store();
    let store = open(&home);
    let extents = fs::read_dir(home.join("extents")).unwrap().next().unwrap().unwrap().path();
    OpenOptions::new().write(true).open(&extents).unwrap().set_len(10).unwrap();
    let failed = with_peer(&copy, u64::MAX, |peer| store.clone_to_peer(peer, &options, &progress)).unwrap_err();
    assert!(!failed.to_string().contains("there: "), "{failed}");
    assert_eq!(failed.kind(), ErrorKind::Corrupt);
}
