//! Packs the regular files below a directory, with their modification times, into a new store, and reads them back in
//! disk order, verified. STORE must not be within DIR: that is not checked.
//!
//! `cargo run --release -p granulo-store --example pack_directory -- DIR STORE`

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use granulo_store::{Attributes, Batch, Durability, Key, Kind, Plan, Store, Time};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [directory, home] = arguments.as_slice() else { return Err("usage: pack_directory DIR STORE".into()) };

    let store = Store::create(home, &Plan::default())?;
    let started = Instant::now();
    let mut batch = store.batch(Durability::Batch);
    let packed = pack(directory, &Key::root(), &mut batch)?;
    batch.commit()?;
    println!("packed {packed} files in {:.2} s", started.elapsed().as_secs_f64());

    let (files, bytes, errors, started) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    // 0: as many threads as processors. Each says whether to go on.
    store.load_with(&Key::root(), 0, |object| match object {
        Ok(object) => {
            // A large file comes in parts; each counts once, at its first.
            let is_file = matches!(object.kind(), Kind::File | Kind::Large) && object.offset() == 0;
            files.fetch_add(u64::from(is_file), Ordering::Relaxed);
            bytes.fetch_add(object.content().len() as u64, Ordering::Relaxed);
            true
        }
        Err(error) => {
            eprintln!("{error}");
            errors.fetch_add(1, Ordering::Relaxed);
            true
        }
    })?;
    let (files, bytes) = (files.into_inner(), bytes.into_inner());
    println!("read {files} files, {bytes} bytes in {:.2} s", started.elapsed().as_secs_f64());
    if files == packed && errors.into_inner() == 0 {
        Ok(())
    } else {
        Err("not every file that was packed was read".into())
    }
}

/// Puts the regular files below a directory under `key`; returns how many.
fn pack(directory: &Path, key: &Key, batch: &mut Batch<'_>) -> Result<u64, Box<dyn Error>> {
    let mut packed = 0;
    let of = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    for entry in fs::read_dir(directory).map_err(|error| of(directory, error))? {
        let entry = entry?;
        let (path, child) = (entry.path(), key.child(entry.file_name().as_bytes())?);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            packed += pack(&path, &child, batch)?;
        } else if kind.is_file() {
            let metadata = entry.metadata()?;
            let mtime = Time { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 };
            let content = fs::read(&path).map_err(|error| of(&path, error))?;
            batch.put(&child, &Attributes::of_file(mtime), &content)?;
            packed += 1;
        }
    }
    Ok(packed)
}
