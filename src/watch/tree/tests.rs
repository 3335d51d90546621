//! Names and inodes that come, move and go, and numbers that are used again.

use super::*;

fn stat(number: u64, kind: Kind) -> Stat {
    let time = Timestamp { seconds: 7, nanoseconds: 0 };
    Stat {
        kind,
        size_bytes: number,
        allocated_bytes: 4096,
        link_count: 1,
        uid: 0,
        gid: 0,
        mode: 0,
        device: 1,
        inode: number,
        mtime: time,
        ctime: time,
        atime: time,
    }
}

fn directory(number: u64) -> Entry {
    Entry::Inode(stat(number, Kind::Directory))
}

fn file(number: u64) -> Entry {
    Entry::Inode(stat(number, Kind::File))
}

fn tree() -> Tree {
    Tree::new(&stat(2, Kind::Directory))
}

fn path(tree: &Tree, number: u64) -> Option<String> {
    let inode = tree.inode(number)?;
    if inode == tree.root() { Some(String::new()) } else { written(tree, number, 100) }
}

/// The path that is written for an inode, without its end.
fn written(tree: &Tree, number: u64, most_bytes: usize) -> Option<String> {
    let mut path = b"before".to_vec();
    let (directory, name) = tree.place(tree.inode(number)?)?;
    let path = tree.write_path(directory, name, most_bytes, &mut path)?;
    assert_eq!(path.to_bytes(), tree.path(tree.inode(number)?));
    Some(path.to_str().unwrap().to_owned())
}

#[test]
fn a_path_is_written_if_it_is_short_enough_and_leads_to_the_root() {
    let mut tree = tree();
    tree.put(tree.root(), b"a", &directory(10));
    tree.put(tree.inode(10).unwrap(), b"bcd", &directory(11));
    tree.put(tree.inode(11).unwrap(), b"f", &file(12));
    for (number, expected) in [(10, "a"), (11, "a/bcd"), (12, "a/bcd/f")] {
        assert_eq!(written(&tree, number, expected.len()).as_deref(), Some(expected));
        assert_eq!(path(&tree, number).as_deref(), Some(expected));
        assert_eq!(written(&tree, number, expected.len() - 1), None);
    }
    // Below itself.
    tree.put(tree.inode(11).unwrap(), b"a", &directory(10));
    assert_eq!(written(&tree, 12, 100), None);
}

#[test]
fn a_directory_is_known_by_its_handle_until_it_is_gone() {
    let mut tree = tree();
    tree.put(tree.root(), b"a", &directory(10));
    assert_eq!(tree.directory(10, b"first"), None);
    let slot = tree.inode(10).unwrap();
    tree.set_handle(slot, b"first");
    assert_eq!((tree.directory(10, b"first"), tree.directory(10, b"other")), (Some(slot), None));
    // It moves.
    tree.put(tree.root(), b"b", &directory(10));
    assert_eq!(tree.directory(10, b"first"), Some(slot));
    // Its number is used for a file, and then for a directory again.
    tree.put(tree.root(), b"f", &file(10));
    tree.put(tree.root(), b"c", &directory(10));
    assert_eq!(tree.directory(10, b"first"), None);
    let slot = tree.inode(10).unwrap();
    tree.set_handle(slot, b"second");
    let gone = tree.child(tree.root(), b"c").unwrap();
    tree.detach(gone);
    tree.settle();
    tree.put(tree.root(), b"d", &directory(10));
    assert_eq!(tree.directory(10, b"second"), None);
}

#[test]
fn a_directory_takes_everything_below_along() {
    let mut tree = tree();
    assert!(tree.put(tree.root(), b"a", &directory(10)));
    assert!(tree.put(tree.inode(10).unwrap(), b"b", &directory(11)));
    assert!(!tree.put(tree.inode(11).unwrap(), b"f", &file(12)));
    assert_eq!(path(&tree, 12).unwrap(), "a/b/f");
    // Known at its place, then at another.
    assert!(!tree.put(tree.root(), b"a", &directory(10)));
    assert!(tree.put(tree.root(), b"c", &directory(11)));
    assert_eq!(path(&tree, 12).unwrap(), "c/f");
    assert_eq!(tree.child(tree.inode(10).unwrap(), b"b"), None);
    let gone = tree.child(tree.root(), b"c").unwrap();
    tree.detach(gone);
    assert_eq!(path(&tree, 12), None);
    tree.settle();
    assert_eq!((tree.inode(11), tree.inode(12), tree.counts()), (None, None, (2, 1)));
}

#[test]
fn what_was_removed_under_one_name_stays_under_another() {
    let mut tree = tree();
    tree.put(tree.root(), b"a", &directory(10));
    tree.put(tree.root(), b"x", &file(12));
    tree.put(tree.inode(10).unwrap(), b"y", &file(12));
    let x = tree.child(tree.root(), b"x").unwrap();
    tree.detach(x);
    // A rename, seen in the wrong order.
    let a = tree.child(tree.root(), b"a").unwrap();
    tree.detach(a);
    assert!(tree.put(tree.root(), b"b", &directory(10)));
    tree.settle();
    assert_eq!(path(&tree, 12).unwrap(), "b/y");
}

#[test]
fn a_number_that_is_used_again_keeps_nothing() {
    let mut tree = tree();
    tree.put(tree.root(), b"a", &directory(10));
    tree.put(tree.inode(10).unwrap(), b"f", &file(12));
    tree.put(tree.root(), b"n", &file(10));
    assert_eq!(tree.child(tree.root(), b"a"), None);
    assert_eq!(tree.update(&stat(10, Kind::Directory)), None);
    let absolute = Kind::Symlink { absolute: true };
    tree.put(tree.root(), b"s", &Entry::Inode(stat(13, Kind::Symlink { absolute: false })));
    tree.put(tree.root(), b"t", &Entry::Inode(stat(13, absolute)));
    assert_eq!(tree.kind(tree.inode(13).unwrap()), absolute);
    tree.settle();
    assert_eq!((tree.inode(12), path(&tree, 10).unwrap()), (None, "n".to_owned()));
}

#[test]
fn a_ring_of_directories_has_no_path_and_comes_apart() {
    let mut tree = tree();
    tree.put(tree.root(), b"a", &directory(10));
    tree.put(tree.inode(10).unwrap(), b"b", &directory(11));
    // Upside down, and only the second rename was looked at.
    tree.put(tree.inode(11).unwrap(), b"a", &directory(10));
    tree.settle();
    assert_eq!((path(&tree, 10), path(&tree, 11)), (None, None));
    tree.put(tree.root(), b"b", &directory(11));
    assert_eq!(path(&tree, 10).unwrap(), "b/a");
}

#[test]
fn odd_names_come_and_go() {
    let mut tree = tree();
    tree.put(tree.root(), b"m", &directory(10));
    let unreadable = Odd::Unreadable(("read the inode of", 5));
    for odd in [Odd::MountPoint, unreadable] {
        assert!(!tree.put(tree.root(), b"m", &Entry::Odd(odd)));
        let name = tree.child(tree.root(), b"m").unwrap();
        assert_eq!(tree.target(name), Err(odd));
    }
    tree.settle();
    assert_eq!(tree.counts(), (1, 1));
    assert!(tree.put(tree.root(), b"m", &directory(10)));
    tree.keep_children(tree.root(), &HashSet::new());
    tree.settle();
    assert_eq!(tree.counts(), (1, 0));
}
