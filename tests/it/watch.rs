//! `granulo watch` against surveys of the same file systems: after any changes, the same document.
//!
//! Nothing here depends on time: a document that was asked for with SIGUSR1, and the last one, hold everything that
//! changed before the signal. `GRANULO_WATCH_CHANGES` sets the number of random changes of the ignored test
//! (`make torture-watch`), `GRANULO_WATCH_SEED` its seed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{RenameFlags, renameat_with, syncfs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::args;
use crate::changes::Changes;
use crate::harness::{
    Ran, assert_same, finish, granulo, granulo_as_nobody, has_program, in_mount_namespace, is_root, run, sandbox, skip,
    skip_on_this_kernel, survey, write_file,
};
use crate::images::{Image, Mount};
use crate::results::data;

const MIB: u64 = 1 << 20;

/// Longer than anything takes here: only a watcher that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running `granulo watch`.
struct Watched {
    child: Child,
    root: PathBuf,
    output: PathBuf,
    more: Vec<&'static str>,
    _results: tempfile::TempDir,
}

impl Watched {
    /// Watches `root`; `more` are options of a survey, `only` those of the watcher alone. Returns after the first
    /// document.
    fn start(root: &Path, more: &[&'static str], only: &[&str]) -> Watched {
        let results = sandbox();
        let output = results.path().join("survey.json");
        let metrics = results.path().join("metrics.prom");
        let mut command = granulo();
        // The interval never ends.
        command.args(["watch", "--interval", "1000000", "-o"]).arg(&output).arg("--prometheus").arg(metrics);
        command.args(more).args(only).arg(root).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let more = more.to_vec();
        let mut watched = Watched { child, root: root.to_owned(), output, more, _results: results };
        watched.wait_until("the first document", |watched| watched.output.exists());
        watched
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Watched) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended before {what}");
            assert!(began.elapsed() < PATIENCE, "{what} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Allocates what is still delayed: otherwise the survey, which comes second, might find more.
    fn sync(&self) {
        syncfs(File::open(&self.root).unwrap()).unwrap();
    }

    /// Fails unless a document that is written now is what a survey finds.
    #[track_caller]
    fn agrees(&mut self) -> Value {
        self.sync();
        self.ask();
        self.compare()
    }

    /// Asks for a document, and waits for the next one: that, unless another was being written.
    fn ask(&mut self) {
        let identity = |watched: &Watched| {
            fs::metadata(&watched.output).map(|found| (found.ino(), found.ctime(), found.ctime_nsec())).ok()
        };
        let before = identity(self);
        self.signal(Signal::USR1);
        self.wait_until("a document", |watched| identity(watched) != before);
    }

    #[track_caller]
    fn compare(&self) -> Value {
        let document: Value = serde_json::from_slice(&fs::read(&self.output).unwrap()).unwrap();
        let reference = document["ages_relative_to"].as_str().unwrap();
        let mut arguments = args!["--method", "walk", "-x", "--as-of", reference, &self.root];
        arguments.extend(self.more.iter().map(Into::into));
        let walked = survey(arguments);
        assert_same(&walked, &document, &[]);
        document
    }

    fn metrics(&self) -> String {
        fs::read_to_string(self.output.with_file_name("metrics.prom")).unwrap()
    }

    /// Ends it with a signal; the last document must be what a survey finds. Returns what it said.
    #[track_caller]
    fn ends(mut self, signal: Signal) -> String {
        self.sync();
        self.signal(signal);
        let child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        let ran = Ran::from(child.wait_with_output().unwrap()).ended(0);
        assert_eq!(ran.text(), "");
        self.compare();
        ran.said()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ext4() -> Option<Image> {
    Image::make(512 * MIB, &["mke2fs", "-F", "-q", "-t", "ext4", "-N", "60000"], Mount::Kernel(""))
}

/// Random changes in rounds of `each`, with a comparison after every round.
fn random_changes(image: &Image, seed: u64, rounds: usize, each: usize, most_files: usize) {
    let root = image.root().join("tree");
    fs::create_dir(&root).unwrap();
    let mut changes = Changes::below(root, seed, most_files);
    changes.make(each / 2);
    let mut watched = Watched::start(&image.root(), &[], &[]);
    for round in 0..rounds {
        changes.make(each);
        eprintln!("seed {seed}, round {round}: {} files, {} directories", changes.files(), changes.directories());
        watched.agrees();
    }
    changes.make(each);
    assert_eq!(watched.ends(Signal::TERM), "");
}

#[test]
fn a_watched_ext4_is_what_a_survey_finds() {
    let Some(image) = ext4() else { return };
    random_changes(&image, 1, 4, 1500, 800);
}

#[test]
fn a_watched_xfs_is_what_a_survey_finds() {
    let Some(image) = Image::make(512 * MIB, &["mkfs.xfs", "-q", "-f"], Mount::Kernel("")) else { return };
    random_changes(&image, 2, 4, 1500, 800);
}

#[test]
fn a_watched_btrfs_is_what_a_survey_finds() {
    let Some(image) = Image::make(512 * MIB, &["mkfs.btrfs", "-q"], Mount::Kernel("")) else { return };
    random_changes(&image, 3, 4, 1500, 800);
}

/// A million changes: `make torture-watch`.
#[test]
#[ignore = "takes long"]
fn a_million_changes_leave_the_survey_true() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let (changes, seed) = (number("GRANULO_WATCH_CHANGES", 1_000_000), number("GRANULO_WATCH_SEED", 1));
    let Some(image) = ext4() else { return };
    random_changes(&image, seed, 9, changes as usize / 10, 20_000);
}

#[test]
fn options_of_a_survey_hold_for_a_watch() {
    let Some(image) = ext4() else { return };
    let root = image.root();
    let options: [&[&str]; 4] = [
        &["--exclude", "*.x1", "--exclude", "tree/d1/**", "--top", "3"],
        &["--hard-links", "shared", "--small", "1000"],
        &["--hard-links", "each", "--include-snapshots"],
        &["--anonymous"],
    ];
    fs::create_dir(root.join("tree")).unwrap();
    write_file(root.join("tree/.snapshot/a"), 10);
    let mut changes = Changes::below(root.join("tree"), 4, 300);
    changes.make(300);
    for options in options {
        let mut watched = Watched::start(&root, options, &[]);
        changes.make(500);
        watched.agrees();
        watched.ends(Signal::INT);
    }
}

/// An incremental scan finds what changed, on every kind of file system that has one.
#[test]
fn lost_events_lead_to_an_incremental_scan_that_is_announced() {
    let kinds: [&[&str]; 3] =
        [&["mke2fs", "-F", "-q", "-t", "ext4", "-N", "60000"], &["mkfs.xfs", "-q", "-f"], &["mkfs.btrfs", "-q"]];
    for (kind, seed) in kinds.into_iter().zip(5..) {
        let Some(image) = Image::make(512 * MIB, kind, Mount::Kernel("")) else { continue };
        let root = image.root().join("tree");
        fs::create_dir(&root).unwrap();
        let mut changes = Changes::below(root, seed, 500);
        changes.make(700);
        let mut watched = Watched::start(&image.root(), &[], &["--most-pending", "20"]);
        for round in 0..3 {
            eprintln!("{kind:?}, round {round}");
            // The scan then does not depend on how fast the changes are made.
            watched.signal(Signal::STOP);
            changes.make(700);
            watched.signal(Signal::CONT);
            // It may have been stopped while it wrote one, of which nobody asked after the scan: the next one is new.
            watched.ask();
            watched.agrees();
        }
        let said = watched.ends(Signal::TERM);
        assert!(said.contains("too many changes are pending: an incremental scan found "), "{kind:?}: {said}");
        assert!(!said.contains("scanned again"), "{kind:?}: {said}");
    }
}

#[test]
fn links_directories_and_reused_numbers_are_followed() {
    let Some(image) = ext4() else { return };
    let root = image.root();
    let at = |path: &str| root.join(path);
    write_file(at("a/b/c/file"), 5000);
    fs::hard_link(at("a/b/c/file"), at("a/other.name")).unwrap();
    let mut watched = Watched::start(&root, &[], &["--by-directory", "2", "--by-owner"]);
    // Upside down: a directory moves below one that was below it.
    fs::rename(at("a/b"), at("b")).unwrap();
    fs::rename(at("a"), at("b/c/a")).unwrap();
    watched.agrees();
    assert!(watched.metrics().contains(&format!("granulo_files{{mount=\"{}\"}} 1\n", root.display())));
    assert!(watched.metrics().contains("directory=\"b/c\"} 1\n"), "{}", watched.metrics());
    // The number of a removed directory is used again, at another place and with other names.
    for round in 0..20 {
        fs::create_dir(at("old")).unwrap();
        write_file(at(&format!("old/{round}")), round);
        fs::remove_dir_all(at("old")).unwrap();
        fs::create_dir(at(&format!("new{round}"))).unwrap();
        write_file(at(&format!("new{round}/{round}")), 10);
        fs::rename(at(&format!("new{round}")), at(&format!("b/renamed{round}"))).unwrap();
    }
    watched.agrees();
    // Written through a name that is gone by now, and through a descriptor without one.
    let file = File::options().append(true).open(at("b/c/file")).unwrap();
    fs::remove_file(at("b/c/file")).unwrap();
    std::io::Write::write_all(&mut &file, &[1; 100_000]).unwrap();
    watched.agrees();
    fs::remove_file(at("b/c/a/other.name")).unwrap();
    std::io::Write::write_all(&mut &file, &[1; 100_000]).unwrap();
    drop(file);
    // Two directories change places.
    write_file(at("one/1/x"), 1);
    write_file(at("two/2/y"), 2);
    watched.agrees();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, at("one"), rustix::fs::CWD, at("two/2"), exchange).unwrap();
    watched.ends(Signal::TERM);
}

/// An ext4 whose directories may find names however they are written.
fn folding_ext4() -> Option<Image> {
    // The kernel says what its ext4 can once it has one.
    ext4()?;
    if !Path::new("/sys/fs/ext4/features/casefold").exists() {
        skip_on_this_kernel("its ext4 cannot have directories that find names however they are written");
        return None;
    }
    if !has_program("chattr") {
        skip("there is no chattr");
        return None;
    }
    let mkfs = ["mke2fs", "-F", "-q", "-t", "ext4", "-N", "60000", "-O", "casefold"];
    Image::make(512 * MIB, &mkfs, Mount::Kernel(""))
}

#[test]
fn names_that_are_found_however_they_are_written_are_those_of_the_directory() {
    let Some(image) = folding_ext4() else { return };
    let root = image.root();
    let at = |path: &str| root.join(path);
    let fold = |path: &str| finish(Command::new("chattr").arg("+F").arg(at(path))).ended(0);
    for directory in ["folded", "empty", "plain"] {
        fs::create_dir(at(directory)).unwrap();
    }
    fold("folded");
    for name in ["Removed", "Replaced", "Renamed", "Moved", "Sub/file"] {
        write_file(at("folded").join(name), 5000);
    }
    write_file(at("plain/new"), 7000);
    write_file(at("plain/Name"), 100);
    let mut watched = Watched::start(&root, &[], &[]);
    // Under another spelling than the directory has, and than the kernel has met.
    fs::remove_file(at("folded/REMOVED")).unwrap();
    fs::rename(at("plain/new"), at("folded/REPLACED")).unwrap();
    fs::rename(at("folded/RENAMED"), at("folded/another")).unwrap();
    fs::rename(at("folded/MOVED"), at("plain/Moved")).unwrap();
    fs::rename(at("folded/SUB"), at("plain/sub")).unwrap();
    fs::create_dir(at("folded/Sub")).unwrap();
    write_file(at("folded/SUB/again"), 10);
    watched.agrees();
    // It gets the flag while it is watched.
    fold("empty");
    write_file(at("empty/Name"), 5000);
    fs::create_dir(at("empty/Directory")).unwrap();
    watched.agrees();
    fs::remove_file(at("empty/NAME")).unwrap();
    fs::remove_dir(at("empty/DIRECTORY")).unwrap();
    fs::create_dir(at("empty/directory")).unwrap();
    write_file(at("empty/DIRECTORY/x"), 1);
    fs::remove_file(at("plain/Name")).unwrap();
    watched.ends(Signal::TERM);
}

#[test]
fn what_a_mount_hides_is_not_counted_while_it_is_there() {
    let Some(mut image) = ext4() else { return };
    let root = image.root();
    write_file(root.join("point/below/file"), 5000);
    let mut watched = Watched::start(&root, &[], &[]);
    let mount = |arguments: &[&str]| {
        let mut command = Command::new(arguments[0]);
        finish(command.args(&arguments[1..]).arg(root.join("point"))).ended(0);
    };
    mount(&["mount", "-t", "tmpfs", "none"]);
    write_file(root.join("point/in-memory"), 7000);
    assert_eq!(watched.agrees()["counts"]["files"], 0);
    mount(&["umount"]);
    assert_eq!(watched.agrees()["counts"]["files"], 1);
    watched.ends(Signal::TERM);
    image.unmount();
}

/// As overlayfs does in its upper directory.
#[test]
fn a_rename_that_leaves_a_whiteout_is_followed() {
    let Some(mut image) = ext4() else { return };
    let root = image.root();
    write_file(root.join("upper/file"), 5000);
    let mut watched = Watched::start(&root, &[], &[]);
    let upper = File::open(root.join("upper")).unwrap();
    renameat_with(&upper, "file", &upper, "moved", RenameFlags::WHITEOUT).unwrap();
    drop(upper);
    assert_eq!(watched.agrees()["counts"]["character_devices"], 1);
    watched.ends(Signal::TERM);
    image.unmount();
}

/// A directory is shown at a second place, and something is mounted only there.
#[test]
fn what_is_mounted_on_a_bind_mount_hides_nothing_elsewhere() {
    if !is_root() {
        skip("fanotify needs root");
        return;
    }
    let sandbox = sandbox();
    let script = r#"
        mount -t tmpfs none "$1"
        mkdir -p "$1/shown" "$1/real/point"; echo x > "$1/real/point/file"
        "$GRANULO" watch "$1" -o "$2" --interval 1000000 & watcher=$!
        while [ ! -e "$2" ]; do sleep 0.05; done
        mv "$2" "$2.first"
        mount --bind "$1/real" "$1/shown"
        mount -t tmpfs none "$1/shown/point"
        kill -USR1 $watcher
        while [ ! -e "$2" ]; do sleep 0.05; done
        mv "$2" "$2.mounted"
        umount "$1/shown/point" "$1/shown"
        kill -TERM $watcher
        wait $watcher
        "$GRANULO" survey --json --method walk -x "$1""#;
    let output = sandbox.path().join("survey.json");
    let root = sandbox.path().join("memory");
    fs::create_dir(&root).unwrap();
    let Some(ran) = in_mount_namespace(script, &args![&root, &output]) else { return };
    let document = |file: &Path| -> Value { serde_json::from_slice(&fs::read(file).unwrap()).unwrap() };
    let walked = ran.ended(0).json();
    assert_eq!(document(&output.with_extension("json.mounted"))["counts"]["files"], 1);
    assert_same(&walked, &document(&output), &["ages_relative_to"]);
}

#[test]
fn a_terminal_shows_how_much_is_watched() {
    let Some(image) = ext4() else { return };
    let results = sandbox();
    let (shown, pid) = (results.path().join("shown"), results.path().join("pid"));
    write_file(image.root().join("a"), 5000);
    let watch =
        "stty cols 100; echo $$ > \"$PID\"; exec \"$GRANULO\" watch \"$ROOT\" -o \"$OUTPUT\" --interval 1000000";
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-f", "-c", watch]).arg(&shown).stdin(Stdio::null()).stdout(Stdio::null());
    command.env("SHELL", "/bin/sh").env("TERM", "xterm").env("GRANULO", granulo().get_program());
    command.env("ROOT", image.root()).env("OUTPUT", results.path().join("survey.json")).env("PID", &pid);
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return skip("script is not installed"),
        child => child.unwrap(),
    };
    let began = Instant::now();
    let mut shows = |text: &str| loop {
        let now = String::from_utf8_lossy(&fs::read(&shown).unwrap_or_default()).into_owned();
        if let Some((_, behind)) = now.split_once(text) {
            return behind.to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it showed {text}: {now:?}");
        assert!(began.elapsed() < PATIENCE, "it does not show {text}: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    shows("watching: 1 files · 4.88 KiB · ");
    let watcher = Pid::from_raw(fs::read_to_string(&pid).unwrap().trim().parse().unwrap()).unwrap();
    write_file(image.root().join("b"), 5000);
    kill_process(watcher, Signal::USR1).unwrap();
    let behind = shows("watching: 2 files · 9.77 KiB · ");
    let events = behind.split_once(" events").unwrap().0;
    assert!(events.parse::<u32>().unwrap() > 0, "{events}");
    kill_process(watcher, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn it_ends_when_nobody_reads_what_it_prints() {
    let Some(image) = ext4() else { return };
    let mut command = granulo();
    command.args(["watch", "--json", "--quiet", "--interval", "1000000"]).arg(image.root());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // The pipe is closed behind the first line.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["counts"]["files"], 0);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_refusal_says_what_to_do() {
    let sandbox = sandbox();
    let results = sandbox.path().join("survey.json");
    let refused = |ran: Ran| ran.ended(2).said();
    let said = refused(run(args!["watch", sandbox.path(), "-o", &results]));
    assert!(said.contains("it is not a mount point"), "{said}");
    let said = refused(run(args!["watch", "/", "-o", "/no/such/directory/survey.json"]));
    assert!(said.contains("/no/such/directory"), "{said}");
    let said = refused(run(args!["watch", "/"]));
    assert!(said.contains("--output"), "{said}");
    let said = refused(run(args!["watch", "/proc", "-o", &results]));
    assert!(said.contains("cannot watch /proc"), "{said}");
    if let Some(mut command) = granulo_as_nobody(&sandbox) {
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let said = refused(finish(command.args(args!["watch", "/", "-o", &results])));
        assert!(said.contains("run as root"), "{said}");
    }
}

/// A file system in memory has no tables of inodes: lost events lead to another scan. Nor are directories that nobody
/// may enter an obstacle.
#[test]
fn a_file_system_in_memory_is_watched() {
    if !is_root() {
        skip("fanotify needs root");
        return;
    }
    let sandbox = sandbox();
    let script = r#"
        mount -t tmpfs none "$1"
        mkdir "$1/secret"; chmod 0 "$1/secret"; echo x > "$1/secret/file"
        "$GRANULO" watch "$1" -o "$2" --report "$2.html" --json --interval 1000000 --most-pending 3 > "$2.lines" & watcher=$!
        while [ ! -e "$2" ]; do sleep 0.05; done
        mkdir "$1/d"; echo y > "$1/d/a"; mv "$1/d" "$1/secret/e"; ln "$1/secret/e/a" "$1/b"
        for n in 1 2 3 4 5 6; do echo $n > "$1/$n"; done
        kill -TERM $watcher
        wait $watcher
        "$GRANULO" survey --json --method walk -x "$1""#;
    let output = sandbox.path().join("survey.json");
    let root = sandbox.path().join("memory");
    fs::create_dir(&root).unwrap();
    let Some(ran) = in_mount_namespace(script, &args![&root, &output]) else { return };
    let document: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
    assert_eq!(document["counts"]["files"], 8);
    let lines = fs::read_to_string(output.with_extension("json.lines")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(lines.lines().last().unwrap()).unwrap(), document);
    assert_eq!(data(&output.with_extension("json.html"))["sources"][0]["survey"]["counts"], document["counts"]);
    let ran = ran.ended(0);
    assert_same(&document, &ran.json(), &["ages_relative_to"]);
    let said = ran.said();
    assert!(said.contains("too many changes are pending: the tree is scanned again (cannot scan"), "{said}");
    assert!(said.contains("the survey is true"), "{said}");
}
