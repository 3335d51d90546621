//! Historical versions: every record of a name that the segments still have, whether or not the index refers to it.
//!
//! The whole log is read, segment by segment, each record from the first valid copy; only what matches is kept. A
//! record counts if it is part of the log: what lies behind the end of a segment's account is in quarantine, a record
//! that its commit does not list was never acknowledged, and a segment that is to be freed may be gone at any moment.
//! Damage does not end the search: it is returned beside the versions.
//!
//! A record has the number of its directory and its name there. So the versions of a key are those of its name in the
//! directory that now has the path: what was renamed in from elsewhere has its older versions there. A file with
//! several names has its content under its number: it is searched for once the names are known, and its versions
//! belong to a key from when the key led to it until it no longer did.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use super::content::{Content, Origin};
use super::read::{Buffer, Object, object};
use crate::Store;
use crate::engine::pace::{Pace, outcome};
use crate::engine::pins::Pin;
use crate::engine::recovered::Damage;
use crate::engine::replay::entry_in;
use crate::engine::{Engine, View};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Time};
use crate::format::ids::{DeviceNumber, LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::{ROOT_KEY, entry_key, object_key};
use crate::format::key::{Key, split};
use crate::format::record::{Head, Record, decode_directories};
use crate::format::rows::{SegmentRow, Superseded};
use crate::log::open_batch::OpenBatch;
use crate::log::scan::{Committed, ScanStep, SegmentScan};
use crate::progress::Progress;

/// The versions of a key; see [`Store::versions`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "what is listed can be read only as long as this exists"]
pub struct Versions {
    /// The key.
    pub key: Key,
    /// Number of its directory; none for the root.
    pub directory: ObjectNumber,
    /// The versions, newest first.
    pub versions: Vec<Version>,
    /// Bytes of the log that cannot be read: they may have had further versions.
    pub damage: Vec<Damage>,
    /// Whether the whole log was read: `false` if the work was asked to stop.
    pub is_complete: bool,
    store: Store,
    pin: Pin,
}

/// A record of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// Its id, kind, size, times and location. [`Kind::Link`]: the key became one of several names of a file;
    /// [`Kind::Removal`]: it was removed.
    pub entry: Entry,
    /// When it was written: the change time, or, for removals and names, the time of the batch. Not known for those
    /// after compaction has moved them.
    pub written: Option<Time>,
    /// For a removal, how.
    pub removed: Option<Removed>,
    /// For the content of a file with several names, its number.
    pub shared: Option<ObjectNumber>,
    /// Whether this is what the key has now; for a removal, whether the key does not exist since.
    pub is_current: bool,
    /// Whether there is content, and it can be read.
    pub content: VersionContent,
}

/// How a key ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removed {
    /// It was removed.
    Name,
    /// It was removed with everything below it, or with its directory.
    Tree,
    /// It was renamed.
    Renamed {
        /// Number of the directory of the new name.
        directory: ObjectNumber,
        /// The new name.
        name: Vec<u8>,
    },
}

/// Whether the content of a version can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum VersionContent {
    /// It has none: a directory, a special file, a name, a removal.
    None,
    /// All of it is there. The stripes of a large file are verified only when they are read.
    Present,
    /// Extent files that it needs are not there, although they were not freed: a device is missing, or they are lost.
    Missing,
    /// Extent files that it needs were freed.
    Freed,
}

/// A record that matched.
#[derive(Debug)]
struct Met {
    entry: Entry,
    written: Option<Time>,
    removed: Option<Removed>,
    is_object: bool,
    content: VersionContent,
    /// The object that the record before it names, and that other name: if it is the object that had this name, it was
    /// renamed.
    beside: Option<(ObjectNumber, ObjectNumber, Vec<u8>)>,
    is_moved: bool,
}

/// Which records to find.
#[derive(Debug, Default)]
struct Wanted {
    name: Option<(ObjectNumber, Vec<u8>)>,
    objects: BTreeSet<ObjectNumber>,
}

impl Wanted {
    /// How a record matches: by its name, or as an object.
    fn matches(&self, record: &Record<'_>) -> bool {
        let Head { kind, number, parent, name, .. } = record.head;
        match kind {
            // Not a version of the content.
            Kind::Commit | Kind::Release | Kind::Snapshot | Kind::Attributes => false,
            Kind::TreeRemoval => self.name.as_ref().is_some_and(|(directory, own)| {
                // The root stays when everything in it is removed.
                let is_own = name == Some(own) && parent == *directory && !own.is_empty();
                is_own || decode_directories(record.content).is_some_and(|removed| removed.contains(directory))
            }),
            _ => match name {
                Some(name) => self.name.as_ref().is_some_and(|(directory, own)| parent == *directory && name == own),
                None => self.objects.contains(&number),
            },
        }
    }
}

/// The search, and what it has found.
struct Search<'e> {
    engine: &'e Engine,
    view: &'e View,
    /// By id; a record that was moved is in the log twice until its old segment is freed.
    met: BTreeMap<u64, Met>,
    damage: Vec<Damage>,
    /// Sizes of extent files, by number; `None` for a device that cannot be read.
    extents: BTreeMap<DeviceNumber, Option<BTreeMap<u32, u64>>>,
    freed_segments: BTreeSet<SegmentNumber>,
    freed_extents: BTreeSet<(DeviceNumber, u32)>,
}

impl Store {
    /// Finds every version of a key that the segments still have: those that were overwritten, removed or renamed,
    /// until compaction frees their space. Reads the whole log. `key` is a name in the directory that has its path now.
    ///
    /// ```
    /// use granulo_store::{Attributes, Buffer, Key, Plan, Progress, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// let (key, attributes) = (Key::parse("a/file")?, Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }));
    /// store.put(&key, &attributes, b"first")?;
    /// store.put(&key, &attributes, b"second")?;
    /// store.remove(&key)?;
    ///
    /// let found = store.versions(&key, &Progress::default())?;
    /// assert_eq!(found.versions.len(), 3, "a removal, and two that were files");
    /// assert!(found.versions[0].is_current && found.versions[0].removed.is_some());
    /// let mut buffer = Buffer::default();
    /// assert_eq!(found.read(found.versions[2].entry.id, &mut buffer)?.content, b"first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the directory of the key does not exist; errors of reading the index;
    /// [`Busy`](ErrorKind::Busy) if segments were freed meanwhile, as this user may not keep what it reads. Damage in
    /// the log is no error: see [`Versions::damage`].
    pub fn versions(&self, key: &Key, progress: &Progress) -> Result<Versions> {
        let engine = self.engine();
        let (pin, view) = engine.pinned()?;
        let snapshot = view.snapshot();
        let (directory, name) = match split(key.stored()) {
            None => (ObjectNumber::NONE, Vec::new()),
            Some((above, name)) => {
                let directory = snapshot.directory_with(above, &mut |_, _, _| {})?;
                let directory = directory.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, "find versions of", "its directory does not exist now")
                        .at(&key.to_path())
                        .advise("a name is found by the number of its directory; rename the directory back if it moved")
                })?;
                (directory, name.to_vec())
            }
        };
        let stored = if key.is_root() { ROOT_KEY.to_vec() } else { entry_key(directory, &name) };
        let now = snapshot.look_up(&stored)?;
        let mut current: BTreeSet<u64> = now.iter().map(|entry| entry.id).collect();
        let mut wanted = Wanted { name: Some((directory, name)), objects: BTreeSet::new() };
        if let Some(link) = now.filter(|entry| entry.kind == Kind::Link) {
            wanted.objects.insert(link.linked());
            current.extend(snapshot.look_up(&object_key(link.linked()))?.map(|entry| entry.id));
        }
        let mut search = Search::new(engine, &view);
        let mut pace = Pace::new(None, progress);
        let result = search.everything(wanted, &mut pace);
        let is_complete = outcome(result)?;
        let (versions, damage) = search.end(&current);
        if engine.may_have_freed(pin.loose()) {
            // Records may be in segments that were not read, or gone.
            return Err(engine.freed());
        }
        Ok(Versions { key: key.clone(), directory, versions, damage, is_complete, store: self.clone(), pin })
    }
}

impl Versions {
    /// The version with an id.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<&Version> {
        self.versions.iter().find(|version| version.entry.id == id)
    }

    /// Reads and verifies a version into `buffer`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such version or its content was freed,
    /// [`Usage`](ErrorKind::Usage) if it is a removal, a name, or larger than 1 GiB, [`Lost`](ErrorKind::Lost) if its
    /// content is missing; else as [`Store::read`].
    pub fn read<'b>(&self, id: u64, buffer: &'b mut Buffer) -> Result<Object<'b>> {
        let entry = self.readable(id)?;
        let engine = self.store.engine();
        let stored =
            engine.stored(&self.key, entry, buffer).map_err(|error| engine.or_freed(self.pin.loose(), error))?;
        object(&self.key, stored, buffer)
    }

    /// The content of a version that is a file, in pieces, of any size.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Usage`](ErrorKind::Usage) for what is not a file.
    pub fn content(&self, id: u64) -> Result<Content<'_>> {
        let entry = self.readable(id)?;
        let what = match entry.kind {
            Kind::File | Kind::Large => {
                let (engine, loose) = (self.store.engine(), self.pin.loose());
                let content = self.store.content_of(&self.key, entry, Origin::Version(loose));
                return content.map_err(|error| engine.or_freed(loose, error));
            }
            Kind::Directory => "a directory",
            Kind::Symlink => "a symbolic link",
            _ => "a special file",
        };
        Err(self.refuse(ErrorKind::Usage, format!("version {id} is {what}, not a file")))
    }

    /// The entry of a version that can be read.
    fn readable(&self, id: u64) -> Result<Entry> {
        let Some(version) = self.find(id) else {
            let cause = format!("the segments have no version {id} of it");
            return Err(self.refuse(ErrorKind::NotFound, cause).advise("list its versions with granulo store log"));
        };
        match (version.entry.kind, version.content) {
            (Kind::Removal, _) => Err(self.refuse(ErrorKind::Usage, format!("version {id} is its removal"))),
            (Kind::Link, _) => {
                let cause = format!(
                    "version {id} is a name of file {}, whose content has versions of its own",
                    version.entry.linked()
                );
                Err(self.refuse(ErrorKind::Usage, cause).advise("take the id of one of these from granulo store log"))
            }
            (_, VersionContent::Freed) => {
                Err(self.refuse(ErrorKind::NotFound, format!("the content of version {id} was freed by compaction")))
            }
            (_, VersionContent::Missing) => {
                let cause = format!("stripes of version {id} are missing, and parity cannot reconstruct them");
                Err(self.refuse(ErrorKind::Lost, cause).advise("bring missing devices back: granulo store status"))
            }
            _ => Ok(version.entry),
        }
    }

    fn refuse(&self, kind: ErrorKind, cause: String) -> Error {
        Error::new(kind, "read an earlier version of", cause).at(&self.key.to_path())
    }
}

impl<'e> Search<'e> {
    fn new(engine: &'e Engine, view: &'e View) -> Search<'e> {
        let (mut freed_segments, mut freed_extents) = (BTreeSet::new(), BTreeSet::new());
        for (_, superseded) in view.state.superseded.iter() {
            match *superseded {
                Superseded::Segment(number) => _ = freed_segments.insert(number),
                Superseded::Extent { device, file } => _ = freed_extents.insert((device, file)),
                Superseded::Table(_) => {}
            }
        }
        let (met, damage, extents) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Search { engine, view, met, damage, extents, freed_segments, freed_extents }
    }

    /// Reads the log, and once more if the name led to files with several names that were not known before.
    fn everything(&mut self, wanted: Wanted, pace: &mut Pace<'_>) -> Result<()> {
        self.log(&wanted, "reading the log", pace)?;
        let linked = self.met.values().filter(|met| met.entry.kind == Kind::Link).map(|met| met.entry.linked());
        let objects: BTreeSet<ObjectNumber> = linked.filter(|number| !wanted.objects.contains(number)).collect();
        if objects.is_empty() {
            return Ok(());
        }
        // The same bytes are damaged again.
        self.damage.clear();
        self.log(&Wanted { name: None, objects }, "reading the log for shared files", pace)
    }

    fn log(&mut self, wanted: &Wanted, stage: &'static str, pace: &mut Pace<'_>) -> Result<()> {
        let view = self.view;
        let rows = || view.state.segments.values();
        pace.stage(stage, rows().map(|row| row.size_bytes).sum());
        for row in rows() {
            if self.freed_segments.contains(&row.number) || row.is_without_batches() {
                pace.spend(row.size_bytes)?;
            } else {
                self.segment(row, wanted, pace)?;
            }
        }
        Ok(())
    }

    fn segment(&mut self, row: &SegmentRow, wanted: &Wanted, pace: &mut Pace<'_>) -> Result<()> {
        let copies = self.engine.open_segment_copies(row.id(), &row.devices);
        if copies.is_empty() {
            // Without a pin, because a reader may not write, a writer may have freed it meanwhile.
            self.engine.refresh()?;
            let state = self.engine.view().state.clone();
            if state.segments.contains_key(&row.number)
                && !state.superseded_segments().any(|number| number == row.number)
            {
                self.damaged(row.number, LogOffset::START..row.end());
            }
            return pace.spend(row.size_bytes);
        }
        let mut scan = SegmentScan::new(copies, self.engine.seed(row.id()), LogOffset::START);
        scan.end = row.end();
        let (header, _) = scan.header(row.id().into());
        let mut sequence = header.map_or(0, |header| header.continues.sequence.0);
        let mut batch = OpenBatch::<Met>::default();
        let mut beside: Option<(u64, ObjectNumber, ObjectNumber, Vec<u8>)> = None;
        while let Some(step) = scan.next(false) {
            let bytes = match step {
                ScanStep::Damage(range, _) => {
                    beside = None;
                    let range = range.start..range.end.min(row.end());
                    let bytes = range.end - range.start;
                    self.damaged(row.number, range);
                    bytes
                }
                ScanStep::Record(at, record, _) => {
                    let bytes = record.record_bytes();
                    let is_wanted = wanted.matches(&record);
                    let mut met = if is_wanted { self.met(row.number, at, &record) } else { None };
                    match &mut met {
                        Some(met) => {
                            let before = beside.take().filter(|(id, ..)| id + 1 == met.entry.id);
                            met.beside = before.map(|(_, number, parent, name)| (number, parent, name));
                        }
                        None if is_wanted => self.damaged(row.number, at..at + bytes),
                        None => {}
                    }
                    batch.replace(at, met);
                    follow(&mut beside, &record);
                    bytes
                }
                ScanStep::Commit(committed, ..) => {
                    beside = None;
                    let bytes = committed.end - committed.at;
                    let of_batch = batch.end(&committed);
                    if committed.commit.sequence.0 <= sequence {
                        // Not part of this history, whatever it is.
                        self.damaged(row.number, committed.commit.begin..committed.end);
                    } else {
                        of_batch.for_each(|met| self.add(with_time(met, &committed)));
                    }
                    sequence = sequence.max(committed.commit.sequence.0);
                    bytes
                }
            };
            pace.spend(bytes)?;
        }
        // Their commit is damaged. The account of the segment includes them, so they were acknowledged.
        batch.without_commit().for_each(|met| self.add(met));
        Ok(())
    }

    /// What a record says; `None` if its attributes or its content are inconsistent.
    fn met(&mut self, segment: SegmentNumber, at: LogOffset, record: &Record<'_>) -> Option<Met> {
        let head = &record.head;
        let entry = entry_in(segment, at, record)?;
        let content = match head.kind {
            Kind::File | Kind::Symlink => VersionContent::Present,
            Kind::Large => self.content_of(&Descriptor::decode(record.content, std::path::Path::new("")).ok()?),
            _ => VersionContent::None,
        };
        let removed = match head.kind {
            Kind::Removal => Some(Removed::Name),
            Kind::TreeRemoval => Some(Removed::Tree),
            _ => None,
        };
        let has_time = head.kind.is_used() && head.kind != Kind::Link;
        Some(Met {
            entry,
            written: has_time.then_some(entry.ctime),
            removed,
            is_object: head.name.is_none(),
            content,
            beside: None,
            is_moved: head.is_moved,
        })
    }

    /// Whether the extent files of a large object are there.
    fn content_of(&mut self, descriptor: &Descriptor) -> VersionContent {
        let mut worst = VersionContent::Present;
        for chunk in &descriptor.chunks {
            let (mut freed, mut missing) = (0, 0);
            for run in chunk.runs() {
                let extents = &self.engine.extents;
                let sizes = self.extents.entry(run.device).or_insert_with(|| extents.list(run.device).ok());
                let is_known = self.view.state.extents.contains_key(&(run.device, run.file));
                let end_bytes = run.offset_bytes + run.length_bytes;
                let has_all = |sizes: Option<&BTreeMap<u32, u64>>, file: u32| {
                    sizes.and_then(|sizes| sizes.get(&file)).is_some_and(|&size_bytes| size_bytes >= end_bytes)
                };
                if self.freed_extents.contains(&(run.device, run.file)) {
                    freed += 1;
                } else if !has_all(sizes.as_ref(), run.file) {
                    *(if is_known || sizes.is_none() { &mut missing } else { &mut freed }) += 1;
                }
            }
            let parity = usize::from(chunk.stripes.parity);
            worst = worst.max(match freed + missing > parity {
                false => VersionContent::Present,
                true if freed > 0 => VersionContent::Freed,
                true => VersionContent::Missing,
            });
        }
        worst
    }

    /// Adds a record. Of two with the same id, one was moved, to a later segment.
    fn add(&mut self, met: Met) {
        match self.met.entry(met.entry.id) {
            Slot::Vacant(slot) => _ = slot.insert(met),
            Slot::Occupied(mut slot) => {
                let known = slot.get_mut();
                let (written, beside) = (met.written.or(known.written), met.beside.clone().or(known.beside.take()));
                if met.entry.location > known.entry.location {
                    *known = met;
                }
                (known.written, known.beside) = (written, beside);
            }
        }
    }

    fn damaged(&mut self, segment: SegmentNumber, range: std::ops::Range<LogOffset>) {
        match self.damage.last_mut() {
            Some(last) if last.segment == segment && last.range.end >= range.start => {
                last.range.end = last.range.end.max(range.end);
            }
            _ => self.damage.push(Damage { segment, range }),
        }
    }

    /// The versions, newest first, and the damage. `current`: the ids of what the key has now; none if it does not
    /// exist.
    fn end(self, current: &BTreeSet<u64>) -> (Vec<Version>, Vec<Damage>) {
        let (objects, names): (Vec<Met>, Vec<Met>) = self.met.into_values().partition(|met| met.is_object);
        let links = leads_to(&names);
        let ids: Vec<(ObjectNumber, u64)> = objects.iter().map(|met| (met.entry.number, met.entry.id)).collect();
        // A version lasts until the next one of its object: it counts if the name led to the object in that time.
        let is_of_name = |met: &Met| {
            let later = ids.iter().filter(|(number, id)| *number == met.entry.number && *id > met.entry.id);
            let until = later.map(|(_, id)| *id).min().unwrap_or(u64::MAX);
            let is_during = |&(number, from, to): &(ObjectNumber, u64, u64)| {
                number == met.entry.number && met.entry.id < to && until > from
            };
            links.iter().any(is_during)
        };
        let mut versions = Vec::with_capacity(names.len() + objects.len());
        for met in objects.into_iter().filter(is_of_name) {
            let shared = Some(met.entry.number);
            versions.push(version(met, None, shared));
        }
        let newest = names.last().map(|met| met.entry.id);
        let mut had: Option<ObjectNumber> = None;
        for mut met in names {
            // A rename writes the new name, then the removal of the old one.
            let is_renamed = |(number, ..): &(ObjectNumber, ObjectNumber, Vec<u8>)| had == Some(*number);
            let beside = met.beside.take().filter(is_renamed).filter(|_| met.removed == Some(Removed::Name));
            had = met.entry.kind.is_used().then_some(met.entry.number);
            versions.push(version(met, beside, None));
        }
        for version in &mut versions {
            let id = version.entry.id;
            let is_last = current.is_empty() && version.removed.is_some() && newest == Some(id);
            version.is_current = current.contains(&id) || is_last;
        }
        versions.sort_by_key(|version| std::cmp::Reverse(version.entry.id));
        (versions, self.damage)
    }
}

/// Remembers the name that a record gives an object, for the record after it.
fn follow(beside: &mut Option<(u64, ObjectNumber, ObjectNumber, Vec<u8>)>, record: &Record<'_>) {
    let Head { kind, id, number, parent, name, .. } = record.head;
    let Some(name) = name.filter(|_| kind.is_used()) else {
        *beside = None;
        return;
    };
    // The memory is used again.
    let (.., mut kept) = beside.take().unwrap_or_default();
    kept.clear();
    kept.extend_from_slice(name);
    *beside = Some((id, number, parent, kept));
}

/// A record before a commit, with the time of the batch if it is in it.
fn with_time(mut met: Met, committed: &Committed) -> Met {
    if !met.is_moved && met.entry.location.offset >= committed.commit.begin {
        met.written.get_or_insert(Time::of_nanoseconds(committed.commit.time_nanoseconds));
    }
    met
}

/// From which id to which a name led to which file with several names; `names` by ascending id.
fn leads_to(names: &[Met]) -> Vec<(ObjectNumber, u64, u64)> {
    let ends = names.iter().skip(1).map(|met| met.entry.id).chain([u64::MAX]);
    let lived = names.iter().zip(ends).filter(|(met, _)| met.entry.kind == Kind::Link);
    lived.map(|(met, end)| (met.entry.linked(), met.entry.id, end)).collect()
}

fn version(met: Met, renamed: Option<(ObjectNumber, ObjectNumber, Vec<u8>)>, shared: Option<ObjectNumber>) -> Version {
    let Met { entry, written, removed, content, .. } = met;
    let removed = match renamed {
        Some((_, directory, name)) => Some(Removed::Renamed { directory, name }),
        None => removed,
    };
    Version { entry, written, removed, shared, is_current: false, content }
}
