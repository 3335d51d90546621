//! What is requested for which read, range by range.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::devices::bucket::pieces::Pieces;
use crate::devices::bucket::tests::machine;
use crate::devices::objects::counts::Counted;
use crate::devices::objects::{Memory, Objects};
use crate::devices::published::Writer;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Objects in a bucket, and somebody who reads them.
struct Scene {
    bucket: Arc<Counted>,
    objects: Vec<Arc<PublishedObject>>,
    contents: Vec<Vec<u8>>,
    fetcher: Fetcher,
}

impl Scene {
    /// Objects of these lengths.
    fn of(lengths: &[u64]) -> Scene {
        let bucket = Arc::new(Counted::new(Arc::new(Memory::default())));
        let mut writer = Writer::create(bucket.clone(), machine()).unwrap();
        let byte = |object: usize, at: u64| (at ^ (at >> 8) ^ (at >> 16)) as u8 ^ (object as u8).wrapping_mul(77);
        let content = |(object, length): (usize, &u64)| (0..*length).map(|at| byte(object, at)).collect();
        let contents: Vec<Vec<u8>> = lengths.iter().enumerate().map(content).collect();
        contents.iter().for_each(|content| _ = writer.publish(&[content], &[]).unwrap());
        let objects = writer.manifest().objects().cloned().map(Arc::new).collect();
        let fetcher = fetcher(&bucket);
        lock(&bucket.reads).clear();
        Scene { bucket, objects, contents, fetcher }
    }

    /// A file of ranges of objects.
    fn file(&self, ranges: &[(usize, Range<u64>)]) -> Pieces {
        let mut pieces = Pieces::default();
        for (object, range) in ranges {
            let source = Source::Object { object: Arc::clone(&self.objects[*object]), offset: range.start };
            pieces.append(range.end - range.start, source);
        }
        pieces
    }

    fn content(&self, ranges: &[(usize, Range<u64>)]) -> Vec<u8> {
        let content = |(object, range): &(usize, Range<u64>)| {
            self.contents[*object][range.start as usize..range.end as usize].to_vec()
        };
        ranges.iter().flat_map(content).collect()
    }

    /// What was read since this was last asked: the object, and the range.
    fn reads(&self) -> Vec<(usize, Range<u64>)> {
        self.fetcher.settle();
        let number = |name: &str| self.objects.iter().position(|object| object.path() == name).unwrap();
        let mut reads: Vec<(usize, Range<u64>)> =
            lock(&self.bucket.reads).drain(..).map(|(name, range)| (number(&name), range)).collect();
        reads.sort_by_key(|(object, range)| (*object, range.start));
        reads
    }
}

fn fetcher(bucket: &Arc<Counted>) -> Fetcher {
    Fetcher::new(Bucket { objects: bucket.clone(), surroundings: machine() })
}

fn fill(fetcher: &Fetcher, file: &Pieces, range: Range<u64>, is_kept: bool) -> Fetched<Vec<u8>> {
    let pieces: Vec<Piece> = file.within(range.clone()).collect();
    let whole: Vec<Piece> = file.iter().filter(|_| file.size_bytes() <= SHORT_FILE_BYTES).cloned().collect();
    let reading = if is_kept { Reading::Kept(&whole) } else { Reading::Plain };
    let mut buffer = vec![0xee; (range.end - range.start) as usize];
    let filled = fetcher.fill(&mut buffer, range.start, &pieces, reading)?;
    assert!(buffer[filled..].iter().all(|byte| *byte == 0xee));
    buffer.truncate(filled);
    Ok(buffer)
}

#[test]
fn neighbours_are_one_request_and_others_are_not() {
    let scene = Scene::of(&[MIB, MIB]);
    let ranges = [
        (0, 0..1000),
        (0, 1000 + NEAR_BYTES..2000 + NEAR_BYTES),
        // Too far away, and before another.
        (0, 2001 + 2 * NEAR_BYTES..300_000),
        (0, 100..200),
        (1, 500..600),
    ];
    let file = scene.file(&ranges);
    let found = fill(&scene.fetcher, &file, 0..file.size_bytes() + 100, false).unwrap();
    assert!(found == scene.content(&ranges));
    let expected = [(0, 0..2000 + NEAR_BYTES), (0, 100..200), (0, 2001 + 2 * NEAR_BYTES..300_000), (1, 500..600)];
    assert_eq!(scene.reads(), expected);
    // Only what is asked for, and nothing is kept.
    for _ in 0..2 {
        assert_eq!(fill(&scene.fetcher, &file, 10..20, false).unwrap(), scene.contents[0][10..20]);
        assert_eq!(scene.reads(), [(0, 10..20)]);
    }
}

#[test]
fn holes_and_bytes_in_memory_need_no_request() {
    let scene = Scene::of(&[1000]);
    let mut file = scene.file(&[(0, 100..200)]);
    file.append(50, Source::Hole);
    file.append(3, Source::Bytes { bytes: Arc::new(b"abcdef".to_vec()), offset: 2 });
    file.append(100, Source::Object { object: Arc::clone(&scene.objects[0]), offset: 300 });
    let expected = [&scene.contents[0][100..200], &[0; 50], b"cde", &scene.contents[0][300..400]].concat();
    assert!(fill(&scene.fetcher, &file, 0..1000, false).unwrap() == expected);
    assert_eq!(scene.reads(), [(0, 100..400)], "one request around them");
    assert!(fill(&scene.fetcher, &file, 110..152, false).unwrap() == expected[110..152]);
    assert_eq!(scene.reads(), []);
}

#[test]
fn a_long_range_is_requested_in_parts_and_one_of_medium_length_is_not() {
    let scene = Scene::of(&[20 * MIB]);
    let file = scene.file(&[(0, 0..20 * MIB)]);
    assert!(
        fill(&scene.fetcher, &file, 100..8 * MIB + 100, false).unwrap()
            == scene.contents[0][100..8 * MIB as usize + 100]
    );
    assert_eq!(scene.reads(), [(0, 100..8 * MIB + 100)]);
    assert!(fill(&scene.fetcher, &file, MIB..20 * MIB, false).unwrap() == scene.contents[0][MIB as usize..]);
    let parts = [1..5, 5..9, 9..13, 13..17, 17..20].map(|part: Range<u64>| (0, part.start * MIB..part.end * MIB));
    assert_eq!(scene.reads(), parts);
}

#[test]
fn what_was_fetched_ahead_is_not_requested_again() {
    let scene = Scene::of(&[20 * MIB, MIB]);
    let file = scene.file(&[(0, 0..20 * MIB), (1, 0..MIB)]);
    let pieces = |range: Range<u64>| file.within(range).collect::<Vec<Piece>>();
    scene.fetcher.fetch_ahead(&pieces(MIB..13 * MIB), Reading::Plain);
    assert_eq!(scene.reads(), [(0, MIB..5 * MIB), (0, 5 * MIB..9 * MIB), (0, 9 * MIB..13 * MIB)]);
    for at in 1..13 {
        let range = at * MIB..(at + 1) * MIB;
        let expected = &scene.contents[0][range.start as usize..range.end as usize];
        assert!(fill(&scene.fetcher, &file, range, false).unwrap() == expected);
    }
    assert_eq!(scene.reads(), []);
    // What is missing on both sides is requested, and nothing else.
    let around = fill(&scene.fetcher, &file, 500..14 * MIB, false).unwrap();
    assert!(around == scene.contents[0][500..14 * MIB as usize]);
    assert_eq!(scene.reads(), [(0, 500..MIB), (0, 13 * MIB..14 * MIB)]);
    // As much as there is room for, the oldest of what was used first; a short range in two parts.
    scene.fetcher.fetch_ahead(&pieces(20 * MIB - 1000..21 * MIB), Reading::Plain);
    assert_eq!(scene.reads(), [(0, 20 * MIB - 1000..20 * MIB), (1, 0..MIB / 2 + 500), (1, MIB / 2 + 500..MIB)]);
    scene.fetcher.forget(&pieces(0..21 * MIB));
    assert!(
        fill(&scene.fetcher, &file, 2 * MIB..3 * MIB, false).unwrap()
            == scene.contents[0][2 * MIB as usize..3 * MIB as usize]
    );
    assert_eq!(scene.reads(), [(0, 2 * MIB..3 * MIB)]);
}

#[test]
fn without_threads_nothing_is_fetched_ahead_and_everything_is_read() {
    let scene = Scene::of(&[20 * MIB]);
    let file = scene.file(&[(0, 0..20 * MIB)]);
    threads::without_threads(|| {
        let pieces: Vec<Piece> = file.within(0..8 * MIB).collect();
        scene.fetcher.fetch_ahead(&pieces, Reading::Plain);
        assert_eq!(scene.reads(), []);
        assert!(fill(&scene.fetcher, &file, 0..20 * MIB, false).unwrap() == scene.contents[0]);
    });
    assert_eq!(scene.reads().len(), 5);
}

#[test]
fn a_short_file_of_an_index_is_one_request_and_a_long_one_is_read_in_blocks() {
    let scene = Scene::of(&[3 * MIB, 12 * MIB]);
    // Beside others in one object.
    let short = scene.file(&[(0, 300 * KIB..MIB)]);
    let expected = &scene.contents[0][300 * KIB as usize..];
    assert!(fill(&scene.fetcher, &short, 700_000..724_000, true).unwrap() == expected[700_000..724_000]);
    assert_eq!(scene.reads(), [(0, BLOCK_BYTES..MIB)], "whole blocks");
    assert!(fill(&scene.fetcher, &short, 0..MIB, true).unwrap() == expected[..(MIB - 300 * KIB) as usize]);
    assert_eq!(scene.reads(), []);
    let next = scene.file(&[(0, MIB..2 * MIB + 1), (1, 12 * MIB - 10..12 * MIB)]);
    assert!(fill(&scene.fetcher, &next, 0..10, true).unwrap() == scene.contents[0][MIB as usize..MIB as usize + 10]);
    assert_eq!(scene.reads(), [(0, MIB..2 * MIB + BLOCK_BYTES)]);
    assert!(
        fill(&scene.fetcher, &next, MIB + 1..MIB + 100, true).unwrap() == scene.contents[1][12 * MIB as usize - 10..]
    );
    assert_eq!(scene.reads(), [(1, 12 * MIB - BLOCK_BYTES..12 * MIB)]);

    let long = scene.file(&[(1, 0..12 * MIB)]);
    for _ in 0..2 {
        let found = fill(&scene.fetcher, &long, BLOCK_BYTES - 1..BLOCK_BYTES + 1, true).unwrap();
        assert_eq!(found, scene.contents[1][BLOCK_BYTES as usize - 1..BLOCK_BYTES as usize + 1]);
    }
    assert_eq!(scene.reads(), [(1, 0..2 * BLOCK_BYTES)]);
}

fn with_cache(bucket: &Arc<Counted>, cache: &TempDir) -> Fetcher {
    let fetcher = fetcher(bucket);
    fetcher.keep_in(DiskCache::new(cache.path(), &[1; 16], 1 << 30));
    fetcher
}

fn files_of(cache: &TempDir) -> Vec<PathBuf> {
    let store = std::fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
    let mut files: Vec<PathBuf> = std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn another_process_finds_on_disk_what_is_sound_there_and_requests_the_rest() {
    let (mut scene, cache) = (Scene::of(&[12 * MIB]), tempfile::tempdir().unwrap());
    let (short, long) = (scene.file(&[(0, MIB..2 * MIB - 10)]), scene.file(&[(0, 0..12 * MIB)]));
    let read = |scene: &Scene| {
        assert!(
            fill(&scene.fetcher, &short, 5..10, true).unwrap()
                == scene.contents[0][MIB as usize + 5..MIB as usize + 10]
        );
        let end = 12 * MIB as usize;
        assert!(
            fill(&scene.fetcher, &long, end as u64 - 10..end as u64, true).unwrap() == scene.contents[0][end - 10..]
        );
    };
    scene.fetcher = with_cache(&scene.bucket, &cache);
    read(&scene);
    assert_eq!(scene.reads(), [(0, MIB..2 * MIB), (0, 12 * MIB - BLOCK_BYTES..12 * MIB)]);
    assert_eq!(files_of(&cache).len(), 5);
    scene.fetcher = with_cache(&scene.bucket, &cache);
    read(&scene);
    assert_eq!(scene.reads(), []);
    // The blocks from 1 MiB on are 4 to 7. One is damaged; then one is missing.
    let file_of = |block: &str| files_of(&cache).into_iter().find(|path| path.extension().unwrap() == block).unwrap();
    let mut bytes = std::fs::read(file_of("5")).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(file_of("5"), bytes).unwrap();
    let whole = |scene: &Scene| {
        assert!(fill(&scene.fetcher, &short, 0..MIB - 10, true).unwrap() == scene.content(&[(0, MIB..2 * MIB - 10)]));
    };
    scene.fetcher = with_cache(&scene.bucket, &cache);
    whole(&scene);
    assert_eq!(scene.reads(), [(0, MIB..2 * MIB)]);
    std::fs::remove_file(file_of("6")).unwrap();
    scene.fetcher = with_cache(&scene.bucket, &cache);
    read(&scene);
    assert_eq!(scene.reads(), []);
    whole(&scene);
    assert_eq!(scene.reads(), [(0, MIB + BLOCK_BYTES..2 * MIB)], "the rest of it at once");
    // Past the cache, which has it afterwards.
    scene.fetcher.forget(&short.iter().cloned().collect::<Vec<Piece>>());
    read(&scene);
    assert_eq!(scene.reads(), [(0, MIB..2 * MIB)]);
    scene.fetcher = with_cache(&scene.bucket, &cache);
    read(&scene);
    assert_eq!(scene.reads(), []);
}

#[test]
fn an_object_that_is_gone_or_has_another_length_is_an_error_of_whoever_needs_it() {
    let scene = Scene::of(&[MIB, MIB]);
    let file = scene.file(&[(0, 0..MIB), (1, 0..MIB)]);
    scene.bucket.delete(&scene.objects[1].path()).unwrap();
    // Nobody learns of what was only read ahead.
    scene.fetcher.fetch_ahead(&file.iter().cloned().collect::<Vec<Piece>>(), Reading::Plain);
    scene.fetcher.settle();
    for is_kept in [false, true] {
        assert!(fill(&scene.fetcher, &file, 0..MIB, is_kept).unwrap() == scene.contents[0]);
        let gone = fill(&scene.fetcher, &file, MIB - 1..MIB + 1, is_kept).unwrap_err();
        assert!(matches!(gone.error, ObjectError::NotFound) && gone.object == scene.objects[1].name());
    }
    scene.bucket.put(&scene.objects[1].path(), &scene.contents[1][1..]).unwrap();
    for is_kept in [false, true] {
        let short = fill(&scene.fetcher, &file, MIB..MIB + 1, is_kept).unwrap_err();
        let ObjectError::Failed(error) = short.error else { panic!("{short:?}") };
        assert_eq!(error.raw_os_error(), unreadable().raw_os_error());
    }
}

#[test]
fn threads_that_want_the_same_table_fetch_it_once() {
    let scene = Scene::of(&[4 * MIB]);
    let file = scene.file(&[(0, 0..4 * MIB)]);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (scene, file) = (&scene, &file);
            scope.spawn(move || {
                let range = thread * 400_000..thread * 400_000 + 4096;
                let expected = &scene.contents[0][range.start as usize..range.end as usize];
                assert!(fill(&scene.fetcher, file, range, true).unwrap() == expected);
            });
        }
    });
    assert_eq!(scene.reads(), [(0, 0..4 * MIB)]);
}
