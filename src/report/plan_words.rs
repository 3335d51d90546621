//! A plan in sentences.

use super::terminal::exact_size;
use crate::plan::tier::{Fit, Spill};
use crate::plan::{FastTier, Plan};
use crate::units::{format_count, format_share, format_size};

/// The population of the plan.
pub(super) fn source_sentence(plan: &Plan) -> String {
    let source = &plan.source;
    let mut sentences = vec![format!(
        "{} files with {} in total, the largest {}.",
        format_count(source.files),
        format_size(source.size_bytes),
        format_size(source.largest_bytes.into())
    )];
    if !source.tree_is_known {
        sentences.push("Its directories are unknown and not included.".to_owned());
    }
    sentences.extend(source.notes.iter().map(|note| format!("Note: {note}.")));
    sentences.join(" ")
}

/// Which block size to use, and why.
pub(super) fn recommendation_sentences(plan: &Plan) -> Vec<String> {
    let Some(chosen) = &plan.recommendation else { return Vec::new() };
    let mut sentences = vec![format!(
        "Use {} blocks: the files need {}, {} more than with 1 KiB blocks (up to {} is allowed), and {} of them fit in one block.",
        exact_size(chosen.block_bytes),
        format_size(chosen.chosen.allocated_bytes),
        format_share(chosen.chosen.growth_fraction),
        format_share(chosen.tolerance_fraction),
        format_share(chosen.chosen.single_block_fraction),
    )];
    if let Some(served) = &chosen.served {
        sentences.push(format!(
            "One block serves {} of the reads and {} of the writes.",
            format_share(served.reads_fraction),
            format_share(served.writes_fraction)
        ));
    }
    if let Some(next) = &chosen.next {
        let size = exact_size(next.block_bytes);
        sentences.push(match &chosen.next_served {
            _ if chosen.next_costs_too_much => {
                format!(
                    "With {size} blocks they would need {} more than with 1 KiB.",
                    format_share(next.growth_fraction)
                )
            }
            Some(served) => format!(
                "{size} would serve hardly more: {} of the reads and {} of the writes.",
                format_share(served.reads_fraction),
                format_share(served.writes_fraction)
            ),
            None => "No common file system supports larger blocks.".to_owned(),
        });
    }
    if chosen.served.is_none() {
        sentences.push("Read and write sizes may suggest a different size: add --trace.".to_owned());
    }
    vec![sentences.join(" ")]
}

/// The cutoff that a fast tier holds, and what happens to the rest.
pub(super) fn fit_sentence(plan: &Plan, tier: &FastTier, fit: &Fit) -> String {
    let device = format!("A fast tier of {}, all copies together,", format_size(fit.fast_device_bytes));
    let usable = match fit.usable_bytes == fit.fast_device_bytes {
        true => String::new(),
        false => format!(" of which {} may be used today,", format_size(fit.usable_bytes)),
    };
    let holds = match &fit.largest {
        None => format!(
            "does not even hold the metadata, which needs {}.",
            format_size(tier.curve.first().map_or(0, |lowest| lowest.fast_bytes))
        ),
        Some(at) if at.cutoff_bytes >= plan.source.largest_bytes => "holds everything.".to_owned(),
        Some(at) if at.cutoff_bytes == 0 => "holds all metadata, but no files with content.".to_owned(),
        Some(at) => format!(
            "holds all metadata and every file up to {}: {} of the files and {} of the bytes.",
            exact_size(at.cutoff_bytes),
            format_share(at.small_file_fraction),
            format_share(at.small_data_fraction)
        ),
    };
    format!("{device}{usable} {holds} {}", spill_sentence(&fit.spill, tier.overflows))
}

fn spill_sentence(spill: &Spill, overflows: bool) -> String {
    let cutoff = exact_size(spill.cutoff_bytes);
    let rest = if overflows { "spill to the slow tier" } else { "do not fit, and writes fail" };
    match spill.spilled_bytes {
        0 => format!("With a cutoff of {cutoff}, everything fits."),
        spilled => format!(
            "With a cutoff of {cutoff}, {} of {} {rest} ({}).",
            format_size(spilled),
            format_size(spill.needed_bytes),
            format_share(spill.spilled_fraction)
        ),
    }
}

/// The cheapest option.
pub(super) fn costs_sentence(plan: &Plan, tier: &FastTier) -> Option<String> {
    let cheapest = tier.cheapest.as_ref()?;
    let currency = plan.currency.as_deref().unwrap_or("");
    let cost = format!("{} {currency}", format_count(cheapest.cost.round() as u128));
    let what = match cheapest.cutoff_bytes {
        Some(cutoff) => format!("a hybrid with a cutoff of {}", exact_size(cutoff)),
        None => "fast devices only".to_owned(),
    };
    Some(format!(
        "Cheapest option that keeps metadata and files up to {} on fast devices: {what}, {}.",
        exact_size(plan.usual_cutoff_bytes),
        cost.trim()
    ))
}
