//! A store in the bucket of a world, on trial: whatever becomes of any of its requests, what it acknowledged is there.
//!
//! Before it is opened for writing, a reader looks at what was left. It must see what the writer then has: a version
//! has everything that was acknowledged, with its index.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::model::Model;
use super::state::State;
use super::subject::{Simulated, geometry};
use super::trial::Subject;
use super::workload::{Change, Durability};
use super::world::World;
use crate::bucket::BucketOptions;
use crate::devices::bucket::platform::BucketPlatform;
use crate::devices::bucket::volume::Volume;
use crate::devices::platform::Platform;
use crate::devices::survey::OpenOptions;
use crate::engine::locking::Access;
use crate::engine::open::make;
use crate::error::{Error, ErrorKind, Result};
use crate::{Geometry, Store};

const HOME: &str = "world://bucket";

/// A store in a bucket.
pub(crate) struct Bucketed {
    simulated: Simulated,
}

/// What is particular about it: the rest is as on one device.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) object_bytes: u64,
    pub(crate) cutoff_bytes: u64,
}

impl Settings {
    fn geometry(&self) -> Geometry {
        Geometry { cutoff_bytes: self.cutoff_bytes, ..geometry(1, 0, 1, (1, 0)) }
    }

    fn options(&self) -> OpenOptions {
        let mut bucket = BucketOptions::default();
        (bucket.object_bytes, bucket.poll, bucket.grace) = (self.object_bytes, Duration::ZERO, Some(Duration::ZERO));
        OpenOptions { bucket, ..OpenOptions::default() }
    }

    fn platform(&self, world: &World) -> Result<Arc<dyn Platform>> {
        let volume = Volume::open(world.bucket(), world.process(), self.options().bucket)?;
        Ok(Arc::new(BucketPlatform::new(Path::new(HOME), volume)))
    }

    fn open(&self, platform: Arc<dyn Platform>, access: Access) -> Result<Simulated> {
        Store::open_on(platform, Path::new(HOME), access, &self.options()).map(Simulated::of)
    }

    /// What a reader sees, who comes just now.
    fn seen(&self, world: &World) -> Result<State> {
        self.open(self.platform(world)?, Access::Read)?.state()
    }
}

fn differs(cause: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read", format!("a reader saw something else before: {cause}"))
}

impl Subject for Bucketed {
    type Settings = Settings;

    fn devices(_: &Settings) -> usize {
        1
    }

    fn sizes(settings: &Settings) -> (usize, usize) {
        (settings.geometry().largest_record_bytes() as usize, 40_000)
    }

    fn create(settings: &Settings, world: &World) -> Result<Bucketed> {
        let platform = settings.platform(world)?;
        let hold = platform.hold();
        make(&*platform, Path::new(HOME), settings.geometry())?;
        let simulated = settings.open(Arc::clone(&platform), Access::Write)?;
        hold.publish().map_err(|error| Error::io("create the store", Path::new(HOME), error))?;
        Ok(Bucketed { simulated })
    }

    fn open(settings: &Settings, world: &World) -> Result<Bucketed> {
        // What is late may become visible in between.
        let seen = (!world.awaits_requests()).then(|| settings.seen(world)).transpose()?;
        let simulated = settings.open(settings.platform(world)?, Access::Write)?;
        if let Some(seen) = seen {
            Model::of(seen).allows(&simulated.state()?).map_err(|mismatch| differs(&mismatch.to_string()))?;
        }
        Ok(Bucketed { simulated })
    }

    fn batch(&mut self, durability: Durability, changes: &[Change], done: &mut dyn FnMut()) -> Result<()> {
        self.simulated.batch(durability, changes, done)
    }

    fn sync(&mut self) -> Result<()> {
        self.simulated.sync()
    }

    fn compact(&mut self) -> Result<()> {
        self.simulated.compact()
    }

    fn state(&self) -> Result<State> {
        self.simulated.state()
    }

    fn missing(&self) -> Vec<String> {
        self.simulated.missing()
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Trial, repeat, run, run_with_fault};
    use super::super::world::Fault;
    use super::super::world_objects::{ANSWER_LOST, FAILS, LATE, LOST};
    use super::super::{goes_on, list, number};
    use super::*;

    /// Small objects, so that there are many; and large ones, which collect more before they are put.
    fn trial(seed: u64) -> Trial<Settings> {
        let settings = Settings {
            object_bytes: [3000, 20_000, 200_000][seed as usize % 3],
            cutoff_bytes: [8192, 1000][seed as usize / 3 % 2],
        };
        Trial { settings, seed, operations: 30, crashes: 2 }
    }

    /// One for each twenty of `GRANULO_CRASH_POINTS` crash points (120), as each opens the store anew, from
    /// `GRANULO_CRASH_SEED` (1). A failure says how to repeat it:
    /// `GRANULO_CRASH=SEED:OPERATION:REMAINS`. With `GRANULO_GO_ON` the first failure of each seed is listed.
    #[test]
    fn every_crash_of_a_store_in_a_bucket_leaves_what_was_acknowledged() {
        if let Ok(one) = std::env::var("GRANULO_CRASH") {
            let numbers: Vec<u64> =
                one.split(':').map(|number| number.parse().expect("SEED:OPERATION:REMAINS")).collect();
            assert_eq!(repeat::<Bucketed>(&trial(numbers[0]), numbers[1], numbers[2]), Ok(1));
            return;
        }
        let points = number("GRANULO_CRASH_POINTS").map_or(120, |points| points.div_ceil(20));
        let first = number("GRANULO_CRASH_SEED").unwrap_or(1);
        let (mut tried, mut failed) = (0, 0);
        for seed in first.. {
            match run::<Bucketed>(&trial(seed)) {
                Ok(count) => tried += count,
                Err(cause) if goes_on() => {
                    // About as many as a seed has.
                    (tried, failed) = (tried + 200, failed + 1);
                    list(&cause);
                }
                Err(cause) => panic!(
                    "{cause}\nrepeat it with GRANULO_CRASH=SEED:OPERATION:REMAINS cargo test --lib every_crash_of_a_store_in_a_bucket, with the numbers above"
                ),
            }
            if tried >= points {
                break;
            }
        }
        assert_eq!(failed, 0, "crashes lost something");
    }

    #[test]
    fn whatever_becomes_of_a_request_nothing_acknowledged_is_lost() {
        let step = number("GRANULO_CRASH_POINTS").map_or(25, |points| (60_000 / points.max(1)).clamp(1, 25));
        for (errno, is_lasting) in
            [FAILS, ANSWER_LOST, LOST, LATE].into_iter().flat_map(|errno| [(errno, false), (errno, true)])
        {
            let mut without = 0;
            for operation in (0..).step_by(step as usize) {
                let trial = Trial { operations: 12, ..trial(operation % 6) };
                let fault = Fault { operation, errno, is_lasting, device: None };
                match run_with_fault::<Bucketed>(&trial, fault, |_| false) {
                    Ok(true) => without = 0,
                    Ok(false) => without += 1,
                    Err(cause) => panic!("{cause}"),
                }
                if without > 2 {
                    break;
                }
            }
        }
    }
}
