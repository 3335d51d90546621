//! Fragmentation of files and of free space.
//!
//! Files: their extents from the FIEMAP call; extents that are adjacent on the device are one piece. Free space: from
//! the tool of the file system, which needs root: `e2freefrag` for ext2, ext3 and ext4, `xfs_spaceman` for xfs; btrfs
//! has none.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use fiemap::Fiemap;
use serde::Serialize;

use crate::mounts::mount_of;
use crate::units::fraction;

/// Largest number of files that are examined.
pub const SAMPLE: u64 = 20_000;

/// Fragmentation of files and of free space.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fragmentation {
    /// Examined files that have data on the device.
    pub files: u64,
    /// Their pieces.
    pub extents: u64,
    /// Mean number of pieces per file.
    pub extents_per_file: f64,
    /// Share of the files that are in more than one piece.
    pub fragmented_fraction: f64,
    /// Pieces of the worst file.
    pub most_extents: u64,
    /// Free space; `None` where it could not be determined.
    pub free: Option<FreeSpace>,
}

/// Free space of a file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FreeSpace {
    /// Its pieces.
    pub extents: u64,
    /// Mean size of one.
    pub mean_bytes: f64,
    /// The largest; `None` where the tool does not report it.
    pub largest_bytes: Option<u64>,
    /// The tool that reported it.
    pub tool: &'static str,
}

/// Counts pieces of files.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    files: u64,
    extents: u64,
    fragmented: u64,
    most: u64,
}

impl Counted {
    /// Examines a file.
    ///
    /// # Errors
    /// The error of the call: `EOPNOTSUPP` where the file system lacks it.
    pub fn look_at(&mut self, file: impl AsFd) -> io::Result<()> {
        let extents = pieces(file)?;
        if extents > 0 {
            self.files += 1;
            self.extents += extents;
            self.fragmented += u64::from(extents > 1);
            self.most = self.most.max(extents);
        }
        Ok(())
    }

    /// The fragmentation counted so far.
    pub fn fragmentation(&self, free: Option<FreeSpace>) -> Fragmentation {
        Fragmentation {
            files: self.files,
            extents: self.extents,
            extents_per_file: fraction(self.extents.into(), self.files.into()),
            fragmented_fraction: fraction(self.fragmented.into(), self.files.into()),
            most_extents: self.most,
            free,
        }
    }
}

/// Pieces of a file: extents that do not begin where the previous one ended.
///
/// # Errors
/// The error of the call: `EOPNOTSUPP` where the file system lacks it.
pub fn pieces(file: impl AsFd) -> io::Result<u64> {
    let (mut pieces, mut end) = (0, None);
    for extent in Fiemap::new(file) {
        let extent = extent?;
        pieces += u64::from(end != Some(extent.fe_physical));
        end = Some(extent.fe_physical.saturating_add(extent.fe_length));
    }
    Ok(pieces)
}

/// The free space of the file system of `directory`; a sentence where it cannot be determined.
pub fn free_space(directory: &Path) -> Result<FreeSpace, String> {
    let mount = mount_of(directory).map_err(|error| error.to_string())?;
    match mount.kind.as_str() {
        "ext2" | "ext3" | "ext4" => {
            let said = run("e2freefrag", "e2fsprogs", &[&mount.source])?;
            of_e2freefrag(&said).ok_or_else(|| "the output of e2freefrag has an unknown format".to_owned())
        }
        "xfs" => {
            let said =
                run("xfs_spaceman", "xfsprogs", &["-c".as_ref(), "freesp -s".as_ref(), mount.point.as_os_str()])?;
            let block_bytes = rustix::fs::statvfs(directory).map_or(4096, |said| said.f_frsize);
            of_xfs_spaceman(&said, block_bytes)
                .ok_or_else(|| "the output of xfs_spaceman has an unknown format".to_owned())
        }
        other => Err(format!("no tool shows it for {other}")),
    }
}

fn run(tool: &str, package: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let output =
        Command::new(tool).args(arguments).env("LC_ALL", "C").output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{tool} is not installed (package {package})"),
            _ => format!("{tool} cannot be run: {}", crate::error::os_message(&error)),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
    let advice = if rustix::process::geteuid().is_root() { "" } else { "; it needs root" };
    Err(format!("{tool} failed: {}{advice}", crate::units::escape(last.trim().as_bytes())))
}

/// `Num. free extent: 12`, `Avg. free extent: 34 KB`, `Max. free extent: 56 KB`.
fn of_e2freefrag(said: &str) -> Option<FreeSpace> {
    let figure = |label: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(label))?;
        line.trim().trim_end_matches("KB").trim().parse::<u64>().ok()
    };
    Some(FreeSpace {
        extents: figure("Num. free extent:")?,
        mean_bytes: figure("Avg. free extent:")? as f64 * 1024.0,
        largest_bytes: Some(figure("Max. free extent:")? * 1024),
        tool: "e2freefrag",
    })
}

/// `total free extents 12`, `average free extent size 34.5`.
fn of_xfs_spaceman(said: &str, block_bytes: u64) -> Option<FreeSpace> {
    let figure = |label: &str| said.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    Some(FreeSpace {
        extents: figure("total free extents")?.parse().ok()?,
        mean_bytes: figure("average free extent size")?.parse::<f64>().ok()? * block_bytes as f64,
        largest_bytes: None,
        tool: "xfs_spaceman",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn tools_are_understood() {
        let said = "Device: /dev/loop0\nBlocksize: 4096 bytes\nTotal blocks: 25600\nFree blocks: 18000 (70.3%)\n\n\
                    Min. free extent: 4 KB \nMax. free extent: 64512 KB\nAvg. free extent: 36000 KB\nNum. free extent: 2\n\nHISTOGRAM\n";
        let free = of_e2freefrag(said).unwrap();
        assert_eq!((free.extents, free.largest_bytes, free.mean_bytes), (2, Some(64512 << 10), 36_864_000.0));
        let said = "   from      to extents  blocks    pct\n      1       1       2       2   0.00\ntotal free extents 7\ntotal free blocks 123\n\
                    average free extent size 17.5714\n";
        let free = of_xfs_spaceman(said, 4096).unwrap();
        assert_eq!((free.extents, free.mean_bytes.round()), (7, 71972.0));
        assert!(of_e2freefrag("nothing").is_none() && of_xfs_spaceman("", 1).is_none());
        let missing = run("granulo-no-such-tool", "no-such-package", &[]).unwrap_err();
        assert!(missing.contains("package no-such-package"), "{missing}");
    }

    #[test]
    fn a_file_with_a_hole_is_in_pieces_where_that_can_be_seen() {
        let mut file = tempfile::tempfile().unwrap();
        let mut counted = Counted::default();
        match counted.look_at(&file) {
            Ok(()) => assert_eq!(counted.files, 0, "it is empty"),
            // A file system without the call, such as tmpfs.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(95)),
        }
        file.write_all(&vec![1; 65_536]).unwrap();
        file.sync_all().unwrap();
        counted.look_at(&file).unwrap();
        let seen = counted.fragmentation(None);
        assert!(seen.files == 1 && seen.extents >= 1 && seen.extents_per_file >= 1.0);
    }
}
