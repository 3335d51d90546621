//! What an object store bills besides bytes: requests, by storage class.
//!
//! Some layouts are in two classes: archived objects have their names in Standard, and a store in a bucket may have
//! records in one class and stripes in another. Every figure is by class: `[the class of the model, the other one]`.
//!
//! Invariants: the bytes of both classes are the billed bytes of the file ([`super::Space::allocated_bytes`]); what is
//! read of a file is its size.

/// A figure for the class of a model, and for the second one.
pub type ByClass<T> = [T; 2];

/// What reading a whole file takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests.
    pub gets: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Files that are put into an object store, all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upload {
    /// Number of files.
    pub files: u128,
    /// Sum of their sizes.
    pub size_bytes: u128,
    /// Billed bytes.
    pub billed_bytes: ByClass<u128>,
}

/// The bill of a layout in an object store.
pub trait Billing {
    /// The storage classes, as the option `class` names them; the same one twice if there is only one.
    fn classes(&self) -> ByClass<&'static str>;

    /// The part of the allocated bytes of a file that is billed at the rate of the second class.
    fn second_class_bytes(&self, size_bytes: u64) -> u128;

    /// Number of objects once all files are there.
    fn objects(&self, upload: &Upload) -> ByClass<u128>;

    /// Requests that put all files.
    fn puts(&self, upload: &Upload) -> ByClass<u128>;

    /// What it takes to read a whole file of this size, by itself.
    fn reading(&self, size_bytes: u64) -> ByClass<Reading>;
}
