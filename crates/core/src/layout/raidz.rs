//! What a ZFS vdev allocates for one block: single disk, mirror, raidz, dRAID.
//!
//! With sectors of `2^ashift` bytes, `s = ceil(p / sector)` for a block of `p` bytes (after compression):
//! - raidz of N disks, P of them parity: `s + P * ceil(s / (N - P))`, rounded up to a multiple of `P + 1` sectors
//!   (`vdev_raidz_asize`, OpenZFS module/zfs/vdev_raidz.c);
//! - dRAID with groups of D + P: `ceil(s / D) * (D + P)` sectors (`vdev_draid_asize`, module/zfs/vdev_draid.c);
//! - a single disk and each side of a mirror: `s` sectors (`vdev_default_asize`, module/zfs/vdev.c).
//!
//! ZFS counts parity as used, then scales it back so that blocks of 128 KiB look as large as they are: the deflate
//! ratio `floor(131072 / (asize(128 KiB) / 512))` per 512 bytes (`vdev_set_deflate_ratio`, module/zfs/vdev.c;
//! `dva_get_dsize_sync`, module/zfs/spa_misc.c). What `du`, `ls -s` and `zfs list` show is the allocation times that
//! ratio.

/// The vdev of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vdev {
    shape: Shape,
    sector_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One disk, or several without redundancy: each block is on one of them.
    Single,
    Mirror {
        copies: u64,
    },
    Raidz {
        disks: u64,
        parity: u64,
    },
    Draid {
        data: u64,
        parity: u64,
    },
}

/// Most sides of a mirror: a larger number is probably that of the disks in a whole pool.
const MIRROR_MOST: u64 = 4;
/// Data disks of a dRAID group by default in `zpool create`.
const DRAID_DATA: u64 = 8;
/// Unit of sizes in ZFS.
const COUNTED_BYTES: u64 = 512;
/// The block whose deflated size is its size.
const TYPICAL_BYTES: u64 = 128 << 10;

/// The names of the kinds of vdev.
pub(super) const VDEVS: &[&str] = &["single", "mirror", "raidz1", "raidz2", "raidz3", "draid1", "draid2", "draid3"];

impl Vdev {
    /// A vdev of one of [`VDEVS`]; `draid_data` of 0 means the default of ZFS.
    ///
    /// # Errors
    /// A sentence if such a vdev is impossible.
    pub(super) fn new(vdev: &str, disks: u64, draid_data: u64, ashift: u64) -> Result<Vdev, String> {
        let parity = vdev.bytes().last().map_or(0, |digit| u64::from(digit.saturating_sub(b'0')));
        let is_draid = vdev.starts_with("draid");
        let disks_least = match vdev {
            "single" => 1,
            "mirror" => 2,
            _ => parity + 1,
        };
        if disks < disks_least {
            return Err(format!("{vdev} needs at least {disks_least} disks, not disks={disks}"));
        }
        if draid_data != 0 && !is_draid {
            return Err(format!("draid_data={draid_data} is for draid1 to draid3, not for vdev={vdev}"));
        }
        let shape = match vdev {
            "single" => Shape::Single,
            "mirror" if disks > MIRROR_MOST => {
                return Err(format!(
                    "a mirror of disks={disks} would keep {disks} copies of everything; for a pool of several \
                        mirrors, use the disks of one, disks=2 to disks={MIRROR_MOST}"
                ));
            }
            "mirror" => Shape::Mirror { copies: disks },
            _ if is_draid => {
                let most = disks - parity;
                if draid_data > most {
                    return Err(format!(
                        "draid_data={draid_data} and {parity} parity need more than disks={disks}: use at most \
                            draid_data={most}"
                    ));
                }
                Shape::Draid { data: if draid_data == 0 { DRAID_DATA.min(most) } else { draid_data }, parity }
            }
            _ => Shape::Raidz { disks, parity },
        };
        Ok(Vdev { shape, sector_bytes: 1 << ashift })
    }

    /// A mirror with the same sectors; with one disk it is that disk.
    pub(super) fn mirror_beside(&self, copies: u64) -> Vdev {
        Vdev { shape: Shape::Mirror { copies }, ..*self }
    }

    /// What ZFS calls asize: the allocation of a block, once for all sides of a mirror.
    fn asize_bytes(&self, block_bytes: u64) -> u64 {
        let sectors = block_bytes.div_ceil(self.sector_bytes);
        let allocated = match self.shape {
            Shape::Single | Shape::Mirror { .. } => sectors,
            Shape::Raidz { disks, parity } => {
                (sectors + parity * sectors.div_ceil(disks - parity)).next_multiple_of(parity + 1)
            }
            Shape::Draid { data, parity } => sectors.div_ceil(data) * (data + parity),
        };
        allocated * self.sector_bytes
    }

    /// Bytes on all disks for a block.
    pub(super) fn raw_bytes(&self, block_bytes: u64) -> u64 {
        let copies = if let Shape::Mirror { copies } = self.shape { copies } else { 1 };
        self.asize_bytes(block_bytes) * copies
    }

    /// What ZFS shows as used for a block.
    pub(super) fn deflated_bytes(&self, block_bytes: u64) -> u64 {
        self.asize_bytes(block_bytes) / COUNTED_BYTES * self.deflate_ratio()
    }

    fn deflate_ratio(&self) -> u64 {
        TYPICAL_BYTES / (self.asize_bytes(TYPICAL_BYTES) / COUNTED_BYTES)
    }

    /// Compressed blocks are rounded up to multiples of this (`spa_min_alloc`, `spa_gcd_alloc`).
    pub(super) fn least_block_bytes(&self) -> u64 {
        if let Shape::Draid { data, .. } = self.shape { data * self.sector_bytes } else { self.sector_bytes }
    }

    /// Bytes on all disks per byte, without rounding: `(numerator, denominator)`.
    pub(super) fn redundancy(&self) -> (u64, u64) {
        match self.shape {
            Shape::Single => (1, 1),
            Shape::Mirror { copies } => (copies, 1),
            Shape::Raidz { disks, parity } => (disks, disks - parity),
            Shape::Draid { data, parity } => (data + parity, data),
        }
    }

    /// Copies that a mirror needs to survive as many lost disks.
    pub(super) fn copies_as_safe(&self) -> u64 {
        match self.shape {
            Shape::Single => 1,
            Shape::Mirror { copies } => copies,
            Shape::Raidz { parity, .. } | Shape::Draid { parity, .. } => parity + 1,
        }
    }

    /// The `ashift` of its sectors.
    pub(super) fn ashift(&self) -> u32 {
        self.sector_bytes.ilog2()
    }

    /// The vdev in the syntax of `zpool create`, with `disks` invented names.
    pub(super) fn create_words(&self, disks: u64) -> String {
        let names = |count: u64| (1..=count).map(|at| format!("DISK{at}")).collect::<Vec<_>>().join(" ");
        match self.shape {
            Shape::Single => names(disks),
            Shape::Mirror { copies } => format!("mirror {}", names(copies)),
            Shape::Raidz { parity, .. } => format!("raidz{parity} {}", names(disks)),
            Shape::Draid { data, parity } => format!("draid{parity}:{data}d:{disks}c {}", names(disks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(name: &str, disks: u64, ashift: u64) -> Vdev {
        Vdev::new(name, disks, 0, ashift).unwrap()
    }

    #[test]
    fn a_block_of_8_kib_on_nine_disks_of_512_byte_sectors() {
        // openzfs/zfs issue 4544: raidz2, asize 12288, deflate ratio 397, dsize 9528.
        let vdev = vdev("raidz2", 9, 9);
        assert_eq!(vdev.asize_bytes(8192), 12288);
        assert_eq!(vdev.deflate_ratio(), 397);
        assert_eq!(vdev.deflated_bytes(8192), 9528);
    }

    #[test]
    fn a_block_of_128_kib_on_eleven_disks_of_64_kib_sectors() {
        // openzfs/zfs issue 8163: raidz2 takes six sectors.
        assert_eq!(vdev("raidz2", 11, 16).asize_bytes(128 << 10), 6 << 16);
    }

    #[test]
    fn a_block_of_one_sector_takes_parity_and_one_sector() {
        for (name, disks, copies) in [("raidz1", 3, 2), ("raidz2", 8, 3), ("raidz3", 20, 4)] {
            assert_eq!(vdev(name, disks, 12).raw_bytes(1), copies * 4096);
        }
        // A third sector of padding: 2 + 2 is rounded up to 6.
        assert_eq!(vdev("raidz2", 8, 12).raw_bytes(8192), 6 * 4096);
        assert_eq!(vdev("raidz2", 8, 12).raw_bytes(0), 0);
    }

    #[test]
    fn a_draid_block_takes_whole_stripes() {
        // 8 data disks of 4 KiB sectors: 32 KiB and its parity are the least (openzfs/zfs issue 15936).
        let draid = vdev("draid2", 14, 12);
        assert_eq!(draid.raw_bytes(1), 10 * 4096);
        assert_eq!(draid.raw_bytes(32 << 10), 10 * 4096);
        assert_eq!(draid.raw_bytes((32 << 10) + 1), 20 * 4096);
        assert_eq!(Vdev::new("draid1", 6, 4, 12).unwrap().raw_bytes(16 << 10), 5 * 4096);
        // Too few disks for groups of 8.
        assert_eq!(vdev("draid1", 5, 12).redundancy(), (5, 4));
    }

    #[test]
    fn mirrors_and_single_disks_round_up_to_sectors() {
        assert_eq!(vdev("mirror", 3, 12).raw_bytes(5000), 3 * 8192);
        assert_eq!(vdev("mirror", 3, 12).deflated_bytes(5000), 8192);
        assert_eq!(vdev("single", 8, 9).raw_bytes(5000), 5120);
    }

    #[test]
    fn an_impossible_vdev_says_what_would_be_possible() {
        for (name, disks, draid_data, said) in [
            ("raidz2", 2, 0, "raidz2 needs at least 3 disks"),
            ("raidz3", 3, 0, "at least 4 disks"),
            ("mirror", 1, 0, "mirror needs at least 2 disks"),
            ("mirror", 8, 0, "disks=2 to disks=4"),
            ("draid1", 1, 0, "at least 2 disks"),
            ("draid2", 8, 7, "use at most draid_data=6"),
            ("raidz1", 3, 2, "draid_data=2 is for draid1"),
        ] {
            let error = Vdev::new(name, disks, draid_data, 12).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
