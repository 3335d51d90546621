//! The profiles of Geriatrix (Kadekodi, Nagarajan and Ganger, USENIX ATC 2018): sizes, depths of directories and
//! relative ages that were measured or assumed by others, as that tool ships them.
//!
//! Sizes are points: a file has exactly one of them. Ages are in Geriatrix's clock, one tick per operation, and
//! relative: they decide which files are deleted while a tree ages ([`super::age`]), not how many days old a file is.

use super::design::{DIRECTORY_FILES, Recipe, Shape};
use crate::distribution::Distribution;
use crate::tables::{GeriatrixPoint, geriatrix_points};

/// Prefix of the names of profiles on the command line.
pub const PREFIX: &str = "geriatrix-";
/// Their source.
pub const SOURCE: &str = "S. Kadekodi, V. Nagarajan, G. R. Ganger: Geriatrix: Aging what you see and what you don't see. USENIX ATC 2018; \
                          profiles of github.com/saurabhkadekodi/geriatrix (BSD-3-Clause)";

/// A profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name, `geriatrix-agrawal`.
    pub name: String,
    /// Sizes of files.
    pub sizes: Distribution,
    /// Relative ages: youngest first, each with its weight.
    pub ages: Vec<(f64, u64)>,
    /// Files by depth of their directory.
    pub depths: Distribution,
}

impl Profile {
    /// A recipe with its sizes and depths.
    pub fn recipe(&self) -> Recipe {
        let depths = (!self.depths.is_empty()).then(|| self.depths.clone());
        Recipe {
            shape: Shape::Even { directory_files: DIRECTORY_FILES, depths },
            ..Recipe::of_sizes(self.sizes.clone())
        }
    }
}

/// All profiles, in the order of the table.
pub fn all() -> Vec<Profile> {
    let mut profiles: Vec<Profile> = Vec::new();
    geriatrix_points().into_iter().for_each(|point| add(&mut profiles, point));
    profiles
}

/// The profile of that name.
pub fn find(name: &str) -> Option<Profile> {
    all().into_iter().find(|profile| profile.name == name)
}

/// Adds a point to its profile: the last one, or a new one, since the rows of a profile are adjacent in the table.
fn add(profiles: &mut Vec<Profile>, point: GeriatrixPoint) {
    let name = format!("{PREFIX}{}", point.profile.replace('_', "-"));
    if profiles.last().is_none_or(|last| last.name != name) {
        let (sizes, depths) = (Distribution::default(), Distribution::default());
        profiles.push(Profile { name, sizes, ages: Vec::new(), depths });
    }
    let Some(profile) = profiles.last_mut() else { return };
    match point.kind {
        // The table also lists sizes, ages and depths that no file has.
        _ if point.weight == 0 => {}
        "size" => profile.sizes.add(point.x as u64, point.weight),
        "age" => profile.ages.push((point.x, point.weight)),
        "dir" => profile.depths.add(point.x as u64, point.weight),
        kind => unreachable!("the built-in table has no points of {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let profiles = all();
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        let expected = ["agrawal", "dabre", "douceur", "grundman", "meyer", "pramod", "wang-lanl", "wang-os"]
            .map(|n| format!("{PREFIX}{n}"));
        assert_eq!(names, expected);
        for profile in &profiles {
            assert!(!profile.sizes.is_empty() && !profile.ages.is_empty() && !profile.depths.is_empty());
            assert!(profile.ages.is_sorted_by(|a, b| a.0 < b.0), "{}", profile.name);
        }
        let agrawal = find("geriatrix-agrawal").unwrap();
        assert_eq!((agrawal.sizes.count(), agrawal.sizes.max(), agrawal.depths.max()), (230, 8_388_608, 15));
        assert_eq!(find("geriatrix-pramod").unwrap().sizes.max(), 34_359_738_368);
        assert!(find("agrawal").is_none());
    }

    #[test]
    fn a_profile_of_one_directory_gives_one() {
        assert_eq!(find("geriatrix-wang-os").unwrap().recipe().directories(50_000), 1);
        assert_eq!(find("geriatrix-agrawal").unwrap().recipe().directories(50_000), 500);
    }
}
