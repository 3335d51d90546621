//! What a scan leaves out: the globs of `--exclude`.
//!
//! A pattern without a slash matches any name (`*.tmp`, `.git`); one with a slash matches the path below its root
//! (`build/**`, `/cache`, `./cache`), where `*` does not cross a slash and `**` does. A trailing slash is ignored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::frontier::join;
use crate::error::{Error, ErrorKind, Result};

/// A set of globs.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    names: GlobSet,
    paths: GlobSet,
}

impl Exclude {
    /// Compiles a set of patterns.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid pattern.
    pub fn new(patterns: &[String]) -> Result<Exclude> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let wrong = |error: globset::Error| {
            Error::new(ErrorKind::Usage, "use the pattern of --exclude", error.to_string())
                .advise("write, for example, '*.tmp', '.git' or 'build/**'")
        };
        for pattern in patterns {
            let whole = pattern.trim_end_matches('/');
            let below_root = whole.strip_prefix("./").or(whole.strip_prefix('/')).unwrap_or(whole);
            let glob = GlobBuilder::new(below_root).literal_separator(true).build().map_err(wrong)?;
            if whole.contains('/') {
                paths.add(glob)
            } else {
                names.add(glob)
            };
        }
        Ok(Exclude { names: names.build().map_err(wrong)?, paths: paths.build().map_err(wrong)? })
    }

    /// Whether nothing is left out.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Whether [`matches`](Self::matches) uses the directory.
    pub(crate) fn needs_path(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether the entry `name` of the directory at `below_root` is left out.
    pub(crate) fn matches(&self, below_root: &[u8], name: &[u8]) -> bool {
        if !self.names.is_empty() && self.names.is_match(as_path(name)) {
            return true;
        }
        !self.paths.is_empty() && self.paths.is_match(as_path(&join(below_root.to_vec(), name)))
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_anywhere_and_paths_from_the_root() {
        let patterns = ["*.tmp", ".git", "build/**", "/cache", "./out", "obj/"].map(String::from);
        let exclude = Exclude::new(&patterns).unwrap();
        for (directory, name, out) in [
            ("", "a.tmp", true),
            ("x/y", "b.tmp", true),
            ("x", ".git", true),
            ("x", ".github", false),
            ("", "build", false),
            ("build", "x.o", true),
            ("src/build", "x.o", false),
            ("", "cache", true),
            ("x", "cache", false),
            ("", "out", true),
            ("x", "out", false),
            ("x", "obj", true),
        ] {
            assert_eq!(exclude.matches(directory.as_bytes(), name.as_bytes()), out, "{directory}/{name}");
        }
        assert!(exclude.matches(b"", b"\xff.tmp"));
        assert_eq!(Exclude::new(&["a[".to_owned()]).unwrap_err().kind(), ErrorKind::Usage);
    }
}
