//! A JSON document as records, lists and plain values, with its fields in the order of the document.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

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
        from.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

fn number<E>(value: impl ToString) -> Result<Node, E> {
    Ok(Node::Plain(Plain::Number(value.to_string())))
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Plain::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Plain(Plain::Flag(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        number(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        number(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        number(value)
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Plain(Plain::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut record = Vec::new();
        while let Some(field) = fields.next_entry()? {
            record.push(field);
        }
        Ok(Node::Record(record))
    }
}
