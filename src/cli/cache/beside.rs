//! The matrix of `granulo bench cache`, cell by cell, and what a trace predicts for it.

use std::path::Path;

use crate::bench::result::{self, CacheDetails, Details, Document};
use crate::error::{Error, ErrorKind, Result};
use crate::io::read_bounded;
use crate::mrc::study::{Beside, BesideCell, Found, Wanted};
use crate::units::{KIB, escape_path};

/// What the page cache holds at once, where the blocks of the file system are not larger.
const PAGE_BYTES: u64 = 4 * KIB;

/// A result to compare with.
#[derive(Debug)]
pub(super) struct Measured {
    name: String,
    document: Document,
}

impl Measured {
    /// Reads one.
    pub(super) fn open(path: &Path) -> Result<Measured> {
        const OPERATION: &str = "compare with";
        let text = read_bounded(OPERATION, path)?;
        let wrong = |cause: &str| {
            Err(Error::new(ErrorKind::NotRecognised, OPERATION, cause)
                .at(path)
                .advise("give what granulo bench cache -o wrote"))
        };
        match result::read(&text).transpose().map_err(|error| error.at(path))? {
            None => wrong("it is no result of a bench"),
            Some(document) if !matches!(document.details, Details::Cache(_)) => {
                wrong("it is the result of another bench")
            }
            Some(document) => Ok(Measured { name: escape_path(path), document }),
        }
    }

    fn details(&self) -> Option<&CacheDetails> {
        match &self.document.details {
            Details::Cache(details) => Some(details),
            _ => None,
        }
    }

    /// Time of a run besides that of the device: without a limit, less what is predicted for the device then, because that run began with
    /// cold caches too.
    pub(super) fn base_seconds(&self, wanted: &Wanted, found: &Found) -> f64 {
        let Some(details) = self.details() else { return 0.0 };
        let first = details.cells.iter().find(|cell| cell.subject == 0);
        let block_bytes = first.map_or(PAGE_BYTES, |cell| cell.block_bytes.max(PAGE_BYTES));
        let curve = found.curves.iter().find(|(block, _)| *block == block_bytes).map(|(_, curve)| curve);
        let on_device = curve.map_or(0.0, |curve| {
            let enough_bytes = curve.enough_blocks().saturating_mul(block_bytes);
            wanted.cell(curve, block_bytes, enough_bytes).seconds - wanted.base_seconds
        });
        (details.unlimited_seconds - on_device).max(0.0)
    }

    /// Block sizes that a curve is needed of.
    pub(super) fn block_sizes_bytes(&self) -> Vec<u64> {
        let cells = self.details().into_iter().flat_map(|details| &details.cells);
        cells.map(|cell| cell.block_bytes.max(PAGE_BYTES)).collect()
    }

    /// Its cells that have a time, beside what is predicted for them.
    pub(super) fn beside(&self, wanted: &Wanted, found: &Found) -> Option<Beside> {
        let details = self.details()?;
        let cells = details.cells.iter().filter_map(|cell| {
            let series = self.document.series.iter().find(|series| {
                series.subject == cell.subject
                    && series.measure == "run"
                    && series.level == Some(cell.cache_bytes as f64)
            })?;
            let block_bytes = cell.block_bytes.max(PAGE_BYTES);
            let (_, curve) = found.curves.iter().find(|(block, _)| *block == block_bytes)?;
            // The limit is for programs and page cache together.
            let cache_bytes = cell.cache_bytes.saturating_sub(cell.anonymous_bytes);
            let predicted = wanted.cell(curve, block_bytes, cache_bytes);
            Some(BesideCell {
                subject: self.document.subjects.get(cell.subject)?.name.clone(),
                limit_bytes: cell.cache_bytes,
                file_system_block_bytes: cell.block_bytes,
                cache_bytes,
                block_bytes,
                measured_seconds: series.spread.median,
                predicted_seconds: predicted.seconds,
                measured_read_bytes: cell.read_bytes,
                predicted_read_bytes: (predicted.misses.fetched_blocks * block_bytes as f64) as u64,
            })
        });
        Some(Beside { name: self.name.clone(), workload: details.workload.clone(), cells: cells.collect() })
    }
}
