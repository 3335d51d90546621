//! What is typed to set up a fast and a large pool, with what puts small files into the one and large files into the
//! other.

use super::super::granulo::LARGEST_CUTOFF_BYTES;
use super::{Ceph, Spread, Wanted};
use crate::units::format_size;

fn lines<const N: usize>(words: [&str; N]) -> impl Iterator<Item = String> {
    words.into_iter().map(str::to_owned)
}

impl Ceph {
    /// The pools, and the one mechanism by which Ceph chooses a pool by size: a script of the object gateway. In CephFS
    /// a directory's layout chooses the pool, before the size is known. A pool belongs to one of the two: `ceph fs`
    /// refuses one of RGW.
    pub(super) fn settings_for_files(&self, wanted: &Wanted) -> Vec<String> {
        let &Wanted { cutoff_bytes, fast_bytes, metadata_bytes, fill_fraction, .. } = wanted;
        let block_db = format!(
            "# Of the {} of fast devices, at least {} are for block.db (DBSSD...), and the rest is for data (SSD...).",
            format_size(fast_bytes),
            format_size(metadata_bytes)
        );
        let mut all = self.devices(block_db);
        all.extend(self.fast_pool());
        // The quota counts bytes before they are copied; a quota of 0 would mean none.
        let data_bytes = ((fast_bytes as f64 * fill_fraction) as u128).saturating_sub(metadata_bytes);
        all.push(match data_bytes / u128::from(self.fast.spread.shards().0) {
            0 => format!(
                "# No space is left for data: metadata needs {} of {}. Keep the pool small empty.",
                format_size(metadata_bytes),
                format_size(fast_bytes)
            ),
            quota_bytes => format!("ceph osd pool set-quota small max_bytes {quota_bytes}"),
        });
        all.extend(self.large_pool());
        all.push(
            "# Either the object gateway, before the first object: the storage class LARGE for objects above the \
                cutoff; multipart uploads must name it themselves."
                .to_owned(),
        );
        all.extend(classes());
        let script = format!(
            "if Request.RGWOp == \"put_obj\" and (Request.HTTP.StorageClass or \"\") == \"\" and \
             Request.ContentLength > {cutoff_bytes} then Request.HTTP.StorageClass = \"LARGE\" end"
        );
        all.push(format!("echo '{script}' > by-size.lua"));
        all.extend(lines([
            "radosgw-admin script put --infile=by-size.lua --context=preRequest",
            "# Or CephFS, with pools other than the gateway's: the pool for new files of a directory, of any size; \
                small can be the first data pool of FS.",
        ]));
        if let Spread::Erasure { .. } = self.pool.spread {
            all.push("ceph osd pool set large allow_ec_overwrites true".to_owned());
        }
        all.extend(lines(["ceph fs add_data_pool FS large", "setfattr -n ceph.dir.layout.pool -v large DIR"]));
        all
    }

    /// The pools as storage classes of the object gateway, and a store that uses both.
    pub(super) fn settings_for_store(&self, wanted: &Wanted) -> Vec<String> {
        let block_db = "# Some of the fast devices are for block.db (DBSSD...), the others for data (SSD...).";
        let mut all = self.devices(block_db.to_owned());
        all.extend(self.fast_pool());
        all.extend(self.large_pool());
        all.push("# The object gateway: the storage class LARGE beside STANDARD.".to_owned());
        all.extend(classes());
        let cutoff_bytes = wanted.cutoff_bytes.min(LARGEST_CUTOFF_BYTES);
        if cutoff_bytes < wanted.cutoff_bytes {
            let most = format_size(cutoff_bytes.into());
            all.push(format!("# A store has a cutoff of at most {most}, not of {} bytes.", wanted.cutoff_bytes));
        }
        all.push(format!(
            "granulo store init s3://BUCKET/PREFIX --cutoff {cutoff_bytes} --fast-class STANDARD --slow-class LARGE"
        ));
        all
    }

    /// Devices, with a comment on what is for RocksDB.
    fn devices(&self, block_db: String) -> Vec<String> {
        let mut all = vec!["# Before creating the OSDs: allocation units, and the location of RocksDB.".to_owned()];
        for (class, min_alloc_bytes) in [("ssd", self.fast.min_alloc_bytes), ("hdd", self.pool.min_alloc_bytes)] {
            all.push(format!("ceph config set osd bluestore_min_alloc_size_{class} {min_alloc_bytes}"));
        }
        if self.db_is_fast {
            all.push(block_db);
            all.extend(lines([
                "# Divide devices for both uses first: batch gives block.db all the space that it finds.",
                "ceph-volume lvm batch --no-auto HDD... --db-devices DBSSD...",
            ]));
        } else {
            all.push("ceph-volume lvm batch --no-auto HDD...".to_owned());
        }
        all.push("ceph-volume lvm batch --no-auto SSD...".to_owned());
        all
    }

    fn fast_pool(&self) -> Vec<String> {
        let mut all: Vec<String> = lines([
            "# Pools: small on fast devices, large on slow ones.",
            "ceph osd crush rule create-replicated small default host ssd",
            "ceph osd pool create small replicated small",
        ])
        .collect();
        all.push(format!("ceph osd pool set small size {}", self.fast.spread.shards().0));
        all
    }

    fn large_pool(&self) -> Vec<String> {
        match self.pool.spread {
            Spread::Replicated { copies } => vec![
                "ceph osd crush rule create-replicated large default host hdd".to_owned(),
                "ceph osd pool create large replicated large".to_owned(),
                format!("ceph osd pool set large size {copies}"),
            ],
            Spread::Erasure { k, m, stripe_unit_bytes, unpadded } => {
                let mut all = vec![
                    format!(
                        "ceph osd erasure-code-profile set large k={k} m={m} stripe_unit={stripe_unit_bytes} \
                         crush-device-class=hdd crush-failure-domain=host"
                    ),
                    "ceph osd pool create large erasure large".to_owned(),
                ];
                all.extend(unpadded.then(|| "ceph osd pool set large allow_ec_optimizations true".to_owned()));
                all
            }
        }
    }
}

/// Storage classes of the gateway: STANDARD in the fast pool, LARGE in the other one.
fn classes() -> impl Iterator<Item = String> {
    lines([
        "ceph osd pool application enable small rgw",
        "ceph osd pool application enable large rgw",
        "radosgw-admin zonegroup placement add --rgw-zonegroup default --placement-id default-placement \
         --storage-class LARGE",
        "radosgw-admin zone placement add --rgw-zone default --placement-id default-placement \
         --storage-class LARGE --data-pool large",
        "radosgw-admin zone placement modify --rgw-zone default --placement-id default-placement \
         --storage-class STANDARD --data-pool small",
        "# In a realm, commit the change: radosgw-admin period update --commit",
        "# Then restart the gateways: systemctl restart ceph-radosgw.target, or ceph orch restart rgw.NAME",
    ])
}
