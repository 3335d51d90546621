//! Fields of records on disk: integers and bytes at constant offsets.
//!
//! A record is taken from untrusted bytes once, as an array of its length (`first_chunk`, `as_chunks`). From then on
//! the compiler checks that its fields are in it, and nothing is left to check when they are read.

/// Bytes with fields.
pub(super) trait Record {
    /// The `N` bytes at offset `AT`; it does not compile if the record has no such bytes.
    fn field<const AT: usize, const N: usize>(&self) -> &[u8; N];
}

impl<const LENGTH: usize> Record for [u8; LENGTH] {
    #[inline(always)]
    fn field<const AT: usize, const N: usize>(&self) -> &[u8; N] {
        const { assert!(AT + N <= LENGTH, "the record has no such field") };
        match self.split_at(AT).1.first_chunk() {
            Some(field) => field,
            None => unreachable!(),
        }
    }
}

/// Integers whose lowest byte comes first.
pub(super) trait LittleEndian: Record {
    #[inline(always)]
    fn u16<const AT: usize>(&self) -> u16 {
        u16::from_le_bytes(*self.field::<AT, 2>())
    }

    #[inline(always)]
    fn u32<const AT: usize>(&self) -> u32 {
        u32::from_le_bytes(*self.field::<AT, 4>())
    }

    #[inline(always)]
    fn u64<const AT: usize>(&self) -> u64 {
        u64::from_le_bytes(*self.field::<AT, 8>())
    }
}

impl<const LENGTH: usize> LittleEndian for [u8; LENGTH] {}

/// Integers whose highest byte comes first.
pub(super) trait BigEndian: Record {
    #[inline(always)]
    fn u16<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes(*self.field::<AT, 2>())
    }

    #[inline(always)]
    fn u32<const AT: usize>(&self) -> u32 {
        u32::from_be_bytes(*self.field::<AT, 4>())
    }

    #[inline(always)]
    fn u64<const AT: usize>(&self) -> u64 {
        u64::from_be_bytes(*self.field::<AT, 8>())
    }
}

impl<const LENGTH: usize> BigEndian for [u8; LENGTH] {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_their_offsets_say() {
        let record: [u8; 16] = std::array::from_fn(|at| at as u8);
        assert_eq!(record.field::<13, 3>(), &[13, 14, 15]);
        assert_eq!(LittleEndian::u16::<1>(&record), 0x0201);
        assert_eq!(LittleEndian::u32::<12>(&record), 0x0f0e_0d0c);
        assert_eq!(LittleEndian::u64::<0>(&record), 0x0706_0504_0302_0100);
        assert_eq!(BigEndian::u16::<1>(&record), 0x0102);
        assert_eq!(BigEndian::u32::<12>(&record), 0x0c0d_0e0f);
        assert_eq!(BigEndian::u64::<0>(&record), 0x0001_0203_0405_0607);
    }
}
