//! Keys on the command line: single ones, and patterns for several.
//!
//! A key that exists is that key, whatever characters it has. Otherwise `*`, `?`, `[…]` and `{…}` match within a name,
//! also one that begins with a dot, and `**` any number of directories; a backslash takes the meaning from the
//! character after it. A name that is not UTF-8 is no pattern. Only the directories that can have matches are listed.
//! Keys come in the order of the arguments, those of a pattern in key order, each once.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::{find, key, not_found};
use crate::error::{Error, ErrorKind, Result};
use crate::report::store::ObjectType;
use crate::store::{Key, Store};

/// A component of a pattern.
enum Part {
    Name(Vec<u8>),
    Pattern(Box<GlobMatcher>),
    /// `**`.
    AnyDepth,
}

/// The keys that the arguments name, which all exist.
pub(super) fn expand(store: &Store, arguments: &[OsString], operation: &'static str) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut seen = HashSet::new();
    for argument in arguments {
        let matched = keys_of(store, argument, operation)?;
        keys.extend(matched.into_iter().filter(|key| seen.insert(key.clone())));
    }
    Ok(keys)
}

/// The keys that one argument names, at least one: itself if it exists, else those that match it, in key order.
/// `operation` is for errors.
fn keys_of(store: &Store, argument: &OsStr, operation: &'static str) -> Result<Vec<Key>> {
    let literal = key(argument)?;
    // The root exists even in a store without objects.
    if literal.is_root() || store.entry(&literal)?.is_some() {
        return Ok(vec![literal]);
    }
    if !argument.as_bytes().iter().any(|byte| b"*?[{".contains(byte)) {
        return Err(not_found(store, &literal, operation));
    }
    let names = argument.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let parts = names.map(part).collect::<Result<Vec<Part>>>()?;
    let mut keys = Vec::new();
    collect(store, &Key::root(), &parts, &mut keys)?;
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() && !store.completeness().is_complete() {
        return Err(not_found(store, &literal, operation));
    }
    if keys.is_empty() {
        let pattern = Path::new(argument);
        let error = Error::new(ErrorKind::NotFound, operation, "no such key, and none that matches it as a pattern")
            .at(pattern);
        return Err(error.advise("list the keys with granulo store ls; '*' stays within a directory, '**' does not"));
    }
    Ok(keys)
}

fn part(name: &[u8]) -> Result<Part> {
    if name == b"**" {
        return Ok(Part::AnyDepth);
    }
    let Some(text) = std::str::from_utf8(name).ok().filter(|text| text.contains(['*', '?', '[', '{'])) else {
        return Ok(Part::Name(name.to_vec()));
    };
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build().map_err(|error| {
        Error::new(ErrorKind::Usage, "use the pattern", error.kind().to_string()).at(Path::new(OsStr::from_bytes(name)))
    })?;
    Ok(Part::Pattern(Box::new(glob.compile_matcher())))
}

/// Adds the keys below a directory that match.
fn collect(store: &Store, directory: &Key, parts: &[Part], keys: &mut Vec<Key>) -> Result<()> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    if let Part::Name(name) = first {
        let child = directory.child(name)?;
        return match store.entry(&child)? {
            Some(found) => descend(store, child, ObjectType::of(&found.entry), rest, keys),
            None => Ok(()),
        };
    }
    if matches!(first, Part::AnyDepth) {
        // No directory at all; as the last part, everything below.
        collect(store, directory, rest, keys)?;
        for listed in store.walk(directory)? {
            let listed = listed?;
            if listed.key == *directory {
                continue;
            }
            let is_directory = ObjectType::of(&listed.entry) == ObjectType::Directory;
            match rest.is_empty() {
                true => keys.push(listed.key),
                false if is_directory => collect(store, &listed.key, rest, keys)?,
                false => {}
            }
        }
        return Ok(());
    }
    for listed in store.list(directory)? {
        let listed = listed?;
        let name = listed.key.name().unwrap_or_default();
        if matches!(first, Part::Pattern(glob) if glob.is_match(Path::new(OsStr::from_bytes(name)))) {
            descend(store, listed.key, ObjectType::of(&listed.entry), rest, keys)?;
        }
    }
    Ok(())
}

fn descend(store: &Store, key: Key, object_type: ObjectType, rest: &[Part], keys: &mut Vec<Key>) -> Result<()> {
    match object_type {
        _ if rest.is_empty() => keys.push(key),
        ObjectType::Directory => collect(store, &key, rest, keys)?,
        _ => {}
    }
    Ok(())
}

/// The keys without those that are below another of them.
pub(super) fn topmost(keys: Vec<Key>) -> Vec<Key> {
    let all: HashSet<Key> = keys.iter().cloned().collect();
    let is_top = |key: &Key| !std::iter::successors(key.parent(), Key::parent).any(|above| all.contains(&above));
    keys.into_iter().filter(is_top).collect()
}

/// Whether a key is that of a directory, or the root.
pub(super) fn is_directory(store: &Store, key: &Key, operation: &'static str) -> Result<bool> {
    Ok(key.is_root() || ObjectType::of(&find(store, key, operation)?.entry) == ObjectType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Attributes, Plan, Time};

    fn keys(texts: &[&str]) -> Vec<Key> {
        texts.iter().map(|text| Key::parse(text).unwrap()).collect()
    }

    #[test]
    fn patterns_match_names_and_stars_cross_directories_only_in_pairs() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::create(&place.path().join("store"), &Plan::default()).unwrap();
        let attributes = Attributes::of_file(Time { seconds: 0, nanoseconds: 0 });
        for name in ["a/1.jpg", "a/2.png", "a/b/3.jpg", "c/4.jpg", "c/[5].jpg", "c/.6.jpg"] {
            store.put(&Key::parse(name).unwrap(), &attributes, b"").unwrap();
        }
        for (pattern, expected) in [
            ("a/*.jpg", &["a/1.jpg"][..]),
            ("*/*.jpg", &["a/1.jpg", "c/.6.jpg", "c/4.jpg", "c/[5].jpg"]),
            ("**/*.jpg", &["a/1.jpg", "a/b/3.jpg", "c/.6.jpg", "c/4.jpg", "c/[5].jpg"]),
            ("a/**", &["a/1.jpg", "a/2.png", "a/b", "a/b/3.jpg"]),
            ("a/{1,2}.*", &["a/1.jpg", "a/2.png"]),
            ("a/**/b/*", &["a/b/3.jpg"]),
            // A key that exists is that key.
            ("c/[5].jpg", &["c/[5].jpg"]),
            ("?", &["a", "c"]),
        ] {
            let found = expand(&store, &[OsString::from(pattern)], "get").unwrap();
            assert_eq!(found, keys(expected), "{pattern}");
        }
        for (wrong, kind) in [("a/*.gif", ErrorKind::NotFound), ("a/x", ErrorKind::NotFound), ("a/[", ErrorKind::Usage)]
        {
            assert_eq!(expand(&store, &[OsString::from(wrong)], "get").unwrap_err().kind(), kind, "{wrong}");
        }
        let twice = ["c/4.jpg", "a/*", "c/*", "a/1.jpg"].map(OsString::from);
        let found = expand(&store, &twice, "get").unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], Key::parse("c/4.jpg").unwrap());
    }

    #[test]
    fn of_keys_within_each_other_the_topmost_stay() {
        assert_eq!(topmost(keys(&["a/b", "a", "ab/c", "a/b/c"])), keys(&["a", "ab/c"]));
    }
}
