//! Direct writes compared with a plain file: arbitrary pieces at arbitrary offsets, on file systems with and without
//! support.

use std::fs;
use std::io::Write;

use proptest::prelude::*;

use super::*;

/// Bytes that depend on their position.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at ^ at >> 9 ^ at >> 17) as u8).collect()
}

fn file_in(directory: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(directory.join("f")).unwrap()
}

fn is_served(file: &File) -> bool {
    Alignment::of(file).is_some()
}

#[test]
fn whole_blocks_are_what_lies_between_the_ends() {
    const BLOCK: usize = BLOCK_BYTES as usize;
    assert_eq!(whole_blocks(0, LEAST_BYTES), 0..LEAST_BYTES);
    assert_eq!(whole_blocks(0, LEAST_BYTES - 1), 0..0);
    assert_eq!(whole_blocks(1, LEAST_BYTES), BLOCK - 1..LEAST_BYTES - 1);
    assert_eq!(whole_blocks(3 * BLOCK_BYTES - 4, LEAST_BYTES + 8), 4..LEAST_BYTES + 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_length_are_what_a_plain_file_has(
        pieces in proptest::collection::vec((1usize..3 << 20, 0usize..5000, any::<bool>()), 1..7),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (direct, file) = (DirectWrites::default(), file_in(directory.path()));
        let reader = File::open(directory.path().join("f")).unwrap();
        let source = content(4 << 20);
        let mut plain = Vec::new();
        for (length, skew, is_small) in pieces {
            // At an arbitrary address, so that some pieces are aligned as the device requires and most are not.
            let length = if is_small { length % 7000 } else { length };
            let piece = &source[skew..skew + length];
            direct.write(&file, piece, plain.len() as u64).unwrap();
            plain.extend_from_slice(piece);
            // A reader through the page cache sees all of it, and no more.
            prop_assert_eq!(reader.metadata().unwrap().len(), plain.len() as u64);
            let mut read = vec![0; plain.len()];
            reader.read_exact_at(&mut read, 0).unwrap();
            prop_assert!(read == plain);
        }
        file.sync_data().unwrap();
        prop_assert!(fs::read(directory.path().join("f")).unwrap() == plain);
    }
}

#[test]
fn a_file_system_that_does_not_serve_gets_the_same_bytes() {
    let shared = std::path::Path::new("/dev/shm");
    if !shared.is_dir() {
        let _ = writeln!(io::stderr(), "SKIPPED: there is no /dev/shm");
        return;
    }
    let directory = tempfile::tempdir_in(shared).unwrap();
    let (direct, file) = (DirectWrites::default(), file_in(directory.path()));
    let piece = content(3 << 20);
    direct.write(&file, &piece, 0).unwrap();
    direct.write(&file, &piece[..2 << 20], 3 << 20).unwrap();
    assert!(fs::read(directory.path().join("f")).unwrap() == [&piece[..], &piece[..2 << 20]].concat());
    assert_eq!(direct.is_refused.load(Ordering::Relaxed), !is_served(&file));
}

#[test]
fn a_refusal_is_made_up_for_and_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let (direct, file) = (DirectWrites::default(), file_in(directory.path()));
    let Some(alignment) = Alignment::of(&file) else {
        let _ = writeln!(io::stderr(), "SKIPPED: {} has no direct writes", directory.path().display());
        return;
    };
    // Misaligned memory that claims to be aligned: the kernel refuses.
    let piece = content(2 << 20);
    let begin = usize::from((piece.as_ptr() as usize).is_multiple_of(2));
    let said = Alignment { memory: 1, ..alignment };
    let (opened, _) = direct.open(&file).unwrap();
    let done = direct.write_blocks(&opened, said, &piece[begin..begin + (1 << 20)], 0).unwrap();
    if alignment.memory > 1 {
        assert_eq!(done, 0);
        assert!(direct.is_refused.load(Ordering::Relaxed));
    }
    direct.write(&file, &piece, 0).unwrap();
    assert!(fs::read(directory.path().join("f")).unwrap() == piece);
}

#[test]
fn a_reader_beside_the_writer_sees_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (direct, file) = (DirectWrites::default(), file_in(directory.path()));
    let source = content(24 << 20);
    let written = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let read = || {
            let reader = File::open(directory.path().join("f")).unwrap();
            let mut is_over = false;
            while !is_over {
                let there = written.load(Ordering::Acquire) as usize;
                is_over = there == source.len();
                let mut bytes = vec![0; there];
                reader.read_exact_at(&mut bytes, 0).unwrap();
                assert!(bytes == source[..there], "{there} bytes");
                // The range being written is read too, so that its pages are in memory when the write arrives.
                let _ = reader.read_at(&mut [0; 8192], there as u64);
            }
        };
        scope.spawn(read);
        let mut at = 0;
        for length in [1_500_001, 4_003, 3 << 20, 77, 2 << 20, 5_000_000, 1 << 20, usize::MAX] {
            let length = length.min(source.len() - at);
            direct.write(&file, &source[at..at + length], at as u64).unwrap();
            at += length;
            written.store(at as u64, Ordering::Release);
        }
    });
}
