//! Power failures, from outside: strace records the system calls of real commands (put, import, rm, mv, compact), and
//! directories are rebuilt as a disk may have them after a power failure at any moment ([`crate::power_disk`]). All
//! devices lose power at once.
//!
//! What must hold: `ls` and `export` end with 0 and show everything that a command that had ended with 0 put, and
//! nothing that it removed; `check --deep` finds nothing that is not repairable; each change of a command that was
//! running is there completely or not at all. The next writer finds what a reader found, `check --deep` then finds
//! nothing, and after a power failure while *that* writer runs the same holds again.
//!
//! `GRANULO_POWER_FAILURES` is their number (100), `GRANULO_POWER_SEED` the seed (1). Threads do not write in the same
//! order each time, so a seed repeats the choices and not the recording: what fails is kept, and the message says
//! where.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use granulo_core::random::Random;

use crate::args;
use crate::power_disk::{Disk, Image, RECORDED, Recording};
use crate::store_place::{Place, bytes, can_trace};

type Objects = BTreeMap<String, Vec<u8>>;

/// A command, and what the store has after it.
struct Step {
    name: &'static str,
    arguments: Vec<OsString>,
    after: Objects,
}

/// The commands, each with the contents that follow from those before it.
fn steps(place: &Place) -> Vec<Step> {
    let mut objects = Objects::new();
    let mut steps = Vec::new();
    let file = |name: &str, seed: u64, length: usize| {
        let path = place.path(name);
        fs::write(&path, bytes(seed, length)).unwrap();
        path
    };
    let mut step = |name: &'static str, rest: Vec<OsString>, change: &dyn Fn(&mut Objects)| {
        change(&mut objects);
        steps.push(Step { name, arguments: [args![name, &place.home], rest].concat(), after: objects.clone() });
    };
    let tree = |name: &str, seed: u64| {
        let source = place.path(name);
        let mut made = Objects::new();
        for number in 0..14u64 {
            let key = format!("tree/d{}/{number}", number % 3);
            let content = bytes(seed + number, if number % 7 == 3 { 150_000 } else { 40 + 700 * number as usize });
            fs::create_dir_all(source.join(&key).parent().unwrap()).unwrap();
            fs::write(source.join(&key), &content).unwrap();
            made.insert(key, content);
        }
        (source, made)
    };
    let (small, large, other) = (file("small", 1, 3000), file("large", 2, 200_000), file("other", 3, 9000));
    step("put", args!["a", &small], &|objects| drop(objects.insert("a".to_owned(), bytes(1, 3000))));
    step("put", args!["b", &large], &|objects| drop(objects.insert("b".to_owned(), bytes(2, 200_000))));
    let (source, made) = tree("first", 1000);
    step("import", args!["--quiet", &source], &|objects| objects.extend(made.clone()));
    step("put", args!["a", &other], &|objects| drop(objects.insert("a".to_owned(), bytes(3, 9000))));
    // Other lengths, so that the import does not take them for the same.
    let (source, made) = tree("second", 2000);
    let made: Objects = made.into_iter().map(|(key, content)| (key, [content, vec![7; 5]].concat())).collect();
    made.iter().for_each(|(key, content)| fs::write(source.join(key), content).unwrap());
    step("import", args!["--quiet", &source], &|objects| objects.extend(made.clone()));
    step("rm", args!["-r", "tree/d1"], &|objects| objects.retain(|key, _| !key.starts_with("tree/d1/")));
    step("mv", args!["tree/d2", "moved"], &|objects| {
        let moved = |key: String| key.strip_prefix("tree/d2").map_or(key.clone(), |rest| format!("moved{rest}"));
        *objects = std::mem::take(objects).into_iter().map(|(key, content)| (moved(key), content)).collect();
    });
    step("compact", args!["--all"], &|_| {});
    step("put", args!["b", &small], &|objects| drop(objects.insert("b".to_owned(), bytes(1, 3000))));
    step("compact", args!["--all"], &|_| {});
    steps
}

struct World {
    place: Place,
    roots: Vec<PathBuf>,
    /// What is put after each power failure.
    later: PathBuf,
}

impl World {
    fn new(fast: usize, slow: usize) -> World {
        let place = Place::new(fast, slow, &["--stripe-unit", "16KiB"]);
        let mut roots = place.devices.clone();
        roots.push(place.home.clone());
        roots.sort();
        roots.dedup();
        let later = place.path("later");
        fs::write(&later, bytes(99, 2500)).unwrap();
        World { place, roots, later }
    }

    /// Runs a command, which must end with 0; returns what it did.
    fn record(&self, disk: &Disk, arguments: Vec<OsString>) -> Recording {
        let options = ["-xx", "-s", "100000000", "-e", RECORDED];
        let mut command = crate::harness::without_wishes(std::process::Command::new("strace"));
        command.args(["-f", "-q", "-o"]).arg(self.place.path("trace")).args(options);
        command.arg(crate::harness::binary()).arg("store").args(&arguments);
        crate::harness::finish(&mut command).ended(0);
        let recording = disk.read(&self.place.trace());
        let mut after = disk.clone();
        after.advance(&recording, recording.length + 1, &mut || false);
        let (model, real) = (after.now(), Image::of(&self.roots));
        let names = |image: &Image| image.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&model), names(&real), "{arguments:?}: the model has other files than the disk");
        for (path, content) in &real.files {
            assert!(model.files[path] == *content, "{arguments:?}: {} in the model is another", path.display());
        }
        recording
    }

    fn ends_with_0(&self, command: &str, rest: Vec<OsString>, what: &str) -> String {
        let ran = self.place.run_on(command, rest);
        assert_eq!(ran.code, Some(0), "{what}, then {command}: {}{}", ran.said(), ran.text());
        ran.text()
    }

    fn exported(&self, what: &str) -> Objects {
        let (exported, ran) = self.place.export();
        assert_eq!(ran.code, Some(0), "{what}, then export: {}", ran.said());
        exported
    }

    /// Asserts that each object is as before or as after a command that was running; returns what is there.
    fn reads(&self, before: &Objects, after: &Objects, what: &str) -> Objects {
        let found = self.exported(what);
        for key in before.keys().chain(after.keys()).chain(found.keys()) {
            let (is, was, will) = (found.get(key), before.get(key), after.get(key));
            assert!(
                is == was || is == will,
                "{what}: {key} has {:?} bytes, not the {:?} before or the {:?} after",
                is.map(Vec::len),
                was.map(Vec::len),
                will.map(Vec::len)
            );
        }
        let (listed, ran) = self.place.list();
        assert_eq!(ran.code, Some(0), "{what}, then ls: {}", ran.said());
        let is_above = |name: &str| found.keys().any(|key| key.starts_with(&format!("{name}/")));
        let files: Vec<&String> = listed.iter().filter(|name| !is_above(name)).collect();
        assert_eq!(files.into_iter().collect::<BTreeSet<_>>(), found.keys().collect(), "{what}: ls and export differ");
        found
    }

    /// All that somebody would do after a power failure; with `again`, power fails during that too.
    fn survives(&self, image: &Image, (before, after): (&Objects, &Objects), again: Option<&mut Random>, what: &str) {
        image.write(&self.roots);
        let checked = self.place.run_on("check", ["--deep"]);
        if checked.code != Some(0) {
            // Copies of superblocks and the end of the index's journal, which the next writer makes alike again.
            let found = checked.text();
            let sums = found.lines().last().unwrap_or_default().split("; ").next().unwrap_or_default();
            let is_repairable = sums.split_once("problem").is_some_and(|(_, kinds)| {
                kinds.split_once(": ").is_some_and(|(_, kinds)| kinds.ends_with(" repairable") && !kinds.contains(','))
            });
            assert!(checked.code == Some(1) && is_repairable, "{what}, then check: {}{found}", checked.said());
        }
        let mut found = self.reads(before, after, what);
        let put = args!["put", &self.place.home, "later", &self.later];
        let later = ("later".to_owned(), bytes(99, 2500));
        if let Some(random) = again {
            let disk = Disk::of(&self.roots);
            let recording = self.record(&disk, put);
            let mut failed = disk;
            let line = random.below(recording.length as u64 + 2) as usize;
            failed.advance(&recording, line, &mut || random.below(2) == 0);
            let image = failed.image(random);
            let what = format!("{what}, and again at line {line} of {} of the put after it", recording.length);
            let mut after = found.clone();
            after.extend([later.clone()]);
            let before = if line > recording.length { &after } else { &found };
            return self.survives(&image, (before, &after), None, &what);
        }
        self.place.run(put).ended(0);
        found.extend([later]);
        assert!(self.exported(what) == found, "{what}: a writer found something else than a reader");
        self.ends_with_0("check", args!["--deep"], what);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Keeps what a test found to fail; returns where.
fn keep(image: &Image, sandbox: &Path, name: &str) -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&kept);
    let inside = |path: &Path| kept.join(path.strip_prefix(sandbox).unwrap());
    image.directories.iter().for_each(|directory| fs::create_dir_all(inside(directory)).unwrap());
    image.files.iter().for_each(|(path, content)| fs::write(inside(path), content).unwrap());
    kept
}

/// Lets power fail in each of the commands, in a store with these devices.
fn power_fails(fast: usize, slow: usize) {
    if !can_trace() {
        return;
    }
    let (count, seed) = (number("GRANULO_POWER_FAILURES", 100).div_ceil(2), number("GRANULO_POWER_SEED", 1));
    let world = World::new(fast, slow);
    let mut disk = Disk::of(&world.roots);
    let mut before = Objects::new();
    let steps = steps(&world.place);
    for (number, step) in steps.iter().enumerate() {
        let recording = world.record(&disk, step.arguments.clone());
        let share = |number: usize| count * number as u64 / steps.len() as u64;
        for failure in share(number)..share(number + 1) {
            let mut random = Random::new(seed << 32 | failure << 8 | (fast + slow) as u64);
            let mut failed = disk.clone();
            // One in eight after the command has ended: what it acknowledged is there.
            let has_ended = random.below(8) == 0;
            let line =
                if has_ended { recording.length + 1 } else { random.below(recording.length as u64 + 1) as usize };
            failed.advance(&recording, line, &mut || random.below(2) == 0);
            let image = failed.image(&mut random);
            let again = failure % 4 == 3;
            let what = format!(
                "GRANULO_POWER_SEED={seed}, failure {failure}: line {line} of {} of step {number}, {}",
                recording.length, step.name
            );
            let expected = (if has_ended { &step.after } else { &before }, &step.after);
            let survives = || world.survives(&image, expected, again.then_some(&mut random), &what);
            if let Err(failed) = catch_unwind(AssertUnwindSafe(survives)) {
                let name = format!("power-failure-{seed}-{failure}-{}", world.roots.len());
                println!("{what}: see {}", keep(&image, world.place.sandbox.path(), &name).display());
                resume_unwind(failed);
            }
        }
        disk.advance(&recording, recording.length + 1, &mut || false);
        disk.now().write(&world.roots);
        before.clone_from(&step.after);
    }
    assert!(world.exported("at the end") == before);
    world.ends_with_0("check", args!["--deep"], "at the end");
}

#[test]
fn power_failures_lose_nothing_of_a_store_in_one_directory() {
    power_fails(0, 0);
}

#[test]
fn power_failures_lose_nothing_of_a_store_on_two_fast_and_three_slow_devices() {
    power_fails(2, 3);
}
