//! Addresses of stores in buckets: `SCHEME://BUCKET/PREFIX`.

use std::fmt;

use granulo_core::error::{Error, ErrorKind, Result};

/// Schemes of addresses.
pub const SCHEMES: [&str; 3] = ["s3", "gs", "az"];

/// Longest prefix in bytes: keys have at most 1,024, and the names in a store have up to 60.
const LONGEST_PREFIX_BYTES: usize = 900;

/// Whose protocol a bucket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    S3,
    Google,
    Azure,
}

/// A bucket, and the prefix of a store in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) provider: Provider,
    /// Of Azure: the container.
    pub(crate) bucket: String,
    /// Without slashes around it; empty for the whole bucket.
    pub(crate) prefix: String,
}

impl Address {
    /// # Errors
    /// [`Usage`](ErrorKind::Usage) if it is no address of a store.
    pub(crate) fn parse(text: &str) -> Result<Address> {
        let wrong = |cause: &str| {
            let error = Error::new(ErrorKind::Usage, "reach", cause).at(text.as_ref());
            error.advise("write, for example, s3://BUCKET/PREFIX")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it is not an address"))?;
        let provider = match scheme {
            "s3" => Provider::S3,
            "gs" => Provider::Google,
            "az" => Provider::Azure,
            _ => return Err(wrong("its scheme is not s3, gs or az")),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        if bucket.is_empty()
            || !bucket.starts_with(|first: char| first.is_ascii_alphanumeric())
            || !bucket.chars().all(is_name)
        {
            return Err(wrong("it does not name a bucket"));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(wrong("its prefix has an empty part, '.', '..' or a control character"));
        }
        if prefix.len() > LONGEST_PREFIX_BYTES {
            return Err(wrong("its prefix is too long"));
        }
        Ok(Address { provider, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The key of an object.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// The name of the object with this key, if it is of this store.
    pub(crate) fn name<'k>(&self, key: &'k str) -> Option<&'k str> {
        match self.prefix.as_str() {
            "" => Some(key),
            prefix => key.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.provider {
            Provider::S3 => "s3",
            Provider::Google => "gs",
            Provider::Azure => "az",
        };
        write!(f, "{scheme}://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_a_prefix() {
        for (text, bucket, prefix, shown) in [
            ("s3://bucket/a/b", "bucket", "a/b", "s3://bucket/a/b"),
            ("s3://bucket/a/b/", "bucket", "a/b", "s3://bucket/a/b"),
            ("gs://my.bucket_1", "my.bucket_1", "", "gs://my.bucket_1"),
            ("az://container/", "container", "", "az://container"),
            ("s3://bucket/100% b\u{e4}r", "bucket", "100% b\u{e4}r", "s3://bucket/100% b\u{e4}r"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.bucket.as_str(), address.prefix.as_str()), (bucket, prefix), "{text}");
            assert_eq!(address.to_string(), shown);
            assert_eq!(Address::parse(&address.to_string()).unwrap(), address);
            assert_eq!(address.name(&address.key("fast/1")), Some("fast/1"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "bucket/a",
            "s3:bucket",
            "ftp://bucket/a",
            "s3://",
            "s3:///a",
            "s3://bu cket",
            "s3://-b/a",
            "s3://b//a",
            "s3://b/a//b",
            "s3://b/../a",
            "s3://b/.",
            "s3://b/a\n",
            "s3://b/a//",
            "s3://user@b/a",
        ] {
            assert_eq!(Address::parse(text).unwrap_err().kind(), ErrorKind::Usage, "{text}");
        }
        assert!(Address::parse(&format!("s3://b/{}", "x".repeat(901))).is_err());
    }

    #[test]
    fn keys_of_others_have_no_name() {
        let address = Address::parse("s3://bucket/store").unwrap();
        assert_eq!(address.name("store2/manifest"), None);
        assert_eq!(address.name("store"), None);
    }
}
