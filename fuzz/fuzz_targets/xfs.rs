//! Images of XFS, in pieces: with any contents, a scan ends soon and finds a root or reports that there is none.
//! Checksums are ignored, because damaged blocks would get no further.
#![no_main]

mod pieces;

use granulo::testing::scan::inodes::xfs::Xfs;
use granulo::testing::scan::inodes::{Scan, Scope};
use granulo::survey::Options;
use granulo::testing::survey::Collector;
use libfuzzer_sys::fuzz_target;

use pieces::Pieces;

fuzz_target!(|bytes: &[u8]| {
    for counted_by_name in [false, true] {
        let Some(pieces) = Pieces::parse(bytes) else { return };
        let Ok(source) = Xfs::open(pieces, 1, true) else { return };
        let scope = Scope { counted_by_name, threads: 1, ..Scope::default() };
        let collector = Collector::new(&Options::default(), 1, 0, 20);
        let ended = Scan::new(&source, &collector, &scope).run(std::time::Duration::from_secs(60), || {});
        assert!(ended.is_err() || collector.survey().counts.directories > 0, "no root");
    }
});
