//! Orders of the numbers from 1 to n, in constant memory: ascending, descending, by name, and random.

use crate::population::Permutation;

/// The order of deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In order of creation.
    Creation,
    /// In reverse order of creation.
    Reverse,
    /// A random order from the seed.
    Random,
    /// By name, byte by byte: file-1, file-10, file-100, …, file-11, …
    Name,
    /// As the directories list them, which is how `rm -r` deletes.
    Listed,
}

impl Order {
    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Creation => "creation",
            Order::Reverse => "reverse",
            Order::Random => "random",
            Order::Name => "name",
            Order::Listed => "listed",
        }
    }
}

/// The numbers from 1 to `count` in an order.
#[derive(Debug, Clone)]
pub(super) enum Numbers {
    Forwards(u64, u64),
    Backwards(u64),
    /// The next number; numbers above the count are skipped.
    ByName {
        next: Option<u64>,
        count: u64,
    },
    Mixed {
        at: u64,
        count: u64,
        mixed: Permutation,
    },
}

impl Numbers {
    /// The numbers from 1 to `count`. Directory order is known only to the directory; a store lists by name.
    pub(super) fn new(order: Order, count: u64, seed: u64) -> Numbers {
        match order {
            Order::Creation => Numbers::Forwards(1, count),
            Order::Reverse => Numbers::Backwards(count),
            Order::Name | Order::Listed => Numbers::ByName { next: (count > 0).then_some(1), count },
            Order::Random => Numbers::Mixed { at: 0, count, mixed: Permutation::new(count, seed) },
        }
    }
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Numbers::Forwards(next, count) => {
                let number = (*next <= *count).then_some(*next)?;
                *next += 1;
                Some(number)
            }
            Numbers::Backwards(left) => {
                let number = (*left > 0).then_some(*left)?;
                *left -= 1;
                Some(number)
            }
            Numbers::ByName { next, count } => {
                let number = (*next)?;
                *next = after(number, *count);
                Some(number)
            }
            Numbers::Mixed { at, count, mixed } => {
                let number = (*at < *count).then(|| mixed.at(*at) + 1)?;
                *at += 1;
                Some(number)
            }
        }
    }
}

/// Of the numbers from 1 to `count`, the one whose decimal digits follow in lexicographic order.
fn after(number: u64, count: u64) -> Option<u64> {
    if let Some(longer) = number.checked_mul(10).filter(|longer| *longer <= count) {
        return Some(longer);
    }
    let mut number = number;
    // Back to the parent where no sibling follows: after 1 … 9, 19 is the last child of 1.
    while number % 10 == 9 || number >= count {
        number /= 10;
        if number == 0 {
            return None;
        }
    }
    Some(number + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORDERS: [Order; 4] = [Order::Creation, Order::Reverse, Order::Random, Order::Name];

    fn numbers(order: Order, count: u64, seed: u64) -> Vec<u64> {
        Numbers::new(order, count, seed).collect()
    }

    #[test]
    fn a_seed_is_an_order_and_another_is_another() {
        assert_eq!(numbers(Order::Random, 1000, 5), numbers(Order::Random, 1000, 5));
        assert_ne!(numbers(Order::Random, 1000, 5), numbers(Order::Random, 1000, 6));
        // Neighbours do not stay adjacent.
        let mixed = numbers(Order::Random, 10_000, 1);
        assert!(mixed.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count() < 20);
    }

    proptest! {
        #[test]
        fn every_number_comes_once(count in 0u64..3000, seed: u64) {
            let mut names: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            names.sort();
            let by_name = numbers(Order::Name, count, seed);
            prop_assert_eq!(by_name.iter().map(u64::to_string).collect::<Vec<_>>(), names);
            for order in ORDERS {
                let mut numbers = numbers(order, count, seed);
                numbers.sort_unstable();
                prop_assert!(numbers.into_iter().eq(1..=count), "{:?}", order);
            }
        }
    }
}
