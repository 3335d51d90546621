//! `granulo watch`: keep a survey true while the tree changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::progress::{during, survey_words};
use super::survey::HardLinkChoice;
use super::{Ended, output, signals};
use crate::error::{Error, Result};
use crate::io::{check_target, write_atomically};
use crate::progress::{Progress, Snapshot};
use crate::report::page;
use crate::scan::default_threads;
use crate::survey::file::{Detail, write};
use crate::survey::owner_ages::DEFAULT_BREAKS_DAYS;
use crate::survey::places::DEFAULT_LIMIT;
use crate::survey::run::{MethodChoice, Request as SurveyRequest};
use crate::survey::{Options, Snapshots};
use crate::units::{escape_path, format_count, format_size, parse_size};
use crate::watch::prometheus::{self, Wanted};
use crate::watch::{Document, Observer, Request, watch};

/// Keep a survey of a mounted file system true while files change, without another walk
///
/// Walks the file system once, then follows its changes through fanotify, and writes the survey at intervals: the same
/// document as 'granulo survey --method walk --one-file-system MOUNT' would write. Needs root, and Linux 5.9 or later.
/// Ctrl-C or SIGTERM writes the last state and ends; SIGUSR1 writes the state at once. Memory: about 250 bytes per
/// file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo watch /home -o home.json\n  granulo watch /scratch --prometheus \
    /var/lib/node_exporter/textfile/scratch.prom --by-owner --by-directory 1\n\nThe size of a file is current 45 seconds after it \
    was written, when the kernel has written it back (on XFS, what is allocated ahead after 6 minutes), and in a \
    document that was asked for at once. While it is watched, a file system cannot be unmounted.")]
pub(super) struct WatchArguments {
    /// Mount point of the file system to watch
    #[arg(value_name = "MOUNT")]
    mount: PathBuf,

    /// Write the survey to this file, for show, merge, compare and report
    #[arg(short, long, value_name = "SURVEY.json", required_unless_present_any = ["prometheus", "report", "json"], help_heading = "Results")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page of the survey to this file
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    report: Option<PathBuf>,
    /// Print each survey as a line of JSON
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Write metrics to this file in the text format of Prometheus, for a node exporter's textfile collector
    #[arg(long, value_name = "FILE.prom", help_heading = "Results")]
    prometheus: Option<PathBuf>,
    /// Write metrics by directory, down to this depth
    #[arg(long, value_name = "DEPTH", requires = "prometheus", help_heading = "Results")]
    by_directory: Option<u32>,
    /// Write metrics by owner
    #[arg(long, requires = "prometheus", help_heading = "Results")]
    by_owner: bool,
    /// Seconds between two documents; more if composing one takes longer than 1/400 of that
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, help_heading = "Results")]
    interval: f64,
    /// Omit all names and paths from the survey, so that it can be shared
    #[arg(long, conflicts_with = "by_directory", help_heading = "Results")]
    anonymous: bool,
    /// Rows in each list of directories
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT, help_heading = "Results")]
    top: usize,
    /// Largest size of a small file
    #[arg(long = "cutoff", alias = "small", value_name = "SIZE", default_value = "64KiB", value_parser = parse_size, help_heading = "Results")]
    small: u64,

    /// How to count a file with several names: at the first one found, at each in full, or at each with its share
    #[arg(long, value_name = "HOW", default_value = "once", help_heading = "Selection")]
    hard_links: HardLinkChoice,
    /// Skip names that match (or paths below MOUNT, if the pattern has a slash); may be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    exclude: Vec<String>,
    /// Include snapshot directories (.snapshot, .snapshots, .zfs, ~snapshot)
    #[arg(long, help_heading = "Selection")]
    include_snapshots: bool,

    /// Follow access times, too: every read of a file is then an event. Without this, the access time of a file is
    /// that at its last change
    #[arg(long, help_heading = "Execution")]
    access_times: bool,
    /// Changed names and files to remember, about 150 bytes each, before the tree is scanned again instead
    #[arg(long, value_name = "N", default_value_t = 4_000_000, help_heading = "Execution")]
    most_pending: usize,
    /// Number of threads of a scan [default: four per core, 8 to 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Execution")]
    threads: Option<u16>,
    /// Do not show progress
    #[arg(short, long, help_heading = "Execution")]
    quiet: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err("it must be a number of seconds, at least 1".to_owned()),
    }
}

impl WatchArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let targets: Vec<&PathBuf> = [&self.output, &self.prometheus, &self.report].into_iter().flatten().collect();
        if let Some((_, twice)) = targets.iter().enumerate().find(|(index, target)| targets[..*index].contains(target))
        {
            return Err(output::two_results(twice));
        }
        targets.iter().try_for_each(|target| check_target(target))?;
        let progress = signals::progress()?;
        let wanted_now = signals::wanted_now()?;
        let request = self.request();
        let mut results = Results { arguments: &self, progress: &progress, failure: None };
        let watched = during(self.quiet, &progress, words(), || watch(&request, &progress, &wanted_now, &mut results));
        if !watched? {
            output::note("interrupted during a scan: there is no state to write");
            return Ok(Ended::Amiss);
        }
        Ok(if results.failure.is_some() { Ended::Amiss } else { Ended::Well })
    }

    fn request(&self) -> Request {
        let options = Options {
            hard_links: self.hard_links.into(),
            one_file_system: true,
            snapshots: if self.include_snapshots { Snapshots::Include } else { Snapshots::Skip },
            excluded: self.exclude.clone(),
            small_file_bytes: self.small,
            age_breaks_days: DEFAULT_BREAKS_DAYS.to_vec(),
        };
        let mut survey = SurveyRequest::new(vec![self.mount.clone()]);
        survey.options = options;
        survey.threads = self.threads.map_or_else(default_threads, usize::from);
        survey.limit = self.top;
        survey.anonymous = self.anonymous;
        survey.method = MethodChoice::Walk;
        Request {
            survey,
            access_times: self.access_times,
            interval: Duration::from_secs_f64(self.interval),
            most_pending: self.most_pending,
            depth: self.by_directory,
        }
    }
}

/// Writes the documents; remembers whether the last one failed. Asks for a stop when nobody can get the next.
struct Results<'a> {
    arguments: &'a WatchArguments,
    progress: &'a Progress,
    failure: Option<Error>,
}

impl Observer for Results<'_> {
    fn document(&mut self, document: &Document<'_>) {
        let WatchArguments { mount, output, report, json, prometheus: metrics, by_directory, by_owner, .. } =
            self.arguments;
        let is_only_printed = output.is_none() && report.is_none() && metrics.is_none();
        let survey = output.iter().map(|path| write_atomically(path, |out| write(document.survey, Detail::Full, out)));
        // Metrics outlive the directory in which the command was typed.
        let mount = escape_path(&mount.canonicalize().unwrap_or_else(|_| mount.clone()));
        let wanted = Wanted { by_directory: by_directory.is_some(), by_owner: *by_owner };
        let metrics = metrics.iter().map(|path: &PathBuf| {
            write_atomically(Path::new(path), |out| prometheus::write(&mount, document, wanted, out))
        });
        let surveys = std::slice::from_ref(document.survey);
        let page = report.iter().map(|path| write_atomically(path, |out| page::write(surveys, super::now(), out)));
        let print = || -> Result<()> {
            let is_read = output::print_one_of_many(|out| write(document.survey, Detail::Full, out))?;
            if !is_read && is_only_printed {
                self.progress.stop();
            }
            Ok(())
        };
        let line = json.then(print);
        let failure = survey.chain(metrics).chain(page).chain(line).filter_map(Result::err).reduce(|first, _| first);
        // The same failure is not repeated every minute.
        match (&failure, &self.failure) {
            (Some(error), None) => output::complain(error),
            (None, Some(_)) => output::note("the results are written again"),
            _ => {}
        }
        self.failure = failure;
    }

    fn notice(&mut self, text: &str) {
        output::note(text);
    }
}

/// Words for the status line: what is being scanned, then what was last written and how much has changed.
fn words() -> impl FnMut(&Snapshot) -> String + Send {
    let mut scanning = survey_words();
    move |now| {
        if now.stage.name != "watching" {
            return format!("scanning: {}", scanning(now));
        }
        format!(
            "watching: {} files · {} · {} events",
            format_count(now.objects.into()),
            format_size(now.bytes),
            format_count(now.operations.into()),
        )
    }
}
