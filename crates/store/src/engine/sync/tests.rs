//! Durable batches of many threads share a round of syncs.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::engine::locking::Access;
use crate::simulation::mishap::FileKind;
use crate::simulation::subject::{Simulated, geometry, home};
use crate::simulation::trial::Subject;
use crate::simulation::world::World;
use crate::{Attributes, Key, Store};

const THREADS: usize = 8;

/// Blocks syncs until it is opened.
#[derive(Default)]
struct Gate {
    /// Number of syncs of segments, and of other files, that reached it; whether it is open.
    state: Mutex<(usize, usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, kind: FileKind) {
        let mut state = self.state.lock().unwrap();
        if kind == FileKind::Segment {
            state.0 += 1
        } else {
            state.1 += 1
        }
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.2).unwrap());
    }

    /// Waits until `syncs` syncs of segments have arrived.
    fn wait_for(&self, syncs: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.0 < syncs).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().2 = true;
        self.changed.notify_all();
    }
}

fn key(number: usize) -> Key {
    Key::parse(format!("{number}")).unwrap()
}

fn put(store: &Store, number: usize) {
    store.put(&key(number), &Attributes::default(), &[number as u8; 100]).unwrap();
}

#[test]
fn durable_batches_of_many_threads_share_a_round() {
    for (settings, copies) in [(geometry(1, 0, 1, (1, 0)), 1), (geometry(2, 0, 2, (1, 1)), 2)] {
        let world = World::new(Simulated::devices(&settings), 1);
        let subject = Simulated::create(&settings, &world).unwrap();
        let store = subject.store();
        put(store, THREADS);
        let gate = Arc::new(Gate::default());
        let keeper = Arc::clone(&gate);
        world.keep_gate(move |kind| keeper.pass(kind));
        let before = store.engine().writer().unwrap().position.sequence;
        thread::scope(|scope| {
            let first = scope.spawn(|| put(store, 0));
            gate.wait_for(copies);
            // The round of the first is in progress: the others write, and wait for a round of their own.
            let others: Vec<_> = (1..THREADS).map(|number| scope.spawn(move || put(store, number))).collect();
            while store.engine().writer().unwrap().position.sequence < before + THREADS as u64 {
                thread::yield_now();
            }
            let is_acknowledged = first.is_finished() || others.iter().any(|other| other.is_finished());
            gate.open();
            assert!(!is_acknowledged, "before anything is durable");
        });
        assert_eq!(*gate.state.lock().unwrap(), (2 * copies, 0, true), "{copies} copies");
        let left = world.after_power_failure(1);
        let reader = Simulated::open_as(&home(&settings), &left, Access::Read).unwrap();
        for number in 0..=THREADS {
            assert_eq!(reader.store().get(&key(number)).unwrap(), Some(vec![number as u8; 100]), "{copies} copies");
        }
    }
}
