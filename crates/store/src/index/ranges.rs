//! Removed trees: which of them hides a key (docs/FORMAT.md, section 10).
//!
//! A removed tree hides its key and all below it from entries with a lower id. The root's hides every path below it, but not the root, which
//! is always there, and no shared object: these go with their last name. Rows are sorted by key, and a key has one: the catalog holds that.

use crate::index::catalog::RangeRow;

/// The removed tree that hides an entry of `key` with `id`, if one does.
#[inline]
pub(crate) fn hiding<'a>(ranges: &'a [RangeRow], key: &[u8], id: u64) -> Option<&'a RangeRow> {
    if ranges.is_empty() || key.first().is_none_or(|&first| first == 0) {
        return None;
    }
    let hides = |directory: &[u8]| {
        let index = ranges.binary_search_by(|row| row.key.as_slice().cmp(directory)).ok()?;
        ranges.get(index).filter(|row| row.id > id)
    };
    // The directories above, the root first, then the key itself.
    let mut above = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
    hides(&[]).or_else(|| above.find_map(|(end, _)| hides(&key[..end]))).or_else(|| hides(key))
}

/// The first key behind the tree of `directory`; `None` if there is none. The root's tree has no end, and shared objects lie in it.
pub(crate) fn end_of_tree(directory: &[u8]) -> Option<Vec<u8>> {
    if directory.is_empty() {
        return None;
    }
    // What is below has a zero byte there.
    Some([directory, &[1]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&[u8], u64)]) -> Vec<RangeRow> {
        rows.iter().map(|&(key, id)| RangeRow { key: key.to_vec(), id }).collect()
    }

    #[test]
    fn a_tree_hides_itself_and_what_is_below_if_that_is_older() {
        let ranges = rows(&[(b"a", 10), (b"a\0b", 20)]);
        let by = |key: &[u8], id| hiding(&ranges, key, id).map(|row| row.id);
        assert_eq!(by(b"a", 9), Some(10));
        assert_eq!(by(b"a", 10), None);
        assert_eq!(by(b"a\0x", 5), Some(10));
        assert_eq!(by(b"a\0b", 15), Some(20));
        assert_eq!(by(b"a\0b\0c\0d", 15), Some(20));
        assert_eq!(by(b"a\0bc", 15), None);
        assert_eq!(by(b"a-b", 5), None);
        assert_eq!(by(b"ab", 5), None);
        assert_eq!(by(b"", 5), None);
    }

    #[test]
    fn the_root_hides_every_path_but_itself_and_no_shared_object() {
        let ranges = rows(&[(b"", 10)]);
        assert!(hiding(&ranges, b"", 9).is_none());
        for key in [&b"a"[..], b"a\0b", b"\x01"] {
            assert!(hiding(&ranges, key, 9).is_some(), "{key:?}");
            assert!(hiding(&ranges, key, 10).is_none(), "{key:?}");
        }
        assert!(hiding(&ranges, b"\0\0\0\0\0\0\0\0\x05", 5).is_none());
    }

    #[test]
    fn a_tree_ends_before_its_neighbours() {
        let end = end_of_tree(b"a").unwrap();
        for below in [&b"a"[..], b"a\0", b"a\0\xff\xff"] {
            assert!(below < end.as_slice());
        }
        for behind in [&b"a\x01"[..], b"a-", b"b"] {
            assert!(behind >= end.as_slice());
        }
        assert_eq!(end_of_tree(b""), None);
    }
}
