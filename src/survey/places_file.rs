//! The part of survey files that says where the files are: `where` in docs/SCHEMA.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MOST;
use super::largest::{LargeFile, LargestFiles};
use super::owner_ages::{AgeSums, AgedFiles, OwnerAges};
use super::places::{DirectoryRow, Extension, Kind, KindTable, Places, Ranking, Tally, TopDirectories};
use crate::units::{escape, unescape};

/// Upper bound of a sum of bytes in a file.
pub(super) const MOST_BYTES: u128 = 1 << 117;

/// Text of a file in displayable form: escapes what should have been escaped already.
pub(super) fn safe(text: String) -> String {
    match unescape(&text) {
        Some(bytes) if escape(&bytes) == text => text,
        _ => escape(text.as_bytes()),
    }
}

/// A row of any list: its subject, and its sums.
#[derive(Serialize, Deserialize)]
struct TallyRow<K> {
    #[serde(flatten)]
    key: K,
    files: u64,
    small_files: u64,
    size_bytes: u128,
    small_size_bytes: u128,
    allocated_bytes: u128,
    overhead_bytes: u128,
    #[serde(default)]
    directories: u64,
}

impl<K> TallyRow<K> {
    fn of(key: K, tally: &Tally) -> TallyRow<K> {
        let Tally { files, small_files, size_bytes, small_size_bytes, allocated_bytes, overhead_bytes, directories } =
            *tally;
        TallyRow { key, files, small_files, size_bytes, small_size_bytes, allocated_bytes, overhead_bytes, directories }
    }

    fn tally(&self) -> std::result::Result<Tally, String> {
        let counts = [self.files, self.small_files, self.directories];
        let bytes = [self.size_bytes, self.small_size_bytes, self.allocated_bytes, self.overhead_bytes];
        if counts.iter().any(|&count| count > MOST) || bytes.iter().any(|&sum| sum > MOST_BYTES) {
            return Err("the counts in a row of the places are too large".to_owned());
        }
        Ok(Tally {
            files: self.files,
            small_files: self.small_files,
            size_bytes: self.size_bytes,
            small_size_bytes: self.small_size_bytes,
            allocated_bytes: self.allocated_bytes,
            overhead_bytes: self.overhead_bytes,
            directories: self.directories,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct DirectoryKey {
    path: Option<String>,
    depth: u32,
}

#[derive(Serialize, Deserialize)]
struct OwnerKey {
    uid: Option<u32>,
    name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ExtensionKey {
    extension: Option<String>,
}

/// A row without a key: the rows that were folded together.
#[derive(Serialize, Deserialize)]
struct NoKey {}

#[derive(Serialize, Deserialize)]
pub(super) struct PlacesRecord {
    limit: usize,
    directories: DirectoriesRecord,
    owners: TableRecord<OwnerKey>,
    extensions: TableRecord<ExtensionKey>,
    #[serde(default)]
    owner_ages: Option<OwnerAgesRecord>,
    #[serde(default)]
    files: Option<Vec<FileRecord>>,
}

#[derive(Serialize, Deserialize)]
struct OwnerAgesRecord {
    breaks_days: Vec<u64>,
    rest: AgedFiles,
    rows: Vec<OwnerAgesRow>,
}

#[derive(Serialize, Deserialize)]
struct OwnerAgesRow {
    uid: Option<u32>,
    name: Option<String>,
    written: Vec<AgeSums>,
    read: Vec<AgeSums>,
}

#[derive(Serialize, Deserialize)]
struct FileRecord {
    path: Option<String>,
    size_bytes: u64,
    allocated_bytes: u64,
}

type Lists = BTreeMap<String, Vec<TallyRow<DirectoryKey>>>;

#[derive(Serialize, Deserialize)]
struct DirectoriesRecord {
    own: Lists,
    subtree: Lists,
}

#[derive(Serialize, Deserialize)]
struct TableRecord<K> {
    complete: bool,
    max_error: u64,
    rest: TallyRow<NoKey>,
    rows: Vec<TallyRow<K>>,
}

impl PlacesRecord {
    pub(super) fn of(places: &Places) -> PlacesRecord {
        let lists = |top: &TopDirectories| -> Lists {
            let row = |row: &DirectoryRow| {
                let path = row.path.as_ref().map(|path| escape(path));
                TallyRow::of(DirectoryKey { path, depth: row.depth }, &row.tally)
            };
            let list = |ranking: Ranking| (ranking.name().to_owned(), top.list(ranking).iter().map(row).collect());
            Ranking::ALL.into_iter().map(list).collect()
        };
        PlacesRecord {
            limit: places.limit(),
            directories: DirectoriesRecord { own: lists(&places.own), subtree: lists(&places.subtree) },
            owners: TableRecord::of(&places.owners, |kind| match kind {
                Kind::Named(uid) => OwnerKey { uid: Some(*uid), name: places.owner_names.get(uid).cloned() },
                Kind::Anonymous(_) => OwnerKey { uid: None, name: None },
            }),
            extensions: TableRecord::of(&places.extensions, |kind| match kind {
                Kind::Named(extension) => ExtensionKey { extension: Some(extension.text().to_owned()) },
                Kind::Anonymous(_) => ExtensionKey { extension: None },
            }),
            owner_ages: places.owner_ages.as_ref().map(|ages| OwnerAgesRecord::of(ages, &places.owner_names)),
            files: places.files.as_ref().map(|files| files.rows().iter().map(FileRecord::of).collect()),
        }
    }

    /// What it describes.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(super) fn places(&self) -> std::result::Result<Places, String> {
        let limit = self.limit.min(1 << 20);
        let top = |lists: &Lists| -> std::result::Result<TopDirectories, String> {
            let mut rows: [Vec<DirectoryRow>; 4] = Default::default();
            for ranking in Ranking::ALL {
                for row in lists.get(ranking.name()).map_or(&[][..], |list| list) {
                    let path = match &row.key.path {
                        None => None,
                        Some(path) => Some(unescape(path).ok_or("a path of the places is not escaped correctly")?),
                    };
                    rows[ranking as usize].push(DirectoryRow { path, depth: row.key.depth, tally: row.tally()? });
                }
            }
            Ok(TopDirectories::from_lists(limit, rows))
        };
        let owner = |rank: u64, key: &OwnerKey| Ok(key.uid.map_or(Kind::Anonymous(rank), Kind::Named));
        let extension = |rank: u64, key: &ExtensionKey| match &key.extension {
            None => Ok(Kind::Anonymous(rank)),
            Some(text) => Extension::from_text(text).map(Kind::Named).ok_or("a kind of file is not an extension"),
        };
        Ok(Places {
            own: top(&self.directories.own)?,
            subtree: top(&self.directories.subtree)?,
            owners: self.owners.table(owner)?,
            owner_names: self
                .owners
                .rows
                .iter()
                .filter_map(|row| Some((row.key.uid?, safe(row.key.name.clone()?))))
                .collect(),
            extensions: self.extensions.table(extension)?,
            owner_ages: self.owner_ages.as_ref().map(OwnerAgesRecord::table).transpose()?,
            files: self.files.as_ref().map(|rows| largest(rows, limit)).transpose()?,
        })
    }
}

impl OwnerAgesRecord {
    fn of(ages: &OwnerAges, names: &BTreeMap<u32, String>) -> OwnerAgesRecord {
        let row = |(owner, AgedFiles { written, read }): (Kind<u32>, AgedFiles)| {
            let uid = match owner {
                Kind::Named(uid) => Some(uid),
                Kind::Anonymous(_) => None,
            };
            OwnerAgesRow { uid, name: uid.and_then(|uid| names.get(&uid).cloned()), written, read }
        };
        OwnerAgesRecord {
            breaks_days: ages.breaks_days().to_vec(),
            rest: ages.rest().clone(),
            rows: ages.ranked().into_iter().map(row).collect(),
        }
    }

    fn table(&self) -> std::result::Result<OwnerAges, String> {
        let all = self.rows.iter().flat_map(|row| row.written.iter().chain(&row.read));
        let all = all.chain(&self.rest.written).chain(&self.rest.read);
        if all.into_iter().any(|sums| sums.files > MOST || sums.size_bytes > MOST_BYTES) {
            return Err("the counts in a row of the ages by owner are too large".to_owned());
        }
        let rows = self.rows.iter().zip(0..).map(|(row, rank)| {
            let files = AgedFiles { written: row.written.clone(), read: row.read.clone() };
            (row.uid.map_or(Kind::Anonymous(rank), Kind::Named), files)
        });
        let table = OwnerAges::from_parts(&self.breaks_days, rows, self.rest.clone());
        table.ok_or_else(|| "the ages by owner do not belong to their breaks".to_owned())
    }
}

impl FileRecord {
    fn of(file: &LargeFile) -> FileRecord {
        let LargeFile { path, size_bytes, allocated_bytes } = file;
        let path = path.as_ref().map(|path| escape(path));
        FileRecord { path, size_bytes: *size_bytes, allocated_bytes: *allocated_bytes }
    }
}

fn largest(rows: &[FileRecord], limit: usize) -> std::result::Result<LargestFiles, String> {
    let mut files = LargestFiles::new(limit);
    for FileRecord { path, size_bytes, allocated_bytes } in rows {
        let path = path.as_ref().map(|path| unescape(path).ok_or("a path of the places is not escaped correctly"));
        let path = path.transpose()?;
        files.offer(LargeFile { path, size_bytes: *size_bytes, allocated_bytes: *allocated_bytes });
    }
    Ok(files)
}

impl<K> TableRecord<K> {
    fn of<T: Eq + std::hash::Hash + Ord + Copy>(table: &KindTable<T>, key: impl Fn(&T) -> K) -> TableRecord<K> {
        TableRecord {
            complete: table.max_error() == 0,
            max_error: table.max_error(),
            rest: TallyRow::of(NoKey {}, table.rest()),
            rows: table.ranked().iter().map(|(kind, tally)| TallyRow::of(key(kind), tally)).collect(),
        }
    }

    fn table<T: Eq + std::hash::Hash + Ord + Copy>(
        &self,
        kind: impl Fn(u64, &K) -> std::result::Result<T, &'static str>,
    ) -> std::result::Result<KindTable<T>, String> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for (rank, row) in self.rows.iter().enumerate() {
            rows.push((kind(rank as u64, &row.key)?, row.tally()?));
        }
        if self.max_error > MOST {
            return Err("the error of a table of the places is too large".to_owned());
        }
        Ok(KindTable::from_parts(rows, self.rest.tally()?, self.max_error))
    }
}
