//! The commands for a ZFS pool with a special vdev, before it exists.
//!
//! The record size is always the model's own, because the SSDs were sized for it. `special_small_blocks` is compared
//! with blocks: at or above the record size it sends all data to the special vdev, and a comment says with which record
//! size to plan again. It must be a power of two up to 1 MiB and not above the record size before openzfs/zfs pull
//! request 17497; `zpool create -O` refuses what `zfs set` accepts (issue 15053), so properties are set afterwards.

use super::raidz::Vdev;
use crate::units::{KIB, MIB, format_size};

/// Block sizes are multiples of this.
pub(super) const GRAIN_BYTES: u64 = 512;
/// The largest record.
pub(super) const RECORD_MOST_BYTES: u64 = 16 * MIB;

/// Commands, and comments that begin with `#`.
pub(super) fn commands(
    vdev: &Vdev,
    disks: u64,
    special_copies: u64,
    record_bytes: u64,
    cutoff_bytes: u64,
    fast_bytes: u128,
) -> Vec<String> {
    let mut lines = Vec::new();
    let ssds = (1..=special_copies).map(|at| format!("SSD{at}")).collect::<Vec<_>>().join(" ");
    let special = if special_copies > 1 { format!("special mirror {ssds}") } else { format!("special {ssds}") };
    let each = format_size(fast_bytes.div_ceil(special_copies.into()));
    lines.push(format!(
        "# SSDs of {each} each, {special_copies} in total, or several such mirrors; a pool that loses one is lost."
    ));
    let ashift = vdev.ashift();
    lines.push(format!("zpool create -o ashift={ashift} POOL {} {special}", vdev.create_words(disks)));
    // In terms of blocks: a file up to the cutoff is a block up to this size, in whole grains.
    let small_bytes = cutoff_bytes.min(RECORD_MOST_BYTES).next_multiple_of(GRAIN_BYTES);
    if small_bytes >= record_bytes {
        let advice = match small_bytes.saturating_add(1).next_power_of_two() {
            above if above > RECORD_MOST_BYTES => {
                format!("No record is larger than {}.", property(RECORD_MOST_BYTES))
            }
            above => format!("Plan again with zfs:recordsize={} and the other options unchanged.", property(above)),
        };
        lines.push(format!(
            "# recordsize={} is not above the cutoff: all data goes to the special vdev. {advice}",
            property(record_bytes)
        ));
    }
    if record_bytes > MIB {
        lines.push("# The module parameter zfs_max_recordsize must allow records above 1 MiB.".to_owned());
    }
    lines.push(format!("zfs set recordsize={} POOL", property(record_bytes)));
    if small_bytes == 0 {
        return lines;
    }
    lines.push(format!("zfs set special_small_blocks={} POOL", property(small_bytes)));
    let old_most = record_bytes.min(MIB);
    if !small_bytes.is_power_of_two() || small_bytes > old_most {
        let nearest = (1u64 << small_bytes.ilog2()).min(old_most);
        lines.push(format!(
            "# Before openzfs/zfs pull request 17497 (2025), it must be a power of two, at most 1 MiB and the record \
                size: {}.",
            property(nearest)
        ));
    }
    lines
}

/// A size in the syntax of `zfs set`.
fn property(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(MIB) => format!("{}M", bytes / MIB),
        _ if bytes > 0 && bytes.is_multiple_of(KIB) => format!("{}K", bytes / KIB),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Wanted;
    use super::super::tests::layout;
    use super::*;
    use crate::units::TIB;

    #[test]
    fn settings_are_commands_and_say_their_conditions() {
        let lines = layout("zfs").settings(&Wanted::of(64 * KIB, 3 * u128::from(TIB)));
        assert_eq!(
            lines,
            [
                "# SSDs of 1 TiB each, 3 in total, or several such mirrors; a pool that loses one is lost.",
                "zpool create -o ashift=12 POOL raidz2 DISK1 DISK2 DISK3 DISK4 DISK5 DISK6 DISK7 DISK8 special mirror SSD1 SSD2 SSD3",
                "zfs set recordsize=128K POOL",
                "zfs set special_small_blocks=64K POOL",
            ]
        );
        let said = layout("zfs:vdev=draid2,disks=11").settings(&Wanted::of(100_000, 1)).join("\n");
        assert!(said.contains("draid2:8d:11c DISK1") && said.contains("special_small_blocks=98K"), "{said}");
        assert!(said.contains("power of two") && said.ends_with("64K."), "{said}");
        assert!(layout("zfs:recordsize=2M").settings(&Wanted::of(MIB, 1)).join("\n").contains("zfs_max_recordsize"));
        assert!(!layout("zfs").settings(&Wanted::of(0, 1)).join("\n").contains("special_small_blocks"));
        layout("zfs:vdev=single").settings(&Wanted::of(u64::MAX, u128::MAX));
    }

    #[test]
    fn the_record_size_stays_the_one_that_was_planned_with() {
        for record in ["512", "16K", "128K", "1M", "16M"] {
            for cutoff in [0, 1, 512, 64 * KIB, 128 * KIB - 1, 128 * KIB, MIB, 16 * MIB, u64::MAX] {
                let lines = layout(&format!("zfs:recordsize={record}")).settings(&Wanted::of(cutoff, 1));
                let set: Vec<_> = lines.iter().filter(|line| line.starts_with("zfs set recordsize=")).collect();
                assert_eq!(set, [&format!("zfs set recordsize={record} POOL")], "{cutoff}");
            }
        }
    }

    #[test]
    fn a_cutoff_at_the_record_size_is_said_to_take_all_data() {
        let said = |cutoff_bytes| layout("zfs").settings(&Wanted::of(cutoff_bytes, 1)).join("\n");
        let all = "# recordsize=128K is not above the cutoff: all data goes to the special vdev. ";
        for (cutoff, advice) in [
            // In whole grains it is already the record size.
            (128 * KIB - 1, "Plan again with zfs:recordsize=256K "),
            (128 * KIB, "Plan again with zfs:recordsize=256K "),
            (MIB, "Plan again with zfs:recordsize=2M "),
            (16 * MIB, "No record is larger than 16M."),
            (u64::MAX, "No record is larger than 16M."),
        ] {
            assert!(said(cutoff).contains(&format!("{all}{advice}")), "{}", said(cutoff));
        }
        assert!(!said(127 * KIB).contains("all data goes"));
    }
}
