//! Which trace is read, and in which format: the options of every command that takes one.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::usage_error;
use crate::error::Result;
use crate::trace::csv::Columns;
use crate::trace::published::{self, Published};
use crate::trace::{Format, Source, open, open_table};

/// The format that is detected.
const AUTO: &str = "auto";

/// A trace.
#[derive(Debug, Args)]
pub(in crate::cli) struct Opening {
    /// Trace file; - for standard input
    #[arg(value_name = "TRACE")]
    pub(in crate::cli) trace: PathBuf,
    /// Format of the trace
    #[arg(long, value_name = "FORMAT", default_value = AUTO, value_parser = PossibleValuesParser::new(formats()))]
    format: String,
    /// Columns of a table, as in time=1:ms,op=4,offset=5:sectors,size=6 (fields: time, op, file, process, offset,
    /// size, file-size, duration; columns by number or header name, several joined by +), or a published collection:
    /// msr, snia-systor17, snia-fiu, spc, alibaba, tencent
    #[arg(long, value_name = "COLUMNS", value_parser = Columns::parse)]
    columns: Option<Columns>,
}

fn formats() -> Vec<&'static str> {
    std::iter::once(AUTO).chain(Format::ALL.iter().map(|(_, name)| *name)).collect()
}

impl Opening {
    /// Its operations, or the published ones if that is what the trace is called.
    ///
    /// # Errors
    /// Any error of opening.
    pub(in crate::cli) fn open_or_published(&self) -> Result<Box<dyn Source>> {
        if self.trace.as_os_str() == published::NAME && self.columns.is_none() && self.format == AUTO {
            return Ok(Box::new(Published::new()));
        }
        self.open()
    }

    /// Its operations.
    ///
    /// # Errors
    /// Any error of opening.
    pub(in crate::cli) fn open(&self) -> Result<Box<dyn Source>> {
        let format = Format::ALL.iter().find(|(_, name)| *name == self.format).map(|(format, _)| *format);
        match (&self.columns, format) {
            (None, format) => open(&self.trace, format),
            (Some(columns), None | Some(Format::Csv)) => open_table(&self.trace, columns.clone()),
            (Some(_), Some(format)) => {
                Err(usage_error(format!("--columns is for tables (csv), not for --format {}", format.name())))
            }
        }
    }
}
