//! Entries of a sorted table in key order, from any key on, with skips ahead.
//!
//! The leaf in which a scan begins or lands comes through the cache, because listings of the same directory recur. The
//! leaves after it are read ahead, 16 KiB at first, doubling up to 256 KiB, and bypass the cache. A scan of everything
//! reads all leaves ahead, at the maximum length from the beginning.

use std::ops::Bound;
use std::sync::Arc;

use super::block::{Block, BlockCursor};
use super::filter::FILTER_LEVEL;
use super::leaf::{self, Previous};
use super::reader::Table;
use super::window::SharedWindow;
use crate::error::Result;
use crate::format::entry::Entry;

/// A scan of a sorted table. It is at an entry, its head, until there are no more.
#[derive(Debug)]
pub(crate) struct TableScan {
    table: Arc<Table>,
    leaf: Arc<Block>,
    leaf_page: u64,
    cursor: BlockCursor,
    previous: Previous,
    key: Vec<u8>,
    entry: Option<Entry>,
    window: SharedWindow,
}

impl TableScan {
    /// A scan that is at the first entry within `from`.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn new(table: Arc<Table>, from: Bound<&[u8]>) -> Result<TableScan> {
        let window = SharedWindow::new(&table, super::window::Reach::Near);
        TableScan::within(table, window, from)
    }

    /// The same, with a window shared with other scans of the table.
    ///
    /// # Errors
    /// As [`Table::look_up`].
    pub(crate) fn within(table: Arc<Table>, window: SharedWindow, from: Bound<&[u8]>) -> Result<TableScan> {
        let page = match from {
            Bound::Included(key) | Bound::Excluded(key) => table.leaf_page(key)?.unwrap_or(0),
            Bound::Unbounded => 0,
        };
        let leaf = landed(&table, &window, page)?;
        let mut scan = TableScan {
            cursor: leaf.start(),
            leaf,
            leaf_page: page,
            table,
            previous: Previous::default(),
            key: Vec::new(),
            entry: None,
            window,
        };
        match from {
            Bound::Unbounded => scan.advance()?,
            Bound::Included(key) => scan.find(key)?,
            Bound::Excluded(key) => {
                scan.find(key)?;
                if scan.head().is_some_and(|(head, _)| head == key) {
                    scan.advance()?;
                }
            }
        }
        Ok(scan)
    }

    /// The table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The current entry.
    #[inline]
    pub(crate) fn head(&self) -> Option<(&[u8], &Entry)> {
        self.entry.as_ref().map(|entry| (self.key.as_slice(), entry))
    }

    /// Advances to the next entry.
    ///
    /// # Errors
    /// As [`Table::look_up`]; the scan then ends.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.entry = None;
        while self.cursor.at_end(&self.leaf) {
            let page = self.leaf_page + self.leaf.pages();
            let Some((page, leaf)) = self.leaf_from(page)? else { return Ok(()) };
            self.leaf = leaf;
            self.leaf_page = page;
            self.cursor = self.leaf.start();
            self.key.clear();
        }
        if self.cursor.at_restart() {
            self.previous = Previous::default();
        }
        let (previous, classes) = (&mut self.previous, &self.table.classes);
        let entry = self.cursor.next(&self.leaf, &mut self.key, |bytes, at| leaf::decode(bytes, at, previous));
        match entry.and_then(|entry| entry.resolve(classes)) {
            Some(entry) => self.entry = Some(entry),
            None => return Err(self.table.inconsistent(self.leaf_page)),
        }
        Ok(())
    }

    /// Advances to the first entry not below `key`; stays in place if it is already there.
    ///
    /// # Errors
    /// As [`TableScan::advance`].
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.head().is_none_or(|(head, _)| head >= key) {
            return Ok(());
        }
        self.go_to(key)
    }

    /// Moves to the first entry not below `key`, forwards or backwards.
    ///
    /// # Errors
    /// As [`TableScan::advance`].
    pub(crate) fn go_to(&mut self, key: &[u8]) -> Result<()> {
        self.entry = None;
        let page = self.table.leaf_page(key)?.unwrap_or(0);
        if page != self.leaf_page {
            self.leaf = landed(&self.table, &self.window, page)?;
            self.leaf_page = page;
        }
        self.find(key)
    }

    /// Moves to the first entry not below `key`, which is in this leaf or the first of the next.
    fn find(&mut self, key: &[u8]) -> Result<()> {
        self.key.clear();
        self.cursor = self.leaf.start_before(key).ok_or_else(|| self.table.inconsistent(self.leaf_page))?;
        loop {
            self.advance()?;
            if self.head().is_none_or(|(head, _)| head >= key) {
                return Ok(());
            }
        }
    }

    /// The first leaf from `page` on, and its page; from the window, which is moved if necessary. Filters between
    /// leaves are skipped even if they are damaged.
    fn leaf_from(&mut self, mut page: u64) -> Result<Option<(u64, Arc<Block>)>> {
        let end = self.table.footer.leaf_pages - self.table.footer.filter_pages;
        while page < end {
            match self.window.lock().block(&self.table, page, end) {
                Ok(block) if block.level() == 0 => return Ok(Some((page, Arc::new(block)))),
                Ok(block) if block.level() == FILTER_LEVEL => {
                    page = self.table.behind_filter(page).unwrap_or(page + block.pages());
                }
                Ok(_) => return Err(self.table.inconsistent(page)),
                Err(error) => page = self.table.behind_filter(page).ok_or(error)?,
            }
        }
        Ok(None)
    }
}

/// The leaf in which a scan lands. Read-ahead from there restarts at its minimum, because the scan is no longer
/// sequential.
fn landed(table: &Table, window: &SharedWindow, page: u64) -> Result<Arc<Block>> {
    let mut window = window.lock();
    if !window.leads_to(page) {
        window.jump();
        return table.leaf(page);
    }
    let block = match table.leaf_in_cache(page) {
        Some(leaf) => leaf,
        None => Arc::new(window.block(table, page, table.footer.leaf_pages)?),
    };
    if block.level() == 0 { Ok(block) } else { Err(table.inconsistent(page)) }
}
