//! Sources: anything that describes a population. A survey file, an fsstats CSV, a list of another program, a table of
//! files, or the name of a published table.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::measure::Measure;
use super::{Method, Origin, Resolution, Survey, file, fsstats, listed, part};
use crate::distribution::Distribution;
use crate::distribution::published::{self, Published};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{READ_LIMIT_BYTES, read_bounded};
use crate::plan::systems::{self, FactKind, System, SystemPopulation};
use crate::units::escape;

/// The name of standard input as a source.
pub const STANDARD_INPUT: &str = "-";
/// The longest list: 400 million sizes, or 30 million entries in an export of ncdu.
const LONGEST_LIST_BYTES: u64 = 4 << 30;
/// What is read of a large file to decide whether it is a list.
const HEAD_BYTES: usize = 4096;

/// A population, with remarks on how it was read.
#[derive(Debug)]
pub struct Source {
    /// The population.
    pub survey: Survey,
    /// Sentences for people.
    pub warnings: Vec<String>,
}

/// Opens a source: a published table, a measured system (in upper or lower case), `-` for standard input, else a file,
/// whose format is detected from its content. Names win over files: `./NAME` is the file.
///
/// # Errors
/// Any error of reading; [`ErrorKind::NotRecognised`] for a file of another kind; [`ErrorKind::NotFound`] with the
/// published names where no file exists either.
pub fn open(source: &Path) -> Result<Source> {
    if let Some(published) = source.to_str().and_then(published::find) {
        return Ok(Source { survey: of_published(published), warnings: Vec::new() });
    }
    if let Some(system) = source.to_str().and_then(systems::find) {
        return of_system(&system);
    }
    if source.as_os_str() == STANDARD_INPUT {
        let input = Path::new("standard input");
        return of_bytes(&read_long(std::io::stdin().lock(), input)?, input);
    }
    if listed::table::looks_like(source) {
        let (mut survey, warnings) = listed::table::read(source)?;
        survey.origin.name = Some(name_of(source));
        return Ok(Source { survey, warnings });
    }
    if let Some(file) = long_list(source) {
        return of_bytes(&read_long(file, source)?, source);
    }
    let bytes = read_bounded("read the source", source).map_err(|error| match error.kind() {
        ErrorKind::NotFound => error
            .advise(format!("name a survey, an fsstats CSV, one of {}, or a system of granulo show panasas", names())),
        _ if source.is_dir() => Error::new(ErrorKind::Usage, "read the source", "it is a directory")
            .at(source)
            .advise("survey it first: granulo survey DIR -o FILE"),
        _ => error,
    })?;
    of_bytes(&bytes, source)
}

/// A file that is too long for a result of granulo, if it begins as a list.
fn long_list(source: &Path) -> Option<File> {
    let length = std::fs::metadata(source).ok().filter(std::fs::Metadata::is_file)?.len();
    if length <= READ_LIMIT_BYTES {
        return None;
    }
    let mut head = [0; HEAD_BYTES];
    File::open(source).ok()?.read_exact(&mut head).ok()?;
    if listed::begins_as_list(&head) { File::open(source).ok() } else { None }
}

fn read_long(input: impl Read, source: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(LONGEST_LIST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| Error::io("read", source, error))?;
    if bytes.len() as u64 <= LONGEST_LIST_BYTES {
        return Ok(bytes);
    }
    Err(Error::new(ErrorKind::NotRecognised, "read", "it is longer than 4 GiB").at(source))
}

/// The name of a population in a file.
fn name_of(source: &Path) -> String {
    escape(source.file_name().map_or(&b""[..], |name| std::os::unix::ffi::OsStrExt::as_bytes(name)))
}

/// The source in a file; `source` is its path, for its name and errors.
fn of_bytes(bytes: &[u8], source: &Path) -> Result<Source> {
    let name = name_of(source);
    // The JSON of dust is an object, too, without a schema.
    if file::looks_like(bytes) && !listed::begins_as_list(bytes) {
        return Ok(Source { survey: file::read(bytes, source)?, warnings: Vec::new() });
    }
    if fsstats::looks_like(bytes) {
        let (survey, warnings) = fsstats::read(bytes, &name).map_err(|error| error.at(source))?;
        return Ok(Source { survey, warnings });
    }
    if part::looks_like(bytes) {
        let error = Error::new(ErrorKind::Usage, "read the source", "it is one shard of a survey").at(source);
        return Err(error.advise("add all shards up first: granulo merge SHARDS -o FILE.json"));
    }
    if let Some(read) = listed::read(bytes, &name) {
        let (survey, warnings) = read.map_err(|error| error.at(source))?;
        return Ok(Source { survey, warnings });
    }
    let cause = if bytes.is_empty() {
        "it is empty"
    } else {
        "it is neither a granulo survey nor an fsstats CSV, nor a list that granulo reads"
    };
    Err(Error::new(ErrorKind::NotRecognised, "read the source", cause)
        .at(source)
        .advise("write one with: granulo survey PATH -o FILE"))
}

/// The published names, for messages.
fn names() -> String {
    let names: Vec<&str> = published::all().iter().map(|published| published.name).collect();
    names.join(", ")
}

/// A system of which some figures are published (Welch and Noer 2013), and no distribution.
fn of_system(system: &System) -> Result<Source> {
    let SystemPopulation { sizes, facts } = system.population()?;
    let mut warnings = vec![
        "only some figures are published (Welch and Noer 2013): between them, sizes are assumed to have the \
         distribution of vu-2005"
            .to_owned(),
    ];
    let contradictions = facts.iter().filter(|fact| fact.kind == FactKind::Contradiction);
    warnings.extend(contradictions.map(|fact| format!("the source contradicts itself: {}", fact.words)));
    let mut survey = of_sizes(system.name, &sizes);
    survey.counts.directories = system.directories;
    survey.origin.facts = facts;
    Ok(Source { survey, warnings })
}

/// A published table as a survey, with sizes only.
pub fn of_published(published: &Published) -> Survey {
    of_sizes(published.name, published.distribution())
}

fn of_sizes(name: &str, sizes: &Distribution) -> Survey {
    let mut survey = Survey {
        origin: Origin {
            name: Some(name.to_owned()),
            method: Method::Published,
            resolution: Resolution::Buckets,
            ..Origin::default()
        },
        ..Survey::default()
    };
    survey.distributions.of_mut(Measure::FileSize).merge(sizes);
    survey.counts.files = sizes.count() as u64;
    survey.counts.empty_files = sizes.up_to(0).count as u64;
    survey
}
