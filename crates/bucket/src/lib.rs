//! Stores of granulo in buckets: [`connect`] reaches one in S3 and what speaks it (Ceph, MinIO), in Google Cloud
//! Storage or in Azure, as the trait `Objects` that the store is written for.
//!
//! The store itself needs nothing of this: a program that opens stores in buckets calls [`register`] once.
//!
//! - **One call is one request.** Nothing in here repeats a request: the store does, and knows what that means.
//! - **Conditions are verified** before the first conditional put: a bucket that ignores them is refused (`probe`).
//! - Credentials, region and endpoint are where the tools of each provider look for them.

mod address;
mod credentials;
mod errors;
mod objects;
mod probe;
mod service;
#[cfg(test)]
mod tests;
mod variables;

use std::sync::Arc;

use granulo_core::error::Result;
use granulo_store::bucket::{self, BucketOptions};
use granulo_store::objects::Objects;

use address::Address;
pub use address::SCHEMES;
use objects::RemoteObjects;
use probe::Probed;
use variables::Variables;

/// Makes stores with addresses of all [`SCHEMES`] reachable in this process.
///
/// ```
/// granulo_bucket::register();
/// ```
pub fn register() {
    for scheme in SCHEMES {
        bucket::register(scheme, Arc::new(connect));
    }
}

/// The objects below an address, such as `s3://BUCKET/PREFIX`; credentials come from the environment of this process.
///
/// Sends no request.
///
/// # Errors
/// [`Usage`](granulo_core::error::ErrorKind::Usage) for an address that is none, incomplete credentials or an
/// impossible setting.
pub fn connect(address: &str, options: &BucketOptions) -> Result<Arc<dyn Objects>> {
    connect_with(address, options, &Variables::of_process())
}

fn connect_with(address: &str, options: &BucketOptions, variables: &Variables) -> Result<Arc<dyn Objects>> {
    let objects = RemoteObjects::connect(Address::parse(address)?, options, variables)?;
    let verified = probe::verified_path(variables, objects.identity());
    Ok(Arc::new(Probed::new(objects, verified)))
}
