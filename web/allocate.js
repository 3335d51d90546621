// The page of allocations: what single files need under a layout, as a curve and in a table.
"use strict";

Pages.add("allocate", (data) => {
  const { el, num, known, count, size, share, change, table } = Format;
  const { Figure, line, log2, steps } = Figures;
  const LOOKS = [["c1"], ["c2", "dashed", [6, 4]], ["c3", "dotted", [1.5, 3]], ["c4"], ["c5", "dashed", [6, 4]], ["c6", "dotted", [1.5, 3]]];
  const layouts = (data.allocations ?? []).map(({ model, files, metadata_is_within: within }, index) => {
    const distinct = new Map((files ?? []).map((file) => [num(file.size_bytes), file]));
    const [tint, dash, type] = LOOKS[index % LOOKS.length];
    const found = (data.curves ?? []).find((each) => each.model === model);
    const curve = (found?.sizes_bytes ?? []).map((bytes, at) => [num(bytes), num(found.allocated_bytes[at])]);
    return { model, within, curve, tint, dash, type, files: [...distinct.values()].sort((a, b) => num(a.size_bytes) - num(b.size_bytes)) };
  }).filter(({ files }) => files.length);
  if (!layouts.length) {
    Shell.showNothing(data.title || "Single files");
    return;
  }
  const exact = (bytes) => `${size(bytes)}${num(bytes) > 1024 && num(bytes) % 1024 !== 0 ? ` (${count(bytes)} bytes)` : ""}`;
  const more = (file) => (num(file.size_bytes) > 0 ? num(file.allocated_bytes) / num(file.size_bytes) - 1 : undefined);
  const sizes = [...new Set(layouts.flatMap(({ files }) => files.map((file) => num(file.size_bytes))))].sort((a, b) => a - b);
  const largest = sizes.at(-1);

  /** The layout's file of the largest size up to this. */
  const upTo = ({ files }, bytes) => files.filter((file) => num(file.size_bytes) <= bytes).at(-1) ?? files[0];

  /** Every file under each of these layouts. */
  function rowsOf(list) {
    const alone = list.length === 1;
    const reports = list.some(({ files }) => files.some((file) => known(file.reported_bytes)));
    const bytes = (value) => (known(value) ? { text: exact(value), value: num(value) } : Format.MISSING);
    return {
      caption: "Space of single files",
      columns: [...(alone ? [] : [{ title: "Layout", text: true }]), { title: "File size" }, { title: "Allocated" }, { title: "Beyond its size" },
        { title: alone && list[0].within ? "Metadata, within" : "Metadata" }, ...(reports ? [{ title: "Reported by the system" }] : [])],
      rows: list.flatMap(({ model, files }) => files.map((file) => [...(alone ? [] : [{ text: model, name: true }]), bytes(file.size_bytes), bytes(file.allocated_bytes),
        { text: known(more(file)) ? change(more(file)) : Format.MISSING, value: more(file) ?? -1 }, bytes(file.metadata_bytes), ...(reports ? [bytes(file.reported_bytes)] : [])])),
    };
  }

  /** Every size up to the largest that was asked for; what was asked for is among them. */
  function between({ files, curve }) {
    const asked = files.map((file) => [num(file.size_bytes), num(file.allocated_bytes)]);
    const known = new Set(asked.map(([bytes]) => bytes));
    const all = [...asked, ...curve.filter(([bytes]) => bytes <= largest && !known.has(bytes))].sort((a, b) => a[0] - b[0]);
    return steps(all);
  }

  /** The sizes that were asked for, unless there are so many that points would hide the line. */
  const dots = (list, color, many) => line(many > 60 ? [] : list, { color, width: 0, symbol: "circle", symbolSize: 7 });

  const curve = sizes.length > 2 && new Figure({
    name: "allocated",
    title: "Allocated bytes of one file",
    note: "Points are the sizes that were asked for. Up to 2 MiB the line has every step, above that 16 sizes per doubling.",
    alt: "Allocated bytes of a single file by its size",
    state: { axis: "linear" },
    controls: [{ key: "axis", label: "Axes", options: [["linear", "Linear"], ["log", "Log"]] }],
    legend: (color) => layouts.map(({ model, tint, dash }) => ({ key: model, label: model, name: true, color: color(tint), dash })),
    layout(state, color) {
      const log = state.axis === "log";
      const stops = sizes.filter((bytes) => !log || bytes >= 1);
      const x = (bytes) => (log ? log2(bytes) : bytes);
      const shown = layouts.filter(({ model }) => !state.hidden.has(model));
      const points = (files, value) => files.filter((file) => !log || num(file.size_bytes) >= 1).map((file) => [x(num(file.size_bytes)), value(file)]);
      return {
        x: log
          ? { scale: "log2", unit: "bytes", title: "File size", full: [x(stops[0]), x(largest) + 0.1], least: 1, stops: stops.map(log2) }
          : { scale: "linear", unit: "bytes", title: "File size", full: [0, largest * 1.04], least: Math.max(1, largest / 1000), stops },
        panels: [{
          title: "Allocated", unit: "bytes", log,
          series: shown.flatMap((layout) => [line(between(layout).filter(([bytes]) => !log || bytes >= 1).map(([bytes, value]) => [x(bytes), value]), { color: color(layout.tint), dash: layout.type, width: 1.75 }),
            dots(points(layout.files, (file) => num(file.allocated_bytes)), color(layout.tint), layout.files.length)]),
        }],
        tip(at) {
          const wanted = log ? 2 ** at : at;
          const bytes = stops.reduce((best, stop) => (Math.abs(x(stop) - at) < Math.abs(x(best) - at) ? stop : best), stops[0]) ?? wanted;
          return {
            title: `File of ${exact(bytes)}`,
            columns: ["allocated", "beyond its size"],
            rows: shown.map((layout) => {
              const file = upTo(layout, bytes);
              return { color: color(layout.tint), dash: layout.dash, label: Format.shorten(layout.model, 32), value: [size(file.allocated_bytes), known(more(file)) ? change(more(file)) : Format.MISSING] };
            }),
          };
        },
      };
    },
    table: () => rowsOf(layouts),
  });
  const [first] = layouts;
  const last = first.files.at(-1);
  Shell.show({
    subject: "allocations",
    sections: [
      { id: "sizes", title: "By file size", short: "Sizes", lead: [], parts: [curve || el("div", { class: "block" }, table({ ...rowsOf(layouts), sortable: true }))] },
    ],
    nodes: [
      Shell.head({ kicker: "Space of single files", title: data.title || "Single files", facts: [["Sizes", count(sizes.length)], ["Largest", size(largest)]] }),
      layouts.length === 1 && Shell.summary([
        `A file of ${exact(last.size_bytes)} occupies ${exact(last.allocated_bytes)}${known(more(last)) ? `, ${share(Math.abs(more(last)))} ${more(last) < 0 ? "less" : "more"} than its size` : ""}${first.within ? "" : `, and ${size(last.metadata_bytes)} of metadata`}.`,
      ]),
    ],
    footer: Shell.footer({
      method: ["Allocated bytes follow from the rules of the layout; nothing is written or measured. Where a system reports its space to programs, this is what stat says (st_blocks × 512); else raw bytes on all devices. KiB, MiB and GiB are powers of 1,024."],
      data,
    }),
  });
});
