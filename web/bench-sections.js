// The page of benches, first part: what all of them share, and the sections of `bench create` and `bench pack`. Each
// function takes the data of the page and returns `{id, title, short, lead, parts}`, or null where there is no such
// bench.
"use strict";

const Bench = (() => {
  const { num, known, count, size, duration } = Format;
  const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const DASHES = [[undefined, undefined], ["dashed", [6, 4]], ["dotted", [1.5, 3]], ["dashdot", [8, 3, 2, 3]]];
  const LINEAR_OR_LOG = { key: "axis", label: "Vertical axis", options: [["log", "Log"], ["linear", "Linear"]] };

  const runs = (data, bench) => (data.runs ?? []).filter((run) => run.document.details.bench === bench);

  /**
   * The subjects of all runs of a bench, for charts that lay them over one another. A subject has the same colour in
   * every run; runs differ in their dashes, and so do subjects beyond the sixth.
   */
  function views(data, bench) {
    const of = runs(data, bench);
    const names = [...new Set(of.flatMap((run) => run.document.subjects.map((subject) => subject.name)))];
    return of.flatMap((run, at) => run.document.subjects.map((subject, index) => {
      const place = names.indexOf(subject.name);
      const [dash, type] = DASHES[(at + Math.floor(place / COLORS.length)) % DASHES.length];
      return {
        run, subject, index, dash, type, color: COLORS[place % COLORS.length], key: `${at}:${index}`,
        name: of.length > 1 ? `${subject.name}, ${run.name}` : subject.name,
        series: (measure, level) => run.document.series.find((series) =>
          series.subject === index && series.measure === measure && (level === undefined || num(series.level) === level)),
      };
    }));
  }

  const legend = (list, color) => (list.length > 1
    ? list.map((view) => ({ key: view.key, label: view.name, name: true, color: color(view.color), dash: view.dash })) : []);

  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : undefined;
  };

  /** `3.2 x`: how many times; three digits. */
  function times(ratio) {
    if (!known(ratio)) return Format.MISSING;
    return `${Format.decimal(ratio, ratio >= 99.95 ? 0 : ratio >= 9.995 ? 1 : 2)} x`;
  }

  /** A figure of a series with its unit. */
  function figure(value, unit) {
    if (!known(value)) return Format.MISSING;
    if (unit === "seconds") return duration(value);
    if (unit === "bytes") return size(Math.round(value));
    if (unit === "bytes/s") return `${size(Math.round(value))}/s`;
    return `${count(value)}/s`;
  }

  const spread = (series) => (series && num(series.spread.count) > 1 ? `± ${Format.share(series.spread.normalised_deviation)}` : "");

  return { COLORS, DASHES, LINEAR_OR_LOG, runs, views, legend, median, times, figure, spread };
})();

const BenchFiles = (() => {
  const { el, num, known, count, size, duration, cells, table } = Format;
  const { Figure, line, band } = Figures;
  const { LINEAR_OR_LOG, views, legend, median, times } = Bench;
  const PHASES = [["create", "Create"], ["stat", "Stat"], ["delete", "Delete"]];

  // ---------------------------------------------------------------- create

  const phasesOf = (view, phase) => view.run.document.details.phases.filter((each) => each.subject === view.index && each.phase === phase);
  const curveOf = (view, phase) => view.run.curves.find((each) => each.subject === view.index && each.phase === phase)?.points ?? [];
  const usual = (view, phase, value) => median(phasesOf(view, phase).map(value));

  function curves(data) {
    const all = views(data, "create");
    const phases = PHASES.filter(([phase]) => all.some((view) => curveOf(view, phase).length > 0));
    if (!phases.length) return null;
    const shown = (state) => all.filter((view) => !state.hidden.has(view.key) && curveOf(view, state.phase).length);
    const nearest = (points, at) => points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    const figure = new Figure({
      name: "nth",
      title: "Time of the n-th operation",
      heading: (state) => `Time of the n-th ${state.phase}`,
      note: "Means of adjacent operations. With several rounds: the median, and a shaded band from the lowest to the highest.",
      alt: "Time of individual operations by operation number, one line per target",
      state: { phase: phases[0][0], axis: "log" },
      controls: [{ key: "phase", label: "Operation", options: phases }, LINEAR_OR_LOG],
      legend: (color) => legend(all, color),
      layout(state, color) {
        const list = shown(state);
        const log = state.axis === "log";
        const last = Math.max(1, ...list.map((view) => curveOf(view, state.phase).at(-1)[0]));
        const positive = (points) => points.filter(([, value]) => !log || value > 0);
        return {
          x: { scale: "linear", unit: "count", title: "Operation number", full: [0, last], least: last / 64, stops: list.length ? curveOf(list[0], state.phase).map(([x]) => x) : [] },
          panels: [{
            title: "Time per operation", unit: "seconds", log,
            series: list.flatMap((view) => {
              const points = curveOf(view, state.phase);
              const several = points.some(([, , low, high]) => low !== high);
              return [...(several ? [band(points.map(([x, , low]) => [x, low]), points.map(([x, , , high]) => [x, high]), { color: color(view.color) })] : []),
                line(positive(points.map(([x, middle]) => [x, middle])), { color: color(view.color), dash: view.type, width: 1.75 })];
            }),
          }],
          tip: (at) => list.length > 0 && {
            title: `Operation ${count(Math.round(at))}`, columns: ["mean", "lowest", "highest"],
            rows: list.map((view) => {
              const [, middle, low, high] = nearest(curveOf(view, state.phase), at);
              return { color: color(view.color), dash: view.dash, label: view.name, value: [duration(middle), duration(low), duration(high)] };
            }),
          },
        };
      },
      table(state) {
        const list = all.filter((view) => phasesOf(view, state.phase).length);
        const figures = [["50 %", (l) => l.p50_ns], ["90 %", (l) => l.p90_ns], ["99 %", (l) => l.p99_ns], ["99.9 %", (l) => l.p999_ns],
          ["Longest", (l) => l.max_ns], ["First 1,000", (l) => l.first_mean_ns], ["Last 1,000", (l) => l.last_mean_ns]];
        return {
          caption: `Time per ${state.phase}`, sortable: true,
          columns: [{ title: "", text: true }, ...figures.map(([title]) => ({ title }))],
          rows: list.map((view) => [{ text: view.name, name: true }, ...figures.map(([, value]) => {
            const seconds = usual(view, state.phase, (each) => num(value(each.latencies))) / 1e9;
            return { text: duration(seconds), value: seconds };
          })]),
        };
      },
    });
    return { id: "nth", title: "Does the n-th operation take as long as the first?", short: "The n-th", lead: [], parts: [figure] };
  }

  function totals(data) {
    const all = views(data, "create");
    const phases = PHASES.filter(([phase]) => all.some((view) => phasesOf(view, phase).length > 0));
    if (!phases.length) return null;
    const perSecond = (view, phase, synced) => usual(view, phase, (each) => num(each.latencies.count) /
      Math.max(1e-9, num(each.elapsed_seconds) + (synced ? num(each.sync_seconds) : 0)));
    const figure = new Figure({
      name: "rates",
      title: "Operations per second",
      note: "By wall time, including the harness; with or without the write-back that follows.",
      alt: "Bar chart of operations per second of each target",
      state: { phase: phases[0][0], counted: "without" },
      controls: [{ key: "phase", label: "Operation", options: phases }, { key: "counted", label: "Includes", options: [["without", "Without sync"], ["with", "With sync"]] }],
      rows: (state, color) => all.filter((view) => phasesOf(view, state.phase).length).map((view) => {
        const rate = perSecond(view, state.phase, state.counted === "with");
        return {
          label: view.name, value: rate, text: `${count(rate)}/s`, color: color(view.color),
          tip: { title: view.name, name: true, rows: [{ label: "without sync", value: `${count(perSecond(view, state.phase, false))}/s` },
            { label: "with sync", value: `${count(perSecond(view, state.phase, true))}/s` }] },
        };
      }),
    });
    const foddex = el("div", { class: "block" }, el("h3", {}, "Files, total time, average"), table({
      caption: "Files, total time and average of each operation", sortable: true,
      columns: [{ title: "", text: true }, { title: "Files" }, ...phases.flatMap(([, title]) => [{ title: `${title}: time` }, { title: "average" }, { title: "sync afterwards" }])],
      rows: all.map((view) => [{ text: view.name, name: true }, cells.count(usual(view, phases[0][0], (each) => num(each.latencies.count))),
        ...phases.flatMap(([phase]) => {
          const cell = (seconds) => (known(seconds) ? { text: duration(seconds), value: seconds } : Format.MISSING);
          return [cell(usual(view, phase, (each) => num(each.elapsed_seconds))),
            cell(usual(view, phase, (each) => num(each.elapsed_seconds) / Math.max(1, num(each.latencies.count)))),
            cell(usual(view, phase, (each) => num(each.sync_seconds)))];
        })]),
    }));
    const limits = all.flatMap((view) => view.run.document.details.phases.filter((each) => each.subject === view.index && each.limit).map((each) => each.limit));
    return { id: "totals", title: "Operation rates", short: "Rates", lead: [...new Set(limits)].map((limit) => `${limit}.`), parts: [figure, foddex] };
  }

  // ---------------------------------------------------------------- pack

  const WAYS = [["files", "files"], ["store", "granulo store"], ["composite", "composite file"], ["flat", "flat file"]];
  /** What loads are compared with: the first of these that there is. */
  const ONE = ["flat", "composite", "store"];
  const TINTS = { files: "c1", store: "c2", composite: "c3", flat: "c4" };

  /** Every load of a subject: `{way, label, series}`. */
  const loads = (view) => WAYS.flatMap(([way, label]) => view.run.document.series
    .filter((series) => series.subject === view.index && series.measure.startsWith(`${way} load`))
    .map((series) => ({ way, label: `${label}${series.measure.slice(`${way} load`.length)}`, series })));

  /** The file system of a subject, as the source's table names it. */
  function kindOf({ file_system: system }) {
    const made = /^mkfs\.(\w+)/.exec(system.made_by ?? "")?.[1];
    return made ?? ({ vfat: "fat", msdos: "fat", "fuse.fusefat": "fat", ntfs3: "ntfs" }[system.kind] ?? system.kind);
  }

  const MEASURES = {
    load(view) {
      const one = ONE.map((way) => view.series(`${way} load`)).find(Boolean)?.spread.median;
      const measured = loads(view).map(({ way, label, series }) => ({
        way, label, value: num(series.spread.median), times: one ? num(series.spread.median) / one : undefined, spread: Bench.spread(series),
      }));
      const published = (view.run.document.details.published ?? []).filter((row) => row.file_system === kindOf(view.subject));
      return [...measured, ...published.map((row) => ({
        way: "then", label: `published, ${row.system}: many versus one`, value: num(row.many_files_seconds), times: num(row.many_files_seconds) / num(row.one_file_seconds), spread: "",
      }))];
    },
    write: (view) => WAYS.flatMap(([way, label]) => {
      const [created, synced] = [view.series(`${way} create`), view.series(`${way} sync`)];
      return created ? [{ way, label, value: num(created.spread.median) + num(synced?.spread.median), spread: Bench.spread(created) }] : [];
    }),
    space: (view) => WAYS.flatMap(([way, label]) => {
      const found = view.run.document.details.space.find((each) => each.subject === view.index && each.way === way);
      const bytes = num(view.run.document.details.bytes);
      return found ? [{ way, label, value: num(found.allocated_bytes), times: bytes ? num(found.allocated_bytes) / bytes : undefined, spread: "" }] : [];
    }),
  };

  function pack(data) {
    const all = views(data, "pack");
    if (!all.length) return null;
    const rowsOf = (state) => all.flatMap((view) => MEASURES[state.measure](view).map((row) => ({ view, ...row })));
    const text = (state, value) => (state.measure === "space" ? size(value) : duration(value));
    const asTimes = (state, row) => (row.times === undefined ? "" : state.measure === "space" ? `${times(row.times)} of the bytes` : `${times(row.times)} of one file`);
    const measures = [["load", "Read everything"], ["write", "Write everything, durably"], ["space", "Space"]];
    const figure = new Figure({
      name: "pack",
      title: "Many files versus one",
      note: "Times are medians. One file: a flat file with the same bytes on the same file system, read in pieces. Published: Vorontsov, on an external disk.",
      alt: "Bar chart of the time for each way of storing the same files on each file system",
      state: { measure: "load" },
      controls: [{ key: "measure", label: "Measurement", options: measures }],
      legend: (color, state) => [...WAYS.map(([way, label]) => ({ label, color: color(TINTS[way]) })),
        ...(state.measure === "load" && rowsOf(state).some((row) => row.way === "then") ? [{ label: "then", color: color("published") }] : [])],
      rows: (state, color) => rowsOf(state).map((row) => ({
        label: `${row.view.name}: ${row.label}`, value: row.value, text: [text(state, row.value), row.spread, asTimes(state, row)].filter(Boolean).join("  "),
        color: color(TINTS[row.way] ?? "published"),
        tip: { title: row.view.name, name: true, rows: [{ label: row.label, value: text(state, row.value) }, ...(row.times === undefined ? [] : [{ label: state.measure === "space" ? "of the bytes" : "of one file", value: times(row.times) }])] },
      })),
      table: (state) => ({
        caption: measures.find(([key]) => key === state.measure)[1], sortable: true,
        columns: [{ title: "", text: true }, { title: "Stored as", text: true }, { title: state.measure === "space" ? "Allocated" : "Time" }, { title: "Spread" }, { title: state.measure === "space" ? "Of the bytes" : "Of one file" }],
        rows: rowsOf(state).map((row) => [{ text: row.view.name, name: true }, row.label, { text: text(state, row.value), value: row.value }, row.spread,
          { text: row.times === undefined ? Format.MISSING : times(row.times), value: row.times ?? 0 }]),
      }),
    });
    const failed = all.flatMap((view) => (view.run.document.details.failures ?? []).filter((each) => each.subject === view.index)
      .map((each) => `Not measured on ${view.name}: ${Object.fromEntries(WAYS)[each.way] ?? each.way}: ${each.cause}.`));
    const first = all[0].run.document.details;
    return { id: "pack", title: "Many files or one", short: "Many or one", lead: [`Packed: ${first.population}, ${size(first.bytes)}.`, ...failed], parts: [figure] };
  }

  return { curves, totals, pack };
})();
