//! One run of a bench: its places, and the document that it becomes.
//!
//! The order is always the same: [`Run::begin`] clears away what killed runs left; [`Run::prepare`] prepares all places
//! before anything is measured; subjects take [`turns`] within each round, so that drift of the machine affects all of
//! them; [`Run::end`] takes the places down and creates the document. A run that was asked to stop ends in the same
//! way, with `complete` false.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::clock;
use super::file_systems::FileSystemSpec;
use super::host;
use super::images::{self, Image};
use super::place::{Besides, Borrowed, Place, Prepared};
use super::programs;
use super::result::{Details, Document, Host, SCHEMA, Series, SubjectKind, add_note};
use super::scratch::{Cleared, Scratch, clear_left_overs};
use crate::error::{Error, ErrorKind, Result};
use crate::program;
use crate::progress::Stage;
use crate::store::Plan;

/// The stage of a run that measures a phase of a subject. Operations of its [`Progress`](crate::progress::Progress) are
/// whatever the phase counts.
pub(super) fn stage(subject: &str, phase: &str, round: u64) -> Stage {
    Stage { name: phase.to_owned(), subject: subject.to_owned(), round }
}

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Request {
    /// Command line.
    pub command_line: Vec<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Directory for images.
    pub scratch: PathBuf,
}

/// A run.
#[derive(Debug)]
pub struct Run {
    request: Request,
    started_at: SystemTime,
    started: Instant,
    host: Host,
    notes: Vec<String>,
    programs: BTreeSet<String>,
    cleared: Cleared,
    scratch: Option<Arc<Scratch>>,
    images: usize,
}

/// Measurements of a run.
#[derive(Debug)]
pub struct Measured {
    /// Every sample.
    pub series: Vec<Series>,
    /// Data specific to this bench.
    pub details: Details,
    /// The shortest median of individually timed operations, in nanoseconds; infinite if there are none.
    pub shortest_median_ns: f64,
    /// Whether everything was measured.
    pub complete: bool,
}

impl Run {
    /// Begins a run: clears away what killed runs left in the directory for images.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn begin(request: Request) -> Result<Run> {
        let cleared = clear_left_overs(&request.scratch)?;
        Ok(Run {
            request,
            started_at: SystemTime::now(),
            started: Instant::now(),
            host: host::host(),
            notes: Vec::new(),
            programs: BTreeSet::new(),
            cleared,
            scratch: None,
            images: 0,
        })
    }

    /// Seed of everything random.
    pub fn seed(&self) -> u64 {
        self.request.seed
    }

    /// What was cleared away so far, and what could not be.
    pub fn cleared(&self) -> &Cleared {
        &self.cleared
    }

    /// Adds a note for the result.
    pub fn note(&mut self, note: impl Into<String>) {
        add_note(&mut self.notes, note.into());
    }

    /// Adds a program whose version the result records.
    pub fn uses(&mut self, program: impl Into<String>) {
        self.programs.insert(program.into());
    }

    /// The directory for images of this run; created on first use.
    ///
    /// # Errors
    /// Errors from creating it.
    pub fn scratch(&mut self) -> Result<Arc<Scratch>> {
        if self.scratch.is_none() {
            self.scratch = Some(Arc::new(Scratch::create(&self.request.scratch)?));
        }
        self.scratch.clone().ok_or_else(|| Error::new(ErrorKind::Io, "keep images", "there is no directory for images"))
    }

    /// Prepares all places: plain files in each, and what is asked for besides, on a file system of its own where that
    /// is created for the run. If one of them cannot be prepared, none is.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] for a directory that is not empty; same as [`images::check`] and [`Image::make`]; errors
    /// from mounting a store.
    pub fn prepare(&mut self, places: &[Place], besides: Besides) -> Result<Vec<Prepared>> {
        let specs: Vec<FileSystemSpec> = places.iter().filter_map(spec).collect();
        images::check(&specs)?;
        self.refuse_doubles(places)?;
        let mut prepared = Vec::new();
        for place in places {
            prepared.append(&mut self.prepare_place(place, places, besides)?);
        }
        Ok(prepared)
    }

    /// Prepares one of the places, under a name unlike those of the others.
    ///
    /// # Errors
    /// Same as [`prepare`](Self::prepare), except that it does not check the file systems first.
    pub(super) fn prepare_place(&mut self, place: &Place, places: &[Place], besides: Besides) -> Result<Vec<Prepared>> {
        match place {
            Place::Directory(directory) => {
                let (borrowed, cleared) = Borrowed::open(directory)?;
                self.cleared.removed.extend(cleared.removed);
                self.cleared.kept.extend(cleared.kept);
                let borrowed = Arc::new(borrowed);
                let name = short_name(directory, places);
                let prepare = |kind| mounted(Prepared::in_directory(&name, borrowed.clone(), kind)?);
                besides.kinds().map(prepare).collect()
            }
            Place::FileSystem(spec) => {
                let prepare = |kind| mounted(self.prepare_file_system(spec.clone(), kind)?);
                besides.kinds().map(prepare).collect()
            }
        }
    }

    /// Prepares the places as [`prepare`](Self::prepare) does. File systems created for the run that fail when they are
    /// created or first written to, as with a FUSE program that does not support their options, are left out as long as
    /// another place is there; returns why, after a note in the result.
    ///
    /// # Errors
    /// Same as [`prepare`](Self::prepare).
    pub fn prepare_possible(&mut self, places: &[Place], besides: Besides) -> Result<(Vec<Prepared>, Vec<String>)> {
        let specs: Vec<FileSystemSpec> = places.iter().filter_map(spec).collect();
        images::check(&specs)?;
        self.refuse_doubles(places)?;
        let (mut prepared, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
        for place in places {
            match (self.prepare_place(place, places, besides), place) {
                (Ok(mut one), _) => prepared.append(&mut one),
                (Err(error), Place::FileSystem(spec)) if error.kind() == ErrorKind::Io => {
                    left_out.push(format!("{} was left out: {error}", spec.name()));
                    first = first.or(Some(error));
                }
                (Err(error), _) => return Err(error),
            }
        }
        if prepared.is_empty()
            && let Some(error) = first
        {
            return Err(error);
        }
        left_out.iter().for_each(|cause| self.note(format!("{cause}.")));
        Ok((prepared, left_out))
    }

    /// Prepares a file system; with [`SubjectKind::Store`] and [`SubjectKind::Mount`], for a store.
    ///
    /// # Errors
    /// Same as [`Image::make`].
    pub fn prepare_file_system(&mut self, spec: FileSystemSpec, kind: SubjectKind) -> Result<Prepared> {
        let scratch = self.scratch()?;
        self.images += 1;
        let image = Image::make(&scratch, self.images, spec)?;
        self.programs.extend(image.programs());
        let kind = if kind == SubjectKind::Directory { SubjectKind::FileSystem } else { kind };
        Prepared::on_image(image, kind)
    }

    /// Refuses a directory, or a file system with the same options, that is named twice.
    pub(super) fn refuse_doubles(&self, places: &[Place]) -> Result<()> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut seen: Vec<Place> = Vec::new();
        for place in places {
            let place = match place {
                Place::Directory(directory) => Place::Directory(real(directory)),
                other => other.clone(),
            };
            if seen.contains(&place) {
                let name = match &place {
                    Place::Directory(directory) => super::volume::shown(directory),
                    Place::FileSystem(spec) => spec.name(),
                };
                return Err(Error::new(ErrorKind::Usage, "start", format!("{name} is named twice")));
            }
            seen.push(place);
        }
        Ok(())
    }

    /// Ends a run: takes the places down, in the order in which results name them, and creates the document.
    pub fn end(mut self, places: Vec<Prepared>, measured: Measured) -> Document {
        let mut subjects = Vec::new();
        for place in places {
            let (subject, notes) = place.end();
            subjects.push(subject);
            notes.into_iter().for_each(|note| self.note(note));
        }
        let harness = clock::harness(measured.shortest_median_ns);
        clock::overhead_note(&harness).into_iter().for_each(|note| self.note(note));
        self.host.load_after = host::load_average();
        Document {
            schema: SCHEMA.to_owned(),
            granulo_version: program::VERSION.to_owned(),
            granulo_commit: program::commit().map(str::to_owned),
            started_at: humantime::format_rfc3339_seconds(self.started_at).to_string(),
            elapsed_seconds: self.started.elapsed().as_secs_f64(),
            complete: measured.complete,
            command_line: self.request.command_line.clone(),
            seed: self.request.seed,
            host: self.host.clone(),
            tools: self.programs.iter().map(|program| programs::version(program)).collect(),
            harness,
            subjects,
            series: measured.series,
            notes: std::mem::take(&mut self.notes),
            details: measured.details,
        }
    }
}

/// The same place, with the mounted store that is to be measured there.
fn mounted(place: Prepared) -> Result<Prepared> {
    if !place.is_mount() {
        return Ok(place);
    }
    let home = place.directory().join("home");
    place.mounted(&home, Plan::default())
}

/// Last component of a directory's path if no other place has the same, otherwise the whole path.
fn short_name(directory: &Path, places: &[Place]) -> String {
    let last = |place: &Place| match place {
        Place::Directory(directory) => directory.file_name().map(|name| super::volume::shown(Path::new(name))),
        Place::FileSystem(spec) => Some(spec.name()),
    };
    let mine = last(&Place::Directory(directory.to_owned()));
    let alike = places.iter().filter(|place| last(place) == mine).count();
    mine.filter(|_| alike <= 1).unwrap_or_else(|| super::volume::shown(directory))
}

fn spec(place: &Place) -> Option<FileSystemSpec> {
    match place {
        Place::FileSystem(spec) => Some(spec.clone()),
        Place::Directory(_) => None,
    }
}

/// Round and subject of every turn: each round contains every subject once and starts with another one.
pub fn turns(rounds: u64, subjects: usize) -> impl Iterator<Item = (u64, usize)> {
    let in_round = move |round: u64| {
        (0..subjects).map(move |at| (round, (at + (round % subjects.max(1) as u64) as usize) % subjects))
    };
    (0..rounds).flat_map(in_round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::CreateDetails;

    fn request(scratch: &Path) -> Request {
        Request { command_line: vec!["granulo".to_owned()], seed: 7, scratch: scratch.to_owned() }
    }

    #[test]
    fn everyone_has_a_turn_in_every_round_and_the_first_changes() {
        let turns: Vec<_> = super::turns(3, 2).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(super::turns(3, 0).count() + super::turns(0, 3).count(), 0);
    }

    #[test]
    fn a_run_leaves_a_document_and_nothing_else() {
        let sandbox = tempfile::tempdir().unwrap();
        let directory = sandbox.path().join("place");
        let mut run = Run::begin(request(sandbox.path())).unwrap();
        let places =
            run.prepare(&[Place::Directory(directory.clone())], Besides { store: true, ..Besides::default() }).unwrap();
        assert_eq!(places.len(), 2);
        run.note("said once");
        run.note("said once");
        let series = vec![Series::new(0, "create", "seconds", crate::bench::result::CacheState::AsIs, vec![1.0])];
        let details = Details::Create(CreateDetails::default());
        let document = run.end(places, Measured { series, details, shortest_median_ns: f64::INFINITY, complete: true });
        assert_eq!((document.schema.as_str(), document.seed, document.notes.len()), (SCHEMA, 7, 1));
        assert_eq!(
            document.subjects.iter().map(|subject| subject.kind).collect::<Vec<_>>(),
            [SubjectKind::Directory, SubjectKind::Store]
        );
        assert_eq!(std::fs::read_dir(sandbox.path()).unwrap().count(), 0);
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document);
    }

    #[test]
    fn places_are_called_what_tells_them_apart() {
        let places = ["/a/x", "/b/x", "/b/y", "/", "."].map(|path| Place::Directory(path.into()));
        let names = ["/a/x", "/b/x", "/b/y", "/", "."].map(|path| short_name(Path::new(path), &places));
        assert_eq!(names, ["/a/x", "/b/x", "y", "/", "."]);
    }

    #[test]
    fn one_place_that_cannot_be_keeps_all_from_being_made() {
        let sandbox = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(sandbox.path().join("full/thing")).unwrap();
        let places = ["new", "full"].map(|name| Place::Directory(sandbox.path().join(name)));
        let mut run = Run::begin(request(sandbox.path())).unwrap();
        assert_eq!(run.prepare(&places, Besides::default()).unwrap_err().kind(), ErrorKind::Exists);
        assert!(!sandbox.path().join("new").exists());
        let twice = [places[0].clone(), places[0].clone()];
        assert_eq!(run.prepare(&twice, Besides::default()).unwrap_err().kind(), ErrorKind::Usage);
        assert!(Run::begin(request(&sandbox.path().join("none"))).is_err());
    }
}
