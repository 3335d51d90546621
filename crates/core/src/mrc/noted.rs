//! Figures recorded at each depth: a column for each kind, only as long as needed, so that a trace that only reads
//! touches one memory location per reference, and needs 8 bytes per depth.

use super::request::Kind;

/// The depth of a block that is referenced for the first time.
pub(super) const NEVER: u32 = u32::MAX;

/// What was recorded at a depth; a cache of `C` blocks has the sum over depths of `C` or more.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Bin {
    pub(super) reads: f64,
    pub(super) partial_writes: f64,
    pub(super) whole_writes: f64,
    pub(super) transfers: f64,
    pub(super) written: f64,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    Reads,
    PartialWrites,
    WholeWrites,
    /// Blocks that are fetched by a transfer that another block began.
    Joined,
    /// Blocks written back.
    Written,
}

const FIGURES: usize = 5;

impl Bin {
    pub(super) fn add(&mut self, other: &Bin, factor: f64) {
        self.reads += other.reads * factor;
        self.partial_writes += other.partial_writes * factor;
        self.whole_writes += other.whole_writes * factor;
        self.transfers += other.transfers * factor;
        self.written += other.written * factor;
    }

    pub(super) fn misses(&self) -> f64 {
        self.reads + self.partial_writes + self.whole_writes
    }
}

impl Figure {
    pub(super) fn of(kind: Kind) -> Figure {
        match kind {
            Kind::Read => Figure::Reads,
            Kind::PartialWrite => Figure::PartialWrites,
            Kind::WholeWrite => Figure::WholeWrites,
        }
    }
}

/// All columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Noted {
    columns: [Vec<f64>; FIGURES],
    /// Figures that are the same for caches of every size.
    always: [f64; FIGURES],
}

impl Noted {
    #[inline]
    pub(super) fn add(&mut self, depth: u32, figure: Figure, number: f64) {
        let column = &mut self.columns[figure as usize];
        match column.get_mut(depth as usize) {
            Some(place) => *place += number,
            None if depth == NEVER => self.always[figure as usize] += number,
            None => {
                lengthen(column, depth as usize);
                column[depth as usize] += number;
            }
        }
    }

    /// Scales depths and counts down by a factor.
    pub(super) fn scale(&mut self, factor: f64, scaled: impl Fn(u32) -> u32) {
        for column in &mut self.columns {
            let mut new = Vec::new();
            if let Some(last) = column.len().checked_sub(1) {
                new.resize(scaled(last as u32) as usize + 1, 0.0);
            }
            for (depth, number) in column.iter().enumerate().filter(|(_, number)| **number != 0.0) {
                new[scaled(depth as u32) as usize] += number * factor;
            }
            *column = new;
        }
        self.always.iter_mut().for_each(|number| *number *= factor);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.capacity() * size_of::<f64>()).sum()
    }

    /// Accumulates in place: each depth gets the sum over that depth and deeper ones.
    pub(super) fn sum_up(&mut self) {
        for column in &mut self.columns {
            let mut sum = 0.0;
            for number in column.iter_mut().rev() {
                sum += *number;
                *number = sum;
            }
            let used = column.iter().rposition(|number| *number != 0.0).map_or(0, |last| last + 1);
            column.truncate(used);
        }
    }

    /// The figures at a depth.
    pub(super) fn at(&self, depth: usize) -> Bin {
        bin(self.columns.each_ref().map(|column| column.get(depth).copied().unwrap_or(0.0)))
    }

    /// The figures that are the same for caches of every size.
    pub(super) fn always(&self) -> Bin {
        bin(self.always)
    }

    /// Depths up to the last non-empty one.
    pub(super) fn depths(&self) -> usize {
        self.columns.iter().map(Vec::len).max().unwrap_or(0)
    }
}

fn bin([reads, partial_writes, whole_writes, joined, written]: [f64; FIGURES]) -> Bin {
    Bin { reads, partial_writes, whole_writes, transfers: reads + partial_writes - joined, written }
}

#[cold]
fn lengthen(column: &mut Vec<f64>, at: usize) {
    let wanted = (at + 1 + at / 8).max(1 << 10);
    column.reserve_exact(wanted - column.len());
    column.resize(wanted, 0.0);
}
