//! JSON documents of granulo's: recognised by their schema, a newer one refused by name.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// The JSON document of `schema` (`granulo/plan/1`) that `text` holds; `None` if it is something else. `again`: how to
/// get a new one, for the error.
///
/// # Errors
/// [`ErrorKind::NewerVersion`] and [`ErrorKind::Corrupt`], of what says that it is such a document.
pub fn read_document<T: DeserializeOwned>(
    operation: &'static str,
    schema: &str,
    again: &str,
    text: &[u8],
) -> Option<Result<T>> {
    #[derive(Deserialize)]
    struct Schema {
        schema: String,
    }
    let (kind, version) = schema.rsplit_once('/')?;
    let version: u32 = version.parse().ok()?;
    let found = serde_json::from_slice::<Schema>(text).ok()?.schema;
    let found = found.strip_prefix(kind)?.strip_prefix('/')?;
    if found.parse::<u32>().is_ok_and(|found| found > version) {
        let newer = Error::new(ErrorKind::NewerVersion, operation, format!("it has version {found}"));
        return Some(Err(newer.advise(format!("this granulo reads up to version {version}"))));
    }
    let read = serde_json::from_slice(text);
    Some(read.map_err(|error| Error::new(ErrorKind::Corrupt, operation, error.to_string()).advise(again)))
}
