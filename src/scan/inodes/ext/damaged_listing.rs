//! Lists a directory with damage: the names that Linux would list all the same.
//!
//! That depends on how Linux reads it. An indexed directory is read in the order of its index and ends at the first
//! damaged block ([`index`](super::index)); in any other, damaged blocks are left out, and names behind one are listed
//! but not found again, because a search stops there.

use std::io;

use super::index::{self, Ended};
use super::listing::{Lister, Order};
use super::{checksum, directory};
use crate::scan::inodes::medium::Medium;
use crate::scan::inodes::{Listed, damaged};

const SEARCH_STOPS: &str = "a damaged block of its directory precedes it";

/// Reports what Linux would list although `error` was found.
pub(super) fn list_damaged<M: Medium>(lister: &Lister<'_, M>, error: io::Error, listed: &mut dyn FnMut(Listed<'_>)) {
    match lister.order() {
        Order::Single => lister.damage(error, listed),
        Order::Index if lister.has_checksums() => match index::list(lister, listed) {
            // Linux would not notice: what is damaged cannot be reached, or hides the names behind it.
            Ok(()) => lister.damage(error, listed),
            Err(Ended::Damaged(error)) => lister.damage(error, listed),
            Err(Ended::NoIndex) => list_blocks(lister, error, listed),
        },
        _ => list_blocks(lister, error, listed),
    }
}

/// Reports the names block by block.
fn list_blocks<M: Medium>(lister: &Lister<'_, M>, error: io::Error, listed: &mut dyn FnMut(Listed<'_>)) {
    lister.damage(error, listed);
    let (seed, limits) = (lister.seed(), lister.limits());
    let (mut next, mut is_behind) = (0, false);
    for (logical, block) in lister.located() {
        // Part of the map is missing: a search stops there.
        is_behind |= lister.has_lost_blocks() && logical != next;
        next = logical + 1;
        match lister.read_block(block) {
            Ok(block) if lister.has_checksums() && !checksum::is_stored(checksum::names(seed, &block), &block) => {
                is_behind = true
            }
            Ok(block) if is_behind => {
                let mut unfound = |name: &[u8], _: u32| listed(Listed::Unreadable(name, damaged(SEARCH_STOPS)));
                if let Err(error) = directory::names(&block, limits, &mut unfound) {
                    lister.damage(error, listed);
                }
            }
            Ok(block) => lister.report_names(&block, listed),
            Err(_) => return,
        }
    }
}
