//! What the integration tests and the fuzz targets of this workspace use besides the public interface. It exists only
//! with the feature `testing`, carries no promise, and may change at any time.

pub mod bench {
    //! The harness of benches, and their results.
    pub use crate::bench::{emulate, file_systems, fill, images, place, result, run};
}

pub mod report {
    //! Results for people.
    pub use crate::report::{bench, page, terminal, trace};
}

pub mod scan {
    //! Readers of the tables of whole file systems.
    pub use crate::scan::inodes;
}

pub mod survey {
    //! What a scan passes its entries to.
    pub use crate::survey::collect::Collector;
}

pub mod trace {
    //! A reader that would start a program first, and whole-file operations.
    pub use crate::trace::nfs::Reader as NfsReader;
    pub use crate::trace::whole::Whole;
}

pub mod fuzzing {
    //! Entry points for fuzzers: functions that take any bytes and panic only if a law is violated.
    pub use crate::trace::columnar::fuzzing::columnar;

    use crate::scan::{WalkOptions, walk::Walk};
    use crate::survey::checkpoint::with_header;
    use crate::survey::collect::Collector;
    use crate::survey::part::{Part, join, with_header as part_with_header};
    use crate::survey::{Checkpoint, Options};

    /// Lists and tables of sizes by other programs: what is read can be written, and is read back with the same files.
    ///
    /// # Panics
    /// If a law is violated.
    pub fn listed(bytes: &[u8]) {
        use crate::survey::{file, listed, measure::Measure};
        let Some(Ok((survey, _))) = listed::read(bytes, "fuzz") else { return };
        let sizes = survey.distributions.of(Measure::FileSize);
        assert_eq!(u128::from(survey.counts.files), sizes.count());
        let mut text = Vec::new();
        file::write(&survey, file::Detail::Full, &mut text).expect("memory takes every write");
        let again = file::read(&text, std::path::Path::new("fuzz")).expect("what was written is read");
        assert_eq!(again.distributions, survey.distributions);
    }

    /// Events of a watched file system, as read from the kernel.
    ///
    /// # Panics
    /// If a law is violated.
    pub fn watch_events(bytes: &[u8]) {
        crate::watch::fuzz_events(bytes);
    }

    /// Requests of the kernel to a mounted store, and access control lists.
    ///
    /// # Panics
    /// If a law is violated.
    #[cfg(feature = "fuse")]
    pub fn fuse_requests(bytes: &[u8]) {
        crate::fuse::fuzz_requests(bytes);
    }

    /// Whatever is read as a checkpoint without an error is restored or refused. The bytes are tried unchanged, and as
    /// a body behind a header with the right checksum.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn checkpoint(bytes: &[u8]) {
        let _ = Checkpoint::parse(bytes);
        let Ok(checkpoint) = Checkpoint::parse(&with_header(bytes)) else { return };
        let mut collector = Collector::new(&Options::default(), 1, 0, 20);
        if checkpoint.restore(&mut collector).is_err() {
            return;
        }
        if let Ok((walk, _)) = Walk::resume(WalkOptions::default(), &collector, &checkpoint.walk) {
            let _ = walk.is_finished();
        }
        let _ = collector.survey().size_bytes();
    }

    /// Whatever is read as a shard of a survey without an error is added up or refused. The bytes are tried unchanged,
    /// and as a body behind a header with the right checksum.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn part(bytes: &[u8]) {
        let _ = Part::parse(bytes);
        let Ok(part) = Part::parse(&part_with_header(bytes)) else { return };
        if let Ok(joined) = join(vec![part]) {
            let _ = joined.survey.size_bytes();
        }
    }
}
