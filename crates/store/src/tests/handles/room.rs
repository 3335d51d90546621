//! Devices that are full while handles write: failures are reported, nothing acknowledged is lost, and pending writes
//! are committed once there is room.

use super::*;
use crate::simulation::subject::{Simulated, geometry};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;

/// Free blocks that are left.
const BLOCKS: [u64; 6] = [0, 1, 3, 20, 60, 200];

#[test]
fn a_handle_goes_on_when_a_full_device_has_room_again() {
    let mut failed = 0;
    for (settings, is_striped) in [(geometry(1, 0, 1, (1, 0)), false), (geometry(2, 4, 2, (3, 1)), true)] {
        for blocks in BLOCKS {
            let world = World::new(Simulated::devices(&settings), blocks);
            let subject = Simulated::create(&settings, &world).unwrap();
            let store = subject.store();
            let acknowledged = bytes(1, 60_000);
            store.put(&key("f"), &file(), &acknowledged).unwrap();
            store.put(&key("small"), &file(), b"small").unwrap();
            let (handle, small) = (open(store, "f"), open(store, "small"));
            let nameless = store.create_nameless(&file()).unwrap();
            nameless.append(&acknowledged).unwrap();
            nameless.commit(Durability::Batch).unwrap();
            // The devices with units, and sometimes those of the log too.
            let devices = Simulated::devices(&settings);
            let full = if is_striped && blocks % 2 == 0 { 2..devices } else { 0..devices };
            full.clone().for_each(|device| world.fill(device, blocks));
            let mut model = acknowledged.clone();
            model[30_000..40_000].copy_from_slice(&bytes(2, 10_000));
            handle.write_at(&bytes(2, 10_000), 30_000).unwrap();
            model.extend(bytes(3, 500_000));
            handle.append(&bytes(3, 500_000)).unwrap();
            small.append(&[1; 5000]).unwrap();
            nameless.append(&bytes(3, 500_000)).unwrap();
            let outcomes = [&handle, &nameless, &small].map(|handle| handle.commit(Durability::Batch));
            for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                failed += 1;
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("full") || error.to_string().contains("space"), "{error}");
            }
            assert_eq!(store.engine().latched(), None);
            // Everything that was written is read, committed or not; others see whole commits.
            assert!(read(&handle) == model);
            let seen = store.get(&key("f")).unwrap().unwrap();
            assert!(seen == if outcomes[0].is_ok() { &model[..] } else { &acknowledged });
            let left = world.after_crash(blocks);
            (0..devices).for_each(|device| left.device(device).set_endless());
            let after = Simulated::open(&settings, &left).unwrap();
            let found = after.store().get(&key("f")).unwrap().unwrap();
            assert!(found == seen || found == model, "{blocks} blocks");
            is_sound(after.store());
            drop(after);
            full.for_each(|device| world.device(device).set_endless());
            for handle in [&handle, &nameless, &small] {
                handle.commit(Durability::Batch).unwrap();
            }
            let mut unnamed = acknowledged;
            unnamed.extend(bytes(3, 500_000));
            assert!(read(&nameless) == unnamed);
            nameless.link(&key("named")).unwrap();
            store.sync().unwrap();
            is_sound(store);
            let after = Simulated::open(&settings, &world.after_crash(blocks + 1)).unwrap();
            for (name, expected) in
                [("f", &model), ("named", &unnamed), ("small", &[b"small", &[1; 5000][..]].concat())]
            {
                assert!(after.store().get(&key(name)).unwrap().unwrap() == *expected, "{name}, {blocks} blocks");
            }
            is_sound(after.store());
        }
    }
    assert!(failed > 10, "{failed} commits failed");
}
