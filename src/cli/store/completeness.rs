//! Whether the store shows everything that it acknowledged. Every command reports this first, on standard error, in its
//! exit status and in its JSON, which also says which granulo wrote it, where and when, and why a store cannot be read.
//!
//! A command opens one store, so the findings of the open are kept for the whole process. A repair opens it twice: with
//! a rebuilt index, it may find more.

use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use serde::Serialize;
use serde_json::Value;

use crate::cli::output::DocumentArguments;
use crate::cli::{Ended, output};
use crate::error::{ErrorKind, Result};
use crate::locks::lock;
use crate::program;
use crate::report::fields::Fields;
use crate::report::page::Part;
use crate::store::{Completeness, Store};
use crate::survey::file::format_time;
use crate::survey::machine::host;
use crate::units::{escape_path, format_counted};

static FOUND: Mutex<Option<Completeness>> = Mutex::new(None);
/// The store's directory, absolute and escaped.
static HOME: OnceLock<String> = OnceLock::new();
/// When a document was first written: what is streamed to a file, and again to be printed, is the same document.
static WRITTEN_AT: OnceLock<String> = OnceLock::new();

/// Remembers of which store the documents of this command are.
pub(super) fn are_of(home: &Path) {
    let absolute = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    let _ = HOME.set(escape_path(&absolute));
}

/// Reports what may be missing and what a crash left behind, before anything else about the store.
pub(super) fn say_completeness(store: &Store) {
    say(store.completeness());
    match store.recovered().detached {
        0 => {}
        detached => output::warn(&format!(
            "{} had no parent: {} now in lost+found, with everything in {}",
            format_counted(detached, "directory", "directories"),
            if detached == 1 { "it is" } else { "they are" },
            if detached == 1 { "it" } else { "them" }
        )),
    }
}

/// Like [`say_completeness`], with the findings of an open.
pub(super) fn say(found: &Completeness) {
    if lock(&FOUND).replace(found.clone()).as_ref() != Some(found) {
        found.lines().iter().for_each(|line| output::warn(line));
    }
}

/// Reports segments that were not moved because a device is missing.
pub(super) fn say_postponed(segments: usize) {
    if segments > 0 {
        output::warn(&format!(
            "{} until missing devices return or are rebuilt: new ones would have fewer copies",
            format_counted(segments as u64, "segment stays", "segments stay")
        ));
    }
}

/// How a command ended, given what is missing: 1, even if it did what was requested.
pub(super) fn with_completeness(ended: Ended) -> Ended {
    ended.and(lock(&FOUND).as_ref().is_none_or(Completeness::is_complete))
}

#[derive(Debug, Serialize)]
struct MissingRecord {
    cause: &'static str,
    segments: Option<(u64, u64)>,
    batches: Option<(u64, u64)>,
    after_nanoseconds: Option<i64>,
    devices: Vec<u16>,
}

#[derive(Debug, Serialize)]
struct TailRecord {
    batches: u64,
    quarantined_bytes: u64,
}

/// The same in documents.
#[derive(Debug, Serialize)]
pub(super) struct CompletenessRecord {
    state: &'static str,
    missing: Vec<MissingRecord>,
    tail: Option<TailRecord>,
}

/// The findings of the open; complete if nothing was opened.
pub(super) fn completeness_record() -> CompletenessRecord {
    let found = lock(&FOUND).clone().unwrap_or_default();
    let missing = found.missing.iter().map(|missing| MissingRecord {
        cause: missing.cause.name(),
        segments: missing.segments.map(|(first, last)| (first.0, last.0)),
        batches: missing.batches,
        after_nanoseconds: missing.after_nanoseconds,
        devices: missing.devices.iter().map(|device| device.0).collect(),
    });
    let tail = found.tail.map(|tail| TailRecord { batches: tail.batches, quarantined_bytes: tail.quarantined_bytes });
    CompletenessRecord { state: found.name(), missing: missing.collect(), tail }
}

/// Which granulo wrote a document, where and when, and of which store; for those that are written in parts, too.
#[derive(Debug, Serialize)]
pub(super) struct ProgramRecord {
    granulo_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granulo_commit: Option<&'static str>,
    host: String,
    written_at: &'static str,
    /// `None` where a command makes a store, which says it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    home: Option<&'static str>,
}

/// This granulo, on this machine, now.
pub(super) fn program_record() -> ProgramRecord {
    ProgramRecord {
        granulo_version: program::VERSION,
        granulo_commit: program::commit(),
        host: host(),
        written_at: WRITTEN_AT.get_or_init(|| format_time(crate::cli::now())),
        home: HOME.get().map(String::as_str),
    }
}

#[derive(Serialize)]
struct With<'d, D: Serialize> {
    #[serde(flatten)]
    document: &'d D,
    #[serde(flatten)]
    program: ProgramRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    completeness: Option<CompletenessRecord>,
}

impl<'d, D: Serialize> With<'d, D> {
    fn of_open_store(document: &'d D) -> With<'d, D> {
        With { document, program: program_record(), completeness: Some(completeness_record()) }
    }
}

/// Prints a document with these findings.
pub(super) fn print_json(document: &impl Serialize) -> Result<Ended> {
    output::print_json(&With::of_open_store(document))
}

/// Writes and prints a document with these findings, as asked for; it is made only then.
pub(super) fn emit<D: Serialize>(arguments: &DocumentArguments, document: impl FnOnce() -> D) -> Result<()> {
    if !arguments.is_wanted() {
        return Ok(());
    }
    arguments.emit(&With::of_open_store(&document()))
}

/// The same, with a page of its own that is made of the value.
pub(super) fn emit_with(
    arguments: &DocumentArguments,
    document: &impl Serialize,
    part: impl FnOnce(Value) -> io::Result<Part>,
) -> Result<()> {
    let document = With::of_open_store(document);
    arguments.emit_with(&document, || part(serde_json::to_value(&document)?))
}

/// Writes and prints a document as [`emit`] does of a store that was not opened.
pub(super) fn emit_unopened(arguments: &DocumentArguments, document: &impl Serialize) -> Result<()> {
    arguments.emit(&With { document, program: program_record(), completeness: None })
}

#[derive(Debug, Serialize)]
struct ErrorDocument {
    schema: &'static str,
    command: &'static str,
    error: ErrorRecord,
}

#[derive(Debug, Serialize)]
struct ErrorRecord {
    kind: &'static str,
    message: String,
    path: Option<String>,
    device: Option<u16>,
}

/// A document in place of the one that a command could not print or write; the error is reported as ever. Files that
/// have the result keep it.
pub(super) fn or_error_document(
    command: &'static str,
    arguments: &DocumentArguments,
    ended: Result<Ended>,
) -> Result<Ended> {
    if let (true, Err(error)) = (arguments.is_wanted(), &ended) {
        let record = ErrorRecord {
            kind: kind_name(error.kind()),
            message: error.to_string(),
            path: error.path().map(escape_path),
            device: error.device(),
        };
        let document = ErrorDocument { schema: "granulo/store-error/1", command, error: record };
        let unknown = CompletenessRecord { state: "unknown", missing: Vec::new(), tail: None };
        let completeness = if lock(&FOUND).is_some() { completeness_record() } else { unknown };
        let document = With { document: &document, program: program_record(), completeness: Some(completeness) };
        let arguments = arguments.left();
        // The error matters more than that it cannot be printed, or written: it may be just that.
        if let Some(path) = &arguments.output {
            let _ = output::write_json(path, &document);
        }
        if let Some(path) = &arguments.report {
            let _ = output::write_fields_page(path, Fields::of(&document));
        }
        if arguments.json {
            let _ = output::print_json(&document);
        }
    }
    ended
}

/// The kind of an error in documents.
fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::NotFound => "not_found",
        ErrorKind::PermissionDenied => "permission_denied",
        ErrorKind::NotRecognised => "not_recognised",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::NewerVersion => "newer_version",
        ErrorKind::NoSpace => "no_space",
        ErrorKind::Busy => "busy",
        ErrorKind::ReadOnly => "read_only",
        ErrorKind::Exists => "exists",
        ErrorKind::Lost => "lost",
        ErrorKind::Interrupted => "interrupted",
        _ => "io",
    }
}
