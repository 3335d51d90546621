//! An open sorted table: looking up keys.
//!
//! Blocks above the leaves are read when they are first needed and stay in memory: they are about a 200th of the table, and no lock
//! is taken to go down through them. Leaves go through the [`BlockCache`] that all tables share. A look-up allocates nothing.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::block::{Block, MOST_PAGES, PAGE_BYTES, pages_of};
use super::cache::BlockCache;
use super::footer::{self, CLASSES_LEVEL, Footer, Refusal};
use super::leaf::{self, Before, Class};
use super::{damaged, table_path};
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Entry;
use crate::index::catalog::TableRow;

/// A sorted table, open for reading.
#[derive(Debug)]
pub(crate) struct Table {
    row: TableRow,
    pub(super) file: Arc<dyn DeviceFile>,
    /// To be asked for copies of what is damaged.
    copies: Arc<dyn DeviceFile>,
    pub(super) footer: Footer,
    pub(super) classes: Box<[Class]>,
    /// The blocks above the leaves, by page.
    upper: Box<[OnceLock<Block>]>,
    cache: Arc<BlockCache>,
    owner: u64,
}

impl Table {
    /// Opens the table that the catalog has in `row`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is damaged or not the one that `row` describes, [`ErrorKind::NewerVersion`], what opening and
    /// reading fails with.
    pub(crate) fn open(device: &dyn Device, row: &TableRow, cache: &Arc<BlockCache>) -> Result<Table> {
        let failed = |error| read_failed(row.number, error);
        let copies = device.open(&table_path(row.number), Mode::Read).map_err(failed)?;
        Table::of(&copies, &copies, row, cache).or_else(|error| {
            let others = (0..).map_while(|turn| copies.copy(turn));
            let mut sound = others.filter_map(|file| Table::of(&file.ok()?, &copies, row, cache).ok());
            sound.next().ok_or(error)
        })
    }

    /// The table that `file` is.
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
            return Err(damaged(number, format!("it has {size_bytes} bytes, and is no table")));
        }
        let mut page = vec![0; PAGE_BYTES];
        read_exactly(file.as_ref(), number, &mut page, pages - 1)?;
        let footer = Footer::decode(&page, pages).map_err(|refusal| match refusal {
            Refusal::Damaged => damaged(number, "its footer is damaged"),
            Refusal::Newer(version) => {
                let cause = format!("it has version {version}, and this granulo reads up to {}", footer::VERSION);
                Error::new(ErrorKind::NewerVersion, "read the sorted table", cause)
                    .at(Path::new(&table_path(number)))
                    .advise("use a newer granulo")
            }
        })?;
        let Footer { entries, lowest_id, highest_id, .. } = footer;
        let own = TableRow { number, entries, size_bytes, lowest_id, highest_id };
        if own != *row {
            return Err(damaged(number, "it is not the table that the catalog describes"));
        }
        let upper = (footer.leaf_pages..footer.first_class_page).map(|_| OnceLock::new()).collect();
        let owner = cache.new_owner();
        let (file, copies) = (Arc::clone(file), Arc::clone(copies));
        let classes = Box::default();
        let mut table = Table { row: own, file, copies, footer, classes, upper, cache: cache.clone(), owner };
        table.classes = table.read_classes(pages - 1)?;
        Ok(table)
    }

    fn read_classes(&self, footer_page: u64) -> Result<Box<[Class]>> {
        let mut classes = Vec::new();
        for page in self.footer.first_class_page..footer_page {
            let block = self.read_block(page, CLASSES_LEVEL, footer_page)?;
            footer::decode_classes(block.body(), block.count(), &mut classes)
                .ok_or_else(|| self.damaged("its classes are damaged"))?;
        }
        if classes.len() != self.footer.classes as usize {
            return Err(self.damaged("it has not the classes that it says"));
        }
        Ok(classes.into())
    }

    /// What the catalog has about it.
    pub(crate) fn row(&self) -> &TableRow {
        &self.row
    }

    /// What the table has for `key`, a removal too.
    ///
    /// # Errors
    /// What reading fails with; [`ErrorKind::Corrupt`] for a block that does not hold.
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Entry>> {
        let Some(page) = self.leaf_page(key)? else { return Ok(None) };
        let block = self.leaf(page)?;
        let mut before = Before::default();
        let found = block.find(key, |bytes, at| leaf::decode(bytes, at, &mut before));
        match found {
            Some(Some((entry, true))) => match entry.resolve(&self.classes) {
                Some(entry) => Ok(Some(entry)),
                None => Err(self.contradictory(page)),
            },
            Some(_) => Ok(None),
            None => Err(self.contradictory(page)),
        }
    }

    /// The leaf that has `key` if any has; `None` if all keys are above.
    pub(super) fn leaf_page(&self, key: &[u8]) -> Result<Option<u64>> {
        let mut page = self.footer.root;
        for level in (1..self.footer.levels).rev() {
            let block = self.upper_block(page, level as u8)?;
            match block.child(key).ok_or_else(|| self.contradictory(page))? {
                Some(child) => page = child,
                None => return Ok(None),
            }
        }
        Ok(Some(page))
    }

    fn upper_block(&self, page: u64, level: u8) -> Result<&Block> {
        let slot = page.checked_sub(self.footer.leaf_pages).and_then(|index| self.upper.get(index as usize));
        let slot = slot.ok_or_else(|| self.contradictory(page))?;
        let block = match slot.get() {
            Some(block) => block,
            None => {
                let block = self.read_block(page, level, self.footer.first_class_page)?;
                slot.get_or_init(|| block)
            }
        };
        if block.level() == level { Ok(block) } else { Err(self.contradictory(page)) }
    }

    /// The leaf at `page`, through the cache.
    pub(super) fn leaf(&self, page: u64) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.get(self.owner, page) {
            return Ok(block);
        }
        let block = Arc::new(self.read_block(page, 0, self.footer.leaf_pages)?);
        self.cache.insert(self.owner, page, &block);
        Ok(block)
    }

    /// Reads and verifies the block at `page`, which must end at or before page `end`, from the first copy where it is sound.
    fn read_block(&self, page: u64, level: u8, end: u64) -> Result<Block> {
        if page >= end {
            return Err(self.contradictory(page));
        }
        let read = self.read_block_of(&*self.file, page, end);
        let block = read.or_else(|error| self.block_of_copies(page, end).ok_or(error))?;
        if block.level() == level { Ok(block) } else { Err(self.contradictory(page)) }
    }

    /// The block at `page` from another copy, if one has it.
    pub(super) fn block_of_copies(&self, page: u64, end: u64) -> Option<Block> {
        let turns = if page < end { 0..usize::MAX } else { 0..0 };
        let copies = turns.map_while(|turn| self.copies.copy(turn));
        copies.filter_map(|file| self.read_block_of(&*file.ok()?, page, end).ok()).next()
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

    /// Reads `pages` from `page` on into `window`, whatever they are.
    pub(super) fn read_pages(&self, window: &mut Vec<u8>, page: u64, pages: u64) -> Result<()> {
        let length = pages as usize * PAGE_BYTES;
        window.clear();
        while window.len() < length {
            let offset = page * PAGE_BYTES as u64 + window.len() as u64;
            let read = self.file.read_onto(window, length - window.len(), offset);
            match read.map_err(|error| read_failed(self.row.number, error))? {
                0 => return Err(self.damaged("it is shorter than it was")),
                _ => continue,
            }
        }
        Ok(())
    }

    pub(super) fn damaged(&self, cause: impl Into<String>) -> Error {
        damaged(self.row.number, cause)
    }

    /// The error of a block whose checksum holds, but not its content.
    pub(super) fn contradictory(&self, page: u64) -> Error {
        self.damaged(format!("block {page} contradicts itself or others"))
    }
}

fn read_failed(number: u64, error: io::Error) -> Error {
    Error::io("read the sorted table", Path::new(&table_path(number)), error)
}

/// Fills `buffer` from `page` on.
fn read_exactly(file: &dyn DeviceFile, number: u64, buffer: &mut [u8], page: u64) -> Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let offset = page * PAGE_BYTES as u64 + filled as u64;
        match file.read_at(&mut buffer[filled..], offset).map_err(|error| read_failed(number, error))? {
            0 => return Err(damaged(number, "it is shorter than it was")),
            read => filled += read,
        }
    }
    Ok(())
}
