//! Orders of a data set: a uniformly random permutation, a window that slides over the disk order, or the disk order.
//!
//! **The exact order** (Rao 1961, Sandelius 1962). Every file draws a bucket, independently and uniformly, from a
//! function of the seed, the epoch and its number; the files of a bucket are shuffled (Fisher and Yates); the order is
//! that of the buckets, one after the other. Renumbering the files does not change the distribution of such a process,
//! so every permutation is equally likely. Draws are exact: there are 2^k buckets, and numbers below a limit are drawn
//! by rejection (Lemire 2019). What is assumed is that the generator's numbers are random; it is SplitMix64, with 64
//! bits of state. No permutation is stored: a process has one bucket at a time in memory, 4 bytes a file of it, and
//! finds its members by drawing all buckets again: time of the processor instead of memory.
//!
//! **The window order** is what stream loaders do: files in disk order pass through a buffer, and a random one of the
//! buffer is next. It is not uniform: a file moves forward by no more than the window.
//!
//! **Invariant**: an order depends on the number of files, seed, epoch and window only, not on memory, processes or
//! machine; METHOD.md has the proof, and pytest the chi-square test.

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_core::random::{Random, STEP, mix};

use crate::rows::Rows;

/// Files up to which there is one bucket.
const BUCKET_FILES: u64 = 1 << 20;
/// Most buckets, as a power of two: beyond, buckets grow.
const MOST_BUCKET_BITS: u32 = 6;

/// Which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// That of the places in the segments.
    Disk,
    /// A uniformly random permutation, in 2^`bucket_bits` buckets.
    Exact { bucket_bits: u32 },
    /// A window of so many files over the disk order.
    Window { files: u32 },
}

impl Kind {
    /// The kind with a name, for a number of files; `buckets` other than those that the number of files determines make
    /// another order.
    ///
    /// # Errors
    /// There is no such kind, window or number of buckets.
    pub(crate) fn named(name: &str, files: u64, window: u32, buckets: Option<u32>) -> Result<Kind> {
        let wrong = |cause: &str| Error::new(ErrorKind::Usage, "choose the order", cause);
        match (name, buckets) {
            ("disk", _) => Ok(Kind::Disk),
            ("window", _) if window > 0 => Ok(Kind::Window { files: window }),
            ("exact", None) => Ok(Kind::Exact { bucket_bits: bucket_bits(files) }),
            ("exact", Some(buckets)) if buckets.is_power_of_two() => {
                Ok(Kind::Exact { bucket_bits: buckets.trailing_zeros() })
            }
            ("exact", _) => Err(wrong("the number of buckets is a power of two")),
            _ => Err(wrong("it is 'disk', 'exact', or 'window' with a window of more than 0")),
        }
    }
}

/// The number of buckets for a number of files, as a power of two. Part of the order: it must not change.
fn bucket_bits(files: u64) -> u32 {
    files.div_ceil(BUCKET_FILES).next_power_of_two().trailing_zeros().min(MOST_BUCKET_BITS)
}

/// An order of an epoch, read at ascending positions.
#[derive(Debug)]
pub(crate) struct Order {
    kind: Kind,
    files: u32,
    key: u64,
    /// Where buckets begin, and the end.
    starts: Vec<u64>,
    /// The bucket that is in memory.
    bucket: Option<usize>,
    members: Vec<u32>,
    window: Window,
}

/// The state of a window: the buffer, and how far it is.
#[derive(Debug)]
struct Window {
    random: Random,
    buffer: Vec<u32>,
    entered: u32,
    handed_out: u64,
}

/// A number below `end`, exactly uniform if those of `random` are.
fn below(random: &mut Random, end: u64) -> u64 {
    loop {
        let product = u128::from(random.any()) * u128::from(end);
        if product as u64 >= end.wrapping_neg() % end {
            return (product >> 64) as u64;
        }
    }
}

impl Order {
    pub(crate) fn new(kind: Kind, files: u32, seed: u64, epoch: u64) -> Order {
        // Two bijections: another epoch of a seed has another key.
        let key = mix(mix(seed.wrapping_add(STEP)).wrapping_add(epoch.wrapping_mul(STEP)));
        let window = Window { random: Random::new(key), buffer: Vec::new(), entered: 0, handed_out: 0 };
        let mut order = Order { kind, files, key, starts: Vec::new(), bucket: None, members: Vec::new(), window };
        if let Kind::Exact { bucket_bits } = kind {
            let mut counts = vec![0u64; 1 << bucket_bits];
            (0..files).for_each(|file| counts[order.bucket_of(file, bucket_bits)] += 1);
            let ends = counts.iter().scan(0, |end, count| {
                *end += count;
                Some(*end)
            });
            order.starts = std::iter::once(0).chain(ends).collect();
        }
        order
    }

    /// The bucket that a file draws: the upper bits of the file's number in the sequence of the key.
    #[inline]
    fn bucket_of(&self, file: u32, bits: u32) -> usize {
        match bits {
            0 => 0,
            _ => (mix(self.key.wrapping_add((u64::from(file) + 1).wrapping_mul(STEP))) >> (64 - bits)) as usize,
        }
    }

    /// The row at a position; positions must ascend from call to call.
    ///
    /// # Panics
    /// If there is no such position.
    pub(crate) fn at(&mut self, position: u64, rows: Option<&Rows>) -> u32 {
        assert!(position < u64::from(self.files), "a position of the order");
        let by_place = |at: u32| rows.map_or(at, |rows| rows.by_place(at as usize));
        match self.kind {
            Kind::Disk => by_place(position as u32),
            Kind::Exact { bucket_bits } => {
                let bucket = self.starts.partition_point(|&start| start <= position) - 1;
                if self.bucket != Some(bucket) {
                    self.fill(bucket, bucket_bits);
                }
                self.members[(position - self.starts[bucket]) as usize]
            }
            Kind::Window { files } => {
                assert!(position >= self.window.handed_out, "positions ascend");
                loop {
                    let file = self.window.step(files.max(1), self.files);
                    if self.window.handed_out > position {
                        return by_place(file);
                    }
                }
            }
        }
    }

    /// Draws the members of a bucket, and shuffles them.
    fn fill(&mut self, bucket: usize, bits: u32) {
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        members.extend((0..self.files).filter(|&file| self.bucket_of(file, bits) == bucket));
        // A sequence of its own, at another place for every bucket.
        let mut random = Random::new(mix(self.key ^ mix(bucket as u64 + 1)));
        for at in (1..members.len()).rev() {
            members.swap(at, below(&mut random, at as u64 + 1) as usize);
        }
        (self.members, self.bucket) = (members, Some(bucket));
    }
}

impl Window {
    /// Hands out one file, by its number in the disk order.
    fn step(&mut self, window: u32, files: u32) -> u32 {
        while self.buffer.len() < window as usize && self.entered < files {
            self.buffer.push(self.entered);
            self.entered += 1;
        }
        let chosen = below(&mut self.random, self.buffer.len() as u64) as usize;
        self.handed_out += 1;
        self.buffer.swap_remove(chosen)
    }
}

/// Which batches of an order a process reads: every `of_ranks`-th position belongs to a rank, so many of them in turn
/// make a batch, and every `of_workers`-th batch belongs to a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) rank: u64,
    pub(crate) of_ranks: u64,
    pub(crate) worker: u64,
    pub(crate) of_workers: u64,
    pub(crate) batch_files: u64,
    /// All ranks have as many full batches, and the rest is left out.
    pub(crate) drop_last: bool,
}

impl Part {
    /// Number of files of this rank.
    pub(crate) fn files(&self, all: u64) -> u64 {
        match self.drop_last {
            true => all / (self.of_ranks * self.batch_files) * self.batch_files,
            false => (all + self.of_ranks - 1 - self.rank) / self.of_ranks,
        }
    }

    /// Number of batches of this rank, those of all its workers together.
    pub(crate) fn batches(&self, all: u64) -> u64 {
        self.files(all).div_ceil(self.batch_files)
    }

    /// The first batch from `batch` on that is this worker's.
    pub(crate) fn first_from(&self, batch: u64) -> u64 {
        batch + (self.worker + self.of_workers - batch % self.of_workers) % self.of_workers
    }

    /// The positions of a batch in the order.
    pub(crate) fn positions(&self, batch: u64, all: u64) -> impl Iterator<Item = u64> {
        let (rank, of_ranks) = (self.rank, self.of_ranks);
        let start = batch * self.batch_files;
        (start..(start + self.batch_files).min(self.files(all))).map(move |at| at * of_ranks + rank)
    }
}
