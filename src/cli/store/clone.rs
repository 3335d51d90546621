//! `granulo store clone`: make a copy of a store that can be brought up to date.

use std::path::PathBuf;

use clap::Args;

use super::Ended;
use super::replica::{Replica, ReplicaArguments};
use crate::error::Result;

/// Make a copy of a store that push and pull bring up to date
///
/// FROM is a STORE that may be in use. The copy is one state of it, snapshots included: what was acknowledged when the
/// command began. All its devices are directories in TO. Ctrl-C stops cleanly; the same command then goes on. Do not
/// write to the copy: push refuses one that was written to. FROM or TO may be ssh://[USER@]HOST[:PORT]/PATH.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store clone /srv/s /backup/s\n  granulo store clone /srv/s ssh://backup@host/srv/s --rate 100MiB --verify"
)]
pub(super) struct CloneArguments {
    /// The store
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Directory for the copy; it must be empty or not exist
    #[arg(value_name = "TO")]
    to: PathBuf,
    #[command(flatten)]
    how: ReplicaArguments,
}

impl CloneArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (schema, arguments) = ("granulo/store-clone/1", &self.how);
        Replica { schema, from: &self.from, to: &self.to, is_new: true, arguments }.run()
    }
}
