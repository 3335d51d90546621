//! The published measurements: M. Vorontsov, "Single file vs multi file storage", on an external USB disk, each after a
//! reboot.

use crate::bench::result::PackPublished;
use crate::tables::{CompositeRow, composite_files};

/// All rows, in the order of the article.
pub(crate) fn all() -> Vec<PackPublished> {
    let row = |row: CompositeRow| PackPublished {
        system: row.system.to_owned(),
        file_system: row.file_system.to_owned(),
        one_file_seconds: row.one_file_seconds,
        many_files_seconds: row.many_files_seconds,
    };
    composite_files().into_iter().map(row).collect()
}
