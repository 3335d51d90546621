//! Filters of a sorted table: which keys it cannot have, without reading its leaves (docs/FORMAT.md, section 10).
//!
//! A filter is a split block Bloom filter: a key selects a bucket of 32 bytes, which is within one cache line, and one
//! bit in each of its eight words (J. Apple, "Split block Bloom filters", arXiv:2101.01719, after F. Putze, P. Sanders
//! and J. Singler, "Cache-, hash- and space-efficient Bloom filters", 2007; Apache Parquet uses the same with another
//! hash). With 12 bits per key, one missing key in 200 passes. Buckets are grouped into blocks of one page, so that a
//! filter is cached and evicted page by page.
//!
//! A filter has at most [`MOST_KEYS`] consecutive keys: that bounds a writer's memory for it. Its blocks directly
//! follow the leaves with these keys.
//!
//! A filter can only exclude keys, so a damaged one excludes nothing: look-ups continue without it, and verification
//! reports it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use twox_hash::XxHash3_64;

use super::block::{HEADER_BYTES, PAGE_BYTES, header, seal};

/// Level of blocks of filters.
pub(crate) const FILTER_LEVEL: u8 = 253;
/// Level of the blocks that locate the filters, if there are several.
pub(crate) const DIRECTORY_LEVEL: u8 = 254;
/// Maximum number of keys of a filter. Smaller in tests, which then cover several filters.
pub(crate) const MOST_KEYS: usize = if cfg!(test) { 2_000 } else { 1 << 19 };

const BITS_PER_KEY: usize = 12;
const BUCKET_BYTES: usize = 32;
const BUCKETS_PER_PAGE: u64 = ((PAGE_BYTES - HEADER_BYTES) / BUCKET_BYTES) as u64;
const WORDS: usize = BUCKET_BYTES / 4;
/// Odd numbers that turn one hash into eight; those of Parquet.
const SALT: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The hash of a key used for filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// The hash of `key`.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> KeyHash {
        KeyHash(XxHash3_64::oneshot(key))
    }

    /// The page of a filter of `pages`, and where its bucket begins after the header.
    #[inline]
    fn place(self, pages: u64) -> (u64, usize) {
        let bucket = ((u128::from(self.0) * u128::from(pages * BUCKETS_PER_PAGE)) >> 64) as u64;
        (bucket / BUCKETS_PER_PAGE, (bucket % BUCKETS_PER_PAGE) as usize * BUCKET_BYTES)
    }

    /// The bits of a bucket: one in each word.
    #[inline]
    fn bits(self) -> [u32; WORDS] {
        SALT.map(|salt| 1 << ((self.0 as u32).wrapping_mul(salt) >> 27))
    }

    /// The page of a filter of `pages` that covers the key.
    #[inline]
    pub(super) fn page(self, pages: u64) -> u64 {
        self.place(pages).0
    }

    /// Whether the key may exist; `body` is what follows the header of its [`page`](Self::page).
    #[inline]
    pub(super) fn may_be_in(self, body: &[u8], pages: u64) -> bool {
        let start = self.place(pages).1;
        let Some(bucket) = body.get(start..start + BUCKET_BYTES) else { return true };
        let words = bucket.as_chunks::<4>().0.iter();
        words.zip(self.bits()).all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0)
    }
}

/// A filter being built.
#[derive(Debug, Default)]
pub(super) struct FilterBuilder {
    hashes: Vec<KeyHash>,
}

impl FilterBuilder {
    pub(super) fn add(&mut self, key: &[u8]) {
        self.hashes.push(KeyHash::of(key));
    }

    /// Whether the next key belongs to the next filter.
    pub(super) fn is_full(&self) -> bool {
        self.hashes.len() >= MOST_KEYS
    }

    /// Whether it has more keys than any filter may have.
    pub(super) fn is_over_full(&self) -> bool {
        self.hashes.len() > MOST_KEYS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The blocks of the filter, a page each; begins the next filter.
    #[expect(clippy::indexing_slicing, reason = "every place is in the filter, and a bit left out would hide a key")]
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let buckets = (self.hashes.len() * BITS_PER_KEY).div_ceil(8 * BUCKET_BYTES) as u64;
        let pages = buckets.div_ceil(BUCKETS_PER_PAGE);
        let mut bytes = vec![0; pages as usize * PAGE_BYTES];
        for hash in self.hashes.drain(..) {
            let (page, at) = hash.place(pages);
            let start = page as usize * PAGE_BYTES + HEADER_BYTES + at;
            for (word, bit) in bytes[start..start + BUCKET_BYTES].as_chunks_mut::<4>().0.iter_mut().zip(hash.bits()) {
                *word = (u32::from_le_bytes(*word) | bit).to_le_bytes();
            }
        }
        let header = header(FILTER_LEVEL, 1, BUCKETS_PER_PAGE as usize, BUCKETS_PER_PAGE as usize * BUCKET_BYTES);
        for page in bytes.as_chunks_mut::<PAGE_BYTES>().0 {
            page[..HEADER_BYTES].copy_from_slice(&header);
            seal(page);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::*;

    fn passes(filter: &[u8], key: &[u8]) -> bool {
        let pages = (filter.len() / PAGE_BYTES) as u64;
        let hash = KeyHash::of(key);
        let page = hash.page(pages) as usize;
        let block = Block::parse(&filter[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]).unwrap();
        assert_eq!(block.level(), FILTER_LEVEL);
        hash.may_be_in(block.body(), pages)
    }

    #[test]
    fn what_is_there_passes_and_of_what_is_not_hardly_any() {
        let key = |number: u32| format!("{:03}\0{:03}", number / 1000, number % 1000).into_bytes();
        let mut builder = FilterBuilder::default();
        (0..20_000).for_each(|number| builder.add(&key(number)));
        let filter = builder.finish();
        assert_eq!(filter.len(), 8 * PAGE_BYTES, "20,000 x 12 bits are 7.4 pages");
        assert!((0..20_000).all(|number| passes(&filter, &key(number))));
        let others = (20_000..120_000).filter(|&number| passes(&filter, &key(number))).count();
        assert!(others < 1000, "{others} of 100,000");
        assert!(builder.is_empty(), "the next begins");
    }

    /// The bytes are the format.
    #[test]
    fn the_bits_of_a_key_are_where_the_format_says() {
        let mut builder = FilterBuilder::default();
        builder.add(b"a");
        let filter = builder.finish();
        let set: Vec<usize> =
            (HEADER_BYTES * 8..PAGE_BYTES * 8).filter(|bit| filter[bit / 8] >> (bit % 8) & 1 == 1).collect();
        let hash = XxHash3_64::oneshot(b"a");
        assert_eq!(hash, 0xe6c6_32b6_1e96_4e1f, "XXH3 of one byte");
        let bucket = ((u128::from(hash) * 127) >> 64) as usize;
        let expected: Vec<usize> = (0..8)
            .map(|word| {
                HEADER_BYTES * 8 + bucket * 256 + word * 32 + ((hash as u32).wrapping_mul(SALT[word]) >> 27) as usize
            })
            .collect();
        assert_eq!(set, expected);
    }
}
