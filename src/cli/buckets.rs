//! Stores in buckets: how their addresses are reached, and the options for that. Without the feature `bucket` there are
//! no such options, and an address is refused with what to do.

#[cfg(feature = "fuse")]
use std::ffi::OsString;
#[cfg(feature = "bucket")]
use std::path::PathBuf;
#[cfg(feature = "bucket")]
use std::time::Duration;

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
    /// Keep in this directory what is read of the index, for later commands and other processes; stores may share it
    /// [default: none]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "DIR", env = "GRANULO_BUCKET_CACHE", hide_env = true, help_heading = "Buckets")]
    bucket_cache: Option<PathBuf>,
    /// Largest size of that directory [default: 1GiB]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "bucket_cache", help_heading = "Buckets")]
    bucket_cache_size: Option<u64>,
}

/// How objects are put into a bucket.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct BucketToWrite {
    /// Storage class of what is put for random reads, by this command and later ones: small files and the index
    /// [default: as before, or that of the bucket]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "CLASS", env = "GRANULO_FAST_CLASS", hide_env = true, help_heading = "Buckets")]
    fast_class: Option<String>,
    /// Storage class of what is put of large files, by this command and later ones [default: as before, or that of the
    /// bucket]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "CLASS", env = "GRANULO_SLOW_CLASS", hide_env = true, help_heading = "Buckets")]
    slow_class: Option<String>,
    /// Size of the objects that are put, if there is as much at once: 64 KiB to 64 MiB [default: 32MiB]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "SIZE", value_parser = object_size, help_heading = "Buckets")]
    object_size: Option<u64>,
    /// Keep objects that nothing needs any more for this time, in which readers of older states may still read them;
    /// later commands, too [default: as before, or 1day]
    #[cfg(feature = "bucket")]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Buckets")]
    grace: Option<Duration>,
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
        options.cache = self.bucket_cache.clone().or(options.cache);
        options.cache_bytes = self.bucket_cache_size.unwrap_or(options.cache_bytes);
        options
    }

    /// The same as arguments.
    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let size = self.bucket_cache_size.map(|bytes| bytes.to_string());
        let given = [("--endpoint", &self.endpoint), ("--region", &self.region), ("--bucket-cache-size", &size)];
        let mut all = as_arguments(given);
        // A path need not be text.
        all.extend(self.bucket_cache.iter().map(|directory| {
            let mut argument = OsString::from("--bucket-cache=");
            argument.push(directory);
            argument
        }));
        all
    }
}

#[cfg(feature = "bucket")]
impl BucketToWrite {
    /// Other options, with these.
    pub(super) fn added_to(&self, mut options: BucketOptions) -> BucketOptions {
        options.fast_class = self.fast_class.clone().or(options.fast_class);
        options.slow_class = self.slow_class.clone().or(options.slow_class);
        options.object_bytes = self.object_size.unwrap_or(options.object_bytes);
        options.grace = self.grace.or(options.grace);
        options
    }

    /// The same as arguments.
    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let size = self.object_size.map(|bytes| bytes.to_string());
        let grace = self.grace.map(|time| humantime::format_duration(time).to_string());
        as_arguments([
            ("--fast-class", &self.fast_class),
            ("--slow-class", &self.slow_class),
            ("--object-size", &size),
            ("--grace", &grace),
        ])
    }
}

/// Options with the values that were given.
#[cfg(all(feature = "bucket", feature = "fuse"))]
fn as_arguments<const N: usize>(given: [(&str, &Option<String>); N]) -> Vec<OsString> {
    let written = |(name, value): (&str, &Option<String>)| Some(format!("{name}={}", value.as_ref()?).into());
    given.into_iter().filter_map(written).collect()
}

#[cfg(not(feature = "bucket"))]
impl BucketToRead {
    pub(super) fn added_to(&self, options: BucketOptions) -> BucketOptions {
        options
    }

    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<OsString> {
        Vec::new()
    }
}

#[cfg(not(feature = "bucket"))]
impl BucketToWrite {
    pub(super) fn added_to(&self, options: BucketOptions) -> BucketOptions {
        options
    }

    #[cfg(feature = "fuse")]
    pub(super) fn arguments(&self) -> Vec<OsString> {
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
