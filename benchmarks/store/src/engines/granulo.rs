//! granulo's store in one directory, through its public interface and with its defaults: no redundancy, no compression,
//! every byte verified.
//!
//! Ingest is one batch that is durable at the end. A second thread encodes and writes while the caller makes the next
//! objects, as in a program that receives its data from elsewhere; they are passed in chunks of [`CHUNK_BYTES`].
//! Modes are changed as a mount would: all attributes are read, and one is changed. Objects are deleted one by one, in
//! batches like those of LMDB. With `tree`, one removal of the root replaces them:
//! that row is not comparable with the peers.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use granulo_store::{Attributes, Buffer, Durability, Key, Kind, Plan, Store, Time};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Contents that are passed together, unless one is larger by itself: the caller then waits until it is written,
/// because memory must not hold several of these.
const CHUNK_BYTES: usize = 1 << 20;
/// Largest number of chunks that wait to be written.
const WAITING: usize = 2;
const COMMIT_DELETIONS: usize = 10_000;
/// Objects in each of several batches.
const COMMIT_OBJECTS: usize = 2_500;

#[derive(Default)]
pub struct Granulo {
    /// Deletes everything as one tree.
    pub tree: bool,
    /// Puts everything in batches of [`COMMIT_OBJECTS`] instead of one.
    pub batches: bool,
}

impl Engine for Granulo {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        let store = Store::create(place, &Plan::default())?;
        let (give, chunks) = sync_channel(WAITING);
        let (give_back, spare) = sync_channel(WAITING + 2);
        let batch_objects = if self.batches { COMMIT_OBJECTS } else { usize::MAX };
        let writer = std::thread::spawn(move || write(&store, &chunks, &give_back, batch_objects));
        Ok(Box::new(Putting { chunk: Chunk::default(), chunks: give, spare, writer }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Opened(Store::open_read_only(place)?)))
    }

    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let store = Store::open(place)?;
        if self.tree {
            store.remove_tree(&Key::root())?;
            return Ok(true);
        }
        for keys in keys.chunks(COMMIT_DELETIONS) {
            let mut batch = store.batch(Durability::None);
            for key in keys {
                if !batch.remove(&Key::parse(key)?)? {
                    return Err(missing(key));
                }
            }
            batch.commit()?;
        }
        store.sync()?;
        Ok(true)
    }

    fn set_modes(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let store = Store::open(place)?;
        let mut batch = store.batch(Durability::None);
        for key in keys {
            let key = Key::parse(key)?;
            let before = store.stat(&key)?.ok_or_else(|| missing(&key.to_string()))?.attributes;
            batch.set_attributes(&key, &Attributes { mode: 0o100_640, ctime: None, ..before })?;
        }
        batch.commit()?;
        store.sync()?;
        Ok(true)
    }

    fn index_bytes(&self, place: &Path) -> Result<Option<u64>> {
        let files = std::fs::read_dir(place.join("index"))?;
        let bytes =
            files.map(|file| Ok(Some(file?.metadata()?).filter(|file| file.is_file()).map_or(0, |file| file.len())));
        Ok(Some(bytes.sum::<std::io::Result<u64>>()?))
    }
}

/// Adjacent objects: the key of each, and where its content ends.
#[derive(Default)]
struct Chunk {
    objects: Vec<(Key, usize)>,
    contents: Vec<u8>,
}

/// Puts objects until the channel closes; durable on return.
fn write(store: &Store, chunks: &Receiver<Chunk>, spare: &SyncSender<Chunk>, batch_objects: usize) -> Result<()> {
    let attributes = Attributes::of_file(Time { seconds: 1_700_000_000, nanoseconds: 0 });
    let mut batch = store.batch(Durability::None);
    let mut waiting = 0;
    for mut chunk in chunks {
        let mut start = 0;
        for (key, end) in chunk.objects.drain(..) {
            if waiting == batch_objects {
                batch.commit()?;
                (batch, waiting) = (store.batch(Durability::None), 0);
            }
            waiting += 1;
            batch.put(&key, &attributes, &chunk.contents[start..end])?;
            start = end;
        }
        // The memory of a large one is not kept.
        chunk.contents = if start > CHUNK_BYTES { Vec::new() } else { chunk.contents };
        chunk.contents.clear();
        let _ = spare.send(chunk);
    }
    batch.commit()?;
    Ok(store.sync()?)
}

struct Putting {
    chunk: Chunk,
    chunks: SyncSender<Chunk>,
    spare: Receiver<Chunk>,
    writer: JoinHandle<Result<()>>,
}

impl Putting {
    fn hand_over(&mut self) -> Result<()> {
        let is_large = self.chunk.contents.len() > CHUNK_BYTES;
        let next = self.spare.try_recv().unwrap_or_default();
        let ended = "the writing thread has ended";
        self.chunks.send(std::mem::replace(&mut self.chunk, next)).map_err(|_| ended)?;
        while is_large && self.spare.recv().map_err(|_| ended)?.contents.capacity() > 0 {}
        Ok(())
    }
}

impl Writer for Putting {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        if !self.chunk.objects.is_empty() && self.chunk.contents.len() + content.len() > CHUNK_BYTES {
            self.hand_over()?;
        }
        self.chunk.contents.extend_from_slice(content);
        self.chunk.objects.push((Key::parse(key)?, self.chunk.contents.len()));
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let handed_over = self.hand_over();
        let Putting { chunks, writer, .. } = *self;
        drop(chunks);
        writer.join().map_err(|_| "the writing thread panicked")??;
        handed_over
    }
}

struct Opened(Store);

impl Reader for Opened {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Reading { store: &self.0, buffer: Buffer::default() }))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        for piece in self.0.load(&Key::root())? {
            for object in piece?.objects().filter(|object| object.kind() != Kind::Directory) {
                let key = object.key()?.ok_or("an object without a name")?.to_path();
                visit(Piece {
                    key: key.as_os_str().as_encoded_bytes(),
                    size: object.content_bytes() as usize,
                    start: object.offset() as usize,
                    bytes: object.content(),
                });
            }
        }
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.list_attributes(&mut |key, _| visit(key)).map(|_| ())
    }

    fn list_attributes(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        let (mut walk, mut path) = (self.0.walk(&Key::root())?, Vec::new());
        while let Some(listed) = walk.lend()? {
            if listed.entry.kind != Kind::Directory {
                path.clear();
                path.extend(listed.key.stored().iter().map(|&byte| if byte == 0 { b'/' } else { byte }));
                visit(&path, listed.entry.size_bytes);
            }
        }
        Ok(true)
    }

    fn read_many(&self, keys: &[&str], depth: usize, visit: &(dyn Fn(&[u8]) + Sync)) -> Result<bool> {
        let parsed = keys.iter().map(Key::parse).collect::<std::result::Result<Vec<_>, _>>()?;
        let failed = Mutex::new(None);
        self.0.get_many(&parsed, depth, |number, object| {
            let error = match object {
                Ok(Some(object)) => return visit(object.content),
                Ok(None) => missing(keys[number]),
                Err(error) => error.into(),
            };
            failed.lock().expect("no panic").get_or_insert(error);
        });
        failed.into_inner()?.map_or(Ok(true), Err)
    }
}

struct Reading<'s> {
    store: &'s Store,
    buffer: Buffer,
}

impl Session for Reading<'_> {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let object = self.store.read(&Key::parse(key)?, &mut self.buffer)?.ok_or_else(|| missing(key))?;
        visit(object.content);
        Ok(())
    }
}
