//! A store in a bucket does what one in a directory does.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::args;
use crate::harness::{finish, granulo};
use crate::on_each_server;
use crate::place::{NO_MORE, Place, bytes, contents};
use crate::servers::Server;

/// Small files and large ones, an empty one, links, and names that a URL would write otherwise.
fn make_tree(root: &Path) {
    for number in 0..300_usize {
        let directory = root.join(format!("d{}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{number:04}")), bytes(number as u64, 200 + number * 13 % 5000)).unwrap();
    }
    for number in 0..3 {
        fs::write(root.join(format!("large{number}")), bytes(1000 + number, 3_000_000)).unwrap();
    }
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("a b+c%20é&=?#"), "odd").unwrap();
    symlink("d1/0001", root.join("symbolic")).unwrap();
    fs::hard_link(root.join("d2/0002"), root.join("hard")).unwrap();
}

/// Everything below a directory, with types, modes, sizes, numbers of names and link targets.
fn described(root: &Path) -> String {
    let mut find = Command::new("find");
    find.current_dir(root).args([".", "-printf", "%P %y %m %s %n %l\\n"]);
    let mut lines: Vec<String> = finish(&mut find).ended(0).text().lines().map(str::to_owned).collect();
    lines.retain(|line| !line.contains(" d "));
    lines.sort();
    lines.join("\n")
}

/// The same commands on a store in a bucket and on one in a directory have the same results.
fn a_store_equals_one_in_a_directory(server: &Server) {
    let place = Place::new(server);
    let home = place.path("home");
    let beside = |command: &str, rest: Vec<OsString>| finish(granulo().args(["store", command]).arg(&home).args(rest));
    beside("init", args![]).ended(0);
    let tree = place.path("tree");
    make_tree(&tree);
    let both = |command: &str, rest: Vec<OsString>| {
        let here = place.run_on(command, &rest).ended(0);
        let there = beside(command, rest).ended(0);
        (here, there)
    };
    both("import", args!["--quiet", &tree]);
    both("put", args!["--quiet", "new/one", tree.join("large1")]);
    both("put", args!["--quiet", "d3/0003", tree.join("large2")]);
    both("rm", args!["d4/0004"]);
    both("rm", args!["-r", "d5"]);
    both("mv", args!["d6", "moved"]);
    both("ln", args!["d1/0001", "linked"]);
    for key in ["new/one", "d3/0003", "a b+c%20é&=?#", "empty", "linked", "moved/0006"] {
        let (here, there) = both("get", args![key]);
        assert!(here.stdout == there.stdout, "{key}");
    }
    let (here, there) = both("ls", args!["-R", "-0"]);
    assert_eq!(here.text(), there.text());
    let exported = [place.path("here"), place.path("there")];
    place.run_on("export", args!["--quiet", &exported[0]]).ended(0);
    beside("export", args!["--quiet", &exported[1]]).ended(0);
    assert_eq!(described(&exported[0]), described(&exported[1]));
    assert!(contents(&exported[0]) == contents(&exported[1]));
    place.check();
    place.run_on("compact", NO_MORE).ended(0);
    place.check();
    assert!(place.run_on("get", ["nothing"]).code != Some(0));
}

on_each_server!(a_store_equals_one_in_a_directory);
