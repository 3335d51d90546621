//! What a build without the feature `bucket` says of a store in one. The tests of builds with it are in `tests/bucket`.
#![cfg(not(feature = "bucket"))]

use crate::harness::{complains, finish, granulo};

#[test]
fn a_build_without_buckets_says_which_one_has_them() {
    for address in ["s3://bucket/a", "gs://bucket/a", "az://container/a"] {
        for command in ["init", "ls", "status"] {
            let ran = finish(granulo().args(["store", command, address]));
            complains(&ran.ended(2), &[address, "built without buckets", "--features bucket"]);
        }
    }
    let help = finish(granulo().args(["store", "ls", "--help"])).ended(0).text();
    assert!(!help.contains("--endpoint"), "{help}");
    let unknown = finish(granulo().args(["store", "ls", "ftp://server/a"]));
    complains(&unknown.ended(2), &["ftp:// is not supported"]);
}
