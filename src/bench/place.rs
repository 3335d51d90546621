//! Places to measure: a user's directory, or a file system created for the run; with plain files, with granulo's
//! store, or with files in a mounted store.
//!
//! A [`Prepared`] place has an empty directory that belongs to the run. It can be cooled, synced and emptied, reports
//! how full its file system is, and becomes a [`Subject`] of the result at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::caches::{Dropped, drop_caches};
use super::file_systems::FileSystemSpec;
use super::images::Image;
use super::mounted::{self, Mounted};
use super::result::{CacheState, Device, FileSystem, Subject, SubjectKind, add_note};
use super::scratch::{Cleared, Scratch, clear_left_overs};
use super::volume::{self, Room};
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::mount_of;
use crate::store::Plan;

/// What a new file system contains by itself.
const OF_THE_FILE_SYSTEM: &str = "lost+found";
/// FAT through FUSE: the program (fusefat 0.1a) loops forever, deaf to signals, or ends when files are created in more
/// than one directory.
const FAT_BY_FUSE: &str = "fuse.fusefat";

/// Where to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a directory that is empty, or does not exist and is created.
    Directory(PathBuf),
    /// On a file system that is created for it.
    FileSystem(FileSystemSpec),
}

/// What is measured in each place besides files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Besides {
    /// granulo's store, through its library.
    pub store: bool,
    /// Files in granulo's store, mounted as a file system.
    pub mount: bool,
}

impl Besides {
    /// What is measured in each place, files first.
    pub(super) fn kinds(self) -> impl Iterator<Item = SubjectKind> {
        let besides = [(self.store, SubjectKind::Store), (self.mount, SubjectKind::Mount)];
        let besides = besides.into_iter().filter_map(|(is_asked_for, kind)| is_asked_for.then_some(kind));
        std::iter::once(SubjectKind::Directory).chain(besides)
    }
}

/// A user's directory, for the duration of a run.
#[derive(Debug)]
pub(super) struct Borrowed {
    scratch: Scratch,
    // Last field: the directory is removed after everything in it.
    _directory: CreatedDirectory,
}

impl Borrowed {
    /// Opens a directory: clears what killed runs left in it, refuses any other content, creates it if it does not
    /// exist.
    pub(super) fn open(directory: &Path) -> Result<(Borrowed, Cleared)> {
        const OPERATION: &str = "measure in";
        let fail = |error| Error::io(OPERATION, directory, error);
        let path = match fs::create_dir(directory) {
            Ok(()) => Some(directory.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(fail(error)),
        };
        let created = CreatedDirectory { path };
        if !fs::metadata(directory).map_err(fail)?.is_dir() {
            return Err(Error::new(ErrorKind::Usage, OPERATION, "it is not a directory").at(directory));
        }
        let cleared = clear_left_overs(directory)?;
        for entry in fs::read_dir(directory).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            if name != OF_THE_FILE_SYSTEM {
                return Err(refuse(directory, &name, &cleared));
            }
        }
        let scratch = Scratch::create(directory)?;
        Ok((Borrowed { scratch, _directory: created }, cleared))
    }
}

/// A user's directory. Dropping it removes it if the run created it.
#[derive(Debug)]
struct CreatedDirectory {
    /// `None` if it existed before.
    path: Option<PathBuf>,
}

impl Drop for CreatedDirectory {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_dir(path);
        }
    }
}

/// The error of a directory that has something of this name in it.
fn refuse(directory: &Path, name: &std::ffi::OsStr, cleared: &Cleared) -> Error {
    const OPERATION: &str = "measure in";
    let advice = "name an empty directory, or one that does not exist yet";
    if crate::store::is_store(directory) {
        let cause = "it is a store, and existing stores are never measured";
        return Error::new(ErrorKind::Exists, OPERATION, cause).at(directory).advise(advice);
    }
    let of_a_run = name.to_str().is_some_and(|name| super::scratch::owner(name).is_some());
    let shown = volume::shown(Path::new(name));
    let kept = cleared.kept.iter().find(|(path, _)| path.file_name() == Some(name));
    let cause = match kept {
        Some((_, why)) => format!("a killed run left {shown} in it: {why}"),
        None if of_a_run => format!("another run is using it, or left {shown} in it"),
        None => format!("it is not empty: it has {shown}"),
    };
    Error::new(ErrorKind::Exists, OPERATION, cause).at(directory).advise(advice)
}

/// What holds a prepared place.
#[derive(Debug)]
enum Ground {
    Directory {
        _borrowed: Arc<Borrowed>,
    },
    Image(Box<Image>),
    /// A store in another place. It is unmounted before that is taken down.
    Mount {
        mounted: Mounted,
        below: Box<Prepared>,
    },
}

/// A place that is ready to be measured.
#[derive(Debug)]
pub struct Prepared {
    subject: Subject,
    directory: PathBuf,
    notes: Vec<String>,
    /// Further devices of a store.
    further: Vec<Prepared>,
    // Last field: it is dropped after everything in it.
    ground: Ground,
}

impl Prepared {
    /// Prepares `kind` in a user's directory.
    pub(super) fn in_directory(called: &str, borrowed: Arc<Borrowed>, kind: SubjectKind) -> Result<Prepared> {
        let name = match kind {
            SubjectKind::Store => "store",
            SubjectKind::Mount => "mounted",
            SubjectKind::Directory | SubjectKind::FileSystem => "files",
        };
        let directory = borrowed.scratch.directory(name)?;
        let subject = subject(kind, called, &directory, None, None)?;
        let ground = Ground::Directory { _borrowed: borrowed };
        Ok(Prepared { subject, directory, notes: Vec::new(), further: Vec::new(), ground })
    }

    /// Prepares `kind` on a file system that was created for it.
    pub(super) fn on_image(image: Image, kind: SubjectKind) -> Result<Prepared> {
        let directory = image.root().join("bench");
        make(&directory)?;
        let device = image.device().and_then(|device| device.number()).and_then(volume::block_device);
        let device =
            device.map(|device| Device { emulated: image.limited().map(|limited| limited.emulated), ..device });
        let subject = subject(kind, &image.spec().name(), &directory, device, Some(image.made_by()))?;
        let notes = image.notes();
        let ground = Ground::Image(Box::new(image));
        Ok(Prepared { subject, directory, notes, further: Vec::new(), ground })
    }

    /// Creates a store at `home`, in a place prepared for one, and mounts it: the files are measured there.
    ///
    /// # Errors
    /// As for [`mounted::check`]; errors from creating and mounting it.
    pub(super) fn mounted(self, home: &Path, plan: Plan) -> Result<Prepared> {
        mounted::check()?;
        let mounted = Mounted::create(&self.directory, home, plan)?;
        let directory = mounted.point().join("bench");
        make(&directory)?;
        let made_by = self.subject.file_system.made_by.clone();
        let subject = Subject {
            kind: SubjectKind::Mount,
            path: volume::shown(&directory),
            file_system: FileSystem { made_by, ..volume::file_system(&directory)? },
            ..self.subject.clone()
        };
        let ground = Ground::Mount { mounted, below: Box::new(self) };
        Ok(Prepared { subject, directory, notes: Vec::new(), further: Vec::new(), ground })
    }

    /// Why more than one directory cannot be filled here, if so.
    pub(super) fn cannot_grow_directories(&self) -> Option<&'static str> {
        (self.subject.file_system.kind == FAT_BY_FUSE).then_some(
            "fusefat, which serves fat where the kernel does not, loops or ends when files are created in more than one \
                directory",
        )
    }

    /// The subject of the result, so far.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Renames the subject.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.subject.name = name.into();
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Whether a store is to be measured here; its home is then [`directory`](Self::directory), where it has to be
    /// created.
    pub fn is_store(&self) -> bool {
        self.subject.kind == SubjectKind::Store
    }

    /// Whether files in a mounted store are to be measured here.
    pub fn is_mount(&self) -> bool {
        self.subject.kind == SubjectKind::Mount
    }

    /// A directory that belongs to the run, initially empty.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The image, if the file system was created for the run.
    pub fn image(&mut self) -> Option<&mut Image> {
        match &mut self.ground {
            Ground::Image(image) => Some(image),
            Ground::Mount { below, .. } => below.image(),
            Ground::Directory { .. } => None,
        }
    }

    /// Adds another place as a further device of the store to measure here: it is cooled, emptied, synced and taken
    /// down with it.
    pub fn join(&mut self, further: Prepared) {
        self.subject.further_devices.push(further.subject.device.clone());
        self.further.push(further);
    }

    /// Further devices of the store to measure here, in the order in which they were joined.
    pub fn further(&self) -> &[Prepared] {
        &self.further
    }

    /// Lifts the limits of slow devices for phases that are not measured, or sets them again.
    ///
    /// # Errors
    /// Errors from setting the limits.
    pub fn set_slow(&mut self, is_slow: bool) -> Result<()> {
        match &mut self.ground {
            Ground::Image(image) => image.set_slow(is_slow)?,
            Ground::Mount { below, .. } => below.set_slow(is_slow)?,
            Ground::Directory { .. } => {}
        }
        self.further.iter_mut().try_for_each(|further| further.set_slow(is_slow))
    }

    fn unmount(&mut self) -> Result<()> {
        match &mut self.ground {
            Ground::Image(image) => image.unmount()?,
            Ground::Mount { mounted, below } => mounted.unmount().and_then(|()| below.unmount())?,
            Ground::Directory { .. } => {}
        }
        self.further.iter_mut().try_for_each(Prepared::unmount)
    }

    fn mount(&mut self) -> Result<()> {
        match &mut self.ground {
            Ground::Image(image) => image.mount()?,
            Ground::Mount { mounted, below } => below.mount().and_then(|()| mounted.mount())?,
            Ground::Directory { .. } => {}
        }
        self.further.iter_mut().try_for_each(Prepared::mount)
    }

    /// Makes caches cold, as far as possible: writes back dirty data, remounts a file system that was created for the
    /// run, and drops the kernel's caches. No file below [`directory`](Self::directory) may be open.
    ///
    /// # Errors
    /// If it cannot be remounted.
    pub fn cool(&mut self) -> Result<CacheState> {
        self.unmount()?;
        let Dropped { state, note } = drop_caches();
        self.mount()?;
        if let Some(note) = note {
            self.note(note);
        }
        Ok(state)
    }

    /// Empties the directory; a file system that was created for the run is recreated. No file below may be open.
    ///
    /// # Errors
    /// Errors from removing or recreating.
    pub fn renew(&mut self) -> Result<()> {
        match &mut self.ground {
            Ground::Image(image) => image.remake()?,
            Ground::Mount { mounted, below } => {
                mounted.unmount()?;
                below.renew()?;
                mounted.create_again()?;
            }
            Ground::Directory { .. } => fs::remove_dir_all(&self.directory)
                .map_err(|error| Error::io("remove the files in", &self.directory, error))?,
        }
        self.further.iter_mut().try_for_each(Prepared::renew)?;
        make(&self.directory)
    }

    /// Writes back dirty data of its file system; returns the seconds that this took.
    ///
    /// # Errors
    /// Errors from syncing.
    pub fn sync(&self) -> Result<f64> {
        let fail = |error| Error::io("sync", &self.directory, error);
        let directory = File::open(&self.directory).map_err(fail)?;
        let started = Instant::now();
        match &self.ground {
            // syncfs does not reach a server; for this one, fsync covers everything before it.
            Ground::Mount { below, .. } => {
                directory.sync_all().map_err(fail)?;
                below.sync()?;
            }
            Ground::Directory { .. } | Ground::Image(_) => {
                rustix::fs::syncfs(&directory).map_err(|error| fail(error.into()))?;
            }
        }
        if let Ground::Image(image) = &self.ground
            && let Some(device) = image.served_device()
        {
            File::open(device)
                .and_then(|device| device.sync_all())
                .map_err(|error| Error::io("sync", device, error))?;
        }
        self.further.iter().try_for_each(|further| further.sync().map(|_| ()))?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Capacity and free space of its file system.
    ///
    /// # Errors
    /// Errors from statfs.
    pub fn room(&self) -> Result<Room> {
        volume::room(&self.directory)
    }

    /// Bytes of `room` for files: a file system created for the run may become full, all others keep a margin.
    pub(super) fn usable_bytes(&mut self, room: &Room) -> u64 {
        if self.image().is_some() { room.available_bytes } else { room.beyond_margin_bytes() }
    }

    /// Whether its free inodes can be counted: FAT, and file systems outside the kernel, count clusters instead, of
    /// which empty files use none.
    pub fn counts_inodes(&self) -> bool {
        let kind = &self.subject.file_system.kind;
        !kind.contains("fat") && !kind.starts_with("fuse")
    }

    /// Fill level of the fullest of its file systems.
    ///
    /// # Errors
    /// Errors from statfs.
    pub(super) fn fullest(&self) -> Result<f64> {
        let mine = match &self.ground {
            Ground::Mount { below, .. } => below.fullest()?,
            _ => self.room()?.fill,
        };
        self.further.iter().try_fold(mine, |most, further| Ok(most.max(further.fullest()?)))
    }

    /// Numbers of its block device, for /sys/dev/block; `None` if it has no single device.
    pub fn device_number(&self) -> Option<(u32, u32)> {
        match &self.ground {
            Ground::Image(image) => image.device().and_then(|device| device.number()),
            Ground::Mount { below, .. } => below.device_number(),
            Ground::Directory { .. } => {
                let mount = mount_of(&self.directory).ok()?;
                Some(mount.device).filter(|(major, _)| *major != 0)
            }
        }
    }

    /// Adds a note for the result.
    pub fn note(&mut self, note: impl Into<String>) {
        add_note(&mut self.notes, note.into());
    }

    /// Records the final fill level and removes what the run created. No file below may be open.
    pub(super) fn end(mut self) -> (Subject, Vec<String>) {
        if let Ok(room) = self.room() {
            self.subject.fill_after = room.fill;
        }
        let mut under = std::mem::take(&mut self.further);
        if let Ground::Mount { mounted, below } = self.ground {
            drop(mounted);
            under.push(*below);
        }
        let (subject, mut notes) = (self.subject, self.notes);
        for note in under.into_iter().flat_map(|under| under.end().1) {
            add_note(&mut notes, note);
        }
        (subject, notes)
    }
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir(directory).map_err(|error| Error::io("create the directory", directory, error))
}

/// The name of what is measured in a place with this name.
pub(super) fn name_on(kind: SubjectKind, place: &str) -> String {
    match kind {
        SubjectKind::Store => format!("granulo on {place}"),
        SubjectKind::Mount => format!("mount on {place}"),
        SubjectKind::Directory | SubjectKind::FileSystem => place.to_owned(),
    }
}

/// A subject before it is filled. Without `device`, the device below the directory is looked up; the fill level after
/// the run is set by [`Prepared::end`].
fn subject(
    kind: SubjectKind,
    name: &str,
    directory: &Path,
    device: Option<Device>,
    made_by: Option<String>,
) -> Result<Subject> {
    let fill = volume::room(directory)?.fill;
    let mut file_system = volume::file_system(directory)?;
    file_system.made_by = made_by;
    Ok(Subject {
        name: name_on(kind, name),
        kind,
        path: volume::shown(directory),
        file_system,
        device: match device {
            Some(device) => device,
            None => volume::device(directory)?,
        },
        fill_before: fill,
        fill_after: fill,
        further_devices: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_borrowed_only_empty_and_left_as_it_was() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("new");
        let (borrowed, _) = Borrowed::open(&directory).unwrap();
        let busy = Borrowed::open(&directory).unwrap_err();
        assert!(busy.to_string().contains("another run"), "{busy}");
        let borrowed = Arc::new(borrowed);
        let mut files = Prepared::in_directory("new", borrowed.clone(), SubjectKind::Directory).unwrap();
        let store = Prepared::in_directory("new", borrowed, SubjectKind::Store).unwrap();
        assert!(store.is_store() && store.name() == "granulo on new" && store.directory() != files.directory());
        fs::write(files.directory().join("file-1"), b"x").unwrap();
        files.renew().unwrap();
        assert_eq!(fs::read_dir(files.directory()).unwrap().count(), 0);
        files.sync().unwrap();
        files.note("twice");
        files.note("twice");
        assert_eq!(files.end().1, ["twice"]);
        drop(store);
        assert!(!directory.exists());

        fs::create_dir_all(directory.join(OF_THE_FILE_SYSTEM)).unwrap();
        drop(Borrowed::open(&directory).unwrap());
        fs::write(directory.join("mine"), b"x").unwrap();
        let error = Borrowed::open(&directory).unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains("mine")), (ErrorKind::Exists, true));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        assert_eq!(Borrowed::open(&directory.join("mine")).unwrap_err().kind(), ErrorKind::Usage);
    }
}
