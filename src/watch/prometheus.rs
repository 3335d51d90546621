//! The figures of a document as metrics, in the text format of Prometheus, for a node exporter's textfile collector.
//!
//! Label values are names from a file system: bytes. They are escaped as in survey files (SCHEMA.md), which is
//! reversible and leaves printable UTF-8 alone, and then as the format demands: backslash, quote and line feed.
//!
//! Source: Prometheus, "Exposition formats", text-based format 0.0.4.

use std::io::{self, Write};

use super::{DirectorySums, Document};
use crate::survey::places::{Kind, Tally};
use crate::units::escape;

/// Which metrics are wanted besides the sums of the mount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// By directory, down to the depth of the document.
    pub(crate) by_directory: bool,
    /// By owner.
    pub(crate) by_owner: bool,
}

/// A sum of files: name, help, value.
type Sum = (&'static str, &'static str, fn(&Tally) -> u128);

const SUMS: [Sum; 6] = [
    ("files", "Regular files", |sums| sums.files.into()),
    ("small_files", "Regular files up to the cutoff for small files", |sums| sums.small_files.into()),
    ("size_bytes", "Sum of the sizes of regular files", |sums| sums.size_bytes),
    ("small_size_bytes", "Sum of the sizes of small files", |sums| sums.small_size_bytes),
    ("allocated_bytes", "Bytes allocated to regular files", |sums| sums.allocated_bytes),
    ("overhead_bytes", "Sum of the positive overheads of regular files", |sums| sums.overhead_bytes),
];

/// Writes the metrics of `document`; `mount` is the root of the survey, escaped.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write(mount: &str, document: &Document<'_>, wanted: Wanted, out: &mut dyn Write) -> io::Result<()> {
    let Document { survey, directories, figures } = document;
    let labels = format!("mount=\"{}\"", quoted(mount));
    let root = directories.iter().find(|directory| directory.depth == 0).map_or_else(Tally::default, |row| row.sums);
    for (name, help, value) in SUMS {
        family(out, name, help, "gauge", &[(labels.clone(), value(&root).to_string())])?;
    }
    let count = |value: u64| [(labels.clone(), value.to_string())];
    let counts = &survey.counts;
    family(out, "directories", "Directories, with the root", "gauge", &count(counts.directories))?;
    family(out, "symlinks", "Symbolic links", "gauge", &count(counts.symlinks))?;
    family(out, "errors", "Files and directories that could not be read", "gauge", &count(counts.errors))?;
    if wanted.by_directory {
        let rows: Vec<_> = directories
            .iter()
            .map(|DirectorySums { path, sums, .. }| {
                let path = if path.is_empty() { ".".to_owned() } else { escape(path) };
                (format!("{labels},directory=\"{}\"", quoted(&path)), *sums)
            })
            .collect();
        by(out, "directory", "by directory, with everything below it", &rows)?;
    }
    if let (true, Some(places)) = (wanted.by_owner, &survey.places) {
        let row = |kind: Kind<u32>| match kind {
            Kind::Named(uid) => {
                let name = places.owner_names.get(&uid).cloned().unwrap_or_else(|| uid.to_string());
                format!("{labels},uid=\"{uid}\",owner=\"{}\"", quoted(&name))
            }
            Kind::Anonymous(rank) => format!("{labels},rank=\"{rank}\""),
        };
        let rows: Vec<_> = places.owners.ranked().into_iter().map(|(kind, sums)| (row(kind), sums)).collect();
        by(out, "owner", "by owner", &rows)?;
    }
    family(out, "watch_events_total", "Events read", "counter", &count(figures.events))?;
    family(out, "watch_looks_total", "Names and inodes looked at", "counter", &count(figures.looks))?;
    family(out, "watch_scans_total", "Scans of the whole tree", "counter", &count(figures.scans))?;
    let scans = count(figures.incremental_scans);
    family(out, "watch_incremental_scans_total", "Incremental scans after events were lost", "counter", &scans)?;
    let [inodes, names, pending] = [figures.known.0, figures.known.1, figures.pending].map(|count| count as u64);
    family(out, "watch_inodes", "Inodes that are remembered", "gauge", &count(inodes))?;
    family(out, "watch_names", "Names that are remembered", "gauge", &count(names))?;
    family(out, "watch_pending", "Inodes that will be looked at again", "gauge", &count(pending))?;
    let seconds = [(labels.clone(), figures.compose_seconds.to_string())];
    family(out, "watch_compose_seconds", "Time that the last document took to compose", "gauge", &seconds)?;
    let taken_at = survey.origin.taken_at.unwrap_or(0).max(0) as u64;
    family(out, "watch_timestamp_seconds", "When the figures were true, since 1970", "gauge", &count(taken_at))
}

fn by(out: &mut dyn Write, what: &str, help: &str, rows: &[(String, Tally)]) -> io::Result<()> {
    for (name, of, value) in SUMS {
        let rows: Vec<_> = rows.iter().map(|(labels, sums)| (labels.clone(), value(sums).to_string())).collect();
        family(out, &format!("{what}_{name}"), &format!("{of}, {help}"), "gauge", &rows)?;
    }
    Ok(())
}

/// All rows of one metric.
fn family(out: &mut dyn Write, name: &str, help: &str, kind: &str, rows: &[(String, String)]) -> io::Result<()> {
    writeln!(out, "# HELP granulo_{name} {help}.\n# TYPE granulo_{name} {kind}")?;
    rows.iter().try_for_each(|(labels, value)| writeln!(out, "granulo_{name}{{{labels}}} {value}"))
}

/// The value of a label without what would end it.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::Figures;
    use super::*;
    use crate::survey::Survey;

    #[test]
    fn hostile_names_stay_inside_their_labels() {
        let sums = Tally { files: 3, size_bytes: 1 << 70, ..Tally::default() };
        let row = |path: &[u8], depth| DirectorySums { path: path.to_vec(), depth, sums };
        let directories = [row(b"", 0), row(b"a\"} 1\nb\\\xff", 1)];
        let survey = Survey::default();
        let document = Document { survey: &survey, directories: &directories, figures: Figures::default() };
        let mut text = Vec::new();
        write("/m", &document, Wanted { by_directory: true, by_owner: true }, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("granulo_size_bytes{mount=\"/m\"} 1180591620717411303424\n"), "{text}");
        assert!(text.contains("granulo_directory_files{mount=\"/m\",directory=\".\"} 3\n"), "{text}");
        // The line feed, the backslash and the byte are escaped first, then quotes and the backslashes of these.
        let hostile = r#"granulo_directory_files{mount="/m",directory="a\"} 1\\nb\\\\\\xff"} 3"#;
        assert!(text.contains(hostile), "{text}");
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("granulo_")), "{text}");
    }
}
