//! `granulo trace read`: the summary of a trace, and its conversion.

use std::path::PathBuf;

use clap::Args;

use super::opening::Opening;
use super::{Counting, TraceOutput, pass, refuse_nothing, show, write_report};
use crate::cli::output::refuse_to_replace;
use crate::cli::{Ended, output, signals};
use crate::error::Result;
use crate::units::escape_path;

/// Read a trace: operations by kind, read and write sizes, share served by one block, patterns, rates
///
/// Reads strace output, best with -f -ttt -T -y; NFS packet captures (through tshark); Darshan logs, or the output of
/// darshan-parser; tables with one line per operation, such as block traces; and .gtrace files. All may be compressed
/// with gzip or zstd. Lines that cannot be parsed are counted. The name vu-2005 stands for the published deciles of
/// a file server.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  strace -f -ttt -T -y -o make.strace make\n  granulo trace read make.strace\n  \
    granulo trace read make.strace --below src -o make.gtrace\n  granulo trace read make.gtrace --json | jq .reads.whole.deciles\n  granulo trace read nfs.pcap\n  \
    granulo trace read prxy_0.csv.gz\n  granulo trace read ops.csv --columns time=1:ms,op=2,file=3,offset=4,size=5\n\n\
    Exit status: 0 success; 1 finished with problems (in the trace, or interrupted); 2 failed.")]
pub(super) struct ReadArguments {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    counting: Counting,
    /// Also write the trace to this file, in the .gtrace format
    #[arg(short, long, value_name = "FILE.gtrace", value_parser = output::target())]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE.html", value_parser = output::target())]
    report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl ReadArguments {
    pub(super) fn run(self) -> Result<Ended> {
        refuse_to_replace(std::slice::from_ref(&self.opening.trace), self.output.iter().chain(&self.report))?;
        // Until the first bytes arrive, a signal ends the process.
        let opened = self.opening.open_or_published()?;
        let progress = signals::progress()?;
        let mut source = self.counting.of(opened, Some(&progress))?;
        let source = &mut *source;
        let mut target = self.output.as_deref().map(|path| TraceOutput::create(path, source)).transpose()?;
        let summary = pass(source, self.counting.options(), target.as_mut(), &progress, false)?;
        let interrupted = progress.should_stop();
        if !interrupted {
            refuse_nothing(&summary, source, &self.opening.trace)?;
        }
        match target {
            Some(target) if !interrupted => target.finish(source)?,
            _ => {}
        }
        if let Some(page) = &self.report {
            write_report(page, &escape_path(&self.opening.trace), &summary, source)?;
        }
        let ended = show(&escape_path(&self.opening.trace), &summary, source, self.json)?;
        if interrupted {
            output::warn("interrupted: the result covers what was read so far, and no trace was written");
            return Ok(Ended::Amiss);
        }
        // Its summary names the problems.
        Ok(if source.problems().is_empty() { ended } else { Ended::Amiss })
    }
}
