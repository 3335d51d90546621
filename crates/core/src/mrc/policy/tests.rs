//! Every policy compared with one written with plain lists, and some known properties.

use proptest::prelude::*;

use super::Policy;

/// Plain lists: the front is the newest.
#[derive(Debug, Default)]
struct Plain {
    blocks: usize,
    lists: Vec<Vec<u64>>,
    uses: std::collections::HashMap<u64, u32>,
    p: f64,
}

impl Plain {
    fn new(blocks: usize) -> Plain {
        Plain { blocks, lists: vec![Vec::new(); 4], ..Plain::default() }
    }

    fn take(&mut self, list: usize, key: u64) -> bool {
        let at = self.lists[list].iter().position(|&other| other == key);
        at.map(|at| self.lists[list].remove(at)).is_some()
    }

    fn forget(&mut self, ranges: &[(u64, u64)]) {
        let stays = |key: &u64| !ranges.iter().any(|&(first, last)| (first..=last).contains(key));
        self.lists.iter_mut().for_each(|list| list.retain(stays));
        self.uses.retain(|key, _| stays(key));
    }

    fn has(&self, list: usize, key: u64) -> bool {
        self.lists[list].contains(&key)
    }

    fn refer(&mut self, policy: Policy, key: u64) -> bool {
        match policy {
            Policy::Lru => self.lru(key),
            Policy::Fifo => self.fifo(key),
            Policy::Clock => self.clock(key),
            Policy::TwoQueues => self.two_queues(key),
            Policy::S3Fifo => self.s3_fifo(key),
            Policy::Arc => self.arc(key),
        }
    }

    fn lru(&mut self, key: u64) -> bool {
        let hit = self.take(0, key);
        self.lists[0].insert(0, key);
        self.lists[0].truncate(self.blocks);
        hit
    }

    fn fifo(&mut self, key: u64) -> bool {
        let hit = self.has(0, key);
        if !hit {
            self.lists[0].insert(0, key);
            self.lists[0].truncate(self.blocks);
        }
        hit
    }

    fn clock(&mut self, key: u64) -> bool {
        if self.has(0, key) {
            self.uses.insert(key, 1);
            return true;
        }
        while self.lists[0].len() >= self.blocks {
            let oldest = self.lists[0].pop().unwrap();
            if self.uses.remove(&oldest).is_some() {
                self.lists[0].insert(0, oldest);
            }
        }
        self.lists[0].insert(0, key);
        false
    }

    /// Johnson and Shasha 1994, figure 2: lists 0, 1 and 2 are A1in, A1out and Am.
    fn two_queues(&mut self, key: u64) -> bool {
        let (kin, kout) = (usize::max(1, self.blocks / 4), usize::max(1, self.blocks / 2));
        if self.take(2, key) {
            self.lists[2].insert(0, key);
            return true;
        }
        if self.has(0, key) {
            return true;
        }
        let came_back = self.take(1, key);
        if self.lists[0].len() + self.lists[2].len() >= self.blocks {
            if self.lists[0].len() > kin || self.lists[2].is_empty() {
                let out = self.lists[0].pop().unwrap();
                self.lists[1].insert(0, out);
                self.lists[1].truncate(kout);
            } else {
                self.lists[2].pop();
            }
        }
        self.lists[if came_back { 2 } else { 0 }].insert(0, key);
        false
    }

    /// Yang et al. 2023, algorithm 1: lists 0, 1 and 2 are S, M and G.
    fn s3_fifo(&mut self, key: u64) -> bool {
        let small = usize::max(1, self.blocks / 10);
        let main = self.blocks - small;
        if self.has(0, key) || self.has(1, key) {
            let uses = self.uses.entry(key).or_default();
            *uses = u32::min(*uses + 1, 3);
            return true;
        }
        let came_back = self.take(2, key);
        while self.lists[0].len() + self.lists[1].len() >= self.blocks {
            if self.lists[0].len() >= small {
                while let Some(tail) = self.lists[0].pop() {
                    if self.uses[&tail] > 1 {
                        self.lists[1].insert(0, tail);
                        if self.lists[1].len() > main {
                            self.s3_evict_main();
                        }
                    } else {
                        self.uses.remove(&tail);
                        self.lists[2].insert(0, tail);
                        self.lists[2].truncate(main);
                        break;
                    }
                }
            } else {
                self.s3_evict_main();
            }
        }
        self.lists[usize::from(came_back)].insert(0, key);
        self.uses.insert(key, 0);
        false
    }

    fn s3_evict_main(&mut self) {
        while let Some(tail) = self.lists[1].pop() {
            let uses = self.uses.get_mut(&tail).unwrap();
            if *uses == 0 {
                self.uses.remove(&tail);
                return;
            }
            *uses -= 1;
            self.lists[1].insert(0, tail);
        }
    }

    /// Megiddo and Modha 2003, figure 4: lists 0 to 3 are T1, T2, B1 and B2.
    fn arc(&mut self, x: u64) -> bool {
        let c = self.blocks;
        let [t1, t2, b1, b2] = [0, 1, 2, 3].map(|list| self.lists[list].len());
        let is_full = t1 + t2 >= c;
        if self.take(0, x) || self.take(1, x) {
            self.lists[1].insert(0, x);
            return true;
        }
        if self.has(2, x) {
            self.p = f64::min(self.p + if b1 >= b2 { 1.0 } else { b2 as f64 / b1 as f64 }, c as f64);
            if is_full {
                self.arc_replace(x);
            }
            self.take(2, x);
            self.lists[1].insert(0, x);
            return false;
        }
        if self.has(3, x) {
            self.p = f64::max(self.p - if b2 >= b1 { 1.0 } else { b1 as f64 / b2 as f64 }, 0.0);
            if is_full {
                self.arc_replace(x);
            }
            self.take(3, x);
            self.lists[1].insert(0, x);
            return false;
        }
        if t1 + b1 >= c {
            if t1 < c {
                self.lists[2].pop();
                if is_full {
                    self.arc_replace(x);
                }
            } else {
                self.lists[0].pop();
            }
        } else if t1 + t2 + b1 + b2 >= c {
            if t1 + t2 + b1 + b2 >= 2 * c {
                self.lists[3].pop();
            }
            if is_full {
                self.arc_replace(x);
            }
        }
        self.lists[0].insert(0, x);
        false
    }

    fn arc_replace(&mut self, x: u64) {
        let t1 = self.lists[0].len() as f64;
        let first = t1 >= 1.0 && ((self.has(3, x) && t1 == self.p) || t1 > self.p);
        let from = if (first && t1 > 0.0) || self.lists[1].is_empty() { 0 } else { 1 };
        if let Some(out) = self.lists[from].pop() {
            self.lists[from + 2].insert(0, out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_policy_does_what_plain_lists_do(
        steps in proptest::collection::vec((0u64..40, 0u8..30, any::<bool>()), 1..600),
        blocks in 1usize..33,
    ) {
        for policy in Policy::EVERY {
            let (mut cache, mut plain) = (policy.cache(blocks), Plain::new(blocks));
            for (number, &(key, chance, near)) in steps.iter().enumerate() {
                // Some keys are more frequent.
                let key = if near { key % 8 } else { key };
                if chance == 0 {
                    // One key, or more of them than any cache here has.
                    let ranges = if near { vec![(key, key)] } else { vec![(key, key + 3), (60, 1 << 20)] };
                    cache.forget(&ranges);
                    plain.forget(&ranges);
                } else {
                    prop_assert_eq!(cache.refer(key), plain.refer(policy, key), "{:?}, step {}", policy, number);
                }
            }
        }
    }
}

#[test]
fn a_scan_does_not_displace_what_is_used() {
    let misses = |policy: Policy| {
        let mut cache = policy.cache(100);
        let mut misses = 0;
        for round in 0..200u64 {
            for _ in 0..3 {
                misses += (0..40).filter(|&key| !cache.refer(key)).count();
            }
            for place in 0..70 {
                cache.refer(1000 + round * 70 + place);
            }
        }
        misses
    };
    let lru = misses(Policy::Lru);
    assert_eq!(lru, 200 * 40);
    for policy in [Policy::TwoQueues, Policy::S3Fifo, Policy::Arc] {
        assert!(misses(policy) < lru / 4, "{policy:?} misses {}", misses(policy));
    }
}

#[test]
fn all_of_them_keep_what_fits() {
    for policy in Policy::EVERY {
        let mut cache = policy.cache(1000);
        let misses = (0..10_000u64).filter(|number| !cache.refer(number % 1000)).count();
        assert_eq!(misses, 1000, "{policy:?}");
        assert!(cache.memory_bytes() < 1000 * 128, "{policy:?} takes {}", cache.memory_bytes());
        cache.forget(&[(7, 7)]);
        assert!(!cache.refer(7) && cache.refer(8));
    }
}
