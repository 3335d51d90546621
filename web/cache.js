// The page of caches: reads the data, builds header and sections.
"use strict";

(() => {
  const { count, size } = Format;
  const data = Format.parse(document.getElementById("data").textContent);
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
        facts: [["Block sizes", count(studies[0].block_sizes.length)], ["Caches", `${size(studies[0].cache_sizes_bytes[0])} to ${size(studies[0].cache_sizes_bytes.at(-1))}`]],
        badges: studies.some((study) => study.complete === false) ? [["warn", "Interrupted: part of it"]] : [],
      }),
      Shell.summary(data.words),
    ],
    footer: Shell.footer({
      method: [
        "Requests are split into blocks. The reuse distance of a reference, the number of different blocks since the last one to the same block, says in which caches it is a hit under LRU: " +
          "one pass gives all cache sizes (Mattson et al. 1970). Where memory did not suffice, a sample of the blocks stands for all (SHARDS, Waldspurger et al. 2015).",
        "Times are those of a device with a latency and a bandwidth; neighbouring misses of a request are one transfer. Nothing was measured, except where it says so. KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    }),
  });
})();
