//! Reading granulo's JSON documents: the schema says the kind and the version, and a newer version is refused.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// Reads `text` as the JSON document of `schema` (such as `granulo/plan/1`). `None` if it is not JSON (also if it is
/// truncated) or has another schema. `advice` says how to get a new one.
///
/// # Errors
/// [`ErrorKind::NewerVersion`] if the kind is right and the version higher; [`ErrorKind::Corrupt`] if kind and version are
/// right and the rest is not.
pub(crate) fn read_document<T: DeserializeOwned>(
    operation: &'static str,
    schema: &str,
    advice: &str,
    text: &[u8],
) -> Option<Result<T>> {
    #[derive(Deserialize)]
    struct Schema {
        schema: String,
    }
    let (kind, version) = schema.rsplit_once('/')?;
    let version: u32 = version.parse().ok()?;
    let found_schema = serde_json::from_slice::<Schema>(text).ok()?.schema;
    let found_version = found_schema.strip_prefix(kind)?.strip_prefix('/')?;
    if found_version.parse::<u32>().is_ok_and(|found| found > version) {
        return Some(Err(Error::newer_version(operation, found_version, version)));
    }
    let read = serde_json::from_slice(text);
    Some(read.map_err(|error| Error::new(ErrorKind::Corrupt, operation, error.to_string()).advise(advice)))
}
