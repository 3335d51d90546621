//! A page of a plan: one self-contained HTML file, with sliders that answer from its data.
//!
//! Its scripts are in `web/plan*.js`; template, style, figures and formats are those of the survey page.

use std::io::{self, Write};

use serde::Serialize;

use super::origin::told_apart;
use super::page::{Part, Scripts};
use super::plan_words::{fit_sentence, reads_sentence, recommendation_sentences, source_sentence};
use crate::distribution::published;
use crate::layout::Model;
use crate::plan::{Plan, systems};
use crate::units::{GIB, KIB, MIB};

const SCRIPTS: Scripts = Scripts {
    kind: "plan",
    sections: include_str!("../../web/plan-sections.js"),
    details: include_str!("../../web/plan-tier.js"),
    script: include_str!("../../web/plan.js"),
};

#[derive(Serialize)]
struct Page<'a> {
    words: Vec<String>,
    /// The argument that selects the source, if it is built in.
    source_word: Option<&'a str>,
    /// How full the fast tier may become, where that differs from the models.
    asked_fill_fraction: Option<f64>,
    /// The reads that are billed.
    reads: Option<String>,
    plan: &'a Plan,
    curves: Curves<'a>,
}

/// Space that single files need, for the curves of each model.
#[derive(Serialize)]
struct Curves<'a> {
    sizes_bytes: Vec<u64>,
    models: Vec<Curve<'a>>,
}

#[derive(Serialize)]
struct Curve<'a> {
    model: &'a str,
    summary: &'static str,
    allocated_bytes: Vec<u128>,
}

/// Writes the page; `models` are those of the plan, `generated_at` is in seconds since 1970.
///
/// # Errors
/// Any error of `out`.
pub(crate) fn write(plan: &Plan, models: &[Model], generated_at: i64, out: &mut dyn Write) -> io::Result<()> {
    part(plan, models)?.write(generated_at, out)
}

/// The part on a page with other results.
///
/// # Errors
/// When the data cannot be JSON.
pub(crate) fn part(plan: &Plan, models: &[Model]) -> io::Result<Part> {
    let name = plan.source.name.as_deref().unwrap_or("anonymous survey");
    let sizes_bytes = sizes();
    let curve = |model| Curve::of(model, &sizes_bytes);
    let mut words = vec![source_sentence(plan)];
    words.extend(recommendation_sentences(plan));
    words.extend(plan.fast_tiers.first().and_then(|tier| Some(fit_sentence(plan, tier, tier.fit.as_ref()?))));
    let page = Page {
        words,
        asked_fill_fraction: asked_fill(plan, models),
        reads: reads_sentence(plan),
        source_word: plan.source.name.as_deref().filter(|name| is_built_in(name)),
        plan,
        curves: Curves { models: models.iter().map(curve).collect(), sizes_bytes: sizes_bytes.clone() },
    };
    let name = told_apart(name, plan.source.host.as_deref(), plan.source.taken_at.as_deref());
    Part::new(format!("Plan for {name}"), &page, &SCRIPTS)
}

/// Whether this name alone opens a source.
fn is_built_in(name: &str) -> bool {
    published::find(name).is_some() || systems::find(name).is_some()
}

/// The fill level of the first fast tier whose model has a different one.
fn asked_fill(plan: &Plan, models: &[Model]) -> Option<f64> {
    plan.fast_tiers.iter().find_map(|tier| {
        let (numerator, denominator) = models.iter().find(|model| model.name == tier.model)?.layout.fast_fill();
        (tier.fill_fraction != numerator as f64 / denominator as f64).then_some(tier.fill_fraction)
    })
}

impl<'a> Curve<'a> {
    fn of(model: &'a Model, sizes_bytes: &[u64]) -> Curve<'a> {
        Curve {
            model: &model.name,
            summary: model.kind.summary,
            allocated_bytes: sizes_bytes.iter().map(|&size| model.layout.file(size).allocated_bytes).collect(),
        }
    }
}

/// Sizes of a curve: every KiB up to 256 KiB and one byte beside each 4 KiB, so that steps are vertical; every 4 KiB up
/// to 2 MiB; sixteenths of an octave up to 1 GiB.
pub(super) fn sizes() -> Vec<u64> {
    let fine = (0..=256).map(|step| step * KIB);
    let beside = (0..=64).map(|step| step * 4 * KIB + 1);
    let coarse = (64..=512).map(|step| step * 4 * KIB);
    let octaves = (0..=9 * 16).map(|step| ((2 * MIB) as f64 * (f64::from(step) / 16.0).exp2()).round() as u64);
    let mut sizes: Vec<u64> = fine.chain(beside).chain(coarse).chain(octaves).collect();
    sizes.sort_unstable();
    sizes.dedup();
    debug_assert_eq!(sizes.last(), Some(&GIB));
    sizes
}
