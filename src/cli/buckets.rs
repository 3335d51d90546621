//! Stores in buckets: how their addresses are reached, and the options for that. Without the feature `bucket` there are
//! no such options, and an address is refused with what to do.

use clap::Args;

use crate::store::bucket::BucketOptions;
#[cfg(feature = "bucket")]
use crate::units::parse_size;

/// Smallest size of objects: with smaller ones, what names them becomes longer than what they have.
#[cfg(feature = "bucket")]
const SMALLEST_OBJECT_BYTES: u64 = 64 << 10;
/// Largest one: a request has to send it before it times out.
#[cfg(feature = "bucket")]
const LARGEST_OBJECT_BYTES: u64 = 64 << 20;

/// How a bucket is reached.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct BucketToRead {
    /// URL of the server that the bucket is on, such as http://127.0.0.1:9000 [default: AWS_ENDPOINT_URL_S3,
    /// AWS_ENDPOINT_URL, or that of the provider]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "URL", help_heading = "Buckets")]
    endpoint: Option<String>,
    /// Region of the bucket [default: AWS_REGION, or that of AWS_PROFILE]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "NAME", help_heading = "Buckets")]
    region: Option<String>,
}

/// How objects are put into a bucket.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct BucketToWrite {
    /// Storage class of what this command puts for random reads: small files and the index [default: that of the
    /// bucket]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "CLASS", env = "GRANULO_FAST_CLASS", hide_env = true, help_heading = "Buckets")]
    fast_class: Option<String>,
    /// Storage class of what this command puts of large files [default: that of the bucket]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "CLASS", env = "GRANULO_SLOW_CLASS", hide_env = true, help_heading = "Buckets")]
    slow_class: Option<String>,
    /// Size of the objects that are put, if there is as much at once: 64 KiB to 64 MiB [default: 32MiB]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "SIZE", value_parser = object_size, help_heading = "Buckets")]
    object_size: Option<u64>,
}

#[cfg(feature = "bucket")]
fn object_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let is_possible = (SMALLEST_OBJECT_BYTES..=LARGEST_OBJECT_BYTES).contains(&bytes);
    is_possible.then_some(bytes).ok_or_else(|| "it must be from 64KiB to 64MiB".to_owned())
}

impl BucketToRead {
    pub(super) fn options(&self) -> BucketOptions {
        self.added_to(BucketOptions::default())
    }
}

#[cfg(feature = "bucket")]
impl BucketToRead {
    /// Other options, with these.
    pub(super) fn added_to(&self, mut options: BucketOptions) -> BucketOptions {
        options.endpoint = self.endpoint.clone().or(options.endpoint);
        options.region = self.region.clone().or(options.region);
        options
    }

    /// The same as arguments.
    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<String> {
        let given = [("--endpoint", &self.endpoint), ("--region", &self.region)];
        given.into_iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}"))).collect()
    }
}

#[cfg(feature = "bucket")]
impl BucketToWrite {
    /// Other options, with these.
    pub(super) fn added_to(&self, mut options: BucketOptions) -> BucketOptions {
        options.fast_class = self.fast_class.clone().or(options.fast_class);
        options.slow_class = self.slow_class.clone().or(options.slow_class);
        options.object_bytes = self.object_size.unwrap_or(options.object_bytes);
        options
    }

    /// The same as arguments.
    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<String> {
        let size = self.object_size.map(|bytes| bytes.to_string());
        let given = [("--fast-class", &self.fast_class), ("--slow-class", &self.slow_class), ("--object-size", &size)];
        given.into_iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}"))).collect()
    }
}

#[cfg(not(feature = "bucket"))]
impl BucketToRead {
    pub(super) fn added_to(&self, options: BucketOptions) -> BucketOptions {
        options
    }

    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(not(feature = "bucket"))]
impl BucketToWrite {
    pub(super) fn added_to(&self, options: BucketOptions) -> BucketOptions {
        options
    }

    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Makes addresses of buckets known to this process: from then on, a store may be at one.
#[cfg(feature = "bucket")]
pub(super) fn register() {
    granulo_bucket::register();
}

/// Makes addresses of buckets known to this process, to say that this program cannot reach them.
#[cfg(not(feature = "bucket"))]
pub(super) fn register() {
    use crate::error::{Error, ErrorKind};
    use crate::store::bucket;

    for scheme in ["s3", "gs", "az"] {
        let refuse = |address: &str, _: &BucketOptions| {
            let error = Error::new(ErrorKind::Usage, "reach", "this granulo was built without buckets");
            Err(error.at(address.as_ref()).advise("build it with cargo build --release --features bucket"))
        };
        bucket::register(scheme, std::sync::Arc::new(refuse));
    }
}
