//! What is known about a system and what is assumed, in words: the figures of the tables, the statements of the text,
//! and where the paper contradicts itself.

use serde::{Deserialize, Serialize};

use super::text::{Measure, Role, Statement};
use super::{SHAPE, System};
use crate::distribution::Distribution;
use crate::layout::Layout;
use crate::units::{KIB, format_count, format_share, format_size};

/// By how much the mean of the tables may differ from bytes / files before it contradicts them: it is cut to whole KiB.
const MEAN_TOLERANCE: f64 = 0.02;

/// Something known or assumed about a published population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Whether it is known.
    pub kind: FactKind,
    /// The fact, without a full stop.
    pub words: String,
    /// Where it is from: tables, or section and sentence.
    pub source: String,
    /// The least that the figure is, if the paper bounds it.
    pub least: Option<f64>,
    /// The most that the figure is.
    pub most: Option<f64>,
    /// The figure of the distribution here.
    pub fitted: Option<f64>,
}

impl Fact {
    /// Whether it says that the tables contradict themselves.
    pub fn is_contradiction_of_tables(&self) -> bool {
        self.kind == FactKind::Contradiction && self.source == TABLES
    }

    /// The same with every text changed.
    pub(crate) fn map_text(self, change: impl Fn(String) -> String) -> Fact {
        Fact { words: change(self.words), source: change(self.source), ..self }
    }
}

/// How far a [`Fact`] is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactKind {
    /// The paper says it of this system.
    Published,
    /// The paper says it of most systems; assumed of this one.
    Typical,
    /// Nothing is published.
    Assumed,
    /// The paper says two things that exclude each other.
    Contradiction,
}

/// All facts about a system whose distribution is `sizes`; `factor` is what its large sizes were multiplied by.
pub(super) fn facts(
    system: &System,
    statements: &[Statement],
    typical: &[&Statement],
    (sizes, factor): (&Distribution, f64),
    layout: &dyn Layout,
) -> Vec<Fact> {
    let own: Vec<&Statement> = statements.iter().filter(|statement| statement.names(system.name)).collect();
    let mut facts = of_tables(system).to_vec();
    let of = |kind, statement: &&Statement| Fact {
        kind,
        words: statement.words(),
        source: statement.source(),
        least: statement.least,
        most: statement.most,
        fitted: statement.figure(sizes, layout),
    };
    let is_new = |statement: &&&Statement| match statement.role {
        Role::Fit => statement.least.is_some() || statement.most.is_some() || statement.measure == Measure::Mode,
        // The others repeat the tables.
        Role::Check => matches!(statement.measure, Measure::FilesBySpace | Measure::Distance),
        Role::Conflict => false,
    };
    facts.extend(own.iter().filter(is_new).map(|statement| of(FactKind::Published, statement)));
    facts.extend(typical.iter().map(|statement| of(FactKind::Typical, statement)));
    facts.push(assumption(factor));
    facts.extend(
        own.iter()
            .filter(|statement| statement.role == Role::Conflict)
            .map(|statement| Fact { words: statement.contradiction(system), ..of(FactKind::Contradiction, statement) }),
    );
    facts.extend(contradiction_of_tables(system));
    facts
}

const TABLES: &str = "Tables I and II";

fn plain(kind: FactKind, words: String, source: &str) -> Fact {
    Fact { kind, words, source: source.to_owned(), least: None, most: None, fitted: None }
}

fn of_tables(system: &System) -> [Fact; 2] {
    let count = |count: u64| format_count(count.into());
    let sizes = format!(
        "{} files with {} in total, the largest {}",
        count(system.files),
        format_size(system.size_bytes),
        format_size(system.max_bytes.into())
    );
    let tree = format!(
        "{} directories with {} entries on average and at most {}; names of {} bytes on average and at most {}",
        count(system.directories),
        count(system.directory_entries_mean),
        count(system.directory_entries_max),
        system.name_length_mean,
        system.name_length_max
    );
    [sizes, tree].map(|words| plain(FactKind::Published, words, TABLES))
}

fn assumption(factor: f64) -> Fact {
    let factor = match factor {
        _ if factor >= 100.0 => format_count(factor.round() as u128),
        _ => format!("{factor:.2}"),
    };
    let words = format!(
        "between these figures sizes have the distribution of {SHAPE}, with those above 64 KiB multiplied by {factor}"
    );
    plain(FactKind::Assumed, words, "")
}

fn contradiction_of_tables(system: &System) -> Option<Fact> {
    let mean = system.size_bytes as f64 / system.files.max(1) as f64;
    let kib = |bytes: f64| format_count((bytes / KIB as f64).round() as u128);
    let off = (mean / system.mean_bytes as f64 - 1.0).abs();
    let words = format!(
        "{TABLES} have a mean of {} KiB, but their bytes and files give {} KiB; here bytes and files hold",
        kib(system.mean_bytes as f64),
        kib(mean)
    );
    (off > MEAN_TOLERANCE).then(|| plain(FactKind::Contradiction, words, TABLES))
}

impl Statement {
    fn source(&self) -> String {
        let section = match self.section {
            "Abstract" => "abstract".to_owned(),
            number => format!("section {number}"),
        };
        format!("{section}: “{}”", self.quote)
    }

    fn words(&self) -> String {
        let range = self.range_words();
        let shares = || self.bounds_words(format_share);
        let counts = || self.bounds_words(|count| format_count(count as u128));
        match self.measure {
            Measure::Files => format!("{} files are {range}", counts()),
            Measure::FilesFraction => format!("{} of the files are {range}", shares()),
            Measure::SpaceFraction => format!("files {range} need {} of the space", shares()),
            Measure::FilesBySpace => format!("{} files need {}", counts(), self.space_words()),
            Measure::SpaceBySpaceFraction => {
                format!("files that need {} have {} of the space", self.space_words(), shares())
            }
            Measure::Mode => format!("more files are {range} than in the octave on either side"),
            Measure::Distance => "its distribution and those of its neighbours are almost the same".to_owned(),
            _ => self.quote.to_owned(),
        }
    }

    fn range_words(&self) -> String {
        let size = |bytes: u64| format_size(bytes.into());
        match (self.low_bytes, self.high_bytes) {
            (0, None) => "of any size".to_owned(),
            (low, None) => format!("of {} or more", size(low)),
            (0, Some(high)) if high % 2 == 1 => format!("of {} or less", size(high - 1)),
            (0, Some(high)) => format!("below {}", size(high)),
            (low, Some(high)) => format!("from {} to below {}", size(low), size(high)),
        }
    }

    fn space_words(&self) -> String {
        let range = self.range_words();
        range.strip_prefix("of ").or_else(|| range.strip_prefix("from ")).unwrap_or(&range).to_owned()
    }

    fn bounds_words(&self, format: impl Fn(f64) -> String) -> String {
        match (self.least, self.most) {
            (Some(least), Some(most)) if least == most => format(least),
            (Some(least), Some(most)) => format!("{} to {}", format(least), format(most)),
            (Some(least), None) => format!("at least {}", format(least)),
            (None, Some(most)) => format!("at most {}", format(most)),
            (None, None) => "some".to_owned(),
        }
    }

    /// What the paper says elsewhere.
    fn contradiction(&self, system: &System) -> String {
        let said = format!("the text says “{}” ({})", self.quote, self.section);
        let figure = self.figure_of_tables(system).unwrap_or_default();
        let size = |bytes: f64| format_size(bytes as u128);
        let but = |what: &str| {
            format!("{said}, but {TABLES} have a {what} of {}, not {}", size(figure), self.bounds_words(size))
        };
        match self.measure {
            Measure::MeanBytes => but("mean"),
            Measure::LargestBytes => but("largest file"),
            Measure::SizeBytes => but("total"),
            Measure::SpaceBySpaceFraction => format!("{said}, but by section III every file needs at least 32 KiB"),
            _ => format!("{said} and so names one system twice"),
        }
    }
}
