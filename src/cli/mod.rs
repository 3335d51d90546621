//! The command line: arguments, progress, exit status. Results go to standard output, everything else to standard
//! error.
//!
//! Exit status: 0 done, 1 done but something was wrong, 2 could not start or usage. Help, man pages and shell
//! completions come from the same definitions (`Arguments`). [`main`] is all that a binary calls.

mod allocate;
mod bench;
mod buckets;
mod cache;
mod compare;
mod complete;
mod definition;
mod generate;
mod generated;
mod history;
mod lists;
mod merge;
#[cfg(feature = "fuse")]
mod mount;
mod output;
mod plan;
mod progress;
mod report;
mod results;
mod shard;
mod show;
mod signals;
mod sources;
mod store;
mod survey;
mod trace;
#[cfg(feature = "fuse")]
mod unmount;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{ColorChoice, FromArgMatches, Parser, Subcommand};

use crate::error::{Error, Result};
use crate::program;
use crate::report::chart;

/// File-size granulometry: measure a file population, and predict the space it needs.
#[derive(Debug, Parser)]
#[command(name = "granulo", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Write sizes as 65536, 64KiB, 64K (= KiB) or 64kB (= 1,000). SOURCE is a survey file, \
    a list of another program (sizes one a line; min,max,count; an fsstats CSV; the JSON of ncdu, gdu or dust; the report \
    of fprof or zdb -bbbs; Parquet), a published table (vu-1984, vu-2005, web-2005), or - for standard input.\n\nExit status: 0 success; 1 finished with problems (unreadable files, \
    an interrupted survey); 2 failed to start.\n\nEnvironment: \
    GRANULO_QUIET=1, GRANULO_THREADS, GRANULO_MEMORY and GRANULO_SCRATCH are defaults of --quiet, of --threads and \
    --memory of a survey, and of --scratch.")]
struct Arguments {
    /// When to use colour
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Survey(survey::SurveyArguments),
    Watch(watch::WatchArguments),
    Show(show::ShowArguments),
    Merge(merge::MergeArguments),
    Compare(compare::CompareArguments),
    History(history::HistoryArguments),
    Plan(plan::PlanArguments),
    Allocate(allocate::AllocateArguments),
    Generate(generate::GenerateArguments),
    Store(store::StoreArguments),
    #[cfg(feature = "fuse")]
    Mount(mount::MountArguments),
    #[cfg(feature = "fuse")]
    Unmount(unmount::UnmountArguments),
    Cache(Box<cache::CacheArguments>),
    Trace(trace::TraceArguments),
    Bench(bench::BenchArguments),
    Report(report::ReportArguments),
    Completions(generated::CompletionsArguments),
    Complete(complete::CompleteArguments),
    Man(generated::ManArguments),
}

/// How a command ended that could start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    /// Done, but something was wrong.
    Amiss,
    /// With the status of a command that was run for the user.
    As(u8),
}

impl Ended {
    /// The same, unless something was wrong that the command itself did not meet.
    fn and(self, is_well: bool) -> Ended {
        if self == Ended::Well && !is_well { Ended::Amiss } else { self }
    }
}

impl Ended {
    /// The exit status.
    fn status(self) -> u8 {
        match self {
            Ended::Well => 0,
            Ended::Amiss => 1,
            Ended::As(code) => code,
        }
    }
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    ExitCode::from(with_arguments(std::env::args_os().collect()))
}

/// Runs the command in a process that is not the binary, such as the script that the Python package installs, with
/// these arguments, of which the first is its name; returns the exit status. `started_by` is the program, with its
/// first arguments, that runs the command with the arguments that are added to it: `granulo mount --background` starts
/// another process.
pub fn run(given: Vec<OsString>, started_by: Vec<OsString>) -> u8 {
    program::is_started_by(started_by);
    with_arguments(given)
}

fn with_arguments(given: Vec<OsString>) -> u8 {
    let given = match arguments(given) {
        Ok(Some(given)) => given,
        Ok(None) => return 0,
        Err(error) => {
            output::complain(&error);
            return 2;
        }
    };
    let matches = match definition::command().try_get_matches_from(&given) {
        Ok(matches) => matches,
        Err(error) => match definition::of_environment(&error, &given) {
            Some(error) => {
                output::complain(&error);
                return 2;
            }
            None => return print_and_status(&error),
        },
    };
    if let Err(error) = output::check_targets(&matches) {
        output::complain(&error);
        return 2;
    }
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => return print_and_status(&error),
    };
    match arguments.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    chart::set_columns(output::columns());
    buckets::register();
    match arguments.command.run() {
        Ok(ended) => ended.status(),
        Err(error) => {
            output::complain(&error);
            2
        }
    }
}

/// The arguments to parse; `None` if there is nothing to do. mount(8) calls it by another name and with others.
fn arguments(given: Vec<OsString>) -> Result<Option<Vec<OsString>>> {
    #[cfg(feature = "fuse")]
    if given.first().is_some_and(mount::helper::is_called_by) {
        return match mount::helper::request(given.into_iter().skip(1), rustix::process::geteuid().is_root())? {
            mount::helper::Request::Run(arguments) => Ok(Some(arguments)),
            mount::helper::Request::Nothing => Ok(None),
        };
    }
    Ok(Some(given))
}

/// Prints what the argument parser returned instead of arguments (help, the version, an error), and returns the exit
/// status. A closed pipe is not a failure.
fn print_and_status(instead: &clap::Error) -> u8 {
    if instead.use_stderr() {
        let _ = instead.print();
        return 2;
    }
    let printed = output::print(|out| match instead.kind() {
        // The parser would print the name of the command, but commands have no versions of their own.
        ErrorKind::DisplayVersion => writeln!(out, "granulo {}", program::version()),
        _ => write!(out, "{}", instead.render().ansi()),
    });
    printed.map_or_else(
        |error| {
            output::complain(&error);
            2
        },
        Ended::status,
    )
}

impl Command {
    fn run(self) -> Result<Ended> {
        match self {
            Command::Survey(arguments) => arguments.run(),
            Command::Watch(arguments) => arguments.run(),
            Command::Show(arguments) => arguments.run(),
            Command::Merge(arguments) => arguments.run(),
            Command::Compare(arguments) => arguments.run(),
            Command::History(arguments) => arguments.run(),
            Command::Plan(arguments) => arguments.run(),
            Command::Allocate(arguments) => arguments.run(),
            Command::Generate(arguments) => arguments.run(),
            Command::Store(arguments) => arguments.run(),
            #[cfg(feature = "fuse")]
            Command::Mount(arguments) => arguments.run(),
            #[cfg(feature = "fuse")]
            Command::Unmount(arguments) => arguments.run(),
            Command::Cache(arguments) => arguments.run(),
            Command::Trace(arguments) => arguments.run(),
            Command::Bench(arguments) => arguments.run(),
            Command::Report(arguments) => arguments.run(),
            Command::Completions(arguments) => arguments.run(),
            Command::Complete(arguments) => arguments.run(),
            Command::Man(arguments) => arguments.run(),
        }
    }
}

/// An error about the arguments themselves.
fn usage_error(cause: impl Into<String>) -> Error {
    Error::new(crate::error::ErrorKind::Usage, "start", cause)
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        definition::command().debug_assert();
    }
}
