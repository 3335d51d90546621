//! `granulo store get --tar`: objects as an archive, to standard output or a file.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use super::progress::{transfer_words, with_total};
use super::target::Target;
use super::{Ended, output, say_reports, usage_error};
use crate::cli::progress::during;
use crate::cli::signals;
use crate::error::Result;
use crate::report::store::count_words;
use crate::store::tree::write_tar;
use crate::store::{Key, Store};
use crate::units::MIB;

#[derive(Serialize)]
struct ArchiveDocument {
    schema: &'static str,
    /// The first of `keys`.
    key: String,
    keys: Vec<String>,
    size_bytes: u64,
    from_byte: u64,
    written_bytes: u64,
    members: u64,
    left_out: u64,
    errors: u64,
}

/// Writes the objects at and below the keys.
pub(super) fn get(store: &Store, keys: Vec<Key>, path: Option<&Path>, quiet: bool, json: bool) -> Result<Ended> {
    if path.is_none() && io::stdout().is_terminal() {
        return Err(usage_error("an archive is not for a terminal").advise("redirect it, or name a file with -o"));
    }
    let mut target = Target::open(path)?;
    let progress = signals::progress()?;
    let mut stream =
        Counted { inner: BufWriter::with_capacity(MIB as usize, &mut target.file), written: 0, left: false };
    let archived = during(quiet, &progress, transfer_words, || {
        with_total(quiet, store, &keys, &progress, || write_tar(store, &keys, &mut stream, &progress))
    });
    let (written_bytes, has_reader_left) = (stream.written, stream.left);
    drop(stream);
    let summary = match archived {
        Err(_) if has_reader_left && target.is_standard_output() => return Ok(Ended::Well),
        archived => archived?,
    };
    if summary.interrupted {
        output::note("interrupted; the archive is truncated");
        return Ok(Ended::Amiss);
    }
    let is_amiss = say_reports(&summary.reports);
    if summary.left_out > 0 {
        let what = count_words(&[(summary.left_out, "socket", "sockets")]);
        output::warn(&format!("left out {what} that a tar archive cannot hold"));
    }
    target.commit()?;
    if json {
        let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        super::completeness::print_json(&ArchiveDocument {
            schema: "granulo/store-get/1",
            key: keys.first().cloned().unwrap_or_default(),
            keys,
            size_bytes: summary.content_bytes,
            from_byte: 0,
            written_bytes,
            members: summary.members,
            left_out: summary.left_out,
            errors: summary.reports.count,
        })?;
    }
    Ok(if is_amiss { Ended::Amiss } else { Ended::Well })
}

/// A stream that counts its bytes, and knows when its reader left.
struct Counted<W> {
    inner: W,
    written: u64,
    left: bool,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written =
            self.inner.write(bytes).inspect_err(|error| self.left |= error.kind() == io::ErrorKind::BrokenPipe)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().inspect_err(|error| self.left |= error.kind() == io::ErrorKind::BrokenPipe)
    }
}
