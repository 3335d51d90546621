//! Access control lists, as far as a file system has to know them: the mode bits are a part of the list of a file, and
//! a new object inherits the default list of its directory. The kernel checks permissions by them.
//!
//! A list is an extended attribute: version 2 in four bytes, then for each entry tag, permissions and id
//! (`include/uapi/linux/posix_acl_xattr.h`). What is done with it follows `fs/posix_acl.c`.

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const OWNER: u16 = 1;
const GROUP: u16 = 4;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl(Vec<AclEntry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

impl Acl {
    /// Reads a list; `None` if it is not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Acl> {
        let (version, rest) = bytes.split_first_chunk::<VERSION_BYTES>()?;
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else { return None };
        let entries = entries.iter().map(|&[a, b, c, d, id @ ..]| AclEntry {
            tag: u16::from_le_bytes([a, b]),
            permissions: u16::from_le_bytes([c, d]),
            id: u32::from_le_bytes(id),
        });
        let acl = Acl(entries.collect());
        let has_each = [OWNER, GROUP, OTHER].iter().all(|&tag| acl.with_tag(tag).is_some());
        (u32::from_le_bytes(*version) == VERSION && has_each).then_some(acl)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for AclEntry { tag, permissions, id } in &self.0 {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    fn with_tag(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn with_tag_mut(&mut self, tag: u16) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.permissions)
    }

    /// The tag of the entry that the group bits of a mode are.
    fn group_tag(&self) -> u16 {
        if self.with_tag(MASK).is_some() { MASK } else { GROUP }
    }

    /// Whether it says no more than a mode.
    pub(super) fn is_mode(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, OWNER | GROUP | OTHER))
    }

    /// The mode bits that are a part of it.
    pub(super) fn mode(&self) -> u16 {
        let of = |tag| self.with_tag(tag).unwrap_or(0) & 7;
        of(OWNER) << 6 | of(self.group_tag()) << 3 | of(OTHER)
    }

    /// Takes new mode bits in.
    pub(super) fn set_mode(&mut self, mode: u16) {
        let group = self.group_tag();
        for (tag, bits) in [(OWNER, mode >> 6), (group, mode >> 3), (OTHER, mode)] {
            if let Some(permissions) = self.with_tag_mut(tag) {
                *permissions = bits & 7;
            }
        }
    }

    /// The list of a new object in a directory with this default list, and the mode bits that it leaves of those asked
    /// for.
    pub(super) fn inherited(&self, mode: u16) -> (Acl, u16) {
        let mut acl = self.clone();
        let group = acl.group_tag();
        let mut left = 0;
        for (tag, shift) in [(OWNER, 6), (group, 3), (OTHER, 0)] {
            if let Some(permissions) = acl.with_tag_mut(tag) {
                *permissions &= mode >> shift & 7;
                left |= *permissions << shift;
            }
        }
        (acl, mode & !0o777 | left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u16 = 2;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, permissions, id)| AclEntry { tag, permissions, id }).collect())
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let list = acl(&[(OWNER, 7, !0), (USER, 5, 1000), (GROUP, 5, !0), (MASK, 5, !0), (OTHER, 0, !0)]);
        assert_eq!(Acl::decode(&list.encode()), Some(list.clone()));
        assert_eq!((list.mode(), list.is_mode()), (0o750, false));
        for wrong in [&b""[..], &list.encode()[..5], &[1, 0, 0, 0], &[2, 0, 0, 0]] {
            assert_eq!(Acl::decode(wrong), None);
        }
    }

    #[test]
    fn the_group_bits_of_a_mode_are_the_mask() {
        let mut list = acl(&[(OWNER, 7, !0), (USER, 7, 1000), (GROUP, 7, !0), (MASK, 7, !0), (OTHER, 7, !0)]);
        list.set_mode(0o640);
        assert_eq!(list, acl(&[(OWNER, 6, !0), (USER, 7, 1000), (GROUP, 7, !0), (MASK, 4, !0), (OTHER, 0, !0)]));
        let mut plain = acl(&[(OWNER, 7, !0), (GROUP, 7, !0), (OTHER, 7, !0)]);
        plain.set_mode(0o51);
        assert_eq!((plain.mode(), plain.is_mode()), (0o051, true));
    }

    #[test]
    fn a_new_object_has_what_both_the_default_list_and_its_creator_allow() {
        let list = acl(&[(OWNER, 7, !0), (USER, 7, 1000), (GROUP, 5, !0), (MASK, 7, !0), (OTHER, 4, !0)]);
        let (inherited, mode) = list.inherited(0o2666);
        assert_eq!(mode, 0o2664);
        assert_eq!(inherited, acl(&[(OWNER, 6, !0), (USER, 7, 1000), (GROUP, 5, !0), (MASK, 6, !0), (OTHER, 4, !0)]));
    }
}
