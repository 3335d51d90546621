//! The last page of a sorted table, which locates everything, and the classes before it (docs/FORMAT.md, section 10).
//!
//! A footer is trusted only if its checksum is valid and every number in it is consistent with the size of the file,
//! which bounds what is allocated for it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::block::{HEADER_BYTES, PAGE_BYTES, checksum, header, seal};
use super::leaf::AttributeClass;
use crate::format::decode::Decoder;

const MAGIC: &[u8; 8] = b"grantab\0";
/// The version that is written and read.
pub(crate) const VERSION: u16 = 2;
/// Level of blocks of classes.
pub(crate) const CLASSES_LEVEL: u8 = 255;
/// Maximum number of levels: with two entries per block, more than any file can have.
const MOST_LEVELS: u16 = 64;
/// Bytes of a class.
const CLASS_BYTES: usize = 10;
/// Classes in a block.
pub(crate) const CLASSES_PER_BLOCK: usize = (PAGE_BYTES - HEADER_BYTES) / CLASS_BYTES;

/// Number of numbers.
const NUMBERS: usize = 9;
/// Maximum length of a bound in bytes; longer keys are truncated.
pub(crate) const LONGEST_BOUND_BYTES: usize = 1024;

/// Lower and upper bound of the keys of a table, truncated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyBounds {
    first: Box<[u8]>,
    last: Box<[u8]>,
}

impl KeyBounds {
    /// The bounds of a table with these first and last keys.
    pub(crate) fn new(first: &[u8], last: &[u8]) -> KeyBounds {
        KeyBounds { first: truncated(first).into(), last: truncated(last).into() }
    }

    /// Whether the table may have the key.
    #[inline]
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        // Truncation only lowers the first key. A key with the truncated last key as its prefix may be below the full
        // one.
        let is_cut = self.last.len() == LONGEST_BOUND_BYTES;
        key >= &*self.first && if is_cut { truncated(key) } else { key } <= &*self.last
    }
}

#[inline]
fn truncated(key: &[u8]) -> &[u8] {
    key.get(..LONGEST_BOUND_BYTES).unwrap_or(key)
}

/// The content of a table's last page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Levels of blocks, leaves included.
    pub(crate) levels: u16,
    /// Number of classes.
    pub(crate) classes: u32,
    /// Page of the root.
    pub(crate) root: u64,
    /// Entries in leaves.
    pub(crate) entries: u64,
    /// Pages of leaves and filters: the first page above them.
    pub(crate) leaf_pages: u64,
    /// Lowest id; `u64::MAX` for an empty table.
    pub(crate) lowest_id: u64,
    /// Highest id; 0 for an empty table.
    pub(crate) highest_id: u64,
    /// XXH3 of the checksums of all blocks, in order.
    pub(crate) chain: u64,
    /// Page of the first block of classes.
    pub(crate) first_class_page: u64,
    /// Page of the first block that locates filters; the footer's own if there are fewer than two.
    pub(crate) directory_page: u64,
    /// Pages of the only filter, directly before the first page above the leaves; 0 if there is none, or several.
    pub(crate) filter_pages: u64,
    /// Bounds of the table's keys.
    pub(crate) bounds: KeyBounds,
}

/// Why a page is not a footer of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It is damaged, or not a footer.
    Damaged,
    /// A newer granulo wrote it: the version.
    Newer(u16),
}

impl Footer {
    /// Encodes the page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&[0; 8]);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&self.levels.to_le_bytes());
        page.extend_from_slice(&self.classes.to_le_bytes());
        for number in self.numbers() {
            page.extend_from_slice(&number.to_le_bytes());
        }
        let KeyBounds { first, last } = &self.bounds;
        for bound in [first, last] {
            page.extend_from_slice(&(bound.len() as u16).to_le_bytes());
        }
        page.extend_from_slice(first);
        page.extend_from_slice(last);
        page.resize(PAGE_BYTES, 0);
        seal(&mut page);
        page
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        let Footer { root, entries, leaf_pages, lowest_id, highest_id, chain, .. } = *self;
        let Footer { first_class_page, directory_page, filter_pages, .. } = *self;
        [root, entries, leaf_pages, lowest_id, highest_id, chain, first_class_page, directory_page, filter_pages]
    }

    /// Decodes the last page of a file of `pages`.
    pub(crate) fn decode(page: &[u8], pages: u64) -> Result<Footer, DecodeError> {
        let footer = Footer::fields(page)?;
        let class_pages = u64::from(footer.classes).div_ceil(CLASSES_PER_BLOCK as u64);
        let sound = (1..=MOST_LEVELS).contains(&footer.levels)
            && footer.first_class_page.checked_add(class_pages) == Some(footer.directory_page)
            && footer.directory_page < pages
            && footer.filter_pages < footer.leaf_pages
            && (footer.filter_pages == 0 || footer.directory_page == pages - 1)
            && (1..=footer.first_class_page).contains(&footer.leaf_pages)
            && footer.root < footer.first_class_page
            && (footer.levels == 1) == (footer.root < footer.leaf_pages)
            && (footer.levels > 1 || footer.root == 0)
            && (footer.levels > 1) == (footer.leaf_pages < footer.first_class_page);
        if sound { Ok(footer) } else { Err(DecodeError::Damaged) }
    }

    fn fields(page: &[u8]) -> Result<Footer, DecodeError> {
        let mut at = Decoder::new(page);
        let magic = at.u64().and_then(|_| at.take(MAGIC.len()));
        if page.len() != PAGE_BYTES || magic != Some(MAGIC) || checksum(page).is_none() {
            return Err(DecodeError::Damaged);
        }
        match at.u16() {
            Some(VERSION) => Footer::after_version(at).ok_or(DecodeError::Damaged),
            Some(version) if version > VERSION => Err(DecodeError::Newer(version)),
            _ => Err(DecodeError::Damaged),
        }
    }

    fn after_version(mut at: Decoder<'_>) -> Option<Footer> {
        let mut footer = Footer {
            levels: at.u16()?,
            classes: at.u32()?,
            root: at.u64()?,
            entries: at.u64()?,
            leaf_pages: at.u64()?,
            lowest_id: at.u64()?,
            highest_id: at.u64()?,
            chain: at.u64()?,
            first_class_page: at.u64()?,
            directory_page: at.u64()?,
            filter_pages: at.u64()?,
            bounds: KeyBounds::default(),
        };
        let (first_length, last_length) = (usize::from(at.u16()?), usize::from(at.u16()?));
        footer.bounds = KeyBounds { first: at.take(first_length)?.into(), last: at.take(last_length)?.into() };
        let sound = first_length.max(last_length) <= LONGEST_BOUND_BYTES && at.rest().iter().all(|&byte| byte == 0);
        sound.then_some(footer)
    }
}

/// Encodes a block of at most [`CLASSES_PER_BLOCK`] classes.
pub(crate) fn encode_classes(classes: &[AttributeClass]) -> Vec<u8> {
    let mut block = Vec::with_capacity(PAGE_BYTES);
    block.extend_from_slice(&header(CLASSES_LEVEL, 1, classes.len(), classes.len() * CLASS_BYTES));
    for (mode, uid, gid) in classes {
        block.extend_from_slice(&mode.to_le_bytes());
        block.extend_from_slice(&uid.to_le_bytes());
        block.extend_from_slice(&gid.to_le_bytes());
    }
    block.resize(PAGE_BYTES, 0);
    seal(&mut block);
    block
}

/// Appends `count` classes from the body of a block to `classes`; `None` if there are fewer.
pub(crate) fn decode_classes(body: &[u8], count: usize, classes: &mut Vec<AttributeClass>) -> Option<()> {
    for class in body.get(..count * CLASS_BYTES)?.as_chunks::<CLASS_BYTES>().0 {
        let [m0, m1, u0, u1, u2, u3, g0, g1, g2, g3] = *class;
        classes.push((
            u16::from_le_bytes([m0, m1]),
            u32::from_le_bytes([u0, u1, u2, u3]),
            u32::from_le_bytes([g0, g1, g2, g3]),
        ));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Footer {
        Footer {
            levels: 2,
            classes: 409,
            root: 5,
            entries: 700,
            leaf_pages: 5,
            lowest_id: 1,
            highest_id: 800,
            chain: 0x1234_5678_9abc_def0,
            first_class_page: 6,
            directory_page: 8,
            filter_pages: 1,
            bounds: KeyBounds::new(b"a", b"z"),
        }
    }

    #[test]
    fn a_footer_comes_back() {
        assert_eq!(Footer::decode(&sound().encode(), 9), Ok(sound()));
    }

    #[test]
    fn numbers_that_contradict_the_file_are_damage() {
        assert_eq!(Footer::decode(&sound().encode(), 8), Err(DecodeError::Damaged));
        let wrong = [
            Footer { levels: 0, ..sound() },
            Footer { levels: 65, ..sound() },
            Footer { levels: 1, ..sound() },
            Footer { root: 6, ..sound() },
            Footer { root: 4, ..sound() },
            Footer { leaf_pages: 6, ..sound() },
            Footer { leaf_pages: 0, ..sound() },
            Footer { classes: u32::MAX, ..sound() },
            Footer { first_class_page: u64::MAX, ..sound() },
            Footer { directory_page: 7, ..sound() },
            Footer { directory_page: u64::MAX, ..sound() },
            Footer { filter_pages: 5, ..sound() },
        ];
        for footer in wrong {
            assert_eq!(Footer::decode(&footer.encode(), 9), Err(DecodeError::Damaged), "{footer:?}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_and_a_newer_version_is_named() {
        let page = sound().encode();
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::decode(&flipped, 9), Err(DecodeError::Damaged), "bit {bit}");
        }
        let mut newer = page;
        newer[16] = 3;
        seal(&mut newer);
        assert_eq!(Footer::decode(&newer, 9), Err(DecodeError::Newer(3)));
        newer[16] = 1;
        seal(&mut newer);
        assert_eq!(Footer::decode(&newer, 9), Err(DecodeError::Damaged), "never released");
    }

    #[test]
    fn bounds_leave_out_only_what_cannot_be_there() {
        let long = |last: u8| [&[b'k'; LONGEST_BOUND_BYTES][..], &[last]].concat();
        let bounds = KeyBounds::new(&long(b'c'), &long(b'f'));
        for key in [&long(b'c')[..], &long(b'd'), &long(b'f'), &long(b'f')[..LONGEST_BOUND_BYTES]] {
            assert!(bounds.may_have(key));
        }
        assert!(!bounds.may_have(b"kk"));
        assert!(!bounds.may_have(b"l"));
        let bounds = KeyBounds::new(b"b", b"bd");
        for (key, may_have) in
            [(&b""[..], false), (b"a", false), (b"b", true), (b"bd", true), (b"bda", false), (b"c", false)]
        {
            assert_eq!(bounds.may_have(key), may_have, "{key:?}");
        }
    }
}
