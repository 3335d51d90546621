//! Removed trees: which of them hides a key (docs/FORMAT.md, section 11).
//!
//! The tombstone of a tree lists the directories in it. Each has a row here, which hides all entries of that directory
//! with a lower id. Rows are sorted by directory, one per directory: the catalog ensures that. Nothing else is hidden
//! this way: the tree's own name is removed like any other, and an object with several names is removed with its last
//! name.

use crate::format::index_key::directory_of;
use crate::index::catalog::RangeRow;

/// The removed directory that hides an entry of `key` with `id`, if any.
#[inline]
pub(crate) fn hiding(ranges: &[RangeRow], key: &[u8], id: u64) -> Option<RangeRow> {
    if ranges.is_empty() {
        return None;
    }
    let directory = directory_of(key)?;
    let at = ranges.binary_search_by_key(&directory, |row| row.directory).ok()?;
    ranges.get(at).copied().filter(|row| row.id > id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::ObjectNumber;
    use crate::format::index_key::{ROOT, ROOT_KEY, entry_key, object_key};

    #[test]
    fn a_removed_directory_hides_what_is_in_it_if_that_is_older() {
        let ranges = [RangeRow { directory: ObjectNumber(5), id: 10 }, RangeRow { directory: ObjectNumber(7), id: 20 }];
        let by =
            |directory: u64, id| hiding(&ranges, &entry_key(ObjectNumber(directory), b"name"), id).map(|row| row.id);
        assert_eq!((by(5, 9), by(5, 10)), (Some(10), None));
        assert_eq!((by(7, 15), by(6, 5), by(8, 5)), (Some(20), None, None));
        assert_eq!(hiding(&ranges, &object_key(ObjectNumber(5)), 5), None);
    }

    #[test]
    fn the_root_hides_what_is_in_it_but_not_itself() {
        let ranges = [RangeRow { directory: ROOT, id: 10 }];
        assert!(hiding(&ranges, &entry_key(ROOT, b"a"), 9).is_some());
        assert_eq!(hiding(&ranges, ROOT_KEY, 9), None);
        assert_eq!(hiding(&ranges, &object_key(ROOT), 9), None);
    }
}
