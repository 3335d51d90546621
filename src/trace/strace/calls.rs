//! The effect of each call on the modelled state, and the operations that it produces.

use super::call::{AT_FDCWD, Call, Described, count, descriptor, field, has_flag, number, pointed, string};
use super::world::{Context, DescriptorTarget, Shares, World, is_stored, resolve};
use crate::trace::{Kind, Problems, Trouble};

/// Where a call reads or writes.
#[derive(Debug, Clone, Copy)]
enum At {
    /// At the position of the open file description, which advances.
    Opening,
    /// At an explicit offset.
    Offset(Option<u64>),
}

/// A call, and the state that it changes.
pub(super) struct Doing<'a> {
    pub world: &'a mut World,
    pub problems: &'a mut Problems,
    pub context: Context,
    pub call: &'a Call<'a>,
    pub line: u64,
}

impl<'a> Doing<'a> {
    pub(super) fn argument(&self, at: usize) -> &'a [u8] {
        self.call.arguments.get(at).copied().unwrap_or_default()
    }

    pub(super) fn failed(&self) -> bool {
        // 64-bit addresses look negative; error numbers are small.
        self.call.result.is_none_or(|result| (-4095..0).contains(&result))
    }

    /// The returned number of bytes.
    fn returned(&self) -> u64 {
        self.call.result.and_then(|result| u64::try_from(result).ok()).unwrap_or(0)
    }

    fn problem(&mut self, kind: Trouble) {
        let (line, name) = (self.line, self.call.name);
        self.problems.count(kind, || format!("line {line}: {}", String::from_utf8_lossy(name)));
    }

    pub(super) fn note(&mut self, kind: Kind, file: u32) {
        let failed = self.failed();
        let mut operation = self.world.operation(&self.context, kind, Some(file));
        operation.failed = failed;
        self.world.done.push_back(operation);
    }

    /// The path in argument `at`, made absolute: from the directory of the descriptor in argument `directory`, or from
    /// the working directory. It stays relative where that is unknown.
    pub(super) fn path(&mut self, directory: Option<usize>, at: usize) -> Option<Vec<u8>> {
        let name = string(self.argument(at))?;
        let given = directory.and_then(|directory| descriptor(self.argument(directory)));
        let pid = self.context.pid;
        // The working directory that `-y` shows: calls without a descriptor (`unlink`, `access`) are relative to it
        // too.
        if let Some((AT_FDCWD, Some(Described::Path(path, _)))) = &given {
            self.world.set_directory(pid, path.clone());
        }
        if name.starts_with(b"/") {
            return Some(resolve(None, &name));
        }
        let from = match given {
            Some((_, Some(Described::Path(path, _)))) => Some(path),
            Some((fd, _)) if fd != AT_FDCWD => match self.world.target(pid, fd) {
                Some(DescriptorTarget::Opening(opening)) => {
                    let file = self.world.opening(opening).map(|opening| opening.file);
                    file.and_then(|file| self.world.files.get(file)).map(<[u8]>::to_vec)
                }
                _ => None,
            },
            _ => self.world.directory(pid).map(<[u8]>::to_vec),
        };
        Some(resolve(from.as_deref(), &name))
    }

    /// An operation on a path; returns the path, if its file is stored.
    fn by_path(&mut self, kind: Kind, directory: Option<usize>, at: usize) -> Option<Vec<u8>> {
        let path = self.path(directory, at)?;
        if !is_stored(&path) {
            return None;
        }
        let file = self.world.file_at(&path);
        self.note(kind, file);
        Some(path)
    }

    /// The target of the descriptor in an argument: a known open, or one that `-y` describes.
    pub(super) fn opening(&mut self, at: usize) -> Option<u32> {
        let (fd, described) = descriptor(self.argument(at))?;
        if fd < 0 {
            return None;
        }
        let known = self.world.target(self.context.pid, fd);
        match described {
            Some(Described::NotFile) => {
                if known != Some(DescriptorTarget::NotFile) {
                    self.world.put(&self.context, fd, DescriptorTarget::NotFile, false);
                }
                None
            }
            Some(Described::Path(path, deleted)) => {
                if !is_stored(&path) {
                    return None;
                }
                if let Some(DescriptorTarget::Opening(number)) = known {
                    let opened = self.world.opening(number).map(|opening| opening.file);
                    if deleted || opened == Some(self.world.file_at(&path)) {
                        return Some(number);
                    }
                }
                // Opened before the trace began, or unnoticed.
                let file = self.world.file_at(&path);
                let number = self.world.new_opening(file, None, false);
                self.world.put(&self.context, fd, DescriptorTarget::Opening(number), false);
                Some(number)
            }
            None => match known {
                Some(DescriptorTarget::Opening(number)) => Some(number),
                Some(DescriptorTarget::NotFile) => None,
                None => {
                    // Standard input and output are mostly terminals and pipes.
                    if fd > 2 {
                        self.problem(Trouble::UnknownFile);
                    }
                    None
                }
            },
        }
    }

    fn by_descriptor(&mut self, kind: Kind, at: usize) -> Option<u32> {
        let opening = self.opening(at)?;
        let file = self.world.opening(opening)?.file;
        let failed = self.failed();
        let mut operation = self.world.operation(&self.context, kind, Some(file));
        operation.opening = Some(opening);
        operation.failed = failed;
        self.world.done.push_back(operation);
        Some(file)
    }

    /// Reads or writes through the descriptor in an argument.
    fn transfer(&mut self, kind: Kind, fd: usize, at: At) {
        let Some(number) = self.opening(fd) else { return };
        let (failed, length_bytes) = (self.failed(), self.returned());
        let Some(opening) = self.world.opening(number) else { return };
        let (file, appends) = (opening.file, opening.appends);
        let writes = kind == Kind::Write;
        let offset_bytes = match at {
            At::Offset(offset) => offset,
            At::Opening if writes && appends => self.world.size(file),
            At::Opening => self.world.opening(number).and_then(|opening| opening.offset_bytes),
        };
        let end = offset_bytes.map(|offset| offset.saturating_add(length_bytes));
        if !failed {
            if let (At::Opening, Some(opening)) = (at, self.world.opening(number)) {
                opening.offset_bytes = end;
            }
            match end {
                Some(end) if writes => self.world.grow(file, end),
                // An empty read ends at the end of the file.
                Some(end)
                    if length_bytes == 0 && self.asked() > 0 && self.world.size(file).is_none_or(|size| size > end) =>
                {
                    self.world.set_size(file, end);
                }
                Some(end) => self.world.grow(file, end),
                None => {}
            }
        }
        let mut operation = self.world.operation(&self.context, kind, Some(file));
        operation.opening = Some(number);
        operation.offset_bytes = offset_bytes;
        operation.failed = failed;
        operation.length_bytes = if failed { 0 } else { length_bytes };
        self.world.done.push_back(operation);
    }

    /// Number of bytes that a read requested; it only matters whether it is 0.
    fn asked(&self) -> u64 {
        match self.call.name {
            b"read" | b"pread64" | b"pread" => count(self.argument(2)).unwrap_or(0),
            // For vectors that were not filled, only their number is printed.
            b"readv" | b"preadv" | b"preadv2" => 0,
            _ => 1,
        }
    }

    fn stat(&mut self, file: Option<u32>, structure: &[u8], regular: &[u8], size: &[u8]) {
        let is_regular = structure.windows(regular.len()).any(|window| window == regular);
        if let (Some(file), true, Some(size)) = (file, is_regular && !self.failed(), field(structure, size)) {
            self.world.set_size(file, size);
            if let Some(operation) = self.world.done.back_mut() {
                operation.file_size_bytes = Some(size);
            }
        }
    }

    fn stat_path(&mut self, directory: Option<usize>, at: usize, structure: usize, prefix: (&[u8], &[u8])) {
        let structure = self.argument(structure);
        // With an empty path, the call refers to the descriptor itself.
        let file = match string(self.argument(at)) {
            Some(path) if path.is_empty() => directory.and_then(|directory| self.by_descriptor(Kind::Stat, directory)),
            _ => self.by_path(Kind::Stat, directory, at).map(|path| self.world.file_at(&path)),
        };
        self.stat(file, structure, prefix.0, prefix.1);
    }

    /// A seek to `position`, `None` if the trace does not show it; it is not an operation. A seek to the very end (the
    /// offset, argument 1, is 0) tells the size of the file.
    fn seek(&mut self, position: Option<u64>, whence: &[u8]) {
        let Some(opening) = self.opening(0).filter(|_| !self.failed()) else { return };
        let to_end = whence == b"SEEK_END" || number(whence) == Some(2);
        if to_end
            && number(self.argument(1)) == Some(0)
            && let Some(size_bytes) = position
            && let Some(file) = self.world.opening(opening).map(|opening| opening.file)
        {
            self.world.set_size(file, size_bytes);
        }
        if let Some(opening) = self.world.opening(opening) {
            opening.offset_bytes = position;
        }
    }

    fn truncate(&mut self, file: Option<u32>, size: usize) {
        let Some(file) = file else { return };
        let Some(size_bytes) = count(self.argument(size)).filter(|_| !self.failed()) else { return };
        self.world.set_size(file, size_bytes);
        if let Some(operation) = self.world.done.back_mut() {
            operation.length_bytes = size_bytes;
            operation.file_size_bytes = Some(size_bytes);
        }
    }

    fn rename(&mut self, from: (Option<usize>, usize), to: (Option<usize>, usize), flags: &[u8]) {
        let Some(new) = self.path(to.0, to.1) else { return };
        let Some(old) = self.by_path(Kind::Rename, from.0, from.1) else { return };
        match () {
            _ if self.failed() => {}
            _ if has_flag(flags, b"RENAME_EXCHANGE", 2) => self.world.exchange(&old, &new),
            _ => self.world.rename(&old, &new),
        }
    }

    fn unlink(&mut self, directory: Option<usize>, at: usize) {
        if let Some(path) = self.by_path(Kind::Unlink, directory, at)
            && !self.failed()
        {
            self.world.remove_name(&path);
        }
    }

    fn link(&mut self, from: (Option<usize>, usize), to: (Option<usize>, usize)) {
        let Some(new) = self.path(to.0, to.1) else { return };
        let Some(file) = self.linked(from) else { return };
        if !self.failed() {
            self.world.also_at(&new, file);
        }
    }

    /// The file that gets another name: that of a path, or of a descriptor, whose path is empty or below /proc. So a
    /// file without a name gets its first.
    fn linked(&mut self, (directory, at): (Option<usize>, usize)) -> Option<u32> {
        let path = string(self.argument(at));
        if path.as_ref().is_some_and(Vec::is_empty) {
            return self.by_descriptor(Kind::Link, directory?);
        }
        let fd = path.as_deref().and_then(|path| number(path.strip_prefix(b"/proc/self/fd/")?));
        let file = match fd.and_then(|fd| self.world.target(self.context.pid, fd)) {
            Some(DescriptorTarget::Opening(opening)) => self.world.opening(opening)?.file,
            _ => {
                let path = self.path(directory, at).filter(|path| is_stored(path))?;
                self.world.file_at(&path)
            }
        };
        self.note(Kind::Link, file);
        Some(file)
    }

    /// Copies between descriptors in the kernel: a read and a write.
    fn copy(&mut self, input: usize, input_offset: usize, output: usize, output_offset: Option<usize>) {
        let at = |text: &[u8]| match pointed(text) {
            Some(offset) => At::Offset(Some(offset)),
            None if text == b"NULL" || text.is_empty() || text == b"0" => At::Opening,
            None => At::Offset(None),
        };
        let read_at = at(self.argument(input_offset));
        let write_at = output_offset.map_or(At::Opening, |offset| at(self.argument(offset)));
        let (duration, before) = (self.context.duration_ns, self.world.done.len());
        self.transfer(Kind::Read, input, read_at);
        // The time covers both together: it counts once, for the read unless that is of no file.
        if self.world.done.iter().skip(before).any(|done| done.kind == Kind::Read) {
            self.context.duration_ns = None;
        }
        self.transfer(Kind::Write, output, write_at);
        self.context.duration_ns = duration;
    }

    fn map(&mut self) {
        let (length, flags) = (count(self.argument(1)).unwrap_or(0), self.argument(3));
        if has_flag(flags, b"MAP_ANONYMOUS", 0x20) {
            return;
        }
        let offset_bytes = count(self.argument(5));
        let Some(number) = self.opening(4) else { return };
        let Some(file) = self.world.opening(number).map(|opening| opening.file) else { return };
        let failed = self.failed();
        let mut operation = self.world.operation(&self.context, Kind::Map, Some(file));
        operation.opening = Some(number);
        operation.failed = failed;
        operation.offset_bytes = offset_bytes;
        // A mapping may extend past the end of the file, where there is nothing.
        let most = operation.file_size_bytes.zip(offset_bytes).map(|(size, offset)| size.saturating_sub(offset));
        operation.length_bytes = if failed { 0 } else { length.min(most.unwrap_or(u64::MAX)) };
        self.world.done.push_back(operation);
    }

    fn allocate(&mut self) {
        let file = self.by_descriptor(Kind::Allocate, 0);
        let mode = self.argument(1);
        let grows = mode == b"0" || !has_flag(mode, b"FALLOC_FL_KEEP_SIZE", 1);
        if let (Some(file), true, Some(offset), Some(length)) =
            (file, grows && !self.failed(), count(self.argument(2)), count(self.argument(3)))
        {
            self.world.grow(file, offset.saturating_add(length));
            let size = self.world.size(file);
            if let Some(operation) = self.world.done.back_mut() {
                operation.file_size_bytes = size;
            }
        }
    }

    fn control(&mut self) {
        let command = self.argument(1);
        match command {
            b"F_DUPFD" => self.duplicate(false),
            b"F_DUPFD_CLOEXEC" => self.duplicate(true),
            b"F_SETFD" if !self.failed() => {
                let closes_on_exec = has_flag(self.argument(2), b"FD_CLOEXEC", 1);
                if let Some((fd, _)) = descriptor(self.argument(0)) {
                    self.world.set_closes_on_exec(self.context.pid, fd, closes_on_exec);
                }
            }
            b"F_SETFL" if !self.failed() => {
                let appends = has_flag(self.argument(2), b"O_APPEND", 0o2000);
                if let Some(number) = self.opening(0)
                    && let Some(opening) = self.world.opening(number)
                {
                    opening.appends = appends;
                }
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        // Even a failed close closes, except for a descriptor that was never open.
        if let Some((fd, _)) = descriptor(self.argument(0))
            && !self.call.remark.starts_with(b"EBADF")
        {
            // For an unnoticed open, this is the last description from `-y`.
            self.opening_if_described(0);
            self.world.close(&self.context, fd);
        }
    }

    fn opening_if_described(&mut self, at: usize) {
        if descriptor(self.argument(at)).is_some_and(|(_, described)| described.is_some()) {
            self.opening(at);
        }
    }

    fn close_range(&mut self) {
        let (Some(first), Some(last)) = (number(self.argument(0)), number(self.argument(1))) else { return };
        if self.failed() {
            return;
        }
        let last = if last < 0 { i64::MAX } else { last };
        let marks = has_flag(self.argument(2), b"CLOSE_RANGE_CLOEXEC", 4);
        for fd in self.world.descriptors(self.context.pid, first, last) {
            match marks {
                true => self.world.set_closes_on_exec(self.context.pid, fd, true),
                false => self.world.close_implied(&self.context, fd),
            }
        }
    }

    fn fork(&mut self) {
        let Some(child) = self.call.result.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0) else {
            return;
        };
        if !self.world.knows_process(child) {
            self.world.fork(self.context.pid, child, shares(&self.call.arguments));
        }
    }

    fn execute(&mut self, directory: Option<usize>, path: usize) {
        let Some(program) = self.path(directory, path) else { return };
        if !self.failed() {
            self.world.execute(&self.context, program.clone());
        }
        if is_stored(&program) {
            let file = self.world.file_at(&program);
            self.note(Kind::Execute, file);
        }
    }

    fn change_directory(&mut self, path: Option<Vec<u8>>) {
        if let Some(path) = path.filter(|_| !self.failed()) {
            self.world.set_directory(self.context.pid, path);
        }
    }

    fn directory_of_descriptor(&mut self) -> Option<Vec<u8>> {
        let opening = self.opening(0)?;
        let file = self.world.opening(opening)?.file;
        self.world.files.get(file).map(<[u8]>::to_vec)
    }

    /// Requests to io_uring are seen without their contents.
    fn ring(&mut self, requests: u64) {
        if requests == 0 {
            return;
        }
        let (line, name) = (self.line, self.call.name);
        self.problems
            .count_many(Trouble::NotTraced, requests, || format!("line {line}: {}", String::from_utf8_lossy(name)));
    }

    /// Applies the call.
    pub(super) fn run(&mut self) {
        const STAT: (&[u8], &[u8]) = (b"st_mode=S_IFREG", b"st_size=");
        const STATX: (&[u8], &[u8]) = (b"stx_mode=S_IFREG", b"stx_size=");
        match self.call.name {
            b"read" | b"readv" => self.transfer(Kind::Read, 0, At::Opening),
            b"write" | b"writev" => self.transfer(Kind::Write, 0, At::Opening),
            b"pread64" | b"pread" | b"preadv" => self.transfer(Kind::Read, 0, At::Offset(count(self.argument(3)))),
            b"pwrite64" | b"pwrite" | b"pwritev" => self.transfer(Kind::Write, 0, At::Offset(count(self.argument(3)))),
            name @ (b"preadv2" | b"pwritev2") => {
                let kind = if name == b"preadv2" { Kind::Read } else { Kind::Write };
                let at = match number(self.argument(3)) {
                    Some(-1) => At::Opening,
                    _ => At::Offset(count(self.argument(3))),
                };
                self.transfer(kind, 0, at);
            }
            b"sendfile" | b"sendfile64" => self.copy(1, 2, 0, None),
            b"copy_file_range" | b"splice" => self.copy(0, 1, 2, Some(3)),
            b"open" => self.open(None, 0, self.argument(1)),
            b"creat" => self.open(None, 0, b""),
            b"openat" => self.open(Some(0), 1, self.argument(2)),
            b"openat2" => {
                let how = self.argument(2);
                self.open(Some(0), 1, how);
            }
            b"close" => self.close(),
            b"close_range" => self.close_range(),
            b"dup" | b"dup2" => self.duplicate(false),
            b"dup3" => self.duplicate(has_flag(self.argument(2), b"O_CLOEXEC", 0o2_000_000)),
            b"fcntl" | b"fcntl64" => self.control(),
            b"lseek" => self.seek(Some(self.returned()), self.argument(2)),
            b"_llseek" | b"llseek" => {
                // The halves of the offset are joined: descriptor, offset, position, whence.
                let position = pointed(self.argument(2));
                self.seek(position, self.argument(3));
            }
            b"mmap" | b"mmap2" | b"old_mmap" => self.map(),
            b"stat" | b"lstat" | b"stat64" | b"lstat64" => self.stat_path(None, 0, 1, STAT),
            b"newfstatat" | b"fstatat64" => self.stat_path(Some(0), 1, 2, STAT),
            b"statx" => self.stat_path(Some(0), 1, 4, STATX),
            b"fstat" | b"fstat64" => {
                let file = self.by_descriptor(Kind::Stat, 0);
                let structure = self.argument(1);
                self.stat(file, structure, STAT.0, STAT.1);
            }
            b"access" | b"readlink" | b"getxattr" | b"lgetxattr" | b"listxattr" | b"llistxattr" => {
                self.by_path(Kind::Lookup, None, 0);
            }
            b"faccessat" | b"faccessat2" | b"readlinkat" | b"name_to_handle_at" => {
                self.by_path(Kind::Lookup, Some(0), 1);
            }
            b"fgetxattr" | b"flistxattr" => {
                self.by_descriptor(Kind::Lookup, 0);
            }
            b"getdents" | b"getdents64" => {
                self.by_descriptor(Kind::ReadDirectory, 0);
            }
            b"mkdir" => {
                self.by_path(Kind::MakeDirectory, None, 0);
            }
            b"mkdirat" => {
                self.by_path(Kind::MakeDirectory, Some(0), 1);
            }
            b"unlink" | b"rmdir" => self.unlink(None, 0),
            b"unlinkat" => self.unlink(Some(0), 1),
            b"rename" => self.rename((None, 0), (None, 1), b""),
            b"renameat" => self.rename((Some(0), 1), (Some(2), 3), b""),
            b"renameat2" => {
                let flags = self.argument(4);
                self.rename((Some(0), 1), (Some(2), 3), flags);
            }
            b"link" => self.link((None, 0), (None, 1)),
            b"linkat" => self.link((Some(0), 1), (Some(2), 3)),
            b"symlink" => {
                self.by_path(Kind::Link, None, 1);
            }
            b"symlinkat" => {
                self.by_path(Kind::Link, Some(1), 2);
            }
            b"truncate" | b"truncate64" => {
                let file = self.by_path(Kind::Truncate, None, 0).map(|path| self.world.file_at(&path));
                self.truncate(file, 1);
            }
            b"ftruncate" | b"ftruncate64" => {
                let file = self.by_descriptor(Kind::Truncate, 0);
                self.truncate(file, 1);
            }
            b"fallocate" => self.allocate(),
            b"chmod" | b"chown" | b"lchown" | b"utime" | b"utimes" | b"setxattr" | b"lsetxattr" | b"removexattr"
            | b"lremovexattr" => {
                self.by_path(Kind::SetAttributes, None, 0);
            }
            b"fchmodat" | b"fchmodat2" | b"fchownat" | b"futimesat" => {
                self.by_path(Kind::SetAttributes, Some(0), 1);
            }
            // Without a path, the call refers to the descriptor.
            b"utimensat" => match self.argument(1) == b"NULL" {
                true => drop(self.by_descriptor(Kind::SetAttributes, 0)),
                false => drop(self.by_path(Kind::SetAttributes, Some(0), 1)),
            },
            b"fchmod" | b"fchown" | b"fsetxattr" | b"fremovexattr" => {
                self.by_descriptor(Kind::SetAttributes, 0);
            }
            b"fsync" | b"fdatasync" | b"sync_file_range" | b"syncfs" => {
                self.by_descriptor(Kind::Sync, 0);
            }
            b"sync" => {
                let operation = self.world.operation(&self.context, Kind::Sync, None);
                self.world.done.push_back(operation);
            }
            b"statfs" | b"statfs64" | b"mknod" => {
                self.by_path(Kind::Other, None, 0);
            }
            b"mknodat" => {
                self.by_path(Kind::Other, Some(0), 1);
            }
            b"fstatfs" | b"fstatfs64" | b"flock" => {
                self.by_descriptor(Kind::Other, 0);
            }
            b"ioctl" if self.argument(1).ends_with(b"CLONE") || self.argument(1).ends_with(b"CLONE_RANGE") => {
                self.by_descriptor(Kind::Other, 0);
            }
            b"execve" => self.execute(None, 0),
            b"execveat" => self.execute(Some(0), 1),
            b"fork" | b"vfork" | b"clone" | b"clone2" | b"clone3" => self.fork(),
            b"chdir" => {
                let path = self.path(None, 0);
                self.change_directory(path);
            }
            b"fchdir" => {
                let path = self.directory_of_descriptor();
                self.change_directory(path);
            }
            b"pipe" | b"pipe2" => {
                let closes_on_exec = has_flag(self.argument(1), b"O_CLOEXEC", 0o2_000_000);
                self.not_files(&listed(self.argument(0)), closes_on_exec);
            }
            b"socketpair" => {
                let closes_on_exec = has_flag(self.argument(1), b"SOCK_CLOEXEC", 0o2_000_000);
                self.not_files(&listed(self.argument(3)), closes_on_exec);
            }
            b"socket" | b"accept" | b"accept4" | b"epoll_create" | b"epoll_create1" | b"eventfd" | b"eventfd2"
            | b"signalfd" | b"signalfd4" | b"timerfd_create" | b"inotify_init" | b"inotify_init1" | b"memfd_create"
            | b"pidfd_open" | b"userfaultfd" | b"fanotify_init" | b"perf_event_open" | b"bpf" => {
                let closes_on_exec = self.call.arguments.iter().any(|argument| argument.ends_with(b"CLOEXEC"));
                self.not_files(&self.call.result.into_iter().collect::<Vec<_>>(), closes_on_exec);
            }
            b"io_uring_setup" => self.not_files(&self.call.result.into_iter().collect::<Vec<_>>(), true),
            b"io_uring_enter" => self.ring(self.returned()),
            b"io_submit" => self.ring(self.returned()),
            _ => self.unknown(),
        }
    }

    /// An unknown call is a problem only if it names a file and is not one of those that move nothing.
    fn unknown(&mut self) {
        const MOVE_NOTHING: [&[u8]; 24] = [
            b"ioctl",
            b"fadvise64",
            b"fadvise64_64",
            b"readahead",
            b"poll",
            b"ppoll",
            b"select",
            b"pselect6",
            b"epoll_ctl",
            b"epoll_wait",
            b"epoll_pwait",
            b"getcwd",
            b"mount",
            b"umount",
            b"umount2",
            b"inotify_add_watch",
            b"connect",
            b"bind",
            b"sendto",
            b"sendmsg",
            b"recvmsg",
            b"getsockname",
            b"getpeername",
            b"fanotify_mark",
        ];
        if MOVE_NOTHING.contains(&self.call.name) {
            return;
        }
        let names_file = |argument: &&[u8]| {
            argument.starts_with(b"\"/")
                || matches!(descriptor(argument), Some((fd, Some(Described::Path(path, _)))) if fd >= 0 && is_stored(&path))
        };
        if self.call.arguments.iter().any(names_file) {
            self.problem(Trouble::UnknownCall);
        }
    }
}

/// What a new process shares with its parent.
pub(super) fn shares(arguments: &[&[u8]]) -> Shares {
    // Numbers are addresses here: flags are printed by name.
    let has = |flag: &[u8]| arguments.iter().any(|argument| has_flag(argument, flag, 0));
    Shares { descriptors: has(b"CLONE_FILES"), directory: has(b"CLONE_FS") }
}

/// The descriptors in `[3<…>, 4<…>]`.
fn listed(text: &[u8]) -> Vec<i64> {
    let inside = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or_default();
    inside.split(|&byte| byte == b',').filter_map(|part| Some(descriptor(part.trim_ascii())?.0)).collect()
}
