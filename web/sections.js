// The sections of the page about sizes. Each function takes the view of one source (and all sources, where they compare) and
// returns `{id, title, lead, parts}`, or null when the source has nothing to say about it: a published table has no
// directories, an fsstats CSV no block sizes.
"use strict";

const Sections = (() => {
  const { el, num, known, count, size, share, change, bucket, cells, table } = Format;
  const { Figure, line, bars, log2, unlog2 } = Figures;
  const SMALL = 65536;
  const SOURCE_COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"];
  const PUBLISHED_DASHES = [["dotted", [1.5, 3]], ["dashed", [6, 4]], ["dashdot", [8, 3, 2, 3]]];
  const SHARE_OR_ABSOLUTE = { key: "scale", label: "Scale", options: [["share", "Share"], ["absolute", "Absolute"]] };
  const LINEAR_OR_LOG = { key: "axis", label: "Vertical axis", options: [["linear", "Linear"], ["log", "Log"]] };

  /** A source with its parts at hand; what is missing reads as empty. */
  function view(source, index) {
    const survey = source.survey ?? {};
    const roots = survey.roots ?? [];
    const named = survey.name ?? (roots.length ? roots.join(", ") : null);
    const curve = (source.curve ?? []).map((point) => ({
      size: num(point.size_bytes), place: log2(num(point.size_bytes)), files: num(point.files_fraction), bytes: num(point.bytes_fraction),
    }));
    return {
      source, survey, roots, curve,
      name: named ?? (survey.anonymous ? `Anonymous survey ${index + 1}` : `Source ${index + 1}`),
      color: SOURCE_COLORS[index % SOURCE_COLORS.length],
      counts: survey.counts ?? {},
      totals: survey.totals ?? {},
      small: num(survey.options?.small_file_bytes) || SMALL,
      dist(name) {
        const found = survey.distributions?.[name];
        return found && num(found.count) > 0 && found.buckets?.length ? found : null;
      },
    };
  }

  /** Shares of the files and of their bytes in files of `bytes` or smaller. */
  function upTo(shown, bytes) {
    const exact = (shown.survey.up_to ?? []).find((point) => num(point.size_bytes) === bytes);
    if (exact) return { files: num(exact.files_fraction), bytes: num(exact.bytes_fraction) };
    return shown.curve.length ? { files: at(shown.curve, log2(bytes), "files"), bytes: at(shown.curve, log2(bytes), "bytes") } : null;
  }

  /** The height of a curve at a place on the axis of powers of two, on the straight line between its points. */
  function at(curve, place, which) {
    const after = curve.findIndex((point) => point.place >= place);
    if (after < 0) return curve.at(-1)[which];
    if (after === 0) return curve[0].place === place ? curve[0][which] : 0;
    const [a, b] = [curve[after - 1], curve[after]];
    return a[which] + ((place - a.place) / (b.place - a.place)) * (b[which] - a[which]);
  }

  const places = (entry) => (num(entry.high) <= 1 ? [-1.5, -0.5] : [Math.log2(num(entry.low)), Math.log2(num(entry.high))]);
  const middle = (entry) => places(entry).reduce((a, b) => a + b) / 2;

  /** The x axis of a histogram in buckets of powers of two. */
  function bucketAxis(lists, unit, title) {
    const all = lists.flat();
    const edges = all.flatMap(places);
    const to = Math.max(2, ...edges);
    const from = Math.min(...edges);
    return { scale: "log2", unit, title, full: [Number.isFinite(from) ? from : 0, to], least: 2, stops: [...new Set(all.map(middle))].sort((a, b) => a - b) };
  }

  function holds(entry, place) {
    const [from, to] = places(entry);
    return place >= (from < -0.5 ? -Infinity : from) - (from === 0 ? 0.5 : 0) && place < to;
  }

  const withSmall = (shown) => ({ at: Math.log2(shown.small), text: `small: ${size(shown.small)} or less` });
  const part = (value, whole) => (num(whole) > 0 ? num(value) / num(whole) : 0);
  const sum = (values) => values.reduce((total, value) => total + num(value), 0);

  // ---------------------------------------------------------------- 1. files and bytes per bucket

  function buckets(shown) {
    const dist = shown.dist("file_size");
    if (!dist) return null;
    const total = num(dist.total);
    const entries = dist.buckets;
    const most = (key) => entries.reduce((best, entry) => (num(entry[key]) > num(best[key]) ? entry : best));
    const small = upTo(shown, shown.small);
    const lead = [small && `Files of ${size(shown.small)} or less are ${share(small.files)} of the files and hold ${share(small.bytes)} of the bytes.`,
      `The fullest bucket is ${bucket(most("count").low, most("count").high, "bytes")} by files and ` +
      `${bucket(most("sum").low, most("sum").high, "bytes")} by bytes.`];
    const figure = new Figure({
      name: "buckets",
      title: "Files and bytes per bucket of file size",
      note: "A bucket goes from one power of two up to, but not including, the next; empty files have a bucket of their own at 0.",
      alt: "Two histograms by file size: number of files, and bytes",
      state: { scale: "share", axis: "linear" },
      controls: [SHARE_OR_ABSOLUTE, LINEAR_OR_LOG],
      layout(state, color) {
        const relative = state.scale === "share";
        const items = (key, whole) => entries.map((entry) => [...places(entry), relative ? part(entry[key], whole) : num(entry[key])]);
        const log = state.axis === "log";
        return {
          x: bucketAxis([entries], "bytes", "File size"),
          mark: withSmall(shown),
          panels: [
            { title: relative ? "Share of the files" : "Files", unit: relative ? "share" : "count", log, series: [bars(items("count", dist.count), { color: color("files") })] },
            { title: relative ? "Share of the bytes" : "Bytes", unit: relative ? "share" : "bytes", log, series: [bars(items("sum", total), { color: color("bytes") })] },
          ],
          tip(place) {
            const entry = entries.find((candidate) => holds(candidate, place));
            return entry && {
              title: bucket(entry.low, entry.high, "bytes"),
              rows: [
                { color: color("files"), label: "files", value: `${count(entry.count)} (${share(part(entry.count, dist.count))})` },
                { color: color("bytes"), label: "bytes", value: `${size(entry.sum)} (${share(part(entry.sum, total))})` },
              ],
            };
          },
        };
      },
      table: () => ({
        caption: "Files and bytes per bucket of file size",
        columns: [{ title: "File size", text: true }, { title: "Files" }, { title: "Share of the files" }, { title: "Bytes" }, { title: "Share of the bytes" }],
        rows: entries.map((entry) => [bucket(entry.low, entry.high, "bytes"), cells.count(entry.count), cells.share(part(entry.count, dist.count)),
          cells.size(entry.sum), cells.share(part(entry.sum, total))]),
      }),
    });
    return { id: "buckets", title: "File sizes", short: "Sizes", lead, parts: [figure] };
  }

  // ---------------------------------------------------------------- 2. cumulative curves

  function cumulative(shown, all, published) {
    const drawn = all.filter((each) => each.curve.length);
    const names = new Set(all.map((each) => each.survey.name));
    const others = (published ?? []).map((entry, index) => ({
      key: entry.name, title: entry.title, dash: PUBLISHED_DASHES[index % PUBLISHED_DASHES.length], curve: view({ curve: entry.curve }, 0).curve,
    })).filter((entry) => entry.curve.length && !names.has(entry.key) && !names.has(entry.title));
    if (!drawn.length) return null;
    const key = (each) => `source ${all.indexOf(each)}`;
    const lines = (state, color) => [
      ...others.map((entry) => ({ ...entry, color: color("published"), type: entry.dash[1], width: 1.5 })),
      ...drawn.map((each) => ({ key: key(each), title: each.name, name: true, curve: each.curve, color: color(each.color), width: 2.5 })),
    ].filter((entry) => !state.hidden.has(entry.key));
    const last = Math.max(...[...drawn, ...others].map((each) => each.curve.at(-1).place), 10);
    const largest = Math.max(1024, ...drawn.map((each) => each.curve.at(-1).size));
    const points = (curve, which, linear) => linear
      ? [...curve.map((point) => [point.size, point[which]]), [Math.max(largest, curve.at(-1).size), 1]]
      : [...curve.map((point) => [point.place, point[which]]), [last, 1]];
    const nine = (each) => each.curve.find((point) => point.files >= 0.9)?.size ?? largest;

    const figure = new Figure({
      name: "cumulative",
      title: "Share of the files, and of their bytes, in files up to a size",
      note: others.length ? "Grey lines are published surveys; click a name to hide or show its line." : null,
      alt: "Two cumulative curves by file size: files, and bytes",
      state: { xAxis: "log", hidden: new Set(drawn.length > 1 ? others.map((entry) => entry.key) : []) },
      controls: [{ key: "xAxis", label: "Size axis", options: [["log", "Log"], ["linear", "Linear"]] }],
      legend: (color) => [
        ...drawn.map((each) => ({ key: key(each), label: each.name, name: true, color: color(each.color) })),
        ...others.map((entry) => ({ key: entry.key, label: entry.title, color: color("published"), dash: entry.dash[0] })),
      ],
      layout(state, color) {
        const linear = state.xAxis === "linear";
        const list = lines(state, color);
        const panel = (title, which) => ({
          title, unit: "share", min: 0, max: 1, step: 0.25,
          series: list.map((entry) => line(points(entry.curve, which, linear), { color: entry.color, dash: entry.type, width: entry.width })),
        });
        return {
          x: linear
            ? { scale: "linear", unit: "bytes", title: "File size", full: [0, largest], start: [0, Math.min(largest, 1.5 * Math.max(1024, ...drawn.map(nine)))],
              least: 256, stops: drawn[0].curve.map((point) => point.size) }
            : { scale: "log2", unit: "bytes", title: "File size", full: [-1, last], least: 2, stops: drawn[0].curve.map((point) => point.place) },
          mark: { at: linear ? shown.small : Math.log2(shown.small), text: withSmall(shown).text },
          panels: [panel("By files", "files"), panel("By bytes", "bytes")],
          tip(place) {
            const bytes = linear ? Math.max(0, place) : unlog2(place);
            const where = log2(linear ? Math.round(bytes) : bytes);
            return {
              title: `${size(Math.round(bytes))} or smaller`,
              columns: ["of files", "of bytes"],
              rows: [...list].reverse().flatMap((entry) => [{
                color: entry.color, dash: entry.dash?.[0], label: Format.shorten(entry.title, 32),
                value: [share(at(entry.curve, where, "files")), share(at(entry.curve, where, "bytes"))],
              }]),
            };
          },
        };
      },
      table(state) {
        const list = lines(state, () => "");
        const last2 = Math.ceil(last);
        return {
          caption: "Share of the files and of their bytes in files of a size or smaller",
          columns: [{ title: "Size up to", text: true }, ...list.flatMap((entry) => [{ title: `${entry.title}, files` }, { title: `${entry.title}, bytes` }])],
          rows: [-1, ...Array.from({ length: last2 + 1 }, (_, power) => power)].map((place) => [cells.size(unlog2(place)),
            ...list.flatMap((entry) => [cells.fineShare(at(entry.curve, place, "files")), cells.fineShare(at(entry.curve, place, "bytes"))])]),
        };
      },
    });

    const withDeciles = all.filter((each) => each.dist("file_size")?.deciles?.length);
    const decile = (each, which) => each.dist("file_size")[which] ?? [];
    const deciles = withDeciles.length > 0 && el("div", { class: "block" },
      el("h3", {}, "Deciles of file size"),
      el("p", { class: "note" }, "The smallest size such that at least this share of the files, or of their bytes, is in files of that size or smaller."),
      table({
        caption: "Deciles of file size, by files and by bytes",
        columns: [{ title: "Share", text: true }, ...withDeciles.flatMap((each) => {
          const of = withDeciles.length > 1 ? `${Format.shorten(each.name, 28)}, ` : "";
          return [{ title: `${of}${of ? "by" : "By"} files` }, { title: `${of}${of ? "by" : "By"} bytes` }];
        })],
        rows: Array.from({ length: 10 }, (_, index) => [`${(index + 1) * 10} %`,
          ...withDeciles.flatMap((each) => [cells.size(decile(each, "deciles")[index]), cells.size(decile(each, "deciles_by_total")[index])])]),
      }));
    const dist = shown.dist("file_size");
    const lead = [known(dist?.deciles?.[4]) && known(dist?.deciles_by_total?.[4]) &&
      `Half of the files are ${size(dist.deciles[4])} or smaller; half of the bytes are in files of ${size(dist.deciles_by_total[4])} or larger.`];
    return { id: "cumulative", title: others.length || drawn.length > 1 ? "Then and now" : "Cumulative curves", short: "Curves", lead, parts: [figure, deciles] };
  }

  // ---------------------------------------------------------------- 3. overhead by block size

  function blockSizes(shown, all) {
    const rows = shown.survey.block_sizes ?? [];
    if (!rows.length) return null;
    const drawn = all.filter((each) => each.survey.block_sizes?.length);
    const blocks = [...new Set(drawn.flatMap((each) => each.survey.block_sizes.map((row) => num(row.block_bytes))))].sort((a, b) => a - b);
    const find = (each, block) => each.survey.block_sizes.find((row) => num(row.block_bytes) === block);
    const figure = new Figure({
      name: "block-size",
      title: "Cost of a block size",
      note: "Space with every file rounded up to whole blocks, compared with 1 KiB blocks; and the share of files that fit in one block.",
      alt: "Growth of the allocated bytes and share of the files in one block, by block size",
      state: { axis: "log" },
      controls: [LINEAR_OR_LOG],
      legend: (color) => (drawn.length > 1 ? drawn.map((each) => ({ key: each.name, label: each.name, name: true, color: color(each.color) })) : []),
      layout(state, color) {
        const list = drawn.filter((each) => !state.hidden.has(each.name));
        const tint = (each, single) => color(drawn.length > 1 ? each.color : single);
        const points = (each, key, log) => blocks.map((block) => [Math.log2(block), num(find(each, block)?.[key])]).filter(([, value]) => !log || value > 0);
        return {
          x: { scale: "log2", unit: "bytes", title: "Block size", snap: true, full: [Math.log2(blocks[0]) - 0.3, Math.log2(blocks.at(-1)) + 0.3], least: 2, stops: blocks.map(Math.log2) },
          panels: [
            { title: "Growth of allocated bytes over 1 KiB blocks", unit: "share", log: state.axis === "log",
              series: list.map((each) => line(points(each, "growth_fraction", state.axis === "log"), { color: tint(each, "bytes"), symbol: "circle" })) },
            { title: "Files that fit in one block", unit: "share", min: 0, max: 1, step: 0.25,
              series: list.map((each) => line(points(each, "single_block_fraction", false), { color: tint(each, "files"), symbol: "circle" })) },
          ],
          tip(place) {
            const block = 2 ** Math.round(place);
            const found = list.map((each) => [each, find(each, block)]).filter(([, row]) => row);
            return found.length > 0 && {
              title: `${size(block)} blocks`,
              rows: found.flatMap(([each, row]) => {
                const of = drawn.length > 1 ? `${Format.shorten(each.name, 28)}: ` : "";
                return [{ color: tint(each, "bytes"), label: `${of}growth`, value: change(row.growth_fraction) },
                  { label: "allocated", value: size(row.allocated_bytes) },
                  { color: tint(each, "files"), label: "in one block", value: share(row.single_block_fraction) }];
              }),
            };
          },
        };
      },
      table: () => ({
        caption: `Block sizes: ${shown.name}`,
        columns: [{ title: "Block size", text: true }, { title: "Allocated" }, { title: "Growth over 1 KiB" }, { title: "Files in one block" }],
        rows: rows.map((row) => [cells.size(row.block_bytes), cells.size(row.allocated_bytes), cells.change(row.growth_fraction), cells.share(row.single_block_fraction)]),
      }),
    });
    const four = rows.find((row) => num(row.block_bytes) === 4096);
    const sixteen = rows.find((row) => num(row.block_bytes) === 16384);
    const than = (row) => (num(row.growth_fraction) < 0 ? `${share(-num(row.growth_fraction))} less` : `${share(row.growth_fraction)} more`);
    const lead = [four && `With 4 KiB blocks, these files need ${than(four)} than with 1 KiB, and ${share(four.single_block_fraction)} of them fit in one block.`,
      sixteen && `With 16 KiB, they need ${than(sixteen)}.`];
    return { id: "block-size", title: "Overhead by block size", short: "Block size", lead, parts: [figure, weights(shown, rows)] };
  }

  /** Tanenbaum's Fig. 3: share of the disk by decile of the files, for several block sizes. */
  function weights(shown, rows) {
    const usable = rows.filter((row) => row.cumulative_weight?.length === 10);
    const deciles = shown.dist("file_size")?.deciles;
    if (!usable.length || !deciles) return null;
    const classic = usable.filter((row) => num(row.block_bytes) >= 1024 && num(row.block_bytes) <= 16384);
    const box = el("div");
    const fill = (list) => box.replaceChildren(table({
      caption: "Share of the allocated bytes in the smallest 10 %, 20 %, … of the files, by block size",
      columns: [{ title: "Smallest", text: true }, { title: "Largest file" }, ...list.map((row) => ({ title: size(row.block_bytes) }))],
      rows: deciles.map((largest, index) => [`${(index + 1) * 10} %`, cells.size(largest),
        ...list.map((row) => cells.fineShare(row.cumulative_weight[index], { shade: Math.sqrt(num(row.cumulative_weight[index])) * 0.3 }))]),
    }));
    const buttons = [["1 to 16 KiB", classic], ["All block sizes", usable]].map(([text, list]) => el("button", {
      type: "button", "aria-pressed": String(list === classic),
      onclick: (event) => {
        for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
        fill(list);
      },
    }, text));
    fill(classic.length ? classic : usable);
    return el("div", { class: "block" },
      el("h3", {}, "Share of disk space by file decile"),
      el("p", { class: "note" }, "Files in order of size, a tenth of them per row; the share of allocated bytes of these and all smaller files."),
      classic.length > 0 && classic.length < usable.length && el("div", { class: "controls" }, el("div", { class: "segment", role: "group", "aria-label": "Block sizes" }, buttons)),
      box);
  }

  // ---------------------------------------------------------------- 4. overhead by file size

  function overhead(shown) {
    const positive = shown.survey.overhead_by_size?.positive ?? [];
    const negative = shown.survey.overhead_by_size?.negative ?? [];
    if (![...positive, ...negative].some((entry) => num(entry.sum) !== 0)) return null;
    const [above, below] = [sum(positive.map((entry) => entry.sum)), sum(negative.map((entry) => Math.abs(num(entry.sum))))];
    const mean = (entry) => part(entry.sum, entry.count);
    const signs = [positive.length > 0 && above > 0, negative.length > 0 && below > 0];
    const figure = new Figure({
      name: "overhead-by-size",
      title: "Overhead by size",
      note: "Allocated minus size, summed over the files, directories and symlinks of each size. Negative overhead: less is allocated than the size (sparse, compressed or stored inline).",
      alt: "Histogram of overhead by size of files, directories and symlinks",
      state: { axis: "linear" },
      controls: [LINEAR_OR_LOG],
      legend: (color) => (signs[0] && signs[1] ? [{ key: "positive", label: "Positive overhead", color: color("bytes") }, { key: "negative", label: "Negative overhead", color: color("c4") }] : []),
      layout(state, color) {
        const log = state.axis === "log";
        const both = log && signs[0] && signs[1];
        const items = (list, sign) => list.map((entry) => [...places(entry), sign * Math.abs(num(entry.sum))]);
        const series = [];
        if (signs[0] && !state.hidden.has("positive")) series.push(bars(items(positive, 1), { color: color("bytes"), slot: 0, slots: both ? 2 : 1 }));
        if (signs[1] && !state.hidden.has("negative")) series.push(bars(items(negative, log ? 1 : -1), { color: color("c4"), slot: both ? 1 : 0, slots: both ? 2 : 1 }));
        return {
          x: bucketAxis([positive, negative], "bytes", "Size"),
          mark: withSmall(shown),
          panels: [{ title: "Overhead", unit: "bytes", log, series }],
          tip(place) {
            const [up, down] = [positive, negative].map((list) => list.find((entry) => holds(entry, place)));
            const entry = up ?? down;
            const rows = (found, name, tint, whole) => (found && num(found.count) > 0 ? [
              { color: color(tint), label: `${name} overhead`, value: `${size(found.sum)} (${share(part(Math.abs(num(found.sum)), whole))})` },
              { label: "count", value: count(found.count) },
              { label: "mean each", value: size(Math.abs(mean(found))) },
            ] : []);
            return entry && {
              title: bucket(entry.low, entry.high, "bytes"),
              rows: [...rows(up, "positive", "bytes", above), ...rows(down, "negative", "c4", below)],
            };
          },
        };
      },
      table() {
        const lows = [...new Set([...positive, ...negative].map((entry) => num(entry.low)))].sort((a, b) => a - b);
        const find = (list, low) => list.find((entry) => num(entry.low) === low);
        return {
          caption: "Overhead by size",
          columns: [{ title: "Size", text: true }, { title: "With positive overhead" }, { title: "Positive overhead" }, { title: "With negative overhead" }, { title: "Negative overhead" }],
          rows: lows.map((low) => {
            const [up, down] = [find(positive, low), find(negative, low)];
            return [bucket(low, (up ?? down).high, "bytes"), cells.count(up?.count ?? 0), cells.size(up?.sum ?? 0), cells.count(down?.count ?? 0), cells.size(down?.sum ?? 0)];
          }),
        };
      },
    });
    const small = sum(positive.filter((entry) => num(entry.high) <= shown.small).map((entry) => entry.sum));
    const lead = [above > 0 && `Positive overhead totals ${size(above)}, ${share(part(small, above))} of it in entries smaller than ${size(shown.small)}.`,
      below > 0 && `Negative overhead saves ${size(below)}.`];
    return { id: "overhead", title: "Overhead by file size", short: "Overhead", lead, parts: [figure] };
  }

  return { view, upTo, buckets, cumulative, blockSizes, overhead, helpers: { places, holds, bucketAxis, part, sum, SHARE_OR_ABSOLUTE, LINEAR_OR_LOG } };
})();
