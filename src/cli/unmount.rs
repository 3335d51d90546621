//! `granulo unmount`: end a mount.

use std::fs::{File, canonicalize};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Ended, output};
use crate::erofs;
use crate::error::{Error, ErrorKind, Result};
use crate::fuse::{KIND, Unmounted, unmount_at};
use crate::mounts::{self, Mount};
use crate::store::Store;
use crate::store::bucket::is_address;
use crate::units::escape_path;

/// How long to wait for the server to end.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Unmount a store that granulo mount has mounted
///
/// Everything is durable when this returns 0; if the devices have no room for it, it stays mounted. If a program still
/// has a file open, it is unmounted from the tree of names now, and ends when nobody uses it any more; the exit status
/// is 1 then.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  granulo unmount /mnt")]
pub(super) struct UnmountArguments {
    /// Directory where it is mounted
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

impl UnmountArguments {
    pub(super) fn run(self) -> Result<Ended> {
        let mount = self.mount()?;
        if mount.kind == erofs::KIND {
            return unmount_from_kernel(&mount);
        }
        // What is open for writing stays pending until it is closed; all else is durable now.
        let made_durable = File::open(&mount.point).and_then(|root| root.sync_all());
        let is_durable = made_durable.is_ok();
        if let Err(error) = made_durable {
            let has_room = !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            let error = Error::io("make durable what is mounted at", &mount.point, error);
            if !has_room {
                return Err(error.advise(
                    "it is still mounted: make room on the devices and repeat this, or give up the last changes with umount",
                ));
            }
            output::warn(&error.to_string());
        }
        let unmounted = unmount_at(&mount.point)?;
        if unmounted == Unmounted::WhenUnused {
            output::warn(&format!("{} is in use: it ends when nobody uses it any more", escape_path(&mount.point)));
            return Ok(Ended::Amiss);
        }
        // Who reads a bucket cannot see whether somebody writes to it.
        let is_here = !is_address(Path::new(&mount.source));
        let store = Path::new(&mount.source);
        if is_here && !mount.options.split(',').any(|option| option == "ro") && !has_let_go(store, PATIENCE) {
            output::warn(&format!(
                "{} is still open for writing: if the server of the mount has it, what was written last is not yet \
                 durable",
                escape_path(store)
            ));
            return Ok(Ended::Amiss);
        }
        Ok(if is_durable { Ended::Well } else { Ended::Amiss })
    }

    fn mount(&self) -> Result<Mount> {
        // The target itself may not answer, so its directory is resolved; unless it is a symbolic link, which answers.
        let is_link = self.target.read_link().is_ok();
        let target = match (self.target.parent(), self.target.file_name()) {
            _ if is_link => canonicalize(&self.target),
            (Some(above), Some(name)) => {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                canonicalize(above).map(|above| above.join(name))
            }
            _ => canonicalize(&self.target),
        };
        let target = target.map_err(|error| Error::io("unmount", &self.target, error))?;
        let found = mounts::mounts()?.into_iter().rfind(|mount| mount.point == target);
        found
            .filter(|mount| mount.kind == KIND || erofs::home_and_name(Path::new(&mount.source)).is_some())
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "unmount", "no store is mounted there").at(&self.target))
    }
}

/// Unmounts what the kernel reads by itself, and releases what kept it in the store.
fn unmount_from_kernel(mount: &Mount) -> Result<Ended> {
    let unmounted = unmount_at(&mount.point)?;
    let Some((home, name)) = erofs::home_and_name(Path::new(&mount.source)) else { return Ok(Ended::Well) };
    if unmounted == Unmounted::WhenUnused {
        output::warn(&format!(
            "{} is in use: it ends when nobody uses it any more; then: granulo store unpin {} {name}",
            escape_path(&mount.point),
            escape_path(home)
        ));
        return Ok(Ended::Amiss);
    }
    let is_pinned = Store::open_read_only(home)?.pins()?.iter().any(|(pin, _)| pin == name);
    if is_pinned && let Err(error) = Store::open(home).and_then(|store| store.unpin(name)) {
        output::warn(&format!("{error}; later: granulo store unpin {} {name}", escape_path(home)));
        return Ok(Ended::Amiss);
    }
    Ok(Ended::Well)
}

/// Waits until the server has let go of the store, so that another can open it; returns whether it has.
fn has_let_go(store: &Path, patience: Duration) -> bool {
    let Ok(store) = Store::open_read_only(store) else { return true };
    let begun = Instant::now();
    while store.status(false).is_ok_and(|status| status.has_writer) {
        if begun.elapsed() >= patience {
            return false;
        }
        sleep(POLL);
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::store::Plan;

    use super::*;

    #[test]
    fn a_server_that_has_the_store_open_has_not_let_go() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let server = Store::create(&home, &Plan::default()).unwrap();
        assert!(!has_let_go(&home, Duration::ZERO));
        drop(server);
        assert!(has_let_go(&home, Duration::ZERO));
    }
}
