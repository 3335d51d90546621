// The page of histories, the sections: curves over time, growth and forecasts, and every survey. Each function takes the
// data of the page and returns `{id, title, short, lead, parts}`, or null where there is nothing to show.
"use strict";

const Histories = (() => {
  const { el, num, known, count, size, share, inUnit, cells, table, MISSING } = Format;
  const { Figure, line } = Figures;
  const SECONDS_A_DAY = 86400;
  // What a panel shows: title, unit, and its lines.
  const PANELS = [
    ["Files", "count", [["files", "Files", "c1"], ["small_files", "Small files", "c2", "dashed", [6, 4]]]],
    ["Bytes", "bytes", [["size_bytes", "Size", "c3"], ["allocated_bytes", "Allocated", "c4", "dashed", [6, 4]]]],
    ["The file system", "bytes", [["used_bytes", "In use", "c5"], ["full_bytes", "Full", "c6", "dotted", [1.5, 3]]]],
  ];
  const nameOf = (tree) => (tree.host ? `${tree.name} on ${tree.host}` : tree.name);
  const titled = (data, text, tree) => (data.trees.length > 1 ? `${text}: ${nameOf(tree)}` : text);
  const dayOf = (point) => num(point.taken_at_seconds) / SECONDS_A_DAY;
  const current = (trend) => num(trend.recent_per_day ?? trend.per_day);

  /** What is in use and what users may still write: at this, a file system is full, as df has it. */
  const fullAt = (point) => (known(point.used_bytes) && known(point.available_bytes) ? num(point.used_bytes) + num(point.available_bytes) : undefined);

  /** Share in use, as df has it; null where it is unknown. */
  const inUse = (point) => (fullAt(point) > 0 ? num(point.used_bytes) / fullAt(point) : null);

  function signed(value, unit) {
    const whole = Math.round(Math.abs(value));
    if (Math.abs(value) < (unit === "bytes" ? 0.5 : 0.005)) return "±0";
    const text = unit === "bytes" ? size(whole) : Math.abs(value) < 10 ? Format.decimal(Math.abs(value), 2) : count(whole);
    return `${value < 0 ? "−" : "+"}${text}`;
  }

  /** The same as a cell of a table. */
  const growing = (value, unit) => (known(value) ? { text: signed(num(value), unit), value } : MISSING);

  /** Growth a day in words; nothing where it is unknown. */
  const perDay = (trend, unit) => (trend ? `${signed(current(trend), unit)} a day` : null);

  // ---------------------------------------------------------------- curves

  function curves(data) {
    const parts = data.trees.map((tree, number) => {
      const points = tree.points.map((point) => ({ ...point, full_bytes: fullAt(point) }));
      const all = points.map(dayOf);
      const [from, to] = [Math.min(...all), Math.max(...all)];
      if (tree.anonymous || !(to > from)) return null;
      const room = 0.02 * (to - from);
      const of = (field) => points.filter((point) => known(point[field])).map((point) => [dayOf(point), num(point[field])]);
      const list = PANELS.map(([title, unit, lines]) => ({ title, unit, lines: lines.filter(([field]) => of(field).length > 1) })).filter(({ lines }) => lines.length);
      const nearest = (place) => points.reduce((best, point) => (Math.abs(dayOf(point) - place) < Math.abs(dayOf(best) - place) ? point : best));
      return new Figure({
        name: `history-${number}`,
        title: titled(data, "Over time", tree),
        note: "Each point is a survey.",
        alt: "Files, bytes and use of the file system over time",
        state: { from: "zero" },
        controls: [{ key: "from", label: "Vertical axes", options: [["zero", "From 0"], ["least", "Fitted"]] }],
        legend: (color) => list.flatMap(({ lines }) => lines.map(([field, label, tint, dash]) => ({ key: field, label, color: color(tint), dash }))),
        layout(state, color) {
          const seen = list.map((panel) => ({ ...panel, lines: panel.lines.filter(([field]) => !state.hidden.has(field)) }));
          return {
            x: { scale: "linear", unit: "date", title: "Taken (UTC)", snap: true, full: [from - room, to + room], least: Math.max(1 / 24, (to - from) / 200), stops: all },
            panels: seen.map(({ title, unit, lines }) => {
              const values = lines.flatMap(([field]) => of(field).map(([, value]) => value));
              const [least, most] = [Math.min(...values), Math.max(...values)];
              const fitted = state.from === "least" && values.length && most > least ? { min: Math.max(0, least - 0.05 * (most - least)), max: most + 0.05 * (most - least) } : { min: 0 };
              return { title, unit, ...fitted, series: lines.map(([field, , tint, , dash]) => line(of(field), { color: color(tint), dash, symbol: points.length <= 100 ? "circle" : undefined, symbolSize: 5 })) };
            }),
            tip: (place) => {
              const point = nearest(place);
              return {
                title: exactTime(tree, point),
                rows: seen.flatMap(({ unit, lines }) => lines.map(([field, label, tint, dash]) => ({ color: color(tint), dash, label, value: inUnit(point[field], unit) }))),
              };
            },
          };
        },
      });
    }).filter(Boolean);
    return parts.length ? { id: "curves", title: "Over time", short: "Curves", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- growth

  function growth(data) {
    const parts = data.trees.map((tree) => {
      const used = (of) => tree.forecasts.find((forecast) => forecast.of === of);
      const rows = [["Files", tree.files, "count"], ["Bytes", tree.size_bytes, "bytes"], ["Allocated", tree.allocated_bytes, "bytes"],
        ["File system, bytes in use", used("bytes")?.trend, "bytes", used("bytes")], ["File system, inodes in use", used("inodes")?.trend, "count", used("inodes")]]
        .filter(([, trend]) => trend);
      if (!rows.length) return null;
      return el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Growth a day", tree)), table({
        caption: "Growth a day",
        columns: [{ title: "", text: true }, { title: "Over all surveys" }, { title: "In the last 30 days" }, { title: "Left" }, { title: "Full in" }, { title: "On" }],
        rows: rows.map(([title, trend, unit, forecast]) => [title, growing(trend.per_day, unit), growing(trend.recent_per_day, unit),
          forecast ? cells.inUnit(forecast.left, unit) : "", forecast ? (known(forecast.days) ? Format.days(Math.round(num(forecast.days))) : current(trend) > 0 ? "many years" : "never at this rate") : "", forecast?.full_at ? Format.time(forecast.full_at).split(",")[0] : ""]),
      }));
    }).filter(Boolean);
    return parts.length ? { id: "growth", title: "Growth", short: "Growth", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- surveys

  /** The time of a survey; with seconds where another one was in the same minute. */
  function exactTime({ points }, point) {
    const text = Format.time(point.taken_at);
    const alike = points.filter((other) => Format.time(other.taken_at) === text).length > 1;
    return alike ? text.replace(" UTC", `:${String(new Date(point.taken_at).getUTCSeconds()).padStart(2, "0")} UTC`) : text;
  }

  function surveys(data) {
    const parts = data.trees.map((tree) => el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Surveys", tree)), table({
      caption: "Surveys",
      sortable: true,
      columns: [{ title: "Taken", text: true }, { title: "Files" }, { title: "Small files" }, { title: "Directories" }, { title: "Size" }, { title: "Allocated" }, { title: "In use" }, { title: "File", text: true }],
      rows: tree.points.map((point) => [{ text: exactTime(tree, point), value: num(point.taken_at_seconds) },
        ...["files", "small_files", "directories"].map((field) => cells.count(point[field])),
        ...["size_bytes", "allocated_bytes"].map((field) => cells.size(point[field])),
        cells.share(inUse(point)),
        { text: point.source, name: true }]),
    })));
    return { id: "surveys", title: "Surveys", short: "Surveys", lead: [], parts };
  }

  return { curves, growth, surveys, perDay, inUse };
})();
