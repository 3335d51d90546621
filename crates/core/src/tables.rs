//! Published tables: the files in `data/`, built in, as typed rows.
//!
//! A table begins with lines of comment (`#`) that name its source and explain its columns; then come a line of column
//! names and the rows, separated by commas. Only the last column may contain commas. The rows here have the units that
//! the columns have; what the figures mean is for the modules that use them.
//!
//! The tables are part of the program: a damaged one is a defect, so reading it panics, and a test reads them all.

use std::str::FromStr;

/// A row of Fig. 1 of Tanenbaum, Herder and Bos (2006): the files up to a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveRow {
    /// The size.
    pub size_bytes: u64,
    /// Per cent of the files of that size or smaller: VU 1984, VU 2005, the web server of 2005.
    pub percent: [f64; 3],
}

/// A row of their Fig. 3: a decile of the files of the VU in 2005.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightRow {
    /// Size of the largest file in the decile.
    pub largest_bytes: u64,
    /// Per cent of the disk in files up to that size, with blocks of 1, 2, 4, 8 and 16 KiB.
    pub weight_percent: [f64; 5],
}

/// A row of their Fig. 4: a decile of the operations at the VU in 2005.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationsRow {
    /// Per cent of the operations.
    pub percent: u64,
    /// The largest read among them.
    pub read_bytes: u64,
    /// The largest write among them.
    pub write_bytes: u64,
}

/// A row of their Fig. 5: the time to compile many programs, for one size of the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheRow {
    /// Size of the cache, in MiB.
    pub cache_mib: f64,
    /// Seconds with blocks of 1, 2, 4 and 8 KiB.
    pub seconds: [f64; 4],
}

/// A row of Tables I and II of Welch and Noer (2013): a file system of a Panasas customer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PanasasRow {
    /// Kind of customer, and number.
    pub system: &'static str,
    /// Size of all files together, in `unit`.
    pub user_data: f64,
    /// `TB` or `GB`, which are TiB and GiB.
    pub unit: &'static str,
    /// Number of files.
    pub files: u64,
    /// Mean size of a file.
    pub mean_kib: u64,
    /// Size of the largest file.
    pub max_kib: u64,
    /// Number of directories.
    pub directories: u64,
    /// Entries of a directory, on average.
    pub directory_entries_mean: u64,
    /// Entries of the largest directory.
    pub directory_entries_max: u64,
    /// Length of a name in bytes, on average.
    pub name_length_mean: u64,
    /// Length of the longest name.
    pub name_length_max: u64,
}

/// What the text of the same paper says of these systems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PanasasStatement {
    /// A system, a range of them, all of a kind, or a word for several; the head of the table explains it.
    pub systems: &'static str,
    /// What the statement is about.
    pub measure: &'static str,
    /// First size of the range.
    pub low_bytes: Option<u64>,
    /// First size above it.
    pub high_bytes: Option<u64>,
    /// The figure is at least this,
    pub least: Option<f64>,
    /// and at most this.
    pub most: Option<f64>,
    /// How the statement is used.
    pub role: &'static str,
    /// Section of the paper.
    pub section: &'static str,
    /// Its words.
    pub quote: &'static str,
}

/// A row of Table III of the same paper: a benchmark on disks, and on disks with SSDs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PanasasBenchmark {
    /// Its name.
    pub benchmark: &'static str,
    /// Unit of the two figures.
    pub unit: &'static str,
    /// Everything on disks.
    pub all_disk: f64,
    /// Small files and metadata on SSDs.
    pub hybrid: f64,
    /// Response times of both, in milliseconds.
    pub response_ms: Option<(f64, f64)>,
}

/// A point of a profile of Geriatrix (Kadekodi, Nagarajan and Ganger 2018).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeriatrixPoint {
    /// Name of the profile.
    pub profile: &'static str,
    /// What the point is about: `size`, `age` or `dir`.
    pub kind: &'static str,
    /// The size, age or depth.
    pub x: f64,
    /// Its weight.
    pub weight: u64,
}

/// A row of Vorontsov's article on composite files: a file system of an external disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompositeRow {
    /// Operating system.
    pub system: &'static str,
    /// File system.
    pub file_system: &'static str,
    /// Seconds to read one composite file.
    pub one_file_seconds: f64,
    /// Seconds to read 50,000 files.
    pub many_files_seconds: f64,
}

/// The text of a table in `data/`.
macro_rules! table {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/", $name))
    };
}

/// Fig. 1 of Tanenbaum, Herder and Bos.
pub fn curve() -> Vec<CurveRow> {
    read(table!("tanenbaum_fig1_cdf.csv"), |row| CurveRow {
        size_bytes: row.number("size_bytes"),
        percent: ["vu_1984_pct", "vu_2005_pct", "web_2005_pct"].map(|column| row.number(column)),
    })
}

/// Fig. 3 of Tanenbaum, Herder and Bos.
pub fn weights() -> Vec<WeightRow> {
    read(table!("tanenbaum_fig3_deciles.csv"), |row| WeightRow {
        largest_bytes: row.number("largest_bytes"),
        weight_percent: ["1k", "2k", "4k", "8k", "16k"].map(|block| row.number(&format!("cum_weight_{block}_pct"))),
    })
}

/// Fig. 4 of Tanenbaum, Herder and Bos.
pub fn operations() -> Vec<OperationsRow> {
    read(table!("tanenbaum_fig4_dynamic_deciles.csv"), |row| OperationsRow {
        percent: row.number("decile_pct"),
        read_bytes: row.number("read_bytes"),
        write_bytes: row.number("write_bytes"),
    })
}

/// Fig. 5 of Tanenbaum, Herder and Bos.
pub fn cache_seconds() -> Vec<CacheRow> {
    read(table!("tanenbaum_fig5_cache_seconds.csv"), |row| CacheRow {
        cache_mib: row.number("cache_mb"),
        seconds: ["1k", "2k", "4k", "8k"].map(|block| row.number(&format!("block_{block}_s"))),
    })
}

/// Tables I and II of Welch and Noer.
pub fn panasas_systems() -> Vec<PanasasRow> {
    read(table!("panasas_systems.csv"), |row| PanasasRow {
        system: row.text("system"),
        user_data: row.number("user_data"),
        unit: row.text("unit"),
        files: row.number("files"),
        mean_kib: row.number("avg_len_kb"),
        max_kib: row.number("max_len_kb"),
        directories: row.number("directories"),
        directory_entries_mean: row.number("dir_entries_avg"),
        directory_entries_max: row.number("dir_entries_max"),
        name_length_mean: row.number("name_len_avg"),
        name_length_max: row.number("name_len_max"),
    })
}

/// The statements in the text of Welch and Noer.
pub fn panasas_statements() -> Vec<PanasasStatement> {
    read(table!("panasas_facts.csv"), |row| PanasasStatement {
        systems: row.text("system"),
        measure: row.text("measure"),
        low_bytes: row.optional("low_bytes"),
        high_bytes: row.optional("high_bytes"),
        least: row.optional("least"),
        most: row.optional("most"),
        role: row.text("use"),
        section: row.text("section"),
        quote: row.text("quote"),
    })
}

/// Table III of Welch and Noer.
pub fn panasas_benchmarks() -> Vec<PanasasBenchmark> {
    read(table!("panasas_performance.csv"), |row| PanasasBenchmark {
        benchmark: row.text("benchmark"),
        unit: row.text("unit"),
        all_disk: row.number("all_disk"),
        hybrid: row.number("hybrid"),
        response_ms: row.optional("all_disk_ms").zip(row.optional("hybrid_ms")),
    })
}

/// The profiles of Geriatrix.
pub fn geriatrix_points() -> Vec<GeriatrixPoint> {
    read(table!("geriatrix_profiles.csv"), |row| GeriatrixPoint {
        profile: row.text("profile"),
        kind: row.text("kind"),
        x: row.number("x"),
        weight: row.number("weight"),
    })
}

/// The measurements of Vorontsov.
pub fn composite_files() -> Vec<CompositeRow> {
    read(table!("vorontsov_composite_files.csv"), |row| CompositeRow {
        system: row.text("system"),
        file_system: row.text("file_system"),
        one_file_seconds: row.number("one_file_s"),
        many_files_seconds: row.number("many_files_s"),
    })
}

/// A line of a table, with the names of its columns.
struct Row {
    columns: Vec<&'static str>,
    fields: Vec<&'static str>,
}

/// The rows of a table.
fn read<T>(table: &'static str, row: impl Fn(&Row) -> T) -> Vec<T> {
    let mut lines = table.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let read = |line: &'static str| {
        let fields: Vec<&str> = line.splitn(columns.len(), ',').map(str::trim).collect();
        assert_eq!(fields.len(), columns.len(), "the built-in table is sound: {line}");
        row(&Row { columns: columns.clone(), fields })
    };
    lines.map(read).collect()
}

impl Row {
    fn text(&self, column: &str) -> &'static str {
        let at = self.columns.iter().position(|name| *name == column);
        self.fields[at.unwrap_or_else(|| unreachable!("the built-in table has the column {column}"))]
    }

    fn number<T: FromStr>(&self, column: &str) -> T {
        self.optional(column).unwrap_or_else(|| unreachable!("the built-in table has a number in {column}"))
    }

    /// `None` if the field is empty.
    fn optional<T: FromStr>(&self, column: &str) -> Option<T> {
        let text = self.text(column);
        let number = || text.parse().unwrap_or_else(|_| unreachable!("a number in {column}: {text}"));
        (!text.is_empty()).then(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read_whole() {
        let rows = [
            curve().len(),
            weights().len(),
            operations().len(),
            cache_seconds().len(),
            panasas_systems().len(),
            panasas_benchmarks().len(),
            composite_files().len(),
        ];
        assert_eq!(rows, [28, 10, 10, 5, 65, 4, 5]);
        assert!(panasas_statements().len() > 30 && geriatrix_points().len() > 100);
    }

    #[test]
    fn every_table_names_its_source() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data")).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let tables: Vec<_> = paths.filter(|path| path.extension().is_some_and(|name| name == "csv")).collect();
        assert_eq!(tables.len(), 9);
        for path in tables {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# ") && text.contains("\n# Source: "), "{}", path.display());
        }
    }

    #[test]
    fn only_the_last_column_may_contain_commas() {
        let read = |table| read(table, |row| (row.optional::<u64>("a"), row.text("b")));
        assert_eq!(read("# x\na,b\n1,2,3\n,\n"), [(Some(1), "2,3"), (None, "")]);
        assert!(std::panic::catch_unwind(|| read("a,b\n1\n")).is_err());
        assert!(std::panic::catch_unwind(|| read("a,b\nx,2\n")).is_err());
        assert!(std::panic::catch_unwind(|| read("a,c\n1,2\n")).is_err());
    }
}
