//! Mixes of operations: the share of each.
//!
//! The default is that of SPEC SFS 2008 for NFS version 3, as M. Eisler of its committee lists it beside that of SFS
//! 3.0 ("More on SPEC SFS 2008", Eisler's NFS Blog, April 2008): it has no share for COMMIT.

use std::fmt;
use std::str::FromStr;

use crate::bench::result::MixShare;

/// An operation of NFS version 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Resolves a name to a file.
    Lookup,
    /// Reads bytes of a file.
    Read,
    /// Writes bytes of a file.
    Write,
    /// Reads the attributes of a file.
    GetAttr,
    /// Reads the target of a symbolic link.
    ReadLink,
    /// Lists names of a directory.
    ReadDir,
    /// Creates an empty file.
    Create,
    /// Removes a file.
    Remove,
    /// Reports the free space of the file system.
    FsStat,
    /// Changes the modification time of a file.
    SetAttr,
    /// Lists names and attributes of a directory.
    ReadDirPlus,
    /// Checks whether a file may be read.
    Access,
    /// Makes what was written to a file durable.
    Commit,
}

impl Operation {
    /// All operations.
    pub(super) const ALL: [Operation; 13] = [
        Operation::Lookup,
        Operation::Read,
        Operation::Write,
        Operation::GetAttr,
        Operation::ReadLink,
        Operation::ReadDir,
        Operation::Create,
        Operation::Remove,
        Operation::FsStat,
        Operation::SetAttr,
        Operation::ReadDirPlus,
        Operation::Access,
        Operation::Commit,
    ];

    /// Its name in the protocol, in lower case.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Lookup => "lookup",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::GetAttr => "getattr",
            Operation::ReadLink => "readlink",
            Operation::ReadDir => "readdir",
            Operation::Create => "create",
            Operation::Remove => "remove",
            Operation::FsStat => "fsstat",
            Operation::SetAttr => "setattr",
            Operation::ReadDirPlus => "readdirplus",
            Operation::Access => "access",
            Operation::Commit => "commit",
        }
    }
}

/// Shares of operations.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mix {
    /// Weight of each operation, in the order of [`Operation::ALL`].
    weights: [f64; Operation::ALL.len()],
}

/// Per cent, in the order of [`Operation::ALL`].
const SFS_2008: [f64; Operation::ALL.len()] = [24.0, 18.0, 10.0, 26.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 2.0, 11.0, 0.0];

impl Default for Mix {
    /// SPEC SFS 2008, NFS version 3.
    fn default() -> Self {
        Mix { weights: SFS_2008 }
    }
}

impl Mix {
    /// The operation at a cumulative share from 0 (inclusive) to 1 (exclusive).
    pub(super) fn pick(&self, place: f64) -> Operation {
        let mut left = place * self.total();
        let mut last = Operation::Lookup;
        for (operation, weight) in Operation::ALL.into_iter().zip(self.weights) {
            if weight > 0.0 {
                last = operation;
            }
            if left < weight {
                return operation;
            }
            left -= weight;
        }
        // Rounding may leave a gap after the last one.
        last
    }

    fn total(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// The shares for the result.
    pub(super) fn shares(&self) -> Vec<MixShare> {
        let share = |(operation, weight): (Operation, f64)| MixShare {
            operation: operation.name().to_owned(),
            fraction: weight / self.total(),
        };
        Operation::ALL.into_iter().zip(self.weights).filter(|(_, weight)| *weight > 0.0).map(share).collect()
    }
}

impl FromStr for Mix {
    type Err = String;

    /// `sfs2008`, or `lookup=50,getattr=30,read=20`: an operation that is not named has no share. `sfs2008,write=0`
    /// modifies the default mix.
    fn from_str(text: &str) -> Result<Mix, String> {
        let mut mix = Mix { weights: [0.0; Operation::ALL.len()] };
        for (at, word) in text.split(',').enumerate() {
            if word == "sfs2008" && at == 0 {
                mix = Mix::default();
                continue;
            }
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("'{word}' is not a share; write, for example, lookup=24,read=18"))?;
            let place = Operation::ALL.iter().position(|operation| operation.name() == name).ok_or_else(|| {
                let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
                format!("there is no operation '{name}'; the operations are {}", names.join(", "))
            })?;
            let weight: f64 = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            if !(0.0..=1e9).contains(&weight) {
                return Err(format!("the share of {name} must be at least 0"));
            }
            mix.weights[place] = weight;
        }
        if mix.total() > 0.0 { Ok(mix) } else { Err("the shares of a mix must not all be 0".to_owned()) }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Operation::ALL.into_iter().zip(self.weights).filter(|(_, weight)| *weight > 0.0);
        let words: Vec<String> = named.map(|(operation, weight)| format!("{}={weight}", operation.name())).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_mix_is_whole() {
        let mix = Mix::default();
        assert_eq!(mix.total(), 100.0);
        assert_eq!(mix.to_string().parse(), Ok(mix.clone()));
        let shares = mix.shares();
        assert_eq!(shares.len(), 12);
        assert_eq!((shares[0].operation.as_str(), shares[0].fraction), ("lookup", 0.24));
        assert_eq!((shares[3].operation.as_str(), shares[3].fraction), ("getattr", 0.26));
        assert!(shares.iter().all(|share| share.operation != "commit"));
    }

    #[test]
    fn operations_come_in_their_shares() {
        let mix: Mix = "sfs2008,commit=5".parse().unwrap();
        let mut counts = [0u32; Operation::ALL.len()];
        for at in 0..105_000 {
            let operation = mix.pick((f64::from(at) + 0.5) / 105_000.0);
            counts[Operation::ALL.iter().position(|other| *other == operation).unwrap()] += 1;
        }
        assert_eq!(counts, [24, 18, 10, 26, 1, 1, 1, 1, 1, 4, 2, 11, 5].map(|share| share * 1000));
        let one: Mix = "readlink=0.1".parse().unwrap();
        assert_eq!((one.pick(0.0), one.pick(1.0)), (Operation::ReadLink, Operation::ReadLink));
    }

    #[test]
    fn what_is_no_mix_is_refused() {
        for wrong in
            ["", "sfs97", "lookup", "lookup=", "lookup=x", "lookup=-1", "lookup=nan", "stat=1", "lookup=0", "lookup=1,"]
        {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
