//! CRC-32C, as btrfs and xfs have it: eight bytes at a time, because every block of metadata is checked.

/// Table i is the checksum of a byte with i zeros behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// CRC-32C of `bytes`, going on from `seed`, without the final complement.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let crc = chunks.iter().fold(seed, |crc, chunk| {
        let [a, b, c, d] = (crc ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])).to_le_bytes();
        let of = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        of(7, a)
            ^ of(6, b)
            ^ of(5, c)
            ^ of(4, d)
            ^ of(3, chunk[4])
            ^ of(2, chunk[5])
            ^ of(1, chunk[6])
            ^ of(0, chunk[7])
    });
    rest.iter().fold(crc, |crc, &byte| crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)])
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
