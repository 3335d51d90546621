//! The sets of objects: their keys, sizes and contents, and the expected sums of reading all or some of them.
//!
//! - A: 20,000 bytes each. B: sizes of `vu-2005`, granulo's own table of Tanenbaum, Herder and Bos (2006): the ranks (i
//!   + 1/2) / N of the distribution, laid evenly between the ends of a cell, cut at [`LARGEST_BYTES`], and shuffled. C:
//!   100 bytes each.
//! - Keys are two directories and a name, `07/34/05`: 100 objects per directory, 50 directories in each top-level
//!   directory. Leading zeros make numeric order equal byte order, which is the best order for every engine.
//! - Contents are a window into a ring of [`RING_BYTES`] random bytes at a position that depends on the number, with
//!   the number mixed into the first eight: incompressible within any window smaller than the ring, generated at the
//!   speed of memcpy, never repeated.
//! - A reader is checked by a sum that does not depend on the order of the objects: all words of eight bytes, the first
//!   word of each page of 4 KiB together with its position, and the length. So every delivered byte is read once, the
//!   minimum that any consumer does: an engine that returns pointers must load what they point at.

/// Size of the objects of set A.
const EQUAL_BYTES: u64 = 20_000;
/// Size of the objects of set C.
const SMALL_BYTES: u64 = 100;
/// Upper bound of the sizes of set B: with 50,000 objects the sum is 4.1 GB, and the memory that an engine needs for
/// one object is bounded.
const LARGEST_BYTES: u64 = 32 << 20;
const RING_BYTES: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;
const IN_DIRECTORY: u64 = 100;
const DIRECTORIES: u64 = 50;

/// SplitMix64 (Steele, Lea and Flood): one step, and the mixing of a number.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of draws below a bound; the bias of the multiplication is below 2^-40 here.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A set of objects, numbered in the order of their keys.
pub struct Objects {
    sizes: Vec<u32>,
    ring: Vec<u8>,
    width: usize,
}

impl Objects {
    /// `set` is `A`, `B` or `C`.
    pub fn new(set: &str, count: u64) -> Result<Self, String> {
        let sizes = match set {
            "A" => vec![EQUAL_BYTES as u32; count as usize],
            "B" => published_sizes(count)?,
            "C" => vec![SMALL_BYTES as u32; count as usize],
            _ => return Err(format!("there are sets A, B and C, no set {set}")),
        };
        let mut ring: Vec<u8> =
            (0..RING_BYTES as u64 / 8).flat_map(|i| mix(i ^ 0xA5A5_0000_0000).to_le_bytes()).collect();
        ring.extend_from_within(..8);
        let top = count.div_ceil(IN_DIRECTORY * DIRECTORIES).saturating_sub(1);
        Ok(Self { sizes, ring, width: top.to_string().len().max(2) })
    }

    pub fn count(&self) -> u64 {
        self.sizes.len() as u64
    }

    pub fn size(&self, number: u64) -> usize {
        self.sizes[number as usize] as usize
    }

    pub fn total_bytes(&self) -> u64 {
        self.sizes.iter().map(|&size| u64::from(size)).sum()
    }

    pub fn largest_bytes(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0) as usize
    }

    pub fn key_bytes(&self) -> u64 {
        self.count() * (self.width as u64 + 6)
    }

    pub fn key(&self, number: u64) -> String {
        let directory = number / IN_DIRECTORY;
        let (top, middle, name) = (directory / DIRECTORIES, directory % DIRECTORIES, number % IN_DIRECTORY);
        format!("{top:0width$}/{middle:02}/{name:02}", width = self.width)
    }

    pub fn keys(&self) -> Vec<String> {
        (0..self.count()).map(|number| self.key(number)).collect()
    }

    /// A multiple of eight, so that words of a content are words of the ring.
    fn place(number: u64) -> usize {
        mix(number) as usize % RING_BYTES / 8 * 8
    }

    /// The content of an object.
    pub fn content(&self, number: u64, content: &mut Vec<u8>) {
        content.clear();
        let (size, mut at) = (self.size(number), Self::place(number));
        while content.len() < size {
            let piece = (RING_BYTES - at).min(size - content.len());
            content.extend_from_slice(&self.ring[at..at + piece]);
            at = 0;
        }
        for (byte, stamp) in content.iter_mut().zip(number.to_le_bytes()) {
            *byte ^= stamp;
        }
    }

    fn ring_word(&self, at: usize) -> u64 {
        first_word(&self.ring[at % RING_BYTES..])
    }

    /// The result of [`Sum::add`] for the content of an object, without generating the content; `before` has the sums
    /// of the ring's words.
    fn expected(&self, number: u64, before: &[u64]) -> Sum {
        let (size, place) = (self.size(number), Self::place(number));
        let mut sum = Sum { objects: 1, bytes: size as u64, digest: mix(size as u64) };
        let word = |start: usize| {
            let stamp = if start == 0 { number } else { 0 };
            let length = (size - start).min(8);
            (self.ring_word(place + start) ^ stamp) & (u64::MAX >> (64 - 8 * length))
        };
        for start in (0..size).step_by(PAGE_BYTES) {
            sum.digest = sum.digest.wrapping_add(page_digest(start, word(start)));
        }
        // The first and the last word differ from the ring; those between do not, however often it wraps around.
        let words = size.div_ceil(8);
        if words > 0 {
            sum.digest = sum.digest.wrapping_add(word(0));
        }
        if words > 1 {
            sum.digest = sum.digest.wrapping_add(word(8 * (words - 1)));
            let (ring, first, end) = (RING_BYTES / 8, place / 8 + 1, place / 8 + words - 1);
            let until = |at: usize| before[ring].wrapping_mul((at / ring) as u64).wrapping_add(before[at % ring]);
            sum.digest = sum.digest.wrapping_add(until(end).wrapping_sub(until(first)));
        }
        sum
    }

    /// The expected sum of reading these.
    pub fn expected_of(&self, numbers: impl Iterator<Item = u64>) -> Sum {
        let mut before = vec![0u64; 1];
        for at in (0..RING_BYTES).step_by(8) {
            before.push(before[at / 8].wrapping_add(self.ring_word(at)));
        }
        numbers.fold(Sum::default(), |sum, number| sum.plus(self.expected(number, &before)))
    }

    /// Numbers drawn at random: `distinct` ones, or with repetition.
    pub fn draw(&self, count: u64, seed: u64, distinct: bool) -> Vec<u64> {
        let mut draws = Draws::new(seed);
        if distinct {
            let mut all: Vec<u64> = (0..self.count()).collect();
            draws.shuffle(&mut all);
            all.truncate(count as usize);
            all
        } else {
            (0..count).map(|_| draws.below(self.count())).collect()
        }
    }
}

fn page_digest(start: usize, word: u64) -> u64 {
    mix(word ^ mix(start as u64))
}

/// The first eight bytes as a number, with zeros for missing bytes.
fn first_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    match bytes.first_chunk::<8>() {
        Some(whole) => word = *whole,
        None => word[..bytes.len()].copy_from_slice(bytes),
    }
    u64::from_le_bytes(word)
}

/// The sum of what was read, in any order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sum {
    pub objects: u64,
    pub bytes: u64,
    pub digest: u64,
}

impl Sum {
    pub fn plus(self, other: Sum) -> Sum {
        Sum {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
            digest: self.digest.wrapping_add(other.digest),
        }
    }

    /// Adds a whole object.
    pub fn add(&mut self, content: &[u8]) {
        self.add_piece(content.len(), 0, content);
    }

    /// Adds the bytes of an object of `size` from `start` on; the length of every piece except the last is a multiple
    /// of 4,096 bytes.
    pub fn add_piece(&mut self, size: usize, start: usize, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        for (page, bytes) in piece.chunks(PAGE_BYTES).enumerate() {
            let (words, rest) = bytes.as_chunks::<8>();
            let all = words.iter().fold(first_word(rest), |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
            let page = page_digest(start + page * PAGE_BYTES, first_word(bytes));
            self.digest = self.digest.wrapping_add(all).wrapping_add(page);
        }
        if start + piece.len() == size {
            self.objects += 1;
            self.digest = self.digest.wrapping_add(mix(size as u64));
        }
    }
}

/// `count` sizes of `vu-2005`, one for each rank, shuffled.
fn published_sizes(count: u64) -> Result<Vec<u32>, String> {
    let published = granulo_core::distribution::published::find("vu-2005").ok_or("granulo knows no vu-2005")?;
    let distribution = published.distribution();
    let whole = distribution.count();
    let rank = |i: u64| (2 * u128::from(i) + 1) * whole / (2 * u128::from(count));
    let mut sizes = Vec::with_capacity(count as usize);
    let mut below = 0;
    for cell in distribution.cells() {
        let ranks = below..below + cell.count;
        while sizes.len() < count as usize && ranks.contains(&rank(sizes.len() as u64)) {
            let along = (rank(sizes.len() as u64) - below) as f64 / cell.count as f64;
            let size = cell.low + ((cell.high - cell.low) as f64 * along) as u64;
            sizes.push(size.min(LARGEST_BYTES) as u32);
        }
        below = ranks.end;
    }
    Draws::new(2005).shuffle(&mut sizes);
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_the_contents_give() {
        for (set, count) in [("A", 300), ("B", 3000), ("C", 3000)] {
            let objects = Objects::new(set, count).unwrap();
            assert_eq!(objects.count(), count);
            let (mut whole, mut pieces, mut content) = (Sum::default(), Sum::default(), Vec::new());
            for number in 0..count {
                objects.content(number, &mut content);
                assert_eq!(content.len(), objects.size(number));
                whole.add(&content);
                if content.is_empty() {
                    pieces.add(&content);
                }
                for start in (0..content.len()).step_by(8192) {
                    pieces.add_piece(content.len(), start, &content[start..content.len().min(start + 8192)]);
                }
            }
            assert_eq!(whole, objects.expected_of(0..count));
            assert_eq!(whole, pieces);
            assert_eq!(whole.bytes, objects.total_bytes());
        }
    }

    #[test]
    fn a_wrong_object_changes_the_sum() {
        let objects = Objects::new("A", 10).unwrap();
        let mut content = Vec::new();
        objects.content(3, &mut content);
        let mut right = Sum::default();
        right.add(&content);
        assert_eq!(right, objects.expected_of(std::iter::once(3)));
        assert_ne!(right, objects.expected_of(std::iter::once(4)));
        *content.last_mut().unwrap() ^= 1;
        let mut wrong = Sum::default();
        wrong.add(&content);
        assert_ne!(right, wrong);
    }

    #[test]
    fn keys_rise_and_sizes_are_those_of_the_anchors() {
        let objects = Objects::new("B", 50_000).unwrap();
        let keys = objects.keys();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(keys[36_705], "07/17/05");
        assert_eq!(objects.key_bytes(), keys.iter().map(|key| key.len() as u64).sum::<u64>());
        let gigabytes = objects.total_bytes() as f64 / 1e9;
        assert!((4.0..4.2).contains(&gigabytes), "{gigabytes}");
    }
}
