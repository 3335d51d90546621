//! Consolidation: many small pieces of a file become one object.
//!
//! A file that grows by little at a time gets a piece with each cut. Each is a row of the manifest, and a request for
//! whoever reads it. So before a cut, if a file has many, those in a row are read, and put as one object, which that
//! cut then refers to. It need not succeed: the small pieces are as good.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::fetch::Reading;
use super::pieces::{Piece, Pieces, Source};
use super::table::FileNumber;
use super::volume::{Author, Volume};
use crate::locks::lock;

/// Small pieces that a file may have. Fewer in tests.
const MOST_SMALL_PIECES: usize = if cfg!(test) { 8 } else { 32 };
/// A piece of this share of an object is small.
const SMALL_SHARE: u64 = 4;

/// Small pieces of a file in a row.
struct Run {
    path: String,
    number: FileNumber,
    pieces: Vec<Piece>,
}

/// The longest of the runs of small pieces, if a file has too many, and it is worth the requests; not longer than an
/// object.
fn longest_run(pieces: &Pieces, object_bytes: u64) -> Option<Vec<Piece>> {
    let is_small =
        |piece: &Piece| matches!(piece.source, Source::Object { .. }) && piece.length < object_bytes / SMALL_SHARE;
    if pieces.iter().filter(|piece| is_small(piece)).count() <= MOST_SMALL_PIECES {
        return None;
    }
    let (mut longest, mut run): (Vec<Piece>, Vec<Piece>) = Default::default();
    let mut run_bytes = 0;
    for piece in pieces.iter() {
        if !is_small(piece) || run_bytes + piece.length > object_bytes {
            (run, run_bytes) = (Vec::new(), 0);
        }
        if is_small(piece) {
            run_bytes += piece.length;
            run.push(piece.clone());
            if run.len() > longest.len() {
                longest.clone_from(&run);
            }
        }
    }
    let bytes: u64 = longest.iter().map(|piece| piece.length).sum();
    let is_large = longest.len() > 1 && bytes >= object_bytes / 2;
    (is_large || longest.len() > MOST_SMALL_PIECES / 2).then_some(longest)
}

impl Volume {
    /// Puts small pieces of one file together, if one has too many.
    pub(super) fn consolidate(&self, author: &mut Author) {
        let object_bytes = self.options.object_bytes;
        let run = {
            let files = lock(&self.files);
            files.table.named().find_map(|(path, number, pieces)| {
                let pieces = longest_run(pieces, object_bytes)?;
                Some(Run { path: path.to_owned(), number, pieces })
            })
        };
        let Some(Run { path, number, pieces }) = run else { return };
        let Some(bytes) = self.bytes_of(&pieces) else { return };
        // What ends the writer, the cut finds out.
        let Ok(object) = author.put(super::publish::class_of_file(&path), &bytes) else { return };
        if let Some(found) = lock(&self.files).table.pieces_mut(number) {
            // Unless it was overwritten meanwhile.
            found.exchange(&pieces, Source::Object { object, offset: 0 });
        }
    }

    fn bytes_of(&self, pieces: &[Piece]) -> Option<Vec<u8>> {
        let begin = pieces.first()?.at;
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.length as usize).sum()];
        let filled = self.fetcher.fill(&mut bytes, begin, pieces, Reading::Plain).ok()?;
        let is_sound = filled == bytes.len() && pieces.iter().all(|piece| self.is_verified(piece, &bytes, begin));
        is_sound.then_some(bytes)
    }

    /// Whether the bytes of a piece are those that were put, as far as can be told: of a part of an object, they
    /// cannot. What replaces it would make a wrong answer of the bucket last.
    fn is_verified(&self, piece: &Piece, bytes: &[u8], begin: u64) -> bool {
        let Source::Object { object, offset: 0 } = &piece.source else { return true };
        let at = (piece.at - begin) as usize;
        piece.length < object.length_bytes()
            || bytes.get(at..at + piece.length as usize).is_some_and(|bytes| object.is_intact(bytes))
    }
}
