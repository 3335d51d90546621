//! A distribution for a system of which only some figures are published: every one of them, and the shape of `vu-2005`
//! for the rest.
//!
//! The sizes are cut into *pieces* at the powers of two and at the edges of every statement. Of each piece the number
//! of files and their mean are assumed, those of `vu-2005`: up to 64 KiB as they are, above with all sizes multiplied
//! by one factor. Then
//!
//! 1. numbers of files are multiplied, range by range and 50 times, after which every published share of the files
//!    holds (iterative proportional fitting: of all distributions that hold the shares, the nearest by relative
//!    entropy); before each round, the octave of a published mode is raised above its neighbours;
//! 2. shares of the allocated space follow from moving files between pieces, without changing the number of files in a
//!    range whose share is published: by one factor for the pieces of the range, or, where the number of files in the
//!    range is published, by a power of their size;
//! 3. the factor above 64 KiB is solved so that all files together have the bytes of the table.
//!
//! The largest file is one of exactly its size, the files are whole, and what rounding leaves of the bytes goes to
//! pieces above 64 KiB. So files, bytes, the largest file and every share of files are exact; shares of the
//! space are within a tenth of a percentage point.

use std::sync::OnceLock;

use super::text::{Measure, Statement};
use super::{SHAPE, System};
use crate::distribution::{Distribution, Interval, published, spread};
use crate::layout::Layout;
use crate::units::{KIB, SMALL_FILE_BYTES};

/// First size above the small ones, whose sizes are not multiplied.
const LARGE_BYTES: u64 = SMALL_FILE_BYTES + 1;
/// First size above the smallest bucket of fsstats.
const SECOND_BUCKET_BYTES: u64 = 2 * KIB;
/// How many times as many files a mode has as the larger of the octaves beside it: assumed, as the paper does not say.
const MODE_FACTOR: f64 = 1.1;
/// How far a share of the space may be from its bounds once the files are whole, and how often that is corrected.
const SPACE_TOLERANCE: f64 = 2e-4;
const CORRECTIONS: u32 = 4;

/// A distribution, and by what the assumed sizes above 64 KiB were multiplied.
pub(super) struct Fitted {
    pub(super) sizes: Distribution,
    pub(super) factor: f64,
}

/// Fits `statements` of a system whose files need the space of `layout`. `shape` is a system with the shares that all
/// systems of a group have; itself, where there is no group.
pub(super) fn fit(system: &System, shape: &System, statements: &[&Statement], layout: &dyn Layout) -> Fitted {
    let mut facts: Vec<Constraint> =
        statements.iter().map(|statement| Constraint::of(statement, shape, layout)).collect();
    let mut fitted = solve(system, shape, &facts, layout);
    for _ in 0..CORRECTIONS {
        let mut is_off = false;
        for (fact, statement) in facts.iter_mut().zip(statements).filter(|(fact, _)| fact.kind == Bound::Space) {
            let share = statement.figure(&fitted.sizes, layout).unwrap_or_default();
            let off = share.clamp(statement.least.unwrap_or(0.0), statement.most.unwrap_or(1.0)) - share;
            (fact.least, fact.most) = (fact.least + off, fact.most + off);
            is_off |= off.abs() > SPACE_TOLERANCE;
        }
        if !is_off {
            break;
        }
        fitted = solve(system, shape, &facts, layout);
    }
    fitted
}

/// The factor with which all files have the bytes of the table.
fn solve(system: &System, shape: &System, facts: &[Constraint], layout: &dyn Layout) -> Fitted {
    let bytes = shape.size_bytes.saturating_sub(shape.max_bytes.into()) as f64;
    let (mut low, mut high) = (1e-4f64.ln(), 1e9f64.ln());
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if Fit::with_factor(middle.exp(), shape, facts, layout).bytes() < bytes {
            low = middle;
        } else {
            high = middle;
        }
    }
    let factor = low.exp();
    Fitted { sizes: Fit::with_factor(factor, shape, facts, layout).lay_out(system), factor }
}

/// A statement, as bounds of a range of sizes.
struct Constraint {
    kind: Bound,
    low_bytes: u64,
    high_bytes: u64,
    least: f64,
    most: f64,
}

#[derive(PartialEq, Eq)]
enum Bound {
    /// Bounds are numbers of files.
    Files,
    /// Bounds are shares.
    Space,
    Mode,
}

impl Constraint {
    fn of(statement: &Statement, system: &System, layout: &dyn Layout) -> Constraint {
        let (low_bytes, high_bytes) = statement.sizes(layout);
        let (kind, unit) = match statement.measure {
            Measure::Mode => (Bound::Mode, 1.0),
            Measure::FilesFraction => (Bound::Files, system.files as f64),
            Measure::Files | Measure::FilesBySpace => (Bound::Files, 1.0),
            _ => (Bound::Space, 1.0),
        };
        Constraint {
            kind,
            low_bytes,
            high_bytes: high_bytes.unwrap_or(u64::MAX),
            least: statement.least.map_or(0.0, |least| least * unit),
            most: statement.most.map_or(f64::INFINITY, |most| most * unit),
        }
    }

    fn has(&self, piece: &Piece) -> bool {
        self.low_bytes <= piece.low && piece.high < self.high_bytes
    }

    fn has_size(&self, size_bytes: u64) -> bool {
        (self.low_bytes..self.high_bytes).contains(&size_bytes)
    }
}

/// Files of `low` to `high` bytes, both inclusive.
#[derive(Clone)]
struct Piece {
    low: u64,
    high: u64,
    files: f64,
    mean_bytes: f64,
    /// Allocated to a file on the mean.
    space_bytes: f64,
    /// Number of the range, between edges of published shares of files, that it is in.
    range: usize,
}

struct Fit {
    pieces: Vec<Piece>,
    /// The largest file, which is in no piece, and the space allocated to it.
    largest_bytes: u64,
    largest_space_bytes: f64,
}

impl Fit {
    /// Steps 1 and 2, with the sizes of `vu-2005` above 64 KiB multiplied by `factor`.
    fn with_factor(factor: f64, system: &System, facts: &[Constraint], layout: &dyn Layout) -> Fit {
        let files = system.files.saturating_sub(1) as f64;
        let needs_space = facts.iter().any(|fact| fact.kind == Bound::Space);
        let pieces = edges(system, facts)
            .windows(2)
            .map(|edge| {
                let (low, high) = (edge[0], edge[1] - 1);
                let (share, mean_bytes) = Shape::vu_2005().piece(low, high, factor);
                let space_bytes = if needs_space { mean_space(low, high, mean_bytes, layout) } else { 0.0 };
                let is_edge = |edge: u64| facts.iter().any(|fact| fact.is_edge_of_range(edge));
                (Piece { low, high, files: share * files, mean_bytes, space_bytes, range: 0 }, is_edge(low))
            })
            .scan(0, |range, (piece, begins)| {
                *range += usize::from(begins);
                Some(Piece { range: *range, ..piece })
            })
            .collect();
        let largest_space_bytes = layout.file(system.max_bytes).allocated_bytes as f64;
        let mut fit = Fit { pieces, largest_bytes: system.max_bytes, largest_space_bytes };
        for _ in 0..50 {
            facts.iter().filter(|fact| fact.kind == Bound::Mode).for_each(|fact| fit.raise_mode(fact));
            fit.scale(|_| true, files);
            facts.iter().filter(|fact| fact.kind == Bound::Files).for_each(|fact| fit.hold_files(fact, files));
        }
        for _ in 0..if needs_space { 8 } else { 0 } {
            facts.iter().filter(|fact| fact.kind == Bound::Space).for_each(|fact| fit.hold_space(fact));
        }
        fit
    }

    fn files(&self, of: impl Fn(&Piece) -> bool) -> f64 {
        self.pieces.iter().filter(|piece| of(piece)).map(|piece| piece.files).sum()
    }

    fn bytes(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.files * piece.mean_bytes).sum()
    }

    /// Multiplies the files of some pieces so that there are `target`.
    fn scale(&mut self, of: impl Fn(&Piece) -> bool, target: f64) {
        let files = self.files(&of);
        if files > 0.0 {
            self.pieces.iter_mut().filter(|piece| of(piece)).for_each(|piece| piece.files *= target / files);
        }
    }

    fn hold_files(&mut self, fact: &Constraint, files: f64) {
        let inside = self.files(|piece| fact.has(piece));
        let largest = f64::from(u8::from(fact.has_size(self.largest_bytes)));
        let target = inside.clamp((fact.least - largest).max(0.0), (fact.most - largest).max(0.0));
        if target != inside {
            self.scale(|piece| fact.has(piece), target);
            self.scale(|piece| !fact.has(piece), files - target);
        }
    }

    /// Gives the octave of a published mode more files than either neighbour: [`MODE_FACTOR`] times as many, and at
    /// least one more. The largest file, which is in no piece, counts in its octave. `fact` is of one octave, from a
    /// power of two on.
    fn raise_mode(&mut self, fact: &Constraint) {
        let octave = |low: u64| move |piece: &Piece| low <= piece.low && piece.high < 2 * low;
        let largest = |low: u64| f64::from(u8::from((low..2 * low).contains(&self.largest_bytes)));
        let beside = [fact.low_bytes / 2, 2 * fact.low_bytes];
        let least = beside.map(|low| self.files(octave(low)) + largest(low)).into_iter().fold(0.0, f64::max);
        let files = self.files(octave(fact.low_bytes)) + largest(fact.low_bytes);
        if files < least * MODE_FACTOR {
            // Where the shape has no files at all there would be nothing to multiply.
            self.pieces
                .iter_mut()
                .filter(|piece| fact.has(piece))
                .for_each(|piece| piece.files = piece.files.max(1e-9));
            self.scale(|piece| fact.has(piece), (least * MODE_FACTOR).max(least + 1.0));
        }
    }

    fn space_share(&self, fact: &Constraint) -> f64 {
        let space = |of: &dyn Fn(&Piece) -> bool| -> f64 {
            self.pieces.iter().filter(|piece| of(piece)).map(|piece| piece.files * piece.space_bytes).sum()
        };
        let largest_inside = if fact.has_size(self.largest_bytes) { self.largest_space_bytes } else { 0.0 };
        (space(&|piece| fact.has(piece)) + largest_inside) / (space(&|_| true) + self.largest_space_bytes)
    }

    fn hold_space(&mut self, fact: &Constraint) {
        let share = self.space_share(fact);
        let target = share.clamp(fact.least, fact.most);
        if share == target {
            return;
        }
        let ranges_outside: Vec<usize> =
            self.pieces.iter().filter(|piece| !fact.has(piece)).map(|piece| piece.range).collect();
        let is_whole = self.pieces.iter().all(|piece| !fact.has(piece) || !ranges_outside.contains(&piece.range));
        let before = self.pieces.clone();
        let (mut low, mut high) = if is_whole { (-3.0, 3.0) } else { (-40.0, 40.0) };
        for _ in 0..50 {
            let by: f64 = 0.5 * (low + high);
            self.pieces.clone_from(&before);
            for piece in self.pieces.iter_mut().filter(|piece| fact.has(piece)) {
                piece.files *= (by * if is_whole { piece.mean_bytes.max(1.0).ln() } else { 1.0 }).exp();
            }
            for range in 0..=before.last().map_or(0, |piece| piece.range) {
                let files = before.iter().filter(|piece| piece.range == range).map(|piece| piece.files).sum();
                self.scale(|piece| piece.range == range, files);
            }
            if self.space_share(fact) < target {
                low = by;
            } else {
                high = by;
            }
        }
    }

    /// Whole files with the exact bytes.
    fn lay_out(&self, system: &System) -> Distribution {
        let mut intervals = Vec::with_capacity(self.pieces.len());
        let (mut until_here, mut placed) = (0.0, 0u128);
        let files = system.files.saturating_sub(1) as f64 / self.files(|_| true);
        for piece in &self.pieces {
            until_here += piece.files * files;
            let count = (until_here.round() as u128).saturating_sub(placed);
            placed += count;
            let sum = (count as f64 * piece.mean_bytes).round() as u128;
            let sum = sum.clamp(count * u128::from(piece.low), count * u128::from(piece.high));
            intervals.push(Interval { low: piece.low, high: piece.high, count, sum: Some(sum) });
        }
        move_to(&mut intervals, system.size_bytes.saturating_sub(system.max_bytes.into()));
        let mut sizes = Distribution::default();
        for interval in &intervals {
            // The pieces ascend and the files are few, so no interval is refused.
            let laid_out = spread(&mut sizes, interval);
            debug_assert!(laid_out.is_ok());
        }
        sizes.record(system.max_bytes);
        sizes
    }
}

impl Constraint {
    /// Whether the number of files below this size is published, exactly or as a bound.
    fn is_edge_of_range(&self, edge: u64) -> bool {
        let is_bounded = self.least > 0.0 || self.most.is_finite();
        self.kind == Bound::Files && is_bounded && (edge == self.low_bytes || edge == self.high_bytes) && edge > 0
    }
}

/// Changes the sums so that together they are `bytes`, each by the same share of what it can change by: those above
/// 64 KiB, and the others for what is left.
fn move_to(intervals: &mut [Interval], bytes: u128) {
    for large in [true, false] {
        let whole: u128 = intervals.iter().filter_map(|interval| interval.sum).sum();
        let (raise, distance) = (whole < bytes, whole.abs_diff(bytes));
        let room = |interval: &Interval| {
            let sum = interval.sum.unwrap_or_default();
            let end = if raise { interval.high } else { interval.low };
            if (interval.low > SMALL_FILE_BYTES) == large {
                (interval.count * u128::from(end)).abs_diff(sum)
            } else {
                0
            }
        };
        let rooms: u128 = intervals.iter().map(room).sum();
        let share = if rooms == 0 { 0.0 } else { (distance as f64 / rooms as f64).min(1.0) };
        let mut left = distance;
        for interval in intervals.iter_mut().rev() {
            // Rounded up, so that rounding leaves nothing.
            let by = ((room(interval) as f64 * share).ceil() as u128).min(room(interval)).min(left);
            left -= by;
            interval.sum = interval.sum.map(|sum| if raise { sum + by } else { sum - by });
        }
    }
}

/// The edges of the pieces, ascending: the first size of each, and one above the largest file.
fn edges(system: &System, facts: &[Constraint]) -> Vec<u64> {
    let end = system.max_bytes + 1;
    let powers = (0..u64::BITS).map(|exponent| 1u64 << exponent);
    let of_facts = facts.iter().flat_map(|fact| [fact.low_bytes, fact.high_bytes]);
    let mut edges: Vec<u64> = powers.chain(of_facts).chain([SECOND_BUCKET_BYTES, LARGE_BYTES]).collect();
    edges.retain(|&edge| edge > 0 && edge < end);
    edges.extend([0, end]);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The space that files of a piece need on the mean, from sizes that are log-uniform in it.
fn mean_space(low: u64, high: u64, mean_bytes: f64, layout: &dyn Layout) -> f64 {
    const SAMPLES: i32 = 64;
    if low == high {
        return layout.file(low).allocated_bytes as f64;
    }
    let ratio = (high as f64 + 1.0) / low as f64;
    let (mut sizes, mut allocated) = (0.0, 0.0);
    for sample in 0..SAMPLES {
        let size = low as f64 * ratio.powf((f64::from(sample) + 0.5) / f64::from(SAMPLES));
        sizes += size;
        allocated += layout.file(size as u64).allocated_bytes as f64;
    }
    // Large files need space in proportion; small ones by steps, whatever their mean.
    if low < LARGE_BYTES { allocated / f64::from(SAMPLES) } else { allocated / sizes * mean_bytes }
}

/// The distribution of `vu-2005`, for any factor: files and bytes below each size, as shares of all files.
struct Shape {
    empty: f64,
    points: Vec<Point>,
}

#[derive(Clone, Copy)]
struct Point {
    size: f64,
    files: f64,
    bytes: f64,
}

impl Shape {
    /// Two points for each cell, at its edges; between points both shares are linear.
    fn vu_2005() -> &'static Shape {
        static FOUND: OnceLock<Shape> = OnceLock::new();
        FOUND.get_or_init(|| {
            let sizes = published::find(SHAPE).map_or_else(Distribution::default, |table| table.distribution().clone());
            let count = sizes.count().max(1) as f64;
            let mut shape = Shape { empty: 0.0, points: Vec::new() };
            let (mut files, mut bytes) = (0.0, 0.0);
            for cell in sizes.cells() {
                if cell.high == 0 {
                    shape.empty = cell.count as f64 / count;
                    continue;
                }
                shape.points.push(Point { size: cell.low as f64, files, bytes });
                files += cell.count as f64 / count;
                bytes += cell.sum as f64 / count;
                shape.points.push(Point { size: cell.high as f64 + 1.0, files, bytes });
            }
            shape
        })
    }

    /// Files that are not empty, and their bytes, below a size.
    fn below(&self, size: f64) -> (f64, f64) {
        let after = self.points.partition_point(|point| point.size <= size);
        let Some(before) = after.checked_sub(1).map(|index| self.points[index]) else { return (0.0, 0.0) };
        let Some(after) = self.points.get(after) else { return (before.files, before.bytes) };
        let along = (size - before.size) / (after.size - before.size);
        (before.files + along * (after.files - before.files), before.bytes + along * (after.bytes - before.bytes))
    }

    /// Share of the files with a size from `low` to `high`, and their mean, where sizes are multiplied by `factor`.
    fn between(&self, low: u64, high: u64, factor: f64) -> (f64, f64) {
        let (files_low, bytes_low) = self.below(low.max(1) as f64 / factor);
        let (files_high, bytes_high) = self.below((high as f64 + 1.0) / factor);
        let empty = if low == 0 { self.empty } else { 0.0 };
        let (files, bytes) = (files_high - files_low, (bytes_high - bytes_low) * factor);
        if high == 0 {
            return (self.empty, 0.0);
        }
        let first = low.max(1) as f64;
        let log_uniform = || (high as f64 - first) / (high as f64 / first).ln();
        let mean = if files > 1e-12 {
            bytes / files
        } else if high > first as u64 {
            log_uniform()
        } else {
            first
        };
        (files + empty, mean.clamp(low as f64, high as f64))
    }

    /// Share of the files in a piece, and their mean. The small sizes are as they are; what is multiplied there is how
    /// many of the files are in the smallest bucket and in the rest.
    fn piece(&self, low: u64, high: u64, factor: f64) -> (f64, f64) {
        if low >= LARGE_BYTES {
            return self.between(low, high, factor);
        }
        let zone = if low < SECOND_BUCKET_BYTES {
            (0, SECOND_BUCKET_BYTES - 1)
        } else {
            (SECOND_BUCKET_BYTES, SMALL_FILE_BYTES)
        };
        let (share, mean) = self.between(low, high, 1.0);
        let (whole, _) = self.between(zone.0, zone.1, 1.0);
        let (multiplied, _) = self.between(zone.0, zone.1, factor);
        (share / whole * multiplied.max(1e-12), mean)
    }
}
