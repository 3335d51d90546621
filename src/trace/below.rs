//! A source filtered to the files below some directories.

use super::names::Names;
use super::{Findings, Operation, Origin, Source};
use crate::error::Result;
use crate::progress::Progress;
use crate::units::escape;

/// Operations that are left out, one after the other, before progress is reported.
const LOOK_EVERY: u32 = 1 << 12;

/// The files of another source at or below some paths, with their numbers there, and the processes that use them.
pub struct Below {
    inner: Box<dyn Source>,
    paths: Vec<Vec<u8>>,
    /// That of the other source, and which paths were kept.
    origin: Origin,
    /// For each file: whether it is kept.
    kept: Vec<bool>,
    /// The processes with operations on these, and the number of each, if it has one, by that in the other source.
    processes: Names,
    numbers: Vec<Option<u32>>,
    /// Of whoever reads, who sees nothing of what is left out.
    progress: Option<Progress>,
}

impl std::fmt::Debug for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Below").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Below {
    /// Keeps the files of `inner` at or below `paths`.
    pub fn new(inner: Box<dyn Source>, paths: Vec<Vec<u8>>) -> Below {
        let without_slash = |mut path: Vec<u8>| {
            while path.last() == Some(&b'/') {
                path.pop();
            }
            path
        };
        let paths = paths.into_iter().map(without_slash).collect();
        let mut below = Below {
            origin: inner.origin().clone(),
            inner,
            paths,
            kept: Vec::new(),
            processes: Names::default(),
            numbers: Vec::new(),
            progress: None,
        };
        below.find_origin();
        below
    }

    /// Also reports how far the other source was read while nothing is kept, and ends if a stop is requested then.
    pub fn with_progress(self, progress: Progress) -> Below {
        Below { progress: Some(progress), ..self }
    }

    /// Reports how far the other source was read; returns whether a stop was requested.
    fn should_stop(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| {
            let (read_bytes, size_bytes) = self.inner.progress();
            progress.set(0, read_bytes);
            progress.set_total(size_bytes.unwrap_or(0));
            progress.should_stop()
        })
    }

    /// Brings the origin up to date: some sources know all of it only at their end.
    fn find_origin(&mut self) {
        let root = |path: &Vec<u8>| if path.is_empty() { "/".to_owned() } else { escape(path) };
        let paths = self.paths.iter().map(root).collect::<Vec<_>>().join(", ");
        self.origin = self.inner.origin().clone();
        self.origin.notes.push(format!("Only operations on files at or below {paths}."));
    }

    fn keeps(&mut self, file: u32) -> bool {
        for number in self.kept.len()..=file as usize {
            let name = self.inner.files().get(number as u32).unwrap_or_default();
            let is_below = |path: &Vec<u8>| {
                name.strip_prefix(path.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            };
            self.kept.push(self.paths.iter().any(is_below));
        }
        self.kept[file as usize]
    }

    /// The number here of a process of the other source.
    fn process(&mut self, number: u32) -> u32 {
        let at = number as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, None);
        }
        let (inner, processes) = (&self.inner, &mut self.processes);
        // There are no more of them than in the other source, so none is without a number.
        let push = || processes.push(inner.processes().get(number).unwrap_or_default()).unwrap_or(number);
        *self.numbers[at].get_or_insert_with(push)
    }
}

impl Source for Below {
    fn next(&mut self) -> Result<Option<Operation>> {
        let mut left_out = 0u32;
        while let Some(operation) = self.inner.next()? {
            if operation.file.is_some_and(|file| self.keeps(file)) {
                return Ok(Some(Operation { process: self.process(operation.process), ..operation }));
            }
            left_out = left_out.wrapping_add(1);
            if left_out.is_multiple_of(LOOK_EVERY) && self.should_stop() {
                break;
            }
        }
        self.find_origin();
        Ok(None)
    }

    fn findings(&self) -> Findings<'_> {
        Findings { origin: &self.origin, processes: &self.processes, ..self.inner.findings() }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.inner.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Kind, Listed};

    /// Operations without files, and without an end.
    struct Endless(Listed);

    impl Source for Endless {
        fn next(&mut self) -> Result<Option<Operation>> {
            Ok(Some(Operation::new(0, 0, Kind::Sync)))
        }

        fn findings(&self) -> Findings<'_> {
            self.0.findings()
        }

        fn progress(&self) -> (u64, Option<u64>) {
            (7, Some(9))
        }
    }

    #[test]
    fn a_source_of_which_nothing_is_kept_can_be_stopped() {
        let progress = Progress::default();
        progress.stop();
        let endless = Box::new(Endless(Listed::new("test")));
        let mut below = Below::new(endless, vec![b"/a".to_vec()]).with_progress(progress.clone());
        assert_eq!(below.next().unwrap(), None);
        assert_eq!((progress.snapshot().bytes, progress.snapshot().total), (7, 9));
    }

    #[test]
    fn only_what_is_below_is_kept() {
        let mut listed = Listed::new("test");
        listed.processes.push(b"p");
        for (number, name) in ["/a/b", "/a/bc", "/a", "/x/y"].iter().enumerate() {
            listed.files.push(name.as_bytes());
            let mut operation = Operation::new(0, 0, Kind::Stat);
            operation.file = Some(number as u32);
            listed.operations.push(operation);
        }
        listed.operations.push(Operation::new(0, 0, Kind::Sync));
        let kept = |paths: &[&str]| {
            let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            let mut below = Below::new(Box::new(listed.clone()), paths);
            std::iter::from_fn(|| below.next().unwrap()).map(|operation| operation.file.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(kept(&["/a/b"]), [0]);
        assert_eq!(kept(&["/a/"]), [0, 1, 2]);
        assert_eq!(kept(&["/a/bc", "/x/y"]), [1, 3]);
        assert_eq!(kept(&["/"]), [0, 1, 2, 3]);
        let below = Below::new(Box::new(listed.clone()), vec![b"/a/".to_vec(), b"/x".to_vec()]);
        assert_eq!(below.origin().notes, ["Only operations on files at or below /a, /x."]);
    }

    #[test]
    fn only_processes_of_these_files_are_counted() {
        let mut listed = Listed::new("test");
        for (number, name) in [&b"/x"[..], b"/a/b"].into_iter().enumerate() {
            listed.files.push(name);
            listed.processes.push(name);
            let mut operation = Operation::new(0, number as u32, Kind::Stat);
            operation.file = Some(number as u32);
            listed.operations.push(operation);
        }
        let mut below = Below::new(Box::new(listed), vec![b"/a".to_vec()]);
        let found = below.next().unwrap().unwrap();
        assert_eq!((found.process, found.file), (0, Some(1)));
        assert_eq!(below.processes().iter().collect::<Vec<_>>(), [b"/a/b"]);
    }
}
