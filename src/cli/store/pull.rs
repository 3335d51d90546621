//! `granulo store pull`: bring a store up to date with one of which it is a copy, or that was a copy of it.

use std::path::PathBuf;

use clap::Args;

use super::Ended;
use super::replica::{Replica, ReplicaArguments};
use crate::error::Result;

/// Bring a store up to date with another state of it: push, from the other side
///
/// STORE is a copy of FROM, or FROM a copy of STORE that was written to, while STORE was not. It becomes the state that
/// FROM has now, at one moment. A store that has what FROM does not have is refused and not changed, and so is one with
/// devices outside its home. FROM may be ssh://[USER@]HOST[:PORT]/PATH. Ctrl-C stops cleanly; the same command then
/// goes on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store pull /backup/s /srv/s\n  granulo store pull /backup/s /srv/s --rate 50MiB"
)]
pub(super) struct PullArguments {
    /// The store that is brought up to date
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The store that is newer
    #[arg(value_name = "FROM")]
    from: PathBuf,
    #[command(flatten)]
    how: ReplicaArguments,
}

impl PullArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (schema, arguments) = ("granulo/store-pull/1", &self.how);
        Replica { schema, from: &self.from, to: &self.store, is_new: false, arguments }.run()
    }
}
