//! Output generated from the definitions of the arguments: shell completions and man pages.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;

use super::{Ended, complete, definition, output};
use crate::error::{Error, Result};
use crate::io::write_atomically;

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  granulo completions bash > /etc/bash_completion.d/granulo")]
pub(super) struct CompletionsArguments {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Print the man page, or write the man pages of all commands to a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo man | man -l -\n  granulo man --directory /usr/local/share/man/man1")]
pub(super) struct ManArguments {
    /// Write granulo.1, granulo-survey.1, … to this directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl CompletionsArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition::command(), "granulo", &mut script);
        script.extend(complete::script(self.shell).as_bytes());
        output::print(|out| out.write_all(&script))
    }
}

impl ManArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let mut command = definition::command();
        command.build();
        let Some(directory) = &self.directory else {
            return output::print(|out| clap_mangen::Man::new(command).render(&mut &mut *out));
        };
        std::fs::metadata(directory).map_err(|error| Error::io("write into", directory, error))?;
        write_pages(&command, directory)?;
        Ok(Ended::Well)
    }
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &clap::Command, directory: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let path = directory.join(format!("{name}.1"));
    write_atomically(&path, |out| clap_mangen::Man::new(command.clone()).title(name).render(&mut &mut *out))?;
    let mut below =
        command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help" && !subcommand.is_hide_set());
    below.try_for_each(|subcommand| write_pages(subcommand, directory))
}
