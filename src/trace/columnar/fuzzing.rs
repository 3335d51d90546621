//! Entry point for a fuzzer: traces in granulo's own format with valid checksums, made of arbitrary bytes, and a
//! property that holds for all of them.

use twox_hash::XxHash3_64;

use super::{BLOCK, FOOT, Frame, HEAD, MAGIC, Reader, Writer, ZSTD_LEVEL};
use crate::trace::{Input, Operation, Source};

/// Bytes before the body of a block: kind, operations, operations before, files before, processes before, length.
const PREFIX_BYTES: usize = 9;
const KINDS: [[u8; 4]; 3] = [HEAD, BLOCK, FOOT];

/// Whatever is read from these bytes can be written again, and then reads the same: for the bytes themselves, and for a
/// file with the blocks that they describe and valid checksums.
///
/// # Panics
/// If that does not hold.
pub fn columnar(bytes: &[u8]) {
    holds(bytes);
    holds(&of_blocks(bytes));
}

fn holds(bytes: &[u8]) {
    let Some((first, reader)) = operations(bytes) else { return };
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written, reader.origin()).expect("memory takes everything");
    for operation in &first {
        writer.push(operation, &reader).expect("memory takes everything");
    }
    writer.finish(&reader).expect("memory takes everything");
    let (second, _) = operations(&written).expect("what was written is read");
    assert!(first == second, "what was written is another trace");
}

fn operations(bytes: &[u8]) -> Option<(Vec<Operation>, Reader)> {
    let mut reader = Reader::new(Input::of_bytes(bytes.to_vec()).ok()?).ok()?;
    let mut operations = Vec::new();
    while let Ok(Some(operation)) = reader.next() {
        operations.push(operation);
    }
    Some((operations, reader))
}

/// A file of the blocks that these bytes describe, in order.
pub(super) fn of_blocks(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    while let Some((&prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
        let u16_at = |at: usize| u16::from_le_bytes([prefix[at], prefix[at + 1]]);
        let (body, rest) = rest.split_at(rest.len().min(u16_at(7).into()));
        bytes = rest;
        let packed = zstd::bulk::compress(body, ZSTD_LEVEL).expect("memory takes everything");
        let frame = Frame {
            kind: KINDS[usize::from(prefix[0]) % KINDS.len()],
            packed_bytes: packed.len() as u32,
            raw_bytes: body.len() as u32,
            operations: u16_at(1).into(),
            operations_before: u16_at(3).into(),
            files_before: prefix[5].into(),
            processes_before: prefix[6].into(),
            hash: XxHash3_64::oneshot(&packed),
        };
        file.extend_from_slice(&frame.encode());
        file.extend_from_slice(&packed);
    }
    file
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::FRAME_BYTES;
    use super::super::tests::{packed, reads};
    use super::*;

    /// The inverse of [`of_blocks`]: the bytes that produce this file.
    fn blocks_of(file: &[u8]) -> Vec<u8> {
        let (mut at, mut blocks) = (MAGIC.len(), Vec::new());
        while at < file.len() {
            let frame = Frame::decode(file[at..at + FRAME_BYTES].try_into().unwrap()).unwrap();
            at += FRAME_BYTES + frame.packed_bytes as usize;
            let body = zstd::bulk::decompress(&file[at - frame.packed_bytes as usize..at], 1 << 16).unwrap();
            blocks.push(KINDS.iter().position(|kind| *kind == frame.kind).unwrap() as u8);
            blocks.extend((frame.operations as u16).to_le_bytes());
            blocks.extend((frame.operations_before as u16).to_le_bytes());
            blocks.extend([frame.files_before as u8, frame.processes_before as u8]);
            blocks.extend((body.len() as u16).to_le_bytes());
            blocks.extend(body);
        }
        blocks
    }

    #[test]
    fn a_file_is_made_of_its_blocks() {
        let file = packed(&mut reads(500));
        let blocks = blocks_of(&file);
        assert_eq!(of_blocks(&blocks), file);
        if std::env::var_os("GRANULO_UPDATE_GOLDEN").is_some() {
            let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/columnar");
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("reads"), blocks).unwrap();
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_can_be_written(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut blocks = blocks_of(&packed(&mut reads(40)));
            for (at, byte) in changes {
                let at = at.index(blocks.len());
                blocks[at] = byte;
            }
            columnar(&blocks);
        }
    }
}
