// The page of stores, the sections: devices, segments by age, objects, snapshots. Each function takes the data of the
// page and returns `{id, title, short, lead, parts}`, or null where there is nothing to show.
"use strict";

const Stores = (() => {
  const { el, num, known, count, size, share, duration, cells, table, MISSING } = Format;
  const { Figure } = Figures;
  // What a rebuilt device is written with, in bytes a second: a hard disk, and a SATA SSD.
  const RATES = [["at 150 MB/s", 150e6], ["at 500 MB/s", 500e6]];
  const titled = (data, text, store) => (data.stores.length > 1 ? `${text}: ${store.home}` : text);
  const date = (seconds) => (known(seconds) ? Format.time(new Date(num(seconds) * 1000).toISOString()) : MISSING);
  const scrubbed = (store) => (known(store.last_scrub_seconds) ? `${date(store.last_scrub_seconds)}${store.last_scrub_partial ? ", in part" : ""}` : "never");

  // ---------------------------------------------------------------- the picture

  const PARTS = [["Live records", "c1"], ["Large files", "c3"], ["Dead records", "warn"], ["Other data on the file system", "k0"], ["Free", "axis"]];

  /** What a device has, in the order of the parts; of one that is not there, nothing is known. */
  function filled(device) {
    const [total, free] = [num(device.total_bytes), num(device.available_bytes)];
    if (!(total > 0)) return null;
    const dead = num(device.dead_bytes);
    const [records, units] = [Math.max(0, num(device.segment_bytes) - dead), num(device.unit_bytes)];
    return [records, units, dead, Math.max(0, total - free - records - units - dead), free];
  }

  /** What each device holds and what is free; or, as the store may be a small part of its disks, of what is the store's. */
  function picture(data) {
    const all = data.stores.flatMap((store) => (store.devices ?? []).filter((device) => device.state !== "gone").map((device) => ({ store, device, values: filled(device) })));
    const shown = all.filter(({ values }) => values);
    if (!shown.length) return null;
    const isSeen = ({ store }) => store.records_in_sight;
    const label = ({ store, device }) => `${data.stores.length > 1 ? `${store.home}: ` : ""}Device ${device.number}, ${device.class}: ${device.path}`;
    const own = ({ values }) => values[0] + values[1] + values[2];
    const isTiny = shown.every((each) => own(each) < 0.02 * num(each.device.total_bytes));
    const kept = (state) => (state.of === "store" ? [0, 1, 2] : [0, 1, 2, 3, 4]);
    return new Figure({
      name: "fill",
      title: "What is on the devices",
      note: "Dead records are freed by compaction. What else is on a file system is in use by others, or is the index.",
      alt: "Bars of what is on each device: live records, large files, dead records, other data, free space",
      state: { of: isTiny && shown.some((each) => own(each) > 0) ? "store" : "device" },
      controls: [{ key: "of", label: "Bars are", options: [["device", "Whole devices"], ["store", "The store alone"]] }],
      legend: (color, state) => kept(state).filter((at) => shown.some(({ values }) => values[at] > 0)).map((at) => ({ label: PARTS[at][0], color: color(PARTS[at][1]), block: true })),
      rows: (state, color) => shown.map((each) => {
        const { device, values } = each;
        const parts = kept(state).map((at) => ({ value: values[at], color: color(PARTS[at][1]) }));
        return {
          label: label(each), value: parts.reduce((sum, part) => sum + part.value, 0), parts,
          text: state.of === "store" ? size(own(each)) : `${share(device.fill_fraction)} full, ${size(device.available_bytes)} free`,
          tip: {
            title: Format.shorten(label(each), 120), name: true,
            rows: [...values.map((value, at) => ({ color: color(PARTS[at][1]), block: true, label: PARTS[at][0].toLowerCase(), value: isSeen(each) || at > 2 ? size(value) : "unknown" })),
              { label: "size of the file system", value: size(device.total_bytes) }],
          },
        };
      }),
      table: () => ({
        caption: "What is on the devices",
        columns: [{ title: "Device", text: true }, ...PARTS.map(([title]) => ({ title })), { title: "Full" }],
        rows: shown.map((each) => [{ text: label(each), name: true }, ...each.values.map((value) => cells.size(value)), cells.share(each.device.fill_fraction)]),
      }),
    });
  }

  // ---------------------------------------------------------------- tables

  /**
   * Whether what a device has is elsewhere, too, so that it can be rebuilt: another copy of its records, parity for its
   * units. Status documents of an older granulo do not say.
   */
  function isRebuildable(store, device) {
    if (!known(store.copies)) return (store.devices ?? []).length > 1;
    const others = (store.devices ?? []).filter((other) => other.state !== "gone").length > 1;
    return others && (num(store.copies) > 1 || num(device.segment_bytes) === 0) && (num(store.parity_units) > 0 || num(device.unit_bytes) === 0);
  }

  function devices(data) {
    const parts = data.stores.flatMap((store) => {
      const seen = store.records_in_sight;
      const rows = (store.devices ?? []).map((device) => [`${device.number}`, device.class, { text: device.trouble ?? device.state, name: true },
        cells.share(device.fill_fraction, { shade: 0.6 * num(device.fill_fraction) }), cells.size(device.total_bytes),
        ...(seen ? [cells.size(device.segment_bytes), cells.size(device.unit_bytes)] : [MISSING, MISSING]), { text: device.path, name: true }]);
      const rebuilds = (store.devices ?? []).map((device) => {
        const bytes = num(device.segment_bytes) + num(device.unit_bytes);
        const known = seen && isRebuildable(store, device);
        return [`${device.number}`, device.class,
          ...(known ? [cells.size(bytes), ...RATES.map(([, rate]) => cells.duration(bytes / rate))] : [seen ? "cannot be rebuilt" : MISSING, ...RATES.map(() => MISSING)])];
      });
      return [
        el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Devices", store)), table({
          caption: "Devices",
          columns: [{ title: "Device", text: true }, { title: "Class", text: true }, { title: "State", text: true }, { title: "Full" }, { title: "Total" }, { title: "Segments" }, { title: "Stripe units" }, { title: "Directory", text: true }],
          rows,
        })),
        el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "If a device is lost", store)), table({
          caption: "If a device is lost",
          columns: [{ title: "Device", text: true }, { title: "Class", text: true }, { title: "A rebuild writes" }, ...RATES.map(([title]) => ({ title }))],
          rows: rebuilds,
        })),
      ];
    });
    return { id: "devices", title: "Devices", short: "Devices", lead: [], parts };
  }

  function segments(data) {
    const parts = data.stores.filter((store) => store.segment_ages?.some((row) => num(row.segments) > 0)).map((store) => {
      const ages = store.segment_ages;
      const name = (row, at) => {
        const from = at > 0 ? ages[at - 1].younger_than_days : 0;
        if (!known(row.younger_than_days)) return `${Format.days(from)} and older`;
        return from ? `${count(from)} up to ${Format.days(row.younger_than_days)}` : `less than ${Format.days(row.younger_than_days)}`;
      };
      return el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Segments by age", store)), table({
        caption: "Segments by age",
        columns: [{ title: "Begun", text: true }, { title: "Segments" }, { title: "Live" }, { title: "Dead" }, { title: "Share dead" }],
        rows: ages.map((row, at) => {
          const all = num(row.live_bytes) + num(row.dead_bytes);
          const dead = all > 0 ? num(row.dead_bytes) / all : undefined;
          return [name(row, at), cells.count(row.segments), cells.size(row.live_bytes), cells.size(row.dead_bytes), cells.share(dead, { shade: 0.6 * num(dead) })];
        }),
      }));
    });
    const waiting = data.stores.flatMap((store) => [
      [store.waiting_bytes, "will be freed when readers finish."], [store.overflowed_bytes, "of records are on slow devices: granulo store rebalance."],
      [store.quarantined_bytes, "are outside the log, left by a crash: granulo store repair --accept."],
    ].filter(([bytes]) => num(bytes) > 0).map(([bytes, words]) => el("p", { class: "note name" }, `${size(bytes)} ${words}`)));
    return parts.length || waiting.length ? { id: "segments", title: "Live and dead", short: "Segments", lead: [], parts: [...parts, ...waiting] } : null;
  }

  function objects(data) {
    const parts = data.stores.filter((store) => store.counts).map((store) => {
      const { counts } = store;
      return el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Objects", store)), table({
        caption: "Objects", columns: [{ title: "Kind", text: true }, { title: "Number" }, { title: "Size" }],
        rows: [["Files", cells.count(counts.files), cells.size(counts.size_bytes)], ["Of these, large", cells.count(counts.large_files), cells.size(counts.large_size_bytes)],
          ["Names of shared files", cells.count(counts.links), MISSING], ["Directories", cells.count(counts.directories), MISSING], ["Symbolic links", cells.count(counts.symlinks), MISSING],
          ["Fifos, sockets, devices", cells.count(counts.special), MISSING]],
      }));
    });
    return parts.length ? { id: "objects", title: "Objects", short: "Objects", lead: [], parts } : null;
  }

  function snapshots(data) {
    const parts = data.stores.filter((store) => store.snapshots?.length).map((store) => el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Snapshots", store)),
      el("p", { class: "note" }, `They alone keep ${count(store.held_objects)} ${num(store.held_objects) === 1 ? "object" : "objects"}, ${size(store.held_size_bytes)}.`), table({
        caption: "Snapshots", columns: [{ title: "Name", text: true }, { title: "Taken", text: true }, { title: "Objects it alone keeps" }, { title: "Size" }],
        rows: store.snapshots.map((one) => [{ text: one.name, name: true }, date(one.created_seconds), cells.count(one.alone_objects), cells.size(one.alone_size_bytes)]),
      })));
    return parts.length ? { id: "snapshots", title: "Snapshots", short: "Snapshots", lead: [], parts } : null;
  }

  return { picture, devices, segments, objects, snapshots, scrubbed };
})();
