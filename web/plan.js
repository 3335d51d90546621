// The page of a plan: reads the data, builds header and sections. The answers of its sliders come from the data too.
"use strict";

Pages.add("plan", (data) => {
  const { num, known, count, size, share } = Format;
  const { shellWord } = Shell;
  const { plan } = data;

  function header() {
    return Shell.head({
      kicker: "Storage plan",
      title: data.title || "Storage plan",
      facts: [
        plan.source.host && ["Machine", plan.source.host],
        plan.source.taken_at && ["Surveyed", Format.time(plan.source.taken_at)],
        ["Layouts", count(plan.models.length)],
        ["Small files", `up to ${size(plan.usual_cutoff_bytes)}`],
        num(plan.growth_fraction) > 0 && ["Growth", share(plan.growth_fraction)],
        plan.operations && ["Reads and writes", plan.operations.name],
      ].filter(Boolean),
      badges: plan.source.tree_is_known ? [] : [["", "Without directories"]],
    });
  }

  function keyFigures() {
    const { source, recommendation } = plan;
    const totals = plan.models.map((model) => model.total_bytes).filter(known).sort((a, b) => num(a) - num(b));
    return Shell.keys([
      ["Files", count(source.files)],
      ["Bytes", size(source.size_bytes), num(source.files) > 0 ? `mean ${size(Math.round(num(source.size_bytes) / num(source.files)))}` : null],
      ["Largest file", size(source.largest_bytes)],
      recommendation && PlanSections.asksForBlocks(data) && ["Recommended block size", size(recommendation.block_bytes), `${share(recommendation.chosen.single_block_fraction)} of files fit in one`],
      totals.length > 0 && ["Stored", size(totals[0]), totals.length > 1 ? `to ${size(totals.at(-1))}, by layout` : `under ${plan.models[0].model}`],
    ]);
  }

  /** What gave this plan; files that were read are named by their kind, because the plan does not keep their paths. */
  function command() {
    const fit = plan.fast_tiers.find((tier) => tier.fit)?.fit;
    const asked = (plan.tiers ?? []).map((tier) => tier.cutoff_bytes).filter((bytes) =>
      num(bytes) > 0 && num(bytes) !== num(plan.usual_cutoff_bytes) && !Number.isInteger(Math.log2(num(bytes))));
    const cutoffs = num(plan.usual_cutoff_bytes) === 65536 && !asked.length ? [] : [plan.usual_cutoff_bytes, ...asked];
    const tolerance = plan.recommendation?.tolerance_fraction;
    const percent = (fraction) => `${Number((fraction * 100).toFixed(6))}%`;
    return ["granulo plan", data.source_word ? shellWord(data.source_word) : "SURVEY.json",
      ...plan.models.map(({ model }) => `--model ${shellWord(model)}`),
      ...cutoffs.map((bytes) => `--cutoff ${bytes}`),
      fit && `--fast ${fit.fast_device_bytes}`,
      num(plan.growth_fraction) > 0 && `--growth ${percent(plan.growth_fraction)}`,
      known(data.asked_fill_fraction) && `--fill ${percent(data.asked_fill_fraction)}`,
      plan.operations && `--trace ${shellWord(plan.operations.name)}`,
      known(tolerance) && tolerance !== 0.05 && `--tolerance ${percent(tolerance)}`,
      plan.currency !== null && "--prices PRICES.toml",
      known(plan.reads) && !known(plan.reads.trace_seconds) && `--reads ${plan.reads.per_month}`,
      "--report plan.html"].filter(Boolean).join(" ");
  }

  function footer() {
    return Shell.footer({
      method: [
        "Every figure is computed from the file size distribution: exact for files up to 64 KiB, within 1 % above. A layout model gives the allocated bytes for a file size, " +
          "from the rules of its file system: blocks, stripes, copies and parity, packing, descriptors. Nothing is written or measured.",
        "The fast tier holds all metadata and every file (in some layouts: every block, or the first bytes) up to the cutoff, including redundancy. " +
          "Capacity to buy is the fast bytes of today plus growth, divided by the maximum fill level. KiB, MiB and GiB are powers of 1,024.",
        "After Tanenbaum, Herder and Bos, “File Size Distribution on UNIX Systems: Then and Now” (2006), for block sizes, and Welch and Noer, " +
          "“Optimizing a Hybrid SSD/HDD HPC Storage System Based on File Size Distributions” (2013), for the fast tier.",
      ],
      again: "plan", command: command(), data,
    });
  }

  if (!plan) {
    Shell.showNothing(data.title || "Storage plan");
    return;
  }
  Shell.show({
    subject: "plan",
    sections: [PlanSections.layouts(data), PlanTier.tier(data), PlanSections.costs(data), PlanSections.settings(data), PlanSections.files(data), PlanSections.asksForBlocks(data) && PlanSections.blockSizes(data), PlanSections.caches(data)].filter(Boolean),
    nodes: [header(), PlanSections.card(data), keyFigures(), Shell.words(data.words)],
    footer: footer(),
  });
});
