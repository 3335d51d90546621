//! Predictions for btrfs against file systems made for it, to the byte.

use std::fs;
use std::path::Path;
use std::process::Command;

use granulo::layout::Model;

use crate::harness::write_file;
use crate::images::{Image, Mount, run};
use crate::xfs::{LARGE, allocated, assert_all_equal, assert_files, assert_symlinks, edges, make_files, sync};

const SECTOR: u64 = 4096;

/// Bytes that btrfs reports as used by `Data` or `Metadata`, counting one copy.
pub fn used(root: &Path, kind: &str) -> u64 {
    let said = run(Command::new("btrfs").args(["filesystem", "df", "-b"]).arg(root));
    let line = said.lines().find(|line| line.starts_with(&format!("{kind},"))).unwrap_or_else(|| panic!("{said}"));
    line.split_once("used=").unwrap().1.trim().parse().unwrap()
}

/// The file systems: arguments of mkfs, mount options, and the model.
const CASES: [(&[&str], &str, &str); 5] = [
    (&[], "", "btrfs"),
    (&[], "max_inline=0", "btrfs:max_inline=0"),
    (&[], "max_inline=3000", "btrfs:max_inline=3000"),
    (&[], "max_inline=4096", "btrfs:max_inline=4096"),
    (&["--nodesize", "4096"], "max_inline=4096", "btrfs:max_inline=4096,node=4096"),
];

fn image(mkfs: &[&str], options: &str) -> Option<Image> {
    let mkfs: Vec<&str> = ["mkfs.btrfs", "-q"].iter().chain(mkfs).copied().collect();
    Image::make(3 << 30, &mkfs, Mount::Kernel(options))
}

#[test]
fn btrfs_allocates_what_was_predicted() {
    for (mkfs, options, name) in CASES {
        let Some(image) = image(mkfs, options) else { return };
        let root = image.root();
        let model = Model::parse(name).unwrap();
        let before = used(&root, "Data");
        let sizes = edges(&[SECTOR], &[3000, 3949]);
        make_files(&root, &sizes);
        assert_files(&model, &root, &sizes);
        let data = sizes.iter().chain(&LARGE).map(|size| model.layout.data_bytes(*size)).sum();
        let measured = u128::from(used(&root, "Data") - before);
        assert_all_equal(name, [("data of all files".to_owned(), data, measured)]);

        assert_symlinks(&model, &root, &[1, 59, 2048, 2049, 3900]);
        let directory = root.join("directory");
        for number in 0..200 {
            write_file(directory.join(format!("{number:020}")), 0);
        }
        sync(&root);
        let predicted = model.layout.directory(200, 200 * model.layout.entry_bytes(20)).unwrap();
        let shown = ("directory".to_owned(), predicted.allocated_bytes, allocated(&directory));
        let measured = u128::from(used(&root, "Data") - before);
        assert_all_equal(name, [shown, ("data with symlinks and directory".to_owned(), data, measured)]);
    }
}

#[test]
fn btrfs_keeps_files_inline_up_to_where_was_predicted() {
    for (mkfs, options, name) in CASES {
        let Some(image) = image(mkfs, options) else { return };
        let root = image.root();
        let model = Model::parse(name).unwrap();
        // One at a time: the growth of used data blocks is due to this file.
        let data_of = |size: u64| {
            let before = used(&root, "Data");
            let path = write_file(root.join("file"), usize::try_from(size).unwrap());
            sync(&root);
            let grown = used(&root, "Data") - before;
            fs::remove_file(path).unwrap();
            sync(&root);
            (format!("data of {size}"), model.layout.data_bytes(size), u128::from(grown))
        };
        let sizes = [0, 1, 2, 2047, 2048, 2049, 2999, 3000, 3001, 3948, 3949, 3950, 4095, 4096, 4097];
        assert_all_equal(name, sizes.map(data_of));
    }
}
