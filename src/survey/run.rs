//! Taking a survey: scan and collector together, with progress, checkpoints and interruption.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::checkpoint::{Checkpoint, Session};
use super::collect::Collector;
use super::file_table::FileTable;
use super::inode_scan::{self, Chosen};
use super::places::DEFAULT_LIMIT;
use super::{Method, Options, Origin, Resolution, Snapshots, Survey};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::scan::exclude::Exclude;
use crate::scan::walk::{Walk, display_root};
use crate::scan::{Visitor, WalkOptions, default_threads};
use crate::units::escape;

/// How often a request to stop is looked for.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// What to survey and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// Files and directories.
    pub roots: Vec<PathBuf>,
    /// What the result depends on.
    pub options: Options,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Rows of the lists of directories.
    pub limit: usize,
    /// Leave out every name and path.
    pub anonymous: bool,
    /// What ages are relative to, seconds since 1970; `None`: now.
    pub reference_time: Option<i64>,
    /// Where to write one row per file.
    pub file_table: Option<PathBuf>,
    /// Where and how often to write checkpoints. An inode scan writes none.
    pub checkpoints: Option<CheckpointPlan>,
    /// How to enumerate files.
    pub method: MethodChoice,
    /// Whether names may be omitted where that is faster: an inode scan then reads no directories.
    pub without_names: bool,
    /// Where the names of directories are known from an earlier inode scan, and where to store those of this one.
    pub incremental: Option<Incremental>,
}

impl Request {
    /// Files and directories, each with everything below it, with the defaults of `granulo survey`.
    pub fn new(roots: Vec<PathBuf>) -> Request {
        Request {
            roots,
            options: Options::default(),
            threads: default_threads(),
            limit: DEFAULT_LIMIT,
            anonymous: false,
            reference_time: None,
            file_table: None,
            checkpoints: None,
            method: MethodChoice::Auto,
            without_names: false,
            incremental: None,
        }
    }
}

/// Files that hold the names of directories.
#[derive(Debug, Clone)]
pub struct Incremental {
    /// Those of an earlier survey; the file may not exist yet.
    pub old: PathBuf,
    /// Those of this survey; may be the same file.
    pub new: PathBuf,
}

/// How to enumerate files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// By inodes where that produces the result of a walk, else by a walk.
    #[default]
    Auto,
    /// Through the directories.
    Walk,
    /// From the tables of inodes of one file system.
    InodeScan,
}

/// Where and how often to write checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointPlan {
    /// The checkpoint. The caller removes it once the results are written.
    pub path: PathBuf,
    /// How often; `None`: only when interrupted.
    pub every: Option<Duration>,
}

/// A finished or interrupted survey.
#[derive(Debug)]
pub struct Outcome {
    /// The survey; not complete if it was interrupted.
    pub survey: Survey,
    /// The checkpoint to resume from, if it was interrupted.
    pub checkpoint: Option<PathBuf>,
    /// Failures besides those that the survey itself counts: a checkpoint or a table that could not be written.
    pub warnings: Vec<Error>,
    /// Remarks on how it was taken.
    pub notes: Vec<String>,
}

/// Takes a survey, or resumes an interrupted one (whose roots and options then apply instead of those of the request).
/// Counts in `progress`, and ends early if that is asked to stop.
///
/// # Errors
/// When nothing can be surveyed: no root is readable, an option is wrong, a checkpoint contradicts itself, a table
/// cannot be created.
pub fn take(mut request: Request, mut resumed: Option<Checkpoint>, progress: &Progress) -> Result<Outcome> {
    if let Some(checkpoint) = &mut resumed {
        checkpoint.follow_devices()?;
        request.roots = checkpoint.roots();
        request.options = checkpoint.options.clone();
        request.limit = checkpoint.limit;
        request.anonymous = checkpoint.anonymous;
    }
    if request.anonymous && request.file_table.is_some() {
        let cause = "a table of files has paths, but an anonymous survey has none";
        return Err(Error::new(ErrorKind::Usage, "take the survey", cause).advise("omit --files or --anonymous"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let started = Instant::now();
    let taken_at = resumed.as_ref().map_or(now, |checkpoint| checkpoint.taken_at);
    let reference_time =
        resumed.as_ref().map_or(request.reference_time.unwrap_or(now), |checkpoint| checkpoint.reference_time);
    let elapsed_before = resumed.as_ref().map_or(0.0, |checkpoint| checkpoint.elapsed_seconds);
    let mut method_reason = String::new();
    if resumed.is_none() {
        let session = Moments { taken_at, reference_time, started };
        match inode_scan::choose(&request)? {
            Chosen::Walk { reason } => method_reason = reason,
            Chosen::Scan(scan) => match scan.take(&request, &session, progress) {
                Err(error) if request.method == MethodChoice::Auto => method_reason = error.to_string(),
                taken => return taken,
            },
        }
    }
    let settings = settings(&request)?;
    let mut collector =
        Collector::new(&request.options, request.threads, reference_time, request.limit).with_progress(progress);
    let table = match &resumed {
        Some(checkpoint) => checkpoint.file_table(),
        None => request.file_table.clone().map(|target| (target, 0)),
    };
    if let Some((target, parts)) = table {
        collector = collector.with_file_table(FileTable::create(&target, parts)?);
    }
    if let Some(checkpoint) = &resumed {
        checkpoint.restore(&mut collector).map_err(contradiction)?;
    }

    let session = |elapsed: Duration| Session {
        roots: &request.roots,
        options: &request.options,
        limit: request.limit,
        anonymous: request.anonymous,
        taken_at,
        reference_time,
        elapsed_seconds: elapsed_before + elapsed.as_secs_f64(),
    };
    let mut notes = Vec::new();
    if request.incremental.is_some() {
        notes.push("a walk reads everything: --incremental has no effect, and no names were stored".to_owned());
    }
    let mut warnings = Vec::new();
    let mut written = None;
    let complete = {
        let walk = begin(settings, &collector, resumed.as_ref())?;
        let mut last_checkpoint = Instant::now();
        walk.run(TICK, || {
            if progress.should_stop() {
                walk.stop();
                return;
            }
            let Some(CheckpointPlan { path, every: Some(every) }) = &request.checkpoints else { return };
            if last_checkpoint.elapsed() >= *every {
                let saved = walk.paused(
                    || collector.held(),
                    |state| Checkpoint::of(&session(started.elapsed()), &collector, state).write(path),
                );
                warnings.extend(saved.err());
                last_checkpoint = Instant::now();
            }
        });
        let complete = walk.is_finished();
        if !complete {
            walk.paused(
                || collector.held(),
                |state| {
                    if let Some(CheckpointPlan { path, .. }) = &request.checkpoints {
                        let checkpoint = Checkpoint::of(&session(started.elapsed()), &collector, state);
                        match checkpoint.write(path) {
                            Ok(()) => {
                                written = Some((path.clone(), checkpoint.file_table().map_or(0, |(_, parts)| parts)))
                            }
                            Err(error) => warnings.push(error),
                        }
                    }
                },
            );
        }
        collector.decide_links();
        if !complete {
            walk.paused(Vec::new, |state| state.finish_early(&collector));
        }
        complete
    };
    if let Some(table) = collector.take_file_table() {
        if complete {
            warnings.extend(table.complete().err());
        } else {
            table.abandon(written.as_ref().map_or(0, |(_, parts)| *parts));
        }
    }
    let elapsed_seconds = session(started.elapsed()).elapsed_seconds;
    let origin = origin(&request, taken_at, elapsed_seconds, complete);
    let origin = Origin { reference_time: Some(reference_time), method_reason, ..origin };
    let survey = named(collector.survey(), origin);
    Ok(Outcome { survey, checkpoint: written.map(|(path, _)| path), warnings, notes })
}

/// When a survey began, and what its ages are relative to.
pub(super) struct Moments {
    pub(super) taken_at: i64,
    pub(super) reference_time: i64,
    pub(super) started: Instant,
}

/// The survey with its origin and the names of owners, or without any names.
pub(crate) fn named(survey: Survey, origin: Origin) -> Survey {
    let mut survey = Survey { origin, ..survey };
    survey.places.iter_mut().for_each(|places| places.name_owners(owner_name));
    if survey.origin.anonymous {
        survey.places.iter_mut().for_each(|places| places.anonymise());
        survey.errors.anonymise();
    }
    survey
}

fn settings(request: &Request) -> Result<WalkOptions> {
    Ok(WalkOptions {
        roots: request.roots.clone(),
        threads: request.threads.max(1),
        one_file_system: request.options.one_file_system,
        include_snapshots: request.options.snapshots == Snapshots::Include,
        exclude: Exclude::new(&request.options.excluded)?,
    })
}

/// The name of an owner on this machine, escaped.
fn owner_name(uid: u32) -> Option<String> {
    uzers::get_user_by_uid(uid).map(|user| escape(user.name().as_bytes()))
}

fn contradiction(cause: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "resume from the checkpoint", cause).advise("start the survey again")
}

fn begin<'c>(
    settings: WalkOptions,
    collector: &'c Collector,
    resumed: Option<&Checkpoint>,
) -> Result<Walk<'c, Collector>> {
    if let Some(checkpoint) = resumed {
        let (walk, held) = Walk::resume(settings, collector, &checkpoint.walk).map_err(contradiction)?;
        checkpoint.restore_links(collector, held).map_err(contradiction)?;
        return Ok(walk);
    }
    let roots = settings.roots.len();
    let (walk, mut unusable) = Walk::start(settings, collector);
    if unusable.len() == roots && !unusable.is_empty() {
        let first = unusable.pop().unwrap_or_else(|| unreachable!("there is one"));
        return Err(Error::io("survey", &first.path, first.error));
    }
    for root in unusable {
        let path = display_root(&root.path).to_vec();
        collector.failed("survey", root.error, &|| path.clone());
    }
    Ok(walk)
}

pub(crate) fn origin(request: &Request, taken_at: i64, elapsed_seconds: f64, complete: bool) -> Origin {
    let roots: Vec<String> = request.roots.iter().map(|root| escape(display_root(root))).collect();
    let anonymous = request.anonymous;
    let excluded = if anonymous { Vec::new() } else { request.options.excluded.clone() };
    Origin {
        name: (!anonymous).then(|| roots.join(" + ")),
        roots: if anonymous { Vec::new() } else { roots },
        method: Method::Walk,
        method_reason: String::new(),
        inconsistencies: Vec::new(),
        without_names: false,
        facts: Vec::new(),
        resolution: Resolution::Exact,
        taken_at: Some(taken_at),
        reference_time: None,
        elapsed_seconds,
        complete,
        anonymous,
        options: Options { excluded, ..request.options.clone() },
    }
}
