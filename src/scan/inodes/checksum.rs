//! CRC-32C as file systems use it: incremental, with a custom seed.

/// CRC-32C of `bytes`, continued from `seed`, without the final complement.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_one_at_every_length() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        let bytes: Vec<u8> = (0..100).collect();
        for length in 0..100 {
            let whole = crc32c(!0, &bytes[..length]);
            assert_eq!(whole, crc32c(crc32c(!0, &bytes[..length / 3]), &bytes[length / 3..length]));
        }
    }
}
