//! Makes the image of a state of a store: one walk over the names, and the head of each record.
//!
//! A file whose content lies at multiples of a block, uncompressed and on devices in service, is listed where it lies.
//! The few others (odd holes, the last file of a log that has just ended, a unit on a device that is away) are copied
//! into the image; where that would be many, the image is refused, because a mount through FUSE serves them better.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::image::{
    BLOCK_BITS, BLOCK_BYTES, DirectoryEntry, ImageWriter, Inode, InodeNumber, MOST_FILES, MOST_NAME_BYTES, Piece, Type,
    chunks_of, encode_xattrs,
};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::store::ids::ObjectNumber;
use crate::store::{Attributes, ContentFile, Entry, Key, Kind, Lent, PinnedSnapshot, Placed, PlacedRun};
use crate::units::{escape_path, format_count, format_counted, format_size};

const OPERATION: &str = "make an image of";
/// Copied bytes that are never too many.
const FEW_COPIED_BYTES: u64 = 64 << 20;
/// Of all bytes, at most one in so many is copied.
const COPIED_SHARE: u64 = 8;
/// A file up to this size is small: what it has in holes is counted as bytes.
const SMALL_BYTES: u64 = 1 << 20;
/// Most chunks of a file: a large one with small pieces far apart is copied in larger ones.
const MOST_CHUNKS: u64 = 1 << 23;
/// Room for files that are begun while the image is made.
const MORE_FILES: usize = 64;

/// What an image has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Imaged {
    /// Inodes: files, directories and others.
    pub(crate) inodes: u64,
    /// Bytes of the image.
    pub(crate) image_bytes: u64,
    /// Bytes of files that are read where they lie in the store.
    pub(crate) mapped_bytes: u64,
    /// Files whose content was copied into the image.
    pub(crate) copied_files: u64,
    /// Their bytes.
    pub(crate) copied_bytes: u64,
    /// Objects with names that are longer than a file system can have.
    pub(crate) left_out: u64,
    /// Extended attributes that the kernel's format cannot have.
    pub(crate) xattrs_left_out: u64,
    /// The files of the store, in the order of their numbers in the image.
    pub(crate) files: Vec<PathBuf>,
}

/// A directory whose entries are being met.
struct Open {
    number: InodeNumber,
    depth: usize,
    entries: Vec<DirectoryEntry>,
}

/// A file with several names.
struct Shared {
    number: InodeNumber,
    names: u32,
}

struct Builder<'s> {
    snapshot: &'s PinnedSnapshot,
    store: &'s Path,
    writer: ImageWriter,
    numbers: HashMap<ContentFile, u16>,
    /// Blocks of each file.
    blocks: Vec<u32>,
    shared: HashMap<ObjectNumber, Shared>,
    open: Vec<Open>,
    imaged: Imaged,
    progress: &'s Progress,
    /// Copied bytes that are never too many.
    few_copied_bytes: u64,
    /// Most bytes that are copied, once it is more than those.
    most_copied_bytes: Option<u64>,
    /// There is content in more files of the store than the image has room for.
    has_too_many_files: bool,
}

/// Writes the image of a snapshot to an empty file; `store` is for messages.
///
/// # Errors
/// [`ErrorKind::Usage`] if too much of the content is not where a kernel can read it; errors of reading the store and
/// of writing; [`ErrorKind::Interrupted`].
pub(super) fn build(snapshot: &PinnedSnapshot, store: &Path, file: File, progress: &Progress) -> Result<Imaged> {
    build_within(snapshot, store, file, progress, (FEW_COPIED_BYTES, MOST_FILES))
}

/// As [`build`]; so many copied bytes are never too many, and the image has room for at most so many files of the
/// store.
fn build_within(
    snapshot: &PinnedSnapshot,
    store: &Path,
    file: File,
    progress: &Progress,
    (few_copied_bytes, most_files): (u64, usize),
) -> Result<Imaged> {
    let fail = |error: io::Error| Error::io(OPERATION, store, error);
    let mut walk = snapshot.walk(&Key::root(), &Key::root())?;
    let mut buffer = Vec::new();
    let mut first = walk.lend()?;
    let root = match &first {
        Some(lent) if lent.key.is_root() => Some(snapshot.place(lent, &mut buffer)?.attributes),
        _ => None,
    };
    let mut imaged = Imaged::default();
    let root_inode =
        inode_of(&root.clone().unwrap_or_else(|| Attributes::of_directory(Default::default())), &mut imaged);
    let most_files = (snapshot.content_files() + MORE_FILES).min(most_files);
    let (writer, number) = ImageWriter::begin(file, &root_inode, most_files).map_err(fail)?;
    let mut builder = Builder {
        snapshot,
        store,
        writer,
        numbers: HashMap::new(),
        blocks: Vec::new(),
        shared: HashMap::new(),
        open: vec![Open { number, depth: 0, entries: Vec::new() }],
        imaged: Imaged { inodes: 1, ..imaged },
        progress,
        few_copied_bytes,
        most_copied_bytes: None,
        has_too_many_files: false,
    };
    if root.is_some() {
        first = walk.lend()?;
    }
    while let Some(lent) = first {
        check_interrupted(progress, store)?;
        builder.object(&lent, &mut buffer, most_files)?;
        progress.add(0, 1, 0);
        first = walk.lend()?;
    }
    builder.close_until(0)?;
    builder.end()
}

fn check_interrupted(progress: &Progress, store: &Path) -> Result<()> {
    match progress.should_stop() {
        true => Err(Error::new(ErrorKind::Interrupted, OPERATION, "it was interrupted").at(store)),
        false => Ok(()),
    }
}

/// The fields of an inode with these attributes, and one name.
fn inode_of(attributes: &Attributes, imaged: &mut Imaged) -> Inode {
    let (xattrs, left_out) = encode_xattrs(&attributes.xattrs);
    imaged.xattrs_left_out += left_out as u64;
    Inode {
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        seconds: attributes.mtime.seconds,
        nanoseconds: attributes.mtime.nanoseconds,
        links: 1,
        xattrs,
    }
}

/// The type of an object in its directory.
fn type_of(entry: &Entry) -> Type {
    match (entry.kind, entry.mode & 0o170_000) {
        (Kind::Directory, _) => Type::Directory,
        (Kind::Symlink, _) => Type::Symlink,
        (Kind::Special, 0o020_000) => Type::CharacterDevice,
        (Kind::Special, 0o060_000) => Type::BlockDevice,
        (Kind::Special, 0o010_000) => Type::Fifo,
        (Kind::Special, _) => Type::Socket,
        _ => Type::File,
    }
}

impl Builder<'_> {
    fn failed(&self, error: io::Error) -> Error {
        Error::io(OPERATION, self.store, error)
    }

    fn object(&mut self, lent: &Lent<'_>, buffer: &mut Vec<u8>, most_files: usize) -> Result<()> {
        let Some(name) = lent.key.name() else { return Ok(()) };
        let depth = lent.key.depth();
        self.close_until(depth)?;
        // Below a directory that was left out.
        if self.open.last().is_none_or(|open| open.depth + 1 != depth) || name.len() > MOST_NAME_BYTES {
            self.imaged.left_out += 1;
            return Ok(());
        }
        let kind = type_of(&lent.entry);
        let met = lent.shared.and_then(|shared| self.shared.get_mut(&shared));
        let inode = match met {
            Some(met) => {
                met.names += 1;
                met.number
            }
            None => {
                let placed = self.snapshot.place(lent, buffer)?;
                self.imaged.inodes += 1;
                let number = self.inode(lent, &placed, most_files)?;
                if let Some(shared) = lent.shared {
                    self.shared.insert(shared, Shared { number, names: 1 });
                }
                number
            }
        };
        if let Some(above) = self.open.last_mut() {
            above.entries.push(DirectoryEntry { name: name.into(), inode, kind });
        }
        if kind == Type::Directory {
            self.open.push(Open { number: inode, depth, entries: Vec::new() });
        }
        Ok(())
    }

    /// Completes the directories at this depth and below.
    fn close_until(&mut self, depth: usize) -> Result<()> {
        while self.open.last().is_some_and(|open| open.depth >= depth) {
            let Some(open) = self.open.pop() else { break };
            let parent = self.open.last().map_or(open.number, |above| above.number);
            let done = self.writer.directory(open.number, parent, open.entries);
            done.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn inode(&mut self, lent: &Lent<'_>, placed: &Placed, most_files: usize) -> Result<InodeNumber> {
        let inode = inode_of(&placed.attributes, &mut self.imaged);
        let number = match lent.entry.kind {
            Kind::Directory => self.writer.reserve(&inode),
            Kind::Symlink => self.writer.symlink(&inode, &placed.inline),
            Kind::Special => {
                let (numbers, _) = placed.inline.as_chunks::<4>();
                let number = |at: usize| numbers.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
                self.writer.special(&inode, number(0), number(1))
            }
            _ => {
                let size_bytes = lent.entry.size_bytes;
                let pieces = match self.mapped(size_bytes, placed, most_files)? {
                    Some(pieces) => {
                        self.imaged.mapped_bytes += pieces.iter().map(|piece| piece.length_bytes).sum::<u64>();
                        pieces
                    }
                    None => self.copied(lent, size_bytes)?,
                };
                self.writer.file(&inode, size_bytes, &pieces)
            }
        };
        number.map_err(|error| self.failed(error))
    }

    /// The pieces of a file where they lie; `None` if a kernel cannot read them there.
    fn mapped(&mut self, size_bytes: u64, placed: &Placed, most_files: usize) -> Result<Option<Vec<Piece>>> {
        let Some(runs) = &placed.runs else { return Ok(None) };
        let whole = [(0, size_bytes)];
        let data = placed.attributes.holes.as_ref().map_or(&whole[..], |holes| &holes.data);
        let Some(parts) = parts_of(data, runs, size_bytes) else { return Ok(None) };
        let mut pieces = Vec::with_capacity(parts.len());
        for Part { offset_bytes, length_bytes, file, at } in parts {
            let Some(number) = self.number_of(file, most_files)? else { return Ok(None) };
            let end_block = (at + length_bytes).div_ceil(BLOCK_BYTES);
            let is_inside = self.blocks.get(usize::from(number) - 1).is_some_and(|&blocks| end_block <= blocks.into());
            if !is_inside {
                return Ok(None);
            }
            pieces.push(Piece { offset_bytes, length_bytes, place: (number, (at >> BLOCK_BITS) as u32) });
        }
        Ok(Some(pieces).filter(|pieces| chunks_of(size_bytes, pieces) <= MOST_CHUNKS))
    }

    /// The number of a file of the store in the image; `None` if there are too many.
    fn number_of(&mut self, file: ContentFile, most_files: usize) -> Result<Option<u16>> {
        if let Some(&number) = self.numbers.get(&file) {
            return Ok(Some(number));
        }
        if self.blocks.len() == most_files {
            self.has_too_many_files = true;
            return Ok(None);
        }
        let path = self.snapshot.path_of(file);
        let bytes = std::fs::metadata(&path).map_err(|error| Error::io("read the size of", &path, error))?.len();
        self.blocks.push(u32::try_from(bytes >> BLOCK_BITS).unwrap_or(u32::MAX));
        self.imaged.files.push(path);
        let number = self.blocks.len() as u16;
        self.numbers.insert(file, number);
        Ok(Some(number))
    }

    /// Copies the content of a file into the image.
    fn copied(&mut self, lent: &Lent<'_>, size_bytes: u64) -> Result<Vec<Piece>> {
        let unit_bytes = BLOCK_BYTES.max(size_bytes.div_ceil(MOST_CHUNKS).next_power_of_two());
        // Each unit with data is in memory, and in the image, with the holes in it.
        if unit_bytes > FEW_COPIED_BYTES {
            let cause = format!(
                "{} of {} is too large to be copied, and its data do not begin at multiples of {BLOCK_BYTES} bytes, or \
                 are compressed",
                escape_path(&lent.key.to_path()),
                format_size(size_bytes.into())
            );
            let error = Error::new(ErrorKind::Usage, OPERATION, cause).at(self.store);
            return Err(error.advise("mount without --kernel"));
        }
        let mut content = self.snapshot.content(lent)?;
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        // Where the collected bytes begin, a multiple of a unit.
        let mut begin = 0;
        loop {
            let next = content.next_piece()?;
            let end = begin + bytes.len() as u64;
            let is_apart = next.is_none_or(|(offset, _)| offset / unit_bytes * unit_bytes > end);
            if is_apart || bytes.len() as u64 >= FEW_COPIED_BYTES {
                let rest = if is_apart { 0 } else { bytes.len() % unit_bytes as usize };
                let whole = bytes.len() - rest;
                let piece = self.copy(begin, bytes.get(..whole).unwrap_or_default(), size_bytes, unit_bytes)?;
                pieces.extend(piece);
                bytes.drain(..whole);
                begin += whole as u64;
            }
            let Some((offset, piece)) = next else { break };
            if bytes.is_empty() {
                begin = offset / unit_bytes * unit_bytes;
            }
            bytes.resize((offset - begin) as usize, 0);
            bytes.extend_from_slice(piece);
        }
        self.imaged.copied_files += 1;
        Ok(pieces)
    }

    /// Copies the bytes of a file that begin at `begin`, and fills their last unit with zeroes.
    fn copy(&mut self, begin: u64, bytes: &[u8], size_bytes: u64, unit_bytes: u64) -> Result<Option<Piece>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let length_bytes = (bytes.len() as u64).next_multiple_of(unit_bytes).min(size_bytes - begin);
        self.imaged.copied_bytes += length_bytes;
        self.refuse_too_many_copied()?;
        let fill = length_bytes as usize - bytes.len();
        let block = self.writer.content(bytes, fill).map_err(|error| self.failed(error))?;
        Ok(Some(Piece { offset_bytes: begin, length_bytes, place: (0, block) }))
    }

    /// # Errors
    /// [`ErrorKind::Usage`] if more was copied than a share of all bytes, whichever files come first.
    fn refuse_too_many_copied(&mut self) -> Result<()> {
        let copied = self.imaged.copied_bytes;
        if copied <= self.few_copied_bytes {
            return Ok(());
        }
        let most = match self.most_copied_bytes {
            Some(most) => most,
            None => *self.most_copied_bytes.insert(self.all_bytes()? / COPIED_SHARE),
        };
        if copied <= most {
            return Ok(());
        }
        let (cause, advice) = if self.has_too_many_files {
            let most = format_counted(self.blocks.len() as u64, "file", "files");
            (format!("its content is in more than the {most} that an image has room for"), "mount without --kernel")
        } else {
            let cause = format!(
                "at least {} files with {} do not begin at multiples of {BLOCK_BYTES} bytes, or are compressed",
                format_count(u128::from(self.imaged.copied_files) + 1),
                format_size(copied.into())
            );
            (cause, "granulo store compact --align 512 moves them; or mount without --kernel")
        };
        Err(Error::new(ErrorKind::Usage, OPERATION, cause).at(self.store).advise(advice))
    }

    /// Bytes of all files, without the holes of large ones.
    fn all_bytes(&self) -> Result<u64> {
        let mut walk = self.snapshot.walk(&Key::root(), &Key::root())?;
        let (mut bytes, mut buffer, mut met) = (0u64, Vec::new(), HashSet::new());
        while let Some(lent) = walk.lend()? {
            check_interrupted(self.progress, self.store)?;
            let is_new = lent.shared.is_none_or(|shared| met.insert(shared));
            if type_of(&lent.entry) == Type::File && is_new {
                bytes = bytes.saturating_add(self.data_bytes(&lent, &mut buffer)?);
            }
        }
        Ok(bytes)
    }

    /// Bytes of a file: of a small one with its holes, because its record is not read for them.
    fn data_bytes(&self, lent: &Lent<'_>, buffer: &mut Vec<u8>) -> Result<u64> {
        let size_bytes = lent.entry.size_bytes;
        if size_bytes <= SMALL_BYTES || lent.entry.is_plain {
            return Ok(size_bytes);
        }
        let holes = self.snapshot.place(lent, buffer)?.attributes.holes;
        Ok(holes.map_or(size_bytes, |holes| holes.data_bytes()))
    }

    fn end(mut self) -> Result<Imaged> {
        let fail = |error: io::Error| Error::io(OPERATION, self.store, error);
        for Shared { number, names } in self.shared.values() {
            self.writer.set_links(*number, *names).map_err(fail)?;
        }
        let image_bytes = self.writer.end_with(&self.blocks).map_err(fail)?;
        Ok(Imaged { image_bytes, ..self.imaged })
    }
}

/// A part of a file in a file of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    offset_bytes: u64,
    length_bytes: u64,
    file: ContentFile,
    at: u64,
}

/// The parts of a file whose `data` have their bytes in `runs`; `None` if they do not begin at blocks, or end within
/// one before the end of the file.
fn parts_of(data: &[(u64, u64)], runs: &[PlacedRun], size_bytes: u64) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::with_capacity(runs.len());
    let mut runs = runs.iter();
    let (mut run, mut used) = (runs.next(), 0);
    for &(begin, length) in data {
        let mut done = 0;
        while done < length {
            let from = run?;
            let take = (from.length_bytes - used).min(length - done);
            let part =
                Part { offset_bytes: begin + done, length_bytes: take, file: from.file, at: from.offset_bytes + used };
            let end = part.offset_bytes + take;
            let is_whole = [part.offset_bytes, part.at].iter().all(|at| at % BLOCK_BYTES == 0)
                && (end.is_multiple_of(BLOCK_BYTES) || end == size_bytes);
            if take > 0 && !is_whole {
                return None;
            }
            parts.extend((take > 0).then_some(part));
            (done, used) = (done + take, used + take);
            if used == from.length_bytes {
                (run, used) = (runs.next(), 0);
            }
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use crate::random::mix;
    use crate::store::geometry::Alignment;
    use crate::store::ids::{DeviceNumber, SegmentNumber};
    use crate::store::{Compression, Holes, Plan, Store, Time};

    use super::*;

    /// A store that compresses, and what is built of these files: key, bytes without a pattern or else zeroes, holes.
    fn built(files: &[(&str, usize, bool, Option<Holes>)], few_copied_bytes: u64) -> Result<Imaged> {
        let plan = Plan { compression: Compression::Zstd(3), ..Plan::default() };
        built_within(plan, files, (few_copied_bytes, MOST_FILES))
    }

    fn built_within(plan: Plan, files: &[(&str, usize, bool, Option<Holes>)], limits: (u64, usize)) -> Result<Imaged> {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let plan = Plan { alignment: Alignment::Sector, ..plan };
        let store = Store::create(&home, &plan).unwrap();
        for (key, length, is_random, holes) in files {
            let content: Vec<u8> = match is_random {
                true => (0..*length as u64 / 8).flat_map(|at| mix(at).to_le_bytes()).collect(),
                false => vec![0; *length],
            };
            let attributes = Attributes { holes: holes.clone(), ..Attributes::of_file(Time::default()) };
            store.put(&Key::parse(key).unwrap(), &attributes, &content).unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        build_within(&snapshot, &home, tempfile::tempfile().unwrap(), &Progress::default(), limits)
    }

    fn run(stored_at: u64, length_bytes: u64, offset_bytes: u64) -> PlacedRun {
        let file = ContentFile::Segment(DeviceNumber(0), SegmentNumber(1));
        PlacedRun { stored_at, length_bytes, file, offset_bytes }
    }

    fn found(data: &[(u64, u64)], runs: &[PlacedRun], size_bytes: u64) -> Option<Vec<(u64, u64, u64)>> {
        let parts = parts_of(data, runs, size_bytes)?;
        Some(parts.iter().map(|part| (part.offset_bytes, part.length_bytes, part.at)).collect())
    }

    #[test]
    fn data_are_found_run_by_run() {
        assert_eq!(found(&[(0, 1000)], &[run(0, 1000, 512)], 1000), Some(vec![(0, 1000, 512)]));
        let two = [run(0, 4096, 1 << 20), run(4096, 5000, 512)];
        assert_eq!(found(&[(0, 9096)], &two, 9096), Some(vec![(0, 4096, 1 << 20), (4096, 5000, 512)]));
        assert_eq!(
            found(&[(1024, 512), (8192, 8584)], &two, 16776),
            Some(vec![(1024, 512, 1 << 20), (8192, 3584, (1 << 20) + 512), (11776, 5000, 512)])
        );
        assert_eq!(found(&[(0, 0)], &[], 0), Some(Vec::new()));
    }

    #[test]
    fn whether_too_much_is_copied_does_not_depend_on_the_order_of_names() {
        const MIB: usize = 1 << 20;
        let small: Vec<String> = (0..40).map(|number| format!("m/{number}")).collect();
        let build = |large: &str, length: usize, holes: Option<Holes>| {
            let mut files: Vec<_> = small.iter().map(|key| (&key[..], 65_536, false, None)).collect();
            files.push((large, length, true, holes));
            built(&files, MIB as u64)
        };
        // 2.5 MiB are compressed: less than an eighth beside 24 MiB, more beside 8, whatever is behind a hole.
        let holes = Holes { size_bytes: 1 << 30, data: vec![(0, 8 * MIB as u64)] };
        for large in ["a", "z"] {
            let imaged = build(large, 24 * MIB, None).unwrap();
            assert_eq!((imaged.copied_files, imaged.mapped_bytes), (40, 24 * MIB as u64), "{large}");
            for holes in [None, Some(holes.clone())] {
                assert_eq!(build(large, 8 * MIB, holes).unwrap_err().kind(), ErrorKind::Usage, "{large}");
            }
        }
    }

    #[test]
    fn a_store_of_more_files_than_an_image_has_room_for_is_refused_as_such() {
        let files: Vec<String> = (0..60).map(|number| format!("m/{number}")).collect();
        let files: Vec<_> = files.iter().map(|key| (&key[..], 60_000, true, None)).collect();
        let build = |limits| built_within(Plan { segment_bytes: 1 << 20, ..Plan::default() }, &files, limits);
        let imaged = build((1 << 20, MOST_FILES)).unwrap();
        assert!(imaged.files.len() >= 3, "{imaged:?}");
        let error = build((1 << 20, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("more than the 1 file that an image has room for"), "{error}");
        assert!(!error.to_string().contains("512"), "{error}");
    }

    #[test]
    fn a_file_of_odd_holes_that_no_memory_has_room_for_is_refused() {
        let holes = Holes { size_bytes: 1 << 62, data: vec![((1 << 61) + 100, 8)] };
        let error = built(&[("odd", 8, true, Some(holes))], FEW_COPIED_BYTES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("odd of 4 EiB is too large"), "{error}");
    }

    #[test]
    fn what_is_not_at_a_block_is_not_mapped() {
        assert_eq!(found(&[(0, 1000)], &[run(0, 1000, 100)], 1000), None);
        assert_eq!(found(&[(100, 1000)], &[run(0, 1000, 512)], 1100), None);
        // The data of the next hole would show in the rest of the block.
        assert_eq!(found(&[(0, 1000), (4096, 1000)], &[run(0, 2000, 512)], 5096), None);
        assert_eq!(found(&[(0, 1000)], &[], 1000), None);
    }
}
