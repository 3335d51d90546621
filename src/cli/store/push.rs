//! `granulo store push`: bring a copy of a store up to date.

use std::path::PathBuf;

use clap::Args;

use super::Ended;
use super::replica::{Replica, ReplicaArguments};
use crate::error::Result;

/// Bring a copy of a store up to date: transfer what it lacks, nothing else
///
/// TO was made by granulo store clone. It becomes the state that STORE has now, snapshots included, at one moment:
/// until then, and if the command is killed, it is what it was. STORE may be in use. A copy that was written to is
/// refused and not changed. TO may be ssh://[USER@]HOST[:PORT]/PATH. Ctrl-C stops cleanly; the same command then goes
/// on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  granulo store push /srv/s /backup/s\n  granulo store push /srv/s ssh://backup@host/srv/s --verify"
)]
pub(super) struct PushArguments {
    /// The store
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The copy
    #[arg(value_name = "TO")]
    to: PathBuf,
    #[command(flatten)]
    how: ReplicaArguments,
}

impl PushArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let (schema, arguments) = ("granulo/store-push/1", &self.how);
        Replica { schema, from: &self.store, to: &self.to, is_new: false, arguments }.run()
    }
}
