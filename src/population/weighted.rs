//! Sizes by a law: the weighting of Atkinson's fill test (2013), "weighted to create more smaller files than larger
//! ones, using an e^(k(x-1)) function where k is a configurable constant and x is a random number between 0 and 1".

use crate::distribution::Distribution;
use crate::random::Random;
use crate::units::{KIB, MIB, parse_size};

/// `min + (max - min) · e^(k(x-1))` for an `x` between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeLaw {
    /// The k of the exponent: 0 makes all files as large as `max_bytes`; larger values make more small files.
    pub k: f64,
    /// Lower bound of the sizes.
    pub min_bytes: u64,
    /// The largest size.
    pub max_bytes: u64,
}

impl Default for SizeLaw {
    fn default() -> SizeLaw {
        SizeLaw { k: 6.0, min_bytes: KIB, max_bytes: 10 * MIB }
    }
}

/// Name of a law: `weighted:k=6,min=1KiB,max=10MiB`.
pub(crate) const NAME: &str = "weighted";

/// Values with which a law is laid out.
const POINTS: u64 = 1 << 20;

impl SizeLaw {
    /// Reads `weighted:k=6,min=1KiB,max=10MiB`, each of the three optional.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub fn parse(text: &str) -> Result<SizeLaw, String> {
        let wrong = || format!("'{text}' is not a law of sizes; write, for example, {NAME}:k=6,min=1KiB,max=10MiB");
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        if name != NAME {
            return Err(wrong());
        }
        let mut law = SizeLaw::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').ok_or_else(wrong)?;
            match key {
                "k" => law.k = value.parse().map_err(|_| format!("'{value}' is not a number for k"))?,
                "min" => law.min_bytes = parse_size(value)?,
                "max" => law.max_bytes = parse_size(value)?,
                _ => return Err(format!("{NAME} has no option '{key}'; it has k, min and max")),
            }
        }
        if !(0.0..=700.0).contains(&law.k) {
            return Err("k must be a number from 0 to 700".to_owned());
        }
        if law.min_bytes > law.max_bytes {
            return Err("min is above max".to_owned());
        }
        Ok(law)
    }

    /// The size at `x`, from 0 to 1.
    pub fn at(&self, x: f64) -> u64 {
        let part = (self.k * (x - 1.0)).exp();
        let above = (self.max_bytes - self.min_bytes) as f64 * part;
        self.min_bytes.saturating_add(above.round() as u64).min(self.max_bytes)
    }

    /// A random size.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        self.at(random.fraction())
    }

    /// The mean of all sizes: the integral.
    pub fn mean(&self) -> f64 {
        let share = if self.k == 0.0 { 1.0 } else { -(-self.k).exp_m1() / self.k };
        self.min_bytes as f64 + (self.max_bytes - self.min_bytes) as f64 * share
    }

    /// The sizes at a million equally distant points.
    pub fn distribution(&self) -> Distribution {
        let mut sizes = Distribution::default();
        (0..POINTS).for_each(|point| sizes.record(self.at((point as f64 + 0.5) / POINTS as f64)));
        sizes
    }
}

impl std::fmt::Display for SizeLaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{NAME}:k={},min={},max={}", self.k, self.min_bytes, self.max_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_law() {
        let law = SizeLaw::parse("weighted:k=4,min=1000,max=2000").unwrap();
        assert_eq!((law.at(1.0), law.at(0.0)), (2000, 1018));
        let sizes = law.distribution();
        assert!((sizes.mean() - law.mean()).abs() < 1.0, "{} {}", sizes.mean(), law.mean());
        // Half of them are below the size at one half.
        assert!((sizes.quantile(1, 2) as i64 - law.at(0.5) as i64).abs() <= 1);
        let mut random = Random::new(3);
        let drawn: u64 = (0..10_000).map(|_| law.draw(&mut random)).sum();
        assert!((drawn as f64 / 10_000.0 - law.mean()).abs() < 10.0);
        assert_eq!(SizeLaw { k: 0.0, ..law }.mean(), 2000.0);
    }

    #[test]
    fn a_law_is_read_as_it_is_written() {
        for law in [SizeLaw::default(), SizeLaw { k: 0.5, min_bytes: 0, max_bytes: 1 }] {
            assert_eq!(SizeLaw::parse(&law.to_string()), Ok(law));
        }
        assert_eq!(SizeLaw::parse("weighted"), Ok(SizeLaw::default()));
        for text in [
            "",
            "light",
            "weighted:k",
            "weighted:k=x",
            "weighted:k=-1",
            "weighted:k=inf",
            "weighted:min=2,max=1",
            "weighted:a=1",
        ] {
            assert!(SizeLaw::parse(text).is_err(), "{text}");
        }
    }
}
