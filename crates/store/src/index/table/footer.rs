//! The last page of a sorted table, which says where everything is, and the classes before it (docs/FORMAT.md, section 9).
//!
//! A footer is believed only if its checksum holds and every number in it agrees with the size of the file: what is allocated
//! for it is bounded by that.

use super::block::{PAGE_BYTES, checksum, seal};
use super::leaf::Class;

const MAGIC: &[u8; 8] = b"grantab\0";
/// The version that is written; older ones are read.
pub(crate) const VERSION: u16 = 1;
/// Level of blocks of classes.
pub(crate) const CLASSES_LEVEL: u8 = 255;
/// The most levels: with two entries to a block, more than any file can have.
const MOST_LEVELS: u16 = 64;
/// Bytes of a class.
const CLASS_BYTES: usize = 10;
/// Classes in a block.
pub(crate) const CLASSES_PER_BLOCK: usize = (PAGE_BYTES - super::block::HEADER_BYTES) / CLASS_BYTES;

/// What the last page of a table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Levels of blocks, leaves included.
    pub(crate) levels: u16,
    /// Number of classes.
    pub(crate) classes: u32,
    /// Page of the root.
    pub(crate) root: u64,
    /// Entries in leaves.
    pub(crate) entries: u64,
    /// Pages of leaves: the first page above them.
    pub(crate) leaf_pages: u64,
    /// Lowest id; `u64::MAX` of an empty table.
    pub(crate) lowest_id: u64,
    /// Highest id; 0 of an empty table.
    pub(crate) highest_id: u64,
    /// XXH3 of the checksums of all blocks, in order.
    pub(crate) chain: u64,
    /// Page of the first block of classes.
    pub(crate) first_class_page: u64,
}

/// Why a page is no footer of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is damaged, or none.
    Damaged,
    /// A newer granulo wrote it: the version.
    Newer(u16),
}

impl Footer {
    /// The page.
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
        page.resize(PAGE_BYTES, 0);
        seal(&mut page);
        page
    }

    fn numbers(&self) -> [u64; 7] {
        let Footer { root, entries, leaf_pages, lowest_id, highest_id, chain, first_class_page, .. } = *self;
        [root, entries, leaf_pages, lowest_id, highest_id, chain, first_class_page]
    }

    /// Reads the page that is the last of a file of `pages`.
    pub(crate) fn decode(page: &[u8], pages: u64) -> Result<Footer, Refusal> {
        let footer = Footer::fields(page)?;
        let class_pages = u64::from(footer.classes).div_ceil(CLASSES_PER_BLOCK as u64);
        let sound = (1..=MOST_LEVELS).contains(&footer.levels)
            && footer.first_class_page.checked_add(class_pages) == Some(pages - 1)
            && (1..=footer.first_class_page).contains(&footer.leaf_pages)
            && footer.root < footer.first_class_page
            && (footer.levels == 1) == (footer.root < footer.leaf_pages)
            && (footer.levels > 1 || footer.root == 0)
            && (footer.levels > 1) == (footer.leaf_pages < footer.first_class_page);
        if sound { Ok(footer) } else { Err(Refusal::Damaged) }
    }

    fn fields(page: &[u8]) -> Result<Footer, Refusal> {
        if page.len() != PAGE_BYTES || page[8..16] != MAGIC[..] || checksum(page).is_none() {
            return Err(Refusal::Damaged);
        }
        let small = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let version = small(16);
        if version > VERSION {
            return Err(Refusal::Newer(version));
        }
        let (numbers, rest) = page[24..].split_at(7 * 8);
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next().ok_or(Refusal::Damaged);
        let footer = Footer {
            levels: small(18),
            classes: u32::from_le_bytes([page[20], page[21], page[22], page[23]]),
            root: next()?,
            entries: next()?,
            leaf_pages: next()?,
            lowest_id: next()?,
            highest_id: next()?,
            chain: next()?,
            first_class_page: next()?,
        };
        let sound = version != 0 && rest.iter().all(|&byte| byte == 0);
        if sound { Ok(footer) } else { Err(Refusal::Damaged) }
    }
}

/// The block of some classes, at most [`CLASSES_PER_BLOCK`].
pub(crate) fn encode_classes(classes: &[Class]) -> Vec<u8> {
    let mut block = vec![0; super::block::HEADER_BYTES];
    for (mode, uid, gid) in classes {
        block.extend_from_slice(&mode.to_le_bytes());
        block.extend_from_slice(&uid.to_le_bytes());
        block.extend_from_slice(&gid.to_le_bytes());
    }
    let length = (block.len() - super::block::HEADER_BYTES) as u32;
    block.resize(PAGE_BYTES, 0);
    block[8] = CLASSES_LEVEL;
    block[10..12].copy_from_slice(&(classes.len() as u16).to_le_bytes());
    block[12..16].copy_from_slice(&length.to_le_bytes());
    seal(&mut block);
    block
}

/// Appends the classes in the body of a block, `count` of them, to `classes`; `None` if they are not there.
pub(crate) fn decode_classes(body: &[u8], count: usize, classes: &mut Vec<Class>) -> Option<()> {
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

    const SOUND: Footer = Footer {
        levels: 2,
        classes: 409,
        root: 5,
        entries: 700,
        leaf_pages: 5,
        lowest_id: 1,
        highest_id: 800,
        chain: 0x1234_5678_9abc_def0,
        first_class_page: 6,
    };

    #[test]
    fn a_footer_comes_back() {
        assert_eq!(Footer::decode(&SOUND.encode(), 9), Ok(SOUND));
    }

    #[test]
    fn numbers_that_contradict_the_file_are_damage() {
        assert_eq!(Footer::decode(&SOUND.encode(), 8), Err(Refusal::Damaged));
        let wrong = [
            Footer { levels: 0, ..SOUND },
            Footer { levels: 65, ..SOUND },
            Footer { levels: 1, ..SOUND },
            Footer { root: 6, ..SOUND },
            Footer { root: 4, ..SOUND },
            Footer { leaf_pages: 6, ..SOUND },
            Footer { leaf_pages: 0, ..SOUND },
            Footer { classes: u32::MAX, ..SOUND },
            Footer { first_class_page: u64::MAX, ..SOUND },
        ];
        for footer in wrong {
            assert_eq!(Footer::decode(&footer.encode(), 9), Err(Refusal::Damaged), "{footer:?}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_and_a_newer_version_is_named() {
        let page = SOUND.encode();
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::decode(&flipped, 9), Err(Refusal::Damaged), "bit {bit}");
        }
        let mut newer = page;
        newer[16] = 2;
        seal(&mut newer);
        assert_eq!(Footer::decode(&newer, 9), Err(Refusal::Newer(2)));
    }
}
