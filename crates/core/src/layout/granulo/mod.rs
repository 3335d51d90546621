//! granulo's own store: small objects are records in segments, large ones a descriptor and striped units.
//!
//! The store allocates with these functions, so that planned and actual space cannot differ; docs/FORMAT.md has the
//! format that they count (records and commits: sections 6 and 8, descriptors and stripes: section 7).
//!
//! - A **record** is a header, the name, the attributes and the content, padded to 4 bytes, and 8 bytes in the list of
//!   the commit that ends its batch; `small` says how many copies are on fast devices. The rest of segments and batches
//!   is omitted here: 128 bytes per segment, 120 bytes per batch.
//! - With an **alignment** ([`Alignment`]), the length of each record is a multiple of it, and the content of files
//!   begins at such multiples. All records begin 256 bytes before one ([`ALIGNED_HEAD_BYTES`]), so the length of a
//!   record depends on itself alone.
//! - An object above the **cutoff** has a **descriptor**: a record with its first bytes (4 KiB, or as many as
//!   [`check_packed`] allows) and the map of the rest ([`Striping`]). The rest is cut into chunks, these into stripes
//!   of `data` units with parity units as `large` says ([`Stripes`]). The last stripe of a chunk is as short as its
//!   longest unit; units are padded to 4 KiB, the unit of direct I/O. Units grow from chunk to chunk, so that a
//!   descriptor has few checksums, up to a stripe that still fits in memory. Objects of up to 4 KiB more than a
//!   descriptor packs are records whatever the cutoff: a descriptor would need more.
//! - The **index** has one entry per object, besides the segments. Its space is an estimate.
//!
//! If a copy of a small object costs more than parity (a cutoff above the stripe unit, or more copies than parity units
//! and one), allocated falls at the cutoff: mirroring and RAID-5, three copies and RAID-6 go together. A file never
//! needs less than its content: compression is not modelled here.

mod alignment;
mod bucket;

pub use self::alignment::{ALIGNED_HEAD_BYTES, Alignment, Content};
pub(super) use self::bucket::InBucket;
use super::{Kind, Layout, Opt, Placement, Range, Space, round_up, round_up_wide};
use crate::units::{GIB, KIB, MIB, format_count};

/// Header of a record, in bytes.
pub const RECORD_HEADER_BYTES: u64 = 48;
/// Additional bytes of a moved record: the sequence number of what superseded it.
pub const MOVED_BYTES: u64 = 6;
/// Bytes of a record in the list of its commit.
pub const LISTED_BYTES: u64 = 8;
/// The content of a commit without its list, in bytes.
pub const COMMIT_HEADER_BYTES: u64 = 72;
/// Header of a segment, in bytes.
pub const SEGMENT_HEADER_BYTES: u64 = 128;
/// Records begin at multiples of this, in bytes.
pub const RECORD_ALIGNMENT_BYTES: u64 = 4;
/// Attributes of every record: mode, owner, owning group, modification time, change time.
pub const ATTRIBUTES_BYTES: u64 = 28;
/// The extension of the attributes with an access time: tag, length, value.
pub const ACCESS_TIME_BYTES: u64 = 1 + 4 + 9;
/// First bytes of an object that its descriptor packs, unless a store has another length.
pub const DEFAULT_PACKED_BYTES: u64 = 4 * KIB;
/// Most bytes that a descriptor packs: each change of a large object writes them again.
pub const LARGEST_PACKED_BYTES: u64 = 64 * KIB;
/// Unit of direct I/O, to which stripe units are padded, in bytes.
pub const SECTOR_BYTES: u64 = 4 * KIB;
/// Begin of a descriptor: size, packed length, number of chunks.
pub const DESCRIPTOR_HEADER_BYTES: u64 = 16;
/// Begin of a chunk in a descriptor: length, unit, widths.
pub const CHUNK_HEADER_BYTES: u64 = 16;
/// A component in a descriptor: device, file, offset.
pub const COMPONENT_BYTES: u64 = 10;
/// A checksum in a descriptor.
pub const CHECKSUM_BYTES: u64 = 8;
/// Most data units of a chunk.
pub const LONGEST_CHUNK_UNITS: u64 = 1024;
/// The largest stripe unit in bytes: what must be read to verify a single byte.
pub const LARGEST_UNIT_BYTES: u64 = 4 * MIB;
/// The largest stripe in bytes, without parity: what a writer and a reconstruction hold in memory.
pub const LARGEST_STRIPE_BYTES: u64 = 32 * MIB;
/// Largest extent file in bytes; a component is in one of them.
pub const LARGEST_EXTENT_FILE_BYTES: u64 = GIB;
/// Largest cutoff: each record is read and written whole.
pub(in crate::layout) const LARGEST_CUTOFF_BYTES: u64 = GIB;
/// Most data units in a stripe.
pub const MOST_DATA: u8 = 64;
/// Most parity units in a stripe.
pub const MOST_PARITY: u8 = 2;
/// Bytes of an index entry besides its name, in blocks that are as full as merged tables are; 1.6 of it for filters,
/// 1.7 for a change time that many share.
const INDEX_ENTRY_BYTES: u64 = 24;
/// Approximate bytes of a name that are not shared with the preceding entry.
const UNSHARED_NAME_BYTES: u64 = 8;
/// Most copies of the index: it is on up to two devices.
const MOST_INDEX_COPIES: u64 = 2;

/// Bytes of one copy of a record.
pub fn record_bytes(
    alignment: Alignment,
    content: Content,
    name_bytes: u64,
    attributes_bytes: u64,
    content_bytes: u64,
) -> u128 {
    let head_bytes = RECORD_HEADER_BYTES + name_bytes + attributes_bytes;
    let padding = content.padding_bytes(alignment, head_bytes, content_bytes);
    let bytes = u128::from(head_bytes) + u128::from(padding) + u128::from(content_bytes);
    round_up_wide(bytes, alignment.unit_bytes())
}

/// The largest object that is a record; larger ones have a descriptor, which packs this many bytes.
pub fn largest_record_bytes(cutoff_bytes: u64, packed_bytes: u64) -> u64 {
    cutoff_bytes.max(packed_bytes + SECTOR_BYTES)
}

/// Whether descriptors can pack this many bytes: whole pages, so that what follows them begins at one.
///
/// # Errors
/// A sentence about what is impossible.
pub fn check_packed(packed_bytes: u64) -> Result<(), String> {
    if packed_bytes.is_multiple_of(SECTOR_BYTES) && (SECTOR_BYTES..=LARGEST_PACKED_BYTES).contains(&packed_bytes) {
        return Ok(());
    }
    let packed = format_count(packed_bytes.into());
    Err(format!("a descriptor must pack a multiple of 4 KiB, from 4 to 64 KiB; this is {packed} bytes"))
}

/// Most stripes in a chunk: a component has a unit of each, and is in one extent file.
fn most_stripes(data: u64, unit_bytes: u64) -> u64 {
    (LONGEST_CHUNK_UNITS / data).min(LARGEST_EXTENT_FILE_BYTES / unit_bytes)
}

/// How objects are striped: the rule by which the bytes after the packed ones are cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// Unit of the first chunk, in bytes.
    pub stripe_unit_bytes: u32,
    /// Units with data in a stripe.
    pub data: u8,
    /// Parity units in a stripe.
    pub parity: u8,
}

impl Striping {
    /// Whether such stripes are possible.
    ///
    /// # Errors
    /// A sentence about what is impossible.
    pub fn check(self) -> Result<(), String> {
        let unit = u64::from(self.stripe_unit_bytes);
        if !(1..=MOST_DATA).contains(&self.data) || self.parity > MOST_PARITY {
            return Err(format!(
                "a stripe must have 1 to {MOST_DATA} data units and at most {MOST_PARITY} parity units"
            ));
        }
        if !unit.is_power_of_two() || !(SECTOR_BYTES..=LARGEST_UNIT_BYTES).contains(&unit) {
            return Err("a stripe unit must be a power of two from 4 KiB to 4 MiB".to_owned());
        }
        if unit * u64::from(self.data) > LARGEST_STRIPE_BYTES {
            return Err(format!("{} units of {unit} bytes are more than the largest stripe, 32 MiB", self.data));
        }
        Ok(())
    }

    /// The largest unit of a stripe with this many data units, in bytes.
    fn largest_unit_bytes(data: u8) -> u64 {
        let share = LARGEST_STRIPE_BYTES / u64::from(data.max(1));
        LARGEST_UNIT_BYTES.min(1 << share.ilog2())
    }

    /// Unit of the chunk with this number, counted from 0, in bytes: twice that of the preceding chunk, up to the
    /// largest.
    pub fn unit_bytes(self, chunk: usize) -> u32 {
        let largest = Striping::largest_unit_bytes(self.data).max(self.stripe_unit_bytes.into());
        let shifted = u32::try_from(chunk).ok().and_then(|chunk| 1u64.checked_shl(chunk)).unwrap_or(largest);
        u64::from(self.stripe_unit_bytes).saturating_mul(shifted).min(largest) as u32
    }

    /// Most bytes of the chunk with this number: whole stripes, as many as let a component fit into an extent file.
    pub fn longest_chunk_bytes(self, chunk: usize) -> u64 {
        let (data, unit) = (u64::from(self.data), u64::from(self.unit_bytes(chunk)));
        most_stripes(data, unit) * data * unit
    }

    /// The chunk with this number and length.
    pub fn stripes(self, chunk: usize, length_bytes: u64) -> Stripes {
        Stripes { length_bytes, unit_bytes: self.unit_bytes(chunk), data: self.data, parity: self.parity }
    }

    /// The chunks into which `bytes` are cut.
    pub fn chunks(self, bytes: u64) -> impl Iterator<Item = Stripes> {
        let mut left = bytes;
        (0..).map_while(move |chunk| {
            let length = left.min(self.longest_chunk_bytes(chunk));
            left -= length;
            (length > 0).then(|| self.stripes(chunk, length))
        })
    }

    /// Bytes in stripes and bytes of the map, for `bytes` after the packed ones: the sum over [`Striping::chunks`],
    /// without enumerating chunks that are alike.
    fn totals(self, bytes: u64) -> (u128, u128) {
        let (mut striped, mut map, mut left, mut chunk) = (0, 0, bytes, 0);
        while left > 0 {
            let longest = self.longest_chunk_bytes(chunk);
            let grows = self.unit_bytes(chunk) < self.unit_bytes(chunk + 1);
            let times = if grows || left <= longest { 1 } else { left / longest };
            let stripes = self.stripes(chunk, left.min(longest));
            striped += u128::from(times) * u128::from(stripes.allocated_bytes());
            map += u128::from(times) * u128::from(stripes.map_bytes());
            left -= times * stripes.length_bytes;
            chunk += 1;
        }
        (striped, map)
    }

    /// Bytes in stripes for `bytes`, including padding and parity.
    pub fn striped_bytes(self, bytes: u64) -> u128 {
        self.totals(bytes).0
    }

    /// Content of the descriptor of an object of `size_bytes` (as stored, without holes) that packs `packed_bytes`.
    pub fn descriptor_content_bytes(self, packed_bytes: u64, size_bytes: u64) -> u128 {
        let packed = size_bytes.min(packed_bytes);
        u128::from(DESCRIPTOR_HEADER_BYTES + packed) + self.totals(size_bytes - packed).1
    }
}

/// The stripes of one chunk: where each unit is and how long it is.
///
/// Invariants, both of what [`Striping`] produces and of what a descriptor may contain: the length is not 0 and at most
/// [`LONGEST_CHUNK_UNITS`] units in whole stripes, no component is longer than an extent file, and stripe and unit are
/// within their limits ([`Stripes::check`]). No sum overflows then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// Bytes in it, without padding and parity.
    pub length_bytes: u64,
    /// Its unit, in bytes.
    pub unit_bytes: u32,
    /// Units with data in a stripe.
    pub data: u8,
    /// Parity units in a stripe.
    pub parity: u8,
}

impl Stripes {
    /// Whether such a chunk is possible.
    ///
    /// # Errors
    /// A sentence about what is impossible.
    pub fn check(self) -> Result<(), String> {
        Striping { stripe_unit_bytes: self.unit_bytes, data: self.data, parity: self.parity }.check()?;
        let most = most_stripes(self.data.into(), self.unit_bytes.into()) * self.stripe_bytes();
        if self.length_bytes == 0 || self.length_bytes > most {
            return Err(format!("a chunk of such units must have 1 to {most} bytes, not {}", self.length_bytes));
        }
        Ok(())
    }

    /// Units in a stripe: data, then parity.
    pub fn width(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Bytes of data in a full stripe.
    pub fn stripe_bytes(self) -> u64 {
        u64::from(self.unit_bytes) * u64::from(self.data)
    }

    /// Number of stripes.
    pub fn count(self) -> usize {
        self.length_bytes.div_ceil(self.stripe_bytes()) as usize
    }

    /// Bytes of data in a stripe.
    pub fn bytes_in(self, stripe: usize) -> u64 {
        self.length_bytes.saturating_sub(stripe as u64 * self.stripe_bytes()).min(self.stripe_bytes())
    }

    /// Bytes of data in a data unit, without padding; 0 for a unit that is not reached.
    pub fn content_bytes(self, stripe: usize, unit: usize) -> u64 {
        let before = unit as u64 * u64::from(self.unit_bytes);
        self.bytes_in(stripe).saturating_sub(before).min(self.unit_bytes.into())
    }

    /// Bytes of a unit on its device; 0 for a data unit that is not reached. A parity unit is as long as the first unit
    /// of its stripe.
    pub fn unit_length(self, stripe: usize, unit: usize) -> usize {
        let unit = if unit < usize::from(self.data) { unit } else { 0 };
        round_up(self.content_bytes(stripe, unit), SECTOR_BYTES) as usize
    }

    /// Data units of a stripe that have bytes.
    pub fn reached(self, stripe: usize) -> usize {
        self.bytes_in(stripe).div_ceil(self.unit_bytes.into()) as usize
    }

    /// Units that have bytes, including parity: the number of checksums in a descriptor.
    pub fn units(self) -> usize {
        let last = self.count() - 1;
        last * self.width() + self.reached(last) + usize::from(self.parity)
    }

    /// Index of a unit's checksum: stripe by stripe, data before parity. `None` for a data unit that is not reached.
    pub fn checksum_index(self, stripe: usize, unit: usize) -> Option<usize> {
        let reached = self.reached(stripe);
        let data = usize::from(self.data);
        let within = if unit < reached { unit } else { reached + unit.checked_sub(data)? };
        Some(stripe * self.width() + within)
    }

    /// The component that contains a unit: parity rotates.
    pub fn component(self, stripe: usize, unit: usize) -> usize {
        (stripe + unit) % self.width()
    }

    /// The unit of a stripe that is in a component.
    pub fn unit_in(self, stripe: usize, component: usize) -> usize {
        (component + self.width() - stripe % self.width()) % self.width()
    }

    /// Bytes of a component on its device.
    pub fn component_bytes(self, component: usize) -> u64 {
        let last = self.count() - 1;
        last as u64 * u64::from(self.unit_bytes) + self.unit_length(last, self.unit_in(last, component)) as u64
    }

    /// Bytes of all units, including padding and parity.
    pub fn allocated_bytes(self) -> u64 {
        let last = self.count() - 1;
        let parity = u64::from(self.parity);
        let full = last as u64 * (self.stripe_bytes() + parity * u64::from(self.unit_bytes));
        // Full units are already whole sectors; only the last one is padded.
        full + round_up(self.bytes_in(last), SECTOR_BYTES) + parity * self.unit_length(last, 0) as u64
    }

    /// Bytes of the chunk in a descriptor.
    pub fn map_bytes(self) -> u64 {
        CHUNK_HEADER_BYTES + self.width() as u64 * COMPONENT_BYTES + self.units() as u64 * CHECKSUM_BYTES
    }
}

/// `granulo:cutoff=64K,small=none,large=none,data=8,stripe_unit=64K,packed=4K,name=24,atime=off,align=none`.
pub(super) const GRANULO: Kind = Kind {
    name: "granulo",
    summary: "granulo's own store: records in segments, large objects striped",
    options: &[
        Opt {
            name: "cutoff",
            default: "64K",
            range: Range::Size { least: 0, most: LARGEST_CUTOFF_BYTES, power_of_two: false },
            meaning: "largest object stored as a record",
        },
        Opt {
            name: "small",
            default: "none",
            range: Range::Choice(&["none", "mirror", "triple"]),
            meaning: "redundancy of records",
        },
        Opt {
            name: "large",
            default: "none",
            range: Range::Choice(&["none", "raid5", "raid6"]),
            meaning: "redundancy of stripes",
        },
        Opt {
            name: "data",
            default: "8",
            range: Range::Count { least: 1, most: MOST_DATA as u64 },
            meaning: "data units in a stripe",
        },
        Opt {
            name: "stripe_unit",
            default: "64K",
            range: Range::Size { least: SECTOR_BYTES, most: LARGEST_UNIT_BYTES, power_of_two: true },
            meaning: "size of a stripe unit at the start of an object",
        },
        Opt {
            name: "packed",
            default: "4K",
            range: Range::Size { least: SECTOR_BYTES, most: LARGEST_PACKED_BYTES, power_of_two: false },
            meaning: "first bytes of a striped object in its descriptor",
        },
        Opt {
            name: "name",
            default: "24",
            range: Range::Count { least: 0, most: u16::MAX as u64 },
            meaning: "length of a name, in bytes",
        },
        Opt { name: "atime", default: "off", range: Range::Switch, meaning: "store access times, as an import does" },
        Opt {
            name: "align",
            default: "none",
            range: Range::Choice(&["none", "512", "4096"]),
            meaning: "alignment of file content, in bytes",
        },
    ],
    build: |options| {
        let striping = Striping {
            stripe_unit_bytes: options.size("stripe_unit") as u32,
            data: options.count("data") as u8,
            parity: match options.choice("large") {
                "raid6" => 2,
                "raid5" => 1,
                _ => 0,
            },
        };
        striping.check()?;
        let packed_bytes = options.size("packed");
        check_packed(packed_bytes)?;
        Ok(Box::new(Granulo {
            cutoff_bytes: options.size("cutoff"),
            copies: match options.choice("small") {
                "triple" => 3,
                "mirror" => 2,
                _ => 1,
            },
            striping,
            packed_bytes,
            alignment: Alignment::of_name(options.choice("align")).unwrap_or_default(),
            name_bytes: options.count("name"),
            attributes_bytes: ATTRIBUTES_BYTES + if options.switch("atime") { ACCESS_TIME_BYTES } else { 0 },
        }))
    },
};

#[derive(Debug)]
struct Granulo {
    cutoff_bytes: u64,
    copies: u64,
    striping: Striping,
    packed_bytes: u64,
    alignment: Alignment,
    name_bytes: u64,
    attributes_bytes: u64,
}

impl Granulo {
    /// All copies of a record with this much content, each with its place in a list.
    fn records(&self, content: Content, content_bytes: u64) -> u128 {
        let record = record_bytes(self.alignment, content, self.name_bytes, self.attributes_bytes, content_bytes);
        u128::from(self.copies) * (record + u128::from(LISTED_BYTES))
    }

    /// Bytes of the records, and bytes in stripes.
    fn parts(&self, size_bytes: u64, cutoff_bytes: u64) -> (u128, u128) {
        let cutoff_bytes = cutoff_bytes.min(LARGEST_CUTOFF_BYTES);
        if size_bytes <= largest_record_bytes(cutoff_bytes, self.packed_bytes) {
            return (self.records(Content::File, size_bytes), 0);
        }
        let descriptor = self.striping.descriptor_content_bytes(self.packed_bytes, size_bytes);
        // The map of an object of 2^64 bytes is far below 2^64.
        let records = self.records(Content::Descriptor, u64::try_from(descriptor).unwrap_or(u64::MAX));
        (records, self.striping.striped_bytes(size_bytes - self.packed_bytes))
    }

    fn index_bytes(&self) -> u128 {
        let entry = INDEX_ENTRY_BYTES + self.name_bytes.min(UNSHARED_NAME_BYTES);
        u128::from(self.copies.min(MOST_INDEX_COPIES) * entry)
    }
}

impl Layout for Granulo {
    fn file(&self, size_bytes: u64) -> Space {
        let (records, stripes) = self.parts(size_bytes, self.cutoff_bytes);
        Space { allocated_bytes: records + stripes, metadata_bytes: self.index_bytes() }
    }

    fn redundancy(&self) -> Option<(u64, u64)> {
        // The lesser of the two, as an object may be of either kind.
        let (width, data) = (u64::from(self.striping.data + self.striping.parity), u64::from(self.striping.data));
        Some(if self.copies * data <= width { (self.copies, 1) } else { (width, data) })
    }

    fn alike_up_to(&self) -> u64 {
        u64::MAX
    }

    fn cutoff_most_bytes(&self) -> u64 {
        LARGEST_CUTOFF_BYTES
    }

    fn overflows(&self) -> bool {
        true
    }

    fn place(&self, size_bytes: u64, cutoff_bytes: u64) -> Option<Placement> {
        let (records, stripes) = self.parts(size_bytes, cutoff_bytes);
        Some(Placement::certain(records + self.index_bytes(), stripes))
    }

    fn entry_bytes(&self, _name_length: u64) -> u64 {
        0
    }

    /// A directory is a record with attributes only; its listing is the order of the index.
    fn directory(&self, _entries: u64, _entries_bytes: u64) -> Option<Space> {
        Some(Space { allocated_bytes: self.records(Content::Other, 0), metadata_bytes: self.index_bytes() })
    }

    fn symlink(&self, target_length: u64) -> Option<Space> {
        Some(Space { allocated_bytes: self.records(Content::Other, target_length), metadata_bytes: self.index_bytes() })
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "granulo:small=mirror,large=raid5",
    "granulo:small=triple,large=raid6,data=10",
    "granulo:small=none,large=raid5,data=2,stripe_unit=1M",
    "granulo:small=mirror,large=raid5,cutoff=0,stripe_unit=4K,name=4096",
    "granulo:small=none,large=raid6,data=64,stripe_unit=512K,cutoff=0",
    "granulo:small=triple,large=raid6,data=1,stripe_unit=4M,atime=on,name=0",
    "granulo:cutoff=1GiB",
    "granulo:align=512",
    "granulo:small=mirror,large=raid5,align=4096,name=300",
    "granulo:packed=12K,cutoff=0,large=raid5",
    "granulo:packed=64K,cutoff=20000,align=512",
];

#[cfg(test)]
mod tests;
