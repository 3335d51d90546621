//! Reads a trace (output of strace, a capture of NFS, a log of Darshan, a table, or granulo's own format) and prints
//! the miss ratio of LRU caches of blocks of 4 KiB.
//!
//! `cargo run --release --example cache -- TRACE`

use std::error::Error;
use std::path::PathBuf;

use granulo::mrc::recorder::{Recorder, Sampling};
use granulo::mrc::request::Kind as Reference;
use granulo::trace::{Kind, open};
use granulo::units::{format_share, format_size};

const BLOCK_BYTES: u64 = 4096;
/// A sample represents the blocks beyond this.
const MEMORY_BYTES: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [trace] = arguments.as_slice() else { return Err("usage: cache TRACE".into()) };

    let mut source = open(trace, None)?;
    let mut recorder = Recorder::new(Sampling::within(MEMORY_BYTES), &[]);
    while let Some(operation) = source.next()? {
        let reference = match operation.kind {
            Kind::Read => Reference::Read,
            Kind::Write => Reference::WholeWrite,
            _ => continue,
        };
        let (Some(file), Some(offset), Some(end)) = (operation.file, operation.offset_bytes, operation.end_bytes())
        else {
            continue;
        };
        let first = offset / BLOCK_BYTES;
        for block in first..end.div_ceil(BLOCK_BYTES) {
            // One key for each block of files of up to 16 TiB.
            recorder.refer(u64::from(file) << 32 | block & u64::from(u32::MAX), reference, block > first);
        }
    }
    source.problems().list().iter().for_each(|problem| eprintln!("{} × {}", problem.count, problem.kind.words()));

    let curve = recorder.finish();
    println!("{} references to blocks of {}", curve.references.all(), format_size(BLOCK_BYTES.into()));
    for power in (20..=34).step_by(2) {
        let misses = curve.at((1 << power) / BLOCK_BYTES);
        println!("{:>8} of cache: {:>6} miss", format_size(1 << power), format_share(misses.miss_ratio));
    }
    println!("{:>8} hold everything", format_size(u128::from(curve.enough_blocks() * BLOCK_BYTES)));
    Ok(())
}
