//! `granulo store unpin`: gives up pins that outlived their process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde::Serialize;

use super::completeness::emit;
use super::named::position_of;
use super::{Ended, StoreToWrite, with_failures};
use crate::cli::output::DocumentArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::units::escape;

/// Release a pin of a store: what it kept can be freed
///
/// A pin keeps a past state of the store readable, across restarts, for a reader such as a kernel mount, which releases
/// it at the end. If that never comes, for instance after a crash, release the pin by the name that granulo store
/// status shows. Whatever still reads that state may then find bytes missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  granulo store unpin /srv/s mount-1f3a")]
pub(super) struct UnpinArguments {
    #[command(flatten)]
    at: StoreToWrite,
    /// Name of the pin
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    #[command(flatten)]
    document: DocumentArguments,
}

#[derive(Serialize)]
struct UnpinnedDocument {
    schema: &'static str,
    /// Names of the pins that were released.
    unpinned: Vec<String>,
    /// Names of those that are left.
    pins: Vec<String>,
}

impl UnpinArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let store = self.at.open()?;
        let outcome = self.unpin(&store);
        with_failures(&store, outcome)
    }

    fn unpin(&self, store: &Store) -> Result<Ended> {
        let names =
            |store: &Store| -> Result<Vec<String>> { Ok(store.pins()?.into_iter().map(|(name, _)| name).collect()) };
        let pins = names(store)?;
        // Names are shown escaped: what is shown is accepted, too. All are known before one is released.
        let mut wanted_pins = Vec::new();
        for wanted in &self.names {
            let found = position_of(wanted.as_bytes(), pins.iter().map(String::as_bytes));
            let Some(name) = found.and_then(|at| pins.get(at)) else {
                return Err(no_such_pin(wanted.as_bytes(), &pins));
            };
            wanted_pins.push(name);
        }
        let mut unpinned = Vec::new();
        for name in wanted_pins {
            if store.unpin(name)? {
                unpinned.push(name.clone());
            }
        }
        if self.document.is_wanted() {
            let pins = names(store)?;
            emit(&self.document, || UnpinnedDocument { schema: "granulo/store-unpin/1", unpinned, pins })?;
        }
        Ok(Ended::Well)
    }
}

fn no_such_pin(name: &[u8], pins: &[String]) -> Error {
    let error = Error::new(ErrorKind::NotFound, "release a pin", format!("no such pin: {}", escape(name)));
    let existing: Vec<String> = pins.iter().map(|name| escape(name.as_bytes())).collect();
    error.advise(match existing.is_empty() {
        true => "the store has none".to_owned(),
        false => format!("the store has {}", existing.join(", ")),
    })
}
