//! Writing a sorted table: entries in key order, in bounded memory however many there are: what the levels above need
//! to know of leaves goes to a file beside the table once it is long ([`Heads`]).
//!
//! The file has a temporary name until it is complete and synced; a crash before that leaves only this file, and the
//! next writer of the number replaces it. When [`TableWriter::finish`] returns, the table exists and is durable,
//! including its name.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::io;
use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::block::{BlockBuilder, HEADER_BYTES, MOST_PAGES, PAGE_BYTES};
use super::filter::{DIRECTORY_LEVEL, FilterBuilder};
use super::footer::{CLASSES_PER_BLOCK, Footer, KeyBounds, encode_classes};
use super::heads::Heads;
use super::leaf::{self, AttributeClass, Previous};
use super::{INDEX_DIRECTORY, create_temporary, table_path};
use crate::devices::device::{Device, DeviceFile};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Entry;
use crate::format::index_key::{LONGEST_INDEX_KEY_BYTES, is_superseded};
use crate::format::names::TEMPORARY;
use crate::index::catalog::TableRow;
use crate::io::varint;

/// Bytes per write.
const WRITE_BYTES: usize = 1 << 20;

/// An entry above the leaves with the longest key: four numbers at most, two before the key and two behind it.
const LONGEST_HEAD_BYTES: usize = 4 * varint::LONGEST_BYTES + LONGEST_INDEX_KEY_BYTES;
const _: () = assert!(HEADER_BYTES + 2 * LONGEST_HEAD_BYTES + 2 <= MOST_PAGES * PAGE_BYTES, "a block has two of them");

/// A sorted table being written. Dropped without [`finish`](Self::finish), it leaves nothing behind.
#[must_use = "a table that is not finished is removed"]
pub(crate) struct TableWriter<'a> {
    device: &'a dyn Device,
    number: u64,
    /// `None` once the file is renamed.
    temporary: Option<String>,
    pages: Pages,
    leaf: BlockBuilder,
    before: Previous,
    value: Vec<u8>,
    first_key: Box<[u8]>,
    last_key: Vec<u8>,
    leaves: Heads<'a>,
    filter: FilterBuilder,
    /// First key, first page and number of pages of each filter.
    filters: Vec<(Box<[u8]>, u64, u64)>,
    /// The first key of the first leaf of the filter being built, once that leaf is written.
    filter_key: Option<Box<[u8]>>,
    classes: Vec<AttributeClass>,
    class_numbers: HashMap<AttributeClass, u64>,
    last_class: Option<(AttributeClass, u64)>,
    entries: u64,
    lowest_id: u64,
    highest_id: u64,
}

/// The file, from its first page on.
struct Pages {
    file: Arc<dyn DeviceFile>,
    buffer: Vec<u8>,
    written_bytes: u64,
    /// Digest of the checksums of all blocks.
    chain: XxHash3_64,
}

impl Pages {
    /// The page at which the next block begins.
    fn next(&self) -> u64 {
        (self.written_bytes + self.buffer.len() as u64) / PAGE_BYTES as u64
    }

    /// Appends the finished block of `builder`.
    fn put(&mut self, builder: &mut BlockBuilder) -> io::Result<()> {
        let checksum = builder.finish(&mut self.buffer);
        self.chain.write(&checksum.to_le_bytes());
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends a block of one page.
    fn put_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.chain.write(&page[..8]);
        self.buffer.extend_from_slice(page);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.written_bytes)?;
        self.file.start_writeback(self.written_bytes, self.buffer.len() as u64);
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl<'a> TableWriter<'a> {
    /// Begins table `number`.
    ///
    /// # Errors
    /// Any error of creating a file in the index directory.
    pub(crate) fn create(device: &'a dyn Device, number: u64) -> Result<TableWriter<'a>> {
        let temporary = format!("{}{TEMPORARY}", table_path(number));
        let file = create_temporary(device, &temporary).map_err(|error| write_failed(device, number, error))?;
        Ok(TableWriter {
            device,
            number,
            temporary: Some(temporary),
            pages: Pages { file, buffer: Vec::new(), written_bytes: 0, chain: XxHash3_64::new() },
            leaf: BlockBuilder::new(0),
            before: Previous::default(),
            value: Vec::new(),
            first_key: Box::default(),
            last_key: Vec::new(),
            leaves: Heads::new(device, heads_path(number, 0)),
            filter: FilterBuilder::default(),
            filters: Vec::new(),
            filter_key: None,
            classes: Vec::new(),
            class_numbers: HashMap::new(),
            last_class: None,
            entries: 0,
            lowest_id: u64::MAX,
            highest_id: 0,
        })
    }

    /// Number of entries so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Appends an entry. Keys must ascend.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a key that does not ascend, or an entry that no record can have; any error of writing.
    pub(crate) fn add(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(self.refuse("the keys are not in ascending order"));
        }
        if key.len() > LONGEST_INDEX_KEY_BYTES {
            return Err(self.refuse("a key is longer than that of any name"));
        }
        if let Some(cause) = leaf::refuse(entry) {
            return Err(self.refuse(cause));
        }
        if self.filter.is_full() {
            self.finish_leaf()?;
            self.finish_filter()?;
        }
        let class = if entry.kind.is_used() { self.class_number(leaf::class_of(entry)) } else { 0 };
        if !self.push(key, entry, class) {
            self.finish_leaf()?;
            // An empty leaf accepts any entry.
            self.push(key, entry, class);
        }
        self.filter.add(key);
        if self.entries == 0 {
            self.first_key = key.into();
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        // Removed trees hide no superseded version.
        if !is_superseded(key) {
            self.lowest_id = self.lowest_id.min(entry.id);
            self.highest_id = self.highest_id.max(entry.id);
        }
        Ok(())
    }

    /// Appends the entry to the leaf, if it fits.
    fn push(&mut self, key: &[u8], entry: &Entry, class: u64) -> bool {
        let mut before = if self.leaf.at_restart() { Previous::default() } else { self.before };
        self.value.clear();
        leaf::encode(&mut self.value, &mut before, entry, class);
        let fits = self.leaf.push(key, &self.value);
        if fits {
            self.before = before;
        }
        fits
    }

    /// The number of a class, which is added if it is new.
    fn class_number(&mut self, class: AttributeClass) -> u64 {
        if let Some((last, number)) = self.last_class
            && last == class
        {
            return number;
        }
        let number = *self.class_numbers.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u64 - 1
        });
        self.last_class = Some((class, number));
        number
    }

    fn finish_leaf(&mut self) -> Result<()> {
        let first_key = self.leaf.first_key();
        self.filter_key.get_or_insert_with(|| first_key.into());
        let added = self.leaves.push(first_key, self.pages.next());
        added
            .and_then(|()| self.pages.put(&mut self.leaf))
            .map_err(|error| write_failed(self.device, self.number, error))
    }

    /// Writes the filter of the leaves since the last one.
    fn finish_filter(&mut self) -> Result<()> {
        let (page, blocks) = (self.pages.next(), self.filter.finish());
        let first_key = self.filter_key.take().unwrap_or_default();
        self.filters.push((first_key, page, (blocks.len() / PAGE_BYTES) as u64));
        let mut blocks = blocks.chunks_exact(PAGE_BYTES);
        blocks
            .try_for_each(|block| self.pages.put_page(block))
            .map_err(|error| write_failed(self.device, self.number, error))
    }

    /// Writes the rest, makes the table durable and renames it to its name.
    ///
    /// # Errors
    /// Any error of writing, syncing or renaming; then there is no table.
    pub(crate) fn finish(mut self) -> Result<TableRow> {
        if self.leaf.count() > 0 || self.leaves.count() == 0 {
            self.finish_leaf()?;
        }
        // Reading a single leaf is as fast as consulting a filter.
        if !self.filter.is_empty() && self.leaves.count() > 1 {
            self.finish_filter()?;
        }
        let row = self.finish_file().map_err(|error| write_failed(self.device, self.number, error))?;
        self.temporary = None;
        self.device.sync_directory(INDEX_DIRECTORY).map_err(|error| write_failed(self.device, self.number, error))?;
        Ok(row)
    }

    fn finish_file(&mut self) -> io::Result<TableRow> {
        let leaf_pages = self.pages.next();
        let bounds = KeyBounds::new(&self.first_key, &self.last_key);
        let (filter_pages, directory) = match &mut self.filters {
            filters if filters.len() > 1 => (0, std::mem::take(filters)),
            filters => (filters.first().map_or(0, |&(_, _, pages)| pages), Vec::new()),
        };
        let (mut level, nothing) = (0, Heads::new(self.device, heads_path(self.number, 0)));
        let mut below = std::mem::replace(&mut self.leaves, nothing);
        while below.count() > 1 {
            level += 1;
            below = self.write_level(level, &below)?;
        }
        let root = below.first_page();
        drop(below);
        let first_class_page = self.pages.next();
        for classes in self.classes.chunks(CLASSES_PER_BLOCK) {
            self.pages.put_page(&encode_classes(classes))?;
        }
        let directory_page = self.pages.next();
        self.write_directory(&directory)?;
        let footer = Footer {
            levels: u16::from(level) + 1,
            classes: self.classes.len() as u32,
            root,
            entries: self.entries,
            leaf_pages,
            lowest_id: self.lowest_id,
            highest_id: self.highest_id,
            chain: self.pages.chain.finish(),
            first_class_page,
            directory_page,
            filter_pages,
            bounds,
        };
        self.pages.buffer.extend_from_slice(&footer.encode());
        self.pages.flush()?;
        self.pages.file.sync()?;
        if let Some(temporary) = &self.temporary {
            self.device.rename(temporary, &table_path(self.number))?;
        }
        Ok(TableRow {
            number: self.number,
            entries: self.entries,
            size_bytes: self.pages.written_bytes,
            lowest_id: self.lowest_id,
            highest_id: self.highest_id,
        })
    }

    /// Writes the blocks above `below`; returns their first keys and pages.
    fn write_level(&mut self, level: u8, below: &Heads<'a>) -> io::Result<Heads<'a>> {
        let mut builder = BlockBuilder::new(level);
        let mut blocks = Heads::new(self.device, heads_path(self.number, level));
        let (pages, mut value) = (&mut self.pages, Vec::new());
        below.for_each(|key, page| {
            value.clear();
            varint::put(&mut value, page);
            if !builder.push(key, &value) {
                blocks.push(builder.first_key(), pages.next())?;
                pages.put(&mut builder)?;
                builder.push(key, &value);
            }
            Ok(())
        })?;
        blocks.push(builder.first_key(), pages.next())?;
        pages.put(&mut builder)?;
        Ok(blocks)
    }

    /// Writes the blocks that locate filters: first key, first page and number of pages of each.
    fn write_directory(&mut self, filters: &[(Box<[u8]>, u64, u64)]) -> io::Result<()> {
        let mut builder = BlockBuilder::new(DIRECTORY_LEVEL);
        for (key, page, pages) in filters {
            self.value.clear();
            varint::put(&mut self.value, *page);
            varint::put(&mut self.value, *pages);
            if !builder.push(key, &self.value) {
                self.pages.put(&mut builder)?;
                builder.push(key, &self.value);
            }
        }
        if builder.count() > 0 { self.pages.put(&mut builder) } else { Ok(()) }
    }

    fn refuse(&self, cause: &'static str) -> Error {
        Error::new(ErrorKind::Usage, "write the sorted table", cause).at(Path::new(&table_path(self.number)))
    }
}

impl fmt::Debug for TableWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableWriter { number, entries, .. } = self;
        f.debug_struct("TableWriter").field("number", number).field("entries", entries).finish_non_exhaustive()
    }
}

impl Drop for TableWriter<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // It has no readers, and the next writer of the number replaces it.
            let _ = self.device.remove(temporary);
        }
    }
}

/// The path of the file beside a table that lists the blocks of a level.
fn heads_path(number: u64, level: u8) -> String {
    format!("{}.{level}{TEMPORARY}", table_path(number))
}

fn write_failed(device: &dyn Device, number: u64, error: io::Error) -> Error {
    Error::io("write the sorted table", &device.place().join(table_path(number)), error)
}
