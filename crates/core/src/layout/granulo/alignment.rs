//! Content alignment: where in a segment the content of files begins, and the space for that.
//!
//! In a segment with an alignment all records begin [`ALIGNED_HEAD_BYTES`] before a multiple of it and have a length
//! that is a multiple of it, whatever they are. So the length of a record depends on itself alone, and a batch can be
//! encoded before its place is known. Zeroes after the header of a record let the content begin at the multiple, and a
//! commit has as many as the next batch needs to begin where it should.

use super::{DESCRIPTOR_HEADER_BYTES, RECORD_ALIGNMENT_BYTES};

/// With an alignment, records begin this many bytes before a multiple of it: room for a head, so that content follows
/// at that multiple. With a longer head, content begins at the next one.
pub const ALIGNED_HEAD_BYTES: u64 = 256;

/// The alignment of the content of files, relative to the beginning of its segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Alignment {
    /// Anywhere.
    #[default]
    None,
    /// Multiples of 512 bytes.
    Sector,
    /// Multiples of 4,096 bytes.
    Page,
}

impl Alignment {
    /// All alignments.
    pub const ALL: [Alignment; 3] = [Alignment::None, Alignment::Sector, Alignment::Page];

    /// As a power of two; 0 for none.
    pub fn shift(self) -> u8 {
        match self {
            Alignment::None => 0,
            Alignment::Sector => 9,
            Alignment::Page => 12,
        }
    }

    /// The alignment with this power of two.
    pub fn of_shift(shift: u8) -> Option<Alignment> {
        Alignment::ALL.into_iter().find(|alignment| alignment.shift() == shift)
    }

    /// In bytes; `None` for none.
    pub fn bytes(self) -> Option<u64> {
        (self != Alignment::None).then(|| 1 << self.shift())
    }

    /// `none`, or the number of bytes.
    pub fn name(self) -> &'static str {
        match self {
            Alignment::None => "none",
            Alignment::Sector => "512",
            Alignment::Page => "4096",
        }
    }

    /// The alignment with this [`name`](Self::name).
    pub fn of_name(name: &str) -> Option<Alignment> {
        Alignment::ALL.into_iter().find(|alignment| alignment.name() == name)
    }

    /// Unit of the length of a record, in bytes.
    pub fn unit_bytes(self) -> u64 {
        self.bytes().unwrap_or(RECORD_ALIGNMENT_BYTES)
    }

    /// Zeroes before something `begin_bytes` after the beginning of a record, so that it begins at a multiple of the
    /// alignment.
    fn padding_bytes(self, begin_bytes: u64) -> u64 {
        self.bytes().map_or(0, |unit| (ALIGNED_HEAD_BYTES + unit - begin_bytes % unit) % unit)
    }

    /// Zeroes in a commit that would end at this offset of its segment, so that a batch may begin where it ends.
    pub fn padding_to_batch(self, end: u64) -> u64 {
        let from = end + ALIGNED_HEAD_BYTES;
        from.next_multiple_of(self.unit_bytes()) - from
    }
}

/// The kind of content of a record, as far as it matters for alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A file, compressed or not.
    File,
    /// A descriptor, with the first bytes of a file.
    Descriptor,
    /// No content of a file.
    Other,
}

impl Content {
    /// Zeroes between header and name of a record; `head_bytes` is everything else before its content.
    pub fn padding_bytes(self, alignment: Alignment, head_bytes: u64, content_bytes: u64) -> u64 {
        match self {
            Content::File if content_bytes > 0 => alignment.padding_bytes(head_bytes),
            Content::Descriptor => alignment.padding_bytes(head_bytes + DESCRIPTOR_HEADER_BYTES),
            Content::File | Content::Other => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Model;
    use proptest::prelude::*;

    #[test]
    fn alignments_have_a_power_and_a_name() {
        for alignment in Alignment::ALL {
            assert_eq!(Alignment::of_shift(alignment.shift()), Some(alignment));
            assert_eq!(Alignment::of_name(alignment.name()), Some(alignment));
        }
        assert_eq!((Alignment::of_shift(10), Alignment::of_name("1024")), (None, None));
        assert_eq!(Alignment::ALL.map(Alignment::bytes), [None, Some(512), Some(4096)]);
        assert_eq!(Alignment::ALL.map(Alignment::unit_bytes), [4, 512, 4096]);
    }

    #[test]
    fn aligned_records_take_multiples() {
        let taken = |model: &str, size: u64| Model::parse(model).unwrap().layout.file(size).allocated_bytes - 8;
        // Head and padding are 256 bytes; an empty file has no content to align.
        for (size, bytes) in [(0, 512), (1, 512), (256, 512), (257, 1024), (768, 1024), (65_536, 256 + 65_536 + 256)] {
            assert_eq!(taken("granulo:align=512", size), bytes, "{size} bytes");
        }
        assert_eq!([0, 3840, 3841].map(|size| taken("granulo:align=4096", size)), [4096, 4096, 8192]);
        // With a head of 267 bytes, content begins at the next multiple.
        assert_eq!([0, 256].map(|size| taken("granulo:align=512,name=200", size)), [512, 1024]);
        let layout = Model::parse("granulo:align=4096").unwrap().layout;
        assert_eq!(layout.directory(0, 0).unwrap().allocated_bytes, 4096 + 8);
        assert_eq!(layout.symlink(10).unwrap().allocated_bytes, 4096 + 8);
    }

    proptest! {
        #[test]
        fn content_and_batches_begin_where_they_should(turn in 0usize..3, head in 48u64..10_000, end in 32u64..10_000_000) {
            let alignment = Alignment::ALL[turn];
            let unit = alignment.unit_bytes();
            let batch = 4 * end + alignment.padding_to_batch(4 * end);
            let to_file = |content: Content, ahead: u64| batch + content.padding_bytes(alignment, head, 1) + head + ahead;
            prop_assert!(alignment.padding_to_batch(4 * end) < unit && Content::File.padding_bytes(alignment, head, 1) < unit);
            prop_assert_eq!(Content::File.padding_bytes(alignment, head, 0), 0);
            match alignment {
                Alignment::None => prop_assert_eq!(to_file(Content::File, 0), 4 * end + head),
                _ => {
                    prop_assert_eq!(to_file(Content::File, 0) % unit, 0);
                    prop_assert_eq!(to_file(Content::Descriptor, DESCRIPTOR_HEADER_BYTES) % unit, 0);
                }
            }
        }
    }
}
