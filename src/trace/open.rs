//! Detects the format of a trace by its content, and selects its reader.

use std::path::Path;

use super::input::{Input, OPERATION};
use super::{Source, columnar, csv, darshan, nfs, strace};
use crate::error::{Error, ErrorKind, Result};

/// Format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// granulo's own columnar format.
    Granulo,
    /// Output of strace.
    Strace,
    /// NFS traffic: captured packets (pcap or pcapng), or what tshark printed of them (PDML).
    Pcap,
    /// A log of Darshan.
    Darshan,
    /// A table of operations as text.
    Csv,
}

impl Format {
    /// Every format with its name.
    pub const ALL: [(Format, &'static str); 5] = [
        (Format::Granulo, "granulo"),
        (Format::Strace, "strace"),
        (Format::Pcap, "pcap"),
        (Format::Darshan, "darshan"),
        (Format::Csv, "csv"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Format::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }
}

/// Detects the format of a trace by its beginning, decompressed ([`Input::head`]); `None` if it is unknown. Certain
/// signs come first, then guesses: strace and CSV.
pub fn detect(head: &[u8]) -> Option<Format> {
    /// pcap with microseconds and with nanoseconds, in both byte orders, and pcapng.
    const PCAP: [[u8; 4]; 5] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    /// At byte 8, in the byte order of the machine that wrote it.
    const DARSHAN: u64 = 6_567_223;
    if head.starts_with(columnar::MAGIC_ANY_VERSION) {
        return Some(Format::Granulo);
    }
    if PCAP.iter().any(|magic| head.starts_with(magic)) {
        return Some(Format::Pcap);
    }
    if let Some(magic) = head.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok())
        && [u64::from_le_bytes(magic), u64::from_be_bytes(magic)].contains(&DARSHAN)
    {
        return Some(Format::Darshan);
    }
    if head.starts_with(darshan::TEXT_MAGIC) {
        return Some(Format::Darshan);
    }
    // A capture that tshark has decoded before.
    if nfs::is_pdml(head) {
        return Some(Format::Pcap);
    }
    if strace::is_strace(head) {
        return Some(Format::Strace);
    }
    csv::Columns::guess(head).map(|_| Format::Csv)
}

/// Opens a reader of the operations in `path` (`-` for standard input), with the format specified or detected.
/// Captures and Darshan logs are decoded by tshark and darshan-parser, which are started here.
///
/// # Errors
/// Errors from opening and reading; such a program is missing; [`ErrorKind::NotRecognised`] if it is not a trace.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn Source>> {
    source_of(Input::open(path)?, format)
}

/// Creates a reader of the operations in an open input.
///
/// # Errors
/// Same as [`open`].
pub fn source_of(input: Input, format: Option<Format>) -> Result<Box<dyn Source>> {
    let path = input.path().to_owned();
    match format.or_else(|| detect(input.head())) {
        Some(Format::Granulo) => Ok(Box::new(columnar::Reader::new(input)?)),
        Some(Format::Strace) => Ok(Box::new(strace::Reader::new(input))),
        // Decoded by tshark before.
        Some(Format::Pcap) if nfs::is_pdml(input.head()) => Ok(Box::new(nfs::Reader::of_pdml(input))),
        Some(Format::Pcap) => Ok(Box::new(nfs::Reader::new(input)?)),
        Some(Format::Darshan) => Ok(Box::new(darshan::Reader::new(input)?)),
        Some(Format::Csv) => Ok(Box::new(csv::Reader::new(input, None)?)),
        None => Err(Error::new(ErrorKind::NotRecognised, OPERATION, "its format is not recognised")
            .at(&path)
            .advise("name the format with --format, or the columns of a table with --columns")),
    }
}

/// Opens a reader of the operations in a table (`-` for standard input) with these columns.
///
/// # Errors
/// Errors from opening and reading; columns that the table does not have.
pub fn open_table(path: &Path, columns: csv::Columns) -> Result<Box<dyn Source>> {
    Ok(Box::new(csv::Reader::new(Input::open(path)?, Some(columns))?))
}
