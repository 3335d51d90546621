//! How a layout describes itself: its name, its options with their values, and how it is built from them.

use super::Layout;
use crate::units::{format_size, parse_size};

/// The values of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// A size in bytes.
    Size {
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
        /// Whether it must be a power of two; 0 is one, if it is allowed.
        power_of_two: bool,
    },
    /// A whole number.
    Count {
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
    },
    /// A ratio, at least 1: `1.8` means that 1.8 bytes become one.
    Ratio {
        /// The largest allowed.
        most: f64,
    },
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// An option of a layout.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// The part before the `=`.
    pub name: &'static str,
    /// The default value, as the user would write it.
    pub default: &'static str,
    /// Its values.
    pub range: Range,
    /// Its meaning, in a few words.
    pub meaning: &'static str,
}

/// A layout with a name.
#[derive(Debug)]
pub struct Kind {
    /// The part before the `:`.
    pub name: &'static str,
    /// A description, in a few words.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [Opt],
    /// Builds it from options that are valid one by one; a sentence if they cannot be combined.
    pub build: fn(&Options) -> std::result::Result<Box<dyn Layout>, String>,
}

impl Kind {
    /// Its options with their defaults, as the user would write them.
    pub fn usage(&self) -> String {
        if self.options.is_empty() {
            return format!("{} has no options", self.name);
        }
        let pairs: Vec<String> =
            self.options.iter().map(|option| format!("{}={}", option.name, option.default)).collect();
        format!("options of {}, with their defaults: {}", self.name, pairs.join(","))
    }
}

/// The options of one layout, each with a value.
#[derive(Debug)]
pub struct Options {
    kind: &'static Kind,
    values: Vec<String>,
    is_given: Vec<bool>,
}

impl Options {
    /// The given values, and the defaults of the others; `given` is in the order of the kind's options.
    pub(super) fn new(kind: &'static Kind, given: Vec<Option<String>>) -> Options {
        let is_given = given.iter().map(Option::is_some).collect();
        let defaults = kind.options.iter().map(|option| option.default.to_owned());
        let values = given.into_iter().zip(defaults).map(|(given, default)| given.unwrap_or(default)).collect();
        Options { kind, values, is_given }
    }

    /// Whether the user set it; otherwise it has its default, which a layout may adapt to the other options.
    pub fn is_given(&self, name: &str) -> bool {
        let at = self.kind.options.iter().position(|option| option.name == name);
        at.is_some_and(|at| self.is_given[at])
    }

    fn text(&self, name: &str) -> &str {
        let at = self.kind.options.iter().position(|option| option.name == name);
        at.map_or("", |at| &self.values[at])
    }

    /// The bytes of a [`Range::Size`].
    pub fn size(&self, name: &str) -> u64 {
        parse_size(self.text(name)).unwrap_or_default()
    }

    /// The number of a [`Range::Count`].
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// The number of a [`Range::Ratio`].
    pub fn ratio(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(1.0)
    }

    /// Whether a [`Range::Switch`] is on.
    pub fn switch(&self, name: &str) -> bool {
        self.text(name) == "on"
    }

    /// The word of a [`Range::Choice`].
    pub fn choice(&self, name: &str) -> &str {
        self.text(name)
    }
}

impl Range {
    /// Describes the values in words.
    pub fn describe(&self) -> String {
        match *self {
            Range::Size { least, most, power_of_two } => {
                let what = if power_of_two { "a power of two" } else { "a size" };
                format!("{what} from {} to {}", format_size(least.into()), format_size(most.into()))
            }
            Range::Count { least, most } => format!("a whole number from {least} to {most}"),
            Range::Ratio { most } => format!("a ratio from 1 to {most}"),
            Range::Switch => "on or off".to_owned(),
            Range::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// The values, if they are a few words.
    pub fn words(&self) -> &'static [&'static str] {
        match self {
            Range::Choice(words) => words,
            Range::Switch => &["on", "off"],
            Range::Size { .. } | Range::Count { .. } | Range::Ratio { .. } => &[],
        }
    }

    /// # Errors
    /// The error says what would be valid.
    pub(super) fn check(&self, value: &str) -> std::result::Result<(), String> {
        let right = match *self {
            Range::Size { least, most, power_of_two } => parse_size(value).is_ok_and(|bytes| {
                (least..=most).contains(&bytes) && (!power_of_two || bytes == 0 || bytes.is_power_of_two())
            }),
            Range::Count { least, most } => value.parse().is_ok_and(|count: u64| (least..=most).contains(&count)),
            Range::Ratio { most } => value.parse().is_ok_and(|ratio: f64| (1.0..=most).contains(&ratio)),
            Range::Switch => ["on", "off"].contains(&value),
            Range::Choice(words) => words.contains(&value),
        };
        if right { Ok(()) } else { Err(self.describe()) }
    }
}
