//! Surveys of random trees: every number is that of [`crate::model`].

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::args;
use crate::harness::{assert_same, sandbox, survey};
use crate::model::{AS_OF, Model, Rules};

/// An entry of a random tree.
#[derive(Debug, Clone)]
enum Item {
    Directory,
    File(u64),
    /// A file of this size with only a last byte.
    Sparse(u64),
    Symlink(&'static str),
    /// Another name of an earlier file, in any directory.
    HardLink(usize),
    Fifo,
    Socket,
}

/// Directory, name, kind, and age in days.
type Planned = (usize, usize, Item, i64);

const STEMS: [&[u8]; 12] = [
    b"plain",
    b"README",
    b".hidden",
    b"two words",
    b"not\xff\xfeutf8",
    b"new\nline",
    b"\x1b]0;pwned\x07",
    b"back\\slash\\x41",
    "rechts\u{202e}links".as_bytes(),
    "データ".as_bytes(),
    b"<img src=x onerror=alert(1)>",
    b"UPPER",
];

const ENDINGS: [&[u8]; 9] = [b"", b".txt", b".TXT", b".7", b".", b".seventeen_letters", b".\xff", b".c++", b".b.c"];

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        1u64..5_000,
        (0u32..21, 0u64..3).prop_map(|(exponent, by)| ((1u64 << exponent) + by).saturating_sub(1)),
        65_000u64..600_000,
    ]
}

const TARGETS: [&str; 7] = ["plain", "/nowhere/at/all", "..", ".", "gone", "/", "a/b/../c"];

fn items() -> impl Strategy<Value = Item> {
    prop_oneof![
        3 => Just(Item::Directory),
        8 => sizes().prop_map(Item::File),
        2 => (10u32..40, any::<u32>()).prop_map(|(e, by)| Item::Sparse((1 << e) + u64::from(by))),
        2 => proptest::sample::select(&TARGETS[..]).prop_map(Item::Symlink),
        4 => any::<usize>().prop_map(Item::HardLink),
        1 => Just(Item::Fifo),
        1 => Just(Item::Socket),
    ]
}

fn plans() -> impl Strategy<Value = Vec<Planned>> {
    proptest::collection::vec((any::<usize>(), any::<usize>(), items(), -4000i64..4000), 0..45)
}

/// Makes the tree.
fn plant(root: &Path, plan: &[Planned]) {
    let mut directories = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    fs::create_dir(root).unwrap();
    for (index, (place, name, item, days)) in plan.iter().enumerate() {
        let directory = directories[place % directories.len()].clone();
        let ending = ENDINGS[(name / STEMS.len()) % ENDINGS.len()];
        let name = [STEMS[name % STEMS.len()], format!("-{index}").as_bytes(), ending].concat();
        let path = directory.join(OsStr::from_bytes(&name));
        match item {
            Item::Directory => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            Item::File(size) | Item::Sparse(size) => {
                let sparse = matches!(item, Item::Sparse(_));
                let file = File::create(&path).unwrap();
                if sparse {
                    file.set_len(*size).unwrap();
                } else {
                    fs::write(&path, vec![7; *size as usize]).unwrap();
                }
                let reference = SystemTime::UNIX_EPOCH + Duration::from_secs(Rules::default().reference as u64);
                let day = Duration::from_secs(86_400);
                let shift = day * days.unsigned_abs() as u32;
                let time = if *days < 0 { reference + shift } else { reference - shift };
                file.set_times(FileTimes::new().set_modified(time).set_accessed(time - day / 2)).unwrap();
                files.push(path);
            }
            Item::Symlink(target) => symlink(target, &path).unwrap(),
            Item::HardLink(_) if files.is_empty() => {}
            Item::HardLink(of) => fs::hard_link(&files[of % files.len()], &path).unwrap(),
            // A socket is made like a fifo: binding one has a limit on the length of the path.
            Item::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
            Item::Socket => mknodat(CWD, &path, FileType::Socket, Mode::from_raw_mode(0o600), 0).unwrap(),
        }
    }
}

/// Blocks may be allocated after files are written: repeats until nothing has changed meanwhile.
fn settled(roots: &[&Path], rules: &Rules, look: impl Fn() -> Value) -> (Model, Value) {
    for _ in 0..20 {
        let before = Model::of(roots, rules);
        let document = look();
        if before == Model::of(roots, rules) {
            return (before, document);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the tree does not come to rest");
}

/// Few, because each walks a file system; `PROPTEST_CASES` sets another number.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_number_of_a_random_tree_is_that_of_the_model(
        plan in plans(),
        hard_links in proptest::sample::select(&["once", "each", "shared"][..]),
        limit in 1usize..8,
        small in sizes(),
    ) {
        let sandbox = sandbox();
        let root = sandbox.path().join("t");
        plant(&root, &plan);
        let rules = Rules { hard_links, limit, small, ..Rules::default() };
        let with_threads = |threads: &str| {
            let mut arguments = args![&root, "--as-of", AS_OF, "--threads", threads, "--hard-links", hard_links];
            arguments.extend(args!["--top", limit.to_string(), "--small", small.to_string()]);
            survey(arguments)
        };
        let (model, document) = settled(&[&root], &rules, || with_threads("1"));
        model.check(&document, &rules);
        assert_same(&document, &with_threads("8"), &[]);
    }
}
