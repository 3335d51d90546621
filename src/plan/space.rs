//! The space that layouts need for a population, side by side.

use serde::{Deserialize, Serialize};

use super::population::Population;
use crate::layout::Model;

/// The space that one layout needs for a population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSpace {
    /// The model, as specified.
    pub model: String,
    /// Allocated for the files: see [`crate::layout::Space`].
    pub allocated_bytes: u128,
    /// `(allocated - size) / allocated`: the share that is not file data. Negative where data are packed or inlined.
    pub overhead_fraction: f64,
    /// Metadata of the files (inodes, descriptors, maps).
    pub metadata_bytes: u128,
    /// Whether `metadata_bytes` is part of `allocated_bytes`; otherwise it is additional.
    pub metadata_is_within: bool,
    /// Whether `metadata_bytes` is memory of a server; then it is not in `total_bytes`.
    pub metadata_is_memory: bool,
    /// Space for directories and symlinks, as far as the source knows them and the model covers them.
    pub tree_bytes: Option<u128>,
    /// Everything together, each byte once: data among the metadata (inline files) are not counted twice.
    pub total_bytes: u128,
    /// What the system itself would report as allocated to the files, where that differs from the raw bytes.
    pub reported_bytes: Option<u128>,
}

/// The space that `model` needs for `population`.
pub fn model_space(population: &Population, model: &Model) -> ModelSpace {
    let total = population.total(&*model.layout);
    let within = model.layout.metadata_is_within();
    let allocated = total.allocated_bytes;
    let memory = model.layout.metadata_is_memory();
    let beside = if memory { 0 } else { total.metadata_bytes };
    let files = if within { allocated } else { total.data_bytes.saturating_add(beside) };
    let overhead = allocated as f64 - population.size_bytes() as f64;
    ModelSpace {
        model: model.name.clone(),
        allocated_bytes: allocated,
        overhead_fraction: if allocated == 0 { 0.0 } else { overhead / allocated as f64 },
        metadata_bytes: total.metadata_bytes,
        metadata_is_within: within,
        metadata_is_memory: memory,
        tree_bytes: total.tree_bytes,
        total_bytes: files.saturating_add(total.tree_bytes.unwrap_or(0)),
        reported_bytes: total.reported_bytes,
    }
}
