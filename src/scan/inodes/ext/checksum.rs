//! The checksums of ext file systems: CRC-32C without the final complement, and CRC-16 as IBM had it.

const CRC32C: [u32; 256] = table(0x82f6_3b78);
const CRC16: [u32; 256] = table(0xa001);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// CRC-32C of `bytes`, going on from `seed`.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &byte| crc >> 8 ^ CRC32C[usize::from(crc as u8 ^ byte)])
}

/// CRC-16 of `bytes`, going on from `seed`.
pub(super) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(u32::from(seed), |crc, &byte| crc >> 8 ^ CRC16[usize::from(crc as u8 ^ byte)]) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_published_ones() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}
