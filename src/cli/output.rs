//! Output: results to standard output, messages to standard error.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgMatches, Args};
use rustix::termios::tcgetwinsize;

use super::{Ended, usage_error};
use crate::error::{Error, Result};
use crate::io::{check_target, write_atomically};
use crate::report::fields::Fields;
use crate::report::fields_page;
use crate::report::page::Part;
use crate::report::paragraphs::prose;
use crate::units::escape_path;

/// Bytes of a document that are written in one call.
const DOCUMENT_BUFFER_BYTES: usize = 64 << 10;

/// Where a result goes as a document and as a page, besides the text for people.
#[derive(Debug, Clone, Args)]
pub(super) struct DocumentArguments {
    /// Write the result to this file as JSON
    #[arg(short, long, value_name = "FILE.json", value_parser = target())]
    pub(super) output: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write a self-contained HTML page of the result to this file
    #[arg(long, value_name = "FILE.html", value_parser = target())]
    pub(super) report: Option<PathBuf>,
    /// Which of the files have the result, for all clones.
    #[arg(skip)]
    written: Arc<Written>,
}

#[derive(Debug, Default)]
struct Written {
    output: AtomicBool,
    report: AtomicBool,
}

/// Reads the name of an output file, and checks before the work is done that it can be written.
pub(super) fn target() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|path: OsString| {
        let path = PathBuf::from(path);
        check_target(&path).map(|()| path)
    })
}

impl DocumentArguments {
    /// Where the result of a command goes if its output file is something else.
    pub(super) fn without_output(json: bool, report: Option<PathBuf>) -> DocumentArguments {
        DocumentArguments { output: None, json, report, written: Arc::default() }
    }

    /// Without the files that have the result: an error that follows must not replace it.
    pub(super) fn left(&self) -> DocumentArguments {
        let is_left = |written: &AtomicBool| !written.load(Ordering::Relaxed);
        DocumentArguments {
            output: self.output.clone().filter(|_| is_left(&self.written.output)),
            report: self.report.clone().filter(|_| is_left(&self.written.report)),
            ..self.clone()
        }
    }

    /// Whether the result is needed as a document.
    pub(super) fn is_wanted(&self) -> bool {
        self.json || self.output.is_some() || self.report.is_some()
    }

    /// Writes a result to the files, and prints it, as asked for; the page has its facts and tables.
    pub(super) fn emit(&self, value: &impl serde::Serialize) -> Result<()> {
        self.emit_with(value, || fields_page::part("", &Fields::of(value)?))
    }

    /// The same with a page of its own.
    pub(super) fn emit_with(
        &self,
        value: &impl serde::Serialize,
        part: impl FnOnce() -> io::Result<Part>,
    ) -> Result<()> {
        if let Some(path) = &self.output {
            write_json(path, value)?;
            self.written.output.store(true, Ordering::Relaxed);
        }
        if let Some(path) = &self.report {
            write_atomically(path, |out| part()?.write(super::now(), out))?;
            self.written.report.store(true, Ordering::Relaxed);
        }
        if self.json {
            print_json(value)?;
        }
        Ok(())
    }
}

/// Where the result of long work goes, which is printed even if a file cannot be written.
pub(super) struct LongResult<'a> {
    pub(super) output: Option<&'a Path>,
    pub(super) report: Option<&'a Path>,
    pub(super) json: bool,
}

impl LongResult<'_> {
    /// Writes a result to the files, and prints it as JSON or as text; returns whether all files could be written.
    ///
    /// # Errors
    /// Any error of printing.
    pub(super) fn emit(
        &self,
        value: &impl serde::Serialize,
        page: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<bool> {
        let mut failed = Vec::new();
        if let Some(path) = self.output {
            match write_json(path, value) {
                Ok(()) => note(&format!("wrote {}", escape_path(path))),
                Err(error) => failed.push(error),
            }
        }
        if let Some(path) = self.report {
            failed.extend(write_page(path, page).err());
        }
        let printed = print_result(self.json, value, text);
        failed.iter().for_each(complain);
        printed.map(|_| failed.is_empty())
    }
}

/// Options that name a file to write.
pub(super) const TARGETS: [&str; 9] =
    ["output", "report", "fsstats", "files", "ncdu", "checkpoint", "prometheus", "keep_strace", "log"];

/// Refuses `-` as a file to write, and one file for the document and the page of a command, before the work is done.
pub(super) fn check_targets(matches: &ArgMatches) -> Result<()> {
    if let Some((_, below)) = matches.subcommand() {
        return check_targets(below);
    }
    let path = |option: &str| matches.try_get_one::<PathBuf>(option).ok().flatten();
    if TARGETS.iter().any(|option| path(option).is_some_and(|target| target.as_os_str() == "-")) {
        // Sources are read from it, but standard output has what is printed.
        return Err(usage_error("'-' does not name a file to write")
            .advise("print a result with --json, or write to /dev/stdout; a file of that name is ./-"));
    }
    match (path("output"), path("report")) {
        (Some(output), Some(page)) if output == page => Err(two_results(page)),
        _ => Ok(()),
    }
}

/// The error for a file that is named for two results.
pub(super) fn two_results(path: &Path) -> Error {
    usage_error(format!("two results would be written to {}", escape_path(path)))
}

/// Refuses to overwrite a source with a result that is made from it.
pub(super) fn refuse_to_replace<'t>(results: &[PathBuf], targets: impl IntoIterator<Item = &'t PathBuf>) -> Result<()> {
    let file = |path: &Path| std::fs::metadata(path).ok().filter(Metadata::is_file);
    let identity = |path: &Path| file(path).map(|found| (found.dev(), found.ino()));
    let outputs: Vec<(u64, u64)> = targets.into_iter().filter_map(|target| identity(target)).collect();
    match results.iter().find(|path| identity(path).is_some_and(|identity| outputs.contains(&identity))) {
        Some(path) => Err(usage_error("the output would replace a result").at(path).advise("write it to another file")),
        None => Ok(()),
    }
}

/// Columns for results: what the variable `COLUMNS` says, else those of the terminal on standard output, else 80.
pub(super) fn columns() -> usize {
    known_columns().unwrap_or(80)
}

/// Columns that the variable `COLUMNS` or the terminal says.
pub(super) fn known_columns() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    asked.or_else(|| terminal_columns(io::stdout()))
}

/// Columns of a terminal, which may have 0 rows if only its columns were set.
pub(super) fn terminal_columns(terminal: impl AsFd) -> Option<usize> {
    tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Prints a result; a reader that closes the pipe early is not a failure.
pub(super) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Ended> {
    finish(io::BufWriter::new(anstream::stdout().lock()), write).map(|_| Ended::Well)
}

/// Returns whether there is still a reader: one that closes the pipe early is not a failure.
fn finish(mut out: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<bool> {
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io("write to", Path::new("standard output"), error)),
    }
}

/// Prints what a command found: in the width of a terminal, and as one line for programs.
pub(super) fn print_words(words: &str) -> Result<Ended> {
    print(|out| if io::stdout().is_terminal() { prose(words, out) } else { writeln!(out, "{words}") })
}

/// Prints a document for programs, which has no colours to strip.
pub(super) fn print_document(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Ended> {
    print_one_of_many(write).map(|_| Ended::Well)
}

/// Prints one of many documents; returns whether there is still a reader.
pub(super) fn print_one_of_many(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<bool> {
    finish(io::BufWriter::with_capacity(DOCUMENT_BUFFER_BYTES, io::stdout().lock()), write)
}

/// Prints a result as one line of JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<Ended> {
    print_document(|out| {
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Prints a result as one line of JSON, or as text.
pub(super) fn print_result(
    as_json: bool,
    value: &impl serde::Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<Ended> {
    if as_json { print_json(value) } else { print(text) }
}

/// Writes a result to a file as one line of JSON.
pub(super) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    write_atomically(path, |out| {
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Writes a page that was asked for, and says so.
pub(super) fn write_page(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_atomically(path, write)?;
    note(&format!("wrote {}", escape_path(path)));
    Ok(())
}

/// Writes the page of a document without a page of its own: its facts and tables.
pub(super) fn write_fields_page(path: &Path, fields: serde_json::Result<Fields>) -> Result<()> {
    write_atomically(path, |out| fields_page::part("", &fields?)?.write(super::now(), out))
}

/// Reports a failure.
pub(super) fn complain(error: &Error) {
    say("error", anstyle::AnsiColor::Red, &error.to_string());
}

/// Reports something unexpected.
pub(super) fn warn(text: &str) {
    say("warning", anstyle::AnsiColor::Yellow, text);
}

/// Reports a remark.
pub(super) fn note(text: &str) {
    say("note", anstyle::AnsiColor::Cyan, text);
}

fn say(word: &str, color: anstyle::AnsiColor, text: &str) {
    let style = color.on_default().bold();
    let mut stderr = anstream::stderr();
    let line = match stderr.current_choice() {
        anstream::ColorChoice::Never => format!("granulo: {word}: {text}\n"),
        _ => format!("{style}granulo: {word}:{style:#} {text}\n"),
    };
    // In one piece: the granulo on the other side of a copy may be writing to the same place.
    let _ = stderr.write_all(line.as_bytes());
}
