//! Calls that open files: what gets a descriptor, and whether it was created.

use super::call::{Described, described, descriptor, has_flag};
use super::calls::Doing;
use super::world::{DescriptorTarget, is_stored};
use crate::trace::Kind;

impl Doing<'_> {
    /// A file that is emptied counts as created. With `O_CREAT` alone it is unknown whether it existed: it is opened.
    pub(super) fn open(&mut self, directory: Option<usize>, path: usize, flags: &[u8]) {
        let Some(given) = self.path(directory, path) else { return };
        if has_flag(flags, b"O_TMPFILE", 0o20_000_000) {
            return self.open_nameless(given, flags);
        }
        let creates = has_flag(flags, b"O_CREAT", 0o100) || self.call.name == b"creat";
        let empties = has_flag(flags, b"O_TRUNC", 0o1000) || self.call.name == b"creat";
        let is_new = creates && has_flag(flags, b"O_EXCL", 0o200);
        let kind = if empties || is_new { Kind::Create } else { Kind::Open };
        let closes_on_exec = has_flag(flags, b"O_CLOEXEC", 0o2_000_000);
        let Some(fd) = self.call.result.filter(|_| !self.failed()) else {
            if is_stored(&given) {
                let file = self.world.file_at(&given);
                self.note(kind, file);
            }
            return;
        };
        // The path in the result has no symbolic links.
        let path = match described(self.call.remark) {
            Some(Described::Path(path, _)) => path,
            Some(Described::NotFile) => {
                return self.world.put(&self.context, fd, DescriptorTarget::NotFile, closes_on_exec);
            }
            None => given.clone(),
        };
        if !is_stored(&path) {
            return self.world.put(&self.context, fd, DescriptorTarget::NotFile, closes_on_exec);
        }
        if is_new {
            // Whatever had that name is another file.
            self.world.remove_name(&path);
        }
        let file = self.world.file_at(&path);
        self.world.also_at(&given, file);
        if is_new || empties {
            self.world.set_size(file, 0);
        }
        self.opened(fd, file, kind, flags);
    }

    /// `fd` is a new open file description of a file.
    fn opened(&mut self, fd: i64, file: u32, kind: Kind, flags: &[u8]) {
        let closes_on_exec = has_flag(flags, b"O_CLOEXEC", 0o2_000_000);
        let number = self.world.new_opening(file, Some(0), has_flag(flags, b"O_APPEND", 0o2000));
        self.world.put(&self.context, fd, DescriptorTarget::Opening(number), closes_on_exec);
        let mut operation = self.world.operation(&self.context, kind, Some(file));
        operation.opening = Some(number);
        self.world.done.push_back(operation);
    }

    /// With `O_TMPFILE`: the path is that of a directory, and the file has no name.
    fn open_nameless(&mut self, directory: Vec<u8>, flags: &[u8]) {
        let closes_on_exec = has_flag(flags, b"O_CLOEXEC", 0o2_000_000);
        let path = match described(self.call.remark) {
            Some(Described::Path(path, _)) => path,
            _ => [directory.strip_suffix(b"/").unwrap_or(&directory), b"/(O_TMPFILE)"].concat(),
        };
        let fd = self.call.result.filter(|_| !self.failed());
        if !is_stored(&path) {
            fd.into_iter().for_each(|fd| self.world.put(&self.context, fd, DescriptorTarget::NotFile, closes_on_exec));
            return;
        }
        self.world.remove_name(&path);
        let file = self.world.file_at(&path);
        self.world.remove_name(&path);
        let Some(fd) = fd else { return self.note(Kind::Create, file) };
        self.world.set_size(file, 0);
        self.opened(fd, file, Kind::Create, flags);
    }

    /// Another descriptor of the same open.
    pub(super) fn duplicate(&mut self, closes_on_exec: bool) {
        if self.failed() {
            return;
        }
        let Some(new) = self.call.result else { return };
        let target = match self.opening(0) {
            Some(opening) => DescriptorTarget::Opening(opening),
            None => DescriptorTarget::NotFile,
        };
        let same = descriptor(self.argument(0)).is_some_and(|(old, _)| old == new);
        if !same {
            self.world.put(&self.context, new, target, closes_on_exec);
        }
    }

    /// Descriptors that are not files.
    pub(super) fn not_files(&mut self, fds: &[i64], closes_on_exec: bool) {
        if !self.failed() {
            fds.iter().for_each(|&fd| self.world.put(&self.context, fd, DescriptorTarget::NotFile, closes_on_exec));
        }
    }
}
