//! Images of ext2, ext3 and ext4: with any contents, a scan ends soon, and counts no more inodes than the image can
//! have; also after the checksums were made right again.
#![no_main]

use granulo::survey::Options;
use granulo::testing::scan::inodes::ext::{Ext, seal};
use granulo::testing::scan::inodes::{Scan, Scope};
use granulo::testing::survey::Collector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    scan(bytes);
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    if sealed != bytes {
        scan(&sealed);
    }
});

fn scan(bytes: &[u8]) {
    let Ok(source) = Ext::open(bytes, 1) else { return };
    for counted_by_name in [false, true] {
        let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
        let collector = Collector::new(&Options::default(), 1, 0, 20);
        let ended = Scan::new(&source, &collector, &scope).run(std::time::Duration::from_secs(60), || {});
        let survey = collector.survey();
        let inodes = bytes.len() as u64 / 128;
        assert!(survey.counts.files + survey.counts.directories <= inodes, "more inodes than room");
        assert!(ended.is_err() || survey.counts.directories > 0, "no root");
    }
}
