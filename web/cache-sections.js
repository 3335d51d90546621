// The page of caches, the sections: miss ratios of every cache size, the matrix of times, other policies, the least
// cache. Each function takes the data of the page and returns `{id, title, short, lead, parts}`, or null where there is
// nothing to show.
"use strict";

const Caches = (() => {
  const { el, num, known, count, size, share, fineShare, duration, cells, table, heat } = Format;
  const { Figure, line } = Figures;
  const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const DASHES = [[undefined, undefined], ["dashed", [6, 4]], ["dotted", [1.5, 3]]];
  const look = (at) => ({ color: COLORS[at % COLORS.length], dash: DASHES[Math.floor(at / COLORS.length) % DASHES.length] });
  const titled = (data, text, study) => (data.studies.length > 1 ? `${text}: ${study.trace}` : text);

  /** The miss ratio of a curve at a size: that of the last point that is not larger. */
  const ratioAt = (curve, bytes) => curve.filter((point) => num(point.cache_bytes) <= bytes * (1 + 1e-9)).at(-1)?.miss_ratio;

  // ---------------------------------------------------------------- curves

  function curves(data) {
    const parts = data.studies.map((study, number) => {
      const all = study.block_sizes.map((row, at) => ({ row, key: `${num(row.block_bytes)}`, label: `${size(row.block_bytes)} blocks`, ...look(at) }));
      const points = (each) => each.row.curve.filter((point) => num(point.cache_bytes) > 0).map((point) => [Math.log2(num(point.cache_bytes)), num(point.miss_ratio)]);
      const places = all.flatMap((each) => points(each).map(([place]) => place));
      if (!places.length) return null;
      const [low, high] = [Math.min(...places), Math.max(...places)];
      return new Figure({
        name: `misses-${number}`,
        title: titled(data, "Miss ratio by cache size", study),
        note: "Share of block references that miss in a cache of this size (LRU). The misses that remain in the largest cache are the first references to each block.",
        alt: "Miss ratio by cache size, one line per block size",
        state: { axis: "linear" },
        controls: [{ key: "axis", label: "Vertical axis", options: [["log", "Log"], ["linear", "Linear"]] }],
        legend: (color) => all.map((each) => ({ key: each.key, label: each.label, color: color(each.color), dash: each.dash[0] })),
        layout(state, color) {
          const list = all.filter((each) => !state.hidden.has(each.key));
          const log = state.axis === "log";
          return {
            x: { scale: "log2", unit: "bytes", title: "Cache size", full: [low - 0.1, Math.max(low + 1, high) + 0.1], least: 1, stops: [...new Set(places)].sort((a, b) => a - b) },
            panels: [{ title: "Miss ratio", unit: "share", log, ...(log ? {} : { min: 0 }),
              series: list.map((each) => line(points(each).filter(([, value]) => !log || value > 0), { color: color(each.color), dash: each.dash[1] })) }],
            tip: (place) => list.length > 0 && {
              title: `Cache of ${size(Math.round(2 ** place))}`,
              rows: list.map((each) => ({ color: color(each.color), dash: each.dash[0], label: each.label, value: fineShare(ratioAt(each.row.curve, 2 ** place)) })),
            },
          };
        },
        table: () => ({
          caption: "Block sizes", columns: [{ title: "Block size", text: true }, { title: "References" }, { title: "Distinct blocks" }, { title: "First references" }, { title: "Sufficient cache" }, { title: "Sampled" }],
          rows: all.map(({ row }) => [cells.size(row.block_bytes), cells.count(num(row.references.reads) + num(row.references.partial_writes) + num(row.references.whole_writes)), cells.count(row.blocks), cells.share(row.compulsory_ratio), cells.size(row.enough_bytes), num(row.rate) < 1 ? cells.share(row.rate) : "no"]),
        }),
      });
    }).filter(Boolean);
    return parts.length ? { id: "misses", title: "Miss ratio by cache size", short: "Misses", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- the matrix

  function matrix(data) {
    const parts = data.studies.flatMap((study) => {
      const caches = study.cache_sizes_bytes.map(num);
      const blocks = study.block_sizes.map((row) => num(row.block_bytes));
      const cell = (row, column) => study.cells.find((each) => num(each.cache_bytes) === caches[row] && num(each.block_bytes) === blocks[column]);
      const map = el("div", { class: "block heat" }, el("h3", {}, titled(data, "Predicted time", study)),
        el("p", { class: "note" }, `Misses and writes on a device of ${duration(study.device.latency_seconds)} and ${size(study.device.bytes_per_second)}/s${num(study.base_seconds) > 0 ? `, and ${duration(study.base_seconds)} of everything else` : ""}.`),
        heat("Predicted time by cache size and block size", caches, blocks, (row, column) => cell(row, column)?.seconds));
      const { beside } = study;
      const measured = beside && el("div", { class: "block" }, el("h3", { class: "name" }, `Predicted and measured: ${beside.name}`), el("p", { class: "note name" }, `Run: ${beside.workload}.${beside.is_fitted ? " The time not spent on the device is fitted to the run with the largest memory." : ""}`), table({
        caption: "Predicted and measured",
        columns: [{ title: "", text: true }, { title: "Limit" }, { title: "Blocks" }, { title: "Cache" }, { title: "Measured" }, { title: "Predicted" }, { title: "Difference" }, { title: "Read, measured" }, { title: "predicted" }],
        rows: beside.cells.map((each) => [{ text: each.subject, name: true }, cells.size(each.limit_bytes), cells.size(each.file_system_block_bytes), cells.size(each.cache_bytes), cells.duration(each.measured_seconds), cells.duration(each.predicted_seconds),
          num(each.measured_seconds) > 0 ? cells.change(num(each.predicted_seconds) / num(each.measured_seconds) - 1) : Format.MISSING, cells.size(each.measured_read_bytes), cells.size(each.predicted_read_bytes)]),
      }));
      return [map, measured];
    }).filter(Boolean);
    const then = data.fig_5;
    const published = then && el("div", { class: "block heat" }, el("h3", {}, "Published: Tanenbaum, Herder and Bos (2006), Fig. 5"),
      el("p", { class: "note" }, "Compiling a large collection of programs; the limit covers only the operating system's cache."),
      heat("The published matrix", then.rows.map(([bytes]) => num(bytes)), then.block_sizes_bytes.map(num), (row, column) => num(then.rows[row][1][column])));
    return { id: "matrix", title: "Cache size and block size", short: "Time", lead: [], parts: [...parts, published] };
  }

  // ---------------------------------------------------------------- policies

  function policies(data) {
    const parts = data.studies.filter((study) => study.policies.length > 0).map((study) => {
      const names = [...new Set(study.policies.map((each) => each.policy))];
      const columns = [...new Map(study.policies.map((each) => [`${num(each.block_bytes)}:${num(each.cache_bytes)}`, [num(each.block_bytes), num(each.cache_bytes)]])).values()];
      const of = (policy, [block, cache]) => study.policies.find((each) => each.policy === policy && num(each.block_bytes) === block && num(each.cache_bytes) === cache)?.miss_ratio;
      const lru = ([block, cache]) => study.cells.find((each) => num(each.block_bytes) === block && num(each.cache_bytes) === cache)?.miss_ratio;
      return el("div", { class: "block" }, el("h3", {}, titled(data, "Other policies", study)), table({
        caption: "Miss ratios of other policies", columns: [{ title: "Blocks", text: true }, { title: "Cache" }, { title: "LRU" }, ...names.map((name) => ({ title: name.toUpperCase() }))],
        rows: columns.map((column) => [cells.size(column[0]), cells.size(column[1]), cells.fineShare(lru(column)), ...names.map((name) => cells.fineShare(of(name, column)))]),
      }));
    });
    return parts.length ? { id: "policies", title: "Policies compared", short: "Policies", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- the least cache

  function targets(data) {
    const parts = data.studies.filter((study) => study.block_sizes.some((row) => row.targets.length)).map((study) => {
      const ratios = [...new Set(study.block_sizes.flatMap((row) => row.targets.map((target) => target.miss_ratio)))];
      return el("div", { class: "block" }, el("h3", {}, titled(data, "Smallest cache for a miss ratio", study)), table({
        caption: "Smallest cache for a miss ratio", columns: [{ title: "Block size", text: true }, ...ratios.map((ratio) => ({ title: `${share(ratio)} misses` }))],
        rows: study.block_sizes.map((row) => [cells.size(row.block_bytes), ...ratios.map((ratio) => {
          const target = row.targets.find((each) => each.miss_ratio === ratio);
          return known(target?.cache_bytes) ? cells.size(target.cache_bytes) : "none";
        })]),
      }));
    });
    const notes = data.studies.flatMap((study) => study.notes.map((note) => el("p", { class: "note name" }, note)));
    return parts.length || notes.length ? { id: "targets", title: "How much cache is enough", short: "Sufficient", lead: [], parts: [...parts, ...notes] } : null;
  }

  return { curves, matrix, policies, targets };
})();
