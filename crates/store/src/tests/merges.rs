//! When tables of the index are merged.

use super::*;

/// More than the tables of a small store bear.
const DIRECTORIES: usize = 1100;

/// Stores many directories below `top`, then removes them.
fn remove_many(store: &Store, top: &str) {
    let mut batch = store.batch(Durability::Batch);
    for at in 0..DIRECTORIES {
        batch.directory(&key(&format!("{top}/{at}")), &Attributes::of_directory(Time::default())).unwrap();
    }
    batch.commit().unwrap();
    assert!(store.remove_tree(&key(top)).unwrap());
}

fn ranges(store: &Store) -> usize {
    store.engine().view().state.ranges.len()
}

fn put_few(store: &Store) -> u64 {
    let before = store.engine().view().state.next_table;
    (0..10).for_each(|at| store.put(&key(&format!("few/{at}")), &file(), b"content").unwrap());
    store.engine().view().state.next_table - before
}

#[test]
fn a_removed_tree_of_many_directories_costs_one_merge() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
    // Tables with older entries: in none of these directories, and in all of them.
    (0..100).for_each(|at| store.put(&key(&format!("old/{at}")), &file(), b"content").unwrap());
    remove_many(&store, "new");
    assert_eq!((ranges(&store), put_few(&store)), (0, 0));
    assert_eq!(store.engine().view().state.tables.len(), 1);
    assert_eq!(store.walk(&Key::root()).unwrap().count(), 1 + 100 + 1 + 10);
}
