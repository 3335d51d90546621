//! Which created files still exist: counted and found in logarithmic time, four bytes each.

/// Which created files still exist, in order: a Fenwick tree of counts.
#[derive(Debug, Default)]
pub(super) struct Living {
    sums: Vec<u32>,
    count: u64,
}

impl Living {
    /// Number of living files.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Number of creations, deleted files included: the number of the next.
    pub(super) fn creations(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Adds the next creation, alive or not.
    pub(super) fn push(&mut self, alive: bool) {
        // Node n holds the sum of the last `n & -n` places up to n.
        let number = self.sums.len() + 1;
        let mut sum = u32::from(alive);
        let mut step = 1;
        while step < number & number.wrapping_neg() {
            sum += self.sums[number - step - 1];
            step <<= 1;
        }
        self.sums.push(sum);
        self.count += u64::from(alive);
    }

    /// Removes a living file.
    pub(super) fn remove(&mut self, creation: u64) {
        let mut number = creation as usize + 1;
        while number <= self.sums.len() {
            self.sums[number - 1] -= 1;
            number += number & number.wrapping_neg();
        }
        self.count -= 1;
    }

    /// How many of the first `creations` are alive.
    pub(super) fn before(&self, creations: u64) -> u64 {
        let (mut number, mut sum) = ((creations as usize).min(self.sums.len()), 0);
        while number > 0 {
            sum += u64::from(self.sums[number - 1]);
            number &= number - 1;
        }
        sum
    }

    /// The creation with `rank` living ones before it.
    pub(super) fn at(&self, mut rank: u64) -> u64 {
        let mut number = 0;
        let mut step = (self.sums.len() + 1).next_power_of_two();
        while step > 0 {
            if let Some(&sum) = self.sums.get(number + step - 1)
                && u64::from(sum) <= rank
            {
                rank -= u64::from(sum);
                number += step;
            }
            step >>= 1;
        }
        number as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_living_are_counted_and_found(steps in proptest::collection::vec((any::<bool>(), any::<u64>()), 1..300)) {
            let mut living = Living::default();
            let mut model: Vec<bool> = Vec::new();
            for (alive, number) in steps {
                living.push(alive);
                model.push(alive);
                let alive: Vec<u64> = (0..).zip(&model).filter(|(_, alive)| **alive).map(|(at, _)| at).collect();
                prop_assert_eq!(living.count, alive.len() as u64);
                for (rank, &creation) in alive.iter().enumerate() {
                    prop_assert_eq!(living.at(rank as u64), creation);
                    prop_assert_eq!(living.before(creation), rank as u64);
                }
                if number % 3 == 0 && !alive.is_empty() {
                    let goes = alive[(number / 3) as usize % alive.len()];
                    living.remove(goes);
                    model[goes as usize] = false;
                }
            }
        }
    }
}
