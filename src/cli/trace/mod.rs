//! `granulo trace`: what is read and written, not only what is stored.

mod live;
pub(super) mod opening;
mod read;
mod record;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::now;
use super::progress::during;
use super::{Ended, output};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{AtomicFile, open_target};
use crate::plan::operations::Operations;
use crate::progress::{Progress, Snapshot};
use crate::report;
use crate::trace::columnar::Writer;
use crate::trace::summary::{Collector, Document, Options, Summary};
use crate::trace::{Below, Format, Input, Source, detect, source_of};
use crate::units::{escape_path, format_count, format_share, format_size, fraction};

/// Analyse what is read and written: by kind, size, pattern and time
///
/// A trace is the output of strace or another recorder; the .gtrace format of granulo is compact and fast to read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo trace record -o make.gtrace -- make -j2\n  granulo trace read make.gtrace\n  \
    granulo plan usr.json --trace make.gtrace\n\nExit status: 0 success; 1 finished with problems (in the trace, or interrupted); 2 failed; \
    trace record returns that of the command."
)]
pub(super) struct TraceArguments {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Read(read::ReadArguments),
    Record(record::RecordArguments),
}

impl TraceArguments {
    pub(super) fn run(self) -> Result<Ended> {
        match self.command {
            TraceCommand::Read(arguments) => arguments.run(),
            TraceCommand::Record(arguments) => arguments.run(),
        }
    }
}

/// How a trace is counted.
#[derive(Debug, Args)]
struct Counting {
    /// Only files at or below this path; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Selection")]
    below: Vec<PathBuf>,
    /// Count mapped ranges as read
    #[arg(long, help_heading = "Selection")]
    maps_as_reads: bool,
    /// For traces without opens: idle seconds after which a new whole-file operation begins
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = gap, help_heading = "Selection")]
    gap: f64,
}

fn gap(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("it must be a number of seconds from 0 to 1000000000".to_owned()),
    }
}

impl Counting {
    fn options(&self) -> Options {
        Options { gap_ns: (self.gap * 1e9) as u64, maps_are_reads: self.maps_as_reads }
    }

    /// The source without what should not count; see [`only_below`].
    fn of(&self, source: Box<dyn Source>, progress: Option<&Progress>) -> Result<Box<dyn Source>> {
        only_below(source, &self.below, progress)
    }
}

/// The operations of a source on files at or below some paths; all of them without paths. They end early if `progress`
/// is asked to stop: without one, where the source itself ends.
pub(super) fn only_below(
    source: Box<dyn Source>,
    paths: &[PathBuf],
    progress: Option<&Progress>,
) -> Result<Box<dyn Source>> {
    use std::os::unix::ffi::OsStrExt;
    if paths.is_empty() {
        return Ok(source);
    }
    let path = |path: &PathBuf| -> Result<Vec<u8>> {
        // Names in traces contain no symbolic links, where the recorder could resolve them; the same holds for paths
        // that exist.
        let path = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let path = path.map_err(|error| Error::io("find", Path::new("the working directory"), error))?;
        Ok(path.as_os_str().as_bytes().to_vec())
    };
    let paths = paths.iter().map(path).collect::<Result<Vec<_>>>()?;
    let below = Below::new(source, paths);
    Ok(Box::new(match progress {
        Some(progress) => below.with_progress(progress.clone()),
        None => below,
    }))
}

/// The destination of a trace in granulo's own format.
struct TraceOutput {
    path: PathBuf,
    /// What is renamed to the path at the end; none for a pipe.
    target: Option<AtomicFile>,
    writer: Writer<std::io::BufWriter<std::fs::File>>,
}

impl TraceOutput {
    fn create(path: &Path, source: &dyn Source) -> Result<TraceOutput> {
        let fail = |error| Error::io("write", path, error);
        let (file, target) = open_target(path)?;
        let out = std::io::BufWriter::with_capacity(1 << 18, file);
        let writer = Writer::new(out, source.origin()).map_err(fail)?;
        Ok(TraceOutput { path: path.to_owned(), target, writer })
    }

    fn finish(self, source: &dyn Source) -> Result<()> {
        let operations = self.writer.finish(source).map_err(|error| Error::io("write", &self.path, error))?;
        let done = format!("wrote {}: {} operations", escape_path(&self.path), format_count(operations.into()));
        let Some(target) = self.target else {
            output::note(&done);
            return Ok(());
        };
        let size_bytes = target.file().and_then(|file| file.metadata()).map_or(0, |metadata| metadata.len());
        target.commit()?;
        output::note(&format!("{done}, {}", format_size(size_bytes.into())));
        Ok(())
    }
}

/// Reads a source to its end, or until `progress` is asked to stop, with a progress line unless `quiet`; also writes it
/// to `copy`, if there is one.
fn pass(
    source: &mut dyn Source,
    options: Options,
    copy: Option<&mut TraceOutput>,
    progress: &Progress,
    quiet: bool,
) -> Result<Summary> {
    during(quiet, progress, how_far, || take_all(source, options, copy, progress))
}

fn take_all(
    source: &mut dyn Source,
    options: Options,
    mut copy: Option<&mut TraceOutput>,
    progress: &Progress,
) -> Result<Summary> {
    const LOOK_EVERY: u64 = 1 << 12;
    let mut collector = Collector::new(options, source.origin().detail);
    while let Some(operation) = source.next()? {
        collector.take(&operation);
        if let Some(copy) = &mut copy {
            copy.writer.push(&operation, source).map_err(|error| Error::io("write", &copy.path, error))?;
        }
        if collector.operations().is_multiple_of(LOOK_EVERY) {
            if progress.should_stop() {
                break;
            }
            count(collector.operations(), source, progress);
        }
    }
    Ok(collector.finish())
}

/// Reports the operations taken from a source, and how far it has been read.
pub(super) fn count(operations: u64, source: &dyn Source, progress: &Progress) {
    let (read_bytes, size_bytes) = source.progress();
    progress.set(0, read_bytes);
    progress.set_total(size_bytes.unwrap_or(0));
    progress.set_operations(operations);
}

fn how_far(now: &Snapshot) -> String {
    let text = format!("{} operations", format_count(now.operations.into()));
    match now.total {
        0 => text,
        size => format!("{text} · {}", format_share(fraction(now.bytes, size.into()))),
    }
}

/// Prints the summary of a trace.
fn show(name: &str, summary: &Summary, source: &dyn Source, json: bool) -> Result<Ended> {
    match json {
        true => output::print_json(&Document::new(name, summary, source)),
        false => output::print(|out| report::trace::write_trace(name, summary, source, out)),
    }
}

/// Writes the page of a trace.
fn write_report(page: &Path, name: &str, summary: &Summary, source: &dyn Source) -> Result<()> {
    let trace = (Document::new(name, summary, source), report::trace::sentences(summary, source));
    output::write_page(page, |out| report::trace_page::write(&[trace], now(), out))
}

/// An error for an empty trace.
fn refuse_nothing(summary: &Summary, source: &dyn Source, path: &Path) -> Result<()> {
    if summary.operations > 0 {
        return Ok(());
    }
    let first = source.problems().list().first().map(|problem| format!("{}: {}", problem.kind.words(), problem.first));
    let cause = match first {
        Some(first) => format!("it contains no file operations ({first})"),
        None => "it contains no file operations".to_owned(),
    };
    Err(Error::new(ErrorKind::NotRecognised, "read the trace", cause).at(path))
}

/// A trace for a page.
pub(super) struct WholeTrace {
    pub(super) page: (Document, Vec<String>),
    /// Whether all of it could be read.
    pub(super) is_sound: bool,
}

/// The summary of a trace, with sentences about it; `None` for a file that is not a trace, or a table, which may be
/// anything.
///
/// # Errors
/// Any error of reading it.
pub(super) fn whole(path: &Path) -> Result<Option<WholeTrace>> {
    if !path.is_file() {
        return Ok(None);
    }
    let input = Input::open(path)?;
    let Some(format) = detect(input.head()).filter(|format| *format != Format::Csv) else { return Ok(None) };
    let mut source = source_of(input, Some(format))?;
    let summary = pass_all(&mut *source, path)?;
    let document = Document::new(&escape_path(path), &summary, &*source);
    let page = (document, report::trace::sentences(&summary, &*source));
    Ok(Some(WholeTrace { page, is_sound: say_if_damaged(&*source, path) }))
}

/// Reports that parts of a trace could not be read; returns whether there are none.
fn say_if_damaged(source: &dyn Source, path: &Path) -> bool {
    let is_sound = source.problems().is_empty();
    if !is_sound {
        output::warn(&format!("parts of {} could not be read; see granulo trace read", escape_path(path)));
    }
    is_sound
}

/// The whole source, which must not be empty; an error if it was interrupted.
fn pass_all(source: &mut dyn Source, path: &Path) -> Result<Summary> {
    let progress = super::signals::progress()?;
    let summary = pass(source, Options::default(), None, &progress, false)?;
    if progress.should_stop() {
        return Err(Error::new(ErrorKind::Usage, "read the trace", "interrupted").at(path));
    }
    refuse_nothing(&summary, source, path)?;
    Ok(summary)
}

/// The sizes of whole-file operations of a trace, for a plan, and whether all of it could be read; `None` where the
/// file is not a trace.
///
/// # Errors
/// Any error of reading it; a trace with neither reads nor writes.
pub(super) fn operations(path: &Path) -> Result<Option<(Operations, bool)>> {
    let input = Input::open(path)?;
    let Some(format) = detect(input.head()) else { return Ok(None) };
    let mut source = source_of(input, Some(format))?;
    let summary = pass_all(&mut *source, path)?;
    let span_seconds = Some(summary.span_seconds());
    let (reads, writes) = (summary.sides.reads.whole, summary.sides.writes.whole);
    for (sizes, what) in [(&reads, "reads"), (&writes, "writes")] {
        if sizes.is_empty() {
            output::warn(&format!("{} has no {what}: their shares are 0", escape_path(path)));
        }
    }
    let is_sound = say_if_damaged(&*source, path);
    Ok(Some((Operations { name: escape_path(path), reads, writes, span_seconds }, is_sound)))
}
