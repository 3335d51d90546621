//! Bytes of a trace as a stream: a file, a pipe or standard input (`-`), decompressed if it is zstd or gzip, with
//! access to its head.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

/// Name of the operation in errors.
pub(super) const OPERATION: &str = "read the trace";

/// Bytes of the head, which can be examined before they are read.
const HEAD_BYTES: u64 = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];
/// Limit of the memory for decompression, as a power of two.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A stream of bytes.
pub struct Input {
    path: PathBuf,
    head: Vec<u8>,
    reader: Box<dyn BufRead + Send>,
    read_bytes: Arc<AtomicU64>,
    size_bytes: Option<u64>,
    cut: Arc<AtomicBool>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("path", &self.path).field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// Counts the bytes that pass.
struct Counting<R> {
    inner: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Decompresses; where the compressed data is truncated or damaged, the bytes end.
struct Unpacked<R> {
    inner: R,
    cut: Arc<AtomicBool>,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            // Errors of the system have a code; those of the decompressor have none.
            Err(error) if error.raw_os_error().is_none() && error.kind() != io::ErrorKind::Interrupted => {
                self.cut.store(true, Ordering::Relaxed);
                Ok(0)
            }
            read => read,
        }
    }
}

/// Result of [`Input::line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its newline.
    Whole,
    /// The text after the last newline: perhaps a truncated line.
    Last,
    /// The line was longer than the limit; the rest of it was skipped.
    TooLong,
    /// End of the input.
    End,
}

impl Input {
    /// Opens a file; `-` means standard input.
    ///
    /// # Errors
    /// Errors from opening it or reading its head.
    pub fn open(path: &Path) -> Result<Input> {
        if path.as_os_str() == "-" {
            return Input::new(path, io::stdin(), None);
        }
        let file = File::open(path).map_err(|error| Error::io(OPERATION, path, error))?;
        let metadata = file.metadata().map_err(|error| Error::io(OPERATION, path, error))?;
        Input::new(path, file, metadata.is_file().then_some(metadata.len()))
    }

    /// Bytes in memory.
    ///
    /// # Errors
    /// Memory has no errors.
    pub fn of_bytes(bytes: impl Into<Vec<u8>>) -> Result<Input> {
        let bytes = bytes.into();
        let size = bytes.len() as u64;
        Input::new(Path::new("(memory)"), Cursor::new(bytes), Some(size))
    }

    /// Any stream; errors refer to it as `path`.
    ///
    /// # Errors
    /// Errors from reading its head.
    pub fn new(path: &Path, stream: impl Read + Send + 'static, size_bytes: Option<u64>) -> Result<Input> {
        let fail = |error| Error::io(OPERATION, path, error);
        let read_bytes = Arc::new(AtomicU64::new(0));
        let mut stream = Counting { inner: stream, read_bytes: read_bytes.clone() };
        let mut magic = Vec::new();
        stream.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic).map_err(fail)?;
        let packing = magic.clone();
        let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(stream));
        let cut = Arc::new(AtomicBool::new(false));
        let mut reader: Box<dyn BufRead + Send> = if packing == ZSTD_MAGIC {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(whole).map_err(fail)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(fail)?;
            let unpacked = Unpacked { inner: decoder, cut: cut.clone() };
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else if packing.starts_with(&GZIP_MAGIC) {
            let unpacked = Unpacked { inner: MultiGzDecoder::new(whole), cut: cut.clone() };
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(whole)
        };
        let mut head = Vec::new();
        reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(fail)?;
        let reader = Box::new(Cursor::new(head.clone()).chain(reader));
        Ok(Input { path: path.to_owned(), head, reader, read_bytes, size_bytes, cut })
    }

    /// The first 64 KiB, or everything if there is less. Reading still returns them.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Its name in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes read from the file (compressed, if it is), and its size.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.read_bytes.load(Ordering::Relaxed), self.size_bytes)
    }

    /// Whether it was compressed, and truncated or damaged where the bytes end.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// The counter of bytes read, for use after the input was passed on.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.read_bytes.clone()
    }

    /// Reads the next line, without its newline, into `line`, replacing its content.
    ///
    /// # Errors
    /// Errors from reading.
    pub(super) fn line(&mut self, line: &mut Vec<u8>, longest_bytes: usize) -> Result<Line> {
        line.clear();
        let fail = |error| Error::io(OPERATION, &self.path, error);
        self.reader.by_ref().take(longest_bytes as u64 + 1).read_until(b'\n', line).map_err(fail)?;
        match line.last() {
            None => Ok(Line::End),
            Some(b'\n') => {
                line.pop();
                Ok(Line::Whole)
            }
            Some(_) if line.len() <= longest_bytes => Ok(Line::Last),
            Some(_) => {
                self.reader.skip_until(b'\n').map_err(fail)?;
                Ok(Line::TooLong)
            }
        }
    }

    /// Fills `buffer`, or as much as the input has left; returns the number of bytes.
    ///
    /// # Errors
    /// Errors from reading.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(OPERATION, &self.path, error)),
            }
        }
        Ok(filled)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// A number that consists only of digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_should() {
        let mut input = Input::of_bytes(b"one\n\nxxxxxxxxxx\ntwo").unwrap();
        assert_eq!(input.head(), b"one\n\nxxxxxxxxxx\ntwo");
        let mut line = Vec::new();
        let mut read = || (input.line(&mut line, 5).unwrap(), String::from_utf8(line.clone()).unwrap());
        assert_eq!(read(), (Line::Whole, "one".to_owned()));
        assert_eq!(read(), (Line::Whole, String::new()));
        assert_eq!(read().0, Line::TooLong);
        assert_eq!(read(), (Line::Last, "two".to_owned()));
        assert_eq!(read().0, Line::End);
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let text = b"a line\n".repeat(100_000);
        let packed = zstd::encode_all(&text[..], 1).unwrap();
        let mut input = Input::of_bytes(packed.clone()).unwrap();
        assert_eq!(input.head(), &text[..64 << 10]);
        let mut all = vec![0; text.len() + 10];
        assert_eq!(input.fill(&mut all).unwrap(), text.len());
        assert_eq!(all[..text.len()], text);
        assert_eq!(input.progress(), (packed.len() as u64, Some(packed.len() as u64)));
        assert!(!input.is_cut());
        let mut input = Input::of_bytes(packed[..packed.len() - 5].to_vec()).unwrap();
        assert!(input.fill(&mut all).unwrap() < text.len());
        assert!(input.is_cut());
    }
}
