// The page of a comparison: reads the data, builds header and sections. Of two surveys of one tree, what grew is first.
"use strict";

Pages.add("compare", (data) => {
  const { num, known, size, count, signed } = Format;
  const { comparison } = data;
  const sources = comparison?.sources ?? [];

  if (!sources.length) {
    Shell.showNothing(data.title || "Comparison");
    return;
  }
  const { growth } = comparison;
  const hosts = [...new Set(sources.map((source) => source.host).filter(Boolean))];

  /** The sources of a growth, the earlier one first. */
  const [before, after] = [...sources].sort((a, b) => Date.parse(a.taken_at ?? 0) - Date.parse(b.taken_at ?? 0));

  function keys() {
    if (!growth) return null;
    const { total, written } = growth;
    const share = (value, of) => (num(of) > 0 ? `${Format.change(num(value) / num(of))}: ` : "");
    const fromTo = (text, a, b) => `${text(a)} to ${text(b)}`;
    return Shell.keys([
      ["Files", signed(num(total.files), count), share(total.files, before.files) + fromTo(count, before.files, after.files)],
      ["Bytes", signed(num(total.size_bytes), size), share(total.size_bytes, before.size_bytes) + fromTo(size, before.size_bytes, after.size_bytes)],
      ["Allocated", signed(num(total.allocated_bytes), size)],
      ["Median size", size(after.deciles[4]), `before ${size(before.deciles[4])}`],
      written && ["Written since", size(written.size_bytes), `in ${count(written.files)} files that are there now`],
    ]);
  }

  Shell.show({
    subject: "comparison",
    sections: [Comparisons.kinds(data), Comparisons.sizes(data), Comparisons.curves(data), Comparisons.figures(data)].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "Comparison",
        title: data.title || "Comparison",
        roots: growth ? [] : sources.map(Comparisons.named),
        facts: [...(hosts.length ? [[hosts.length > 1 ? "Machines" : "Machine", hosts.join(", ")]] : []),
          ...(growth?.from ? [["From", Format.time(growth.from)]] : []), ...(growth?.to ? [["To", Format.time(growth.to)]] : []),
          ...(known(growth?.elapsed_seconds) && num(growth.elapsed_seconds) >= 86400 ? [["Between", Format.days(Math.round(num(growth.elapsed_seconds) / 86400))]] : [])],
        badges: sources.some((source) => source.resolution === "buckets") ? [["", "Interpolated from a table"]] : [],
      }),
      Shell.summary(data.words),
      keys(),
      Comparisons.picture(data),
    ],
    footer: Shell.footer({
      method: [
        growth && "A difference is later minus earlier. Totals and figures by size are exact. A directory counts with everything below it; if only one of the surveys has it in a list, its change has a bound (≥ or ≤), " +
          "and a directory above is left out where one below it has 95 % of its change.",
        "By files, every file counts once; by bytes, every byte counts once. KiB, MiB and GiB are powers of 1,024.",
        "granulo report with both surveys shows each in full.",
      ],
      data,
    }),
  });
});
