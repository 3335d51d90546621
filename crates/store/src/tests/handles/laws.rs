//! Any sequence of writes, truncations, commits, closes, compactions and opens, compared with bytes in memory.

use proptest::prelude::*;

use super::*;
use crate::engine::locking::Access;
use crate::engine::open::open_here;

#[derive(Debug, Clone)]
enum Step {
    Write(usize, u64, usize, u64),
    Append(usize, usize, u64),
    SetLength(usize, u64),
    Commit(usize, bool),
    Close(usize),
    Put(usize, usize, u64),
    Rename(usize),
    Compact,
    Reopen,
}

fn offsets() -> impl Strategy<Value = u64> {
    let at_stripes = (0u64..20).prop_map(|at| 4096 * (at % 3 + 1) + at * 16_384);
    prop_oneof![4 => 0u64..20_000, 4 => 0u64..200_000, 1 => 0u64..600_000, 2 => at_stripes]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 1usize..100, 3 => 1usize..10_000, 2 => 1usize..70_000]
}

fn steps() -> impl Strategy<Value = Step> {
    let file = || 0usize..2;
    let seed = || any::<u32>().prop_map(u64::from);
    prop_oneof![
        8 => (file(), offsets(), lengths(), seed())
            .prop_map(|(file, at, length, seed)| Step::Write(file, at, length, seed)),
        3 => (file(), lengths(), seed()).prop_map(|(file, length, seed)| Step::Append(file, length, seed)),
        3 => (file(), offsets()).prop_map(|(file, size)| Step::SetLength(file, size)),
        4 => (file(), any::<bool>()).prop_map(|(file, is_durable)| Step::Commit(file, is_durable)),
        2 => file().prop_map(Step::Close),
        1 => (file(), lengths(), seed()).prop_map(|(file, length, seed)| Step::Put(file, length, seed)),
        1 => file().prop_map(Step::Rename),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// Two files that are sometimes open, and their expected content.
struct Run {
    home: PathBuf,
    store: Option<Store>,
    handles: [Option<Handle>; 2],
    names: [String; 2],
    models: [Vec<u8>; 2],
}

impl Run {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn handle(&mut self, file: usize) -> &Handle {
        let (store, name) = (self.store.as_ref().unwrap(), key(&self.names[file]));
        let open = || store.open_object(&name, &HandleOptions::write().create(super::file())).unwrap();
        self.handles[file].get_or_insert_with(open)
    }

    fn close(&mut self, file: usize) {
        if let Some(handle) = self.handles[file].take() {
            handle.close().unwrap();
        }
    }

    fn is_committed(&self, file: usize) {
        let content = self.store().get(&key(&self.names[file])).unwrap();
        assert!(content.unwrap_or_default() == self.models[file], "{}", self.names[file]);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(file, at, length, seed) => {
                let new = bytes(seed, length);
                self.handle(file).write_at(&new, at).unwrap();
                let (model, begin) = (&mut self.models[file], at as usize);
                model.resize(model.len().max(begin + length), 0);
                model[begin..begin + length].copy_from_slice(&new);
                self.is_read(file, at.saturating_sub(100), length + 300);
            }
            Step::Append(file, length, seed) => {
                let new = bytes(seed, length);
                let at = self.handle(file).append(&new).unwrap();
                assert_eq!(at, self.models[file].len() as u64);
                self.models[file].extend(new);
            }
            Step::SetLength(file, size) => {
                self.handle(file).set_len(size).unwrap();
                self.models[file].resize(size as usize, 0);
            }
            Step::Commit(file, is_durable) => {
                let durability = if is_durable { Durability::Batch } else { Durability::None };
                self.handle(file).commit(durability).unwrap();
                self.is_committed(file);
            }
            Step::Close(file) => {
                self.close(file);
                self.is_committed(file);
            }
            Step::Put(file, length, seed) => {
                self.handle(file).commit(Durability::None).unwrap();
                self.models[file] = bytes(seed, length);
                self.store().put(&key(&self.names[file]), &super::file(), &self.models[file]).unwrap();
            }
            Step::Rename(file) => {
                self.handle(file);
                let name = format!("{}x", self.names[file]);
                self.store().rename(&key(&self.names[file]), &key(&name), Existing::Refuse).unwrap();
                self.names[file] = name;
            }
            Step::Compact => {
                compact(self.store());
                is_sound(self.store());
            }
            Step::Reopen => self.reopen(),
        }
    }

    fn is_read(&mut self, file: usize, from: u64, length: usize) {
        let mut part = vec![9; length];
        let read = self.handle(file).read_at(&mut part, from).unwrap();
        let end = self.models[file].len().min(from as usize + length);
        assert!(part[..read] == self.models[file][from as usize..end]);
    }

    fn reopen(&mut self) {
        (0..2).for_each(|file| self.close(file));
        is_sound(self.store());
        self.store = None;
        self.store = Some(Store::open(&self.home).unwrap());
        (0..2).for_each(|file| self.is_committed(file));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_what_was_written_to_it(
        steps in proptest::collection::vec(steps(), 1..40),
        is_compressed in any::<bool>(),
        packed_pages in prop_oneof![Just(1), Just(3), 1u64..=16],
    ) {
        let sandbox = TempDir::new().unwrap();
        let home = sandbox.path().join("s");
        let compression = if is_compressed { Compression::Zstd(3) } else { Compression::None };
        let plan = Plan { packed_bytes: packed_pages * 4096, ..plan(sandbox.path(), compression) };
        let store = Store::create(&home, &plan).unwrap();
        let names = ["a".to_owned(), "b".to_owned()];
        let (handles, models) = ([None, None], [Vec::new(), Vec::new()]);
        let mut run = Run { home: home.clone(), store: Some(store), handles, names, models };
        for step in &steps {
            run.step(step);
            for file in 0..2 {
                if let Some(handle) = &run.handles[file] {
                    prop_assert!(read(handle) == run.models[file], "after {step:?}");
                }
            }
        }
        run.reopen();
        run.store = None;
        drop(open_here(&home, Access::RebuildIndex, &OpenOptions::default()).unwrap());
        run.store = Some(Store::open(&home).unwrap());
        (0..2).for_each(|file| run.is_committed(file));
        is_sound(run.store());
    }
}
