//! The three published distributions of Tanenbaum, Herder and Bos (2006): `vu-1984`, `vu-2005` and `web-2005`.
//!
//! The tables are in `data/` ([`tables`]), as printed except for one misprint. Each population is laid out ([`spread`])
//! between *knots*, sizes up to which the number of files is known: the rows of Fig. 1, the medians that the text
//! states and, for 2005, the deciles of Fig. 3. At a decile or median one file has exactly that size, so that it is
//! reproduced to the byte.
//!
//! What the paper leaves open:
//!
//! - **Empty files** are in the row "1 byte or smaller". For VU 2005 their number is fitted, see below. For the other
//!   two, the number of 1-byte files is assumed to equal that of 2-byte files (the second row); the rest of the first
//!   row is empty. By that rule VU 2005 would have 1.23 % empty files; the fit finds 1.3 %.
//! - **The largest files.** The largest size in the table of 1984, 524,288 bytes, is the largest file, as the paper
//!   says; for the web server, for which it says nothing, the largest is assumed to be the 128 MiB of the last row. The
//!   "2.14 GB" of 2005 are 2^31 - 1 bytes, cut to two digits.
//! - **The number of files** in 1984: 1,000,000 is assumed ([`Published::is_count_assumed`]); all shares are the
//!   same for any.
//!
//! For **VU 2005**, Fig. 3 says more: the share of the disk of each decile for five block sizes, 45 figures. Two
//! unknowns decide them: how many of the files of the first row are empty and need no block at all, and how many bytes
//! are in the files above 128 MiB, for which Fig. 1 has only the number. The first is fitted to the five shares of the
//! first decile, the second to all 45, by least squares with the Gauss-Newton method: every run has the same result.

use std::sync::OnceLock;

use super::{Distribution, EXACT_LIMIT, Interval, spread};
use crate::tables;

const SOURCE: &str = "A. S. Tanenbaum, J. N. Herder, H. Bos: File size distribution on UNIX systems - then and now. \
                      ACM SIGOPS Operating Systems Review 40(1), 2006";

/// The block sizes of Fig. 3, in bytes.
pub const FIG_3_BLOCK_BYTES: [u64; 5] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14];

/// A distribution from a paper.
#[derive(Debug)]
pub struct Published {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in tables and figures.
    pub title: &'static str,
    /// The paper with the data.
    pub source: &'static str,
    /// When the files were counted.
    pub year: u16,
    /// How many files there were.
    pub files: u64,
    /// Whether [`files`](Self::files) is assumed, because the paper does not state it.
    pub is_count_assumed: bool,
    /// Fig. 1 as printed.
    pub curve: Vec<CurvePoint>,
    knots: Vec<Knot>,
    distribution: OnceLock<Distribution>,
}

/// A row of Fig. 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The size, in bytes.
    pub size_bytes: u64,
    /// Percentage of the files of that size or smaller.
    pub percent: f64,
}

/// A row of Fig. 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decile {
    /// Size of the largest file in the decile, in bytes.
    pub largest_bytes: u64,
    /// Percentage of the disk in files up to that size, for each of [`FIG_3_BLOCK_BYTES`].
    pub weight_percent: [f64; 5],
}

/// A number of files of a size or smaller.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Knot {
    size_bytes: u64,
    files: u64,
    /// Whether a file of exactly that size exists.
    attained: bool,
}

impl Published {
    /// The distribution of the file sizes; laid out on first use.
    pub fn distribution(&self) -> &Distribution {
        self.distribution.get_or_init(|| match self.name {
            "vu-2005" => Fit::to_fig_3(&self.knots, &fig_3()).distribution(&self.knots),
            _ => lay_out(&self.with_empty_files(), None),
        })
    }

    /// The knots, where as many files of the first row are not empty as are in the second row.
    fn with_empty_files(&self) -> Vec<Knot> {
        let of_one_byte = match self.knots.as_slice() {
            [first, second, ..] => second.files.saturating_sub(first.files),
            _ => 0,
        };
        with_empty_files(&self.knots, self.knots.first().map_or(0, |first| first.files.saturating_sub(of_one_byte)))
    }
}

/// All published distributions, by year.
pub fn all() -> &'static [Published] {
    static ALL: OnceLock<[Published; 3]> = OnceLock::new();
    ALL.get_or_init(|| {
        let deciles = fig_3();
        let shares = |decile: (usize, &Decile)| (decile.1.largest_bytes, (decile.0 as u64 + 1) * 1000);
        let deciles: Vec<(u64, u64)> = deciles.iter().enumerate().map(shares).collect();
        let all_of_them = 10_000;
        [
            population_from_fig_1(
                "vu-1984",
                "VU 1984",
                1984,
                (1_000_000, true),
                0,
                &[(1080, 5000), (524_288, all_of_them)],
            ),
            population_from_fig_1("vu-2005", "VU 2005", 2005, (1_700_000, false), 1, &deciles),
            population_from_fig_1(
                "web-2005",
                "Web 2005",
                2005,
                (53_000, false),
                2,
                &[(1180, 5000), (134_217_728, all_of_them)],
            ),
        ]
    })
}

/// The published distribution with this name.
pub fn find(name: &str) -> Option<&'static Published> {
    all().iter().find(|published| published.name == name)
}

/// Fig. 3: the deciles of VU 2005, and their share of the disk.
pub fn fig_3() -> Vec<Decile> {
    let decile =
        |row: tables::WeightRow| Decile { largest_bytes: row.largest_bytes, weight_percent: row.weight_percent };
    tables::weights().into_iter().map(decile).collect()
}

/// Fig. 4: deciles of the sizes of reads and of writes at the VU in 2005. A row has per cent of the operations, the
/// largest read and the largest write.
pub fn fig_4() -> Vec<[u64; 3]> {
    tables::operations().into_iter().map(|row| [row.percent, row.read_bytes, row.write_bytes]).collect()
}

/// The distribution with these quantiles, each a per cent and the largest value up to there, both rising; a per cent is
/// `count_per_percent` values. Between quantiles, values are log-uniform.
///
/// # Errors
/// A sentence, if there are more values than a distribution may hold.
pub fn through_percentiles(
    quantiles: impl IntoIterator<Item = (u64, u64)>,
    count_per_percent: u64,
) -> Result<Distribution, &'static str> {
    let mut distribution = Distribution::default();
    let mut before = (0, 0);
    for (percent, largest) in quantiles {
        let count = u128::from(percent.saturating_sub(before.0)) * u128::from(count_per_percent);
        // One of them has exactly that value.
        distribution.record(largest);
        let low = if largest > before.1 { before.1 + 1 } else { largest };
        spread(&mut distribution, &Interval { low, high: largest, count: count.saturating_sub(1), sum: None })?;
        before = (percent, largest);
    }
    Ok(distribution)
}

/// A population from a `column` of the percentages of Fig. 1 and from sizes that the paper says files have, each with
/// the cumulative share of the files up to and including it, in hundredths of a per cent.
fn population_from_fig_1(
    name: &'static str,
    title: &'static str,
    year: u16,
    (files, is_count_assumed): (u64, bool),
    column: usize,
    attained_sizes: &[(u64, u64)],
) -> Published {
    let point = |row: tables::CurveRow| CurvePoint { size_bytes: row.size_bytes, percent: row.percent[column] };
    let curve: Vec<CurvePoint> = tables::curve().into_iter().map(point).collect();
    let files_up_to = |hundredths: u64| (files * hundredths + 5000) / 10_000;
    let mut knots: Vec<Knot> = attained_sizes
        .iter()
        .map(|&(size_bytes, hundredths)| Knot { size_bytes, files: files_up_to(hundredths), attained: true })
        .collect();
    for point in &curve {
        if knots.iter().all(|knot| knot.size_bytes != point.size_bytes) {
            let files = files_up_to((point.percent * 100.0).round() as u64);
            knots.push(Knot { size_bytes: point.size_bytes, files, attained: false });
        }
    }
    knots.sort_by_key(|knot| knot.size_bytes);
    let distribution = OnceLock::new();
    Published { name, title, source: SOURCE, year, files, is_count_assumed, curve, knots, distribution }
}

fn with_empty_files(knots: &[Knot], files: u64) -> Vec<Knot> {
    let empty = Knot { size_bytes: 0, files, attained: true };
    std::iter::once(empty).chain(knots.iter().copied()).collect()
}

/// The population through all knots; `sum_above` is the sum of the sizes above the last knot but one.
fn lay_out(knots: &[Knot], sum_above: Option<u128>) -> Distribution {
    let mut distribution = Distribution::default();
    let (mut low, mut seen) = (0, 0);
    for (index, knot) in knots.iter().enumerate() {
        let count = u128::from(knot.files.saturating_sub(seen));
        let largest = if knot.attained { count.min(1) } else { 0 };
        if largest > 0 {
            distribution.record(knot.size_bytes);
        }
        let sum = sum_above.filter(|_| index + 1 == knots.len());
        let sum = sum.map(|sum| sum.saturating_sub(largest * u128::from(knot.size_bytes)));
        // The knots ascend and the files are few, so no interval is refused.
        let laid_out = spread(&mut distribution, &Interval { low, high: knot.size_bytes, count: count - largest, sum });
        debug_assert!(laid_out.is_ok());
        (low, seen) = (knot.size_bytes + 1, knot.files.max(seen));
    }
    distribution
}

/// The two figures about VU 2005 that only Fig. 3 determines.
#[derive(Debug, Clone, Copy)]
struct Fit {
    /// Files of size 0.
    empty_files: f64,
    /// Sum of the sizes above the last knot but one, 128 MiB.
    bytes_above: f64,
}

/// Allocated bytes of the files that Fig. 1 determines completely, for one block size, with the empty files counted as
/// 1 byte.
struct Known {
    block_bytes: f64,
    /// Up to each of the first nine deciles.
    up_to_decile: [f64; 9],
    /// All of them, and the last blocks of the larger files.
    whole: f64,
}

impl Fit {
    /// Fits the bytes by least squares to the shares of nine deciles for five block sizes, and the empty files to those
    /// of the first decile: in the other deciles they disappear in the uncertainty about the sizes between two knots.
    fn to_fig_3(knots: &[Knot], deciles: &[Decile]) -> Fit {
        let [below @ .., last_but_one, last] = knots else { return Fit { empty_files: 0.0, bytes_above: 0.0 } };
        let files_above = last.files.saturating_sub(last_but_one.files) as f64;
        let draft = lay_out(&knots[..=below.len()], None);
        let known = FIG_3_BLOCK_BYTES.map(|block_bytes| Known::of(&draft, deciles, block_bytes, files_above));
        let least = (files_above - 1.0) * last_but_one.size_bytes as f64 + last.size_bytes as f64;
        let most = files_above * last.size_bytes as f64;
        let first_row = knots.first().map_or(0, |knot| knot.files) as f64;
        let mut fit = Fit { empty_files: 0.0, bytes_above: 0.5 * (least + most) };
        for _ in 0..50 {
            let (by_empty, by_bytes) = fit.step(&known, deciles);
            fit.empty_files = (fit.empty_files + by_empty).clamp(0.0, first_row);
            fit.bytes_above = (fit.bytes_above + by_bytes).clamp(least, most);
        }
        fit
    }

    /// One Gauss-Newton step for each unknown, with the other fixed: they are nearly independent.
    fn step(&self, known: &[Known; 5], deciles: &[Decile]) -> (f64, f64) {
        let (mut empty, mut above) = (LeastSquares::default(), LeastSquares::default());
        for (block, known) in known.iter().enumerate() {
            let whole = known.whole - self.empty_files * known.block_bytes + self.bytes_above;
            for (number, (decile, up_to)) in deciles.iter().zip(known.up_to_decile).enumerate() {
                let share = (up_to - self.empty_files * known.block_bytes) / whole;
                let residual = decile.weight_percent[block] / 100.0 - share;
                above.add(-share / whole, residual);
                if number == 0 {
                    empty.add(-known.block_bytes * (1.0 - share) / whole, residual);
                }
            }
        }
        (empty.solution(), above.solution())
    }

    fn distribution(&self, knots: &[Knot]) -> Distribution {
        lay_out(&with_empty_files(knots, self.empty_files.round() as u64), Some(self.bytes_above.round() as u128))
    }
}

/// The change of one unknown that minimizes the squares.
#[derive(Default)]
struct LeastSquares {
    slopes_squared: f64,
    slopes_by_residuals: f64,
}

impl LeastSquares {
    fn add(&mut self, slope: f64, residual: f64) {
        self.slopes_squared += slope * slope;
        self.slopes_by_residuals += slope * residual;
    }

    fn solution(&self) -> f64 {
        if self.slopes_squared > 0.0 { self.slopes_by_residuals / self.slopes_squared } else { 0.0 }
    }
}

impl Known {
    fn of(draft: &Distribution, deciles: &[Decile], block_bytes: u64, files_above: f64) -> Known {
        let block = block_bytes as f64;
        let mut up_to_decile = [0.0; 9];
        let mut whole = 0.0;
        for cell in draft.cells() {
            // Empty files count as 1-byte files here. In large files the last block is half full on average.
            whole += match cell.high {
                high if high <= EXACT_LIMIT => {
                    (cell.count * u128::from(high.max(1).next_multiple_of(block_bytes))) as f64
                }
                _ => cell.sum as f64 + cell.count as f64 * block / 2.0,
            };
            for (up_to, decile) in up_to_decile.iter_mut().zip(deciles) {
                if cell.high <= decile.largest_bytes {
                    *up_to = whole;
                }
            }
        }
        Known { block_bytes: block, up_to_decile, whole: whole + files_above * block / 2.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in whole blocks of the files up to a size.
    fn allocated(distribution: &Distribution, up_to: u64, block_bytes: u64) -> f64 {
        let in_blocks = |cell: super::super::Cell| {
            if cell.high <= EXACT_LIMIT {
                return (cell.count * u128::from(cell.high.next_multiple_of(block_bytes))) as f64;
            }
            // Sizes spread over the cell: the mean of 64 points in it.
            let place = |i: u64| (cell.low + (cell.high - cell.low) * i / 63).next_multiple_of(block_bytes) as f64;
            let middle = (cell.low + cell.high) as f64 / 2.0;
            cell.sum as f64 + cell.count as f64 * ((0..64).map(place).sum::<f64>() / 64.0 - middle)
        };
        distribution.cells().filter(|cell| cell.high <= up_to).map(in_blocks).sum()
    }

    #[test]
    fn the_tables_are_whole_and_rise_to_all_files() {
        let (curve, weights) = (tables::curve(), fig_3());
        let is_whole = |percentages: Vec<f64>| percentages.is_sorted() && percentages.last() >= Some(&99.99);
        assert!((0..3).all(|column| is_whole(curve.iter().map(|row| row.percent[column]).collect())));
        assert!((0..5).all(|block| is_whole(weights.iter().map(|decile| decile.weight_percent[block]).collect())));
        assert!(weights.is_sorted_by_key(|decile| decile.largest_bytes));
        for published in all() {
            assert_eq!(published.curve.len(), 28);
            assert!(published.knots.is_sorted_by(|a, b| a.size_bytes < b.size_bytes && a.files <= b.files));
            assert_eq!(published.knots.last().unwrap().files, published.files);
        }
        for (exponent, point) in all()[0].curve.iter().enumerate() {
            assert_eq!(point.size_bytes, 1 << exponent);
        }
        assert_eq!(fig_3().len(), 10);
    }

    #[test]
    fn every_curve_passes_through_its_28_points() {
        for published in all() {
            let distribution = published.distribution();
            assert_eq!(distribution.count(), u128::from(published.files), "{}", published.name);
            for point in &published.curve {
                let up_to = distribution.up_to(point.size_bytes);
                let percent = 100.0 * up_to.count as f64 / published.files as f64;
                assert!(up_to.doubt == 0 && (percent - point.percent).abs() <= 0.005, "{percent} for {point:?}");
            }
        }
    }

    #[test]
    fn medians_largest_files_and_deciles_are_those_of_the_text() {
        for (name, median, largest) in
            [("vu-1984", 1080, 524_288), ("vu-2005", 2475, 2_147_483_647), ("web-2005", 1180, 134_217_728)]
        {
            let distribution = find(name).unwrap().distribution();
            assert_eq!((distribution.quantile(1, 2), distribution.max()), (median, largest), "{name}");
        }
        let deciles = [164, 485, 968, 1622, 2475, 4316, 8211, 18149, 56788, 2_147_483_647];
        let vu_2005 = find("vu-2005").unwrap().distribution();
        assert_eq!(vu_2005.deciles(), deciles);
        // "The percentage of files that are 'small' (10 1-KB disk blocks or fewer) being 73 %."
        assert_eq!((vu_2005.up_to(10_240).count as f64 / 17_000.0).round(), 73.0);
        assert!(find("vu-1985").is_none());
    }

    #[test]
    fn the_fit_gives_the_45_shares_of_fig_3_and_the_growth() {
        let distribution = find("vu-2005").unwrap().distribution();
        let reference = allocated(distribution, u64::MAX, 1024);
        let (mut worst, mut growths) = (0.0f64, Vec::new());
        for (block, block_bytes) in FIG_3_BLOCK_BYTES.into_iter().enumerate() {
            let whole = allocated(distribution, u64::MAX, block_bytes);
            for decile in &fig_3()[..9] {
                let percent = 100.0 * allocated(distribution, decile.largest_bytes, block_bytes) / whole;
                worst = worst.max((percent - decile.weight_percent[block]).abs());
            }
            growths.push(100.0 * (whole / reference - 1.0));
        }
        assert!(worst <= 0.1, "off by {worst} percentage points");
        assert_eq!(growths.iter().map(|growth| growth.round() as u32).collect::<Vec<_>>(), [0, 1, 2, 4, 10]);
    }
}
