//! One row per file, as Parquet, written as a stream: for DuckDB, Polars and other programs that read tables.
//!
//! Rows come from all threads of a scan and go through one writer thread, row group by row group, into a part beside
//! the target. A checkpoint closes the part and begins another, so that a resumed survey keeps its rows. At the end the
//! parts become the target, which appears atomically (several parts are joined by copying their column chunks without
//! decoding them). Parts that a checkpoint needs stay as long as that, whatever happens to the table.
//!
//! `path` is text (escaped, as everywhere, where a name is not UTF-8; `path_bytes` then has the bytes). Each path is
//! stored as its difference from the previous one (`DELTA_BYTE_ARRAY`), so that long common prefixes cost nothing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

use crate::error::{Error, ErrorKind, Result};
use crate::io::{AtomicFile, create_afresh};
use crate::scan::{Batch, Stat, Timestamp};
use crate::units::escape;

/// Rows of a row group: about 10 MiB in memory with paths of 100 bytes.
const GROUP_ROWS: usize = 64 << 10;
/// Rows of a column that are converted in one call.
const CHUNK_ROWS: usize = 4096;
/// Batches that may be queued for the writer before the scan blocks.
const QUEUE: usize = 16;
/// The operation that fails when the parts are not those that a checkpoint needs.
const RESUME: &str = "resume the table of files";

const SCHEMA: &str = "message file {
    required binary path (STRING);
    optional binary path_bytes;
    required int64 size_bytes (INTEGER(64,false));
    required int64 allocated_bytes (INTEGER(64,false));
    required int32 link_count (INTEGER(32,false));
    required int32 uid (INTEGER(32,false));
    required int32 gid (INTEGER(32,false));
    required int32 mode (INTEGER(16,false));
    required int64 device (INTEGER(64,false));
    required int64 inode (INTEGER(64,false));
    required int64 mtime (TIMESTAMP(MICROS,true));
    required int64 ctime (TIMESTAMP(MICROS,true));
    required int64 atime (TIMESTAMP(MICROS,true));
}";

enum Message {
    Rows(Batch),
    /// Closes the part and begins another; the reply is the number of closed parts.
    Cut(SyncSender<u32>),
}

/// A table of files that is being written.
#[derive(Debug)]
pub struct FileTable {
    target: PathBuf,
    first_part: u32,
    queue: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<(u32, Result<()>)>>,
}

impl FileTable {
    /// Begins a table at `target`.
    ///
    /// # Errors
    /// Any error of creating the first part.
    pub fn create(target: &Path) -> Result<FileTable> {
        Ok(FileTable::begin(target, 0, TablePart::create(target, 0)?))
    }

    /// Continues a table after `parts` closed parts, which have so many rows.
    ///
    /// # Errors
    /// Any error of creating the next part; [`ErrorKind::NotFound`] when a closed part is missing;
    /// [`ErrorKind::Corrupt`] when one is damaged, or they are not those that were closed.
    pub fn resume(target: &Path, parts: u32, rows: RangeInclusive<u64>) -> Result<FileTable> {
        let mut found = 0;
        for part in 0..parts {
            found += rows_of(&part_path(target, part))?;
        }
        if !rows.contains(&found) {
            let cause = "its parts have other rows: another survey has written there";
            return Err(Error::new(ErrorKind::Corrupt, RESUME, cause).at(target).advise("start the survey again"));
        }
        Ok(FileTable::begin(target, parts, TablePart::create(target, parts)?))
    }

    fn begin(target: &Path, parts: u32, first: TablePart) -> FileTable {
        let (queue, messages) = sync_channel(QUEUE);
        let owned_target = target.to_owned();
        let writer = std::thread::spawn(move || write_parts(&owned_target, first, parts, messages));
        FileTable { target: target.to_owned(), first_part: parts, queue: Some(queue), writer: Some(writer) }
    }

    /// Adds rows. After a failure they are dropped; [`complete`](Self::complete) reports the failure.
    pub fn add(&self, rows: Batch) {
        if let Some(queue) = self.queue.as_ref().filter(|_| !rows.is_empty()) {
            // A writer that failed has closed its end of the queue; joining it returns the error.
            let _ = queue.send(Message::Rows(rows));
        }
    }

    /// Closes the current part durably and returns the number of parts: what a checkpoint needs to resume.
    ///
    /// # Errors
    /// Something could not be written; [`complete`](Self::complete) and [`abandon`](Self::abandon) say what.
    pub fn cut(&self) -> Result<u32> {
        let (answer, parts) = sync_channel(1);
        // A writer that failed has closed its end of the queue.
        let sent = self.queue.as_ref().and_then(|queue| queue.send(Message::Cut(answer)).ok());
        sent.and_then(|()| parts.recv().ok()).ok_or_else(|| {
            let cause = "the table of files could not be written, and a checkpoint without its rows is of no use";
            Error::new(ErrorKind::Io, "write a checkpoint", cause).at(&self.target)
        })
    }

    /// Where the table will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Ends the writer; returns how many parts were closed before the last one.
    fn join(&mut self) -> (u32, Result<()>) {
        self.queue = None;
        let lost =
            || Error::new(ErrorKind::Io, "write the table of files", "its thread ended unexpectedly").at(&self.target);
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => (self.first_part, Err(lost())),
        }
    }

    /// Turns the parts into the target. They are removed afterwards, also after a failure, except for the first
    /// `keep_parts`, which a checkpoint needs: [`remove_parts`] removes them with it.
    ///
    /// # Errors
    /// The first error of any write since the beginning; the target is then unchanged.
    pub fn complete(mut self, keep_parts: u32) -> Result<()> {
        let (closed, written) = self.join();
        let paths: Vec<PathBuf> = (0..=closed).map(|part| part_path(&self.target, part)).collect();
        let done = written.and_then(|()| match &paths[..] {
            [only] => fs::rename(only, &self.target).map_err(|error| Error::io("write", &self.target, error)),
            several => concatenate(several, &self.target),
        });
        remove(&self.target, keep_parts..=closed);
        done
    }

    /// Discards the rows that no checkpoint covers; the first `keep_parts` are kept for a resumed survey.
    ///
    /// # Errors
    /// The first error of any write since the beginning.
    pub fn abandon(mut self, keep_parts: u32) -> Result<()> {
        let (closed, written) = self.join();
        remove(&self.target, keep_parts..=closed);
        written
    }
}

impl Drop for FileTable {
    /// Of a survey that failed, no checkpoint needs the part that was not closed.
    fn drop(&mut self) {
        if self.writer.is_some() {
            let (closed, _) = self.join();
            remove(&self.target, closed..=closed);
        }
    }
}

/// Removes the first `parts` of a table: those that a checkpoint needed.
pub(super) fn remove_parts(target: &Path, parts: u32) {
    // The last first: a checkpoint that names more than there are is not one of this table.
    let _ = (0..parts).rev().try_for_each(|part| fs::remove_file(part_path(target, part)));
}

fn remove(target: &Path, parts: RangeInclusive<u32>) {
    for part in parts {
        // What cannot be removed is in nobody's way.
        let _ = fs::remove_file(part_path(target, part));
    }
}

/// The number of rows of a closed part.
fn rows_of(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(|error| Error::io(RESUME, path, error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| {
        Error::new(ErrorKind::Corrupt, RESUME, error.to_string()).at(path).advise("start the survey again")
    })?;
    Ok(reader.metadata().file_metadata().num_rows().max(0) as u64)
}

fn part_path(target: &Path, part: u32) -> PathBuf {
    let mut name: OsString = target.as_os_str().to_owned();
    name.push(format!(".part-{part:04}"));
    PathBuf::from(name)
}

/// The writer thread: returns how many parts it closed before the last one.
fn write_parts(target: &Path, first: TablePart, parts: u32, messages: Receiver<Message>) -> (u32, Result<()>) {
    let mut closed = parts;
    let mut part = first;
    for message in messages {
        let done = match message {
            Message::Rows(rows) => part.add(&rows),
            Message::Cut(answer) => {
                let next = part.close().and_then(|()| {
                    closed += 1;
                    TablePart::create(target, closed)
                });
                match next {
                    Ok(next) => {
                        part = next;
                        let _ = answer.send(closed);
                        Ok(())
                    }
                    Err(error) => return (closed, Err(error)),
                }
            }
        };
        if let Err(error) = done {
            return (closed, Err(error));
        }
    }
    (closed, part.close())
}

fn schema() -> Result<TypePtr> {
    parse_message_type(SCHEMA)
        .map(Arc::new)
        .map_err(|error| Error::new(ErrorKind::Io, "write the table of files", error.to_string()))
}

fn properties() -> WriterPropertiesPtr {
    let path = ColumnPath::from("path");
    let properties = WriterProperties::builder()
        .set_created_by(concat!("granulo ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_column_dictionary_enabled(path.clone(), false)
        .set_column_encoding(path, Encoding::DELTA_BYTE_ARRAY);
    Arc::new(properties.build())
}

/// An open part of the table.
struct TablePart {
    path: PathBuf,
    file: File,
    writer: SerializedFileWriter<BufWriter<File>>,
    rows: Batch,
}

impl TablePart {
    fn create(target: &Path, number: u32) -> Result<TablePart> {
        let path = part_path(target, number);
        let fail = |error| Error::io("create a file for", target, error);
        let file = create_afresh(&path).map_err(fail)?;
        TablePart::on(target, path, file)
    }

    fn on(target: &Path, path: PathBuf, file: File) -> Result<TablePart> {
        let fail = |error| Error::io("create a file for", target, error);
        let out = BufWriter::new(file.try_clone().map_err(fail)?);
        let writer = SerializedFileWriter::new(out, schema()?, properties()).map_err(|e| parquet_error(target, e))?;
        Ok(TablePart { path, file, writer, rows: Batch::default() })
    }

    fn add(&mut self, rows: &Batch) -> Result<()> {
        self.rows.append(rows);
        if self.rows.len() >= GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let written = self.writer.next_row_group().and_then(|mut group| {
            write_columns(&mut group, &rows)?;
            group.close().map(|_| ())
        });
        written.map_err(|error| parquet_error(&self.path, error))
    }

    fn close(mut self) -> Result<()> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        let out = self.writer.into_inner().map_err(|error| parquet_error(&self.path, error))?;
        let flushed = out.into_inner().map_err(|error| error.into_error()).and_then(|mut file| file.flush());
        flushed.and_then(|()| self.file.sync_all()).map_err(|error| Error::io("write", &self.path, error))
    }
}

fn parquet_error(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => Error::io("write", path, *cause),
            Err(cause) => Error::new(ErrorKind::Io, "write", cause.to_string()).at(path),
        },
        other => Error::new(ErrorKind::Io, "write", other.to_string()).at(path),
    }
}

/// The columns of [`SCHEMA`], in its order.
fn write_columns(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    rows: &Batch,
) -> std::result::Result<(), ParquetError> {
    let is_text = |path: &[u8]| std::str::from_utf8(path).is_ok();
    let text = |path: &[u8]| ByteArray::from(if is_text(path) { path.to_vec() } else { escape(path).into_bytes() });
    write_chunks::<ByteArrayType>(group, rows, |(path, _)| Some(text(path)), false)?;
    let raw = |path: &[u8]| (!is_text(path)).then(|| ByteArray::from(path.to_vec()));
    write_chunks::<ByteArrayType>(group, rows, |(path, _)| raw(path), true)?;
    let long: [fn(&Stat) -> i64; 2] = [|s| s.size_bytes as i64, |s| s.allocated_bytes as i64];
    let short: [fn(&Stat) -> i32; 4] =
        [|s| s.link_count as i32, |s| s.uid as i32, |s| s.gid as i32, |s| i32::from(s.mode)];
    let identity: [fn(&Stat) -> i64; 2] = [|s| s.device as i64, |s| s.inode as i64];
    let times: [fn(&Stat) -> i64; 3] =
        [|s| microseconds(s.mtime), |s| microseconds(s.ctime), |s| microseconds(s.atime)];
    for value in long {
        write_chunks::<Int64Type>(group, rows, |(_, stat)| Some(value(stat)), false)?;
    }
    for value in short {
        write_chunks::<Int32Type>(group, rows, |(_, stat)| Some(value(stat)), false)?;
    }
    for value in identity.into_iter().chain(times) {
        write_chunks::<Int64Type>(group, rows, |(_, stat)| Some(value(stat)), false)?;
    }
    Ok(())
}

/// Microseconds since 1970, rounded down: the unit that every reader of Parquet knows. Values beyond the range of the
/// type are clamped to it.
fn microseconds(time: Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanoseconds / 1000))
}

/// Writes one column, a few thousand values in one call; `None` is missing, where the column is `optional`.
fn write_chunks<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    rows: &Batch,
    value: impl Fn((&[u8], &Stat)) -> Option<T::T>,
    optional: bool,
) -> std::result::Result<(), ParquetError> {
    let absent = || ParquetError::General("the table has fewer columns than its rows".to_owned());
    let mut column = group.next_column()?.ok_or_else(absent)?;
    let mut rows = rows.iter();
    loop {
        let chunk: Vec<Option<T::T>> = rows.by_ref().take(CHUNK_ROWS).map(&value).collect();
        if chunk.is_empty() {
            return column.close();
        }
        let defined: Vec<i16> = chunk.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<T::T> = chunk.into_iter().flatten().collect();
        column.typed::<T>().write_batch(&values, optional.then_some(&defined[..]), None)?;
    }
}

/// Copies the column chunks of all parts into one file.
fn concatenate(parts: &[PathBuf], target: &Path) -> Result<()> {
    let fail = |error| parquet_error(target, error);
    let whole = AtomicFile::create(target)?;
    let out = whole.file().map_err(|error| Error::io("write", target, error))?;
    let mut writer = SerializedFileWriter::new(BufWriter::new(out), schema()?, properties()).map_err(fail)?;
    for path in parts {
        let open = || File::open(path).map_err(|error| Error::io("read", path, error));
        let file = open()?;
        let reader = SerializedFileReader::new(open()?).map_err(|error| parquet_error(path, error))?;
        for group in reader.metadata().row_groups() {
            let mut copy = writer.next_row_group().map_err(fail)?;
            for column in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                copy.append_column(&file, close).map_err(fail)?;
            }
            copy.close().map_err(fail)?;
        }
    }
    writer.into_inner().map_err(fail)?.flush().map_err(|error| Error::io("write", target, error))?;
    whole.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Kind;
    use parquet::record::RowAccessor;

    fn rows(list: &[(&[u8], u64)]) -> Batch {
        let mut batch = Batch::default();
        list.iter().for_each(|(path, size_bytes)| batch.push(path, stat(*size_bytes)));
        batch
    }

    fn stat(size_bytes: u64) -> Stat {
        let time = |seconds| Timestamp { seconds, nanoseconds: 5 };
        Stat {
            kind: Kind::File,
            size_bytes,
            allocated_bytes: 4096,
            link_count: 1,
            uid: 1000,
            gid: 100,
            mode: 0o100644,
            device: 7,
            inode: u64::MAX,
            mtime: time(1_000_000_000),
            ctime: time(i64::MAX),
            atime: time(-1),
        }
    }

    /// The rows of a table.
    fn rows_in(target: &Path) -> Vec<parquet::record::Row> {
        let reader = SerializedFileReader::new(File::open(target).unwrap()).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    /// A table with one closed part of two rows.
    fn cut_once(target: &Path) -> FileTable {
        let table = FileTable::create(target).unwrap();
        table.add(rows(&[(b"a/b", 1), (b"a/\xff", 2)]));
        assert_eq!(table.cut().unwrap(), 1);
        table
    }

    #[test]
    fn parts_become_one_table_with_every_row() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("files.parquet");
        let first = cut_once(&target);
        first.add(rows(&[(b"lost", 3)]));
        first.abandon(1).unwrap();
        assert!(!target.exists());

        let resumed = FileTable::resume(&target, 1, 2..=2).unwrap();
        resumed.add(rows(&[(b"c", 1 << 40)]));
        resumed.complete(0).unwrap();
        let table = rows_in(&target);
        let paths: Vec<_> = table.iter().map(|row| row.get_string(0).unwrap().clone()).collect();
        assert_eq!(paths, ["a/b", "a/\\xff", "c"]);
        assert_eq!(table[1].get_bytes(1).unwrap().data(), b"a/\xff");
        assert_eq!(table[2].get_ulong(2).unwrap(), 1 << 40);
        assert_eq!(table[0].get_ulong(9).unwrap(), u64::MAX);
        assert_eq!(names(directory.path()), ["files.parquet"]);
    }

    #[test]
    fn parts_that_a_checkpoint_needs_stay_whatever_happens() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("files.parquet");
        // A directory has the name of the table.
        fs::create_dir(&target).unwrap();
        let table_of_two = cut_once(&target);
        table_of_two.add(rows(&[(b"c", 3)]));
        assert!(table_of_two.complete(1).is_err());
        assert_eq!(names(directory.path()), ["files.parquet", "files.parquet.part-0000"]);
        fs::remove_dir(&target).unwrap();

        // The next part cannot be created: what follows is lost, and so is the part that no checkpoint has.
        let blocked = part_path(&target, 2);
        fs::create_dir(&blocked).unwrap();
        let resumed = FileTable::resume(&target, 1, 2..=2).unwrap();
        resumed.add(rows(&[(b"lost", 3)]));
        assert!(resumed.cut().is_err(), "a checkpoint would lack rows");
        assert!(resumed.cut().is_err());
        assert!(resumed.complete(1).is_err());
        fs::remove_dir(&blocked).unwrap();
        assert_eq!(names(directory.path()), ["files.parquet.part-0000"]);

        // One that is dropped because of another error leaves them, and nothing of its own.
        drop(FileTable::resume(&target, 1, 2..=2).unwrap());
        assert_eq!(names(directory.path()), ["files.parquet.part-0000"]);

        // Also after success, because other results may fail.
        let resumed = FileTable::resume(&target, 1, 2..=2).unwrap();
        resumed.add(rows(&[(b"c", 3)]));
        resumed.complete(1).unwrap();
        assert_eq!(rows_in(&target).len(), 3);
        assert_eq!(names(directory.path()), ["files.parquet", "files.parquet.part-0000"]);
        remove_parts(&target, 1);
        assert_eq!(names(directory.path()), ["files.parquet"]);
    }

    #[test]
    fn parts_of_another_survey_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("files.parquet");
        cut_once(&target).abandon(1).unwrap();
        for wrong in [0..=1, 3..=9] {
            assert_eq!(FileTable::resume(&target, 1, wrong).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(FileTable::resume(&target, 2, 2..=2).unwrap_err().kind(), ErrorKind::NotFound);
        let part = part_path(&target, 0);
        let whole = fs::read(&part).unwrap();
        fs::write(&part, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(FileTable::resume(&target, 1, 2..=2).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_full_device_is_told_at_the_end() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("files.parquet");
        let file = File::options().write(true).open(full).unwrap();
        let table = FileTable::begin(&target, 0, TablePart::on(&target, part_path(&target, 0), file).unwrap());
        table.add(rows(&[(b"a", 1)]));
        assert_eq!(table.complete(0).unwrap_err().kind(), ErrorKind::NoSpace);
    }
}
