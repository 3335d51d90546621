//! Two surveys of a quiet tree are identical but for the times.

use std::fs;

use crate::args;
use crate::harness::{assert_same, sandbox, survey, write_file};
use crate::model::AS_OF;

#[test]
fn no_number_of_threads_changes_a_survey() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    let directories: Vec<_> =
        (0..60).map(|number| root.join(format!("{}/{}/d{number}", number % 3, number % 7))).collect();
    for number in 0..1500usize {
        let file = write_file(directories[number * 7 % 60].join(format!("f{number}.x{}", number % 5)), number % 977);
        for link in 0..number % 4 {
            let directory = &directories[(number * 31 + link * 17) % 60];
            fs::create_dir_all(directory).unwrap();
            fs::hard_link(&file, directory.join(format!("l{number}-{link}.y{link}"))).unwrap();
        }
    }
    for hard_links in ["once", "shared"] {
        let with = |threads: &str| {
            survey(args!["--as-of", AS_OF, "--method", "walk", "--hard-links", hard_links, "--threads", threads, &root])
        };
        let one = with("1");
        for threads in ["1", "2", "3", "8", "8", "8"] {
            assert_same(&one, &with(threads), &[]);
        }
    }
}

/// As a shell completes it.
#[test]
fn a_slash_behind_a_root_changes_nothing() {
    let sandbox = sandbox();
    let root = sandbox.path().join("tree");
    write_file(root.join("a/b"), 7000);
    write_file(root.join("c"), 5000);
    let of = |slashes: &str| {
        let mut root = root.clone().into_os_string();
        root.push(slashes);
        survey(args!["--as-of", AS_OF, "--method", "walk", root])
    };
    for slashes in ["/", "///"] {
        assert_same(&of(""), &of(slashes), &[]);
    }
}
