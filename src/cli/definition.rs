//! The definition of the command line as a whole: what derives from the arguments of each command, with the commands
//! in groups by task, and defaults from the environment.
//!
//! Every command that is not hidden is in one group, which a test holds.

use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};

use super::{Arguments, output, usage_error};
use crate::error::Error;
use crate::report::chart::wrap;
use crate::units::escape;

/// The commands by what they are for, each with what it does in a few words.
const GROUPS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Measure a population of files",
        &[
            ("survey", "Sizes, space, ages, names and locations, in one pass over a tree"),
            ("watch", "Keep a survey true while files change"),
            ("show", "Print any result, or a published population"),
            ("compare", "Compare populations: what grew, shares, deciles, distances"),
            ("history", "Show how a tree grows, from many surveys of it"),
            ("merge", "Merge surveys of disjoint trees, or the shards of one"),
        ],
    ),
    (
        "Plan its storage",
        &[
            ("plan", "Predict its space on other layouts, and size a fast tier"),
            ("allocate", "Print the space that single files need on a layout"),
        ],
    ),
    (
        "Store it",
        &[
            ("store", "Keep many small files in a few large ones, large ones in stripes"),
            ("mount", "Mount a store as a file system"),
            ("unmount", "Unmount it"),
        ],
    ),
    (
        "Test with it",
        &[
            ("generate", "Create a tree that resembles a measured one"),
            ("bench", "Time a file system, or the store, with many files"),
            ("trace", "Record and analyse what programs read and write"),
            ("cache", "Predict misses of a trace for any cache and block size"),
        ],
    ),
    (
        "Show and set up",
        &[
            ("report", "Create one HTML page from results"),
            ("completions", "Print a shell completion script"),
            ("man", "Print or write the man pages"),
        ],
    ),
];

const EXAMPLES: &str = "Examples:
  granulo survey /srv -o srv.json --report srv.html
  granulo plan srv.json --model zfs --model ceph --fast 2TB
  granulo store init s && granulo store import s /srv/pictures";

const FURTHER: &str = "granulo COMMAND --help has the options of a command and examples; the man page granulo(1) has \
    units, exit status and environment.";

/// Columns before what a command does.
const SUMMARY_AT: usize = 15;
/// Columns of help, at least and at most.
const LEAST_COLUMNS: usize = 40;
const MOST_COLUMNS: usize = 100;

/// Variables with defaults of options, for jobs of cron and systemd: option, variable, and the commands that have it
/// (all, if none is named). An option that excludes or needs another is not among them, as clap takes what comes from
/// the environment for given: `GRANULO_MEMORY` is read where it matters.
const ENVIRONMENT: [(&str, &str, &[&str]); 3] = [
    ("quiet", "GRANULO_QUIET", &[]),
    ("threads", "GRANULO_THREADS", &["survey", "watch"]),
    ("scratch", "GRANULO_SCRATCH", &[]),
];

/// The whole definition. Its help fits on one screen; the rest of what it says is on the man page.
pub(super) fn command() -> Command {
    let command = with_environment(Arguments::command());
    let template = template(&command, output::columns());
    let command = command.help_template(template);
    match output::known_columns() {
        Some(columns) => command.term_width(columns.clamp(LEAST_COLUMNS, MOST_COLUMNS)),
        None => command,
    }
}

/// The help with the commands in groups, in at most `columns`.
fn template(command: &Command, columns: usize) -> String {
    let columns = columns.clamp(LEAST_COLUMNS, MOST_COLUMNS);
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (task, commands) in GROUPS {
        template.push_str(&format!("{task}:\n"));
        // Without the feature fuse, there is nothing to mount.
        let has = |name: &str| command.find_subcommand(name).is_some();
        for (name, summary) in commands.iter().filter(|(name, _)| has(name)) {
            let lines = wrap(summary, columns - SUMMARY_AT).join(&format!("\n{:SUMMARY_AT$}", ""));
            template.push_str(&format!("  {name:<12} {lines}\n"));
        }
    }
    template + "\nOptions:\n{options}\n\n" + EXAMPLES + "\n\n" + &wrap(FURTHER, columns).join("\n") + "\n"
}

fn with_environment(mut command: Command) -> Command {
    for (option, variable, commands) in ENVIRONMENT {
        let is_meant = commands.is_empty() || commands.contains(&command.get_name());
        let is_set = std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        if is_meant && is_set && command.get_arguments().any(|argument| argument.get_id() == option) {
            command = command.mut_arg(option, |argument| {
                let is_switch = !argument.get_action().takes_values();
                let argument = if is_switch { argument.value_parser(BoolishValueParser::new()) } else { argument };
                argument.env(variable).hide_env(true)
            });
        }
    }
    command.mut_subcommands(with_environment)
}

/// The error for a value that a variable has, which the parser takes for one of the option.
pub(super) fn of_environment(error: &clap::Error, given: &[OsString]) -> Option<Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?.split(' ').next()?;
    let (_, variable, _) = ENVIRONMENT.iter().find(|(option, ..)| argument == format!("--{option}"))?;
    let is_given = |word: &OsString| word.to_string_lossy().split('=').next() == Some(argument);
    if std::env::var_os(variable).is_none_or(|value| value.is_empty()) || given.iter().any(is_given) {
        return None;
    }
    let value = escape(text(ContextKind::InvalidValue)?.as_bytes());
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Some(usage_error(format!("{variable} is '{value}', which is no value of {argument}{cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::TARGETS;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().map(|it| it.0)).collect();
        grouped.sort_unstable();
        let defined = Arguments::command();
        let visible = defined.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        let mut commands: Vec<&str> = visible.map(Command::get_name).collect();
        commands.sort_unstable();
        if cfg!(feature = "fuse") {
            assert_eq!(grouped, commands);
        }
    }

    #[test]
    fn help_fits_on_one_screen() {
        const MOST_LINES: usize = 40;
        let help = command().render_help().to_string();
        assert!(help.lines().count() <= MOST_LINES, "{} lines", help.lines().count());
        assert!(help.lines().all(|line| line.len() <= 100));
        for columns in [60, 80] {
            let template = template(&Arguments::command(), columns);
            let long = template.lines().find(|line| line.chars().count() > columns && !line.contains("granulo "));
            assert_eq!(long, None, "in {columns} columns");
        }
    }

    /// Calls `see` with every command that can run, by its whole name.
    fn see_commands(command: &Command, name: &str, see: &mut impl FnMut(&str, &Command)) {
        let below: Vec<&Command> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
        if below.is_empty() {
            see(name, command);
        }
        below.iter().for_each(|it| see_commands(it, format!("{name} {}", it.get_name()).trim_start(), see));
    }

    #[test]
    fn every_result_can_be_a_file() {
        // Their `-o` is the content, or the tree.
        const OTHERS: [&str; 2] = ["store get", "store salvage"];
        // Its result is the content.
        const WITHOUT_PAGE: &str = "store get";
        see_commands(&Arguments::command(), "", &mut |name, command| {
            let has = |option: &str| command.get_arguments().any(|argument| argument.get_long() == Some(option));
            if has("json") {
                assert!(has("output") || OTHERS.contains(&name), "{name} has no -o");
                assert!(has("report") || name == WITHOUT_PAGE, "{name} has no --report");
            }
        });
    }

    #[test]
    fn every_file_that_is_written_is_known() {
        // These are read.
        const SOURCES: [&str; 2] = ["beside", "prices"];
        see_commands(&Arguments::command(), "", &mut |name, command| {
            for option in command.get_opts() {
                let is_file = option.get_value_names().is_some_and(|names| names[0].starts_with("FILE"));
                let id = option.get_id().as_str();
                assert!(!is_file || TARGETS.contains(&id) || SOURCES.contains(&id), "{name}: {id}");
            }
        });
    }

    #[test]
    fn every_variable_belongs_to_an_option() {
        fn has(command: &Command, option: &str, commands: &[&str]) -> bool {
            let is_meant = commands.is_empty() || commands.contains(&command.get_name());
            is_meant && command.get_arguments().any(|argument| argument.get_id() == option)
                || command.get_subcommands().any(|below| has(below, option, commands))
        }
        for (option, variable, commands) in ENVIRONMENT {
            assert!(has(&Arguments::command(), option, commands), "{variable}");
        }
    }
}
