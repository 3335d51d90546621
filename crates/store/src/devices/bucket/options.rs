//! How a store in a bucket is used.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// What S3 puts at once.
const LARGEST_OBJECT_BYTES: u64 = 5 << 30;

/// How a store in a bucket is used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketOptions {
    /// Size of the objects in bytes that a writer puts, if it has as much; also the memory that each file needs until
    /// then.
    pub object_bytes: u64,
    /// Objects that are put while more is written, each in memory until then; 0: writing waits for each.
    pub uploads: usize,
    /// How old what a reader knows may be before it asks for a newer version.
    pub poll: Duration,
    /// A directory for what processes on this machine have read of indexes, so that the next one need not; made when it
    /// is needed. Any number of stores and processes may share it. `None`: each process reads for itself.
    pub cache: Option<PathBuf>,
    /// Most bytes in that directory.
    pub cache_bytes: u64,
    /// URL of the server that the bucket is on, instead of the one that the connector finds.
    pub endpoint: Option<String>,
    /// Region of the bucket, instead of the one that the connector finds.
    pub region: Option<String>,
    /// Storage class of the objects for what is read at random: segments and the index. `None`: that of the writer
    /// before, or of the bucket.
    pub fast_class: Option<String>,
    /// Storage class of the objects for large files. `None`: the same.
    pub slow_class: Option<String>,
    /// How long an object outlives the last version with it: so long may a reader read an older one. `None`: as the
    /// writer before, or a day.
    pub grace: Option<Duration>,
}

impl Default for BucketOptions {
    fn default() -> BucketOptions {
        BucketOptions {
            object_bytes: 32 << 20,
            // Tests are to repeat what they did, request by request.
            uploads: if cfg!(test) { 0 } else { 2 },
            poll: Duration::from_millis(500),
            grace: None,
            cache: None,
            cache_bytes: 1 << 30,
            endpoint: None,
            region: None,
            fast_class: None,
            slow_class: None,
        }
    }
}

/// # Errors
/// Options that no bucket can follow.
pub(super) fn refuse_impossible(options: &BucketOptions) -> Result<()> {
    let mut classes = options.fast_class.iter().chain(&options.slow_class);
    let cause = match () {
        () if !(1..=LARGEST_OBJECT_BYTES).contains(&options.object_bytes) => "objects have 1 byte to 5 GiB",
        () if classes.any(|class| class.contains(char::is_control)) => "a storage class has a control character",
        () => return Ok(()),
    };
    Err(Error::new(ErrorKind::Usage, "open the store in", cause))
}
