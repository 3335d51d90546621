//! The meaning of a table's columns: specified by hand, named after a published collection, or detected from the head
//! of the table.
//!
//! `time=1:ms,op=4,offset=5:sectors,size=6,file=2+3`: fields, each with its column (a number from 1, or a name in the
//! header), and a unit if it is not seconds or bytes. Several columns joined by `+` form one name.

use super::line::fields;
use crate::trace::input::decimal;
use crate::units::{escape, parse_size};

/// Meaning of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Start time.
    Time,
    /// Kind of operation.
    Operation,
    /// File, device or volume.
    File,
    /// Process, client or host.
    Process,
    /// Offset in the file.
    Offset,
    /// Length.
    Size,
    /// Size of the file.
    FileSize,
    /// Duration.
    Duration,
}

impl Field {
    /// Every field with its name.
    pub const ALL: [(Field, &'static str); 8] = [
        (Field::Time, "time"),
        (Field::Operation, "op"),
        (Field::File, "file"),
        (Field::Process, "process"),
        (Field::Offset, "offset"),
        (Field::Size, "size"),
        (Field::FileSize, "file-size"),
        (Field::Duration, "duration"),
    ];

    fn is_time(self) -> bool {
        matches!(self, Field::Time | Field::Duration)
    }

    fn is_name(self) -> bool {
        matches!(self, Field::File | Field::Process | Field::Operation)
    }
}

/// Location of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnRef {
    /// The column with this number, from 0.
    Number(usize),
    /// The column with this name in the header.
    Header(String),
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// This many nanoseconds, or bytes.
    Of(u64),
    /// 100 ns since 1601, as Windows counts.
    FileTime,
}

/// A field, its columns and its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The field.
    pub field: Field,
    /// Its columns; a name may consist of several.
    pub places: Vec<ColumnRef>,
    /// Its unit.
    pub unit: Unit,
}

/// Columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The columns that are known.
    pub list: Vec<Column>,
}

/// Published table formats: name, description, columns.
pub const PRESETS: [(&str, &str, &str); 6] = [
    (
        "msr",
        "MSR Cambridge, SNIA IOTTA 388: filetime, host, disk, type, offset, size, response",
        "time=1:filetime,op=4,file=2+3,process=2,offset=5,size=6,duration=7:100ns",
    ),
    (
        "snia-systor17",
        "SYSTOR '17, SNIA IOTTA 4964: time, response, type, LUN, offset, size",
        "time=1,duration=2,op=3,file=4,offset=5,size=6",
    ),
    (
        "snia-fiu",
        "FIU, SNIA IOTTA 390 and 391: time, pid, process, sector, sectors, type, major, minor, hash",
        "time=1:ns,op=6,file=7+8,process=3+2,offset=4:sectors,size=5:sectors",
    ),
    (
        "spc",
        "SPC and UMass (Financial, WebSearch): unit, sector, size, type, time",
        "time=5,op=4,file=1,offset=2:sectors,size=3",
    ),
    ("alibaba", "Alibaba block traces: device, type, offset, size, time", "time=5:us,op=2,file=1,offset=3,size=4"),
    (
        "tencent",
        "Tencent CBS, SNIA IOTTA 27917: time, sector, sectors, type, volume",
        "time=1,op=4,file=5,offset=2:sectors,size=3:sectors",
    ),
];

const NANOSECONDS: [(&str, u64); 7] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("µs", 1000),
    ("ns", 1),
    ("100ns", 100),
    ("min", 60_000_000_000),
];

/// Names in headers, with the field and unit that they mean; without underscores, in lower case.
const HEADERS: [(Field, &str, &[&str]); 12] = [
    (Field::Time, "s", &["time", "timestamp", "ts", "start", "starttime", "times", "timesec", "timeseconds"]),
    (Field::Time, "ms", &["timems", "timestampms", "startms"]),
    (Field::Time, "us", &["timeus", "timestampus", "startus"]),
    (Field::Time, "ns", &["timens", "timestampns", "startns"]),
    (Field::Operation, "", &["op", "operation", "type", "iotype", "rw", "opcode", "kind", "action", "optype"]),
    (
        Field::File,
        "",
        &["file", "path", "filename", "lun", "device", "deviceid", "disk", "disknumber", "volume", "volumeid"],
    ),
    (Field::Duration, "s", &["duration", "response", "responsetime", "latency", "elapsed"]),
    (Field::Process, "", &["process", "pid", "client", "host", "hostname", "rank", "user"]),
    (Field::Offset, "1", &["offset", "offsetbytes", "byteoffset", "position", "pos"]),
    (Field::Offset, "sectors", &["lba", "sector", "block"]),
    (Field::Size, "1", &["size", "length", "bytes", "sizebytes", "lengthbytes", "len"]),
    (Field::FileSize, "1", &["filesize", "filesizebytes"]),
];

impl Columns {
    /// Parses a list of fields, or the name of a preset.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is expected.
    pub fn parse(text: &str) -> Result<Columns, String> {
        if let Some((.., list)) = PRESETS.iter().find(|(name, ..)| *name == text.trim()) {
            return Columns::parse(list);
        }
        let presets = || PRESETS.map(|(name, ..)| name).join(", ");
        if !text.contains('=') {
            return Err(format!(
                "'{}' is neither a list of columns, such as time=1:ms,op=4,offset=5,size=6, nor one of {}",
                escape(text.as_bytes()),
                presets()
            ));
        }
        let mut list: Vec<Column> = Vec::new();
        for part in text.split(',') {
            let column = column(part)?;
            if list.iter().any(|other| other.field == column.field) {
                return Err(format!("'{}' repeats a field", escape(part.as_bytes())));
            }
            list.push(column);
        }
        Ok(Columns { list })
    }

    /// The column of a field.
    pub fn of(&self, field: Field) -> Option<&Column> {
        self.list.iter().find(|column| column.field == field)
    }

    /// Interprets a header; `None` if it does not name a size, or names too little to tell reads from other operations.
    pub fn of_header(header: &[&[u8]]) -> Option<Columns> {
        let mut list: Vec<Column> = Vec::new();
        for name in header {
            let name = std::str::from_utf8(name).ok()?;
            let known: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
            let found = HEADERS.iter().find(|(.., names)| names.contains(&known.as_str()));
            if let Some(&(field, unit, _)) = found
                && !list.iter().any(|column| column.field == field)
            {
                list.push(Column {
                    field,
                    places: vec![ColumnRef::Header(name.to_owned())],
                    unit: self::unit(field, unit).unwrap_or(Unit::Of(1)),
                });
            }
        }
        let has = |field| list.iter().any(|column: &Column| column.field == field);
        (has(Field::Size) && has(Field::Operation)).then_some(Columns { list })
    }

    /// Detects the columns of a table from the whole lines of its head: from a header that names a size and an
    /// operation, which may be a comment, else from the shape of the first 16 rows.
    pub fn guess(head: &[u8]) -> Option<Columns> {
        let whole = head.split_inclusive(|&b| b == b'\n').filter(|line| line.ends_with(b"\n"));
        let lines: Vec<&[u8]> = whole.filter(|line| !line.trim_ascii().is_empty()).collect();
        let separator = separator(first_line(head)?);
        let header = fields(names(lines.first()?), separator);
        if let Some(columns) = Columns::of_header(&header.iter().map(|field| &**field).collect::<Vec<_>>()) {
            return Some(columns);
        }
        let rows = lines.iter().filter(|line| !line.starts_with(b"#")).take(16);
        let rows: Vec<_> = rows.map(|line| fields(line, separator)).collect();
        let (name, _) = SHAPES.iter().find(|(_, fits)| !rows.is_empty() && rows.iter().all(|row| fits(row)))?;
        Columns::parse(name).ok()
    }
}

type Row<'a> = [std::borrow::Cow<'a, [u8]>];
type Shape = (&'static str, fn(&Row<'_>) -> bool);

/// Shapes of rows in the presets without a header, the most specific first.
const SHAPES: [Shape; 5] = [
    ("msr", |row| {
        row.len() == 7 && digits(row, 0) == 18 && is_one_of(row, 3, &["Read", "Write"]) && digits(row, 4) > 0
    }),
    ("snia-fiu", |row| row.len() == 9 && row[8].len() == 32 && is_one_of(row, 5, &["R", "W"]) && digits(row, 3) > 0),
    ("alibaba", |row| row.len() == 5 && is_one_of(row, 1, &["R", "W"]) && digits(row, 4) == 16 && digits(row, 2) > 0),
    ("tencent", |row| row.len() == 5 && digits(row, 0) == 10 && is_one_of(row, 3, &["0", "1"]) && digits(row, 2) > 0),
    ("spc", |row| {
        row.len() >= 5 && is_one_of(row, 3, &["R", "W", "r", "w"]) && row[4].contains(&b'.') && digits(row, 1) > 0
    }),
];

/// Number of digits in a field, 0 if it contains anything else.
fn digits(row: &Row<'_>, at: usize) -> usize {
    row.get(at).filter(|field| decimal(field).is_some()).map_or(0, |field| field.len())
}

fn is_one_of(row: &Row<'_>, at: usize, words: &[&str]) -> bool {
    row.get(at).is_some_and(|field| words.iter().any(|word| word.as_bytes() == &**field))
}

/// The first line that is neither empty nor a comment; if there is none, the comment.
pub(super) fn first_line(head: &[u8]) -> Option<&[u8]> {
    let lines = || head.split(|&b| b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines().find(|line| !line.starts_with(b"#")).or_else(|| lines().next())
}

/// The names in a header, which may be a comment.
pub(super) fn names(header: &[u8]) -> &[u8] {
    header.trim_ascii_start().strip_prefix(b"#").unwrap_or(header)
}

/// Detects the separator of a line: a comma if there is one, else a tab, a semicolon or a bar, in this order; otherwise
/// blanks.
pub(super) fn separator(line: &[u8]) -> u8 {
    [b',', b'\t', b';', b'|'].into_iter().find(|separator| line.contains(separator)).unwrap_or(b' ')
}

fn column(part: &str) -> Result<Column, String> {
    let wrong = |what: &str| format!("'{}' {what}", escape(part.as_bytes()));
    let (name, place) = part.split_once('=').ok_or_else(|| wrong("is not FIELD=COLUMN"))?;
    let Some(&(field, _)) = Field::ALL.iter().find(|(_, known)| *known == name.trim()) else {
        return Err(wrong(&format!(
            "does not name a field; the fields are {}",
            Field::ALL.map(|(_, name)| name).join(", ")
        )));
    };
    let (places, unit_name) = place.split_once(':').map_or((place, None), |(places, unit)| (places, Some(unit.trim())));
    let places = places.split('+').map(|place| match place.trim() {
        "" => Err(wrong("does not name a column")),
        place if place.bytes().all(|b| b.is_ascii_digit()) => match place.parse::<usize>() {
            Ok(number @ 1..=1000) => Ok(ColumnRef::Number(number - 1)),
            _ => Err(wrong("has an impossible column; columns count from 1")),
        },
        place => Ok(ColumnRef::Header(place.to_owned())),
    });
    let places: Vec<ColumnRef> = places.collect::<Result<_, _>>()?;
    if places.len() > 1 && !field.is_name() {
        return Err(wrong("joins columns; only names can consist of several"));
    }
    if unit_name.is_some() && field.is_name() {
        return Err(wrong("has a unit, but is a name"));
    }
    let unit = match unit_name {
        None if field.is_time() => Unit::Of(1_000_000_000),
        None => Unit::Of(1),
        Some(name) => unit(field, name).ok_or_else(|| match field.is_time() {
            true => wrong("has an unknown unit; the units are s, ms, us, ns, 100ns and, for the time, filetime"),
            false => wrong("has an unknown unit; write bytes, sectors (of 512 bytes), or any size such as 4KiB"),
        })?,
    };
    Ok(Column { field, places, unit })
}

fn unit(field: Field, name: &str) -> Option<Unit> {
    if field.is_time() {
        if name == "filetime" {
            return (field == Field::Time).then_some(Unit::FileTime);
        }
        return NANOSECONDS.iter().find(|(known, _)| *known == name).map(|&(_, ns)| Unit::Of(ns));
    }
    match name {
        "bytes" | "byte" => Some(1),
        "sectors" | "sector" => Some(512),
        // A bare unit means one of it.
        size if size.starts_with(|c: char| c.is_ascii_alphabetic()) => parse_size(&format!("1{size}")).ok(),
        size => parse_size(size).ok(),
    }
    .filter(|&bytes| bytes > 0)
    .map(Unit::Of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_lists_say_what_is_wrong() {
        for (name, ..) in PRESETS {
            let columns = Columns::parse(name).unwrap();
            assert!(columns.of(Field::Size).is_some() && columns.of(Field::Time).is_some(), "{name}");
        }
        let columns = Columns::parse("time=when:ms, op=2,size=3:4KiB").unwrap();
        assert_eq!(columns.of(Field::Time).unwrap().places, [ColumnRef::Header("when".to_owned())]);
        assert_eq!(columns.of(Field::Time).unwrap().unit, Unit::Of(1_000_000));
        assert_eq!(columns.of(Field::Size).unwrap().unit, Unit::Of(4096));
        assert_eq!(columns.of(Field::Offset), None);
        for (text, says) in [
            ("msx", "nor one of msr"),
            ("size=0", "count from 1"),
            ("size", "neither a list"),
            ("size=1,when=2", "does not name a field"),
            ("size=1,size=2", "repeats a field"),
            ("size=1+2", "only names"),
            ("size=1:parsecs", "unknown unit"),
            ("time=1:KiB", "unknown unit"),
            ("duration=1:filetime", "unknown unit"),
            ("file=1:ms", "is a name"),
            ("file=+", "does not name a column"),
        ] {
            let error = Columns::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn known_tables_are_recognised() {
        let rows: [(&str, &[u8]); 5] = [
            (
                "msr",
                b"128166372003061629,hm,0,Read,383496192,32768,41286\n128166372016382155,hm,0,Write,2822144,4096,223\n",
            ),
            ("snia-fiu", b"0 4892 syslogd 904265560 8 W 6 0 531e779b39068087b5c5a3c5e3b0c1a7\n"),
            ("alibaba", b"419,W,8792731648,16384,1577808144360767\n"),
            ("tencent", b"1538323200,12910952,128,0,1063\n"),
            ("spc", b"0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n"),
        ];
        for (name, text) in rows {
            assert_eq!(Columns::guess(text), Some(Columns::parse(name).unwrap()), "{name}");
        }
        let header =
            Columns::guess(b"Timestamp,Response,IOType,LUN,Offset,Size\n1455592451.1,0.000212,R,2,3,4\n").unwrap();
        assert_eq!(header.of(Field::Offset).unwrap().places, [ColumnRef::Header("Offset".to_owned())]);
        let commented = b"# blocks of alibaba\n419,W,8792731648,16384,1577808144360767\n";
        assert_eq!(Columns::guess(commented), Some(Columns::parse("alibaba").unwrap()));
        assert_eq!(Columns::guess(b"# nothing\n"), None);
        for text in
            [&b"a,b,c\n1,2,3\n"[..], b"", b"\xff\xfe\n", b"decile_pct,read_bytes,write_bytes\n10,1,2\n", b"size\n"]
        {
            assert_eq!(Columns::guess(text), None, "{}", escape(text));
        }
    }
}
