//! Predictions for zfs against pools that zfs-fuse makes: the blocks of a file on all disks, as `zdb` lists them, and
//! the figure of `stat`.
//!
//! zfs-fuse 0.7.0 makes pools of version 23: no lz4, no embedded data, indirect blocks of 16 KiB. It runs in separate
//! namespaces for processes and mounts; when the first process there ends, in any way, the daemon and its mounts
//! disappear.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use granulo::layout::Model;

use crate::harness::{has_program, is_root, sandbox, skip};

/// Makes a pool of `$2` with sectors of 2^`$3` and records of `$4` in the directory `$1`, files of the sizes that
/// follow, and prints their allocations. Sizes are final only after an export and import.
const SCRIPT: &str = r#"
set -e
cd "$1"; vdev=$2; ashift=$3; recordsize=$4; shift 4
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/zfs
mkdir -p /run/zfs /run/lock/zfs root
zfs-fuse -n --no-kstat-mount >daemon.log 2>&1 &
tries=0
until zpool list >/dev/null 2>&1; do
  tries=$((tries + 1)); [ $tries -lt 100 ] || { cat daemon.log >&2; exit 1; }
  sleep 0.1
done
disks=; kind=
for word in $vdev; do case $word in
  disk*) truncate -s 128M $word; disks="$disks $PWD/$word" ;;
  *) kind=$word ;;
esac; done
zpool create -o ashift=$ashift -m "$PWD/root" pool $kind $disks
zfs set compression=off pool
zfs set recordsize=$recordsize pool
for size in "$@"; do head -c $size /dev/urandom >root/$size; done
zpool export pool
zpool import -d "$PWD" pool
for size in "$@"; do stat -c 'file %i %s %b' root/$size; done
zdb -dddddd pool 2>/dev/null
zpool export pool
"#;

/// The properties of a file in zfs.
#[derive(Debug, Default, Clone, Copy)]
struct Found {
    /// `st_blocks * 512`.
    shown_bytes: u128,
    /// The allocations of its data blocks, one side of a mirror.
    data_bytes: u128,
}

/// The files of a pool by size; `None`, with the reason reported, where no pool can be made.
fn pool(vdev: &str, disks: u64, ashift: u64, record_bytes: u64, sizes: &[u64]) -> Option<HashMap<u64, Found>> {
    let needed = ["zfs-fuse", "zpool", "zfs", "zdb", "unshare", "timeout"];
    if let Some(missing) = needed.iter().find(|program| !has_program(program)) {
        skip(&format!("there is no {missing}"));
        return None;
    }
    if !is_root() || !Path::new("/dev/fuse").exists() {
        skip("it runs a file system, which needs root and /dev/fuse");
        return None;
    }
    let directory = sandbox();
    let words: Vec<String> = (1..=disks).map(|at| format!("disk{at}")).collect();
    let kind = if vdev == "single" { "" } else { vdev };
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(directory.path()).arg(format!("{kind} {}", words.join(" ")));
    command.args([ashift.to_string(), record_bytes.to_string()]).args(sizes.iter().map(u64::to_string));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{vdev}: {said}");
    let found = read(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(found.len(), sizes.len(), "{vdev}: {said}");
    Some(found)
}

/// Reads the output of the script: `file INODE SIZE BLOCKS` for each, then the objects and their blocks.
fn read(printed: &str) -> HashMap<u64, Found> {
    let mut size_of = HashMap::new();
    let mut found: HashMap<u64, Found> = HashMap::new();
    let mut inside = None;
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["file", inode, size, blocks] => {
                let size: u64 = size.parse().unwrap();
                size_of.insert(inode.to_owned(), size);
                found.entry(size).or_default().shown_bytes = blocks.parse::<u128>().unwrap() * 512;
            }
            [object, _, "16K", ..] if line.contains("ZFS plain file") => inside = size_of.get(object).copied(),
            [_, _, "16K", ..] => inside = None,
            [_, "L0", ref addresses @ ..] => {
                let Some(file) = inside.and_then(|size| found.get_mut(&size)) else { continue };
                file.data_bytes += addresses.iter().filter_map(|word| allocation(word)).sum::<u128>();
            }
            _ => {}
        }
    }
    found
}

/// The allocation in `VDEV:OFFSET:ALLOCATION`, in hexadecimal.
fn allocation(word: &str) -> Option<u128> {
    let [_, _, allocation] = word.split(':').collect::<Vec<_>>()[..] else { return None };
    u128::from_str_radix(allocation, 16).ok()
}

/// Sizes at the edges of blocks, sectors, rows and records.
const SIZES: [u64; 21] = [
    0, 1, 94, 95, 511, 512, 513, 4096, 4097, 8192, 12_289, 16_384, 16_385, 65_536, 65_537, 100_000, 131_072, 131_073,
    262_144, 1_000_000, 10_000_000,
];

fn compare(vdev: &str, disks: u64, ashift: u64, record_bytes: u64) {
    let Some(found) = pool(vdev, disks, ashift, record_bytes, &SIZES) else { return };
    let name =
        format!("zfs:vdev={vdev},disks={disks},ashift={ashift},recordsize={record_bytes},compression=off,indirect=16K");
    let layout = Model::parse(&name).unwrap().layout;
    let sides = if vdev == "mirror" { u128::from(disks) } else { 1 };
    let sector_bytes = layout.file(1).allocated_bytes;
    for size in SIZES {
        let file = found[&size];
        let what = format!("{name}, {size} bytes: {file:?}");
        assert_eq!(layout.file(size).allocated_bytes, file.data_bytes * sides, "{what}");
        let reported = layout.reported(size).unwrap();
        if size <= record_bytes {
            assert_eq!(reported, file.shown_bytes, "{what}");
        } else {
            // There, lzjb compresses indirect blocks, so they may be a sector larger or smaller, twice; full ones by
            // more.
            let apart = reported.abs_diff(file.shown_bytes);
            assert!(apart <= 2 * sector_bytes + file.shown_bytes / 200, "{what}, predicted {reported}");
        }
    }
}

#[test]
fn raidz1_of_three() {
    compare("raidz1", 3, 12, 128 << 10);
}

#[test]
fn raidz2_of_eight() {
    compare("raidz2", 8, 12, 128 << 10);
}

#[test]
fn raidz2_of_five_with_small_sectors() {
    compare("raidz2", 5, 9, 128 << 10);
}

#[test]
fn raidz3_of_seven_with_large_sectors_and_small_records() {
    compare("raidz3", 7, 13, 16 << 10);
}

#[test]
fn mirror_of_two() {
    compare("mirror", 2, 12, 128 << 10);
}

#[test]
fn single_disk_with_small_sectors_and_small_records() {
    compare("single", 1, 9, 8 << 10);
}
