// The page of benches: reads the data, builds header and sections. Runs of the same bench lie over one another.
"use strict";

Pages.add("bench", (data) => {
  const { el, num, count } = Format;
  const runs = data.runs ?? [];

  function header() {
    const hosts = [...new Set(runs.map((run) => run.document.host?.name).filter(Boolean))];
    const incomplete = runs.filter((run) => run.document.complete === false);
    return Shell.head({
      kicker: "Benchmark",
      title: data.title || "Benchmark",
      facts: [...(hosts.length ? [[hosts.length > 1 ? "Machines" : "Machine", hosts.join(", ")]] : []), ["Runs", count(runs.length)], ["Measured", Format.time(runs[0].document.started_at)],
        ["Duration", Format.duration(runs.reduce((sum, run) => sum + Format.num(run.document.elapsed_seconds), 0))]],
      badges: incomplete.length ? [["warn", "Interrupted: partial"]] : [],
    });
  }

  function warning() {
    const list = [...(data.warnings ?? []), runs.length > 1 && "Several runs are shown together. Figures within one run are comparable; between runs, machine and load may differ."].filter(Boolean);
    return list.length > 0 && el("ul", { class: "warnings", role: "note" }, list.map((text) => el("li", { class: "name" }, text)));
  }

  /** The verdict: for each measure the best target, how far it is ahead of the next, and the spread of its samples. */
  function verdict() {
    const rows = runs.flatMap((run) => {
      const { document: bench, name } = run;
      const keyOf = (series) => JSON.stringify([series.measure, series.unit, series.caches, series.level, series.second_level]);
      const groups = new Map();
      for (const series of bench.series ?? []) groups.set(keyOf(series), [...(groups.get(keyOf(series)) ?? []), series]);
      return [...groups.values()].filter((group) => group.length > 1 && group[0].level === null).map((group) => {
        const sign = group[0].unit.endsWith("/s") ? -1 : 1;
        const [best, next] = [...group].sort((a, b) => sign * (num(a.spread.median) - num(b.spread.median)));
        const [low, high] = [best, next].map((series) => num(series.spread.median)).sort((a, b) => a - b);
        const range = Math.max(...[best, next].map((series) => num(series.spread.max) - num(series.spread.min)));
        const sampled = num(best.spread.count) > 1 && num(next.spread.count) > 1;
        const apart = high - low > range;
        const named = (series) => bench.subjects?.[series.subject]?.name ?? Format.MISSING;
        return [{ text: runs.length > 1 ? `${name}: ${best.measure}` : best.measure, name: true }, { text: named(best), name: true }, { text: figure(best), value: num(best.spread.median) },
          { text: `${named(next)}, ${figure(next)}`, name: true }, low > 0 ? { text: `${Format.decimal(high / low, high / low < 10 ? 2 : 0)} times`, value: high / low } : Format.MISSING,
          low > 0 && sampled ? Format.cells.share(range / low) : Format.MISSING, !sampled ? "one sample" : apart ? "clear" : "within the noise"];
      });
    });
    if (!rows.length) return null;
    const { host } = runs[0].document;
    return el("div", { class: "block" }, el("h2", { class: "small" }, "Verdict"),
      el("p", { class: "note" }, host && `Load average of the machine: ${Format.decimal(host.load_before, 1)} before, ${Format.decimal(host.load_after, 1)} after, ` +
        `on ${count(host.cpus)} ${num(host.cpus) === 1 ? "processor" : "processors"}. Spread: the range of the samples as a share of the smaller median; a distance below it is no difference.`),
      Format.table({
        caption: "Verdict by measure",
        columns: [{ title: "Measure", text: true }, { title: "Best", text: true }, { title: "Median" }, { title: "Next", text: true }, { title: "Distance" }, { title: "Spread" }, { title: "Verdict", text: true }],
        rows,
      }));
  }

  function figure({ spread, unit }) {
    const value = num(spread.median);
    if (unit === "seconds") return Format.duration(value);
    if (unit === "bytes") return Format.size(value);
    return unit === "bytes/s" ? `${Format.size(value)}/s` : `${count(value)} ${unit}`;
  }

  function footer() {
    return Shell.footer({
      method: [
        "Compared figures were measured in one run, with targets taking turns. Cold caches: written back and dropped, and the file system remounted if it was created for the run. " +
          "Medians and means cover all rounds; spread is the standard deviation over the mean. Raw samples are in the JSON.",
        "After Foddex (creation), Vorontsov (many files or one), Atkinson (fill level), Welch and Noer (metadata) and Tanenbaum, Herder and Bos (cache and block size). KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    });
  }

  if (!runs.length) {
    Shell.showNothing(data.title || "Benchmark");
    return;
  }
  Shell.show({
    subject: "benchmark",
    sections: [BenchFiles.curves(data), BenchFiles.totals(data), BenchFiles.pack(data), BenchLevels.fill(data), BenchLevels.load(data), BenchLevels.metadata(data), BenchLevels.cache(data), BenchLevels.measuredOn(data)].filter(Boolean),
    nodes: [header(), warning(), Shell.summary(data.words), verdict()],
    footer: footer(),
  });
});
