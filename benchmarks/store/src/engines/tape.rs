//! One tar archive, read as tar and Python's tarfile do where they can seek: each open builds the index by walking the
//! headers, and keeps it in memory. Only the headers' own checksums are verified.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PIECE_BYTES: usize = 1 << 20;
const BLOCK_BYTES: u64 = 512;

pub struct Tar;

impl Engine for Tar {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        let output = BufWriter::with_capacity(PIECE_BYTES, File::create(place.join("objects.tar"))?);
        Ok(Box::new(Appending { archive: tar::Builder::new(output), directory: File::open(place)? }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Scanned::open(&place.join("objects.tar"))?))
    }

    fn delete(&self, _place: &Path, _keys: &[String]) -> Result<bool> {
        Ok(false)
    }
}

/// Appends a member, as every archive here has them.
pub fn append(archive: &mut tar::Builder<impl Write>, key: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_mtime(1_000_000_000);
    header.set_size(content.len() as u64);
    Ok(archive.append_data(&mut header, key, content)?)
}

struct Appending {
    archive: tar::Builder<BufWriter<File>>,
    directory: File,
}

impl Writer for Appending {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        append(&mut self.archive, key, content)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.archive.into_inner()?.into_inner()?.sync_all()?;
        Ok(self.directory.sync_all()?)
    }
}

struct Member {
    key: Vec<u8>,
    place: u64,
    size: usize,
}

struct Scanned {
    file: File,
    members: Vec<Member>,
    numbers: HashMap<Vec<u8>, usize>,
}

impl Scanned {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        let (mut members, mut numbers) = (Vec::new(), HashMap::new());
        let mut header = tar::Header::new_ustar();
        let mut at = 0;
        loop {
            file.read_exact_at(header.as_mut_bytes(), at)?;
            if header.as_bytes().iter().all(|&byte| byte == 0) {
                break;
            }
            let sum: u32 = header
                .as_bytes()
                .iter()
                .enumerate()
                .map(|(i, &byte)| u32::from(if (148..156).contains(&i) { b' ' } else { byte }))
                .sum();
            if header.cksum()? != sum {
                return Err("a wrong header".into());
            }
            let (key, size) = (header.path_bytes().into_owned(), header.size()?);
            numbers.insert(key.clone(), members.len());
            members.push(Member { key, place: at + BLOCK_BYTES, size: size as usize });
            at += BLOCK_BYTES + size.next_multiple_of(BLOCK_BYTES);
        }
        Ok(Self { file, members, numbers })
    }
}

impl Reader for Scanned {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Reading { archive: self, buffer: Vec::new() }))
    }

    /// Sequential, from the start to the end; the index is not needed.
    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let mut file = &self.file;
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential)?;
        file.seek(SeekFrom::Start(0))?;
        let mut input = std::io::BufReader::with_capacity(PIECE_BYTES, file);
        let (mut at, mut buffer) = (0, vec![0; PIECE_BYTES]);
        for member in &self.members {
            input.seek_relative((member.place - at) as i64)?;
            let (key, size) = (member.key.as_slice(), member.size);
            if size == 0 {
                visit(Piece { key, size, start: 0, bytes: &[] });
            }
            for start in (0..size).step_by(PIECE_BYTES) {
                let bytes = &mut buffer[..PIECE_BYTES.min(size - start)];
                input.read_exact(bytes)?;
                visit(Piece { key, size, start, bytes });
            }
            at = member.place + size as u64;
        }
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.members.iter().for_each(|member| visit(&member.key));
        Ok(())
    }

    fn list_attributes(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        self.members.iter().for_each(|member| visit(&member.key, member.size as u64));
        Ok(true)
    }
}

struct Reading<'a> {
    archive: &'a Scanned,
    buffer: Vec<u8>,
}

impl Session for Reading<'_> {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let number = self.archive.numbers.get(key.as_bytes()).ok_or_else(|| missing(key))?;
        let member = &self.archive.members[*number];
        if self.buffer.len() < member.size {
            self.buffer.resize(member.size.next_power_of_two(), 0);
        }
        let content = &mut self.buffer[..member.size];
        self.archive.file.read_exact_at(content, member.place)?;
        visit(content);
        Ok(())
    }
}
