//! A copy in a directory: how it is made, and how it becomes a newer state of its source.
//!
//! Everything is made in a directory beside it ([`Staging`]), which then takes its place in one step. So whoever opens
//! the copy finds it as it was or as it is going to be, whatever happens meanwhile. Nobody writes to the copy from the
//! moment when it was compared with its source: its lock is held, and that of the directory that takes its place.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::image::Image;
use super::relation::{has_nothing_of_its_own, may_become, refuse_quarantine, state_of_copy};
use super::source::{COPY, Source, StoreSource};
use super::staging::{Before, PINS, Staging, Transferred, directories_of, inside};
use super::verify::{Verification, verify_every_byte};
use super::{Copied, CopyOptions};
use crate::Store;
use crate::devices::aside;
use crate::devices::host::{Host, LOCK};
use crate::devices::platform::{Lock, Platform};
use crate::devices::survey::OpenOptions;
use crate::engine::locking::lock;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::address_scheme;
use crate::format::names::{EXTENTS, SEGMENTS, TEMPORARY};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::index::table::INDEX_DIRECTORY;
use crate::progress::Progress;
use crate::units::escape_path;

/// How often a newer image is taken because files of the last one were freed.
const ATTEMPTS: usize = 5;
/// What a store has in its home and in the directory of a device.
const OF_STORE: [&str; 5] = [SUPERBLOCK, LOCK, SEGMENTS, EXTENTS, INDEX_DIRECTORY];

/// The copy as it is.
struct Known {
    image: Image,
    source: StoreSource,
    /// By number.
    directories: Vec<Option<PathBuf>>,
    _locks: Vec<Box<dyn Lock>>,
}

/// Makes a copy of a source in a directory that does not exist or is empty.
///
/// # Errors
/// [`ErrorKind::Exists`] if something is there; errors of reading the source and of writing.
pub(crate) fn make(source: &mut dyn Source, to: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
    let home = Host.resolve(to);
    refuse_itself(source, &home)?;
    refuse_name_of_staging(&home)?;
    let found = match aside::names_in(&home) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => {
            refuse_mount_point(&home)?;
            names.map_err(|error| Error::io(COPY, &home, error))?
        }
    };
    if !found.is_empty() {
        let is_copy = found.iter().any(|name| name == SUPERBLOCK);
        let advice = if is_copy { "granulo store push brings it up to date" } else { "name another one" };
        return Err(Error::new(ErrorKind::Exists, COPY, "the directory is not empty").at(&home).advise(advice));
    }
    Copying { source, home, known: None, options, progress }.run()
}

/// Brings a copy up to date with its source.
///
/// # Errors
/// [`ErrorKind::Exists`] if it was written to, or is no copy of this store; [`ErrorKind::Busy`] if another process
/// writes to it, or reads what would go; errors of reading the source and of writing.
pub(crate) fn update(source: &mut dyn Source, to: &Path, options: &CopyOptions, progress: &Progress) -> Result<Copied> {
    let home = Host.resolve(to);
    refuse_itself(source, &home)?;
    refuse_name_of_staging(&home)?;
    let known = Known::open(&home)?;
    Copying { source, home, known: Some(known), options, progress }.run()
}

/// A copy is in a directory outside of its source, and so is the one in which it is made.
fn refuse_itself(source: &dyn Source, home: &Path) -> Result<()> {
    let usage = |cause: &str| Err(Error::new(ErrorKind::Usage, COPY, cause).at(home));
    if address_scheme(home).is_some() {
        return usage("the granulo that makes a copy in a bucket has the source at hand")
            .map_err(|error| error.advise("run push where the source is"));
    }
    let is_one = |one: &Path, other: &Path| {
        Host.node(one).is_some_and(|node| Host.node(other).is_some_and(|other| other.is(node)))
    };
    let aside = aside::place_aside(home);
    for directory in source.directories() {
        let path = Host.resolve(&directory);
        if is_one(&directory, home) || home.starts_with(&path) {
            return usage("it is the source itself, or in it");
        }
        if let Some(aside) = &aside
            && (is_one(&directory, aside) || path.starts_with(aside))
        {
            let cause = format!("it would be made in {}, where the source is", escape_path(aside));
            return usage(&cause).map_err(|error| error.advise("name another one, or rename the source"));
        }
    }
    Ok(())
}

/// A copy whose name ends so would lie where another one is made.
fn refuse_name_of_staging(home: &Path) -> Result<()> {
    if home.extension().is_none_or(|extension| extension != super::staging::INCOMING) {
        return Ok(());
    }
    let cause = format!("copies are made in directories whose names end in .{}", super::staging::INCOMING);
    Err(Error::new(ErrorKind::Usage, COPY, cause).at(home).advise("name another one"))
}

fn refuse_mount_point(home: &Path) -> Result<()> {
    let above = home.parent().unwrap_or(Path::new("/"));
    let is_inside = aside::is_on_one_file_system(home, above).map_err(|error| Error::io("look at", home, error))?;
    if is_inside {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Usage, COPY, "it is a mount point").at(home);
    Err(error.advise("a copy is a directory of a file system: name one in it"))
}

impl Known {
    /// Opens the copy for reading, and keeps writers off.
    fn open(home: &Path) -> Result<Known> {
        let Some(found) = Superblock::read(&*Host.device(home))? else {
            let error = Error::new(ErrorKind::NotFound, "update the copy", "it has no superblock").at(home);
            return Err(error.advise("granulo store clone makes a copy"));
        };
        let directories = directories_in(home, &found.superblock)?;
        let mut locks = Vec::new();
        lock(&Host, home, &mut locks)?;
        let places = directories.iter().flatten().map(|directory| inside(home, directory));
        places.filter(|place| place != home).try_for_each(|place| lock(&Host, &place, &mut locks))?;
        refuse_others(home, &directories)?;
        let store = Store::open_read_only_with(home, &OpenOptions::default())?;
        let mut source = StoreSource::new(&store);
        let image =
            source.image().map_err(|error| error.advise("check the copy, and clone it again if it is damaged"))?;
        // It is locked, and pins are those of others.
        source.let_go();
        Ok(Known { image, source, directories, _locks: locks })
    }

    /// Whether a process keeps the state of the copy from being freed.
    fn is_pinned(&self, home: &Path) -> bool {
        let indexes =
            self.image.state.devices.iter().filter_map(|number| self.directories.get(number.index())?.as_ref());
        let mut indexes = indexes.map(|directory| inside(home, directory).join(INDEX_DIRECTORY));
        indexes.any(|index| is_pinned(&index))
    }
}

/// The directories of the devices of a copy, which are all in its home.
fn directories_in(home: &Path, superblock: &Superblock) -> Result<Vec<Option<PathBuf>>> {
    let geometry = &superblock.geometry;
    let directories = geometry
        .devices
        .iter()
        .zip(directories_of(geometry))
        .map(|(entry, directory)| directory.map(|_| entry.path.clone()));
    let directories: Vec<Option<PathBuf>> = directories.collect();
    let outside = directories
        .iter()
        .flatten()
        .find(|directory| directory.is_absolute() || directory.components().any(|part| part.as_os_str() == ".."));
    match outside {
        None => Ok(directories),
        Some(outside) => {
            let cause = format!("it has a device outside its home, {}", escape_path(outside));
            Err(Error::new(ErrorKind::Usage, "update the copy", cause)
                .at(home)
                .advise("its devices could not change at one moment: clone the source into another directory"))
        }
    }
}

/// Refuses what could not be exchanged, or would be lost by it.
fn refuse_others(home: &Path, directories: &[Option<PathBuf>]) -> Result<()> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::io("look at", &path, error)
    };
    let refuse = |path: &Path, cause: &str, advice: &str| {
        Err(Error::new(ErrorKind::Usage, "update the copy", cause).at(path).advise(advice))
    };
    refuse_mount_point(home)?;
    let places: Vec<PathBuf> = directories.iter().flatten().map(|directory| inside(home, directory)).collect();
    for place in places.iter().map(PathBuf::as_path).chain([home]) {
        if !aside::is_on_one_file_system(place, home).map_err(fail(place))? {
            return refuse(place, "it is on another file system than the home", "move it into the home");
        }
        let is_known = |name: &OsStr| {
            OF_STORE.iter().any(|own| name == *own) || places.iter().any(|other| other.starts_with(place.join(name)))
        };
        let names = aside::names_in(place).map_err(fail(place))?;
        if let Some(other) = names.iter().find(|name| !is_known(name)) {
            let cause = "it does not belong to the store, and would be removed with what the copy was";
            return refuse(&place.join(other), cause, "move it elsewhere");
        }
    }
    Ok(())
}

/// One copy in progress.
struct Copying<'c> {
    source: &'c mut dyn Source,
    home: PathBuf,
    known: Option<Known>,
    options: &'c CopyOptions,
    progress: &'c Progress,
}

impl Copying<'_> {
    /// A request to stop is no failure: the copy is as it was.
    fn run(mut self) -> Result<Copied> {
        match self.bring() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                Ok(Copied { is_interrupted: true, ..self.as_it_was() })
            }
            done => done,
        }
    }

    fn bring(&mut self) -> Result<Copied> {
        let mut image = self.source.image()?;
        if let Some(is_same) = self.compare(&image)?
            && is_same
        {
            self.remove_left(&image)?;
            let is_interrupted = self.options.is_verified && !self.verify_unchanged()?;
            let copied = self.report(&image, &Transferred::default());
            return Ok(Copied { is_unchanged: true, is_interrupted, ..copied });
        }
        let (place, lock) = self.take_place(&image)?;
        let staging = self.staging(&place, &image);
        Copying::clear_left(&staging)?;
        let mut pace = Pace::new(self.options.bytes_per_second, self.progress);
        let mut transferred = Transferred::default();
        for attempt in 1.. {
            transferred.attempt();
            match self.make(&staging, &image, (&mut transferred, &mut pace)) {
                Ok(()) => {
                    self.source.is_there()?;
                    self.replace(&staging, &image, &mut pace)?;
                    drop(lock);
                    return Ok(self.report(&image, &transferred));
                }
                // A writer freed what had waited for readers.
                Err(error) if error.kind() == ErrorKind::NotFound && attempt < ATTEMPTS => {
                    image = self.source.image()?;
                    self.compare(&image)?;
                }
                Err(error) => {
                    if error.kind() == ErrorKind::Corrupt {
                        // What is damaged must not be taken for what is complete.
                        let _ = staging.remove_all();
                    }
                    return Err(or_full(error, &place));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Verifies every byte of a copy that lacks nothing; returns whether that was not interrupted.
    fn verify_unchanged(&self) -> Result<bool> {
        let copy = Store::open_read_only_with(&self.home, &OpenOptions::default())?;
        match verify_every_byte(&copy, self.options.bytes_per_second, self.progress) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            verified => verified.map(|()| true),
        }
    }

    fn staging(&self, place: &Path, image: &Image) -> Staging<'static> {
        let directories = match &self.known {
            Some(known) => known.directories.clone(),
            None => directories_of(&image.geometry),
        };
        Staging::new(&Host, (place, &self.home), directories, image.geometry.file_mode)
    }

    /// Removes what was left when the copy had taken its place. What else may be there is not in the way.
    fn remove_left(&mut self, image: &Image) -> Result<()> {
        if !aside::place_aside(&self.home).is_some_and(|place| place.exists()) {
            return Ok(());
        }
        match self.take_place(image) {
            Ok((place, _lock)) => self.staging(&place, image).remove_all(),
            Err(_) => Ok(()),
        }
    }

    /// What is said of a copy that stays what it was.
    fn as_it_was(&self) -> Copied {
        let none = Copied { is_new: true, ..Copied::default() };
        self.known.as_ref().map_or(none, |known| self.report(&known.image, &Transferred::default()))
    }

    fn report(&self, image: &Image, transferred: &Transferred) -> Copied {
        let Transferred { files, bytes, kept_files, kept_bytes, .. } = *transferred;
        Copied {
            is_new: self.known.is_none(),
            files,
            bytes,
            kept_files,
            kept_bytes,
            segments: image.state.segments.len() as u64,
            snapshots: image.state.snapshots.len() as u64,
            batch: image.position().sequence,
            is_unchanged: false,
            is_interrupted: false,
        }
    }

    /// Whether the copy is the same already; refuses one that cannot become this state.
    fn compare(&mut self, image: &Image) -> Result<Option<bool>> {
        let Some(known) = &mut self.known else { return Ok(None) };
        if may_become((&known.image, image), self.source, &mut known.source, &self.home)? {
            return Ok(Some(true));
        }
        refuse_quarantine(known.source.state().0)?;
        self.refuse_readers(image)?;
        Ok(Some(false))
    }

    /// Whoever reads the copy for long may need files that go.
    fn refuse_readers(&self, image: &Image) -> Result<()> {
        let Some(known) = &self.known else { return Ok(()) };
        let stay: BTreeSet<_> = image.files().into_iter().map(|file| (file.device, file.path)).collect();
        let mut before = known.image.files().into_iter().map(|file| (file.device, file.path));
        if before.all(|file| stay.contains(&file)) || !known.is_pinned(&self.home) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "update the copy", "a process reads what would be removed")
            .at(&self.home)
            .advise("try again when it has ended"))
    }

    /// The directory beside the copy, locked.
    fn take_place(&mut self, image: &Image) -> Result<(PathBuf, Vec<Box<dyn Lock>>)> {
        let home = self.home.clone();
        let usage = |cause: &str| Error::new(ErrorKind::Usage, COPY, cause).at(&home);
        let place = aside::place_aside(&self.home).ok_or_else(|| usage("a copy has a name"))?;
        let fail = |error| Error::io(COPY, &place, error);
        let device = Host.device_with(&place, image.geometry.file_mode);
        if let Ok(names) = aside::names_in(&place)
            && !names.is_empty()
            && !is_of_copying((&place, &self.home), &names, image, self.source)?
        {
            let error = Error::new(ErrorKind::Exists, COPY, "it is not what an earlier copy of this store left");
            return Err(error.at(&place).advise("the copy is made there: move it elsewhere"));
        }
        device.create_directory("").map_err(fail)?;
        let mut locks = Vec::new();
        lock(&Host, &place, &mut locks)?;
        if self.known.is_some() && !aside::can_exchange(&place).map_err(fail)? {
            return Err(usage("its file system does not exchange directories")
                .advise("put the copy on a local file system, such as ext4, XFS, btrfs or tmpfs"));
        }
        Ok((place, locks))
    }

    /// Removes what a copy left that was killed after, or right before, it took its place.
    fn clear_left(staging: &Staging<'_>) -> Result<()> {
        if staging.is_begun()? { Ok(()) } else { staging.clear() }
    }

    fn make(
        &mut self,
        staging: &Staging<'_>,
        image: &Image,
        (transferred, pace): (&mut Transferred, &mut Pace<'_>),
    ) -> Result<()> {
        let total: u64 = image.files().iter().map(|file| file.size_bytes).sum();
        pace.stage("copying", total);
        staging.begin(image, self.source)?;
        let mut before = self.known.as_mut().map(|known| Before { image: &known.image, source: &mut known.source });
        staging.fill(image, self.source, before.as_mut(), (transferred, pace))?;
        let before = self.known.as_ref().map(|known| &known.image);
        staging.finish(image, &state_of_copy(image, before))?;
        pace.spend(0)?;
        let store = Store::open_read_only_with(&staging.place, &OpenOptions::default())?;
        let snapshot = store.engine().snapshot();
        let verification = Verification { store: &store, snapshot, staging: Some(staging), image, before };
        verification.is_whole()?;
        verification.run(self.source, pace)?;
        if self.options.is_verified {
            verify_every_byte(&store, self.options.bytes_per_second, self.progress)?;
        }
        Ok(())
    }

    /// From here on nothing is refused: the new directory takes the place of the old one, which is removed.
    fn replace(&self, staging: &Staging<'_>, image: &Image, pace: &mut Pace<'_>) -> Result<()> {
        self.refuse_readers(image)?;
        let fail = |error| Error::io("put the copy in its place", &self.home, error);
        staging.close()?;
        // Progress is reported, and a request to stop comes too late.
        let _ = pace.spend(0);
        if self.known.is_none() {
            return aside::rename(&staging.place, &self.home).map_err(fail);
        }
        self.carry_pins(&self.home, &staging.place)?;
        aside::exchange(&staging.place, &self.home).map_err(fail)?;
        // What is removed now is no store of its own any more, whatever ends this. A full disk does not end it.
        let _ = staging.write_incoming(&image.geometry.store);
        self.carry_pins(&staging.place, &self.home)?;
        let _ = pace.spend(0);
        staging.remove_all()
    }

    /// Gives the pins of readers a second name: they hold locks on the files, and go on reading what stays.
    fn carry_pins(&self, from: &Path, to: &Path) -> Result<()> {
        let Some(known) = &self.known else { return Ok(()) };
        let state = &known.image.state;
        for directory in state.devices.iter().filter_map(|number| known.directories.get(number.index())?.as_ref()) {
            let [from, to] = [from, to].map(|home| inside(home, directory).join(PINS));
            let fail = |error| Error::io("keep the pins of readers in", &to, error);
            let names = match aside::names_in(&from) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                names => names.map_err(fail)?,
            };
            if names.is_empty() {
                continue;
            }
            let mode = fs::metadata(&from).map_err(fail)?.permissions();
            match fs::create_dir(&to).and_then(|()| fs::set_permissions(&to, mode)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
                _ => {}
            }
            for name in names {
                match fs::hard_link(from.join(&name), to.join(&name)) {
                    // A reader has ended, or it is carried already.
                    Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
                    linked => linked.map_err(fail)?,
                }
            }
        }
        Ok(())
    }
}

/// An error of making a copy; if there is no room, with what stays.
fn or_full(error: Error, place: &Path) -> Error {
    if error.kind() != ErrorKind::NoSpace || error.os_error().is_none() {
        return error;
    }
    error.advise(format!(
        "free some space and run the same command again: what has arrived stays in {}; remove that to give up",
        escape_path(place)
    ))
}

/// Whether a process reads the store with an index.
fn is_pinned(index: &Path) -> bool {
    Host.unpinned(index, u64::MAX) < u64::MAX
}

/// Whether all pins in a directory are those of another one, by their second names: see [`Copying::carry_pins`].
fn has_pins_of(directory: &Path, other: &Path) -> bool {
    let node = |path: &Path| fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let is_carried = |name: &OsString| {
        node(&directory.join(PINS).join(name)).is_none_or(|pin| node(&other.join(PINS).join(name)) == Some(pin))
    };
    aside::names_in(&directory.join(PINS)).is_ok_and(|names| names.iter().all(is_carried))
}

/// Whether a directory is what an earlier copy of this store left: it was begun, or has nothing but a lock and what is
/// not complete, or is a copy with nothing that the source lacks.
fn is_of_copying(
    (place, home): (&Path, &Path),
    names: &[OsString],
    image: &Image,
    source: &mut dyn Source,
) -> Result<bool> {
    if names.iter().all(|name| name == LOCK || name.as_encoded_bytes().ends_with(TEMPORARY.as_bytes())) {
        return Ok(true);
    }
    if let Ok(bytes) = fs::read(place.join(super::staging::INCOMING)) {
        return Ok(bytes.starts_with(&image.geometry.store));
    }
    let found = Superblock::read(&*Host.device(place))?;
    if found.is_none_or(|found| found.superblock.geometry.store != image.geometry.store) {
        return Ok(false);
    }
    let store = Store::open_read_only_with(place, &OpenOptions::default())?;
    // It may be the source of this copy, from which another process sends.
    let is_read = |directory: &Path| {
        let of_copy = directory.strip_prefix(place).map(|below| inside(home, below));
        is_pinned(&directory.join(INDEX_DIRECTORY)) && !of_copy.is_ok_and(|of_copy| has_pins_of(directory, &of_copy))
    };
    if store.engine().index.places().iter().any(|index| is_read(&index.device.place())) {
        let error = Error::new(ErrorKind::Busy, COPY, "a process reads the store where the copy would be made");
        return Err(error.at(place).advise("move it elsewhere if it is not what an earlier copy left"));
    }
    let mut of_copy = StoreSource::new(&store);
    let copy = of_copy.image()?;
    has_nothing_of_its_own((&copy, image), source, &mut of_copy)
}
