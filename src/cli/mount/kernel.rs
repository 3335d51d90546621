//! `granulo mount --kernel`: the kernel itself reads the store.

use std::path::Path;
use std::time::Instant;

use rustix::mount::{MountAttrFlags, MountFlags};

use super::MountArguments;
use super::options::Options;
use crate::cli::progress::during;
use crate::cli::store::devices::{checked, say_what_is_wrong};
use crate::cli::{Ended, output, signals, usage_error};
use crate::erofs::{self, Imaged};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, Snapshot};
use crate::store::{CheckOptions, OpenOptions, PinnedSnapshot, Store};
use crate::units::{escape, escape_path, format_count, format_counted, format_duration, format_size};

/// Mounts the current state of the store.
pub(super) fn run(arguments: &MountArguments, options: &Options) -> Result<Ended> {
    if options.uid.is_some() || options.gid.is_some() {
        return Err(usage_error(
            "a mount by the kernel shows the owners in the store: uid= and gid= need a mount without --kernel",
        ));
    }
    let attributes = attributes_of(options.flags);
    let (store, is_writer) = open(&arguments.store, options)?;
    say_what_is_wrong(&store);
    let progress = signals::progress()?;
    if arguments.verify {
        verify(&store, &arguments.store, &progress)?;
    }
    let name = erofs::new_name()?;
    if is_writer {
        store.pin(&name)?;
    }
    let begun = Instant::now();
    let mounted = state(&store, &arguments.store, options).and_then(|snapshot| {
        during(false, &progress, made, || {
            erofs::mount(&snapshot, &arguments.store, &name, &arguments.target, attributes, &progress)
        })
    });
    let imaged = match mounted {
        Ok(imaged) => imaged,
        Err(error) => {
            if is_writer {
                store.unpin(&name)?;
            }
            return Err(error);
        }
    };
    let took = begun.elapsed().as_secs_f64();
    drop(store);
    output::note(&format!(
        "mounted at {}: {}; made in {}",
        escape_path(&arguments.target),
        words(&imaged),
        format_duration(took)
    ));
    if !is_writer {
        output::note("another process writes to the store: what it frees meanwhile takes room until this is unmounted");
    }
    if arguments.prefetch {
        let read = during(false, &progress, prefetched, || erofs::prefetch(&imaged.files, &progress))?;
        output::note(&format!("read {} ahead", format_size(read.into())));
    }
    Ok(if imaged.left_out + imaged.xattrs_left_out == 0 { Ended::Well } else { say_left_out(&imaged) })
}

/// The state to mount.
fn state(store: &Store, home: &Path, options: &Options) -> Result<PinnedSnapshot> {
    let Some(name) = &options.at else { return store.snapshot() };
    store.snapshot_named(name)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "mount", format!("there is no snapshot {}", escape(name.as_bytes())))
            .at(home)
            .advise("list them with granulo store snapshot ls")
    })
}

/// Opens the store for writing, to pin what is mounted, or for reading if that is not possible; returns which.
fn open(home: &Path, options: &Options) -> Result<(Store, bool)> {
    let open =
        OpenOptions { devices: options.devices.clone(), degraded: options.is_degraded, ..OpenOptions::default() };
    let open = checked(home, open)?;
    match Store::open_with(home, &open) {
        Ok(store) => Ok((store, true)),
        Err(_) => Ok((Store::open_read_only_with(home, &open)?, false)),
    }
}

fn attributes_of(flags: MountFlags) -> MountAttrFlags {
    const SAME: [(MountFlags, MountAttrFlags); 5] = [
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ];
    SAME.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, attribute)| attribute).collect()
}

/// Reads every byte of the store, because the kernel verifies none.
fn verify(store: &Store, home: &Path, progress: &Progress) -> Result<()> {
    let options = CheckOptions { is_deep: true, bytes_per_second: None };
    let words = |at: &Snapshot| format!("verifying: {}", format_size(at.bytes));
    let report = during(false, progress, words, || store.check(options, &mut |_| {}, progress))?;
    match report.problems() {
        0 if report.is_complete => Ok(()),
        0 => Err(Error::new(ErrorKind::Interrupted, "verify", "it was interrupted").at(home)),
        problems => {
            let cause = format!("it has {} problems", format_count(problems.into()));
            Err(Error::new(ErrorKind::Corrupt, "verify", cause)
                .at(home)
                .advise("granulo store check --deep lists them; without --kernel, every read is verified and repaired"))
        }
    }
}

fn made(at: &Snapshot) -> String {
    format!("making the image: {} objects", format_count(at.objects.into()))
}

fn prefetched(at: &Snapshot) -> String {
    format!("reading ahead: {}", format_size(at.bytes))
}

fn words(imaged: &Imaged) -> String {
    let (inodes, files) = (imaged.inodes, imaged.files.len() as u64);
    let mut words = format!(
        "{}, in an image of {}",
        format_counted(inodes, "inode", "inodes"),
        format_size(imaged.image_bytes.into())
    );
    if files > 0 {
        let mapped = format_size(imaged.mapped_bytes.into());
        words += &format!(" that points to {mapped} in {} of the store", format_counted(files, "file", "files"));
    }
    if imaged.copied_files > 0 {
        let copied = format_size(imaged.copied_bytes.into());
        words += &format!("; {copied} of {} copied", format_counted(imaged.copied_files, "file", "files"));
    }
    words
}

fn say_left_out(imaged: &Imaged) -> Ended {
    for (count, what) in [
        (imaged.left_out, "objects are not shown: a name is longer than 255 bytes"),
        (
            imaged.xattrs_left_out,
            "extended attributes are not shown: their prefix or length is not one of the kernel's, or those of an object \
             are longer than 256 KiB together",
        ),
    ] {
        if count > 0 {
            output::warn(&format!("{} {what}", format_count(count.into())));
        }
    }
    Ended::Amiss
}
