//! `granulo store serve`: the other side of a copy through a pipe.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Ended;
use crate::cli::signals;
use crate::error::{Error, Result};
use crate::store::{Peer, Store};

/// Serve a store, or become its copy, on standard input and output; ssh starts this
///
/// clone, push and pull start it on another machine for an address ssh://[USER@]HOST[:PORT]/PATH. PATH is a STORE, or
/// the directory for a copy of one. Whoever may start it may read and replace what is there, as this user may: with a
/// forced command in authorized_keys, a key is good for one store.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store push /srv/s ssh://backup@host/srv/s\n  \
    command=\"granulo store serve /srv/s\",restrict ssh-ed25519 AAAA… (in authorized_keys)")]
pub(super) struct ServeArguments {
    /// The store, or the directory of the copy
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

impl ServeArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let progress = signals::progress()?;
        // Without a buffer: whether more has arrived is seen at the descriptor.
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Error::io("read", Path::new("standard input"), error))?;
        let (mut from, mut to) = (File::from(input), io::stdout().lock());
        let place = PathBuf::from("standard input");
        Store::serve_peer(&self.path, Peer { from: &mut from, to: &mut to, place }, &progress)?;
        Ok(Ended::Well)
    }
}
