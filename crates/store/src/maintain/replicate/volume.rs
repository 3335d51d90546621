//! A copy in a bucket: how it is made, and how it becomes a newer state of its source.
//!
//! A publication of a volume is a cut through all its files, so the copy becomes the new state with one. What comes is
//! verified in the source before: reading it again from the bucket would cost as much as writing it. New files have the
//! suffix `.incoming` until then, under which nobody reads them; so they can be published as they come, and a copy that
//! was interrupted goes on. What others end with, the index and the superblocks come last, under a hold. The right to
//! publish is taken first: another writer is fenced off, or refused.
//!
//! Space in an extent file is given out before it is written: after a copy of a state that was no close, the next one
//! writes units again that lie in what the copy had, unless the version of their object that the copy had has them too.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::image::{FileKind, Image, ImageFile};
use super::relation::{BESIDE_WRITER, may_become, refuse_quarantine, state_of_copy};
use super::source::{COPY, Source, StoreSource};
use super::staging::{
    INCOMING, PIECE_BYTES, Staging, Transferred, directories_of, fail, has_footer_of, incoming_of, is_earlier,
    is_same_table,
};
use super::verify::Verification;
use super::{Copied, CopyOptions};
use crate::Store;
use crate::devices::device::Mode;
use crate::devices::platform::{Hold, Platform};
use crate::devices::platforms;
use crate::devices::survey::OpenOptions;
use crate::engine::locking::{Access, lock};
use crate::engine::pace::{Pace, outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Descriptor, Run};
use crate::format::entry::Kind;
use crate::format::names::{EXTENTS, SEGMENTS, TEMPORARY};
use crate::format::superblock::Superblock;
use crate::index::table::INDEX_DIRECTORY;
use crate::progress::Progress;

/// New bytes that are published at once: what an interruption loses. Tests meet it, too.
const PUBLISHED_BYTES: u64 = if cfg!(test) { 256 << 10 } else { 256 << 20 };

/// How often a state is copied of which a writer frees a part meanwhile.
const ATTEMPTS: usize = 5;

/// Publications held back; given up unless it is published.
struct Held<'h> {
    platform: &'h dyn Platform,
    hold: Option<Box<dyn Hold>>,
}

impl Held<'_> {
    fn publish(&mut self) -> io::Result<()> {
        self.hold.take().map_or(Ok(()), |hold| hold.publish())
    }

    /// Publishes, and holds back what follows.
    fn publish_on(&mut self) -> io::Result<()> {
        self.publish()?;
        self.hold = Some(self.platform.hold());
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.abandon();
        }
    }
}

/// The copy as it is.
struct Known {
    store: Store,
    image: Image,
    source: StoreSource,
}

/// One copy in progress.
struct Copying<'c> {
    source: &'c mut StoreSource,
    image: &'c Image,
    known: Option<&'c mut Known>,
    staging: Staging<'c>,
    transferred: &'c mut Transferred,
    /// Bytes since the last publication.
    unpublished_bytes: u64,
    /// Units to be written again, by device and path of their file.
    again: Vec<(ImageFile, Run)>,
    /// Whether files are written that readers of the copy know: what is published from then on is the new state.
    is_at_end: bool,
}

/// Makes a copy of a store in a bucket, or brings one up to date.
///
/// # Errors
/// [`ErrorKind::Exists`] if something is there, or the copy was written to; [`ErrorKind::NotFound`] if there is none;
/// errors of reading the source and of writing.
pub(crate) fn copy(
    source: &mut StoreSource,
    home: &Path,
    is_new: bool,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Copied> {
    let platform = platforms::of(home, &options.bucket)?;
    refuse_others(&*platform, home, is_new)?;
    let mut locks = Vec::new();
    lock(&*platform, home, &mut locks)?;
    refuse_others(&*platform, home, is_new)?;
    let mut known = if is_new { None } else { Some(Known::open(&platform, home)?) };
    let mut image = source.image()?;
    if let Some(known) = &mut known
        && may_become((&known.image, &image), source, &mut known.source, home)?
    {
        return Ok(Copied { is_unchanged: true, ..report(&image, is_new) });
    }
    let mut pace = Pace::new(options.bytes_per_second, progress);
    let mut held = Held { platform: &*platform, hold: Some(platform.hold()) };
    let mut transferred = Transferred::default();
    for attempt in 1.. {
        transferred.attempt();
        let directories = directories_of(&image.geometry);
        let staging = Staging::new(&*platform, (home, home), directories, image.geometry.file_mode);
        // An interrupted attempt leaves files that no row has.
        if let Some(known) = &known
            && staging.read_incoming()?.is_none()
        {
            refuse_quarantine(&known.store)?;
        }
        let mut copying = Copying {
            source,
            image: &image,
            known: known.as_mut(),
            staging,
            transferred: &mut transferred,
            unpublished_bytes: 0,
            again: Vec::new(),
            is_at_end: false,
        };
        let done = outcome(copying.run(&platform, &mut held, &mut pace));
        let is_at_end = copying.is_at_end;
        match done {
            Ok(true) => {
                let Transferred { files, bytes, kept_files, kept_bytes, .. } = transferred;
                return Ok(Copied { files, bytes, kept_files, kept_bytes, ..report(&image, is_new) });
            }
            Ok(false) => {
                if !is_at_end {
                    // What came stays for the next time, and the lease is released with it.
                    held.publish().map_err(|error| Error::io(COPY, home, error))?;
                }
                let none = Copied { is_new, ..Copied::default() };
                let was = known.as_ref().map_or(none, |known| report(&known.image, is_new));
                return Ok(Copied { is_interrupted: true, ..was });
            }
            // A newer state has no more what a writer has freed; what came of the rest stays.
            Err(error) if error.kind() == ErrorKind::NotFound && !is_at_end && attempt < ATTEMPTS => {
                image = source.image()?;
                if let Some(known) = &mut known {
                    may_become((&known.image, &image), source, &mut known.source, home)?;
                }
            }
            Err(error) => {
                // Of a damaged source, nothing is taken for complete.
                if !is_at_end && transferred.bytes > 0 && error.kind() != ErrorKind::Corrupt {
                    // The same as for a request to stop; if the bucket has failed, so does this.
                    let _ = held.publish();
                }
                return Err(error);
            }
        }
    }
    unreachable!("the last attempt returns")
}

fn report(image: &Image, is_new: bool) -> Copied {
    let (segments, snapshots) = (image.state.segments.len() as u64, image.state.snapshots.len() as u64);
    Copied { is_new, segments, snapshots, batch: image.position().sequence, ..Copied::default() }
}

/// There is a copy, or nothing but what an earlier attempt left.
fn refuse_others(platform: &dyn Platform, home: &Path, is_new: bool) -> Result<()> {
    let device = platform.device(home);
    let is_there = Superblock::read(&*device)?.is_some();
    let listed = device.list_names("").map_err(|error| fail(&*device, "", error))?;
    let is_left = |name: &String| name == INCOMING || name.ends_with(TEMPORARY);
    match is_new {
        false if is_there => Ok(()),
        false => {
            let error = Error::new(ErrorKind::NotFound, "update the copy", "it has no superblock").at(home);
            Err(error.advise("granulo store clone makes a copy"))
        }
        true if is_there
            || !listed.iter().all(is_left)
            || platform.has_others(home).map_err(|error| Error::io(COPY, home, error))? =>
        {
            let error = Error::new(ErrorKind::Exists, COPY, "something is there already").at(home);
            Err(error.advise("granulo store push brings a copy up to date"))
        }
        true => Ok(()),
    }
}

impl Known {
    fn open(platform: &Arc<dyn Platform>, home: &Path) -> Result<Known> {
        let store = Store::open_on(Arc::clone(platform), home, Access::Read, &OpenOptions::default())?;
        let mut source = StoreSource::new(&store);
        let image = source.image()?;
        Ok(Known { store, image, source })
    }

    /// Runs of a descriptor that lie in what the copy has of their files, and that it does not have for the same
    /// object.
    fn unknown_runs(&self, key: &[u8], descriptor: &Descriptor) -> Result<Vec<Run>> {
        let engine = self.store.engine();
        let entry = engine.snapshot().look_up(key)?.filter(|entry| entry.kind == Kind::Large);
        let earlier: Vec<Run> = match entry {
            Some(entry) => engine.descriptor(&entry)?.runs().collect(),
            None => Vec::new(),
        };
        let is_within = |run: &Run, other: &Run| {
            (run.device, run.file) == (other.device, other.file)
                && other.offset_bytes <= run.offset_bytes
                && run.offset_bytes + run.length_bytes <= other.offset_bytes + other.length_bytes
        };
        let lies_in = |run: &Run| {
            let row = self.image.state.extents.get(&(run.device, run.file));
            row.is_some_and(|row| run.offset_bytes < row.end_bytes)
        };
        let is_unknown = |run: &Run| lies_in(run) && !earlier.iter().any(|other| is_within(run, other));
        Ok(descriptor.runs().filter(is_unknown).collect())
    }
}

impl Copying<'_> {
    fn run(&mut self, platform: &Arc<dyn Platform>, held: &mut Held<'_>, pace: &mut Pace<'_>) -> Result<()> {
        self.verify(pace)?;
        self.begin()?;
        let fail = |error| Error::io("put the copy in its place", &self.staging.place, error);
        if self.known.is_none() {
            // Objects are put only by a writer whose log has begun; until then everything is in memory.
            held.publish_on().map_err(fail)?;
        }
        let files = self.image.files();
        pace.stage("copying", files.iter().map(|file| file.size_bytes).sum());
        let of_known = self.known.as_ref().map(|known| known.image.files()).unwrap_or_default();
        let of_known: BTreeMap<_, _> = of_known.iter().map(|file| ((file.device, file.path.as_str()), file)).collect();
        let (mut new, mut growing) = (Vec::new(), Vec::new());
        for file in &files {
            match of_known.get(&(file.device, file.path.as_str())) {
                Some(known) if self.is_same(known, file)? => {
                    self.transferred.had(file, file.size_bytes);
                    pace.skip(file.size_bytes);
                }
                Some(known) if known.size_bytes < file.size_bytes && file.kind != FileKind::Table => {
                    growing.push((file, known.size_bytes));
                }
                _ => new.push(file),
            }
        }
        for file in &new {
            self.bring(file, held, pace)?;
        }
        self.is_at_end = true;
        for (file, begin) in growing {
            self.transferred.had(file, begin);
            pace.skip(begin);
            self.write(file, &file.path, begin, pace)?;
        }
        self.write_again()?;
        self.finish(platform, &files, &new)?;
        pace.spend(0)?;
        let fail = |error| Error::io("put the copy in its place", &self.staging.place, error);
        held.publish().map_err(fail)
    }

    /// What comes is what was written; and what is to be written again.
    fn verify(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let (store, snapshot) = self.source.state();
        let (store, before) = (store.clone(), self.known.as_ref().map(|known| &known.image));
        let Some(snapshot) = snapshot else { unreachable!("its image was taken") };
        let verification = Verification { store: &store, snapshot, staging: None, image: self.image, before };
        let known = self.known.as_deref().filter(|known| known.image.state.notes.contains_key(BESIDE_WRITER));
        let (image, again) = (self.image, &mut self.again);
        let verified = verification.run_with(&mut StoreSource::new(&store), pace, &mut |key, descriptor| {
            let Some(known) = known else { return Ok(()) };
            for run in known.unknown_runs(key, descriptor)? {
                let Some(name) = image.extents.get(&(run.device, run.file)) else { continue };
                let (path, size_bytes) = (format!("{EXTENTS}/{name}"), run.offset_bytes + run.length_bytes);
                let file = ImageFile { device: run.device, path, size_bytes, kind: FileKind::Extents };
                again.push((file, run));
            }
            Ok(())
        });
        verified.map_err(|error| self.source.or_gone(error))
    }

    /// Begins, or goes on with what was begun for this state or an earlier one.
    fn begin(&mut self) -> Result<()> {
        let said = self.staging.read_incoming()?;
        let incoming = incoming_of(self.image);
        // Of an earlier state, an extent file may lack units that were written since in what it has.
        let is_same = said.as_ref() == Some(&incoming);
        let is_known = said.map(|said| is_earlier(&said, self.image, self.source)).transpose()?;
        for number in self.staging.numbers() {
            let device = self.staging.device(number);
            for directory in [SEGMENTS, EXTENTS, INDEX_DIRECTORY] {
                if directory != INDEX_DIRECTORY || self.image.state.devices.contains(&number) {
                    self.staging.create(&*device, directory)?;
                }
                let listed = device.list_names(directory).map_err(|error| fail(&*device, directory, error))?;
                let is_left = |name: &&String| name.ends_with(TEMPORARY) || name.ends_with(&format!(".{INCOMING}"));
                let is_kept = is_known == Some(true) && (is_same || directory != EXTENTS);
                for name in listed.iter().filter(is_left).filter(|_| !is_kept) {
                    let path = format!("{directory}/{name}");
                    device.remove(&path).map_err(|error| fail(&*device, &path, error))?;
                }
            }
        }
        self.staging.write_incoming(&incoming)
    }

    /// The file of the source that has the bytes of a file.
    fn of(&self, file: &ImageFile) -> ImageFile {
        match (file.kind, self.image.state.devices.first()) {
            (FileKind::Table, Some(&device)) => ImageFile { device, ..file.clone() },
            _ => file.clone(),
        }
    }

    fn is_same(&mut self, known: &ImageFile, file: &ImageFile) -> Result<bool> {
        let of = self.of(file);
        match (file.kind, &mut self.known) {
            (FileKind::Table, Some(copy)) => is_same_table(known, &mut copy.source, &of, self.source),
            _ => Ok(known.size_bytes == file.size_bytes),
        }
    }

    /// Brings a file that the copy does not have, unless it is there from an earlier attempt.
    fn bring(&mut self, file: &ImageFile, held: &mut Held<'_>, pace: &mut Pace<'_>) -> Result<()> {
        let device = self.staging.device(file.device);
        let path = format!("{}.{INCOMING}", file.path);
        if self.is_there(file, &path)? {
            self.transferred.had(file, file.size_bytes);
            pace.skip(file.size_bytes);
            return Ok(());
        }
        self.transferred.removed(file);
        let temporary = format!("{path}{TEMPORARY}");
        for left in [&path, &temporary] {
            match device.remove(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(&*device, left, error)),
                _ => {}
            }
        }
        let created = device.open(&temporary, Mode::Create);
        created.map_err(|error| fail(&*device, &temporary, error))?;
        self.write(file, &temporary, 0, pace)?;
        device.rename(&temporary, &path).map_err(|error| fail(&*device, &path, error))?;
        if self.unpublished_bytes >= PUBLISHED_BYTES {
            self.unpublished_bytes = 0;
            held.publish_on().map_err(|error| fail(&*device, &path, error))?;
        }
        Ok(())
    }

    fn is_there(&mut self, file: &ImageFile, path: &str) -> Result<bool> {
        let device = self.staging.device(file.device);
        let found = match device.open(path, Mode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(|error| fail(&*device, path, error))?,
        };
        let size = found.size().map_err(|error| fail(&*device, path, error))?;
        let of = self.of(file);
        Ok(size == file.size_bytes && (file.kind != FileKind::Table || has_footer_of(&*found, &of, self.source)?))
    }

    /// Writes a file from an offset to its end.
    fn write(&mut self, file: &ImageFile, path: &str, begin: u64, pace: &mut Pace<'_>) -> Result<()> {
        let (device, of) = (self.staging.device(file.device), self.of(file));
        let written = device.open(path, Mode::Write).map_err(|error| fail(&*device, path, error))?;
        let (mut done, mut piece) = (begin, Vec::new());
        while done < file.size_bytes {
            piece.clear();
            let length = (file.size_bytes - done).min(PIECE_BYTES);
            self.source.read(&of, done, length as usize, &mut piece)?;
            written.append_at(&piece, done).map_err(|error| fail(&*device, path, error))?;
            done += length;
            self.transferred.came(file, length);
            self.unpublished_bytes += length;
            pace.spend(length)?;
        }
        Ok(())
    }

    fn write_again(&mut self) -> Result<()> {
        for (file, run) in std::mem::take(&mut self.again) {
            let device = self.staging.device(file.device);
            let written = device.open(&file.path, Mode::Write).map_err(|error| fail(&*device, &file.path, error))?;
            let (mut at, end, mut piece) = (run.offset_bytes, run.offset_bytes + run.length_bytes, Vec::new());
            while at < end {
                piece.clear();
                let length = (end - at).min(PIECE_BYTES);
                self.source.read(&file, at, length as usize, &mut piece)?;
                written.write_at(&piece, at).map_err(|error| fail(&*device, &file.path, error))?;
                at += length;
            }
            self.transferred.came(&file, run.length_bytes);
        }
        Ok(())
    }

    /// Gives everything its name, and writes index and superblocks; nothing of it is published.
    fn finish(&mut self, platform: &Arc<dyn Platform>, files: &[ImageFile], new: &[&ImageFile]) -> Result<()> {
        for file in new {
            let device = self.staging.device(file.device);
            let named = device.rename(&format!("{}.{INCOMING}", file.path), &file.path);
            named.map_err(|error| fail(&*device, &file.path, error))?;
        }
        self.staging.remove_others(files)?;
        let before = self.known.as_ref().map(|known| &known.image);
        let mut state = state_of_copy(self.image, before);
        // Of the state itself, not of whether somebody writes now. Behind a close, the next writer takes only space
        // that no state before has.
        if self.image.last.as_ref().is_some_and(|last| !last.is_close) {
            Arc::make_mut(&mut state.notes).insert(BESIDE_WRITER.to_owned(), vec![1]);
        }
        self.staging.finish(self.image, &state)?;
        self.staging.close()?;
        let home = &self.staging.place;
        let store = Store::open_on(Arc::clone(platform), home, Access::Read, &OpenOptions::default())?;
        let snapshot = store.engine().snapshot();
        Verification { store: &store, snapshot, staging: None, image: self.image, before: None }.is_whole()
    }
}
