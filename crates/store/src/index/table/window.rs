//! Read-ahead over the blocks of a table: some pages in memory, from which blocks are taken sequentially.
//!
//! The length of each read depends on how far the scan is expected to go. For a scan of everything, the next read is
//! announced to the device while the previous one is being processed.

use std::sync::{Arc, Mutex, MutexGuard};

use super::block::{Block, MOST_PAGES, PAGE_BYTES, pages_of};
use super::reader::Table;
use crate::error::Result;
use crate::locks::lock;

/// Pages of the first read, and the maximum; each read is twice as long as the one before.
const AHEAD_PAGES: (u64, u64) = (4, 64);

/// How far a scan is expected to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Perhaps not far: the first reads are short.
    Near,
    /// Over everything.
    All,
}

impl Reach {
    fn first_pages(self) -> u64 {
        match self {
            Reach::Near => AHEAD_PAGES.0,
            Reach::All => AHEAD_PAGES.1,
        }
    }
}

/// A window shared by several scans of a table.
#[derive(Debug, Clone)]
pub(crate) struct SharedWindow(Arc<Mutex<Window>>);

impl SharedWindow {
    /// An empty window over a table, whose beginning is announced to the device if all of it will be read.
    pub(crate) fn new(table: &Table, reach: Reach) -> SharedWindow {
        if reach == Reach::All {
            table.will_read(0, reach.first_pages());
        }
        SharedWindow(Arc::new(Mutex::new(Window::new(reach))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Window> {
        lock(&self.0)
    }
}

/// Pages of a table in memory.
#[derive(Debug)]
pub(super) struct Window {
    bytes: Vec<u8>,
    page: u64,
    ahead_pages: u64,
    reach: Reach,
}

impl Window {
    /// An empty window.
    pub(super) fn new(reach: Reach) -> Window {
        Window { bytes: Vec::new(), page: 0, ahead_pages: reach.first_pages(), reach }
    }

    /// Whether the window contains `page`.
    pub(super) fn has(&self, page: u64) -> bool {
        page >= self.page && page - self.page < (self.bytes.len() / PAGE_BYTES) as u64
    }

    /// Whether the window contains `page`, or a scan of everything begins or continues there.
    pub(super) fn leads_to(&self, page: u64) -> bool {
        let end = self.page + (self.bytes.len() / PAGE_BYTES) as u64;
        let goes_on = self.bytes.is_empty() || page.checked_sub(end).is_some_and(|passed| passed < AHEAD_PAGES.1);
        self.has(page) || (self.reach == Reach::All && goes_on)
    }

    /// Restarts read-ahead at its minimum: the next read is not sequential.
    pub(super) fn jump(&mut self) {
        self.ahead_pages = AHEAD_PAGES.0;
    }

    /// The verified block at `page`, which must end at or before page `end`; reads what is missing, and what is damaged
    /// from another copy.
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

    /// The content of the window from `page` on.
    fn from(&self, page: u64) -> &[u8] {
        &self.bytes[(page - self.page) as usize * PAGE_BYTES..]
    }

    fn fill(&mut self, table: &Table, page: u64, least: u64, most: u64) -> Result<()> {
        let pages = self.ahead_pages.max(least).min(most);
        self.ahead_pages = (self.ahead_pages * 2).min(AHEAD_PAGES.1);
        self.page = page;
        table.read_pages(&mut self.bytes, page, pages)?;
        if self.reach == Reach::All {
            table.will_read(page + pages, self.ahead_pages.min(most - pages));
        }
        Ok(())
    }
}
