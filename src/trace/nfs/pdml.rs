//! The PDML output of tshark, line by line: packets, protocols, and the fields that describe an operation.
//!
//! Of all output formats of tshark, this one keeps the order of fields if a packet has several calls, or a call (of
//! version 4) several operations.
//!
//! Lines are searched by own code, not parsed by the crate `quick-xml`, which is 2.5 times as slow here, requires UTF-8
//! of names and values, and keeps elements of any length in memory.

use crate::error::Result;
use crate::trace::input::Input;
use crate::trace::input::Line;

/// A longer line has the bytes of a file, which are not needed.
const LONGEST_LINE_BYTES: usize = 16 << 10;

/// Fields that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Source and destination of a packet.
    Source,
    Destination,
    /// Fields of calls and replies.
    Xid,
    MessageType,
    Program,
    Version,
    Procedure,
    ReplyState,
    AcceptState,
    /// Fields of operations.
    Handle,
    HandleHash,
    Name,
    Offset,
    Count,
    DataLength,
    Status,
    Size,
    SetSize,
    EntryName,
    Opcode,
    OpenType,
    FileType,
    MountPath,
}

/// Names of fields in several versions of tshark.
const FIELDS: [(&str, Field); 38] = [
    ("ip.src", Field::Source),
    ("ipv6.src", Field::Source),
    ("ip.dst", Field::Destination),
    ("ipv6.dst", Field::Destination),
    ("rpc.xid", Field::Xid),
    ("rpc.msgtyp", Field::MessageType),
    ("rpc.program", Field::Program),
    ("rpc.programversion", Field::Version),
    ("rpc.procedure", Field::Procedure),
    ("rpc.replystat", Field::ReplyState),
    ("rpc.state_accept", Field::AcceptState),
    ("nfs.fhandle", Field::Handle),
    ("nfs.fh.hash", Field::HandleHash),
    ("nfs.name", Field::Name),
    ("nfs.pathname.component", Field::Name),
    ("nfs.offset3", Field::Offset),
    ("nfs.offset4", Field::Offset),
    ("nfs.count3", Field::Count),
    ("nfs.count4", Field::Count),
    ("nfs.read.data_length", Field::DataLength),
    ("nfs.write.data_length", Field::DataLength),
    ("nfs.status", Field::Status),
    ("nfs.status2", Field::Status),
    ("nfs.status3", Field::Status),
    ("nfs.stat", Field::Status),
    ("nfs.nfsstat3", Field::Status),
    ("nfs.nfsstat4", Field::Status),
    ("nfs.fattr3.size", Field::Size),
    ("nfs.fattr4.size", Field::Size),
    ("nfs.set_size", Field::SetSize),
    ("nfs.set_size3.size", Field::SetSize),
    ("nfs.readdirplus.entry.name", Field::EntryName),
    ("nfs.opcode", Field::Opcode),
    ("nfs.open.opentype", Field::OpenType),
    ("nfs.nfs_ftype4", Field::FileType),
    ("nfs.createtype", Field::FileType),
    ("mount.path", Field::MountPath),
    ("mount.dump.directory", Field::MountPath),
];

/// Shown by tshark if a packet ends before its content.
const CUT: [&[u8]; 3] = [b"_ws.malformed", b"_ws.short", b"_ws.unreassembled"];

/// A relevant line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A packet begins.
    Packet,
    /// A packet ends.
    PacketEnd,
    /// Capture time, as text.
    Time(&'a [u8]),
    /// A protocol begins.
    Protocol(&'a [u8]),
    /// A field with its value, escaped as XML.
    Field(Field, &'a [u8]),
    /// A packet that tshark could not decode to its end.
    Malformed,
    /// The end of a complete output.
    End,
}

/// Parses a line.
pub(super) fn token(line: &[u8]) -> Option<Token<'_>> {
    let line = line.trim_ascii_start();
    if let Some(rest) = line.strip_prefix(b"<field ") {
        let name = attribute(rest, b"name=\"")?;
        if name == b"timestamp" {
            return attribute(rest, b" value=\"").map(Token::Time);
        }
        let (_, field) = FIELDS.iter().find(|(known, _)| known.as_bytes() == name)?;
        return Some(Token::Field(*field, attribute(rest, b" show=\"")?));
    }
    if let Some(rest) = line.strip_prefix(b"<proto ") {
        let name = attribute(rest, b"name=\"")?;
        return Some(if CUT.contains(&name) { Token::Malformed } else { Token::Protocol(name) });
    }
    match line {
        line if line.starts_with(b"<packet>") => Some(Token::Packet),
        line if line.starts_with(b"</packet>") => Some(Token::PacketEnd),
        line if line.starts_with(b"</pdml>") => Some(Token::End),
        _ => None,
    }
}

/// Reads up to the next relevant line and returns it; `false` at the end.
pub(super) fn next(input: &mut Input, line: &mut Vec<u8>) -> Result<bool> {
    loop {
        match input.line(line, LONGEST_LINE_BYTES)? {
            Line::End => return Ok(false),
            Line::TooLong => {}
            Line::Whole | Line::Last if token(line).is_some() => return Ok(true),
            Line::Whole | Line::Last => {}
        }
    }
}

fn attribute<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(name.len()).position(|window| window == name)? + name.len();
    let value = &text[at..];
    Some(&value[..value.iter().position(|&b| b == b'"')?])
}

/// A number as tshark prints it: decimal or with 0x.
pub(super) fn number(shown: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(shown).ok()?.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Nanoseconds from seconds and their fraction.
pub(super) fn time_ns(shown: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(shown).ok()?.trim();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Unescapes XML text.
pub(super) fn text(shown: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some(at) = rest.iter().position(|&b| b == b'&') {
        text.extend_from_slice(&rest[..at]);
        let named = [
            (&b"&amp;"[..], b'&'),
            (b"&lt;", b'<'),
            (b"&gt;", b'>'),
            (b"&quot;", b'"'),
            (b"&apos;", b'\''),
            (b"&#39;", b'\''),
            (b"&#x27;", b'\''),
        ];
        match named.iter().find(|(name, _)| rest[at..].starts_with(name)) {
            Some((name, byte)) => {
                text.push(*byte);
                rest = &rest[at + name.len()..];
            }
            None => {
                text.push(b'&');
                rest = &rest[at + 1..];
            }
        }
    }
    text.extend_from_slice(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        for (line, said) in [
            (&b"<packet>"[..], Some(Token::Packet)),
            (b"</packet>", Some(Token::PacketEnd)),
            (b"  <proto name=\"rpc\" showname=\"Remote\" size=\"72\" pos=\"66\">", Some(Token::Protocol(b"rpc"))),
            (
                b"    <field name=\"nfs.offset3\" showname=\"offset: 7\" size=\"8\" pos=\"1\" show=\"7\" value=\"07\"/>",
                Some(Token::Field(Field::Offset, b"7")),
            ),
            (b"    <field name=\"timestamp\" pos=\"0\" show=\"May\" showname=\"t\" value=\"1.5\" size=\"9\"/>", Some(Token::Time(b"1.5"))),
            (b"    <field name=\"nfs.offset3\"", None),
            (b"    <field name=\"nfs.other\" show=\"7\"/>", None),
            (b"    <field show=\"7\"/>", None),
            (b"<proto name=\"_ws.malformed\" showname=\"x\">", Some(Token::Malformed)),
            (b"", None),
        ] {
            assert_eq!(token(line), said, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn values_are_read() {
        assert_eq!((number(b"0x1f"), number(b"31"), number(b"x"), number(b"")), (Some(31), Some(31), None, None));
        assert_eq!(time_ns(b"1431000000.123456"), Some(1_431_000_000_123_456_000));
        assert_eq!((time_ns(b"7"), time_ns(b"-1.5"), time_ns(b"1.1234567890")), (Some(7_000_000_000), None, None));
        assert_eq!(text(b"a&lt;b&amp;&quot;c&&bogus;"), b"a<b&\"c&&bogus;");
    }
}
