//! Taking a survey: scan and collector together, with progress, checkpoints and interruption.

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::checkpoint::{self, Checkpoint, Session};
use super::collect::Collector;
use super::file_table::FileTable;
use super::inode_scan::{self, Chosen};
use super::ncdu_export::NcduExport;
pub use super::ncdu_export::NcduTarget;
use super::owner_ages::{MOST_BREAKS, are_breaks};
use super::part::Part;
pub use super::request::{CheckpointPlan, Incremental, MemoryBound, MethodChoice, Outcome, Request, Shard};
use super::request::{Moments, TICK, machines, named, origin};
use super::{Origin, Snapshots};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::scan::division::{Division, depth_for};
use crate::scan::exclude::Exclude;
use crate::scan::walk::{Walk, display_root};
use crate::scan::{Visitor, WalkOptions};

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
    let resumed = resumed.as_ref();
    refuse_contradictions(&request, resumed.is_some())?;
    let division = division(&request, resumed)?;
    let moments = moments(&request, resumed);
    let elapsed_before = resumed.map_or(0.0, |checkpoint| checkpoint.elapsed_seconds);
    let mut method_reason = String::new();
    if resumed.is_none() && division.is_none() {
        match inode_scan::choose(&request)? {
            Chosen::Walk { reason } => method_reason = reason,
            Chosen::Scan(scan) => match scan.take(&request, &moments, progress) {
                Err(error) if request.method == MethodChoice::Auto => method_reason = error.to_string(),
                taken => return taken,
            },
        }
    }
    let mut collector = collector(&request, division, resumed, &moments, progress)?;
    // Before the walk: what is mounted on a root may change meanwhile, or no longer answer.
    let root_identities: Vec<_> = request.roots.iter().map(|root| checkpoint::identity(root)).collect();
    let session = || Session {
        roots: &request.roots,
        root_identities: &root_identities,
        options: &request.options,
        division,
        limit: request.limit,
        anonymous: request.anonymous,
        taken_at: moments.taken_at,
        reference_time: moments.reference_time,
        elapsed_seconds: elapsed_before + moments.started.elapsed().as_secs_f64(),
    };
    let mut walked = walk(&request, &collector, resumed, &session, progress)?;
    let mut notes = finish_files(&mut collector, &mut walked);
    if request.incremental.is_some() {
        notes.insert(0, "a walk reads everything: --incremental has no effect, and no names were stored".to_owned());
    }
    let origin = Origin {
        machines: machines(&request),
        reference_time: Some(moments.reference_time),
        method_reason,
        ..origin(&request, moments.taken_at, session().elapsed_seconds, walked.complete)
    };
    let checkpoint = walked.written.filter(|_| !walked.complete);
    let survey = named(collector.survey(), origin);
    Ok(Outcome { survey, checkpoint, warnings: walked.warnings, notes })
}

/// Refuses options that exclude each other, or that an interrupted survey cannot continue with.
fn refuse_contradictions(request: &Request, is_resumed: bool) -> Result<()> {
    let refuse = |cause: String, advice: &str| {
        let error = Error::new(ErrorKind::Usage, "take the survey", cause);
        Err(if advice.is_empty() { error } else { error.advise(advice) })
    };
    if request.anonymous && request.file_table.is_some() {
        let cause = "a table of files has paths, but an anonymous survey has none";
        return refuse(cause.to_owned(), "omit --files-out or --anonymous");
    }
    if request.shard.is_some() && request.file_table.is_some() {
        let cause = "a table of files is of whole trees, but a shard is a part of them";
        return refuse(cause.to_owned(), "omit --files-out");
    }
    if let Some(cause) = request.ncdu.as_ref().and_then(|_| no_export(request, is_resumed)) {
        return refuse(cause.to_owned(), "omit --ncdu");
    }
    if !are_breaks(&request.options.age_breaks_days) {
        return refuse(format!("breaks of ages are 1 to {MOST_BREAKS} numbers of days that rise"), "");
    }
    Ok(())
}

/// When the survey was begun, by this session or the first one.
fn moments(request: &Request, resumed: Option<&Checkpoint>) -> Moments {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let started = Instant::now();
    match resumed {
        Some(checkpoint) => {
            Moments { taken_at: checkpoint.taken_at, reference_time: checkpoint.reference_time, started }
        }
        None => Moments { taken_at: now, reference_time: request.reference_time.unwrap_or(now), started },
    }
}

/// What counts the entries, with the files that are written meanwhile.
fn collector(
    request: &Request,
    division: Option<Division>,
    resumed: Option<&Checkpoint>,
    moments: &Moments,
    progress: &Progress,
) -> Result<Collector> {
    let mut collector = Collector::new(&request.options, request.threads, moments.reference_time, request.limit)
        .with_progress(progress);
    if division.is_some() {
        collector = collector.divided();
    }
    let table = match resumed {
        Some(checkpoint) => checkpoint.resume_file_table()?,
        None => request.file_table.as_deref().map(FileTable::create).transpose()?,
    };
    if let Some(table) = table {
        collector = collector.with_file_table(table);
    }
    if let Some(target) = request.ncdu.clone() {
        collector = collector.with_ncdu_export(NcduExport::begin(target, &request.roots, moments.taken_at)?);
    }
    if let Some(checkpoint) = resumed {
        checkpoint.restore(&mut collector).map_err(contradiction)?;
    }
    Ok(collector)
}

/// How a walk ended.
struct Walked {
    complete: bool,
    /// The last checkpoint that was written.
    written: Option<PathBuf>,
    /// Parts of the table of files that the last checkpoint needs, which may be the one that was resumed.
    table_parts: u32,
    warnings: Vec<Error>,
}

/// Walks the trees, or the part of them that `session` has, until everything was seen or `progress` is asked to stop.
fn walk<'r>(
    request: &'r Request,
    collector: &Collector,
    resumed: Option<&Checkpoint>,
    session: &dyn Fn() -> Session<'r>,
    progress: &Progress,
) -> Result<Walked> {
    let division = session().division;
    let parts_of = |checkpoint: &Checkpoint| checkpoint.file_table().map_or(0, |(_, parts)| parts);
    let table_parts = resumed.map_or(0, parts_of);
    let mut walked = Walked { complete: false, written: None, table_parts, warnings: Vec::new() };
    let walk = begin(settings(request, division)?, collector, resumed)?;
    let checkpoint = |state| Checkpoint::of(&session(), collector, state);
    let save = |path: &PathBuf, walked: &mut Walked| {
        let checkpoint = walk.paused(|| collector.held(), checkpoint);
        match checkpoint.and_then(|checkpoint| checkpoint.write(path).map(|()| parts_of(&checkpoint))) {
            Ok(parts) => (walked.written, walked.table_parts) = (Some(path.clone()), parts),
            Err(error) => walked.warnings.push(error),
        }
    };
    let mut last_checkpoint = Instant::now();
    walk.run(TICK, || {
        if progress.should_stop() {
            walk.stop();
            return;
        }
        let Some(CheckpointPlan { path, every: Some(every) }) = &request.checkpoints else { return };
        if last_checkpoint.elapsed() >= *every {
            save(path, &mut walked);
            last_checkpoint = Instant::now();
        }
    });
    walked.complete = walk.is_finished();
    if let Some(CheckpointPlan { path, .. }) = request.checkpoints.as_ref().filter(|_| !walked.complete) {
        save(path, &mut walked);
    }
    if let Some(shard) = request.shard.as_ref().filter(|_| walked.complete) {
        let checkpoint = walk.paused(|| collector.held(), checkpoint)?;
        Part::of(request, collector, checkpoint).write(&shard.target)?;
    }
    collector.decide_links();
    if !walked.complete || division.is_some() {
        walk.paused(Vec::new, |state| state.finish_early(collector));
    }
    Ok(walked)
}

/// Completes the files that were written during a walk, or removes what they have if it was interrupted; returns what
/// to say of it.
fn finish_files(collector: &mut Collector, walked: &mut Walked) -> Vec<String> {
    if let Some(table) = collector.take_file_table() {
        let parts = walked.table_parts;
        let finished = if walked.complete { table.complete(parts) } else { table.abandon(parts) };
        walked.warnings.extend(finished.err());
    }
    match (collector.take_ncdu_export(), walked.complete) {
        (None, _) => Vec::new(),
        (Some(export), true) => {
            walked.warnings.extend(export.complete().err());
            Vec::new()
        }
        (Some(_), false) => {
            vec!["the export for ncdu is not written: only a survey that is not interrupted has it".to_owned()]
        }
    }
}

/// Why a request cannot export every entry.
fn no_export(request: &Request, is_resumed: bool) -> Option<&'static str> {
    if request.anonymous {
        Some("an export for ncdu has names, but an anonymous survey has none")
    } else if request.shard.is_some() {
        Some("an export for ncdu is of whole trees, but a shard is a part of them")
    } else if is_resumed {
        Some("an export for ncdu needs the whole walk, but an interrupted one goes on")
    } else {
        None
    }
}

/// The part of the trees that is walked, if not all of them. A survey that is resumed keeps that of its checkpoint:
/// only the target of `request.shard` counts then.
fn division(request: &Request, resumed: Option<&Checkpoint>) -> Result<Option<Division>> {
    let division = match resumed {
        Some(checkpoint) => checkpoint.division,
        None => request.shard.as_ref().map(|shard| division_of(shard, request)).transpose()?,
    };
    if division.is_some() && request.shard.is_none() {
        let cause = "it is of a shard, which writes a partial survey";
        return Err(Error::new(ErrorKind::Usage, "resume the survey", cause).advise("add -o FILE"));
    }
    Ok(division)
}

/// The part of the trees that a shard walks.
fn division_of(shard: &Shard, request: &Request) -> Result<Division> {
    let depth = match shard.depth {
        Some(depth) => depth,
        None => depth_for(&settings(request, None)?, shard.count),
    };
    let division = Division { index: shard.number.wrapping_sub(1), count: shard.count, depth };
    let cause = || format!("there is no shard {} of {} that divides at depth {depth}", shard.number, shard.count);
    let error = || Error::new(ErrorKind::Usage, "take the survey", cause()).advise("number shards from 1: --shard 1/8");
    if division.is_valid() { Ok(division) } else { Err(error()) }
}

fn settings(request: &Request, division: Option<Division>) -> Result<WalkOptions> {
    Ok(WalkOptions {
        roots: request.roots.clone(),
        threads: request.threads.max(1),
        one_file_system: request.options.one_file_system,
        include_snapshots: request.options.snapshots == Snapshots::Include,
        exclude: Exclude::new(&request.options.excluded)?,
        division,
    })
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
    let (roots, division) = (settings.roots.len(), settings.division);
    let (walk, mut unusable) = Walk::start(settings, collector);
    if unusable.len() == roots && !unusable.is_empty() {
        let first = unusable.pop().unwrap_or_else(|| unreachable!("there is one"));
        return Err(Error::io("survey", &first.path, first.error));
    }
    for root in unusable {
        let path = display_root(&root.path).to_vec();
        // One of the parts of a divided walk reports it.
        if division.is_some_and(|division| !division.has(&path)) {
            continue;
        }
        collector.failed("survey", root.error, &|| path.clone());
    }
    Ok(walk)
}
