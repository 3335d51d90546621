//! One byte of any file of a store is another one, from outside: every kind of file of four stores is hit, and then the
//! command does what a user would: list, export, check every byte, put, repair, check again.
//! `crates/store/tests/damage.rs` does the same with the library, more often.
//!
//! What must hold: no byte that is exported is wrong; nothing is absent while every command ends with 0; no command
//! ends otherwise than with 0, 1 or 2, nor fails without a message; and where there is redundancy everything is
//! exported, a writer continues, and after repair `check --deep` ends with 0 and nothing is missing.
//!
//! `GRANULO_FLIPS` is the number of bytes that are hit (60), `GRANULO_FLIP_SEED` the seed (1). Identities of stores are
//! random, so a seed repeats which bytes are hit and not what they were.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use granulo_core::random::Random;

use crate::args;
use crate::harness::Ran;
use crate::power_disk::Image;
use crate::store_place::{Place, bytes};

struct Sample {
    place: Place,
    roots: Vec<PathBuf>,
    pristine: Image,
    /// Files of each kind.
    kinds: BTreeMap<String, Vec<PathBuf>>,
}

/// What kind of file it is, by where it lies.
fn kind(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let above = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
    match above {
        "segments" | "extents" => above.to_owned(),
        "index" if name.ends_with(".table") => "table".to_owned(),
        "index" => name.split('-').next().unwrap().to_owned(),
        _ => name.to_owned(),
    }
}

impl Sample {
    fn new(fast: usize, slow: usize, options: &[&str]) -> Sample {
        let mut place = Place::new(fast, slow, &[options, &["--stripe-unit", "4KiB"]].concat());
        place.import(24, 1);
        // Leaves a sorted table.
        place.run_on("compact", ["--all"]).ended(0);
        place.put("again", &bytes(5, 100)).ended(0);
        place.put("again", &bytes(6, 5000)).ended(0);
        place.put("gone", &bytes(7, 900)).ended(0);
        place.run_on("rm", ["gone"]).ended(0);
        place.objects.remove("gone");
        let mut roots = place.devices.clone();
        roots.push(place.home.clone());
        roots.sort();
        roots.dedup();
        let pristine = Image::of(&roots);
        let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for (path, _) in pristine.files.iter().filter(|(_, content)| !content.is_empty()) {
            kinds.entry(kind(path)).or_default().push(path.clone());
        }
        Sample { place, roots, pristine, kinds }
    }

    fn run(&self, command: &str, rest: &[&str], what: &str) -> Ran {
        let ran = self.place.run_on(command, rest);
        assert!(matches!(ran.code, Some(0..=2)), "{what}, then {command}: {:?}, {}", ran.code, ran.said());
        let is_told = !ran.said().trim().is_empty() || !ran.stdout.is_empty();
        assert!(ran.code == Some(0) || is_told, "{what}, then {command}: it fails and says nothing");
        ran
    }

    /// Reads everything; returns whether nothing is absent.
    fn reads(&self, objects: &BTreeMap<String, Vec<u8>>, what: &str) -> bool {
        let (exported, ran) = self.place.export();
        assert!(matches!(ran.code, Some(0..=2)), "{what}, then export: {:?}, {}", ran.code, ran.said());
        for (key, content) in &exported {
            assert!(objects.get(key) == Some(content), "{what}: {key} is exported with other bytes");
        }
        let is_all = exported.len() == objects.len();
        assert!(is_all || ran.code != Some(0), "{what}: export ends with 0, and not all is there");
        let (listed, ls) = self.place.list();
        let is_listed = objects.keys().all(|key| listed.contains(key));
        assert!(is_listed || ls.code != Some(0), "{what}: ls ends with 0, and not all is there");
        is_all && is_listed
    }

    fn suffers(&self, what: &str) {
        let is_redundant = self.place.devices.len() > 1;
        let is_all = self.reads(&self.place.objects, what);
        assert!(is_all || !is_redundant, "{what}: not all is there, in spite of redundancy");
        let checked = self.run("check", &["--deep"], what);
        assert!(is_all || checked.code != Some(0), "{what}: not all is there, and check finds nothing");
        let later = self.place.path("later");
        fs::write(&later, bytes(9, 70_000)).unwrap();
        let put = self.place.run(args!["put", &self.place.home, "later", &later]);
        let mut objects = self.place.objects.clone();
        match put.code {
            Some(0) => {
                objects.insert("later".to_owned(), bytes(9, 70_000));
                let got = self.run("get", &["later"], what);
                assert!(got.code == Some(0) && got.stdout == bytes(9, 70_000), "{what}: what was put just now");
            }
            code => {
                assert!(matches!(code, Some(1 | 2)) && !put.said().is_empty(), "{what}, then put: {code:?}");
                assert!(!is_redundant, "{what}: nothing can be put: {}", put.said());
            }
        }
        let repaired = self.run("repair", &[], what);
        let is_all = self.reads(&objects, what);
        let checked = self.run("check", &["--deep"], what);
        if is_redundant {
            assert_eq!(repaired.code, Some(0), "{what}, then repair: {}{}", repaired.said(), repaired.text());
            assert!(is_all, "{what}: not all is there after a repair");
            assert_eq!(checked.code, Some(0), "{what}, then repair and check: {}{}", checked.said(), checked.text());
        } else {
            assert!(
                is_all || checked.code != Some(0),
                "{what}: not all is there, and check finds nothing after repair"
            );
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn a_byte_of_any_file_that_is_another_one_is_found_or_harmless_to_the_command() {
    let (count, seed) = (number("GRANULO_FLIPS", 60), number("GRANULO_FLIP_SEED", 1));
    let samples: [(usize, usize, &[&str]); 4] = [(0, 0, &[]), (2, 3, &[]), (4, 0, &[]), (4, 0, &["--align", "512"])];
    let samples = samples.map(|(fast, slow, options)| Sample::new(fast, slow, options));
    let kinds: usize = samples.iter().map(|sample| sample.kinds.len()).sum();
    assert!(kinds >= 4 * 6, "superblocks, segments, extents, manifests, journals, tables: {kinds}");
    for round in 0..count {
        let mut random = Random::new(seed << 32 | round);
        let sample = &samples[round as usize % samples.len()];
        // Every kind of file as often as any other.
        let of_kind = (round as usize / samples.len()) % sample.kinds.len();
        let (_, paths) = sample.kinds.iter().nth(of_kind).unwrap();
        let path = &paths[random.below(paths.len() as u64) as usize];
        let content = &sample.pristine.files[path];
        // Half of them near the beginning, where the headers are.
        let end = if random.below(2) == 0 { content.len().min(512) } else { content.len() };
        let offset = random.below(end as u64);
        let value = content[offset as usize] ^ (1 + random.below(255)) as u8;
        fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[value], offset).unwrap();
        let name = path.strip_prefix(sample.place.sandbox.path()).unwrap();
        let devices = sample.place.devices.len();
        let what = format!(
            "GRANULO_FLIP_SEED={seed}, round {round}: byte {offset} of {} of {devices} devices is {value}",
            name.display()
        );
        sample.suffers(&what);
        sample.pristine.write(&sample.roots);
    }
    for sample in &samples {
        sample.place.is_whole();
        sample.place.run_on("check", ["--deep"]).ended(0);
    }
}
