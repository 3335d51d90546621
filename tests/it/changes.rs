//! Random changes of a tree, from a seed: everything that a program can do to files and directories.

use std::fs::{self, File, FileTimes};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use granulo_core::random::Random;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, fallocate, mknodat};

/// A directory: where it is, until it is removed.
struct Directory {
    parent: usize,
    name: String,
    is_there: bool,
}

/// A tree that changes, and what its model knows of it.
pub struct Changes {
    root: PathBuf,
    random: Random,
    most_files: usize,
    directories: Vec<Directory>,
    there: Vec<usize>,
    /// Names of things that are no directories, with their directory.
    files: Vec<(usize, Vec<u8>)>,
    made: u64,
}

impl Changes {
    /// Changes below `root`, an empty directory, that keep the tree at about `most_files`.
    pub fn below(root: PathBuf, seed: u64, most_files: usize) -> Changes {
        let top = Directory { parent: 0, name: String::new(), is_there: true };
        let random = Random::new(seed);
        Changes { root, random, most_files, directories: vec![top], there: vec![0], files: Vec::new(), made: 0 }
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn directories(&self) -> usize {
        self.there.len()
    }

    /// Makes some changes.
    pub fn make(&mut self, changes: usize) {
        for _ in 0..changes {
            self.change();
        }
    }

    fn path(&self, directory: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut at = directory;
        while at != 0 {
            names.push(self.directories[at].name.as_str());
            at = self.directories[at].parent;
        }
        names.iter().rev().fold(self.root.clone(), |path, name| path.join(name))
    }

    fn is_below(&self, directory: usize, above: usize) -> bool {
        let mut at = directory;
        while at != above && at != 0 {
            at = self.directories[at].parent;
        }
        at == above
    }

    fn file_path(&self, file: usize) -> PathBuf {
        let (directory, name) = &self.files[file];
        self.path(*directory).join(std::ffi::OsString::from_vec(name.clone()))
    }

    fn some_directory(&mut self) -> usize {
        *self.random.pick(&self.there)
    }

    /// A name that was not used before; every tenth is no text.
    fn new_name(&mut self) -> Vec<u8> {
        self.made += 1;
        let mut name = format!("f{}.x{}", self.made, self.made % 5).into_bytes();
        if self.random.happens(1, 10) {
            name.extend(b"\xff \"\\\n");
        }
        name.resize(name.len() + self.random.index(20), b'n');
        name
    }

    fn some_file(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.random.index(self.files.len()))
    }

    fn change(&mut self) {
        let is_full = self.files.len() >= self.most_files;
        match self.random.below(100) {
            0..25 if !is_full => self.create(),
            0..35 if is_full => self.remove(),
            25..35 => self.remove(),
            35..60 => self.write(),
            60..68 => self.rename(),
            68..73 => self.link(),
            73..78 => self.attributes(),
            78..88 => self.make_directory(),
            88..95 => self.move_directory(),
            95..97 => self.remove_directory(),
            _ => self.special(),
        }
    }

    fn create(&mut self) {
        let (directory, name) = (self.some_directory(), self.new_name());
        self.files.push((directory, name));
        let size = [0, 10, 700, 5000, 30_000][self.random.index(5)];
        fs::write(self.file_path(self.files.len() - 1), self.random.bytes(size)).unwrap();
    }

    fn remove(&mut self) {
        let Some(file) = self.some_file() else { return };
        fs::remove_file(self.file_path(file)).unwrap();
        self.files.swap_remove(file);
    }

    fn write(&mut self) {
        let Some(file) = self.some_file() else { return };
        let path = self.file_path(file);
        if !path.symlink_metadata().unwrap().is_file() {
            return;
        }
        let mut file = File::options().write(true).open(path).unwrap();
        let length = self.random.below(40_000);
        match self.random.below(4) {
            0 => file.set_len(length).unwrap(),
            1 => drop(fallocate(&file, FallocateFlags::empty(), length, 10_000)),
            _ => {
                file.seek(SeekFrom::Start(length)).unwrap();
                file.write_all(&self.random.bytes(3000)).unwrap();
            }
        }
    }

    /// To a new name, or over another file.
    fn rename(&mut self) {
        let Some(file) = self.some_file() else { return };
        let from = self.file_path(file);
        let replaced = self.some_file().filter(|other| self.random.happens(1, 3) && *other != file);
        if let Some(other) = replaced {
            fs::rename(from, self.file_path(other)).unwrap();
            // Between two names of one file, a rename does nothing.
            if self.file_path(file).symlink_metadata().is_err() {
                self.files.swap_remove(file);
            }
            return;
        }
        self.files[file] = (self.some_directory(), self.new_name());
        fs::rename(from, self.file_path(file)).unwrap();
    }

    fn link(&mut self) {
        let Some(file) = self.some_file() else { return };
        let from = self.file_path(file);
        let name = (self.some_directory(), self.new_name());
        self.files.push(name);
        fs::hard_link(from, self.file_path(self.files.len() - 1)).unwrap();
    }

    fn attributes(&mut self) {
        let Some(file) = self.some_file() else { return };
        let path = self.file_path(file);
        let number = self.random.below(2000) as u32;
        match self.random.below(3) {
            0 => lchown(path, Some(number % 5), None).unwrap(),
            _ if !path.symlink_metadata().unwrap().is_file() => {}
            1 => fs::set_permissions(path, fs::Permissions::from_mode(number % 512)).unwrap(),
            _ => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(number) * 900_000);
                let file = File::options().write(true).open(path).unwrap();
                file.set_times(FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
            }
        }
    }

    fn make_directory(&mut self) {
        if self.there.len() * 5 > self.most_files {
            return;
        }
        self.made += 1;
        let parent = self.some_directory();
        self.directories.push(Directory { parent, name: format!("d{}", self.made), is_there: true });
        self.there.push(self.directories.len() - 1);
        fs::create_dir(self.path(self.directories.len() - 1)).unwrap();
    }

    fn move_directory(&mut self) {
        let (moved, to) = (self.some_directory(), self.some_directory());
        if moved == 0 || self.is_below(to, moved) {
            return;
        }
        let from = self.path(moved);
        self.made += 1;
        self.directories[moved] = Directory { parent: to, name: format!("d{}", self.made), is_there: true };
        fs::rename(from, self.path(moved)).unwrap();
    }

    fn remove_directory(&mut self) {
        let removed = self.some_directory();
        let below: Vec<usize> = self.there.iter().copied().filter(|other| self.is_below(*other, removed)).collect();
        // Large trees only rarely.
        if removed == 0 || below.len() > 20 {
            return;
        }
        fs::remove_dir_all(self.path(removed)).unwrap();
        below.into_iter().for_each(|directory| self.directories[directory].is_there = false);
        self.there.retain(|directory| self.directories[*directory].is_there);
        self.files.retain(|(directory, _)| self.directories[*directory].is_there);
    }

    fn special(&mut self) {
        if self.files.len() >= self.most_files {
            return self.remove();
        }
        let name = (self.some_directory(), self.new_name());
        self.files.push(name);
        let path = self.file_path(self.files.len() - 1);
        let length = 1 + self.random.index(200);
        match self.random.below(3) {
            0 => symlink("r".repeat(length), path).unwrap(),
            1 => symlink(format!("/{}", "a".repeat(length)), path).unwrap(),
            _ => mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
        }
    }
}
