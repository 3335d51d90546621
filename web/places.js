// The sections about where the small files are, and about the other distributions.
"use strict";

const Places = (() => {
  const { el, num, known, count, size, share, bucket, inUnit, cells, table } = Format;
  const { Figure, bars } = Figures;
  const { places, holds, bucketAxis, part, SHARE_OR_ABSOLUTE, LINEAR_OR_LOG } = Sections.helpers;
  const CHART_ROWS = 12;

  // ---------------------------------------------------------------- 6. where the small files are

  const MEASURES = {
    small_files: { title: "Small files", field: "small_files", tint: "files", text: count },
    files: { title: "Files", field: "files", tint: "files", text: count },
    overhead: { title: "Overhead", field: "overhead_bytes", tint: "bytes", text: size },
    size: { title: "Size", field: "size_bytes", tint: "bytes", text: size },
  };
  const RANK = { key: "rank", label: "Ranked by", options: Object.entries(MEASURES).map(([key, measure]) => [key, measure.title]) };

  const columnsOf = (first, rank, extra) => [{ title: first, text: true },
    ...[["Files", "files"], ["Small files", "small_files"], ["Size", "size"], ["Size of small files", ""], ["Allocated", ""], ["Overhead", "overhead"]]
      .map(([title, key]) => ({ title, sorted: key === rank })), ...extra];

  const cellsOf = (row) => [
    ...["files", "small_files"].map((field) => ({ text: count(row[field]), value: row[field] })),
    ...["size_bytes", "small_size_bytes", "allocated_bytes", "overhead_bytes"].map((field) => ({ text: size(row[field]), value: row[field] })),
  ];

  function chartRows(list, rank, color, whole) {
    const measure = MEASURES[rank];
    return list.slice(0, CHART_ROWS).map(({ row, label }) => ({
      label, value: num(row[measure.field]), color: color(measure.tint),
      text: measure.text(row[measure.field]) + (whole > 0 && rank !== "overhead" ? `, ${share(num(row[measure.field]) / whole)}` : ""),
      tip: {
        title: Format.shorten(label, 300), name: true,
        rows: [["files", count(row.files)], ["small files", `${count(row.small_files)} (${share(part(row.small_files, row.files))})`],
          ["size", size(row.size_bytes)], ["size of small files", size(row.small_size_bytes)], ["allocated", size(row.allocated_bytes)],
          ["overhead", size(row.overhead_bytes)]].map(([name, value]) => ({ label: name, value })),
      },
    }));
  }

  const wholeOf = (shown, rank) => (rank === "files" ? num(shown.counts.files) : rank === "size" ? num(shown.totals.size_bytes) : 0);

  function directories(shown) {
    const lists = shown.survey.where?.directories;
    const has = (scope) => Object.keys(MEASURES).some((rank) => lists?.[scope]?.[rank]?.length);
    const scopes = [["subtree", "Including subdirectories"], ["own", "Directory only"]].filter(([scope]) => has(scope));
    if (!scopes.length) return null;
    const rowsOf = ({ scope, rank }) => {
      const rows = lists[scope]?.[rank] ?? [];
      return scope === "subtree" ? Treemap.unchained(rows, MEASURES[rank].field) : rows;
    };
    const list = (state) => rowsOf(state).map((row, index) => ({
      row, label: row.path ?? `Directory ${index + 1}, depth ${count(row.depth)}`, name: row.path !== null,
    }));
    return new Figure({
      name: "directories",
      title: "Directories",
      note: "With subdirectories, a directory that holds nine tenths of the one above it stands for both.",
      alt: "Bar chart of the leading directories",
      state: { scope: scopes[0][0], rank: "small_files" },
      controls: [{ key: "scope", label: "Directory", options: scopes }, RANK],
      rows: (state, color) => chartRows(list(state), state.rank, color, wholeOf(shown, state.rank)),
      show(state) {
        const subtree = state.scope === "subtree";
        return [table({
          caption: `Directories, ranked by ${MEASURES[state.rank].title.toLowerCase()}`,
          columns: columnsOf("Directory", state.rank, subtree ? [{ title: "Directories" }] : []),
          rows: list(state).map(({ row, label, name }) => [{ text: label, name }, ...cellsOf(row),
            ...(subtree ? [{ text: count(row.directories), value: row.directories }] : [])]),
          sortable: true,
        })];
      },
    });
  }

  function ranked(shown, key, title, first, label) {
    const found = shown.survey.where?.[key];
    if (!found?.rows?.length) return null;
    const all = found.rows.map((row, index) => ({ row, ...label(row, index) }));
    const list = (state) => [...all].sort((a, b) => num(b.row[MEASURES[state.rank].field]) - num(a.row[MEASURES[state.rank].field]));
    return new Figure({
      name: key,
      title,
      note: found.complete === false
        ? `More entries than the table can hold: a row may be short by up to ${count(found.max_error)} files. Chosen by number of files.`
        : null,
      alt: `Bar chart of the leading ${key}`,
      state: { rank: "small_files" },
      controls: [RANK],
      rows: (state, color) => chartRows(list(state), state.rank, color, wholeOf(shown, state.rank)),
      show: (state) => [table({
        caption: `${title}, ranked by ${MEASURES[state.rank].title.toLowerCase()}`,
        columns: columnsOf(first, state.rank, []),
        rows: list(state).map((entry) => [{ text: entry.label, name: entry.name }, ...cellsOf(entry.row)]),
        sortable: true,
      })],
    });
  }

  function where(shown) {
    if (!shown.survey.where) return null;
    const parts = [
      directories(shown),
      ranked(shown, "owners", "Owners", "Owner", (row, index) => {
        if (!known(row.uid) && !row.name) return { label: `Owner ${index + 1}`, name: false };
        return { label: row.name ?? `uid ${String(row.uid)}`, name: true };
      }),
      ranked(shown, "extensions", "Extensions", "Extension", (row, index) => {
        if (typeof row.extension !== "string") return { label: `Extension ${index + 1}`, name: false };
        if (row.extension === "") return { label: "(none)", name: false };
        return { label: row.extension.startsWith("(") ? row.extension : `.${row.extension}`, name: true };
      }),
    ].filter(Boolean);
    if (!parts.length) return null;
    return {
      id: "where", title: "Where the small files are", short: "Where",
      lead: [`Small means ${size(shown.small)} or less.`, shown.survey.anonymous && "The survey is anonymous: names and paths are omitted."], parts,
    };
  }

  // ---------------------------------------------------------------- 7. the other distributions

  const OTHERS = [
    ["directory_entries", "Directory entries", "Entries", "directories"],
    ["directory_size", "Directory size", "Size", "directories"],
    ["name_length", "Name length", "Length", "names"],
    ["link_count", "Link count", "Links", "files"],
    ["symlink_target_length", "Symlink target length", "Length", "symlinks"],
    ["allocated", "Allocated per file", "Allocated", "files"],
    ["positive_overhead", "Positive overhead", "Overhead", "files, directories and symlinks"],
    ["negative_overhead", "Negative overhead", "Overhead", "files, directories and symlinks"],
  ];

  function others(shown) {
    const list = OTHERS.map(([key, title, axis, things]) => ({ key, title, axis, things, dist: shown.dist(key) })).filter((entry) => entry.dist);
    if (!list.length) return null;
    const chosen = (state) => list.find((entry) => entry.key === state.which);
    const figure = new Figure({
      name: "distribution",
      title: list[0].title,
      heading: (state) => chosen(state).title,
      alt: "Histogram of the selected distribution",
      state: { which: list[0].key, scale: "share", axis: "linear" },
      controls: [{ key: "which", label: "Distribution", select: true, options: list.map((entry) => [entry.key, entry.title]) }, SHARE_OR_ABSOLUTE, LINEAR_OR_LOG],
      layout(state, color) {
        const { dist, axis, things } = chosen(state);
        const relative = state.scale === "share";
        return {
          x: bucketAxis([dist.buckets], dist.unit, axis),
          panels: [{
            title: relative ? `Share of the ${things}` : things[0].toUpperCase() + things.slice(1), unit: relative ? "share" : "count", log: state.axis === "log",
            series: [bars(dist.buckets.map((entry) => [...places(entry), relative ? part(entry.count, dist.count) : num(entry.count)]), { color: color("c1") })],
          }],
          tip(place) {
            const entry = dist.buckets.find((candidate) => holds(candidate, place));
            return entry && {
              title: bucket(entry.low, entry.high, dist.unit),
              rows: [{ color: color("c1"), label: things, value: `${count(entry.count)} (${share(part(entry.count, dist.count))})` },
                { label: "sum", value: inUnit(entry.sum, dist.unit) }],
            };
          },
        };
      },
      show(state) {
        const { dist, things, key } = chosen(state);
        const value = (number) => inUnit(number, dist.unit);
        const symlinks = key === "symlink_target_length" && known(shown.counts.symlinks_relative) && known(shown.counts.symlinks_absolute)
          ? [["Relative", count(shown.counts.symlinks_relative)], ["Absolute", count(shown.counts.symlinks_absolute)]] : [];
        return [facts([["Number", `${count(dist.count)} ${things}`], ["Smallest", value(dist.min)], ["Median", value(dist.deciles?.[4])], ["Mean", value(dist.mean)],
          ["90 % up to", value(dist.deciles?.[8])], ["Largest", value(dist.max)], ["Total", value(dist.total)], ...symlinks])];
      },
      table(state) {
        const { dist, axis, things, title } = chosen(state);
        return {
          caption: title,
          columns: [{ title: axis, text: true }, { title: things[0].toUpperCase() + things.slice(1) }, { title: "Share" }, { title: "Sum" }],
          rows: dist.buckets.map((entry) => [bucket(entry.low, entry.high, dist.unit), cells.count(entry.count), cells.share(part(entry.count, dist.count)), cells.inUnit(entry.sum, dist.unit)]),
        };
      },
    });
    return { id: "distributions", title: "Other distributions", short: "Distributions", lead: [], parts: [figure] };
  }

  // ---------------------------------------------------------------- 8. what was counted, and what was not

  const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

  /** A size, and below it the bytes where they were rounded. */
  const sizeFact = (value) => [size(value), num(value) >= 1024 && el("small", {}, `${count(value)} bytes`)];

  const COUNTED = [
    ["files", "Files"], ["directories", "Directories"], ["symlinks", "Symlinks"], ["special", "Special files"],
    ["hard_links_skipped", "Hard links skipped"], ["empty_files", "Empty files"], ["sparse_files", "Sparse files"],
    ["excluded", "Excluded"], ["vanished", "Vanished during the survey"], ["mount_points_skipped", "Mount points skipped"],
    ["snapshot_directories_skipped", "Snapshot directories skipped"], ["future_times", "Timestamps in the future"], ["errors", "Errors"],
  ];

  function counted(shown) {
    const { counts, totals, survey } = shown;
    const pairs = [...COUNTED.filter(([key]) => known(counts[key])).map(([key, title]) => [title, count(counts[key])]),
      ...[["size_bytes", "Size of files"], ["allocated_bytes", "Allocated to files"], ["directories_allocated_bytes", "Allocated to directories"],
        ["symlinks_allocated_bytes", "Allocated to symlinks"]].filter(([key]) => known(totals[key])).map(([key, title]) => [title, sizeFact(totals[key])])];
    const kinds = survey.errors?.by_kind ?? [];
    const examples = survey.errors?.examples ?? [];
    const parts = [pairs.length > 0 && facts(pairs)];
    if (kinds.length) {
      parts.push(el("div", { class: "block", id: "errors" }, el("h3", {}, "Errors"),
        el("p", { class: "note" }, "Unreadable entries are missing from every figure on this page."),
        table({
          caption: "Errors by kind",
          columns: [{ title: "Operation", text: true }, { title: "Cause", text: true }, { title: "Number" }],
          rows: kinds.map((row) => [{ text: row.operation, name: true }, { text: row.kind, name: true }, cells.count(row.count)]),
        })));
    }
    if (examples.length) {
      parts.push(el("details", { class: "data" }, el("summary", {}, examples.length === 1 ? "The path" : `The first ${count(examples.length)} paths`),
        table({
          caption: "Examples of errors",
          columns: [{ title: "Path", text: true }, { title: "Operation", text: true }, { title: "Cause", text: true }],
          rows: examples.map((row) => [{ text: row.path ?? Format.MISSING, name: true }, { text: row.operation, name: true }, { text: row.cause, name: true }]),
        })));
    }
    if (!parts.some(Boolean)) return null;
    const errors = num(counts.errors);
    return {
      id: "counted", title: "Counts and totals", short: "Counts", parts,
      lead: [errors > 0 ? `${count(errors)} ${errors === 1 ? "entry" : "entries"} could not be read.` : null],
    };
  }

  return { where, others, counted, facts };
})();
