//! Inode scans without names, scans that read only changes, and file systems that are mounted elsewhere or vanish.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::args;
use crate::harness::{assert_same, has_program, in_mount_namespace, run, sandbox, skip, survey, write_file};
use crate::images::{Image, Mount, run as command};
use crate::model::AS_OF;

const MIB: u64 = 1 << 20;
/// Measures that need names.
const OF_NAMES: [&str; 3] = ["directory_entries", "name_length", "directory_depth"];

fn mounted(options: &[&str]) -> Option<Image> {
    let mkfs = [&["mke2fs", "-F", "-q", "-E", "nodiscard"], options].concat();
    Image::make(64 * MIB, &mkfs, Mount::Kernel(""))
}

fn populate(root: &Path) {
    for number in 0..400 {
        write_file(root.join(format!("d{}/e{}/file{number}.{}", number % 9, number % 4, number % 3)), number * 31);
    }
    for number in 0..3000 {
        fs::write(root.join("d0").join(format!("a name that makes the directory a large one {number}")), "x").unwrap();
    }
    symlink("/usr", root.join("link")).unwrap();
    fs::hard_link(root.join("d1/e1/file1.1"), root.join("again")).unwrap();
}

fn scan_of(root: &Path) -> Value {
    survey(args!["--as-of", AS_OF, "--method", "inode-scan", root])
}

#[test]
fn without_names_everything_else_is_the_same() {
    let Some(image) = mounted(&["-t", "ext4"]) else { return };
    let root = image.root();
    populate(&root);
    write_file(root.join(".snapshot/old/file"), 500);
    for hard_links in ["once", "each", "shared"] {
        let options = args!["--as-of", AS_OF, "--include-snapshots", "--hard-links", hard_links, &root];
        let mut whole = survey([args!["--method", "inode-scan"], options.clone()].concat());
        let mut alone = survey([args!["--method", "inode-scan", "--without-names"], options].concat());
        assert_eq!((&alone["without_names"], &alone["where"]), (&true.into(), &Value::Null));
        assert_eq!(alone.get("tree"), None);
        assert_eq!(whole.get("without_names"), None);
        for measure in OF_NAMES {
            assert!(whole["distributions"][measure]["count"].as_u64().unwrap() > 0);
            assert_eq!(alone["distributions"][measure]["count"], 0);
            for survey in [&mut whole, &mut alone] {
                survey["distributions"].as_object_mut().unwrap().remove(measure);
            }
        }
        assert_same(&whole, &alone, &["where", "tree", "without_names"]);
    }
    // Snapshots are included even if not requested, and this is reported.
    let alone = survey(args!["--as-of", AS_OF, "--without-names", &root]);
    assert_eq!((&alone["method"], &alone["options"]["snapshots"]), (&"inode-scan".into(), &"include".into()));
}

#[test]
fn what_takes_names_is_refused_without_them() {
    let Some(image) = mounted(&["-t", "ext4"]) else { return };
    let root = image.root();
    populate(&root);
    for (more, cause) in [
        (args!["--exclude", "*.o", &root], "cannot be used with"),
        (args!["--method", "walk", &root], "a walk needs names"),
        (args!["--method", "inode-scan", root.join("d1")], "a directory that is not a mount point"),
    ] {
        let ran = run([args!["survey", "--without-names"], more].concat()).ended(2);
        assert!(ran.said().contains(cause), "{}", ran.said());
    }
    // A walk reads them anyway.
    let part = survey(args!["--without-names", root.join("d1")]);
    assert_eq!((&part["method"], part.get("without_names")), (&"walk".into(), None));
    assert!(part["distributions"]["name_length"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn whoever_shows_a_survey_without_names_says_so() {
    let Some(image) = mounted(&["-t", "ext4"]) else { return };
    let (root, directory) = (image.root(), sandbox());
    populate(&root);
    let path = |name: &str| directory.path().join(name);
    run(args!["survey", "--as-of", AS_OF, "--without-names", &root, "-o", path("alone.json")]).ended(0);
    run(args!["survey", "--as-of", AS_OF, &root, "-o", path("whole.json")]).ended(0);
    let words = "Names were not read (--without-names)";
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for all in [&[][..], &["--all"]] {
        let shown = run([args!["show", path("alone.json")], all.iter().map(Into::into).collect()].concat()).ended(0);
        assert!(flat(shown.text()).contains(words), "{}", shown.text());
        for absent in ["name_length", "directory_entries", "directory_depth", "Kinds of files"] {
            assert!(!shown.text().contains(absent), "{}", shown.text());
        }
    }
    run(args!["report", path("alone.json"), "-o", path("page.html")]).ended(0);
    assert!(fs::read_to_string(path("page.html")).unwrap().contains(words));
    run(args!["merge", path("whole.json"), path("alone.json"), "-o", path("both.json")]).ended(0);
    let both: Value = serde_json::from_slice(&fs::read(path("both.json")).unwrap()).unwrap();
    assert_eq!((&both["without_names"], &both["where"]), (&true.into(), &Value::Null));
    assert!(OF_NAMES.iter().all(|measure| both["distributions"][measure]["count"] == 0));
    assert_eq!(both["counts"]["files"], 2 * 3400);
    let plan = run(args!["plan", path("alone.json")]).ended(0);
    assert!(flat(plan.text()).contains("directories"), "{}", plan.text());
    let generated = run(args!["generate", "--dry-run", "--files", "1000", path("alone.json"), path("tree")]).ended(0);
    assert!(flat(generated.text()).contains("does not record its directories"), "{}", generated.text());
}

/// A survey that stores its names and uses those of `old`; and its messages.
fn incremental(root: &Path, old: &Path, new: &Path) -> (Value, String) {
    let arguments = args!["survey", "--as-of", AS_OF, "--method", "inode-scan", root, "--incremental", old, "-o", new];
    let ran = run(arguments).ended(0);
    (serde_json::from_slice(&fs::read(new).unwrap()).unwrap(), ran.said().to_owned())
}

/// Ages the directories, so that their changes are not within the last seconds.
fn age(root: &Path) {
    std::thread::sleep(std::time::Duration::from_millis(4100));
    rustix::fs::syncfs(fs::File::open(root).unwrap()).unwrap();
}

#[test]
fn what_did_not_change_is_not_read_and_the_survey_is_the_same() {
    for mkfs in [
        &["mke2fs", "-F", "-q", "-t", "ext4"][..],
        &["mke2fs", "-F", "-q", "-t", "ext4", "-O", "inline_data"],
        &["mke2fs", "-F", "-q", "-t", "ext2", "-I", "128"],
        &["mkfs.xfs", "-q", "-f"],
        &["mkfs.btrfs", "-q", "-f"],
    ] {
        let Some(image) = Image::make(512 * MIB, mkfs, Mount::Kernel("")) else { return };
        let (root, directory) = (image.root(), sandbox());
        let nightly = directory.path().join("nightly.json");
        populate(&root);
        age(&root);
        let (first, said) = incremental(&root, &nightly, &nightly);
        assert!(said.contains("nightly.json.names does not exist yet; all directories were read"), "{said}");
        assert_same(&scan_of(&root), &first, &[]);
        let (again, said) = incremental(&root, &nightly, &nightly);
        assert!(
            said.contains(&format!("note: 0 of {} directories were read", first["counts"]["directories"])),
            "{said}"
        );
        assert_same(&first, &again, &[]);
        // Files change without their directories; directories change when names are created, removed or moved.
        fs::write(root.join("d2/e2/file2.2"), vec![1; 70_000]).unwrap();
        fs::rename(root.join("d3/e3/file3.0"), root.join("d3/e3/moved.c")).unwrap();
        fs::rename(root.join("d4"), root.join("d5/d4")).unwrap();
        fs::remove_dir_all(root.join("d6")).unwrap();
        write_file(root.join("d6/e0/new"), 10);
        fs::remove_file(root.join("d0/a name that makes the directory a large one 7")).unwrap();
        let (changed, said) = incremental(&root, &nightly, &nightly);
        assert_same(&scan_of(&root), &changed, &[]);
        let read: u64 = said.split("note: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((4..12).contains(&read), "{said}");
        // Recent changes were not stored.
        let (later, said) = incremental(&root, &nightly, &nightly);
        assert!(!said.contains("note: 0 of"), "{said}");
        assert_same(&changed, &later, &[]);
        // Names also work when something is skipped.
        let arguments = |more: &[&str]| {
            let mut arguments = args!["--as-of", AS_OF, "--method", "inode-scan", &root, "--exclude", "*.1"];
            arguments.extend(more.iter().map(Into::into));
            arguments
        };
        let kept = nightly.to_str().unwrap();
        let other = directory.path().join("other.json");
        let partly = arguments(&["--json", "--incremental", kept, "-o", other.to_str().unwrap()]);
        let partly = run([args!["survey"], partly].concat()).ended(0).json();
        assert_same(&survey(arguments(&[])), &partly, &[]);
    }
}

#[test]
fn a_survey_within_a_bound_of_memory_is_the_same() {
    for mkfs in [&["mke2fs", "-F", "-q", "-t", "ext4"][..], &["mkfs.xfs", "-q", "-f"], &["mkfs.btrfs", "-q", "-f"]] {
        let Some(image) = Image::make(512 * MIB, mkfs, Mount::Kernel("")) else { return };
        let (root, scratch) = (image.root(), sandbox());
        populate(&root);
        // Enough directories for blocks in the file, and one that only a second pass leaves out.
        for number in 0..300 {
            fs::create_dir_all(root.join(format!("many/{}/{number}", number % 7))).unwrap();
        }
        for selection in [&args![][..], &args!["--exclude", "d3", "--hard-links", "shared"]] {
            let scan = [&args!["--as-of", AS_OF, "--method", "inode-scan", &root], selection].concat();
            let bound = args!["--memory", "24MiB", "--scratch", scratch.path()];
            assert_same(&survey(scan.clone()), &survey([scan, bound].concat()), &[]);
        }
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_bound_of_memory_that_makes_no_sense_is_refused() {
    let (Some(image), tree) = (mounted(&["-t", "ext4"]), sandbox()) else { return };
    let root = image.root();
    for (more, cause) in [
        (args!["--memory", "1MiB", &root], "it must be at least 24MiB"),
        (args!["--memory", "64MiB", "--incremental", "old.json", "-o", "new.json", &root], "cannot be used with"),
        (args!["--memory", "64MiB", "--scratch", tree.path().join("none"), &root], "name another directory"),
        (args!["--memory", "64MiB", "--scratch", "/dev/shm", &root], "its files are in memory (tmpfs or ramfs)"),
    ] {
        let ran = run([args!["survey", "--method", "inode-scan"], more].concat()).ended(2);
        assert!(ran.said().contains(cause), "{}", ran.said());
    }
}

#[test]
fn names_that_cannot_be_gone_by_are_not() {
    let Some(image) = mounted(&["-t", "ext4"]) else { return };
    let (root, directory) = (image.root(), sandbox());
    populate(&root);
    age(&root);
    let (old, new) = (directory.path().join("old.json"), directory.path().join("new.json"));
    let names = directory.path().join("old.json.names");
    let (first, _) = incremental(&root, &old, &old);
    let whole = fs::read(&names).unwrap();
    // If a listing is damaged, its directory is read; if the rest is, all directories are.
    for at in (0..whole.len()).step_by(whole.len() / 60 + 1).chain([whole.len() - 1]) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&names, damaged).unwrap();
        let (survey, said) = incremental(&root, &old, &new);
        assert_same(&first, &survey, &[]);
        assert!(!said.contains("note: 0 of"), "{at}: {said}");
    }
    for length in [0, 10, 63, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(&names, &whole[..length]).unwrap();
        let (survey, said) = incremental(&root, &old, &new);
        assert_same(&first, &survey, &[]);
        assert!(said.contains("cannot be used"), "{said}");
    }
    fs::write(&names, &whole).unwrap();
    let Some(other) = mounted(&["-t", "ext4"]) else { return };
    populate(&other.root());
    let (survey, said) = incremental(&other.root(), &old, &new);
    assert_same(&scan_of(&other.root()), &survey, &[]);
    assert!(said.contains("it belongs to another file system"), "{said}");
    let ran = run(args!["survey", "--method", "walk", &root, "--incremental", &old, "-o", &new]).ended(2);
    assert!(ran.said().contains("a walk reads everything"), "{}", ran.said());
    let ran = run(args!["survey", root.join("d1"), "--incremental", &old, "-o", &new]).ended(0);
    assert!(ran.said().contains("--incremental has no effect"), "{}", ran.said());
}

#[test]
fn an_encrypted_directory_has_names_as_long_as_they_are_stored() {
    if !has_program("debugfs") {
        return skip("there is no debugfs");
    }
    let directory = sandbox();
    let (from, path) = (directory.path().join("from"), directory.path().join("image"));
    write_file(from.join("secret/0123456789abcdef"), 100);
    write_file(from.join("open/x"), 100);
    fs::File::create(&path).unwrap().set_len(16 * MIB).unwrap();
    command(Command::new("mke2fs").args(["-F", "-q", "-t", "ext4", "-O", "encrypt", "-d"]).arg(&from).arg(&path));
    // The flag alone: without the key, the names are bytes.
    command(Command::new("debugfs").args(["-w", "-R", "set_inode_field secret flags 0x80800"]).arg(&path));
    let scan = scan_of(&path);
    assert_eq!(scan["counts"]["files"], 2);
    assert_eq!(scan["distributions"]["name_length"]["max"], 16);
}

#[test]
fn a_mounted_file_system_that_may_have_encrypted_names_is_walked() {
    let Some(image) = mounted(&["-t", "ext4", "-O", "encrypt"]) else { return };
    let root = image.root();
    populate(&root);
    let document = run(args!["survey", "--json", &root]).ended(0).json();
    assert_eq!(document["method"], "walk");
    assert!(document["method_reason"].as_str().unwrap().contains("encrypted names"), "{document}");
    assert_eq!(scan_of(&root)["method"], "inode-scan");
    assert_eq!(survey(args!["--without-names", &root])["method"], "inode-scan");
}

/// The device that is mounted at a place.
fn device_at(root: &Path) -> PathBuf {
    let mounts = String::from_utf8_lossy(&fs::read("/proc/mounts").unwrap()).into_owned();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == root.to_str()).unwrap();
    line.split(' ').next().unwrap().into()
}

#[test]
fn a_device_is_surveyed_wherever_it_is_mounted() {
    let Some(image) = mounted(&["-t", "ext4"]) else { return };
    let root = image.root();
    populate(&root);
    let scan = scan_of(&root);
    let device = survey(args!["--as-of", AS_OF, device_at(&root)]);
    assert_eq!(device["method"], "inode-scan");
    let paths = ["where", "tree", "name", "roots"];
    assert_same(&scan, &device, &paths);
    // A directory that is mounted elsewhere is a part of its file system, not all of it.
    let script = r#"
        mkdir "$2/here"; mount --bind "$1/d5" "$2/here"
        "$GRANULO" survey --json --as-of 2030-01-01 --method walk "$2/here"
        "$GRANULO" survey --json --as-of 2030-01-01 "$2/here"
        "$GRANULO" survey --json --as-of 2030-01-01 --method inode-scan "$2/here"
    "#;
    let directory = sandbox();
    let Some(ran) = in_mount_namespace(script, &args![&root, directory.path()]) else { return };
    let ran = ran.ended(0);
    let documents: Vec<Value> = ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [walk, auto, scan] = &documents[..] else { panic!("{} documents", documents.len()) };
    assert_same(walk, scan, &["method", "consistent"]);
    assert_same(walk, auto, &[]);
    assert!(walk["counts"]["files"].as_u64().unwrap() > 20);
}

#[test]
fn auto_walks_where_the_tables_are_nearly_empty() {
    let Some(image) = mounted(&["-t", "ext2", "-I", "128", "-N", "80000"]) else { return };
    let root = image.root();
    write_file(root.join("a/b"), 100);
    let ran = run(args!["survey", "--json", &root]).ended(0);
    assert_eq!(ran.json()["method"], "walk");
    assert!(ran.said().contains("slots for 13 inodes in use, so a walk is faster"), "{}", ran.said());
    assert_eq!(scan_of(&root)["counts"]["files"], 1);
}
