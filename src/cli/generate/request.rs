//! What a generated tree should look like: the recipe that follows from the source and the options.

use std::path::Path;

use super::super::{sources, usage_error};
use super::GenerateArguments;
use crate::error::{Error, ErrorKind, Result};
use crate::population::age::Ages;
use crate::population::design::DIRECTORY_FILES;
use crate::population::tree::FAN_OUT;
use crate::population::{Recipe, Shape, SizeLaw, profiles, weighted};
use crate::survey::measure::Measure;
use crate::survey::{Resolution, Survey};
use crate::units::{escape_path, format_count};

/// What a tree should look like, with remarks.
pub(in crate::cli) struct TreeRequest {
    pub(in crate::cli) name: String,
    pub(in crate::cli) recipe: Recipe,
    /// Which files are deleted while it ages.
    pub(in crate::cli) ages: Ages,
    pub(in crate::cli) notes: Vec<String>,
}

impl TreeRequest {
    /// As a source describes it: a profile, a law, or any other source.
    pub(in crate::cli) fn of(source: &Path) -> Result<TreeRequest> {
        let text = source.to_str().unwrap_or_default();
        if let Some(profile) = profiles::find(text) {
            let notes = vec![format!("Sizes and depths: {}.", profiles::SOURCE)];
            let (recipe, ages) = (profile.recipe(), Ages::of(&profile.ages));
            return Ok(TreeRequest { name: profile.name, recipe, ages, notes });
        }
        if text == weighted::NAME || text.starts_with(&format!("{}:", weighted::NAME)) {
            let law = SizeLaw::parse(text).map_err(usage_error)?;
            let recipe = Recipe::of_sizes(law.distribution());
            return Ok(TreeRequest { name: law.to_string(), recipe, ages: Ages::default(), notes: Vec::new() });
        }
        let (survey, mut notes) = sources::open_with_notes(source)?;
        if survey.origin.resolution == Resolution::Buckets && notes.is_empty() {
            notes.push("The source is a table; between its rows the curve is interpolated.".to_owned());
        }
        let name = survey.origin.name.clone().unwrap_or_else(|| escape_path(source));
        let recipe = recipe(&survey);
        let ages = recipe.mtime_ages.as_ref().map(Ages::of_days).unwrap_or_default();
        Ok(TreeRequest { name, recipe, ages, notes })
    }
}

impl GenerateArguments {
    /// The source, changed by the options.
    ///
    /// # Errors
    /// Any error of reading the source; [`ErrorKind::Usage`] if the options contradict it.
    pub(super) fn tree(&self) -> Result<TreeRequest> {
        let mut tree = TreeRequest::of(&self.source)?;
        if let Some(law) = &self.sizes {
            // The number of files of the source stays, and with it that of directories per file.
            tree.recipe.sizes = law.distribution();
            tree.name = format!("{} with sizes {law}", tree.name);
        }
        let is_flat = tree.recipe.is_flat();
        match (self.directory_files, &mut tree.recipe.shape) {
            (Some(_), _) if is_flat => {
                return Err(Error::new(ErrorKind::Usage, "use --directory-files", "the source has one directory only")
                    .advise("omit it, or choose another source"));
            }
            (Some(directory_files), Shape::Even { directory_files: of_source, .. }) => *of_source = directory_files,
            // The measured depths belong to another number of directories.
            (Some(directory_files), shape) => *shape = Shape::Even { directory_files, depths: None },
            (None, Shape::Even { directory_files, depths }) if !is_flat => {
                let each = format_count((*directory_files).into());
                tree.notes.push(match depths {
                    Some(_) => {
                        format!("The source does not record how many files its directories have: each gets {each}.")
                    }
                    None => format!(
                        "The source does not record its directories: each gets {each} files and up to {FAN_OUT} \
                         subdirectories."
                    ),
                });
            }
            (None, _) => {}
        }
        Ok(tree)
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
        files: of(Measure::FileSize).count(),
        names: known(Measure::NameLength),
        shape,
        mtime_ages: known(Measure::MtimeAge),
        atime_ages: known(Measure::AtimeAge),
    }
}
