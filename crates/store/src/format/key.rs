//! Keys: the paths of objects, in the order of the store.
//!
//! A key consists of components without NUL and `/`, none of them empty, `.` or `..`; the root is the empty key.
//! Internally, components are separated by a zero byte, so that the byte order of keys is that of a walk, and a
//! directory with everything below it is one range (docs/FORMAT.md, section 10).
//!
//! A key may also begin at a directory that is known by its number ([`Key::within`]): it needs no look-up of the path
//! above, and stays right when that changes. Its stored form begins with a zero byte, which no path does.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::ids::ObjectNumber;
use super::index_key::{LONGEST_NAME_BYTES, is_name};
use crate::error::{Error, ErrorKind, Result};
use crate::units::escape;

/// The longest key, in bytes.
pub const LONGEST_KEY_BYTES: usize = u16::MAX as usize;
const _: () = assert!(LONGEST_KEY_BYTES <= LONGEST_NAME_BYTES, "a key may be one name");

/// The path of an object, relative to the root of the store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Vec<u8>);

impl Key {
    /// The root directory.
    pub fn root() -> Key {
        Key::default()
    }

    /// The key that `path` names: slashes at both ends and doubled ones are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for `.` and `..`, for NUL, and for more than 65,535 bytes.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<Key> {
        let path = path.as_ref();
        let refuse = |cause: &str| Err(Error::new(ErrorKind::Usage, "use the key", cause).at(&display_path(path)));
        let mut bytes = Vec::with_capacity(path.len());
        for component in path.split(|&byte| byte == b'/').filter(|component| !component.is_empty()) {
            match component {
                b"." | b".." => return refuse("a key must not contain . or .."),
                _ if component.contains(&0) => return refuse("a key must not contain NUL"),
                _ => {}
            }
            if !bytes.is_empty() {
                bytes.push(0);
            }
            bytes.extend_from_slice(component);
        }
        if bytes.len() > LONGEST_KEY_BYTES {
            return refuse("it is longer than 65,535 bytes");
        }
        Ok(Key(bytes))
    }

    /// The entry `name` of the directory with a number, which the caller knows to exist. Wherever an entry is looked up
    /// or changed, such a key takes the place of its path.
    ///
    /// ```
    /// use granulo_store::{Attributes, Key, Plan, Store, Time};
    ///
    /// # let place = tempfile::tempdir()?;
    /// let store = Store::create(&place.path().join("store"), &Plan::default())?;
    /// store.put(&Key::parse("d/file")?, &Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }), b"content")?;
    /// let directory = store.entry(&Key::parse("d")?)?.unwrap().entry.number;
    /// store.rename(&Key::parse("d")?, &Key::parse("e")?, granulo_store::Existing::Refuse)?;
    /// assert_eq!(store.get(&Key::within(directory, b"file")?)?.unwrap(), b"content");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if `name` is not one component of a path, or has more than 65,535 bytes.
    pub fn within(directory: ObjectNumber, name: &[u8]) -> Result<Key> {
        if !is_name(name) {
            let cause = "a name is one component of a path, of at most 65,535 bytes";
            return Err(Error::new(ErrorKind::Usage, "use the name", cause).at(&display_path(name)));
        }
        let mut bytes = shared_key(directory);
        bytes.push(0);
        bytes.extend_from_slice(name);
        Ok(Key(bytes))
    }

    /// The directory with a number, to list it.
    pub fn of_directory(directory: ObjectNumber) -> Key {
        Key(shared_key(directory))
    }

    /// The path of a record in a batch; `None` for the placeholder of a shared object.
    pub(crate) fn of_path(path: &[u8]) -> Option<Key> {
        shared_number(path).is_none().then(|| Key(path.to_vec()))
    }

    /// Descends to an entry of this directory.
    pub(crate) fn push(&mut self, name: &[u8]) {
        debug_assert!(is_name(name), "the index has names only");
        if !self.is_root() {
            self.0.push(0);
        }
        self.0.extend_from_slice(name);
    }

    /// Ascends to the ancestor whose path has this length.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// The stored form: components separated by zero bytes.
    pub fn stored(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.0.rsplit(|&byte| byte == 0).next().filter(|name| !name.is_empty())
    }

    /// The directory it is in; `None` for the root.
    pub fn parent(&self) -> Option<Key> {
        split(&self.0).map(|(directory, _)| Key(directory.to_vec()))
    }

    /// The entry `name` of this directory.
    ///
    /// # Errors
    /// As [`Key::parse`]; a name is one component.
    pub fn child(&self, name: impl AsRef<[u8]>) -> Result<Key> {
        let name = name.as_ref();
        if name.is_empty() || name.contains(&b'/') {
            return Err(Error::new(ErrorKind::Usage, "use the name", "a name is one component of a path")
                .at(&display_path(name)));
        }
        self.join(&Key::parse(name)?)
    }

    /// `below`, taken as relative to this directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the whole is longer than a key may be.
    pub fn join(&self, below: &Key) -> Result<Key> {
        if self.is_root() {
            return Ok(below.clone());
        }
        if below.is_root() {
            return Ok(self.clone());
        }
        let mut bytes = self.0.clone();
        bytes.push(0);
        bytes.extend_from_slice(&below.0);
        if bytes.len() > LONGEST_KEY_BYTES {
            return Err(Error::new(ErrorKind::Usage, "use the key", "it is longer than 65,535 bytes"));
        }
        Ok(Key(bytes))
    }

    /// What remains of this key below `directory`; `None` if it is not below it or equal to it.
    pub fn below(&self, directory: &Key) -> Option<Key> {
        if directory.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(directory.0.as_slice())? {
            [] => Some(Key::root()),
            [0, rest @ ..] => Some(Key(rest.to_vec())),
            _ => None,
        }
    }

    /// The number of components.
    pub fn depth(&self) -> usize {
        if self.is_root() { 0 } else { 1 + self.0.iter().filter(|&&byte| byte == 0).count() }
    }

    /// Its components.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == 0).filter(|component| !component.is_empty())
    }

    /// The path, with slashes. For a key that begins at a directory known by its number, that number takes the place of
    /// the path above.
    pub fn to_path(&self) -> PathBuf {
        if let Some((number, rest)) = directory_number(&self.0) {
            let mut bytes = format!("#{}", number.0).into_bytes();
            bytes.extend(rest.iter().map(|&byte| if byte == 0 { b'/' } else { byte }));
            return PathBuf::from(OsStr::from_bytes(&bytes));
        }
        let bytes: Vec<u8> = self.0.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect();
        PathBuf::from(OsStr::from_bytes(&bytes))
    }
}

/// Escaped for a terminal; the root is `/`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str("/") } else { f.write_str(&escape(self.to_path().as_os_str().as_bytes())) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl TryFrom<&Path> for Key {
    type Error = Error;

    fn try_from(path: &Path) -> Result<Key> {
        Key::parse(path.as_os_str().as_bytes())
    }
}

/// Whether the path `key` is `top` or below it. Shared objects are below nothing.
pub(crate) fn is_within(key: &[u8], top: &[u8]) -> bool {
    if top.is_empty() {
        return key.first() != Some(&0);
    }
    key.strip_prefix(top).is_some_and(|rest| rest.first().is_none_or(|&byte| byte == 0))
}

/// Whether removing the tree of `top` removes the path `key`. The root always exists, so it stays.
pub(crate) fn goes_with(key: &[u8], top: &[u8]) -> bool {
    !key.is_empty() && is_within(key, top)
}

/// The directory of a path and its name there; `None` for the root.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = path.rsplitn(2, |&byte| byte == 0);
    let name = parts.next().filter(|_| !path.is_empty())?;
    Some((parts.next().unwrap_or_default(), name))
}

/// Placeholder for the path of a shared object while it has none.
pub(crate) fn shared_key(number: ObjectNumber) -> Vec<u8> {
    let mut key = vec![0];
    key.extend_from_slice(&number.0.to_be_bytes());
    key
}

/// The number of the shared object in such a placeholder.
pub(crate) fn shared_number(key: &[u8]) -> Option<ObjectNumber> {
    let (&first, number) = key.split_first()?;
    (first == 0).then(|| number.try_into().ok().map(u64::from_be_bytes)).flatten().map(ObjectNumber)
}

/// The number at which a key begins that names its directory by number, and what follows; `None` for a path.
fn directory_number(key: &[u8]) -> Option<(ObjectNumber, &[u8])> {
    let (number, rest) = key.strip_prefix(&[0])?.split_first_chunk()?;
    Some((ObjectNumber(u64::from_be_bytes(*number)), rest))
}

/// Whether a key begins at the number of a directory: a path may lead to the same entry.
pub(crate) fn is_numbered(key: &[u8]) -> bool {
    directory_number(key).is_some_and(|(_, rest)| !rest.is_empty())
}

fn display_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_path_is_no_key() {
        for wrong in [&b"a/../b"[..], b"..", b"./a", b"a\0b", &[b'x'; 65_536]] {
            assert_eq!(Key::parse(wrong).unwrap_err().kind(), ErrorKind::Usage, "{wrong:?}");
        }
        assert_eq!(Key::parse("/a//b/").unwrap(), Key::parse("a/b").unwrap());
        assert_eq!(Key::parse("/").unwrap(), Key::root());
        assert!(Key::root().child("a/b").is_err());
    }

    #[test]
    fn a_directory_with_all_below_it_is_one_range() {
        let mut keys: Vec<Key> =
            ["a", "a/b", "a/b/c", "a-b", "a.b", "a/z", "ab", "b"].map(|path| Key::parse(path).unwrap()).to_vec();
        keys.sort();
        let order: Vec<String> = keys.iter().map(Key::to_string).collect();
        assert_eq!(order, ["a", "a/b", "a/b/c", "a/z", "a-b", "a.b", "ab", "b"]);
    }

    #[test]
    fn parents_and_children_go_together() {
        let key = Key::parse("a/b/\x1b").unwrap();
        assert_eq!(key.to_string(), "a/b/\\x1b");
        assert_eq!((key.depth(), key.name()), (3, Some(&b"\x1b"[..])));
        let parent = key.parent().unwrap();
        assert_eq!(parent.child("\x1b").unwrap(), key);
        assert_eq!(key.below(&Key::parse("a").unwrap()).unwrap().to_string(), "b/\\x1b");
        assert_eq!(key.below(&Key::parse("a/b/\x1b").unwrap()), Some(Key::root()));
        assert_eq!(Key::parse("ab").unwrap().below(&Key::parse("a").unwrap()), None);
        assert_eq!(Key::parse("a").unwrap().parent(), Some(Key::root()));
        assert_eq!(Key::of_path(&shared_key(ObjectNumber(7))), None);
        assert_eq!(Key::of_path(b"a\0b").unwrap().to_string(), "a/b");
        assert_eq!(split(b"a\0b\0c"), Some((&b"a\0b"[..], &b"c"[..])));
        assert_eq!((split(b"a"), split(b"")), (Some((&b""[..], &b"a"[..])), None));
    }

    #[test]
    fn a_key_may_begin_at_the_number_of_a_directory() {
        let key = Key::within(ObjectNumber(0x0100), b"file").unwrap();
        assert_eq!((key.name(), key.to_string()), (Some(&b"file"[..]), "#256/file".to_owned()));
        let (above, name) = split(key.stored()).unwrap();
        assert_eq!((shared_number(above), name), (Some(ObjectNumber(0x0100)), &b"file"[..]));
        assert_eq!((shared_number(key.stored()), key.parent()), (None, Some(Key::of_directory(ObjectNumber(0x0100)))));
        assert_eq!(Key::of_directory(ObjectNumber(7)).to_string(), "#7");
        for wrong in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Key::within(ObjectNumber(1), wrong).unwrap_err().kind(), ErrorKind::Usage, "{wrong:?}");
        }
    }

    #[test]
    fn a_walk_goes_down_and_up() {
        let mut key = Key::root();
        key.push(b"a");
        let length = key.stored().len();
        key.push(b"b");
        assert_eq!(key, Key::parse("a/b").unwrap());
        key.truncate(length);
        assert_eq!(key, Key::parse("a").unwrap());
    }
}
