// The page of stores, the sections: devices, segments by age, objects, snapshots. Each function takes the data of the
// page and returns `{id, title, short, lead, parts}`, or null where there is nothing to show.
"use strict";

const Stores = (() => {
  const { el, num, known, count, size, share, duration, table, MISSING } = Format;
  // What a rebuilt device is written with, in bytes a second: a hard disk, and a SATA SSD.
  const RATES = [["at 150 MB/s", 150e6], ["at 500 MB/s", 500e6]];
  const titled = (data, text, store) => (data.stores.length > 1 ? `${text}: ${store.home}` : text);
  const date = (seconds) => (known(seconds) ? Format.time(new Date(num(seconds) * 1000).toISOString()) : MISSING);
  const scrubbed = (store) => (known(store.last_scrub_seconds) ? `${date(store.last_scrub_seconds)}${store.last_scrub_partial ? ", in part" : ""}` : "never");

  function devices(data) {
    const parts = data.stores.map((store) => {
      const seen = store.records_in_sight;
      return el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Devices", store)), table({
        caption: "Devices",
        columns: [{ title: "Device", text: true }, { title: "Class", text: true }, { title: "State", text: true }, { title: "Full" }, { title: "Total" }, { title: "Segments" }, { title: "Stripe units" },
          { title: "A rebuild writes" }, ...RATES.map(([title]) => ({ title })), { title: "Directory", text: true }],
        rows: (store.devices ?? []).map((device) => {
          const bytes = num(device.segment_bytes) + num(device.unit_bytes);
          return [`${device.number}`, device.class, { text: device.trouble ?? device.state, name: true },
            known(device.fill_fraction) ? { text: share(device.fill_fraction), value: num(device.fill_fraction), shade: 0.6 * num(device.fill_fraction) } : MISSING, size(device.total_bytes),
            seen ? size(device.segment_bytes) : MISSING, seen ? size(device.unit_bytes) : MISSING, seen ? size(bytes) : MISSING,
            ...RATES.map(([, rate]) => (seen ? duration(bytes / rate) : MISSING)), { text: device.path, name: true }];
        }),
      }));
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
          return [name(row, at), count(row.segments), size(row.live_bytes), size(row.dead_bytes), known(dead) ? { text: share(dead), value: dead, shade: 0.6 * dead } : MISSING];
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
        rows: [["Files", count(counts.files), size(counts.size_bytes)], ["Of these, large", count(counts.large_files), size(counts.large_size_bytes)], ["Names of files with several", count(counts.links), MISSING],
          ["Directories", count(counts.directories), MISSING], ["Symbolic links", count(counts.symlinks), MISSING], ["Fifos, sockets, devices", count(counts.special), MISSING]],
      }));
    });
    return parts.length ? { id: "objects", title: "Objects", short: "Objects", lead: [], parts } : null;
  }

  function snapshots(data) {
    const parts = data.stores.filter((store) => store.snapshots?.length).map((store) => el("div", { class: "block" }, el("h3", { class: "name" }, titled(data, "Snapshots", store)),
      el("p", { class: "note" }, `They alone keep ${count(store.held_objects)} ${num(store.held_objects) === 1 ? "object" : "objects"}, ${size(store.held_size_bytes)}.`), table({
        caption: "Snapshots", columns: [{ title: "Name", text: true }, { title: "Taken", text: true }, { title: "Objects it alone keeps" }, { title: "Size" }],
        rows: store.snapshots.map((one) => [{ text: one.name, name: true }, date(one.created_seconds), count(one.alone_objects), size(one.alone_size_bytes)]),
      })));
    return parts.length ? { id: "snapshots", title: "Snapshots", short: "Snapshots", lead: [], parts } : null;
  }

  return { devices, segments, objects, snapshots, scrubbed };
})();
