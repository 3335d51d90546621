//! What snapshots keep that the current state no longer has: the superseded versions in the index, by the snapshots
//! that contain them. One scan of these versions, which reads no record.

use crate::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::{first_superseded, until_of};
use crate::format::rows::SnapshotRow;

/// Objects that are kept, in the state of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Their number.
    pub objects: u64,
    /// Sizes of the files among them.
    pub size_bytes: u128,
}

impl Held {
    fn add(&mut self, entry: &Entry) {
        self.objects += 1;
        let is_file = matches!(entry.kind, Kind::File | Kind::Large);
        self.size_bytes += if is_file { u128::from(entry.size_bytes) } else { 0 };
    }
}

/// What a snapshot keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHeld {
    /// The snapshot.
    pub snapshot: SnapshotRow,
    /// What would go with it: objects that it has, and neither the current state nor any other snapshot.
    pub alone: Held,
}

/// What snapshots keep. An object that was renamed counts as one that was replaced; so does one that got other
/// attributes, unless both are in records of their own. Each name of a file with several counts as an object, without a
/// size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBySnapshots {
    /// What would go with all of them.
    pub all: Held,
    /// Each, oldest first.
    pub snapshots: Vec<SnapshotHeld>,
}

impl Store {
    /// What the snapshots of the store keep from being freed.
    ///
    /// ```
    /// use granulo_store::{Attributes, Held, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, &[0; 1000])?;
    /// store.create_snapshot("monday")?;
    /// store.put(&key, &attributes, b"other")?;
    /// assert_eq!(store.held_by_snapshots()?.snapshots[0].alone, Held { objects: 1, size_bytes: 1000 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the store was opened at a snapshot; errors of reading the index.
    pub fn held_by_snapshots(&self) -> Result<HeldBySnapshots> {
        let now = self.engine().fresh()?;
        if now.at().is_some() {
            let cause = "the store was opened at one, without what the others have";
            return Err(Error::new(ErrorKind::Usage, "see what snapshots keep", cause));
        }
        if now.state.snapshots.is_empty() {
            return Ok(HeldBySnapshots::default());
        }
        drop(now);
        let (_pin, view) = self.engine().pinned_as_it_is()?;
        let each = |snapshot: &SnapshotRow| SnapshotHeld { snapshot: snapshot.clone(), alone: Held::default() };
        let snapshots = view.state.snapshots.iter().map(each).collect();
        let mut held = HeldBySnapshots { all: Held::default(), snapshots };
        let index = view.snapshot();
        let mut scan = index.scan_versions_from(&first_superseded())?;
        while let Some((key, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Attributes {
                continue;
            }
            let keepers = view.state.keepers(entry.id, until_of(key));
            if !keepers.is_empty() {
                held.all.add(entry);
            }
            // The keepers are a range of the snapshots: of one alone if it has one.
            if let Some([only]) = held.snapshots.get_mut(keepers) {
                only.alone.add(entry);
            }
        }
        Ok(held)
    }
}
