//! An independent model of a survey: the simplest program that could be right. It walks with `read_dir` and
//! `symlink_metadata`, keeps every value in memory and sorts them. granulo's results are compared with it, number by
//! number.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde_json::Value;

/// Up to here every value is exact; above, it is exact to 1/128.
const EXACT: u64 = 65_536;

/// Rules for counting.
#[derive(Debug, Clone)]
pub struct Rules {
    pub hard_links: &'static str,
    /// Seconds since 1970 that ages are relative to.
    pub reference: i64,
    pub small: u64,
    pub limit: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { hard_links: "once", reference: 1_893_456_000, small: 65_536, limit: 20 }
    }
}

/// [`Rules::reference`] in the form of `--as-of`.
pub const AS_OF: &str = "2030-01-01";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    files: u128,
    small_files: u128,
    size: u128,
    small_size: u128,
    allocated: u128,
    overhead: u128,
    directories: u128,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.files += other.files;
        self.small_files += other.small_files;
        self.size += other.size;
        self.small_size += other.small_size;
        self.allocated += other.allocated;
        self.overhead += other.overhead;
        self.directories += other.directories;
    }

    fn figure(&self, ranking: &str) -> u128 {
        match ranking {
            "files" => self.files,
            "small_files" => self.small_files,
            "overhead" => self.overhead,
            "size" => self.size,
            _ => panic!("no such ranking: {ranking}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: Vec<u8>,
    depth: u64,
    own: Sums,
    subtree: Sums,
}

/// Count and sum of each bucket.
type Buckets = BTreeMap<u32, (u128, u128)>;

/// A population, counted naively.
#[derive(Debug, Default, PartialEq)]
pub struct Model {
    /// Values with their weights.
    values: BTreeMap<&'static str, Vec<(u64, u128)>>,
    counts: BTreeMap<&'static str, u64>,
    positive: Buckets,
    negative: Buckets,
    places: Vec<Place>,
    owners: BTreeMap<u32, Sums>,
    extensions: BTreeMap<String, Sums>,
    directories_allocated: u128,
    symlinks_allocated: u128,
    /// The name that each file with several names counts for: in the directory with the smallest inode number, there
    /// the smallest.
    counted_names: HashMap<(u64, u64), (u64, Vec<u8>)>,
}

impl Model {
    /// The population below `roots`, which are directories.
    pub fn of(roots: &[&Path], rules: &Rules) -> Model {
        let mut model = Model::default();
        roots.iter().for_each(|root| model.choose_names(root));
        for root in roots {
            let metadata = fs::metadata(root).unwrap();
            model.directory_inode(&metadata);
            model.walk(root, 0, rules);
        }
        model
    }

    fn choose_names(&mut self, directory: &Path) {
        let inode = fs::metadata(directory).unwrap().ino();
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = fs::symlink_metadata(entry.path()).unwrap();
            if metadata.is_dir() {
                self.choose_names(&entry.path());
            } else if metadata.is_file() && metadata.nlink() > 1 {
                let name = (inode, entry.file_name().into_vec());
                let chosen = self.counted_names.entry((metadata.dev(), metadata.ino())).or_insert_with(|| name.clone());
                *chosen = name.min(chosen.clone());
            }
        }
    }

    fn record(&mut self, distribution: &'static str, value: u64, weight: u128) {
        if weight > 0 {
            self.values.entry(distribution).or_default().push((value, weight));
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn overhead(&mut self, size: u64, allocated: u64) {
        let positive = allocated >= size;
        let overhead = allocated.abs_diff(size);
        self.record(if positive { "positive_overhead" } else { "negative_overhead" }, overhead, 1);
        let buckets = if positive { &mut self.positive } else { &mut self.negative };
        let bucket = buckets.entry(bucket_of(size)).or_default();
        bucket.0 += 1;
        bucket.1 += u128::from(overhead);
    }

    fn directory_inode(&mut self, metadata: &fs::Metadata) {
        self.count("directories");
        self.record("directory_size", metadata.len(), 1);
        self.overhead(metadata.len(), metadata.blocks() * 512);
        self.directories_allocated += u128::from(metadata.blocks() * 512);
    }

    /// Returns the sums of the subtree.
    fn walk(&mut self, directory: &Path, depth: u64, rules: &Rules) -> Sums {
        let inode = fs::metadata(directory).unwrap().ino();
        let (mut own, mut below, mut entries) = (Sums { directories: 1, ..Sums::default() }, Sums::default(), 0);
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (name, path) = (entry.file_name(), entry.path());
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            entries += 1;
            self.record("name_length", name.as_bytes().len() as u64, 1);
            if kind.is_dir() {
                self.directory_inode(&metadata);
                below.add(self.walk(&path, depth + 1, rules));
            } else if kind.is_file() {
                own.add(self.file(inode, name.as_bytes(), &metadata, rules));
            } else if kind.is_symlink() {
                self.count("symlinks");
                let target = fs::read_link(&path).unwrap();
                self.count(if target.is_absolute() { "symlinks_absolute" } else { "symlinks_relative" });
                self.record("symlink_target_length", target.as_os_str().as_bytes().len() as u64, 1);
                self.overhead(metadata.len(), metadata.blocks() * 512);
                self.symlinks_allocated += u128::from(metadata.blocks() * 512);
            } else {
                self.count("special");
                self.count(match () {
                    _ if kind.is_fifo() => "fifos",
                    _ if kind.is_socket() => "sockets",
                    _ if kind.is_block_device() => "block_devices",
                    _ => "character_devices",
                });
            }
        }
        self.record("directory_entries", entries, 1);
        self.record("directory_depth", depth, 1);
        let mut subtree = own;
        subtree.add(below);
        self.places.push(Place { path: directory.as_os_str().as_bytes().to_vec(), depth, own, subtree });
        subtree
    }

    fn file(&mut self, directory: u64, name: &[u8], metadata: &fs::Metadata, rules: &Rules) -> Sums {
        let chosen = self.counted_names.get(&(metadata.dev(), metadata.ino()));
        let is_counted = chosen.is_none_or(|(inode, chosen)| (*inode, &chosen[..]) == (directory, name));
        if rules.hard_links == "once" && !is_counted {
            self.count("hard_links_skipped");
            return Sums::default();
        }
        // The shares of all names add up: that name has what cannot be divided.
        let names = if rules.hard_links == "shared" { metadata.nlink() } else { 1 };
        let share = |bytes: u64| bytes / names + if is_counted { bytes % names } else { 0 };
        let (size, allocated) = (share(metadata.len()), share(metadata.blocks() * 512));
        self.count("files");
        if size == 0 {
            self.count("empty_files");
        }
        if metadata.blocks() * 512 < metadata.len() {
            self.count("sparse_files");
        }
        self.record("file_size", size, 1);
        self.record("allocated", allocated, 1);
        self.record("link_count", metadata.nlink(), 1);
        self.overhead(size, allocated);
        for (by_files, by_bytes, time) in [
            ("mtime_age", "mtime_age_bytes", metadata.mtime()),
            ("ctime_age", "ctime_age_bytes", metadata.ctime()),
            ("atime_age", "atime_age_bytes", metadata.atime()),
        ] {
            if time > rules.reference {
                self.count("future_times");
            }
            let days = ((rules.reference - time).max(0) / 86_400) as u64;
            self.record(by_files, days, 1);
            self.record(by_bytes, days, size.into());
        }
        let small = size <= rules.small;
        let sums = Sums {
            files: 1,
            small_files: small.into(),
            size: size.into(),
            small_size: if small { size.into() } else { 0 },
            allocated: allocated.into(),
            overhead: allocated.saturating_sub(size).into(),
            directories: 0,
        };
        self.owners.entry(metadata.uid()).or_default().add(sums);
        self.extensions.entry(extension(name)).or_default().add(sums);
        sums
    }

    /// Compares every number that the model knows.
    pub fn check(&self, document: &Value, rules: &Rules) {
        for (name, count) in document["counts"].as_object().unwrap() {
            let expected = self.counts.get(name.as_str()).copied().unwrap_or(0);
            assert_eq!(count.as_u64(), Some(expected), "counts/{name}");
        }
        for name in self.counts.keys() {
            assert!(document["counts"][name].is_u64(), "counts/{name} is missing");
        }
        let distributions = document["distributions"].as_object().unwrap();
        assert_eq!(distributions.len(), 16);
        for (name, distribution) in distributions {
            let empty = Vec::new();
            check_distribution(name, distribution, self.values.get(name.as_str()).unwrap_or(&empty));
        }
        check_buckets("overhead_by_size/positive", &document["overhead_by_size"]["positive"], &self.positive);
        check_buckets("overhead_by_size/negative", &document["overhead_by_size"]["negative"], &self.negative);
        let sizes = self.sizes();
        check_up_to(&document["up_to"], &sizes);
        check_block_sizes(&document["block_sizes"], &sizes);
        self.check_totals(&document["totals"], &sizes);
        self.check_kinds(&document["where"]);
        for ranking in ["files", "small_files", "overhead", "size"] {
            let lists = &document["where"]["directories"];
            self.check_list(&lists["own"][ranking], ranking, rules.limit, |place| place.own);
            self.check_list(&lists["subtree"][ranking], ranking, rules.limit, |place| place.subtree);
        }
    }

    /// Sizes of all files, rising.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.values.get("file_size").into_iter().flatten().map(|&(size, _)| size).collect();
        sizes.sort_unstable();
        sizes
    }

    fn check_totals(&self, totals: &Value, sizes: &[u64]) {
        let size: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
        let allocated: u128 =
            self.values.get("allocated").into_iter().flatten().map(|&(value, _)| u128::from(value)).sum();
        assert_eq!(number(&totals["size_bytes"]), size, "totals/size_bytes");
        assert_eq!(number(&totals["allocated_bytes"]), allocated, "totals/allocated_bytes");
        assert_eq!(number(&totals["directories_allocated_bytes"]), self.directories_allocated);
        assert_eq!(number(&totals["symlinks_allocated_bytes"]), self.symlinks_allocated);
        let overhead = if allocated == 0 { 0.0 } else { (allocated as f64 - size as f64) / allocated as f64 };
        close("totals/overhead_fraction", &totals["overhead_fraction"], overhead, 1e-9 * overhead.abs().max(1.0));
    }

    fn check_kinds(&self, places: &Value) {
        let mut owners: Vec<(u32, Sums)> = self.owners.iter().map(|(uid, sums)| (*uid, *sums)).collect();
        owners.sort_by_key(|(uid, sums)| (std::cmp::Reverse(sums.files), *uid));
        let rows = places["owners"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), owners.len(), "owners");
        for (row, (uid, sums)) in rows.iter().zip(owners) {
            assert_eq!(row["uid"], uid, "owners");
            check_sums("owners", row, sums);
        }
        let rows = places["extensions"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), self.extensions.len(), "extensions: {rows:?}");
        assert!(rows.is_sorted_by(|a, b| number(&a["files"]) >= number(&b["files"])), "extensions are ranked by files");
        for row in rows {
            let extension = row["extension"].as_str().unwrap();
            let sums = *self.extensions.get(extension).unwrap_or_else(|| panic!("there is no .{extension}"));
            check_sums(&format!("extension {extension}"), row, sums);
        }
        for table in ["owners", "extensions"] {
            assert_eq!(places[table]["complete"], true);
            assert_eq!(places[table]["max_error"], 0);
        }
    }

    fn check_list(&self, list: &Value, ranking: &str, limit: usize, sums: impl Fn(&Place) -> Sums) {
        let mut places: Vec<&Place> = self.places.iter().filter(|place| sums(place).figure(ranking) > 0).collect();
        places.sort_by_key(|place| (std::cmp::Reverse(sums(place).figure(ranking)), place.path.clone()));
        places.truncate(limit);
        let rows = list.as_array().unwrap();
        let paths: Vec<Vec<u8>> = rows.iter().map(|row| unescape(row["path"].as_str().unwrap())).collect();
        let expected: Vec<Vec<u8>> = places.iter().map(|place| place.path.clone()).collect();
        assert_eq!(paths, expected, "the paths ranked by {ranking}");
        for (row, place) in rows.iter().zip(places) {
            check_sums(&format!("{ranking} of {}", row["path"]), row, sums(place));
            assert_eq!(row["depth"], place.depth);
            assert_eq!(number(&row["directories"]), sums(place).directories);
        }
    }
}

fn check_sums(what: &str, row: &Value, sums: Sums) {
    let found = ["files", "small_files", "size_bytes", "small_size_bytes", "allocated_bytes", "overhead_bytes"]
        .map(|field| number(&row[field]));
    let expected = [sums.files, sums.small_files, sums.size, sums.small_size, sums.allocated, sums.overhead];
    assert_eq!(found, expected, "{what}");
}

fn check_distribution(name: &str, distribution: &Value, values: &[(u64, u128)]) {
    let mut values = values.to_vec();
    values.sort_unstable();
    let count: u128 = values.iter().map(|&(_, weight)| weight).sum();
    let total: u128 = values.iter().map(|&(value, weight)| u128::from(value) * weight).sum();
    let (min, max) = (values.first().map_or(0, |v| v.0), values.last().map_or(0, |v| v.0));
    assert_eq!(number(&distribution["count"]), count, "{name}/count");
    assert_eq!(number(&distribution["min"]), u128::from(min), "{name}/min");
    assert_eq!(number(&distribution["max"]), u128::from(max), "{name}/max");
    assert_eq!(number(&distribution["total"]), total, "{name}/total");
    let mean = if count == 0 { 0.0 } else { total as f64 / count as f64 };
    close(&format!("{name}/mean"), &distribution["mean"], mean, 1e-9 * mean);
    check_deciles(&format!("{name}/deciles"), &distribution["deciles"], &values, |_, weight| weight);
    let mass = |value: u64, weight: u128| u128::from(value) * weight;
    check_deciles(&format!("{name}/deciles_by_total"), &distribution["deciles_by_total"], &values, mass);
    let mut buckets = Buckets::new();
    for (value, weight) in values {
        let bucket = buckets.entry(bucket_of(value)).or_default();
        bucket.0 += weight;
        bucket.1 += u128::from(value) * weight;
    }
    check_buckets(&format!("{name}/buckets"), &distribution["buckets"], &buckets);
}

/// The i-th is the smallest value such that at least i tenths of the mass is at or below it.
fn check_deciles(what: &str, found: &Value, values: &[(u64, u128)], mass: impl Fn(u64, u128) -> u128) {
    let whole: u128 = values.iter().map(|&(value, weight)| mass(value, weight)).sum();
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 10, "{what}");
    for (tenth, found) in (1u128..).zip(found) {
        let mut seen = 0;
        let reached = values.iter().find(|&&(value, weight)| {
            seen += mass(value, weight);
            seen * 10 >= whole * tenth
        });
        let expected = match tenth {
            10 => values.last().map_or(0, |v| v.0),
            _ => reached.map_or(0, |v| v.0),
        };
        let found = number(found) as u64;
        let room = if expected > EXACT && tenth < 10 { expected / 128 } else { 0 };
        assert!(found.abs_diff(expected) <= room, "{what}, {tenth} tenths: {found} is not {expected}");
    }
}

fn bucket_of(value: u64) -> u32 {
    if value == 0 { 0 } else { value.ilog2() + 1 }
}

fn check_buckets(what: &str, found: &Value, expected: &Buckets) {
    let found = found.as_array().unwrap();
    let length = expected.last_key_value().map_or(0, |(number, _)| *number as usize + 1);
    assert_eq!(found.len(), length, "{what}: how many");
    for (bucket, found) in (0u32..).zip(found) {
        let low = if bucket == 0 { 0 } else { 1u128 << (bucket - 1) };
        let (count, sum) = expected.get(&bucket).copied().unwrap_or((0, 0));
        let found = ["low", "high", "count", "sum"].map(|field| number(&found[field]));
        assert_eq!(found, [low, 1u128 << bucket, count, sum], "{what}: bucket {bucket}");
    }
}

fn check_up_to(rows: &Value, sizes: &[u64]) {
    let rows = rows.as_array().unwrap();
    let total: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    let share = |part: u128, whole: u128| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    for (index, row) in rows.iter().enumerate() {
        let edge = if index == 0 { 0 } else { 1u64 << (index - 1) };
        assert_eq!(row["size_bytes"], edge, "up_to");
        let below: Vec<u128> = sizes.iter().filter(|&&size| size <= edge).map(|&size| size.into()).collect();
        let what = format!("up_to {edge}");
        close(&what, &row["files_fraction"], share(below.len() as u128, sizes.len() as u128), 1e-12);
        close(&what, &row["bytes_fraction"], share(below.iter().sum(), total), 1e-12);
    }
    let largest = sizes.last().copied().unwrap_or(0);
    let expected = if largest == 0 { 1 } else { 2 + largest.next_power_of_two().ilog2() as usize };
    assert_eq!(rows.len(), expected, "up_to goes on to the first power of two that holds every file");
}

fn check_block_sizes(rows: &Value, sizes: &[u64]) {
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 16, "block sizes from 512 B to 16 MiB");
    let taken =
        |block: u64| sizes.iter().map(|&size| u128::from(size.div_ceil(block)) * u128::from(block)).sum::<u128>();
    let in_1_kib = taken(1024);
    for (index, row) in rows.iter().enumerate() {
        let block = 512u64 << index;
        let what = format!("block_sizes/{block}");
        assert_eq!(row["block_bytes"], block);
        let allocated = taken(block);
        assert_eq!(number(&row["allocated_bytes"]), allocated, "{what}/allocated_bytes");
        let growth = if in_1_kib == 0 { 0.0 } else { allocated as f64 / in_1_kib as f64 - 1.0 };
        close(&format!("{what}/growth"), &row["growth_fraction"], growth, 1e-9 * growth.abs().max(1.0));
        let single = sizes.iter().filter(|&&size| size <= block).count() as f64 / sizes.len().max(1) as f64;
        close(&format!("{what}/single_block"), &row["single_block_fraction"], single, 1e-12);
        check_weights(&what, &row["cumulative_weight"], sizes, block, allocated);
    }
}

/// The share of the smallest i tenths of the files in the bytes allocated to all; a file at the boundary counts in
/// part.
fn check_weights(what: &str, found: &Value, sizes: &[u64], block: u64, allocated: u128) {
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 10);
    for (tenth, found) in (1usize..).zip(found) {
        let whole_files = sizes.len() * tenth / 10;
        let part = (sizes.len() * tenth % 10) as f64 / 10.0;
        let taken = |size: &u64| (size.div_ceil(block) * block) as f64;
        let mut bytes: f64 = sizes[..whole_files].iter().map(taken).sum();
        bytes += sizes.get(whole_files).map_or(0.0, |size| part * taken(size));
        let expected = if allocated == 0 { 0.0 } else { bytes / allocated as f64 };
        let largest = sizes.get(whole_files.min(sizes.len().saturating_sub(1))).copied().unwrap_or(0);
        let room = if largest > EXACT && tenth < 10 { 0.01 } else { 1e-9 };
        close(&format!("{what}/cumulative_weight, {tenth} tenths"), found, expected, room);
    }
}

/// An integer of any size.
pub fn number(value: &Value) -> u128 {
    match value.as_u64() {
        Some(number) => number.into(),
        None => value.as_f64().unwrap_or_else(|| panic!("{value} is not a number")) as u128,
    }
}

#[track_caller]
fn close(what: &str, found: &Value, expected: f64, room: f64) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found} is not a number"));
    assert!((found - expected).abs() <= room, "{what}: {found} is not {expected}");
}

/// The rule of docs/SCHEMA.md.
fn extension(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).into_owned();
    let text = match name.rfind('.') {
        None | Some(0) => return String::new(),
        Some(dot) => name[dot + 1..].to_ascii_lowercase(),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+".contains(c);
    match () {
        _ if text.is_empty() => String::new(),
        _ if text.len() > 16 || !text.chars().all(plain) => "(other)".to_owned(),
        _ if text.chars().all(|c| c.is_ascii_digit()) => "(numeric)".to_owned(),
        _ => text,
    }
}

/// The bytes behind an escaped name, by the rule of docs/SCHEMA.md.
pub fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut chars) = (Vec::new(), text.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match chars.next().unwrap() {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            'u' => {
                let digits: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                let c = char::from_u32(u32::from_str_radix(&digits, 16).unwrap()).unwrap();
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => panic!("\\{other} in {text}"),
        }
    }
    bytes
}
