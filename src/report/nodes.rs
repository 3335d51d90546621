//! A JSON document as records, lists and plain values, with its fields in the order of the document.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Most parts that may be inside each other: as many as serde_json reads.
const MOST_DEPTH: usize = 127;

/// A part of a document.
#[derive(Debug)]
pub(crate) enum Node {
    Plain(Plain),
    Record(Vec<(String, Node)>),
    List(Vec<Node>),
}

/// A value that has no parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plain {
    Null,
    Flag(bool),
    /// As it is printed in Rust.
    Number(String),
    Text(String),
}

impl Plain {
    /// The value as text; nothing for `null`.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Plain::Null => Cow::Borrowed(""),
            Plain::Flag(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
            Plain::Number(text) | Plain::Text(text) => Cow::Borrowed(text),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node, D::Error> {
        Node::of(<&RawValue>::deserialize(from)?, 0).map_err(D::Error::custom)
    }
}

impl Node {
    /// The part of a document with this text, inside as many others.
    fn of(raw: &RawValue, depth: usize) -> serde_json::Result<Node> {
        if depth > MOST_DEPTH {
            return Err(Error::custom("it has too many parts inside each other"));
        }
        let text = raw.get();
        let inside = |raw: &RawValue| Node::of(raw, depth + 1);
        Ok(match text.as_bytes() {
            [b'{', ..] => {
                let Fields(fields) = serde_json::from_str(text)?;
                let fields = fields.into_iter().map(|(name, raw)| Ok((name, inside(raw)?)));
                Node::Record(fields.collect::<serde_json::Result<_>>()?)
            }
            [b'[', ..] => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                Node::List(items.into_iter().map(inside).collect::<serde_json::Result<_>>()?)
            }
            [b'"', ..] => Node::Plain(Plain::Text(serde_json::from_str(text)?)),
            b"null" => Node::Plain(Plain::Null),
            b"true" | b"false" => Node::Plain(Plain::Flag(text == "true")),
            _ => Node::Plain(Plain::Number(number(text)?)),
        })
    }
}

/// A number as it is printed. Sums of bytes may have more than 64 bits, which serde_json rounds.
fn number(text: &str) -> serde_json::Result<String> {
    match text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        true => Ok(text.to_owned()),
        false => Ok(serde_json::from_str::<f64>(text)?.to_string()),
    }
}

/// The fields of a record, in order.
struct Fields<'j>(Vec<(String, &'j RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields<'de>, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Fields<'de>, A::Error> {
        let mut record = Vec::new();
        while let Some(field) = fields.next_entry()? {
            record.push(field);
        }
        Ok(Fields(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_in(json: &str) -> String {
        match serde_json::from_str(json).unwrap() {
            Node::Plain(Plain::Number(text)) => text,
            other => panic!("{json}: {other:?}"),
        }
    }

    #[test]
    fn whole_numbers_are_exact_whatever_their_size() {
        let most = [u128::from(u64::MAX), u128::from(u64::MAX) + 1, u128::MAX].map(|number| number.to_string());
        let least = [i128::from(i64::MIN) - 1, i128::MIN].map(|number| number.to_string());
        for text in most.iter().chain(&least).map(String::as_str).chain(["0", "-1", "9007199254740993"]) {
            assert_eq!(number_in(text), text);
        }
        for (text, printed) in [("0.1", "0.1"), ("1e-7", "0.0000001"), ("2.50", "2.5"), ("1E3", "1000")] {
            assert_eq!(number_in(text), printed);
        }
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(serde_json::from_str::<Node>(&nested(MOST_DEPTH)).is_ok());
        let (deep, deeper) = (nested(MOST_DEPTH + 2), nested(1 << 14));
        let wrong = [&*deep, &*deeper, "", "{", "[1,]", "01", "-", "1 2", "{\"a\"}", "nul"];
        for text in wrong {
            assert!(serde_json::from_str::<Node>(text).is_err(), "{:.20}", text);
        }
    }
}
