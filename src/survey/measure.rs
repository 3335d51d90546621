//! The distributions that a survey takes: those of fsstats (Dayal 2008), by name and unit.

use crate::distribution::{Distribution, Weight};

/// What is measured of each file, directory, symlink or name, once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
#[non_exhaustive]
pub enum Measure {
    /// Size of each regular file.
    FileSize,
    /// Bytes allocated to each regular file.
    Allocated,
    /// Bytes allocated beyond the size, of each file, directory and symlink where that is zero or more.
    PositiveOverhead,
    /// Size beyond the allocated bytes, of each of the others: sparse, compressed, packed.
    NegativeOverhead,
    /// Entries of each directory, without `.` and `..`.
    DirectoryEntries,
    /// Size of each directory.
    DirectorySize,
    /// Length of each name below the roots.
    NameLength,
    /// Link count of each regular file.
    LinkCount,
    /// Length of each symlink's target.
    SymlinkTargetLength,
    /// Whole days since each regular file's content changed.
    MtimeAge,
    /// Whole days since each regular file's inode changed.
    CtimeAge,
    /// Whole days since each regular file was read.
    AtimeAge,
    /// Depth of each directory that was listed; 0 for a root.
    DirectoryDepth,
}

/// What is measured of every byte of each regular file: the age of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum ByteMeasure {
    /// By the last change of the content.
    MtimeAge,
    /// By the last change of the inode.
    CtimeAge,
    /// By the last read.
    AtimeAge,
}

impl Measure {
    /// All of them, in the order of the survey file.
    pub const ALL: [Measure; 13] = [
        Measure::FileSize,
        Measure::Allocated,
        Measure::PositiveOverhead,
        Measure::NegativeOverhead,
        Measure::DirectoryEntries,
        Measure::DirectorySize,
        Measure::NameLength,
        Measure::LinkCount,
        Measure::SymlinkTargetLength,
        Measure::MtimeAge,
        Measure::CtimeAge,
        Measure::AtimeAge,
        Measure::DirectoryDepth,
    ];

    /// The measures that need names.
    pub const OF_NAMES: [Measure; 3] = [Measure::DirectoryEntries, Measure::NameLength, Measure::DirectoryDepth];

    /// Its name in survey files.
    pub fn name(self) -> &'static str {
        match self {
            Measure::FileSize => "file_size",
            Measure::Allocated => "allocated",
            Measure::PositiveOverhead => "positive_overhead",
            Measure::NegativeOverhead => "negative_overhead",
            Measure::DirectoryEntries => "directory_entries",
            Measure::DirectorySize => "directory_size",
            Measure::NameLength => "name_length",
            Measure::LinkCount => "link_count",
            Measure::SymlinkTargetLength => "symlink_target_length",
            Measure::MtimeAge => "mtime_age",
            Measure::CtimeAge => "ctime_age",
            Measure::AtimeAge => "atime_age",
            Measure::DirectoryDepth => "directory_depth",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::DirectoryEntries => "entries",
            Measure::LinkCount => "links",
            Measure::DirectoryDepth => "levels",
            Measure::MtimeAge | Measure::CtimeAge | Measure::AtimeAge => "days",
            _ => "bytes",
        }
    }
}

impl ByteMeasure {
    /// All of them, in the order of the survey file.
    pub const ALL: [ByteMeasure; 3] = [ByteMeasure::MtimeAge, ByteMeasure::CtimeAge, ByteMeasure::AtimeAge];

    /// Its name in survey files.
    pub fn name(self) -> &'static str {
        match self {
            ByteMeasure::MtimeAge => "mtime_age_bytes",
            ByteMeasure::CtimeAge => "ctime_age_bytes",
            ByteMeasure::AtimeAge => "atime_age_bytes",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        "days"
    }
}

/// All distributions of a survey.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distributions {
    counted: [Distribution<u64>; 13],
    weighted: [Distribution<u128>; 3],
}

impl Distributions {
    /// The distribution of a measure.
    #[inline]
    pub fn of(&self, measure: Measure) -> &Distribution {
        &self.counted[measure as usize]
    }

    /// The distribution of a measure, to record into.
    #[inline]
    pub fn of_mut(&mut self, measure: Measure) -> &mut Distribution {
        &mut self.counted[measure as usize]
    }

    /// The byte-weighted distribution of a measure.
    #[inline]
    pub fn by_bytes(&self, measure: ByteMeasure) -> &Distribution<u128> {
        &self.weighted[measure as usize]
    }

    /// The byte-weighted distribution of a measure, to record into.
    #[inline]
    pub fn by_bytes_mut(&mut self, measure: ByteMeasure) -> &mut Distribution<u128> {
        &mut self.weighted[measure as usize]
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Distributions) {
        merge_each(&mut self.counted, &other.counted);
        merge_each(&mut self.weighted, &other.weighted);
    }
}

fn merge_each<W: Weight>(mine: &mut [Distribution<W>], theirs: &[Distribution<W>]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        mine.merge(theirs);
    }
}
