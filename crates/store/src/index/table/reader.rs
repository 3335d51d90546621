//! An open sorted table: looking up keys.
//!
//! Keys outside the bounds in the footer are not looked for, nor are keys that the filter excludes, unless the caller
//! expects to find them.
//!
//! The last [`TAIL_PAGES`] are read in one call when a table is opened, and kept: the footer, classes, and for most
//! tables everything between them and the leaves. Like all blocks, those in them are verified when they are first
//! needed.
//!
//! Blocks above the leaves are about a 200th of the table. The last [`MOST_KEPT_PAGES`] of them, including the root,
//! are read when first needed and stay in memory, and descending through them takes no lock; all others, and leaves, go
//! through the [`BlockCache`] that all tables share. A look-up allocates nothing. In a table that is small compared
//! with the cache, a leaf that is not cached is read together with its neighbours: others will soon be needed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::block::{Block, MOST_PAGES, PAGE_BYTES, pages_of};
use super::cache::BlockCache;
use super::filter::{DIRECTORY_LEVEL, FILTER_LEVEL, KeyHash};
use super::footer::{self, CLASSES_LEVEL, DecodeError, Footer};
use super::leaf::{self, AttributeClass, Previous};
use super::{damaged, table_path};
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, Result};
use crate::format::entry::Entry;
use crate::index::catalog::TableRow;
use crate::io::varint;

/// Pages that are read with the footer.
const TAIL_PAGES: u64 = 16;

/// Maximum number of pages of blocks above leaves that stay in memory: all of a table of about 25 million entries.
/// Smaller in tests, which then cover the others.
const MOST_KEPT_PAGES: u64 = if cfg!(test) { 2 } else { 1024 };

/// Pages read together around a leaf of a small table that is not cached.
const AROUND_PAGES: u64 = 8;
const MOST_AROUND_BYTES: u64 = 4 << 20;

/// Location of the filter for the keys from one on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilterPlace {
    pub(super) first_key: Box<[u8]>,
    pub(super) page: u64,
    pub(super) pages: u64,
}

/// A sorted table, open for reading.
#[derive(Debug)]
pub(crate) struct Table {
    row: TableRow,
    pub(super) file: Arc<dyn DeviceFile>,
    /// Used to read copies of damaged blocks.
    copies: Arc<dyn DeviceFile>,
    pub(super) footer: Footer,
    /// The last pages of the file, as of opening.
    tail: Box<[u8]>,
    pub(super) classes: Box<[AttributeClass]>,
    /// The last of the blocks above the leaves, by page.
    upper: Box<[OnceLock<Block>]>,
    /// Locations of filters, if there are several; read when first needed, empty if damaged.
    filters: OnceLock<Box<[FilterPlace]>>,
    /// Damage was found in filters: they are no longer consulted.
    has_bad_filters: AtomicBool,
    cache: Arc<BlockCache>,
    owner: u64,
}

impl Table {
    /// Opens the table described by `row` of the catalog.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is damaged or not the one that `row` describes, [`ErrorKind::NewerVersion`], any
    /// error of opening and reading.
    pub(crate) fn open(device: &dyn Device, row: &TableRow, cache: &Arc<BlockCache>) -> Result<Table> {
        let failed = |error| read_failed(row.number, error);
        let copies = device.open(&table_path(row.number), Mode::Read).map_err(failed)?;
        Table::of(&copies, &copies, row, cache).or_else(|error| {
            let others = (0..).map_while(|turn| copies.copy(turn));
            let mut sound = others.filter_map(|file| Table::of(&file.ok()?, &copies, row, cache).ok());
            sound.next().ok_or(error)
        })
    }

    /// The table in `file`.
    fn of(
        file: &Arc<dyn DeviceFile>,
        copies: &Arc<dyn DeviceFile>,
        row: &TableRow,
        cache: &Arc<BlockCache>,
    ) -> Result<Table> {
        let number = row.number;
        let failed = |error| read_failed(number, error);
        let size_bytes = file.size().map_err(failed)?;
        let pages = size_bytes / PAGE_BYTES as u64;
        if pages == 0 || !size_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(damaged(number, format!("it has {size_bytes} bytes and is not a table")));
        }
        let tail = read_tail(file.as_ref(), number, pages)?;
        let footer = Footer::decode(tail.last_chunk::<PAGE_BYTES>().map_or(&[], |page| &page[..]), pages).map_err(
            |refusal| match refusal {
                DecodeError::Damaged => damaged(number, "its footer is damaged"),
                DecodeError::Newer(version) => Error::newer_version("read the sorted table", version, footer::VERSION)
                    .at(Path::new(&table_path(number))),
            },
        )?;
        let Footer { entries, lowest_id, highest_id, .. } = footer;
        let own = TableRow { number, entries, size_bytes, lowest_id, highest_id };
        if own != *row {
            return Err(damaged(number, "it is not the table that the catalog describes"));
        }
        let upper_pages = (footer.first_class_page - footer.leaf_pages).min(MOST_KEPT_PAGES);
        let upper = (0..upper_pages).map(|_| OnceLock::new()).collect();
        let owner = cache.new_owner();
        let mut table = Table {
            row: own,
            file: Arc::clone(file),
            copies: Arc::clone(copies),
            footer,
            tail,
            classes: Box::default(),
            upper,
            filters: OnceLock::new(),
            has_bad_filters: AtomicBool::new(false),
            cache: cache.clone(),
            owner,
        };
        table.classes = table.read_classes()?;
        Ok(table)
    }

    fn read_classes(&self) -> Result<Box<[AttributeClass]>> {
        let mut classes = Vec::new();
        let end = self.footer.directory_page;
        for page in self.footer.first_class_page..end {
            let block = self.read_block(page, CLASSES_LEVEL, end)?;
            footer::decode_classes(block.body(), block.count(), &mut classes)
                .ok_or_else(|| self.damaged("its classes are damaged"))?;
        }
        if classes.len() != self.footer.classes as usize {
            return Err(self.damaged("it does not have the classes it states"));
        }
        Ok(classes.into())
    }

    /// Its row in the catalog.
    pub(crate) fn row(&self) -> &TableRow {
        &self.row
    }

    /// Whether the table may have `key`, as far as known without reading leaves. A damaged filter excludes nothing.
    #[inline]
    pub(crate) fn may_have(&self, key: &[u8], hash: KeyHash) -> bool {
        self.footer.bounds.may_have(key) && self.passes_filter(key, hash)
    }

    fn passes_filter(&self, key: &[u8], hash: KeyHash) -> bool {
        let (first_page, pages) = match self.footer.filter_pages {
            0 => match self.filter_place(key) {
                Some(place) => (place.page, place.pages),
                None => return true,
            },
            pages => (self.footer.leaf_pages - pages, pages),
        };
        if self.has_bad_filters.load(Ordering::Relaxed) {
            return true;
        }
        let page = first_page + hash.page(pages);
        match self.cached(page, FILTER_LEVEL, self.footer.leaf_pages) {
            Ok(block) => hash.may_be_in(block.body(), pages),
            Err(_) => {
                self.has_bad_filters.store(true, Ordering::Relaxed);
                true
            }
        }
    }

    /// The location of the filter that covers `key`, if there are several.
    fn filter_place(&self, key: &[u8]) -> Option<&FilterPlace> {
        let filters = self.filter_places();
        let behind = filters.partition_point(|place| &place.first_key[..] <= key);
        filters.get(behind.checked_sub(1)?)
    }

    /// The page after the filter that contains `page`, if there are several and one does.
    pub(super) fn behind_filter(&self, page: u64) -> Option<u64> {
        let filters = self.filter_places();
        let behind = filters.partition_point(|place| place.page <= page);
        let place = filters.get(behind.checked_sub(1)?)?;
        Some(place.page + place.pages).filter(|&end| page < end)
    }

    fn filter_places(&self) -> &[FilterPlace] {
        if self.footer.directory_page == self.footer_page() {
            return &[];
        }
        self.filters.get_or_init(|| self.read_filter_places().unwrap_or_default().into())
    }

    /// Reads the locations of filters, if there are several.
    pub(super) fn read_filter_places(&self) -> Result<Vec<FilterPlace>> {
        let (mut places, mut key) = (Vec::new(), Vec::new());
        let (mut page, end) = (self.footer.directory_page, self.footer_page());
        while page < end {
            let block = self.read_block(page, DIRECTORY_LEVEL, end)?;
            let mut cursor = block.start();
            key.clear();
            while !cursor.at_end(&block) {
                let place = cursor
                    .next(&block, &mut key, |bytes, at| Some((varint::take(bytes, at)?, varint::take(bytes, at)?)))
                    .filter(|&(first, pages)| {
                        pages > 0 && first.checked_add(pages).is_some_and(|end| end <= self.footer.leaf_pages)
                    });
                let (first, pages) = place.ok_or_else(|| self.inconsistent(page))?;
                places.push(FilterPlace { first_key: key[..].into(), page: first, pages });
            }
            page += block.pages();
        }
        Ok(places)
    }

    /// The page of the footer, the last.
    pub(super) fn footer_page(&self) -> u64 {
        self.row.size_bytes / PAGE_BYTES as u64 - 1
    }

    /// The table's entry for `key`, including a tombstone.
    ///
    /// # Errors
    /// Any error of reading; [`ErrorKind::Corrupt`] for an invalid block.
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        if !self.footer.bounds.may_have(key) {
            return Ok(None);
        }
        let Some(page) = self.leaf_page(key)? else { return Ok(None) };
        let block = self.leaf(page)?;
        let mut before = Previous::default();
        let found = block.find(key, |bytes, at| leaf::decode(bytes, at, &mut before));
        match found {
            Some(Some((entry, true))) => match entry.resolve(&self.classes) {
                Some(entry) => Ok(Some(entry)),
                None => Err(self.inconsistent(page)),
            },
            Some(_) => Ok(None),
            None => Err(self.inconsistent(page)),
        }
    }

    /// The only leaf that can have `key`; `None` if all keys are above it.
    pub(super) fn leaf_page(&self, key: &[u8]) -> Result<Option<u64>> {
        let mut page = self.footer.root;
        for level in (1..self.footer.levels).rev() {
            match self.child(page, level as u8, key)? {
                Some(child) => page = child,
                None => return Ok(None),
            }
        }
        Ok(Some(page))
    }

    /// The child of the block at `page` that can have `key`.
    fn child(&self, page: u64, level: u8, key: &[u8]) -> Result<Option<u64>> {
        let child = match page.checked_sub(self.first_kept_page()).and_then(|index| self.upper.get(index as usize)) {
            Some(slot) => self.kept(slot, page, level)?.child(key),
            None if page < self.footer.leaf_pages => None,
            None => self.cached(page, level, self.footer.first_class_page)?.child(key),
        };
        child.ok_or_else(|| self.inconsistent(page))
    }

    /// The first of the blocks above leaves that stay in memory.
    fn first_kept_page(&self) -> u64 {
        self.footer.first_class_page - self.upper.len() as u64
    }

    /// A block above leaves that stays in memory once needed.
    fn kept<'t>(&self, slot: &'t OnceLock<Block>, page: u64, level: u8) -> Result<&'t Block> {
        let block = match slot.get() {
            Some(block) => block,
            None => {
                let block = self.read_block(page, level, self.footer.first_class_page)?;
                slot.get_or_init(|| block)
            }
        };
        if block.level() == level { Ok(block) } else { Err(self.inconsistent(page)) }
    }

    /// The leaf at `page`, through the cache.
    pub(super) fn leaf(&self, page: u64) -> Result<Arc<Block>> {
        if let Some(leaf) = self.leaf_in_cache(page).filter(|leaf| leaf.level() == 0) {
            return Ok(leaf);
        }
        if self.row.size_bytes <= MOST_AROUND_BYTES && page < self.first_of_tail() {
            self.read_around(page);
        }
        self.cached(page, 0, self.footer.leaf_pages)
    }

    /// Reads some leaves around `page` into the cache. Anything but a valid block of one page is skipped: it is read
    /// individually when needed.
    fn read_around(&self, page: u64) {
        let first = page / AROUND_PAGES * AROUND_PAGES;
        let pages = AROUND_PAGES.min(self.footer.leaf_pages.saturating_sub(first));
        let mut bytes = Vec::new();
        if self.read_pages(&mut bytes, first, pages).is_err() {
            return;
        }
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if let Some(leaf) = Block::parse(bytes).filter(|block| block.level() == 0) {
                self.cache.insert(self.owner, page, &Arc::new(leaf));
            }
        }
    }

    /// The first page that was read when the table was opened.
    fn first_of_tail(&self) -> u64 {
        self.footer_page() + 1 - (self.tail.len() / PAGE_BYTES) as u64
    }

    /// The leaf at `page`, if it is in the cache.
    pub(super) fn leaf_in_cache(&self, page: u64) -> Option<Arc<Block>> {
        self.cache.get(self.owner, page)
    }

    /// The block at `page`, which must end at or before page `end`, through the cache.
    #[inline]
    fn cached(&self, page: u64, level: u8, end: u64) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.get(self.owner, page) {
            return if block.level() == level { Ok(block) } else { Err(self.inconsistent(page)) };
        }
        let block = Arc::new(self.read_block(page, level, end)?);
        self.cache.insert(self.owner, page, &block);
        Ok(block)
    }

    /// Reads and verifies the block at `page`, which must end at or before page `end`, from the first copy with a valid
    /// one.
    fn read_block(&self, page: u64, level: u8, end: u64) -> Result<Block> {
        if page >= end {
            return Err(self.inconsistent(page));
        }
        let read = self.block_of_tail(page, end).map_or_else(|| self.read_block_of(&*self.file, page, end), Ok);
        let block = read.or_else(|error| self.block_of_copies(page, end).ok_or(error))?;
        if block.level() == level { Ok(block) } else { Err(self.inconsistent(page)) }
    }

    /// The block at `page` from another copy, if one has a valid one.
    pub(super) fn block_of_copies(&self, page: u64, end: u64) -> Option<Block> {
        let turns = if page < end { 0..usize::MAX } else { 0..0 };
        let copies = turns.map_while(|turn| self.copies.copy(turn));
        copies.filter_map(|file| self.read_block_of(&*file.ok()?, page, end).ok()).next()
    }

    /// The block at `page`, if it is in the tail and valid there.
    fn block_of_tail(&self, page: u64, end: u64) -> Option<Block> {
        let bytes = self.tail.get(page.checked_sub(self.first_of_tail())? as usize * PAGE_BYTES..)?;
        let pages = pages_of(bytes);
        let block = bytes.get(..pages * PAGE_BYTES).filter(|_| pages as u64 <= end - page)?;
        Block::parse(block)
    }

    fn read_block_of(&self, file: &dyn DeviceFile, page: u64, end: u64) -> Result<Block> {
        let mut bytes = vec![0; PAGE_BYTES];
        read_exactly(file, self.row.number, &mut bytes, page)?;
        let pages = pages_of(&bytes);
        if pages > MOST_PAGES || pages as u64 > end - page {
            return Err(self.damaged(format!("block {page} is damaged")));
        }
        if pages > 1 {
            bytes.resize(pages * PAGE_BYTES, 0);
            read_exactly(file, self.row.number, &mut bytes[PAGE_BYTES..], page + 1)?;
        }
        Block::parse(bytes).ok_or_else(|| self.damaged(format!("block {page} is damaged")))
    }

    /// Reads `pages` from `page` on into `window`, unverified.
    pub(super) fn read_pages(&self, window: &mut Vec<u8>, page: u64, pages: u64) -> Result<()> {
        let length = pages as usize * PAGE_BYTES;
        window.clear();
        while window.len() < length {
            let offset = page * PAGE_BYTES as u64 + window.len() as u64;
            let read = self.file.read_onto(window, length - window.len(), offset);
            match read.map_err(|error| read_failed(self.row.number, error))? {
                0 => return Err(self.damaged("it became shorter")),
                _ => continue,
            }
        }
        Ok(())
    }

    /// Announces to the device that `pages` of leaves and filters from `page` on will be read.
    pub(super) fn will_read(&self, page: u64, pages: u64) {
        let pages = pages.min(self.footer.leaf_pages.saturating_sub(page));
        self.file.will_read(page * PAGE_BYTES as u64, pages * PAGE_BYTES as u64);
    }

    pub(super) fn damaged(&self, cause: impl Into<String>) -> Error {
        damaged(self.row.number, cause)
    }

    /// The error for a block with a valid checksum and inconsistent content.
    pub(super) fn inconsistent(&self, page: u64) -> Error {
        self.damaged(format!("block {page} is inconsistent"))
    }
}

fn read_failed(number: u64, error: io::Error) -> Error {
    Error::io("read the sorted table", Path::new(&table_path(number)), error)
}

/// The last pages of a file of `pages`; if they cannot all be read, only the last.
fn read_tail(file: &dyn DeviceFile, number: u64, pages: u64) -> Result<Box<[u8]>> {
    let read = |count: u64| {
        let mut tail = vec![0; count as usize * PAGE_BYTES];
        read_exactly(file, number, &mut tail, pages - count).map(|()| tail.into_boxed_slice())
    };
    read(pages.min(TAIL_PAGES)).or_else(|_| read(1))
}

/// Fills `buffer` from `page` on.
fn read_exactly(file: &dyn DeviceFile, number: u64, buffer: &mut [u8], page: u64) -> Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let offset = page * PAGE_BYTES as u64 + filled as u64;
        match file.read_at(&mut buffer[filled..], offset).map_err(|error| read_failed(number, error))? {
            0 => return Err(damaged(number, "it became shorter")),
            read => filled += read,
        }
    }
    Ok(())
}
