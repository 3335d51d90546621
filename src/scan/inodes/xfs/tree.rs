//! Nodes of B-trees: a header, then records, or all keys and then all children.

/// Size of the part of a header that all nodes have: the kind of tree, the level of the node and its number of entries.
const FIRST_BYTES: usize = 8;

/// The header of a node and its entries; `None` if it is no node of the kind.
pub(super) fn node<'a>(
    block: &'a [u8],
    magic: &[u8],
    header_bytes: usize,
) -> Option<(&'a [u8; FIRST_BYTES], &'a [u8])> {
    let header = block.first_chunk().filter(|header| header.starts_with(magic))?;
    Some((header, block.get(header_bytes..)?))
}

/// The first `count` keys of a node above the leaves, each with its child, all of `N` bytes.
pub(super) fn children<const N: usize>(entries: &[u8], count: usize) -> impl Iterator<Item = ([u8; N], [u8; N])> {
    let (numbers, most) = (entries.as_chunks().0, entries.len() / (2 * N));
    numbers.iter().copied().zip(numbers.iter().copied().skip(most)).take(count.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_all_keys() {
        let entries = [1, 0, 2, 0, 3, 0, 11, 0, 12, 0, 13, 0, 0];
        let pairs = |count| children(&entries, count).map(|([key, _], [child, _])| (key, child)).collect::<Vec<_>>();
        assert_eq!(pairs(2), [(1, 11), (2, 12)]);
        assert_eq!(pairs(9), [(1, 11), (2, 12), (3, 13)]);
        assert_eq!(children::<8>(&entries, 9).count(), 0);
    }

    #[test]
    fn nodes_of_other_kinds_and_short_ones_are_none() {
        let block = *b"KIND\0\x01\0\x02 and the rest";
        assert_eq!(node(&block, b"KIND", 12), Some((b"KIND\0\x01\0\x02", &b" the rest"[..])));
        assert_eq!(node(&block, b"KINE", 12), None);
        assert_eq!(node(&block, b"KIND", 50), None);
        assert_eq!(node(&block[..7], b"KIND", 7), None);
    }
}
