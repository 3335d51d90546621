//! Names by dense numbers, in two allocations however many there are; and an index from names to numbers.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

/// Names, by numbers that count from 0. Two numbers may have the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    /// Adds a name; returns its number, `None` if there are already 2^32.
    pub fn push(&mut self, name: &[u8]) -> Option<u32> {
        let number = u32::try_from(self.ends.len()).ok()?;
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
        Some(number)
    }

    /// The name with a number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        let at = number as usize;
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.bytes[start..end])
    }

    /// Total length of the names from `number` on.
    pub fn bytes_from(&self, number: usize) -> usize {
        self.bytes.len() - number.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All names, by number.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|number| self.get(number as u32).unwrap_or_default())
    }
}

/// The current number of each name: a name can move from one number to another.
#[derive(Debug, Clone, Default)]
pub struct Index {
    numbers: HashTable<(u64, u32)>,
}

impl Index {
    /// The number of a name.
    pub fn get(&self, names: &Names, name: &[u8]) -> Option<u32> {
        let hash = XxHash3_64::oneshot(name);
        self.numbers.find(hash, |&(other, number)| other == hash && names.get(number) == Some(name)).map(|&(_, n)| n)
    }

    /// The number of a name; a new name gets the next one.
    pub fn number(&mut self, names: &mut Names, name: &[u8]) -> Option<u32> {
        if let Some(number) = self.get(names, name) {
            return Some(number);
        }
        let number = names.push(name)?;
        let hash = XxHash3_64::oneshot(name);
        self.numbers.insert_unique(hash, (hash, number), |&(hash, _)| hash);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_a_number_its_name() {
        let (mut names, mut index) = (Names::default(), Index::default());
        let given: Vec<u32> =
            [&b"a"[..], b"", b"bc", b"a", b""].iter().filter_map(|name| index.number(&mut names, name)).collect();
        assert_eq!(given, [0, 1, 2, 0, 1]);
        assert_eq!(names.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc"]);
        assert_eq!((names.get(2), names.get(3)), (Some(&b"bc"[..]), None));
        assert_eq!(index.get(&names, b"x"), None);
    }
}
