//! What to survey and how, what comes of it, and what a survey says of its origin: for walks and inode scans alike.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::machine::{self, Machine};
use super::ncdu_export::NcduTarget;
use super::places::DEFAULT_LIMIT;
use super::{Method, Options, Origin, Resolution, Survey};
use crate::error::Error;
use crate::scan::default_threads;
use crate::scan::walk::display_root;
use crate::units::{escape, escape_path};

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
    /// Name of the survey; `None`: its roots.
    pub name: Option<String>,
    /// Leave out every name and path, and the machine.
    pub anonymous: bool,
    /// What ages are relative to, seconds since 1970; `None`: now.
    pub reference_time: Option<i64>,
    /// Where to write one row per file.
    pub file_table: Option<PathBuf>,
    /// Where to write every entry for ncdu.
    pub ncdu: Option<NcduTarget>,
    /// Where and how often to write checkpoints. An inode scan writes none.
    pub checkpoints: Option<CheckpointPlan>,
    /// Which part of the trees to survey, for processes that divide them; `None`: all.
    pub shard: Option<Shard>,
    /// How to enumerate files.
    pub method: MethodChoice,
    /// Whether names may be omitted where that is faster: an inode scan then reads no directories.
    pub without_names: bool,
    /// Where the names of directories are known from an earlier inode scan, and where to store those of this one.
    pub incremental: Option<Incremental>,
    /// The bound on the memory of an inode scan; `None`: none. A walk needs none.
    pub memory: Option<MemoryBound>,
}

impl Request {
    /// Files and directories, each with everything below it, with the defaults of `granulo survey`.
    pub fn new(roots: Vec<PathBuf>) -> Request {
        Request {
            roots,
            options: Options::default(),
            threads: default_threads(),
            limit: DEFAULT_LIMIT,
            name: None,
            anonymous: false,
            reference_time: None,
            file_table: None,
            ncdu: None,
            checkpoints: None,
            shard: None,
            method: MethodChoice::Auto,
            without_names: false,
            incremental: None,
            memory: None,
        }
    }
}

/// How much memory may be used, and where the rest goes.
#[derive(Debug, Clone)]
pub struct MemoryBound {
    /// The size of the process in memory.
    pub bytes: u64,
    /// Where an unnamed file is created.
    pub directory: PathBuf,
}

/// One of several processes that divide trees among them.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Its number, from 1.
    pub number: u32,
    /// Number of processes, at least `number`.
    pub count: u32,
    /// Depth of the directories that one process walks whole; `None`: the smallest at which there are enough.
    pub depth: Option<u32>,
    /// Where the partial survey is written.
    pub target: PathBuf,
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
    /// The checkpoint. The caller [discards](super::Checkpoint::discard) it once the results are written.
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

/// When a survey began, and what its ages are relative to.
pub(super) struct Moments {
    pub(super) taken_at: i64,
    pub(super) reference_time: i64,
    pub(super) started: Instant,
}

/// The origin of a survey by a walk, without the machine.
pub(crate) fn origin(request: &Request, taken_at: i64, elapsed_seconds: f64, complete: bool) -> Origin {
    let roots: Vec<String> = request.roots.iter().map(|root| escape(display_root(root))).collect();
    let anonymous = request.anonymous;
    let excluded = if anonymous { Vec::new() } else { request.options.excluded.clone() };
    Origin {
        name: (!anonymous).then(|| request.name.clone().unwrap_or_else(|| roots.join(" + "))),
        machines: Vec::new(),
        directory: directory(request),
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

/// The directory in which relative roots are, unless nothing may say where they are.
pub(super) fn directory(request: &Request) -> Option<String> {
    let is_needed = !request.anonymous && request.roots.iter().any(|root| root.is_relative());
    is_needed.then(std::env::current_dir)?.ok().map(|directory| escape_path(&directory))
}

/// The machine that surveys the roots, unless nothing may say which it is.
pub(crate) fn machines(request: &Request) -> Vec<Machine> {
    if request.anonymous { Vec::new() } else { vec![machine::here(&request.roots)] }
}

/// The survey with its origin and the names of owners, or without any names.
pub(crate) fn named(mut survey: Survey, origin: Origin) -> Survey {
    survey.places.iter_mut().for_each(|places| places.name_owners(owner_name));
    of_origin(survey, origin)
}

/// The survey, whose owners have names if they can, with its origin, or without any names.
pub(super) fn of_origin(survey: Survey, origin: Origin) -> Survey {
    let mut survey = Survey { origin, ..survey };
    if survey.origin.anonymous {
        // It may name a device or a root.
        survey.origin.method_reason.clear();
        survey.places.iter_mut().for_each(|places| places.anonymise());
        survey.tree.iter_mut().for_each(|tree| tree.anonymise());
        survey.errors.anonymise();
    }
    survey
}

/// The name of an owner on this machine, escaped.
pub(super) fn owner_name(uid: u32) -> Option<String> {
    uzers::get_user_by_uid(uid).map(|user| escape(user.name().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anonymous_survey_does_not_say_why_a_device_was_not_read() {
        let method_reason = "cannot read the inodes of /dev/mapper/acme-home: Permission denied".to_owned();
        for anonymous in [false, true] {
            let origin = Origin { anonymous, method_reason: method_reason.clone(), ..Origin::default() };
            assert_eq!(named(Survey::default(), origin).origin.method_reason.is_empty(), anonymous);
        }
    }
}
