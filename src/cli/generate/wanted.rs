//! The target of a generated tree: the recipe that follows from the arguments.

use std::path::Path;

use super::super::{sources, usage_error};
use super::GenerateArguments;
use crate::distribution::Distribution;
use crate::error::Result;
use crate::population::age::Ages;
use crate::population::design::DIRECTORY_FILES;
use crate::population::{Recipe, Shape, SizeLaw, profiles, weighted};
use crate::survey::measure::Measure;
use crate::survey::{Resolution, Survey};
use crate::units::{escape_path, format_count};

/// The target of a tree, with remarks.
pub(in crate::cli) struct Wanted {
    pub(in crate::cli) name: String,
    pub(in crate::cli) recipe: Recipe,
    /// Which files are deleted while it ages.
    pub(in crate::cli) ages: Ages,
    pub(in crate::cli) notes: Vec<String>,
}

impl Wanted {
    /// The target from a source: a profile, a law, or any other source.
    pub(in crate::cli) fn of(source: &Path) -> Result<Wanted> {
        let text = source.to_str().unwrap_or_default();
        if let Some(profile) = profiles::find(text) {
            let notes = vec![format!("Sizes and depths: {}.", profiles::SOURCE)];
            let (recipe, ages) = (profile.recipe(), Ages::of(&profile.ages));
            return Ok(Wanted { name: profile.name, recipe, ages, notes });
        }
        if text == weighted::NAME || text.starts_with(&format!("{}:", weighted::NAME)) {
            let law = SizeLaw::parse(text).map_err(usage_error)?;
            let recipe = Recipe::of_sizes(law.distribution());
            return Ok(Wanted { name: law.to_string(), recipe, ages: Ages::default(), notes: Vec::new() });
        }
        let (survey, mut notes) = sources::open_with_notes(source)?;
        if survey.origin.resolution == Resolution::Buckets && notes.is_empty() {
            notes.push("The source is a table; between its rows the curve is interpolated.".to_owned());
        }
        let name = survey.origin.name.clone().unwrap_or_else(|| escape_path(source));
        let recipe = recipe(&survey);
        let ages = recipe.mtime_ages.as_ref().map(Ages::of_days).unwrap_or_default();
        Ok(Wanted { name, recipe, ages, notes })
    }
}

impl GenerateArguments {
    /// The target of the tree.
    pub(super) fn wanted(&self) -> Result<Wanted> {
        let mut wanted = Wanted::of(&self.source)?;
        if let Some(law) = &self.sizes {
            // The same number of directories per file as before: the number of files of the source stays.
            let files = wanted.recipe.sizes.count();
            wanted.recipe.sizes = with_count(&law.distribution(), files);
            wanted.name = format!("{} with sizes {law}", wanted.name);
        }
        if let Some(directory_files) = self.directory_files {
            let depths = match wanted.recipe.shape {
                Shape::Even { depths, .. } => depths,
                Shape::Measured { .. } => None,
            };
            wanted.recipe.shape = Shape::Even { directory_files, depths };
        }
        if let Shape::Even { directory_files, .. } = &wanted.recipe.shape
            && self.directory_files.is_none()
        {
            let each = format_count((*directory_files).into());
            wanted.notes.push(format!(
                "The source does not know its directories: {each} files and up to 100 directories in each."
            ));
        }
        Ok(wanted)
    }
}

/// The recipe from what a survey knows.
fn recipe(survey: &Survey) -> Recipe {
    let of = |measure| survey.distributions.of(measure);
    let known = |measure| Some(of(measure).clone()).filter(|distribution| !distribution.is_empty());
    let shape = match known(Measure::DirectoryEntries) {
        Some(entries) => {
            let depths = known(Measure::DirectoryDepth).filter(|depths| depths.count() == entries.count());
            Shape::Measured { entries, depths }
        }
        None => Shape::Even { directory_files: DIRECTORY_FILES, depths: None },
    };
    Recipe {
        sizes: of(Measure::FileSize).clone(),
        names: known(Measure::NameLength),
        shape,
        mtime_ages: known(Measure::MtimeAge),
        atime_ages: known(Measure::AtimeAge),
    }
}

/// `sizes` scaled to this many files.
fn with_count(sizes: &Distribution, files: u128) -> Distribution {
    let files = u64::try_from(files).unwrap_or(u64::MAX).max(1);
    crate::population::stratify::stratify(sizes, files).distribution()
}
