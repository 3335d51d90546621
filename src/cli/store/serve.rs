//! `granulo store serve`: the other side of a copy through a pipe.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::Ended;
use crate::cli::signals;
use crate::error::Result;
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
        let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
        let place = PathBuf::from("standard input");
        Store::serve_peer(&self.path, Peer { from: &mut from, to: &mut to, place }, &progress)?;
        Ok(Ended::Well)
    }
}
