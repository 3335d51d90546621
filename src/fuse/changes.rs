//! Changing attributes: permissions, owners, times, the size; extended attributes and access control lists.

use std::sync::Arc;

use rustix::io::Errno;

use super::acl::{ACCESS, Acl, DEFAULT};
use super::errno::Outcome;
use super::file_system::{FileSystem, now};
use super::live::{DIRECTORY, Info, Live, LiveState, REGULAR, SET_GID, TYPE};
use super::wire::reply::Reply;
use super::wire::request::{Header, NewAttributes, NewTime};
use crate::store::ids::ObjectNumber;
use crate::store::{Handle, Time};

/// Flags of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
/// Names that only the administrator sees in a list.
const TRUSTED: &[u8] = b"trusted.";

impl FileSystem {
    pub(super) fn set_attributes(&self, number: ObjectNumber, new: &NewAttributes) -> Outcome<Reply> {
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let now = now();
        let resized = match new.size {
            Some(size) => Some((self.handle_to_resize(&live, &mut state)?, size)),
            None => None,
        };
        self.change_object(&live, &mut state, 0, |info| {
            if let Some((handle, size)) = &resized {
                handle.set_len(*size).map_err(|error| self.fail_of(number, error))?;
            }
            change(info, new, now);
            Ok(())
        })?;
        let shown = self.shown(&live, &mut state)?;
        drop(state);
        self.settle_much();
        Ok(Reply::attributes(&shown, self.appearance.valid))
    }

    fn handle_to_resize(&self, live: &Live, state: &mut LiveState) -> Outcome<Arc<Handle>> {
        match self.info(live, state)?.attributes.mode & TYPE {
            REGULAR => self.open_handle(live.number, state),
            DIRECTORY => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn xattr(&self, number: ObjectNumber, name: &[u8], size: u32) -> Outcome<Reply> {
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let xattrs = &self.info(&live, &mut state)?.attributes.xattrs;
        let (_, value) = xattrs.iter().find(|(known, _)| known == name).ok_or(Errno::NODATA)?;
        sized(value, size)
    }

    /// Names of all extended attributes, each with NUL after it.
    pub(super) fn xattrs(&self, number: ObjectNumber, header: &Header, size: u32) -> Outcome<Reply> {
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let xattrs = &self.info(&live, &mut state)?.attributes.xattrs;
        let mut names = Vec::new();
        for (name, _) in xattrs.iter().filter(|(name, _)| header.uid == 0 || !name.starts_with(TRUSTED)) {
            names.extend_from_slice(name);
            names.push(0);
        }
        sized(&names, size)
    }

    pub(super) fn set_xattr(
        &self,
        number: ObjectNumber,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        kills_set_gid: bool,
    ) -> Outcome<Reply> {
        is_settable(name)?;
        self.settle(Some(number));
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let mut is_set = false;
        // At once, because there may be too many for a record.
        let changed = self.change_object_at_once(&live, &mut state, |info| {
            set(info, (name, value), flags, kills_set_gid)?;
            is_set = true;
            Ok(())
        });
        match changed {
            Err(Errno::INVAL) if is_set => Err(Errno::NOSPC),
            changed => changed.map(|()| Reply::empty()),
        }
    }

    pub(super) fn remove_xattr(&self, number: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        is_settable(name)?;
        self.settle(Some(number));
        let live = self.nodes.hold(number);
        let mut state = self.attention.lock(&live.state);
        let xattrs = &self.info(&live, &mut state)?.attributes.xattrs;
        let at = match xattrs.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            // A list that says no more than the mode is not kept.
            None if name == ACCESS || name == DEFAULT => return Ok(Reply::empty()),
            None => return Err(Errno::NODATA),
        };
        self.change_object_at_once(&live, &mut state, |info| {
            info.attributes.xattrs.remove(at);
            info.attributes.ctime = Some(now());
            Ok(())
        })?;
        Ok(Reply::empty())
    }
}

/// Whether a file system has attributes of this name, as xattr(7) has it. The kernel asks nobody's leave for those in
/// `system.`: it is up to the file system which there are.
fn is_settable(name: &[u8]) -> Outcome<()> {
    const SPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match SPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        Some(b"") => Err(Errno::INVAL),
        Some(_) => Ok(()),
        None if name == ACCESS || name == DEFAULT => Ok(()),
        None => Err(Errno::OPNOTSUPP),
    }
}

/// Sets an extended attribute.
fn set(info: &mut Info, (name, value): (&[u8], &[u8]), flags: u32, kills_set_gid: bool) -> Outcome<()> {
    let attributes = &mut info.attributes;
    let there = attributes.xattrs.binary_search_by(|(known, _)| known[..].cmp(name));
    match there {
        Ok(_) if flags & CREATE > 0 => return Err(Errno::EXIST),
        Err(_) if flags & REPLACE > 0 => return Err(Errno::NODATA),
        _ => {}
    }
    let mut is_kept = true;
    if name == ACCESS {
        let acl = Acl::decode(value).ok_or(Errno::INVAL)?;
        attributes.mode = attributes.mode & !0o777 | acl.mode();
        if kills_set_gid {
            attributes.mode &= !SET_GID;
        }
        is_kept = !acl.is_mode();
    } else if name == DEFAULT && attributes.mode & TYPE != DIRECTORY {
        return Err(Errno::ACCESS);
    }
    match (there, is_kept) {
        (Ok(at), true) => attributes.xattrs[at].1 = value.to_vec(),
        (Ok(at), false) => _ = attributes.xattrs.remove(at),
        (Err(at), true) => attributes.xattrs.insert(at, (name.to_vec(), value.to_vec())),
        (Err(_), false) => {}
    }
    attributes.ctime = Some(now());
    Ok(())
}

/// Applies new attributes.
fn change(info: &mut Info, new: &NewAttributes, now: Time) {
    let is_directory = info.is_directory();
    if let Some(mode) = new.mode {
        let attributes = &mut info.attributes;
        attributes.mode = attributes.mode & TYPE | mode as u16 & !TYPE;
        let list = attributes.xattrs.iter_mut().find(|(name, _)| name == ACCESS);
        if let Some((_, value)) = list
            && let Some(mut acl) = Acl::decode(value)
        {
            acl.set_mode(attributes.mode);
            *value = acl.encode();
        }
    }
    let sets_owner = new.uid.is_some() || new.gid.is_some();
    let sets_other = new.mode.is_some() || new.size.is_some() || new.atime.is_some() || new.mtime.is_some();
    // A request that sets nothing at all is a chown(2) to -1 and -1, which drops set-id bits as any other does.
    if !is_directory && new.mode.is_none() && (sets_owner || !sets_other) {
        info.drop_set_id();
    }
    info.attributes.uid = new.uid.unwrap_or(info.attributes.uid);
    info.attributes.gid = new.gid.unwrap_or(info.attributes.gid);
    if new.size.is_some() {
        info.touch(now);
        if new.kills_set_id {
            info.drop_set_id();
        }
    }
    // The kernel passes on any time; other file systems keep the nearest that they can, too.
    let at = |time| match time {
        NewTime::Now => now,
        NewTime::At(time) => Time::nearest(time),
    };
    if let Some(atime) = new.atime.map(at) {
        (info.atime, info.attributes.atime) = (atime, Some(atime));
    }
    if let Some(mtime) = new.mtime.map(at) {
        info.attributes.mtime = mtime;
    }
    info.attributes.ctime = Some(now);
}

/// The value, or its length if that was asked for.
fn sized(value: &[u8], size: u32) -> Outcome<Reply> {
    match size as usize {
        0 => Ok(Reply::length(value.len())),
        size if size < value.len() => Err(Errno::RANGE),
        _ => Ok(Reply::bytes(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Attributes;

    fn info(mode: u16) -> Info {
        Info::new(Attributes { mode, ..Attributes::default() })
    }

    const NOW: Time = Time { seconds: 5, nanoseconds: 6 };

    #[test]
    fn another_owner_loses_set_id_bits_and_new_permissions_do_not() {
        for (mode, new, expected) in [
            (0o106_755, NewAttributes { uid: Some(7), ..NewAttributes::default() }, 0o100_755),
            (0o102_644, NewAttributes { gid: Some(7), ..NewAttributes::default() }, 0o102_644),
            (0o106_755, NewAttributes::default(), 0o100_755),
            (0o042_755, NewAttributes { uid: Some(7), ..NewAttributes::default() }, 0o042_755),
            (0o100_644, NewAttributes { mode: Some(0o6755), ..NewAttributes::default() }, 0o106_755),
            (0o106_755, NewAttributes { size: Some(0), ..NewAttributes::default() }, 0o106_755),
            (0o106_755, NewAttributes { size: Some(0), kills_set_id: true, ..NewAttributes::default() }, 0o100_755),
        ] {
            let mut info = info(mode);
            change(&mut info, &new, NOW);
            assert_eq!((info.attributes.mode, info.attributes.ctime), (expected, Some(NOW)), "{mode:o} {new:?}");
        }
    }

    #[test]
    fn a_time_that_is_not_set_stays() {
        let mut info = info(0o100_644);
        let earlier = Time { seconds: 1, nanoseconds: 1 };
        change(&mut info, &NewAttributes { mtime: Some(NewTime::At(earlier)), ..NewAttributes::default() }, NOW);
        assert_eq!((info.attributes.mtime, info.atime, info.attributes.atime), (earlier, Time::default(), None));
        change(&mut info, &NewAttributes { atime: Some(NewTime::Now), ..NewAttributes::default() }, NOW);
        assert_eq!((info.attributes.mtime, info.atime, info.attributes.atime), (earlier, NOW, Some(NOW)));
    }
}
