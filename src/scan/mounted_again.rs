//! File systems that are mounted at several places below the roots: the one place at which each is walked.
//!
//! It is the first, in byte order, that a walk surely comes to, as the table of mounts says. So it depends neither on
//! threads nor on which of several processes comes to what, and nothing is left out because another place was met
//! first by a process that has no part of it. Places of which this cannot be told before are no reason to leave out
//! another.
//!
//! A file that is a root is asked the same: whether the walk of a directory above it comes to it.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;

use super::WalkOptions;
use super::frontier::join;
use super::mounts::is_pseudo_file_system;
use crate::mounts::{Mount, mounts, visible_at};

/// The places at which something is mounted that is walked elsewhere, as paths of a walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MountedAgain(HashSet<Vec<u8>>);

/// A root as specified, and its canonical path.
type Root<'r> = (&'r Path, PathBuf);

impl MountedAgain {
    /// Those below the roots of a walk; none where the table of mounts cannot be read.
    pub(super) fn below(settings: &WalkOptions) -> MountedAgain {
        let Ok(mounts) = mounts() else { return MountedAgain::default() };
        let canonical = |root: &PathBuf| root.canonicalize().ok();
        let roots: Vec<Root<'_>> =
            settings.roots.iter().filter_map(|root| Some((root.as_path(), canonical(root)?))).collect();
        MountedAgain::of(&mounts, &roots, |root, point| is_walked(settings, &mounts, root, point))
    }

    /// Those in a table of mounts; `is_reached` tells whether a walk from a root surely comes to a point.
    fn of(mounts: &[Mount], roots: &[Root<'_>], is_reached: impl Fn(&Path, &Path) -> bool) -> MountedAgain {
        let mut again = HashSet::new();
        let mut left_out: Vec<&Path> = Vec::new();
        let mut first = HashSet::new();
        for (root, mount) in below(mounts, roots) {
            let (specified, canonical) = root;
            let point = mount.point.as_path();
            let what = (mount.device, &mount.root);
            if left_out.iter().any(|above| point.starts_with(above)) || !is_reached(canonical, point) {
                continue;
            }
            if !first.insert(what) {
                left_out.push(point);
                again.insert(path_of(specified, canonical, point));
            }
        }
        MountedAgain(again)
    }

    /// Whether what is mounted at a path is walked elsewhere.
    pub(super) fn has(&self, path: impl FnOnce() -> Vec<u8>) -> bool {
        !self.0.is_empty() && self.0.contains(&path())
    }
}

/// The visible mounts below the roots of what is mounted several times, each with the innermost root above it, by path.
fn below<'m, 'r>(mounts: &'m [Mount], roots: &'r [Root<'_>]) -> Vec<(&'r Root<'r>, &'m Mount)> {
    let innermost = |point: &Path| {
        let above = roots.iter().filter(|(_, canonical)| point.starts_with(canonical));
        above.max_by_key(|(_, canonical)| canonical.as_os_str().len())
    };
    let mut times = HashMap::new();
    mounts.iter().for_each(|mount| *times.entry((mount.device, &mount.root)).or_insert(0) += 1);
    let several = mounts.iter().filter(|mount| times[&(mount.device, &mount.root)] > 1);
    let mut below: Vec<_> = several
        .filter_map(|mount| Some((innermost(&mount.point)?, mount)))
        .filter(|((_, canonical), mount)| mount.point != *canonical)
        .filter(|(_, mount)| visible_at(mounts, &mount.point).is_some_and(|visible| visible.id == mount.id))
        .collect();
    below.sort_by(|(_, one), (_, other)| one.point.as_os_str().as_bytes().cmp(other.point.as_os_str().as_bytes()));
    below
}

/// The path of a point as a walk from the root above it has it.
fn path_of(specified: &Path, canonical: &Path, point: &Path) -> Vec<u8> {
    let names = point.strip_prefix(canonical).into_iter().flatten();
    names.fold(specified.as_os_str().as_bytes().to_vec(), |path, name| join(path, name.as_bytes()))
}

/// Whether a walk surely comes from a root to a file below it, if no other root is in between.
pub(super) fn comes_to(settings: &WalkOptions, mounts: &[Mount], root: &Path, file: &Path) -> bool {
    let (directory, name) = (file.parent().unwrap_or(root), file.file_name().unwrap_or_default());
    let below_root = path_of(Path::new(""), root, directory);
    is_walked(settings, mounts, root, directory) && !settings.exclude.matches(&below_root, name.as_bytes())
}

/// The same of a directory.
fn is_walked(settings: &WalkOptions, mounts: &[Mount], root: &Path, directory: &Path) -> bool {
    is_wanted(settings, root, directory) && is_reached(settings, mounts, root, directory)
}

/// Whether the settings of a walk leave out none of the names on the way from a root to a point.
fn is_wanted(settings: &WalkOptions, root: &Path, point: &Path) -> bool {
    let mut below_root = Vec::new();
    point.strip_prefix(root).into_iter().flatten().all(|name| {
        let name = name.as_bytes();
        let is_wanted = !settings.skips_as_snapshot(name) && !settings.exclude.matches(&below_root, name);
        below_root = join(std::mem::take(&mut below_root), name);
        is_wanted
    })
}

/// Whether a walk enters all mounts on the way from a root to a point, and what is mounted there.
fn is_reached(settings: &WalkOptions, mounts: &[Mount], root: &Path, point: &Path) -> bool {
    let device = |path: &Path| path.symlink_metadata().ok().map(|found| found.dev());
    let is_near =
        |path: &Path| !settings.one_file_system || device(path).is_some_and(|found| device(root) == Some(found));
    let is_mounted = |path: &Path| mounts.iter().any(|mount| mount.point == path);
    let is_real = |path: &Path| {
        let path = CString::new(path.as_os_str().as_bytes());
        path.is_ok_and(|path| is_pseudo_file_system(CWD, &path) == Ok(false))
    };
    let mut above = point.ancestors().take_while(|above| *above != root);
    above.all(|above| !is_mounted(above) || is_near(above) && is_real(above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse;

    /// The places that are left out below these roots, if all are reached but those.
    fn again(table: &[&str], roots: &[(&str, &str)], not_reached: &[&str]) -> Vec<String> {
        let text: String = table.iter().map(|row| format!("{row} rw - ext4 /dev/x rw\n")).collect();
        let roots: Vec<Root<'_>> =
            roots.iter().map(|&(root, canonical)| (Path::new(root), PathBuf::from(canonical))).collect();
        let is_reached = |_: &Path, point: &Path| !not_reached.iter().any(|other| point == Path::new(other));
        let MountedAgain(again) = MountedAgain::of(&parse(text.as_bytes()), &roots, is_reached);
        let mut again: Vec<String> = again.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        again.sort();
        again
    }

    const ROOT: [&str; 2] = ["1 1 0:2 / /", "2 1 8:1 / /"];

    #[test]
    fn the_first_place_counts_however_the_table_is_ordered() {
        let table = [&ROOT[..], &["9 2 8:2 / /t/z", "8 2 8:2 / /t/b", "7 2 8:2 /d /t/c", "6 2 8:2 / /u"]].concat();
        assert_eq!(again(&table, &[("t/", "/t")], &[]), ["t/z"]);
        assert_eq!(again(&table, &[("t", "/t"), ("/u", "/u")], &[]), ["t/z"]);
        assert_eq!(again(&table, &[("/", "/")], &[]), ["/t/z", "/u"]);
        // One that is not surely reached leaves out no other.
        assert_eq!(again(&table, &[("/", "/")], &["/t/b"]), ["/u"]);
        assert!(again(&table, &[("/", "/")], &["/t/b", "/t/z"]).is_empty());
        assert!(again(&table, &[("/u", "/u")], &[]).is_empty());
    }

    #[test]
    fn what_is_hidden_does_not_count() {
        // Something else is mounted over the first place; and over a directory above it.
        let over = [&ROOT[..], &["3 2 8:2 / /t/a", "4 3 8:3 / /t/a", "5 2 8:2 / /t/b", "6 2 8:2 / /t/c"]].concat();
        assert_eq!(again(&over, &[("/t", "/t")], &[]), ["/t/c"]);
        let above = [&ROOT[..], &["3 2 8:2 / /t/a/x", "4 2 8:3 / /t/a", "5 2 8:2 / /t/b"]].concat();
        assert!(again(&above, &[("/t", "/t")], &[]).is_empty());
        // Below a place that is left out.
        let nested = [
            &ROOT[..],
            &["3 2 8:2 / /t/a", "4 3 8:3 / /t/a/in", "5 2 8:2 / /t/b", "6 5 8:3 / /t/b/in", "7 2 8:3 / /t/c"],
        ];
        assert_eq!(again(&nested.concat(), &[("/t", "/t")], &[]), ["/t/b", "/t/c"]);
    }

    #[test]
    fn a_root_inside_another_has_its_own_places() {
        let table = [&ROOT[..], &["3 2 8:2 / /t/in/a", "4 2 8:2 / /t/b", "5 2 8:4 / /t/in"]].concat();
        // The mount at the inner root hides what is below.
        assert!(again(&table, &[("t", "/t"), ("t/in", "/t/in")], &[]).is_empty());
        let table = [&ROOT[..], &["3 2 8:2 / /t/in/a", "4 2 8:2 / /t/z"]].concat();
        assert_eq!(again(&table, &[("t", "/t"), ("link", "/t/in")], &[]), ["t/z"]);
        assert_eq!(again(&table, &[("link", "/t/in"), ("t", "/t")], &["/t/in/a"]), [] as [&str; 0]);
    }

    #[test]
    fn what_a_walk_leaves_out_on_the_way_is_not_reached() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        for path in ["plain/a", ".snapshot/a", "build/a", "b.tmp/a"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        let exclude = crate::scan::exclude::Exclude::new(&["*.tmp".to_owned(), "/build".to_owned()]).unwrap();
        let mut settings = WalkOptions { exclude, ..WalkOptions::default() };
        let wanted = |settings: &WalkOptions| {
            let paths = ["plain/a", ".snapshot/a", "build/a", "b.tmp/a"];
            paths.map(|path| is_wanted(settings, place.path(), &at(path)))
        };
        assert_eq!(wanted(&settings), [true, false, false, false]);
        settings.include_snapshots = true;
        assert_eq!(wanted(&settings), [true, true, false, false]);
        assert!(is_reached(&settings, &[], place.path(), &at("plain/a")));
    }
}
