//! A repair during which an operation of a device fails: if it says that nothing is left to do, what it wrote lasts.

use rustix::io::Errno;

use super::mishap::{FileKind, Rot};
use super::scenario::Shape;
use super::subject::{Simulated, home};
use super::trial::Subject;
use super::workload::{Durability, Generator};
use super::world::{Fault, World};
use crate::RepairOptions;
use crate::devices::threads::without_threads;
use crate::engine::locking::Access;

/// Sizes of objects, in bytes: records, and stripes.
const SIZES_BYTES: [usize; 2] = [2000, 30_000];

/// A closed store with objects of both kinds.
fn world_of(shape: Shape) -> World {
    let geometry = shape.geometry();
    let world = World::new(Simulated::devices(&geometry), 1);
    let mut store = Simulated::create(&geometry, &world).unwrap();
    for (seed, largest_bytes) in (1..).zip(SIZES_BYTES) {
        let cutoff_bytes = geometry.largest_record_bytes() as usize;
        let mut generator = Generator::of(seed, cutoff_bytes, 40_000, store.look().state);
        let changes = generator.puts(largest_bytes / 2..largest_bytes);
        store.batch(Durability::Batch, &changes, &mut || {}).unwrap();
    }
    drop(store);
    world
}

#[test]
fn what_a_repair_says_is_done_outlasts_the_power() {
    let (mut failed, mut done) = (0, 0);
    for (shape, kind) in
        [(Shape::Mirror, FileKind::Segment), (Shape::Raid5, FileKind::Segment), (Shape::Raid5, FileKind::Extent)]
    {
        let (closed, home) = (world_of(shape), home(&shape.geometry()));
        let device = if kind == FileKind::Extent { 2 } else { 0 };
        for number in 0.. {
            let world = closed.after_kill(1);
            world.rot(device, kind, Rot::Bit, 7).unwrap();
            let operation = world.operations() + number;
            world.fail(Fault { operation, errno: Errno::IO, is_lasting: false, device: Some(device) });
            // Threads would take turns as the machine likes, and the operation would be another one each time.
            let repaired = without_threads(|| Simulated::repair(&home, &world, RepairOptions::default(), None));
            if world.failures() == 0 {
                break;
            }
            if repaired.is_err() || repaired.is_ok_and(|repaired| repaired.left().is_some()) {
                failed += 1;
                continue;
            }
            done += 1;
            world.drop_pages(number);
            let world = world.after_power_failure(number);
            let reader = Simulated::open_as(&home, &world, Access::Read).unwrap();
            // After a repair, the store is closed: what fails then costs numbers of objects, and is not told.
            let is_of_close = |problem: &String| problem.ends_with("superblock: one of its two slots is damaged");
            let found: Vec<String> = reader.check().unwrap().into_iter().filter(|one| !is_of_close(one)).collect();
            assert_eq!(found, [""; 0], "{shape:?}, {kind:?}, operation {number}");
        }
    }
    assert!(failed > 10 && done > 10, "{failed} {done}");
}
