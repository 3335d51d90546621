//! RPC calls and replies, assembled from the tokens of a packet.

use super::pdml::{Field, Token, number, text, time_ns};

/// Largest number of fields of a call: enough for a directory of that many names.
const MOST_FIELDS: usize = 100_000;

/// A value; most are numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Bytes(Box<[u8]>),
}

/// A call or a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub time_ns: u64,
    pub source: Vec<u8>,
    pub destination: Vec<u8>,
    pub xid: Option<u64>,
    pub is_reply: bool,
    pub program: u64,
    pub version: u64,
    pub procedure: u64,
    /// Whether the reply says that the call was not even attempted.
    pub refused: bool,
    pub malformed: bool,
    /// Its fields, in order.
    pub fields: Vec<(Field, Value)>,
}

/// A handle and its hash; tshark may omit either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle<'a> {
    pub bytes: &'a [u8],
    pub hash: &'a [u8],
}

/// Fields of a message, or of one of its operations.
pub(super) type Fields<'a> = &'a [(Field, Value)];

/// The first number of a field.
pub(super) fn first(fields: Fields<'_>, field: Field) -> Option<u64> {
    fields.iter().find_map(|(known, value)| as_number(value).filter(|_| *known == field))
}

/// The last number of a field.
pub(super) fn last(fields: Fields<'_>, field: Field) -> Option<u64> {
    fields.iter().rev().find_map(|(known, value)| as_number(value).filter(|_| *known == field))
}

/// Names, in order.
pub(super) fn names(fields: Fields<'_>) -> impl Iterator<Item = &[u8]> {
    fields.iter().filter(|(field, _)| *field == Field::Name).filter_map(|(_, value)| as_bytes(value))
}

/// Length of what stands in for a missing hash: the last four bytes of the handle, as tshark shows them
/// ("aa:bb:cc:dd").
const STAND_IN_CHARACTERS: usize = 11;

/// The file handles, in order. Without its bytes a handle is identified by its hash; without a hash the last bytes of
/// the handle stand in for it.
pub(super) fn file_handles(fields: Fields<'_>) -> Vec<Handle<'_>> {
    let mut list: Vec<Handle<'_>> = Vec::new();
    let mut is_hash_alone = false;
    for (field, value) in fields {
        let Some(bytes) = as_bytes(value) else { continue };
        match field {
            // tshark has the hash before the bytes: until they come, the hash is in their place.
            Field::HandleHash => {
                list.push(Handle { bytes, hash: bytes });
                is_hash_alone = true;
            }
            Field::Handle => match list.last_mut().filter(|_| std::mem::take(&mut is_hash_alone)) {
                Some(handle) => handle.bytes = bytes,
                None => list.push(Handle { bytes, hash: &bytes[bytes.len().saturating_sub(STAND_IN_CHARACTERS)..] }),
            },
            _ => {}
        }
    }
    list
}

/// Names in a directory with their handles, as READDIRPLUS lists them.
pub(super) fn entries(fields: Fields<'_>) -> Vec<(&[u8], Handle<'_>)> {
    let starts: Vec<usize> = (0..fields.len()).filter(|&at| fields[at].0 == Field::EntryName).collect();
    let ends = starts.iter().skip(1).copied().chain([fields.len()]);
    let entry = |(start, end): (usize, usize)| {
        let handle = file_handles(&fields[start..end]).first().copied()?;
        Some((as_bytes(&fields[start].1)?, handle))
    };
    starts.iter().copied().zip(ends).filter_map(entry).collect()
}

fn as_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Bytes(_) => None,
    }
}

fn as_bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Number(_) => None,
        Value::Bytes(bytes) => Some(bytes),
    }
}

/// Assembles the messages of a packet from tokens.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    time_ns: Option<u64>,
    source: Vec<u8>,
    destination: Vec<u8>,
    message: Option<Message>,
    /// Number of packets read to their end.
    pub packets: u64,
    /// Number of messages that were skipped, because their packet has no time.
    pub undated: u64,
}

impl Assembler {
    /// Processes a token; returns the message that it ends.
    pub(super) fn take(&mut self, token: Token<'_>) -> Option<Message> {
        match token {
            Token::Packet => {
                self.time_ns = None;
                self.source.clear();
                self.destination.clear();
                return self.message.take().and_then(whole);
            }
            Token::PacketEnd => {
                self.packets += 1;
                return self.message.take().and_then(whole);
            }
            Token::Time(shown) => self.time_ns = time_ns(shown),
            Token::Protocol(b"rpc") => {
                let Some(time_ns) = self.time_ns else {
                    self.undated += 1;
                    return self.message.take().and_then(whole);
                };
                let next = Message {
                    time_ns,
                    source: self.source.clone(),
                    destination: self.destination.clone(),
                    ..Message::default()
                };
                return self.message.replace(next).and_then(whole);
            }
            Token::Malformed => {
                if let Some(message) = &mut self.message {
                    message.malformed = true;
                }
            }
            Token::Protocol(_) | Token::End => {}
            Token::Field(Field::Source, shown) if self.message.is_none() => self.source = shown.to_vec(),
            Token::Field(Field::Destination, shown) if self.message.is_none() => self.destination = shown.to_vec(),
            Token::Field(field, shown) => self.message.as_mut()?.field(field, shown),
        }
        None
    }
}

/// A message without an XID is the rest of one that began in a missing packet.
fn whole(message: Message) -> Option<Message> {
    message.xid.is_some().then_some(message)
}

impl Message {
    fn field(&mut self, field: Field, shown: &[u8]) {
        let value = number(shown);
        match field {
            Field::Xid => self.xid = self.xid.or(value),
            Field::MessageType => self.is_reply = value == Some(1),
            Field::Program => self.program = value.unwrap_or(0),
            Field::Version => self.version = value.unwrap_or(0),
            Field::Procedure => self.procedure = value.unwrap_or(0),
            Field::ReplyState | Field::AcceptState => self.refused |= value != Some(0),
            Field::Source | Field::Destination => {}
            _ if self.fields.len() >= MOST_FIELDS => {}
            Field::Handle | Field::HandleHash | Field::Name | Field::EntryName | Field::MountPath => {
                self.fields.push((field, Value::Bytes(text(shown).into())));
            }
            _ => self.fields.extend(value.map(|value| (field, Value::Number(value)))),
        }
    }
}
