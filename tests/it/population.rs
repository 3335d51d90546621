//! A population of 50,000 files on real file systems, and the prediction for it.
//!
//! The sizes are those of VU 2005, stratified: one file from each 50,000th part of the population, in mixed order. The
//! tree has 10 to 50 files per directory and names of 5 to 30 bytes. It is written once to each file system and synced;
//! then the used space that the system reports is compared with the model's sums over files and directories.
//! `--nocapture` shows the figures.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use granulo::distribution::published;
use granulo::layout::{Layout, Model};
use granulo_core::random::Random;

use crate::images::{Image, Mount};
use crate::{btrfs, xfs};

const FILES: usize = 50_000;
const IMAGE_BYTES: u64 = 16 << 30;
const WRITERS: usize = 4;

/// A directory with its own files; `parent` is the number of its parent.
struct Directory {
    parent: Option<usize>,
    name: String,
    files: Vec<(String, u64)>,
}

/// The tree; parents come before their children. The first is the root, which already exists.
struct Population {
    directories: Vec<Directory>,
}

/// Bytes of data and of everything else.
struct Bytes {
    data: u64,
    metadata: u64,
}

/// A name of 5 to 30 bytes; `number` makes it unique in a directory.
fn name(random: &mut Random, number: usize) -> String {
    let mut name = format!("{number:x}.");
    for _ in name.len()..5 + random.index(26) {
        name.push(char::from(*random.pick(b"abcdefghijklmnopqrstuvwxyz0123456789_-.")));
    }
    name
}

/// The size of the file in the middle of each of [`FILES`] equal parts of VU 2005.
fn sizes() -> Vec<u64> {
    let distribution = published::find("vu-2005").unwrap().distribution();
    let count = distribution.count();
    let mut sizes = Vec::with_capacity(FILES);
    let mut seen = 0;
    for cell in distribution.cells() {
        seen += cell.count;
        while sizes.len() < FILES && (2 * sizes.len() as u128 + 1) * count <= seen * 2 * FILES as u128 {
            sizes.push(cell.mean());
        }
    }
    assert_eq!(sizes.len(), FILES);
    sizes
}

impl Population {
    fn make() -> Population {
        let mut random = Random::new(2005);
        let mut sizes = sizes();
        random.shuffle(&mut sizes);
        let mut sizes = VecDeque::from(sizes);
        let mut directories = Vec::new();
        while !sizes.is_empty() {
            let number = directories.len();
            let files = sizes.drain(..(10 + random.index(41)).min(sizes.len())).collect::<Vec<u64>>();
            let files = files.into_iter().enumerate().map(|(at, size)| (name(&mut random, at), size)).collect();
            let parent = number.checked_sub(1).map(|last| random.index(last + 1));
            directories.push(Directory { parent, name: name(&mut random, 1000 + number), files });
        }
        Population { directories }
    }

    fn paths(&self, root: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::with_capacity(self.directories.len());
        for directory in &self.directories {
            let path = directory.parent.map_or(root.to_owned(), |parent| paths[parent].join(&directory.name));
            paths.push(path);
        }
        paths
    }

    /// Writes it, directory by directory, several in parallel.
    fn write(&self, root: &Path) {
        let content = Random::new(1).bytes(1 << 20);
        let work = Mutex::new(self.paths(root).into_iter().zip(&self.directories));
        let write_next = || {
            let Some((path, directory)) = work.lock().unwrap().next() else { return false };
            fs::create_dir_all(&path).unwrap();
            for (name, size) in &directory.files {
                let mut file = File::create(path.join(name)).unwrap();
                let mut left = *size as usize;
                while left > 0 {
                    let part = left.min(content.len());
                    file.write_all(&content[..part]).unwrap();
                    left -= part;
                }
            }
            true
        };
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| while write_next() {});
            }
        });
        xfs::sync(root);
    }

    /// The sums of the model. The root already exists.
    fn predict(&self, layout: &dyn Layout) -> Bytes {
        let (mut data, mut metadata) = (0, 0);
        let mut entries: Vec<(u64, u64)> = vec![(0, 0); self.directories.len()];
        for (at, directory) in self.directories.iter().enumerate() {
            for (name, size) in &directory.files {
                data += layout.data_bytes(*size);
                metadata += layout.file(*size).metadata_bytes;
                entries[at].0 += 1;
                entries[at].1 += layout.entry_bytes(name.len() as u64);
            }
            if let Some(parent) = directory.parent {
                entries[parent].0 += 1;
                entries[parent].1 += layout.entry_bytes(directory.name.len() as u64);
            }
        }
        for (count, bytes) in entries {
            let space = layout.directory(count, bytes).expect("directories are modelled");
            metadata += space.allocated_bytes + space.metadata_bytes;
        }
        Bytes { data: data.try_into().unwrap(), metadata: metadata.try_into().unwrap() }
    }

    /// Bytes that `stat` reports for all files.
    fn allocated_bytes(&self, root: &Path) -> u64 {
        let allocated = |(path, directory): (PathBuf, &Directory)| -> u64 {
            let of_file = |(name, _): &(String, u64)| fs::metadata(path.join(name)).unwrap().blocks() * 512;
            directory.files.iter().map(of_file).sum()
        };
        self.paths(root).into_iter().zip(&self.directories).map(allocated).sum()
    }

    fn size_bytes(&self) -> u64 {
        self.directories.iter().flat_map(|directory| &directory.files).map(|(_, size)| size).sum()
    }
}

/// The population on a new file system, which is removed with it.
struct Written {
    population: Population,
    image: Image,
    /// Used bytes and inodes before.
    before: (u64, u64),
    /// One at a time: each needs 6 GB.
    _turn: MutexGuard<'static, ()>,
}

impl Written {
    /// `None`, with the reason reported, where that file system cannot be made here.
    fn to(mkfs: &[&str]) -> Option<Written> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let image = Image::make(IMAGE_BYTES, mkfs, Mount::Kernel(""))?;
        let population = Population::make();
        let before = used(&image.root());
        let start = Instant::now();
        population.write(&image.root());
        let seconds = start.elapsed().as_secs_f64();
        println!("{FILES} files of {} bytes written and synced in {seconds:.1} s", population.size_bytes());
        Some(Written { population, image, before, _turn: turn })
    }

    fn root(&self) -> PathBuf {
        self.image.root()
    }

    /// Growth in used bytes and inodes.
    fn grown(&self) -> (u64, u64) {
        let (bytes, inodes) = used(&self.root());
        (bytes - self.before.0, inodes - self.before.1)
    }

    /// Fails where the data are off by more than 1 %, or the metadata (and with them everything) by more than 10 %.
    #[track_caller]
    fn compare(&self, model: &str, real: Bytes) {
        let predicted = self.population.predict(&*Model::parse(model).unwrap().layout);
        let mut off = Vec::new();
        println!("{model:32} {:>12} {:>12} {:>9}", "predicted", "real", "deviation");
        for (what, predicted, real, most_per_cent) in [
            ("data", predicted.data, real.data, 1.0),
            ("metadata", predicted.metadata, real.metadata, 10.0),
            ("together", predicted.data + predicted.metadata, real.data + real.metadata, 1.0),
        ] {
            let deviation = (predicted as f64 - real as f64) / real as f64 * 100.0;
            println!("  {what:30} {predicted:>12} {real:>12} {deviation:>+7.2} %");
            if deviation.abs() > most_per_cent {
                off.push(format!("{what} by {deviation:+.2} %, where {most_per_cent} % is allowed"));
            }
        }
        assert!(off.is_empty(), "{model} is off: {}", off.join("; "));
    }
}

/// Bytes of blocks that are not free, and inodes that are not.
fn used(root: &Path) -> (u64, u64) {
    let said = rustix::fs::statvfs(root).unwrap();
    ((said.f_blocks - said.f_bfree) * said.f_frsize, said.f_files - said.f_ffree)
}

#[test]
fn ext4_takes_for_a_population_what_was_predicted() {
    let Some(written) = Written::to(&["mkfs.ext4", "-F", "-q"]) else { return };
    let data = written.population.allocated_bytes(&written.root());
    let (bytes, inodes) = written.grown();
    // The inode tables existed before; their used part is not among the blocks.
    written.compare("ext4", Bytes { data, metadata: bytes - data + inodes * 256 });
}

#[test]
fn xfs_takes_for_a_population_what_was_predicted() {
    let Some(written) = Written::to(&["mkfs.xfs", "-q"]) else { return };
    let data = written.population.allocated_bytes(&written.root());
    let real = Bytes { data, metadata: written.grown().0 - data };
    written.compare(&format!("xfs:security={}", xfs::security(&written.root())), real);
}

#[test]
fn btrfs_takes_for_a_population_what_was_predicted() {
    let Some(written) = Written::to(&["mkfs.btrfs", "-q"]) else { return };
    let used = |kind: &str| btrfs::used(&written.root(), kind);
    // There are two copies of the metadata, and btrfs reports one.
    written.compare("btrfs", Bytes { data: used("Data"), metadata: 2 * used("Metadata") });
}
