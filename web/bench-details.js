// The page of benches, second part: the sections of `bench fill`, `bench metadata` and `bench cache`, and what was
// measured on.
"use strict";

const BenchLevels = (() => {
  const { el, num, known, count, size, share, duration, cells, table, heat } = Format;
  const { Figure, line, band } = Figures;
  const { COLORS, DASHES, LINEAR_OR_LOG, runs, views, legend, median, times } = Bench;

  // ---------------------------------------------------------------- fill

  const TESTS = ["create directories", "find directories", "find and remove directories", "write", "read", "create files", "delete files"];
  const seriesOf = (view, test) => view.run.document.series.filter((series) => series.subject === view.index && series.measure === test && known(series.level))
    .sort((a, b) => num(a.level) - num(b.level));
  const levelsOf = (all) => [...new Set(all.flatMap((view) => TESTS.flatMap((test) => seriesOf(view, test).map((series) => num(series.level)))))].sort((a, b) => a - b);

  /** The fill levels as an x axis, with a little room beside them. */
  function levelAxis(levels) {
    const room = levels.length > 1 ? (levels.at(-1) - levels[0]) * 0.03 : 0.01;
    return { scale: "linear", unit: "share", title: "Used / (used + available)", snap: true, full: [levels[0] - room, levels.at(-1) + room], least: Math.max(0.005, room), stops: levels };
  }

  const atLevel = (levels, at) => levels.reduce((best, level) => (Math.abs(level - at) < Math.abs(best - at) ? level : best));

  function fill(data) {
    const all = views(data, "fill");
    const levels = levelsOf(all);
    if (!levels.length) return null;
    const tests = TESTS.filter((test) => all.some((view) => seriesOf(view, test).length));
    const axis = levelAxis(levels);
    const absolute = new Figure({
      name: "fill",
      title: "A test over the fill level",
      heading: (state) => `Time to ${state.test}, by fill level`,
      note: "Means of the repeated tests; the shaded band is one standard deviation to each side.",
      alt: "Time of a test by fill level, one line per target",
      state: { test: tests[0], axis: "linear" },
      controls: [{ key: "test", label: "Test", select: true, options: tests.map((test) => [test, test]) }, LINEAR_OR_LOG],
      legend: (color) => legend(all, color),
      layout(state, color) {
        const list = all.filter((view) => !state.hidden.has(view.key) && seriesOf(view, state.test).length);
        return {
          x: axis,
          panels: [{
            title: "Time", unit: "seconds", log: state.axis === "log",
            series: list.flatMap((view) => {
              const points = seriesOf(view, state.test).map(({ level, spread }) => [num(level), num(spread.mean), num(spread.mean) * num(spread.normalised_deviation)]);
              const to = (sign) => points.map(([level, mean, deviation]) => [level, Math.max(0, mean + sign * deviation)]);
              return [band(to(-1), to(1), { color: color(view.color) }),
                line(points.map(([level, mean]) => [level, mean]), { color: color(view.color), dash: view.type, symbol: "circle" })];
            }),
          }],
          tip(at) {
            const level = atLevel(levels, at);
            const rows = list.map((view) => [view, view.series(state.test, level)]).filter(([, series]) => series);
            return rows.length > 0 && {
              title: `${share(level)} full`, columns: ["mean", "deviation"],
              rows: rows.map(([view, series]) => ({ color: color(view.color), dash: view.dash, label: view.name, value: [duration(series.spread.mean), Bench.spread(series)] })),
            };
          },
        };
      },
      table: (state) => ({
        caption: `Time to ${state.test} by fill level`,
        columns: [{ title: "Level", text: true }, ...all.flatMap((view) => [{ title: Format.shorten(view.name, 28) }, { title: "±" }])],
        rows: levels.map((level) => [cells.share(level), ...all.flatMap((view) => {
          const series = view.series(state.test, level);
          return [series ? cells.duration(series.spread.mean) : Format.MISSING, Bench.spread(series)];
        })]),
      }),
    });
    const keys = all.map((view) => [view.key, view.name]);
    const viewOf = (state) => all.find((view) => view.key === state.view);
    const first = (view, test) => num(seriesOf(view, test)[0]?.spread.mean);
    const lookOf = (test) => ({ color: COLORS[TESTS.indexOf(test) % COLORS.length], dash: DASHES[Math.floor(TESTS.indexOf(test) / COLORS.length)] });
    const relative = new Figure({
      name: "fill-relative",
      title: "All tests, as multiples of the lowest level",
      alt: "Time of every test by fill level, divided by the time at the lowest level",
      state: { view: keys[0][0], axis: "linear" },
      controls: [...(keys.length > 1 ? [{ key: "view", label: "Targets", select: true, options: keys }] : []), LINEAR_OR_LOG],
      legend: (color) => tests.map((test) => ({ key: test, label: test, color: color(lookOf(test).color), dash: lookOf(test).dash[0] })),
      layout(state, color) {
        const view = viewOf(state);
        const list = tests.filter((test) => !state.hidden.has(test) && first(view, test) > 0);
        return {
          x: axis,
          panels: [{
            title: "Time, relative to the lowest level", unit: "ratio", log: state.axis === "log",
            series: list.map((test) => line(seriesOf(view, test).map(({ level, spread }) => [num(level), num(spread.mean) / first(view, test)]),
              { color: color(lookOf(test).color), dash: lookOf(test).dash[1], symbol: "circle" })),
          }],
          tip(at) {
            const level = atLevel(levels, at);
            const rows = list.map((test) => [test, view.series(test, level)]).filter(([, series]) => series);
            return rows.length > 0 && {
              title: `${view.name}, ${share(level)} full`, columns: ["multiple", "mean"],
              rows: rows.map(([test, series]) => ({ color: color(lookOf(test).color), dash: lookOf(test).dash[0], label: test, value: [times(num(series.spread.mean) / first(view, test)), duration(series.spread.mean)] })),
            };
          },
        };
      },
      table(state) {
        const view = viewOf(state);
        return {
          caption: `Multiples of the lowest level: ${view.name}`,
          columns: [{ title: "Level", text: true }, ...tests.map((test) => ({ title: test }))],
          rows: levels.map((level) => [cells.share(level), ...tests.map((test) => {
            const series = view.series(test, level);
            return series && first(view, test) > 0 ? times(num(series.spread.mean) / first(view, test)) : Format.MISSING;
          })]),
        };
      },
    });
    const reached = el("div", { class: "block" }, el("h3", {}, "Fill levels reached"), table({
      caption: "Levels reached", columns: [{ title: "", text: true }, { title: "Level" }, { title: "Reached" }, { title: "After the tests" }, { title: "Files" }, { title: "Bytes" }, { title: "Deleted" }, { title: "Extents per file" }],
      rows: all.flatMap((view) => view.run.document.details.reached.filter((row) => row.subject === view.index).map((row) => [{ text: view.name, name: true },
        cells.share(row.level), cells.share(row.reached), cells.share(row.after), cells.count(row.files), cells.size(row.bytes), cells.count(row.deleted),
        cells.decimal(row.extents_per_file, 2)])),
    }));
    const out = all.flatMap((view) => (view.run.document.details.left_out ?? []).filter((row) => row.subject === view.index).map((row) =>
      `Skipped on ${view.name}${row.tests.length ? ` from ${share(row.level)} on: ${row.tests.join(", ")}` : `: ${share(row.level)}`}: ${row.cause}.`));
    return { id: "fill", title: "From which fill level does performance degrade?", short: "Fill level", lead: out, parts: [absolute, relative, reached] };
  }

  // ---------------------------------------------------------------- metadata

  /** Points of a subject, one for each load that was offered: the middle of the rounds. */
  function loadPoints(view) {
    const points = view.run.document.details.load_points.filter((point) => point.subject === view.index);
    const offered = [...new Set(points.map((point) => num(point.offered_per_second)))].sort((a, b) => a - b);
    return offered.map((rate) => {
      const these = points.filter((point) => num(point.offered_per_second) === rate);
      const of = (key) => median(these.map((point) => num(point[key])));
      return { offered: rate, achieved: of("achieved_per_second"), response: of("response_ms") / 1e3, p50: of("p50_ms") / 1e3, p99: of("p99_ms") / 1e3 };
    });
  }

  function load(data) {
    const all = views(data, "metadata").filter((view) => loadPoints(view).length);
    if (!all.length) return null;
    const offered = [...new Set(all.flatMap((view) => loadPoints(view).map((point) => point.offered)))].sort((a, b) => a - b);
    const place = (rate) => Math.log2(rate);
    const stops = offered.map(place);
    const RESPONSES = [["response", "Mean"], ["p50", "50 %"], ["p99", "99 %"]];
    const nearest = (view, at) => loadPoints(view).find((point) => Math.abs(place(point.offered) - at) < 1e-6);
    const figure = new Figure({
      name: "load",
      title: "Response time by load",
      note: "Operations are offered at a fixed rate (open loop); response time counts from the scheduled time. Where a line of the lower chart leaves the diagonal, the target is overloaded.",
      alt: "Response time and achieved rate by offered load, one line per target",
      state: { response: "response" },
      controls: [{ key: "response", label: "Response time", options: RESPONSES }],
      legend: (color) => legend(all, color),
      layout(state, color) {
        const list = all.filter((view) => !state.hidden.has(view.key));
        const lines = (key) => list.map((view) => line(loadPoints(view).map((point) => [place(point.offered), point[key]]).filter(([, value]) => value > 0),
          { color: color(view.color), dash: view.type, symbol: "circle" }));
        return {
          x: { scale: "log2", unit: "count", title: "Offered operations per second", snap: true, full: [stops[0] - 0.2, stops.at(-1) + 0.2], least: 0.5, stops },
          panels: [{ title: "Response time", unit: "seconds", log: true, series: lines(state.response) },
            { title: "Achieved operations per second", unit: "count", log: true, series: [line(offered.map((rate) => [place(rate), rate]), { color: color("published"), width: 1.25 }), ...lines("achieved")] }],
          tip(at) {
            const rows = list.map((view) => [view, nearest(view, stops.reduce((best, stop) => (Math.abs(stop - at) < Math.abs(best - at) ? stop : best)))]).filter(([, point]) => point);
            return rows.length > 0 && {
              title: `${count(rows[0][1].offered)} per second offered`, columns: ["achieved", "mean", "99 %"],
              rows: rows.map(([view, point]) => ({ color: color(view.color), dash: view.dash, label: view.name, value: [`${count(point.achieved)}/s`, duration(point.response), duration(point.p99)] })),
            };
          },
        };
      },
      table: () => ({
        caption: "Load and response time",
        columns: [{ title: "", text: true }, { title: "Offered" }, { title: "Achieved" }, { title: "Mean" }, { title: "50 %" }, { title: "99 %" }],
        rows: all.flatMap((view) => loadPoints(view).map((point) => [{ text: view.name, name: true }, `${count(point.offered)}/s`, `${count(point.achieved)}/s`, cells.duration(point.response), cells.duration(point.p50), cells.duration(point.p99)])),
      }),
    });
    return { id: "load", title: "Sustained load", short: "Load", lead: [], parts: [figure] };
  }

  /** Measures of a metadata run beside those of Table III. */
  const CACHES = { cold: "caches cold", warm: "caches warm", "as-is": "caches as they were" };
  const COMPARED = [["peak load", "sfs", "Operation mix"], ["check", "check", "Full check"], ["deep check", null, "Check of every byte"], ["list", "list", "Directory listing with attributes"], ["reads, 1 thread", "reads", "Small files, reads, 1 thread"]];

  function metadata(data) {
    const all = views(data, "metadata");
    if (!all.length) return null;
    const others = [...new Set(all.flatMap((view) => view.run.document.series.filter((series) => series.subject === view.index).map((series) => series.measure)))]
      .filter((measure) => /^reads, (?!1 thread)/.test(measure)).map((measure) => [measure, null, `Small files, ${measure}`]);
    const compared = [...COMPARED, ...others].filter(([measure]) => all.some((view) => view.series(measure)));
    if (!compared.length) return null;
    const published = (key) => (data.table_3 ?? []).find((row) => row.benchmark === key);
    const find = (state) => compared.find(([measure]) => measure === state.measure);
    const cachesOf = (measure) => CACHES[all.map((view) => view.series(measure)?.caches).find(Boolean)];
    const figure = new Figure({
      name: "metadata",
      title: "Table III, measured",
      heading: (state) => [find(state)[2], cachesOf(state.measure)].filter(Boolean).join(", "),
      note: "Medians. Grey rows: Welch and Noer on a ten-blade chassis with more files; compare their ratios, not their figures.",
      alt: "Bar chart of a metadata benchmark, one bar per target",
      state: { measure: compared[0][0] },
      controls: [{ key: "measure", label: "Benchmark", select: true, options: compared.map(([measure, , title]) => [measure, title]) }],
      rows(state, color) {
        const [measure, key] = find(state);
        const measured = all.flatMap((view) => {
          const series = view.series(measure);
          return series ? [{
            label: view.name, value: num(series.spread.median), text: [Bench.figure(series.spread.median, series.unit), Bench.spread(series)].filter(Boolean).join("  "), color: color(view.color),
            tip: { title: view.name, name: true, rows: [{ label: measure, value: Bench.figure(series.spread.median, series.unit) }] },
          }] : [];
        });
        const row = key && published(key);
        // Bars of another machine have no common scale with these: only their text stands here.
        return [...measured, ...(row ? [["all on disks", row.all_disk], ["hybrid", row.hybrid]].map(([label, value]) => ({
          label: `Welch and Noer, ${label}`, value: 0, text: Bench.figure(value, row.unit), color: color("published"), tip: null,
        })) : [])];
      },
    });
    const numbers = el("div", { class: "block" }, el("h3", {}, "All benchmarks"), table({
      caption: "Metadata benchmarks", sortable: true,
      columns: [{ title: "", text: true }, ...compared.map(([, , title]) => ({ title }))],
      rows: [...all.map((view) => [{ text: view.name, name: true }, ...compared.map(([measure]) => {
        const series = view.series(measure);
        return series ? { text: Bench.figure(series.spread.median, series.unit), value: num(series.spread.median) } : Format.MISSING;
      })]), ...((data.table_3 ?? []).length ? [["Welch and Noer, hybrid versus disks", ...compared.map(([, key]) => {
        const row = key && published(key);
        return row ? times(row.unit === "seconds" ? row.all_disk / row.hybrid : row.hybrid / row.all_disk) : Format.MISSING;
      })]] : [])],
    }));
    const limits = runs(data, "metadata").flatMap((run) => run.document.details.limits ?? []);
    return { id: "metadata", title: "Check, list, read", short: "Metadata", lead: limits, parts: [figure, numbers] };
  }

  // ---------------------------------------------------------------- cache

  /** Subjects that differ in their block size alone. */
  function groups(all) {
    const found = new Map();
    for (const view of all) {
      const name = view.name.replace(` ${size(view.subject.file_system.block_bytes)}`, "");
      found.set(name, [...(found.get(name) ?? []), view].sort((a, b) => num(a.subject.file_system.block_bytes) - num(b.subject.file_system.block_bytes)));
    }
    return [...found];
  }

  const FAILURES = { "too-long": "too long", "out-of-memory": "no memory", failed: "failed" };

  function cache(data) {
    const all = views(data, "cache");
    if (!all.length) return null;
    const parts = groups(all).flatMap(([name, list], index) => {
      const { details } = list[0].run.document;
      const caches = details.cache_sizes_bytes.map(num);
      const blocks = list.map((view) => num(view.subject.file_system.block_bytes));
      const cellOf = (view, bytes) => view.run.document.details.cells.find((cell) => cell.subject === view.index && num(cell.cache_bytes) === bytes);
      const seconds = (view, bytes) => view.series("run", bytes)?.spread.median;
      const map = el("div", { class: "block heat" }, el("h3", { class: "name" }, `${name}: run time`),
        el("p", { class: "note" }, `The limit covers page cache and program memory together. Without a limit, a run took ${duration(details.unlimited_seconds)} and ${size(details.footprint_bytes)} of memory.`),
        heat(`Run time on ${name}, by cache size and block size`, caches, blocks, (row, column) => seconds(list[column], caches[row]),
          (row, column) => FAILURES[cellOf(list[column], caches[row])?.failure?.kind]));
      const stops = caches.map(Math.log2);
      const figure = new Figure({
        name: `cache-${index}`,
        title: `${name}: by cache size`,
        alt: "Run time and bytes read from the device by cache size, one line per block size",
        state: { axis: "log" },
        controls: [LINEAR_OR_LOG],
        legend: (color) => list.map((view, at) => ({ key: view.key, label: `${size(blocks[at])} blocks`, color: color(COLORS[at % COLORS.length]) })),
        layout(state, color) {
          const shown = list.map((view, at) => [view, at]).filter(([view]) => !state.hidden.has(view.key));
          const lines = (value) => shown.map(([view, at]) => line(caches.map((bytes) => [Math.log2(bytes), value(view, bytes)]).filter(([, y]) => known(y) && (state.axis !== "log" || y > 0)),
            { color: color(COLORS[at % COLORS.length]), symbol: "circle" }));
          const read = (view, bytes) => (known(seconds(view, bytes)) ? num(cellOf(view, bytes)?.read_bytes) : undefined);
          return {
            x: { scale: "log2", unit: "bytes", title: "Limit for page cache and programs", snap: true, full: [stops[0] - 0.2, stops.at(-1) + 0.2], least: 0.5, stops },
            panels: [{ title: "Run time", unit: "seconds", log: state.axis === "log", series: lines(seconds) },
              { title: "Read from the device", unit: "bytes", log: state.axis === "log", series: lines(read) }],
            tip(at) {
              const bytes = caches.reduce((best, each) => (Math.abs(Math.log2(each) - at) < Math.abs(Math.log2(best) - at) ? each : best));
              return {
                title: size(bytes), columns: ["time", "read"],
                rows: shown.map(([view, place]) => ({ color: color(COLORS[place % COLORS.length]), label: `${size(blocks[place])} blocks`, value: [duration(seconds(view, bytes)), size(read(view, bytes))] })),
              };
            },
          };
        },
        table: () => ({
          caption: `Cells of ${name}`,
          columns: [{ title: "Cache", text: true }, { title: "Blocks" }, { title: "Time" }, { title: "Spread" }, { title: "Read" }, { title: "Reads" }, { title: "Largest page cache" }],
          rows: caches.flatMap((bytes) => list.map((view, at) => {
            const cell = cellOf(view, bytes);
            const series = view.series("run", bytes);
            return [size(bytes), size(blocks[at]), series ? duration(series.spread.median) : FAILURES[cell?.failure?.kind] ?? Format.MISSING, Bench.spread(series),
              series ? size(cell?.read_bytes) : Format.MISSING, series ? count(cell?.reads) : Format.MISSING, size(cell?.page_cache_bytes)];
          })),
        }),
      });
      return [map, figure];
    });
    const then = data.fig_5;
    const published = then && el("div", { class: "block heat" }, el("h3", {}, "Published: Tanenbaum, Herder and Bos (2006), Fig. 5"),
      el("p", { class: "note" }, "Compiling a large collection of programs; the limit covers only the operating system's cache."),
      heat("The published matrix", then.rows.map(([bytes]) => num(bytes)), then.block_sizes_bytes.map(num), (row, column) => num(then.rows[row][1][column])));
    return { id: "cache", title: "Cache size and block size", short: "Cache", lead: [`Run: ${all[0].run.document.details.workload}.`], parts: [...parts, published] };
  }

  // ---------------------------------------------------------------- what was measured on

  function measuredOn(data) {
    const several = data.runs.length > 1;
    const rows = data.runs.flatMap((run) => run.document.subjects.map((subject) => [run, subject]));
    const places = table({
      caption: "Targets",
      columns: [...(several ? [{ title: "Run", text: true }] : []), { title: several ? "Target" : "", text: true }, { title: "File system", text: true }, { title: "Blocks" }, { title: "Size" }, { title: "Used before" }, { title: "after" },
        { title: "Device", text: true }, { title: "How it was created", text: true }],
      rows: rows.map(([run, { name, file_system: system, device, fill_before: before, fill_after: after }]) => [...(several ? [{ text: run.name, name: true }] : []), { text: name, name: true }, system.kind, cells.size(system.block_bytes), cells.size(system.size_bytes),
        cells.share(before), cells.share(after), `${device.name}${device.emulated ? `, limited to ${count(device.emulated.operations_per_second)} operations/s and ${size(device.emulated.bytes_per_second)}/s` : ""}`,
        { text: system.made_by ?? `existing; ${system.mount_options}`, name: true }]),
    });
    const machines = data.runs.map((run) => {
      const { document } = run;
      const { host } = document;
      return el("div", { class: "block" }, el("h3", { class: "name" }, several ? run.name : "The run"),
        el("dl", { class: "facts" }, [
          ...(host.name ? [["Machine", host.name]] : []), ["Started", Format.time(document.started_at)], ["Duration", duration(document.elapsed_seconds)], ["Kernel", `Linux ${host.kernel}`], ["Processor", `${host.cpu_model || host.machine}, ${count(host.cpus)} processors`],
          ["Memory", size(host.memory_bytes)], ["Load average", `${Format.decimal(host.load_before, 2)} before, ${Format.decimal(host.load_after, 2)} after`], ["Seed", count(document.seed)],
          ["Empty operation", `${count(Math.round(num(document.harness.empty_operation_ns)))} ns${num(document.harness.overhead_fraction) > 0 ? `, ${share(document.harness.overhead_fraction)} of the shortest median` : ""}`],
          ["Versions", [`granulo ${document.granulo_version}`, ...document.tools.map((tool) => `${tool.name} ${tool.version}`.trim())].join("; ")],
        ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "name" }, value)))),
        document.notes.map((note) => el("p", { class: "note name" }, note)),
        el("pre", { class: "name", tabindex: "0", "aria-label": "Command" }, el("code", {}, ["granulo", ...document.command_line.slice(1)].map(Shell.shellWord).join(" "))));
    });
    return { id: "measured-on", title: "Targets", short: "Targets", lead: [], parts: [places, ...machines] };
  }

  return { fill, load, metadata, cache, measuredOn };
})();
