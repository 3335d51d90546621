//! What of a source is wanted, decided by paths: by whoever calls, as the store knows no patterns.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::format::key::Key;

type Decide = dyn Fn(&Path, bool) -> bool + Send + Sync;

/// What of a source an import takes; everything by default. What is not taken stays as it is in the store.
#[derive(Clone, Default)]
pub struct Selection(Option<Arc<Decide>>);

impl Selection {
    /// Takes what `decide` returns true for, with the path below the root of the source, and whether it is a directory.
    /// A directory that is not taken is not read.
    ///
    /// ```
    /// use granulo_store::tree::Selection;
    ///
    /// let pictures = Selection::by(|path, is_directory| is_directory || path.extension().is_some_and(|it| it ==
    /// "jpg"));
    /// # let _ = pictures;
    /// ```
    pub fn by(decide: impl Fn(&Path, bool) -> bool + Send + Sync + 'static) -> Selection {
        Selection(Some(Arc::new(decide)))
    }

    /// Whether everything is taken.
    pub(super) fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the object with this key is taken, where the content of the source is below `prefix`.
    pub(super) fn takes(&self, prefix: &Key, key: &Key, is_directory: bool) -> bool {
        let Some(decide) = &self.0 else { return true };
        key.below(prefix).is_none_or(|below| below.is_root() || decide(&below.to_path(), is_directory))
    }

    /// The same where the directories above were not asked about before, as in an archive.
    pub(super) fn takes_with_parents(&self, prefix: &Key, key: &Key, is_directory: bool) -> bool {
        let mut above = std::iter::successors(key.parent(), Key::parent);
        let are_taken = self.is_everything() || above.all(|parent| self.takes(prefix, &parent, true));
        are_taken && self.takes(prefix, key, is_directory)
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_everything() { "Selection(everything)" } else { "Selection(by paths)" })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn what_is_below_a_directory_that_is_not_taken_is_not_taken() {
        let key = |text: &str| Key::parse(text).unwrap();
        let selection = Selection::by(|path, _| !path.as_os_str().as_bytes().ends_with(b"out"));
        let prefix = key("p/out");
        assert!(selection.takes(&prefix, &prefix, true));
        assert!(selection.takes_with_parents(&prefix, &key("p/out/a/b"), false));
        assert!(!selection.takes_with_parents(&prefix, &key("p/out/a/out/b"), false));
        assert!(!selection.takes(&prefix, &key("p/out/out"), true));
        assert!(Selection::default().takes_with_parents(&prefix, &key("p/out/out"), true));
    }
}
