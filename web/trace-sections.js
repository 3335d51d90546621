// The page of traces, the sections: sizes of reads and writes, what one block serves, kinds, sizes of the files,
// patterns, rates. Each function takes the data of the page and returns `{id, title, short, lead, parts}`, or null
// where there is nothing to show.
"use strict";

const Traces = (() => {
  const { el, num, known, count, size, share, duration, cells, table } = Format;
  const { Figure, line } = Figures;
  const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const DASH = ["dashed", [6, 4]];
  const SIDES = [["reads", "Reads"], ["writes", "Writes"]];
  const COUNTED = { key: "counted", label: "Unit", options: [["whole", "Whole file"], ["requests", "Request"]] };

  const has = (trace, side) => num(trace[side].whole.count) > 0;
  const hasRequests = (data) => data.traces.some((trace) => trace.reads.requests || trace.writes.requests);
  const controlsOf = (data, more = []) => [...(hasRequests(data) ? [COUNTED] : []), ...more];

  /** Each trace twice, for its reads and for its writes: lines of reads are whole, those of writes dashed. */
  function views(data) {
    return data.traces.flatMap((trace, at) => SIDES.filter(([side]) => has(trace, side)).map(([side, label]) => ({
      trace, side, key: `${at}:${side}`, color: COLORS[at % COLORS.length], dash: side === "writes" ? DASH[0] : undefined, type: side === "writes" ? DASH[1] : undefined,
      name: data.traces.length > 1 ? `${label}, ${trace.name}` : label,
    })));
  }

  const legend = (list, color) => list.map((view) => ({ key: view.key, label: view.name, name: true, color: color(view.color), dash: view.dash }));

  /** Cumulative shares at the upper edges of the buckets: `[place, share]`. */
  function cumulative(sizes, key) {
    const whole = num(key === "count" ? sizes.count : sizes.total);
    if (!whole) return [];
    let seen = 0;
    return sizes.buckets.map((bucket) => {
      seen += num(bucket[key]);
      return [Math.log2(Math.max(0.5, num(bucket.high))), Math.min(1, seen / whole)];
    });
  }

  /** Deciles of the paper as points of a curve. */
  const published = (data, side) => (data.published ?? []).map((row) => [Math.log2(Math.max(1, num(row[side === "reads" ? "read_bytes" : "write_bytes"]))), num(row.fraction)]);

  // ---------------------------------------------------------------- sizes

  function sizes(data) {
    const all = views(data);
    if (!all.length) return null;
    const of = (view, state) => view.trace[view.side][state.counted] ?? view.trace[view.side].whole;
    const last = Math.max(12, ...all.flatMap((view) => [view.trace[view.side].whole, view.trace[view.side].requests].filter(Boolean).map((each) => Math.log2(Math.max(1, num(each.max))) + 0.5)));
    const figure = new Figure({
      name: "trace-sizes",
      title: "Sizes of reads and writes",
      note: "Share of the operations, and of the bytes, of a size or smaller. Whole file: everything read or written between open and close counts as one operation, as in the paper.",
      alt: "Cumulative shares of reads and writes by size",
      state: { counted: "whole" },
      controls: controlsOf(data),
      legend: (color) => [...legend(all, color),
        ...((data.published ?? []).length ? [{ key: "then", label: "Published: VU 2005 (reads solid, writes dashed)", color: color("published") }] : [])],
      layout(state, color) {
        const list = all.filter((view) => !state.hidden.has(view.key));
        const lines = (key) => list.map((view) => line(cumulative(of(view, state), key), { color: color(view.color), dash: view.type }));
        const then = state.hidden.has("then") ? [] : SIDES.map(([side]) => line(published(data, side), { color: color("published"), dash: side === "writes" ? DASH[1] : undefined, width: 1.25 }));
        return {
          x: { scale: "log2", unit: "bytes", title: "Size", full: [-1, last], least: 2, stops: Array.from({ length: Math.ceil(last) + 1 }, (_, place) => place) },
          panels: [{ title: "Share of the operations", unit: "share", min: 0, max: 1, step: 0.25, series: [...then, ...lines("count")] },
            { title: "Share of the bytes", unit: "share", min: 0, max: 1, step: 0.25, series: lines("sum") }],
          tip(place) {
            const at = Math.max(0, Math.round(place));
            const upTo = (points) => points.filter(([each]) => each <= at + 1e-9).at(-1)?.[1] ?? 0;
            return list.length > 0 && {
              title: `Up to ${size(2 ** at)}`, columns: ["operations", "bytes"],
              rows: list.map((view) => ({ color: color(view.color), dash: view.dash, label: view.name, value: [share(upTo(cumulative(of(view, state), "count"))), share(upTo(cumulative(of(view, state), "sum")))] })),
            };
          },
        };
      },
      table: (state) => ({
        caption: "Deciles of reads and writes",
        columns: [{ title: "Decile", text: true }, ...all.flatMap((view) => [{ title: view.name }, { title: "by bytes" }]), ...((data.published ?? []).length ? [{ title: "Published: reads" }, { title: "writes" }] : [])],
        rows: Array.from({ length: 10 }, (_, tenth) => [cells.share((tenth + 1) / 10), ...all.flatMap((view) => [cells.size(of(view, state).deciles[tenth]), cells.size(of(view, state).deciles_by_total[tenth])]),
          ...((data.published ?? []).length ? [cells.size(data.published[tenth]?.read_bytes), cells.size(data.published[tenth]?.write_bytes)] : [])]),
      }),
    });
    return { id: "sizes", title: "Sizes of reads and writes", short: "Sizes", lead: [], parts: [figure] };
  }

  // ---------------------------------------------------------------- one block

  function oneBlock(data) {
    const all = views(data);
    if (!all.length) return null;
    const rowsOf = (view) => view.trace[view.side].one_block;
    const blocks = rowsOf(all[0]).map((row) => num(row.block_bytes));
    const shareOf = (view, block, state) => {
      const row = rowsOf(view).find((each) => num(each.block_bytes) === block);
      const value = state.counted === "requests" ? row?.requests_within_fraction ?? row?.requests_fraction : row?.whole_fraction;
      return known(value) ? value : undefined;
    };
    const figure = new Figure({
      name: "one-block",
      title: "Served by one block",
      note: "Share of the operations that need only one transfer. For requests, those that lie within one block.",
      alt: "Share of reads and writes served by one block, by block size",
      state: { counted: "whole" },
      controls: controlsOf(data),
      legend: (color) => legend(all, color),
      layout(state, color) {
        const list = all.filter((view) => !state.hidden.has(view.key));
        return {
          x: { scale: "log2", unit: "bytes", title: "Block size", snap: true, full: [Math.log2(blocks[0]) - 0.3, Math.log2(blocks.at(-1)) + 0.3], least: 2, stops: blocks.map(Math.log2) },
          panels: [{ title: "Served by one block", unit: "share", min: 0, max: 1, step: 0.25,
            series: list.map((view) => line(blocks.map((block) => [Math.log2(block), shareOf(view, block, state)]).filter(([, value]) => value !== undefined), { color: color(view.color), dash: view.type, symbol: "circle" })) }],
          tip(place) {
            const block = blocks.reduce((best, each) => (Math.abs(Math.log2(each) - place) < Math.abs(Math.log2(best) - place) ? each : best));
            return list.length > 0 && { title: `${size(block)} blocks`, rows: list.map((view) => ({ color: color(view.color), dash: view.dash, label: view.name, value: share(shareOf(view, block, state)) })) };
          },
        };
      },
      table: (state) => ({
        caption: "Served by one block", columns: [{ title: "Block size", text: true }, ...all.map((view) => ({ title: view.name }))],
        rows: blocks.map((block) => [cells.size(block), ...all.map((view) => cells.share(shareOf(view, block, state)))]),
      }),
    });
    return { id: "one-block", title: "Served by one block", short: "One block", lead: [], parts: [figure] };
  }

  // ---------------------------------------------------------------- kinds

  const KIND = (kind) => kind.replaceAll("_", " ");

  function kinds(data) {
    const parts = data.traces.map((trace, at) => {
      const color = COLORS[at % COLORS.length];
      const rows = [...trace.kinds].sort((a, b) => num(b.count) - num(a.count));
      return rows.length > 0 && new Figure({
        name: `kinds-${at}`,
        title: data.traces.length > 1 ? `Operations by kind: ${trace.name}` : "Operations by kind",
        alt: "Bar chart of operations by kind",
        rows: (_, tint) => rows.map((row) => ({
          label: KIND(row.kind), value: num(row.count), color: tint(color),
          text: [count(row.count), num(row.bytes) > 0 ? size(row.bytes) : "", num(row.failed) > 0 ? `${count(row.failed)} failed` : "", known(row.seconds) ? duration(row.seconds) : ""].filter(Boolean).join("  "),
          tip: { title: KIND(row.kind), rows: [{ label: "operations", value: count(row.count) }, { label: "failed", value: count(row.failed) }, { label: "bytes", value: size(row.bytes) },
            ...(known(row.seconds) ? [{ label: "total time", value: duration(row.seconds) }] : [])] },
        })),
        table: () => ({
          caption: "Operations by kind", columns: [{ title: "Kind", text: true }, { title: "Operations" }, { title: "Failed" }, { title: "Bytes" }, { title: "Time" }],
          rows: rows.map((row) => [KIND(row.kind), cells.count(row.count), cells.count(row.failed), cells.size(row.bytes), cells.duration(row.seconds)]),
        }),
      });
    }).filter(Boolean);
    return parts.length ? { id: "kinds", title: "Operations", short: "Kinds", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- sizes of the files, patterns

  function files(data) {
    const all = views(data);
    if (!all.length) return null;
    const edges = [...new Set(all.flatMap((view) => view.trace[view.side].by_file_size.filter((row) => known(row.high)).map((row) => num(row.high))))].sort((a, b) => a - b);
    const total = (view, key) => view.trace[view.side].by_file_size.reduce((sum, row) => sum + num(row[key]), 0);
    const upTo = (view, key, edge) => {
      const whole = total(view, key);
      return whole ? view.trace[view.side].by_file_size.filter((row) => known(row.high) && num(row.high) <= edge).reduce((sum, row) => sum + num(row[key]), 0) / whole : 0;
    };
    const place = (edge) => Math.log2(Math.max(0.5, edge));
    const figure = edges.length > 0 && new Figure({
      name: "file-sizes",
      title: "By file size",
      note: "Share of the operations, and of their bytes, on files smaller than a size. A line that ends below 100 % has operations on files of unknown size.",
      alt: "Cumulative shares of reads and writes by file size",
      state: { counted: "whole" },
      controls: controlsOf(data),
      legend: (color) => legend(all, color),
      layout(state, color) {
        const list = all.filter((view) => !state.hidden.has(view.key));
        const lines = (key) => list.map((view) => line(edges.map((edge) => [place(edge), upTo(view, key, edge)]), { color: color(view.color), dash: view.type }));
        return {
          x: { scale: "log2", unit: "bytes", title: "File size", full: [-1, place(edges.at(-1)) + 0.3], least: 2, stops: edges.map(place) },
          panels: [{ title: "Share of the operations", unit: "share", min: 0, max: 1, step: 0.25, series: lines(state.counted) },
            { title: "Share of their bytes", unit: "share", min: 0, max: 1, step: 0.25, series: lines("bytes") }],
          tip(at) {
            const edge = edges.reduce((best, each) => (Math.abs(place(each) - at) < Math.abs(place(best) - at) ? each : best));
            return list.length > 0 && {
              title: `Files below ${size(edge)}`, columns: ["operations", "bytes"],
              rows: list.map((view) => ({ color: color(view.color), dash: view.dash, label: view.name, value: [share(upTo(view, state.counted, edge)), share(upTo(view, "bytes", edge))] })),
            };
          },
        };
      },
      table: () => ({
        caption: "By file size",
        columns: [{ title: "", text: true }, { title: "File size", text: true }, { title: "Whole-file operations" }, { title: "Requests" }, { title: "Bytes" }],
        rows: all.flatMap((view) => view.trace[view.side].by_file_size.map((row) => [{ text: view.name, name: true }, known(row.low) ? Format.bucket(row.low, row.high, "bytes") : "unknown", cells.count(row.whole), cells.count(row.requests), cells.size(row.bytes)])),
      }),
    });
    const patterned = all.filter((view) => view.trace[view.side].patterns.length > 0);
    const patterns = patterned.length > 0 && el("div", { class: "block" }, el("h3", {}, "Sequential, strided, random"), table({
      caption: "Access patterns of requests", columns: [{ title: "", text: true }, { title: "Pattern", text: true }, { title: "Requests" }, { title: "of all" }, { title: "Bytes" }, { title: "of all" }],
      rows: patterned.flatMap((view) => {
        const rows = view.trace[view.side].patterns;
        const sum = (key) => rows.reduce((all_, row) => all_ + num(row[key]), 0);
        return rows.map((row) => [{ text: view.name, name: true }, KIND(row.pattern), count(row.count), sum("count") ? share(num(row.count) / sum("count")) : Format.MISSING, size(row.bytes), sum("bytes") ? share(num(row.bytes) / sum("bytes")) : Format.MISSING]);
      }),
    }));
    const reuse = el("div", { class: "block" }, el("h3", {}, "Files"), table({
      caption: "How files were used",
      columns: [{ title: "", text: true }, { title: "Touched" }, { title: "Only read" }, { title: "Only written" }, { title: "Both" }, { title: "Read once" }, { title: "Written once" }, { title: "Created and removed" }, { title: "Bytes read per byte written" }],
      rows: data.traces.map((trace) => [{ text: trace.name, name: true }, cells.count(trace.files.touched), cells.count(trace.files.only_read), cells.count(trace.files.only_written), cells.count(trace.files.both), cells.count(trace.files.read_once),
        cells.count(trace.files.written_once), cells.count(trace.files.temporary), cells.decimal(trace.read_write.bytes, 2)]),
    }));
    return { id: "files", title: "File use", short: "Files", lead: [], parts: [figure, patterns, reuse] };
  }

  // ---------------------------------------------------------------- rates

  function rates(data) {
    const parts = data.traces.map((trace, at) => {
      const { intervals, interval_seconds: width } = trace.rates;
      if (trace.clock === "none" || intervals.length < 2 || !(num(width) > 0)) return null;
      // The last interval ends with the trace. A few operations in a tiny part of it would be a peak.
      const rest = Math.min(num(width), Math.max(num(width) / 10, num(trace.span_seconds) - (intervals.length - 1) * num(width)));
      const rateIn = (index, value) => num(value) / (index < intervals.length - 1 ? num(width) : rest);
      const points = (value) => intervals.map((interval, index) => [index * num(width), rateIn(index, value(interval))]);
      const lines = [["operations", "c3"], ["read", "c1"], ["written", "c2"]];
      const end = intervals.length * num(width);
      return new Figure({
        name: `rates-${at}`,
        title: data.traces.length > 1 ? `Rates over time: ${trace.name}` : "Rates over time",
        note: `Means of ${duration(width)} each.`,
        alt: "Operations and bytes per second over time",
        state: {},
        legend: (color) => lines.slice(1).map(([key, tint]) => ({ key, label: `Bytes ${key}`, color: color(tint) })),
        layout(state, color) {
          return {
            x: { scale: "linear", unit: "seconds", title: "Seconds from the start", full: [0, end], least: Math.max(num(width) * 4, end / 1000), stops: intervals.map((_, index) => index * num(width)) },
            panels: [{ title: "Operations per second", unit: "count", series: [line(points((interval) => num(interval.operations)), { color: color("c3") })] },
              { title: "Bytes per second", unit: "bytes", series: [["read", (interval) => num(interval.read_bytes)], ["written", (interval) => num(interval.write_bytes)]]
                .filter(([key]) => !state.hidden.has(key)).map(([key, value]) => line(points(value), { color: color(key === "read" ? "c1" : "c2") })) }],
            tip(place) {
              const index = Math.min(intervals.length - 1, Math.max(0, Math.round(place / num(width))));
              const interval = intervals[index];
              const rate = (value) => rateIn(index, value);
              return { title: `After ${duration(Math.max(0, place))}`, rows: [{ color: color("c3"), label: "operations", value: `${count(rate(interval.operations))}/s` },
                { color: color("c1"), label: "read", value: `${size(Math.round(rate(interval.read_bytes)))}/s` }, { color: color("c2"), label: "written", value: `${size(Math.round(rate(interval.write_bytes)))}/s` }] };
            },
          };
        },
        table: () => ({
          caption: "Rates over time", columns: [{ title: "From", text: true }, { title: "Operations" }, { title: "Read" }, { title: "Written" }],
          rows: intervals.map((interval, index) => [cells.duration(index * num(width)), cells.count(interval.operations), cells.size(interval.read_bytes), cells.size(interval.write_bytes)]),
        }),
      });
    }).filter(Boolean);
    return parts.length ? { id: "rates", title: "Over time", short: "Rates", lead: [], parts } : null;
  }

  // ---------------------------------------------------------------- the traces themselves

  function recorded(data) {
    const parts = data.traces.map((trace) => el("div", { class: "block" }, el("h3", { class: "name" }, trace.name),
      el("dl", { class: "facts" }, [
        ["Recorded by", trace.recorder], ["Operations", count(trace.operations)], ["Processes", count(trace.processes)],
        ...(trace.clock === "none" ? [] : [["Duration", duration(trace.span_seconds)]]),
      ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "name" }, value)))),
      trace.notes.map((note) => el("p", { class: "note name" }, note)),
      trace.problems.map((problem) => el("p", { class: "note name" }, `${count(problem.count)} × ${KIND(problem.kind)}: ${problem.first}`)),
      trace.command && el("pre", { class: "name", tabindex: "0", "aria-label": "Command" }, el("code", {}, trace.command))));
    return { id: "recorded", title: "Recorded", short: "Recorded", lead: [], parts };
  }

  return { sizes, oneBlock, kinds, files, rates, recorded };
})();
