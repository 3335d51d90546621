//! The published measurements: M. Vorontsov, "Single file vs multi file storage", on an external USB disk, each after a
//! reboot.

use crate::bench::result::PackPublished;

/// System, file system, seconds for one composite file, seconds for 50,000 files.
const MEASURED: [(&str, &str, f64, f64); 5] = [
    ("Ubuntu 12", "ext4", 35.547, 63.381),
    ("Ubuntu 12", "fat", 29.342, 148.746),
    ("Windows 7", "fat", 32.806, 166.069),
    ("Ubuntu 12", "ntfs", 30.196, 54.629),
    ("Windows 7", "ntfs", 38.383, 211.933),
];

/// All rows, in the order of the article.
pub(crate) fn all() -> Vec<PackPublished> {
    let row = |&(system, file_system, one_file_seconds, many_files_seconds): &(&str, &str, f64, f64)| PackPublished {
        system: system.to_owned(),
        file_system: file_system.to_owned(),
        one_file_seconds,
        many_files_seconds,
    };
    MEASURED.iter().map(row).collect()
}
