//! Attributes of an object, and how a record has them (docs/FORMAT.md, section 5).

use super::decode::Decoder;
use super::entry::Time;
use crate::error::{Error, ErrorKind, Result};

/// The most that attributes take in a record, in bytes.
const LARGEST_BYTES: usize = (1 << 24) - 1;
const ATIME: u8 = 1;
const XATTR: u8 = 2;
const HOLES: u8 = 3;
/// Tags from here on must be understood.
const FIRST_ESSENTIAL: u8 = 128;
/// Seconds are kept in five bytes.
const SECONDS: std::ops::Range<i64> = -(1 << 39)..1 << 39;

/// Permissions of files and directories that come without any.
pub const DEFAULT_FILE_MODE: u16 = 0o100_644;
/// As [`DEFAULT_FILE_MODE`], of directories.
pub const DEFAULT_DIRECTORY_MODE: u16 = 0o040_755;

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a file system would keep of a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Modification time.
    pub mtime: Time,
    /// Access time, if it is to be kept.
    pub atime: Option<Time>,
    /// Extended attributes: names and values, by name.
    pub xattrs: Xattrs,
    /// Where the data of a sparse file lie.
    pub holes: Option<Holes>,
}

/// Holes of a sparse file, by what is between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holes {
    /// Size of the file in bytes, holes included.
    pub size_bytes: u64,
    /// Offset and length of each run of data in bytes, rising and apart, none empty.
    pub data: Vec<(u64, u64)>,
}

impl Holes {
    /// Bytes of data: what is stored.
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|&(_, length)| length).sum()
    }

    fn is_sound(&self) -> bool {
        let mut end = 0;
        self.data.iter().enumerate().all(|(at, &(offset, length))| {
            let apart = at == 0 || offset > end;
            end = match offset.checked_add(length) {
                Some(end) => end,
                None => return false,
            };
            apart && length > 0 && end <= self.size_bytes
        })
    }
}

impl Attributes {
    /// Attributes of a file that came without any: of the process's user, at `mtime`.
    pub fn of_file(mtime: Time) -> Attributes {
        Attributes { mode: DEFAULT_FILE_MODE, mtime, ..Attributes::default() }
    }

    /// As [`of_file`](Self::of_file), of a directory.
    pub fn of_directory(mtime: Time) -> Attributes {
        Attributes { mode: DEFAULT_DIRECTORY_MODE, mtime, ..Attributes::default() }
    }

    /// Appends the stored form.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: more than 16 MiB, a time beyond five bytes of seconds, extended attributes out of order, holes that overlap.
    pub(crate) fn encode(&self, onto: &mut Vec<u8>) -> Result<()> {
        let refuse = |cause: &str| Err(Error::new(ErrorKind::Usage, "keep the attributes", cause));
        let times = [Some(self.mtime), self.atime];
        if times.iter().flatten().any(|time| !SECONDS.contains(&time.seconds) || time.nanoseconds > 999_999_999) {
            return refuse("a time is out of range");
        }
        let start = onto.len();
        onto.extend_from_slice(&self.mode.to_le_bytes());
        onto.extend_from_slice(&self.uid.to_le_bytes());
        onto.extend_from_slice(&self.gid.to_le_bytes());
        encode_time(self.mtime, onto);
        if let Some(atime) = self.atime {
            extension(onto, ATIME, |onto| encode_time(atime, onto));
        }
        if self.xattrs.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return refuse("extended attributes must come by rising name");
        }
        for (name, value) in &self.xattrs {
            let Ok(length) = u16::try_from(name.len()) else {
                return refuse("the name of an extended attribute is too long");
            };
            extension(onto, XATTR, |onto| {
                onto.extend_from_slice(&length.to_le_bytes());
                onto.extend_from_slice(name);
                onto.extend_from_slice(value);
            });
        }
        if let Some(holes) = &self.holes {
            if !holes.is_sound() {
                return refuse("the runs of data of a sparse file overlap, or are out of order");
            }
            extension(onto, HOLES, |onto| {
                onto.extend_from_slice(&holes.size_bytes.to_le_bytes());
                for (offset, length) in &holes.data {
                    onto.extend_from_slice(&offset.to_le_bytes());
                    onto.extend_from_slice(&length.to_le_bytes());
                }
            });
        }
        if onto.len() - start > LARGEST_BYTES {
            return refuse("extended attributes or the list of holes take more than 16 MiB");
        }
        Ok(())
    }

    /// Attributes from their stored form; `None` if it is damaged, or from a version that knows more.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Attributes> {
        let mut at = Decoder::new(bytes);
        let mut attributes = Attributes {
            mode: at.u16()?,
            uid: at.u32()?,
            gid: at.u32()?,
            mtime: decode_time(&mut at)?,
            ..Attributes::default()
        };
        while !at.rest().is_empty() {
            let tag = at.u8()?;
            let length = at.u32()? as usize;
            let mut value = Decoder::new(at.take(length)?);
            match tag {
                ATIME if attributes.atime.is_none() => {
                    attributes.atime = Some(decode_time(&mut value)?);
                    value.rest().is_empty().then_some(())?;
                }
                XATTR => {
                    let length = value.u16()?.into();
                    let name = value.take(length)?.to_vec();
                    if attributes.xattrs.last().is_some_and(|(last, _)| *last >= name) {
                        return None;
                    }
                    attributes.xattrs.push((name, value.rest().to_vec()));
                }
                HOLES if attributes.holes.is_none() => {
                    let mut holes = Holes { size_bytes: value.u64()?, data: Vec::new() };
                    while !value.rest().is_empty() {
                        holes.data.push((value.u64()?, value.u64()?));
                    }
                    attributes.holes = Some(Some(holes).filter(Holes::is_sound)?);
                }
                ATIME | HOLES | FIRST_ESSENTIAL.. => return None,
                _ => {}
            }
        }
        Some(attributes)
    }
}

fn extension(onto: &mut Vec<u8>, tag: u8, value: impl FnOnce(&mut Vec<u8>)) {
    onto.push(tag);
    let at = onto.len();
    onto.extend_from_slice(&[0; 4]);
    value(onto);
    let length = (onto.len() - at - 4) as u32;
    onto[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

fn encode_time(time: Time, onto: &mut Vec<u8>) {
    onto.extend_from_slice(&time.seconds.to_le_bytes()[..5]);
    onto.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn decode_time(at: &mut Decoder<'_>) -> Option<Time> {
    let time = Time { seconds: at.i40()?, nanoseconds: at.u32()? };
    (time.nanoseconds < 1_000_000_000).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attributes() -> impl Strategy<Value = Attributes> {
        let time = || (SECONDS, 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds });
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        let holes = proptest::collection::vec((1..1000u64, 1..1000u64), 0..5).prop_map(|runs| {
            let mut end = 0;
            let data = runs.into_iter().map(|(gap, length)| {
                let offset = end + gap;
                end = offset + length;
                (offset, length)
            });
            let data: Vec<_> = data.collect();
            Holes { size_bytes: end + 7, data }
        });
        let xattrs = proptest::collection::btree_map(bytes(20), bytes(100), 0..4);
        (
            any::<u16>(),
            any::<u32>(),
            any::<u32>(),
            time(),
            proptest::option::of(time()),
            xattrs,
            proptest::option::of(holes),
        )
            .prop_map(|(mode, uid, gid, mtime, atime, xattrs, holes)| Attributes {
                mode,
                uid,
                gid,
                mtime,
                atime,
                xattrs: xattrs.into_iter().collect(),
                holes,
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(attributes in attributes()) {
            let mut bytes = Vec::new();
            attributes.encode(&mut bytes).unwrap();
            prop_assert_eq!(Attributes::decode(&bytes), Some(attributes));
        }

        #[test]
        fn any_bytes_are_attributes_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(attributes) = Attributes::decode(&bytes) {
                let mut again = Vec::new();
                attributes.encode(&mut again).unwrap();
                prop_assert!(again.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn plain_attributes_take_19_bytes_and_an_access_time_14_more() {
        let mut bytes = Vec::new();
        let mut attributes = Attributes::of_file(Time { seconds: -1, nanoseconds: 5 });
        attributes.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 19);
        attributes.atime = Some(Time::default());
        attributes.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 19 + 33);
    }

    #[test]
    fn a_tag_of_a_later_version_is_ignored_or_refused() {
        let mut bytes = Vec::new();
        Attributes::default().encode(&mut bytes).unwrap();
        let known = bytes.len();
        bytes.extend_from_slice(&[100, 1, 0, 0, 0, 9]);
        assert_eq!(Attributes::decode(&bytes), Some(Attributes::default()));
        bytes[known] = 200;
        assert_eq!(Attributes::decode(&bytes), None);
    }
}
