//! The matrix of `granulo bench cache`, cell by cell, with the prediction from a trace.

use std::path::Path;

use crate::bench::result::{self, CacheCell, CacheDetails, Details, Document};
use crate::error::{Error, ErrorKind, Result};
use crate::io::read_bounded;
use crate::mrc::curve::Curve;
use crate::mrc::study::{Beside, BesideCell, Cell, StudyRequest, TraceResult};
use crate::units::{KIB, escape_path};

/// Unit of the page cache, where the blocks of the file system are not larger.
const PAGE_BYTES: u64 = 4 * KIB;

/// A result to compare with.
#[derive(Debug)]
pub(super) struct BenchResult {
    name: String,
    document: Document,
}

impl BenchResult {
    /// Reads a result.
    pub(super) fn open(path: &Path) -> Result<BenchResult> {
        const OPERATION: &str = "compare with";
        let text = read_bounded(OPERATION, path)?;
        let wrong = |cause: &str| {
            Err(Error::new(ErrorKind::NotRecognised, OPERATION, cause)
                .at(path)
                .advise("give a result written by granulo bench cache -o"))
        };
        match result::read(&text).transpose().map_err(|error| error.at(path))? {
            None => wrong("it is not a bench result"),
            Some(document) if !matches!(document.details, Details::Cache(_)) => {
                wrong("it is the result of a different bench")
            }
            Some(document) => Ok(BenchResult { name: escape_path(path), document }),
        }
    }

    fn details(&self) -> Option<&CacheDetails> {
        match &self.document.details {
            Details::Cache(details) => Some(details),
            _ => None,
        }
    }

    /// For each file system, the time of a run other than that of the device: the time of its run with the largest
    /// limit, minus the predicted time of the device for it.
    pub(super) fn bases_seconds(&self, request: &StudyRequest, found: &TraceResult) -> Vec<f64> {
        let base = |subject: usize| {
            let of = self.measured_cells(found).filter(|measured| measured.cell.subject == subject);
            let largest = of.max_by_key(|measured| measured.cell.limit_bytes)?;
            let on_device = largest.predicted(request).seconds - request.base_seconds;
            Some((largest.measured_seconds - on_device).max(0.0))
        };
        (0..self.document.subjects.len()).map(|subject| base(subject).unwrap_or(0.0)).collect()
    }

    /// Block sizes for which a curve is needed.
    pub(super) fn block_sizes_bytes(&self) -> Vec<u64> {
        let cells = self.details().into_iter().flat_map(|details| &details.cells);
        cells.map(|cell| cell.block_bytes.max(PAGE_BYTES)).collect()
    }

    /// Its cells that have a time, each with the curve that predicts it.
    fn measured_cells<'a>(&'a self, found: &'a TraceResult) -> impl Iterator<Item = MeasuredCell<'a>> {
        self.details().into_iter().flat_map(|details| &details.cells).filter_map(|cell| {
            let series = self.document.series.iter().find(|series| {
                series.subject == cell.subject
                    && series.measure == "run"
                    && series.level == Some(cell.limit_bytes as f64)
            })?;
            let block_bytes = cell.block_bytes.max(PAGE_BYTES);
            // `block_sizes_bytes` asked for it.
            let (_, curve) = found.curves.iter().find(|(block, _)| *block == block_bytes)?;
            // The limit covers programs and page cache together.
            let cache_bytes = cell.limit_bytes.saturating_sub(cell.anonymous_bytes);
            Some(MeasuredCell { cell, measured_seconds: series.spread.median, block_bytes, cache_bytes, curve })
        })
    }

    /// Its cells that have a time, with their predictions; uses the given non-device time of each file system, or else
    /// the requested one.
    pub(super) fn beside(
        &self,
        request: &StudyRequest,
        found: &TraceResult,
        bases_seconds: Option<&[f64]>,
    ) -> Option<Beside> {
        let cells = self.measured_cells(found).filter_map(|measured| {
            let MeasuredCell { cell, measured_seconds, block_bytes, cache_bytes, .. } = measured;
            let predicted = measured.predicted(request);
            let base_seconds = bases_seconds.and_then(|bases| bases.get(cell.subject).copied());
            let base_seconds = base_seconds.unwrap_or(request.base_seconds);
            Some(BesideCell {
                subject: self.document.subjects.get(cell.subject)?.name.clone(),
                limit_bytes: cell.limit_bytes,
                file_system_block_bytes: cell.block_bytes,
                cache_bytes,
                block_bytes,
                base_seconds,
                measured_seconds,
                predicted_seconds: predicted.seconds - request.base_seconds + base_seconds,
                measured_read_bytes: cell.read_bytes,
                predicted_read_bytes: (predicted.misses.fetched_blocks * block_bytes as f64) as u64,
            })
        });
        let details = self.details()?;
        let is_fitted = bases_seconds.is_some();
        Some(Beside { name: self.name.clone(), workload: details.workload.clone(), is_fitted, cells: cells.collect() })
    }
}

/// A measured cell with the inputs of its prediction.
struct MeasuredCell<'a> {
    cell: &'a CacheCell,
    measured_seconds: f64,
    block_bytes: u64,
    cache_bytes: u64,
    curve: &'a Curve,
}

impl MeasuredCell<'_> {
    fn predicted(&self, request: &StudyRequest) -> Cell {
        request.cell(self.curve, self.block_bytes, self.cache_bytes)
    }
}
