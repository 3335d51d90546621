// The page of benches: reads the data, builds header and sections. Runs of the same bench lie over one another.
"use strict";

Pages.add("bench", (data) => {
  const { el, num, count } = Format;
  const runs = data.runs ?? [];
  /** Warnings in sight. */
  const WARNINGS = 2;
  /** Measures that are chosen by buttons; of more there is a list. */
  const BUTTONS = 6;

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

  /** What stands in the way of trust, once each; of many, the first and, folded away, the rest. */
  function warning() {
    const list = [...new Set([...(data.warnings ?? []), runs.length > 1 && "Several runs are shown together. Figures within one run are comparable; between runs, machine and load may differ."].filter(Boolean))];
    if (!list.length) return null;
    const items = (texts) => el("ul", {}, texts.map((text) => el("li", { class: "name" }, text)));
    return el("div", { class: "warnings", role: "note" }, items(list.slice(0, WARNINGS)),
      list.length > WARNINGS && el("details", {}, el("summary", {}, `${count(list.length - WARNINGS)} more`), items(list.slice(WARNINGS))));
  }

  const named = (run, series) => run.document.subjects?.[series.subject]?.name ?? Format.MISSING;

  /** What was measured on several targets, the best of which comes first: `{key, label, run, series}`. */
  const measures = runs.flatMap((run) => {
    const keyOf = (series) => JSON.stringify([series.measure, series.unit, series.caches, series.level, series.second_level]);
    const groups = new Map();
    for (const series of run.document.series ?? []) groups.set(keyOf(series), [...(groups.get(keyOf(series)) ?? []), series]);
    return [...groups.values()].filter((group) => group.length > 1 && group[0].level === null).map((group) => {
      const sign = group[0].unit.endsWith("/s") ? -1 : 1;
      const label = runs.length > 1 ? `${run.name}: ${group[0].measure}` : group[0].measure;
      return { label, run, series: [...group].sort((a, b) => sign * (num(a.spread.median) - num(b.spread.median))) };
    });
  }).map((measure, at) => ({ key: `${at}`, ...measure }));

  /** The picture of the verdict: every target, the best first, with the range of its samples. */
  function picture() {
    if (!measures.length) return null;
    const { COLORS } = Bench;
    const chosen = (state) => measures.find((measure) => measure.key === state.measure);
    const color = (hue, series) => hue(COLORS[series.subject % COLORS.length]);
    return new Figures.Figure({
      name: "verdict",
      title: "Targets, the best first",
      heading: (state) => `Targets by ${chosen(state).label}, the best first`,
      note: "Bars are solid up to the smallest sample and faint up to the largest; the figure is the median.",
      alt: "Bar chart of the median and the range of the samples of each target",
      state: { measure: measures[0].key },
      controls: measures.length > 1 ? [{ key: "measure", label: "Measure", select: measures.length > BUTTONS, options: measures.map(({ key, label }) => [key, label]) }] : [],
      rows: (state, hue) => chosen(state).series.map((series) => {
        const { median, min, max } = series.spread;
        const label = named(chosen(state).run, series);
        return {
          label, value: num(max), text: figure(series),
          parts: [{ value: num(min), color: color(hue, series) }, { value: num(max) - num(min), color: `${color(hue, series)}55` }],
          tip: { title: label, name: true, rows: [["median", median], ["smallest sample", min], ["largest sample", max]].map(([name, value]) => ({ label: name, value: written(value, series.unit) })) },
        };
      }),
    });
  }

  /** The verdict: for each measure the best target, how far it is ahead of the next, and the spread of its samples. */
  function verdict() {
    if (!measures.length) return null;
    const rows = measures.map(({ label, run, series: [best, next] }) => {
      const [low, high] = [best, next].map((series) => num(series.spread.median)).sort((a, b) => a - b);
      const range = Math.max(...[best, next].map((series) => num(series.spread.max) - num(series.spread.min)));
      const sampled = num(best.spread.count) > 1 && num(next.spread.count) > 1;
      const apart = high - low > range;
      return [{ text: label, name: true }, { text: named(run, best), name: true }, { text: figure(best), value: num(best.spread.median) },
        { text: `${named(run, next)}, ${figure(next)}`, name: true }, low > 0 ? { text: `${Format.decimal(high / low, high / low < 10 ? 2 : 0)} times`, value: high / low } : Format.MISSING,
        low > 0 && sampled ? Format.cells.share(range / low) : Format.MISSING, !sampled ? "one sample" : apart ? "clear" : "noise"];
    });
    const { host } = runs[0].document;
    return el("div", { class: "block" }, el("h2", { class: "small" }, "Verdict"),
      el("p", { class: "note" }, host && `Load average of the machine: ${Format.decimal(host.load_before, 1)} before, ${Format.decimal(host.load_after, 1)} after, ` +
        `on ${count(host.cpus)} ${num(host.cpus) === 1 ? "processor" : "processors"}. Spread: the range of the samples as a share of the smaller median; a distance below it is noise.`),
      Format.table({
        caption: "Verdict by measure",
        columns: [{ title: "Measure", text: true }, { title: "Best", text: true }, { title: "Median" }, { title: "Next", text: true }, { title: "Distance" }, { title: "Spread" }, { title: "Verdict", text: true }],
        rows,
      }));
  }

  const figure = ({ spread, unit }) => written(spread.median, unit);

  function written(text, unit) {
    const value = num(text);
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
    nodes: [header(), Shell.summary((data.words ?? []).slice(0, 1)), warning(), picture(), verdict(), Shell.words((data.words ?? []).slice(1))],
    footer: footer(),
  });
});
