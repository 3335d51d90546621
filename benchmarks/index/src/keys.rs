//! The entries: paths as in a store of many small files, generated from a number, so that no list of keys is kept in
//! memory.
//!
//! A key is the parent directory, a zero byte, and the name: the entries of one directory are adjacent, in order. Entry
//! `i` of `n` is the `i`-th in key order.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Length of a value: segment, offset, length, size, flags, time.
pub const VALUE: usize = 40;
/// Entries of the one directory whose listing is timed.
pub const LARGE: u64 = 10_000;

const TOPS: [&str; 8] = ["data", "datasets", "home", "mail", "projects", "scratch", "srv", "var"];
const WORDS: [&str; 16] = [
    "archive", "build", "cache", "config", "docs", "figures", "images", "include", "lib", "logs", "models", "notes",
    "raw", "results", "src", "train",
];
const ENDS: [&str; 8] = [".jpg", ".json", ".txt", ".o", ".html", ".npy", ".xml", ""];

/// The directories, and where the entries of each begin.
pub struct Tree {
    directories: Vec<String>,
    starts: Vec<u64>,
    large: usize,
    /// Entries in all.
    pub n: u64,
}

fn hash(a: u64, b: u64) -> u64 {
    xxh3_64_with_seed(&a.to_le_bytes(), b)
}

impl Tree {
    /// The tree of `n` entries; the same for the same `n`.
    pub fn new(n: u64) -> Self {
        assert!(n >= 2 * LARGE, "at least {} entries", 2 * LARGE);
        let mut directories = Vec::new();
        let count = n / 25;
        for d in 0..count {
            let h = hash(d, 1);
            let top = TOPS[(hash(d / 4000, 2) % 8) as usize];
            let mut path = format!("{top}/{}-{:03}", WORDS[(hash(d / 800, 3) % 16) as usize], d / 800);
            if h % 10 < 9 {
                path += &format!("/{}", WORDS[(hash(d / 40, 4) % 16) as usize]);
            }
            if h % 100 < 60 {
                path += &format!("/2{:03}-{:02}", d / 16 % 1000, h / 100 % 12 + 1);
            }
            path += &format!("/{}_{:05x}", WORDS[(h >> 20) as usize % 16], d);
            directories.push(path);
        }
        directories.sort_unstable();
        // Heavy tail: most directories are small, a few hold thousands; the rest is spread evenly over all of them.
        let large = directories.len() / 2;
        let weights: Vec<f64> = (0..count)
            .map(|d| {
                let u = (hash(d, 5) >> 11) as f64 / (1u64 << 53) as f64;
                (1.0 - u).powf(-0.7).min(2000.0)
            })
            .collect();
        let total: f64 = weights.iter().sum::<f64>() - weights[large];
        let (mut starts, mut start, mut exact) = (Vec::new(), 0u64, 0.0);
        for (d, weight) in weights.iter().enumerate() {
            starts.push(start);
            if d == large {
                start += LARGE;
            } else {
                exact += weight / total * (n - LARGE) as f64;
                let others = exact.round() as u64;
                start = if d > large { others + LARGE } else { others };
            }
        }
        starts.push(n);
        Self { directories, starts, large, n }
    }

    /// Appends the key of entry `i`.
    pub fn key(&self, i: u64, out: &mut Vec<u8>) {
        let d = self.starts.partition_point(|&start| start <= i) - 1;
        self.name(d, i - self.starts[d], out);
    }

    fn name(&self, d: usize, j: u64, out: &mut Vec<u8>) {
        use std::io::Write;
        out.extend_from_slice(self.directories[d].as_bytes());
        out.push(0);
        let h = hash(j, d as u64);
        let number = j * 7 + h % 7;
        let end = ENDS[(hash(d as u64, 6) % 8) as usize];
        let word = WORDS[(h >> 8) as usize % 16];
        match hash(d as u64, 7) % 4 {
            0 => write!(out, "IMG_2026{number:07}{end}"),
            1 => write!(out, "{number:06x}{:012x}{end}", h >> 16),
            2 => write!(out, "{number:07}-{word}-{:05}{end}", h >> 32 & 0xffff),
            _ => write!(out, "part-{number:06}.{word}{end}"),
        }
        .expect("a vector takes everything");
    }

    /// A missing key, next to entry `i`.
    pub fn missing(&self, i: u64, out: &mut Vec<u8>) {
        self.key(i, out);
        out.push(b'~');
    }

    /// An additional key: entry `j` of batch `b`, in any directory.
    pub fn further(&self, b: u64, j: u64, out: &mut Vec<u8>) {
        use std::io::Write;
        let d = hash(b << 20 | j, 8) % self.directories.len() as u64;
        out.extend_from_slice(self.directories[d as usize].as_bytes());
        write!(out, "\0new-{b:06}-{j:06}.dat").expect("a vector takes everything");
    }

    /// The prefix of all keys of the large directory.
    pub fn large_prefix(&self) -> Vec<u8> {
        let mut prefix = self.directories[self.large].clone().into_bytes();
        prefix.push(0);
        prefix
    }
}

/// The value of a key. Locations grow with the key, as after an import; sizes and times vary.
pub fn value(i: u64, generation: u64) -> [u8; VALUE] {
    let h = hash(i, 9);
    let length = (h % 32_768) as u32;
    let mut v = [0; VALUE];
    v[0..4].copy_from_slice(&((i / 4096) as u32).to_le_bytes());
    v[4..12].copy_from_slice(&(i % 4096 * 16_384 + h % 4096).to_le_bytes());
    v[12..16].copy_from_slice(&(length + 64).to_le_bytes());
    v[16..24].copy_from_slice(&u64::from(length).to_le_bytes());
    v[24..28].copy_from_slice(&(generation as u32).to_le_bytes());
    v[28..36].copy_from_slice(&(1_300_000_000 + (h >> 16) % 480_000_000).to_le_bytes());
    v[36..40].copy_from_slice(&((h >> 32) as u32 % 1_000_000_000).to_le_bytes());
    v
}

/// A pseudorandom order of `0..n` in constant memory: a Feistel network, applied until the result is below `n`.
pub struct Shuffle {
    n: u64,
    half: u32,
    seed: u64,
}

impl Shuffle {
    pub fn new(n: u64, seed: u64) -> Self {
        Self { n, half: (64 - (n - 1).leading_zeros()).div_ceil(2), seed }
    }

    pub fn at(&self, mut i: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        loop {
            let (mut left, mut right) = (i >> self.half, i & mask);
            for round in 0..4u64 {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&right.to_le_bytes());
                bytes[8..].copy_from_slice(&(self.seed * 4 + round).to_le_bytes());
                (left, right) = (right, left ^ xxh3_64(&bytes) & mask);
            }
            i = left << self.half | right;
            if i < self.n {
                return i;
            }
        }
    }
}
