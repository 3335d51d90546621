// The page of a comparison, the sections: what changed most, by size of the files, curves, deciles and distances. Each
// function takes the data of the page and returns a figure, or `{id, title, short, lead, parts}`, or null where there is
// nothing to show.
"use strict";

const Comparisons = (() => {
  const { el, num, size, count, share, cells, signed, table } = Format;
  const { Figure, line, bars, log2, unlog2 } = Figures;
  const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const DASHES = [[undefined, undefined], ["dashed", [6, 4]], ["dotted", [1.5, 3]]];
  const CHART_ROWS = 12;
  const MEASURES = { size_bytes: { title: "Bytes", list: "by_size", text: size }, files: { title: "Files", list: "by_files", text: count } };
  const MEASURE = { key: "measure", label: "Change of", options: Object.entries(MEASURES).map(([key, measure]) => [key, measure.title]) };

  // ---------------------------------------------------------------- what changed

  /** The change that is sure of a directory, whose rows have bounds. */
  function sure(change) {
    if (change === null || typeof change !== "object") return num(change);
    const [least, most] = [num(change.least), num(change.most)];
    return least > 0 ? least : most < 0 ? most : 0;
  }

  /** A change in words: exact, or at least how large it is. */
  function words(change, text) {
    if (change === null || typeof change !== "object" || num(change.least) === num(change.most)) return signed(sure(change), text);
    const value = sure(change);
    return value === 0 ? "unknown" : `${value > 0 ? "≥" : "≤"} ${signed(value, text)}`;
  }

  const extension = (word) => (word === "" ? "(none)" : word.startsWith("(") ? word : `.${word}`);
  const LABELS = {
    directories: (row) => row.path,
    owners: (row) => row.name ?? `uid ${row.uid}`,
    extensions: (row) => extension(row.extension),
  };

  /** The rows that changed most, as bars to both sides of zero. */
  function changed(growth, key, title, first, note) {
    const lists = growth[key];
    const measures = Object.keys(MEASURES).filter((measure) => lists?.[MEASURES[measure].list]?.length);
    if (!measures.length) return null;
    const rowsOf = (state) => lists[MEASURES[state.measure].list];
    return new Figure({
      name: `changed-${key}`,
      title,
      note,
      alt: `Bar chart of what changed most: ${title.toLowerCase()}`,
      state: { measure: measures[0] },
      controls: measures.length > 1 ? [MEASURE] : [],
      legend: (color, state) => {
        const values = rowsOf(state).map((row) => sure(row[state.measure]));
        return [values.some((value) => value > 0) && { label: "grew", color: color("grew"), block: true },
          values.some((value) => value < 0) && { label: "shrank", color: color("shrank"), block: true }].filter(Boolean);
      },
      rows: (state, color) => rowsOf(state).slice(0, CHART_ROWS).map((row) => {
        const value = sure(row[state.measure]);
        return {
          label: LABELS[key](row), value, text: words(row[state.measure], MEASURES[state.measure].text), color: color(value < 0 ? "shrank" : "grew"),
          tip: {
            title: Format.shorten(LABELS[key](row), 200), name: true,
            rows: [{ label: "bytes", value: words(row.size_bytes, size) }, { label: "files", value: words(row.files, count) }],
          },
        };
      }),
      table: (state) => ({
        caption: `${title}, by change of ${MEASURES[state.measure].title.toLowerCase()}`, sortable: true,
        columns: [{ title: first, text: true }, { title: "Change of bytes" }, { title: "Change of files" }],
        rows: rowsOf(state).map((row) => [{ text: LABELS[key](row), name: true },
          { text: words(row.size_bytes, size), value: sure(row.size_bytes) }, { text: words(row.files, count), value: sure(row.files) }]),
      }),
    });
  }

  /** The picture that the page opens with; without directories, the owners or the extensions. */
  function picture({ comparison }) {
    const { growth } = comparison;
    if (!growth) return null;
    const notes = (growth.notes ?? []).map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`).join(" ");
    return changed(growth, "directories", "Directories that changed most", "Directory", `With everything below them. ${notes}`)
      ?? changed(growth, "owners", "Owners whose files changed most", "Owner", notes)
      ?? changed(growth, "extensions", "File types that changed most", "Extension", notes);
  }

  function kinds({ comparison }) {
    const { growth } = comparison;
    if (!growth?.directories?.by_size?.length && !growth?.directories?.by_files?.length) return null;
    const parts = [changed(growth, "owners", "Owners", "Owner"), changed(growth, "extensions", "File types, by extension", "Extension")].filter(Boolean);
    return parts.length ? { id: "kinds", title: "Whose files, and of what type", short: "Owners, types", lead: [], parts } : null;
  }

  const places = (row) => (num(row.high) <= 1 ? [-1.5, -0.5] : [Math.log2(num(row.low)), Math.log2(num(row.high))]);

  /** By size of the files: what came and went in each range of sizes. */
  function sizes({ comparison }) {
    const rows = comparison.growth?.by_size ?? [];
    if (!rows.length) return null;
    const edges = rows.flatMap(places);
    const middle = (row) => places(row).reduce((a, b) => a + b) / 2;
    const holds = (row, place) => place >= places(row)[0] && place < places(row)[1];
    const items = (field) => rows.map((row) => [...places(row), num(row[field])]);
    const figure = new Figure({
      name: "changed-sizes",
      title: "Change by size of the files",
      note: "A bucket goes from one power of two up to, but not including, the next.",
      alt: "Two histograms by file size: change of the number of files, and of the bytes",
      layout: (_, color) => ({
        x: { scale: "log2", unit: "bytes", title: "File size", full: [Math.min(...edges), Math.max(Math.min(...edges) + 2, ...edges)], least: 2, stops: rows.map(middle) },
        panels: [{ title: "Files", unit: "count", series: [bars(items("files"), { color: color("files") })] },
          { title: "Bytes", unit: "bytes", series: [bars(items("size_bytes"), { color: color("bytes") })] }],
        tip(place) {
          const row = rows.find((each) => holds(each, place));
          return row && {
            title: Format.bucket(row.low, row.high, "bytes"),
            rows: [{ color: color("files"), label: "files", value: signed(num(row.files), count) }, { color: color("bytes"), label: "bytes", value: signed(num(row.size_bytes), size) }],
          };
        },
      }),
      table: () => ({
        caption: "Change by size of the files",
        columns: [{ title: "File size", text: true }, { title: "Change of files" }, { title: "Change of bytes" }],
        rows: rows.map((row) => [Format.bucket(row.low, row.high, "bytes"), { text: signed(num(row.files), count), value: row.files }, { text: signed(num(row.size_bytes), size), value: row.size_bytes }]),
      }),
    });
    return { id: "sizes", title: "By file size", short: "Sizes", lead: [], parts: [figure] };
  }

  // ---------------------------------------------------------------- side by side

  /** Name and time of a source, said once. */
  function named({ name, host, taken_at: at }) {
    const more = [host && !name.includes(` on ${host}`) && ` on ${host}`, at && !name.includes(at.split("T")[0]) && `, ${Format.time(at)}`];
    return name + more.filter(Boolean).join("");
  }

  function curves({ comparison }) {
    const { up_to: rows, sources } = comparison;
    if (rows.length < 2 || !sources.length) return null;
    const all = sources.map((source, at) => ({
      at, key: `source ${at}`, label: named(source), color: COLORS[at % COLORS.length], dash: DASHES[Math.floor(at / COLORS.length) % DASHES.length],
    }));
    const points = (each, field) => rows.map((row) => [log2(num(row.size_bytes)), num(row[field][each.at])]);
    const last = log2(num(rows.at(-1).size_bytes));
    const at = (each, field, place) => {
      const list = points(each, field);
      const after = list.findIndex(([edge]) => edge >= place);
      if (after <= 0) return after === 0 ? list[0][1] : 1;
      const [[a, low], [b, high]] = [list[after - 1], list[after]];
      return low + ((place - a) / (b - a)) * (high - low);
    };
    const figure = new Figure({
      name: "compared",
      title: "Share of the files, and of their bytes, in files up to a size",
      note: "Exact at powers of two; lines join them.",
      alt: "Two cumulative curves by file size: files, and bytes",
      legend: (color) => all.map((each) => ({ key: each.key, label: each.label, name: true, color: color(each.color), dash: each.dash[0] })),
      layout(state, color) {
        const list = all.filter((each) => !state.hidden.has(each.key));
        const panel = (title, field) => ({ title, unit: "share", min: 0, max: 1, step: 0.25, series: list.map((each) => line(points(each, field), { color: color(each.color), dash: each.dash[1] })) });
        return {
          x: { scale: "log2", unit: "bytes", title: "File size", full: [-1, Math.max(2, last)], least: 2, stops: rows.map((row) => log2(num(row.size_bytes))) },
          panels: [panel("By files", "files_fraction"), panel("By bytes", "bytes_fraction")],
          tip: (place) => ({
            title: `${size(Math.round(unlog2(place)))} or smaller`, columns: ["of files", "of bytes"],
            rows: list.map((each) => ({ color: color(each.color), dash: each.dash[0], label: Format.shorten(each.label, 40), value: [share(at(each, "files_fraction", place)), share(at(each, "bytes_fraction", place))] })),
          }),
        };
      },
      table: () => ({
        caption: "Share of the files and of their bytes in files of a size or smaller",
        columns: [{ title: "Size up to", text: true }, ...all.flatMap((each) => [{ title: `${each.label}, files` }, { title: `${each.label}, bytes` }])],
        rows: rows.map((row) => [cells.size(row.size_bytes), ...all.flatMap((each) => [cells.fineShare(row.files_fraction[each.at]), cells.fineShare(row.bytes_fraction[each.at])])]),
      }),
    });
    return { id: "curves", title: "Cumulative curves", short: "Curves", lead: [], parts: [figure] };
  }

  function figures({ comparison }) {
    const { sources, distances } = comparison;
    const totals = el("div", { class: "block" }, el("h3", {}, "Totals and deciles"), table({
      caption: "Totals and deciles by files",
      columns: [{ title: "Source", text: true }, { title: "Files" }, { title: "Bytes" }, { title: "Mean" }, ...Array.from({ length: 10 }, (_, tenth) => ({ title: `${10 * (tenth + 1)} %` }))],
      rows: sources.map((source) => [{ text: named(source), name: true }, cells.count(source.files), cells.size(source.size_bytes), cells.size(Math.round(source.mean)), ...source.deciles.map(cells.size)]),
    }));
    const apart = distances.length > 0 && el("div", { class: "block" }, el("h3", {}, "Distances"),
      el("p", { class: "note" }, "Kolmogorov and Smirnov: the largest difference between two cumulative curves, from 0 to 1, and the size at which it is."), table({
        caption: "Distances",
        columns: [{ title: "Between", text: true }, { title: "and", text: true }, { title: "By files" }, { title: "at" }, { title: "By bytes" }, { title: "at" }],
        rows: distances.map((pair) => [{ text: pair.a, name: true }, { text: pair.b, name: true }, { text: Format.decimal(pair.by_files, 3), value: pair.by_files }, cells.size(pair.by_files_at),
          { text: Format.decimal(pair.by_bytes, 3), value: pair.by_bytes }, cells.size(pair.by_bytes_at)]),
      }));
    return { id: "figures", title: "Side by side", short: "Figures", lead: [], parts: [totals, apart].filter(Boolean) };
  }

  return { picture, kinds, sizes, curves, figures, named };
})();
