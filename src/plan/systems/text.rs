//! What the text of Welch and Noer (2013) says about their systems, beyond the tables: `data/panasas_facts.csv`.
//!
//! A [`Statement`] is one row. Its figure is measured of a distribution ([`Statement::figure`]), so that the fit, the
//! output and the tests judge a distribution by the same arithmetic.

use super::System;
use crate::distribution::Distribution;
use crate::layout::Layout;
use crate::plan::population::Population;
use crate::tables::{PanasasStatement, panasas_statements};
use crate::units::fraction;

/// What stands for the systems where a statement is made of most of them and names none.
const MOST: &str = "most";

/// A sentence of the paper, with its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Statement {
    systems: &'static str,
    pub(super) measure: Measure,
    /// First size of the range.
    pub(super) low_bytes: u64,
    /// First size above it; `None` if it has no end.
    pub(super) high_bytes: Option<u64>,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    pub(super) role: Role,
    pub(super) section: &'static str,
    pub(super) quote: &'static str,
}

/// What a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Files whose size is in the range.
    Files,
    FilesFraction,
    /// Their share of the allocated space.
    SpaceFraction,
    /// Files whose allocated space is in the range.
    FilesBySpace,
    SpaceBySpaceFraction,
    /// More files in the range than in the octaves beside it.
    Mode,
    LargestBytes,
    MeanBytes,
    SizeBytes,
    FileCount,
    /// Number of systems whose largest file is in the range.
    SystemsByLargest,
    /// Distance of the distributions of several systems.
    Distance,
    /// The purpose of the systems.
    Roles,
}

/// How a statement is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The assumed distribution is fitted to it.
    Fit,
    /// It follows from the tables or from the fit.
    Check,
    /// The tables or the rest of the text contradict it.
    Conflict,
}

/// All statements, in the order of the table.
pub(super) fn all() -> Vec<Statement> {
    let statement =
        |row: PanasasStatement| statement(&row).unwrap_or_else(|| unreachable!("the built-in table is sound: {row:?}"));
    panasas_statements().into_iter().map(statement).collect()
}

fn statement(row: &PanasasStatement) -> Option<Statement> {
    Some(Statement {
        systems: row.systems,
        measure: Measure::parse(row.measure)?,
        low_bytes: row.low_bytes.unwrap_or_default(),
        high_bytes: row.high_bytes,
        least: row.least,
        most: row.most,
        role: match row.role {
            "fit" => Role::Fit,
            "check" => Role::Check,
            "conflict" => Role::Conflict,
            _ => return None,
        },
        section: row.section,
        quote: row.quote,
    })
}

impl Measure {
    fn parse(name: &str) -> Option<Measure> {
        Some(match name {
            "files" => Measure::Files,
            "files_fraction" => Measure::FilesFraction,
            "space_fraction" => Measure::SpaceFraction,
            "files_by_space" => Measure::FilesBySpace,
            "space_by_space_fraction" => Measure::SpaceBySpaceFraction,
            "mode" => Measure::Mode,
            "largest_bytes" => Measure::LargestBytes,
            "mean_bytes" => Measure::MeanBytes,
            "size_bytes" => Measure::SizeBytes,
            "file_count" => Measure::FileCount,
            "systems_by_largest" => Measure::SystemsByLargest,
            "distance" => Measure::Distance,
            "roles" => Measure::Roles,
            _ => return None,
        })
    }
}

impl Statement {
    /// Whether it is made of this system by name, or by the name of its kind.
    pub(super) fn names(&self, system: &str) -> bool {
        if let Some(kind) = self.systems.strip_suffix('*') {
            return system.starts_with(kind);
        }
        let in_range = || {
            let (first, last) = self.systems.split_once("..")?;
            let (kind, first) = first.split_once('-')?;
            let number: u32 = system.strip_prefix(kind)?.strip_prefix('-')?.parse().ok()?;
            Some((first.parse().ok()?..=last.parse().ok()?).contains(&number))
        };
        self.systems == system || in_range().unwrap_or(false)
    }

    /// Whether it is made of most systems, and names none.
    pub(super) fn is_of_most(&self) -> bool {
        self.systems == MOST
    }

    /// Whether it is made of some systems of a kind, and names none.
    #[cfg(test)]
    pub(super) fn is_of_some(&self) -> bool {
        self.systems == "some"
    }

    /// Whether another statement is about the same figure.
    pub(super) fn has_the_figure_of(&self, other: &Statement) -> bool {
        let figure = |of: &Statement| (of.measure, of.low_bytes, of.high_bytes);
        figure(self) == figure(other)
    }

    /// The sizes whose files it is about, half-open: for measures by space, those that need a space in the range
    /// under `layout`.
    pub(super) fn sizes(&self, layout: &dyn Layout) -> (u64, Option<u64>) {
        match self.measure {
            Measure::FilesBySpace | Measure::SpaceBySpaceFraction => {
                (size_that_needs(layout, self.low_bytes), self.high_bytes.map(|high| size_that_needs(layout, high)))
            }
            _ => (self.low_bytes, self.high_bytes),
        }
    }

    /// The figure of `sizes`, whose files need the space of `layout`; `None` where it is not one of a distribution.
    pub(super) fn figure(&self, sizes: &Distribution, layout: &dyn Layout) -> Option<f64> {
        let (low, high) = self.sizes(layout);
        let files = || files_between(sizes, low, high);
        Some(match self.measure {
            Measure::Files | Measure::FilesBySpace => files() as f64,
            Measure::FilesFraction => fraction(files(), sizes.count()),
            Measure::SpaceFraction | Measure::SpaceBySpaceFraction => {
                let population = Population { sizes, padding: None, tree: None };
                let [inside, whole] = population.sum(|size| {
                    let allocated = layout.file(size).allocated_bytes;
                    let is_inside = size >= low && high.is_none_or(|high| size < high);
                    [if is_inside { allocated } else { 0 }, allocated]
                });
                fraction(inside, whole)
            }
            Measure::LargestBytes => sizes.max() as f64,
            Measure::MeanBytes => sizes.mean(),
            Measure::SizeBytes => sizes.total() as f64,
            Measure::FileCount => sizes.count() as f64,
            Measure::Mode | Measure::SystemsByLargest | Measure::Distance | Measure::Roles => return None,
        })
    }

    /// The figure that the tables have of a system, if they have it.
    pub(super) fn figure_of_tables(&self, system: &System) -> Option<f64> {
        Some(match self.measure {
            Measure::LargestBytes => system.max_bytes as f64,
            Measure::MeanBytes => system.mean_bytes as f64,
            Measure::SizeBytes => system.size_bytes as f64,
            Measure::FileCount => system.files as f64,
            _ => return None,
        })
    }
}

/// Files of `low` bytes or more, and fewer than `high`.
pub(super) fn files_between(sizes: &Distribution, low: u64, high: Option<u64>) -> u128 {
    let below = |size: u64| if size == 0 { 0 } else { sizes.up_to(size - 1).count };
    high.map_or(sizes.count(), below).saturating_sub(below(low))
}

/// The smallest size that needs `space_bytes` or more.
fn size_that_needs(layout: &dyn Layout, space_bytes: u64) -> u64 {
    let (mut low, mut high) = (0, space_bytes);
    while low < high {
        let middle = low + (high - low) / 2;
        if layout.file(middle).allocated_bytes < u128::from(space_bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Model;

    #[test]
    fn statements_name_one_system_a_range_or_a_kind() {
        let of = |systems| Statement { systems, ..all()[0] };
        assert!(of("Fin-7").names("Fin-7") && !of("Fin-7").names("Fin-17"));
        assert!(of("Fin-16..21").names("Fin-16") && of("Fin-16..21").names("Fin-21"));
        assert!(!of("Fin-16..21").names("Fin-15") && !of("Fin-16..21").names("Sei-16"));
        assert!(of("LANL-*").names("LANL-7") && !of("LANL-*").names("Sei-7"));
        assert!(of("most").is_of_most() && !of("most").names("Fin-7"));
    }

    #[test]
    fn a_range_of_space_is_one_of_sizes() {
        // "A file that is 64KB in length occupies 160KB"; the next step above two objects of 64 KiB is 256 KiB.
        let model = Model::parse("panfs:packing=off").unwrap();
        assert_eq!(size_that_needs(&*model.layout, 160 << 10), (48 << 10) + 1);
        let least = size_that_needs(&*model.layout, 256 << 10);
        assert!(model.layout.file(least).allocated_bytes >= 256 << 10);
        assert!(model.layout.file(least - 1).allocated_bytes < 256 << 10);
    }

    #[test]
    fn every_statement_has_a_source_and_what_is_fitted_has_bounds() {
        for statement in all() {
            assert!(statement.section.starts_with(['I', 'V', 'A']) && statement.quote.len() > 10, "{statement:?}");
            let bounds = (statement.least, statement.most);
            assert!(bounds.0.zip(bounds.1).is_none_or(|(least, most)| least <= most), "{statement:?}");
            let needs_none =
                matches!(statement.measure, Measure::Mode | Measure::Roles) || statement.systems == "Bio-2";
            let has_some = bounds.0.is_some() || bounds.1.is_some();
            assert!(has_some || needs_none || statement.role == Role::Conflict, "{statement:?}");
        }
    }
}
