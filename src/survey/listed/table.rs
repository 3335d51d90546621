//! A table of files as Parquet: what `--files-out` wrote, or what a query made of it (`COPY … TO` of DuckDB).
//!
//! One row is one file. `size_bytes` must be there; `allocated_bytes`, `uid`, and the names in `path` are counted where
//! they are; other columns are ignored. Columns are read side by side, some thousand rows at a time, so memory does not
//! grow with the table. Tables that other programs wrote may have other integers, and nulls where they are allowed; a
//! file without a size is left out and reported.
//!
//! The crate that decodes Parquet promises no error for every damaged file, so a panic in it is one here.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::basic::LogicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::{Listed, MOST_FILE_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::survey::Survey;
use crate::units::{escape, format_counted};

/// How every Parquet file begins and ends.
const MAGIC: &[u8; 4] = b"PAR1";
/// How the crate says that it was built without a codec.
const CODEC_LEFT_OUT: &str = "Disabled feature at compile time:";
/// Rows that are decoded at once.
const CHUNK_ROWS: usize = 4096;

/// Whether a file begins as a table does.
pub(crate) fn looks_like(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    is_file && File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && &first == MAGIC
}

/// Reads a table. Also returns warnings, in sentences.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it cannot be read to its end, [`ErrorKind::NotRecognised`] if it has no sizes.
pub(crate) fn read(path: &Path) -> Result<(Survey, Vec<String>)> {
    const OPERATION: &str = "read the table of files";
    let file = File::open(path).map_err(|error| Error::io(OPERATION, path, error))?;
    let panicked = |_| Err(Problem::Damaged("its encoding is damaged".to_owned()));
    match catch_unwind(AssertUnwindSafe(|| count(file))).unwrap_or_else(panicked) {
        Ok(listed) => Ok(listed.survey()),
        Err(Problem::Damaged(cause)) => Err(Error::new(ErrorKind::Corrupt, OPERATION, cause).at(path)),
        Err(Problem::WithoutSizes) => {
            let cause = "it has no column size_bytes of integers";
            let error = Error::new(ErrorKind::NotRecognised, OPERATION, cause).at(path);
            Err(error.advise("name it so in a query: SELECT … AS size_bytes, allocated_bytes, uid, path"))
        }
    }
}

/// Why a table is not read.
enum Problem {
    Damaged(String),
    WithoutSizes,
}

impl From<ParquetError> for Problem {
    fn from(error: ParquetError) -> Problem {
        let words = error.to_string();
        let damaged = || "it is not a whole table, or damaged".to_owned();
        let codec = words.split_once(CODEC_LEFT_OUT).map(|(_, codec)| codec.trim());
        Problem::Damaged(codec.map_or_else(damaged, |codec| {
            format!("it is compressed with {}: write it with Snappy or without compression", escape(codec.as_bytes()))
        }))
    }
}

/// Where the columns are.
struct Columns {
    size: usize,
    allocated: Option<usize>,
    uid: Option<usize>,
    path: Option<usize>,
}

impl Columns {
    fn of(schema: &SchemaDescriptor) -> std::result::Result<Columns, Problem> {
        // One value per row: neither nested nor repeated. Types are checked when rows are read.
        let find = |name: &str| {
            let is_it = |column: &parquet::schema::types::ColumnDescPtr| {
                column.path().parts() == [name] && column.max_rep_level() == 0 && column.max_def_level() < 2
            };
            schema.columns().iter().position(is_it)
        };
        let size = find("size_bytes").ok_or(Problem::WithoutSizes)?;
        Ok(Columns { size, allocated: find("allocated_bytes"), uid: find("uid"), path: find("path") })
    }
}

fn count(file: File) -> std::result::Result<Listed, Problem> {
    let reader = SerializedFileReader::new(file)?;
    let columns = Columns::of(reader.metadata().file_metadata().schema_descr())?;
    let (mut listed, mut without_size) = (Listed::new(), 0);
    for group in 0..reader.num_row_groups() {
        without_size += count_group(&*reader.get_row_group(group)?, &columns, &mut listed)?;
    }
    if without_size > 0 {
        let files = format_counted(without_size, "row", "rows");
        listed.warnings.push(format!("{files} without a size are left out"));
    }
    Ok(listed)
}

/// Counts the files of a row group; returns how many have no size.
fn count_group(
    group: &dyn RowGroupReader,
    columns: &Columns,
    listed: &mut Listed,
) -> std::result::Result<u64, Problem> {
    let numbers = |column: Option<usize>| column.map(|column| Numbers::of(group, column)).transpose();
    let mut sizes = Numbers::of(group, columns.size)?.ok_or(Problem::WithoutSizes)?;
    let (mut allocated, mut uids) = (numbers(columns.allocated)?.flatten(), numbers(columns.uid)?.flatten());
    let mut paths = columns.path.map(|column| texts(group, column)).transpose()?.flatten();
    let mut without_size = 0;
    loop {
        let sizes = sizes.next()?;
        if sizes.is_empty() {
            return Ok(without_size);
        }
        let beside = |column: &mut Option<Numbers>| match column {
            Some(column) => column.next(),
            None => Ok(vec![None; sizes.len()]),
        };
        let (allocated, uids) = (beside(&mut allocated)?, beside(&mut uids)?);
        let paths = match &mut paths {
            Some(paths) => paths.next(|path| path.data().to_vec())?,
            None => vec![None; sizes.len()],
        };
        if [allocated.len(), uids.len(), paths.len()] != [sizes.len(); 3] {
            return Err(Problem::Damaged("its columns differ in length".to_owned()));
        }
        for (((size, allocated), uid), path) in sizes.into_iter().zip(allocated).zip(uids).zip(paths) {
            let Some(size_bytes) = size else {
                without_size += 1;
                continue;
            };
            if size_bytes.max(allocated.unwrap_or(0)) > MOST_FILE_BYTES {
                return Err(Problem::Damaged(format!("a file has {size_bytes} bytes")));
            }
            listed.add(size_bytes, allocated, path.as_deref());
            if let Some(uid) = uid.and_then(|uid| u32::try_from(uid).ok()) {
                listed.add_owner(uid, size_bytes, allocated);
            }
        }
    }
}

/// A column of a row group.
struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    /// Whether rows may have no value.
    has_nulls: bool,
    levels: Vec<i16>,
    values: Vec<T::T>,
}

impl<T: DataType> Column<T> {
    fn new(reader: ColumnReaderImpl<T>, group: &dyn RowGroupReader, column: usize) -> Column<T> {
        let has_nulls = group.metadata().column(column).column_descr().max_def_level() > 0;
        Column { reader, has_nulls, levels: Vec::new(), values: Vec::new() }
    }

    /// The next rows, none at the end.
    fn next<V>(&mut self, value: impl Fn(&T::T) -> V) -> std::result::Result<Vec<Option<V>>, Problem> {
        self.levels.clear();
        self.values.clear();
        let levels = self.has_nulls.then_some(&mut self.levels);
        let (rows, ..) = self.reader.read_records(CHUNK_ROWS, levels, None, &mut self.values)?;
        let mut values = self.values.iter();
        let is_there = |row: usize| !self.has_nulls || self.levels.get(row).is_some_and(|&level| level > 0);
        Ok((0..rows).map(|row| if is_there(row) { values.next().map(&value) } else { None }).collect())
    }
}

/// A column of texts; `None` if it has something else.
fn texts(group: &dyn RowGroupReader, column: usize) -> std::result::Result<Option<Column<ByteArrayType>>, Problem> {
    Ok(match group.get_column_reader(column)? {
        ColumnReader::ByteArrayColumnReader(reader) => Some(Column::new(reader, group, column)),
        _ => None,
    })
}

/// A column of integers that are not negative, of either width; of the narrow ones, whether they have no sign.
enum Numbers {
    Wide(Column<Int64Type>),
    Narrow(Column<Int32Type>, bool),
}

impl Numbers {
    /// `None` if the column has something else.
    fn of(group: &dyn RowGroupReader, column: usize) -> std::result::Result<Option<Numbers>, Problem> {
        let logical_type = group.metadata().column(column).column_descr().logical_type_ref().cloned();
        let is_unsigned = match logical_type {
            None => false,
            Some(LogicalType::Integer(integer)) => !integer.is_signed,
            // A decimal, a time: integers only as they are stored.
            Some(_) => return Ok(None),
        };
        Ok(match group.get_column_reader(column)? {
            ColumnReader::Int64ColumnReader(reader) => Some(Numbers::Wide(Column::new(reader, group, column))),
            ColumnReader::Int32ColumnReader(reader) => {
                Some(Numbers::Narrow(Column::new(reader, group, column), is_unsigned))
            }
            _ => None,
        })
    }

    /// Negative numbers are those of an unsigned column above half of its range; others come out larger than any size.
    fn next(&mut self) -> std::result::Result<Vec<Option<u64>>, Problem> {
        match self {
            Numbers::Wide(column) => column.next(|&value| value as u64),
            Numbers::Narrow(column, true) => column.next(|&value| u64::from(value as u32)),
            Numbers::Narrow(column, false) => column.next(|&value| i64::from(value) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::ByteArray;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::survey::measure::Measure;

    /// A table with rows of which some have no size, as a query may write it.
    fn write(path: &Path, sizes: &[Option<i32>]) {
        write_as("", path, sizes);
    }

    /// The same, with a logical type of the sizes.
    fn write_as(logical_type: &str, path: &Path, sizes: &[Option<i32>]) {
        let schema =
            format!("message q {{ optional int32 size_bytes {logical_type}; optional binary path (STRING); }}");
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let defined: Vec<i16> = sizes.iter().map(|size| i16::from(size.is_some())).collect();
        let values: Vec<i32> = sizes.iter().flatten().copied().collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&values, Some(&defined), None).unwrap();
        column.close().unwrap();
        let names: Vec<ByteArray> = sizes.iter().map(|_| ByteArray::from("d/a.txt")).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&names, Some(&vec![1; names.len()]), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn rows_without_a_size_are_left_out_and_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        // More than one chunk.
        let sizes: Vec<Option<i32>> = (0..10_000).map(|row| (row % 10 != 3).then_some(row)).collect();
        write(&path, &sizes);
        assert!(looks_like(&path) && !looks_like(directory.path()));
        let (survey, warnings) = read(&path).unwrap();
        assert_eq!((survey.counts.files, survey.counts.empty_files), (9_000, 1));
        assert_eq!(survey.size_bytes(), sizes.iter().flatten().map(|&size| size as u128).sum::<u128>());
        assert_eq!(survey.distributions.of(Measure::Allocated).count(), 0);
        assert_eq!(survey.places.unwrap().extensions.ranked()[0].1.files, 9_000);
        assert_eq!(warnings, ["1,000 rows without a size are left out"]);
    }

    #[test]
    fn numbers_are_what_their_type_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        let sizes = [Some(-1), Some(5)];
        write_as("(INTEGER(32,false))", &path, &sizes);
        assert_eq!(read(&path).unwrap().0.size_bytes(), u128::from(u32::MAX) + 5);
        for logical_type in ["", "(INTEGER(32,true))", "(DECIMAL(9,2))"] {
            write_as(logical_type, &path, &sizes);
            assert!(read(&path).is_err(), "{logical_type}");
        }
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        write(&path, &(0..100).map(Some).collect::<Vec<_>>());
        let whole = std::fs::read(&path).unwrap();
        for at in 4..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            if let Err(error) = read(&path) {
                assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotRecognised), "{error}");
            }
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&path).is_err());
        }
    }
}
