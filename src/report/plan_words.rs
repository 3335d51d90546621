//! A plan in sentences.

use super::terminal::exact_size;
use crate::plan::caching::TIME_TOLERANCE;
use crate::plan::operations::Served;
use crate::plan::recommend::{MOST_BYTES, TimedBlock};
use crate::plan::tier::{Fit, Spill, Tier};
use crate::plan::{BlockSize, Caching, FastTier, Plan};
use crate::units::{escape, format_count, format_duration, format_share, format_size};

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
    if let (Some(caching), Some(cached)) = (&plan.caching, &chosen.cached) {
        sentences.push(cached_sentence(caching, cached));
    }
    if let Some(next) = &chosen.next {
        let size = exact_size(next.block_bytes);
        let too_long = chosen.next_cached.filter(|_| !chosen.next_costs_too_much).filter(TimedBlock::takes_too_long);
        sentences.push(match &chosen.next_served {
            _ if chosen.next_costs_too_much => {
                format!(
                    "With {size} blocks they would need {} more than with 1 KiB.",
                    format_share(next.growth_fraction)
                )
            }
            _ if next.block_bytes > MOST_BYTES => "No common file system supports larger blocks.".to_owned(),
            _ if plan.caching.as_ref().is_some_and(|caching| next.block_bytes > caching.cache_bytes) => {
                format!("Blocks of {size} do not fit in the cache.")
            }
            served if too_long.is_some() => slower_sentence(&size, next, served.as_ref(), too_long),
            Some(served) => format!(
                "{size} would serve hardly more: {} of the reads and {} of the writes.",
                format_share(served.reads_fraction),
                format_share(served.writes_fraction)
            ),
            None => format!("{size} would need {} more than with 1 KiB.", format_share(next.growth_fraction)),
        });
    }
    if chosen.served.is_none() {
        sentences.push("Read and write sizes may suggest a different size: add --trace.".to_owned());
    } else if plan.caching.is_none() {
        sentences.push("A small cache may suggest a smaller one: add --cache-size.".to_owned());
    }
    vec![sentences.join(" ")]
}

/// The time with a cache.
fn cached_sentence(caching: &Caching, cached: &TimedBlock) -> String {
    let cache = exact_size(caching.cache_bytes);
    let seconds = format_duration(cached.block.seconds);
    let best = match cached.slower_fraction {
        0.0 => "the least of the block sizes that need no more space than is allowed".to_owned(),
        slower => format!(
            "{} more than with the best block size (up to {} is allowed)",
            format_share(slower),
            format_share(TIME_TOLERANCE)
        ),
    };
    match (&caching.device, cached.block.miss_ratio) {
        (Some(device), Some(miss_ratio)) => format!(
            "With a cache of {cache}, {} of the references to blocks miss, and the transfers take {seconds} ({}), {best}.",
            format_share(miss_ratio),
            device.name
        ),
        _ => format!("With a cache of {cache}, the compilations that the source measured took {seconds}, {best}."),
    }
}

/// Why the next larger block size is too slow.
fn slower_sentence(size: &str, next: &BlockSize, served: Option<&Served>, timed: Option<TimedBlock>) -> String {
    let shares = served.map_or(String::new(), |served| {
        format!(
            ", and one block would serve {} of the reads and {} of the writes",
            format_share(served.reads_fraction),
            format_share(served.writes_fraction)
        )
    });
    let (seconds, slower) = timed.map_or((0.0, 0.0), |timed| (timed.block.seconds, timed.slower_fraction));
    format!(
        "With {size} blocks the files would need {} more than with 1 KiB{shares}, but fewer blocks fit in the cache: {}, {} \
         more than with the best.",
        format_share(next.growth_fraction),
        format_duration(seconds),
        format_share(slower)
    )
}

/// Whether nothing is left for a slow tier.
pub(super) fn holds_everything(tier: &Tier, plan: &Plan) -> bool {
    tier.cutoff_bytes >= plan.source.largest_bytes && tier.slow_bytes == 0
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
        Some(at) if holds_everything(at, plan) => "holds everything; no slow tier is needed.".to_owned(),
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

/// The reads of a month.
pub(super) fn reads_sentence(plan: &Plan) -> Option<String> {
    let reads = plan.reads.as_ref()?;
    let trace = reads.trace.as_deref().map(|name| escape(name.as_bytes()));
    let how = match (trace, reads.trace_seconds) {
        (Some(trace), Some(seconds)) => {
            format!("whole files a month, the rate and the sizes of {trace} ({})", format_duration(seconds))
        }
        (Some(trace), None) => format!("whole files a month, with the sizes of {trace}"),
        (None, _) => "whole files a month, as large as the files".to_owned(),
    };
    let mean = format_size(reads.mean_bytes.round() as u128);
    Some(format!("Reads: {} {how}: {mean} on average.", format_count(reads.per_month.into())))
}
