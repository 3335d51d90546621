// The page of stores: reads the data, builds header and sections.
"use strict";

Pages.add("store", (data) => {
  const { num, size, count } = Format;
  const stores = data.stores ?? [];

  if (!stores.length) {
    Shell.showNothing(data.title || "Store");
    return;
  }
  const total = (field) => stores.reduce((sum, store) => sum + num(store[field]), 0);
  const devices = stores.flatMap((store) => store.devices ?? []);
  const lame = devices.filter((device) => device.trouble && device.state !== "gone").length;
  const incomplete = stores.some((store) => store.completeness?.state === "incomplete");
  Shell.show({
    subject: "store",
    sections: [Stores.devices(data), Stores.segments(data), Stores.objects(data), Stores.snapshots(data)].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "Store",
        title: data.title || "Store",
        facts: [...(stores.length === 1 ? [["Machine", stores[0].host], ["Status of", stores[0].written_at && Format.time(stores[0].written_at)]].filter(([, value]) => value) : []), ["Devices", count(devices.length)], ["Records", count(total("records"))], ["Index", size(total("index_bytes"))]],
        badges: [...(lame ? [["warn", lame === 1 ? "1 device has a problem" : `${count(lame)} devices have problems`]] : []),
          ...(incomplete ? [["warn", "Something may be missing"]] : [])],
      }),
      Shell.summary(data.words),
      Shell.keys([
        ["Live records", size(total("live_bytes")), "of one copy"],
        ["Dead", size(total("dead_bytes")), "compaction frees it"],
        ["Large files", size(total("unit_bytes")), "stripe units with parity"],
        ["Last scrub", Stores.scrubbed(stores[0])],
        ...stores.filter((store) => store.bucket?.spent).map(({ bucket: { spent } }) =>
          ["Requests", count(num(spent.puts) + num(spent.replaces) + num(spent.lists) + num(spent.reads) + num(spent.heads)), `by writers so far, ${size(spent.put_bytes)} put`]),
      ]),
      Stores.picture(data),
    ],
    footer: Shell.footer({
      method: [
        "Live and dead bytes are those of one copy of the log, from the accounts of the index. A device is full as its file system says, whoever wrote what is there. " +
          "The age of a segment is the time since it was begun.",
        "A rebuild reads what is left and writes what the lost device had: its segments and its stripe units. The times assume that the new device alone decides. KiB, MiB and GiB are powers of 1,024.",
      ],
      command: stores.length === 1 ? `granulo store status ${Shell.shellWord(stores[0].home)} --report FILE.html` : null,
      again: "page",
      data,
    }),
  });
});
