//! `granulo mount --kernel`: the kernel itself reads the store.

use std::path::Path;
use std::time::Instant;

use rustix::mount::{MountAttrFlags, MountFlags};

use super::options::Options;
use super::{MountArguments, clear_left_overs, refuse_own_files, resolved};
use crate::cli::progress::during;
use crate::cli::store::devices::{checked, say_what_is_wrong};
use crate::cli::{Ended, output, signals, usage_error};
use crate::erofs::{self, Imaged, Mounted};
use crate::error::{Error, ErrorKind, Result};
use crate::fuse::unmount_at;
use crate::progress::{Progress, Snapshot};
use crate::store::{CheckOptions, PinnedSnapshot, Store};
use crate::units::{escape, escape_path, format_count, format_counted, format_duration, format_size};

/// Mounts the current state of the store.
pub(super) fn run(arguments: &MountArguments, options: &Options) -> Result<Ended> {
    if options.uid.is_some() || options.gid.is_some() {
        return Err(usage_error(
            "a mount by the kernel shows the owners in the store: uid= and gid= need a mount without --kernel",
        ));
    }
    if options.is_rw_asked {
        return Err(usage_error("a mount by the kernel is read-only: rw needs a mount without --kernel"));
    }
    if options.commit_every.is_some() || options.free_every.is_some() || options.log.is_some() {
        return Err(usage_error(
            "a mount by the kernel has no server: commit=, free= and log= need a mount without --kernel",
        ));
    }
    let attributes = attributes_of(options.flags);
    let (store, unpinned) = open(&arguments.store, options)?;
    let is_writer = unpinned.is_none();
    refuse_own_files(&store, (&resolved(&arguments.store)?, options), &resolved(&arguments.target)?)?;
    say_what_is_wrong(&store);
    clear_left_overs(&store, &arguments.store, is_writer)?;
    let progress = signals::progress()?;
    if arguments.verify {
        verify(&store, &arguments.store, &progress)?;
    }
    let begun = Instant::now();
    let snapshot = state(&store, &arguments.store, options)?;
    let imaged = pinned(&store, is_writer, &arguments.target, || {
        during(false, &progress, made, || {
            erofs::mount(&snapshot, &arguments.store, &arguments.target, attributes, &progress)
        })
    })?;
    let took = begun.elapsed().as_secs_f64();
    drop((snapshot, store));
    output::note(&format!(
        "mounted at {}: {}; made in {}",
        escape_path(&arguments.target),
        words(&imaged),
        format_duration(took)
    ));
    if let Some(why) = &unpinned {
        let say = if why.kind() == ErrorKind::Busy { output::note } else { output::warn };
        say(&unpinned_words(why));
    }
    if arguments.prefetch {
        let read = during(false, &progress, prefetched, || erofs::prefetch(&imaged.files, &progress))?;
        output::note(&format!("read {} ahead", format_size(read.into())));
    }
    Ok(if imaged.left_out + imaged.xattrs_left_out == 0 { Ended::Well } else { say_left_out(&imaged) })
}

/// Mounts, and pins what is mounted if the store is open for writing. The state is kept by this process until then: one
/// that is killed leaves no pin.
fn pinned(store: &Store, is_writer: bool, target: &Path, mount: impl FnOnce() -> Result<Mounted>) -> Result<Imaged> {
    let Mounted { name, imaged } = mount()?;
    if is_writer && let Err(error) = store.pin(&name) {
        unmount_at(target)?;
        return Err(error);
    }
    Ok(imaged)
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

/// Opens the store for writing, to pin what is mounted, or for reading if that is not possible; returns why not.
fn open(home: &Path, options: &Options) -> Result<(Store, Option<Error>)> {
    let open = checked(home, options.to_open())?;
    match Store::open_with(home, &open) {
        Ok(store) => Ok((store, None)),
        Err(error) => Ok((Store::open_read_only_with(home, &open)?, Some(error))),
    }
}

/// That what is mounted is not pinned: as usual beside a writer, and otherwise with what is wrong.
fn unpinned_words(why: &Error) -> String {
    match why.kind() {
        ErrorKind::Busy => {
            "another process writes to the store: what it frees meanwhile takes room until this is unmounted".to_owned()
        }
        _ => format!("what is mounted is not pinned in the store: {why}"),
    }
}

fn attributes_of(flags: MountFlags) -> MountAttrFlags {
    const SAME: [(MountFlags, MountAttrFlags); 6] = [
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        (MountFlags::NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
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
            "extended attributes are not shown: their prefix or length is not one of the kernel's, or those of an \
             object are longer than 256 KiB together",
        ),
    ] {
        if count > 0 {
            output::warn(&format!("{} {what}", format_count(count.into())));
        }
    }
    Ended::Amiss
}

#[cfg(test)]
mod tests {
    use crate::store::{Attributes, Key, Plan, Time};

    use super::*;

    #[test]
    fn why_nothing_is_pinned_is_said_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let [home, fast, slow] = ["home", "fast", "slow"].map(|name| place.path().join(name));
        let plan = Plan { fast: vec![fast.clone()], slow: vec![slow], ..Plan::default() };
        let store = Store::create(&home, &plan).unwrap();
        store.put(&Key::parse("file").unwrap(), &Attributes::of_file(Time::default()), b"content").unwrap();
        let words = || open(&home, &Options::default()).unwrap().1.map(|why| unpinned_words(&why));
        assert!(words().unwrap().starts_with("another process writes"));
        drop(store);
        assert_eq!(words(), None);
        // It can be read, but nobody knows whether it is the newest state.
        std::fs::write(fast.join("superblock"), "").unwrap();
        let words = words().unwrap();
        assert!(words.starts_with("what is mounted is not pinned in the store: cannot"), "{words}");
    }

    #[test]
    fn a_pin_is_made_when_the_mount_is_there() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::create(&place.path().join("home"), &Plan::default()).unwrap();
        let pins = || store.pins().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let mount = || {
            // What is killed here leaves none.
            assert_eq!(pins(), [""; 0]);
            Ok(Mounted { name: "mount-0123456789abcdef".to_owned(), imaged: Imaged::default() })
        };
        pinned(&store, false, place.path(), mount).unwrap();
        pinned(&store, true, place.path(), mount).unwrap();
        assert_eq!(pins(), ["mount-0123456789abcdef"]);
    }
}
