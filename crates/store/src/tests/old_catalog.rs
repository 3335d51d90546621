//! A catalog that lost its last changes: the log has what they said.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{bytes, file, key};
use crate::{
    CheckOptions, Choice, CompactOptions, OpenOptions, Plan, Progress, RepairOptions, Store, plan_repair,
    rebuild_index, repair,
};

const OBJECTS: u64 = 30;
const LARGE_BYTES: usize = 300_000;

fn journal(home: &Path) -> PathBuf {
    let index = fs::read_dir(home.join("index")).unwrap().map(|entry| entry.unwrap().path());
    let mut journals = index.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("journal-"));
    journals.next().unwrap()
}

fn check(store: &Store) -> Vec<String> {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
    store.check(options, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    problems
}

#[test]
fn what_the_log_has_released_is_not_missed_if_the_journal_is_damaged() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("s");
    let store = Store::create(&home, &Plan::default()).unwrap();
    for number in 0..OBJECTS {
        store.put(&key(&format!("small/{number}")), &file(), &bytes(number, 100)).unwrap();
    }
    store.put(&key("large"), &file(), &bytes(1, LARGE_BYTES)).unwrap();
    drop(store);
    // The manifest has the segment and the extent file that are released below.
    let store = rebuild_index(&home, &OpenOptions::default()).unwrap();
    store.compact(&CompactOptions { choice: Choice::All, ..CompactOptions::default() }, &Progress::default()).unwrap();
    drop(store);
    let whole = fs::read(journal(&home)).unwrap();
    let mut seen_damaged = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(journal(&home), damaged).unwrap();
        let reader = Store::open_read_only(&home).unwrap();
        assert!(reader.completeness().is_complete(), "byte {at}");
        let problems = check(&reader);
        let is_of_index =
            |problem: &String| problem.contains("journal is damaged") || problem.contains("it built a private one");
        assert!(problems.iter().all(is_of_index), "byte {at}: {problems:?}");
        seen_damaged += problems.len();
        drop(reader);
        fs::write(journal(&home), &whole).unwrap();
    }
    assert!(seen_damaged > 0);
    // And it is repaired.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(journal(&home), damaged).unwrap();
    let (how, quiet) = (OpenOptions::default(), Progress::default());
    let plan = plan_repair(&home, &how, None, &mut |_| {}, &quiet).unwrap();
    let report = repair(&home, &how, &plan, RepairOptions::default(), &mut |_, _| {}, &quiet).unwrap();
    assert_eq!((report.lost.len(), report.check.problems()), (0, 0), "{report:?}");
    let store = Store::open(&home).unwrap();
    assert_eq!(check(&store), Vec::<String>::new());
    assert_eq!(store.get(&key("large")).unwrap(), Some(bytes(1, LARGE_BYTES)));
    assert!((0..OBJECTS).all(|at| store.get(&key(&format!("small/{at}"))).unwrap() == Some(bytes(at, 100))));
}
