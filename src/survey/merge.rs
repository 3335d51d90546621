//! Adding surveys of disjoint trees: the result equals one survey of all of them.
//!
//! Every count, distribution and list is exact, except for what one survey cannot know about another: files linked from
//! two of the trees count in both, and ages stay relative to the time of each survey.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::machine::{self, below};
use super::measure::Measure;
use super::{Method, Options, Origin, Resolution, Snapshots, Survey};
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::units::unescape_path;

/// Adds `surveys`, at least one.
///
/// # Errors
/// [`ErrorKind::Usage`] when there are none, or when they were taken with different options, so that their sum would
/// have no meaning.
pub fn merge(surveys: Vec<Survey>) -> Result<Survey> {
    if surveys.iter().any(|survey| survey.origin.method == Method::Published) {
        return Err(published());
    }
    let rules = rules(&surveys)?;
    let mut surveys = surveys.into_iter();
    let mut whole = surveys.next().ok_or_else(|| refusal("there are no surveys"))?;
    whole.origin.options = Options {
        excluded: std::mem::take(&mut whole.origin.options.excluded),
        one_file_system: whole.origin.options.one_file_system,
        snapshots: whole.origin.options.snapshots,
        ..rules.unwrap_or_else(|| whole.origin.options.clone())
    };
    // Names alone do not say which of several machines they are of.
    let host = whole.origin.host().map(str::to_owned);
    let is_one = surveys.as_slice().iter().all(|other| other.origin.host() == host.as_deref());
    let name = |origin: &Origin| if is_one { origin.name.clone() } else { origin.title() };
    let mut names: Vec<String> = name(&whole.origin).into_iter().collect();
    for other in surveys {
        names.extend(name(&other.origin));
        add(&mut whole, other);
    }
    whole.origin.method = Method::Merge;
    whole.origin.method_reason.clear();
    whole.origin.name = (!whole.origin.anonymous).then(|| names.join(" + "));
    Ok(whole)
}

/// The options of the first survey that has any: an fsstats CSV or a list says nothing of hard links.
///
/// # Errors
/// When two surveys have rules that contradict each other.
fn rules(surveys: &[Survey]) -> Result<Option<Options>> {
    let has_options = |survey: &&Survey| !matches!(survey.origin.method, Method::Fsstats | Method::List);
    let mut with_options = surveys.iter().filter(has_options).map(|survey| &survey.origin.options);
    let first = with_options.next();
    if with_options.any(|other| first.is_some_and(|first| first.hard_links != other.hard_links)) {
        return Err(refusal("they count hard links differently").advise("take them again with the same --hard-links"));
    }
    // A sum has places only if all surveys have them; those of a list have a cutoff, too.
    let mut cutoffs = surveys.iter().map(|survey| survey.origin.options.small_file_bytes);
    let have_places = surveys.iter().all(|survey| survey.places.is_some());
    let first_cutoff = cutoffs.next();
    if have_places && cutoffs.any(|other| Some(other) != first_cutoff) {
        let error = refusal("they have different cutoffs for small files");
        return Err(error.advise("take them again with the same --cutoff"));
    }
    Ok(first.cloned())
}

fn refusal(cause: &str) -> Error {
    Error::new(ErrorKind::Usage, "merge the surveys", cause)
}

fn published() -> Error {
    refusal("a published table has only sizes").advise("compare it with them: granulo compare")
}

/// Roots that are in more than one of `surveys`, or lie within a root of another: their contents would count twice.
pub fn overlapping_roots(surveys: &[Survey]) -> Vec<String> {
    let mut overlapping = Vec::new();
    for (index, survey) in surveys.iter().enumerate() {
        let others = surveys.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| &other.origin);
        let roots = others.filter(|other| survey.origin.may_share_files(other)).flat_map(Origin::absolute_roots);
        let above: Vec<String> = roots.collect();
        let is_inside = |root: &String| above.iter().any(|above| Path::new(root).starts_with(above));
        overlapping.extend(survey.origin.absolute_roots().into_iter().filter(is_inside));
    }
    overlapping.sort_unstable();
    overlapping.dedup();
    overlapping
}

/// Makes roots, and the paths below them, independent of a directory.
fn make_absolute(survey: &mut Survey) {
    if let Some(directory) = survey.origin.directory.as_deref().and_then(unescape_path) {
        let absolute = |path: &[u8]| below(&directory, Path::new(OsStr::from_bytes(path))).into_os_string().into_vec();
        survey.places.iter_mut().for_each(|places| places.map_paths(&absolute));
        survey.tree.iter_mut().for_each(|tree| tree.map_paths(&absolute));
    }
    let Survey { errors, origin, .. } = survey;
    errors.map_paths(|path| origin.absolute(path));
    origin.make_absolute();
}

fn add(whole: &mut Survey, mut other: Survey) {
    if whole.origin.anonymous == other.origin.anonymous && whole.origin.directory != other.origin.directory {
        make_absolute(whole);
        make_absolute(&mut other);
    }
    let (origin, theirs) = (&mut whole.origin, other.origin);
    if origin.anonymous != theirs.anonymous {
        // A survey without names cannot regain them, and the sum must not reveal to which survey the named rows belong.
        origin.anonymous = true;
        whole.places.iter_mut().for_each(|places| places.anonymise());
        whole.tree.iter_mut().for_each(|tree| tree.anonymise());
        whole.errors.anonymise();
        origin.roots.clear();
        origin.directory = None;
        origin.machines.clear();
        origin.options.excluded.clear();
    } else {
        origin.roots.extend(theirs.roots);
        machine::merge(&mut origin.machines, theirs.machines);
        for glob in theirs.options.excluded {
            if !origin.options.excluded.contains(&glob) {
                origin.options.excluded.push(glob);
            }
        }
    }
    origin.options.one_file_system &= theirs.options.one_file_system;
    if theirs.options.snapshots == Snapshots::Include {
        origin.options.snapshots = Snapshots::Include;
    }
    if origin.reference_time != theirs.reference_time {
        origin.reference_time = None;
    }
    // Sentences without names.
    origin.inconsistencies.extend(theirs.inconsistencies);
    origin.inconsistencies.sort();
    origin.inconsistencies.dedup();
    origin.taken_at = origin.taken_at.min(theirs.taken_at).or(origin.taken_at).or(theirs.taken_at);
    origin.elapsed_seconds += theirs.elapsed_seconds;
    origin.complete &= theirs.complete;
    if theirs.resolution == Resolution::Buckets {
        origin.resolution = Resolution::Buckets;
    }
    whole.counts.merge(&other.counts);
    whole.other_allocated.merge(&other.other_allocated);
    whole.distributions.merge(&other.distributions);
    // Figures about names that only some of the surveys have would describe no tree.
    origin.without_names |= theirs.without_names;
    if origin.without_names {
        for measure in Measure::OF_NAMES {
            *whole.distributions.of_mut(measure) = Distribution::default();
        }
    }
    let of = |measure| whole.distributions.of(measure).count();
    if of(Measure::DirectoryDepth) != of(Measure::DirectoryEntries) {
        *whole.distributions.of_mut(Measure::DirectoryDepth) = Distribution::default();
    }
    whole.overhead_by_size.merge(&other.overhead_by_size);
    whole.padding = match (whole.padding, other.padding) {
        (Some(mut mine), Some(theirs)) => {
            mine.merge(&theirs);
            Some(mine)
        }
        _ => None,
    };
    whole.places = match (whole.places.take(), other.places) {
        (Some(mut mine), Some(mut theirs)) => {
            if origin.anonymous {
                theirs.anonymise();
            }
            mine.merge(&theirs);
            Some(mine)
        }
        _ => None,
    };
    whole.tree = match (whole.tree.take(), other.tree) {
        (Some(mut mine), Some(mut theirs)) => {
            if origin.anonymous {
                theirs.anonymise();
                mine.merge_anonymous(&theirs);
            } else {
                mine.merge(&theirs);
            }
            Some(mine)
        }
        // A picture of a part would be taken for one of the whole.
        _ => None,
    };
    whole.errors.merge(&other.errors);
    if origin.anonymous {
        whole.errors.anonymise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inconsistent_in_any_survey_is_said_of_the_sum() {
        let scan = |inconsistencies: &[&str]| Survey {
            origin: Origin {
                method: Method::InodeScan,
                inconsistencies: inconsistencies.iter().map(|&text| text.to_owned()).collect(),
                ..Origin::default()
            },
            ..Survey::default()
        };
        let (sound, changed, damaged) =
            (scan(&[]), scan(&["it changed"]), scan(&["2 inodes are damaged", "it changed"]));
        for surveys in [[&sound, &changed, &damaged], [&damaged, &sound, &changed], [&changed, &damaged, &sound]] {
            let whole = merge(surveys.map(Survey::clone).to_vec()).unwrap();
            assert_eq!(whole.origin.inconsistencies, ["2 inodes are damaged", "it changed"]);
        }
    }
    /// A list without allocations is added to one that has them; neither has owners.
    #[test]
    fn what_a_list_does_not_tell_is_not_taken_for_nothing() {
        let list = |text: &str| crate::survey::listed::read(text.as_bytes(), "list").unwrap().unwrap().0;
        let known = list("1000 4096 a.c\n5000 8192 b.c\n6000 0 sparse.c\n");
        assert_eq!(known.overhead_fraction(), 1.0 - 12_000.0 / 12_288.0);
        let whole = merge(vec![known.clone(), list("1000000 c.h\n3 d.h\n2 e.h\n")]).unwrap();
        assert_eq!(whole.overhead_fraction(), known.overhead_fraction());
        let places = whole.places.unwrap();
        assert_eq!((places.owners.max_error(), places.extensions.max_error()), (6, 0));
    }
}
