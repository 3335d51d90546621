//! Lustre on ldiskfs: an inode on the metadata target (MDT), objects on the object storage targets (OST), and with
//! Data-on-MDT the first bytes of every file beside its inode.
//!
//! Both kinds of target have blocks of 4 KiB. With `up(a)` for `a` rounded up to whole blocks, a file of `S` bytes
//! needs `up(min(S, dom))` on the MDT and `up(S - dom)` on the OSTs: all its objects except the one with the end of the
//! file hold whole stripes, and stripes are multiples of 64 KiB, so the number of stripes changes nothing.
//!
//! Besides: `mdt_inode` on the MDT, and `ost_inode` for each OST object. A file has `stripes` objects as soon as it is
//! created; with Data-on-MDT it has none until it grows beyond the first component.
//!
//! Invariants: a file up to the first component needs nothing on the OSTs; a larger one keeps its first bytes on the
//! MDT.
//!
//! Sources: Lustre Operations Manual, "Determining Space Requirements" (2 KiB of MDT for an inode, its examples are
//! tests), "Setting Formatting Options for an ldiskfs MDT" (one inode for each 2,560 bytes), "Data on MDT (DoM)"
//! (multiples of 64 KiB, at most 1 GiB, server's limit 1 MiB; objects are made late);
//! lustre/utils/libmount_utils_ldiskfs.c (inodes of 1,024 bytes on the MDT, 512 on OSTs, blocks of 4 KiB).

use super::{Kind, Layout, Opt, Options, Placement, Range, Space, Wanted, WholeUnits, round_up, round_up_wide};
use crate::units::{GIB, KIB, MIB, format_count, format_size};

/// `lustre:dom=0,mdt_inode=2K,…`.
pub(super) const LUSTRE: Kind = Kind {
    name: "lustre",
    summary: "Lustre (ldiskfs), with Data-on-MDT",
    options: &[
        Opt {
            name: "dom",
            default: "0",
            range: Range::Size { least: 0, most: MOST_DOM_BYTES, power_of_two: false },
            meaning: "bytes at the start of every file on the metadata target: 0, or a multiple of 64K",
        },
        Opt {
            name: "mdt_inode",
            default: "2K",
            range: Range::Size { least: 512, most: 64 * KIB, power_of_two: false },
            meaning: "space of one inode on the metadata target, with its share of journal and directories",
        },
        Opt {
            name: "ost_inode",
            default: "512",
            range: Range::Size { least: 128, most: 64 * KIB, power_of_two: true },
            meaning: "inode size of one object on an object storage target",
        },
        Opt {
            name: "stripes",
            default: "1",
            range: Range::Count { least: 1, most: 2000 },
            meaning: "objects of a file on object storage targets",
        },
        Opt {
            name: "mdt_mirror",
            default: "1",
            range: Range::Count { least: 1, most: 4 },
            meaning: "copies of the metadata target's blocks (RAID 1), for the size of a fast tier",
        },
    ],
    build,
};

/// Blocks of ldiskfs (`L_BLOCK_SIZE`).
const BLOCK_BYTES: u64 = 4 * KIB;

/// Stripes, and so components, are multiples of this.
const STRIPE_ALIGN_BYTES: u64 = 64 * KIB;

/// `lfs setstripe` allows no larger component on the MDT.
const MOST_DOM_BYTES: u64 = GIB;

/// The limit of a server whose `dom_stripesize` was not changed.
const DEFAULT_DOM_LIMIT_BYTES: u64 = MIB;

/// Bytes of an ldiskfs MDT for each inode, by default in mkfs.lustre: inode and 1,536 bytes.
const DEFAULT_BYTES_PER_INODE: u64 = 1024 + 1536;

/// The most that `mke2fs -i` accepts (`EXT2_MAX_BLOCK_SIZE * 1024`).
const MOST_BYTES_PER_INODE: u64 = 64 * MIB;

/// Bytes per inode are multiples of this, as the default is.
const BYTES_PER_INODE_GRAIN: u64 = 512;

#[derive(Debug)]
struct Lustre {
    dom_bytes: u64,
    mdt_inode_bytes: u64,
    ost_inode_bytes: u64,
    stripes: u64,
    mdt_mirror: u64,
}

fn build(options: &Options) -> Result<Box<dyn Layout>, String> {
    let dom_bytes = options.size("dom");
    if !dom_bytes.is_multiple_of(STRIPE_ALIGN_BYTES) {
        return Err(format!(
            "a component on the metadata target must be a multiple of 64 KiB: use dom={}K instead of dom={dom_bytes}",
            round_up(dom_bytes, STRIPE_ALIGN_BYTES) / KIB
        ));
    }
    Ok(Box::new(Lustre {
        dom_bytes,
        mdt_inode_bytes: options.size("mdt_inode"),
        ost_inode_bytes: options.size("ost_inode"),
        stripes: options.count("stripes"),
        mdt_mirror: options.count("mdt_mirror"),
    }))
}

/// The component that a cutoff needs: whole units of 64 KiB, and no more than Lustre allows.
fn component(cutoff_bytes: u64) -> u64 {
    round_up(cutoff_bytes, STRIPE_ALIGN_BYTES).min(MOST_DOM_BYTES)
}

impl Lustre {
    /// Bytes of data on the MDT and on OSTs, in blocks.
    fn blocks(size_bytes: u64, dom_bytes: u64) -> (u128, u128) {
        let on_mdt = size_bytes.min(dom_bytes);
        (round_up_wide(on_mdt.into(), BLOCK_BYTES), round_up_wide((size_bytes - on_mdt).into(), BLOCK_BYTES))
    }

    /// The inodes of the OST objects of one file.
    fn ost_inodes(&self) -> u128 {
        u128::from(self.stripes) * u128::from(self.ost_inode_bytes)
    }
}

impl Layout for Lustre {
    fn file(&self, size_bytes: u64) -> Space {
        let (on_mdt, on_osts) = Self::blocks(size_bytes, self.dom_bytes);
        let has_objects = self.dom_bytes == 0 || size_bytes > self.dom_bytes;
        let ost_inodes = if has_objects { self.ost_inodes() } else { 0 };
        Space { allocated_bytes: on_mdt + on_osts, metadata_bytes: u128::from(self.mdt_inode_bytes) + ost_inodes }
    }

    fn whole_units(&self) -> Option<WholeUnits> {
        Some(WholeUnits { unit_bytes: BLOCK_BYTES, bytes_per_unit: BLOCK_BYTES.into() })
    }

    /// The cutoff is the component on the MDT, instead of the option `dom`: it holds the first bytes of every file,
    /// however large, so this tier does not hold only whole small files. The OST objects of an empty file are omitted,
    /// so that a cutoff of 0 bytes is one like any other.
    fn place(&self, size_bytes: u64, cutoff_bytes: u64) -> Option<Placement> {
        let dom_bytes = component(cutoff_bytes);
        let (on_mdt, on_osts) = Self::blocks(size_bytes, dom_bytes);
        let fast = u128::from(self.mdt_mirror) * (u128::from(self.mdt_inode_bytes) + on_mdt);
        let ost_inodes = if size_bytes > dom_bytes { self.ost_inodes() } else { 0 };
        Some(Placement::certain(fast, on_osts + ost_inodes))
    }

    fn cutoff_most_bytes(&self) -> u64 {
        MOST_DOM_BYTES
    }

    /// ldiskfs reserves 5 % of its blocks.
    fn fast_fill(&self) -> (u64, u64) {
        (19, 20)
    }

    /// Each file has the same share of the MDT: its inode, and with Data-on-MDT the mean of the data for which the fast
    /// tier was sized. So the inodes leave room for the data.
    fn settings(&self, wanted: &Wanted) -> Vec<String> {
        let &Wanted { cutoff_bytes, fast_bytes, files, .. } = wanted;
        let dom_bytes = component(cutoff_bytes);
        let mirror = u128::from(self.mdt_mirror);
        let usable_bytes = fast_bytes / mirror;
        let least = u128::from(DEFAULT_BYTES_PER_INODE);
        let share = usable_bytes / files.max(1);
        let per_inode = (share - share % u128::from(BYTES_PER_INODE_GRAIN)).clamp(least, MOST_BYTES_PER_INODE.into());
        let copies = if mirror > 1 { format!(", {mirror} times") } else { String::new() };
        let mut lines = vec![format!(
            "# A metadata target of {}{copies}, with an inode for each {per_inode} bytes. {} files are expected; \
                directories need inodes too.",
            format_size(usable_bytes),
            format_count(files)
        )];
        if share < least {
            lines.push(format!(
                "# Less than {DEFAULT_BYTES_PER_INODE} is not recommended. The target has space for only {} inodes: \
                    {} files need {}{copies}.",
                format_count(usable_bytes / least),
                format_count(files),
                format_size(files.saturating_mul(least)),
            ));
        }
        lines.push(format!(
            "mkfs.lustre --mdt --index=0 --fsname=FSNAME --mgsnode=NID --mkfsoptions=\"-i {per_inode}\" DEVICE"
        ));
        if dom_bytes == 0 {
            return lines;
        }
        let kib = dom_bytes / KIB;
        if dom_bytes != cutoff_bytes {
            lines.push(format!(
                "# A component on the metadata target must be a multiple of 64 KiB, at most 1 GiB: {kib} KiB for a \
                    cutoff of {cutoff_bytes} bytes."
            ));
        }
        if dom_bytes > DEFAULT_DOM_LIMIT_BYTES {
            lines.push("# The default limit of the server is 1 MiB.".to_owned());
            lines.push(format!("lctl conf_param FSNAME-MDT0000.lod.dom_stripesize={kib}K"));
        }
        lines.push(format!("lfs setstripe -E {kib}K -L mdt -E -1 -S 1M -c {} DIR", self.stripes));
        lines
    }
}

/// Models for the laws of `tests`, besides the defaults.
#[cfg(test)]
pub(super) const TESTED: &[&str] = &[
    "lustre:dom=64K",
    "lustre:dom=1M,mdt_mirror=2",
    "lustre:dom=1G,stripes=2000",
    "lustre:dom=192K,mdt_inode=64K,ost_inode=256,stripes=4",
    "lustre:mdt_inode=512,mdt_mirror=4",
];

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::tests::layout;
    use super::*;

    #[test]
    fn the_examples_of_the_manual() {
        // 100 million inodes, twice: 2 KiB each are 400 GiB (400 GB, to be exact: 409.6e9 bytes).
        let inodes = 2 * 100_000_000;
        let plain = layout("lustre").place(5_000_000, 0).unwrap();
        assert_eq!(plain.fast_bytes * inodes, 409_600_000_000);
        // With files of 4 KiB on the MDT, 6 KiB each: 1,200 "GiB".
        let dom = layout("lustre").place(4096, 65_536).unwrap();
        assert_eq!(dom.fast_bytes, 6 * 1024);
        assert_eq!(dom.fast_bytes * inodes, 1_228_800_000_000);
        // Mirrored: twice that.
        assert_eq!(layout("lustre:mdt_mirror=2").place(4096, 65_536).unwrap().fast_bytes, 12 * 1024);
        assert_eq!(DEFAULT_BYTES_PER_INODE, 2560);
    }

    #[test]
    fn the_first_bytes_of_large_files_are_on_the_metadata_target_too() {
        let placed = layout("lustre").place(10 * MIB + 1, 65_536).unwrap();
        assert_eq!(placed.fast_bytes, 2048 + 65_536);
        assert_eq!(placed.slow_bytes, u128::from(10 * MIB + 4096 - 65_536 + 512));
        // A cutoff of one block needs a component of 64 KiB.
        assert_eq!(layout("lustre").place(10 * MIB, 4096).unwrap().fast_bytes, 2048 + 65_536);
        // No component is larger than 1 GiB.
        let largest = layout("lustre").place(u64::MAX, u64::MAX).unwrap();
        assert_eq!(largest.fast_bytes, 2048 + u128::from(GIB));
    }

    #[test]
    fn objects_are_made_when_the_first_component_is_full() {
        assert_eq!(layout("lustre:stripes=4").file(0).metadata_bytes, 2048 + 4 * 512);
        let dom = layout("lustre:dom=64K,stripes=4");
        assert_eq!(dom.file(65_536), Space { allocated_bytes: 65_536, metadata_bytes: 2048 });
        assert_eq!(dom.file(65_537), Space { allocated_bytes: 65_536 + 4096, metadata_bytes: 2048 + 4 * 512 });
    }

    #[test]
    fn settings_say_the_component_that_is_used() {
        let lines = layout("lustre:stripes=2").settings(&Wanted::of(4096, 1_000_000)).join("\n");
        for part in ["64 KiB for a cutoff of 4096", "lfs setstripe -E 64K -L mdt -E -1 -S 1M -c 2"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!lines.contains("dom_stripesize"));
        assert!(layout("lustre").settings(&Wanted::of(2 * MIB, 1)).join("\n").contains("lod.dom_stripesize=2048K"));
        assert!(!layout("lustre").settings(&Wanted::of(0, 1)).join("\n").contains("setstripe"));
    }

    #[test]
    fn settings_have_an_inode_for_each_file_or_say_that_they_have_not() {
        let said = |model: &str, fast_bytes: u128, files: u128| {
            let lines = layout(model).settings(&Wanted { files, ..Wanted::of(0, fast_bytes) });
            assert!(!lines.iter().any(|line| line.contains("$((") || line.contains("FILES")), "{lines:?}");
            lines.join("\n")
        };
        let inodes = |said: &str| said.split("-i ").nth(1).unwrap().split('"').next().unwrap().parse::<u128>().unwrap();
        // The manual's example of 6 KiB for files of 4 KiB, in 512 bytes; mirrored it needs twice the devices.
        assert_eq!(inodes(&said("lustre", 6_500_000_000, 1_000_000)), 6144);
        assert_eq!(inodes(&said("lustre:mdt_mirror=2", 13_000_000_000, 1_000_000)), 6144);
        let enough = said("lustre", 2_560_000_000, 1_000_000);
        assert!(inodes(&enough) == 2560 && !enough.contains("space for"), "{enough}");
        let short = said("lustre:mdt_mirror=2", 4_096_000_000, 1_000_000);
        assert_eq!(inodes(&short), 2560);
        assert!(short.contains("space for only 800,000 inodes: 1,000,000 files need 2.38 GiB, 2 times."), "{short}");
        assert!(
            short.contains("target of 1.91 GiB, 2 times, with an inode for each 2560 bytes. 1,000,000 files"),
            "{short}"
        );
        assert!(!said("lustre", 4096, 1_000_000).contains("times"));
        // mke2fs refuses more than 64 MiB, and a share of nothing.
        assert_eq!(inodes(&said("lustre", 1 << 60, 1)), 67_108_864);
        assert_eq!(inodes(&said("lustre", u128::MAX, 0)), 67_108_864);
        assert_eq!(inodes(&said("lustre", 0, u128::MAX)), 2560);
    }

    #[test]
    fn a_component_of_half_a_stripe_is_refused() {
        let said = Model::parse("lustre:dom=100K").unwrap_err().to_string();
        assert!(said.contains("use dom=128K instead"), "{said}");
    }
}
