//! The platform of a store by the address of its home: a path is on this machine, `SCHEME://…` in a bucket, if somebody
//! has registered how such buckets are reached.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::bucket::BucketOptions;
use super::bucket::platform::BucketPlatform;
use super::bucket::volume::Volume;
use super::host::Host;
use super::objects::Objects;
use super::platform::Platform;
use super::published::Surroundings;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::address_scheme;
use crate::locks::lock;

/// Connects to the bucket at an address.
pub type Connector = Arc<dyn Fn(&str, &BucketOptions) -> Result<Arc<dyn Objects>> + Send + Sync>;

/// By scheme.
static CONNECTORS: Mutex<BTreeMap<String, Connector>> = Mutex::new(BTreeMap::new());

/// Registers how buckets of a scheme are reached: from then on, a store may have an address `SCHEME://…`.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use granulo_store::objects::Memory;
/// use granulo_store::{Attributes, Key, Plan, Store, Time, bucket};
///
/// let bucket = Arc::new(Memory::default());
/// bucket::register("example", Arc::new(move |_, _| Ok(bucket.clone())));
///
/// let home = Path::new("example://bucket/store");
/// let store = Store::create(home, &Plan::default())?;
/// store.put(&Key::parse("a")?, &Attributes::of_file(Time { seconds: 0, nanoseconds: 0 }), b"content")?;
/// let reader = Store::open_read_only(home)?;
/// assert_eq!(reader.get(&Key::parse("a")?)?.unwrap(), b"content");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register(scheme: &str, connector: Connector) {
    lock(&CONNECTORS).insert(scheme.to_owned(), connector);
}

/// Whether a path is the address of a store in a bucket, `SCHEME://…`, and none of a directory.
pub fn is_address(path: &Path) -> bool {
    address_scheme(path).is_some()
}

/// The platform of the store at `home`.
///
/// # Errors
/// [`ErrorKind::Usage`] for an address with an unknown scheme; the bucket cannot be reached, or what it has is damaged.
pub(crate) fn of(home: &Path, options: &BucketOptions) -> Result<Arc<dyn Platform>> {
    let Some(scheme) = address_scheme(home) else { return Ok(Arc::new(Host)) };
    let connector = lock(&CONNECTORS).get(scheme).cloned();
    let Some(connector) = connector else {
        let error = Error::new(ErrorKind::Usage, "open the store", format!("{scheme}:// is not supported here"));
        return Err(error.at(home));
    };
    let objects = connector(&home.to_string_lossy(), options)?;
    let volume = Volume::open(objects, surroundings(), options.clone())?;
    Ok(Arc::new(BucketPlatform::new(home, volume)))
}

#[cfg(not(test))]
fn surroundings() -> Arc<dyn Surroundings> {
    Arc::new(super::published::Machine::default())
}

/// A process that every other one takes for dead: tests kill what they open by forgetting it.
#[cfg(test)]
fn surroundings() -> Arc<dyn Surroundings> {
    crate::simulation::machines::survivor()
}
