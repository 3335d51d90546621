// The sections of the page of a plan but for the fast tier (plan-tier.js): block sizes, caches, layouts, single files,
// costs, and what to type. Each function takes the data of the page and returns `{id, title, short, lead, parts}`, or
// null.
"use strict";

const PlanSections = (() => {
  const { el, num, known, count, size, share, change, duration, cells, table, heat } = Format;
  const { Figure, line, log2, steps } = Figures;
  const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const DASHES = [[undefined, undefined], ["dashed", [6, 4]], ["dotted", [1.5, 3]]];
  const LINEAR_OR_LOG = { key: "axis", label: "Vertical axis", options: [["linear", "Linear"], ["log", "Log"]] };
  /** More lines than this at once are a tangle; the others are one click away. */
  const SHOWN_AT_FIRST = 5;

  /** Colour and dash of each model, the same in every chart. */
  function looks(plan) {
    const names = [...new Set([...plan.models, ...plan.fast_tiers].map((entry) => entry.model))];
    return new Map(names.map((name, index) => {
      const [dash, type] = DASHES[Math.floor(index / COLORS.length) % DASHES.length];
      return [name, { color: COLORS[index % COLORS.length], dash, type }];
    }));
  }

  const manyHidden = (names) => new Set(names.slice(SHOWN_AT_FIRST));
  const exact = (bytes) => `${size(bytes)}${num(bytes) > 1024 && num(bytes) % 1024 !== 0 ? ` (${count(bytes)} bytes)` : ""}`;

  // ---------------------------------------------------------------- 1. block sizes

  function blockSizes({ plan }) {
    const rows = plan.block_sizes ?? [];
    if (!rows.length) return null;
    const served = new Map((plan.operations?.served ?? []).map((row) => [num(row.block_bytes), row]));
    const chosen = plan.recommendation;
    const place = (row) => Math.log2(num(row.block_bytes));
    const stops = rows.map(place);
    const full = [stops[0] - 0.3, stops.at(-1) + 0.3];
    const shares = [
      { key: "files", label: "Files that fit in one block", tint: "files", value: (row) => row.single_block_fraction, dash: [] },
      ...(served.size ? [
        { key: "reads", label: "Reads served by one block", tint: "c3", value: (row) => served.get(num(row.block_bytes))?.reads_fraction, dash: ["dashed", [6, 4]] },
        { key: "writes", label: "Writes served by one block", tint: "c4", value: (row) => served.get(num(row.block_bytes))?.writes_fraction, dash: ["dotted", [1.5, 3]] },
      ] : []),
    ];
    const figure = new Figure({
      name: "block-size",
      title: "Cost and benefit of a block size",
      note: "Space with every file rounded up to whole blocks, compared with 1 KiB blocks; and the share of the files" +
        `${served.size ? ", and of the reads and writes," : ""} that fit in one block.` +
        (chosen ? ` The grey line is the largest growth allowed: ${share(chosen.tolerance_fraction)}.` : ""),
      alt: "Growth of the allocated bytes, and shares that fit in one block, by block size",
      state: { axis: "log" },
      controls: [LINEAR_OR_LOG],
      legend: (color) => (served.size ? shares.map((entry) => ({ key: entry.key, label: entry.label, color: color(entry.tint), dash: entry.dash[0] })) : []),
      layout(state, color) {
        const log = state.axis === "log";
        const growth = rows.map((row) => [place(row), num(row.growth_fraction)]).filter(([, value]) => !log || value > 0);
        const borne = chosen && num(chosen.tolerance_fraction) > 0
          ? [line(full.map((x) => [x, num(chosen.tolerance_fraction)]), { color: color("published"), width: 1.25 })] : [];
        return {
          x: { scale: "log2", unit: "bytes", title: "Block size", snap: true, full, least: 2, stops },
          mark: chosen ? { at: Math.log2(num(chosen.block_bytes)), text: `recommended: ${size(chosen.block_bytes)}` } : null,
          panels: [
            { title: "Growth over 1 KiB blocks", unit: "share", log, series: [...borne, line(growth, { color: color("bytes"), symbol: "circle" })] },
            {
              title: served.size ? "In one block" : "Files that fit in one block", unit: "share", min: 0, max: 1, step: 0.25,
              series: shares.filter((entry) => !state.hidden.has(entry.key)).map((entry) =>
                line(rows.map((row) => [place(row), num(entry.value(row))]), { color: color(entry.tint), dash: entry.dash[1], symbol: "circle" })),
            },
          ],
          tip(at) {
            const row = rows.find((each) => Math.abs(place(each) - at) < 0.5);
            return row && {
              title: `${size(row.block_bytes)} blocks`,
              rows: [{ color: color("bytes"), label: "growth", value: change(row.growth_fraction) }, { label: "allocated", value: size(row.allocated_bytes) },
                ...shares.map((entry) => ({ color: color(entry.tint), dash: entry.dash[0], label: entry.label, value: share(entry.value(row)) }))],
            };
          },
        };
      },
      table: () => ({
        caption: "Block sizes",
        columns: [{ title: "Block size", text: true }, { title: "Allocated" }, { title: "Growth over 1 KiB" }, { title: "Files in one block" },
          ...(served.size ? [{ title: "Reads in one block" }, { title: "Writes in one block" }] : [])],
        rows: rows.map((row) => {
          const recommended = chosen && num(chosen.block_bytes) === num(row.block_bytes);
          return [recommended ? el("strong", {}, `${size(row.block_bytes)}, recommended`) : cells.size(row.block_bytes), cells.size(row.allocated_bytes),
            cells.change(row.growth_fraction), ...shares.map((entry) => cells.share(entry.value(row)))];
        }),
      }),
    });
    const lead = [chosen && `${size(chosen.block_bytes)} is the recommended block size.`,
      chosen?.next && chosen.next_costs_too_much && `${size(chosen.next.block_bytes)} blocks would need ${share(chosen.next.growth_fraction)} more than 1 KiB blocks, above the ${share(chosen.tolerance_fraction)} allowed.`,
      chosen?.next && !chosen.next_costs_too_much && chosen.next_served && `One block of ${size(chosen.next.block_bytes)} would serve ${share(chosen.next_served.reads_fraction)} of the reads and ${share(chosen.next_served.writes_fraction)} of the writes, one of ${size(chosen.block_bytes)} ${share(chosen.served?.reads_fraction)} and ${share(chosen.served?.writes_fraction)}.`];
    return { id: "block-size", title: "Block size", short: "Block size", lead, parts: [figure] };
  }

  // ---------------------------------------------------------------- 2. caches

  /** The time of a run by cache size and block size: as the source measured it, or as predicted from a trace. */
  function caches({ plan }) {
    const { caching } = plan;
    const sizes = (caching?.times ?? []).map((at) => num(at.cache_bytes));
    const blocks = (caching?.rows ?? []).map((row) => num(row.block_bytes));
    if (!sizes.length || !blocks.length) return null;
    const { device } = caching;
    const chosen = plan.recommendation && num(plan.recommendation.block_bytes);
    const time = (row, column) => num(caching.times[row].seconds[column]);
    const asked = sizes.indexOf(num(caching.cache_bytes));
    const note = device
      ? `The requests of the trace with an LRU cache; misses and writes on ${device.name}, of ${duration(device.latency_seconds)} and ${size(device.bytes_per_second)}/s. The darker, the slower.`
      : "Compilations of a large collection of programs, as Tanenbaum, Herder and Bos measured them (Fig. 5). The darker, the slower.";
    const map = el("div", { class: "block heat" }, el("h3", {}, device ? "Predicted time" : "Measured time"), el("p", { class: "note name" }, note),
      heat("Time by cache size and block size", sizes, blocks, time));
    const column = blocks.indexOf(chosen);
    const lead = [asked >= 0 && column >= 0 &&
      `With a cache of ${size(sizes[asked])}, the run takes ${duration(time(asked, column))} with ${size(chosen)} blocks; ${size(blocks[0])} blocks take ${duration(time(asked, 0))}, ${size(blocks.at(-1))} blocks ${duration(time(asked, blocks.length - 1))}.`];
    return { id: "caches", title: "Block size and cache", short: "Cache", lead, parts: [map] };
  }

  // ---------------------------------------------------------------- 3. layouts

  const PARTS = [
    { label: "File data", tint: "c1" }, { label: "Overhead: rounding and redundancy", tint: "c2" },
    { label: "Metadata", tint: "c3" }, { label: "Directories and symlinks", tint: "c4" },
  ];

  /** What a model stores, in four parts that add up to its total. Data that are inline are among the metadata already;
   *  a layout that compresses holds less than the data. */
  function divided(row, plan) {
    const [metadata, tree] = [num(row.metadata_bytes), num(row.tree_bytes)];
    const files = Math.max(0, num(row.total_bytes) - metadata - tree);
    const data = Math.min(num(plan.source.size_bytes), files);
    return [data, files - data, metadata, tree];
  }

  function layouts({ plan, curves }) {
    const rows = plan.models ?? [];
    if (!rows.length) return null;
    const tree = rows.some((row) => num(row.tree_bytes) > 0);
    const parts = PARTS.slice(0, tree ? 4 : 3);
    const summaries = new Map((curves?.models ?? []).map((curve) => [curve.model, curve.summary]));
    const reported = rows.some((row) => known(row.reported_bytes));
    const figure = new Figure({
      name: "layouts",
      title: "Space by layout",
      note: `The files are ${size(plan.source.size_bytes)}. Each bar shows everything that a layout stores for them.`,
      alt: "Bar chart of the space under each layout: file data, overhead, metadata and directories",
      legend: (color) => parts.map((entry) => ({ label: entry.label, color: color(entry.tint) })),
      rows: (_, color) => rows.map((row) => {
        const values = divided(row, plan).slice(0, parts.length);
        return {
          label: row.model, value: values.reduce((a, b) => a + b), text: size(row.total_bytes),
          parts: values.map((value, index) => ({ value, color: color(parts[index].tint) })),
          tip: {
            title: row.model, name: true,
            rows: [...parts.map((entry, index) => ({ color: color(entry.tint), label: entry.label, value: size(Math.round(values[index])) })),
              { label: "total", value: size(row.total_bytes) }],
          },
        };
      }),
    });
    const numbers = table({
      caption: "Space by layout",
      sortable: true,
      columns: [{ title: "Layout", text: true }, { title: "Allocated" }, { title: "Overhead" }, { title: "Metadata" },
        ...(tree ? [{ title: "Directories" }] : []), { title: "Total" }, ...(reported ? [{ title: "Reported by the system" }] : [])],
      rows: rows.map((row) => {
        const bytes = (value, mark = "") => ({ text: `${size(value)}${mark}`, value: num(value) });
        return [{ text: row.model, name: true }, bytes(row.allocated_bytes), { text: share(row.overhead_fraction), value: row.overhead_fraction },
          bytes(row.metadata_bytes, row.metadata_is_within ? "*" : ""), ...(tree ? [bytes(row.tree_bytes)] : []), bytes(row.total_bytes),
          ...(reported ? [bytes(row.reported_bytes)] : [])];
      }),
    });
    const within = rows.some((row) => row.metadata_is_within);
    const notes = el("p", { class: "note after" },
      "Overhead: the share of the allocated bytes that is not file data; negative where data is compressed, packed or inline. ",
      "Total: with metadata, and with directories and symlinks if both source and layout cover them. ",
      within ? "* Metadata is part of the allocated bytes. " : "",
      "Data kept in the metadata counts once. ",
      reported ? "Reported: the space that the system itself reports, if it differs from the raw bytes." : "");
    const named = [...new Set(rows.map((row) => row.model))].filter((name) => summaries.has(name));
    const list = named.length > 0 && el("details", { class: "data" }, el("summary", {}, "About these layouts"),
      el("dl", { class: "kinds data-body" }, named.map((name) => [el("dt", { class: "name" }, name), el("dd", {}, summaries.get(name))])));
    const rising = [...rows].sort((a, b) => num(a.total_bytes) - num(b.total_bytes));
    const [least, most] = [rising[0], rising.at(-1)];
    const lead = [rows.length > 1 && num(least.total_bytes) < num(most.total_bytes) &&
      `The same files need from ${size(least.total_bytes)} (${least.model}) to ${size(most.total_bytes)} (${most.model}).`];
    return { id: "layouts", title: "Space by layout", short: "Layouts", lead, parts: [figure, el("div", { class: "block" }, numbers, notes, list)] };
  }

  // ---------------------------------------------------------------- 4. one file

  const RANGES = [["small", "0–256 KiB", 256 << 10], ["medium", "0–2 MiB", 2 << 20], ["all", "All", 1 << 30]];
  /** Overhead of tiny files has no end; what is above this is cut off. */
  const MOST_OVERHEAD = 6;

  function files({ plan, curves }) {
    const sizes = (curves?.sizes_bytes ?? []).map(num);
    const models = (curves?.models ?? []).map((curve) => ({ ...curve, look: looks(plan).get(curve.model) ?? { color: "c1" } }));
    if (sizes.length < 2 || !models.length) return null;
    for (const model of models) {
      model.capacity = steps(model.allocated_bytes.map((bytes, index) => [sizes[index], num(bytes)]));
      model.overhead = model.capacity.filter(([bytes]) => bytes > 0).map(([bytes, allocated]) => [bytes, allocated / bytes - 1]);
    }
    const limit = (state) => Math.min(sizes.at(-1), RANGES.find(([key]) => key === state.range)[2]);
    /** Whether a layout in sight takes less than the size of some file. */
    const saves = (state, to) => shown(state).some((model) => model.overhead.some(([bytes, overhead]) => bytes <= to && overhead < -0.005));
    const overheadAt = (model, index) => (sizes[index] > 0 ? num(model.allocated_bytes[index]) / sizes[index] - 1 : null);
    const first = distinct(models, sizes);
    const shown = (state) => models.filter((model) => !state.hidden.has(model.model));
    const figure = new Figure({
      name: "files",
      title: "Capacity and overhead of one file, by its size",
      note: "Overhead is the space allocated beyond the size, in per cent of the size. Above " +
        `${count(MOST_OVERHEAD * 100)} % it is clipped, because the smallest files would hide all others. Up to 2 MiB every step is drawn, above that 16 sizes per doubling.`,
      alt: "Allocated bytes and overhead of a single file by its size, for each layout",
      state: { axis: "linear", range: "small", hidden: new Set(models.filter((model) => !first.has(model)).map((model) => model.model)) },
      controls: [{ key: "range", label: "Sizes", options: RANGES.map(([key, text]) => [key, text]) },
        { key: "axis", label: "Axes", options: [["linear", "Linear"], ["log", "Log"]] }],
      legend: (color) => models.map(({ model, look }) => ({ key: model, label: model, name: true, color: color(look.color), dash: look.dash })),
      layout(state, color) {
        const log = state.axis === "log";
        const to = limit(state);
        const x = (points) => (log ? points.filter(([at]) => at >= 1).map(([at, value]) => [log2(at), value]) : points);
        const draw = (which) => shown(state).map(({ [which]: points, look }) => line(x(points), { color: color(look.color), dash: look.type, width: 1.75 }));
        // What is cut off must not stretch the axis.
        const cut = (series) => ({ ...series, values: (extent) => series.values(extent).map((value) => Math.min(MOST_OVERHEAD, value)) });
        const stops = sizes.filter((bytes) => bytes <= to && (bytes % 4096 < 2 || bytes > 2 << 20) && (!log || bytes >= 1024));
        return {
          x: log
            ? { scale: "log2", unit: "bytes", title: "File size", full: [10, log2(to) + 0.1], least: 1, stops: stops.map(log2) }
            : { scale: "linear", unit: "bytes", title: "File size", full: [0, to * 1.04], least: 4096, stops },
          panels: [
            { title: "Allocated", unit: "bytes", log, series: draw("capacity") },
            { title: "Overhead", unit: "share", min: saves(state, to) ? -1 : 0, series: draw("overhead").map(cut) },
          ],
          tip(at) {
            const bytes = log ? 2 ** at : at;
            const index = nextIndex(sizes, bytes);
            return {
              title: `File of ${exact(sizes[index])}`,
              columns: ["allocated", "overhead"],
              rows: shown(state).map((model) => ({
                color: color(model.look.color), dash: model.look.dash, label: Format.shorten(model.model, 32),
                value: [size(model.allocated_bytes[index]), change(overheadAt(model, index))],
              })),
            };
          },
        };
      },
      table(state) {
        const to = limit(state);
        const step = { small: 4096, medium: 65536 }[state.range];
        const at = sizes.flatMap((bytes, index) => (bytes <= to && bytes > 0 && (step ? bytes % step === 0 : Number.isInteger(log2(bytes)) && bytes >= 1024) ? [index] : []));
        return {
          caption: "Allocated bytes and overhead of one file, by its size",
          columns: [{ title: "File size", text: true }, ...shown(state).flatMap(({ model }) => [{ title: `${model}, allocated` }, { title: `${model}, overhead` }])],
          rows: at.map((index) => [cells.size(sizes[index]), ...shown(state).flatMap((model) => [cells.size(model.allocated_bytes[index]), cells.change(overheadAt(model, index))])]),
        };
      },
    });
    return { id: "files", title: "Overhead by file size", short: "One file", lead: ["Space that a layout allocates for a single file, independent of the population."], parts: [figure] };
  }

  /** The first models whose lines do not lie on each other. */
  function distinct(models, sizes) {
    const compared = sizes.flatMap((bytes, index) => (bytes >= 16 << 10 && bytes <= 1 << 20 ? [index] : []));
    const apart = (a, b) => compared.reduce((sum, index) => {
      const [left, right] = [num(a.allocated_bytes[index]), num(b.allocated_bytes[index])];
      return sum + Math.abs(left - right) / Math.max(1, left, right);
    }, 0) / Math.max(1, compared.length);
    const chosen = new Set();
    for (const model of models) {
      if (chosen.size < SHOWN_AT_FIRST && [...chosen].every((other) => apart(model, other) > 0.03)) chosen.add(model);
    }
    return chosen;
  }

  /** The first of rising `values` that is not below `value`. */
  function nextIndex(values, value) {
    let [below, at] = [-1, values.length - 1];
    while (at - below > 1) {
      const middle = (below + at) >> 1;
      if (values[middle] >= Math.floor(value)) at = middle;
      else below = middle;
    }
    return at;
  }

  // ---------------------------------------------------------------- 6. costs

  const WAYS = { fast: "All fast", slow: "All slow", hybrid: "Hybrid" };

  function costs(data) {
    const { plan } = data;
    const tiers = plan.fast_tiers.filter((tier) => tier.costs?.length);
    const bills = plan.bills ?? [];
    if (!tiers.length && !bills.length) return null;
    const currency = plan.currency || "";
    const money = (value, digits = 0) => `${Format.decimal(value, digits)} ${currency}`.trim();
    const find = (state) => tiers.find((tier) => tier.model === state.model) ?? tiers[0];
    const cutoff = (cost) => (num(cost.cutoff_bytes) === 0 ? "metadata only" : `files up to ${size(cost.cutoff_bytes)}`);
    const way = (cost) => (cost.way === "hybrid" ? cutoff(cost) : WAYS[cost.way]);
    const devices = (purchase) => (purchase ? `${count(purchase.count)} × ${purchase.device}` : "");
    const same = (a, b) => Boolean(a && b) && a.way === b.way && num(a.cutoff_bytes) === num(b.cutoff_bytes);
    const figure = tiers.length > 0 && new Figure({
      name: "costs",
      title: "Cost by cutoff",
      note: "One kind of device per tier, in whole numbers, chosen as the cheapest for the capacity. Metadata and files up to the cutoff are on fast devices, the rest on slow ones.",
      alt: "Cost of a hybrid by cutoff, compared with fast devices only and slow devices only",
      state: { model: tiers[0].model, axis: "linear" },
      controls: [...(tiers.length > 1 ? [{ key: "model", label: "Layout", select: true, options: tiers.map((tier) => [tier.model, tier.model]) }] : []), LINEAR_OR_LOG],
      legend: (color) => [{ key: "hybrid", label: WAYS.hybrid, color: color("c1") }, { key: "fast", label: WAYS.fast, color: color("c2"), dash: "dashed" },
        { key: "slow", label: WAYS.slow, color: color("c3"), dash: "dotted" }],
      layout(state, color) {
        const tier = find(state);
        const hybrids = tier.costs.filter((cost) => cost.way === "hybrid");
        const place = placesOf(hybrids.map((cost) => num(cost.cutoff_bytes)));
        const points = hybrids.map((cost) => [place(num(cost.cutoff_bytes)), num(cost.cost)]);
        const full = [points[0][0] - 0.3, points.at(-1)[0] + 0.3];
        const alone = (name) => tier.costs.find((cost) => cost.way === name);
        const flat = (name, look) => (alone(name) && !state.hidden.has(name) ? [line(full.map((x) => [x, num(alone(name).cost)]), look)] : []);
        const { cheapest } = tier;
        return {
          x: { scale: "log2", unit: "bytes", title: "Cutoff", snap: true, zero: place(0), full, least: 2, stops: points.map(([at]) => at) },
          mark: [
            { at: place(num(plan.usual_cutoff_bytes)), text: `chosen: ${size(plan.usual_cutoff_bytes)}` },
            ...(cheapest?.way === "hybrid" && num(cheapest.cutoff_bytes) !== num(plan.usual_cutoff_bytes) ? [{ at: place(num(cheapest.cutoff_bytes)), text: "" }] : []),
          ],
          panels: [{
            title: currency ? `Cost, ${currency}` : "Cost", unit: "money", log: state.axis === "log",
            series: [...flat("fast", { color: color("c2"), dash: [6, 4] }), ...flat("slow", { color: color("c3"), dash: [1.5, 3] }),
              ...(state.hidden.has("hybrid") ? [] : [line(points, { color: color("c1"), symbol: "circle" })]),
              ...(cheapest?.way === "hybrid" ? [line([[place(num(cheapest.cutoff_bytes)), num(cheapest.cost)]], { color: color("ink"), symbol: "diamond", symbolSize: 12 })] : [])],
          }],
          tip(at) {
            const cost = hybrids.find((each) => Math.abs(place(num(each.cutoff_bytes)) - at) < 0.5);
            return cost && {
              title: `Fast: ${cutoff(cost)}`,
              rows: [{ color: color("c1"), label: "hybrid", value: money(cost.cost) }, { label: "fast", value: devices(cost.fast) }, { label: "slow", value: devices(cost.slow) },
                ...["fast", "slow"].filter(alone).map((name) => ({ color: color(name === "fast" ? "c2" : "c3"), label: WAYS[name].toLowerCase(), value: money(alone(name).cost) }))],
            };
          },
        };
      },
      show(state) {
        const tier = find(state);
        const best = tier.cheapest;
        return [el("p", { class: "verdict" }, best
          ? ["Cheapest option that keeps metadata and files up to ", size(plan.usual_cutoff_bytes), " fast: ",
            el("strong", {}, best.way === "hybrid" ? `a hybrid with ${cutoff(best)} on fast devices, ${money(best.cost)}` : `fast devices only, ${money(best.cost)}`), "."]
          : `No option keeps metadata and files up to ${size(plan.usual_cutoff_bytes)} on fast devices.`),
        table({
          caption: `Costs under ${tier.model}`,
          columns: [{ title: "Option", text: true }, { title: "Fast devices", text: true }, { title: "Slow devices", text: true }, { title: currency ? `Cost, ${currency}` : "Cost" },
            { title: `Fast up to ${size(plan.usual_cutoff_bytes)}`, text: true }],
          rows: tier.costs.map((cost) => {
            const mark = same(cost, best);
            const text = mark ? `${way(cost)} (cheapest)` : way(cost);
            return [mark ? el("strong", {}, text) : text, { text: devices(cost.fast), name: Boolean(cost.fast) }, { text: devices(cost.slow), name: Boolean(cost.slow) },
              { text: mark ? el("strong", {}, Format.decimal(cost.cost, 0)) : Format.decimal(cost.cost, 0), value: cost.cost }, cost.holds ? "yes" : "no"];
          }),
        })];
      },
    });
    const months = bills.length > 0 && billTable(data, currency);
    return { id: "costs", title: "Cost", short: "Costs", lead: [], parts: [figure, months] };
  }

  /** What object stores bill: everything once, and a month. */
  function billTable({ plan: { reads, bills }, reads: readsWords }, currency) {
    const priced = (title) => ({ title: currency ? `${title}, ${currency}` : title });
    const counted = (value) => (known(value) ? cells.count(value) : "");
    return el("div", { class: "block" },
      el("h3", {}, "Object store bills"),
      el("p", { class: "note" }, `At the given prices. Puts: to upload or move everything once. ${readsWords ?? ""}`.trim()),
      table({
        caption: "Object store bills",
        columns: [{ title: "Layout", text: true }, { title: "Objects" }, { title: "Puts (once)" }, priced("Cost of puts (once)"), priced("Storage per month"),
          ...(reads ? [{ title: "Gets per month" }, priced("Reads per month")] : [])],
        rows: bills.map((bill) => [{ text: bill.model, name: true }, counted(bill.objects), counted(bill.puts), cells.decimal(bill.requests, 2), cells.decimal(bill.month, 2),
          ...(reads ? [counted(bill.reads?.requests), known(bill.reads) ? cells.decimal(bill.reads.cost, 2) : ""] : [])]),
      }));
  }

  /** Places of cutoffs on an axis of powers of two, with 0 one step left of the least of the others. */
  function placesOf(cutoffs) {
    const least = Math.min(...cutoffs.filter((bytes) => bytes > 0));
    const zero = Number.isFinite(least) ? Math.floor(Math.log2(least)) - 1 : 0;
    return (bytes) => (bytes <= 0 ? zero : Math.log2(bytes));
  }

  // ---------------------------------------------------------------- 7. settings

  function settings({ plan }) {
    const tiers = plan.fast_tiers.filter((tier) => tier.settings?.length);
    if (!tiers.length) return null;
    const parts = tiers.map((tier) => {
      const text = tier.settings.join("\n");
      const status = el("span", { class: "dim", role: "status" });
      const code = el("pre", { class: "name", tabindex: "0", "aria-label": `Settings for ${tier.model}` }, el("code", {}, text));
      return el("div", { class: "block" }, el("div", { class: "copy" }, el("h3", { class: "name" }, tier.model),
        el("button", { type: "button", "aria-label": `Copy the settings for ${tier.model}`, onclick: () => copy(text, code, status) }, "Copy"), status), code);
    });
    return {
      id: "settings", title: "Setup commands", short: "Settings", parts,
      lead: [`Settings for a cutoff of ${size(plan.usual_cutoff_bytes)}, or for the largest that the given fast tier can hold. Review them before you run them.`],
    };
  }

  /** Copies a text; where the browser forbids it, the text is selected for the reader to copy. */
  async function copy(text, node, status) {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(node);
      status.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => status.replaceChildren(), 4000);
  }

  // ---------------------------------------------------------------- what to buy and what to type

  /** The card that the page opens with: devices, room, and commands, for the first layout with a fast tier. */
  function card({ plan }) {
    const tier = plan.fast_tiers[0];
    const usual = tier?.curve.find((point) => num(point.cutoff_bytes) === num(plan.usual_cutoff_bytes));
    const totals = new Map(plan.models.map((model) => [model.model, model]));
    const rising = plan.models.filter((model) => known(model.total_bytes)).sort((a, b) => num(a.total_bytes) - num(b.total_bytes));
    const purchase = (each) => (each ? `${count(each.count)} × ${each.device}` : null);
    const entry = (name, value, more) => value && el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, more) : null));
    const entries = [];
    let text = null;
    if (usual) {
      const { fit, cheapest } = tier;
      const held = fit?.largest;
      const at = fit ? held : usual;
      const slow = at ? num(at.slow_bytes) * (1 + num(plan.growth_fraction)) : null;
      entries.push(entry("Layout", el("span", { class: "name" }, tier.model), totals.has(tier.model) ? `${size(totals.get(tier.model).total_bytes)} in all, raw` : null),
        fit ? entry("Fast devices given", size(fit.fast_device_bytes), held ? `hold metadata and files up to ${exact(held.cutoff_bytes)}` : "too small even for the metadata")
          : entry("Fast devices", size(usual.fast_device_bytes), `for metadata and files up to ${size(usual.cutoff_bytes)}, ${share(usual.small_file_fraction)} of the files; filled to ${share(tier.fill_fraction)}`),
        slow !== null && entry("Slow devices", size(Math.round(slow)), "raw, for the rest; add room to grow"),
        cheapest && entry("Cheapest purchase", [purchase(cheapest.fast), purchase(cheapest.slow)].filter(Boolean).join(" and "), `${Format.decimal(cheapest.cost, 0)} ${plan.currency ?? ""}`.trim()));
      text = tier.settings?.length ? tier.settings.join("\n") : null;
    } else if (rising.length) {
      entries.push(entry("Least space", size(rising[0].total_bytes), rising[0].model), rising.length > 1 && entry("Most", size(rising.at(-1).total_bytes), rising.at(-1).model));
    }
    if (!entries.some(Boolean)) return null;
    const status = el("span", { class: "dim", role: "status" });
    const code = text && el("pre", { class: "name", tabindex: "0", "aria-label": `Commands for ${tier.model}` }, el("code", {}, text));
    return el("div", { class: "card", id: "card" }, el("h2", { class: "small" }, text ? "What to buy, and what to type" : "What to buy"),
      el("dl", { class: "facts" }, entries),
      tier && plan.fast_tiers.length > 1 && el("p", { class: "note" }, `For the first of the ${count(plan.fast_tiers.length)} layouts with a fast tier; the others are below. To choose another: `, el("code", {}, `--model ${shellNames(plan)}`), "."),
      text && el("div", { class: "copy" }, el("span", { class: "dim" }, "Review before you run:"), el("button", { type: "button", onclick: () => copy(text, code, status) }, "Copy"), status), code);
  }

  /** What --model takes: the next layouts with a fast tier, as far as there is room. */
  const shellNames = (plan) => plan.fast_tiers.slice(1, 4).map((tier) => Shell.shellWord(tier.model)).join(" or ");

  /** Block sizes belong to the page only where somebody asked: by name, with reads and writes, a cache, or a tolerance. */
  const asksForBlocks = ({ plan }) => Boolean(plan.block_sizes_asked || plan.operations || plan.caching || (plan.recommendation && num(plan.recommendation.tolerance_fraction) !== 0.05) || !plan.models.length);

  return { card, asksForBlocks, looks, manyHidden, placesOf, LINEAR_OR_LOG, blockSizes, caches, layouts, files, costs, settings };
})();
