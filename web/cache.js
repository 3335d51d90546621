// The page of caches: reads the data, builds header and sections.
"use strict";

Pages.add("cache", (data) => {
  const { count, size } = Format;
  const studies = data.studies ?? [];

  if (!studies.length) {
    Shell.showNothing(data.title || "Caches");
    return;
  }
  Shell.show({
    subject: "study",
    sections: [Caches.curves(data), Caches.matrix(data), Caches.policies(data), Caches.targets(data)].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "Caches",
        title: data.title || "Caches",
        facts: [...(studies.length === 1 && studies[0].host ? [["Recorded on", studies[0].host]] : []), ...(studies.length === 1 && studies[0].written_at ? [["Computed", Format.time(studies[0].written_at)]] : []),
          ["Block sizes", count(studies[0].block_sizes.length)], ["Caches", `${size(studies[0].cache_sizes_bytes[0])} to ${size(studies[0].cache_sizes_bytes.at(-1))}`]],
        badges: studies.some((study) => study.complete === false) ? [["warn", "Interrupted: partial"]] : [],
      }),
      Shell.summary(data.words),
    ],
    footer: Shell.footer({
      method: [
        "Requests are split into blocks. The reuse distance of a reference, the number of distinct blocks since the previous reference to the same block, determines the cache sizes at which it hits under LRU: " +
          "one pass gives all cache sizes (Mattson et al. 1970). If memory does not suffice, the blocks are sampled (SHARDS, Waldspurger et al. 2015).",
        "Times are for a device with a given latency and bandwidth; adjacent misses of a request are one transfer. All figures are predictions unless marked as measured. KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    }),
  });
});
