//! Surveys by several processes that divide a tree: all shards together are the survey of one walk.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::args;
use crate::harness::{
    Ran, assert_same, binary, finish, granulo, granulo_as_nobody, in_mount_namespace, run, sandbox, without_wishes,
    write_file,
};
use crate::images::{Image, Mount};
use crate::model::AS_OF;
use crate::store_place::can_trace;

/// A tree with directories at all depths, files with names all over it, links, pipes, names that are not text, what
/// surveys leave out, and a huge branch.
fn odd_tree(root: &Path) {
    let directories: Vec<PathBuf> = (0..90)
        .map(|number| root.join(["a", "b/c", "d/e/f/g", "h/i"][number % 4]).join(format!("{}/{number}", number % 9)))
        .collect();
    for number in 0..1200usize {
        let file = write_file(directories[number * 7 % 90].join(format!("f{number}.x{}", number % 5)), number % 977);
        for link in 0..number % 4 {
            let directory = &directories[(number * 31 + link * 17) % 90];
            fs::create_dir_all(directory).unwrap();
            fs::hard_link(&file, directory.join(format!("l{number}-{link}.y{link}"))).unwrap();
        }
    }
    write_file(root.join("a/.snapshot/old"), 10_000);
    write_file(root.join("b/c/left.tmp"), 20_000);
    write_file(root.join("b/c/left.tmp.d/below"), 20_000);
    symlink("/nowhere", root.join("a/absolute")).unwrap();
    symlink("../a", root.join("b/relative")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let name = <OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"d\xff\n".to_vec());
    write_file(root.join(name).join("file"), 3);
    let twice = write_file(root.join("twice"), 12_345);
    fs::hard_link(twice, root.join("d/twice")).unwrap();
    // One name of it is outside the tree.
    let outside = write_file(root.with_extension("outside"), 54_321);
    fs::hard_link(outside, root.join("h/inside")).unwrap();
}

struct Sharded {
    sandbox: TempDir,
    options: Vec<OsString>,
}

impl Sharded {
    fn new(options: Vec<OsString>) -> Sharded {
        let sharded = Sharded { sandbox: sandbox(), options };
        odd_tree(&sharded.path("tree"));
        sharded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    fn survey(&self) -> Command {
        let mut command = granulo();
        command.args(["survey", "--as-of", AS_OF, "--method", "walk", "--exclude", "*.tmp*"]).args(&self.options);
        command
    }

    fn whole(&self, roots: &[PathBuf]) -> Value {
        finish(self.survey().arg("--json").args(roots)).ended(0).json()
    }

    fn take(&self, roots: &[PathBuf], number: usize, count: usize, more: &[&str]) -> PathBuf {
        let target = self.path(&format!("part-{number}-of-{count}"));
        let shard = format!("{number}/{count}");
        finish(self.survey().args(["--shard", &shard, "-o"]).arg(&target).args(more).args(roots)).ended(0);
        target
    }

    fn merged(&self, parts: impl IntoIterator<Item = PathBuf>) -> Ran {
        finish(granulo().args(["merge", "--json"]).args(parts))
    }
}

#[test]
fn shards_together_are_the_survey_of_one_walk() {
    for options in [args!["--hard-links", "once"], args!["--hard-links", "shared"], args!["--hard-links", "each"]] {
        let sharded = Sharded::new(options);
        let roots = [sharded.path("tree")];
        let whole = sharded.whole(&roots);
        for (count, more) in [(1, &[][..]), (2, &[]), (7, &["--shard-depth", "3"]), (24, &["--threads", "1"])] {
            // The order of the shards does not matter.
            let parts = (1..=count).rev().map(|number| sharded.take(&roots, number, count, more));
            let merged = sharded.merged(parts.collect::<Vec<_>>()).ended(0);
            assert_same(&whole, &merged.json(), &[]);
            assert_eq!(merged.said(), "");
        }
    }
}

#[test]
fn shards_know_where_their_relative_roots_are() {
    let sandbox = sandbox();
    let directory = fs::canonicalize(sandbox.path()).unwrap();
    write_file(directory.join("tree/a/b"), 10);
    let part = |number: u32| {
        let part = directory.join(format!("part{number}"));
        let shard = format!("{number}/2");
        finish(granulo().current_dir(&directory).args(args!["survey", "tree", "--shard", shard, "-o", &part])).ended(0);
        part
    };
    let parts = [part(1), part(2)];
    let merged = finish(granulo().current_dir("/").args(["merge", "--json"]).args(parts)).ended(0).json();
    assert_eq!((&merged["roots"][0], &merged["directory"]), (&"tree".into(), &directory.to_str().unwrap().into()));
}

#[test]
fn every_depth_of_division_gives_the_same() {
    let sharded = Sharded::new(args!["--anonymous", "--small", "100"]);
    // A root that is a file with a name in the other root, a root within a root, and one that is not a directory.
    let roots = [sharded.path("tree"), sharded.path("tree/b"), sharded.path("tree.outside")];
    let whole = sharded.whole(&roots);
    for depth in ["0", "1", "2", "5", "16"] {
        let parts = (1..=3).map(|number| sharded.take(&roots, number, 3, &["--shard-depth", depth]));
        assert_same(&whole, &sharded.merged(parts.collect::<Vec<_>>()).ended(0).json(), &[]);
    }
}

#[test]
fn what_cannot_be_read_is_reported_by_one_shard() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    odd_tree(&root);
    for closed in ["a/1", "d", "h/i/3"] {
        fs::set_permissions(root.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
    }
    // Its entries can be listed, and not examined.
    fs::set_permissions(root.join("b/c"), fs::Permissions::from_mode(0o744)).unwrap();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let survey = |more: &[OsString]| {
        let mut command = granulo_as_nobody(&sandbox)?;
        command.args(["survey", "--as-of", AS_OF, "--method", "walk"]).args(more).arg(&root);
        Some(finish(&mut command))
    };
    let Some(whole) = survey(&args!["--json"]) else { return };
    let whole = whole.ended(1).json();
    assert!(whole["counts"]["errors"].as_u64() > Some(3), "{}", whole["counts"]);
    for depth in ["1", "4"] {
        let mut failed = 0;
        let parts = (1..=5).map(|number| {
            let target = sandbox.path().join(format!("part{number}"));
            let shard = format!("{number}/5");
            let ran = survey(&args!["--shard", &shard, "--shard-depth", depth, "-o", &target]).unwrap();
            failed += usize::from(ran.code == Some(1));
            ran.ended(if ran_well(&target) { 0 } else { 1 });
            target
        });
        let merged = run([args!["merge", "--json"], parts.map(OsString::from).collect()].concat());
        assert_same(&whole, &merged.ended(0).json(), &[]);
        assert!(failed > 0);
    }
}

/// Whoever counts its entries: directories below it that this process has are missing.
#[test]
fn what_one_process_cannot_list_it_reports_itself() {
    if !can_trace() {
        return;
    }
    let sharded = Sharded::new(Vec::new());
    let roots = [sharded.path("tree")];
    for shard in ["1/2", "2/2"] {
        let mut command = without_wishes(Command::new("strace"));
        command.args(["-f", "-qqq", "-e", "trace=getdents64", "-e", "inject=getdents64:error=ENOMEM:when=1"]);
        command.args(["-o", "/dev/null"]).arg(binary());
        command
            .args(sharded.survey().args(["--threads", "1", "--shard", shard, "--shard-depth", "1", "-o"]).get_args());
        let said = finish(command.arg(sharded.path("part")).args(&roots)).ended(1).said();
        assert!(said.contains("cannot list the directory"), "{said}");
    }
}

/// Whether a shard met no error, by its part alone.
fn ran_well(part: &Path) -> bool {
    let ran = run(args!["merge", "--json", part]);
    ran.json()["counts"]["errors"] == 0
}

#[test]
fn file_systems_mounted_below_are_divided_like_directories() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    odd_tree(&root);
    let script = r#"
        mkdir "$1/a/mounted" "$1/d/mounted"
        mount -t tmpfs -o size=1m tmpfs "$1/a/mounted"
        mkdir -p "$1/a/mounted/x/y" && echo text > "$1/a/mounted/x/y/file" && ln "$1/a/mounted/x/y/file" "$1/a/mounted/x/link"
        mount -t tmpfs -o size=1m tmpfs "$1/d/mounted"
        mkdir -p "$1/d/mounted/z" && echo more > "$1/d/mounted/z/file" && ln "$1/d/mounted/z/file" "$1/d/mounted/link"
        for mode in "" -x; do
            $GRANULO survey --as-of "$2" --method walk $mode --json "$1" > "$3/whole$mode"
            for i in 1 2 3 4; do
                $GRANULO survey --as-of "$2" --method walk $mode --shard $i/4 -o "$3/part$i" "$1" >&2
            done
            $GRANULO merge --json "$3"/part? > "$3/merged$mode"
        done
    "#;
    let Some(ran) = in_mount_namespace(script, &args![&root, AS_OF, sandbox.path()]) else { return };
    ran.ended(0);
    let document =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(sandbox.path().join(name)).unwrap()).unwrap() };
    for mode in ["", "-x"] {
        assert_same(&document(&format!("whole{mode}")), &document(&format!("merged{mode}")), &[]);
    }
}

#[test]
fn a_file_system_that_is_mounted_twice_counts_at_one_place_in_all_shards() {
    // Above the division and at it, at it and below it, and below a directory that is left out.
    let places =
        [("m", "d/again"), ("m", "z/again"), ("d/one", "z/two/three"), ("z/one", "d/two/three"), ("a.tmp", "z")];
    let script = r#"
        mkdir -p "$1/$4" "$1/$5" "$1/plain"
        for i in 1 2 3 4 5 6 7 8; do mkdir -p "$1/plain/$i" && echo $i > "$1/plain/$i/file"; done
        mount -t tmpfs -o size=1m tmpfs "$1/$4"
        for i in 1 2 3 4 5 6 7 8; do mkdir -p "$1/$4/$i/below" && echo $i > "$1/$4/$i/below/file"; done
        mount --bind "$1/$4" "$1/$5"
        survey="$GRANULO survey --as-of $2 --method walk --exclude *.tmp"
        set -f
        $survey --json "$1" > "$3/whole"
        for i in 1 2 3 4 5; do
            $survey --shard $i/5 --shard-depth 2 --threads 1 -o "$3/part$i" "$1" >&2
        done
        set +f
        $GRANULO merge --json "$3"/part? > "$3/merged"
    "#;
    for (one, other) in places {
        let sandbox = sandbox();
        let root = sandbox.path().join("tree");
        let arguments = args![&root, AS_OF, sandbox.path(), one, other];
        let Some(ran) = in_mount_namespace(script, &arguments) else { return };
        ran.ended(0);
        let document =
            |name: &str| -> Value { serde_json::from_slice(&fs::read(sandbox.path().join(name)).unwrap()).unwrap() };
        let whole = document("whole");
        assert_eq!(whole["counts"]["files"], 16, "{one}, {other}");
        assert_same(&whole, &document("merged"), &[]);
    }
}

/// A copy of a device has the identity of its file system, and its files have the same numbers.
#[test]
fn copies_of_a_file_system_are_not_taken_for_one() {
    let uuid = "6f1c2d5e-8a3b-4c7d-9e0f-112233445566";
    let mkfs = ["mke2fs", "-F", "-q", "-t", "ext4", "-b", "4096", "-U", uuid];
    let make = || Image::make(64 << 20, &mkfs, Mount::Kernel(""));
    let (Some(mut one), Some(mut other)) = (make(), make()) else { return };
    let names: Vec<String> = (0..24).map(|number| format!("d{number}/name{number}")).collect();
    for (image, size) in [(&one, 5000), (&other, 9000)] {
        let file = write_file(image.root().join(&names[0]), size);
        for name in &names[1..] {
            fs::create_dir_all(image.root().join(name).parent().unwrap()).unwrap();
            fs::hard_link(&file, image.root().join(name)).unwrap();
        }
    }
    let number = |image: &Image| fs::metadata(image.root().join(&names[0])).unwrap().ino();
    assert_eq!(number(&one), number(&other));
    let sharded = Sharded::new(args!["--hard-links", "once"]);
    let roots = [one.root(), other.root()];
    let whole = sharded.whole(&roots);
    assert_eq!(whole["counts"]["files"], 2);
    let parts = (1..=5).map(|number| sharded.take(&roots, number, 5, &["--shard-depth", "1"]));
    assert_same(&whole, &sharded.merged(parts.collect::<Vec<_>>()).ended(0).json(), &[]);
    one.unmount();
    other.unmount();
}

/// Shards are often merged where the users of the cluster are unknown, or others have their numbers.
#[test]
fn owners_have_the_names_of_where_their_files_are() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    odd_tree(&root);
    let passwd = "somebody-else:x:0:0::/:/bin/sh\nnobody-known:x:65534:65534::/:/bin/sh\n";
    let others = write_file(sandbox.path().join("passwd"), 0);
    fs::write(&others, passwd).unwrap();
    let script = r#"
        $GRANULO survey --as-of "$2" --method walk --json "$1" > "$3/whole"
        for i in 1 2; do $GRANULO survey --as-of "$2" --method walk --shard $i/2 -o "$3/part$i" "$1" >&2; done
        mount --bind "$3/passwd" /etc/passwd
        $GRANULO merge --json "$3"/part? > "$3/merged"
    "#;
    let Some(ran) = in_mount_namespace(script, &args![&root, AS_OF, sandbox.path()]) else { return };
    ran.ended(0);
    let document =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(sandbox.path().join(name)).unwrap()).unwrap() };
    assert_same(&document("whole"), &document("merged"), &[]);
}

#[test]
fn missing_and_wrong_shards_are_named() {
    let sharded = Sharded::new(Vec::new());
    let roots = [sharded.path("tree")];
    let [one, two, three] = [1, 2, 3].map(|number| sharded.take(&roots, number, 3, &[]));

    let merged = sharded.merged([one.clone(), three.clone()]).ended(1);
    assert!(merged.said().contains("1 of 3 are missing") && merged.said().contains("again: 2"), "{}", merged.said());
    assert_eq!(merged.json()["complete"], false);

    let refused = |parts: &[&PathBuf], words: &str| {
        let said = sharded.merged(parts.iter().map(|part| (*part).clone())).ended(2).said();
        assert!(said.contains(words), "{said}");
    };
    refused(&[&one, &two, &two], "shard 2 is there twice");
    let other = sharded.take(&roots, 2, 4, &[]);
    refused(&[&one, &other], "not of one survey");
    let deeper = sharded.take(&roots, 2, 3, &["--shard-depth", "1"]);
    refused(&[&one, &deeper], "the tree changed");

    let mut bytes = fs::read(&one).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = sharded.path("damaged");
    fs::write(&damaged, &bytes).unwrap();
    refused(&[&damaged, &two], "checksum");
    let said = run(args!["show", &two]).ended(2).said();
    assert!(said.contains("one shard") && said.contains("granulo merge"), "{said}");

    for (arguments, words) in [
        (args!["--shard", "0/3", "-o", "p"], "1/8 to 8/8"),
        (args!["--shard", "4/3", "-o", "p"], "1/8 to 8/8"),
        (args!["--shard", "1/3"], "--output"),
        (args!["--shard", "1/3", "-o", "p", "--json"], "--json"),
        (args!["--shard-depth", "1"], "--shard"),
    ] {
        let said = finish(sharded.survey().args(arguments).args(&roots)).ended(2).said();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn shards_of_one_survey_merge_with_other_surveys() {
    let sharded = Sharded::new(Vec::new());
    let roots = [sharded.path("tree/a")];
    let parts = [1, 2].map(|number| sharded.take(&roots, number, 2, &[]));
    let [whole, other, together] = ["whole", "other", "together"].map(|name| sharded.path(name));
    finish(sharded.survey().arg("-o").arg(&whole).args(&roots)).ended(0);
    finish(sharded.survey().arg("-o").arg(&other).arg(sharded.path("tree/h"))).ended(0);
    let of_shards = sharded.merged([parts[0].clone(), other.clone(), parts[1].clone()]).ended(0);
    run(args!["merge", &whole, &other, "-o", &together]).ended(0);
    let expected: Value = serde_json::from_slice(&fs::read(&together).unwrap()).unwrap();
    assert_same(&expected, &of_shards.json(), &[]);
}

#[test]
fn an_interrupted_shard_is_resumed() {
    if !can_trace() {
        return;
    }
    let sharded = Sharded::new(Vec::new());
    let roots = [sharded.path("tree")];
    let target = sharded.path("part-1-of-2");
    let traced = |more: &[&str], log: &Path| {
        let mut command = without_wishes(Command::new("strace"));
        command.args(["-f", "-qqq", "-e", "trace=getdents64"]).args(more).arg("-o").arg(log).arg(binary());
        command
            .args(sharded.survey().args(["--threads", "1", "--shard", "1/2", "--shard-depth", "2", "-o"]).get_args());
        finish(command.arg(&target).args(&roots))
    };
    // How many directories a shard has depends on the path of the sandbox: count them, and stop in the middle.
    let log = sharded.path("calls");
    traced(&[], &log).ended(0);
    fs::remove_file(&target).unwrap();
    let calls = fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains("getdents64(")).count();
    let signal = format!("inject=getdents64:signal=INT:when={}", calls / 2);
    let ran = traced(&["-e", &signal], Path::new("/dev/null")).ended(1);
    assert!(ran.said().contains("--resume") && !target.exists(), "{}", ran.said());
    let checkpoint = sharded.path("part-1-of-2.checkpoint");
    let said = run(args!["survey", "--resume", &checkpoint]).ended(2).said();
    assert!(said.contains("-o FILE"), "{said}");
    run(args!["survey", "--resume", &checkpoint, "-o", &target]).ended(0);
    assert!(!checkpoint.exists());
    let two = sharded.take(&roots, 2, 2, &["--shard-depth", "2"]);
    assert_same(&sharded.whole(&roots), &sharded.merged([target, two]).ended(0).json(), &[]);
}
