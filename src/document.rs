//! Reading granulo's JSON documents: the schema says the kind and the version, and a newer version is refused. So is a
//! string with an unprintable character other than a line feed or a tab: a document from elsewhere must not inject
//! terminal control sequences.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, ErrorKind, Result};
use crate::units::{escape, is_printable};

/// A JSON document of which only the schema was read.
pub(crate) struct Unread<'j> {
    json: &'j [u8],
    schema: String,
}

impl<'j> Unread<'j> {
    /// `None` if it is not JSON (also if it is truncated) or names no schema.
    pub(crate) fn new(json: &'j [u8]) -> Option<Unread<'j>> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        let Schema { schema } = serde_json::from_slice(json).ok()?;
        Some(Unread { json, schema })
    }

    /// Whether it is of the kind of `schema`, whatever its version.
    pub(crate) fn is_of(&self, schema: &str) -> bool {
        let kind = |schema: &str| schema.rsplit_once('/').map(|(kind, _)| kind.to_owned());
        kind(&self.schema).is_some_and(|found| Some(found) == kind(schema))
    }

    /// The major version of a document of granulo, of any kind; `None` if it is none.
    pub(crate) fn version(&self) -> Option<&str> {
        self.schema.strip_prefix("granulo/")?.split_once('/').map(|(_, version)| version)
    }

    /// Reads it if it is a document of `schema` (such as `granulo/plan/1`); an older version is read as this one.
    /// `None` if it has another schema. `advice` says how to get a new one.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] if the kind is right and the version higher; [`ErrorKind::Corrupt`] if neither is
    /// the case and the rest cannot be read, or has a string that is not printable.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        schema: &str,
        advice: &str,
    ) -> Option<Result<T>> {
        let (kind, version) = schema.rsplit_once('/')?;
        let version: u32 = version.parse().ok()?;
        let found_version = self.schema.strip_prefix(kind)?.strip_prefix('/')?;
        if !found_version.bytes().all(|byte| byte.is_ascii_digit()) || found_version.is_empty() {
            return None;
        }
        // One that does not even fit is newer.
        if found_version.parse::<u32>().map_or(true, |found| found > version) {
            return Some(Err(Error::newer_version(operation, found_version, version)));
        }
        let read = check_printable_strings(self.json).and_then(|()| serde_json::from_slice(self.json));
        Some(read.map_err(|error| Error::new(ErrorKind::Corrupt, operation, error.to_string()).advise(advice)))
    }
}

/// Checks that every string in a JSON document, and every name of a field, is printable but for line ends and tabs.
///
/// # Errors
/// At the first that is not, and if it is not JSON.
pub(crate) fn check_printable_strings(json: &[u8]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    PrintableStrings.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Visits a value for its strings.
#[derive(Clone, Copy)]
struct PrintableStrings;

impl<'de> DeserializeSeed<'de> for PrintableStrings {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PrintableStrings {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<(), E> {
        match text.chars().all(|c| is_printable(c) || matches!(c, '\n' | '\t')) {
            true => Ok(()),
            false => Err(E::custom(format!("the text \"{}\" has control characters", escape(text.as_bytes())))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while map.next_key_seed(self)?.is_some() {
            map.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> std::result::Result<(), A::Error> {
        while sequence.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_newer_or_no_number_is_not_read() {
        let read = |found: &str| {
            let json = format!(r#"{{"schema": "granulo/plan/{found}"}}"#);
            Unread::new(json.as_bytes())?.read::<serde_json::Value>("read", "granulo/plan/2", "")
        };
        for found in ["1", "2"] {
            assert!(read(found).unwrap().is_ok(), "{found}");
        }
        for found in ["3", "99999999999"] {
            assert_eq!(read(found).unwrap().unwrap_err().kind(), ErrorKind::NewerVersion, "{found}");
        }
        for found in ["x", "", "+2"] {
            assert!(read(found).is_none(), "{found}");
        }
    }

    #[test]
    fn texts_that_a_terminal_would_obey_are_refused() {
        for json in [r#"{"a": ["x", {"b": "c\td\ne"}], "ü": -1, "n": null, "f": 0.5, "t": true}"#, r#""a""#] {
            check_printable_strings(json.as_bytes()).expect(json);
        }
        for json in [r#"{"a": ["x", {"b": "\u001b[2J"}]}"#, r#"{"\u0007": 1}"#, "\"\u{202e}\"", "\"\u{9b}\""] {
            let error = check_printable_strings(json.as_bytes()).expect_err(json).to_string();
            assert!(error.contains("control characters") && error.chars().all(is_printable), "{error}");
        }
    }
}
