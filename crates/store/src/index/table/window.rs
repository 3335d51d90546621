//! Read-ahead over the blocks of a table: some pages in memory, from which blocks are taken one after the other.

use super::block::{Block, MOST_PAGES, PAGE_BYTES, pages_of};
use super::reader::Table;
use crate::error::Result;

/// Pages that are read at first, and at most: twice as many each time.
const AHEAD_PAGES: (u64, u64) = (4, 64);

/// Pages of a table in memory.
#[derive(Debug)]
pub(super) struct Window {
    bytes: Vec<u8>,
    page: u64,
    ahead_pages: u64,
}

impl Window {
    /// An empty one.
    pub(super) fn new() -> Window {
        Window { bytes: Vec::new(), page: 0, ahead_pages: AHEAD_PAGES.0 }
    }

    /// Whether `page` is here.
    pub(super) fn has(&self, page: u64) -> bool {
        page >= self.page && page - self.page < (self.bytes.len() / PAGE_BYTES) as u64
    }

    /// Reads little again at first: what follows is not what came before.
    pub(super) fn jump(&mut self) {
        self.ahead_pages = AHEAD_PAGES.0;
    }

    /// The verified block at `page`, which must end at or before page `end`; reads what is missing, and what is damaged from another copy.
    pub(super) fn block(&mut self, table: &Table, page: u64, end: u64) -> Result<Block> {
        self.own_block(table, page, end).or_else(|error| table.block_of_copies(page, end).ok_or(error))
    }

    fn own_block(&mut self, table: &Table, page: u64, end: u64) -> Result<Block> {
        let damaged = || table.damaged(format!("block {page} is damaged"));
        let left = end.saturating_sub(page);
        if left == 0 {
            return Err(damaged());
        }
        if !self.has(page) {
            self.fill(table, page, 1, left)?;
        }
        let pages = pages_of(self.from(page));
        if pages > MOST_PAGES || pages as u64 > left {
            return Err(damaged());
        }
        if self.from(page).len() < pages * PAGE_BYTES {
            self.fill(table, page, pages as u64, left)?;
        }
        Block::parse(&self.from(page)[..pages * PAGE_BYTES]).ok_or_else(damaged)
    }

    /// What is here from `page` on.
    fn from(&self, page: u64) -> &[u8] {
        &self.bytes[(page - self.page) as usize * PAGE_BYTES..]
    }

    fn fill(&mut self, table: &Table, page: u64, least: u64, most: u64) -> Result<()> {
        let pages = self.ahead_pages.max(least).min(most);
        self.ahead_pages = (self.ahead_pages * 2).min(AHEAD_PAGES.1);
        self.page = page;
        table.read_pages(&mut self.bytes, page, pages)
    }
}
