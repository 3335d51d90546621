//! The figures of the paper, shown beside the results.

use serde::Serialize;

use crate::tables::{PanasasBenchmark, panasas_benchmarks};

/// A figure for disks, and for disks with SSDs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// One of `sfs`, `check`, `list`, `reads`.
    pub benchmark: String,
    /// Either `operations/s` or `seconds`.
    pub unit: String,
    /// Everything on disks.
    pub all_disk: f64,
    /// Small files and metadata on SSDs.
    pub hybrid: f64,
    /// Response times of both, in milliseconds.
    pub response_ms: Option<(f64, f64)>,
}

impl Figure {
    /// Speed-up of the hybrid.
    pub(crate) fn speed_up(&self) -> f64 {
        if self.unit == "seconds" { self.all_disk / self.hybrid } else { self.hybrid / self.all_disk }
    }
}

/// Table III of Welch and Noer (2013).
pub(crate) fn table_3() -> Vec<Figure> {
    let figure = |row: PanasasBenchmark| {
        let PanasasBenchmark { benchmark, unit, all_disk, hybrid, response_ms } = row;
        Figure { benchmark: benchmark.to_owned(), unit: unit.to_owned(), all_disk, hybrid, response_ms }
    };
    panasas_benchmarks().into_iter().map(figure).collect()
}

/// The figure of one benchmark.
pub(crate) fn figure(benchmark: &str) -> Option<Figure> {
    table_3().into_iter().find(|figure| figure.benchmark == benchmark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_ups_are_those_that_the_table_prints() {
        let printed = [("sfs", "2.1"), ("check", "8.1"), ("list", "3.4"), ("reads", "7.9")];
        assert_eq!(table_3().len(), printed.len());
        for (benchmark, speed_up) in printed {
            let figure = figure(benchmark).unwrap();
            assert_eq!(format!("{:.1}", figure.speed_up()), speed_up, "{figure:?}");
        }
        assert_eq!(figure("sfs").unwrap().response_ms, Some((9.3, 7.6)));
        assert_eq!(figure("list").unwrap().response_ms, None);
    }
}
