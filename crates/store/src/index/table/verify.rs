//! Verification of a whole sorted table, in one pass and constant memory.
//!
//! Every block is valid, the checksums are those that were written, keys ascend from the first leaf to the last,
//! entries and ids match the footer, and every level describes exactly the one below: first keys and pages of the
//! blocks of a level have the same digest as the entries of the level above. Filters are byte for byte those of the
//! leaves before them, at the stated locations; the bounds are those of the keys.

use std::hash::Hasher;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::block::{Block, HEADER_BYTES, PAGE_BYTES};
use super::filter::{DIRECTORY_LEVEL, FILTER_LEVEL, FilterBuilder};
use super::footer::{CLASSES_LEVEL, KeyBounds};
use super::leaf::{self, Previous};
use super::reader::{FilterPlace, Table};
use super::table_path;
use super::window::{Reach, Window};
use crate::devices::device::DeviceFile;
use crate::error::{Error, Result};
use crate::format::index_key::{LONGEST_INDEX_KEY_BYTES, is_superseded};
use crate::io::varint;

/// Verified pages per progress report.
const SPENT_PAGES: u64 = 64;
const NOT_WRITTEN: &str = "its blocks are not the ones written";

impl Table {
    /// Writes every block to another file, each from a copy where it is valid.
    ///
    /// # Errors
    /// As [`verify`](Self::verify), as far as blocks and their chain are concerned: valid blocks that are not the ones
    /// written, as after a lost write, are not copied. Any error of writing.
    pub(crate) fn copy_to(&self, file: &dyn DeviceFile) -> Result<()> {
        let fail = |error| Error::io("copy the sorted table", Path::new(&table_path(self.row().number)), error);
        let footer_page = self.row().size_bytes / PAGE_BYTES as u64 - 1;
        let (mut window, mut chain, mut page) = (Window::new(Reach::All), XxHash3_64::new(), 0);
        while page < footer_page {
            let block = window.block(self, page, footer_page)?;
            chain.write(&block.checksum().to_le_bytes());
            file.write_at(block.bytes(), page * PAGE_BYTES as u64).map_err(fail)?;
            page += block.pages();
        }
        if chain.finish() != self.footer.chain {
            return Err(self.damaged(NOT_WRITTEN));
        }
        file.write_at(&self.footer.encode(), footer_page * PAGE_BYTES as u64).map_err(fail)
    }

    /// Reads and verifies every block.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind::Corrupt) for the first fault found; any error of reading.
    pub(crate) fn verify(&self) -> Result<()> {
        self.verify_paced(&mut |_| Ok(()))
    }

    /// The same; `spend` is called with the bytes verified, and its errors stop it.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub(crate) fn verify_paced(&self, spend: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let footer_page = self.footer_page();
        let (mut window, mut walk, mut chain) = (Window::new(Reach::All), TableWalk::new(self), XxHash3_64::new());
        let (mut page, mut spent_page) = (0, 0);
        while page < footer_page {
            let block = window.block(self, page, footer_page)?;
            chain.write(&block.checksum().to_le_bytes());
            walk.block(&block, page).ok_or_else(|| self.inconsistent(page))?;
            page += block.pages();
            if page - spent_page >= SPENT_PAGES {
                spend((page - spent_page) * PAGE_BYTES as u64)?;
                spent_page = page;
            }
        }
        spend((footer_page + 1 - spent_page) * PAGE_BYTES as u64)?;
        if chain.finish() != self.footer.chain {
            return Err(self.damaged(NOT_WRITTEN));
        }
        if walk.agrees(&self.read_filter_places()?) {
            Ok(())
        } else {
            Err(self.damaged("its blocks contradict each other or the footer"))
        }
    }
}

/// What was seen of a level.
#[derive(Default)]
struct LevelSummary {
    blocks: u64,
    /// Digest of the first keys and pages of its blocks.
    own: XxHash3_64,
    /// Digest of the keys and pages in the blocks above.
    above: XxHash3_64,
}

/// What was seen of a table.
struct TableWalk<'a> {
    table: &'a Table,
    levels: Vec<LevelSummary>,
    key: Vec<u8>,
    first_key: Vec<u8>,
    /// Last key of the previous leaf.
    last_key: Vec<u8>,
    /// Filter of the keys since the last one, and the first of them.
    filter: FilterBuilder,
    filter_key: Vec<u8>,
    /// The expected blocks of the filter, and where the next of them begins.
    filter_blocks: Vec<u8>,
    filter_at: usize,
    filters: Vec<FilterPlace>,
    entries: u64,
    lowest_id: u64,
    highest_id: u64,
}

impl<'a> TableWalk<'a> {
    fn new(table: &'a Table) -> TableWalk<'a> {
        let levels = (0..table.footer.levels).map(|_| LevelSummary::default()).collect();
        TableWalk {
            table,
            levels,
            key: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            filter: FilterBuilder::default(),
            filter_key: Vec::new(),
            filter_blocks: Vec::new(),
            filter_at: 0,
            filters: Vec::new(),
            entries: 0,
            lowest_id: u64::MAX,
            highest_id: 0,
        }
    }

    /// Processes the next block; `None` if it should not be there.
    fn block(&mut self, block: &Block, page: u64) -> Option<()> {
        let footer = &self.table.footer;
        let in_filter = self.filter_at < self.filter_blocks.len();
        match block.level() {
            CLASSES_LEVEL => return (footer.first_class_page..footer.directory_page).contains(&page).then_some(()),
            DIRECTORY_LEVEL => return (page >= footer.directory_page).then_some(()),
            FILTER_LEVEL => return self.filter(block, page),
            _ if in_filter => return None,
            _ => {}
        }
        let level = usize::from(block.level());
        let in_place = (level == 0) == (page < footer.leaf_pages) && page < footer.first_class_page;
        // Levels come one after the other, and the root is the only block of the last.
        let in_order = self.levels.iter().skip(level + 1).all(|above| above.blocks == 0);
        if !in_place || !in_order {
            return None;
        }
        if level == 0 {
            self.leaf(block)?
        } else {
            self.upper(block, level)?
        }
        let first_key = self.first_key(block)?;
        let own = self.levels.get_mut(level)?;
        own.blocks += 1;
        digest(&mut own.own, &first_key, page);
        Some(())
    }

    fn filter(&mut self, block: &Block, page: u64) -> Option<()> {
        if self.filter_at == self.filter_blocks.len() {
            (self.filter_blocks, self.filter_at) = (self.filter.finish(), 0);
            let pages = (self.filter_blocks.len() / PAGE_BYTES) as u64;
            self.filters.push(FilterPlace { first_key: self.filter_key[..].into(), page, pages });
        }
        let expected = self.filter_blocks.get(self.filter_at + HEADER_BYTES..self.filter_at + PAGE_BYTES)?;
        self.filter_at += PAGE_BYTES;
        (page < self.table.footer.leaf_pages && expected == block.body()).then_some(())
    }

    fn first_key(&mut self, block: &Block) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        if block.count() > 0 {
            block.start().next(block, &mut key, |_, _| Some(()))?;
        }
        Some(key)
    }

    fn leaf(&mut self, block: &Block) -> Option<()> {
        let (mut cursor, mut before) = (block.start(), Previous::default());
        self.key.clear();
        while !cursor.at_end(block) {
            if cursor.at_restart() {
                before = Previous::default();
            }
            let entry = cursor.next(block, &mut self.key, |bytes, at| leaf::decode(bytes, at, &mut before))?;
            let id = entry.resolve(&self.table.classes)?.id;
            let ascends = self.entries == 0 || self.key > self.last_key;
            if !ascends || self.key.len() > LONGEST_INDEX_KEY_BYTES {
                return None;
            }
            if self.entries == 0 {
                self.first_key.clone_from(&self.key);
            }
            if self.filter.is_empty() {
                self.filter_key.clone_from(&self.key);
            }
            self.filter.add(&self.key);
            // A forged table has no filters: memory stays bounded.
            if self.filter.is_over_full() {
                return None;
            }
            self.last_key.clone_from(&self.key);
            self.entries += 1;
            if !is_superseded(&self.key) {
                self.lowest_id = self.lowest_id.min(id);
                self.highest_id = self.highest_id.max(id);
            }
        }
        cursor.used_all(block).then_some(())
    }

    fn upper(&mut self, block: &Block, level: usize) -> Option<()> {
        let mut cursor = block.start();
        self.key.clear();
        while !cursor.at_end(block) {
            let page = cursor.next(block, &mut self.key, varint::take)?;
            digest(&mut self.levels.get_mut(level - 1)?.above, &self.key, page);
        }
        cursor.used_all(block).then_some(())
    }

    /// Whether everything seen matches the footer and the levels.
    fn agrees(&self, filters: &[FilterPlace]) -> bool {
        let footer = &self.table.footer;
        let has_filters = match &self.filters[..] {
            // A single leaf has no filter.
            [] => filters.is_empty() && footer.filter_pages == 0 && footer.levels == 1,
            [one] => {
                filters.is_empty() && (one.page + one.pages, one.pages) == (footer.leaf_pages, footer.filter_pages)
            }
            several => *several == *filters,
        };
        let is_last = self.filter_at == self.filter_blocks.len() && (self.filters.is_empty() || self.filter.is_empty());
        if !has_filters || !is_last || footer.bounds != KeyBounds::new(&self.first_key, &self.last_key) {
            return false;
        }
        let [below @ .., root] = self.levels.as_slice() else { return false };
        let counted = (self.entries, self.lowest_id, self.highest_id);
        counted == (footer.entries, footer.lowest_id, footer.highest_id)
            && root.blocks == 1
            && below.iter().all(|level| level.own.finish() == level.above.finish())
    }
}

fn digest(digest: &mut XxHash3_64, key: &[u8], page: u64) {
    digest.write(&(key.len() as u64).to_le_bytes());
    digest.write(key);
    digest.write(&page.to_le_bytes());
}
