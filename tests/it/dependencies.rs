//! Dependencies of each package, as `cargo tree` lists them: the arithmetic alone needs serde only, and the store needs
//! no clap, parquet or JSON. What reaches buckets brings along a whole client of HTTP, and
//! only the feature `bucket` brings that along.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::{finish, source_tree};

/// A package, the largest number of packages that it may need (including itself), and some that it may not need.
const BOUNDS: [(&str, usize, &[&str]); 4] = [
    ("granulo-core", 8, &["clap", "parquet", "rustix", "serde_json", "zstd"]),
    ("granulo-store", 28, &["clap", "indicatif", "parquet", "serde_json", "rusqlite"]),
    ("granulo", 110, &["rusqlite", "tokio"]),
    ("granulo-bucket", 150, &["aws-lc-rs", "clap", "native-tls", "parquet"]),
];

/// The packages that one needs in a normal build, including itself.
fn needed(package: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.current_dir(source_tree());
    tree.args([
        "tree",
        "--locked",
        "--offline",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--package",
    ]);
    let listed = finish(tree.arg(package)).ended(0).text();
    listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn a_package_brings_along_what_it_needs_and_no_more() {
    for (package, most, refused) in BOUNDS {
        let needed = needed(package);
        assert!(needed.contains(package), "{needed:?}");
        let count = needed.len();
        assert!(count <= most, "{package} needs {count} packages, and may need {most}: {needed:?}");
        for other in refused {
            assert!(!needed.contains(*other), "{package} needs {other}");
        }
    }
}
