//! Answering requests, on several threads. A panic is an error to one program; the mount goes on.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, Scope};

use super::attention::Attention;
use super::device::{Device, REQUEST_BYTES};
use super::errno::Outcome;
use super::file_system::FileSystem;
use super::wire::reply::{Reply, failed, outdated_range};
use super::wire::request::{Header, Operation, parse};
use crate::error::Result;
use crate::store::ids::ObjectNumber;
use rustix::io::Errno;

/// A write of that size is one of many.
const LONG_WRITE_BYTES: usize = 64 << 10;

/// Answers requests until the file system is unmounted.
///
/// # Errors
/// Errors of the device.
pub(super) fn serve<'s>(
    scope: &'s Scope<'s, '_>,
    device: &'s Device,
    system: &'s FileSystem,
    attention: &Attention,
) -> Result<()> {
    let (mut buffer, mut attendant) = (vec![0; REQUEST_BYTES], attention.attendant());
    while let Some(request) = device.receive(&mut buffer, &mut attendant)? {
        let Some((header, operation)) = parse(request) else { continue };
        let (unique, node) = (header.unique, ObjectNumber(header.node));
        let is_answered = !matches!(operation, Operation::Forget(_) | Operation::Interrupt);
        if matches!(operation, Operation::Interrupt) {
            // The kernel then asks no more for that: nothing here waits for long.
            device.send(&failed(unique, Errno::NOSYS.raw_os_error()));
        }
        if let Operation::Seek { offset, whence } = operation
            && !system.appearance.is_read_only
            && attendant.away(|| depends_on_hole(system, node, offset, whence))
        {
            // The kernel writes pages before it takes the notice: these threads must be free to answer that.
            let seek = move || {
                let flush = |hole: &Range<u64>| device.send(&outdated_range(node.0, hole));
                send(device, unique, caught(system, || system.seek(node, offset, whence, flush)));
            };
            if thread::Builder::new().spawn_scoped(scope, seek).is_err() {
                send(device, unique, Err(Errno::AGAIN));
            }
            continue;
        }
        let is_synced = is_synced(system, &operation);
        let changed = (!is_committed(&operation)).then_some(node);
        let is_waiting = || is_committed(&operation) && system.is_settling();
        // With little room, whatever commits may have to free some first, and others wait for its object.
        let is_committed_write = system.appearance.is_sync && matches!(operation, Operation::Write { .. });
        let is_busy = is_synced || is_committed_write || system.waiting.is_tight() || system.waiting.is_much();
        let is_long = takes_long(&operation) || is_busy || is_waiting();
        let work = || {
            caught(system, || {
                let reply = answer(system, &header, operation)?;
                if is_synced {
                    system.sync_done(changed)?;
                }
                Ok(reply)
            })
        };
        let answer = if is_long { attendant.away(work) } else { work() };
        if is_answered {
            send(device, unique, answer);
        }
    }
    Ok(())
}

/// Whether the answer to a seek depends on a hole, in which programs may have changed something through mappings.
fn depends_on_hole(system: &FileSystem, node: ObjectNumber, offset: u64, whence: u32) -> bool {
    let run = catch_unwind(AssertUnwindSafe(|| system.run_at(node, offset, whence)));
    run.is_ok_and(|run| run.is_ok_and(|(_, hole)| !hole.is_empty()))
}

/// What comes of a request; an error, if it panics. Locks survive that, and so does the store: what it was about to
/// commit is not committed.
fn caught(system: &FileSystem, work: impl FnOnce() -> Outcome<Reply>) -> Outcome<Reply> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        system.log.say("a request failed unexpectedly, and the program got EIO: please report this");
        Err(Errno::IO)
    })
}

fn send(device: &Device, unique: u64, answer: Outcome<Reply>) {
    match answer {
        Ok(reply) => device.send(&reply.finish(unique)),
        Err(errno) => device.send(&failed(unique, errno.raw_os_error())),
    }
}

/// Whether it is durable before its answer, as the mount options `sync` and `dirsync` ask.
fn is_synced(system: &FileSystem, operation: &Operation<'_>) -> bool {
    match operation {
        Operation::SetAttributes(_)
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::Allocate { .. }
        | Operation::CopyRange { .. } => system.appearance.is_sync,
        _ => system.appearance.is_dirsync && is_committed(operation),
    }
}

/// Whether devices may be waited for.
fn takes_long(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Write { bytes, .. } => bytes.len() >= LONG_WRITE_BYTES,
        Operation::Read { .. }
        | Operation::ReadDirectory { .. }
        | Operation::Sync
        | Operation::SyncDirectory
        | Operation::Allocate { .. }
        | Operation::CopyRange { .. } => true,
        _ => false,
    }
}

/// Whether it is committed at once, so that what was written before must be, too.
fn is_committed(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Symlink { .. }
            | Operation::MakeNode { .. }
            | Operation::MakeDirectory { .. }
            | Operation::Unlink { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. }
    )
}

fn answer(system: &FileSystem, header: &Header, operation: Operation<'_>) -> Outcome<Reply> {
    let node = ObjectNumber(header.node);
    match operation {
        Operation::Lookup { name } => system.look_up(node, name),
        Operation::Forget(nodes) => {
            nodes.iter().for_each(|&(node, look_ups)| system.nodes.forget(ObjectNumber(node), look_ups));
            Ok(Reply::empty())
        }
        Operation::GetAttributes => system.attributes(node),
        Operation::Statx => system.statx(node),
        Operation::SetAttributes(new) => system.set_attributes(node, &new),
        Operation::ReadLink => system.read_link(node),
        Operation::Symlink { name, target } => system.make_symlink(node, name, target, header),
        Operation::MakeNode { name, creation, device } => system.make_node(node, name, header, creation, device),
        Operation::MakeDirectory { name, creation } => system.make_directory(node, name, header, creation),
        Operation::Unlink { name } => system.unlink(node, name),
        Operation::RemoveDirectory { name } => system.remove_directory(node, name),
        Operation::Rename { name, to, new_name, flags } => {
            system.rename((node, name), (ObjectNumber(to), new_name), flags)
        }
        Operation::Link { node: existing, name } => system.link(ObjectNumber(existing), node, name),
        Operation::Open => system.open(node),
        Operation::Create { name, creation } => system.create(node, name, header, creation),
        Operation::TemporaryFile { creation } => system.create_nameless(node, header, creation),
        Operation::Read { offset, size } => system.read(node, offset, size),
        Operation::Write { offset, kills_set_id, bytes } => system.write(node, offset, bytes, kills_set_id),
        Operation::Release => system.release(node),
        Operation::Sync => system.sync_file(node),
        Operation::StatFileSystem => system.room(),
        Operation::SetXattr { name, value, flags, kills_set_gid } => {
            system.set_xattr(node, (name, value), flags, kills_set_gid)
        }
        Operation::GetXattr { name, size } => system.xattr(node, name, size),
        Operation::ListXattrs { size } => system.xattrs(node, header, size),
        Operation::RemoveXattr { name } => system.remove_xattr(node, name),
        Operation::OpenDirectory => system.open_directory(node),
        Operation::ReadDirectory { handle, offset, size, with_attributes } => {
            system.read_directory(node, handle, offset, size, with_attributes)
        }
        Operation::ReleaseDirectory { handle } => system.release_directory(handle),
        Operation::SyncDirectory => system.sync_all(),
        Operation::Allocate { offset, length, mode } => system.allocate(node, header, (offset, length), mode),
        Operation::Seek { offset, whence } => system.seek(node, offset, whence, |_| ()),
        Operation::CopyRange { from, to_node, to, length } => {
            system.copy_range((node, from), (ObjectNumber(to_node), to), header, length)
        }
        Operation::Destroy => Ok(Reply::empty()),
        // The kernel then asks for them no more.
        Operation::Flush | Operation::Init { .. } | Operation::Interrupt | Operation::Other => Err(Errno::NOSYS),
    }
}
