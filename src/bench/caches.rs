//! Caches before a measurement: dropped as far as possible, and reported as they are.
//!
//! The second concern is memory itself. Where a virtual machine returns free memory to its host, touching that memory
//! again costs seconds per gigabyte, which would count in the measurement. [`touch_memory`] pays that cost before.

use std::fs;
use std::hint::black_box;

use super::host::available_memory_bytes;
use super::result::CacheState;

const DROP: &str = "/proc/sys/vm/drop_caches";

/// Result of dropping the caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The state that was reached.
    pub state: CacheState,
    /// Why the caches are not cold.
    pub note: Option<String>,
}

/// Writes back all dirty data and drops pages, directory entries and inodes from memory.
pub(crate) fn drop_caches() -> Dropped {
    rustix::fs::sync();
    match fs::write(DROP, "3\n") {
        Ok(()) => Dropped { state: CacheState::Cold, note: None },
        Err(error) => {
            let cause = crate::error::os_message(&error);
            let note = format!(
                "The caches could not be dropped ({DROP}: {cause}), which needs root: phases that should start with a \
                    cold cache start with what earlier operations left in it."
            );
            Dropped { state: CacheState::AsIs, note: Some(note) }
        }
    }
}

/// Writes to `bytes` of memory, at most half of what is available, and frees it, so that the kernel has it ready.
/// Returns the number of bytes.
pub(crate) fn touch_memory(bytes: u64) -> u64 {
    const PIECE_BYTES: usize = 64 << 20;
    let bytes = bytes.min(available_memory_bytes() / 2);
    let mut held = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(PIECE_BYTES as u64) as usize;
        held.push(black_box(vec![1u8; piece]));
        left -= piece as u64;
    }
    drop(black_box(held));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reached_is_said() {
        let dropped = drop_caches();
        assert_eq!(dropped.note.is_none(), dropped.state == CacheState::Cold);
    }

    #[test]
    fn no_more_memory_is_touched_than_there_is() {
        assert_eq!(touch_memory(0), 0);
        assert_eq!(touch_memory(1 << 20), 1 << 20);
    }
}
