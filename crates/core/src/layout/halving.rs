//! Leaves that split in halves: their number after entries were inserted one by one, in random order of their keys.
//!
//! Directories of ext2/3/4 (sorted by a hash of the name) and NTFS (sorted by the name) keep their entries in leaves of
//! a fixed size. A full leaf is split at its median into two. In the long run such leaves are ln 2 = 69 % full (Yao, On
//! random 2-3 trees, Acta Informatica 9, 1978), but a directory of a few thousand entries is far from the long run:
//! leaves that started together split at about the same time, so that they are 50 % full soon after a doubling and 90 %
//! full before the next one.
//!
//! Formula: the next entry goes to a leaf of k entries with probability k/n. So the increase of ln n between two splits
//! is distributed like a sum of exponential times, of rates m/2 to m: variance v = 1/c with c = m + 1, close to normal.
//! A leaf of generation g splits when it is full for the g-th time, the first at n = c; each split adds a leaf:
//! leaves(n) = 2 + sum over g ≥ 1 of 2^g Φ((ln(n/c) − g ln 2 − v_g/2) / √v_g), with v_g = (g − 1/2)/c, for n > m. The
//! mean g ln 2 + v_g/2 is the one that loses no entry (E e^−X = 1/2 for the time X of one generation), and the long run
//! follows from it, n / (c ln 2 − 1/2). Compared with fringe analysis, which is exact and slow, the mean error is below
//! 1 %; see `tests`.
//!
//! Invariants: never fewer leaves than full ones would be, never more than half-full ones would be.

/// Above this ratio of entries to those of a leaf, the long run has come for every leaf size in use.
const LONG_RUN: f64 = (1u64 << 40) as f64;

/// The expected number of leaves after `entries` random insertions, when `per_leaf` entries fill one; to the nearest.
pub(super) fn leaves(entries: u64, per_leaf: u64) -> u64 {
    // A leaf of one entry cannot be split: each entry has its own.
    let per_leaf = per_leaf.max(1);
    if entries <= per_leaf {
        return 1;
    }
    if per_leaf == 1 {
        return entries;
    }
    let capacity = per_leaf as f64 + 1.0;
    let ratio = entries as f64 / capacity;
    let expected = if ratio > LONG_RUN {
        ratio / (std::f64::consts::LN_2 - 0.5 / capacity)
    } else {
        let mut sum = 2.0;
        for generation in 1..64 {
            let splits = f64::from(generation);
            let variance = (splits - 0.5) / capacity;
            let mean = splits * std::f64::consts::LN_2 + variance / 2.0;
            let distance = (ratio.ln() - mean) / variance.sqrt();
            if distance < -8.0 {
                break;
            }
            sum += splits.exp2() * normal(distance);
        }
        sum
    };
    let half = per_leaf.div_ceil(2);
    (expected.round() as u64).clamp(entries.div_ceil(per_leaf), entries.div_ceil(half).max(2))
}

/// The distribution function of the normal distribution: Abramowitz and Stegun (1964), formula 26.2.17, good to 8e-8.
fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let tail = polynomial.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = tail * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected leaves after each insertion, by fringe analysis: the expected number of leaves with k entries, for
    /// every k.
    fn by_fringe_analysis(entries: usize, per_leaf: usize) -> Vec<f64> {
        let mut with = vec![0.0; per_leaf + 2];
        with[1] = 1.0;
        let mut found = vec![1.0, 1.0];
        for there in 1..entries {
            let mut next = with.clone();
            for k in 1..=per_leaf {
                let chosen = with[k] * k as f64 / there as f64;
                next[k] -= chosen;
                if k < per_leaf {
                    next[k + 1] += chosen;
                } else {
                    next[per_leaf.div_ceil(2)] += chosen;
                    next[per_leaf + 1 - per_leaf.div_ceil(2)] += chosen;
                }
            }
            with = next;
            found.push(with.iter().sum());
        }
        found
    }

    /// Whole leaves are returned, hence the half. The 6.5 % are next to the second doubling; the mean error is ten
    /// times smaller.
    #[test]
    fn the_formula_follows_fringe_analysis() {
        for per_leaf in [15, 36, 145, 255] {
            let found = by_fringe_analysis(40 * per_leaf, per_leaf);
            let mut errors = 0.0;
            for (entries, expected) in found.iter().enumerate().skip(1) {
                let off = (leaves(entries as u64, per_leaf as u64) as f64 - expected).abs();
                assert!(off < 0.5 + 0.065 * expected, "{entries} of {per_leaf}: {expected}, off by {off}");
                errors += off / expected;
            }
            assert!(errors / (found.len() as f64) < 0.02, "{per_leaf}: {errors}");
        }
    }

    #[test]
    fn in_the_long_run_leaves_are_69_percent_full() {
        for per_leaf in [30, 145, 255] {
            for entries in [1u64 << 44, 1 << 58, u64::MAX] {
                let fill = entries as f64 / (leaves(entries, per_leaf) as f64 * per_leaf as f64);
                assert!((fill - std::f64::consts::LN_2).abs() < 0.02, "{per_leaf} {entries}: {fill}");
            }
        }
    }

    #[test]
    fn no_count_is_out_of_bounds() {
        for per_leaf in [0, 1, 2, 3, 145, 1 << 20, u64::MAX] {
            for entries in [0, 1, 2, 3, 145, 146, 1 << 30, u64::MAX] {
                let count = leaves(entries, per_leaf);
                assert!(count >= 1 && count <= entries.max(1), "{entries} of {per_leaf}: {count}");
            }
        }
    }
}
